//! One partition of a GROUP BY: its groups, and their captures.
//!
//! The groups are shared with the captures that are being read ([`Guarded`], `crate::watch`), [`READ_GROUPS`]
//! of them at a time.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{Captured, Extent, Output, Partition, Piece, Progress, Restored, Result};

use super::groups::Groups;
use crate::guarded::{Guarded, locked};
use crate::keys::{KeyTable, ToldKeys};
use crate::tables::state_batch;
use crate::watch::{self, Begun};

/// The table of state: a row for each group.
const GROUPS: &str = "groups";
/// How many groups are read at once while rows wait.
const READ_GROUPS: usize = 1024;

/// Reads what a capture has yet to read; its rows.
fn read(groups: &Guarded<Groups>, begun: Begun, keys: &ToldKeys) -> Result<TableRows> {
    groups.read(|groups| Ok(groups.is_reading(&begun.told) && groups.read_some(READ_GROUPS)?))?;
    let rows = std::mem::take(&mut *locked(&begun.told));
    let removed = removed(&begun.gone, &rows, keys)?;
    Ok(TableRows { rows: compact(rows)?, removed })
}

/// The keys that have gone and are not among these rows: those have come again.
fn removed(gone: &KeyTable, rows: &[RecordBatch], keys: &ToldKeys) -> Result<Vec<RecordBatch>> {
    if keys.width() == 0 {
        return Ok(Vec::new());
    }
    let removed = watch::removed(gone, rows, |rows| keys.columns(rows))?;
    if removed.is_empty() {
        return Ok(Vec::new());
    }
    let (owners, columns) = keys.tell(gone, &removed)?;
    Ok(vec![state_batch(owners, columns)?])
}

/// The same rows without small batches: each has been told when it changed.
fn compact(rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let (mut rows, small): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|rows| rows.num_rows() >= READ_GROUPS);
    if let Some(first) = small.first() {
        rows.push(concat_batches(&first.schema(), &small)?);
    }
    Ok(rows)
}

/// The groups of one key range.
pub(super) struct GroupPartition {
    groups: Arc<Guarded<Groups>>,
}

impl GroupPartition {
    pub(super) fn new(groups: Groups) -> Self {
        GroupPartition { groups: Arc::new(Guarded::new(groups)) }
    }
}

impl Partition for GroupPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        self.groups.own().rows(&piece, output)
    }

    fn watermark(&mut self, _call: &WatermarkCall<'_>, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        self.groups.own().state_bytes()
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        let mut groups = self.groups.own();
        let schema = groups.tell(&[])?.schema();
        let begun = groups.begin(extent)?;
        let keys = groups.told_keys().clone();
        drop(groups);
        let shared = Arc::clone(&self.groups);
        let table = CapturedTable {
            name: GROUPS,
            schema,
            extent: begun.extent,
            identity_columns: 1 + keys.width(),
            kept_from: None,
            rows: Box::new(move || read(&shared, begun, &keys)),
        };
        Ok(Captured { tables: vec![table] })
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let mut groups = self.groups.own();
        let told = restored.table(GROUPS);
        groups.reserve(told.iter().map(RecordBatch::num_rows).sum());
        told.iter().try_for_each(|told| groups.recall(told))
    }
}
