//! Where nothing is late, a stream's windows are those of a batch query: compared with DuckDB.
//!
//! Random streams, out of order by less than the watermark waits, go through the command line with
//! several worker counts and bundle sizes, through the reference executor that other tests use as
//! their oracle, and as a whole through DuckDB. DuckDB is a dependency of this test only:
//! `THALWEG_PYTHON` names a Python that has it (`make test` sees to that). Without the variable and
//! without the package the test says that it is skipped.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use thalweg_core::shim::SplitMix64;
use thalweg_operators::reference::{
    self, ReferenceAggregate, ReferenceFunction, ReferenceQuery, ReferenceWindow, Row, Value,
};

use super::python::{python_with_duckdb, repository};

const SEEDS: [u64; 3] = [1, 2, 3];
const ROWS: u64 = 3_000;
const ROW_DISTANCE_MS: u64 = 50;
/// Far enough from 1970 that DuckDB, whose division truncates, finds the right window.
const START_MS: u64 = 1_000_000;
/// Rows are out of order by less than this; the watermark waits for as long.
const DISORDER_MS: u64 = 6_000;
/// Workers and the largest bundle: what must not show in a result.
const CONFIGURATIONS: [(usize, usize); 4] = [(1, 65_536), (2, 1_000), (4, 7), (2, 1)];

/// Columns from here on are floats, compared to 1e-9; those before are compared as text.
const FIRST_FLOAT: usize = 9;
const AGGREGATES: &str = "COUNT(*) AS n, COUNT(v) AS nv, SUM(v) AS s, MIN(v) AS mn, MAX(v) AS mx, \
    COUNT(DISTINCT v) AS dv, AVG(d) AS a, VAR_POP(d) AS vp, SUM(d) FILTER (WHERE v > 50) AS f";

struct Case {
    /// The windowing table function.
    window: &'static str,
    /// Rows with `ws` and `we`, in milliseconds, for DuckDB.
    batch: &'static str,
    reference: ReferenceWindow,
}

const CASES: [Case; 4] = [
    Case {
        window: "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '3' SECOND)",
        batch: "SELECT *, (ms - 3000) // 10000 * 10000 + 3000 AS ws, ws + 10000 AS we FROM t",
        reference: ReferenceWindow::Tumble { size_ms: 10_000, offset_ms: 3_000 },
    },
    Case {
        window: "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)",
        batch: "SELECT *, ws + 20000 AS we FROM (SELECT *, unnest(range(
                  ms // 5000 * 5000 - 15000, ms // 5000 * 5000 + 1, 5000)) AS ws FROM t)",
        reference: ReferenceWindow::Hop { slide_ms: 5_000, size_ms: 20_000, offset_ms: 0 },
    },
    Case {
        window: "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '30' SECOND)",
        batch: "SELECT *, ms // 30000 * 30000 AS ws, unnest(range(
                  ms // 5000 * 5000 + 5000, ms // 30000 * 30000 + 30001, 5000)) AS we FROM t",
        reference: ReferenceWindow::Cumulate { step_ms: 5_000, max_size_ms: 30_000, offset_ms: 0 },
    },
    Case {
        window: "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        batch: "SELECT *, min(ms) OVER (PARTITION BY k, session) AS ws,
                  max(ms) OVER (PARTITION BY k, session) + 1000 AS we
                FROM (SELECT *, count(*) FILTER (WHERE breaks) OVER (PARTITION BY k ORDER BY ms) AS session
                  FROM (SELECT *, ms - lag(ms) OVER (PARTITION BY k ORDER BY ms) > 1000 AS breaks FROM t))",
        reference: ReferenceWindow::Session { gap_ms: 1_000 },
    },
];

#[test]
fn windows_equal_a_batch_query_where_nothing_is_late() {
    let Some(python) = python_with_duckdb() else { return };
    for seed in SEEDS {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("duckdb-{seed}"));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let events = stream(seed);
        let csv: String = events.iter().map(Event::csv).collect();
        fs::write(folder.join("in.csv"), csv).expect("writing the input");
        let wanted = duckdb(python, &folder.join("in.csv"));
        for (case, want) in CASES.iter().zip(&wanted) {
            let run = format!("{}, seed {seed}", case.window);
            assert_same(&format!("{run}, reference executor"), &by_reference(&events, case), want);
            for (workers, bundle_rows_max) in CONFIGURATIONS {
                let got = thalweg(&folder, case, workers, bundle_rows_max);
                let run = format!("{run}, {workers} workers, bundles of {bundle_rows_max}");
                assert_same(&run, &got, want);
            }
        }
    }
}

struct Event {
    ms: u64,
    key: Option<String>,
    value: Option<i64>,
    double: f64,
}

impl Event {
    /// A line; NULL is an empty field.
    fn csv(&self) -> String {
        let value = self.value.map(|value| value.to_string()).unwrap_or_default();
        let key = self.key.as_deref().unwrap_or_default();
        format!("{},{key},{value},{}\n", timestamp(self.ms), self.double)
    }

    /// Columns ts, k, v, d, and the condition of the FILTER.
    fn row(&self) -> Row {
        Row::new(vec![
            Value::Integer(self.ms as i64),
            self.key.as_deref().map_or(Value::Null, Value::text),
            self.value.map_or(Value::Null, Value::Integer),
            Value::Double(self.double),
            self.value.map_or(Value::Null, |value| Value::Boolean(value > 50)),
        ])
    }
}

/// A stream that a seed determines.
fn stream(seed: u64) -> Vec<Event> {
    let mut random = SplitMix64::new(seed);
    let event = |row| Event {
        ms: START_MS + row * ROW_DISTANCE_MS - random.below(DISORDER_MS),
        key: Some(random.below(8)).filter(|&key| key > 0).map(|key| format!("key {key}")),
        value: Some(random.below(100) as i64).filter(|&value| value > 9),
        // Quarters are exact in binary, so that sums do not depend on their order.
        double: random.below(4_000) as f64 / 4.0,
    };
    (0..ROWS).map(event).collect()
}

/// The aggregates of [`AGGREGATES`], one row at a time.
fn by_reference(events: &[Event], case: &Case) -> Vec<Vec<String>> {
    use ReferenceFunction::{Avg, Count, Max, Min, Sum, VarPop};
    let distinct = ReferenceAggregate { distinct: true, ..ReferenceAggregate::new(Count, Some(2)) };
    let filtered = ReferenceAggregate {
        filter: Some(4),
        ..ReferenceAggregate::new(Sum { bits: 64 }, Some(3))
    };
    let query = ReferenceQuery {
        watermark: Box::new(|row| match row[0] {
            Value::Integer(ms) => Some(ms - DISORDER_MS as i64),
            _ => None,
        }),
        filter: None,
        project: None,
        rowtime: 0,
        window: case.reference,
        keys: vec![1],
        aggregates: vec![
            ReferenceAggregate::new(Count, None),
            ReferenceAggregate::new(Count, Some(2)),
            ReferenceAggregate::new(Sum { bits: 64 }, Some(2)),
            ReferenceAggregate::new(Min, Some(2)),
            ReferenceAggregate::new(Max, Some(2)),
            distinct,
            ReferenceAggregate::new(Avg, Some(3)),
            ReferenceAggregate::new(VarPop, Some(3)),
            filtered,
        ],
    };
    let result = reference::run(&query, events.iter().map(Event::row).collect());
    assert!(result.late.is_empty(), "the stream is made so that nothing is late");
    result.rows.iter().map(|row| reference_text(row)).collect()
}

/// Window start, window end, key, aggregates; as the others print them.
fn reference_text(row: &[Value]) -> Vec<String> {
    let (values, window) = row.split_at(row.len() - 2);
    let edges = window.iter().map(|edge| match edge {
        Value::Integer(ms) => timestamp(*ms as u64),
        other => panic!("a window's edge is no integer: {other:?}"),
    });
    let values = values.iter().map(|value| match value {
        Value::Null => "\\N".to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Double(double) => double.to_string(),
        Value::String(text) => text.clone(),
        other => panic!("no column has such values: {other:?}"),
    });
    edges.chain(values).collect()
}

/// Milliseconds of 1970-01-01 as a timestamp.
fn timestamp(ms: u64) -> String {
    let (seconds, millis) = (ms / 1000, ms % 1000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("1970-01-01 {hours:02}:{minutes:02}:{:02}.{millis:03}", seconds % 60)
}

fn duckdb(python: &Path, input: &Path) -> Vec<Vec<Vec<String>>> {
    let time =
        |column: &str| format!("strftime(make_timestamp_ms({column}), '%Y-%m-%d %H:%M:%S.%g')");
    let queries = CASES.map(|case| {
        let (start, end) = (time("ws"), time("we"));
        format!("SELECT {start}, {end}, k, {AGGREGATES} FROM ({}) GROUP BY ws, we, k", case.batch)
    });
    let script = repository().join("scripts/duckdb_oracle.py");
    let mut child = Command::new(python)
        .arg(script)
        .arg(input)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starting Python");
    let mut stdin = child.stdin.take().expect("a pipe to Python");
    stdin.write_all(queries.join("\n--\n").as_bytes()).expect("sending queries");
    drop(stdin);
    let output = child.wait_with_output().expect("the answers of DuckDB");
    assert!(output.status.success(), "the oracle failed");
    let text = String::from_utf8(output.stdout).expect("answers are UTF-8");
    text.split("--\n").map(rows).collect()
}

fn thalweg(folder: &Path, case: &Case, workers: usize, bundle_rows_max: usize) -> Vec<Vec<String>> {
    let query = format!(
        "CREATE TABLE t (ts TIMESTAMP(3), k STRING, v BIGINT, d DOUBLE,
           WATERMARK FOR ts AS ts - INTERVAL '{}' SECOND)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'csv.null-literal' = '', 'path' = 'in.csv');
         SELECT window_start, window_end, k, {AGGREGATES} FROM TABLE({})
         GROUP BY window_start, window_end, k;",
        DISORDER_MS / 1000,
        case.window
    );
    let file = folder.join("query.sql");
    fs::write(&file, query).expect("writing the query");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["run", "--format", "csv", "--null", "\\N", "--workers", &workers.to_string()]);
    command.args(["--set", &format!("pipeline.bundle-rows-max={bundle_rows_max}")]);
    // A late row would be missing from the result: say so instead.
    command.args(["--set", "late.data=fail"]).arg(file);
    let output = command.output().expect("starting thalweg");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut rows = rows(&String::from_utf8_lossy(&output.stdout));
    rows.remove(0);
    rows
}

fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split(',').map(str::to_string).collect()).collect()
}

fn assert_same(run: &str, got: &[Vec<String>], want: &[Vec<String>]) {
    let (mut got, mut want) = (got.to_vec(), want.to_vec());
    got.sort();
    want.sort();
    assert_eq!(got.len(), want.len(), "{run}: number of rows");
    for (got, want) in got.iter().zip(&want) {
        let is_same = got.len() == want.len()
            && got[..FIRST_FLOAT] == want[..FIRST_FLOAT]
            && got[FIRST_FLOAT..].iter().zip(&want[FIRST_FLOAT..]).all(|(a, b)| is_near(a, b));
        assert!(is_same, "{run}:\n  {}\ninstead of\n  {}", got.join(","), want.join(","));
    }
}

/// Equal to 1e-9, relative to the values that were added up (some 1000).
fn is_near(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1_000.0),
        _ => a == b,
    }
}
