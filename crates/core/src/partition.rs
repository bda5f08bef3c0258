//! What a partition of an operator knows of its place among the others.

use crate::order::OrderContract;

/// What a partition knows of its place when it is created.
#[derive(Clone, Copy, Debug)]
pub struct PartitionContext {
    /// Its number, from 0. A partition owns a range of whole virtual partitions, and those of lower
    /// numbers own lower ranges.
    pub partition: usize,
    /// How many there are.
    pub partitions: usize,
    /// What is promised about the sequence of results. In an ordered contract rows leave with their
    /// [`Place`](crate::operator::Place), those made at a watermark by window end, virtual
    /// partition and key bytes.
    pub order: OrderContract,
}

impl PartitionContext {
    /// The only partition, in contract `epoch`.
    pub fn only() -> Self {
        PartitionContext { partition: 0, partitions: 1, order: OrderContract::Epoch }
    }
}
