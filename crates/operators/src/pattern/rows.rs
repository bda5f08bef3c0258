//! The rows that runs may ask for: batches of the columns that are asked for.
//!
//! **Invariant:** what is stored is at most [`SPARSE`] times what keys hold, and a little:
//! otherwise the rows that are left are rewritten ([`PatternRows::is_sparse`],
//! [`PatternRows::rewrite`]).
//!
//! Rows are kept for all runs of a key together, from the first row of its oldest run (or waiting
//! match) on. A key without runs and matches keeps none.

use std::collections::VecDeque;

use arrow_array::ArrayRef;
use arrow_array::types::UInt64Type;
use thalweg_core::{Result, TableSchema};

use super::runs::Key;
use crate::aggregate::{StateColumns, StateRows, elements_of, lists};
use crate::rows::chunks::{Chunks, RowRef};
use crate::tables::own_text;
use crate::tables::unique_names;

/// How many rows a key has, in tables of state.
const ROWS: &str = "rows";
/// How many stored rows there may be for one that is held.
const SPARSE: usize = 4;
/// Below this many stored rows nothing is rewritten.
const SPARSE_MIN: usize = 64 * 1024;

/// Rows by place.
pub(super) struct PatternRows {
    schema: TableSchema,
    chunks: Chunks,
    /// For each chunk how many rows were stored and how many are held.
    sizes: Vec<(usize, usize)>,
    stored: usize,
    held: usize,
}

impl PatternRows {
    pub fn new(schema: TableSchema) -> Self {
        PatternRows { chunks: Chunks::new(&schema), schema, sizes: Vec::new(), stored: 0, held: 0 }
    }

    /// Takes rows in, each of which is then held.
    pub fn add(&mut self, columns: Vec<ArrayRef>, rows: usize) -> u32 {
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
    pub fn release(&mut self, row: RowRef) {
        let (stored, held) = &mut self.sizes[row.chunk as usize];
        *held -= 1;
        self.held -= 1;
        if *held == 0 {
            self.stored -= *stored;
            self.chunks.release(row.chunk, 1);
        }
    }

    /// One column of these rows; NULL where there is no row.
    pub fn column(&self, rows: &[RowRef], column: usize) -> Result<ArrayRef> {
        Ok(self.chunks.gather_columns(rows, &[column])?.swap_remove(0))
    }

    /// Captures the rows of keys: for each how many, and a list for each column.
    pub fn capture(&self, keys: &[&VecDeque<RowRef>], state: &mut StateColumns) -> Result<()> {
        let rows: Vec<RowRef> = keys.iter().flat_map(|rows| rows.iter().copied()).collect();
        let lengths: Vec<usize> = keys.iter().map(|rows| rows.len()).collect();
        state.add_numbers::<UInt64Type>(ROWS, lengths.iter().map(|&length| length as u64));
        for (part, column) in self.parts().iter().zip(self.chunks.gather(&rows)?) {
            state.add(part, lists(lengths.clone(), own_text(column))?);
        }
        Ok(())
    }

    /// Restores rows that [`PatternRows::capture`] wrote; returns those of each key.
    pub fn restore(&mut self, rows: &StateRows<'_>) -> Result<Vec<VecDeque<RowRef>>> {
        let lengths = rows.numbers::<UInt64Type>(ROWS)?;
        let keys: Vec<u32> = (0..lengths.len() as u32).collect();
        let total = lengths.iter().fold(0u64, |total, &length| total.saturating_add(length));
        let mut columns = Vec::with_capacity(self.schema.len());
        for (part, column) in self.parts().iter().zip(&self.schema.columns) {
            let of = column.column_type.data_type.arrow();
            let (values, owners) = elements_of(rows.lists(part, &of)?, &keys);
            let mut of_keys = owners.chunk_by(|a, b| a == b).map(|of_key| of_key.len() as u64);
            let mut filled = lengths.iter().copied().filter(|&length| length > 0);
            if owners.len() as u64 != total || !filled.by_ref().eq(of_keys.by_ref()) {
                return Err(rows.damaged(part, "has more values than rows, or fewer"));
            }
            columns.push(values);
        }
        let Some(total) = u32::try_from(total).ok().filter(|&total| total > 0) else {
            return match total {
                0 => Ok(vec![VecDeque::new(); lengths.len()]),
                _ => Err(rows.damaged(ROWS, "has more rows than can be kept")),
            };
        };
        let chunk = self.add(columns, total as usize);
        let mut rows = (0..total).map(|row| RowRef { chunk, row });
        let of_key = |&length: &u64| rows.by_ref().take(length as usize).collect();
        Ok(lengths.iter().map(of_key).collect())
    }

    /// What its columns are called in tables of state.
    fn parts(&self) -> Vec<String> {
        let names = self.schema.columns.iter().map(|column| &column.name[..]);
        unique_names(std::iter::once(ROWS).chain(names)).split_off(1)
    }

    /// True if little of what is stored is held.
    pub fn is_sparse(&self) -> bool {
        self.stored > SPARSE_MIN && self.stored > SPARSE * self.held
    }

    /// Writes the rows that keys hold into a batch of their own.
    pub fn rewrite(&mut self, keys: &mut [Key]) -> Result<()> {
        let rows: Vec<RowRef> = keys.iter().flat_map(|key| key.rows.iter().copied()).collect();
        let columns = self.chunks.gather(&rows)?.into_iter().map(own_text).collect();
        *self = PatternRows::new(self.schema.clone());
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

    pub fn bytes(&self) -> usize {
        self.chunks.bytes() + self.sizes.capacity() * size_of::<(usize, usize)>()
    }
}
