//! What captures write of rows that wait for a time: those that have come since the last one.
//!
//! | column of `waiting_rows` | |
//! |---|---|
//! | the time of the row | it leaves as far behind it as all do |
//! | `$serial` | names a row, and goes up in the order in which rows came |
//! | `$kind` | where rows are changes: 0 `+I`, 1 `-U`, 2 `+U`, 3 `-D` |
//! | the other columns of the row | |
//!
//! Rows leave when they are due, so they expire and need no names when they go. Rows that came when
//! the watermark in front of them was beyond their time are due later than others, and stand in
//! `late`, with `$expires` (the watermark at which the row leaves), `$serial`, `$kind` and all
//! columns of the row. A row that came when its time was over already leaves at the next watermark:
//! until then it stands in `overdue`, which has the columns of `late` and is captured in full each
//! time.
//!
//! A capture takes the chunks that have come as they are; they are made into rows of the table
//! later.
//!
//! # Example
//!
//! Rows of key `k` that wait for `behind_ms = 0`, captured when watermark 100 has passed:
//!
//! ```text
//! row at 120, came at watermark 90     waiting_rows (expires by its time)
//! row at  95, came at watermark 110    late, $expires = 111
//! row at  95, came at watermark  80    has left
//! row at  70, due at 90, came after watermark 100 had passed here   overdue
//! ```
//!
//! `kept_from` of a table says from which time on rows are still there. A row left out of an
//! incremental capture needs no removal: restoring drops what is older.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{ArrayRef, Int8Array, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{Captured, Extent, Restored, Result, RowKind, TableSchema};

use super::chunk_capture::{CapturedChunk, CapturedChunks, Notes, together};
use super::chunks::{Chunks, RowRef};
use super::columns::take_all;
use crate::capture::rows::{SERIAL, by_serial};
use crate::keys::hash_keys;
use crate::rows::columns::keys_of;
use crate::rows::input::times;
use crate::tables::{
    KeyedTable, does_not_fit, kept_batch, kept_columns, kept_schema, numbers_of, owners,
};

const WAITING: &str = "waiting_rows";
const LATE: &str = "late";
const OVERDUE: &str = "overdue";
const EXPIRES: &str = "$expires";
const KIND: &str = "$kind";
/// The partition, when it expires, and the serial name a row.
const IDENTITY: usize = 3;

/// The tables of rows that wait.
const TABLES: [&str; 3] = [WAITING, LATE, OVERDUE];

/// Where no row waits, no snapshot may hold waiting rows.
///
/// # Errors
/// If there are such rows.
pub(crate) fn nothing_waits(restored: &Restored) -> Result<()> {
    let mut batches = TABLES.into_iter().flat_map(|name| restored.table(name));
    match batches.any(|batch| batch.num_rows() > 0) {
        true => Err(does_not_fit("rows wait, but not for a time".to_owned())),
        false => Ok(()),
    }
}

/// What an operator lets wait.
pub(crate) struct WaitingShape {
    /// The columns of the rows.
    pub(crate) input: TableSchema,
    pub(crate) keys: Vec<usize>,
    pub(crate) rowtime: usize,
    /// How far behind its time a row is due, unless something else is noted.
    pub(crate) behind_ms: i64,
    /// Rows are changes.
    pub(crate) has_kinds: bool,
}

/// The tables of rows that wait.
pub(crate) struct WaitingTables {
    shape: WaitingShape,
    /// Rows that are due as far behind their time as all are.
    timed: KeyedTable,
    /// Rows that say when they are due.
    schema: SchemaRef,
}

/// A row that came when its time was over.
pub(crate) struct OverdueRow {
    pub(crate) due: i64,
    pub(crate) row: RowRef,
    pub(crate) kind: RowKind,
}

/// Rows that are restored.
pub(crate) struct WaitingRows {
    pub(crate) columns: Vec<ArrayRef>,
    pub(crate) times: ScalarBuffer<i64>,
    pub(crate) dues: Vec<i64>,
    /// What each does; all are inserted where it is empty.
    kinds: Vec<RowKind>,
}

impl WaitingRows {
    /// What the row at this place does.
    pub fn kind(&self, place: usize) -> RowKind {
        self.kinds.get(place).copied().unwrap_or(RowKind::Insert)
    }
}

impl WaitingTables {
    pub fn new(shape: WaitingShape) -> Self {
        let kind = shape.has_kinds.then_some((KIND, Arrow::Int8));
        let named = [(EXPIRES, Arrow::Int64), (SERIAL, Arrow::UInt64)].into_iter();
        let named: Vec<_> = named.chain(kind).collect();
        let schema = kept_schema(&named, &shape.input);
        let timed = KeyedTable::new(&named[1..], &shape.input, &[shape.rowtime]);
        WaitingTables { shape, timed, schema }
    }

    /// Notes what a capture has to know of a row of a chunk. All that was due until `passed` has
    /// left.
    #[inline]
    pub fn note(
        &self,
        notes: &mut Notes,
        (row, kind): (u32, RowKind),
        (time, due): (i64, i64),
        passed: i64,
    ) {
        if due <= passed {
            notes.left_out.push(row);
            return;
        }
        if due != self.due_of(time) {
            notes.dues.push((row, due));
        }
        if kind != RowKind::Insert {
            notes.kinds.push((row, kind));
        }
    }

    fn due_of(&self, time: i64) -> i64 {
        time.saturating_add(self.shape.behind_ms)
    }

    /// Captures the rows that wait, if there are any. All that was due until `passed` has left, but
    /// for what came later.
    ///
    /// # Errors
    /// None that is expected.
    pub fn capture(
        self: &Arc<Self>,
        (extent, has_rows): (Extent, bool),
        (chunks, passed): (&mut Chunks, i64),
        overdue: &[OverdueRow],
        captured: &mut Captured,
    ) -> Result<()> {
        // At the end nothing is later, so nothing would expire. And where nothing waits, no
        // watermark need have come for long, so `passed` says little.
        let is_whole = passed == i64::MAX || !has_rows;
        let extent = if is_whole { Extent::Full } else { extent };
        let kept_from = passed.saturating_add(1);
        captured.add(OVERDUE, Arc::clone(&self.schema), self.overdue(overdue, chunks)?);
        let CapturedChunks { extent, chunks, .. } = chunks.capture_expiring(extent);
        let chunks = Arc::new(chunks);
        for is_late in [false, true] {
            let (of_table, chunks) = (Arc::clone(self), Arc::clone(&chunks));
            let (name, schema, behind_ms) = match is_late {
                false => (WAITING, self.timed.schema(), self.shape.behind_ms),
                true => (LATE, Arc::clone(&self.schema), 0),
            };
            let of_schema = Arc::clone(&schema);
            let rows = Box::new(move || {
                let chunks =
                    chunks.iter().filter(|chunk| !(is_late && chunk.notes.dues.is_empty()));
                let batches = chunks.map(|chunk| of_table.batch(chunk, is_late, kept_from));
                Ok(TableRows { rows: together(&of_schema, batches)?, removed: Vec::new() })
            });
            let (identity_columns, kept_from) = (IDENTITY, kept_from.saturating_sub(behind_ms));
            let kept_from = Some(kept_from);
            let table = CapturedTable { name, schema, extent, identity_columns, kept_from, rows };
            captured.tables.push(table);
        }
        Ok(())
    }

    fn overdue(&self, rows: &[OverdueRow], chunks: &Chunks) -> Result<Vec<RecordBatch>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let refs: Vec<RowRef> = rows.iter().map(|row| row.row).collect();
        let serials = refs.iter().map(|&row| chunks.arrival(row));
        let dues = Int64Array::from_iter_values(rows.iter().map(|row| row.due));
        let mut own: Vec<ArrayRef> = vec![Arc::new(dues)];
        own.extend(
            self.own(UInt64Array::from_iter_values(serials), rows.iter().map(|row| row.kind)),
        );
        Ok(vec![self.with_owners(own, chunks.gather(&refs)?, rows.len())?])
    }

    /// The rows of a chunk that have not left: those that are due later than others, or all others.
    fn batch(&self, chunk: &CapturedChunk, is_late: bool, kept_from: i64) -> Result<RecordBatch> {
        let times = times(&chunk.columns, self.shape.rowtime, &self.shape.input)?;
        let mut dues: Vec<i64> = times.iter().map(|&time| self.due_of(time)).collect();
        let mut kinds = vec![RowKind::Insert; if self.shape.has_kinds { chunk.rows } else { 0 }];
        let Notes { left_out, dues: noted, kinds: noted_kinds, .. } = &chunk.notes;
        noted.iter().for_each(|&(row, due)| dues[row as usize] = due);
        noted_kinds.iter().for_each(|&(row, kind)| kinds[row as usize] = kind);
        let mut is_kept: Vec<bool> = dues.iter().map(|&due| !is_late && due >= kept_from).collect();
        for &(row, due) in noted {
            is_kept[row as usize] = is_late && due >= kept_from;
        }
        left_out.iter().for_each(|&row| is_kept[row as usize] = false);
        let rows: Vec<u32> = (0..chunk.rows as u32).filter(|&row| is_kept[row as usize]).collect();
        let mut own = self.own(
            UInt64Array::from_iter_values(rows.iter().map(|&row| chunk.first + u64::from(row))),
            rows.iter().map(|&row| kinds.get(row as usize).copied().unwrap_or(RowKind::Insert)),
        );
        let columns = take_all(&chunk.columns, &rows)?;
        if is_late {
            let dues = Int64Array::from_iter_values(rows.iter().map(|&row| dues[row as usize]));
            own.insert(0, Arc::new(dues));
            return self.with_owners(own, columns, rows.len());
        }
        self.timed.batch(self.owners(&columns, rows.len())?, own, columns)
    }

    fn own(&self, serials: UInt64Array, kinds: impl Iterator<Item = RowKind>) -> Vec<ArrayRef> {
        let mut own: Vec<ArrayRef> = vec![Arc::new(serials)];
        if self.shape.has_kinds {
            own.push(Arc::new(Int8Array::from_iter_values(kinds.map(RowKind::code))));
        }
        own
    }

    fn with_owners(
        &self,
        own: Vec<ArrayRef>,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch> {
        kept_batch(&self.schema, self.owners(&columns, rows)?, own, columns)
    }

    fn owners(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let keys = keys_of(columns, &self.shape.keys);
        Ok(owners(hash_keys(&keys, rows)?.into_iter()))
    }

    /// Rows that are captured by their time, as they are captured where they say when they are due.
    fn with_dues(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.timed.columns(batch)?;
        let times = times(&columns, self.shape.rowtime, &self.shape.input)?;
        let dues = Int64Array::from_iter_values(times.iter().map(|&time| self.due_of(time)));
        self.timed.by_expiry(batch, (&self.schema, dues), columns)
    }

    /// The rows that partitions have captured, in the order in which they came.
    ///
    /// # Errors
    /// If the tables have other columns, or hold what no row has.
    pub fn restored(&self, restored: &Restored) -> Result<Vec<WaitingRows>> {
        let timed = restored.table(WAITING).iter().map(|batch| self.with_dues(batch));
        let others = [LATE, OVERDUE].into_iter().flat_map(|name| restored.table(name));
        let others = others.map(|batch| {
            kept_columns(batch, &self.schema, 0)?;
            Ok(batch.clone())
        });
        let rows = timed.chain(others);
        let rows = by_serial(&rows.collect::<Result<Vec<_>>>()?)?;
        rows.iter().map(|batch| self.rows_of(batch)).collect()
    }

    fn rows_of(&self, batch: &RecordBatch) -> Result<WaitingRows> {
        let input = &self.shape.input;
        let columns = kept_columns(batch, &self.schema, input.len())?;
        let times = times(&columns, self.shape.rowtime, input)?;
        let dues = numbers_of::<Int64Type>(batch, EXPIRES)?.to_vec();
        let codes: &[i8] = match self.shape.has_kinds {
            true => numbers_of::<Int8Type>(batch, KIND)?,
            false => &[],
        };
        let unknown = |code: i8| does_not_fit(format!("{code} is no kind of row"));
        let kind = |&code: &i8| RowKind::from_code(code).ok_or_else(|| unknown(code));
        let kinds = codes.iter().map(kind).collect::<Result<_>>()?;
        Ok(WaitingRows { columns, times, dues, kinds })
    }
}
