//! One row of each key: the first or the last, by arrival or by row time.
//!
//! | keep | by | leaves |
//! |---|---|---|
//! | first | arrival | `+I` at once; nothing is ever changed |
//! | first | row time | `+I` when the watermark reaches the row; late rows are left out, nothing is ever changed |
//! | last | arrival | `+I` for a new key, then `-U` and `+U` for each row |
//! | last | row time | the same for each row that is not older than the one kept |
//! | last | upserts | the same for each row that differs, `-D` with the row kept for `-D` (Flink's normalization of a changelog) |
//!
//! Invariants:
//! - by row time, of rows with one time the first to arrive is first, and the last to arrive is
//!   last;
//! - a row is late if the watermark before it has reached its time, whatever watermarks the
//!   operator has seen; only first by row time asks;
//! - with `state_ttl_ms` a key is forgotten, without a change, when its row was kept so long ago.
//!
//! All but upserts takes inserts only. Among upserts `-U` says nothing and is passed over, and so
//! is the `-D` of a key without a row; `-D` needs no values but the key.
//!
//! The planner finds these in `ROW_NUMBER() … = 1` ordered by a time, as Flink does. They are Top-N
//! with one row, but cheaper: no order is kept.
//!
//! ```text
//! keep last, by arrival      input        output
//!                            +I (k, 1)    +I (k, 1)
//!                            +I (k, 2)    -U (k, 1)  +U (k, 2)
//! upserts                    +U (k, 3)    -U (k, 2)  +U (k, 3)
//!                            +U (k, 3)                          the same values
//!                            -D (k, ·)    -D (k, 3)             with the row that was kept
//! ```

mod earliest;
mod first;
mod kept_rows;
mod last;
pub(crate) mod rows;
mod spec;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{Bundle, Operator, Partition, PartitionContext, Result, Route, TableSchema};

use crate::capture::keys::CapturedByKey;
use crate::keys::{KeyTable, route_by_keys};
use crate::window::LatePolicy;
use earliest::EarliestRows;
use first::FirstArrivals;
use last::LastRows;

pub use spec::{DeduplicateBy, DeduplicateSpec, Keep};

/// One row of each key.
pub struct Deduplicate {
    spec: Arc<DeduplicateSpec>,
}

impl Deduplicate {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a column cannot be partitioned by.
    pub fn new(spec: DeduplicateSpec) -> Result<Self> {
        spec.check()?;
        KeyTable::new(&spec.key_types())?;
        Ok(Deduplicate { spec: Arc::new(spec) })
    }

    /// The columns that come out: those that come in.
    pub fn output_schema(&self) -> &TableSchema {
        &self.spec.input
    }

    /// True if nothing that has left is ever changed.
    pub fn emits_inserts_only(&self) -> bool {
        self.spec.keep == Keep::First
    }
}

impl Operator for Deduplicate {
    fn name(&self) -> String {
        match self.spec.keep {
            Keep::First => "keep first".to_owned(),
            Keep::Last => "keep last".to_owned(),
        }
    }
    fn is_singleton(&self) -> bool {
        self.spec.keys.is_empty()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        match self.spec.waits_for() {
            Some(_) => WatermarkInterest::Every,
            None => WatermarkInterest::EndOnly,
        }
    }
    fn ports(&self) -> usize {
        let emits_late = self.spec.waits_for().is_some() && self.spec.late == LatePolicy::Emit;
        if emits_late { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.spec.keys, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let spec = Arc::clone(&self.spec);
        Ok(match (spec.keep, spec.by) {
            (Keep::First, DeduplicateBy::Arrival | DeduplicateBy::Upserts) => {
                Box::new(CapturedByKey::new(FirstArrivals::new(spec)?, &first::TABLES))
            }
            (Keep::First, DeduplicateBy::EventTime(column)) => Box::new(CapturedByKey::new(
                EarliestRows::new(spec, column, opening)?,
                &earliest::TABLES,
            )),
            (Keep::Last, _) => Box::new(CapturedByKey::new(LastRows::new(spec)?, &last::TABLES)),
        })
    }
    fn judges_lateness(&self) -> bool {
        self.spec.waits_for().is_some()
    }
}
