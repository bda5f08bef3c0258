//! The first rows of each key, and the one row of each key that counts, as changelogs.
//!
//! [`TopN`] is `ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n` (also RANK and DENSE_RANK), and
//! `ORDER BY … LIMIT n OFFSET m` of an unbounded stream. Each row that gets among the first, or
//! leaves them, changes the result at once; of rows that sort alike the one that came first ranks
//! first. [`Deduplicate`] keeps the first or the last row of each key, or what upserts leave of it;
//! [`Materialize`] turns changes into upserts by another key.
//!
//! | result | a row enters | a row goes |
//! |---|---|---|
//! | with a column of row numbers | for each number that gets another row `-U` and `+U`, `+I` for a new last one | the same, `-D` for a last one that is missing |
//! | with a column of ranks | `-U` and `+U` for each row that gets another rank, `-D` for what falls out, `+I` for the row | the same the other way round |
//! | without | `-D` for what falls out, `+I` for what comes in | the same |
//! | of a window | nothing until the watermark closes the window, then its first rows as `+I` | nothing |
//!
//! Invariants:
//! - what leaves because of a row depends on the rows of its key before it, in serial order, and on
//!   nothing else; `state_ttl_ms` alone goes by the wall clock;
//! - without retractions only rows that are among the first `to` are kept. With them all are, since
//!   each may move up;
//! - a key without rows has no state, and windows that are over have none.
//!
//! A row that is retracted without being there is ignored, as in Flink: its state was forgotten.
//!
//! # Example
//!
//! `ROW_NUMBER() OVER (ORDER BY score DESC) <= 2` with the column of row numbers, and without it:
//!
//! ```text
//! input       with numbers                                           without
//! +I (a, 10)  +I (a, 10, 1)                                          +I (a, 10)
//! +I (b, 30)  -U (a, 10, 1)  +U (b, 30, 1)  +I (a, 10, 2)            +I (b, 30)
//! +I (c, 20)  -U (a, 10, 2)  +U (c, 20, 2)                           -D (a, 10)  +I (c, 20)
//! +I (d, 5)
//! ```
//!
//! With numbers each position is a row of the result, which is updated; without them a row of the
//! result is a row of the input. This is why the planner drops the column of numbers where nobody
//! reads it: one new first row otherwise changes `n` rows.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | `partition` | rows of all keys, what a row does to its key |
//! | `ordered`, `compare`, `sort_keys` | the order of the rows of one key |
//! | `row_numbers`, `ranks` | what leaves when a row comes or goes |
//! | `store`, `incoming` | where rows lie, rows of the piece in hand |
//! | `unique` | rows by upsert key |
//! | `windows` | keys by window end |
//! | `changes` | changes on their way out |
//! | `deduplicate`, `materialize` | the other two operators |
//! | `snapshot`, `tables` | what is captured |

mod changes;
mod compare;
pub(crate) mod deduplicate;
mod incoming;
mod materialize;
mod ordered;
mod partition;
mod ranks;
mod row_numbers;
mod snapshot;
mod sort_keys;
mod spec;
pub(crate) mod store;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
mod unique;
mod windows;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, Operator, OperatorClass, Partition, PartitionContext, Result, Route, TableSchema,
};

use crate::capture::keys::CapturedByKey;
use crate::keys::{KeyTable, route_by_keys};
use crate::sort::KeyEncoder;
use crate::window::KnownWindows;

use partition::TopNPartition;
use spec::TopNContext;

pub use deduplicate::{Deduplicate, DeduplicateBy, DeduplicateSpec, Keep};
pub use materialize::{Materialize, MaterializeSpec};
pub(crate) use sort_keys::SortKeys;
pub use spec::{RankFunction, TopNSpec};

/// The first rows of each key.
pub struct TopN {
    shared: Arc<TopNContext>,
}

impl TopN {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a column cannot be partitioned by or sorted by.
    pub fn new(spec: TopNSpec) -> Result<Self> {
        spec.check()?;
        KeyTable::new(&spec.key_types())?;
        KeyEncoder::new(&spec.order, &spec.input)?;
        let output = spec.output();
        Ok(TopN {
            shared: Arc::new(TopNContext { spec, output, windows: KnownWindows::default() }),
        })
    }

    /// The same for windows of which more is known.
    #[must_use]
    pub fn of(mut self, windows: KnownWindows) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.windows = windows;
        }
        self
    }

    /// The columns that come out: those that come in, then the rank if it leaves.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.output
    }

    /// True if nothing that has left is ever changed: the first rows of windows.
    pub fn emits_inserts_only(&self) -> bool {
        self.shared.spec.window_end.is_some()
    }
}

impl Operator for TopN {
    fn name(&self) -> String {
        let TopNSpec { from, to, .. } = self.shared.spec;
        match from {
            1 => format!("top {to}"),
            from => format!("top {from} to {to}"),
        }
    }
    fn class(&self) -> OperatorClass {
        match self.shared.spec.commutes() {
            true => OperatorClass::Commuting,
            false => OperatorClass::Sequenced,
        }
    }
    fn is_singleton(&self) -> bool {
        self.shared.spec.keys.is_empty()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        match self.shared.spec.window_end {
            None => WatermarkInterest::EndOnly,
            Some(_) => self.shared.windows.interest(),
        }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.shared.spec.keys, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let partition = TopNPartition::new(Arc::clone(&self.shared), opening)?;
        Ok(Box::new(CapturedByKey::new(partition, snapshot::Tables::by_key(&self.shared.spec))))
    }
    fn judges_lateness(&self) -> bool {
        self.shared.spec.window_end.is_some()
    }
}
