//! `MATCH_RECOGNIZE`: patterns over the rows of a key, in the order of their row time.
//!
//! A pattern is a sequence of variables, each of which takes a number of rows that fit its
//! condition; a match is a run of rows, one behind the other, that fits the whole of it, and gives
//! one row.
//!
//! **Order and lateness.** Rows wait until the watermark has passed their time; a row at or before
//! the watermark before it is late. Matches leave at the time of the row that completed them, or at
//! that at which the run that they waited for came to its end, and nothing that has left is
//! changed.
//!
//! **Which match.** Flink's rules (`machine.rs`): the search takes what is complete first, and a
//! greedy variable never gives back a row that fits it. A match that no longer can come first
//! because of an older run waits for that run, without WITHIN for ever: at the end of the input it
//! is given up.
//!
//! State: the rows that wait; for each key the rows from the beginning of its first run on (only
//! the columns that are asked for), and a few numbers for each run. WITHIN ends runs by time alone,
//! without further rows; without it a run lives until a row ends it.
//!
//! | module | holds |
//! |---|---|
//! | `spec` | patterns, conditions, values |
//! | `partition` | rows that wait, matches that leave |
//! | `machine` | rows through the pattern |
//! | `runs` | what may become a match |
//! | `values` | what conditions and results read |
//! | `rows` | the rows that runs share |
//! | `snapshot` | what is captured and restored |
//!
//! It has no alternatives, no groups and no empty matches, and takes no updates.
//!
//! # Example
//!
//! `PATTERN (A B+ C)`, `A` any row, `B` a price below the one before, `C` a price above:
//!
//! ```text
//! row    1    2    3    4    5
//! price  20   17   15   18   19
//!        A    B    B    C              one match: rows 1 to 4, found at the time of row 4
//!                       A    ...       AFTER MATCH SKIP PAST LAST ROW continues with row 5
//! ```
//!
//! Row 2 also begins a run (`A` is any row), which would be complete at row 4, too. It is discarded
//! by the match that begins earlier.

mod machine;
mod partition;
mod rows;
mod runs;
mod snapshot;
mod spec;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{Bundle, Operator, Partition, PartitionContext, Result, Route, TableSchema};

pub use spec::{
    Condition, End, MatchSpec, Output, Pattern, PatternValue, Skip, VARIABLES_MAX, Variable,
};

use crate::capture::keys::CapturedByKey;
use crate::keys::route_by_keys;
use crate::window::LatePolicy;
use partition::MatchPartition;
use values::Values;

/// `… MATCH_RECOGNIZE (PARTITION BY … ORDER BY rowtime … PATTERN (…) DEFINE …)`.
pub struct MatchRecognize {
    spec: Arc<MatchSpec>,
    schema: TableSchema,
}

impl MatchRecognize {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a key cannot be grouped by, an argument cannot be aggregated, or every variable of the
    /// pattern may be absent.
    pub fn new(spec: MatchSpec) -> Result<Self> {
        spec.check()?;
        Values::new(&spec.values(), &spec.input)?;
        let schema = spec.output();
        Ok(MatchRecognize { spec: Arc::new(spec), schema })
    }

    /// The columns that come out: the keys, then the outputs.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }
}

impl Operator for MatchRecognize {
    fn name(&self) -> String {
        let variables = self.spec.pattern.variables.iter().map(|variable| &variable.name[..]);
        format!("match {}", variables.collect::<Vec<_>>().join(" "))
    }
    fn is_singleton(&self) -> bool {
        self.spec.pattern.keys.is_empty()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn ports(&self) -> usize {
        if self.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.spec.pattern.keys, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let (spec, schema) = (Arc::clone(&self.spec), self.schema.arrow());
        let partition = MatchPartition::new(spec, schema, opening)?;
        Ok(Box::new(CapturedByKey::new(partition, &snapshot::TABLES)))
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}
