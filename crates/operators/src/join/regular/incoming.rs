//! The rows of a piece as the rows of a join: which side, which key, what they do.
//!
//! Only rows that can have a partner are numbered: `OfSide::rows`, `keys` and `hashes` have one
//! entry for each of those, and `nth` counts along. Rows with NULL in a key are passed to `settle`
//! with `NIL`, since an outer join still emits them padded.

use std::cell::OnceCell;

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::NullBuffer;
use thalweg_core::{Piece, Result, RowKind};

use super::plan::RegularJoinPlan;
use crate::join::sides::{Side, side_at, tags};
use crate::keys::{KeyTable, hash_keys};
use crate::rows::arena::NIL;
use crate::rows::columns::{keys_of, take_all};

/// A row that arrives.
#[derive(Clone, Copy)]
pub(super) struct JoinArrival {
    /// Its row in the bundle.
    pub row: u32,
    pub side: Side,
    pub kind: RowKind,
    /// [`NIL`] if it can have no partner.
    pub key: u32,
    /// Which of the rows of its side with a key it is.
    nth: usize,
}

/// True for `+I` and `+U`.
pub(super) fn adds(kind: RowKind) -> bool {
    matches!(kind, RowKind::Insert | RowKind::UpdateAfter)
}

/// The rows of one side that can have partners.
struct OfSide<'a> {
    columns: &'a [ArrayRef],
    /// Their rows in the bundle.
    rows: Vec<u32>,
    keys: Vec<u32>,
    /// Where the key has no NULL, for all rows of the bundle; `None` where all have none.
    has_key: Option<NullBuffer>,
    /// The hashes of all of their columns, once one is asked for.
    hashes: OnceCell<Vec<u64>>,
}

/// The rows of a piece.
pub(super) struct Arrivals<'a> {
    pub piece: Piece<'a>,
    tags: &'a BooleanArray,
    sides: [OfSide<'a>; 2],
}

impl<'a> Arrivals<'a> {
    /// Gives the rows their keys.
    pub fn new(plan: &RegularJoinPlan, piece: Piece<'a>, keys: &mut KeyTable) -> Result<Self> {
        let batch = &piece.bundle.batch;
        let tags = tags(batch)?;
        let mut of_side = |side| {
            let columns = plan.spec.join.sides.columns(side, batch);
            OfSide::new(plan, side, columns, &piece, tags, keys)
        };
        let sides = [of_side(Side::Left)?, of_side(Side::Right)?];
        Ok(Arrivals { piece, tags, sides })
    }

    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = JoinArrival> + '_ {
        let kinds = self.piece.bundle.kinds.as_deref();
        let mut next = [0; 2];
        (0..self.piece.num_rows()).map(move |position| {
            let row = self.piece.rows.map_or(position as u32, |rows| rows[position]);
            let side = side_at(self.tags, row);
            let of_side = &self.sides[side as usize];
            let nth = next[side as usize];
            let key = if of_side.can_match(row) { of_side.keys[nth] } else { NIL };
            next[side as usize] += usize::from(key != NIL);
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row as usize]);
            JoinArrival { row, side, kind, key, nth }
        })
    }

    /// The columns of a side in the bundle.
    pub fn columns(&self, side: Side) -> &'a [ArrayRef] {
        self.sides[side as usize].columns
    }

    /// The keys of the rows of a side that can have partners.
    pub fn keys(&self, side: Side) -> &[u32] {
        &self.sides[side as usize].keys
    }

    /// The hash of all columns of a row that has a key.
    pub fn hash(&self, arrival: JoinArrival) -> Result<u64> {
        let OfSide { columns, rows, hashes, .. } = &self.sides[arrival.side as usize];
        if let Some(hashes) = hashes.get() {
            return Ok(hashes[arrival.nth]);
        }
        let found = hash_keys(&take_all(columns, rows)?, rows.len())?;
        Ok(hashes.get_or_init(|| found)[arrival.nth])
    }
}

impl<'a> OfSide<'a> {
    fn new(
        plan: &RegularJoinPlan,
        side: Side,
        columns: &'a [ArrayRef],
        piece: &Piece<'_>,
        tags: &BooleanArray,
        table: &mut KeyTable,
    ) -> Result<Self> {
        let key_columns = keys_of(columns, plan.keys(side));
        let mut has_key = None;
        for (column, null_equals_null) in key_columns.iter().zip(&plan.spec.null_equals_null) {
            if !null_equals_null {
                has_key = NullBuffer::union(has_key.as_ref(), column.logical_nulls().as_ref());
            }
        }
        let hashes = OnceCell::new();
        let mut of_side = OfSide { columns, rows: Vec::new(), keys: Vec::new(), has_key, hashes };
        let is_meant = |&row: &u32| side_at(tags, row) == side && of_side.can_match(row);
        of_side.rows = match piece.rows {
            Some(rows) => rows.iter().copied().filter(is_meant).collect(),
            None => (0..tags.len() as u32).filter(is_meant).collect(),
        };
        if !of_side.rows.is_empty() {
            let rows = Some(&of_side.rows[..]).filter(|rows| rows.len() < tags.len());
            table.intern_rows(&key_columns, rows, tags.len(), &mut of_side.keys)?;
        }
        Ok(of_side)
    }

    #[inline]
    fn can_match(&self, row: u32) -> bool {
        self.has_key.as_ref().is_none_or(|has_key| has_key.is_valid(row as usize))
    }
}
