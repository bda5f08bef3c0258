//! Operators with two inputs.
//!
//! Both inputs come as one stream of rows that say which side they belong to ([`sides`]), so lanes,
//! joint watermarks, idleness and the orders of the contracts are those of a union, and nothing of
//! them is written twice.
//!
//! | module | joins | keeps | rows leave |
//! |---|---|---|---|
//! | `regular` | without a bound in time, changelogs | all live rows | with their cause |
//! | `interval` | times within a distance | rows within reach | with the second row |
//! | `window` | the same window | rows of open windows | when the window closes |
//! | `temporal` | the version valid at a time | waiting rows, versions | behind their time |
//! | `hash` | one bounded side | that side, shared by all workers | with the probe row |
//! | `lookup` | an external table by key | a cache, open requests | with the answer |
//! | `set_operation` | INTERSECT, EXCEPT | two counts per distinct row | with their cause |
//!
//! `interval` and `window` take append-only inputs. Their padded rows (outer and anti joins) leave
//! at a watermark, when no partner can come any more.
//!
//! Which of them a query gets is decided by the planner from the condition and from what the inputs
//! promise. Nothing here checks that the cheapest one was chosen.
//!
//! **What all of them rely on**
//! - Keys of both sides have the same types in the same order. The planner adds casts.
//! - `=` on keys is SQL's: a row with NULL in a key has no partner. Only `regular` can be asked to
//!   let NULL equal NULL (`IS NOT DISTINCT FROM`), and `set_operation` always does.
//! - The output has the columns of the left side, then those of the right side. The side that may
//!   be missing is nullable, whatever its input says. Semi and anti joins have the left side's
//!   columns.

pub(crate) mod bounded;
pub mod equi;
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
    /// All of them.
    pub const ALL: [JoinKind; 6] = [
        JoinKind::Inner,
        JoinKind::Left,
        JoinKind::Right,
        JoinKind::Full,
        JoinKind::Semi,
        JoinKind::Anti,
    ];

    /// What a stage with such a join is called.
    pub fn name(self) -> &'static str {
        match self {
            JoinKind::Inner => "join",
            JoinKind::Left => "left join",
            JoinKind::Right => "right join",
            JoinKind::Full => "full join",
            JoinKind::Semi => "semi join",
            JoinKind::Anti => "anti join",
        }
    }

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
