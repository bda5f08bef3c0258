//! One call of the suite: which points are measured, and which are there already.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::parts::{Mode, Part, Work};
use super::point::Point;
use super::record::Records;
use super::runner::Runner;
use super::search;

/// A call that measures.
pub struct Suite {
    pub mode: Mode,
    pub records: Records,
    pub runner: Runner,
}

impl Suite {
    /// Measures a part.
    ///
    /// # Errors
    /// If rows can't be written.
    pub fn run(&mut self, part: &Part, arguments: &Arguments) -> Result<(), String> {
        println!("{}: {}", part.name, part.about);
        match &part.work {
            Work::Points { points, repetitions } => {
                for repetition in 0..*repetitions {
                    let wanted = points.iter().filter(|p| arguments.wants_workload(&p.workload));
                    wanted
                        .map(|point| self.measure(point, repetition))
                        .try_for_each(|m| m.map(drop))?;
                }
                Ok(())
            }
            Work::Searches(searches) => {
                let wanted = |search: &&super::parts::Search| {
                    let is_named = !arguments.workloads.is_empty();
                    arguments.wants_workload(&search.step.workload)
                        && (is_named || !search.only_by_name)
                };
                searches.iter().filter(wanted).try_for_each(|wanted| search::run(self, wanted))
            }
        }
    }

    /// Measures a point, unless that was done. `None` where it can't be measured, which is printed.
    ///
    /// # Errors
    /// If the row can't be written.
    pub fn measure(&mut self, point: &Point, repetition: usize) -> Result<Option<Value>, String> {
        let mode = self.mode.name();
        if let Some(row) = self.records.find(point, repetition, mode) {
            println!("  {} #{repetition}: measured before", point.label());
            return Ok(Some(row.clone()));
        }
        match self.runner.measure(point) {
            Ok(Some(measured)) => {
                let row = self.records.add(point, repetition, mode, measured);
                let row = row.map_err(|error| format!("the row can't be written: {error}"))?;
                println!("  {} #{repetition}: {}", point.label(), summary(row));
                Ok(Some(row.clone()))
            }
            Ok(None) => {
                println!("  {} #{repetition}: SKIPPED, THALWEG_PEERS is not set", point.label());
                Ok(None)
            }
            Err(problem) => {
                eprintln!("  {} #{repetition}: FAILED: {problem}", point.label());
                let reason = problem.lines().next().unwrap_or("it failed");
                let failed = json!({ "failed": problem, "check": format!("FAILED: {reason}") });
                let row = self.records.add(point, repetition, mode, failed);
                row.map_err(|error| format!("the row can't be written: {error}"))?;
                Ok(None)
            }
        }
    }
}

/// A row in a few words.
fn summary(row: &Value) -> String {
    let mut words = Vec::new();
    for (what, place) in [("first", "first"), ("last", "last"), ("delay", "delay")] {
        let of = &row[place];
        if let Some(((p50, p99_99), max)) =
            of["p50_ms"].as_f64().zip(of["p99_99_ms"].as_f64()).zip(of["max_ms"].as_f64())
        {
            words.push(format!("{what} p50 {p50:.2} p99.99 {p99_99:.2} max {max:.2} ms"));
        }
    }
    if let Some(back_ms) = row["recovery"]["back_after_ms"].as_f64() {
        let worst_ms = row["recovery"]["worst_ms"].as_f64().unwrap_or_default();
        words.push(format!("at most {worst_ms:.1} ms late, back after {back_ms:.0} ms"));
    }
    if let Some(rate) = row["rows_per_second"].as_f64() {
        words.push(format!("{:.2} M rows/s", rate / 1e6));
    }
    if let Some(cores) = row["cores_used"].as_f64() {
        words.push(format!("{cores:.2} cores"));
    }
    if let Some(check) = row["check"].as_str() {
        words.push(format!("result {check}"));
    }
    words.join(", ")
}
