//! What captures write of a sort by time: the rows that have not left, and the last time that has
//! been sent on.
//!
//! | column of `rows` | |
//! |---|---|
//! | `$expires` | the time of the row, or later if it came when this time was over |
//! | `$serial` | names a row, and goes up in the order in which rows came |
//! | `$ready` | the watermark before some row has passed this one |
//! | the columns of the row | |
//!
//! Captures write the rows that have come since the one before, and those that are ready, which are
//! few; where they lie is noted, and they are put together later. Those that have left expire
//! ([`crate::capture::serials`]).

use std::cmp::Reverse;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{Captured, Extent, Restored, Result};

use super::store::{Store, StoredPlace};
use super::{TemporalSortPartition, TimedRow};
use crate::capture::rows::{SERIAL, by_serial};
use crate::rows::columns::batch_of;
use crate::tables::{
    KEPT_ROWS_MAX, add_table, flags, for_all, kept_batch, kept_columns, kept_schema, state_batch,
    typed,
};

const ROWS: &str = "rows";
const EXPIRES: &str = "$expires";
/// The partition, when it expires, and the serial name a row.
const IDENTITY: usize = 3;
/// The watermark before some row has passed this one.
const READY: &str = "$ready";
const PROGRESS: &str = "progress";
const SENT_ON: &str = "sent_on";

/// A row that is captured, and whether it is ready.
type CapturedRow = (TimedRow, bool);

/// Rows as batches of the table. Rows of times below `kept_from` came when these were over.
fn batches(
    rows: &[CapturedRow],
    kept_from: i64,
    store: &Store,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let batch = |rows: &[CapturedRow]| {
        let expires = rows.iter().map(|(row, _)| row.time.max(kept_from));
        let own: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(expires)),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|(row, _)| row.arrival))),
            Arc::new(rows.iter().map(|&(_, is_ready)| Some(is_ready)).collect::<BooleanArray>()),
        ];
        let places: Vec<StoredPlace> = rows.iter().map(|(row, _)| row.place).collect();
        kept_batch(schema, for_all(rows.len()), own, store.read(&places)?.columns().to_vec())
    };
    rows.chunks(KEPT_ROWS_MAX).map(batch).collect()
}

impl TemporalSortPartition {
    fn state_schema(&self) -> SchemaRef {
        let own = [(EXPIRES, Arrow::Int64), (SERIAL, Arrow::UInt64), (READY, Arrow::Boolean)];
        kept_schema(&own, &self.schema)
    }

    /// Captures the rows and how far they have been sent on.
    pub(super) fn capture_state(&mut self, extent: Extent) -> Result<Captured> {
        let (extent, first) = self.serials.begin(extent, self.arrivals);
        let waiting = self.waiting.iter().map(|entry| (entry.0, false));
        let fresh = waiting.filter(|(row, _)| first.is_none_or(|first| row.arrival >= first));
        let ready = self.ready.iter().map(|&row| (row, true));
        let mut fresh: Vec<CapturedRow> = fresh.chain(ready).collect();
        let (schema, store) = (self.state_schema(), self.store.frozen());
        let (of_table, kept_from) = (Arc::clone(&schema), self.serials.kept_from());
        let rows = Box::new(move || {
            fresh.sort_unstable_by_key(|(row, _)| row.arrival);
            let rows = batches(&fresh, kept_from, &store, &of_table)?;
            Ok(TableRows { rows, removed: Vec::new() })
        });
        let (name, identity_columns, kept_from) = (ROWS, IDENTITY, Some(kept_from));
        let mut captured = Captured::default();
        let table = CapturedTable { name, schema, extent, identity_columns, kept_from, rows };
        captured.tables.push(table);
        let sent_on: ArrayRef = Arc::new(Int64Array::from(vec![self.sent_on]));
        let columns = vec![(SENT_ON.to_owned(), sent_on)];
        add_table(&mut captured, PROGRESS, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// Restores what was captured.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table(PROGRESS) {
            let sent_on = typed::<Int64Type>(batch, SENT_ON)?.iter().flatten().max();
            self.sent_on = self.sent_on.max(sent_on);
        }
        by_serial(restored.table(ROWS))?.iter().try_for_each(|batch| self.restore_rows(batch))?;
        // A row is made ready when all that sort before it are, so times and keys say in which
        // order.
        let store = &self.store;
        self.ready
            .make_contiguous()
            .sort_by(|a, b| a.time.cmp(&b.time).then_with(|| store.compare_keys(a.place, b.place)));
        Ok(())
    }

    fn restore_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = kept_columns(batch, &self.state_schema(), self.schema.len())?;
        let rows = batch_of(&self.schema.arrow(), columns, batch.num_rows())?;
        let ready = flags(batch, READY)?;
        let times = self.times(&rows)?;
        let keys = self.encoder.as_ref().map(|encoder| encoder.encode(&rows)).transpose()?;
        let stored = self.store.add(rows, keys);
        for (row, &time) in times.iter().enumerate() {
            let place = self.store.keep(stored, row as u32);
            let entry = TimedRow { time, arrival: self.arrivals, place };
            self.arrivals += 1;
            match ready.is_valid(row) && ready.value(row) {
                true => self.ready.push_back(entry),
                false => self.waiting.push(Reverse(entry)),
            }
        }
        self.store.release_if_unused(stored);
        Ok(())
    }
}
