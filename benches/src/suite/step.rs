//! One step of the search for the highest rate within a bound: a workload at a rate, its output delay, and
//! whether it kept up.
//!
//! Output delay is the engine's latency: from when the row was due whose watermark completes a window (of
//! queries without windows: the row that causes the result) until the result is written (StreamBox, §9). Rows
//! that wait in front of the engine are overdue and count.
//!
//! StreamBox's records lie in memory and come again and again, a million of them in a second of event time (at
//! lower rates as many as come in a second, so that windows close all the time); NEXMark's events are made while the query runs, and what that costs is in the row
//! (`generator_ns_per_row`). Results are not compared here: the same queries are in the parts that do.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use serde_json::{Value, json};
use thalweg::bench::{Preset, find};
use thalweg::pipeline::{Pipeline, Window, count};
use thalweg::{Error, Result, RunOptions};
use thalweg_workloads::streambox::grep::{Output, Search};
use thalweg_workloads::streambox::words::{split, word_schema};
use thalweg_workloads::streambox::{Job, Table, distinct, grep, join, netmon, tweets, wordcount};

use super::ages::{Began, nothing};
use super::folder::Folder;
use super::job::{
    FORGETS, Measured, Script, Timing, Watch, generator_cost, session, with_short_auctions,
};
use super::paced::PacedReplay;
use super::point::Point;
use super::schedule::Schedule;
use crate::source::Replay;

/// StreamBox's six benchmarks.
pub const STREAMBOX: [&str; 6] = ["grep", "wordcount", "join", "distinct", "netmon", "tweets"];
/// Those of NEXMark's queries.
pub const NEXMARK: [&str; 11] =
    ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q11", "q13"];

const SIDE_KEYS: u64 = 10_000;
const GENERATED: u64 = 500_000;

/// Runs a point.
pub fn run(point: &Point) -> Result<Value> {
    let name = point.workload.as_str();
    let mut cost = None;
    let measured = match name {
        "wordcount" => words(point)?,
        _ if STREAMBOX.contains(&name) => streambox(point)?,
        _ => {
            let (measured, generator_ns) = nexmark(point)?;
            cost = Some(generator_ns);
            measured
        }
    };
    let mut row = measured.spent.fields(measured.rows_in);
    let due = point.events_per_second * (point.warm_up_s + point.measured_s);
    // NEXMark's tables have a share of the events; how far a source is behind shows in the latency there.
    let missing = if cost.is_none() { due.saturating_sub(measured.rows_read) } else { 0 };
    row["behind_ms"] = json!(missing as f64 * 1000.0 / point.events_per_second as f64);
    row["delay"] = json!(measured.latency);
    row["rows_in"] = json!(measured.rows_in);
    row["rows_out"] = json!(measured.rows_out);
    row["rows_per_second"] = json!(measured.rows_in as f64 / measured.spent.elapsed.as_secs_f64());
    row["late"] = json!(measured.late);
    row["generator_ns_per_row"] = json!(cost);
    Ok(row)
}

fn timing(point: &Point) -> Timing {
    Timing {
        warm_up: Duration::from_secs(point.warm_up_s),
        measured: Duration::from_secs(point.measured_s),
        stops_then: true,
    }
}

/// Records of a benchmark, as many as fit into a few hundred megabytes, at a rate for each of its tables.
fn job(name: &str, rate: u64) -> Job {
    let per_ms = |usual: u64| records_per_ms(usual, rate);
    match name {
        "grep" => {
            let settings = grep::Settings { laps: 1, ..grep::Settings::default() };
            let records_per_ms = per_ms(settings.records_per_ms);
            let settings = grep::Settings { records_per_ms, ..settings };
            grep::job(grep::table(&settings), Search::Literal, Output::Counts)
        }
        "join" => {
            let settings = join::Settings::unique(2_000_000);
            let records_per_ms = per_ms(settings.records_per_ms);
            let settings = join::Settings { records_per_ms, ..settings };
            join::job(join::tables(&settings), &settings)
        }
        "distinct" => {
            let settings = distinct::Settings::with_records(4_000_000);
            let records_per_ms = per_ms(settings.records_per_ms);
            distinct::job(distinct::table(&distinct::Settings { records_per_ms, ..settings }))
        }
        "netmon" => {
            let settings = netmon::Settings::with_records(4_000_000);
            let records_per_ms = per_ms(settings.records_per_ms);
            netmon::job(netmon::table(&netmon::Settings { records_per_ms, ..settings }))
        }
        _ => {
            let settings = tweets::Settings::with_records(1_000_000);
            let records_per_ms = per_ms(settings.records_per_ms);
            let settings = tweets::Settings { windows_of_mood: 3, records_per_ms, ..settings };
            tweets::job(tweets::table(&settings), &settings)
        }
    }
}

/// Records in a millisecond of event time: as many as usual, but at low rates fewer, so that a second of event
/// time never takes longer than a second and windows close all the time.
fn records_per_ms(usual: u64, rate: u64) -> u64 {
    usual.min(rate / 1000).max(1)
}

/// The event time that one lap of a table takes.
fn period_ms(table: &Table) -> i64 {
    let times = |batch: &arrow_array::RecordBatch| {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
        times.values().iter().copied().max().unwrap_or(0)
    };
    table.batches.iter().map(times).max().unwrap_or(0) + 1
}

fn streambox(point: &Point) -> Result<Measured> {
    let tables = if point.workload == "join" { 2 } else { 1 };
    let rate = point.events_per_second / tables;
    let job = job(&point.workload, rate);
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    let mut session = session(point.workers, folder.path())?;
    job.functions.iter().for_each(|function| session.register_function(function.clone()));
    let began = Began::default();
    // All tables move on together.
    let period_ms = job.tables.iter().map(period_ms).max().unwrap_or(1);
    let mut text = String::new();
    for table in &job.tables {
        text += &table.declaration();
        let (batches, began) = (Arc::new(table.batches.clone()), began.clone());
        session.register_source(table.name, move || {
            let replay = Replay::new(Arc::clone(&batches), period_ms, usize::MAX);
            Ok(Box::new(PacedReplay::new(replay, Schedule::constant(rate), began.clone())))
        });
    }
    let script =
        Script { text: text + &job.sql, sink: Box::new(nothing()), began, timing: timing(point) };
    Ok(script.run(&mut session)?.0)
}

/// Word count is a pipeline: its split is a function over batches.
fn words(point: &Point) -> Result<Measured> {
    let settings = wordcount::Settings::with_records(1_000_000);
    let records_per_ms = records_per_ms(settings.records_per_ms, point.events_per_second);
    let table = wordcount::table(&wordcount::Settings { records_per_ms, ..settings });
    let (period_ms, began) = (period_ms(&table), Began::default());
    let replay = Replay::new(Arc::new(table.batches), period_ms, usize::MAX);
    let schedule = Schedule::constant(point.events_per_second);
    let source = PacedReplay::new(replay, schedule, began.clone());
    let (pipeline, words) = (Pipeline::new(), word_schema().arrow());
    pipeline
        .read(table.name, source, table.schema)
        .watermark("ts", table.delay_ms)?
        .flat_map("split", word_schema(), move |batch| split(batch, &words))
        .window(Window::sliding(30_000, 1000), "ts")?
        .key_by(&["word"])?
        .aggregate(vec![count().named("n")])?
        .write("counts", nothing());
    let options = RunOptions { workers: point.workers, ..RunOptions::default() };
    let running = pipeline.start(options)?;
    let watch = Watch::new(running.control(), began, timing(point));
    running.wait()?;
    watch.measured().ok_or_else(|| Error::internal("the job ended before it was measured"))
}

/// One of NEXMark's queries, and what the generator takes for a row, in nanoseconds.
fn nexmark(point: &Point) -> Result<(Measured, f64)> {
    let query = find(Preset::Nexmark, &point.workload)?;
    let folder = Folder::new().map_err(|error| Error::io(error.to_string()))?;
    let side: String = (0..SIDE_KEYS).map(|key| format!("{key},value-{key}\n")).collect();
    folder.write("side_input.csv", &side).map_err(|error| Error::io(error.to_string()))?;
    let text = |options: &str| {
        let forgets = matches!(point.workload.as_str(), "q3" | "q4");
        let text = query.text.replace("${events}", options);
        let text = with_short_auctions(&text.replace("${side_input}", "side_input.csv"));
        if forgets { format!("{FORGETS}{text}") } else { text }
    };
    let seconds = point.warm_up_s + point.measured_s + 2;
    let (rate, began) = (point.events_per_second, Began::default());
    let script = Script {
        text: text(&format!(
            "'events' = '{}', 'rate' = '{rate}'",
            rate.saturating_mul(seconds).min(1 << 49)
        )),
        sink: Box::new(nothing()),
        began,
        timing: timing(point),
    };
    let (measured, _) = script.run(&mut session(point.workers, folder.path())?)?;
    let generated = text(&format!("'events' = '{GENERATED}'"));
    let (rows, cost) = generator_cost(&mut session(point.workers, folder.path())?, &generated)?;
    Ok((measured, cost.as_nanos() as f64 / rows.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::super::point::Kind;
    use super::*;

    #[test]
    fn steps_of_both_kinds_run() {
        for name in ["distinct", "q1"] {
            let point = Point::new("test", Kind::Step, name, 50_000).lasting(1, 1);
            let row = run(&point).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(row["rows_in"].as_u64().expect("a number") > 10_000, "{name}: {row}");
        }
    }
}
