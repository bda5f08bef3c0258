//! What a second worker brings: a workload over records in memory, by one worker, by two, and by
//! two engines of one worker each that share nothing but the machine, in turn, as fast as they can.
//! The last is the bound: what they lose, caches and memory take, and no engine could get it back.
//! The variant of a point is how many runs are measured behind one to warm up.
//!
//! StreamBox's results are compared with a loop by hand; those of NEXMark's queries must be the
//! same, whoever made them (as a set of rows that is left when all changes were applied). These are
//! compared in runs of their own before the others: hashing all rows takes a core as well, and
//! would be measured.

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use serde_json::{Value, json};
use thalweg::bench::{BenchOptions, Benchmark as Nexmark, Preset, find};
use thalweg::{Error, Result};

use super::point::Point;
use super::process::{forget_resident_peak, resident_peak_bytes};
use super::streambox::{Benchmark, NAMES};

/// Numbers of workers.
pub const WORKERS: [usize; 2] = [1, 2];
/// The variant of two engines with a worker each.
pub const APART: &str = "two engines, 1 worker each";
/// NEXMark's queries whose state or output is not trivial, and one that is.
pub const QUERIES: [&str; 7] = ["q1", "q3", "q4", "q5", "q7", "q8", "q11"];

/// Events of which a query reads enough for a second by one worker: in shorter runs memory that is
/// touched for the first time, and what begins and ends a job, would be a good part. 3 and 8 read
/// no bids. With one run, which is to see that all works, fewer.
fn events_of(query: &str, repeat: usize) -> u64 {
    let events = match query {
        "q3" | "q8" => 400_000_000,
        "q4" => 12_000_000,
        "q7" => 8_000_000,
        "q11" => 110_000_000,
        _ => 70_000_000,
    };
    if repeat > 1 { events } else { events / 20 }
}

/// As many records of one of StreamBox's as take a second too, in the scale of [`Benchmark::new`].
fn scale_of(name: &str, repeat: usize) -> f64 {
    match name {
        _ if repeat <= 1 => 1.0,
        "grep" | "distinct" | "netmon" => 9.0,
        "join" => 4.5,
        _ => 3.0,
    }
}

const CHECKED_EVENTS: u64 = 1_000_000;

/// A run.
struct Run {
    events: u64,
    /// By wall clock.
    elapsed: Duration,
}

/// The workers of each engine: one of each of [`WORKERS`], and another one that runs next to the
/// first.
const ENGINES: [usize; 3] = [WORKERS[0], WORKERS[1], WORKERS[0]];
/// The engines that run side by side.
const SIDE_BY_SIDE: [usize; 2] = [0, 2];

/// A workload that can be run again and again, by two threads at the same time where engines
/// differ.
trait Measured: Sync {
    /// Runs it by one of [`ENGINES`].
    fn run(&self, engine: usize) -> Result<Run>;
}

/// Runs a point.
pub fn run(point: &Point) -> Result<Value> {
    let name = point.workload.as_str();
    let repeat: usize = point
        .variant
        .parse()
        .map_err(|_| Error::plan(format!("no number of runs: '{}', try '3'", point.variant)))?;
    let measured = measured(name, repeat)?;
    let mut runs = Vec::new();
    for repetition in 0..=repeat {
        let mut add = |variant: String, run: Run, processor: Duration| {
            if repetition > 0 {
                runs.push(json!({
                    "workload": name, "variant": variant, "events": run.events,
                    "seconds": run.elapsed.as_secs_f64(), "cpu_seconds": processor.as_secs_f64(),
                    "resident_peak_bytes": resident_peak_bytes("self"),
                }));
            }
            forget_resident_peak();
        };
        for (engine, workers) in WORKERS.into_iter().enumerate() {
            let processor = ProcessTime::now();
            let run = measured.run(engine)?;
            add(variant(workers), run, processor.elapsed());
        }
        let processor = ProcessTime::now();
        let run = apart(&*measured)?;
        add(APART.to_owned(), run, processor.elapsed());
    }
    // A wrong result is an error.
    Ok(json!({ "runs": runs, "check": "ok" }))
}

/// Two engines at the same time; both do the whole work.
fn apart(measured: &dyn Measured) -> Result<Run> {
    let start = Barrier::new(2);
    let run = |engine| {
        start.wait();
        measured.run(engine)
    };
    let (first, second) = thread::scope(|threads| {
        let second = threads.spawn(|| run(SIDE_BY_SIDE[1]));
        (run(SIDE_BY_SIDE[0]), second.join())
    });
    let stopped = |_| Err(Error::internal("an engine of two stopped".to_owned()));
    let (first, second) = (first?, second.unwrap_or_else(stopped)?);
    Ok(Run { events: first.events + second.events, elapsed: first.elapsed.max(second.elapsed) })
}

/// As the building blocks call it.
pub fn variant(workers: usize) -> String {
    format!("engine, {workers} worker{}", if workers == 1 { "" } else { "s" })
}

fn measured(name: &str, repeat: usize) -> Result<Box<dyn Measured>> {
    if NAMES.contains(&name) { streambox(name, repeat) } else { nexmark(name, repeat) }
}

/// One of StreamBox's with what it must give.
struct OfStreambox {
    benchmark: Benchmark,
    expected: u64,
}

fn streambox(name: &str, repeat: usize) -> Result<Box<dyn Measured>> {
    let benchmark = Benchmark::new(name, u64::MAX, scale_of(name, repeat));
    let lap: Vec<u64> = benchmark.job.tables.iter().map(|table| table.num_rows() as u64).collect();
    let expected = benchmark.expected(&lap);
    Ok(Box::new(OfStreambox { benchmark, expected }))
}

impl Measured for OfStreambox {
    fn run(&self, engine: usize) -> Result<Run> {
        let started = Instant::now();
        let (report, result) = self.benchmark.run(ENGINES[engine])?;
        let elapsed = started.elapsed();
        if result != self.expected {
            let problem = format!("the results add up to {result}, not to {}", self.expected);
            return Err(Error::internal(problem));
        }
        Ok(Run { events: report.metrics.rows_in(), elapsed })
    }
}

/// A query of NEXMark for each engine, over the same events in memory.
struct OfNexmark(Vec<Mutex<Nexmark>>);

fn nexmark(name: &str, repeat: usize) -> Result<Box<dyn Measured>> {
    let prepare = |workers, events, check| {
        let query = find(Preset::Nexmark, name)?;
        let options =
            BenchOptions { events, workers: Some(workers), check, ..BenchOptions::default() };
        Nexmark::new(query, &options)
    };
    let result_of =
        |workers| Ok(prepare(workers, CHECKED_EVENTS, true)?.run(&mut |_| {})?.fingerprint);
    let results = WORKERS.map(result_of).into_iter().collect::<Result<Vec<_>>>()?;
    if results.iter().any(|result| *result != results[0]) {
        return Err(Error::internal(format!(
            "{WORKERS:?} workers have other results: {results:?}"
        )));
    }
    let mut first = prepare(ENGINES[0], events_of(name, repeat), false)?;
    // Which makes the events.
    first.run(&mut |_| {})?;
    let engine = |workers| Ok(Mutex::new(first.with_workers(workers)?));
    Ok(Box::new(OfNexmark(ENGINES.into_iter().map(engine).collect::<Result<_>>()?)))
}

impl Measured for OfNexmark {
    fn run(&self, engine: usize) -> Result<Run> {
        let mut query = self.0[engine].lock().expect("a run that fails ends the point");
        let run = query.run(&mut |_| {})?;
        Ok(Run { events: run.rows_in, elapsed: run.elapsed })
    }
}

#[cfg(test)]
mod tests {
    use super::super::point::Kind;
    use super::*;

    #[test]
    fn both_numbers_of_workers_run_and_agree() {
        let point = Point::new("scaling", Kind::Scaling, "q1", 0).of_variant(1);
        let row = run(&point).expect("it runs");
        assert_eq!(row["check"], "ok");
        let runs = row["runs"].as_array().expect("a list");
        let by: Vec<_> = runs.iter().filter_map(|run| run["variant"].as_str()).collect();
        assert_eq!(by, ["engine, 1 worker", "engine, 2 workers", APART]);
        assert_eq!(runs[2]["events"].as_u64(), runs[0]["events"].as_u64().map(|one| 2 * one));
    }
}
