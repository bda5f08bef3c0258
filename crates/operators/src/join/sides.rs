//! Two inputs as one stream: a column that says which side a row belongs to, then the columns of
//! the left side, then those of the right; those of the other side are NULL.
//!
//! **Invariants:**
//! - a row of the left side has NULL in every column of the right side, and the other way round;
//! - watermark stamps, row kinds and places follow their rows, as through any stateless step;
//! - a bundle may hold rows of both sides in any alternation (the ordered contracts merge them).
//!
//! Tagging costs next to nothing: the columns of the other side are slices of one array of NULLs
//! that is made once and grows with the largest bundle.
//!
//! ```text
//! left (id)      right (name, id)       $side   id    name   id
//! 1              ('a', 1)          ->   false   1     NULL   NULL
//!                                       true    NULL  'a'    1
//! ```
//!
//! Why a tag and not two ports: everything that follows rows (routing, watermarks by lane, epochs,
//! the order of contracts, slicing of pieces) then works for joins as for any operator.

use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use thalweg_core::{Bundle, Column, ColumnType, DataType, Error, Piece, Result, Route};
use thalweg_core::{TableSchema, Transform};

use crate::keys::{hash_rows, scatter};
use crate::rows::columns::{keys_of, take_all};

/// The name of the column that says which side a row belongs to: TRUE for the right one.
pub const SIDE_COLUMN: &str = "$side";

/// One of two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The first.
    Left,
    /// The second.
    Right,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Side {
        self.pick(Side::Right, Side::Left)
    }
    /// That one of two things which is of this side.
    pub fn pick<T>(self, left: T, right: T) -> T {
        match self {
            Side::Left => left,
            Side::Right => right,
        }
    }
}

/// The columns of both sides, and of the stream that they become.
#[derive(Clone, Debug)]
pub struct Sides {
    left: TableSchema,
    right: TableSchema,
    combined: TableSchema,
}

impl Sides {
    /// Inputs with these columns.
    pub fn new(left: TableSchema, right: TableSchema) -> Self {
        let side = Column::new(SIDE_COLUMN, DataType::Boolean.not_null());
        let nullable = |column: &Column| Column {
            column_type: ColumnType { nullable: true, ..column.column_type.clone() },
            ..column.clone()
        };
        let both = left.columns.iter().chain(&right.columns).map(nullable);
        let combined = TableSchema::new(std::iter::once(side).chain(both).collect());
        Sides { left, right, combined }
    }

    /// The columns of one side, as they come in.
    pub fn schema(&self, side: Side) -> &TableSchema {
        side.pick(&self.left, &self.right)
    }

    /// The columns of the tagged stream.
    pub fn combined(&self) -> &TableSchema {
        &self.combined
    }

    /// Where a side's columns stand in the tagged stream.
    fn range(&self, side: Side) -> std::ops::Range<usize> {
        side.pick(1..1 + self.left.len(), 1 + self.left.len()..self.combined.len())
    }

    /// Where the columns of a side begin in the tagged stream.
    pub fn first_column(&self, side: Side) -> usize {
        self.range(side).start
    }

    /// The columns of a side in a tagged batch; rows of the other side are NULL.
    pub fn columns<'a>(&self, side: Side, batch: &'a RecordBatch) -> &'a [ArrayRef] {
        &batch.columns()[self.range(side)]
    }

    /// Rows of a side in a tagged batch, in the side's own columns.
    pub fn take(&self, side: Side, batch: &RecordBatch, rows: &[u32]) -> Result<Vec<ArrayRef>> {
        take_all(self.columns(side, batch), rows)
    }

    /// The rows of a piece as stretches of one side each, in order: the rows of the bundle.
    pub fn stretches(&self, piece: &Piece<'_>) -> Result<Vec<(Side, Vec<u32>)>> {
        let tags = tags(&piece.bundle.batch)?;
        let mut stretches: Vec<(Side, Vec<u32>)> = Vec::new();
        let mut add = |row: u32| {
            let side = side_at(tags, row);
            match stretches.last_mut() {
                Some((last, rows)) if *last == side => rows.push(row),
                _ => stretches.push((side, vec![row])),
            }
        };
        match piece.rows {
            Some(rows) => rows.iter().for_each(|&row| add(row)),
            None => (0..piece.bundle.num_rows() as u32).for_each(&mut add),
        }
        Ok(stretches)
    }

    /// Where rows go by the key of their own side. Key columns are positions in the side's own
    /// columns; those of both sides are of the same types in the same order.
    ///
    /// Equal keys must go to one partition whichever side they come from. The hash depends on type
    /// and value alone (`keys::hash_keys`), so hashing each row by its own side's columns is
    /// enough.
    pub fn route(
        &self,
        bundle: &Bundle,
        left_keys: &[usize],
        right_keys: &[usize],
        partitions: usize,
    ) -> Result<Route> {
        let batch = &bundle.batch;
        let tags = tags(batch)?;
        let left_keys = keys_of(self.columns(Side::Left, batch), left_keys);
        let right_keys = keys_of(self.columns(Side::Right, batch), right_keys);
        let mut of_left = Vec::new();
        scatter(batch.num_rows(), partitions, |block, hashes| {
            let tags = tags.slice(block.from, block.rows);
            let right = tags.true_count();
            if right == 0 {
                return hash_rows(&left_keys, block, hashes);
            }
            hash_rows(&right_keys, block, hashes)?;
            if right < block.rows {
                of_left.resize(block.rows, 0);
                hash_rows(&left_keys, block, &mut of_left)?;
                let both = hashes.iter_mut().zip(&of_left).zip(tags.values());
                both.filter(|(_, is_right)| !is_right).for_each(|((hash, &left), _)| *hash = left);
            }
            Ok(())
        })
    }
}

pub(in crate::join) fn tags(batch: &RecordBatch) -> Result<&BooleanArray> {
    let tags = batch.columns().first().and_then(|column| column.as_boolean_opt());
    tags.ok_or_else(|| Error::internal("rows of two inputs do not say which side they belong to"))
}

pub(in crate::join) fn side_at(tags: &BooleanArray, row: u32) -> Side {
    if tags.values().value(row as usize) { Side::Right } else { Side::Left }
}

/// Says of the rows of one input which side they belong to.
pub struct TagSide {
    side: Side,
    schema: SchemaRef,
    /// How many columns the left side has.
    left: usize,
    columns: usize,
    /// The side column and the other side's NULLs, as long as the largest bundle so far.
    constant: Mutex<Arc<Vec<ArrayRef>>>,
}

impl TagSide {
    /// Tags rows of this side.
    pub fn new(side: Side, sides: &Sides) -> Self {
        TagSide {
            side,
            schema: sides.combined.arrow(),
            left: sides.left.len(),
            columns: sides.combined.len(),
            constant: Mutex::default(),
        }
    }

    /// Where the rows' own columns stand.
    fn own(&self) -> std::ops::Range<usize> {
        self.side.pick(1..1 + self.left, 1 + self.left..self.columns)
    }

    /// The columns that do not depend on the rows, at least so long; those of the rows are empty.
    fn constant(&self, rows: usize) -> Arc<Vec<ArrayRef>> {
        let mut constant = self.constant.lock().expect("no panic under this lock");
        if constant.first().is_none_or(|column| column.len() < rows) {
            // A power of two, so that bundles of slowly growing sizes do not make new arrays each
            // time.
            let length = rows.next_power_of_two();
            let tag = BooleanArray::from(vec![self.side == Side::Right; length]);
            let own = self.own();
            let others = (1..self.columns).map(|place| {
                let length = if own.contains(&place) { 0 } else { length };
                new_null_array(self.schema.field(place).data_type(), length)
            });
            *constant =
                Arc::new(std::iter::once(Arc::new(tag) as ArrayRef).chain(others).collect());
        }
        Arc::clone(&constant)
    }
}

impl Transform for TagSide {
    fn name(&self) -> String {
        self.side.pick("left side", "right side").to_owned()
    }

    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        let rows = bundle.num_rows();
        let constant = self.constant(rows);
        let own = self.own();
        let column = |place: usize| match own.contains(&place) {
            true => Arc::clone(bundle.batch.column(place - own.start)),
            false => constant[place].slice(0, rows),
        };
        let columns = (0..self.columns).map(column).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(Bundle { batch, ..bundle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringViewArray};
    use thalweg_core::Stamps;

    fn sides() -> Sides {
        Sides::new(
            TableSchema::new(vec![Column::new("id", DataType::BigInt.not_null())]),
            TableSchema::new(vec![
                Column::new("name", DataType::STRING.nullable()),
                Column::new("id", DataType::BigInt.nullable()),
            ]),
        )
    }

    fn bundle(schema: &TableSchema, columns: Vec<ArrayRef>) -> Bundle {
        let batch = RecordBatch::try_new(schema.arrow(), columns).unwrap();
        Bundle::new(batch, Stamps::first())
    }

    #[test]
    fn rows_of_both_sides_keep_their_columns_and_meet_by_key() {
        let sides = sides();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]));
        let names: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", "c", "d", "e"]));
        let left = bundle(sides.schema(Side::Left), vec![Arc::clone(&ids)]);
        let right = bundle(sides.schema(Side::Right), vec![Arc::clone(&names), Arc::clone(&ids)]);
        let left = TagSide::new(Side::Left, &sides).apply(left).unwrap();
        let right = TagSide::new(Side::Right, &sides).apply(right).unwrap();
        assert_eq!(left.batch.schema(), right.batch.schema());
        assert_eq!(sides.columns(Side::Left, &left.batch), [Arc::clone(&ids)]);
        assert_eq!(sides.columns(Side::Right, &right.batch), [names, ids]);
        assert_eq!(sides.columns(Side::Right, &left.batch)[0].null_count(), 5);
        let parts = |bundle: &Bundle| match sides.route(bundle, &[0], &[1], 4).unwrap() {
            Route::Scatter(parts) => parts,
            _ => panic!("rows go by key"),
        };
        assert_eq!(parts(&left), parts(&right), "equal keys meet");
    }

    #[test]
    fn stretches_follow_the_rows() {
        let sides = sides();
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let left = bundle(sides.schema(Side::Left), vec![Arc::clone(&id)]);
        let left = TagSide::new(Side::Left, &sides).apply(left).unwrap();
        let names: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
        let right = bundle(sides.schema(Side::Right), vec![names, id]);
        let right = TagSide::new(Side::Right, &sides).apply(right).unwrap();
        let both = [&left.batch, &right.batch];
        let both = arrow_select::interleave::interleave_record_batch(
            &both,
            &[(0, 0), (1, 0), (1, 1), (0, 1)],
        )
        .unwrap();
        let bundle = Bundle::new(both, Stamps::first());
        let all = Piece::whole(&bundle, 2);
        let stretches = sides.stretches(&all).unwrap();
        let expected = [(Side::Left, vec![0]), (Side::Right, vec![1, 2]), (Side::Left, vec![3])];
        assert_eq!(stretches, expected);
        let some = Piece { rows: Some(&[0, 2, 3]), ..all };
        assert_eq!(sides.stretches(&some).unwrap()[1], (Side::Right, vec![2]));
        // Ids 1, 1, 2, 2, the outer ones of the left side.
        match sides.route(&bundle, &[0], &[1], 256).unwrap() {
            Route::Scatter(parts) => {
                assert!(parts.contains(&vec![0, 1]) && parts.contains(&vec![2, 3]), "{parts:?}");
            }
            _ => panic!("rows go by key"),
        }
        let names = sides.take(Side::Right, &bundle.batch, &[2]).unwrap();
        assert_eq!(names[0].as_string_view().value(0), "b");
    }
}
