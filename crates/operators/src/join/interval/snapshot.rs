//! What captures write of an interval join: the rows of each side that someone can still meet or
//! that may leave without a partner, and the watermark it has seen.
//!
//! | column | |
//! |---|---|
//! | `$serial` | names a row, and goes up in the order in which rows came |
//! | `$matched` | whether it has found a partner, where that matters |
//! | the columns of the side | |
//!
//! Of the few rows that came behind the watermark, a second table of the side says:
//!
//! | column | |
//! |---|---|
//! | `$serial` | the row |
//! | `$reach` | the lowest time of a partner |
//! | `$due` | where rows leave without a partner: the watermark at which it has left, if it came when its own time was over; else NULL |
//!
//! Rows go with their chunk (`rows::chunk_capture`), so there are also rows that are done. They
//! meet nobody (`bounds`), have left, and are not restored. Whether a row is in the index, when
//! it leaves, and which rows are before which, follows from the columns, the watermark and the
//! order. Nothing leaves while this is asked, and no pair waits. All partitions have seen one
//! watermark, and each is higher than the one before.
//!
//! Rows do not change but for `$matched`, so captures take chunks as they are.
//!
//! A side whose columns nobody reads has none in its chunks. It is captured from the index, in
//! which rows of a stretch of time stand in the order in which they came; rows that are done
//! expire:
//!
//! | column | |
//! |---|---|
//! | `$time` | the time of the row |
//! | `$serial` | as above |
//! | `$reach` | the lowest time of a partner, where its own time does not say it |
//! | `$hash` | that of its key |

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt8Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::snapshot::{CapturedTable, PARTITION_COLUMN, TableRows};
use thalweg_core::{Captured, Extent, Restored, Result, TableChanges, TableSchema};

use super::IntervalContext;
use super::partition::{IntervalPartition, KeptSide};
use crate::capture::rows::{RowName, SERIAL, SERIAL_IDENTITY, by_serial, removed};
use crate::join::sides::Side;
use crate::keys::hash_keys;
use crate::rows::chunk_capture::{CapturedChunk, CapturedChunks, Notes, together};
use crate::rows::chunks::RowRef;
use crate::rows::columns::{keys_of, take_all};
use crate::rows::input;
use crate::tables::{
    KEPT_ROWS_MAX, add_table, flags, for_all, kept_batch, kept_columns, kept_schema, numbers,
    numbers_of, owners, state_batch, typed,
};

/// The tables of state, by side, and that of the watermark.
const TABLES: [&str; 2] = ["left", "right"];
/// The tables of what is known of rows that came behind the watermark, by side.
const LATE_TABLES: [&str; 2] = ["left_late", "right_late"];
const WATERMARK: &str = "watermark";
const REACH: &str = "$reach";
const DUE: &str = "$due";
const MATCHED: &str = "$matched";
const TIME: &str = "$time";
const HASH: &str = "$hash";
/// The partition, the time and the serial name a row of a side whose columns nobody reads.
const UNREAD_IDENTITY: usize = 3;

/// A row of a side whose columns nobody reads.
struct UnreadRow {
    serial: u64,
    hash: u64,
    time: i64,
    reach: Option<i64>,
}

/// The lowest time of a partner, and the watermark at which a row has left, where its own time does
/// not say them.
type Times = (Option<i64>, Option<i64>);

/// How a side is captured.
#[derive(Clone, Copy)]
struct Shape {
    side: Side,
    marks: bool,
    pads: bool,
}

/// What is read of a captured row.
struct Rows {
    columns: Vec<ArrayRef>,
    times: ScalarBuffer<i64>,
    hashes: Vec<u64>,
    joinable: Option<NullBuffer>,
}

impl IntervalContext {
    /// The columns that are captured of the rows of a side.
    fn captured_columns(&self, side: Side) -> TableSchema {
        match self.joined.reads(side) {
            true => self.spec.join.sides.schema(side).clone(),
            false => TableSchema::new(Vec::new()),
        }
    }

    fn state_schema(&self, shape: Shape) -> SchemaRef {
        let reads = self.joined.reads(shape.side);
        let mut own = Vec::new();
        if reads {
            own.push((SERIAL, Arrow::UInt64));
        }
        if shape.marks {
            own.push((MATCHED, Arrow::Boolean));
        }
        if !reads {
            own.extend([(TIME, Arrow::Int64), (SERIAL, Arrow::UInt64)]);
            own.extend([(REACH, Arrow::Int64), (HASH, Arrow::UInt64)]);
        }
        kept_schema(&own, &self.captured_columns(shape.side))
    }

    fn time(&self, side: Side) -> usize {
        side.pick(self.spec.left_time, self.spec.right_time)
    }

    /// Rows of a chunk as rows of the table; none if they are not captured.
    fn chunk_batch(
        &self,
        shape: Shape,
        schema: &SchemaRef,
        chunk: &CapturedChunk,
    ) -> Result<RecordBatch> {
        let is_captured = self.captured_of(shape, chunk);
        let rows: Vec<u32> = (0..chunk.rows as u32).filter(|&row| is_captured(row)).collect();
        let serials = rows.iter().map(|&row| chunk.first + u64::from(row));
        let mut own: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from_iter_values(serials))];
        if shape.marks {
            let matched = rows.iter().map(|&row| Some(is_set(&chunk.matched, row)));
            own.push(Arc::new(matched.collect::<BooleanArray>()));
        }
        let columns = take_all(&chunk.columns, &rows)?;
        let keys = keys_of(&columns, self.spec.join.keys(shape.side));
        kept_batch(schema, owners(hash_keys(&keys, rows.len())?.into_iter()), own, columns)
    }

    /// Which rows of a chunk are captured.
    fn captured_of<'a>(&self, shape: Shape, chunk: &'a CapturedChunk) -> impl Fn(u32) -> bool + 'a {
        let keys = keys_of(&chunk.columns, self.spec.join.keys(shape.side));
        let joinable = if shape.pads { None } else { input::joinable(&keys) };
        let mut is_kept = vec![true; chunk.rows];
        chunk.notes.left_out.iter().for_each(|&row| is_kept[row as usize] = false);
        move |row| {
            is_kept[row as usize]
                && joinable.as_ref().is_none_or(|joinable| joinable.is_valid(row as usize))
                && chunk.wanted.as_ref().is_none_or(|wanted| is_set(wanted, row))
        }
    }

    /// What is known of rows of a chunk that came behind the watermark. It never changes.
    fn late_batch(&self, shape: Shape, chunk: &CapturedChunk) -> Result<RecordBatch> {
        let is_captured = self.captured_of(shape, chunk);
        let rows: Vec<u32> =
            chunk.notes.timed().into_iter().filter(|&row| is_captured(row)).collect();
        let columns = take_all(&chunk.columns, &rows)?;
        let keys = keys_of(&columns, self.spec.join.keys(shape.side));
        let owners = owners(hash_keys(&keys, rows.len())?.into_iter());
        let serials = rows.iter().map(|&row| chunk.first + u64::from(row));
        let serials: ArrayRef = Arc::new(UInt64Array::from_iter_values(serials));
        let reaches = noted(&chunk.notes.reaches, &rows);
        let dues = noted(&chunk.notes.dues, &rows);
        Ok(RecordBatch::try_new(late_schema(), vec![owners, serials, reaches, dues])?)
    }

    /// Rows of a side whose columns nobody reads.
    fn unread_batch(&self, schema: &SchemaRef, rows: &[UnreadRow]) -> Result<RecordBatch> {
        let hashes = || rows.iter().map(|row| row.hash);
        let own: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.time))),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.serial))),
            Arc::new(rows.iter().map(|row| row.reach).collect::<Int64Array>()),
            Arc::new(UInt64Array::from_iter_values(hashes())),
        ];
        kept_batch(schema, owners(hashes()), own, Vec::new())
    }

    fn rows_of(&self, shape: Shape, batch: &RecordBatch) -> Result<Rows> {
        let side = shape.side;
        let count = self.captured_columns(side).len();
        let columns = kept_columns(batch, &self.state_schema(shape), count)?;
        if !self.joined.reads(side) {
            let times = numbers_of::<Int64Type>(batch, TIME)?.to_vec().into();
            let hashes = numbers_of::<UInt64Type>(batch, HASH)?.to_vec();
            return Ok(Rows { columns, times, hashes, joinable: None });
        }
        let times = input::times(&columns, self.time(side), self.spec.join.sides.schema(side))?;
        let keys = keys_of(&columns, self.spec.join.keys(side));
        let hashes = hash_keys(&keys, batch.num_rows())?;
        Ok(Rows { columns, times, hashes, joinable: input::joinable(&keys) })
    }
}

#[inline]
fn is_set(bits: &[u64], row: u32) -> bool {
    bits[row as usize / 64] >> (row % 64) & 1 == 1
}

fn late_schema() -> SchemaRef {
    let columns = [(SERIAL, Arrow::UInt64), (REACH, Arrow::Int64), (DUE, Arrow::Int64)];
    kept_schema(&columns, &TableSchema::new(Vec::new()))
}

/// What is noted of these rows, and NULL for those of which nothing is.
fn noted(notes: &[(u32, i64)], rows: &[u32]) -> ArrayRef {
    let notes: HashMap<u32, i64> = notes.iter().copied().collect();
    Arc::new(rows.iter().map(|row| notes.get(row).copied()).collect::<Int64Array>())
}

impl KeptSide {
    fn shape(&self, side: Side) -> Shape {
        Shape { side, marks: self.marks, pads: self.pads }
    }

    /// Captures a side as its chunks are: its rows, and what is known of late ones.
    fn capture(
        &mut self,
        shared: &Arc<IntervalContext>,
        side: Side,
        extent: Extent,
    ) -> [CapturedTable; 2] {
        let shape = self.shape(side);
        let CapturedChunks { extent, chunks, gone, gone_timed } =
            self.chunks.capture(extent, shared.spec.join.keys(side));
        let is_late = |chunk: &&CapturedChunk| chunk.wanted.is_none() && chunk.notes.is_timed();
        let late: Vec<CapturedChunk> = chunks.iter().filter(is_late).cloned().collect();
        let rows = {
            let (shared, schema) = (Arc::clone(shared), shared.state_schema(shape));
            Box::new(move || {
                let rows = chunks.iter().map(|chunk| shared.chunk_batch(shape, &schema, chunk));
                Ok(TableRows { rows: together(&schema, rows)?, removed: removed(&gone)? })
            })
        };
        let late_rows = {
            let shared = Arc::clone(shared);
            Box::new(move || {
                let rows = late.iter().map(|chunk| shared.late_batch(shape, chunk));
                Ok(TableRows {
                    rows: together(&late_schema(), rows)?,
                    removed: removed(&gone_timed)?,
                })
            })
        };
        let table = |name, schema, rows| CapturedTable {
            name,
            schema,
            extent,
            identity_columns: SERIAL_IDENTITY,
            kept_from: None,
            rows,
        };
        let schema = shared.state_schema(shape);
        [
            table(TABLES[side as usize], schema, rows),
            table(LATE_TABLES[side as usize], late_schema(), late_rows),
        ]
    }

    /// Captures a side whose columns nobody reads: the rows that matter from this watermark on.
    fn capture_unread(
        &mut self,
        shared: &Arc<IntervalContext>,
        side: Side,
        watermark: i64,
        extent: Extent,
    ) -> CapturedTable {
        // At the end nothing is later, so nothing would expire.
        let is_whole = !std::mem::replace(&mut self.is_captured, true) || watermark == i64::MAX;
        let extent = if is_whole { Extent::Full } else { extent };
        let kept_from = shared.bounds.kept_from(side, watermark);
        let (mut rows, chunks) = (Vec::new(), &self.chunks);
        self.timeline.capture(extent, |indexed| {
            let super::index::Indexed { hash, time, row, reach } = indexed;
            if time >= kept_from {
                rows.push(UnreadRow { serial: chunks.arrival(row), hash, time, reach });
            }
        });
        let (shared, schema) = (Arc::clone(shared), shared.state_schema(self.shape(side)));
        let of_table = Arc::clone(&schema);
        let make = Box::new(move || {
            rows.sort_unstable_by_key(|row| row.serial);
            let batch = |rows: &[UnreadRow]| shared.unread_batch(&of_table, rows);
            let rows = rows.chunks(KEPT_ROWS_MAX).map(batch).collect::<Result<_>>()?;
            Ok(TableRows { rows, removed: Vec::new() })
        });
        let (name, identity_columns) = (TABLES[side as usize], UNREAD_IDENTITY);
        let kept_from = Some(kept_from);
        CapturedTable { name, schema, extent, identity_columns, kept_from, rows: make }
    }
}

impl IntervalPartition {
    /// Captures both sides.
    pub(super) fn capture_state(&mut self, extent: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        let (shared, watermark) = (Arc::clone(&self.shared), self.watermark);
        for side in [Side::Left, Side::Right] {
            let kept = self.kept(side);
            match shared.joined.reads(side) {
                true => captured.tables.extend(kept.capture(&shared, side, extent)),
                false => {
                    captured.tables.push(kept.capture_unread(&shared, side, watermark, extent))
                }
            }
        }
        let watermark: ArrayRef = Arc::new(Int64Array::from(vec![watermark]));
        let columns = vec![(WATERMARK.to_owned(), watermark)];
        add_table(&mut captured, WATERMARK, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// What is known before a capture of the sides whose rows are named when they go. The rows of
    /// others expire.
    pub(super) fn changes(&mut self) -> Vec<TableChanges> {
        let shared = Arc::clone(&self.shared);
        let sides = [Side::Left, Side::Right].into_iter();
        let sides = sides.filter(|&side| shared.joined.reads(side));
        sides.filter_map(|side| self.kept(side).chunks.changes(TABLES[side as usize])).collect()
    }

    /// Stops tracking the changes of a side, by the name of its table.
    pub(super) fn stop_tracking_of(&mut self, table: &str) {
        let mut sides = [Side::Left, Side::Right].into_iter();
        if let Some(side) = sides.find(|&side| TABLES[side as usize] == table) {
            self.kept(side).chunks.stop_tracking();
        }
    }

    /// Restores what partitions captured.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        let watermarks = numbers::<Int64Type>(restored, WATERMARK, WATERMARK)?;
        self.watermark = watermarks.into_iter().max().unwrap_or(i64::MIN);
        for side in [Side::Left, Side::Right] {
            let table = restored.table(TABLES[side as usize]);
            let late = Late::read(restored.table(LATE_TABLES[side as usize]))?;
            by_serial(table)?.iter().try_for_each(|batch| self.restore_rows(side, batch, &late))?;
        }
        Ok(())
    }

    fn restore_rows(&mut self, side: Side, batch: &RecordBatch, late: &Late) -> Result<()> {
        let (shared, watermark) = (Arc::clone(&self.shared), self.watermark);
        let kept = self.kept(side);
        let rows = shared.rows_of(kept.shape(side), batch)?;
        let times = match shared.joined.reads(side) {
            true => late.of(batch)?,
            false => typed::<Int64Type>(batch, REACH)?.iter().map(|reach| (reach, None)).collect(),
        };
        let matched = if kept.marks { Some(flags(batch, MATCHED)?) } else { None };
        let chunk = kept.chunks.add(rows.columns, batch.num_rows(), kept.marks);
        let (mut holds, mut notes) = (0, Notes::default());
        for (place, (&time, &hash)) in rows.times.iter().zip(&rows.hashes).enumerate() {
            let row = RowRef { chunk, row: place as u32 };
            let done_at = shared.bounds.done_at(side, time);
            let (reach, due) = times[place];
            if due.unwrap_or(done_at) <= watermark {
                notes.left_out.push(row.row);
                continue;
            }
            notes.dues.extend(due.map(|due| (row.row, due)));
            if matched.is_some_and(|matched| matched.is_valid(place) && matched.value(place)) {
                kept.chunks.set_matched(row);
            }
            if kept.pads {
                kept.waiting.push(done_at, row);
                holds += 1;
            }
            let joins = rows.joinable.as_ref().is_none_or(|nulls| nulls.is_valid(place));
            if joins && done_at > watermark {
                notes.reaches.extend(reach.map(|reach| (row.row, reach)));
                kept.timeline.insert(hash, time, row, reach);
                holds += 1;
            }
        }
        kept.chunks.note(chunk, notes);
        kept.chunks.hold(chunk, holds);
        kept.chunks.release(chunk, 1);
        Ok(())
    }
}

/// Times of rows that came behind the watermark, by name: partitions number their rows on their
/// own.
#[derive(Default)]
struct Late(HashMap<RowName, Times>);

impl Late {
    fn read(table: &[RecordBatch]) -> Result<Late> {
        let mut late = Late::default();
        for batch in table {
            let reaches = typed::<Int64Type>(batch, REACH)?.iter();
            let times = reaches.zip(typed::<Int64Type>(batch, DUE)?);
            late.0.extend(names(batch)?.zip(times));
        }
        Ok(late)
    }

    fn of(&self, rows: &RecordBatch) -> Result<Vec<Times>> {
        let times = |name| self.0.get(&name).copied().unwrap_or_default();
        Ok(names(rows)?.map(times).collect())
    }
}

fn names(rows: &RecordBatch) -> Result<impl Iterator<Item = RowName>> {
    let owners = numbers_of::<UInt8Type>(rows, PARTITION_COLUMN)?;
    let serials = numbers_of::<UInt64Type>(rows, SERIAL)?;
    Ok(owners.iter().copied().zip(serials.iter().copied()))
}
