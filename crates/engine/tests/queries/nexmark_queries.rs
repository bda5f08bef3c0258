//! The queries of NEXMark (`benches/nexmark`) give what is published of them, what a batch query
//! gives, and in the ordered contracts the same bytes by any number of workers.
//!
//! | test | events | contract | workers | compared with |
//! |---|---|---|---|---|
//! | `beam::qN` | 100,000 of Apache Beam | `epoch` | 2 | counts and sums that were found without an engine; DuckDB |
//! | `batch::qN` | the same, in batch mode | `epoch` | 2 | the same |
//! | `epoch::qN` | 5,000 out of order around a midnight | `epoch` | 1, 2, 4 | DuckDB |
//! | `arrival::qN` | the same | `arrival` | 1, 2, 4 | each other's bytes; DuckDB |
//! | `event_time::qN` | the same, sorted by the source | `event_time` | 1, 2, 4 | each other's bytes; DuckDB |
//! | `million::qN` | 1,000,000 out of order | `epoch`, `event_time` | 2 | DuckDB |
//!
//! What is left when all changes of a result were applied is compared with DuckDB's answer over the
//! same events. Where a query reads several tables their rows meet by chance in `arrival`: there
//! the run with four workers is recorded, and the others replay it. DuckDB comes through
//! `THALWEG_PYTHON` (`make test` sees to that); without it that comparison is skipped, and says so.
//! `million` is for `make nexmark-check`.
//!
//! Query 10 writes files, one folder for each minute, which are compared with what query 0 gives.
//! Query 12 uses processing time; it counts every bid once.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::python::{python_with_duckdb, repository};

/// Events, by the options of their tables.
struct Events {
    name: &'static str,
    options: &'static str,
}

const BEAM: Events = Events { name: "beam", options: "'preset' = 'beam', 'events' = '100000'" };
/// No two events have the same time, and none is late: a group is a second, the watermark waits for
/// four.
const DISORDERED: Events = Events {
    name: "disordered",
    options: "'events' = '5000', 'event-time-rate' = '100', 'out-of-order-group' = '100', \
              'base-time' = '2015-07-15 23:59:30'",
};
const MILLION: Events =
    Events { name: "million", options: "'events' = '1000000', 'out-of-order-group' = '100'" };

/// A contract about order, and what its tables need.
#[derive(Clone, Copy)]
struct Contract {
    order: &'static str,
    table_options: &'static str,
}

const EPOCH: Contract = Contract { order: "epoch", table_options: "" };
const ARRIVAL: Contract = Contract { order: "arrival", table_options: "" };
const EVENT_TIME: Contract =
    Contract { order: "event_time", table_options: ", 'source.sort-within' = '4 s'" };

const WORKERS: [&str; 3] = ["1", "2", "4"];

/// What is known of the result over [`BEAM`]: its rows, and the sum of a column.
struct Known {
    query: &'static str,
    rows: usize,
    sum: Option<(&'static str, i128)>,
}

const fn known(query: &'static str, rows: usize) -> Known {
    Known { query, rows, sum: None }
}

const fn known_sum(query: &'static str, rows: usize, column: &'static str, sum: i128) -> Known {
    Known { query, rows, sum: Some((column, sum)) }
}

const KNOWN: [Known; 17] = [
    known("q0", 92_000),
    // Prices with three digits behind the point, summed as integers.
    known_sum("q1", 92_000, "price", 606_502_132_826_424),
    known_sum("q2", 351, "price", 2_502_808_698),
    known_sum("q3", 580, "id", 2_586_338),
    // 33984800, 33110270, 32828496, 32635248 and 34803745.
    known_sum("q4", 5, "average", 167_362_559),
    known_sum("q5", 15, "num", 23_373),
    known("q6", 4_052),
    known_sum("q7", 1, "price", 99_958_591),
    known("q8", 902),
    known_sum("q9", 4_052, "price", 135_629_549_844),
    known_sum("q11", 1_919, "bid_count", 92_000),
    known("q13", 92_000),
    known("q17", 4_657),
    known("q18", 25_248),
    known_sum("q19", 35_135, "price", 362_704_345_766),
    known_sum("q20", 14_419, "price", 107_731_793_617),
    known("q23", 147_405),
];

/// The greatest value of a column over [`BEAM`].
const KNOWN_GREATEST: [(&str, &str, i128); 2] =
    [("q11", "bid_count", 3_499), ("q17", "total_bids", 1_565)];

/// Queries whose result is not compared with DuckDB's where events come every tenth of a
/// millisecond: several auctions of a seller close in the same one, and nothing says which goes
/// first.
const TIES: [&str; 1] = ["q6"];

/// Queries that read several tables.
const SEVERAL_TABLES: [&str; 8] = ["q3", "q4", "q6", "q8", "q9", "q13", "q20", "q23"];

/// What has tests of its own: it writes files; it uses processing time, so that no two runs need
/// give the same.
const WITH_OWN_TESTS: [&str; 2] = ["q10", "q12"];

macro_rules! queries {
    ($($name:ident),* $(,)?) => {
        const QUERIES: &[&str] = &[$(stringify!($name)),*];
        mod beam {
            $(
                #[test]
                fn $name() {
                    crate::nexmark_queries::check_beam(stringify!($name));
                }
            )*
        }
        mod batch {
            $(
                #[test]
                fn $name() {
                    crate::nexmark_queries::check_batch(stringify!($name));
                }
            )*
        }
        mod epoch {
            $(
                #[test]
                fn $name() {
                    crate::nexmark_queries::check_epoch(stringify!($name));
                }
            )*
        }
        mod arrival {
            $(
                #[test]
                fn $name() {
                    crate::nexmark_queries::check_arrival(stringify!($name));
                }
            )*
        }
        mod event_time {
            $(
                #[test]
                fn $name() {
                    crate::nexmark_queries::check_event_time(stringify!($name));
                }
            )*
        }
        mod million {
            $(
                #[test]
                #[ignore = "a million events; `make nexmark-check` runs it"]
                fn $name() {
                    crate::nexmark_queries::check_million(stringify!($name));
                }
            )*
        }
    };
}

queries! {
    q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q11, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23,
}

#[test]
fn every_query_is_tested() {
    let files = fs::read_dir(queries_folder()).expect("benches/nexmark").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let mut present: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".sql").map(str::to_owned)).collect();
    present.sort();
    let mut tested: Vec<&str> = QUERIES.iter().copied().chain(WITH_OWN_TESTS).collect();
    tested.sort_unstable();
    assert_eq!(present, tested);
}

/// Query 12 counts each bid in the ten seconds in which it came.
#[test]
fn q12_counts_every_bid_once() {
    for workers in ["1", "3"] {
        let stdout = successful("q12", run("q12", &BEAM, EPOCH, workers, &[]));
        let left = Left::of("q12", &stdout);
        assert_eq!(left.sum("bid_count"), 92_000, "with {workers} workers");
        let seconds = |time: &str| time[17..19].parse::<u32>().expect("seconds");
        for row in &left.rows {
            let values: Vec<&str> = row.split(',').collect();
            assert!(
                seconds(values[2]).is_multiple_of(10),
                "windows begin every ten seconds: {row}"
            );
            assert_eq!(
                (seconds(values[2]) + 10) % 60,
                seconds(values[3]),
                "and last as long: {row}"
            );
        }
    }
}

#[test]
fn q10_writes_each_bid_into_the_folder_of_its_minute() {
    for (events, contract) in [(&BEAM, EPOCH), (&DISORDERED, ARRIVAL), (&DISORDERED, EVENT_TIME)] {
        let name = format!("nexmark-q10-{}-{}", events.name, contract.order);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        let script = folder.join("q10.sql");
        fs::copy(queries_folder().join("q10.sql"), &script).expect("the query");
        successful("q10", thalweg(&script, events, contract, &["--workers", "2"]));
        let mut written: HashMap<String, Vec<String>> = HashMap::new();
        for day in fs::read_dir(folder.join("q10")).expect("days").flatten() {
            for minute in fs::read_dir(day.path()).expect("minutes").flatten() {
                let names = [day.file_name(), minute.file_name()];
                let name = names.map(|name| name.into_string().expect("UTF-8")).join("/");
                for part in fs::read_dir(minute.path()).expect("parts").flatten() {
                    let rows = read(&part.path());
                    written
                        .entry(name.clone())
                        .or_default()
                        .extend(rows.lines().map(str::to_owned));
                }
            }
        }
        let mut expected: HashMap<String, Vec<String>> = HashMap::new();
        for row in successful("q0", run("q0", events, contract, "1", &[])).lines().skip(1) {
            let time = row.split(',').nth(3).expect("a time");
            let folder = format!("dt={}/hm={}%3A{}", &time[..10], &time[11..13], &time[14..16]);
            expected.entry(folder).or_default().push(row.to_owned());
        }
        written.values_mut().chain(expected.values_mut()).for_each(|rows| rows.sort_unstable());
        assert!(expected.values().map(Vec::len).sum::<usize>() > 4_000);
        let setup = format!("{} in {}", events.name, contract.order);
        assert!(written == expected, "q10 over {setup}: {:?}", written.keys());
        if events.name == "disordered" {
            assert_eq!(written.len(), 2, "around midnight");
        }
    }
}

#[test]
fn q12_is_refused_where_a_sequence_is_promised_unless_it_is_admitted() {
    for contract in [ARRIVAL, EVENT_TIME] {
        let refused = run("q12", &DISORDERED, contract, "2", &[]);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(
            message.contains("PROCTIME") && message.contains("allow-nondeterministic"),
            "{message}"
        );
        let admitted = ["--set", "pipeline.order.allow-nondeterministic=true"];
        let stdout = successful("q12", run("q12", &DISORDERED, contract, "3", &admitted));
        assert_eq!(Left::of("q12", &stdout).sum("bid_count"), 4_600);
    }
}

fn check_beam(query: &str) {
    check_known(query, &successful(query, run(query, &BEAM, EPOCH, "2", &[])));
}

/// In batch mode the result itself is what is left of the changes of streaming.
fn check_batch(query: &str) {
    let file = queries_folder().join(format!("{query}.sql"));
    let side = format!("side_input={}", side_input().display());
    let folder = side_input().parent().expect("a folder").to_str().expect("UTF-8");
    let mode = "execution.runtime-mode=batch";
    let options = ["--workers", "2", "--set", mode, "--param", &side, "--allow-path", folder];
    let stdout = successful(query, thalweg(&file, &BEAM, EPOCH, &options));
    assert!(!stdout.starts_with("op,"), "{query} gives changes");
    check_known(query, &stdout);
}

fn check_known(query: &str, stdout: &str) {
    let left = Left::of(query, stdout);
    if let Some(known) = KNOWN.iter().find(|known| known.query == query) {
        assert_eq!(left.rows.len(), known.rows, "{query}: rows");
        if let Some((column, sum)) = known.sum {
            assert_eq!(left.sum(column), sum, "{query}: sum of {column}");
        }
    }
    for (_, column, greatest) in KNOWN_GREATEST.iter().filter(|known| known.0 == query) {
        assert_eq!(left.values(column).max(), Some(*greatest), "{query}: greatest {column}");
    }
    if !TIES.contains(&query) {
        left.compare(query, &BEAM, answers_over_beam());
    }
}

fn check_epoch(query: &str) {
    for workers in WORKERS {
        compare_left(query, &successful(query, run(query, &DISORDERED, EPOCH, workers, &[])));
    }
}

/// Where several tables meet by chance, four workers write down how they met, and the others do it
/// again.
fn check_arrival(query: &str) {
    let is_recorded = SEVERAL_TABLES.contains(&query);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nexmark-{query}.met"));
    let file = file.to_str().expect("UTF-8");
    let bytes = WORKERS.iter().rev().map(|workers| {
        let flag = if *workers == "4" { "--record" } else { "--replay" };
        let options = if is_recorded { vec![flag, file] } else { vec![] };
        successful(query, run(query, &DISORDERED, ARRIVAL, workers, &options))
    });
    check_same_bytes(query, &bytes.collect::<Vec<_>>());
}

fn check_event_time(query: &str) {
    let bytes =
        WORKERS.map(|workers| successful(query, run(query, &DISORDERED, EVENT_TIME, workers, &[])));
    check_same_bytes(query, &bytes);
}

fn check_same_bytes(query: &str, runs: &[String]) {
    let is_same = runs.iter().all(|stdout| *stdout == runs[0]);
    assert!(is_same, "{query}: some numbers of workers write other bytes");
    compare_left(query, &runs[0]);
}

fn compare_left(query: &str, stdout: &str) {
    let left = Left::of(query, stdout);
    assert!(!left.rows.is_empty(), "{query} has no result, which proves nothing");
    left.compare(query, &DISORDERED, answers_over_disordered());
}

fn check_million(query: &str) {
    let answers = answers_over_a_million();
    assert!(answers.is_some(), "a million events are only for the comparison with DuckDB");
    let mut counts = Vec::new();
    for contract in [EPOCH, EVENT_TIME] {
        let stdout = successful(query, run(query, &MILLION, contract, "2", &[]));
        let left = Left::of(query, &stdout);
        if !TIES.contains(&query) {
            left.compare(query, &MILLION, answers);
        }
        counts.push(left.rows.len());
    }
    println!("{query}: {} rows are left", counts[0]);
    assert_eq!(counts[0], counts[1], "{query}");
}

/// What is left when all changes of a result were applied, sorted.
struct Left<'a> {
    columns: Vec<&'a str>,
    rows: Vec<&'a str>,
}

impl<'a> Left<'a> {
    fn of(query: &str, stdout: &'a str) -> Self {
        let mut lines = stdout.lines();
        let header = lines.next().expect("a header");
        let Some(columns) = header.strip_prefix("op,") else {
            let mut rows: Vec<&str> = lines.collect();
            rows.sort_unstable();
            return Left { columns: header.split(',').collect(), rows };
        };
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for line in lines {
            let (kind, row) = line.split_once(',').expect("a kind before the row");
            let count = counts.entry(row).or_default();
            match kind {
                "+I" | "+U" => *count += 1,
                "-U" | "-D" if *count > 0 => *count -= 1,
                _ => panic!("{query}: {kind} of a row that is not there: {row}"),
            }
        }
        let rows = counts.into_iter().flat_map(|(row, count)| std::iter::repeat_n(row, count));
        let mut rows: Vec<&str> = rows.collect();
        rows.sort_unstable();
        Left { columns: columns.split(',').collect(), rows }
    }

    /// The sum of a column, decimals without their points.
    fn sum(&self, column: &str) -> i128 {
        self.values(column).sum()
    }

    /// The values of a column, decimals without their points.
    fn values(&self, column: &str) -> impl Iterator<Item = i128> {
        let at = self.columns.iter().position(|name| *name == column).expect("the column");
        self.rows.iter().map(move |row| {
            let text = row.split(',').nth(at).expect("a value").replace('.', "");
            text.parse::<i128>().expect("a number")
        })
    }

    /// Compares with DuckDB's answer, if there is one.
    fn compare(&self, query: &str, events: &Events, answers: Option<&Path>) {
        let Some(folder) = answers else { return };
        let answer = read(&folder.join(format!("{query}.answer")));
        let mut want: Vec<&str> = answer.lines().collect();
        want.sort_unstable();
        let differs = self.rows.iter().zip(&want).find(|(got, want)| got != want);
        assert!(
            differs.is_none() && self.rows.len() == want.len(),
            "{query} over {}: {} rows instead of {}; the first that differ, got and wanted:\n  {:?}",
            events.name,
            self.rows.len(),
            want.len(),
            differs.or_else(|| self.rows.iter().zip([&""]).next_back()),
        );
    }
}

fn answers_over_beam() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| answers(&BEAM)).as_deref()
}

fn answers_over_disordered() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| answers(&DISORDERED)).as_deref()
}

fn answers_over_a_million() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| answers(&MILLION)).as_deref()
}

/// A folder with DuckDB's answers over these events; the engine writes the events down for it.
fn answers(events: &Events) -> Option<PathBuf> {
    let python = python_with_duckdb()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nexmark-{}", events.name));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let file = folder.join("export.sql");
    fs::write(&file, export_script()).expect("the script");
    // In the order of arrival, so that the position of a row shows when it came.
    let output = thalweg(&file, events, ARRIVAL, &[]);
    successful("the export", output);
    let output = Command::new(python)
        .arg(repository().join("scripts/duckdb_answers.py"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/queries/nexmark_queries.sql"))
        .arg(&folder)
        .output()
        .expect("starting Python");
    successful("DuckDB", output);
    Some(folder)
}

/// Writes the three tables to files, by the declarations of a query that reads them all.
fn export_script() -> String {
    let query = read(&queries_folder().join("q23.sql"));
    let (declarations, _) = query.split_once("\nSELECT").expect("declarations, then a query");
    let mut script = declarations.to_owned();
    for declaration in declarations.split("CREATE TABLE ").skip(1) {
        let (name, rest) = declaration.split_once(" (").expect("a name and columns");
        let (columns, _) = rest.split_once(",\n  WATERMARK").expect("columns and a watermark");
        script.push_str(&format!(
            "CREATE TABLE {name}_file ({columns}) WITH ('connector' = 'filesystem', \
             'format' = 'parquet', 'path' = '{name}.parquet');\n\
             INSERT INTO {name}_file SELECT * FROM {name};\n"
        ));
    }
    script
}

fn run(query: &str, events: &Events, contract: Contract, workers: &str, more: &[&str]) -> Output {
    let side = format!("side_input={}", side_input().display());
    let folder = side_input().parent().expect("a folder").to_str().expect("UTF-8");
    // Without windows there is nothing that could be late, and the option is refused nowhere.
    let late = ["--set", "late.data=fail"];
    let mut options = vec!["--workers", workers, "--param", &side, "--allow-path", folder];
    options.extend(late.iter().chain(more));
    thalweg(&queries_folder().join(format!("{query}.sql")), events, contract, &options)
}

fn thalweg(file: &Path, events: &Events, contract: Contract, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["run", "--quiet", "--format", "csv", "--null", "\\N"]).args(options);
    command.args(["--set", &format!("pipeline.order={}", contract.order)]);
    let tables = format!("events={}{}", events.options, contract.table_options);
    command.args(["--param", &tables]).arg(file);
    command.stdin(Stdio::null()).output().expect("running thalweg")
}

/// The table that query 13 joins with: 10,000 rows, written once.
fn side_input() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nexmark-side");
        fs::create_dir_all(&folder).expect("a temporary folder");
        let rows: String = (0..10_000).map(|key| format!("{key},value {key}\n")).collect();
        fs::write(folder.join("side_input.csv"), rows).expect("the table");
        folder.join("side_input.csv")
    })
}

/// Standard output; panics with what the command said unless it was successful.
fn successful(what: &str, output: Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{message}", output.status);
    String::from_utf8(output.stdout).expect("results are UTF-8")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn queries_folder() -> PathBuf {
    repository().join("benches/nexmark")
}
