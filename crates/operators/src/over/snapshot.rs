//! What a partition of an OVER window keeps, as tables of state.
//!
//! | table | a row for each |
//! |---|---|
//! | `keys` | key that lives: its newest time, the states of calls, the rows of frames, of LAG and of LEAD as lists |
//! | `waiting` | row that waits for its time, first in first |
//! | `ready` | row with its results that leaves at the next watermark |
//!
//! How far the partition has been shown watermarks is not told: what waits is due behind them.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::DataType as Arrow;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use thalweg_core::{Captured, Restored, Result};

use super::partition::{Entry, OverPartition};
use super::spec::OverTime;
use crate::aggregate::{StateColumns, StateRows};
use crate::join::bounded::chunks::RowRef;
use crate::join::bounded::pieces::{keys_of, times};
use crate::keys::hash_keys;
use crate::tables::{
    does_not_fit, kept_batch, kept_columns, kept_schema, numbers_of, owners, state_batch,
    tell_batches,
};

const KEYS: &str = "keys";
const WAITING: &str = "waiting";
const READY: &str = "ready";
/// Rows that LEAD holds back, among the columns of keys.
const HELD: &str = "$held";
/// When a row that waits is due.
const DUE_MS: &str = "$due_ms";
/// When a row that is ready leaves.
const LEAVES_MS: &str = "$leaves_ms";
impl OverPartition {
    /// Tells what it keeps.
    pub(super) fn tell(&self) -> Result<Captured> {
        let mut captured = Captured::default();
        let live = self.keys.live();
        tell_batches(&mut captured, KEYS, &live, |ids| self.tell_keys(ids))?;
        let waiting: Vec<(i64, Entry)> = self.waiting.iter().collect();
        tell_batches(&mut captured, WAITING, &waiting, |rows| self.tell_waiting(rows))?;
        let mut ready = Vec::with_capacity(self.ready.len());
        for (batch, times) in &self.ready {
            ready.push(self.tell_ready(batch, times)?);
        }
        let empty = self.tell_ready(&RecordBatch::new_empty(Arc::clone(&self.schema)), &[])?;
        captured.add(READY, empty.schema(), ready);
        Ok(captured)
    }

    fn tell_keys(&self, ids: &[u32]) -> Result<RecordBatch> {
        let (owners, mut told) = self.told_keys.tell(&self.keys.table, ids)?;
        told.extend(self.keys.tell(ids));
        let mut states = StateColumns::default();
        self.functions.tell(ids, &mut states)?;
        if let Some(held) = &self.held {
            states.begin(HELD);
            held.tell(ids, &mut states)?;
        }
        told.extend(states.finish());
        state_batch(owners, told)
    }

    fn tell_waiting(&self, waiting: &[(i64, Entry)]) -> Result<RecordBatch> {
        let rows: Vec<RowRef> = waiting.iter().map(|(_, entry)| entry.row).collect();
        let hashes = waiting.iter().map(|(_, entry)| self.keys.table.hash_of(entry.id));
        let due = waiting.iter().map(|&(due, _)| due);
        let own: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(due))];
        let schema = kept_schema(&[(DUE_MS, Arrow::Int64)], &self.spec.input);
        kept_batch(&schema, owners(hashes), own, self.rows.gather(&rows)?)
    }

    fn tell_ready(&self, batch: &RecordBatch, times: &[i64]) -> Result<RecordBatch> {
        let keys = keys_of(batch.columns(), &self.spec.keys);
        let hashes = hash_keys(&keys, batch.num_rows())?;
        let leaves = Int64Array::from_iter_values(times.iter().copied());
        let schema = kept_schema(&[(LEAVES_MS, Arrow::Int64)], &self.spec.output());
        let columns = batch.columns().to_vec();
        kept_batch(&schema, owners(hashes.into_iter()), vec![Arc::new(leaves)], columns)
    }

    /// Takes back what [`OverPartition::tell`] has told.
    pub(super) fn recall(&mut self, restored: &Restored) -> Result<()> {
        for told in restored.table(KEYS) {
            let ids = self.keys.recall(told, &self.told_keys)?;
            self.grow();
            self.functions.recall(&ids, told)?;
            if let Some(held) = &mut self.held {
                held.recall(&ids, &StateRows::new(told, HELD))?;
            }
        }
        let newest = self.keys.recalled();
        if self.spec.time == OverTime::Arrival {
            // Times are those of the clock, and must not go back behind what frames hold.
            self.wall_ms = newest;
        }
        restored.table(WAITING).iter().try_for_each(|told| self.recall_waiting(told))?;
        self.recall_ready(restored.table(READY))
    }

    fn recall_waiting(&mut self, told: &RecordBatch) -> Result<()> {
        let OverTime::EventTime(rowtime) = self.spec.time else {
            return Err(does_not_fit("rows wait, but not for a time".to_owned()));
        };
        let schema = kept_schema(&[(DUE_MS, Arrow::Int64)], &self.spec.input);
        let columns = kept_columns(told, &schema, self.spec.input.len())?;
        let due = numbers_of::<Int64Type>(told, DUE_MS)?;
        let times = times(&columns, rowtime, &self.spec.input)?;
        let keys = keys_of(&columns, &self.spec.keys);
        let ids = self.keys.intern(&keys, told.num_rows())?;
        self.grow();
        let chunk = self.rows.add(columns, ids.len(), false);
        self.rows.hold(chunk, ids.len());
        for (row, ((&id, &time), &due)) in ids.iter().zip(&times).zip(due).enumerate() {
            self.keys.wait(id);
            self.waiting.push(due, Entry { time, row: RowRef { chunk, row: row as u32 }, id });
        }
        self.rows.release(chunk, 1);
        Ok(())
    }

    /// Rows of several partitions leave together: in the order of time, and those of one time in that
    /// of the partitions that told them.
    fn recall_ready(&mut self, told: &[RecordBatch]) -> Result<()> {
        let schema = kept_schema(&[(LEAVES_MS, Arrow::Int64)], &self.spec.output());
        let (mut batches, mut times) = (Vec::new(), Vec::new());
        for told in told {
            let columns = kept_columns(told, &schema, self.schema.fields().len())?;
            batches.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
            times.extend_from_slice(numbers_of::<Int64Type>(told, LEAVES_MS)?);
        }
        if times.is_empty() {
            return Ok(());
        }
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by_key(|&row| times[row as usize]);
        times.sort_unstable();
        let batch = concat_batches(&self.schema, &batches)?;
        self.ready.push_back((take_record_batch(&batch, &UInt32Array::from(order))?, times));
        Ok(())
    }
}
