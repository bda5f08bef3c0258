//! A count of pieces that can be closed: whoever comes last carries on.
//!
//! **The invariant that makes it work:** the finisher of a piece lowers the count and *then* looks
//! whether the set is closed; the closer closes it and *then* looks at the count. Between the two
//! steps of each stands a SeqCst fence. One of the two fences comes first, and what stands before
//! it is seen by what stands after the other: at least one of them finds the set complete, and none
//! is left behind.
//!
//! # Protocol
//! - [`Closing::add`] counts pieces in, before they can be seen by whoever finishes them, and never
//!   after [`Closing::close`].
//! - [`Closing::finish_one`] counts one out. True: the set is complete, carry on.
//! - [`Closing::close`] says that nothing more will be added. The closer asks
//!   [`Closing::is_complete`] afterwards. True: carry on.
//!
//! Both may find it complete; what they carry on to do must be claimed once (the containers of the
//! runtime do so by a compare-and-exchange of their state).

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence};

/// Pieces that are counted in, finished, and at some time complete.
#[derive(Debug, Default)]
pub struct Closing {
    /// Counted in and not finished. Raised by those who add, lowered by those who finish.
    pending: AtomicUsize,
    /// Set once, by the closer.
    closed: AtomicBool,
}

impl Closing {
    /// Open and empty.
    pub fn new() -> Self {
        Closing { pending: AtomicUsize::new(0), closed: AtomicBool::new(false) }
    }

    /// Counts pieces in.
    pub fn add(&self, pieces: usize) {
        // Relaxed: whatever makes the pieces visible to their finishers orders it.
        self.pending.fetch_add(pieces, Ordering::Relaxed);
    }

    /// Counts a piece out. True if it was the last one of a closed set.
    #[must_use = "the last one must carry on"]
    pub fn finish_one(&self) -> bool {
        // AcqRel: whoever comes last sees what the others did.
        let before = self.pending.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "more pieces finished than added");
        if before > 1 {
            return false;
        }
        // Pairs with the fence in `close`, see the header.
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::Acquire)
    }

    /// Says that nothing more will be added. Ask [`Closing::is_complete`] afterwards.
    pub fn close(&self) {
        // Release: whoever finds it closed sees what the closer did before.
        self.closed.store(true, Ordering::Release);
        // Pairs with the fence in `finish_one`, see the header.
        fence(Ordering::SeqCst);
    }

    /// True if the set is closed and everything is finished.
    pub fn is_complete(&self) -> bool {
        self.closed.load(Ordering::Acquire) && self.pending() == 0
    }

    /// Pieces not finished.
    pub fn pending(&self) -> usize {
        // Acquire: at 0 the caller sees what the finishers did.
        self.pending.load(Ordering::Acquire)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: three threads; under ten seconds in a release build.
    use super::*;
    use crate::sync::{Arc, thread};

    /// Without the fences this fails: finisher and closer may both read the old value.
    #[test]
    fn another_thread_continues() {
        loom::model(|| {
            let closing = Arc::new(Closing::new());
            let carried = Arc::new(AtomicUsize::new(0));
            closing.add(2);
            let finishers: Vec<_> = (0..2)
                .map(|_| {
                    let (closing, carried) = (Arc::clone(&closing), Arc::clone(&carried));
                    thread::spawn(move || {
                        if closing.finish_one() {
                            carried.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            closing.close();
            if closing.is_complete() {
                carried.fetch_add(1, Ordering::Relaxed);
            }
            for finisher in finishers {
                finisher.join().expect("finisher");
            }
            let carried = carried.load(Ordering::Relaxed);
            assert!((1..=2).contains(&carried), "{carried} carried on");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_of_a_closed_set_carries_on() {
        let closing = Closing::new();
        closing.add(2);
        assert!(!closing.finish_one());
        assert!(!closing.finish_one(), "still open");
        closing.add(1);
        closing.close();
        assert!(!closing.is_complete());
        assert!(closing.finish_one());
        assert!(closing.is_complete());
    }

    #[test]
    #[should_panic(expected = "more pieces finished than added")]
    fn nothing_is_finished_twice() {
        let _ = Closing::new().finish_one();
    }
}
