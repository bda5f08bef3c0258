//! GROUP BY and SELECT DISTINCT without windows: a table of results, kept up to date by a
//! changelog.
//!
//! Each row changes the result of its key, and the change leaves at once: `+I` for the first row of
//! a key, `-U` with the old and `+U` with the new result for a later one, nothing if the result
//! stays the same, `-D` when a retraction leaves the key without rows. Without calls (DISTINCT)
//! there is only the `+I` of a new key and the `-D` of one that goes. Without keys there is one
//! group, which does not exist before its first row: no input gives no output.
//!
//! | option | effect |
//! |---|---|
//! | `retracts` | rows may be retracted; aggregates keep what they need for it |
//! | `mini_batch` | one net change per key and piece, caused by the key's last row in it |
//! | `state_ttl_ms` | a key that no row has reached for so long is forgotten, without a change; updates of results leave even if nothing changes, so that what follows stays fresh too |
//!
//! Invariants:
//! - What leaves because of a row depends on the rows of its key before it, and on nothing else, in
//!   serial order; except under `mini_batch` and `state_ttl_ms`, which go by pieces and by the wall
//!   clock.
//! - A retraction for a key without rows is ignored, as in Flink: its state was forgotten.
//! - State follows the live keys: when the last row of a key is retracted, its state is emptied
//!   and its number given to another.
//!
//! It has no watermarks of its own and judges no lateness. HAVING is a filter behind it.
//!
//! # Example
//!
//! `SELECT k, COUNT(*), SUM(v) GROUP BY k`, input that retracts:
//!
//! ```text
//! input           output
//! +I (a, 1)       +I (a, 1, 1)
//! +I (a, 4)       -U (a, 1, 1)   +U (a, 2, 5)
//! -D (a, 1)       -U (a, 2, 5)   +U (a, 1, 4)
//! -D (a, 4)       -D (a, 1, 4)                  the key is forgotten
//! -D (a, 9)                                     ignored: the key has no rows
//! ```
//!
//! A retraction cannot come before its insertion: rows of a key keep their order from the operator
//! that made them to the partition that owns the key. So a key without rows was forgotten by
//! `state_ttl_ms`, or the source is at fault.

mod changes;
mod groups;
mod partition;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_core::{
    Bundle, DataType, Error, Operator, Partition, PartitionContext, Result, Route, TableSchema,
};

use crate::aggregate::{AggregateCall, RunningAggregate, with_results};
use crate::keys::{KeyTable, route_by_keys};
use crate::rows::columns::{check_columns, schema_of, types_of};
use groups::Groups;
use partition::GroupPartition;

/// What is grouped and computed.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// The input columns that make the key; none for a global aggregate.
    pub keys: Vec<usize>,
    /// What is computed; nothing for DISTINCT.
    pub calls: Vec<AggregateCall>,
    /// The columns that come in.
    pub input: TableSchema,
    /// True if the input may hold `-U` and `-D`.
    pub retracts: bool,
    /// How long a key is kept without a row, in processing time; `None` and 0 for ever.
    pub state_ttl_ms: Option<i64>,
    /// True for one net change per key and piece.
    pub mini_batch: bool,
}

impl GroupSpec {
    /// An empty column of states for each call.
    fn aggregates(&self) -> Result<Vec<Box<dyn RunningAggregate>>> {
        let build = |call: &AggregateCall| {
            let argument = call.argument.map(|at| &self.input.columns[at].column_type.data_type);
            call.running(argument, self.retracts)
        };
        self.calls.iter().map(build).collect()
    }

    fn check(&self) -> Result<()> {
        let named = self.calls.iter().flat_map(|call| call.argument.into_iter().chain(call.filter));
        check_columns(&self.input, self.keys.iter().copied().chain(named))?;
        let is_condition =
            |&at: &usize| self.input.columns[at].column_type.data_type == DataType::Boolean;
        if !self.calls.iter().filter_map(|call| call.filter.as_ref()).all(is_condition) {
            return Err(Error::internal("FILTER names a column that is not BOOLEAN"));
        }
        if self.keys.is_empty() && self.calls.is_empty() {
            return Err(Error::internal("an aggregate without keys and calls"));
        }
        Ok(())
    }
}

/// `GROUP BY`, `SELECT DISTINCT`, and aggregates over a whole stream.
pub struct GroupAggregate {
    spec: Arc<GroupSpec>,
    schema: TableSchema,
}

impl GroupAggregate {
    /// An aggregate of this specification.
    ///
    /// # Errors
    /// If a key or an argument is of a type that cannot be grouped by or aggregated, or if a user's
    /// function would have to take values back and cannot.
    pub fn new(spec: GroupSpec) -> Result<Self> {
        spec.check()?;
        KeyTable::new(&types_of(&spec.input, &spec.keys))?;
        spec.aggregates()?;
        let schema = with_results(schema_of(&spec.input, &spec.keys), &spec.calls);
        Ok(GroupAggregate { spec: Arc::new(spec), schema })
    }

    /// The columns that come out: the keys, then the results of the calls.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }

    /// True if nothing that has left is ever changed: DISTINCT over a stream that only inserts.
    pub fn emits_inserts_only(&self) -> bool {
        self.spec.calls.is_empty() && !self.spec.retracts
    }
}

impl Operator for GroupAggregate {
    fn name(&self) -> String {
        let names: Vec<&str> =
            self.spec.keys.iter().map(|&key| &self.spec.input.columns[key].name[..]).collect();
        match (names.is_empty(), self.spec.calls.is_empty()) {
            (true, _) => "aggregate".to_string(),
            (false, true) => format!("distinct {}", names.join(", ")),
            (false, false) => format!("group by {}", names.join(", ")),
        }
    }
    fn is_singleton(&self) -> bool {
        self.spec.keys.is_empty()
    }
    fn takes_slices(&self) -> bool {
        // What leaves is one change of a key for each piece.
        !self.spec.mini_batch
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.spec.keys, partitions)
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let (spec, schema) = (Arc::clone(&self.spec), self.schema.arrow());
        let groups = Groups::new(spec, schema, self.emits_inserts_only())?;
        Ok(Box::new(GroupPartition::new(groups)))
    }
}
