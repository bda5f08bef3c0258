//! One step of the search for the highest rate within a bound: a workload at a rate, its output
//! delay, and whether it kept up.
//!
//! Output delay is the engine's latency: from when the row was due whose watermark completes a
//! window (of queries without windows: the row that causes the result) until the result is written
//! (StreamBox, §9). Rows are due by a schedule that is fixed before the run, so those that wait in
//! front of the engine count.
//!
//! StreamBox's records lie in memory and come again and again, a million of them in a second of
//! event time (at lower rates as many as come in a second, so that windows close all the time);
//! NEXMark's events are made while the query runs, and what that costs is in the row
//! (`generator_ns_per_row`). Sources end a moment after the measured time, the job runs to its end,
//! and its results are compared with what was read: those of StreamBox with loops by hand
//! ([`super::streambox`]), those of NEXMark where the one says the other ([`super::tally`]), else
//! with what the same events say once more ([`super::expected`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg::bench::{Preset, find};
use thalweg::pipeline::{Pipeline, Window, count};
use thalweg::{Error, Result, RunOptions, Sink};
use thalweg_workloads::streambox::words::{split, word_schema};

use super::age_sinks::Began;
use super::expected::{ExpectedResult, Given, Left, Query};
use super::folder::Folder;
use super::job::{
    FORGETS, Look, Measured, NOT_MEASURED, Script, Timing, Watch, generator_cost, session,
    with_short_windows,
};
use super::oracle::Sum;
use super::paced::{PacedReplay, Until};
use super::point::Point;
use super::schedule::Schedule;
use super::streambox::{Benchmark, NAMES, Total};
use super::tally::Tally;
use crate::source::Replay;

/// NEXMark's queries that have a result all the time.
pub const NEXMARK: [&str; 11] =
    ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q11", "q13"];

const SIDE_KEYS: u64 = 10_000;
const GENERATED: u64 = 500_000;
const WINDOW_MS: i64 = 1000;
const SLIDE_MS: i64 = 200;
/// Sources end so long behind the measured time.
const TAIL: Duration = Duration::from_millis(200);

/// Runs a point.
pub fn run(point: &Point) -> Result<Value> {
    let is_streambox = NAMES.contains(&point.workload.as_str());
    let (measured, found) = if is_streambox { streambox(point)? } else { nexmark(point)? };
    let mut row = measured.spent.fields(measured.rows_in);
    let due = point.events_per_second * (point.warm_up_s + point.measured_s);
    // NEXMark's tables have a share of the events; how far a source is behind shows in the latency
    // there.
    let missing = if is_streambox { due.saturating_sub(measured.rows_read) } else { 0 };
    row["behind_ms"] = json!(missing as f64 * 1000.0 / point.events_per_second as f64);
    row["delay"] = json!(measured.latency);
    row["rows_in"] = json!(measured.rows_in);
    row["rows_out"] = json!(measured.rows_out);
    row["rows_per_second"] = json!(measured.rows_in as f64 / measured.spent.elapsed.as_secs_f64());
    row["late"] = json!(measured.late);
    row["check"] = found.check;
    row["generator_ns_per_row"] = json!(found.generator_ns_per_row);
    row["floor_ns_per_row"] = json!(found.floor_ns_per_row);
    Ok(row)
}

/// What is known besides.
struct Found {
    check: Value,
    /// Of the generator alone, where events are made during the run.
    generator_ns_per_row: Option<f64>,
    /// Of the loop by hand, where there is one.
    floor_ns_per_row: Option<f64>,
}

fn timing(point: &Point) -> Timing {
    Timing {
        warm_up: Duration::from_secs(point.warm_up_s),
        measured: Duration::from_secs(point.measured_s),
        stops_then: false,
    }
}

fn end(point: &Point) -> Duration {
    Duration::from_secs(point.warm_up_s + point.measured_s) + TAIL
}

/// The records of a benchmark, each table with a clock of its own and a share of the rate.
struct Sources {
    benchmark: Benchmark,
    rate: u64,
    began: Began,
    until: Vec<Until>,
}

impl Sources {
    fn new(point: &Point) -> Sources {
        let tables = if point.workload == "join" { 2 } else { 1 };
        let rate = point.events_per_second / tables;
        let benchmark = Benchmark::new(&point.workload, rate, 1.0);
        let until = benchmark.job.tables.iter().map(|_| Until::after(end(point))).collect();
        Sources { benchmark, rate, began: Began::default(), until }
    }

    fn source(&self, table: usize) -> impl Fn() -> PacedReplay + Send + 'static {
        let batches = Arc::new(self.benchmark.job.tables[table].batches.clone());
        // All tables move on together.
        let (period_ms, rate) = (self.benchmark.period_ms(), self.rate);
        let (began, until) = (self.began.clone(), self.until[table].clone());
        move || {
            let replay = Replay::new(Arc::clone(&batches), period_ms, usize::MAX);
            PacedReplay::new(replay, Schedule::constant(rate), began.clone(), until.clone())
        }
    }

    fn found(&self, total: &Total) -> Found {
        let given: Vec<u64> = self.until.iter().map(Until::given).collect();
        let rows = given.iter().sum();
        let floor = self.benchmark.floor();
        let of_lap: usize = self.benchmark.job.num_rows();
        let expected = Sum { rows, hash: self.benchmark.expected(&given) };
        Found {
            check: Sum { rows, hash: total.get() }.compared(expected),
            generator_ns_per_row: None,
            floor_ns_per_row: Some(floor.as_nanos() as f64 / of_lap.max(1) as f64),
        }
    }
}

fn streambox(point: &Point) -> Result<(Measured, Found)> {
    let (sources, total) = (Sources::new(point), Total::of(&point.workload));
    let measured = match point.workload.as_str() {
        "wordcount" => words(point, &sources, &total)?,
        _ => sql(point, &sources, &total)?,
    };
    let found = sources.found(&total);
    Ok((measured, found))
}

fn sql(point: &Point, sources: &Sources, total: &Total) -> Result<Measured> {
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    let mut session = session(point.workers, folder.path())?;
    let job = &sources.benchmark.job;
    job.functions.iter().for_each(|function| session.register_function(function.clone()));
    let mut text = String::new();
    for (number, table) in job.tables.iter().enumerate() {
        text += &table.declaration();
        let source = sources.source(number);
        session.register_source(table.name, move || Ok(Box::new(source())));
    }
    let script = Script {
        text: text + &job.sql,
        sink: Box::new(total.sink()),
        began: sources.began.clone(),
        timing: timing(point),
        ends_after: None,
        look: None,
        given: Given::default(),
    };
    Ok(script.run(&mut session)?.0)
}

/// Word count is a pipeline: its split is a function over batches.
fn words(point: &Point, sources: &Sources, total: &Total) -> Result<Measured> {
    let table = &sources.benchmark.job.tables[0];
    let (pipeline, words) = (Pipeline::new(), word_schema().arrow());
    pipeline
        .read(table.name, sources.source(0)(), table.schema.clone())
        .watermark("ts", table.delay_ms)?
        .flat_map("split", word_schema(), move |batch| split(batch, &words))
        .window(Window::sliding(30_000, 1000), "ts")?
        .key_by(&["word"])?
        .aggregate(vec![count().named("n")])?
        .write("counts", total.sink());
    let options = RunOptions { workers: point.workers, ..RunOptions::default() };
    let running = pipeline.start(options)?;
    let watch = Watch::new(running.control(), sources.began.clone(), timing(point));
    running.wait()?;
    watch.measured().ok_or_else(|| Error::internal(NOT_MEASURED))
}

/// How the results of one of NEXMark's queries are checked.
enum Check {
    InPassing(Tally),
    ByHand(Left),
}

impl Check {
    fn of(query: &str) -> Check {
        let by_hand = |query| Check::ByHand(Left::of(query));
        match query {
            "q3" => by_hand(Query::LocalSellers),
            "q4" => by_hand(Query::AveragePrices),
            "q5" => by_hand(Query::HottestAuctions { size_ms: WINDOW_MS, slide_ms: SLIDE_MS }),
            "q6" => by_hand(Query::SellersThatClosed),
            "q8" => by_hand(Query::NewSellers { size_ms: WINDOW_MS }),
            _ => Check::InPassing(Tally::of(query, WINDOW_MS)),
        }
    }

    fn sink(&self) -> Box<dyn Sink> {
        match self {
            Check::InPassing(tally) => Box::new(tally.sink()),
            Check::ByHand(left) => Box::new(left.sink()),
        }
    }

    fn look(&self) -> Option<Look> {
        match self {
            Check::InPassing(tally) => Some(tally.look()),
            Check::ByHand(_) => None,
        }
    }

    fn result(&self, expected_result: &ExpectedResult) -> Result<Value> {
        match self {
            Check::InPassing(tally) => Ok(tally.check()),
            Check::ByHand(left) => left.check(expected_result),
        }
    }
}

/// One of NEXMark's queries with windows of a second, over events with these options.
fn script(query: &str, options: &str) -> Result<String> {
    let text = find(Preset::Nexmark, query)?.text.replace("${events}", options);
    let text = with_short_windows(&text.replace("${side_input}", "side_input.csv"));
    let forgets = matches!(query, "q3" | "q4");
    Ok(if forgets { format!("{FORGETS}{text}") } else { text })
}

/// Runs it; and what the generator takes for a row.
fn nexmark(point: &Point) -> Result<(Measured, Found)> {
    let query = point.workload.as_str();
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    let side: String = (0..SIDE_KEYS).map(|key| format!("{key},value-{key}\n")).collect();
    folder.write("side_input.csv", &side).map_err(|error| Error::io(error.to_string()))?;
    let rate = point.events_per_second;
    let seconds = point.warm_up_s + point.measured_s + 2;
    let events = rate.saturating_mul(seconds).min(1 << 49);
    let (check, given) = (Check::of(query), Given::default());
    let job = Script {
        text: script(query, &format!("'events' = '{events}', 'rate' = '{rate}'"))?,
        sink: check.sink(),
        began: Began::default(),
        timing: timing(point),
        ends_after: Some(end(point)),
        look: check.look(),
        given: given.clone(),
    };
    let (measured, _) = job.run(&mut session(point.workers, folder.path())?)?;
    let generated = script(query, &format!("'events' = '{GENERATED}'"))?;
    let (rows, cost) = generator_cost(&mut session(point.workers, folder.path())?, &generated)?;
    let expected_result = ExpectedResult {
        folder: folder.path().to_owned(),
        script: script(query, &format!("'events' = '{events}', 'event-time-rate' = '{rate}'"))?,
        given,
    };
    let found = Found {
        check: check.result(&expected_result)?,
        generator_ns_per_row: Some(cost.as_nanos() as f64 / rows.max(1) as f64),
        floor_ns_per_row: None,
    };
    Ok((measured, found))
}

#[cfg(test)]
mod tests {
    use super::super::point::Kind;
    use super::*;

    #[test]
    fn steps_of_both_kinds_are_right() {
        for name in ["distinct", "join"].into_iter().chain(NEXMARK) {
            let point = Point::new("test", Kind::Step, name, 50_000).lasting(1, 2);
            let row = run(&point).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(row["rows_in"].as_u64().expect("a number") > 1_000, "{name}: {row}");
            assert_eq!(row["check"], "ok", "{name}: {row}");
            assert!(row["delay"]["count"].as_u64().is_some_and(|count| count > 0), "{name}: {row}");
        }
    }

    #[test]
    fn at_a_rate_that_nobody_follows_the_delay_grows() {
        let point = Point::new("test", Kind::Step, "distinct", 1_000_000_000).lasting(1, 2);
        let row = run(&point).expect("it runs");
        assert!(row["delay"]["max_ms"].as_f64().is_some_and(|ms| ms > 1_000.0), "{row}");
        assert!(row["behind_ms"].as_f64().is_some_and(|ms| ms > 1_000.0), "{row}");
        assert_eq!(row["check"], "ok", "{row}");
    }
}
