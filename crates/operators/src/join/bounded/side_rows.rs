//! The rows of a piece by side, with what a join asks of them: times, hashes, NULLs among the keys.
//!
//! Rows of one side lie together here (`rows`, `columns` and all the others have one length and one
//! order, that of the bundle); `stretches` say in which alternation they came. Epochs bring rows of
//! one side only, the ordered contracts any mixture.
//!
//! ```text
//! bundle rows   0:L 1:R 2:R 3:L        left rows [0, 3], right rows [1, 2]
//! stretches     L 0..1, R 0..2, L 1..2      places among the rows of the side
//! ```

use arrow_array::ArrayRef;
use thalweg_core::{Piece, Result};

use crate::join::sides::{Side, Sides, tags};

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
pub(crate) struct SideStretch {
    pub(crate) side: Side,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// The rows of a piece.
pub(crate) struct Split {
    pub(crate) left: SideRows,
    pub(crate) right: SideRows,
    pub(crate) stretches: Vec<SideStretch>,
}

impl Split {
    /// The rows of one side.
    pub fn of(&self, side: Side) -> &SideRows {
        side.pick(&self.left, &self.right)
    }
}

/// Takes a piece apart.
pub(crate) fn split(sides: &Sides, piece: &Piece<'_>) -> Result<Split> {
    let batch = &piece.bundle.batch;
    let tags = tags(batch)?;
    let (mut left, mut right) = (SideRows::default(), SideRows::default());
    let mut stretches: Vec<SideStretch> = Vec::new();
    let rights = tags.true_count();
    if rights == 0 || rights == tags.len() {
        let (side, own) = match rights {
            0 => (Side::Left, &mut left),
            _ => (Side::Right, &mut right),
        };
        let all = || (0..tags.len() as u32).collect();
        own.rows = piece.rows.map_or_else(all, <[u32]>::to_vec);
        stretches.push(SideStretch { side, from: 0, to: own.rows.len() });
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
                _ => stretches.push(SideStretch { side, from: to - 1, to }),
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
