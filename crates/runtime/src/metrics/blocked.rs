//! For how long a stage could not do work that was there, and what kept it from that.
//!
//! # Protocol
//! An interval begins when a worker finds work that it may not do, and ends when the work is done
//! or taken. Both are rare: a worker that is refused looks for something else, and an interval that
//! runs already is only read. Where nothing is refused, a task costs one relaxed load per reason.
//!
//! Relaxed throughout: each number stands for itself. Two workers may see the end of an interval in
//! another sequence than it was; then a few microseconds are counted for the wrong side.

use thalweg_ordering::sync::{AtomicU64, Mutex, Ordering};

use std::collections::BTreeMap;

/// What keeps a stage from work that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockedBy {
    /// What it made before is not taken downstream: as much is in flight as may be.
    Output,
    /// Memory is short, and another input is further behind in event time: its rows come first.
    Memory,
    /// Another input has to come first: a merge by time, a side that is read first, an input of the
    /// same alignment group.
    Order,
    /// The outside has not answered: a lookup is under way.
    Lookup,
    /// A snapshot is being taken, or sources are paused.
    Cut,
}

impl BlockedBy {
    /// All of them.
    pub const ALL: [BlockedBy; 5] =
        [BlockedBy::Output, BlockedBy::Memory, BlockedBy::Order, BlockedBy::Lookup, BlockedBy::Cut];
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            BlockedBy::Output => "output",
            BlockedBy::Memory => "memory",
            BlockedBy::Order => "order",
            BlockedBy::Lookup => "lookup",
            BlockedBy::Cut => "cut",
        }
    }
}

/// How long a stage was blocked so far, in nanoseconds, in the sequence of [`BlockedBy::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedTimes(pub [u64; 5]);

impl BlockedTimes {
    /// By one reason.
    pub fn by(&self, by: BlockedBy) -> u64 {
        self.0[by as usize]
    }
}

/// The intervals of one stage.
#[derive(Default)]
pub(crate) struct BlockedClock([Interval; 5]);

#[derive(Default)]
struct Interval {
    /// Zero while it does not run.
    since_ns: AtomicU64,
    total_ns: AtomicU64,
}

impl BlockedClock {
    /// The stage is blocked from now on, unless it is so already.
    pub(crate) fn begin(&self, by: BlockedBy, now_ns: impl FnOnce() -> u64) {
        let since_ns = &self.0[by as usize].since_ns;
        if since_ns.load(Ordering::Relaxed) == 0 {
            // Zero stands for no interval.
            let now_ns = now_ns().max(1);
            let _ = since_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The stage is not blocked by this any more.
    pub(crate) fn end(&self, by: BlockedBy, now_ns: impl FnOnce() -> u64) {
        let Interval { since_ns, total_ns } = &self.0[by as usize];
        if since_ns.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Whoever takes the beginning counts the interval, once.
        let begun_ns = since_ns.swap(0, Ordering::Relaxed);
        if begun_ns > 0 {
            total_ns.fetch_add(now_ns().saturating_sub(begun_ns), Ordering::Relaxed);
        }
    }

    /// How long it was blocked until now.
    pub(crate) fn times(&self, now_ns: u64) -> BlockedTimes {
        BlockedTimes(std::array::from_fn(|by| {
            let Interval { since_ns, total_ns } = &self.0[by];
            let running_ns = match since_ns.load(Ordering::Relaxed) {
                0 => 0,
                since_ns => now_ns.saturating_sub(since_ns),
            };
            total_ns.load(Ordering::Relaxed) + running_ns
        }))
    }
}

/// Bundles for which the outside has not answered, with the moments at which they were asked for.
/// Such a bundle costs a call to another machine; this lock is nothing compared with it.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<(u64, BTreeMap<u64, u64>)>);

impl Unanswered {
    /// One more is asked for. Its number.
    pub(crate) fn begin(&self, now_ns: u64) -> u64 {
        let mut asked = self.0.lock().expect("no panic under this lock");
        let number = asked.0;
        asked.0 += 1;
        asked.1.insert(number, now_ns);
        number
    }

    /// The outside has answered. True if no other answer is missing.
    pub(crate) fn end(&self, number: u64) -> bool {
        let mut asked = self.0.lock().expect("no panic under this lock");
        asked.1.remove(&number);
        asked.1.is_empty()
    }

    /// How many answers are missing, and since when the oldest is.
    pub(crate) fn oldest(&self) -> (usize, Option<u64>) {
        let asked = self.0.lock().expect("no panic under this lock");
        (asked.1.len(), asked.1.values().next().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_from_its_first_refusal_until_the_work_is_done() {
        let clock = BlockedClock::default();
        clock.end(BlockedBy::Cut, || panic!("the clock is not read where nothing is blocked"));
        clock.begin(BlockedBy::Output, || 100);
        clock.begin(BlockedBy::Output, || panic!("nor while it is blocked already"));
        assert_eq!(clock.times(150).by(BlockedBy::Output), 50, "one that runs counts");
        clock.end(BlockedBy::Output, || 300);
        clock.begin(BlockedBy::Order, || 310);
        let times = clock.times(400);
        assert_eq!((times.by(BlockedBy::Output), times.by(BlockedBy::Order)), (200, 90));
        assert_eq!(times.by(BlockedBy::Memory), 0);
    }

    #[test]
    fn the_oldest_answer_that_is_missing_is_known() {
        let unanswered = Unanswered::default();
        assert_eq!(unanswered.oldest(), (0, None));
        let (first, second) = (unanswered.begin(10), unanswered.begin(20));
        assert!(!unanswered.end(first));
        assert_eq!(unanswered.oldest(), (1, Some(20)));
        assert!(unanswered.end(second));
    }
}
