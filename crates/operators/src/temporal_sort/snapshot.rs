//! What a sort by time tells of its state: the rows that are ready, in their order, then those that wait,
//! in the order in which they came, and the last time that has been sent on.

use std::cmp::Reverse;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Restored, Result};

use super::store::{Place, Store};
use super::{Entry, TemporalSortPartition};
use crate::tables::{
    KEPT_ROWS_MAX, flags, for_all, kept_batch, kept_columns, kept_schema, state_batch, tell, typed,
};

const ROWS: &str = "rows";
/// The watermark before some row has passed this one.
const READY: &str = "$ready";
const PROGRESS: &str = "progress";
const SENT_ON: &str = "sent_on";

/// The rows at these places; so many of the first are ready.
fn batches(
    places: &[Place],
    ready: usize,
    store: &Store,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let batch = |(number, places): (usize, &[Place])| {
        let from = number * KEPT_ROWS_MAX;
        let is_ready = (from..from + places.len()).map(|place| Some(place < ready));
        let own: ArrayRef = Arc::new(is_ready.collect::<BooleanArray>());
        let columns = store.read(places)?.columns().to_vec();
        kept_batch(schema, for_all(places.len()), vec![own], columns)
    };
    places.chunks(KEPT_ROWS_MAX).enumerate().map(batch).collect()
}

impl TemporalSortPartition {
    fn state_schema(&self) -> SchemaRef {
        kept_schema(&[(READY, Arrow::Boolean)], &self.schema)
    }

    /// Tells the rows and how far they have been sent on.
    pub(super) fn tell(&self) -> Result<Captured> {
        let mut waiting: Vec<Entry> = self.waiting.iter().map(|entry| entry.0).collect();
        let ready: Vec<Place> = self.ready.iter().map(|entry| entry.place).collect();
        let (schema, store) = (self.state_schema(), self.store.frozen());
        let of_table = Arc::clone(&schema);
        let make = move || {
            waiting.sort_unstable_by_key(|entry| entry.arrival);
            let mut places = ready;
            let count = places.len();
            places.extend(waiting.iter().map(|entry| entry.place));
            let rows = batches(&places, count, &store, &of_table)?;
            Ok(TableRows { rows, removed: Vec::new() })
        };
        let mut captured = Captured::default();
        captured.add_later(ROWS, schema, Box::new(make));
        let sent_on: ArrayRef = Arc::new(Int64Array::from(vec![self.sent_on]));
        let columns = vec![(SENT_ON.to_owned(), sent_on)];
        tell(&mut captured, PROGRESS, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// Takes back what was told.
    pub(super) fn take_back(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table(PROGRESS) {
            let sent_on = typed::<Int64Type>(batch, SENT_ON)?.iter().flatten().max();
            self.sent_on = self.sent_on.max(sent_on);
        }
        for batch in restored.table(ROWS) {
            self.take_back_rows(batch)?;
        }
        Ok(())
    }

    fn take_back_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = kept_columns(batch, &self.state_schema(), self.schema.len())?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(self.schema.arrow(), columns, &options)?;
        let ready = flags(batch, READY)?;
        let times = self.times(&rows)?;
        let keys = self.encoder.as_ref().map(|encoder| encoder.encode(&rows)).transpose()?;
        let stored = self.store.add(rows, keys);
        for (row, &time) in times.iter().enumerate() {
            let place = self.store.keep(stored, row as u32);
            let entry = Entry { time, arrival: self.arrivals, place };
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
