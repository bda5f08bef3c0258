//! OVER windows: each row with results over the rows of its key before it, up to itself.
//!
//! **Event time.** Rows wait until the watermark has passed their time. They leave in the order of
//! time, in the ordered contracts then of key, then of arrival; nothing that has left is changed.
//! ROWS counts rows in the order of (time, arrival). RANGE goes by time, and rows of equal time are
//! peers that see one another, also where the frame is unbounded. LAG, ROW_NUMBER, RANK and
//! DENSE_RANK look at the rows of the key whatever the frame. LEAD holds a row back until the row
//! that it asks for has its turn, and to the end of the input if none comes.
//!
//! **Arrival** (processing time). Each row leaves at once, without peers; RANGE goes by the wall
//! clock at which the rows came.
//!
//! **Which rows are late** depends on the watermark before the row and on the rows of its key,
//! never on what the operator was shown:
//!
//! | frame | a row is late |
//! |---|---|
//! | aggregates over bounded ROWS or RANGE | at or before the newest time of its key that has left, by the watermark before it |
//! | unbounded frames, LAG, LEAD, numbers | at or before the watermark before it |
//! | all, if the operator has several lanes | at or before the watermark before it, that of its lane |
//!
//! So is Flink's rule; what differs: a key whose newest row is further behind the watermark than a
//! RANGE reaches is forgotten, and anything may come for it (Flink waits half as long again).
//!
//! State: rows that wait; per key one state of each unbounded aggregate, the rows of a bounded
//! frame (only the columns that are aggregated), as many rows as LAG goes back. Keys of a bounded
//! RANGE go with their last row; others stay for `state_ttl_ms`.
//!
//! | module | holds |
//! |---|---|
//! | `spec` | what is computed |
//! | `partition` | rows that wait, are fired, and leave |
//! | `keyring` | which keys live |
//! | `functions` | all calls side by side |
//! | `frame`, `trail` | aggregates over frames, and the rows that frames hold |
//! | `neighbor`, `number` | LAG; ROW_NUMBER and ranks |
//! | `lead` | rows that LEAD holds back |
//! | `snapshot` | what is captured and restored |
//!
//! It takes no updates, and it judges nothing by processing time but `state_ttl_ms`.
//!
//! # Example
//!
//! `SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND
//! CURRENT ROW)` and the same with `ROWS BETWEEN 1 PRECEDING`:
//!
//! ```text
//! ts   v    RANGE                    ROWS
//! 0    1    1 + 2 = 3  (peers)       1
//! 0    2    3                        1 + 2
//! 8    4    1 + 2 + 4                2 + 4
//! 12   8    4 + 8      (0 has left)  4 + 8
//! ```
//!
//! Results are final: rows leave once, as inserts, when no earlier row can come.

mod frame;
mod functions;
mod keyring;
mod lead;
mod neighbor;
mod number;
mod partition;
mod snapshot;
mod spec;
#[cfg(test)]
mod tests;
mod trail;

use std::sync::Arc;

use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, Operator, Partition, PartitionContext, Result, Route, TableSchema, Watermark,
};

pub use spec::{Frame, OverCall, OverFunction, OverSpec, OverTime};

use crate::capture::keys::CapturedByKey;
use crate::keys::route_by_keys;
use crate::window::LatePolicy;
use functions::Functions;
use lead::Held;
use partition::OverPartition;

/// `… OVER (PARTITION BY … ORDER BY time …)`.
pub struct OverAggregate {
    spec: Arc<OverSpec>,
    schema: TableSchema,
}

impl OverAggregate {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a key or an argument is of a type that cannot be grouped by or aggregated, or if a user's
    /// function would have to take values back and cannot.
    pub fn new(spec: OverSpec) -> Result<Self> {
        spec.check()?;
        Functions::new(&spec)?;
        let schema = spec.output();
        Held::new(&spec, schema.arrow())?;
        Ok(OverAggregate { spec: Arc::new(spec), schema })
    }

    /// The columns that come out: those that come in, then the results of the calls.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }
}

impl Operator for OverAggregate {
    fn name(&self) -> String {
        let name = |&key: &usize| &self.spec.input.columns[key].name[..];
        let names: Vec<&str> = self.spec.keys.iter().map(name).collect();
        match names.is_empty() {
            true => "over".to_owned(),
            false => format!("over partition by {}", names.join(", ")),
        }
    }
    fn is_singleton(&self) -> bool {
        self.spec.keys.is_empty()
    }
    /// A row behind its watermark leaves at the next one, so its place depends on where those
    /// stand.
    fn rows_depend_on_watermarks(&self) -> bool {
        self.spec.late_by_key()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        match self.spec.time {
            OverTime::EventTime(_) => WatermarkInterest::Every,
            OverTime::Arrival => WatermarkInterest::EndOnly,
        }
    }
    fn ports(&self) -> usize {
        if self.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.spec.keys, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let (spec, schema) = (Arc::clone(&self.spec), self.schema.arrow());
        let partition = OverPartition::new(spec, schema, opening)?;
        Ok(Box::new(CapturedByKey::new(partition, &snapshot::TABLES)))
    }
    /// Rows that LEAD holds back leave behind any watermark, so none but the last is passed on.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        (!self.spec.has_lead() || input == Watermark::END).then_some(input)
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}
