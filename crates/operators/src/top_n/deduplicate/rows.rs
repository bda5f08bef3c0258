//! What all ways of keeping one row ask of a piece.

use arrow_array::RecordBatch;
use thalweg_core::{Piece, Result, RowKind};

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
