//! The first row of each key by arrival: a set of keys. Nothing of the rows is kept.

use std::sync::Arc;

use arrow_array::UInt32Array;
use arrow_select::take::take_record_batch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{Captured, Extent, Output, Partition, Piece, Place, Progress, Restored, Result};

use super::{DeduplicateSpec, rows};
use crate::expiry::Expiry;
use crate::keys::KeyTable;
use crate::top_n::told::Told;

/// The table of state: the keys whose row has left.
const KEYS: &str = "keys";

pub(super) struct FirstArrivals {
    spec: Arc<DeduplicateSpec>,
    keys: KeyTable,
    /// By key: true if its row has left.
    seen: Vec<bool>,
    expiry: Option<Expiry>,
    ids: Vec<u32>,
}

impl FirstArrivals {
    pub fn new(spec: Arc<DeduplicateSpec>) -> Result<Self> {
        Ok(FirstArrivals {
            keys: KeyTable::new(&spec.key_types())?,
            seen: Vec::new(),
            expiry: spec.ttl_ms().map(Expiry::new),
            ids: Vec::new(),
            spec,
        })
    }

    fn grow(&mut self) {
        self.seen.resize(self.keys.id_limit(), false);
        if let Some(expiry) = &mut self.expiry {
            expiry.grow(self.seen.len());
        }
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        rows::inserts_only(piece)?;
        let batch = &piece.bundle.batch;
        let chosen = rows::chosen(piece);
        rows::intern(&mut self.keys, &self.spec.keys, batch, chosen, &mut self.ids)?;
        self.grow();
        let now_ms = output.wall_ms();
        let mut first = Vec::new();
        for (position, &id) in self.ids.iter().enumerate() {
            let seen = std::mem::replace(&mut self.seen[id as usize], true);
            if let Some(expiry) = &mut self.expiry {
                if seen && !expiry.is_over(id, now_ms) {
                    continue;
                }
                expiry.write(id, now_ms);
            } else if seen {
                continue;
            }
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
        if let Some(expiry) = &mut self.expiry {
            let seen = &self.seen;
            let has_state = |id: u32| seen[id as usize];
            for id in expiry.sweep(piece.num_rows(), output.wall_ms(), has_state) {
                // A sweep may go round and name a key twice.
                if std::mem::take(&mut self.seen[id as usize]) {
                    self.keys.release(id);
                }
            }
        }
        Ok(())
    }

    fn watermark(&mut self, _call: &WatermarkCall<'_>, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        let expiry = self.expiry.as_ref().map_or(0, Expiry::bytes);
        self.keys.bytes() + self.seen.capacity() + expiry + self.ids.capacity() * 4
    }
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        let ids = 0..self.seen.len() as u32;
        let ids: Vec<u32> = ids.filter(|&id| self.seen[id as usize]).collect();
        let columns = self.spec.key_schema();
        let told = Told::new(KEYS, &columns, &self.expiry);
        told.tell_keys(&mut captured, &self.keys, &self.expiry, &ids)?;
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let columns = self.spec.key_schema();
        for batch in restored.table(KEYS) {
            let told = Told::new(KEYS, &columns, &self.expiry).take_back(batch)?;
            let mut ids = Vec::new();
            let rows = told.rows.num_rows();
            self.keys.intern_rows(told.rows.columns(), None, rows, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.seen[id as usize] = true;
                told.write(&mut self.expiry, id, row);
            }
        }
        Ok(())
    }
}
