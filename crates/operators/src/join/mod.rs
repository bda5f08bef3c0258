//! Operators with two inputs.
//!
//! Both inputs come as one stream of rows that say which side they belong to ([`sides`]), so lanes,
//! joint watermarks, idleness and the orders of the contracts are those of a union, and nothing of
//! them is written twice.

pub(crate) mod bounded;
pub mod hash;
pub mod interval;
pub mod lookup;
pub(crate) mod pairs;
pub mod regular;
mod residual;
pub mod set_operation;
pub mod sides;
pub mod temporal;
pub mod window;

/// Which rows a join keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the left side without a partner.
    Left,
    /// Pairs, and rows of the right side without a partner.
    Right,
    /// Pairs, and rows of either side without a partner.
    Full,
    /// Rows of the left side that have a partner, once each.
    Semi,
    /// Rows of the left side that have none.
    Anti,
}

impl JoinKind {
    /// True if rows of the left side without a partner leave, padded with NULL.
    pub fn pads_left_rows(self) -> bool {
        matches!(self, JoinKind::Left | JoinKind::Full)
    }

    /// True if rows of the right side without a partner leave, padded with NULL.
    pub fn pads_right_rows(self) -> bool {
        matches!(self, JoinKind::Right | JoinKind::Full)
    }

    /// True if the columns of the right side leave as well.
    pub fn has_right_columns(self) -> bool {
        !matches!(self, JoinKind::Semi | JoinKind::Anti)
    }
}
