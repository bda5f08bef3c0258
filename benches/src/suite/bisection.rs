//! The highest rate within a bound on the output delay, found by bisection (StreamBox, §9).
//!
//! One step without a bound shows what the machine can do at all; from there each bound is searched
//! between what is known to hold and what is known not to. Steps are shared: a step that was
//! measured for one bound informs all.
//!
//! A step holds if its slowest result is within the bound and its source is not further behind than
//! that. If only the slowest hundredth is outside, the step is repeated once: pauses of the machine
//! are as long as that.

use serde_json::Value;

/// The bounds, in milliseconds.
pub const BOUNDS_MS: [u64; 3] = [50, 500, 1000];

/// Rates under this part of the capacity are not tried.
const HOPELESS: u64 = 300;

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub events_per_second: u64,
    /// The slowest result; infinite if there was none.
    pub worst_ms: f64,
    /// 99 % were faster.
    pub p99_ms: f64,
    /// How far the source was behind at the end.
    pub behind_ms: f64,
}

impl Step {
    /// From the row of a step.
    pub fn of(events_per_second: u64, row: &Value) -> Step {
        let ms = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
        // What is wrong holds no bound, however soon it comes.
        let is_wrong = row["check"].as_str().is_some_and(|check| check.starts_with("WRONG"));
        Step {
            events_per_second,
            worst_ms: if is_wrong { f64::INFINITY } else { ms(&row["delay"]["max_ms"]) },
            p99_ms: ms(&row["delay"]["p99_ms"]),
            behind_ms: ms(&row["behind_ms"]),
        }
    }

    /// True if it stays within the bound.
    pub fn holds(&self, bound_ms: u64) -> bool {
        self.worst_ms.max(self.behind_ms) <= bound_ms as f64
    }

    /// True if it is outside by its slowest hundredth alone.
    pub fn deserves_another_try(&self, bound_ms: u64) -> bool {
        !self.holds(bound_ms) && self.p99_ms.max(self.behind_ms) <= bound_ms as f64
    }
}

/// What is known of one workload.
#[derive(Clone, Debug)]
pub struct Search {
    /// What it does without a bound.
    capacity: u64,
    /// Neighbours are so close in the end: 1.05 is within 5 %.
    precision: f64,
    steps: Vec<Step>,
}

impl Search {
    /// Nothing but the rate without a bound.
    pub fn new(capacity: u64, precision: f64) -> Search {
        Search { capacity, precision, steps: Vec::new() }
    }

    /// A step was measured. Of two at the same rate the better one counts.
    pub fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// The highest rate that held, and the step.
    pub fn best(&self, bound_ms: u64) -> Option<Step> {
        let held = self.steps.iter().filter(|step| step.holds(bound_ms));
        held.max_by_key(|step| step.events_per_second).copied()
    }

    /// The rate to try next for a bound; `None` when it is known closely enough, or when only
    /// hopelessly low ones are left.
    pub fn next(&self, bound_ms: u64) -> Option<u64> {
        let held = self.best(bound_ms).map(|step| step.events_per_second);
        let failed = self
            .steps
            .iter()
            .filter(|step| !step.holds(bound_ms))
            .map(|step| step.events_per_second)
            .filter(|&rate| held.is_none_or(|held| rate > held))
            .min();
        match (held, failed) {
            (None, None) => Some(whole(self.capacity as f64 * 0.7)),
            (Some(held), None) if held as f64 * self.precision >= self.capacity as f64 => None,
            (Some(held), None) => Some(between(held, self.capacity)),
            (None, Some(failed)) => {
                let lower = whole(failed as f64 / 3.0);
                (lower > self.capacity / HOPELESS).then_some(lower)
            }
            (Some(held), Some(failed)) => {
                (held as f64 * self.precision < failed as f64).then(|| between(held, failed))
            }
        }
    }
}

/// The geometric middle.
fn between(low: u64, high: u64) -> u64 {
    whole((low as f64 * high as f64).sqrt())
}

/// In three digits, rounded down: rates are easier to read.
pub fn whole(rate: f64) -> u64 {
    let rate = rate as u64;
    let unit = 10_u64.pow(rate.max(1).ilog10().saturating_sub(2));
    rate / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workload whose delay grows slowly and then at once.
    fn measured(rate: u64, limit: u64) -> Step {
        let worst_ms = if rate <= limit { 20.0 + rate as f64 / 1e5 } else { 5_000.0 };
        Step { events_per_second: rate, worst_ms, p99_ms: worst_ms, behind_ms: 0.0 }
    }

    #[test]
    fn the_limit_is_found_within_the_precision() {
        for limit in [9_900_000, 6_500_000, 1_000_000, 150_000] {
            let mut search = Search::new(10_000_000, 1.05);
            let mut steps = 0;
            while let Some(rate) = search.next(500) {
                search.add(measured(rate, limit));
                steps += 1;
                assert!(steps < 20, "it ends");
            }
            let best = search.best(500).expect("one held").events_per_second;
            assert!(best <= limit && best as f64 * 1.06 >= limit as f64, "{best} of {limit}");
        }
    }

    #[test]
    fn steps_are_shared_by_the_bounds() {
        let mut search = Search::new(10_000_000, 1.15);
        while let Some(rate) = search.next(500) {
            search.add(measured(rate, 6_500_000));
        }
        assert_eq!(search.next(1000), None, "nothing is left to try");
        assert_eq!(search.next(50), search.next(50));
        let strict = search.best(50).map(|step| step.events_per_second);
        assert!(strict.is_none_or(|rate| rate <= 3_000_000), "{strict:?}");
    }

    #[test]
    fn rates_have_three_digits() {
        let rates = [1_234_567.0, 999.9, 12.0, 0.3].map(whole);
        assert_eq!(rates, [1_230_000, 999, 12, 0]);
    }

    #[test]
    fn what_never_holds_is_given_up() {
        let mut search = Search::new(1_000_000, 1.05);
        let mut steps = 0;
        while let Some(rate) = search.next(50) {
            search.add(measured(rate, 0));
            steps += 1;
        }
        assert!(steps < 6 && search.best(50).is_none());
    }

    #[test]
    fn a_single_pause_is_forgiven_once() {
        let step = Step { events_per_second: 1, worst_ms: 90.0, p99_ms: 30.0, behind_ms: 0.0 };
        assert!(step.deserves_another_try(50) && !step.deserves_another_try(100));
        assert!(!Step { p99_ms: 70.0, ..step }.deserves_another_try(50));
        let nothing_came = Step::of(5, &serde_json::json!({ "behind_ms": 0.0, "delay": null }));
        assert!(!nothing_came.holds(1000) && !nothing_came.deserves_another_try(1000));
    }
}
