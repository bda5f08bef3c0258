//! What a second worker brings: a workload over records in memory, by one worker and by two in turn, as fast as
//! they can. The variant of a point is how many runs are measured behind one to warm up.
//!
//! StreamBox's results are compared with a loop by hand; those of NEXMark's queries must be the same, whoever
//! made them (as a set of rows that is left when all changes were applied). These are compared in runs of their
//! own before the others: hashing all rows takes a core as well, and would be measured.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use serde_json::{Value, json};
use thalweg::bench::{BenchOptions, Benchmark as Nexmark, Preset, find};
use thalweg::{Error, Result};

use super::point::Point;
use super::streambox::{Benchmark, NAMES};

/// Numbers of workers.
pub const WORKERS: [usize; 2] = [1, 2];
/// NEXMark's queries whose state or output is not trivial, and one that is.
pub const QUERIES: [&str; 7] = ["q1", "q3", "q4", "q5", "q7", "q8", "q11"];

/// So many events of which a query reads enough for some tenths of a second: 3 and 8 read no bids. With one run, which
/// is to see that all works, fewer.
fn events_of(query: &str, repeat: usize) -> u64 {
    let events = match query {
        "q3" | "q8" => 60_000_000,
        "q4" | "q7" => 6_000_000,
        _ => 16_000_000,
    };
    if repeat > 1 { events } else { events / 20 }
}

const SCALE: f64 = 3.0;
const CHECKED_EVENTS: u64 = 1_000_000;

/// A run.
struct Run {
    events: u64,
    spent: (Duration, Duration),
}

/// Runs a point.
pub fn run(point: &Point) -> Result<Value> {
    let name = point.workload.as_str();
    let repeat: usize = point
        .variant
        .parse()
        .map_err(|_| Error::plan(format!("no number of runs: '{}', try '3'", point.variant)))?;
    let mut runs = Vec::new();
    let mut measure = measured(name, repeat)?;
    for repetition in 0..=repeat {
        for workers in WORKERS {
            let run = measure(workers)?;
            if repetition > 0 {
                let (wall, processor) = run.spent;
                runs.push(json!({
                    "workload": name, "variant": variant(workers), "events": run.events,
                    "seconds": wall.as_secs_f64(), "cpu_seconds": processor.as_secs_f64(),
                }));
            }
        }
    }
    // A wrong result is an error.
    Ok(json!({ "runs": runs, "check": "ok" }))
}

/// As the building blocks call it.
pub fn variant(workers: usize) -> String {
    format!("engine, {workers} worker{}", if workers == 1 { "" } else { "s" })
}

/// How a workload is run once by so many workers.
fn measured(name: &str, repeat: usize) -> Result<Box<dyn FnMut(usize) -> Result<Run>>> {
    if NAMES.contains(&name) {
        let benchmark = Benchmark::new(name, u64::MAX, SCALE);
        let lap: Vec<u64> =
            benchmark.job.tables.iter().map(|table| table.num_rows() as u64).collect();
        let expected = benchmark.expected(&lap);
        return Ok(Box::new(move |workers| {
            let (wall, processor) = (Instant::now(), ProcessTime::now());
            let (report, result) = benchmark.run(workers)?;
            let spent = (wall.elapsed(), processor.elapsed());
            if result != expected {
                let problem = format!("the results add up to {result}, not to {expected}");
                return Err(Error::internal(problem));
            }
            Ok(Run { events: report.metrics.rows_in(), spent })
        }));
    }
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
    let prepared = WORKERS.map(|workers| prepare(workers, events_of(name, repeat), false));
    let mut by_workers = prepared.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |workers| {
        let place = WORKERS.iter().position(|&known| known == workers).unwrap_or(0);
        let run = by_workers[place].run(&mut |_| {})?;
        let spent = (run.elapsed, run.processor_time);
        Ok(Run { events: run.rows_in, spent })
    }))
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
        assert_eq!(row["runs"].as_array().map(Vec::len), Some(2));
    }
}
