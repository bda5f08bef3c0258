//! Aggregate functions over groups that are dense ids: one vectorized update per call and run of
//! rows, no virtual call and no allocation per row.
//!
//! An [`AggregateCall`] says what to compute; [`AggregateCall::accumulator`] makes the column of
//! states. Which implementation runs is decided once, from the types. What holds for all:
//!
//! - A group that no row reached, or only NULL arguments, gives NULL; COUNT gives 0.
//! - *Exact* aggregates are commutative and associative bit for bit: their partial states may be
//!   merged in any order ([`AggregateCall::is_exact`]). Sums of integers wrap as in Flink; those of
//!   DECIMAL run in a wider integer and are judged at emission (too large gives NULL). FIRST_VALUE
//!   and LAST_VALUE carry each value's place in arrival order, so they are exact as well. Sums,
//!   means and deviations of FLOAT and DOUBLE are not.
//! - *Invertible* ones can take a merged state out again ([`AggregateCall::is_invertible`]), which
//!   sliding windows use.
//!
//! Where results are wanted after each row, and rows may be retracted, a [`RunningAggregate`]
//! stands in for the accumulator ([`AggregateCall::running`]).
//!
//! In windows over a changelog states lose rows as well ([`AggregateCall::retractable`]): sums and
//! counts are subtracted from, all others keep their values ([`kept_values`]).
//!
//! FILTER is applied by the caller, which passes the accepted rows only. Result types are Flink's:
//! [`resolve`].
//!
//! | trait | takes | results | used by |
//! |---|---|---|---|
//! | [`Accumulator`] | rows and states; subtracts states | on request | windows |
//! | [`RunningAggregate`] | rows added and retracted | before and after each row | groups, OVER |
//!
//! # The life of a group
//!
//! `grow` makes it, empty. `update` and `merge` fill it, `evaluate` and `capture` only read. After
//! `take` or `reset` it must be exactly as `grow` left it, since the id goes to another key without
//! a further call. Columns never shrink except by `clear`.
//!
//! Steps that rely on bitwise exactness: states of a window travel between partitions and are
//! merged in the order in which parcels happen to arrive, and hopping windows subtract what they
//! added. Only aggregates that say so ([`Exactness`]) are used that way; all others are computed in
//! the order of rows where a sequence is promised.

mod arithmetic;
mod call;
mod description;
mod distinct;
mod distinct_set;
mod estimate;
mod exact;
mod extremes;
mod filter;
mod fold;
mod functions;
mod kept_values;
mod lists;
mod moments;
mod ordinals;
mod percentile;
mod running;
mod state;
mod sums;
mod user;
mod values;

use std::any::Any;

use arrow_array::ArrayRef;
use thalweg_core::{Bundle, Error, Result};

pub use call::AggregateCall;
pub(crate) use call::with_results;
pub use description::{Aggregate, AggregateFunction, Exactness, Types};
pub(crate) use filter::accepted;
pub(crate) use functions::{first_value, last_value};
pub use functions::{names, resolve, resolve_call};
pub use percentile::Fractions;
pub(crate) use running::mark_changes;
pub use running::{RunInput, RunningAggregate, Step};
pub use state::{StateColumns, StateRows};
pub(crate) use state::{elements_of, lists};
pub use user::{UserAccumulator, UserAggregate};
pub(crate) use values::with_one_nan;

/// The place in arrival order of the bundle whose rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowOrder {
    /// The lane of the bundle.
    pub lane: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Its place within its epoch.
    pub ordinal: u64,
}

impl RowOrder {
    /// That of the rows of this bundle.
    pub(crate) fn of(bundle: &Bundle) -> Self {
        let stamps = &bundle.stamps;
        RowOrder { lane: stamps.lane, epoch: stamps.epoch, ordinal: stamps.ordinal }
    }
}

/// Rows for an accumulator: row `rows[i]` (or `i`) belongs to group `ids[i]`.
#[derive(Clone, Copy)]
pub struct UpdateInput<'a> {
    /// The group of each row that is meant.
    pub ids: &'a [u32],
    /// The rows that are meant; `None` means all, in order.
    pub rows: Option<&'a [u32]>,
    /// The argument's column; absent for `COUNT(*)`.
    pub argument: Option<&'a ArrayRef>,
    /// Where the bundle stands in arrival order.
    pub order: RowOrder,
}

impl UpdateInput<'_> {
    /// The argument's column.
    pub(crate) fn column(&self) -> Result<&ArrayRef> {
        self.argument.ok_or_else(|| Error::internal("an aggregate with argument got no column"))
    }
    /// The row that the `place`-th id belongs to.
    #[inline]
    pub(crate) fn row(&self, place: usize) -> u32 {
        self.rows.map_or(place as u32, |rows| rows[place])
    }
}

/// One aggregate's states, a column indexed by dense group id.
///
/// `merge` and `subtract` take a state column made by `take` of the same call, whose `i`-th group
/// is meant for `ids[i]`; the same id may occur several times.
pub trait Accumulator: Any + Send + Sync {
    /// Makes room for ids below `groups`; new groups are empty.
    fn grow(&mut self, groups: usize);
    /// Adds rows.
    fn update(&mut self, input: &UpdateInput<'_>) -> Result<()>;
    /// Retracts rows that were added before. Only for columns that can
    /// ([`AggregateCall::retractable`]), and users' aggregates.
    fn retract(&mut self, _input: &UpdateInput<'_>) -> Result<()> {
        Err(Error::internal("an aggregate that keeps no rows was asked to retract one"))
    }
    /// Adds states.
    fn merge(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()>;
    /// Adds states that have no distinct value in common with these, which are only evaluated from
    /// now on, until they are forgotten: sets need not be united for that.
    ///
    /// # Errors
    /// As [`Accumulator::merge`].
    fn merge_apart(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        self.merge(ids, from)
    }
    /// How many distinct values all groups together have; 0 where none are kept.
    fn distinct_values(&self) -> usize {
        0
    }
    /// Takes states out again that were merged before. Only for invertible aggregates.
    fn subtract(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()>;
    /// Moves the states of these groups into a column of their own, leaving them empty.
    fn take(&mut self, ids: &[u32]) -> Result<Box<dyn Accumulator>>;
    /// Empties these groups.
    fn reset(&mut self, ids: &[u32]);
    /// Forgets all groups, as if none had ever grown, and keeps memory for others.
    fn clear(&mut self);
    /// The results of these groups, which keep their state.
    fn evaluate(&self, ids: &[u32]) -> Result<ArrayRef>;
    /// About how many bytes the states take.
    fn bytes(&self) -> usize;
    /// Captures the states of these groups, which keep them: one row for each.
    ///
    /// # Errors
    /// If the states cannot be captured: those of a user's aggregate that has no snapshots.
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()>;
    /// Restores what [`Accumulator::capture`] of the same call captured: the `i`-th row is the
    /// state of group `ids[i]`, which is empty and has room. No id occurs twice.
    ///
    /// # Errors
    /// If the rows do not fit: the snapshot is of something else, or damaged.
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()>;
}

/// The concrete column behind a partial state of the same call.
fn concrete<T: Accumulator>(from: &dyn Accumulator) -> Result<&T> {
    (from as &dyn Any)
        .downcast_ref()
        .ok_or_else(|| Error::internal("a partial state met another aggregate's"))
}

/// Two numbers as one: a group and its value, or the halves of a count.
fn joined(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests;
