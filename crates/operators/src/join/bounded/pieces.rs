//! The rows of a piece by side, with what a join asks of them: times, hashes, NULLs among the keys.
//!
//! Rows of one side lie together here (`rows`, `columns` and all the others have one length and one
//! order, that of the bundle); `stretches` say in which alternation they came. Epochs bring rows of
//! one side only, the ordered contracts any mixture.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_select::take::take_record_batch;
use thalweg_core::{Error, Output, Piece, Result, RowKind, TableSchema, Watermark};

use crate::join::sides::{Side, Sides};
use crate::window::LatePolicy;

/// Rows of one side.
#[derive(Default)]
pub(crate) struct SideRows {
    /// Their numbers in the bundle, ascending.
    pub(crate) rows: Vec<u32>,
    /// The side's own columns.
    pub(crate) columns: Vec<ArrayRef>,
}

/// Rows of one side that came one behind the other: a range of [`SideRows::rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) side: Side,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// The rows of a piece.
pub(crate) struct Split {
    pub(crate) left: SideRows,
    pub(crate) right: SideRows,
    pub(crate) stretches: Vec<Stretch>,
}

impl Split {
    /// The rows of one side.
    pub(crate) fn of(&self, side: Side) -> &SideRows {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }
}

/// Takes a piece apart.
pub(crate) fn split(sides: &Sides, piece: &Piece<'_>) -> Result<Split> {
    let batch = &piece.bundle.batch;
    let tags = batch.columns().first().and_then(|column| column.as_boolean_opt());
    let tags =
        tags.ok_or_else(|| Error::internal("rows of two inputs do not say which they are"))?;
    let (mut left, mut right) = (SideRows::default(), SideRows::default());
    let mut stretches: Vec<Stretch> = Vec::new();
    let rights = tags.true_count();
    if rights == 0 || rights == tags.len() {
        let (side, own) = match rights {
            0 => (Side::Left, &mut left),
            _ => (Side::Right, &mut right),
        };
        let all = || (0..tags.len() as u32).collect();
        own.rows = piece.rows.map_or_else(all, <[u32]>::to_vec);
        stretches.push(Stretch { side, from: 0, to: own.rows.len() });
    } else {
        let mut add = |row: u32| {
            let (side, own) = match tags.value(row as usize) {
                false => (Side::Left, &mut left),
                true => (Side::Right, &mut right),
            };
            own.rows.push(row);
            let to = own.rows.len();
            match stretches.last_mut() {
                Some(last) if last.side == side => last.to = to,
                _ => stretches.push(Stretch { side, from: to - 1, to }),
            }
        };
        match piece.rows {
            Some(rows) => rows.iter().for_each(|&row| add(row)),
            None => (0..tags.len() as u32).for_each(&mut add),
        }
    }
    left.columns = sides.take(Side::Left, batch, &left.rows)?;
    right.columns = sides.take(Side::Right, batch, &right.rows)?;
    Ok(Split { left, right, stretches })
}

/// An error if a row is anything but an insert.
pub(crate) fn inserts_only(piece: &Piece<'_>, what: &str) -> Result<()> {
    let is_change = |kinds: &[RowKind]| match piece.rows {
        None => kinds.iter().any(|&kind| kind != RowKind::Insert),
        Some(rows) => rows.iter().any(|&row| kinds[row as usize] != RowKind::Insert),
    };
    match &piece.bundle.kinds {
        Some(kinds) if is_change(kinds) => Err(Error::internal(format!("{what} met an update"))),
        _ => Ok(()),
    }
}

/// A column of times; NULL among them is an error of the data.
pub(crate) fn times(
    columns: &[ArrayRef],
    place: usize,
    schema: &TableSchema,
) -> Result<ScalarBuffer<i64>> {
    let Some(column) = columns.get(place) else {
        return Err(Error::internal("a time of a join is not a column of its side"));
    };
    let times = column.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(|| {
        Error::internal(format!("a time of type {} is not in milliseconds", column.data_type()))
    })?;
    if times.null_count() > 0 {
        let name = &schema.columns[place].name;
        return Err(Error::data(format!("the row time {name} is NULL"))
            .hint("filter such rows out, or give the column a value with COALESCE"));
    }
    Ok(times.values().clone())
}

/// The key columns of a side.
pub(crate) fn keys_of(columns: &[ArrayRef], keys: &[usize]) -> Vec<ArrayRef> {
    keys.iter().map(|&key| ArrayRef::clone(&columns[key])).collect()
}

/// Which rows have a value in each key column; `None` if all.
pub(crate) fn joinable(keys: &[ArrayRef]) -> Option<NullBuffer> {
    let all = keys.iter().fold(None, |all, key| NullBuffer::union(all.as_ref(), key.nulls()));
    all.filter(|nulls| nulls.null_count() > 0)
}

/// Counts late rows and does with them what the policy says. They leave as they came, with the
/// column that tells their side.
pub(crate) fn treat_late(
    policy: LatePolicy,
    late: &[(u32, i64)],
    piece: &Piece<'_>,
    output: &mut Output,
) -> Result<()> {
    let Some(&(first, time)) = late.first() else { return Ok(()) };
    output.late += late.len() as u64;
    match policy {
        LatePolicy::Drop => Ok(()),
        LatePolicy::Fail => {
            let watermark = piece.bundle.stamps.watermark_before.at(first as usize);
            let time = Watermark(time);
            Err(Error::data(format!("a row of {time} came late, at watermark {watermark}"))
                .hint("allow a longer delay in WATERMARK FOR, or SET 'late.data' = 'drop'"))
        }
        LatePolicy::Emit => {
            let rows: Vec<u32> = late.iter().map(|&(row, _)| row).collect();
            let indices = UInt32Array::from(rows.clone());
            output.emit_late(take_record_batch(&piece.bundle.batch, &indices)?, rows);
            Ok(())
        }
    }
}
