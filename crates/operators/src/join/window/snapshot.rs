//! What a window join tells of its state: the rows of each side, window by window, those of a window in
//! the order in which they came.
//!
//! The columns are those of the side, among which are the window and the key. A side whose columns
//! nobody reads has `$window_start` and `$window_end` in milliseconds and the columns of the key. What a
//! window knows besides comes again with its rows. No window leaves while this is asked.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType as Arrow, SchemaRef};
use arrow_select::concat::concat_batches;
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Column, Restored, Result, TableSchema};

use super::state::{Kept, WindowRows};
use super::{Shared, WindowJoinPartition};
use crate::join::bounded::chunks::{Chunks, RowRef};
use crate::join::bounded::pieces;
use crate::join::sides::Side;
use crate::tables::{
    KEPT_ROWS_MAX, kept_batch, kept_columns, kept_schema, numbers_of, owners, tell,
};

/// The tables of state, by side.
const TABLES: [&str; 2] = ["left", "right"];
const WINDOW_START: &str = "$window_start";
const WINDOW_END: &str = "$window_end";

/// Windows with fewer rows share a batch. What is restored of a batch stays until its last window leaves.
const WINDOW_ROWS_MIN: usize = KEPT_ROWS_MAX / 8;

/// Rows of one window, and the hashes of their keys.
type OfWindow = Vec<(RowRef, u64)>;

impl Shared {
    /// The columns that are told of the rows of a side.
    fn told_columns(&self, side: Side) -> TableSchema {
        let schema = self.spec.sides.schema(side);
        match self.joined.reads(side) {
            true => schema.clone(),
            false => {
                let keys = self.keys(side).iter();
                TableSchema::new(keys.map(|&key| Column::clone(&schema.columns[key])).collect())
            }
        }
    }

    fn state_schema(&self, side: Side) -> SchemaRef {
        let window = [(WINDOW_START, Arrow::Int64), (WINDOW_END, Arrow::Int64)];
        let own = if self.joined.reads(side) { &[][..] } else { &window[..] };
        kept_schema(own, &self.told_columns(side))
    }

    fn rows_of(&self, side: Side, batch: &RecordBatch) -> Result<(WindowRows, Vec<ArrayRef>)> {
        let columns = kept_columns(batch, &self.state_schema(side), self.told_columns(side).len())?;
        if self.joined.reads(side) {
            return Ok((self.window_rows(side, &columns)?, columns));
        }
        let times = |name| -> Result<ScalarBuffer<i64>> {
            Ok(numbers_of::<Int64Type>(batch, name)?.to_vec().into())
        };
        let joinable = pieces::joinable(&columns);
        let (starts, ends) = (times(WINDOW_START)?, times(WINDOW_END)?);
        Ok((WindowRows { starts, ends, keys: columns, joinable }, Vec::new()))
    }
}

/// The rows of windows as batches that begin with a window, where windows are not tiny.
fn batches(
    windows: Vec<OfWindow>,
    chunks: &Chunks,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    let mut open: OfWindow = Vec::new();
    let last = windows.len();
    for (place, window) in (1..).zip(windows) {
        open.extend(window);
        if open.len() < WINDOW_ROWS_MIN && place < last {
            continue;
        }
        for rows in open.chunks(KEPT_ROWS_MAX) {
            let refs: Vec<RowRef> = rows.iter().map(|&(row, _)| row).collect();
            let owners = owners(rows.iter().map(|&(_, hash)| hash));
            batches.push(kept_batch(schema, owners, Vec::new(), chunks.gather(&refs)?)?);
        }
        open.clear();
    }
    Ok(batches)
}

impl WindowJoinPartition {
    /// Tells both sides.
    pub(super) fn tell(&self) -> Result<Captured> {
        let mut captured = Captured::default();
        for side in [Side::Left, Side::Right] {
            match self.shared.joined.reads(side) {
                true => self.tell_rows(side, &mut captured),
                false => self.tell_keys(side, &mut captured)?,
            }
        }
        Ok(captured)
    }

    fn tell_rows(&self, side: Side, captured: &mut Captured) {
        let windows = self.windows.values().map(|window| {
            let row = |kept: &Kept| (kept.row, window.keys.hash_of(kept.key));
            window.rows[side as usize].iter().map(row).collect()
        });
        let windows: Vec<OfWindow> = windows.collect();
        let chunks = self.chunks[side as usize].frozen();
        let schema = self.shared.state_schema(side);
        let of_table = Arc::clone(&schema);
        let make = move || {
            let rows = batches(windows, &chunks, &of_table)?;
            Ok(TableRows { rows, removed: Vec::new() })
        };
        captured.add_later(TABLES[side as usize], schema, Box::new(make));
    }

    fn tell_keys(&self, side: Side, captured: &mut Captured) -> Result<()> {
        let schema = self.shared.state_schema(side);
        let mut batches = Vec::with_capacity(self.windows.len());
        for (&end, window) in &self.windows {
            let rows = &window.rows[side as usize];
            let ids: Vec<u32> = rows.iter().map(|kept| kept.key).collect();
            let own: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|kept| kept.start))),
                Arc::new(Int64Array::from_value(end, rows.len())),
            ];
            let owners = owners(ids.iter().map(|&id| window.keys.hash_of(id)));
            batches.push(kept_batch(&schema, owners, own, window.keys.take_keys(&ids)?)?);
        }
        let rows = concat_batches(&schema, &batches)?;
        tell(captured, TABLES[side as usize], rows);
        Ok(())
    }

    /// Takes back what partitions have told. All rows that were kept are kept again.
    pub(super) fn take_back(&mut self, restored: &Restored) -> Result<()> {
        for side in [Side::Left, Side::Right] {
            for batch in restored.table(TABLES[side as usize]) {
                let (rows, columns) = self.shared.rows_of(side, batch)?;
                self.grouping.clear();
                for (place, &end) in rows.ends.iter().enumerate() {
                    self.grouping.add(end, place as u32);
                }
                self.keep(side, &rows, columns)?;
            }
        }
        Ok(())
    }
}
