//! The rows that runs may ask for: batches of the columns that are asked for.
//!
//! **Invariant:** what is stored is at most [`SPARSE`] times what keys hold, and a little: otherwise the
//! rows that are left are written anew ([`Kept::is_sparse`], [`Kept::rewrite`]).

use arrow_array::ArrayRef;
use thalweg_core::{Result, TableSchema};

use super::runs::Key;
use crate::join::bounded::chunks::{Chunks, RowRef, own_text};

/// How many stored rows there may be for one that is held.
const SPARSE: usize = 4;
/// Below so many stored rows nothing is written anew.
const SPARSE_MIN: usize = 64 * 1024;

/// Rows by place.
pub(super) struct Kept {
    schema: TableSchema,
    chunks: Chunks,
    /// For each chunk how many rows were stored and how many are held.
    sizes: Vec<(usize, usize)>,
    stored: usize,
    held: usize,
}

impl Kept {
    pub(super) fn new(schema: TableSchema) -> Self {
        Kept { chunks: Chunks::new(&schema), schema, sizes: Vec::new(), stored: 0, held: 0 }
    }

    /// Takes rows in, each of which is then held.
    pub(super) fn add(&mut self, columns: Vec<ArrayRef>, rows: usize) -> u32 {
        let chunk = self.chunks.add(columns, rows, false);
        if self.sizes.len() <= chunk as usize {
            self.sizes.resize(chunk as usize + 1, (0, 0));
        }
        self.sizes[chunk as usize] = (rows, rows);
        self.stored += rows;
        self.held += rows;
        chunk
    }

    /// Nobody asks for this row any more.
    #[inline]
    pub(super) fn release(&mut self, row: RowRef) {
        let (stored, held) = &mut self.sizes[row.chunk as usize];
        *held -= 1;
        self.held -= 1;
        if *held == 0 {
            self.stored -= *stored;
            self.chunks.release(row.chunk, 1);
        }
    }

    /// One column of these rows; NULL where there is no row.
    pub(super) fn column(&self, rows: &[RowRef], column: usize) -> Result<ArrayRef> {
        Ok(self.chunks.gather_columns(rows, std::iter::once(column))?.swap_remove(0))
    }

    /// True if little of what is stored is held.
    pub(super) fn is_sparse(&self) -> bool {
        self.stored > SPARSE_MIN && self.stored > SPARSE * self.held
    }

    /// Writes the rows that keys hold into a batch of their own.
    pub(super) fn rewrite(&mut self, keys: &mut [Key]) -> Result<()> {
        let rows: Vec<RowRef> = keys.iter().flat_map(|key| key.rows.iter().copied()).collect();
        let columns = self.chunks.gather(&rows)?.into_iter().map(own_text).collect();
        *self = Kept::new(self.schema.clone());
        if rows.is_empty() {
            return Ok(());
        }
        let chunk = self.add(columns, rows.len());
        let mut next = 0..;
        for row in keys.iter_mut().flat_map(|key| key.rows.iter_mut()) {
            *row = RowRef { chunk, row: next.next().unwrap_or(0) };
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.bytes() + self.sizes.capacity() * size_of::<(usize, usize)>()
    }
}
