//! Timers of one partition, in the order in which they fire.
//!
//! **Invariant:** timers stand by (time, virtual partition, key), so those that a watermark reaches
//! fire in an order that depends on keys and times alone, and the ranges of several partitions put
//! one behind the other are in that order too.

use std::collections::BTreeSet;

use thalweg_core::Watermark;

use super::key::{RowKey, virtual_partition};

/// The time of a timer that fires at the end of the input.
pub(super) const AT_END: i64 = i64::MAX;

/// The timers that are set.
pub(super) struct Timers<K> {
    set: BTreeSet<(i64, u8, K)>,
    /// Timers fire at multiples of this.
    grid_ms: Option<i64>,
}

impl<K: RowKey> Timers<K> {
    pub(super) fn new(grid_ms: Option<i64>) -> Self {
        Timers { set: BTreeSet::new(), grid_ms }
    }

    /// Sets a timer for a key at the first point of the grid at or after a time; the same one twice
    /// is one. Without a grid timers fire at the end.
    pub(super) fn add(&mut self, at_ms: i64, key: &K) {
        let time_ms = match self.grid_ms {
            Some(grid_ms) => round_up(at_ms, grid_ms),
            None => AT_END,
        };
        self.set.insert((time_ms, virtual_partition(key), key.clone()));
    }

    /// Takes the first timer that this watermark reaches: it fires from its time minus 1 ms on.
    pub(super) fn pop(&mut self, watermark: Watermark) -> Option<(i64, K)> {
        let &(time_ms, ..) = self.set.first()?;
        if watermark != Watermark::END && time_ms > watermark.0.saturating_add(1) {
            return None;
        }
        self.set.pop_first().map(|(time_ms, _, key)| (time_ms, key))
    }

    pub(super) fn len(&self) -> usize {
        self.set.len()
    }
}

fn round_up(at_ms: i64, grid_ms: i64) -> i64 {
    let below = at_ms.div_euclid(grid_ms).saturating_mul(grid_ms);
    if below == at_ms { at_ms } else { below.saturating_add(grid_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_on_the_grid_by_time_then_virtual_partition_then_key() {
        let mut timers = Timers::new(Some(1000));
        for key in 0..50u64 {
            timers.add(if key % 2 == 0 { 1 } else { 1001 }, &key);
        }
        timers.add(900, &0);
        assert!(timers.pop(Watermark(998)).is_none());
        let mut fired = Vec::new();
        while let Some((time_ms, key)) = timers.pop(Watermark(1999)) {
            fired.push((time_ms, virtual_partition(&key), key));
        }
        assert_eq!(fired.len(), 50, "equal timers are one");
        assert!(fired.is_sorted());
        assert_eq!((fired[0].0, fired[49].0), (1000, 2000));
    }

    #[test]
    fn without_a_grid_they_wait_for_the_end() {
        let mut timers = Timers::new(None);
        timers.add(5, &"key".to_owned());
        assert!(timers.pop(Watermark(i64::MAX - 2)).is_none());
        assert_eq!(timers.pop(Watermark::END), Some((AT_END, "key".to_owned())));
    }

    #[test]
    fn times_round_up_below_zero_too() {
        assert_eq!((round_up(-1, 10), round_up(-10, 10), round_up(1, 10)), (0, -10, 10));
        assert_eq!(round_up(i64::MAX - 1, 10), i64::MAX);
    }
}
