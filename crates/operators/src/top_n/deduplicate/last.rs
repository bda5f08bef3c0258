//! The last row of each key, as a changelog: of rows that only come, or of upserts.
//!
//! Captures write the rows of keys that rows have reached, and those that have gone
//! ([`crate::capture`]).
//!
//! | input | key has no row | key has a row |
//! |---|---|---|
//! | `+I`, `+U` | `+I` | `-U` old, `+U` new; nothing if equal (upserts without TTL) |
//! | `-U` | nothing | nothing: the `+U` that follows has both |
//! | `-D` | nothing | `-D` with the row that was kept |
//!
//! By row time, a row that is older than the one kept changes nothing. Of equal times the later
//! arrival wins.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::ScalarBuffer;
use thalweg_core::{Output, Partition, Piece, Restored, Result, RowKind};

use super::kept_rows::KeptRows;
use super::rows;
use super::spec::{DeduplicateBy, DeduplicateSpec};
use crate::capture::keys::{KeyTracker, KeyedState, release, retain_empty};
use crate::expiry::Expiry;
use crate::join::regular::equal::same_row;
use crate::keys::KeyTable;
use crate::rows::arena::ArenaPlace;
use crate::rows::input::{inserts_only, times};
use crate::top_n::changes::TopNChanges;
use crate::top_n::tables::KeyedRowTable;

/// The tables of state: the row of each key.
pub(super) const TABLES: [&str; 1] = ["rows"];
const ROWS: usize = 0;

pub(super) struct LastRows {
    spec: Arc<DeduplicateSpec>,
    keys: KeyTable,
    kept: KeptRows,
    /// The row time of each key's row, if it matters.
    times: Vec<i64>,
    changes: TopNChanges,
    expiry: Expiry,
    table: KeyedRowTable,
    tracker: Option<KeyTracker>,
    ids: Vec<u32>,
    /// Keys that may have no row.
    emptied: Vec<u32>,
}

impl LastRows {
    pub fn new(spec: Arc<DeduplicateSpec>) -> Result<Self> {
        let schema = spec.input.arrow();
        Ok(LastRows {
            keys: KeyTable::new(&spec.key_types())?,
            kept: KeptRows::new(Arc::clone(&schema)),
            times: Vec::new(),
            changes: TopNChanges::new(schema, spec.input.len(), false),
            expiry: Expiry::new(spec.ttl_ms()),
            table: KeyedRowTable::rows(&spec.input, &spec.keys, spec.ttl_ms().is_some()),
            tracker: None,
            ids: Vec::new(),
            emptied: Vec::new(),
            spec,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let has_upserts = self.spec.by == DeduplicateBy::Upserts;
        if !has_upserts {
            inserts_only(piece, "deduplication")?;
        }
        let batch = &piece.bundle.batch;
        let times = self.row_times(batch)?;
        let chosen = rows::chosen(piece);
        let mut ids = std::mem::take(&mut self.ids);
        rows::intern(&mut self.keys, &self.spec.keys, batch, chosen, &mut ids)?;
        self.grow(times.is_some());
        self.touch(ROWS, &ids)?;
        let now_ms = output.wall_ms();
        for (position, &id) in ids.iter().enumerate() {
            let row = rows::row_at(chosen, position);
            match has_upserts {
                true => self.take_upsert(id, (row, rows::kind_of(piece, row)), batch, now_ms),
                false => self.take_row(id, row, times.as_ref(), now_ms),
            }
            if self.changes.are_many() {
                self.changes.emit(&self.kept.arena, batch.columns(), output)?;
            }
        }
        self.changes.emit(&self.kept.arena, batch.columns(), output)?;
        let rows = ids.iter().enumerate().map(|(n, &id)| (id, rows::row_at(chosen, n)));
        self.kept.keep(rows, batch.columns())?;
        self.ids = ids;
        self.release_emptied()
    }

    /// The row times, if they matter.
    fn row_times(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>> {
        match self.spec.by {
            DeduplicateBy::EventTime(column) => {
                times(batch.columns(), column, &self.spec.input).map(Some)
            }
            DeduplicateBy::Arrival | DeduplicateBy::Upserts => Ok(None),
        }
    }

    /// A row takes the place of that of its key, unless it is the same, or takes it away.
    fn take_upsert(
        &mut self,
        id: u32,
        (row, kind): (u32, RowKind),
        batch: &RecordBatch,
        now_ms: i64,
    ) {
        match kind {
            RowKind::Insert | RowKind::UpdateAfter => {
                let columns = batch.columns();
                let is_same =
                    |(kept, at): (&[ArrayRef], usize)| same_row(kept, at, columns, row as usize);
                // With a life time, what follows is kept fresh by rows that change nothing.
                let may_stay = !self.expiry.expires();
                if !(may_stay && self.kept.find(id, columns).is_some_and(is_same)) {
                    self.take_row(id, row, None, now_ms);
                }
            }
            RowKind::Delete => {
                let is_live = !self.expiry.is_over(id, now_ms);
                if let Some(old) = self.kept.remove(id).filter(|_| is_live) {
                    self.changes.push(RowKind::Delete, old, 0, row);
                }
                self.emptied.push(id);
            }
            RowKind::UpdateBefore => self.emptied.push(id),
        }
    }

    /// Forgets keys that have no row.
    fn release_emptied(&mut self) -> Result<()> {
        retain_empty(&mut self.emptied, |id| !self.kept.has(id));
        release(&mut self.tracker, &mut self.keys, &self.emptied)?;
        self.emptied.clear();
        Ok(())
    }

    fn grow(&mut self, has_times: bool) {
        let limit = self.keys.id_limit();
        self.kept.grow(limit);
        if has_times {
            self.times.resize(limit, i64::MIN);
        }
        self.expiry.grow(limit);
    }

    #[inline]
    fn take_row(&mut self, id: u32, row: u32, times: Option<&ScalarBuffer<i64>>, now_ms: i64) {
        if self.kept.has(id) && self.expiry.is_over(id, now_ms) {
            self.kept.remove(id);
        }
        if let Some(times) = times {
            let time = times[row as usize];
            if self.kept.has(id) && time < self.times[id as usize] {
                return;
            }
            self.times[id as usize] = time;
        }
        self.expiry.write(id, now_ms);
        let kind = match self.kept.set(id, row) {
            Some(old) => {
                self.changes.push(RowKind::UpdateBefore, old, 0, row);
                RowKind::UpdateAfter
            }
            None => RowKind::Insert,
        };
        self.changes.push(kind, ArenaPlace::of_piece(row), 0, row);
    }
}

impl Partition for LastRows {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        let has_state = |id| self.kept.has(id);
        let mut over = self.expiry.sweep(piece.num_rows(), output.wall_ms(), has_state);
        if over.is_empty() {
            return Ok(());
        }
        self.touch(ROWS, &over)?;
        // A sweep may go round and name a key twice.
        over.retain(|&id| self.kept.remove(id).is_some());
        release(&mut self.tracker, &mut self.keys, &over)?;
        let nothing: &[ArrayRef] = &[];
        self.kept.keep(std::iter::empty(), nothing)
    }

    fn state_bytes(&self) -> usize {
        self.keys.bytes()
            + self.kept.bytes()
            + self.times.capacity() * 8
            + self.changes.bytes()
            + self.expiry.bytes()
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
            + (self.ids.capacity() + self.emptied.capacity()) * 4
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    /// Row times follow from the rows.
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        for batch in restored.table(TABLES[ROWS]) {
            let state = self.table.read(batch)?;
            let times = self.row_times(&state.rows)?;
            let mut ids = Vec::new();
            rows::intern(&mut self.keys, &spec.keys, &state.rows, None, &mut ids)?;
            self.grow(times.is_some());
            for (row, &id) in ids.iter().enumerate() {
                self.kept.set(id, row as u32);
                if let Some(times) = &times {
                    self.times[id as usize] = times[row];
                }
                state.write(&mut self.expiry, id, row);
            }
            let rows = ids.iter().copied().zip(0..);
            self.kept.keep(rows, state.rows.columns())?;
        }
        Ok(())
    }
}

impl KeyedState for LastRows {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.kept.place(id).is_kept()
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let places: Vec<ArenaPlace> = ids.iter().map(|&id| self.kept.place(id)).collect();
        self.table.capture_rows(&self.keys, &self.expiry, &self.kept.arena, (ids, &places))
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
}
