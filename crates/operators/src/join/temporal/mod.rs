//! Temporal joins by event time (`JOIN r FOR SYSTEM_TIME AS OF l.ts ON l.k = r.k`): each row of the
//! left side meets the version of its key that the right side had at the row's time. Where the
//! right side only grows, that is the ASOF join: the latest earlier or equal row.
//!
//! A row of the left side waits until the joint watermark is beyond its time, so that all versions
//! of that time are there: also those that share it under a watermark without delay. Then it
//! leaves, by time, then by key, then as it came.
//!
//! **Versions.** An insert or an update of a key is its version from its time on, a delete the
//! absence of one; of equal times the one that came last counts. The first half of an update (`-U`)
//! says nothing new and is passed over: the version was valid until the second half. Versions older
//! than the one that the watermark has reached are dropped.
//!
//! **Behind the watermark.** Nothing is late. A row of the left side that comes behind the
//! watermark before it leaves with the next one, and meets the version of that watermark, provided
//! that it was there already at the row's own time: older ones may have been dropped. A version
//! that comes behind its watermark is seen by rows from that watermark on. So nothing depends on
//! when the operator was shown which watermark.
//!
//! Rows of the left side keep their kinds. Keys are compared with `=`: NULL has no versions.
//!
//! # Example
//!
//! ```text
//! right (versions)          left             result
//! +I  k=1 rate=10 at 0      k=1 at 5         (1, 5, 10)
//! +U  k=1 rate=12 at 8      k=1 at 8         (1, 8, 12)     a version counts from its own time on
//! -D  k=1         at 20     k=1 at 25        LEFT: (1, 25, NULL), INNER: no row
//! ```
//!
//! What it does not do: results are never corrected. A version that arrives behind the watermark of
//! a row that has left does not change that row, as in Flink.

mod partition;
mod snapshot;
#[cfg(test)]
mod tests;
mod versions;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, Error, Operator, Partition, PartitionContext, Result, Route, TableSchema, Watermark,
};

use super::JoinKind;
use crate::capture::keys::CapturedByKey;
use crate::join::equi::EquiJoin;
use crate::join::pairs::Joined;
use partition::TemporalPartition;

/// What is joined.
pub struct TemporalJoinSpec {
    /// The inputs, their keys, and which rows leave.
    pub join: EquiJoin,
    /// The time of the left side, a position in its own columns.
    pub left_time: usize,
    /// The time from which on a version is valid.
    pub right_time: usize,
}

struct TemporalContext {
    spec: TemporalJoinSpec,
    joined: Joined,
    append_only_versions: bool,
}

/// A join of rows with the versions of another table.
pub struct TemporalJoin {
    shared: Arc<TemporalContext>,
}

impl TemporalJoin {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: TemporalJoinSpec) -> Result<Self> {
        if !matches!(spec.join.kind, JoinKind::Inner | JoinKind::Left) {
            return Err(Error::plan("a temporal join is an inner or a left join"));
        }
        let joined = Joined::new(&spec.join, true)?;
        let shared = TemporalContext { spec, joined, append_only_versions: false };
        Ok(TemporalJoin { shared: Arc::new(shared) })
    }

    /// The ASOF join: the right side only grows, and each of its rows is a version.
    #[must_use]
    pub fn append_only_versions(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.append_only_versions = true;
        }
        self
    }

    /// The columns that leave: the left side's, then the right side's.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.joined.output
    }
}

impl Operator for TemporalJoin {
    fn name(&self) -> String {
        let name = if self.shared.append_only_versions { "asof join" } else { "temporal join" };
        name.to_owned()
    }
    fn is_singleton(&self) -> bool {
        self.shared.joined.key_types.is_empty()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        self.shared.spec.join.route(bundle, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let partition = TemporalPartition::new(Arc::clone(&self.shared), opening)?;
        Ok(Box::new(CapturedByKey::new(partition, &snapshot::TABLES)))
    }
    /// Rows of the time that the watermark has just reached still wait.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        Some(match input {
            Watermark::END | Watermark::MIN => input,
            Watermark(time) => Watermark(time - 1),
        })
    }
}
