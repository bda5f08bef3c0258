//! What a temporal join tells of its state: the rows that wait, and the versions of each key.
//!
//! | table | column | |
//! |---|---|---|
//! | `waiting` | `$due` | the watermark at which the row leaves, in milliseconds |
//! | | `$kind` | what the row does: 0 `+I`, 1 `-U`, 2 `+U`, 3 `-D` |
//! | | the columns of the left side | rows stand in the order in which they came |
//! | `versions` | `$seen_from` | the watermark from which on the version is seen, in milliseconds |
//! | | `$deleted` | the key has no version from this time on: only key and time are there |
//! | | the columns of the right side | the versions of a key stand from the earliest to the latest |
//!
//! In `versions` the columns of the key stand first. Captures tell all versions of the keys that have got or
//! lost one ([`crate::watch`]), but where there is no key: then all are told each time, as are the rows that
//! wait, which are few.
//!
//! Taken back in that order, versions of equal times lie as they did. A key whose older versions have
//! been dropped is looked at once more, which finds nothing. Nothing leaves while this is asked.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch};
use arrow_schema::{DataType as Arrow, SchemaRef};
use arrow_select::interleave::interleave;
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, DataType, Restored, Result, RowKind};

use super::Shared;
use super::partition::{Left, TemporalPartition};
use crate::join::bounded::chunks::{Chunks, RowRef};
use crate::join::bounded::pieces;
use crate::join::sides::Side;
use crate::keys::KeyTable;
use crate::tables::{
    KEPT_ROWS_MAX, KeyedTable, does_not_fit, flags, kept_batch, kept_columns, kept_schema,
    numbers_of, owners,
};
use crate::watch::keys::{KeyWatch, KeyedState};

const WAITING: &str = "waiting";
const DUE: &str = "$due";
const KIND: &str = "$kind";
/// The tables that are told by key.
pub(super) const TABLES: [&str; 1] = ["versions"];
pub(super) const VERSIONS: usize = 0;
const SEEN_FROM: &str = "$seen_from";
const DELETED: &str = "$deleted";

/// A row that waits: until when, and the hash of its key.
struct ToldRow {
    due: i64,
    left: Left,
    hash: u64,
}

/// A version: of which of the keys that are told, and its times.
struct ToldVersion {
    key: u32,
    hash: u64,
    time: i64,
    seen_from: i64,
    row: RowRef,
}

impl Shared {
    fn waiting_schema(&self) -> SchemaRef {
        let own = [(DUE, Arrow::Int64), (KIND, Arrow::Int8)];
        kept_schema(&own, self.spec.sides.schema(Side::Left))
    }

    fn versions_table(&self) -> KeyedTable {
        let own = [(SEEN_FROM, Arrow::Int64), (DELETED, Arrow::Boolean)];
        KeyedTable::new(&own, self.spec.sides.schema(Side::Right), &self.spec.right_keys)
    }

    fn waiting_batch(&self, rows: &[ToldRow], chunks: &Chunks) -> Result<RecordBatch> {
        let refs: Vec<RowRef> = rows.iter().map(|told| told.left.row).collect();
        let own: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|told| told.due))),
            Arc::new(Int8Array::from_iter_values(rows.iter().map(|told| told.left.kind.code()))),
        ];
        let owners = owners(rows.iter().map(|told| told.hash));
        kept_batch(&self.waiting_schema(), owners, own, chunks.gather(&refs)?)
    }

    /// `keys` are the key columns of the keys that are told.
    fn versions_batch(
        &self,
        versions: &[ToldVersion],
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
        versions: &[ToldVersion],
        keys: &[ArrayRef],
        columns: &mut [ArrayRef],
    ) -> Result<()> {
        let put = |column: &mut ArrayRef, others: &ArrayRef, other: &dyn Fn(usize) -> usize| {
            let pick = |(place, version): (usize, &ToldVersion)| match version.row.is_some() {
                true => (0, place),
                false => (1, other(place)),
            };
            let picks: Vec<(usize, usize)> = versions.iter().enumerate().map(pick).collect();
            interleave(&[column.as_ref(), others.as_ref()], &picks).map(|both| *column = both)
        };
        for (&place, keys) in self.spec.right_keys.iter().zip(keys) {
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
    fn key_types(&self) -> Vec<DataType> {
        self.shared.key_types.clone()
    }
    fn has(&self, _: usize, id: u32) -> bool {
        !self.versions.is_empty(id)
    }
    fn tell(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (versions, keys) = self.told_versions(ids)?;
        self.shared.versions_batch(&versions, &keys, self.versions.rows())
    }
    fn watch(&mut self, _: usize) -> &mut Option<KeyWatch> {
        &mut self.watch
    }
    fn tells_at_once(&self) -> bool {
        self.shared.key_types.is_empty()
    }
    fn tell_others(&self, captured: &mut Captured) -> Result<()> {
        self.tell_waiting(captured);
        Ok(())
    }
}

impl TemporalPartition {
    /// Tells what waits, and the versions.
    pub(super) fn tell(&self) -> Result<Captured> {
        let mut captured = Captured::default();
        self.tell_waiting(&mut captured);
        self.tell_versions(&mut captured)?;
        Ok(captured)
    }

    fn tell_waiting(&self, captured: &mut Captured) {
        let told =
            |(due, left): (i64, Left)| ToldRow { due, left, hash: self.keys.hash_of(left.key) };
        let mut rows: Vec<ToldRow> = self.waiting.iter().map(told).collect();
        let (shared, chunks) = (Arc::clone(&self.shared), self.chunks.frozen());
        let make = move || {
            rows.sort_unstable_by_key(|told| chunks.arrival(told.left.row));
            let batches =
                rows.chunks(KEPT_ROWS_MAX).map(|rows| shared.waiting_batch(rows, &chunks));
            Ok(TableRows { rows: batches.collect::<Result<_>>()?, removed: Vec::new() })
        };
        captured.add_later(WAITING, self.shared.waiting_schema(), Box::new(make));
    }

    /// The versions of these keys, those of a key from the earliest to the latest, and the keys.
    fn told_versions(&self, ids: &[u32]) -> Result<(Vec<ToldVersion>, Vec<ArrayRef>)> {
        let mut versions = Vec::new();
        for (key, &id) in (0..).zip(ids) {
            let (first, hash) = (versions.len(), self.keys.hash_of(id));
            versions.extend(self.versions.of_key(id).map(|(time, seen_from, row)| ToldVersion {
                key,
                hash,
                time,
                seen_from,
                row,
            }));
            versions[first..].reverse();
        }
        Ok((versions, self.keys.take_keys(ids)?))
    }

    fn tell_versions(&self, captured: &mut Captured) -> Result<()> {
        let ids = 0..self.keys.id_limit() as u32;
        let ids: Vec<u32> = ids.filter(|&id| !self.versions.is_empty(id)).collect();
        let (versions, keys) = self.told_versions(&ids)?;
        let (shared, chunks) = (Arc::clone(&self.shared), self.versions.rows().frozen());
        let make = move || {
            let batch = |some: &[ToldVersion]| shared.versions_batch(some, &keys, &chunks);
            let batches = versions.chunks(KEPT_ROWS_MAX).map(batch);
            Ok(TableRows { rows: batches.collect::<Result<_>>()?, removed: Vec::new() })
        };
        let schema = self.shared.versions_table().schema();
        captured.add_later(TABLES[VERSIONS], schema, Box::new(make));
        Ok(())
    }

    /// Takes back what partitions have told.
    pub(super) fn take_back(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table(TABLES[VERSIONS]) {
            self.take_back_versions(batch)?;
        }
        for batch in restored.table(WAITING) {
            self.take_back_waiting(batch)?;
        }
        Ok(())
    }

    fn take_back_waiting(&mut self, batch: &RecordBatch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (spec, rows) = (&shared.spec, batch.num_rows());
        let schema = spec.sides.schema(Side::Left);
        let columns = kept_columns(batch, &shared.waiting_schema(), schema.len())?;
        let times = pieces::times(&columns, spec.left_time, schema)?;
        let dues = numbers_of::<Int64Type>(batch, DUE)?;
        let kinds = numbers_of::<Int8Type>(batch, KIND)?;
        let joins = self.intern(&columns, &spec.left_keys, rows)?;
        let chunk = self.chunks.add(columns, rows, false);
        self.chunks.hold(chunk, rows);
        for place in 0..rows {
            let kind = RowKind::from_code(kinds[place]);
            let unknown = || does_not_fit(format!("{} is no kind of row", kinds[place]));
            let (time, key) = (times[place], self.ids[place]);
            let row = RowRef { chunk, row: place as u32 };
            let kind = kind.ok_or_else(unknown)?;
            self.waits[key as usize] += 1;
            self.waiting.push(dues[place], Left { time, key, row, kind, joins: joins[place] });
        }
        self.chunks.release(chunk, 1);
        Ok(())
    }

    fn take_back_versions(&mut self, batch: &RecordBatch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (spec, rows) = (&shared.spec, batch.num_rows());
        let schema = spec.sides.schema(Side::Right);
        let columns = shared.versions_table().columns(batch)?;
        let times = pieces::times(&columns, spec.right_time, schema)?;
        let seen = numbers_of::<Int64Type>(batch, SEEN_FROM)?;
        let deleted = flags(batch, DELETED)?;
        self.intern(&columns, &spec.right_keys, rows)?;
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
