//! Rows whose turn has come, in the order in which functions see them.

use arrow_array::ArrayRef;

/// Rows in the order of time and arrival; rows of equal time all together, where they are peers.
pub(super) struct Fired {
    /// The input's columns.
    pub(super) columns: Vec<ArrayRef>,
    /// The key of each row.
    pub(super) ids: Vec<u32>,
    /// The time of each row, ascending.
    pub(super) times: Vec<i64>,
}

impl Fired {
    pub(super) fn rows(&self) -> usize {
        self.ids.len()
    }
}
