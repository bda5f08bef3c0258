//! What all ways of keeping one row ask of a piece.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use thalweg_core::{Error, Piece, Result, RowKind};

use crate::keys::KeyTable;
use crate::rows::columns::keys_of;

/// The row of the bundle at each position of a piece.
#[inline]
pub(crate) fn row_at(chosen: Option<&[u32]>, position: usize) -> u32 {
    chosen.map_or(position as u32, |chosen| chosen[position])
}

/// The rows that are meant; `None` for all.
pub(crate) fn chosen<'a>(piece: &Piece<'a>) -> Option<&'a [u32]> {
    piece.rows.filter(|rows| rows.len() < piece.bundle.num_rows())
}

/// The numbers of the keys of these rows.
pub(crate) fn intern(
    table: &mut KeyTable,
    keys: &[usize],
    batch: &RecordBatch,
    chosen: Option<&[u32]>,
    ids: &mut Vec<u32>,
) -> Result<()> {
    ids.clear();
    table.intern_rows(&keys_of(batch.columns(), keys), chosen, batch.num_rows(), ids)
}

/// What a row of the bundle does.
#[inline]
pub(crate) fn kind_of(piece: &Piece<'_>, row: u32) -> RowKind {
    piece.bundle.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds[row as usize])
}

/// An error if a row is anything but an insert.
pub(super) fn inserts_only(piece: &Piece<'_>) -> Result<()> {
    let Some(kinds) = &piece.bundle.kinds else { return Ok(()) };
    let is_change = |row: usize| kinds[row] != RowKind::Insert;
    let has_change = match piece.rows {
        None => (0..kinds.len()).any(is_change),
        Some(rows) => rows.iter().any(|&row| is_change(row as usize)),
    };
    if has_change { Err(Error::internal("deduplication met an update")) } else { Ok(()) }
}

/// The row times of a bundle.
pub(super) fn times(batch: &RecordBatch, column: usize) -> Result<ScalarBuffer<i64>> {
    let name = batch.schema_ref().field(column).name();
    let column = batch.column(column);
    let times = column
        .as_primitive_opt::<TimestampMillisecondType>()
        .ok_or_else(|| Error::internal(format!("a row time of type {}", column.data_type())))?;
    if times.null_count() > 0 {
        return Err(Error::data(format!("the row time {name} is NULL"))
            .hint("filter such rows out, or give the column a value with COALESCE"));
    }
    Ok(times.values().clone())
}
