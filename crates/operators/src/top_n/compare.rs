//! Comparing the sort keys of rows that are kept and of a row that is sought.
//!
//! Prefixes decide most comparisons. Where the sort key fits into a prefix they decide all
//! (`is_exact`), and no column of bytes is kept. Otherwise it is the last column of the arena.

use std::cmp::Ordering;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;

use super::ordered::{Prefix, RankedRow};
use super::store::Store;

/// A row of the piece whose place among others is asked for.
#[derive(Clone, Copy)]
pub(super) struct SoughtRank {
    pub prefix: Prefix,
    pub piece_row: u32,
}

/// The order of rows.
#[derive(Clone, Copy)]
pub(super) struct Compare<'a> {
    pub store: &'a Store,
    /// The columns of the piece; the last one holds the bytes of sort keys unless prefixes are
    /// exact.
    pub columns: &'a [ArrayRef],
    pub is_exact: bool,
}

impl Compare<'_> {
    fn bytes(&self, row: u32) -> &[u8] {
        let (columns, at) = self.store.find(row, self.columns);
        bytes_at(columns, at)
    }

    /// How a kept row stands to the one that is sought.
    #[inline]
    pub fn order(&self, entry: &RankedRow, sought: SoughtRank) -> Ordering {
        entry.prefix.cmp(&sought.prefix).then_with(|| match self.is_exact {
            true => Ordering::Equal,
            false => self.bytes(entry.row).cmp(bytes_at(self.columns, sought.piece_row as usize)),
        })
    }

    /// How two kept rows stand.
    pub fn entries(&self, left: &RankedRow, right: &RankedRow) -> Ordering {
        left.prefix.cmp(&right.prefix).then_with(|| match self.is_exact {
            true => Ordering::Equal,
            false => self.bytes(left.row).cmp(self.bytes(right.row)),
        })
    }
}

fn bytes_at(columns: &[ArrayRef], row: usize) -> &[u8] {
    let last = columns.last().map(|column| column.as_binary::<i32>());
    last.map_or(&[], |bytes| bytes.value(row))
}
