//! Joins with a side that is read first, through the command line: what they give, in which order,
//! and what is refused.
//!
//! The expected rows come from a naive join in this file: two loops, in the order of the probe
//! side's rows and for each in the order of the rows that are read first. In the ordered contracts
//! the bytes must be those, whatever the workers and bundles are; in `epoch` the rows must.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use thalweg_core::shim::SplitMix64;

use super::workspace;

/// A row of either table: two keys and a number.
#[derive(Clone, Debug)]
struct Row {
    id: usize,
    k: Option<i64>,
    name: Option<String>,
    n: i64,
}

impl Row {
    fn text(&self) -> String {
        let k = self.k.map_or("NULL".to_owned(), |k| k.to_string());
        let name = self.name.clone().unwrap_or("NULL".to_owned());
        format!("{},{k},{name},{}", self.id, self.n)
    }
}

/// What stands for a row that is not there.
const NOTHING: &str = "NULL,NULL,NULL,NULL";

fn random_rows(count: usize, keys: u64, random: &mut SplitMix64) -> Vec<Row> {
    let mut some = |limit: u64| (random.below(9) > 0).then(|| random.below(limit));
    let mut rows = Vec::new();
    for id in 0..count {
        let (k, name, n) = (some(keys), some(3), some(50).unwrap_or(7) as i64);
        let name = name.map(|n| format!("a name that is too long to be inlined {n}"));
        rows.push(Row { id, k: k.map(|k| k as i64), name, n });
    }
    rows
}

fn folder(name: &str) -> PathBuf {
    workspace::folder(&format!("hash-joins-{name}"))
}

fn write_rows(folder: &std::path::Path, name: &str, rows: &[Row]) {
    let time = |row: &Row| format!("2026-01-01 00:{:02}:{:02}", row.id / 60 % 60, row.id % 60);
    let line = |row: &Row| format!("{},{}\n", row.text(), time(row));
    fs::write(folder.join(name), rows.iter().map(line).collect::<String>()).expect("written");
}

fn table(name: &str, watermark: &str) -> String {
    format!(
        "CREATE TABLE {name} (id INT, k BIGINT, name STRING, n BIGINT, ts TIMESTAMP(0){watermark}) WITH (\
         'connector' = 'filesystem', 'format' = 'csv', 'csv.null-literal' = 'NULL', 'path' = '{name}.csv');\n"
    )
}

fn run(folder: &std::path::Path, text: &str, workers: usize, settings: &[String]) -> Output {
    let file = folder.join("query.sql");
    fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["run", "--quiet", "--format", "csv", "--workers", &workers.to_string()]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command.arg(file).stdin(Stdio::null()).output().expect("running thalweg")
}

/// The rows that a query prints, without the header.
fn lines(folder: &std::path::Path, text: &str, workers: usize, settings: &[String]) -> Vec<String> {
    let output = run(folder, text, workers, settings);
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}: {problem}");
    let text = String::from_utf8(output.stdout).expect("text");
    let value = |value: &'_ str| if value.is_empty() { "NULL" } else { value }.to_owned();
    let line = |line: &str| line.split(',').map(value).collect::<Vec<_>>().join(",");
    text.lines().skip(1).map(line).collect()
}

#[track_caller]
fn problem(folder: &std::path::Path, text: &str, settings: &[String]) -> String {
    let output = run(folder, text, 1, settings);
    assert!(!output.status.success(), "{text} ran");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

type Fits = fn(&Row, &Row) -> bool;

/// What a query says, which rows belong together, and what leaves.
struct Case {
    query: &'static str,
    fits: Fits,
    kind: &'static str,
}

const PAIR: &str = "p.id, p.k, p.name, p.n, b.id, b.k, b.name, b.n";

fn cases() -> Vec<Case> {
    fn k(p: &Row, b: &Row) -> bool {
        p.k.is_some() && p.k == b.k
    }
    fn both(p: &Row, b: &Row) -> bool {
        k(p, b) && p.name.is_some() && p.name == b.name
    }
    fn name(p: &Row, b: &Row) -> bool {
        p.name.is_some() && p.name == b.name
    }
    fn smaller(p: &Row, b: &Row) -> bool {
        k(p, b) && p.n < b.n
    }
    let case = |query, fits, kind| Case { query, fits, kind };
    vec![
        case("PAIR FROM p JOIN b ON p.k = b.k", k, "inner"),
        case("PAIR FROM b JOIN p ON p.k = b.k", k, "inner"),
        case("PAIR FROM p, b WHERE p.k = b.k", k, "inner"),
        case("PAIR FROM p LEFT JOIN b ON p.k = b.k", k, "left"),
        case("PAIR FROM b RIGHT JOIN p ON p.k = b.k", k, "left"),
        case("PAIR FROM p JOIN b ON p.k = b.k AND p.name = b.name", both, "inner"),
        case("PAIR FROM p LEFT JOIN b ON p.k = b.k AND p.name = b.name", both, "left"),
        case("PAIR FROM p LEFT JOIN b ON p.name = b.name", name, "left"),
        case("PAIR FROM p JOIN b ON p.k = b.k AND p.n < b.n", smaller, "inner"),
        case("PAIR FROM p LEFT JOIN b ON p.k = b.k AND p.n < b.n", smaller, "left"),
        case("PAIR FROM p JOIN b ON p.k + 1 = b.k + 1", k, "inner"),
        case("p.id, p.k, p.name, p.n FROM p SEMI JOIN b ON p.k = b.k", k, "semi"),
        case(
            "p.id, p.k, p.name, p.n FROM p SEMI JOIN b ON p.k = b.k AND p.n < b.n",
            smaller,
            "semi",
        ),
        case("p.id, p.k, p.name, p.n FROM p ANTI JOIN b ON p.k = b.k", k, "anti"),
        case(
            "p.id, p.k, p.name, p.n FROM p ANTI JOIN b ON p.k = b.k AND p.n < b.n",
            smaller,
            "anti",
        ),
    ]
}

fn expected(case: &Case, probe: &[Row], build: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for p in probe {
        let partners: Vec<&Row> = build.iter().filter(|b| (case.fits)(p, b)).collect();
        match case.kind {
            "semi" if !partners.is_empty() => lines.push(p.text()),
            "anti" if partners.is_empty() => lines.push(p.text()),
            "semi" | "anti" => {}
            _ => lines.extend(partners.iter().map(|b| format!("{},{}", p.text(), b.text()))),
        }
        if case.kind == "left" && partners.is_empty() {
            lines.push(format!("{},{NOTHING}", p.text()));
        }
    }
    lines
}

#[test]
fn every_kind_of_join_gives_what_two_loops_give() {
    let folder = folder("kinds");
    for (seed, keys) in [(1, 5), (2, 60)] {
        let mut random = SplitMix64::new(seed);
        let probe = random_rows(300, keys, &mut random);
        let build = random_rows(40, keys, &mut random);
        write_rows(&folder, "p.csv", &probe);
        write_rows(&folder, "b.csv", &build);
        for (number, case) in cases().iter().enumerate() {
            let expected = expected(case, &probe, &build);
            let query = case.query.replace("PAIR", PAIR);
            let (workers, rows) =
                ([1, 2, 4][number % 3], [1, 7, 1000][number % 2 + seed as usize % 2]);
            for order in ["epoch", "arrival", "event_time"] {
                let tables = table("p", ", WATERMARK FOR ts AS ts") + &table("b", "");
                let text = format!("{tables}SELECT /*+ BROADCAST(b) */ {query};");
                let settings =
                    [format!("pipeline.order={order}"), format!("pipeline.bundle-rows-max={rows}")];
                let mut got = lines(&folder, &text, workers, &settings);
                let mut expected = expected.clone();
                if order == "epoch" {
                    got.sort();
                    expected.sort();
                }
                assert!(
                    got == expected,
                    "seed {seed}, {order}, {workers} workers, bundles of {rows}: {query}\n{}\ninstead of\n{}",
                    got.join("\n"),
                    expected.join("\n")
                );
            }
        }
    }
}

/// Both tables with rows of their own.
fn two_tables(name: &str) -> (PathBuf, Vec<Row>, Vec<Row>, String) {
    let folder = folder(name);
    let mut random = SplitMix64::new(7);
    let (probe, build) = (random_rows(200, 12, &mut random), random_rows(20, 12, &mut random));
    write_rows(&folder, "p.csv", &probe);
    write_rows(&folder, "b.csv", &build);
    let watermark = ", clock AS PROCTIME(), WATERMARK FOR ts AS ts";
    (folder, probe, build, table("p", watermark) + &table("b", ""))
}

fn order(order: &str) -> Vec<String> {
    vec![format!("pipeline.order={order}")]
}

#[test]
fn a_table_is_looked_up_by_processing_time() {
    let (folder, probe, build, tables) = two_tables("lookup");
    for kind in ["", "LEFT "] {
        let fits: Fits = |p, b| p.k.is_some() && p.k == b.k;
        let case = Case { query: "", fits, kind: if kind.is_empty() { "inner" } else { "left" } };
        let expected = expected(&case, &probe, &build);
        let query = format!(
            "{tables}SELECT {PAIR} FROM p {kind}JOIN b FOR SYSTEM_TIME AS OF p.clock ON p.k = b.k;"
        );
        for contract in ["arrival", "event_time"] {
            for workers in [1, 2, 4] {
                assert!(
                    lines(&folder, &query, workers, &order(contract)) == expected,
                    "{contract}"
                );
            }
        }
    }
}

#[test]
fn a_table_that_stands_on_both_sides_is_read_twice() {
    let (folder, probe, _, tables) = two_tables("self");
    let fits: Fits = |p, b| p.k.is_some() && p.k == b.k;
    let case = Case { query: "", fits, kind: "left" };
    let expected = expected(&case, &probe, &probe);
    let query = format!(
        "{tables}SELECT /*+ SHUFFLE_HASH(b) */ {PAIR} FROM p LEFT JOIN p AS b ON p.k = b.k;"
    );
    for contract in ["epoch", "arrival", "event_time"] {
        for workers in [1, 2, 4] {
            let mut got = lines(&folder, &query, workers, &order(contract));
            if contract == "epoch" {
                got.sort_by_key(|line| expected.iter().position(|other| other == line));
            }
            assert!(got == expected, "{contract}, {workers} workers");
        }
    }
}

#[test]
fn what_is_read_first_may_be_such_a_join_itself() {
    let (folder, probe, build, tables) = two_tables("nested");
    let query = format!(
        "{tables}CREATE VIEW both AS SELECT /*+ BROADCAST(c) */ b.k, c.n AS m FROM b JOIN b AS c ON b.id = c.id;
         SELECT /*+ BROADCAST(v) */ p.id, v.m FROM p JOIN both AS v ON p.k = v.k;"
    );
    let mut expected = Vec::new();
    for p in &probe {
        let partners = build.iter().filter(|b| p.k.is_some() && p.k == b.k);
        expected.extend(partners.map(|b| format!("{},{}", p.id, b.n)));
    }
    for workers in [1, 2, 4] {
        assert!(lines(&folder, &query, workers, &order("arrival")) == expected);
        assert!(lines(&folder, &query, workers, &order("event_time")) == expected);
    }
}

const ENDLESS: &str = "
CREATE TABLE u (n INT, ts AS TO_TIMESTAMP_LTZ(n, 3), clock AS PROCTIME(), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'datagen', 'rows-per-second' = 'unlimited', 'seed' = '1', 'fields.n.kind' = 'random',
  'fields.n.min' = '0', 'fields.n.max' = '30');
CREATE TABLE few (k INT, name STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'few.csv');
";

fn endless(name: &str) -> PathBuf {
    let folder = folder(name);
    let rows: String = (0..20).map(|k| format!("{k},name {k}\n")).collect();
    fs::write(folder.join("few.csv"), rows).expect("written");
    folder
}

#[test]
fn the_side_that_ends_is_read_first_without_a_hint() {
    let folder = endless("auto");
    for from in [
        "u JOIN few ON n = k",
        "few JOIN u ON n = k",
        "few RIGHT JOIN u ON n = k WHERE k IS NOT NULL",
    ] {
        let query = format!("{ENDLESS}SELECT n, name FROM {from} LIMIT 500;");
        let got = lines(&folder, &query, 2, &[]);
        assert_eq!(got.len(), 500, "{from}");
        let fits = |line: &String| {
            line.split_once(',').is_some_and(|(n, name)| name == format!("name {n}"))
        };
        assert!(got.iter().all(fits), "{from}: {got:?}");
    }
    let query = format!("{ENDLESS}SELECT n FROM u WHERE n IN (SELECT k FROM few) LIMIT 9;");
    assert!(lines(&folder, &query, 1, &[]).iter().all(|n| n.parse::<i32>().is_ok_and(|n| n < 20)));
    // The table is read once, though `NOT IN` asks for NULL in it as well.
    let query = query.replace(" IN ", " NOT IN ");
    assert!(lines(&folder, &query, 1, &[]).iter().all(|n| n.parse::<i32>().is_ok_and(|n| n >= 20)));
    let explain = lines(&folder, &query.replace("SELECT n", "EXPLAIN SELECT n"), 1, &[]).join("\n");
    assert!(explain.contains("NULL on either side is a partner"), "{explain}");
    assert_eq!(explain.matches("few — source").count(), 1, "{explain}");
    let explain = lines(
        &folder,
        &format!("{ENDLESS}EXPLAIN SELECT n, name FROM u LEFT JOIN few ON n = k;"),
        1,
        &[],
    );
    let explain = explain.join("\n");
    for part in [
        "table few of left join",
        "read first for: Left join",
        "waits for: build-",
        "look up: Left join",
    ] {
        assert!(explain.contains(part), "{part}: {explain}");
    }
}

#[test]
fn row_times_continue_after_the_join() {
    let (folder, _, _, tables) = two_tables("window");
    let query = |from: &str| {
        format!(
            "{tables}CREATE VIEW j AS SELECT /*+ BROADCAST(b) */ p.ts, b.n FROM {from};
             SELECT window_start, COUNT(n) AS c, COUNT(*) AS a FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '30' SECOND))
             GROUP BY window_start, window_end;"
        )
    };
    let got = lines(&folder, &query("p LEFT JOIN b ON p.k = b.k"), 2, &order("arrival"));
    assert_eq!(got.len(), 7, "200 seconds: {got:?}");
    let text =
        problem(&folder, &query("b JOIN p ON p.k = b.k").replace("p.ts, b.n", "b.ts, b.n"), &[]);
    assert!(text.contains("ordinary TIMESTAMP"), "{text}");
}

#[test]
fn what_cannot_be_read_first_is_refused_at_its_place() {
    let folder = endless("refused");
    let cases = [
        (
            "SELECT /*+ BROADCAST(u) */ n FROM few JOIN u ON n = k",
            "u can't be read first, since it never ends",
            "8:8",
        ),
        (
            "SELECT /*+ BROADCAST(few) */ n FROM few LEFT JOIN u ON n = k",
            "the rows that have no partner there",
            "8:8",
        ),
        (
            "SELECT /*+ BROADCAST(v) */ n FROM few JOIN u ON n = k",
            "no join follows the hint BROADCAST(v)",
            "8:8",
        ),
        (
            "SELECT n FROM u AS a JOIN u FOR SYSTEM_TIME AS OF a.clock AS b ON a.n = b.n",
            "never ends",
            "8:27",
        ),
        (
            "SELECT n FROM u AS a JOIN few FOR SYSTEM_TIME AS OF a.clock AS b ON a.n > b.k",
            "needs an equality",
            "8:27",
        ),
        (
            "SELECT n FROM u AS a RIGHT JOIN few FOR SYSTEM_TIME AS OF a.clock AS b ON a.n = b.k",
            "an inner or a left join",
            "8:33",
        ),
    ];
    for (query, part, place) in cases {
        let text = problem(&folder, &format!("{ENDLESS}\n\n{query};"), &[]);
        assert!(text.contains(part), "{query}: {text}");
        assert!(text.contains(&format!("query.sql:{place}")), "{query}: not at {place}: {text}");
    }
}

#[test]
fn a_table_over_the_limit_fails_with_what_to_do() {
    let folder = folder("memory");
    let row = |n: usize| {
        format!("{n},a text that is long enough to fill the memory of a small job {n}\n")
    };
    fs::write(folder.join("big.csv"), (0..60_000).map(row).collect::<String>()).expect("written");
    let text =
        ENDLESS.replace("few.csv", "big.csv") + "SELECT n, name FROM u JOIN few ON n = k LIMIT 5;";
    let text = problem(&folder, &text, &["memory.limit=4 mb".to_owned()]);
    for part in ["table few of join", "the memory limit is 4 MiB", "raise 'memory.limit'"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_table_is_read_again_while_the_job_runs() {
    let folder = folder("reload");
    let few = folder.join("few.csv");
    // Readers see whole files only.
    let replace = |text: &str| {
        fs::write(folder.join("few.tmp"), text).expect("written");
        fs::rename(folder.join("few.tmp"), &few).expect("renamed");
    };
    replace("1,old\n");
    let text = ENDLESS.replace("'unlimited'", "'500'").replace(
        "'csv', 'path'",
        "'csv', 'lookup.full-cache.periodic-reload.interval' = '30 ms', 'path'",
    );
    let text = text.replace(
        "'fields.n.min' = '0', 'fields.n.max' = '30'",
        "'fields.n.min' = '1', 'fields.n.max' = '1'",
    );
    let query = "SELECT name FROM u JOIN few FOR SYSTEM_TIME AS OF u.clock AS f ON n = k;";
    let file = folder.join("query.sql");
    fs::write(&file, text.clone() + query).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command
        .args(["run", "--metrics", "--format", "csv", "--workers", "2"])
        .arg(&file)
        .stdin(Stdio::null());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut rows = BufReader::new(running.stdout.take().expect("piped")).lines();
    let mut until = |name: &str| rows.any(|row| row.is_ok_and(|row| row == name));
    assert!(until("old"), "the table is read before it changes");
    replace("this is no number,new\n");
    std::thread::sleep(std::time::Duration::from_millis(400));
    replace("1,new\n");
    assert!(until("new"), "the table is read again after a failure");
    let interrupt = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    assert!(interrupt.expect("kill is there").success());
    rows.for_each(drop);
    let output = running.wait_with_output().expect("ends");
    let problems = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(problems.contains("table few of join could not be read again"), "{problems}");
    let problem = problem(&folder, &(text + query), &order("arrival"));
    assert!(problem.contains("depends on when the job runs"), "{problem}");
}
