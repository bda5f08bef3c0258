//! One queue per partition (Prasaad et al. §4.2), a baseline.
//!
//! **The invariant that makes it work:** a partition's flag is set while a worker drains its queue.
//!
//! Workers look for a partition with items whose flag they can take, starting behind the one they
//! had last. Within a partition items come in order; across partitions they do not, and items of
//! one that nobody has come to yet hold back everything behind them in the output (Fig. 6).

use crate::sync::{AtomicBool, AtomicUsize, Ordering, Queue};

use super::PartitionedWorklist;

/// Queues with a flag each.
pub struct PartitionedQueue<T> {
    partitions: Box<[Partition<T>]>,
    /// Where the next worker begins to look.
    turn: AtomicUsize,
}

struct Partition<T> {
    items: Queue<T>,
    /// Taken by a worker by exchange, cleared by the same.
    busy: AtomicBool,
}

impl<T> PartitionedQueue<T> {
    /// Empty queues of `partitions` partitions.
    pub fn new(partitions: usize) -> Self {
        let partition = |_| Partition { items: Queue::new(), busy: AtomicBool::new(false) };
        PartitionedQueue {
            partitions: (0..partitions).map(partition).collect(),
            turn: AtomicUsize::new(0),
        }
    }
}

struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Release: hands the partition's state to the next worker.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> PartitionedWorklist<T> for PartitionedQueue<T> {
    fn add(&self, partition: usize, item: T) {
        self.partitions[partition].items.push(item);
    }

    fn consume(&self, budget: usize, mut operate: impl FnMut(usize, T)) -> usize {
        let (count, mut handled) = (self.partitions.len(), 0);
        // Relaxed: only spreads the starting points.
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for place in (0..count).map(|step| first.wrapping_add(step) % count) {
            let partition = &self.partitions[place];
            // Acquire: takes the partition's state over from the last worker.
            if partition.items.is_empty() || partition.busy.swap(true, Ordering::Acquire) {
                continue;
            }
            let _busy = Busy(&partition.busy);
            while handled < budget {
                let Some(item) = partition.items.pop() else { break };
                operate(place, item);
                handled += 1;
            }
            if handled >= budget {
                break;
            }
        }
        handled
    }
}
