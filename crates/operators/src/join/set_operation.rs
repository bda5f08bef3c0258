//! INTERSECT and EXCEPT, with and without ALL, as changelogs.
//!
//! All columns are the key, and NULL equals NULL. For each row the operator keeps how often it
//! stands on either side, and nothing else: what leaves is the row that came, which equals all
//! others of its key.
//!
//! | | copies of a row that stands `l` times on the left side and `r` times on the right one |
//! |---|---|
//! | INTERSECT | 1 if `l > 0` and `r > 0` |
//! | INTERSECT ALL | `min(l, r)` |
//! | EXCEPT | 1 if `l > 0` and `r = 0` |
//! | EXCEPT ALL | `max(l - r, 0)` |
//!
//! A row changes the number of copies by one at most: `+I` for one more, `-D` for one less. Without
//! ALL these are Flink's changes. With ALL Flink retracts all copies and emits the new ones, with
//! kinds of updates; what is left is the same.
//!
//! **Invariants:** a key is known exactly while it stands on a side; what leaves depends on the
//! sequence of the rows of a key alone. A retraction of a row that is not there changes nothing.
//!
//! Example, `EXCEPT` without ALL, one distinct row:
//!
//! ```text
//! input          l  r   copies   output
//! left  +I       1  0   1        +I
//! left  +I       2  0   1
//! right +I       2  1   0        -D
//! right -D       2  0   1        +I
//! left  -D       1  0   1
//! left  -D       0  0   0        -D      the key is forgotten
//! ```

use std::sync::Arc;

use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, UInt64Array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use arrow_select::interleave::interleave;
use thalweg_core::{
    Bundle, Captured, Column, DataType, Error, Extent, Operator, Output, Partition,
    PartitionContext, Piece, Place, Restored, Result, Route, RowKind, TableSchema,
};

use super::sides::{Side, Sides, tags};
use crate::keys::KeyTable;
use crate::rows::columns::batch_of;
use crate::tables::{add_table, kept_batch, kept_columns, kept_schema, numbers_of, owners};

/// The table of state: each row that stands on a side, and how often.
const ROWS: &str = "rows";
/// How often it stands on either side.
const COUNTS: [&str; 2] = ["$left", "$right"];

/// Which set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetOperationKind {
    /// Rows of both sides.
    Intersect,
    /// Rows of the left side that are not on the right side.
    Except,
}

struct SetPlan {
    sides: Sides,
    kind: SetOperationKind,
    all: bool,
    output: TableSchema,
    key_types: Vec<DataType>,
    /// The positions of all columns.
    columns: Vec<usize>,
}

/// The operator of INTERSECT and EXCEPT.
pub struct SetOperation {
    plan: Arc<SetPlan>,
}

impl SetOperation {
    /// A set operation; `all` for INTERSECT ALL and EXCEPT ALL.
    ///
    /// # Errors
    /// If the columns of the two sides do not have the same types, or cannot be keys.
    pub fn new(sides: Sides, kind: SetOperationKind, all: bool) -> Result<Self> {
        let types = |side: Side| -> Vec<DataType> {
            let columns = &sides.schema(side).columns;
            columns.iter().map(|column| column.column_type.data_type.clone()).collect()
        };
        let (key_types, right) = (types(Side::Left), types(Side::Right));
        let fits = key_types.len() == right.len()
            && key_types.iter().zip(&right).all(|(left, right)| left.arrow() == right.arrow());
        if !fits {
            return Err(Error::internal("the sides of a set operation differ in their types"));
        }
        KeyTable::new(&key_types)?;
        let output = output_schema(&sides, kind);
        let columns = (0..key_types.len()).collect();
        Ok(SetOperation {
            plan: Arc::new(SetPlan { sides, kind, all, output, key_types, columns }),
        })
    }

    /// The columns of the left side. Those of INTERSECT are NOT NULL where those of one side are.
    pub fn output_schema(&self) -> &TableSchema {
        &self.plan.output
    }

    /// True if nothing is ever retracted, given whether the inputs take nothing back.
    pub fn emits_inserts_only(&self, left_appends: bool, right_appends: bool) -> bool {
        self.plan.kind == SetOperationKind::Intersect && left_appends && right_appends
    }
}

fn output_schema(sides: &Sides, kind: SetOperationKind) -> TableSchema {
    let pairs = sides.schema(Side::Left).columns.iter().zip(&sides.schema(Side::Right).columns);
    let column = |(left, right): (&Column, &Column)| {
        let both = kind == SetOperationKind::Intersect && !right.column_type.nullable;
        let nullable = left.column_type.nullable && !both;
        Column::new(&left.name, left.column_type.clone().with_nullable(nullable))
    };
    TableSchema::new(pairs.map(column).collect())
}

impl SetPlan {
    fn state_schema(&self) -> SchemaRef {
        kept_schema(&COUNTS.map(|name| (name, Arrow::UInt64)), self.sides.schema(Side::Left))
    }

    /// How many copies of a row are in the result.
    ///
    /// A single row changes `left` or `right` by one, and each of these functions by at most one.
    /// So one row of input leads to at most one row of output.
    fn copies(&self, left: u64, right: u64) -> u64 {
        match (self.kind, self.all) {
            (SetOperationKind::Intersect, true) => left.min(right),
            (SetOperationKind::Intersect, false) => u64::from(left > 0 && right > 0),
            (SetOperationKind::Except, true) => left.saturating_sub(right),
            (SetOperationKind::Except, false) => u64::from(left > 0 && right == 0),
        }
    }
}

impl Operator for SetOperation {
    fn name(&self) -> String {
        let name = match self.plan.kind {
            SetOperationKind::Intersect => "intersect",
            SetOperationKind::Except => "except",
        };
        if self.plan.all { format!("{name} all") } else { name.to_owned() }
    }
    fn is_singleton(&self) -> bool {
        self.plan.key_types.is_empty()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let columns = &self.plan.columns;
        self.plan.sides.route(bundle, columns, columns, partitions)
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let keys = KeyTable::new(&self.plan.key_types)?;
        let plan = Arc::clone(&self.plan);
        Ok(Box::new(SetPartition { plan, keys, counts: Vec::new(), emptied: Vec::new() }))
    }
}

/// How often a row stands on each side.
#[derive(Clone, Copy, Default)]
struct Counts {
    sides: [u64; 2],
    /// True while it waits in `emptied`.
    is_listed: bool,
}

struct SetPartition {
    plan: Arc<SetPlan>,
    keys: KeyTable,
    counts: Vec<Counts>,
    /// Keys that may stand on no side at the end of the piece.
    emptied: Vec<u32>,
}

/// Changes that wait to leave: which side's columns hold each row, and the row.
#[derive(Default)]
struct SetChanges {
    rows: Vec<(usize, usize)>,
    kinds: Vec<RowKind>,
    causes: Vec<u32>,
}

impl SetPartition {
    /// Counts a row; says whether that makes one copy more or less.
    fn count(&mut self, key: u32, side: Side, kind: RowKind) -> Option<RowKind> {
        let counts = &mut self.counts[key as usize];
        let copies = |counts: &Counts| self.plan.copies(counts.sides[0], counts.sides[1]);
        let before = copies(counts);
        let count = &mut counts.sides[side as usize];
        *count = match kind {
            RowKind::Insert | RowKind::UpdateAfter => *count + 1,
            RowKind::UpdateBefore | RowKind::Delete => count.saturating_sub(1),
        };
        let after = copies(counts);
        if counts.sides == [0, 0] && !counts.is_listed {
            counts.is_listed = true;
            self.emptied.push(key);
        }
        match after.cmp(&before) {
            std::cmp::Ordering::Greater => Some(RowKind::Insert),
            std::cmp::Ordering::Less => Some(RowKind::Delete),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// The keys of the rows of one side, in order.
    fn intern(&mut self, side: Side, piece: &Piece<'_>, is_right: &[bool]) -> Result<Vec<u32>> {
        let batch = &piece.bundle.batch;
        let is_meant = |row: u32| is_right[row as usize] == (side == Side::Right);
        let rows: Vec<u32> = match piece.rows {
            Some(rows) => rows.iter().copied().filter(|&row| is_meant(row)).collect(),
            None => (0..batch.num_rows() as u32).filter(|&row| is_meant(row)).collect(),
        };
        let mut keys = Vec::with_capacity(rows.len());
        if !rows.is_empty() {
            let columns = self.plan.sides.columns(side, batch);
            self.keys.intern_rows(columns, Some(&rows), batch.num_rows(), &mut keys)?;
        }
        Ok(keys)
    }

    fn release_keys(&mut self) {
        for key in self.emptied.drain(..) {
            let counts = &mut self.counts[key as usize];
            counts.is_listed = false;
            if counts.sides == [0, 0] {
                self.keys.release(key);
            }
        }
    }

    fn emit(&self, changes: &SetChanges, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let batch = &piece.bundle.batch;
        let of_side = |side| self.plan.sides.columns(side, batch);
        let pairs = of_side(Side::Left).iter().zip(of_side(Side::Right));
        let column = |(left, right): (&ArrayRef, &ArrayRef)| -> Result<ArrayRef> {
            Ok(interleave(&[left.as_ref(), right.as_ref()], &changes.rows)?)
        };
        let columns = pairs.map(column).collect::<Result<_>>()?;
        let batch = batch_of(&self.plan.output.arrow(), columns, changes.rows.len())?;
        let place = Place::Caused(changes.causes.clone());
        if self.plan.kind == SetOperationKind::Except || piece.bundle.kinds.is_some() {
            output.emit_changes(batch, Arc::from(&changes.kinds[..]), place);
        } else {
            output.emit_at(batch, place);
        }
        Ok(())
    }
}

impl Partition for SetPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        let tags = tags(&piece.bundle.batch)?;
        let is_right: Vec<bool> = (0..tags.len()).map(|row| tags.value(row)).collect();
        let keys = [
            self.intern(Side::Left, &piece, &is_right)?,
            self.intern(Side::Right, &piece, &is_right)?,
        ];
        self.counts.resize(self.keys.id_limit(), Counts::default());
        let mut next = [0; 2];
        let mut changes = SetChanges::default();
        for position in 0..piece.num_rows() {
            let row = piece.rows.map_or(position as u32, |rows| rows[position]);
            let side = if is_right[row as usize] { Side::Right } else { Side::Left };
            let key = keys[side as usize][next[side as usize]];
            next[side as usize] += 1;
            let kinds = piece.bundle.kinds.as_deref();
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row as usize]);
            if let Some(change) = self.count(key, side, kind) {
                changes.rows.push((side as usize, row as usize));
                changes.kinds.push(change);
                changes.causes.push(row);
            }
        }
        self.release_keys();
        self.emit(&changes, &piece, output)
    }

    fn state_bytes(&self) -> usize {
        self.keys.bytes()
            + self.counts.capacity() * size_of::<Counts>()
            + self.emptied.capacity() * size_of::<u32>()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    /// Between two pieces no key is listed in `emptied`.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let stands = |id: &u32| self.counts[*id as usize].sides != [0, 0];
        let ids: Vec<u32> = (0..self.counts.len() as u32).filter(stands).collect();
        let count = |side: usize| -> ArrayRef {
            let counts = ids.iter().map(|&id| self.counts[id as usize].sides[side]);
            Arc::new(UInt64Array::from_iter_values(counts))
        };
        let schema = self.plan.state_schema();
        let owners = owners(ids.iter().map(|&id| self.keys.hash_of(id)));
        let rows =
            kept_batch(&schema, owners, vec![count(0), count(1)], self.keys.take_keys(&ids)?)?;
        let mut captured = Captured::default();
        add_table(&mut captured, ROWS, rows);
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        for batch in restored.table(ROWS) {
            let columns = kept_columns(batch, &self.plan.state_schema(), self.plan.columns.len())?;
            let counts = [
                numbers_of::<UInt64Type>(batch, COUNTS[0])?,
                numbers_of::<UInt64Type>(batch, COUNTS[1])?,
            ];
            let mut ids = Vec::with_capacity(batch.num_rows());
            self.keys.intern_rows(&columns, None, batch.num_rows(), &mut ids)?;
            self.counts.resize(self.keys.id_limit(), Counts::default());
            for (row, &id) in ids.iter().enumerate() {
                self.counts[id as usize].sides = [counts[0][row], counts[1][row]];
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
