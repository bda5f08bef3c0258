//! Joins with a side that is read first, through the command line: what they give, in which order, and
//! what is refused.
//!
//! The expected rows come from a naive join in this file: two loops, in the order of the probe side's rows
//! and for each in the order of the rows that are read first. In the ordered contracts the bytes must be
//! those, whatever the workers and bundles are; in `epoch` the rows must.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use thalweg_core::shim::SplitMix64;

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
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("hash-joins-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
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
        case("p.id, p.k, p.name, p.n FROM p SEMI JOIN b ON p.k = b.k AND p.n < b.n", smaller, "semi"),
        case("p.id, p.k, p.name, p.n FROM p ANTI JOIN b ON p.k = b.k", k, "anti"),
        case("p.id, p.k, p.name, p.n FROM p ANTI JOIN b ON p.k = b.k AND p.n < b.n", smaller, "anti"),
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
            let (workers, rows) = ([1, 2, 4][number % 3], [1, 7, 1000][number % 2 + seed as usize % 2]);
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
