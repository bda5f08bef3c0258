//! The rows of a piece as Top-N takes them: which columns are kept, and how each row sorts.

use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::{Error, Piece, Result, RowKind};

use super::ordered::Prefix;
use super::sort_keys::SortKeys;
use crate::rows::columns::take_all;

/// Some rows of a piece.
pub(super) struct Incoming<'a> {
    /// What is kept of rows: the columns of the input, then the bytes of sort keys if they matter.
    pub columns: Vec<ArrayRef>,
    /// Their rows in the bundle; `None` means all.
    chosen: Option<&'a [u32]>,
    /// True if only chosen rows are in the columns.
    is_dense: bool,
    /// How each sorts.
    pub prefixes: Vec<Prefix>,
    kinds: Option<&'a [RowKind]>,
}

impl<'a> Incoming<'a> {
    pub fn new(piece: &Piece<'a>, chosen: Option<&'a [u32]>, sort: &SortKeys) -> Result<Self> {
        let batch = &piece.bundle.batch;
        let encoded = sort.encode(batch, chosen)?;
        let mut columns = batch.columns().to_vec();
        let is_dense = chosen.is_some() && encoded.bytes.is_some();
        if let Some(chosen) = chosen.filter(|_| is_dense) {
            columns = take_all(&columns, chosen)?;
        }
        if let Some(bytes) = encoded.bytes {
            columns.push(Arc::new(bytes));
        }
        let kinds = piece.bundle.kinds.as_deref();
        Ok(Incoming { columns, chosen, is_dense, prefixes: encoded.prefixes, kinds })
    }

    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Its row in the bundle.
    #[inline]
    pub fn cause(&self, position: usize) -> u32 {
        self.chosen.map_or(position as u32, |chosen| chosen[position])
    }

    /// Its row in the columns.
    #[inline]
    pub fn row(&self, position: usize) -> u32 {
        if self.is_dense { position as u32 } else { self.cause(position) }
    }

    /// False if the row is retracted.
    #[inline]
    pub fn adds(&self, position: usize) -> bool {
        let kind = self.kinds.map(|kinds| kinds[self.cause(position) as usize]);
        !kind.is_some_and(retracts)
    }

    /// An error if a row is retracted.
    pub fn only_adds(&self) -> Result<()> {
        match self.kinds.is_none() || (0..self.len()).all(|position| self.adds(position)) {
            true => Ok(()),
            false => Err(Error::internal("the first rows of inserts were given a retraction")),
        }
    }
}

fn retracts(kind: RowKind) -> bool {
    matches!(kind, RowKind::UpdateBefore | RowKind::Delete)
}
