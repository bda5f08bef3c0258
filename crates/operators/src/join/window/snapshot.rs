//! What captures write of a window join: the rows of each side.
//!
//! | column of `left_rows` and `right_rows` | |
//! |---|---|
//! | the end of the window | |
//! | `$serial` | names a row, and goes up in the order in which rows came |
//! | the other columns of the side | among them the start of the window and the key |
//!
//! Rows of windows whose end was over when the first of them came stand in `left_late` and
//! `right_late`: `$expires` (some time beyond the end), `$serial`, all columns of the side.
//!
//! A side whose columns nobody reads has `$window_end`, `$serial` and `$window_start` (both times
//! in milliseconds), and the columns of the key; where rows are late, `$expires`, `$serial`,
//! `$window_start`, `$window_end` and those. What a window knows besides comes again with its rows.
//! No window leaves while this is asked.
//!
//! Rows never change, so captures write those that have come since the one before; those of windows
//! that have closed expire ([`crate::capture::serials`]). Where rows lie is noted, and they are put
//! together later.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType as Arrow, SchemaRef};
use arrow_select::concat::concat_batches;
use thalweg_core::snapshot::{CapturedTable, MakeRows, TableRows};
use thalweg_core::{Captured, Column, DataType, Extent, Restored, Result, TableSchema};

use super::state::{KeptRow, Window, WindowRows};
use super::{WindowJoinContext, WindowJoinPartition};
use crate::capture::rows::{SERIAL, by_serial};
use crate::join::sides::Side;
use crate::rows::chunks::{Chunks, RowRef};
use crate::rows::columns::schema_of;
use crate::rows::input;
use crate::tables::{
    KEPT_ROWS_MAX, KeyedTable, kept_batch, kept_columns, kept_schema, numbers_of, owners,
};

/// The tables of state, by side.
const TABLES: [&str; 2] = ["left_rows", "right_rows"];
const LATE: [&str; 2] = ["left_late", "right_late"];
const EXPIRES: &str = "$expires";
/// The partition, when it expires, and the serial name a row.
const IDENTITY: usize = 3;
const WINDOW_START: &str = "$window_start";
const WINDOW_END: &str = "$window_end";

/// Windows with fewer rows share a batch. What is restored of a batch stays until its last window
/// leaves.
const WINDOW_ROWS_MIN: usize = KEPT_ROWS_MAX / 8;

/// A row that is captured: where it lies, the hash of its key, when it expires, and its serial.
type CapturedRow = (RowRef, u64, i64, u64);

/// How rows of windows are captured.
enum RowTable {
    /// By the end of their window.
    Timed(KeyedTable),
    /// With a column that says when they expire.
    Expiring(SchemaRef),
}

impl RowTable {
    fn schema(&self) -> SchemaRef {
        match self {
            RowTable::Timed(table) => table.schema(),
            RowTable::Expiring(schema) => Arc::clone(schema),
        }
    }

    /// `starts` are those of the windows, of a side whose columns nobody reads: its first column is
    /// their end.
    fn batch(
        &self,
        rows: &[CapturedRow],
        starts: Option<ArrayRef>,
        columns: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let (owners, mut own) = marks(rows);
        own.extend(starts);
        match self {
            RowTable::Timed(table) => table.batch(owners, own.split_off(1), columns),
            RowTable::Expiring(schema) => kept_batch(schema, owners, own, columns),
        }
    }
}

impl WindowJoinContext {
    /// The rows of a side by the end of their window.
    fn timed_table(&self, side: Side) -> KeyedTable {
        let own = [(SERIAL, Arrow::UInt64), (WINDOW_START, Arrow::Int64)];
        if self.joined.reads(side) {
            let (schema, end) = (self.spec.join.sides.schema(side), self.window(side).1);
            return KeyedTable::new(&own[..1], schema, &[end]);
        }
        let end = Column::new(WINDOW_END, DataType::BigInt.not_null());
        let columns = std::iter::once(end).chain(self.captured_columns(side).columns);
        KeyedTable::new(&own, &TableSchema::new(columns.collect()), &[0])
    }

    /// Rows that are captured by the end of their window, as they are captured where they say when
    /// they expire.
    fn with_expiry(&self, side: Side, batch: &RecordBatch) -> Result<RecordBatch> {
        let table = self.timed_table(side);
        let columns = table.columns(batch)?;
        let ends = match self.joined.reads(side) {
            true => input::times(&columns, self.window(side).1, self.spec.join.sides.schema(side))?,
            false => numbers_of::<Int64Type>(batch, WINDOW_END)?.to_vec().into(),
        };
        let expires = Int64Array::new(ends, None);
        table.by_expiry(batch, (&self.state_schema(side), expires), columns)
    }

    /// The columns that are captured of the rows of a side.
    fn captured_columns(&self, side: Side) -> TableSchema {
        let schema = self.spec.join.sides.schema(side);
        match self.joined.reads(side) {
            true => schema.clone(),
            false => schema_of(schema, self.spec.join.keys(side)),
        }
    }

    fn state_schema(&self, side: Side) -> SchemaRef {
        let window = [(WINDOW_START, Arrow::Int64), (WINDOW_END, Arrow::Int64)];
        let mut own = vec![(EXPIRES, Arrow::Int64), (SERIAL, Arrow::UInt64)];
        if !self.joined.reads(side) {
            own.extend(window);
        }
        kept_schema(&own, &self.captured_columns(side))
    }

    fn rows_of(&self, side: Side, batch: &RecordBatch) -> Result<(WindowRows, Vec<ArrayRef>)> {
        let schema = self.state_schema(side);
        let columns = kept_columns(batch, &schema, self.captured_columns(side).len())?;
        if self.joined.reads(side) {
            return Ok((self.window_rows(side, &columns)?, columns));
        }
        let times = |name| -> Result<ScalarBuffer<i64>> {
            Ok(numbers_of::<Int64Type>(batch, name)?.to_vec().into())
        };
        let joinable = input::joinable(&columns);
        let (starts, ends) = (times(WINDOW_START)?, times(WINDOW_END)?);
        Ok((WindowRows { starts, ends, keys: columns, joinable }, Vec::new()))
    }
}

/// The columns of all sides in front of those of the rows.
fn marks(rows: &[CapturedRow]) -> (ArrayRef, Vec<ArrayRef>) {
    let expires = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
    let serials = UInt64Array::from_iter_values(rows.iter().map(|row| row.3));
    (owners(rows.iter().map(|row| row.1)), vec![Arc::new(expires), Arc::new(serials)])
}

/// Rows of windows as batches that begin with a window, where windows are not tiny.
fn batches(
    windows: Vec<Vec<CapturedRow>>,
    chunks: &Chunks,
    table: &RowTable,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    let mut open: Vec<CapturedRow> = Vec::new();
    let last = windows.len();
    for (place, window) in (1..).zip(windows) {
        open.extend(window);
        if open.len() < WINDOW_ROWS_MIN && place < last {
            continue;
        }
        for rows in open.chunks(KEPT_ROWS_MAX) {
            let refs: Vec<RowRef> = rows.iter().map(|&(row, ..)| row).collect();
            batches.push(table.batch(rows, None, chunks.gather(&refs)?)?);
        }
        open.clear();
    }
    Ok(batches)
}

impl WindowJoinPartition {
    /// Captures both sides.
    pub(super) fn capture_state(&mut self, extent: Extent) -> Result<Captured> {
        self.orders.settle(self.windows.values_mut(), &mut self.chunks);
        let next = [Side::Left, Side::Right].map(|side| self.chunks[side as usize].arrivals());
        let (extent, since) = self.serials.begin(extent, next);
        let mut captured = Captured::default();
        for side in [Side::Left, Side::Right] {
            let first = since.map_or(0, |since| since[side as usize]);
            for is_late in [false, true] {
                let (names, table) = match is_late {
                    false => (TABLES, RowTable::Timed(self.shared.timed_table(side))),
                    true => (LATE, RowTable::Expiring(self.shared.state_schema(side))),
                };
                let (name, schema) = (names[side as usize], table.schema());
                let rows = match self.shared.joined.reads(side) {
                    true => self.capture_rows(side, first, is_late, table),
                    false => self.capture_keys(side, first, is_late, &table)?,
                };
                let (identity_columns, kept_from) = (IDENTITY, Some(self.serials.kept_from()));
                let table =
                    CapturedTable { name, schema, extent, identity_columns, kept_from, rows };
                captured.tables.push(table);
            }
        }
        Ok(captured)
    }

    /// The rows of a window from a serial on, and their keys.
    fn rows_from(&self, side: Side, first: u64, end: i64, window: &Window) -> Vec<CapturedRow> {
        let chunks = &self.chunks[side as usize];
        let rows = &window.rows[side as usize];
        let from = rows.partition_point(|kept| chunks.arrival(kept.row) < first);
        let expires = end.max(self.serials.kept_from());
        let captured = |kept: &KeptRow| {
            (kept.row, window.keys.hash_of(kept.key), expires, chunks.arrival(kept.row))
        };
        rows[from..].iter().map(captured).collect()
    }

    /// Windows whose end was over when the first of their rows came, or all others.
    fn captured_windows(&self, is_late: bool) -> impl Iterator<Item = (&i64, &Window)> {
        let kept_from = self.serials.kept_from();
        self.windows.iter().filter(move |&(&end, _)| (end < kept_from) == is_late)
    }

    /// The rows of such windows from a serial on.
    fn capture_rows(&self, side: Side, first: u64, is_late: bool, table: RowTable) -> MakeRows {
        let windows = self.captured_windows(is_late);
        let windows = windows.map(|(&end, window)| self.rows_from(side, first, end, window));
        let windows: Vec<Vec<CapturedRow>> = windows.filter(|rows| !rows.is_empty()).collect();
        let chunks = self.chunks[side as usize].frozen();
        Box::new(move || {
            let rows = batches(windows, &chunks, &table)?;
            Ok(TableRows { rows, removed: Vec::new() })
        })
    }

    /// The same of a side whose columns nobody reads.
    fn capture_keys(
        &self,
        side: Side,
        first: u64,
        is_late: bool,
        table: &RowTable,
    ) -> Result<MakeRows> {
        let mut batches = Vec::with_capacity(self.windows.len());
        for (&end, window) in self.captured_windows(is_late) {
            let captured = self.rows_from(side, first, end, window);
            let rows = &window.rows[side as usize];
            let rows = &rows[rows.len() - captured.len()..];
            let ids: Vec<u32> = rows.iter().map(|kept| kept.key).collect();
            let starts = Int64Array::from_iter_values(rows.iter().map(|kept| kept.start));
            let mut columns: Vec<ArrayRef> =
                vec![Arc::new(Int64Array::from_value(end, rows.len()))];
            columns.extend(window.keys.take_keys(&ids)?);
            batches.push(table.batch(&captured, Some(Arc::new(starts)), columns)?);
        }
        let rows = vec![concat_batches(&table.schema(), &batches)?];
        Ok(Box::new(move || Ok(TableRows { rows, removed: Vec::new() })))
    }

    /// Restores what partitions captured. All rows that were kept are kept again.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        for side in [Side::Left, Side::Right] {
            let tables = |of: [&str; 2]| restored.table(of[side as usize]).iter();
            let timed = tables(TABLES).map(|batch| self.shared.with_expiry(side, batch));
            let late = tables(LATE).map(|batch| {
                let schema = self.shared.state_schema(side);
                kept_columns(batch, &schema, 0).map(|_| batch.clone())
            });
            let batches = timed.chain(late).collect::<Result<Vec<_>>>()?;
            for batch in &by_serial(&batches)? {
                let (rows, columns) = self.shared.rows_of(side, batch)?;
                self.grouping.clear();
                for (place, &end) in rows.ends.iter().enumerate() {
                    self.grouping.add(end, place as u32);
                }
                self.keep(side, &rows, columns, None)?;
            }
        }
        Ok(())
    }
}
