//! The hybrid queue (Prasaad et al. Fig. 7).
//!
//! **The invariant that makes it work:** `claimed` of a partition counts its entries that were taken
//! from the master queue and are not handled yet; whoever raises it from 0 owns the partition until
//! it lowers it to 0, or hands it on.
//!
//! # Protocol
//! - *Add*: put the item into its partition's queue, then the partition into the master queue.
//! - *Consume*: take a partition from the master queue and raise its count. If it was not 0, somebody
//!   owns the partition: the item is delegated to them, take the next entry. If it was, handle items
//!   of the partition, lowering the count after each, until it is 0.
//! - An owner whose budget is spent puts the partition back as an *owned* entry. The count stays
//!   above 0 meanwhile, so whoever takes the entry is the only owner.
//!
//! # Why it is right
//! The changes of one count have one order. Between a raise from 0 and the lowering to 0 nobody else
//! sees 0, so there is one owner; ownership passes by the count (AcqRel on both sides) or through the
//! master queue. An item is in its queue before its entry is in the master queue, and an owner pops
//! one item per claimed entry, so there always is one. Entries leave the master queue in the order of
//! arrival, so partitions are served almost in order, and one that gets much is served by one worker
//! while the others go on with the rest: a skewed key does not stall other keys.
//!
//! # What it costs
//! Two pushes to add, two pops and two atomic additions to handle an item.

use crate::sync::{AtomicUsize, Ordering, Queue};

use super::PartitionedWorklist;

/// Partition queues with a master queue.
pub struct HybridQueue<T> {
    partitions: Box<[Partition<T>]>,
    /// Pushed by those who add and by owners that hand on; popped by workers.
    master: Queue<Entry>,
}

struct Partition<T> {
    /// Pushed by those who add, popped by the owner.
    items: Queue<T>,
    /// Raised by workers, lowered by the owner.
    claimed: AtomicUsize,
}

enum Entry {
    /// An item was added to this partition.
    Item(usize),
    /// The partition comes with its ownership.
    Owned(usize),
}

impl<T> HybridQueue<T> {
    /// An empty queue of so many partitions.
    pub fn new(partitions: usize) -> Self {
        let partition = |_| Partition { items: Queue::new(), claimed: AtomicUsize::new(0) };
        HybridQueue { partitions: (0..partitions).map(partition).collect(), master: Queue::new() }
    }

    /// Handles items of a partition that this worker owns, at most `budget`; how many.
    fn handle(&self, place: usize, budget: usize, operate: &mut impl FnMut(usize, T)) -> usize {
        let mut handled = 0;
        loop {
            let owner = Owner { queue: self, place };
            let items = &self.partitions[place].items;
            let item = items.pop().expect("an item is added before its entry");
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

/// The right to handle one item of a partition. Dropped by a panic it counts the item as handled and
/// hands the partition on.
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
        // AcqRel: hands the partition's state to the next owner, and sees items that were delegated.
        let before = self.queue.partitions[self.place].claimed.fetch_sub(1, Ordering::AcqRel);
        let owner = std::mem::ManuallyDrop::new(self);
        match before {
            1 => Left::Nothing,
            _ => Left::More(Owner { queue: owner.queue, place: owner.place }),
        }
    }

    fn hand_on(self) {
        self.queue.master.push(Entry::Owned(self.place));
        std::mem::forget(self);
    }
}

impl<T> Drop for Owner<'_, T> {
    fn drop(&mut self) {
        if self.queue.partitions[self.place].claimed.fetch_sub(1, Ordering::AcqRel) > 1 {
            self.queue.master.push(Entry::Owned(self.place));
        }
    }
}

impl<T> PartitionedWorklist<T> for HybridQueue<T> {
    fn add(&self, partition: usize, item: T) {
        self.partitions[partition].items.push(item);
        self.master.push(Entry::Item(partition));
    }

    fn consume(&self, budget: usize, mut operate: impl FnMut(usize, T)) -> usize {
        let mut handled = 0;
        while handled < budget {
            let place = match self.master.pop() {
                None => break,
                Some(Entry::Owned(place)) => place,
                Some(Entry::Item(place)) => {
                    // AcqRel: takes the partition's state over from the last owner, or delegates.
                    if self.partitions[place].claimed.fetch_add(1, Ordering::AcqRel) > 0 {
                        continue;
                    }
                    place
                }
            };
            handled += self.handle(place, budget - handled, &mut operate);
        }
        handled
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two workers, three items in two partitions, two preemptions; seconds.
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

    #[test]
    fn one_worker_per_partition_in_order_and_nothing_left() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let shared = Arc::new(Shared {
                queue: HybridQueue::new(2),
                states: [UnsafeCell::new(Vec::new()), UnsafeCell::new(Vec::new())],
                handled: Mutex::new(0),
            });
            shared.queue.add(0, 1);
            let work = |shared: Arc<Shared>| {
                let mut count = 0;
                loop {
                    let done = shared.queue.consume(1, |partition, item| {
                        // SAFETY: see above.
                        shared.states[partition].with_mut(|state| unsafe { (*state).push(item) });
                    });
                    if done == 0 {
                        break;
                    }
                    count += done;
                }
                *shared.handled.lock().expect("no poison") += count;
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || work(shared))
            };
            shared.queue.add(0, 2);
            shared.queue.add(1, 3);
            work(Arc::clone(&shared));
            other.join().expect("no panic");
            // Whoever delegated last may have left something to a worker that was just leaving.
            work(Arc::clone(&shared));
            assert_eq!(*shared.handled.lock().expect("no poison"), 3);
            // SAFETY: all workers are done.
            shared.states[0].with_mut(|state| unsafe { assert_eq!(*state, [1, 2]) });
            // SAFETY: all workers are done.
            shared.states[1].with_mut(|state| unsafe { assert_eq!(*state, [3]) });
        });
    }
}
