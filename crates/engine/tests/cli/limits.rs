//! `--memory-limit` holds whatever an operator makes of its rows, and Ctrl-C is seen wherever a job
//! is.
//!
//! Each operator meets the input that multiplies most in it. The process may take the limit and
//! [`OWN_BYTES`] for itself, or says clearly that the limit is too low. The inputs are small for a
//! test; with `THALWEG_LIMITS_SCALE=4` they are four times as large.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Workspace, assert_holds, interrupt, wait};

const LIMIT_BYTES: u64 = 64 << 20;
/// What the process takes in addition to what it counts and to what it takes for a few rows:
/// buffers of files, what the allocator gives back late.
const OWN_BYTES: u64 = 48 << 20;

/// How much larger than usual inputs are.
fn scale() -> usize {
    let scale = std::env::var("THALWEG_LIMITS_SCALE").ok();
    scale.and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Events of one key, a second apart: id, k (always 0), n (descending), s (a text), t.
fn events(rows: usize) -> String {
    let row = |i: usize| {
        let (hours, minutes, seconds) = (i / 3600 % 24, i / 60 % 60, i % 60);
        let (day, n) = (1 + i / 86_400, rows - i);
        format!("{i},0,{n},text {i},2026-01-{day:02} {hours:02}:{minutes:02}:{seconds:02}\n")
    };
    (0..rows).map(row).collect()
}

/// Lines with an array of this many elements.
fn arrays(rows: usize, elements: usize) -> String {
    let all: Vec<String> = (0..elements).map(|element| element.to_string()).collect();
    let all = all.join(",");
    (0..rows).map(|id| format!("{{\"id\":{id},\"xs\":[{all}]}}\n")).collect()
}

const TABLES: &str = "
CREATE TABLE ev (id BIGINT, k INT, n BIGINT, s STRING, t TIMESTAMP(3),
                 WATERMARK FOR t AS t - INTERVAL '1' DAY)
WITH ('connector' = 'filesystem', 'path' = 'events.csv', 'format' = 'csv');
CREATE TABLE looked_up (id BIGINT, k INT, n BIGINT, s STRING, t TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = 'events.csv', 'format' = 'csv');
CREATE VIEW versions AS
SELECT k, s, t FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) AS r FROM ev)
WHERE r = 1;
CREATE TABLE arrays (id BIGINT, xs ARRAY<BIGINT>)
WITH ('connector' = 'filesystem', 'path' = 'arrays.json', 'format' = 'json');
";

/// What is run: the rows of `ev`, statements before, the columns of the result, and the query.
struct Case {
    name: &'static str,
    rows: usize,
    before: &'static str,
    columns: &'static str,
    query: &'static str,
    /// How many rows the query has, as the metrics write it.
    results: &'static str,
    /// Where the rows go: the table's definition after its columns.
    sink: &'static str,
}

const NOWHERE: &str = "WITH ('connector' = 'blackhole')";

const PAIR: &str = "id BIGINT, s STRING";
const WINDOWED: &str = "id BIGINT, s STRING, w TIMESTAMP(3)";
const BATCH: &str = "SET 'execution.runtime-mode' = 'batch';";
const ARRIVAL: &str = "SET 'pipeline.order' = 'arrival';";

const CROSS: &str = "SELECT a.id, b.s FROM ev a CROSS JOIN ev b";
const HOPPING: &str = "SELECT id, s, window_start
    FROM TABLE(HOP(TABLE ev, DESCRIPTOR(t), INTERVAL '1' SECOND, INTERVAL '1' DAY))";

const fn case(
    name: &'static str,
    rows: usize,
    columns: &'static str,
    query: &'static str,
    results: &'static str,
) -> Case {
    Case { name, rows, before: "", columns, query, results, sink: NOWHERE }
}

const CASES: &[Case] = &[
    case("cross join", 3_000, PAIR, CROSS, "9,000,000"),
    case(
        "regular join",
        3_000,
        PAIR,
        "SELECT a.id, b.s FROM ev a JOIN ev b ON a.k = b.k AND a.id + b.id >= 0",
        "9,000,000",
    ),
    case(
        "interval join",
        3_000,
        PAIR,
        "SELECT a.id, b.s FROM ev a JOIN ev b ON a.k = b.k
         AND a.t BETWEEN b.t - INTERVAL '1' DAY AND b.t + INTERVAL '1' DAY",
        "9,000,000",
    ),
    case(
        "window join",
        3_000,
        PAIR,
        "SELECT a.id, b.s
         FROM (SELECT * FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(t), INTERVAL '1' DAY))) a
         JOIN (SELECT * FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(t), INTERVAL '1' DAY))) b
         ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end",
        "9,000,000",
    ),
    Case {
        before: BATCH,
        ..case(
            "hash join",
            3_000,
            PAIR,
            "SELECT a.id, b.s FROM ev a JOIN ev b ON a.k = b.k",
            "9,000,000",
        )
    },
    case("hopping windows of rows", 50, WINDOWED, HOPPING, "4,320,000"),
    case(
        "cumulating windows of rows",
        50,
        WINDOWED,
        "SELECT id, s, window_end
         FROM TABLE(CUMULATE(TABLE ev, DESCRIPTOR(t), INTERVAL '1' SECOND, INTERVAL '1' DAY))",
        "4,318,775",
    ),
    case(
        "hopping windows",
        20,
        "id BIGINT, w TIMESTAMP(3), n BIGINT",
        "SELECT id, window_start, COUNT(*)
         FROM TABLE(HOP(TABLE ev, DESCRIPTOR(t), INTERVAL '1' SECOND, INTERVAL '1' DAY))
         GROUP BY id, window_start, window_end",
        "1,728,000",
    ),
    case(
        "unnest",
        20,
        "id BIGINT, xs ARRAY<BIGINT>, x BIGINT",
        "SELECT id, xs, x FROM arrays CROSS JOIN UNNEST(xs) AS u (x)",
        "60,000",
    ),
    case(
        "unnest twice",
        1,
        "id BIGINT, x BIGINT, y BIGINT",
        "SELECT id, x, y FROM arrays CROSS JOIN UNNEST(xs) AS u (x) CROSS JOIN UNNEST(xs) AS w (y)",
        "9,000,000",
    ),
    // Two workers once took turns at parts that could not leave, each with another bundle.
    Case {
        before: "SET 'pipeline.bundle-rows-max' = '1';",
        ..case(
            "unnest of many bundles",
            60,
            "id BIGINT, xs ARRAY<BIGINT>, x BIGINT",
            "SELECT id, xs, x FROM arrays CROSS JOIN UNNEST(xs) AS u (x)",
            "180,000",
        )
    },
    case(
        "lookup join",
        3_000,
        PAIR,
        "SELECT a.id, b.s FROM (SELECT *, PROCTIME() AS p FROM ev) a
         JOIN looked_up FOR SYSTEM_TIME AS OF a.p AS b ON a.k = b.k",
        "9,000,000",
    ),
    case(
        "outer lookup join",
        3_000,
        PAIR,
        "SELECT a.id, b.s FROM (SELECT *, PROCTIME() AS p FROM ev) a
         LEFT JOIN looked_up FOR SYSTEM_TIME AS OF a.p AS b ON a.k = b.k AND a.id <> b.id",
        "8,997,000",
    ),
    case(
        "temporal join",
        20_000,
        PAIR,
        "SELECT a.id, b.s FROM ev a JOIN versions FOR SYSTEM_TIME AS OF a.t AS b ON a.k = b.k",
        "20,000",
    ),
    Case {
        before: BATCH,
        ..case(
            "outer hash join",
            3_000,
            PAIR,
            "SELECT /*+ BROADCAST(b) */ a.id, b.s FROM ev a LEFT JOIN looked_up b ON a.k = b.k AND a.id <> b.id",
            "8,997,000",
        )
    },
    // Half of the memory is the table.
    Case {
        before: BATCH,
        ..case(
            "large build side",
            200_000,
            "n BIGINT",
            "SELECT COUNT(b.s) FROM ev a JOIN looked_up b ON a.id = b.n",
            "1",
        )
    },
    case(
        "large lookup table",
        200_000,
        PAIR,
        "SELECT a.id, b.s FROM (SELECT *, PROCTIME() AS p FROM ev) a
         JOIN looked_up FOR SYSTEM_TIME AS OF a.p AS b ON a.id = b.n",
        "199,999",
    ),
    case(
        "membership",
        3_000,
        PAIR,
        "SELECT id, s FROM ev WHERE NOT EXISTS
           (SELECT 1 FROM looked_up b WHERE b.k = ev.k AND b.id + ev.id < 0)",
        "3,000",
    ),
    case(
        "array_agg",
        5_000,
        "k INT, a ARRAY<BIGINT>, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, ARRAY_AGG(id) FROM ev GROUP BY k",
        "9,999",
    ),
    case(
        "listagg",
        8_000,
        "k INT, a STRING, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, LISTAGG(s) FROM ev GROUP BY k",
        "15,999",
    ),
    case(
        "ranks",
        3_000,
        "id BIGINT, r BIGINT, PRIMARY KEY (r) NOT ENFORCED",
        "SELECT id, r
         FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) AS r FROM ev)
         WHERE r <= 1000",
        "5,000,000",
    ),
    case(
        "over",
        20_000,
        PAIR,
        "SELECT id, LAST_VALUE(s) OVER (PARTITION BY k ORDER BY t) FROM ev",
        "20,000",
    ),
    case(
        "over of lists",
        3_000,
        PAIR,
        "SELECT id, LISTAGG(s) OVER (PARTITION BY k ORDER BY t) FROM ev",
        "3,000",
    ),
    case(
        "patterns",
        1_500,
        "first BIGINT, l STRING",
        "SELECT first, l FROM ev MATCH_RECOGNIZE (
           PARTITION BY k ORDER BY t MEASURES FIRST(A.id) AS first, B.s AS l
           AFTER MATCH SKIP TO NEXT ROW PATTERN (A+ B) DEFINE A AS A.n > 1, B AS B.n = 1)",
        "1,499",
    ),
    case(
        "sort by time",
        20_000,
        "id BIGINT, s STRING, t TIMESTAMP(3)",
        "SELECT id, s, t FROM ev ORDER BY t",
        "20,000",
    ),
    Case {
        before: BATCH,
        ..case(
            "sort",
            700,
            PAIR,
            "SELECT a.id, b.s FROM ev a CROSS JOIN ev b ORDER BY b.s, a.id",
            "490,000",
        )
    },
    case(
        "intersection",
        3_000,
        "k INT",
        "SELECT a.k FROM ev a CROSS JOIN ev b INTERSECT ALL SELECT k FROM ev",
        "3,000",
    ),
    case(
        "distinct rows",
        700,
        "n BIGINT",
        "SELECT DISTINCT a.n * 100000 + b.n FROM ev a CROSS JOIN ev b",
        "490,000",
    ),
    case("repeated texts", 2_000, PAIR, "SELECT id, REPEAT(s, 9000) FROM ev", "2,000"),
    // Concatenations were computed for all rows of a bundle at once.
    Case {
        before: "CREATE VIEW v1 AS SELECT id, s || s || s || s || s || s || s || s AS s FROM ev;
                 CREATE VIEW v2 AS SELECT id, s || s || s || s || s || s || s || s AS s FROM v1;
                 CREATE VIEW v3 AS SELECT id, s || s || s || s || s || s || s || s AS s FROM v2;",
        ..case(
            "concatenated texts",
            3_000,
            PAIR,
            "SELECT id, s || s || s || s || s || s || s || s FROM v3",
            "3,000",
        )
    },
    case(
        "texts on the way to numbers",
        3_000,
        "id BIGINT, n INT",
        "SELECT id, CHAR_LENGTH(HEX(HEX(HEX(HEX(HEX(HEX(HEX(HEX(HEX(HEX(HEX(HEX(s))))))))))))) FROM ev",
        "3,000",
    ),
    Case {
        sink: "PARTITIONED BY (id) WITH ('connector' = 'filesystem', 'path' = 'out/', 'format' = 'csv')",
        ..case("many partitions", 2_000, PAIR, "SELECT id, s FROM ev", "2,000")
    },
    Case { before: ARRIVAL, ..case("cross join in order", 3_000, PAIR, CROSS, "9,000,000") },
    Case {
        before: ARRIVAL,
        ..case("hopping windows of rows in order", 50, WINDOWED, HOPPING, "4,320,000")
    },
];

/// What became of a case: the most memory that the process had, and what it said.
struct Outcome {
    resident_bytes: u64,
    status: Option<i32>,
    stderr: String,
}

fn run(case: &Case) -> Outcome {
    let workspace = Workspace::new(&format!("limits-{}", case.name.replace(' ', "-")));
    workspace.write("events.csv", &events(case.rows * scale()));
    if case.query.contains("FROM arrays") {
        workspace.write("arrays.json", &arrays(case.rows, 3_000 * scale()));
    }
    let sql = format!("{TABLES}{}\n{}", case.before, into(case.sink, case.columns, case.query));
    workspace.write("query.sql", &sql);
    let limit = LIMIT_BYTES.to_string();
    let arguments = ["run", "--workers", "2", "--memory-limit", &limit, "--metrics", "query.sql"];
    let mut child = workspace.command(&arguments).spawn().expect("starting thalweg");
    let errors = child.stderr.take().expect("piped");
    let said = std::thread::spawn(move || std::io::read_to_string(errors).expect("UTF-8"));
    let (mut resident_bytes, started) = (0, Instant::now());
    let status = loop {
        resident_bytes = resident_bytes.max(peak_resident_bytes(child.id()));
        if let Some(status) = child.try_wait().expect("waiting for thalweg") {
            break status;
        }
        // A process that has taken the machine's memory ends no test.
        if started.elapsed() > 4 * PATIENCE || resident_bytes > 16 * LIMIT_BYTES {
            child.kill().expect("stopping thalweg");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let stderr = said.join().expect("nobody panics");
    Outcome { resident_bytes, status: status.code(), stderr }
}

/// What the process may take in addition to the limit: its code, of which an unoptimized program
/// has much, as a query over a few rows shows, and [`OWN_BYTES`].
fn own_bytes() -> u64 {
    OWN_BYTES + run(&case("few rows", 10, PAIR, "SELECT id, s FROM ev", "10")).resident_bytes
}

/// Statements that write the rows of a query.
fn into(sink: &str, columns: &str, query: &str) -> String {
    format!("CREATE TABLE result ({columns}) {sink};\nINSERT INTO result {query};")
}

fn peak_resident_bytes(process: u32) -> u64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else { return 0 };
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[test]
#[cfg(target_os = "linux")]
fn every_operator_keeps_the_memory_limit_whatever_it_multiplies() {
    let only = std::env::var("THALWEG_LIMITS_CASE").ok();
    let mut faults = Vec::new();
    let bound_bytes = LIMIT_BYTES + own_bytes();
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name == only)) {
        let Outcome { resident_bytes, status, stderr } = run(case);
        let mib = resident_bytes >> 20;
        println!("{:32} {mib:5} MiB, status {status:?}", case.name);
        let is_refused = status == Some(1) && stderr.contains("memory limit");
        if resident_bytes > bound_bytes || (status != Some(0) && !is_refused) {
            faults.push(format!("{}: {mib} MiB, status {status:?}: {stderr}", case.name));
        }
        let results = case.results;
        if status == Some(0) && scale() == 1 && !stderr.contains(&format!(" {results} ")) {
            faults.push(format!("{}: not {results} rows:\n{stderr}", case.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Statements that are far from their end when they are stopped: none within minutes.
const ENDLESS: &[(&str, &str)] = &[
    ("join", "SELECT a.id FROM ev a JOIN ev b ON a.k = b.k AND a.id + b.n < 0"),
    ("pairs", "SELECT a.id FROM ev a CROSS JOIN ev b"),
    (
        "windows",
        "SELECT id FROM TABLE(CUMULATE(TABLE ev, DESCRIPTOR(t), INTERVAL '0.001' SECOND, INTERVAL '24' DAY))",
    ),
    (
        "unnest",
        "SELECT x + y + z FROM arrays CROSS JOIN UNNEST(xs) AS u (x) CROSS JOIN UNNEST(xs) AS v (y)
         CROSS JOIN UNNEST(xs) AS w (z)",
    ),
    (
        "pattern",
        "SELECT f FROM ev MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(A.id) AS f
         AFTER MATCH SKIP TO NEXT ROW PATTERN (A+ B) DEFINE A AS A.n > 1 AND SUM(A.n) >= 0, B AS B.n = 1)",
    ),
    (
        "lookup",
        "SELECT a.id FROM (SELECT *, PROCTIME() AS p FROM ev) a
         JOIN looked_up FOR SYSTEM_TIME AS OF a.p AS b ON a.k = b.k AND a.id + b.n < 0",
    ),
    ("translated", "SELECT CHAR_LENGTH(TRANSLATE(REPEAT(s, 100000), 'abcdefghi', '123456789')) + id FROM ev"),
    ("text", "SELECT CHAR_LENGTH(REGEXP_REPLACE(REPEAT(s, 20000), '(t|e)+x?', 'yy')) + id FROM ev"),
];

/// A table that does not fit fails the job, and says what to do. What the table holds then is more
/// than the limit by the rows that were on their way to it.
#[test]
#[cfg(target_os = "linux")]
fn a_build_side_that_does_not_fit_is_an_error() {
    let lookup = "SELECT a.id, b.s FROM (SELECT *, PROCTIME() AS p FROM ev) a
         JOIN looked_up FOR SYSTEM_TIME AS OF a.p AS b ON a.id = b.n";
    let join = "SELECT /*+ BROADCAST(b) */ a.id, b.s FROM ev a JOIN looked_up b ON a.id = b.n";
    for (name, before, query) in [("lookup", "", lookup), ("join", BATCH, join)] {
        let case = Case { before, ..case(name, 1_200_000, PAIR, query, "none") };
        let Outcome { resident_bytes, status, stderr } = run(&case);
        let message = stderr.as_str();
        assert_eq!(status, Some(1), "{message}");
        assert_holds(message, &["looked_up of join", "the memory limit is 64 MiB", "raise"]);
        let mib = resident_bytes >> 20;
        assert!(resident_bytes < 2 * LIMIT_BYTES + own_bytes(), "{name}: {mib} MiB");
    }
}

#[test]
fn ctrl_c_is_seen_in_the_middle_of_a_row() {
    for order in ["epoch", "arrival"] {
        for (name, query) in ENDLESS {
            let workspace = Workspace::new(&format!("interrupt-{name}-{order}"));
            workspace.write("events.csv", &events(60_000));
            workspace.write("arrays.json", &arrays(2, 5_000));
            let sql = format!(
                "{TABLES}SET 'pipeline.order' = '{order}';\n{}",
                into(NOWHERE, "id BIGINT", query)
            );
            let mut child = workspace.command(&["run", "-e", &sql]).spawn().expect("starting");
            std::thread::sleep(Duration::from_millis(1_500));
            assert!(child.try_wait().expect("asking").is_none(), "{name} is at work");
            interrupt(&child);
            let status = wait(&mut child);
            let stderr =
                std::io::read_to_string(child.stderr.take().expect("piped")).expect("UTF-8");
            let is_limit = order == "arrival" && stderr.contains("memory limit");
            assert!(status.code() == Some(130) || is_limit, "{name}, {order}: {status:?} {stderr}");
        }
    }
}

/// Views, each of the one before and the one before.
fn doubling_views(count: usize, query: &str) -> String {
    let mut sql = format!("{TABLES}CREATE VIEW v0 AS SELECT id, k FROM ev;\n");
    for number in 1..=count {
        let query = query.replace("PREVIOUS", &format!("v{}", number - 1));
        sql += &format!("CREATE VIEW v{number} AS {query};\n");
    }
    format!("{sql}SELECT * FROM v{count};")
}

#[test]
fn views_that_double_one_another_are_refused_by_name() {
    let workspace = Workspace::new("doubling-views");
    workspace.write("events.csv", &events(1));
    let queries = [
        ("SELECT * FROM PREVIOUS a CROSS JOIN PREVIOUS b", "view 'v12' has 8192 columns"),
        (
            "SELECT id + 1 AS id, k FROM PREVIOUS UNION ALL SELECT id, k FROM PREVIOUS",
            "view 'v10' has a UNION ALL of 1024 inputs",
        ),
    ];
    for (query, expected) in queries {
        let run = workspace.execute(&doubling_views(20, query));
        let message = run.message(2);
        assert!(message.contains(expected), "{message}");
    }
}

/// A record that is too long to be read is a bad record as others are: where bad records are left
/// out, good rows before and behind it are read, and its beginning is a dead letter.
#[test]
fn a_record_that_is_too_long_is_a_dead_letter() {
    let workspace = Workspace::new("long-record");
    let long = "y".repeat(9 << 20);
    workspace
        .write("in.json", &format!("{{\"a\":1}}\n{{\"a\":2,\"s\":\"{long}\"}}\n{{\"a\":3}}\n"));
    workspace.write("in.csv", &format!("1,x\n2,\"{long}\n{long}\"\n3,z\n"));
    let run = |format: &str, bad_data: &str| {
        let sql = format!(
            "CREATE TABLE t (a BIGINT, s STRING) WITH ('connector' = 'filesystem', \
             'path' = 'in.{format}', 'format' = '{format}', {bad_data});\nSELECT a FROM t;"
        );
        workspace.run(&["run", "-e", &sql, "--memory-limit", "64mb", "--format", "csv"])
    };
    for format in ["json", "csv"] {
        let letters = format!("{format}.letters");
        let ran =
            run(format, &format!("'bad-data' = 'dead-letter', 'dead-letter.path' = '{letters}'"));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), ["a", "1", "3"], "{format}");
        let letters = workspace.read(&letters);
        assert_eq!(letters.lines().count(), 1, "{format}");
        assert_holds(&letters, &["\"line\":2", "longer than 8192 KiB", "yyy"]);
        assert!(letters.len() < 100_000, "only its beginning is kept: {}", letters.len());
        let failed = run(format, "'bad-data' = 'fail'");
        assert_holds(failed.message(1), &["longer than 8192 KiB"]);
    }
}
