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

mod earliest;
mod first;
mod kept;
mod last;
pub(super) mod rows;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, DataType, Error, Operator, OperatorClass, Partition, PartitionContext, Result, Route,
    TableSchema,
};

use super::{check_columns, route_by_keys, types_of};
use crate::capture::keys::CapturedByKey;
use crate::keys::KeyTable;
use crate::window::LatePolicy;
use earliest::EarliestRows;
use first::FirstArrivals;
use last::LastRows;

/// Which row of a key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// Which row is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeduplicateBy {
    /// The row time in this column, then the order of arrival.
    EventTime(usize),
    /// The order of arrival: processing time.
    Arrival,
    /// The order of arrival, of rows that are upserts: each takes the place of the row with its
    /// key, and `-D` takes the row of a key away. Only for the last one.
    Upserts,
}

/// What is kept.
#[derive(Clone, Debug)]
pub struct DeduplicateSpec {
    /// `PARTITION BY`; without, one row is kept.
    pub keys: Vec<usize>,
    /// Which row.
    pub keep: Keep,
    /// Which row is first.
    pub by: DeduplicateBy,
    /// The columns that come in.
    pub input: TableSchema,
    /// How long a key is kept, in processing time; `None` and 0 for ever.
    pub state_ttl_ms: Option<i64>,
    /// What happens to late rows.
    pub late: LatePolicy,
}

impl DeduplicateSpec {
    fn key_types(&self) -> Vec<DataType> {
        types_of(&self.input, &self.keys)
    }

    /// The columns of the key.
    fn key_schema(&self) -> TableSchema {
        TableSchema::new(self.keys.iter().map(|&key| self.input.columns[key].clone()).collect())
    }

    /// As in Flink, a time of 0 means for ever.
    fn ttl_ms(&self) -> Option<i64> {
        self.state_ttl_ms.filter(|&ttl_ms| ttl_ms > 0)
    }

    /// The column of the row time, if rows wait for the watermark.
    fn waits_for(&self) -> Option<usize> {
        match (self.keep, self.by) {
            (Keep::First, DeduplicateBy::EventTime(column)) => Some(column),
            _ => None,
        }
    }

    fn check(&self) -> Result<()> {
        check_columns(&self.input, self.keys.iter().copied())?;
        if (self.keep, self.by) == (Keep::First, DeduplicateBy::Upserts) {
            return Err(Error::internal("the first of upserts"));
        }
        let DeduplicateBy::EventTime(column) = self.by else { return Ok(()) };
        check_columns(&self.input, std::iter::once(column))?;
        match self.input.columns[column].column_type.data_type {
            DataType::Timestamp(3) | DataType::TimestampLtz(3) => Ok(()),
            _ => Err(Error::internal("a row time that is not in milliseconds")),
        }
    }
}

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
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
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
