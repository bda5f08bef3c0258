//! The hybrid queue (Prasaad et al. Fig. 7).
//!
//! **The invariant that makes it work:** `claimed` of a partition counts its entries that were
//! taken from the master queue and are not handled yet; whoever raises it from 0 owns the partition
//! until it lowers it to 0, hands it on, or leaves it *stalled*.
//!
//! # Protocol
//! - *Add*: put the item into its partition's lane, then the partition into the master queue.
//! - *Consume*: take a partition from the master queue and raise its count. If it was not 0, a
//!   thread owns the partition: the item is delegated to them, take the next entry. If it was,
//!   handle items of the partition, lowering the count after each, until it is 0.
//! - An owner whose budget is spent puts the partition back as an *owned* entry. The count stays
//!   above 0 meanwhile, so whoever takes the entry is the only owner.
//! - An owner that finds its item hidden behind one that another thread is only just writing marks
//!   the count as stalled, looks once more, and goes away. The next to raise the count owns the
//!   partition, in the place of delegating.
//!
//! # Why it is right
//! The changes of one count have one order. Between a raise from 0 and the lowering to 0 nobody
//! else sees 0, so there is one owner; ownership passes by the count (AcqRel on both sides) or
//! through the master queue. An item is in its lane before its entry is in the master queue, and an
//! owner takes one item per claimed entry, so an item is missing only if an earlier add to the
//! partition is not through. Entries leave the master queue in the order of arrival, so partitions
//! are served almost in order, and one that gets much is served by one worker while the others
//! continue with the rest: a skewed key does not stall other keys. Entries of a partition are
//! alike: which of them a worker has taken ahead, or puts back when it dies, changes nothing for
//! the order within the partition.
//!
//! A stalled partition is taken over: the add that hides the item pushes its entry after it has
//! written, and a thread raises the count for it. If that raise comes after the mark, it sees it.
//! If it comes before, the mark (AcqRel) sees the raise and with it the written item: the second
//! look finds it. Whoever clears the mark owns the partition, and only one can.
//!
//! # What it costs
//! Five read-modify-writes per item: a claim in each queue to add it, a share of one in the master
//! queue to take it (workers take up to 8 entries at once, see [`master`](super::master)), and two
//! of the count. Lanes and master queue use their blocks again, so a queue that has been as long
//! before allocates nothing. Nobody waits for anybody.

use std::ops::Range;

use crate::sync::{AtomicUsize, Ordering};

use super::PartitionedWorklist;
use super::lane::Lane;
use super::master::{AT_ONCE, Front, MasterQueue, Numbers};

/// Marks a count whose owner has left. Counts stay below.
const STALLED: usize = 1 << (usize::BITS - 1);

/// Partition queues with a master queue. Unbounded, but for what its positions can number: 2^26
/// items that wait in one partition and 2^28 in all, beyond which adding panics.
pub struct HybridQueue<T> {
    partitions: Box<[Partition<T>]>,
    /// Entries as numbers. Pushed by those who add and by owners that hand on; popped by workers.
    master: MasterQueue,
}

struct Partition<T> {
    /// Pushed by those who add, popped by the owner.
    items: Lane<T>,
    /// Raised by workers, lowered by the owner; may carry [`STALLED`].
    claimed: AtomicUsize,
}

enum Entry {
    /// An item was added to this partition.
    Item(usize),
    /// The partition comes with its ownership.
    Owned(usize),
}

impl Entry {
    fn number(self) -> u32 {
        match self {
            Entry::Item(place) => (place << 1) as u32,
            Entry::Owned(place) => (place << 1 | 1) as u32,
        }
    }

    fn of(number: u32) -> Self {
        let place = (number >> 1) as usize;
        if number & 1 == 0 { Entry::Item(place) } else { Entry::Owned(place) }
    }
}

impl<T> HybridQueue<T> {
    /// An empty queue of `partitions` partitions.
    ///
    /// # Panics
    /// With more than 2^31 partitions.
    pub fn new(partitions: usize) -> Self {
        assert!(partitions <= 1 << 31, "an entry is a partition and a bit in 32");
        let partition = |_| Partition { items: Lane::new(), claimed: AtomicUsize::new(0) };
        HybridQueue {
            partitions: (0..partitions).map(partition).collect(),
            master: MasterQueue::new(),
        }
    }

    /// How many blocks there are, used or kept.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> u64 {
        let lanes = self.partitions.iter().map(|partition| partition.items.blocks());
        lanes.sum::<u64>() + self.master.blocks()
    }

    /// Handles items of a partition that this worker owns, at most `budget`; how many.
    fn handle(&self, place: usize, budget: usize, operate: &mut impl FnMut(usize, T)) -> usize {
        let (partition, mut handled) = (&self.partitions[place], 0);
        loop {
            // SAFETY: this worker owns the partition, which is the claim of the module header.
            let Some(item) = (unsafe { partition.items.pop() }) else {
                if partition.stall() {
                    return handled;
                }
                continue;
            };
            let owner = Owner { queue: self, place };
            operate(place, item);
            handled += 1;
            match owner.finish() {
                Left::Nothing => return handled,
                Left::More(owner) if handled >= budget => {
                    owner.hand_on();
                    return handled;
                }
                Left::More(owner) => std::mem::forget(owner),
            }
        }
    }
}

impl<T> Partition<T> {
    /// True if this raise of the count has made the caller its owner.
    fn claim(&self) -> bool {
        // AcqRel: takes the partition's state over from the last owner, or delegates. Partners:
        // `finish`, `stall`, and other claims in between.
        let before = self.claimed.fetch_add(1, Ordering::AcqRel);
        before == 0 || (before & STALLED != 0 && self.take_over())
    }

    /// The owner misses its item: marks the count. False if the item is there by now and the
    /// partition is still the caller's.
    #[cold]
    fn stall(&self) -> bool {
        // AcqRel: hands the partition's state to who takes it over, and sees what those had written
        // who raised the count before.
        self.claimed.fetch_or(STALLED, Ordering::AcqRel);
        !(self.items.is_ready() && self.take_over())
    }

    #[cold]
    fn take_over(&self) -> bool {
        // AcqRel: with `stall`.
        self.claimed.fetch_and(!STALLED, Ordering::AcqRel) & STALLED != 0
    }
}

/// The right to handle one item of a partition. Dropped by a panic it counts the item as handled
/// and hands the partition on.
struct Owner<'a, T> {
    queue: &'a HybridQueue<T>,
    place: usize,
}

enum Left<'a, T> {
    Nothing,
    More(Owner<'a, T>),
}

impl<'a, T> Owner<'a, T> {
    /// One item is handled.
    fn finish(self) -> Left<'a, T> {
        // AcqRel: hands the partition's state to the next owner, and sees items that were
        // delegated.
        let before = self.queue.partitions[self.place].claimed.fetch_sub(1, Ordering::AcqRel);
        let owner = std::mem::ManuallyDrop::new(self);
        match before {
            1 => Left::Nothing,
            _ => Left::More(Owner { queue: owner.queue, place: owner.place }),
        }
    }

    fn hand_on(self) {
        self.queue.master.push(Entry::Owned(self.place).number());
        std::mem::forget(self);
    }
}

impl<T> Drop for Owner<'_, T> {
    fn drop(&mut self) {
        if self.queue.partitions[self.place].claimed.fetch_sub(1, Ordering::AcqRel) > 1 {
            self.queue.master.push(Entry::Owned(self.place).number());
        }
    }
}

impl<T> PartitionedWorklist<T> for HybridQueue<T> {
    fn add(&self, partition: usize, item: T) {
        self.partitions[partition].items.push(item);
        self.master.push(Entry::Item(partition).number());
    }

    fn consume(&self, budget: usize, mut operate: impl FnMut(usize, T)) -> usize {
        let (mut handled, mut entries) = (0, Entries::new(&self.master));
        while handled < budget {
            let Some(entry) = entries.next(budget - handled) else { break };
            let place = match entry {
                Entry::Item(place) if !self.partitions[place].claim() => continue,
                Entry::Item(place) | Entry::Owned(place) => place,
            };
            // What is in this worker's hand belongs to the budget.
            let left = budget - handled - entries.in_hand();
            handled += self.handle(place, left, &mut operate);
        }
        handled
    }
}

/// Entries that a worker takes, some of them ahead. Dropped by a panic it puts back what is left:
/// entries of a partition are alike, so nothing changes its place within one.
struct Entries<'a> {
    master: &'a MasterQueue,
    front: Front,
    numbers: Numbers,
    hand: Range<usize>,
}

impl<'a> Entries<'a> {
    fn new(master: &'a MasterQueue) -> Self {
        Entries { master, front: master.front(), numbers: [0; AT_ONCE], hand: 0..0 }
    }

    /// The next entry; none is taken ahead beyond `most`.
    fn next(&mut self, most: usize) -> Option<Entry> {
        if self.hand.is_empty() {
            self.hand = 0..self.master.take(&mut self.front, most, &mut self.numbers);
        }
        self.hand.next().map(|place| Entry::of(self.numbers[place]))
    }

    fn in_hand(&self) -> usize {
        self.hand.len()
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        self.hand.clone().for_each(|place| self.master.push(self.numbers[place]));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two threads, two or three items, two preemptions; a second. Blocks have
    //! two places, and two entries are taken at once.
    use super::*;
    use crate::sync::{Arc, Mutex, UnsafeCell, thread};

    struct Shared {
        queue: HybridQueue<u32>,
        /// Loom reports two workers at one partition's state.
        states: [UnsafeCell<Vec<u32>>; 2],
        handled: Mutex<usize>,
    }

    // SAFETY: that `states` are touched by one worker at a time is what the model checks.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn new() -> Arc<Self> {
            Arc::new(Shared {
                queue: HybridQueue::new(2),
                states: [UnsafeCell::new(Vec::new()), UnsafeCell::new(Vec::new())],
                handled: Mutex::new(0),
            })
        }

        /// Consumes until nothing is left for this worker.
        fn work(&self, budget: usize) {
            let mut count = 0;
            loop {
                let done = self.queue.consume(budget, |partition, item| {
                    // SAFETY: see above.
                    self.states[partition].with_mut(|state| unsafe { (*state).push(item) });
                });
                if done == 0 {
                    break;
                }
                count += done;
            }
            *self.handled.lock().expect("no poison") += count;
        }

        fn state(&self, partition: usize) -> Vec<u32> {
            // SAFETY: all workers are done.
            self.states[partition].with_mut(|state| unsafe { (*state).clone() })
        }
    }

    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(check);
    }

    fn one_worker_per_partition(budget: usize) {
        model(move || {
            let shared = Shared::new();
            shared.queue.add(0, 1);
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.work(budget))
            };
            shared.queue.add(0, 2);
            shared.queue.add(1, 3);
            shared.work(budget);
            other.join().expect("no panic");
            // Whoever delegated last may have left something to a worker that was just leaving.
            shared.work(budget);
            assert_eq!(*shared.handled.lock().expect("no poison"), 3);
            assert_eq!((shared.state(0), shared.state(1)), (vec![1, 2], vec![3]));
        });
    }

    #[test]
    fn one_worker_per_partition_in_order_and_nothing_left() {
        one_worker_per_partition(1);
    }

    #[test]
    fn entries_that_are_taken_ahead_are_handled_in_order() {
        one_worker_per_partition(3);
    }

    /// Whoever comes to an item behind one that is not written yet leaves the partition stalled.
    #[test]
    fn a_stalled_partition_is_taken_over() {
        model(|| {
            let shared = Shared::new();
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.queue.add(0, 1);
                    shared.work(2);
                })
            };
            shared.queue.add(0, 2);
            shared.work(2);
            other.join().expect("no panic");
            shared.work(2);
            assert_eq!(*shared.handled.lock().expect("no poison"), 2);
            let mut state = shared.state(0);
            state.sort_unstable();
            assert_eq!(state, [1, 2], "once each, in either order");
        });
    }
}
