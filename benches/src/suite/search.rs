//! Drives a search: measures the steps that it asks for, and the step that wins some more times.

use super::bisection::{self, BOUNDS_MS, Step};
use super::parts::{FREE_S, Search, WITHOUT_A_BOUND};
use super::point::Point;
use super::session::Suite;

/// A rate that no machine follows: what the source gives then is what the engine takes.
const WITHOUT_BOUND: u64 = 1_000_000_000;

/// A rate that wins in short steps may fail in the long one: so often a lower one is tried.
const LOWER_TRIES: usize = 3;

/// Measures a workload within all bounds.
///
/// # Errors
/// If rows can't be written.
pub fn run(suite: &mut Suite, search: &Search) -> Result<(), String> {
    let free = Point { events_per_second: WITHOUT_BOUND, ..search.step.clone() };
    let free = free.lasting(FREE_S.0, FREE_S.1).of_variant(WITHOUT_A_BOUND);
    let Some(row) = suite.measure(&free, 0)? else { return Ok(()) };
    let capacity = row["rows_per_second"].as_f64().unwrap_or_default() as u64;
    if capacity == 0 {
        eprintln!("{}: nothing was read; no search", search.step.workload);
        return Ok(());
    }
    let mut known = bisection::Search::new(events(&search.step, capacity), search.precision);
    // The bound in the middle first: its steps say most about the others.
    let searched = || [1, 0, 2].into_iter().filter(|&bound| search.repetitions[bound] > 0);
    for bound in searched() {
        if !probe(suite, search, &mut known, BOUNDS_MS[bound])? {
            return Ok(());
        }
    }
    for bound in searched() {
        confirm(suite, search, &known, bound)?;
    }
    Ok(())
}

/// Looks for the highest rate within a bound; false if a step failed, and nothing more is to be
/// learned.
fn probe(
    suite: &mut Suite,
    search: &Search,
    known: &mut bisection::Search,
    bound_ms: u64,
) -> Result<bool, String> {
    while let Some(rate) = known.next(bound_ms) {
        let Some(found) = step(suite, &search.probe, rate, 0)? else { return Ok(false) };
        known.add(found);
        if found.deserves_another_try(bound_ms)
            && let Some(again) = step(suite, &search.probe, rate, 1)?
        {
            known.add(again);
        }
    }
    Ok(true)
}

/// Measures the rate that wins as long and as often as is asked for; where it does not hold so
/// long, a lower one.
fn confirm(
    suite: &mut Suite,
    search: &Search,
    known: &bisection::Search,
    bound: usize,
) -> Result<(), String> {
    let bound_ms = BOUNDS_MS[bound];
    let Some(best) = known.best(bound_ms) else { return Ok(()) };
    let mut rate = best.events_per_second;
    for _ in 0..LOWER_TRIES {
        let mut held = 0;
        for repetition in 0..search.repetitions[bound] {
            let Some(found) = step(suite, &search.step, rate, repetition)? else { return Ok(()) };
            held += usize::from(found.holds(bound_ms));
            // Most of them have to hold; what can't be reached any more is not waited for.
            if (repetition + 1 - held) * 2 > search.repetitions[bound] {
                break;
            }
        }
        if held * 2 > search.repetitions[bound] {
            break;
        }
        rate = bisection::whole(rate as f64 / search.precision.min(1.25));
    }
    Ok(())
}

/// Events for this many rows: queries read a share of NEXMark's events, and rates are those of
/// events.
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
    of: &Point,
    events_per_second: u64,
    repetition: usize,
) -> Result<Option<Step>, String> {
    let point = Point { events_per_second, ..of.clone() };
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
