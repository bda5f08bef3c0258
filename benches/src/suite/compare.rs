//! Two builds in turn, point by point: is the one slower than the other?
//!
//! Pairs are measured one right after the other, and the sequence within a pair changes from pair
//! to pair, so that what the machine does in the long run hits both. The ratio of each pair counts;
//! its median and spread are reported. A difference is one only if no pair says otherwise.

use std::path::Path;

use serde_json::Value;

use super::arguments::Arguments;
use super::parts::{Work, parts};
use super::percentiles::median;
use super::point::{Engine, Kind, Point};
use super::runner::Runner;

/// What is compared: its name in the table, and where it is in a row.
const MEASURES: [(&str, [&str; 2]); 6] = [
    ("p50", ["first", "p50_ms"]),
    ("p99", ["first", "p99_ms"]),
    ("p99.99", ["first", "p99_99_ms"]),
    ("CPU per event", ["cpu_ns_per_event", ""]),
    ("events/s", ["rows_per_second", ""]),
    ("memory", ["resident_peak_bytes", ""]),
];

/// Alternates this program and another one, and prints a table.
///
/// # Errors
/// If there is no such program, or a point can't be measured.
pub fn run(arguments: &Arguments, runner: &Runner, old: &Path) -> Result<(), String> {
    if !old.is_file() {
        return Err(format!("{}: no such program; build it first", old.display()));
    }
    let old = runner.of_program(old);
    println!(
        "| workload | measure | new : old (median of {} pairs) | spread | all pairs agree |",
        arguments.repeat
    );
    println!("|---|---|---|---|---|");
    for point in points(arguments) {
        let mut pairs = Vec::new();
        for pair in 0..arguments.repeat {
            let one = |runner: &Runner| {
                runner.measure(&point)?.ok_or_else(|| format!("{}: skipped", point.label()))
            };
            let (new_row, old_row) = if pair % 2 == 0 {
                let new_row = one(runner)?;
                (new_row, one(&old)?)
            } else {
                let old_row = one(&old)?;
                (one(runner)?, old_row)
            };
            pairs.push((new_row, old_row));
        }
        MEASURES
            .iter()
            .filter_map(|measure| line(&point, measure, &pairs))
            .for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Points of this engine that say something by themselves: of searches the step without a bound.
fn points(arguments: &Arguments) -> Vec<Point> {
    let wanted = parts(arguments.mode).into_iter().filter(|part| arguments.wants_part(part.name));
    let points = wanted.flat_map(|part| match part.work {
        Work::Points { points, .. } => points,
        Work::Searches(searches) => searches
            .into_iter()
            .map(|search| Point { events_per_second: 1_000_000_000, ..search.step })
            .collect(),
    });
    let is_of_this = |point: &Point| {
        point.engine == Engine::Thalweg
            && point.kind != Kind::Throughput
            && arguments.wants_workload(&point.workload)
    };
    points.filter(is_of_this).collect()
}

fn line(
    point: &Point,
    (name, place): &(&str, [&str; 2]),
    pairs: &[(Value, Value)],
) -> Option<String> {
    let of = |row: &Value| {
        let value = &row[place[0]];
        if place[1].is_empty() { value.as_f64() } else { value[place[1]].as_f64() }
    };
    let ratios: Vec<f64> =
        pairs.iter().filter_map(|(new, old)| Some(of(new)? / of(old)?)).collect();
    let (middle, low, high) = median(ratios)?;
    let agree = if low > 1.0 || high < 1.0 { "yes" } else { "no" };
    Some(format!(
        "| {} | {name} | **{middle:.3}** | {low:.3} to {high:.3} | {agree} |",
        point.label()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_is_one_if_all_pairs_say_so() {
        let point = Point::new("latency-q5", Kind::Latency, "q5", 100);
        let row = |p50_ms: f64| json!({ "first": { "p50_ms": p50_ms } });
        let slower = [(row(1.2), row(1.0)), (row(1.5), row(1.0)), (row(1.1), row(1.0))];
        let reported = line(&point, &MEASURES[0], &slower).expect("a line");
        assert!(reported.contains("**1.200** | 1.100 to 1.500 | yes"), "{reported}");
        let mixed = [(row(1.2), row(1.0)), (row(0.9), row(1.0))];
        assert!(line(&point, &MEASURES[0], &mixed).expect("a line").ends_with("| no |"));
        assert_eq!(line(&point, &MEASURES[3], &mixed), None, "it was not measured");
    }
}
