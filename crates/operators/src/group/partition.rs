//! One partition of a GROUP BY: its groups, and their captures.
//!
//! The groups are shared with the captures that are being read ([`SharedState`],
//! [`crate::capture`]).
//!
//! Nothing happens at watermarks: results are updated with each row, and expired keys are swept
//! with the rows of others. A partition without rows therefore keeps expired keys until the next
//! row.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::{Captured, Extent, Output, Partition, Piece, Restored, Result, TableChanges};

use super::groups::{GROUPS, Groups};
use crate::capture::keys::{capture, key_changes, stop_tracking_keys};
use crate::capture::shared::SharedState;

/// The table of state: a row for each group.
const NAME: &str = "groups";

/// The groups of one key range.
pub(super) struct GroupPartition {
    groups: Arc<SharedState<Groups>>,
}

impl GroupPartition {
    pub fn new(groups: Groups) -> Self {
        GroupPartition { groups: Arc::new(SharedState::new(groups)) }
    }
}

impl Partition for GroupPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        self.groups.lock().rows(&piece, output)
    }

    fn state_bytes(&self) -> usize {
        self.groups.lock().state_bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.groups.lock().len())
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        Ok(Captured { tables: vec![capture(&self.groups, GROUPS, NAME, extent)?] })
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        key_changes(&mut *self.groups.lock(), GROUPS, NAME).into_iter().collect()
    }

    fn stop_tracking(&mut self, _table: &str) {
        stop_tracking_keys(&mut *self.groups.lock(), GROUPS);
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let mut groups = self.groups.lock();
        let tables = restored.table(NAME);
        groups.reserve(tables.iter().map(RecordBatch::num_rows).sum());
        tables.iter().try_for_each(|rows| groups.restore_groups(rows))
    }
}
