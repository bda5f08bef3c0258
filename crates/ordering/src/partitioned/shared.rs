//! One queue for all partitions (Prasaad et al. §4.1), a baseline.
//!
//! **The invariant that makes it work:** an item is taken and its partition locked under the lock
//! of the queue, so no other item of the partition can be taken in between (Fig. 5 shows what
//! happens otherwise).
//!
//! A worker that meets a locked partition waits for it with the queue's lock in its hand, and with
//! it everybody who wants an item: that is the blocking which the paper holds against this
//! approach.

use std::collections::VecDeque;

use crate::sync::Mutex;

use super::PartitionedWorklist;

/// A locked queue and a lock per partition.
pub struct SharedQueue<T> {
    items: Mutex<VecDeque<(usize, T)>>,
    partitions: Box<[Mutex<()>]>,
}

impl<T> SharedQueue<T> {
    /// An empty queue of `partitions` partitions.
    pub fn new(partitions: usize) -> Self {
        SharedQueue {
            items: Mutex::new(VecDeque::new()),
            partitions: (0..partitions).map(|_| Mutex::new(())).collect(),
        }
    }
}

impl<T> PartitionedWorklist<T> for SharedQueue<T> {
    fn add(&self, partition: usize, item: T) {
        self.items.lock().expect("no panic under this lock").push_back((partition, item));
    }

    fn consume(&self, budget: usize, mut operate: impl FnMut(usize, T)) -> usize {
        let mut handled = 0;
        while handled < budget {
            let mut items = self.items.lock().expect("no panic under this lock");
            let Some((partition, item)) = items.pop_front() else { break };
            // A worker that panicked has left nothing of ours half done.
            let lock = self.partitions[partition].lock();
            let _partition = lock.unwrap_or_else(std::sync::PoisonError::into_inner);
            drop(items);
            operate(partition, item);
            handled += 1;
        }
        handled
    }
}
