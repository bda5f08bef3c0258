//! Joins of rows whose times lie within a distance of one another (`a.ts BETWEEN b.ts - … AND b.ts
//! + …`): both sides are kept as long as a partner can come, and no longer.
//!
//! A pair leaves with its second row. Rows without a partner, of a side that keeps them, leave at
//! the watermark at which none can come any more, by that time, then by key, left before right,
//! then in the order in which they came.
//!
//! **What decides over a pair** is the times of both rows and the watermark before each, never
//! which came first or when the operator was shown a watermark:
//! - a row is *late*, and not taken, when the watermark before it has passed both its own time and
//!   the latest time that a partner of it can have;
//! - a row that is behind its watermark without being late meets those only that are not done yet
//!   by that watermark: others have left, or may have.
//!
//! | module | holds |
//! |---|---|
//! | `bounds` | which times meet, what is late, when a row is done |
//! | `index` | rows by time and key |
//! | `partition` | what happens to rows and at watermarks |
//! | `snapshot` | what is captured of the state |
//!
//! Keys are compared with `=`: NULL meets nobody. Changes are not taken: both sides only grow.
//!
//! # Example
//!
//! `l.ts BETWEEN r.ts - 5 AND r.ts + 10`, so `lower_ms = -5`, `upper_ms = 10`:
//!
//! ```text
//! row      meets times          done at watermark   because
//! l at 20  r in [10, 25]        25                  r at 25 is the latest partner
//! r at 20  l in [15, 30]        30                  l at 30 is the latest partner
//! ```
//!
//! The result's watermark is held back: a pair leaves with its second row and carries the older
//! time too. `Bounds::hold_back_ms` is how far that time may lie behind.
//!
//! **Rows commute.** Who meets whom follows from times and watermarks of both rows, a pair leaves
//! with whichever of them is taken second, and a row without a partner leaves at a watermark before
//! which all that could have met it were taken. So in `epoch` the rows of any epoch may be taken in
//! any order: the same rows leave, in another order. That none of them is late downstream is shown
//! at `Bounds::hold_back_ms`.

mod bounds;
mod index;
mod partition;
mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, Grid, Operator, OperatorClass, Partition, PartitionContext, Result, Route, TableSchema,
    Watermark,
};

use super::JoinKind;
use crate::join::equi::EquiJoin;
use crate::join::pairs::Joined;
use crate::window::LatePolicy;
use bounds::Bounds;
use partition::IntervalPartition;

/// What is joined.
pub struct IntervalJoinSpec {
    /// The inputs, their keys, and which rows leave.
    pub join: EquiJoin,
    /// The time of the left side, a position in its own columns.
    pub left_time: usize,
    /// The time of the right side.
    pub right_time: usize,
    /// `right.time + lower_ms <= left.time`
    pub lower_ms: i64,
    /// `left.time <= right.time + upper_ms`
    pub upper_ms: i64,
    /// What late rows lead to. Emitted ones have the columns of the tagged stream.
    pub late: LatePolicy,
}

/// What all partitions share.
pub(super) struct IntervalContext {
    spec: IntervalJoinSpec,
    bounds: Bounds,
    joined: Joined,
}

/// A join of rows whose times lie within a distance of one another.
pub struct IntervalJoin {
    shared: Arc<IntervalContext>,
}

/// The longest that a row without a partner waits beyond its time for a watermark.
const PADDING_DELAY_MAX_MS: i64 = 1000;

impl IntervalJoin {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: IntervalJoinSpec) -> Result<Self> {
        let joined = Joined::new(&spec.join, false)?;
        let bounds = Bounds { lower_ms: spec.lower_ms, upper_ms: spec.upper_ms };
        Ok(IntervalJoin { shared: Arc::new(IntervalContext { spec, bounds, joined }) })
    }

    /// The columns that leave: the left side's, then the right side's.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.joined.output
    }
}

impl IntervalContext {
    /// True if rows leave at watermarks.
    fn pads(&self) -> bool {
        let kind = self.spec.join.kind;
        kind.pads_left_rows() || kind.pads_right_rows() || kind == JoinKind::Anti
    }
}

impl Operator for IntervalJoin {
    fn name(&self) -> String {
        "interval join".to_owned()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Commuting
    }
    fn takes_slices(&self) -> bool {
        true
    }
    fn is_singleton(&self) -> bool {
        self.shared.joined.key_types.is_empty()
    }
    /// Where rows leave both with rows and at watermarks, their sequence depends on where those
    /// stand.
    fn rows_depend_on_watermarks(&self) -> bool {
        self.shared.pads()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        let bucket_ms = 1i64 << self.shared.bounds.bucket_shift();
        let period_ms = match self.shared.pads() {
            true => (bucket_ms / 8).clamp(1, PADDING_DELAY_MAX_MS),
            false => bucket_ms,
        };
        WatermarkInterest::Grids(vec![Grid { period_ms, offset_ms: 0 }])
    }
    fn ports(&self) -> usize {
        if self.shared.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        self.shared.spec.join.route(bundle, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(IntervalPartition::new(Arc::clone(&self.shared), opening)?))
    }
    /// Both times stay in the rows, and the older one may lie as far behind the input's watermark
    /// as the bounds reach.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        match input {
            Watermark::END | Watermark::MIN => Some(input),
            Watermark(time) => {
                Some(Watermark(time.saturating_sub(self.shared.bounds.hold_back_ms())))
            }
        }
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}
