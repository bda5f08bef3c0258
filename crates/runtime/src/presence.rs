//! Whether any worker is at work: how a cut knows that nothing is under way.
//!
//! **The invariant that makes it work:** a worker enters before it looks for a task and leaves only
//! when it has found none, so whatever is not in a queue is in the hands of a worker that is
//! counted.
//!
//! # Why nothing is missed
//! Whoever waits for quiet reads how often workers have entered, sees that none is there, looks
//! into the queues, and reads the number again. If it is the same, no worker has entered in
//! between; one that had entered before has left before the first look, and what it left behind
//! stood in a queue when those were looked at. All of it is SeqCst, so these steps have one order
//! for all threads.
//!
//! It costs nothing while there is work: a worker enters once and stays.

use thalweg_ordering::sync::{AtomicU64, AtomicUsize, Ordering};

/// The workers that are looking for work or doing some.
#[derive(Default)]
pub(crate) struct Presence {
    present: AtomicUsize,
    entries: AtomicU64,
}

impl Presence {
    /// Before a worker looks for a task.
    pub(crate) fn enter(&self) {
        self.present.fetch_add(1, Ordering::SeqCst);
        self.entries.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker has found nothing to do.
    pub(crate) fn leave(&self) {
        self.present.fetch_sub(1, Ordering::SeqCst);
    }

    /// True if no worker was there while `is_empty` looked into the queues, and it found them
    /// empty.
    pub(crate) fn is_quiet(&self, is_empty: impl FnOnce() -> bool) -> bool {
        let entries = self.entries.load(Ordering::SeqCst);
        self.present.load(Ordering::SeqCst) == 0
            && is_empty()
            && self.present.load(Ordering::SeqCst) == 0
            && self.entries.load(Ordering::SeqCst) == entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quiet_only_while_nobody_comes() {
        let presence = Presence::default();
        assert!(presence.is_quiet(|| true));
        assert!(!presence.is_quiet(|| false), "something is in a queue");
        presence.enter();
        assert!(!presence.is_quiet(|| true));
        presence.leave();
        let comes_and_goes = || {
            presence.enter();
            presence.leave();
            true
        };
        assert!(!presence.is_quiet(comes_and_goes), "it may have taken something out");
        assert!(presence.is_quiet(|| true));
    }
}
