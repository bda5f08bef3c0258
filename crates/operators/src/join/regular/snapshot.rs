//! What a regular join tells of its state: a table for each side.
//!
//! | column | |
//! |---|---|
//! | `$partners` | how many partners a row has, where rows count theirs |
//! | `$written` | when it was last written, in milliseconds since 1970, where state is kept for a limited time |
//! | the columns of the side | |
//!
//! The rows of a key stand in the order of their arrival. A side of which nothing but the number of rows
//! of each key is kept has the columns of the key and `$rows`. Everything else follows: chains, what they
//! are searched by, and the queue of times come again with the rows. Between two pieces, when this is
//! asked, no candidate and no change waits.
//!
//! While the job is held, links and places are copied; rows are put together later from the segments
//! that they lie in, which never change.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Column, Error, Restored, Result, TableSchema};

use super::arena::{Arena, Place};
use super::expiry::Expiry;
use super::partition::{JoinPartition, Slot};
use super::state::Incoming;
use super::{NIL, Plan};
use crate::join::sides::Side;
use crate::tables::{
    ToldPlaces, does_not_fit, kept_batch, kept_columns, kept_schema, numbers_of, owners, tell,
};

/// The tables of state, by side.
const TABLES: [&str; 2] = ["left", "right"];
const PARTNERS: &str = "$partners";
const WRITTEN: &str = "$written";
const ROWS: &str = "$rows";

/// The rows of one side at the time of a capture.
pub(super) struct FrozenSide {
    /// By row: the next one of its chain, and where it lies.
    pub nodes: Vec<(u32, Place)>,
    pub counts: Option<Vec<u32>>,
    pub written_ms: Option<Vec<i64>>,
    pub arena: Arena,
}

impl FrozenSide {
    /// The rows, each chain from its head on. `chains` are hashes of keys and heads.
    fn rows(&self, chains: &[(u64, u32)], schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
        let (mut told, mut rows) = (ToldPlaces::default(), Vec::new());
        for &(hash, head) in chains {
            let mut row = head;
            while row != NIL {
                let (next, place) = self.nodes[row as usize];
                told.push(hash, place);
                rows.push(row);
                row = next;
            }
        }
        let mut own: Vec<ArrayRef> = Vec::new();
        if let Some(counts) = &self.counts {
            let counts = rows.iter().map(|&row| counts[row as usize]);
            own.push(Arc::new(UInt32Array::from_iter_values(counts)));
        }
        if let Some(written_ms) = &self.written_ms {
            let times = rows.iter().map(|&row| written_ms[row as usize]);
            own.push(Arc::new(Int64Array::from_iter_values(times)));
        }
        told.batches(schema, &own, &self.arena)
    }
}

impl Plan {
    /// The schema of the table of a side.
    fn state_schema(&self, side: Side) -> SchemaRef {
        if !self.keeps(side) {
            return kept_schema(&[(ROWS, Arrow::UInt32)], &self.key_schema(side));
        }
        let mut own = Vec::new();
        if self.counts(side) {
            own.push((PARTNERS, Arrow::UInt32));
        }
        if self.ttl_ms(side).is_some() {
            own.push((WRITTEN, Arrow::Int64));
        }
        kept_schema(&own, self.spec.sides.schema(side))
    }

    /// The columns of the rows that are told of a side, or of their keys.
    fn told_columns(&self, side: Side, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let count = match self.keeps(side) {
            true => self.spec.sides.schema(side).len(),
            false => self.keys(side).len(),
        };
        kept_columns(batch, &self.state_schema(side), count)
    }

    /// The key columns of a side.
    fn key_schema(&self, side: Side) -> TableSchema {
        let columns = &self.spec.sides.schema(side).columns;
        TableSchema::new(self.keys(side).iter().map(|&key| Column::clone(&columns[key])).collect())
    }
}

impl JoinPartition {
    /// Tells both sides.
    pub fn tell(&self) -> Result<Captured> {
        let mut captured = Captured::default();
        for side in [Side::Left, Side::Right] {
            match self.plan.keeps(side) {
                true => self.tell_rows(side, &mut captured),
                false => self.tell_lengths(side, &mut captured)?,
            }
        }
        Ok(captured)
    }

    fn tell_rows(&self, side: Side, captured: &mut Captured) {
        let chain = |(id, slot): (usize, &Slot)| {
            let head = slot.chains[side as usize].head;
            (head != NIL).then(|| (self.keys.hash_of(id as u32), head))
        };
        let chains: Vec<(u64, u32)> = self.slots.iter().enumerate().filter_map(chain).collect();
        let frozen = self.sides[side as usize].frozen();
        let schema = self.plan.state_schema(side);
        let of_table = Arc::clone(&schema);
        let make =
            move || Ok(TableRows { rows: frozen.rows(&chains, &of_table)?, removed: Vec::new() });
        captured.add_later(TABLES[side as usize], schema, Box::new(make));
    }

    fn tell_lengths(&self, side: Side, captured: &mut Captured) -> Result<()> {
        let length = |id: u32| self.slots[id as usize].chains[side as usize].length;
        let ids: Vec<u32> = (0..self.slots.len() as u32).filter(|&id| length(id) > 0).collect();
        let lengths = UInt32Array::from_iter_values(ids.iter().map(|&id| length(id)));
        let owners = owners(ids.iter().map(|&id| self.keys.hash_of(id)));
        let (schema, keys) = (self.plan.state_schema(side), self.keys.take_keys(&ids)?);
        let batch = kept_batch(&schema, owners, vec![Arc::new(lengths)], keys)?;
        tell(captured, TABLES[side as usize], batch);
        Ok(())
    }

    /// Takes back what partitions have told.
    pub fn take_back(&mut self, restored: &Restored) -> Result<()> {
        for side in [Side::Left, Side::Right] {
            for batch in restored.table(TABLES[side as usize]) {
                match self.plan.keeps(side) {
                    true => self.take_back_rows(side, batch)?,
                    false => self.take_back_lengths(side, batch)?,
                }
            }
            self.sides[side as usize].expiry.as_mut().map(Expiry::put_in_order);
        }
        Ok(())
    }

    fn take_back_rows(&mut self, side: Side, batch: &RecordBatch) -> Result<()> {
        let columns = self.plan.told_columns(side, batch)?;
        let keys: Vec<ArrayRef> =
            self.plan.keys(side).iter().map(|&key| ArrayRef::clone(&columns[key])).collect();
        let ids = self.intern(&keys, batch.num_rows())?;
        let state = &mut self.sides[side as usize];
        let partners = match state.counts() {
            true => Some(numbers_of::<UInt32Type>(batch, PARTNERS)?),
            false => None,
        };
        let written_ms = match state.expiry {
            Some(_) => Some(numbers_of::<Int64Type>(batch, WRITTEN)?),
            None => None,
        };
        let hash = || Err(Error::internal("a chain without an index is not searched by hash"));
        for (row, &key) in ids.iter().enumerate() {
            let chain = &mut self.slots[key as usize].chains[side as usize];
            let incoming = Incoming { columns: &columns, row: row as u32, key, hash: &hash };
            let number = state.add(chain, &incoming)?;
            state.set_known(number, partners.map(|p| p[row]), written_ms.map(|w| w[row]));
        }
        state.keep(&columns, batch.num_rows())
    }

    fn take_back_lengths(&mut self, side: Side, batch: &RecordBatch) -> Result<()> {
        let keys = self.plan.told_columns(side, batch)?;
        let lengths = numbers_of::<UInt32Type>(batch, ROWS)?;
        if lengths.contains(&0) {
            return Err(does_not_fit("a key without rows is told".to_owned()));
        }
        let ids = self.intern(&keys, batch.num_rows())?;
        for (&id, &length) in ids.iter().zip(lengths) {
            self.slots[id as usize].chains[side as usize].length = length;
        }
        Ok(())
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(rows);
        self.keys.intern_rows(keys, None, rows, &mut ids)?;
        self.slots.resize(self.keys.id_limit(), Slot::EMPTY);
        Ok(ids)
    }
}
