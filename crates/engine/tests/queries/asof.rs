//! ASOF JOIN: the forms of Snowflake and DuckDB give what a naive search gives, and what DuckDB
//! gives where it is there (`THALWEG_PYTHON`, see CONTRIBUTING.md).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use thalweg_core::shim::SplitMix64;

use super::python::python_with_duckdb;

/// Key, time in seconds, number.
type Row = (Option<i64>, i64, i64);

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("asof");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn time(seconds: i64) -> String {
    format!("2026-01-01 00:{:02}:{:02}", seconds / 60, seconds % 60)
}

/// Rows in the order of time. On the right no key has two rows of a time, so that there is one
/// answer.
fn rows(count: i64, random: &mut SplitMix64, unique: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for n in 0..count {
        let key = (random.below(9) > 0).then(|| random.below(6) as i64);
        let at = n / 2 + random.below(2) as i64;
        if !unique || rows.iter().all(|row| (row.0, row.1) != (key, at)) {
            rows.push((key, at, n));
        }
    }
    rows.sort_by_key(|row| row.1);
    rows
}

fn write(name: &str, rows: &[Row]) {
    let key = |key: Option<i64>| key.map_or("NULL".to_owned(), |key| key.to_string());
    let line = |row: &Row| format!("{},{},{}\n", key(row.0), time(row.1), row.2);
    fs::write(folder().join(name), rows.iter().map(line).collect::<String>()).expect("written");
}

fn run(query: &str, workers: usize, order: &str) -> Output {
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (k INT, ts TIMESTAMP(0), n INT, WATERMARK FOR ts AS ts) WITH (\
             'connector' = 'filesystem', 'format' = 'csv', 'csv.null-literal' = 'NULL', 'path' = '{name}.csv');\n"
        )
    };
    let number: u64 =
        query.bytes().chain(order.bytes()).map(u64::from).sum::<u64>() * 10 + workers as u64;
    let file = folder().join(format!("query-{number}.sql"));
    fs::write(&file, format!("{}{}{query}", table("a"), table("b"))).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["run", "--quiet", "--format", "csv", "--workers", &workers.to_string()]);
    command.args(["--set", &format!("pipeline.order={order}")]);
    command.arg(file).stdin(Stdio::null()).output().expect("running thalweg")
}

fn sorted(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut lines: Vec<String> = text.lines().skip(1).map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn every_row_meets_the_latest_that_is_not_newer() {
    let mut random = SplitMix64::new(11);
    let (left, right) = (rows(300, &mut random, false), rows(200, &mut random, true));
    write("a.csv", &left);
    write("b.csv", &right);
    let forms = [
        "SELECT a.n, b.n AS m FROM a ASOF KIND JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
        "SELECT a.n, c.n AS m FROM a ASOF KIND JOIN b AS c MATCH_CONDITION (c.ts <= a.ts) ON a.k = c.k",
        "SELECT a.n, b.n AS m FROM a ASOF KIND JOIN b ON a.k = b.k AND a.ts >= b.ts",
    ];
    for (kind, pads) in [("", false), ("LEFT", true), ("LEFT OUTER", true), ("INNER", false)] {
        let mut expected = Vec::new();
        for a in &left {
            let before = right.iter().filter(|b| a.0.is_some() && b.0 == a.0 && b.1 <= a.1);
            match before.max_by_key(|b| b.1) {
                Some(b) => expected.push(format!("{},{}", a.2, b.2)),
                None if pads => expected.push(format!("{},", a.2)),
                None => {}
            }
        }
        expected.sort();
        for form in forms {
            let query = form.replace(
                "KIND ",
                &if kind.is_empty() { String::new() } else { format!("{kind} ") },
            );
            let mut bytes = None;
            for (workers, order) in [(2, "epoch"), (1, "event_time"), (4, "event_time")] {
                let output = run(&format!("{query};"), workers, order);
                let problem = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{query}: {problem}");
                assert!(sorted(&output.stdout) == expected, "{query}, {order}");
                if order == "event_time" {
                    assert!(
                        *bytes.get_or_insert(output.stdout.clone()) == output.stdout,
                        "{query}: {workers}"
                    );
                }
            }
            check_duckdb(&query, &expected);
        }
    }
}

/// DuckDB has no MATCH_CONDITION.
fn check_duckdb(query: &str, expected: &[String]) {
    let Some(python) = python_with_duckdb() else { return };
    if query.contains("MATCH_CONDITION") || query.contains("INNER") {
        return;
    }
    let read = |name: &str| {
        let path = folder().join(format!("{name}.csv"));
        format!(
            "duckdb.sql(\"\"\"CREATE TABLE {name} AS SELECT * FROM read_csv('{}', header=false, nullstr='NULL', \
             columns={{'k':'INT','ts':'TIMESTAMP','n':'INT'}})\"\"\")\n",
            path.display()
        )
    };
    let script = format!(
        "import duckdb\n{}{}print('n,m')\nfor row in duckdb.sql(\"\"\"{query}\"\"\").fetchall():\n    \
         print(','.join('' if v is None else str(v) for v in row))\n",
        read("a"),
        read("b")
    );
    let output = Command::new(python).args(["-c", &script]).output().expect("runs python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(sorted(&output.stdout) == expected, "DuckDB differs: {query}");
}

#[test]
fn what_is_no_asof_join_is_refused_at_its_place() {
    // Nothing is opened: the files of the other test may be there or not.
    let cases = [
        (
            "SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.n >= b.n) ON a.k = b.k;",
            "compares the row times",
        ),
        (
            "SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.ts > b.ts) ON a.k = b.k;",
            "compares the row times",
        ),
        ("SELECT a.n FROM a ASOF JOIN b ON a.k = b.k;", "compares the row times"),
        (
            "SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k AND a.n < b.n;",
            "takes equalities",
        ),
        ("SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) USING (k);", "expected"),
        ("SELECT a.n FROM a ASOF JOIN b USING (k);", "USING is not supported"),
        (
            "SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION a.ts >= b.ts ON a.k = b.k;",
            "after MATCH_CONDITION",
        ),
    ];
    for (query, part) in cases {
        let output = run(query, 1, "epoch");
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && problem.contains(".sql:3:"), "{query}: {problem}");
        let is_said = problem.contains(part) || part == "expected";
        assert!(is_said, "{query}: {problem}");
    }
}
