//! The queue of one partition: any number of threads add, its owner takes.
//!
//! **The invariant that makes it work:** a place carries its turn from the moment its item is
//! written, and the item is the owner's from then until the front has passed the place.
//!
//! # Protocol
//! - *Push*: claim a place, write the item, store the turn.
//! - *Pop*, by the owner: if the place at the front carries its turn, move the item out and the
//!   front on. No read-modify-write: there is one owner, and ownership is handed over by the caller
//!   with Release and Acquire.
//!
//! # What it does not do
//! It does not wait: an item whose place is claimed and not written yet keeps the lane empty for
//! the owner, whatever is behind it.

use std::mem::MaybeUninit;

use crate::sync::{AtomicU64, Ordering, UnsafeCell};

use super::segments::{NEVER, Segments};

/// Loom needs to see the end of a block.
const BLOCK: usize = if cfg!(loom) { 2 } else { 32 };

struct Place<T> {
    /// The turn in which `item` was written last.
    turn: AtomicU64,
    item: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Place { turn: AtomicU64::new(NEVER), item: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

// SAFETY: an item is moved in by one thread and out by another, never shared; which thread may
// touch it is decided by the claim of its place and by `turn`, as said in the module header.
unsafe impl<T: Send> Sync for Place<T> {}

/// Items of one partition.
pub(super) struct Lane<T> {
    items: Segments<Place<T>, BLOCK>,
}

impl<T> Lane<T> {
    pub(super) fn new() -> Self {
        Lane { items: Segments::new() }
    }

    #[inline]
    pub(super) fn push(&self, item: T) {
        let (place, turn) = self.items.claim();
        // SAFETY: the place is claimed, so no other thread writes to it, and the owner reads it
        // only after the turn is stored. An earlier item there was moved out before the block was
        // kept.
        place.item.with_mut(|at| unsafe { (*at).write(item) });
        // Release: the item. Partner: the load in `pop`.
        place.turn.store(turn, Ordering::Release);
    }

    /// Takes the item at the front, if it is written.
    ///
    /// # Safety
    /// One thread at a time calls this; one call happens before the next.
    #[inline]
    pub(super) unsafe fn pop(&self) -> Option<T> {
        // Relaxed: only owners move the front, and they come one after the other.
        let mut at = self.items.front(Ordering::Relaxed);
        if Segments::<Place<T>, BLOCK>::is_end(at) {
            if !self.items.leave(at) {
                return None;
            }
            at = self.items.front(Ordering::Relaxed);
        }
        let place = self.items.place(at);
        // Acquire: with the Release of `push`.
        if place.turn.load(Ordering::Acquire) != at.turn() {
            return None;
        }
        // SAFETY: the item of this turn is written; the front passes it below, so it is moved out
        // once; the next to write comes after the block was left, kept and linked again.
        let item = place.item.with_mut(|item| unsafe { (*item).assume_init_read() });
        // Relaxed: as above.
        self.items.front_cell().store(at.after(1).0, Ordering::Relaxed);
        Some(item)
    }
}

impl<T> Lane<T> {
    #[cfg(test)]
    pub(super) fn blocks(&self) -> u64 {
        self.items.blocks()
    }

    /// True if the item at the front is written. Anybody may ask; while there is an owner the
    /// answer may be old.
    pub(super) fn is_ready(&self) -> bool {
        // Relaxed: the caller is behind the last owner, or gets an old answer.
        let front = self.items.front(Ordering::Relaxed);
        let at = match Segments::<Place<T>, BLOCK>::is_end(front) {
            true => self.items.behind(front),
            false => Some(front),
        };
        // Acquire: with the Release of `push`.
        at.is_some_and(|at| self.items.place(at).turn.load(Ordering::Acquire) == at.turn())
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the lane.
        while unsafe { self.pop() }.is_some() {}
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two threads, five items over three turns of two blocks, two preemptions;
    //! seconds.
    use super::*;
    use crate::sync::{Arc, thread};

    /// Loom reports a place that is written before its earlier item is out.
    #[test]
    fn a_block_is_used_again_after_its_items_are_out() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let lane = Arc::new(Lane::new());
            (0..2).for_each(|item| lane.push(item));
            let other = {
                let lane = Arc::clone(&lane);
                thread::spawn(move || (2..5).for_each(|item| lane.push(item)))
            };
            let mut seen = Vec::new();
            // SAFETY: only this thread pops.
            (0..4).for_each(|_| seen.extend(unsafe { lane.pop() }));
            other.join().expect("no panic");
            // SAFETY: as above.
            seen.extend(std::iter::from_fn(|| unsafe { lane.pop() }));
            assert_eq!(seen, [0, 1, 2, 3, 4]);
        });
    }
}
