//! Aggregates whose results are wanted row by row: what a group gives before and after each row.
//!
//! A [`RunningAggregate`] is a column of states by dense group id, like an
//! [`Accumulator`](super::Accumulator), but it takes changes: a row adds a value or takes one back,
//! and a group may end and begin again within a run of rows. One call per aggregate and run; its
//! loop is typed, so there is no virtual call and no allocation per row.
//!
//! Results come as *pairs*: an array of twice as many values as rows, in which `2 i` is the result
//! of row `i`'s group before the row and `2 i + 1` the one after it. In a changelog these are just
//! the rows that leave.
//!
//! | input | MIN, MAX | FIRST_VALUE, LAST_VALUE | LISTAGG, ARRAY_AGG | PERCENTILE | the others |
//! |---|---|---|---|---|---|
//! | inserts only | the best value | the first, the last value | all values by arrival | all values, sorted | sums and counts |
//! | retractions | a counted, sorted multiset | all values by arrival | the same | the same | the same |
//!
//! APPROX_COUNT_DISTINCT can take nothing back. Where what is retracted is always the oldest
//! (frames), MIN and MAX of numbers keep a monotonic queue.
//!
//! Sums of FLOAT and DOUBLE that values leave are exact ([`exact`](super::exact)). Rounded ones
//! would lose small values to a large one that has left, and keep NaN for ever.
//!
//! What is retracted without being there is ignored wherever values are kept; sums cannot know and
//! take it out. Of several equal values FIRST_VALUE and LAST_VALUE give the oldest back, as Flink
//! does. DISTINCT stands in front of any of them ([`distinct`]).
//!
//! ```text
//! group 5, SUM     step                pair
//!                  ADDS.beginning, 3   (NULL, 3)
//!                  ADDS, 4             (3, 7)
//!                  RETRACTION, 3       (7, 4)
//!                  RETRACTION.ending   (4, NULL)
//!                  ADDS.beginning, 9   (NULL, 9)    another life of the same id in one run
//! ```
//!
//! **Who guarantees what.** The caller has judged which rows count, counts the rows of each group,
//! and says where groups begin and end. An aggregate must not derive that from its own state: a
//! group of NULLs has rows, and no value.

mod bytes;
pub(super) mod column;
pub(super) mod counted;
pub(super) mod distinct;
pub(super) mod elements;
pub(super) mod estimate;
pub(super) mod exact;
pub(super) mod joined;
pub(super) mod kept;
pub(super) mod numbers;
pub(super) mod oldest_first;
mod pairs;
pub(super) mod percentile;
pub(super) mod ranked;
pub(super) mod sequence;
pub(super) mod stepwise;
pub(super) mod values;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use thalweg_core::{Error, Result};

use super::{StateColumns, StateRows};

pub(crate) use pairs::mark_changes;

/// What a row does to its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step(u8);

impl Step {
    const RETRACTS: u8 = 1;
    const BEGINS: u8 = 2;
    const ENDS: u8 = 4;

    /// Adds its value.
    pub const ADDS: Step = Step(0);
    /// Takes its value back.
    pub const RETRACTION: Step = Step(Step::RETRACTS);

    /// The same, as the first row of a group: whatever state stands there is another's.
    #[must_use]
    pub fn beginning(self) -> Step {
        Step(self.0 | Step::BEGINS)
    }
    /// The same, as the row that leaves its group without rows.
    #[must_use]
    pub fn ending(self) -> Step {
        Step(self.0 | Step::ENDS)
    }
    /// True if its value is retracted.
    #[inline]
    pub fn retracts(self) -> bool {
        self.0 & Step::RETRACTS != 0
    }
    /// True if the group begins with it.
    #[inline]
    pub fn begins(self) -> bool {
        self.0 & Step::BEGINS != 0
    }
    /// True if the group has no rows after it.
    #[inline]
    pub fn ends(self) -> bool {
        self.0 & Step::ENDS != 0
    }
}

/// A run of rows. All that is there is as long as `ids`.
#[derive(Clone, Copy)]
pub struct RunInput<'a> {
    /// The group of each row.
    pub ids: &'a [u32],
    /// What each row does. `None`: all add, and groups that begin are empty already.
    pub steps: Option<&'a [Step]>,
    /// The argument's values; absent for `COUNT(*)`.
    pub argument: Option<&'a ArrayRef>,
    /// The rows that FILTER lets through; `None` means all.
    pub filter: Option<&'a BooleanBuffer>,
}

impl RunInput<'_> {
    pub(in crate::aggregate) fn column(&self) -> Result<&ArrayRef> {
        self.argument.ok_or_else(|| Error::internal("an aggregate with argument got no column"))
    }

    /// The rows whose value counts: let through and not NULL. `None` means all.
    fn taken(&self) -> Option<BooleanBuffer> {
        let nulls = self.argument.and_then(super::values::nulls);
        match (self.filter, nulls) {
            (None, None) => None,
            (Some(filter), None) => Some(filter.clone()),
            (None, Some(nulls)) => Some(nulls.inner().clone()),
            (Some(filter), Some(nulls)) => Some(filter & nulls.inner()),
        }
    }

    #[inline]
    fn step(&self, place: usize) -> Step {
        self.steps.map_or(Step::ADDS, |steps| steps[place])
    }
}

/// One aggregate's states, a column indexed by dense group id.
pub trait RunningAggregate: Send {
    /// Makes room for ids below `groups`; new groups are empty.
    fn grow(&mut self, groups: usize);
    /// Takes rows one after another; the results as pairs.
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef>;
    /// Empties these groups.
    fn reset(&mut self, ids: &[u32]);
    /// About how many bytes the states take.
    fn bytes(&self) -> usize;
    /// Captures the states of these groups, which keep them: one row for each.
    ///
    /// # Errors
    /// If the states cannot be captured: those of a user's aggregate that has no snapshots.
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()>;
    /// Restores what [`RunningAggregate::capture`] of the same call captured: the `i`-th row is the
    /// state of group `ids[i]`, which is empty and has room. No id occurs twice.
    ///
    /// # Errors
    /// If the rows do not fit: the snapshot is of something else, or damaged.
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()>;
}

/// True where the rows of a column are those that are meant.
fn is_taken(taken: Option<&BooleanBuffer>, place: usize) -> bool {
    taken.is_none_or(|taken| taken.value(place))
}

/// One array of all of them; they are of one type.
fn concatenated(parts: &[ArrayRef], empty: impl FnOnce() -> Result<ArrayRef>) -> Result<ArrayRef> {
    if parts.is_empty() {
        return empty();
    }
    let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
    Ok(arrow_select::concat::concat(&parts)?)
}
