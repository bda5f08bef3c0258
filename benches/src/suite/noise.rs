//! How long the machine itself keeps a thread waiting: what no program on it can be faster than.
//!
//! A thread on each core reads the clock all the time. Ticks are 100 µs apart; how late a tick is first
//! seen is what a result that is due at that moment would have waited for. A window needs all cores, so of
//! each tick the slowest core counts. Besides, pauses between two readings are counted as they are.
//!
//! It is measured before and after a point, not during it, when it would take the cores away.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::percentiles::{Percentiles, histogram};
use super::point::{Point, workers};
use super::process::Mark;

const TICK_NS: u64 = 100_000;
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
    let ticks = point.measured_s * 1_000_000_000 / TICK_NS;
    let mark = Mark::now();
    let together = Barrier::new(workers());
    let seen: Vec<Seen> = thread::scope(|scope| {
        let spin = || {
            together.wait();
            spin(ticks)
        };
        let threads: Vec<_> = (0..workers()).map(|_| scope.spawn(spin)).collect();
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

/// Of each tick the slowest core.
fn slowest(seen: &[Seen]) -> impl Iterator<Item = u64> {
    let ticks = seen.iter().map(|seen| seen.late_ns.len()).min().unwrap_or(0);
    (0..ticks)
        .map(|tick| seen.iter().map(|seen| u64::from(seen.late_ns[tick])).max().unwrap_or_default())
}

fn spin(ticks: u64) -> Seen {
    let mut seen = Seen { late_ns: Vec::with_capacity(ticks as usize), gaps_ns: Vec::new() };
    let began = Instant::now();
    let (mut before_ns, mut tick) = (0, 0);
    while tick < ticks {
        let now_ns = nanoseconds(began.elapsed());
        if now_ns - before_ns >= GAP_NS_MIN {
            seen.gaps_ns.push(now_ns - before_ns);
        }
        while tick < ticks && tick * TICK_NS <= now_ns {
            seen.late_ns.push(u32::try_from(now_ns - tick * TICK_NS).unwrap_or(u32::MAX));
            tick += 1;
        }
        before_ns = now_ns;
    }
    seen
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// What the machine alone would have cost at p99.99, in milliseconds: the larger of what was seen before
/// and after a point.
pub fn p99_99_ms(row: &Value) -> Option<f64> {
    let of = |when: &str| row[when]["ticks"]["p99_99_ms"].as_f64();
    of("noise_before").into_iter().chain(of("noise_after")).reduce(f64::max)
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
    fn the_larger_of_before_and_after_is_the_machine() {
        let row = json!({
            "noise_before": {"ticks": {"p99_99_ms": 0.5}},
            "noise_after": {"ticks": {"p99_99_ms": 2.5}},
        });
        assert_eq!(p99_99_ms(&row), Some(2.5));
        assert_eq!(p99_99_ms(&json!({})), None);
    }

    #[test]
    fn every_tick_is_seen() {
        let seen = spin(50);
        assert_eq!(seen.late_ns.len(), 50);
    }
}
