//! The master queue: small numbers in the order of arrival, for any number of threads at both ends.
//!
//! **The invariant that makes it work:** a place is written once in each turn of its block, and it
//! carries the turn. The front moves over it, by compare-and-swap, only after that.
//!
//! # Protocol
//! - *Push*: claim a place, then store turn and number in one word.
//! - *Pop*: read the front and the place there; if it carries the turn, swap the front for the next
//!   position, and the number is taken. If the swap fails somebody else was faster: again.
//!
//! The number is read before it is taken. A thread that is late may thus read what a later turn left
//! there, but then the front has moved on and the swap fails.
//!
//! # What it does not do
//! It does not wait: a place that is claimed and not written yet ends the queue for the moment,
//! whatever is behind it. A number is seen by pops that begin after all pushes have returned whose
//! places are before it.

use crate::sync::{AtomicU64, Ordering};

use super::segments::{PAYLOAD_BITS, Segments, payload_of, turn_of, word};

/// Loom needs to see the end of a block.
const BLOCK: usize = if cfg!(loom) { 2 } else { 128 };

/// Numbers below [`MasterQueue::LIMIT`].
pub(super) struct MasterQueue {
    numbers: Segments<AtomicU64, BLOCK>,
}

impl MasterQueue {
    /// Numbers end here.
    pub(super) const LIMIT: usize = 1 << PAYLOAD_BITS;

    pub(super) fn new() -> Self {
        MasterQueue { numbers: Segments::new() }
    }

    pub(super) fn push(&self, number: usize) {
        let (place, turn) = self.numbers.claim();
        // Release: what the caller did before. Partner: the load of the place in `pop`.
        place.store(word(turn, number as u64), Ordering::Release);
    }

    pub(super) fn pop(&self) -> Option<usize> {
        loop {
            // Acquire: with the Release of `leave`, so that a look at the block behind finds it.
            let at = self.numbers.front(Ordering::Acquire);
            if Segments::<AtomicU64, BLOCK>::is_end(at) {
                if self.numbers.leave(at) || self.has_moved(at.0) {
                    continue;
                }
                return None;
            }
            // Acquire: with the Release of `push`; also keeps the next look at the front after it.
            let number = self.numbers.place(at).load(Ordering::Acquire);
            if turn_of(number) != at.turn() {
                if self.has_moved(at.0) {
                    continue;
                }
                return None;
            }
            // Release: the load above is done before the block can be left. Partner: `leave`, which
            // swaps the same cell later.
            let order = (Ordering::Release, Ordering::Relaxed);
            let front = self.numbers.front_cell();
            if front.compare_exchange_weak(at.0, at.after().0, order.0, order.1).is_ok() {
                return Some(payload_of(number) as usize);
            }
        }
    }

    fn has_moved(&self, from: u64) -> bool {
        // Acquire: as in `pop`.
        self.numbers.front(Ordering::Acquire).0 != from
    }
}
