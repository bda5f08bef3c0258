//! What an interval join tells of its state: the rows of each side that somebody can still meet or that
//! may leave without a partner, and the watermark it has seen.
//!
//! | column | |
//! |---|---|
//! | `$serial` | names a row, and goes up in the order in which rows came |
//! | `$reach` | the lowest time of a partner, of rows that came behind the watermark; else NULL |
//! | `$due` | where rows leave without a partner: the watermark at which it has left, if it came when its own time was over; else NULL |
//! | `$matched` | whether it has found a partner, where that matters |
//! | the columns of the side | |
//!
//! Rows go with their chunk (`bounded::told`), so there are also rows that are done. They meet nobody
//! (`bounds`), have left, and are not taken back. Whether a row is in the index, when it leaves, and which
//! rows are before which, follows from the columns, the watermark and the order. Nothing leaves while this
//! is asked, and no pair waits. All partitions have seen one watermark, and each is higher than the one
//! before.
//!
//! Rows do not change but for `$matched`, so captures take chunks as they are. A side whose columns nobody
//! reads has none in its chunks: it has `$time` and `$hash` (that of its key) in their place, no serial, and
//! is told whole each time, from the index.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt64Array,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType as Arrow, SchemaRef};
use arrow_select::coalesce::BatchCoalescer;
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{Captured, Extent, Restored, Result, TableSchema};

use super::Shared;
use super::partition::{IntervalPartition, Kept};
use crate::join::bounded::chunks::{RowRef, take_rows};
use crate::join::bounded::pieces;
use crate::join::bounded::told::{Notes, ToldChunk};
use crate::join::sides::Side;
use crate::keys::hash_keys;
use crate::tables::{
    KEPT_ROWS_MAX, flags, for_all, kept_batch, kept_columns, kept_schema, numbers, numbers_of,
    owners, state_batch, tell, typed,
};
use crate::watch::rows::{SERIAL, SERIAL_IDENTITY, by_serial, removed};

/// The tables of state, by side, and that of the watermark.
const TABLES: [&str; 2] = ["left", "right"];
const WATERMARK: &str = "watermark";
const REACH: &str = "$reach";
const DUE: &str = "$due";
const MATCHED: &str = "$matched";
const TIME: &str = "$time";
const HASH: &str = "$hash";

/// A row of a side whose columns nobody reads.
struct Told {
    row: RowRef,
    hash: u64,
    time: i64,
    reach: Option<i64>,
}

/// How a side is told.
#[derive(Clone, Copy)]
struct Shape {
    side: Side,
    marks: bool,
    pads: bool,
}

/// What is read of a told row.
struct Rows {
    columns: Vec<ArrayRef>,
    times: ScalarBuffer<i64>,
    hashes: Vec<u64>,
    joinable: Option<NullBuffer>,
}

impl Shared {
    /// The columns that are told of the rows of a side.
    fn told_columns(&self, side: Side) -> TableSchema {
        match self.joined.reads(side) {
            true => self.spec.sides.schema(side).clone(),
            false => TableSchema::new(Vec::new()),
        }
    }

    fn state_schema(&self, shape: Shape) -> SchemaRef {
        let reads = self.joined.reads(shape.side);
        let mut own = Vec::new();
        if reads {
            own.push((SERIAL, Arrow::UInt64));
        }
        own.push((REACH, Arrow::Int64));
        if shape.pads {
            own.push((DUE, Arrow::Int64));
        }
        if shape.marks {
            own.push((MATCHED, Arrow::Boolean));
        }
        if !reads {
            own.extend([(TIME, Arrow::Int64), (HASH, Arrow::UInt64)]);
        }
        kept_schema(&own, &self.told_columns(shape.side))
    }

    fn keys(&self, side: Side) -> &[usize] {
        match side {
            Side::Left => &self.spec.left_keys,
            Side::Right => &self.spec.right_keys,
        }
    }

    fn time(&self, side: Side) -> usize {
        match side {
            Side::Left => self.spec.left_time,
            Side::Right => self.spec.right_time,
        }
    }

    /// Rows of a chunk as rows of the table; none if they are not told.
    fn chunk_batch(
        &self,
        shape: Shape,
        schema: &SchemaRef,
        chunk: &ToldChunk,
    ) -> Result<RecordBatch> {
        let Shape { side, marks, pads } = shape;
        let keys = pieces::keys_of(&chunk.columns, self.keys(side));
        let joinable = if pads { None } else { pieces::joinable(&keys) };
        let mut is_told = vec![true; chunk.rows];
        chunk.notes.left_out.iter().for_each(|&row| is_told[row as usize] = false);
        let is_set = |bits: &[u64], row: usize| bits[row / 64] >> (row % 64) & 1 == 1;
        let is_wanted = |&row: &u32| {
            let row = row as usize;
            is_told[row]
                && joinable.as_ref().is_none_or(|joinable| joinable.is_valid(row))
                && chunk.wanted.as_ref().is_none_or(|wanted| is_set(wanted, row))
        };
        let rows: Vec<u32> = (0..chunk.rows as u32).filter(is_wanted).collect();
        let serials = rows.iter().map(|&row| chunk.first + u64::from(row));
        let mut own: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from_iter_values(serials))];
        own.push(noted(&chunk.notes.reaches, &rows, chunk.rows));
        if pads {
            own.push(noted(&chunk.notes.dues, &rows, chunk.rows));
        }
        if marks {
            let matched = rows.iter().map(|&row| Some(is_set(&chunk.matched, row as usize)));
            own.push(Arc::new(matched.collect::<BooleanArray>()));
        }
        let columns = take_rows(&chunk.columns, &rows)?;
        let hashes = hash_keys(&pieces::keys_of(&columns, self.keys(side)), rows.len())?;
        kept_batch(schema, owners(hashes.into_iter()), own, columns)
    }

    /// Rows of a side whose columns nobody reads.
    fn unread_batch(&self, schema: &SchemaRef, rows: &[Told]) -> Result<RecordBatch> {
        let hashes = || rows.iter().map(|told| told.hash);
        let own: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|told| told.reach).collect::<Int64Array>()),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|told| told.time))),
            Arc::new(UInt64Array::from_iter_values(hashes())),
        ];
        kept_batch(schema, owners(hashes()), own, Vec::new())
    }

    fn rows_of(&self, shape: Shape, batch: &RecordBatch) -> Result<Rows> {
        let side = shape.side;
        let count = self.told_columns(side).len();
        let columns = kept_columns(batch, &self.state_schema(shape), count)?;
        if !self.joined.reads(side) {
            let times = numbers_of::<Int64Type>(batch, TIME)?.to_vec().into();
            let hashes = numbers_of::<UInt64Type>(batch, HASH)?.to_vec();
            return Ok(Rows { columns, times, hashes, joinable: None });
        }
        let times = pieces::times(&columns, self.time(side), self.spec.sides.schema(side))?;
        let keys = pieces::keys_of(&columns, self.keys(side));
        let hashes = hash_keys(&keys, batch.num_rows())?;
        Ok(Rows { columns, times, hashes, joinable: pieces::joinable(&keys) })
    }
}

/// What is noted of these rows of a chunk with so many, and NULL for the others.
fn noted(notes: &[(u32, i64)], rows: &[u32], all: usize) -> ArrayRef {
    if notes.is_empty() {
        return Arc::new(Int64Array::new_null(rows.len()));
    }
    let mut values = vec![None; all];
    notes.iter().for_each(|&(row, value)| values[row as usize] = Some(value));
    Arc::new(rows.iter().map(|&row| values[row as usize]).collect::<Int64Array>())
}

impl Kept {
    fn shape(&self, side: Side) -> Shape {
        Shape { side, marks: self.marks, pads: self.pads }
    }

    /// Tells a side as its chunks are.
    fn tell(&mut self, shared: &Arc<Shared>, side: Side, extent: Extent) -> CapturedTable {
        let (shape, shared) = (self.shape(side), Arc::clone(shared));
        let told = self.chunks.capture(extent, shared.keys(side));
        let (schema, extent) = (shared.state_schema(shape), told.extent);
        let of_table = Arc::clone(&schema);
        let rows = Box::new(move || {
            // Few rows come together as a rule.
            let mut rows = BatchCoalescer::new(Arc::clone(&of_table), KEPT_ROWS_MAX);
            let mut batches = Vec::new();
            for chunk in &told.chunks {
                rows.push_batch(shared.chunk_batch(shape, &of_table, chunk)?)?;
                batches.extend(rows.next_completed_batch());
            }
            rows.finish_buffered_batch()?;
            while let Some(batch) = rows.next_completed_batch() {
                batches.push(batch);
            }
            Ok(TableRows { rows: batches, removed: removed(&told.gone)? })
        });
        let name = TABLES[side as usize];
        CapturedTable {
            name,
            schema,
            extent,
            identity_columns: SERIAL_IDENTITY,
            kept_from: None,
            rows,
        }
    }

    /// Tells a side whose columns nobody reads: the rows that matter from this watermark on.
    fn tell_unread(&self, shared: &Arc<Shared>, side: Side, watermark: i64) -> CapturedTable {
        let is_done = |time| shared.bounds.done_at(side, time) <= watermark;
        let rows = self.timeline.rows().filter(|indexed| !is_done(indexed.time));
        let told = |indexed: super::index::Indexed| {
            let super::index::Indexed { hash, time, row, reach } = indexed;
            Told { row, hash, time, reach }
        };
        let mut rows: Vec<Told> = rows.map(told).collect();
        let (shared, chunks) = (Arc::clone(shared), self.chunks.frozen());
        let schema = shared.state_schema(self.shape(side));
        let of_table = Arc::clone(&schema);
        let make = Box::new(move || {
            rows.sort_unstable_by_key(|told| chunks.arrival(told.row));
            let batch = |rows: &[Told]| shared.unread_batch(&of_table, rows);
            let rows = rows.chunks(KEPT_ROWS_MAX).map(batch).collect::<Result<_>>()?;
            Ok(TableRows { rows, removed: Vec::new() })
        });
        let (name, extent) = (TABLES[side as usize], Extent::Whole);
        CapturedTable { name, schema, extent, identity_columns: 0, kept_from: None, rows: make }
    }
}

impl IntervalPartition {
    /// Tells both sides.
    pub(super) fn tell(&mut self, extent: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        let (shared, watermark) = (Arc::clone(&self.shared), self.watermark);
        for side in [Side::Left, Side::Right] {
            let kept = self.kept(side);
            captured.tables.push(match shared.joined.reads(side) {
                true => kept.tell(&shared, side, extent),
                false => kept.tell_unread(&shared, side, watermark),
            });
        }
        let watermark: ArrayRef = Arc::new(Int64Array::from(vec![watermark]));
        let columns = vec![(WATERMARK.to_owned(), watermark)];
        tell(&mut captured, WATERMARK, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// Takes back what partitions have told.
    pub(super) fn take_back(&mut self, restored: &Restored) -> Result<()> {
        let told = numbers::<Int64Type>(restored, WATERMARK, WATERMARK)?;
        self.watermark = told.into_iter().max().unwrap_or(i64::MIN);
        for side in [Side::Left, Side::Right] {
            let table = restored.table(TABLES[side as usize]);
            let in_order = match self.shared.joined.reads(side) {
                true => by_serial(table)?,
                false => table.to_vec(),
            };
            in_order.iter().try_for_each(|batch| self.take_back_rows(side, batch))?;
        }
        Ok(())
    }

    fn take_back_rows(&mut self, side: Side, batch: &RecordBatch) -> Result<()> {
        let (shared, watermark) = (Arc::clone(&self.shared), self.watermark);
        let kept = self.kept(side);
        let rows = shared.rows_of(kept.shape(side), batch)?;
        let reaches = typed::<Int64Type>(batch, REACH)?;
        let dues = if kept.pads { Some(typed::<Int64Type>(batch, DUE)?) } else { None };
        let matched = if kept.marks { Some(flags(batch, MATCHED)?) } else { None };
        let chunk = kept.chunks.add(rows.columns, batch.num_rows(), kept.marks);
        let value = |values: &PrimitiveArray<Int64Type>, place: usize| {
            values.is_valid(place).then(|| values.value(place))
        };
        let (mut holds, mut notes) = (0, Notes::default());
        for (place, (&time, &hash)) in rows.times.iter().zip(&rows.hashes).enumerate() {
            let row = RowRef { chunk, row: place as u32 };
            let done_at = shared.bounds.done_at(side, time);
            let due = dues.and_then(|dues| value(dues, place));
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
                let reach = value(reaches, place);
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
