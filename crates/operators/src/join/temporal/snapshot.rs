//! What captures write of a temporal join: the rows that wait, and the versions of each key.
//!
//! | table | column | |
//! |---|---|---|
//! | `waiting_rows`, `late`, `overdue` | | left rows that wait (`rows::waiting_capture`) |
//! | `versions` | `$seen_from` | the watermark from which on the version is seen, in milliseconds |
//! | | `$deleted` | the key has no version from this time on: only key and time are there |
//! | | the columns of the right side | the versions of a key stand from the earliest to the latest |
//!
//! In `versions` the columns of the key stand first. Captures write all versions of the keys that
//! have got or lost one ([`crate::capture`]), and the rows that have come to wait. Where there is
//! no key all versions are captured each time: they are those that the watermark has not passed
//! yet, and one.
//!
//! Restored in that order, versions of equal times lie as they did. A key whose older versions
//! have been dropped is looked at once more, which finds nothing. Nothing leaves while this is
//! asked.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::DataType as Arrow;
use arrow_select::interleave::interleave;
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Extent, Restored, Result};

use super::TemporalContext;
use super::partition::{Left, TemporalPartition};
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::join::sides::Side;
use crate::keys::KeyTable;
use crate::rows::chunks::{Chunks, RowRef};
use crate::rows::input;
use crate::rows::waiting_capture::{WaitingRows, WaitingShape};
use crate::tables::{KEPT_ROWS_MAX, KeyedTable, flags, numbers_of, owners};

/// The tables that are captured by key.
pub(super) const TABLES: [&str; 1] = ["versions"];
pub(super) const VERSIONS: usize = 0;
const SEEN_FROM: &str = "$seen_from";
const DELETED: &str = "$deleted";

/// A version: of which of the keys that are captured, and its times.
struct CapturedVersion {
    key: u32,
    hash: u64,
    time: i64,
    seen_from: i64,
    row: RowRef,
}

impl TemporalContext {
    /// What waits for its time.
    pub(super) fn waiting_shape(&self) -> WaitingShape {
        WaitingShape {
            input: self.spec.join.sides.schema(Side::Left).clone(),
            keys: self.spec.join.left_keys.clone(),
            rowtime: self.spec.left_time,
            // The first watermark beyond their time.
            behind_ms: 1,
            has_kinds: true,
        }
    }

    fn versions_table(&self) -> KeyedTable {
        let own = [(SEEN_FROM, Arrow::Int64), (DELETED, Arrow::Boolean)];
        KeyedTable::new(&own, self.spec.join.sides.schema(Side::Right), &self.spec.join.right_keys)
    }

    /// `keys` are the key columns of the keys that are captured.
    fn versions_batch(
        &self,
        versions: &[CapturedVersion],
        keys: &[ArrayRef],
        chunks: &Chunks,
    ) -> Result<RecordBatch> {
        let refs: Vec<RowRef> = versions.iter().map(|version| version.row).collect();
        let mut columns = chunks.gather(&refs)?;
        if refs.iter().any(|row| !row.is_some()) {
            self.name_deleted(versions, keys, &mut columns)?;
        }
        let deleted = refs.iter().map(|row| Some(!row.is_some()));
        let own: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(versions.iter().map(|v| v.seen_from))),
            Arc::new(deleted.collect::<BooleanArray>()),
        ];
        let owners = owners(versions.iter().map(|version| version.hash));
        self.versions_table().batch(owners, own, columns)
    }

    /// Gives deletions, which have no row, key and time.
    fn name_deleted(
        &self,
        versions: &[CapturedVersion],
        keys: &[ArrayRef],
        columns: &mut [ArrayRef],
    ) -> Result<()> {
        let put = |column: &mut ArrayRef, others: &ArrayRef, other: &dyn Fn(usize) -> usize| {
            let pick = |(place, version): (usize, &CapturedVersion)| match version.row.is_some() {
                true => (0, place),
                false => (1, other(place)),
            };
            let picks: Vec<(usize, usize)> = versions.iter().enumerate().map(pick).collect();
            interleave(&[column.as_ref(), others.as_ref()], &picks).map(|both| *column = both)
        };
        for (&place, keys) in self.spec.join.right_keys.iter().zip(keys) {
            put(&mut columns[place], keys, &|place| versions[place].key as usize)?;
        }
        let times = Int64Array::from_iter_values(versions.iter().map(|version| version.time));
        let column = &mut columns[self.spec.right_time];
        let times = arrow_cast::cast(&times, column.data_type())?;
        put(column, &times, &|place| place)?;
        Ok(())
    }
}

impl KeyedState for TemporalPartition {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        !self.versions.is_empty(id)
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (versions, keys) = self.captured_versions(ids)?;
        self.shared.versions_batch(&versions, &keys, self.versions.rows())
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
    fn captures_at_once(&self) -> bool {
        self.shared.joined.key_types.is_empty()
    }
    fn capture_others(&mut self, extent: Extent, captured: &mut Captured) -> Result<()> {
        self.waiting.capture(extent, captured)
    }
}

impl TemporalPartition {
    /// Captures what waits, and the versions.
    pub(super) fn capture_state(&mut self, extent: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        self.waiting.capture(extent, &mut captured)?;
        self.capture_versions(&mut captured)?;
        Ok(captured)
    }

    /// The versions of these keys, those of a key from the earliest to the latest, and the keys.
    fn captured_versions(&self, ids: &[u32]) -> Result<(Vec<CapturedVersion>, Vec<ArrayRef>)> {
        let mut versions = Vec::new();
        for (key, &id) in (0..).zip(ids) {
            let (first, hash) = (versions.len(), self.keys.hash_of(id));
            versions.extend(
                self.versions.of_key(id).map(|(time, seen_from, row)| CapturedVersion {
                    key,
                    hash,
                    time,
                    seen_from,
                    row,
                }),
            );
            versions[first..].reverse();
        }
        Ok((versions, self.keys.take_keys(ids)?))
    }

    fn capture_versions(&self, captured: &mut Captured) -> Result<()> {
        let ids = 0..self.keys.id_limit() as u32;
        let ids: Vec<u32> = ids.filter(|&id| !self.versions.is_empty(id)).collect();
        let (versions, keys) = self.captured_versions(&ids)?;
        let (shared, chunks) = (Arc::clone(&self.shared), self.versions.rows().frozen());
        let make = move || {
            let batch = |some: &[CapturedVersion]| shared.versions_batch(some, &keys, &chunks);
            let batches = versions.chunks(KEPT_ROWS_MAX).map(batch);
            Ok(TableRows { rows: batches.collect::<Result<_>>()?, removed: Vec::new() })
        };
        let schema = self.shared.versions_table().schema();
        captured.add_later(TABLES[VERSIONS], schema, Box::new(make));
        Ok(())
    }

    /// Restores what partitions captured.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table(TABLES[VERSIONS]) {
            self.restore_versions(batch)?;
        }
        let waiting = self.waiting.restored(restored)?;
        waiting.into_iter().try_for_each(|rows| self.restore_waiting(rows))
    }

    fn restore_waiting(&mut self, waiting: WaitingRows) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let rows = waiting.times.len();
        let joins = self.intern(&waiting.columns, &shared.spec.join.left_keys, rows)?;
        let mut added = self.waiting.add(waiting.columns.clone(), rows);
        for (place, joins) in joins.into_iter().enumerate() {
            let (time, key, kind) = (waiting.times[place], self.ids[place], waiting.kind(place));
            self.waits[key as usize] += 1;
            let left = Left { time, key, row: added.row(place), kind, extra: joins };
            self.waiting.wait(&mut added, waiting.dues[place], left);
        }
        self.waiting.finish(added);
        Ok(())
    }

    fn restore_versions(&mut self, batch: &RecordBatch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (spec, rows) = (&shared.spec, batch.num_rows());
        let schema = spec.join.sides.schema(Side::Right);
        let columns = shared.versions_table().columns(batch)?;
        let times = input::times(&columns, spec.right_time, schema)?;
        let seen = numbers_of::<Int64Type>(batch, SEEN_FROM)?;
        let deleted = flags(batch, DELETED)?;
        self.intern(&columns, &spec.join.right_keys, rows)?;
        let chunk = self.versions.add_rows(columns, rows);
        for place in 0..rows {
            let (time, key) = (times[place], self.ids[place]);
            let row = match deleted.is_valid(place) && deleted.value(place) {
                true => RowRef::NONE,
                false => RowRef { chunk, row: place as u32 },
            };
            self.versions.insert(key, time, seen[place], row);
            self.fresh.push(time.max(seen[place]), key);
        }
        self.versions.finish_rows(chunk)
    }
}
