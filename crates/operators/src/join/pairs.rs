//! Rows put side by side: the columns that leave, and which pairs really belong together.
//!
//! A pair comes from equal hashes of keys, or from equal keys; [`Joined::mask`] says which pairs
//! stay: those whose keys are equal, where hashes do not prove it, and for which the residual
//! condition holds.
//!
//! A key of one integer-like column needs no comparison: its hash is a bijection of the value, so
//! equal hashes are equal values. For all other keys an index by hash yields pairs that must be
//! compared. They are compared column by column over all pairs of a batch, not one by one while
//! chains are followed.

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_ord::ord::make_comparator;
use arrow_schema::{SchemaRef, SortOptions};
use thalweg_core::{
    Column, ColumnType, DataType, Error, Result, TableSchema, Watermark, WatermarkBefore,
};

use crate::join::JoinKind;
use crate::join::equi::EquiJoin;
use crate::join::residual::Residual;
use crate::join::sides::Side;
use crate::keys::is_proved_by_hash;
use crate::rows::columns::{batch_of, keys_of};

/// What leaves a join, and what decides over pairs.
pub(crate) struct Joined {
    /// Which rows leave.
    pub(crate) kind: JoinKind,
    /// The columns that leave.
    pub(crate) output: TableSchema,
    /// The types of the keys.
    pub(crate) key_types: Vec<DataType>,
    arrow: SchemaRef,
    residual: Option<Residual>,
    /// Key columns whose equality the hash does not prove, (left, right).
    unproved: Vec<(usize, usize)>,
}

impl Joined {
    /// Pairs of a join. `proves_keys` says that pairs have equal keys anyway.
    ///
    /// # Errors
    /// If keys or condition do not fit the sides.
    pub fn new(join: &EquiJoin, proves_keys: bool) -> Result<Self> {
        let EquiJoin { sides, kind, left_keys, right_keys, residual } = join;
        let (left, right) = (sides.schema(Side::Left), sides.schema(Side::Right));
        let key_types = join.key_types()?;
        let width = left.len() + right.len();
        if residual.as_ref().is_some_and(|r| r.columns().last().is_some_and(|&c| c >= width)) {
            return Err(Error::internal("the condition of a join names a column of neither side"));
        }
        let output = output_schema(left, right, *kind);
        let is_proved = proves_keys
            || matches!(key_types.as_slice(), [] | [_] if key_types.iter().all(|key| is_proved_by_hash(&key.arrow())));
        let pairs = left_keys.iter().copied().zip(right_keys.iter().copied());
        let unproved = if is_proved { Vec::new() } else { pairs.collect() };
        let residual = residual.as_ref().map(|condition| Residual::new(condition, sides));
        Ok(Joined { kind: *kind, arrow: output.arrow(), output, key_types, residual, unproved })
    }

    /// True if some pairs may not stay.
    pub fn has_mask(&self) -> bool {
        self.residual.is_some() || !self.unproved.is_empty()
    }

    /// True if the columns of a side are read at all.
    pub fn reads(&self, side: Side) -> bool {
        side == Side::Left || self.kind.has_right_columns() || self.has_mask()
    }

    /// The columns of a side that the residual condition reads.
    pub fn residual_columns(&self, side: Side) -> &[usize] {
        self.residual.as_ref().map_or(&[], |residual| residual.columns(side))
    }

    /// Which pairs stay, of whose columns these are all; `None` if all do.
    pub fn mask(
        &self,
        left: &[ArrayRef],
        right: &[ArrayRef],
        rows: usize,
        wall_ms: i64,
    ) -> Result<Option<BooleanBuffer>> {
        let mut equal: Option<BooleanBuffer> = None;
        for &(l, r) in &self.unproved {
            let of_key = equal_values(&left[l], &right[r])?;
            equal = Some(equal.map_or(of_key.clone(), |equal| &equal & &of_key));
        }
        // Most often hashes were right.
        equal = equal.filter(|equal| equal.count_set_bits() < rows);
        let left = keys_of(left, self.residual_columns(Side::Left));
        let right = keys_of(right, self.residual_columns(Side::Right));
        self.mask_of_equal(equal, left, right, rows, wall_ms)
    }

    /// Which pairs of equal keys stay: of all of them, or of those in `equal`. Of their columns
    /// these are [`Joined::residual_columns`].
    pub fn mask_of_equal(
        &self,
        equal: Option<BooleanBuffer>,
        left: Vec<ArrayRef>,
        right: Vec<ArrayRef>,
        rows: usize,
        wall_ms: i64,
    ) -> Result<Option<BooleanBuffer>> {
        let Some(residual) = &self.residual else { return Ok(equal) };
        let pairs = residual.pairs(left, right, rows)?;
        let watermark_before = WatermarkBefore::All(Watermark::MIN);
        // A condition that can fail must not see a pair that is none.
        if let (Some(equal), true) = (&equal, residual.can_fail()) {
            let kept = pairs.filtered(&BooleanArray::new(equal.clone(), None))?;
            let held = residual.holds(&kept, &watermark_before, wall_ms)?;
            let mut places = equal.set_indices();
            let mut both = vec![false; rows];
            for held in held.values().iter() {
                let place = places.next().expect("one pair for each place");
                both[place] = held;
            }
            return Ok(Some(both.into()));
        }
        let held = residual.holds(&pairs, &watermark_before, wall_ms)?.values().clone();
        Ok(Some(equal.map_or(held.clone(), |equal| &equal & &held)))
    }

    /// The batch that leaves; `right` is not read where only rows of the left side leave.
    pub fn batch(
        &self,
        left: Vec<ArrayRef>,
        right: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch> {
        let mut columns = left;
        if self.kind.has_right_columns() {
            columns.extend(right);
        }
        batch_of(&self.arrow, columns, rows)
    }
}

/// The columns that leave: both sides', those of a side that may be missing nullable.
pub(crate) fn output_schema(
    left: &TableSchema,
    right: &TableSchema,
    kind: JoinKind,
) -> TableSchema {
    let column = |column: &Column, may_miss: bool| {
        let nullable = column.column_type.nullable || may_miss;
        let column_type = ColumnType { nullable, ..column.column_type.clone() };
        Column { column_type, ..column.clone() }
    };
    let of_left = left.columns.iter().map(|c| column(c, kind.pads_right_rows()));
    let of_right = right.columns.iter().map(|c| column(c, kind.pads_left_rows()));
    let of_right = of_right.filter(|_| kind.has_right_columns());
    TableSchema::new(of_left.chain(of_right).collect())
}

/// Where two columns have the same value, as keys are compared. Keys of pairs are never NULL.
fn equal_values(left: &ArrayRef, right: &ArrayRef) -> Result<BooleanBuffer> {
    if left.data_type().is_nested() {
        let compare = make_comparator(left, right, SortOptions::default())?;
        return Ok(BooleanBuffer::collect_bool(left.len(), |row| compare(row, row).is_eq()));
    }
    Ok(arrow_ord::cmp::eq(left, right)?.values().clone())
}
