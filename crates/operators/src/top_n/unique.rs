//! Which row has which upsert key.
//!
//! The key of the table is the partition's key columns and then the upsert key.
//!
//! **Invariant:** an entry names a live row of `store`, or is `NONE` and its key is in `emptied`
//! until the piece ends.

use arrow_array::RecordBatch;
use thalweg_core::Result;

use super::ordered::{Prefix, RankedRow};
use super::spec::TopNSpec;
use crate::keys::KeyTable;
use crate::rows::columns::{keys_of, types_of};

/// No row.
const NONE: RankedRow = RankedRow { prefix: Prefix::MAX, row: u32::MAX };

/// The rows by upsert key, and back.
pub(super) struct Unique {
    columns: Vec<usize>,
    keys: KeyTable,
    /// By number of the key.
    entries: Vec<RankedRow>,
    /// By number of the row.
    of_rows: Vec<u32>,
    /// Keys that may have no row.
    emptied: Vec<u32>,
    /// The key of each row of the piece.
    ids: Vec<u32>,
}

impl Unique {
    pub fn new(spec: &TopNSpec) -> Result<Option<Self>> {
        let Some(unique) = &spec.unique else { return Ok(None) };
        let columns: Vec<usize> = spec.keys.iter().chain(unique).copied().collect();
        Ok(Some(Unique {
            keys: KeyTable::new(&types_of(&spec.input, &columns))?,
            columns,
            entries: Vec::new(),
            of_rows: Vec::new(),
            emptied: Vec::new(),
            ids: Vec::new(),
        }))
    }

    /// Begins a piece.
    pub fn begin(&mut self, batch: &RecordBatch, chosen: Option<&[u32]>) -> Result<()> {
        let columns = keys_of(batch.columns(), &self.columns);
        self.ids.clear();
        self.keys.intern_rows(&columns, chosen, batch.num_rows(), &mut self.ids)?;
        self.entries.resize(self.keys.id_limit(), NONE);
        Ok(())
    }

    /// The row that has the upsert key of a row of the piece.
    pub fn entry(&mut self, position: usize) -> Option<RankedRow> {
        let id = self.ids[position];
        let entry = Some(self.entries[id as usize]).filter(|&entry| entry != NONE);
        if entry.is_none() {
            self.emptied.push(id);
        }
        entry
    }

    /// A row of the piece is kept.
    pub fn set(&mut self, position: usize, entry: RankedRow) {
        let (id, row) = (self.ids[position], entry.row as usize);
        self.entries[id as usize] = entry;
        self.of_rows.resize(self.of_rows.len().max(row + 1), u32::MAX);
        self.of_rows[row] = id;
    }

    /// A row is no longer kept.
    pub fn forget(&mut self, row: u32) {
        let id = self.of_rows[row as usize];
        if self.entries[id as usize].row == row {
            self.entries[id as usize] = NONE;
            self.emptied.push(id);
        }
    }

    /// Ends a piece.
    pub fn finish(&mut self) {
        self.emptied.sort_unstable();
        self.emptied.dedup();
        for id in self.emptied.drain(..) {
            if self.entries[id as usize] == NONE {
                self.keys.release(id);
            }
        }
    }

    pub fn bytes(&self) -> usize {
        let numbers = self.of_rows.capacity() + self.emptied.capacity() + self.ids.capacity();
        self.keys.bytes() + self.entries.capacity() * size_of::<RankedRow>() + numbers * 4
    }
}
