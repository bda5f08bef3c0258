//! Aggregates OVER the rows before a row in an order of values, over a stream: each row changes the
//! results of those behind it.
//!
//! `SUM(v) OVER (PARTITION BY k ORDER BY v)`: the frame reaches from the first row of the key to
//! the row itself (ROWS), or to the last row that sorts alike (RANGE, the default). The result is a
//! changelog: a row leaves with its result, and each row behind it whose result changes as `-U` and
//! `+U`. Rows that sort alike stand as they came; of equal rows the oldest is retracted.
//!
//! ```text
//! input         output of SUM(v) OVER (ORDER BY v)
//! +I 1          +I 1, 1
//! +I 5          +I 5, 6
//! +I 2          +I 2, 3   -U 5, 6   +U 5, 8
//! -D 1          -D 1, 1   -U 2, 3   +U 2, 2   -U 5, 8   +U 5, 7
//! ```
//!
//! # What a row costs
//!
//! The state of a key is its rows in their order, and for each aggregate one state, that of all its
//! rows. A row that comes or goes first retracts the rows behind its place, the last one first, and
//! then adds them again: both the old and the new results come up on the way. So the cost follows
//! the rows whose results change, and a row behind all others costs one step.
//!
//! Aggregates that depend on the sequence of values (FIRST_VALUE, LISTAGG, users' own) cannot be
//! retracted from behind. Where one is among the calls, all rows of the key are added again for
//! each change, twice.
//!
//! | file | holds |
//! |---|---|
//! | `partition` | the rows of keys, and their captures |
//! | `run` | steps of aggregates, and the changes that their results make |
//!
//! **Invariants**
//! - what leaves because of a row depends on the rows of its key before it, in serial order, and
//!   stands in the order of values; except with `state_ttl_ms`, which follows processing time;
//! - a row that is retracted without being there is ignored, as in Flink;
//! - captures hold the rows alone: states of aggregates follow from them.
//!
//! It does not look at times, so no row is late. Frames that begin or end elsewhere, and an order
//! of one time, are other operators' (`over`, `over_whole`).

mod partition;
mod run;

use std::sync::Arc;

use thalweg_core::{
    Bundle, DataType, Operator, Partition, PartitionContext, Result, Route, TableSchema,
};

use crate::aggregate::{AggregateCall, RunningAggregate, with_results};
use crate::capture::keys::CapturedByKey;
use crate::keys::{KeyTable, route_by_keys};
use crate::rows::columns::{check_columns, types_of};
use crate::sort::{KeyEncoder, SortKey};
use partition::{OverValuesPartition, TABLES};

/// What is computed over which rows.
#[derive(Clone, Debug)]
pub struct OverValuesSpec {
    /// `PARTITION BY`.
    pub keys: Vec<usize>,
    /// `ORDER BY`.
    pub order: Vec<SortKey>,
    /// True for RANGE: rows that sort alike see each other.
    pub includes_peers: bool,
    /// What is computed.
    pub calls: Vec<AggregateCall>,
    /// The columns that come in.
    pub input: TableSchema,
    /// How long a key is kept without a row, in processing time; `None` and 0 for ever.
    pub state_ttl_ms: Option<i64>,
}

impl OverValuesSpec {
    fn argument_type(&self, call: &AggregateCall) -> Option<&DataType> {
        call.argument.map(|at| &self.input.columns[at].column_type.data_type)
    }

    /// True if an aggregate depends on the sequence of values.
    fn depends_on_sequence(&self) -> Result<bool> {
        let mut is_any = false;
        for call in &self.calls {
            is_any |= call.depends_on_sequence(self.argument_type(call))?;
        }
        Ok(is_any)
    }

    /// An empty column of states for each call.
    fn aggregates(&self, retracts: bool) -> Result<Vec<Box<dyn RunningAggregate>>> {
        self.calls.iter().map(|call| call.running(self.argument_type(call), retracts)).collect()
    }

    fn check(&self) -> Result<()> {
        let arguments = self.calls.iter().flat_map(|call| [call.argument, call.filter]);
        let order = self.order.iter().map(|key| key.column);
        let named = self.keys.iter().copied().chain(order).chain(arguments.flatten());
        check_columns(&self.input, named)
    }
}

/// What the partitions of an operator have in common.
struct OverValuesContext {
    spec: OverValuesSpec,
    output: TableSchema,
    /// True if all rows of a key are added again for each change.
    replays: bool,
}

/// Aggregates over the rows before a row in an order of values.
pub struct OverValues {
    shared: Arc<OverValuesContext>,
}

impl OverValues {
    /// An operator of this specification.
    ///
    /// # Errors
    /// If a column cannot be partitioned by, sorted by or aggregated.
    pub fn new(spec: OverValuesSpec) -> Result<Self> {
        spec.check()?;
        KeyTable::new(&types_of(&spec.input, &spec.keys))?;
        KeyEncoder::new(&spec.order, &spec.input)?;
        let replays = spec.depends_on_sequence()?;
        spec.aggregates(!replays)?;
        let output = with_results(spec.input.clone(), &spec.calls);
        Ok(OverValues { shared: Arc::new(OverValuesContext { spec, output, replays }) })
    }

    /// The columns that come out: those that come in, then the results.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.output
    }
}

impl Operator for OverValues {
    fn name(&self) -> String {
        "over values".to_owned()
    }
    fn is_singleton(&self) -> bool {
        self.shared.spec.keys.is_empty()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.shared.spec.keys, partitions)
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let partition = OverValuesPartition::new(Arc::clone(&self.shared))?;
        Ok(Box::new(CapturedByKey::new(partition, &TABLES)))
    }
}
