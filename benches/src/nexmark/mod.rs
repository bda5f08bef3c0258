//! `nexmark`: the queries of NEXMark through the engine, compared with loops written by hand, and
//! with other engines over the same events.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml -- nexmark [q0 q1 …] [--events N]
//! [--repeat K]
//!     [--workers W] [--order CONTRACT]
//! ```
//! Engine and floor alternate in one process, over the same Arrow batches in memory, after a run of
//! each to warm up. How many rows of the result are left in the end must agree. Each run is a line
//! of JSON; medians follow. Rates are rows read by the query per second of processor time.
//!
//! | module | holds |
//! |---|---|
//! | `expressions`, `joins`, `winners`, `days`, `ranks` | the floors |
//! | `stored` | what they share |
//! | `peers`, `lines` | other engines, where `THALWEG_PEERS` names the folder of their programs |
//! | `flink_sql`, `export` | the same texts on Flink, where `THALWEG_FLINK_SQL` names the folder of its program: queries `flink-q4` … |
//!
//! A floor has one thread, no watermarks (stateless queries: the largest row time), no bundles, no
//! expiry and no changes that come late; it writes what it changes, one batch of bids at a time.

mod days;
mod export;
mod expressions;
mod flink_sql;
mod joins;
mod lines;
pub mod peers;
mod ranks;
mod stored;
mod winners;

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use thalweg::OrderContract;
use thalweg::bench::{BenchOptions, Benchmark, Input, Measurement, Preset, find};

use self::flink_sql::FlinkSql;
use self::stored::Outcome;
use crate::suite::{forget_resident_peak, resident_peak_bytes};

/// Queries that have a floor.
const WITH_FLOOR: [&str; 16] = [
    "q0", "q1", "q2", "q14", "q21", "q22", "q3", "q4", "q9", "q15", "q16", "q17", "q18", "q19",
    "q20", "q23",
];

/// What the command line asks for.
struct Settings {
    queries: Vec<String>,
    events: u64,
    repeat: usize,
    workers: usize,
    order: OrderContract,
}

impl Settings {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Settings, String> {
        let mut settings = Settings {
            queries: Vec::new(),
            events: 5_000_000,
            repeat: 3,
            workers: 1,
            order: OrderContract::Epoch,
        };
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with("--") {
                settings.queries.push(argument);
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
            let number = || value.parse().map_err(|_| format!("{argument} {value}: no number"));
            match argument.as_str() {
                "--events" => settings.events = number()?,
                "--repeat" => settings.repeat = number()?.max(1) as usize,
                "--workers" => settings.workers = number()?.max(1) as usize,
                "--order" => settings.order = value.parse().map_err(|e| format!("{e}"))?,
                _ => return Err(format!("there is no option {argument}")),
            }
        }
        Ok(settings)
    }

    fn options(&self, preset: Preset) -> BenchOptions {
        BenchOptions {
            events: self.events,
            preset,
            workers: Some(self.workers),
            order: self.order,
            ..BenchOptions::default()
        }
    }
}

/// Measures what the arguments behind `nexmark` ask for.
pub fn main(arguments: impl Iterator<Item = String>) {
    let settings = Settings::read(arguments).unwrap_or_else(|problem| panic!("{problem}"));
    let all = WITH_FLOOR.iter().chain(&peers::QUERIES).chain(&flink_sql::QUERIES);
    let wanted: Vec<&str> = match settings.queries.as_slice() {
        [] => all.copied().collect(),
        names => names.iter().map(String::as_str).collect(),
    };
    let is_of_flink = |query: &&str| query.starts_with(flink_sql::PREFIX);
    let flink = wanted.iter().any(is_of_flink).then(|| FlinkSql::from_environment(&settings));
    let flink = flink.flatten();
    let mut table = Vec::new();
    for query in wanted {
        if peers::QUERIES.contains(&query) {
            table.extend(peers::measure(query, &settings));
        } else if is_of_flink(&query) {
            let line = |flink| flink_sql::measure(query, &settings, flink);
            table.push(flink.as_ref().map_or_else(|| flink_sql::skipped(query), line));
        } else {
            table.push(compared_with_floor(query, &settings));
        }
    }
    println!("\nmillion rows in per second of processor time, medians of {} runs", settings.repeat);
    table.iter().for_each(|line| println!("{line}"));
}

/// Runs a query; how many rows of its result are left.
fn engine(benchmark: &mut Benchmark) -> (Measurement, Outcome) {
    let run =
        benchmark.run(&mut |_| {}).unwrap_or_else(|error| panic!("the engine failed: {error}"));
    let rows_left = run.rows_out - 2 * run.rows_retracted;
    (run.clone(), Outcome { rows_left, rows_out: run.rows_out })
}

fn floor(query: &str, inputs: &[Input]) -> Option<Outcome> {
    Some(match query {
        "q3" => joins::query_3(inputs),
        "q20" => joins::query_20(inputs),
        "q23" => joins::query_23(inputs),
        "q4" => winners::query_4(inputs),
        "q9" => winners::query_9(inputs),
        "q15" => days::query_15(inputs),
        "q16" => days::query_16(inputs),
        "q17" => days::query_17(inputs),
        "q18" => ranks::query_18(inputs),
        "q19" => ranks::query_19(inputs),
        _ => return expressions::floor(query, inputs),
    })
}

/// Engine and floor in turn; a line of the table.
fn compared_with_floor(query: &str, settings: &Settings) -> String {
    let found = find(Preset::Nexmark, query).unwrap_or_else(|error| panic!("{error}"));
    let benchmark = Benchmark::new(found, &settings.options(Preset::Nexmark));
    let mut benchmark = benchmark.unwrap_or_else(|error| panic!("{query}: {error}"));
    let (mut engines, mut floors, mut rows_in) = (Vec::new(), Vec::new(), 0);
    let mut state_bytes = 0;
    let (mut of_engine, mut of_floor) = (Outcome::default(), Outcome::default());
    for repetition in 0..=settings.repeat {
        forget_resident_peak();
        let (run, outcome) = engine(&mut benchmark);
        let resident_by_engine = resident_peak_bytes("self");
        (rows_in, of_engine, state_bytes) = (run.rows_in, outcome, run.state_peak_bytes);
        forget_resident_peak();
        let (processor, wall) = (ProcessTime::now(), Instant::now());
        of_floor =
            floor(query, benchmark.inputs()).unwrap_or_else(|| panic!("{query} has no floor"));
        let spent = Spent {
            processor: processor.elapsed(),
            wall: wall.elapsed(),
            resident_peak_bytes: resident_peak_bytes("self"),
        };
        assert_eq!(of_engine.rows_left, of_floor.rows_left, "{query}: rows that are left");
        if repetition > 0 {
            let spent_by_engine = Spent {
                processor: run.processor_time,
                wall: run.elapsed,
                resident_peak_bytes: resident_by_engine,
            };
            report(query, "engine", rows_in, of_engine, spent_by_engine);
            report(query, "floor", rows_in, of_floor, spent);
            engines.push(spent_by_engine);
            floors.push(spent);
        }
    }
    let rate = |runs: &[Spent], of: fn(&Spent) -> Duration| {
        rows_in as f64 / median(runs, of).as_secs_f64() / 1e6
    };
    let (engine, floor) = (rate(&engines, |s| s.processor), rate(&floors, |s| s.processor));
    let wall = rate(&engines, |s| s.wall);
    format!(
        "| {query} | {floor:.2} | {engine:.2} | **{:.2}** | {wall:.2} | {} | {} | {} | {:.0} |",
        engine / floor,
        of_engine.rows_left,
        of_floor.rows_out,
        of_engine.rows_out,
        state_bytes as f64 / (1 << 20) as f64,
    )
}

/// What a run took.
#[derive(Clone, Copy)]
struct Spent {
    processor: Duration,
    wall: Duration,
    /// With the input, which both read from memory.
    resident_peak_bytes: Option<u64>,
}

fn median(runs: &[Spent], of: fn(&Spent) -> Duration) -> Duration {
    let mut sorted: Vec<Duration> = runs.iter().map(of).collect();
    sorted.sort();
    sorted[sorted.len() / 2]
}

fn report(query: &str, variant: &str, rows_in: u64, outcome: Outcome, spent: Spent) {
    let line = serde_json::json!({
        "workload": query, "variant": variant, "rows_in": rows_in,
        "rows_out": outcome.rows_out, "rows_left": outcome.rows_left,
        "seconds": spent.wall.as_secs_f64(), "cpu_seconds": spent.processor.as_secs_f64(),
        "resident_peak_bytes": spent.resident_peak_bytes,
    });
    println!("{line}");
}
