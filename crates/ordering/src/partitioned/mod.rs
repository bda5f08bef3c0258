//! Work that belongs to partitions: in order within each, by one worker at a time, side by side
//! across them (Prasaad et al. §4).
//!
//! | structure | how workers find work | paper |
//! |---|---|---|
//! | [`HybridQueue`] | a master queue of partitions in arrival order; work for a partition that a worker holds is delegated to that worker | §4.3, Fig. 7 |
//! | [`PartitionedQueue`] | one queue per partition, each drained by one worker at a time | §4.2 (a baseline) |
//! | [`SharedQueue`] | one queue; taking an item and locking its partition is one step | §4.1 (a baseline) |
//!
//! Several threads may add; the order within a partition is that in which its items were added.

mod hybrid;
mod lane;
mod master;
mod partition_queues;
mod segments;
mod shared;

pub use hybrid::HybridQueue;
pub use partition_queues::PartitionedQueue;
pub use shared::SharedQueue;

/// A worklist of items that belong to partitions.
pub trait PartitionedWorklist<T> {
    /// Adds an item.
    fn add(&self, partition: usize, item: T);

    /// Handles items, about `budget` at most, until none is left that this worker could take.
    /// Returns how many it has handled. Two workers are never at one partition, and each
    /// partition's items are handled in order.
    ///
    /// # Panics
    /// With `operate`: the item that it was called with is gone, no other is, and others continue.
    fn consume(&self, budget: usize, operate: impl FnMut(usize, T)) -> usize;
}

#[cfg(all(test, not(loom)))]
mod tests;
