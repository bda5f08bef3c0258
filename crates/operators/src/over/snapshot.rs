//! What a partition of an OVER window keeps, as tables of state.
//!
//! | table | a row for each |
//! |---|---|
//! | `keys` | key that lives: its newest time, the states of calls, the rows of frames, of LAG and of LEAD as lists |
//! | `waiting_rows`, `late`, `overdue` | row that waits for its time (`rows::waiting_capture`) |
//! | `ready` | row with its results that leaves at the next watermark |
//!
//! How far the partition has been shown watermarks is not captured: what waits is due behind them.
//!
//! Captures write the keys that rows have reached or changed, and those that have been forgotten
//! ([`crate::capture`]), and the rows that have come to wait. What is ready changes all over
//! between two captures: where it lies is noted, and it is put together later.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::DataType as Arrow;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Extent, Restored, Result};

use super::partition::OverPartition;
use super::spec::{OverSpec, OverTime};
use crate::aggregate::{StateColumns, StateRows};
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::keys::{KeyTable, hash_keys};
use crate::rows::columns::keys_of;
use crate::rows::waiting_capture::{WaitingRows, WaitingShape, nothing_waits};
use crate::tables::{kept_batch, kept_columns, kept_schema, numbers_of, owners, state_batch};

/// The table that is captured by key.
pub(super) const TABLES: [&str; 1] = ["keys"];
pub(super) const KEYS: usize = 0;
const READY: &str = "ready";
/// Rows that LEAD holds back, among the columns of keys.
const HELD: &str = "$held";
/// When a row that is ready leaves.
const LEAVES_MS: &str = "$leaves_ms";

impl KeyedState for OverPartition {
    fn keys(&self) -> &KeyTable {
        &self.keys.table
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.keys.is_live(id)
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        self.capture_keys(ids)
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
    fn capture_others(&mut self, extent: Extent, captured: &mut Captured) -> Result<()> {
        if let Some(waiting) = &mut self.waiting {
            waiting.capture(extent, captured)?;
        }
        self.capture_ready(captured);
        Ok(())
    }
}

impl OverSpec {
    /// What waits for its time; `None` where nothing does.
    pub(super) fn waiting_shape(&self) -> Option<WaitingShape> {
        let OverTime::EventTime(rowtime) = self.time else { return None };
        let (input, keys) = (self.input.clone(), self.keys.clone());
        Some(WaitingShape { input, keys, rowtime, behind_ms: 0, has_kinds: false })
    }
}

impl OverPartition {
    fn capture_keys(&self, ids: &[u32]) -> Result<RecordBatch> {
        let (owners, mut columns) = self.key_columns.columns_of(&self.keys.table, ids)?;
        columns.extend(self.keys.capture(ids));
        let mut states = StateColumns::default();
        self.functions.capture(ids, &mut states)?;
        if let Some(held) = &self.held {
            states.begin(HELD);
            held.capture(ids, &mut states)?;
        }
        columns.extend(states.finish());
        state_batch(owners, columns)
    }

    fn capture_ready(&self, captured: &mut Captured) {
        let ready: Vec<(RecordBatch, Vec<i64>)> = self.ready.iter().cloned().collect();
        let schema = kept_schema(&[(LEAVES_MS, Arrow::Int64)], &self.spec.output());
        let (spec, of_table) = (Arc::clone(&self.spec), Arc::clone(&schema));
        let make = move || {
            let rows = ready.iter().map(|(batch, times)| {
                let keys = keys_of(batch.columns(), &spec.keys);
                let hashes = hash_keys(&keys, batch.num_rows())?;
                let leaves: ArrayRef = Arc::new(Int64Array::from(times.clone()));
                let columns = batch.columns().to_vec();
                kept_batch(&of_table, owners(hashes.into_iter()), vec![leaves], columns)
            });
            Ok(TableRows { rows: rows.collect::<Result<_>>()?, removed: Vec::new() })
        };
        captured.add_later(READY, schema, Box::new(make));
    }

    /// Restores what partitions captured.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        for rows in restored.table(TABLES[KEYS]) {
            let ids = self.keys.restore(rows, &self.key_columns)?;
            self.grow();
            self.functions.restore(&ids, rows)?;
            if let Some(held) = &mut self.held {
                held.restore(&ids, &StateRows::new(rows, HELD))?;
            }
        }
        let newest = self.keys.restored();
        if self.spec.time == OverTime::Arrival {
            // Times are those of the clock, and must not go back behind what frames hold.
            self.wall_ms = newest;
        }
        match &self.waiting {
            Some(waiting) => {
                let waiting = waiting.restored(restored)?;
                waiting.into_iter().try_for_each(|rows| self.restore_waiting(rows))?;
            }
            None => nothing_waits(restored)?,
        }
        self.restore_ready(restored.table(READY))
    }

    fn restore_waiting(&mut self, waiting: WaitingRows) -> Result<()> {
        let WaitingRows { columns, times, dues, .. } = waiting;
        let ids = self.keys.intern(&keys_of(&columns, &self.spec.keys), times.len())?;
        self.keys.enliven(&ids);
        self.grow();
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        let mut added = waiting.add(columns, ids.len());
        for (place, ((&id, &time), due)) in ids.iter().zip(&times).zip(dues).enumerate() {
            self.keep(&mut added, place, (time, due), id);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.finish(added);
        }
        Ok(())
    }

    /// Rows of several partitions leave together: in the order of time, and those of one time in
    /// that of the partitions that captured them.
    fn restore_ready(&mut self, batches: &[RecordBatch]) -> Result<()> {
        let schema = kept_schema(&[(LEAVES_MS, Arrow::Int64)], &self.spec.output());
        let (mut ready, mut times) = (Vec::new(), Vec::new());
        for rows in batches {
            let columns = kept_columns(rows, &schema, self.schema.fields().len())?;
            ready.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
            times.extend_from_slice(numbers_of::<Int64Type>(rows, LEAVES_MS)?);
        }
        if times.is_empty() {
            return Ok(());
        }
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by_key(|&row| times[row as usize]);
        times.sort_unstable();
        let batch = concat_batches(&self.schema, &ready)?;
        self.ready.push_back((take_record_batch(&batch, &UInt32Array::from(order))?, times));
        Ok(())
    }
}
