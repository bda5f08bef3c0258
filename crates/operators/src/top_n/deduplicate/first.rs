//! The first row of each key by arrival: a set of keys. Nothing of the rows is kept.
//!
//! Captures write keys that are new, and those that have been forgotten ([`crate::capture`]).
//!
//! **Invariants**
//! - `seen[id]` is true exactly for live keys, after the piece in which they came. State is a key
//!   and a bit, however wide rows are.
//! - With `state_ttl_ms`, a key that comes again after its time counts as new: its row leaves as
//!   `+I` once more, without a retraction of the first one, as in Flink.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use thalweg_core::{Output, Partition, Piece, Place, Restored, Result};

use super::rows;
use super::spec::DeduplicateSpec;
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::expiry::Expiry;
use crate::keys::KeyTable;
use crate::rows::input::inserts_only;
use crate::top_n::tables::KeyedRowTable;

/// The tables of state: the keys whose row has left.
pub(super) const TABLES: [&str; 1] = ["keys"];
const KEYS: usize = 0;

pub(super) struct FirstArrivals {
    spec: Arc<DeduplicateSpec>,
    keys: KeyTable,
    /// By key: true if its row has left.
    seen: Vec<bool>,
    expiry: Expiry,
    table: KeyedRowTable,
    tracker: Option<KeyTracker>,
    ids: Vec<u32>,
}

impl FirstArrivals {
    pub fn new(spec: Arc<DeduplicateSpec>) -> Result<Self> {
        Ok(FirstArrivals {
            keys: KeyTable::new(&spec.key_types())?,
            seen: Vec::new(),
            expiry: Expiry::new(spec.ttl_ms()),
            table: KeyedRowTable::keys(&spec.key_schema(), spec.ttl_ms().is_some()),
            tracker: None,
            ids: Vec::new(),
            spec,
        })
    }

    fn grow(&mut self) {
        self.seen.resize(self.keys.id_limit(), false);
        self.expiry.grow(self.seen.len());
    }

    /// Captures learn of the keys that this piece writes.
    fn touch_new(&mut self, now_ms: i64) -> Result<()> {
        if !self.has_captures() {
            return Ok(());
        }
        let is_written = |&id: &u32| !self.seen[id as usize] || self.expiry.is_over(id, now_ms);
        let written: Vec<u32> = self.ids.iter().copied().filter(is_written).collect();
        self.touch(KEYS, &written)
    }

    /// Forgets these keys.
    fn forget(&mut self, over: &[u32]) -> Result<()> {
        self.touch(KEYS, over)?;
        if let Some(tracker) = &mut self.tracker {
            tracker.go(&self.keys, over)?;
        }
        for &id in over {
            // A sweep may go round and name a key twice.
            if std::mem::take(&mut self.seen[id as usize]) {
                self.keys.release(id);
            }
        }
        Ok(())
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        inserts_only(piece, "deduplication")?;
        let batch = &piece.bundle.batch;
        let chosen = rows::chosen(piece);
        rows::intern(&mut self.keys, &self.spec.keys, batch, chosen, &mut self.ids)?;
        self.grow();
        let now_ms = output.wall_ms();
        self.touch_new(now_ms)?;
        let mut first = Vec::new();
        for (position, &id) in self.ids.iter().enumerate() {
            let seen = std::mem::replace(&mut self.seen[id as usize], true);
            if seen && !self.expiry.is_over(id, now_ms) {
                continue;
            }
            self.expiry.write(id, now_ms);
            first.push(rows::row_at(chosen, position));
        }
        if first.len() == batch.num_rows() {
            output.emit_at(batch.clone(), Place::Caused(first));
        } else if !first.is_empty() {
            let rows = UInt32Array::from(first.clone());
            output.emit_at(take_record_batch(batch, &rows)?, Place::Caused(first));
        }
        Ok(())
    }
}

impl Partition for FirstArrivals {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        let has_state = |id: u32| self.seen[id as usize];
        let over = self.expiry.sweep(piece.num_rows(), output.wall_ms(), has_state);
        if over.is_empty() { Ok(()) } else { self.forget(&over) }
    }

    fn state_bytes(&self) -> usize {
        let tracker = self.tracker.as_ref().map_or(0, KeyTracker::bytes);
        self.keys.bytes()
            + self.seen.capacity()
            + self.expiry.bytes()
            + tracker
            + self.ids.capacity() * 4
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table(TABLES[KEYS]) {
            let state = self.table.read(batch)?;
            let mut ids = Vec::new();
            let rows = state.rows.num_rows();
            self.keys.intern_rows(state.rows.columns(), None, rows, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.seen[id as usize] = true;
                state.write(&mut self.expiry, id, row);
            }
        }
        Ok(())
    }
}

impl KeyedState for FirstArrivals {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.seen.get(id as usize).is_some_and(|&seen| seen)
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        self.table.capture_keys(&self.keys, &self.expiry, ids)
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
}
