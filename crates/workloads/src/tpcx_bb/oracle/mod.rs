//! The serial oracles: one thread, one row at a time, plain collections.
//!
//! Sequence rules. Behind a row with time t seconds the watermark is t * 1000 ms; at the end of the
//! input it is infinite. A timer asked for at time a fires at P, the smallest multiple of the grid
//! that is at least a, behind the first row whose watermark is at least P - 1. Timers due behind
//! one row fire in the order (P, virtual partition of the key, key). Every operator sees the whole
//! output of the operator before it for a row, what that operator's timers emit behind the row
//! included, before its own timers fire behind that row.
//!
//! Invariants: the result is the output of the last operator, in sequence. The oracles share
//! nothing with the engine and make no attempt to be fast.

mod q1;
mod q15;
mod q2;
mod q3;
mod q4;
mod sessions;

use std::collections::BTreeSet;

pub use q1::{HOUR_GRID_MS, Query1, query_1};
pub use q2::{Query2, query_2};
pub use q3::{Query3, query_3};
pub use q4::{Query4, query_4};
pub use q15::{DAY_GRID_MS, Query15, query_15};
pub use sessions::SESSION_GRID_MS;

/// The watermark at the end of the input.
const END_MS: i64 = i64::MAX;

/// One operator with state.
trait Operator {
    type Input;
    type Output;

    /// Takes one row.
    fn row(&mut self, input: Self::Input, output: &mut Vec<Self::Output>);

    /// Fires the timers that are due at this watermark.
    fn timers(&mut self, watermark_ms: i64, output: &mut Vec<Self::Output>);
}

/// What the operator emits for these rows and then for the watermark behind them.
fn pass<O: Operator>(operator: &mut O, input: Vec<O::Input>, watermark_ms: i64) -> Vec<O::Output> {
    let mut output = Vec::new();
    for row in input {
        operator.row(row, &mut output);
    }
    operator.timers(watermark_ms, &mut output);
    output
}

/// The timers of one operator.
struct Timers<'a, K> {
    grid_ms: i64,
    partition: &'a dyn Fn(&K) -> usize,
    waiting: BTreeSet<(i64, usize, K)>,
}

impl<'a, K: Ord + Clone> Timers<'a, K> {
    fn new(grid_ms: i64, partition: &'a dyn Fn(&K) -> usize) -> Self {
        Timers { grid_ms, partition, waiting: BTreeSet::new() }
    }

    fn ask(&mut self, at_ms: i64, key: &K) {
        let point_ms = (at_ms + self.grid_ms - 1).div_euclid(self.grid_ms) * self.grid_ms;
        self.waiting.insert((point_ms, (self.partition)(key), key.clone()));
    }

    fn ask_at_end(&mut self, key: &K) {
        self.waiting.insert((END_MS, (self.partition)(key), key.clone()));
    }

    /// Takes the timers that are due, as (P, key), in the order in which they fire.
    fn due(&mut self, watermark_ms: i64) -> Vec<(i64, K)> {
        let mut due = Vec::new();
        while let Some((point_ms, partition, key)) = self.waiting.pop_first() {
            if point_ms - 1 > watermark_ms {
                self.waiting.insert((point_ms, partition, key));
                break;
            }
            due.push((point_ms, key));
        }
        due
    }
}

#[cfg(test)]
mod testing {
    //! Stand-ins for the engine's virtual partitions.

    pub(super) fn of_number(key: &i64) -> usize {
        ((*key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize
    }

    pub(super) fn of_pair(key: &(i64, i64)) -> usize {
        of_number(&(key.0.wrapping_mul(31) + key.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_on_the_grid_and_one_millisecond_early() {
        let mut timers = Timers::new(60_000, &testing::of_number);
        timers.ask(60_001, &1);
        timers.ask(60_000, &2);
        timers.ask_at_end(&3);
        assert_eq!(timers.due(59_998), vec![]);
        assert_eq!(timers.due(59_999), vec![(60_000, 2)]);
        assert_eq!(timers.due(119_998), vec![]);
        assert_eq!(timers.due(END_MS), vec![(120_000, 1), (END_MS, 3)]);
    }

    #[test]
    fn timers_of_one_point_fire_by_partition_and_key() {
        let partition = |key: &i64| (*key % 2) as usize;
        let mut timers = Timers::new(1_000, &partition);
        for key in [5, 2, 3, 4] {
            timers.ask(10, &key);
        }
        timers.ask(1_001, &0);
        let keys: Vec<i64> = timers.due(END_MS).into_iter().map(|timer| timer.1).collect();
        assert_eq!(keys, vec![2, 4, 3, 5, 0]);
    }
}
