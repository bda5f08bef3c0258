//! How operators read the rows of a bundle: event times, which rows have keys, and what happens to
//! late rows.
//!
//! `times` reads the column of one side, where each row has a value. In the tagged batch of two
//! inputs the same column is NULL for rows of the other side, so it must be called with the side's
//! own rows.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_select::take::take_record_batch;
use thalweg_core::{Error, Output, Piece, Result, RowKind, TableSchema, Watermark};

use crate::window::LatePolicy;

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

/// Which rows have a value in each key column; `None` if all.
pub(crate) fn joinable(keys: &[ArrayRef]) -> Option<NullBuffer> {
    let all = keys.iter().fold(None, |all, key| NullBuffer::union(all.as_ref(), key.nulls()));
    all.filter(|nulls| nulls.null_count() > 0)
}

/// Counts late rows, each with its time, and does with them what the policy says. They leave as
/// they came, with the column that names their side.
pub(crate) fn treat_late(
    policy: LatePolicy,
    late: &[(u32, i64)],
    piece: &Piece<'_>,
    output: &mut Output,
) -> Result<()> {
    let Some(&(first, first_time)) = late.first() else { return Ok(()) };
    output.count_late(piece.bundle, late)?;
    match policy {
        LatePolicy::Drop => Ok(()),
        LatePolicy::Fail => {
            let watermark = piece.bundle.stamps.watermark_before.at(first as usize);
            let time = Watermark(first_time);
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
