//! What an interval join tells of its state: the rows of each side that somebody can still meet or that
//! may leave without a partner, in the order in which they came, and the watermark it has seen.
//!
//! | column | |
//! |---|---|
//! | `$reach` | the lowest time of a partner, of rows that came behind the watermark; else NULL |
//! | `$matched` | whether it has found a partner, where that matters |
//! | the columns of the side | |
//!
//! A side whose columns nobody reads has `$time` and `$hash` (that of its key) in the place of these.
//!
//! Rows that are done stay in the index until their bucket is dropped. They meet nobody (`bounds`) and
//! are not told. Whether a row is in the index, when it leaves, and which rows are before which, follows
//! from the columns, the watermark and the order. Nothing leaves while this is asked, and no pair waits.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType as Arrow, SchemaRef};
use hashbrown::HashMap;
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Restored, Result, TableSchema};

use super::Shared;
use super::partition::{IntervalPartition, Kept};
use crate::join::bounded::chunks::{Chunks, RowRef};
use crate::join::bounded::pieces;
use crate::join::sides::Side;
use crate::keys::hash_keys;
use crate::tables::{
    KEPT_ROWS_MAX, flags, for_all, kept_batch, kept_columns, kept_schema, numbers, numbers_of,
    owners, state_batch, tell, typed,
};

/// The tables of state, by side, and that of the watermark.
const TABLES: [&str; 2] = ["left", "right"];
const WATERMARK: &str = "watermark";
const REACH: &str = "$reach";
const MATCHED: &str = "$matched";
const TIME: &str = "$time";
const HASH: &str = "$hash";

/// A row to be told.
struct Told {
    row: RowRef,
    /// Only read where the columns of the side are not there.
    hash: u64,
    time: i64,
    reach: Option<i64>,
    is_matched: bool,
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

    fn state_schema(&self, side: Side, marks: bool) -> SchemaRef {
        let mut own = vec![(REACH, Arrow::Int64)];
        if marks {
            own.push((MATCHED, Arrow::Boolean));
        }
        if !self.joined.reads(side) {
            own.extend([(TIME, Arrow::Int64), (HASH, Arrow::UInt64)]);
        }
        kept_schema(&own, &self.told_columns(side))
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

    /// The rows as a table.
    fn told(
        &self,
        side: Side,
        marks: bool,
        chunks: &Chunks,
        mut rows: Vec<Told>,
    ) -> Result<Vec<RecordBatch>> {
        rows.sort_unstable_by_key(|told| chunks.arrival(told.row));
        let schema = self.state_schema(side, marks);
        let batch = |rows: &[Told]| self.told_batch(side, marks, &schema, chunks, rows);
        rows.chunks(KEPT_ROWS_MAX).map(batch).collect()
    }

    fn told_batch(
        &self,
        side: Side,
        marks: bool,
        schema: &SchemaRef,
        chunks: &Chunks,
        rows: &[Told],
    ) -> Result<RecordBatch> {
        let mut own: Vec<ArrayRef> =
            vec![Arc::new(rows.iter().map(|told| told.reach).collect::<Int64Array>())];
        if marks {
            let matched = rows.iter().map(|told| Some(told.is_matched));
            own.push(Arc::new(matched.collect::<BooleanArray>()));
        }
        if !self.joined.reads(side) {
            let hashes = || rows.iter().map(|told| told.hash);
            own.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|told| told.time))));
            own.push(Arc::new(UInt64Array::from_iter_values(hashes())));
            return kept_batch(schema, owners(hashes()), own, Vec::new());
        }
        let refs: Vec<RowRef> = rows.iter().map(|told| told.row).collect();
        let columns = chunks.gather(&refs)?;
        let hashes = hash_keys(&pieces::keys_of(&columns, self.keys(side)), rows.len())?;
        kept_batch(schema, owners(hashes.into_iter()), own, columns)
    }

    fn rows_of(&self, side: Side, marks: bool, batch: &RecordBatch) -> Result<Rows> {
        let count = self.told_columns(side).len();
        let columns = kept_columns(batch, &self.state_schema(side, marks), count)?;
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

impl Kept {
    /// The rows that matter from this watermark on.
    fn told_rows(&self, shared: &Shared, side: Side, watermark: i64) -> Vec<Told> {
        let is_done = |time| shared.bounds.done_at(side, time) <= watermark;
        let is_matched = |row| self.marks && self.chunks.is_matched(row);
        if !self.pads {
            let rows = self.timeline.rows().filter(|indexed| !is_done(indexed.time));
            return rows
                .map(|indexed| Told {
                    row: indexed.row,
                    hash: indexed.hash,
                    time: indexed.time,
                    reach: indexed.reach,
                    is_matched: is_matched(indexed.row),
                })
                .collect();
        }
        // All rows wait; those behind the watermark are few.
        let behind = self.timeline.rows().filter_map(|i| i.reach.map(|reach| (i.row, reach)));
        let behind: HashMap<RowRef, i64> = behind.collect();
        let told = |(_, row): (i64, RowRef)| {
            let reach = behind.get(&row).copied();
            Told { row, hash: 0, time: 0, reach, is_matched: is_matched(row) }
        };
        self.waiting.iter().map(told).collect()
    }
}

impl IntervalPartition {
    /// Tells both sides.
    pub(super) fn tell(&self) -> Result<Captured> {
        let mut captured = Captured::default();
        for side in [Side::Left, Side::Right] {
            let kept = self.kept_of(side);
            let (rows, marks) = (kept.told_rows(&self.shared, side, self.watermark), kept.marks);
            let (chunks, shared) = (kept.chunks.frozen(), Arc::clone(&self.shared));
            let schema = shared.state_schema(side, marks);
            let make = move || {
                let rows = shared.told(side, marks, &chunks, rows)?;
                Ok(TableRows { rows, removed: Vec::new() })
            };
            captured.add_later(TABLES[side as usize], schema, Box::new(make));
        }
        let watermark: ArrayRef = Arc::new(Int64Array::from(vec![self.watermark]));
        let columns = vec![(WATERMARK.to_owned(), watermark)];
        tell(&mut captured, WATERMARK, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// Takes back what partitions have told.
    pub(super) fn take_back(&mut self, restored: &Restored) -> Result<()> {
        let told = numbers::<Int64Type>(restored, WATERMARK, WATERMARK)?;
        self.watermark = told.into_iter().max().unwrap_or(i64::MIN);
        for side in [Side::Left, Side::Right] {
            for batch in restored.table(TABLES[side as usize]) {
                self.take_back_rows(side, batch)?;
            }
        }
        Ok(())
    }

    fn take_back_rows(&mut self, side: Side, batch: &RecordBatch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let rows = shared.rows_of(side, self.kept_of(side).marks, batch)?;
        let reaches = typed::<Int64Type>(batch, REACH)?;
        let watermark = self.watermark;
        let kept = self.kept(side);
        let matched = if kept.marks { Some(flags(batch, MATCHED)?) } else { None };
        let chunk = kept.chunks.add(rows.columns, batch.num_rows(), kept.marks);
        let mut holds = 0;
        for (place, (&time, &hash)) in rows.times.iter().zip(&rows.hashes).enumerate() {
            let row = RowRef { chunk, row: place as u32 };
            if matched.is_some_and(|matched| matched.is_valid(place) && matched.value(place)) {
                kept.chunks.set_matched(row);
            }
            let done_at = shared.bounds.done_at(side, time);
            if kept.pads {
                kept.waiting.push(done_at, row);
                holds += 1;
            }
            let joins = rows.joinable.as_ref().is_none_or(|nulls| nulls.is_valid(place));
            if joins && done_at > watermark {
                let reach = reaches.is_valid(place).then(|| reaches.value(place));
                kept.timeline.insert(hash, time, row, reach);
                holds += 1;
            }
        }
        kept.chunks.hold(chunk, holds);
        kept.chunks.release(chunk, 1);
        Ok(())
    }
}
