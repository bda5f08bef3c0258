//! What a table that is written by key shall hold: for each key the row that came last of those
//! that were not retracted (Flink's upsert materializer).
//!
//! A query may change by another key than the table does: then rows of one key come from several
//! keys of the query, the taking back of an old row may come behind the new one, and a table that
//! only knows the last change would lose it. Here all rows of a key are kept, in the order in which
//! they came.
//!
//! | a row | leaves |
//! |---|---|
//! | comes to a key without rows | `+I` |
//! | comes to a key with rows | `+U` |
//! | is retracted, and was the last one of its key | `+U` with the one before it |
//! | is retracted, and was the only one | `-D` |
//! | is retracted, and others came behind it | nothing |
//!
//! Invariants:
//! - the rows of a key form a chain from the newest to the oldest; of equal rows the oldest is
//!   retracted;
//! - what leaves never says `-U`: a table by key knows what it holds;
//! - with `state_ttl_ms` a key is forgotten, without a change, when its last row came so long ago.
//!   A row that is retracted without being there is ignored, as in Flink.
//!
//! Captures write all rows of the keys that rows have reached ([`crate::capture`]).
//!
//! # Example
//!
//! Two keys of the query write key 1 of the table; the retraction of the first comes last:
//!
//! ```text
//! input          rows of key 1    output
//! +I (1, 'a')    a                +I (1, 'a')
//! +I (1, 'b')    a b              +U (1, 'b')
//! -D (1, 'a')    b                                 without this operator: key 1 would be deleted
//! -D (1, 'b')                     -D (1, 'b')
//! ```

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{
    Bundle, Operator, Output, Partition, PartitionContext, Piece, Restored, Result, Route, RowKind,
    TableSchema,
};

use super::changes::TopNChanges;
use super::deduplicate::rows;
use super::store::Store;
use super::tables::KeyedRowTable;
use crate::capture::keys::{CapturedByKey, KeyTracker, KeyedState, release, retain_empty};
use crate::expiry::Expiry;
use crate::join::regular::equal::same_row;
use crate::keys::{KeyTable, route_by_keys};
use crate::rows::columns::{check_columns, types_of};

/// The tables of state: the rows of each key, the oldest first.
const TABLES: [&str; 1] = ["rows"];
const ROWS: usize = 0;

/// No row.
const NONE: u32 = u32::MAX;

/// What is kept.
#[derive(Clone, Debug)]
pub struct MaterializeSpec {
    /// The key of the table that is written.
    pub keys: Vec<usize>,
    /// The columns that come in.
    pub input: TableSchema,
    /// How long a key is kept without a new row, in processing time; `None` and 0 for ever.
    pub state_ttl_ms: Option<i64>,
}

/// Turns any changelog into upserts by a key.
pub struct Materialize {
    spec: Arc<MaterializeSpec>,
}

impl Materialize {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a column cannot be a key.
    pub fn new(spec: MaterializeSpec) -> Result<Self> {
        check_columns(&spec.input, spec.keys.iter().copied())?;
        KeyTable::new(&types_of(&spec.input, &spec.keys))?;
        Ok(Materialize { spec: Arc::new(spec) })
    }
}

impl Operator for Materialize {
    fn name(&self) -> String {
        "materialize".to_owned()
    }
    fn is_singleton(&self) -> bool {
        self.spec.keys.is_empty()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.spec.keys, partitions)
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let partition = MaterializePartition::new(Arc::clone(&self.spec))?;
        Ok(Box::new(CapturedByKey::new(partition, &TABLES)))
    }
}

struct MaterializePartition {
    spec: Arc<MaterializeSpec>,
    keys: KeyTable,
    store: Store,
    /// By key: its newest row.
    newest: Vec<u32>,
    /// By row: the one that came before it to its key.
    older: Vec<u32>,
    changes: TopNChanges,
    expiry: Expiry,
    table: KeyedRowTable,
    tracker: Option<KeyTracker>,
    ids: Vec<u32>,
    /// Keys that may have no row.
    emptied: Vec<u32>,
}

impl MaterializePartition {
    fn new(spec: Arc<MaterializeSpec>) -> Result<Self> {
        let schema = spec.input.arrow();
        let expiry = Expiry::new(spec.state_ttl_ms);
        Ok(MaterializePartition {
            keys: KeyTable::new(&types_of(&spec.input, &spec.keys))?,
            store: Store::new(Arc::clone(&schema)),
            newest: Vec::new(),
            older: Vec::new(),
            changes: TopNChanges::new(schema, spec.input.len(), false),
            table: KeyedRowTable::rows(&spec.input, &spec.keys, expiry.expires()),
            expiry,
            tracker: None,
            ids: Vec::new(),
            emptied: Vec::new(),
            spec,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let batch = &piece.bundle.batch;
        let chosen = rows::chosen(piece);
        let mut ids = std::mem::take(&mut self.ids);
        rows::intern(&mut self.keys, &self.spec.keys, batch, chosen, &mut ids)?;
        self.grow();
        self.touch(ROWS, &ids)?;
        let (columns, now_ms) = (batch.columns(), output.wall_ms());
        for (position, &id) in ids.iter().enumerate() {
            let row = rows::row_at(chosen, position);
            self.expire(id, now_ms);
            match rows::kind_of(piece, row) {
                RowKind::Insert | RowKind::UpdateAfter => self.add(id, row, now_ms),
                RowKind::UpdateBefore | RowKind::Delete => self.remove(id, row, columns),
            }
            if self.changes.are_many() {
                self.changes.emit(&self.store.arena, columns, output)?;
            }
        }
        self.changes.emit(&self.store.arena, columns, output)?;
        self.ids = ids;
        self.finish(columns)
    }

    fn grow(&mut self) {
        let limit = self.keys.id_limit();
        self.newest.resize(limit, NONE);
        self.expiry.grow(limit);
    }

    #[inline]
    fn add(&mut self, id: u32, piece_row: u32, now_ms: i64) {
        let (row, before) = self.link(id, piece_row);
        self.expiry.write(id, now_ms);
        let kind = if before == NONE { RowKind::Insert } else { RowKind::UpdateAfter };
        self.changes.push(kind, self.store.place(row), 0, piece_row);
    }

    /// A row is the newest one of its key; its number, and that of the one before.
    #[inline]
    fn link(&mut self, id: u32, piece_row: u32) -> (u32, u32) {
        let row = self.store.add(piece_row);
        if self.older.len() <= row as usize {
            self.older.resize(row as usize + 1, NONE);
        }
        let before = std::mem::replace(&mut self.newest[id as usize], row);
        self.older[row as usize] = before;
        (row, before)
    }

    fn remove(&mut self, id: u32, piece_row: u32, columns: &[ArrayRef]) {
        let Some((row, newer)) = self.oldest_alike(id, piece_row, columns) else {
            return self.emptied.push(id);
        };
        let before = self.older[row as usize];
        match (newer, before) {
            (NONE, NONE) => {
                self.newest[id as usize] = NONE;
                self.changes.push(RowKind::Delete, self.store.place(row), 0, piece_row);
                self.emptied.push(id);
            }
            (NONE, before) => {
                self.newest[id as usize] = before;
                self.changes.push(RowKind::UpdateAfter, self.store.place(before), 0, piece_row);
            }
            (newer, before) => self.older[newer as usize] = before,
        }
        self.store.remove(row);
    }

    /// The oldest row of a key that equals one of the piece, and the one that came behind it.
    fn oldest_alike(&self, id: u32, piece_row: u32, columns: &[ArrayRef]) -> Option<(u32, u32)> {
        let (mut newer, mut row, mut found) = (NONE, self.newest[id as usize], None);
        while row != NONE {
            let (kept, at) = self.store.find(row, columns);
            if same_row(kept, at, columns, piece_row as usize) {
                found = Some((row, newer));
            }
            (newer, row) = (row, self.older[row as usize]);
        }
        found
    }

    /// A key whose state is too old is forgotten before a row reaches it.
    fn expire(&mut self, id: u32, now_ms: i64) {
        if self.newest[id as usize] != NONE && self.expiry.is_over(id, now_ms) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        let mut row = std::mem::replace(&mut self.newest[id as usize], NONE);
        while row != NONE {
            self.store.remove(row);
            row = self.older[row as usize];
        }
        self.emptied.push(id);
    }

    /// Ends a piece: rows that stay move into the arena, and keys without rows are forgotten.
    fn finish(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.store.keep(columns)?;
        retain_empty(&mut self.emptied, |id| self.newest[id as usize] == NONE);
        release(&mut self.tracker, &mut self.keys, &self.emptied)?;
        self.emptied.clear();
        Ok(())
    }
}

impl Partition for MaterializePartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        let has_state = |id: u32| self.newest[id as usize] != NONE;
        let over = self.expiry.sweep(piece.num_rows(), output.wall_ms(), has_state);
        if over.is_empty() {
            return Ok(());
        }
        self.touch(ROWS, &over)?;
        over.into_iter().for_each(|id| self.forget(id));
        self.finish(&[])
    }

    fn state_bytes(&self) -> usize {
        let numbers = self.newest.capacity()
            + self.older.capacity()
            + self.ids.capacity()
            + self.emptied.capacity();
        self.keys.bytes()
            + self.store.bytes()
            + self.changes.bytes()
            + self.expiry.bytes()
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
            + numbers * size_of::<u32>()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        for batch in restored.table(TABLES[ROWS]) {
            let state = self.table.read(batch)?;
            let mut ids = Vec::new();
            rows::intern(&mut self.keys, &spec.keys, &state.rows, None, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.link(id, row as u32);
                state.write(&mut self.expiry, id, row);
            }
            self.finish(state.rows.columns())?;
        }
        Ok(())
    }
}

impl KeyedState for MaterializePartition {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.newest.get(id as usize).is_some_and(|&newest| newest != NONE)
    }
    /// The rows of a key from the oldest on.
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (mut keys, mut places) = (Vec::new(), Vec::new());
        for &id in ids {
            let first = places.len();
            let mut row = self.newest[id as usize];
            while row != NONE {
                keys.push(id);
                places.push(self.store.place(row));
                row = self.older[row as usize];
            }
            places[first..].reverse();
        }
        self.table.capture_rows(&self.keys, &self.expiry, &self.store.arena, (&keys, &places))
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
}
