//! The rows of each key that a frame still holds, oldest first.
//!
//! Rows stand in batches as they came, with the few columns that are still needed. The rows of a
//! key are linked through the batches: a row costs its columns and sixteen bytes, and keys that
//! proceed at the same pace read their oldest rows one after the other.
//!
//! **Invariants:**
//! - a batch is freed with the last of its rows that a key still has; what was taken off can be
//!   read until [`Trail::settle`];
//! - a batch is at most [`SPARSE`] times as large as what keys have of all of them: otherwise what
//!   is left is rewritten.
//!
//! ```text
//! key 7:  first ─> (chunk 0, row 3) ─> (chunk 0, row 9) ─> (chunk 2, row 1) <─ last
//! links   one for each stored row: its time, and the next row of the same key
//! ```

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use thalweg_core::{Result, TableSchema};

use crate::aggregate::{StateColumns, StateRows, elements_of, lists};
use crate::rows::chunks::{Chunks, RowRef};
use crate::tables::own_text;
use crate::tables::unique_names;

/// The column of times in tables of state.
const TIMES_MS: &str = "times_ms";
/// How many stored rows there may be for one that is held.
const SPARSE: usize = 4;
/// Below this many stored rows nothing is rewritten.
const SPARSE_MIN: usize = 64 * 1024;

/// What follows a row, and its time.
#[derive(Clone, Copy)]
struct Link {
    time: i64,
    next: RowRef,
}

/// The links of one batch.
#[derive(Default)]
struct Links {
    links: Vec<Link>,
    held: usize,
}

/// The rows of one key.
#[derive(Clone, Copy)]
struct List {
    first: RowRef,
    last: RowRef,
    first_time: i64,
    count: u64,
}

const NO_ROWS: List = List { first: RowRef::NONE, last: RowRef::NONE, first_time: 0, count: 0 };

/// Rows by key.
pub(super) struct Trail {
    schema: TableSchema,
    chunks: Chunks,
    links: Vec<Links>,
    lists: Vec<List>,
    /// Batches that rows were taken off.
    taken_off: Vec<u32>,
    /// Rows of all batches, and rows of all lists.
    stored: usize,
    held: usize,
}

impl Trail {
    /// No rows, of these columns.
    pub fn new(schema: TableSchema) -> Self {
        Trail {
            chunks: Chunks::new(&schema),
            schema,
            links: Vec::new(),
            lists: Vec::new(),
            taken_off: Vec::new(),
            stored: 0,
            held: 0,
        }
    }

    pub fn grow(&mut self, groups: usize) {
        if self.lists.len() < groups {
            self.lists.resize(groups, NO_ROWS);
        }
    }

    /// Takes a batch in, each row of which is then given to its key by [`Trail::push`].
    pub fn add(&mut self, columns: Vec<ArrayRef>, times: &[i64]) -> u32 {
        let chunk = self.chunks.add(columns, times.len(), false);
        if self.links.len() <= chunk as usize {
            self.links.resize_with(chunk as usize + 1, Links::default);
        }
        let link = |&time: &i64| Link { time, next: RowRef::NONE };
        self.links[chunk as usize] =
            Links { links: times.iter().map(link).collect(), held: times.len() };
        self.stored += times.len();
        self.held += times.len();
        chunk
    }

    /// Gives a row to its key, as the newest.
    #[inline]
    pub fn push(&mut self, id: u32, row: RowRef, time: i64) {
        let list = &mut self.lists[id as usize];
        if list.count == 0 {
            (list.first, list.first_time) = (row, time);
        } else {
            let last = list.last;
            self.links[last.chunk as usize].links[last.row as usize].next = row;
        }
        list.last = row;
        list.count += 1;
    }

    /// How many rows a key has.
    #[inline]
    pub fn count(&self, id: u32) -> u64 {
        self.lists[id as usize].count
    }

    /// The oldest row of a key.
    #[inline]
    pub fn first(&self, id: u32) -> RowRef {
        self.lists[id as usize].first
    }

    /// The row of a key behind this one.
    pub fn next(&self, row: RowRef) -> RowRef {
        self.links[row.chunk as usize].links[row.row as usize].next
    }

    /// Takes the oldest row off.
    #[inline]
    pub fn pop(&mut self, id: u32) -> RowRef {
        let list = &mut self.lists[id as usize];
        let row = list.first;
        list.first = self.links[row.chunk as usize].links[row.row as usize].next;
        list.count -= 1;
        if list.count > 0 {
            let first = list.first;
            list.first_time = self.links[first.chunk as usize].links[first.row as usize].time;
        }
        self.taken_off.push(row.chunk);
        row
    }

    /// Takes the oldest row off if it is older than `time`.
    #[inline]
    pub fn pop_before(&mut self, id: u32, time: i64) -> Option<RowRef> {
        let list = &self.lists[id as usize];
        (list.count > 0 && list.first_time < time).then(|| self.pop(id))
    }

    /// Takes all rows of a key off.
    pub fn clear(&mut self, id: u32) {
        while self.count(id) > 0 {
            self.pop(id);
        }
    }

    /// These rows, column by column; NULL where there is no row.
    pub fn gather(&self, rows: &[RowRef]) -> Result<Vec<ArrayRef>> {
        self.chunks.gather(rows)
    }

    /// One column of these rows.
    pub fn gather_column(&self, rows: &[RowRef], column: usize) -> Result<ArrayRef> {
        Ok(self.chunks.gather_columns(rows, &[column])?.swap_remove(0))
    }

    /// The keys that have rows.
    pub fn keys(&self) -> Vec<u32> {
        let has_rows = |&id: &u32| self.count(id) > 0;
        (0..self.lists.len() as u32).filter(has_rows).collect()
    }

    /// Captures the rows of these keys, oldest first: for each key a list of times and one for each
    /// column.
    pub fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let (mut rows, mut times) = (Vec::new(), Vec::new());
        for &id in ids {
            let mut row = self.first(id);
            for _ in 0..self.count(id) {
                let link = self.links[row.chunk as usize].links[row.row as usize];
                rows.push(row);
                times.push(link.time);
                row = link.next;
            }
        }
        let lengths: Vec<usize> = ids.iter().map(|&id| self.count(id) as usize).collect();
        columns.add(TIMES_MS, lists(lengths.clone(), Arc::new(Int64Array::from(times)))?);
        for (name, column) in self.parts().iter().zip(self.gather(&rows)?) {
            columns.add(name, lists(lengths.clone(), own_text(column))?);
        }
        Ok(())
    }

    /// Restores rows that [`Trail::capture`] wrote of these keys, which have none and may have this
    /// many.
    pub fn restore(&mut self, ids: &[u32], state: &StateRows<'_>, most: u64) -> Result<()> {
        let (times, owners) =
            elements_of(state.lists(TIMES_MS, &arrow_schema::DataType::Int64)?, ids);
        let mut columns = Vec::with_capacity(self.schema.len());
        for (part, column) in self.parts().iter().zip(&self.schema.columns) {
            let of = column.column_type.data_type.arrow();
            let (values, owners_of_values) = elements_of(state.lists(part, &of)?, ids);
            if owners_of_values != owners {
                return Err(state.damaged(part, "has more values than times, or fewer"));
            }
            columns.push(values);
        }
        if times.null_count() > 0 {
            return Err(state.damaged(TIMES_MS, "holds NULL"));
        }
        if owners.is_empty() {
            return Ok(());
        }
        let times = times.as_primitive::<Int64Type>().values();
        let chunk = self.add(columns, times);
        for (row, (&id, &time)) in owners.iter().zip(times).enumerate() {
            self.push(id, RowRef { chunk, row: row as u32 }, time);
        }
        match ids.iter().any(|&id| self.count(id) > most) {
            true => Err(state.damaged(TIMES_MS, "has more rows than are kept")),
            false => Ok(()),
        }
    }

    /// What its columns are called in tables of state.
    fn parts(&self) -> Vec<String> {
        let names = self.schema.columns.iter().map(|column| &column.name[..]);
        unique_names(std::iter::once(TIMES_MS).chain(names)).split_off(1)
    }

    /// Frees what was taken off.
    pub fn settle(&mut self) -> Result<()> {
        let taken_off = std::mem::take(&mut self.taken_off);
        for run in taken_off.chunk_by(|a, b| a == b) {
            let links = &mut self.links[run[0] as usize];
            links.held -= run.len();
            self.held -= run.len();
            if links.held == 0 {
                self.stored -= links.links.len();
                links.links = Vec::new();
                self.chunks.release(run[0], 1);
            }
        }
        self.taken_off = taken_off;
        self.taken_off.clear();
        if self.stored > SPARSE_MIN && self.stored > SPARSE * self.held {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Writes the rows that keys have into a batch of their own.
    fn rewrite(&mut self) -> Result<()> {
        let (mut rows, mut owners, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for (id, list) in self.lists.iter().enumerate().filter(|(_, list)| list.count > 0) {
            let mut row = list.first;
            for _ in 0..list.count {
                let link = self.links[row.chunk as usize].links[row.row as usize];
                rows.push(row);
                owners.push(id as u32);
                times.push(link.time);
                row = link.next;
            }
        }
        let columns = self.gather(&rows)?.into_iter().map(own_text).collect();
        self.chunks = Chunks::new(&self.schema);
        (self.stored, self.held) = (0, 0);
        self.links.clear();
        self.lists.fill(NO_ROWS);
        if rows.is_empty() {
            return Ok(());
        }
        let chunk = self.add(columns, &times);
        for (row, (&id, &time)) in owners.iter().zip(&times).enumerate() {
            self.push(id, RowRef { chunk, row: row as u32 }, time);
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let links: usize = self.links.iter().map(|links| links.links.capacity()).sum();
        self.chunks.bytes()
            + links * size_of::<Link>()
            + self.links.capacity() * size_of::<Links>()
            + self.lists.capacity() * size_of::<List>()
            + self.taken_off.capacity() * 4
    }
}
