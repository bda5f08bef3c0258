//! What a vertex does with its items.

use thalweg_core::snapshot::partition_of_virtual;
use thalweg_core::{PartitionContext, Result};

use super::context::{Context, Inbox};
use super::snapshot::{Entry, SavedEntries};
use crate::rows::key::RowKey;
use crate::rows::{FiredTimer, Row, virtual_partition};

/// Where a processor stands among those of its vertex.
#[derive(Clone, Copy, Debug)]
pub struct VertexContext {
    pub(super) opening: PartitionContext,
}

impl VertexContext {
    /// The number of its partition, from 0.
    pub fn partition(&self) -> usize {
        self.opening.partition
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.opening.partitions
    }

    /// True if items with this key come to this processor, by [`Edge::partitioned`].
    ///
    /// [`Edge::partitioned`]: super::Edge::partitioned
    pub fn owns<K: RowKey>(&self, key: &K) -> bool {
        self.owns_virtual(virtual_partition(key))
    }

    pub(super) fn owns_virtual(&self, virtual_partition: u8) -> bool {
        partition_of_virtual(virtual_partition, self.opening.partitions) == self.opening.partition
    }

    /// The first of the virtual partitions that it owns.
    pub(super) fn first_virtual(&self) -> u8 {
        let owned = (0..=u8::MAX).find(|&own| self.owns_virtual(own));
        owned.expect("there are at most as many partitions as virtual ones")
    }
}

/// The work of one partition of a vertex. See the [module](super) for what is promised.
///
/// Calls that answer `false` are not finished (the outbox is full, say) and are made again, with
/// the same arguments, before anything else.
pub trait Processor: Send + 'static {
    /// What timers are set for and state is saved under; `()` for neither.
    type Key: RowKey;
    /// What is saved, under a key or for all partitions.
    type Saved: Row;

    /// Takes items of an input. What is left in the inbox comes again; leaving something though the
    /// outbox has refused nothing is an error.
    ///
    /// # Errors
    /// What stops the job.
    fn process(
        &mut self,
        input: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, Self::Key>,
    ) -> Result<()>;

    /// An input has ended, and all its items were processed.
    ///
    /// # Errors
    /// What stops the job.
    fn complete_input(
        &mut self,
        input: usize,
        context: &mut Context<'_, Self::Key>,
    ) -> Result<bool> {
        let _ = (input, context);
        Ok(true)
    }

    /// All inputs have ended, and all timers of event time have fired. The last call.
    ///
    /// # Errors
    /// What stops the job.
    fn complete(&mut self, context: &mut Context<'_, Self::Key>) -> Result<bool> {
        let _ = context;
        Ok(true)
    }

    /// The watermark of one input, in milliseconds since 1970: none of its items to come is as old.
    /// Of a vertex with one input it is that of [`Processor::watermark`].
    ///
    /// # Errors
    /// What stops the job.
    fn input_watermark(
        &mut self,
        input: usize,
        watermark_ms: i64,
        context: &mut Context<'_, Self::Key>,
    ) -> Result<bool> {
        let _ = (input, watermark_ms, context);
        Ok(true)
    }

    /// The watermark of all inputs: the least of those that have neither ended nor are idle. Timers
    /// that it reaches have fired.
    ///
    /// # Errors
    /// What stops the job.
    fn watermark(
        &mut self,
        watermark_ms: i64,
        context: &mut Context<'_, Self::Key>,
    ) -> Result<bool> {
        let _ = (watermark_ms, context);
        Ok(true)
    }

    /// A timer of this key has fired. Timers of one kind fire by time, virtual partition and key.
    ///
    /// # Errors
    /// What stops the job.
    fn timer(
        &mut self,
        key: &Self::Key,
        timer: FiredTimer,
        context: &mut Context<'_, Self::Key>,
    ) -> Result<bool> {
        let _ = (key, timer, context);
        Ok(true)
    }

    /// Saves the state for a snapshot: what belongs to a key under it, and what all processors have
    /// alike (items that were broadcast) for all. Timers are saved by the engine.
    ///
    /// # Errors
    /// What keeps the snapshot from being taken.
    fn save(&mut self, entries: &mut SavedEntries<Self::Key, Self::Saved>) -> Result<()> {
        let _ = entries;
        Ok(())
    }

    /// Restores what was saved: called for each entry of a key that it owns, and for those of all,
    /// before anything else. Entries of one key come in the order in which they were saved.
    ///
    /// # Errors
    /// If it does not fit.
    fn restore(&mut self, entry: Entry<Self::Key, Self::Saved>) -> Result<()> {
        let _ = entry;
        Ok(())
    }

    /// About how many bytes the state takes, for the account of memory.
    fn state_bytes(&self) -> usize {
        0
    }
}
