//! Flink's SQL over the same text and the same rows, in turn with this engine.
//!
//! `THALWEG_FLINK_SQL` names the folder `benches/flink-sql` (or another with a `run.sh` like its)
//! once `mvn -q package` has built it; `THALWEG_FLINK_SETTINGS` may hold settings of Flink, such as
//! `table.exec.mini-batch.enabled=true`, divided by blanks. The program gets a query's file and the
//! events ([`super::export`]), runs the query once into a table that counts, and once more for each
//! line that it reads; each run answers with a line of JSON. Without it a line of the table says
//! that it was skipped.
//!
//! How many rows are read, and (but for q9) how many are left in the end, must agree. Both engines
//! have their rows in memory before the clock starts, each in its own form, and run in turn in
//! processes that stay warm. Where they differ: Flink writes into its `blackhole`, which spares it
//! the old forms of rows, and with W workers it has W threads *for each stage*; so the rate per
//! second of processor time, which counts what all threads do, is the one to compare.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use thalweg::bench::{Benchmark, Measurement, Preset, find};

use super::export::Exported;
use super::{Settings, engine};

/// Flink 2.3 plans the Top-1 of these as one whose rows stay (FLINK-40368; `EXPLAIN CHANGELOG_MODE`
/// says `[I]` of it), so it writes each new winner and takes no old one back: more rows are left
/// than there are winners. What it does for a row is the same.
const TAKES_NOTHING_BACK: [&str; 1] = ["flink-q9"];

/// Runs of both before those that are measured, besides the one that counts. The code of a job is
/// compiled by Flink and then by the virtual machine, which takes the first runs: there are more
/// of them where they are short.
const WARM_UP_RUNS: std::ops::Range<usize> = 2..6;
/// So long they take together, in seconds, unless that is more runs than this.
const WARM_UP_SECONDS: f64 = 20.0;

/// What is before the name of a query that is to run on Flink, too.
pub const PREFIX: &str = "flink-";

/// What is compared unless queries are named.
pub const QUERIES: [&str; 13] = [
    "flink-q0",
    "flink-q1",
    "flink-q2",
    "flink-q3",
    "flink-q4",
    "flink-q9",
    "flink-q15",
    "flink-q16",
    "flink-q17",
    "flink-q18",
    "flink-q19",
    "flink-q20",
    "flink-q23",
];

/// Flink's program and the events it reads.
pub struct FlinkSql {
    program: PathBuf,
    settings: String,
    events: Exported,
}

impl FlinkSql {
    /// The program that the environment names, if it does.
    pub fn from_environment(settings: &Settings) -> Option<FlinkSql> {
        let folder = std::env::var_os("THALWEG_FLINK_SQL").map(PathBuf::from)?;
        Some(FlinkSql {
            program: folder.join("run.sh"),
            settings: std::env::var("THALWEG_FLINK_SETTINGS").unwrap_or_default(),
            events: Exported::new(&settings.options(Preset::Nexmark)),
        })
    }
}

/// The line of a query where there is no such program.
pub fn skipped(name: &str) -> String {
    format!("| {name} | skipped: THALWEG_FLINK_SQL is not set |")
}

/// Runs a query here and there in turn; a line of the table.
pub fn measure(name: &str, settings: &Settings, flink: &FlinkSql) -> String {
    let query = name.trim_start_matches(PREFIX);
    let found = find(Preset::Nexmark, query).unwrap_or_else(|error| panic!("{error}"));
    let benchmark = Benchmark::new(found, &settings.options(Preset::Nexmark));
    let mut benchmark = benchmark.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut process = Process::start(flink, found.name, found.text, settings.workers);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let (_, outcome) = engine(&mut benchmark);
    let checked = process.answer();
    let is_checked = !TAKES_NOTHING_BACK.contains(&name);
    let left = Some(outcome.rows_left);
    assert!(!is_checked || checked.rows_left == left, "{name}: {left:?} rows are left here");
    warm_up(&mut benchmark, &mut process);
    for _ in 0..settings.repeat {
        let (run, _) = engine(&mut benchmark);
        let other = process.run();
        assert_eq!(other.rows_in, run.rows_in, "{name}: rows that were read");
        let ours = Rates::of(&run);
        println!(
            "{name}: here {:.3} M rows/s ({:.3} per processor second), Flink {:.3} ({:.3}), {:.1} times ({:.1})",
            ours.wall,
            ours.processor,
            other.rates.wall,
            other.rates.processor,
            ours.wall / other.rates.wall,
            ours.processor / other.rates.processor
        );
        here.push(ours);
        there.push(other.rates);
    }
    let [rows_here, rows_there] = [outcome.rows_out, checked.rows_out.unwrap_or_default()];
    format!(
        "| {name} | {} | {} | {rows_here} / {rows_there} |",
        columns(&here, &there, |rates| rates.processor),
        columns(&here, &there, |rates| rates.wall),
    )
}

type Rate = fn(&Rates) -> f64;

/// Medians of both and their ratio; in brackets the smallest and the largest ratio of two runs in
/// turn.
fn columns(here: &[Rates], there: &[Rates], of: Rate) -> String {
    let mut each: Vec<f64> =
        here.iter().zip(there).map(|(here, there)| of(here) / of(there)).collect();
    each.sort_by(f64::total_cmp);
    let (here, there) = (median(here, of), median(there, of));
    let (ratio, lowest, highest) = (here / there, each[0], each[each.len() - 1]);
    format!("{here:.3} | {there:.3} | **{ratio:.1}** ({lowest:.1} to {highest:.1})")
}

fn warm_up(benchmark: &mut Benchmark, process: &mut Process) {
    let (mut seconds, mut runs) = (0.0, 0);
    while runs < WARM_UP_RUNS.start || (runs < WARM_UP_RUNS.end && seconds < WARM_UP_SECONDS) {
        engine(benchmark);
        let run = process.run();
        seconds += run.rows_in as f64 / run.rates.wall / 1e6;
        runs += 1;
    }
}

/// Millions of rows read in a second, of wall clock and of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    wall: f64,
    processor: f64,
}

impl Rates {
    fn of(run: &Measurement) -> Rates {
        Rates {
            wall: run.rows_per_second() / 1e6,
            processor: run.rows_per_processor_second() / 1e6,
        }
    }
}

fn median(runs: &[Rates], of: Rate) -> f64 {
    let mut sorted: Vec<f64> = runs.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// What Flink said of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    rows_in: u64,
    rates: Rates,
    /// Only of the run that checks.
    rows_out: Option<u64>,
    rows_left: Option<u64>,
}

/// Reads a line that the program wrote; `None` if it is something else.
fn said(line: &str) -> Option<Said> {
    let answer: serde_json::Value = serde_json::from_str(line).ok()?;
    let rows_in = answer["events"].as_u64()?;
    let rate = |field: &str| Some(rows_in as f64 / answer[field].as_f64()? / 1e6);
    Some(Said {
        rows_in,
        rates: Rates { wall: rate("seconds")?, processor: rate("processor_seconds")? },
        rows_out: answer["rows_out"].as_u64(),
        rows_left: answer["rows_left"].as_u64(),
    })
}

/// The program while it runs one query. It ends when nothing more is asked of it.
struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(flink: &FlinkSql, query: &str, text: &str, workers: usize) -> Process {
        let file = flink.events.path().join(format!("{query}.sql"));
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let argument = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut child = Command::new(&flink.program)
            .args([argument("query", &file), argument("folder", flink.events.path())])
            .arg(format!("workers={workers}"))
            .args(flink.settings.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", flink.program.display()));
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Process { requests: child.stdin.take(), answers, child }
    }

    /// One run more.
    fn run(&mut self) -> Said {
        let requests = self.requests.as_mut().expect("it is piped");
        requests.write_all(b"run\n").expect("Flink's program reads");
        self.answer()
    }

    fn answer(&mut self) -> Said {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("Flink's program writes text");
        println!("{}", line.trim_end());
        said(&line).unwrap_or_else(|| panic!("Flink's program has said '{line}'"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input lets it go.
        self.requests = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_lines_of_json() {
        let line = r#"{"query": "q4", "events": 2000000, "seconds": 4.0, "processor_seconds": 8.0, "rows_out": 12, "rows_left": null}"#;
        let expected = Said {
            rows_in: 2_000_000,
            rates: Rates { wall: 0.5, processor: 0.25 },
            rows_out: Some(12),
            rows_left: None,
        };
        assert_eq!(said(line), Some(expected));
        assert_eq!(said("Exception in thread main"), None);
    }
}
