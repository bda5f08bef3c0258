//! The master queue: small numbers in the order of arrival, for any number of threads at both ends.
//!
//! **The invariant that makes it work:** a place is written once in each turn of its block, and it
//! carries the turn. The front moves over it, by compare-and-swap, only after that.
//!
//! # Protocol
//! - *Push*: claim a place, then store turn and number in one word.
//! - *Take*: know the front, read the places there; for those that carry the turn, swap the front
//!   for the position behind them, and the numbers are taken. If the swap fails another thread was
//!   faster: again, from where the front is now.
//!
//! Numbers are read before they are taken. A thread that is late may thus read what a later turn
//! left there, but then the front has moved on and the swap fails.
//!
//! # How many at once
//! At most a sixteenth of what waits, and 8. So nobody finds the queue empty because of what others
//! took ahead, and a number that was taken behind a slow one is late by at most that fraction of
//! the queue that was before it anyway. A short queue is taken one by one.
//!
//! # What it does not do
//! It does not wait: a place that is claimed and not written yet ends the queue for the moment,
//! whatever is behind it. A number is seen by calls that begin after all pushes have returned whose
//! places are before it.

use crate::sync::{AtomicU64, Ordering};

use super::segments::{Position, Segments, payload_of, turn_of, word};

/// Loom needs to see the end of a block.
const BLOCK: usize = if cfg!(loom) { 2 } else { 128 };

/// How many numbers may be taken at once.
pub(super) const AT_ONCE: usize = if cfg!(loom) { 2 } else { 8 };
/// Who takes several leaves this many times as many to the others.
const SHARE: usize = if cfg!(loom) { 1 } else { 16 };

/// Room for numbers that are taken at once.
pub(super) type Numbers = [u32; AT_ONCE];

/// Small numbers in the order of arrival.
pub(super) struct MasterQueue {
    numbers: Segments<AtomicU64, BLOCK>,
}

impl MasterQueue {
    pub(super) fn new() -> Self {
        MasterQueue { numbers: Segments::new() }
    }

    #[inline]
    pub(super) fn push(&self, number: u32) {
        let (place, turn) = self.numbers.claim();
        // Release: what the caller did before. Partner: the load in `read`.
        place.store(word(turn, number.into()), Ordering::Release);
    }

    /// Where to begin with [`take`](Self::take).
    pub(super) fn front(&self) -> Front {
        // Acquire: as in `has_moved`.
        Front(self.numbers.front(Ordering::Acquire))
    }

    /// Takes numbers from the front, which is `front` if nobody else has moved it meanwhile: at
    /// most `most`, and no more than a share of what waits. How many.
    pub(super) fn take(&self, front: &mut Front, most: usize, numbers: &mut Numbers) -> usize {
        loop {
            let at = front.0;
            if Segments::<AtomicU64, BLOCK>::is_end(at) {
                if self.numbers.leave(at) | self.has_moved(front) {
                    continue;
                }
                return 0;
            }
            let count = self.read(at, most, numbers);
            if count == 0 {
                if self.has_moved(front) {
                    continue;
                }
                return 0;
            }
            // Release: the numbers are read before the block can be left. Partner: `leave`, which
            // swaps the same cell later. Acquire on failure: as in `has_moved`.
            let (order, next) = ((Ordering::Release, Ordering::Acquire), at.after(count));
            match self.numbers.front_cell().compare_exchange(at.0, next.0, order.0, order.1) {
                Ok(_) => {
                    front.0 = next;
                    return count;
                }
                Err(now) => front.0 = Position(now),
            }
        }
    }

    /// Reads the numbers from a position on that are there, up to a worker's share.
    fn read(&self, at: Position, most: usize, numbers: &mut Numbers) -> usize {
        let share = (self.numbers.claimed_behind(at) / SHARE).clamp(1, most.min(AT_ONCE));
        let share = share.min(BLOCK - at.offset());
        for (count, number) in numbers[..share].iter_mut().enumerate() {
            // Acquire: with the Release of `push`; also keeps the next look at the front after it.
            let word = self.numbers.place(at.after(count)).load(Ordering::Acquire);
            if turn_of(word) != at.turn() {
                return count;
            }
            *number = payload_of(word) as u32;
        }
        share
    }

    #[cfg(test)]
    pub(super) fn blocks(&self) -> u64 {
        self.numbers.blocks()
    }

    /// Looks at the front again: true if it is elsewhere by now.
    fn has_moved(&self, front: &mut Front) -> bool {
        // Acquire: with the Release of `leave`, so that a look at the block there finds it.
        let now = self.numbers.front(Ordering::Acquire);
        std::mem::replace(&mut front.0, now) != now
    }
}

/// Where a thread last saw the front. It costs a load to look it up, behind the swap that moved it,
/// so who takes several times keeps it.
pub(super) struct Front(Position);

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two threads, five or six numbers over three blocks of two, two
    //! preemptions; seconds.
    use super::*;
    use crate::sync::{Arc, thread};

    fn drain(queue: &MasterQueue) -> Vec<u32> {
        let (mut front, mut numbers, mut taken) = (queue.front(), [0; AT_ONCE], Vec::new());
        loop {
            match queue.take(&mut front, AT_ONCE, &mut numbers) {
                0 => return taken,
                count => taken.extend(&numbers[..count]),
            }
        }
    }

    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(check);
    }

    /// Two take while blocks are left and linked again.
    #[test]
    fn each_number_is_taken_once_and_in_order() {
        model(|| {
            let queue = Arc::new(MasterQueue::new());
            (0..3).for_each(|number| queue.push(number));
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || drain(&queue))
            };
            let mut first = drain(&queue);
            (3..6).for_each(|number| queue.push(number));
            first.extend(drain(&queue));
            let second = other.join().expect("no panic");
            assert!(first.is_sorted() && second.is_sorted(), "{first:?} {second:?}");
            let mut all: Vec<u32> = [first, second, drain(&queue)].concat();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5], "once each");
        });
    }

    /// Two add and link: a place is never in two hands, and no block is lost behind another.
    #[test]
    fn two_threads_add_behind_the_end_of_a_block() {
        model(|| {
            let queue = Arc::new(MasterQueue::new());
            queue.push(9);
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || (0..2).for_each(|number| queue.push(number)))
            };
            (2..4).for_each(|number| queue.push(number));
            let mut all = drain(&queue);
            other.join().expect("no panic");
            all.extend(drain(&queue));
            let place = |number| all.iter().position(|&n| n == number).expect("taken");
            assert!(place(9) == 0 && place(0) < place(1) && place(2) < place(3), "{all:?}");
            assert_eq!(all.len(), 5, "once each");
        });
    }
}
