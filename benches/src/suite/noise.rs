//! How long the machine itself keeps a thread waiting: what no program on it can be faster than.
//!
//! A thread on each core reads the clock all the time. Ticks are 100 µs apart; how late a tick is
//! first seen is what a result that is due at that moment would have waited for. A window needs all
//! cores, so of each tick the slowest core counts. Besides, pauses between two readings are counted
//! as they are.
//!
//! That is measured before and after a point, since it would take the cores away from it. While the
//! point is measured, threads that sleep from tick to tick, a millisecond apart, are kept to a core
//! each, and go before all others: what they wait for is the machine and not the engine, of which
//! they take a hundredth of a core. Where the system gives no such priority they are left out,
//! because they would then wait for the engine.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

use super::percentiles::{Percentiles, histogram};
use super::point::{Point, workers};
use super::process::Mark;

/// The variant of noise that is measured while something else is.
pub const DURING: &str = "during";

const TICK_NS: u64 = 100_000;
const TICK_DURING_NS: u64 = 1_000_000;
/// Pauses under this are the loop itself.
const GAP_NS_MIN: u64 = 10_000;

/// What one core saw.
struct Seen {
    /// How late each tick was.
    late_ns: Vec<u32>,
    /// How long the pauses were.
    gaps_ns: Vec<u64>,
}

/// Measures for the time that the point says.
pub fn run(point: &Point) -> Value {
    thread::sleep(Duration::from_secs(point.warm_up_s));
    let is_during = point.variant == DURING;
    let tick_ns = if is_during { TICK_DURING_NS } else { TICK_NS };
    let ticks = point.measured_s * 1_000_000_000 / tick_ns;
    let mark = Mark::now();
    let together = Barrier::new(workers());
    let seen: Vec<Seen> = thread::scope(|scope| {
        let watch = |core: usize| {
            if is_during {
                keep_to(core);
            }
            together.wait();
            if is_during { doze(ticks) } else { spin(ticks) }
        };
        let threads: Vec<_> = (0..workers()).map(|core| scope.spawn(move || watch(core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it only counts")).collect()
    });
    let (mut ticks_late, mut gaps) = (histogram(), histogram());
    slowest(&seen).for_each(|late_ns| ticks_late.saturating_record(late_ns.max(1)));
    seen.iter().flat_map(|seen| &seen.gaps_ns).for_each(|&gap| gaps.saturating_record(gap));
    json!({
        "ticks": Percentiles::of(&ticks_late),
        "gaps": Percentiles::of(&gaps),
        "stolen_seconds": mark.spent().stolen_s,
    })
}

/// Keeps this thread to one of the cores that it may use: the one of this number among them.
fn keep_to(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let core = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).nth(number);
    let mut only = CpuSet::new();
    only.set(core.unwrap_or_default());
    // A system that refuses leaves it where it is.
    let _ = sched_setaffinity(None, &only);
}

/// Of each tick the slowest core.
fn slowest(seen: &[Seen]) -> impl Iterator<Item = u64> {
    let ticks = seen.iter().map(|seen| seen.late_ns.len()).min().unwrap_or(0);
    (0..ticks)
        .map(|tick| seen.iter().map(|seen| u64::from(seen.late_ns[tick])).max().unwrap_or_default())
}

fn spin(ticks: u64) -> Seen {
    let mut seen = Seen { late_ns: Vec::with_capacity(ticks as usize), gaps_ns: Vec::new() };
    let began = Instant::now();
    let mut before_ns = 0;
    while (seen.late_ns.len() as u64) < ticks {
        let now_ns = nanoseconds(began.elapsed());
        if now_ns - before_ns >= GAP_NS_MIN {
            seen.gaps_ns.push(now_ns - before_ns);
        }
        seen.ticks_until(now_ns, TICK_NS, ticks);
        before_ns = now_ns;
    }
    seen
}

/// Sleeps from tick to tick.
fn doze(ticks: u64) -> Seen {
    let mut seen = Seen { late_ns: Vec::with_capacity(ticks as usize), gaps_ns: Vec::new() };
    let began = Instant::now();
    while (seen.late_ns.len() as u64) < ticks {
        let next = Duration::from_nanos(seen.late_ns.len() as u64 * TICK_DURING_NS);
        thread::sleep(next.saturating_sub(began.elapsed()));
        seen.ticks_until(nanoseconds(began.elapsed()), TICK_DURING_NS, ticks);
    }
    seen
}

impl Seen {
    /// It is now so late: the ticks that are past have been seen now.
    fn ticks_until(&mut self, now_ns: u64, tick_ns: u64, ticks: u64) {
        let seen = self.late_ns.len() as u64;
        let due = (seen..ticks).map(|tick| tick * tick_ns).take_while(|&due_ns| due_ns <= now_ns);
        self.late_ns.extend(due.map(|due_ns| u32::try_from(now_ns - due_ns).unwrap_or(u32::MAX)));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// What the machine alone would have cost at p99.99, in milliseconds: the largest of what was seen
/// before, during and after a point.
pub fn p99_99_ms(row: &Value) -> Option<f64> {
    let of = |when: &str| row[when]["ticks"]["p99_99_ms"].as_f64();
    ["noise_before", "noise_during", "noise_after"].into_iter().filter_map(of).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_core_counts() {
        let core = |late_ns: &[u32]| Seen { late_ns: late_ns.to_vec(), gaps_ns: Vec::new() };
        let late: Vec<u64> = slowest(&[core(&[1, 9, 3]), core(&[5, 2])]).collect();
        assert_eq!(late, [5, 9]);
    }

    #[test]
    fn the_largest_of_before_during_and_after_is_the_machine() {
        let mut row = json!({
            "noise_before": {"ticks": {"p99_99_ms": 0.5}},
            "noise_after": {"ticks": {"p99_99_ms": 2.5}},
        });
        assert_eq!(p99_99_ms(&row), Some(2.5));
        row["noise_during"] = json!({"ticks": {"p99_99_ms": 4.5}});
        assert_eq!(p99_99_ms(&row), Some(4.5));
        assert_eq!(p99_99_ms(&json!({})), None);
    }

    #[test]
    fn every_tick_is_seen() {
        assert_eq!(spin(50).late_ns.len(), 50);
        assert_eq!(doze(50).late_ns.len(), 50);
    }

    #[test]
    fn ticks_that_passed_unseen_are_late_each_by_its_own_time() {
        let mut seen = Seen { late_ns: Vec::new(), gaps_ns: Vec::new() };
        seen.ticks_until(5, 10, 6);
        seen.ticks_until(35, 10, 6);
        seen.ticks_until(90, 10, 6);
        assert_eq!(seen.late_ns, [5, 25, 15, 5, 50, 40]);
    }
}
