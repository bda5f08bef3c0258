//! Drives a search: measures the steps that it asks for, and the step that wins some more times.

use super::bisection::{self, BOUNDS_MS, Step};
use super::parts::Search;
use super::point::Point;
use super::session::Suite;

/// A rate that no machine follows: what the source gives then is what the engine takes.
const WITHOUT_BOUND: u64 = 1_000_000_000;

/// Measures a workload within all bounds.
///
/// # Errors
/// If rows can't be written.
pub fn run(suite: &mut Suite, search: &Search) -> Result<(), String> {
    let free = Point { events_per_second: WITHOUT_BOUND, ..search.step.clone() };
    let free = free.lasting(2, 4).of_variant("without a bound");
    let Some(row) = suite.measure(&free, 0)? else { return Ok(()) };
    let capacity = row["rows_per_second"].as_f64().unwrap_or_default() as u64;
    if capacity == 0 {
        eprintln!("{}: nothing was read; no search", search.step.workload);
        return Ok(());
    }
    let mut known = bisection::Search::new(events(&search.step, capacity), search.precision);
    // The bound in the middle first: its steps tell most about the others.
    for bound_ms in [BOUNDS_MS[1], BOUNDS_MS[0], BOUNDS_MS[2]] {
        while let Some(rate) = known.next(bound_ms) {
            let Some(found) = step(suite, search, rate, 0)? else { return Ok(()) };
            known.add(found);
            if found.deserves_another_try(bound_ms)
                && let Some(again) = step(suite, search, rate, 1)?
            {
                known.add(again);
            }
        }
        for repetition in 1..search.repetitions {
            if let Some(best) = known.best(bound_ms) {
                step(suite, search, best.events_per_second, repetition + 1)?;
            }
        }
    }
    Ok(())
}

/// Events for so many rows: queries read a share of NEXMark's events, and rates are those of events.
fn events(step: &Point, rows: u64) -> u64 {
    match step.workload.as_str() {
        // Auctions and persons: 4 of 50 events.
        "q3" | "q8" => rows * 50 / 4,
        "q4" | "q6" => rows * 50 / 49,
        // Bids: 46 of 50.
        name if name.starts_with('q') => rows * 50 / 46,
        _ => rows,
    }
}

fn step(
    suite: &mut Suite,
    search: &Search,
    events_per_second: u64,
    repetition: usize,
) -> Result<Option<Step>, String> {
    let point = Point { events_per_second, ..search.step.clone() };
    let row = suite.measure(&point, repetition)?;
    Ok(row.map(|row| Step::of(events_per_second, &row)))
}

#[cfg(test)]
mod tests {
    use super::super::point::Kind;
    use super::*;

    #[test]
    fn rates_are_those_of_events() {
        let of = |name| events(&Point::new("x", Kind::Step, name, 0), 4_600);
        assert_eq!(of("q1"), 5_000);
        assert_eq!(of("q3"), 57_500);
        assert_eq!(of("grep"), 4_600);
    }
}
