//! What is known of a vertex before it runs.

use std::sync::OnceLock;

use thalweg_core::operator::WatermarkInterest;

use super::ItemType;

/// What is known of an input.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputPlan {
    pub priority: i32,
    pub item_type: ItemType,
}

/// What all partitions of a vertex share.
pub(super) struct VertexPlan {
    pub name: String,
    pub inputs: Vec<InputPlan>,
    /// For each port the type of its items, if anybody reads it.
    pub ports: Vec<OnceLock<ItemType>>,
    pub partitions: Option<usize>,
    pub grid_ms: Option<i64>,
    pub interest: WatermarkInterest,
    pub uses_processing_time: bool,
    pub outbox_items: usize,
}

impl VertexPlan {
    /// True if items of an input wait for these others.
    pub(super) fn waits_for(&self, input: usize, other: usize) -> bool {
        self.inputs[other].priority < self.inputs[input].priority
    }

    /// True if an input is consumed before another.
    pub(super) fn has_priorities(&self) -> bool {
        self.inputs.windows(2).any(|two| two[0].priority != two[1].priority)
    }
}
