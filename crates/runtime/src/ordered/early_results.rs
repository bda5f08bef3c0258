//! Results of a watermark that leave before all of it is made.
//!
//! A hundred thousand groups of a window are written partition by partition, batch by batch;
//! whoever waits for the first of them should not wait for the last. Results of one window are in
//! the order of partitions (each has a range of virtual ones). So what the first partition that is
//! not done has made may leave at once, and with its last results what others behind it have that
//! are done.
//!
//! # Protocol
//! A partition keeps what it has made in the gather, then comes here (`leave_early` in
//! [`partitions`](super::partitions)). Whoever has the lock takes what may leave, and sends it on
//! before it lets the lock go. What is left is part of the outcome.
//!
//! **Invariants:**
//! - Parts leave in the order of partitions and in front of the outcome: a partition comes here
//!   before its share of the watermark counts as done.
//! - Parts leave only if all that is in front of the element has left ([`Exit::is_turn`]): until
//!   the element's own outcome is sent nobody else delivers at that exit.
//!
//! # Where nothing leaves early
//! - Where edges meet: each serial comes once by each edge.
//! - Where the watermark may close several windows: a later partition may have the first one.
//! - In an operator of one phase: other partitions may still be at rows in front of the watermark,
//!   and only windows of exact aggregates, which have two, promise that all results belong to one
//!   window and that those of a partition are made in their order.
//!
//! [`Exit::is_turn`]: super::exit::Exit::is_turn

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{Operator, Watermark};
use thalweg_ordering::sync::Mutex;

/// How far the results of a watermark may have left.
pub(crate) struct EarlyResults {
    /// The first partition that is not done.
    first: usize,
    done: Vec<bool>,
}

impl EarlyResults {
    /// For the partitions of an operator at this watermark, the next one behind `before`, if their
    /// results may leave one by one.
    pub(super) fn wanted(
        operator: &dyn Operator,
        partitions: usize,
        (before, watermark): (Watermark, Watermark),
    ) -> Option<Mutex<EarlyResults>> {
        if operator.watermark_phases() < 2 {
            return None;
        }
        let WatermarkInterest::Grids(grids) = operator.watermark_interest() else { return None };
        // A window with end e closes at e - 1.
        let (low, high) = (before.0.saturating_add(1), watermark.0.saturating_add(1));
        let ends = grids.iter().map(|grid| grid.index(high).saturating_sub(grid.index(low)));
        let is_one_window = ends.fold(0, i64::saturating_add) <= 1;
        is_one_window.then(|| Mutex::new(EarlyResults { first: 0, done: vec![false; partitions] }))
    }

    /// A partition has made results, perhaps its last. The partition up to which results may leave,
    /// if that concerns this one.
    pub(super) fn note(&mut self, partition: usize, is_done: bool) -> Option<usize> {
        self.done[partition] |= is_done;
        let concerns = partition == self.first;
        self.first += self.done[self.first..].iter().take_while(|&&is_done| is_done).count();
        concerns.then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_not_done_may_leave_and_takes_those_behind_it_along() {
        let mut early = EarlyResults { first: 0, done: vec![false; 3] };
        assert_eq!(early.note(1, true), None, "the first one has made nothing yet");
        assert_eq!(early.note(0, false), Some(0));
        assert_eq!(early.note(0, true), Some(2), "its last, the second, what the third has");
        assert_eq!(early.note(2, true), Some(3));
    }
}
