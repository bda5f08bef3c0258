//! Aggregation without windows: an operator that updates its results.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::Result;
use thalweg_expr::Expr;
use thalweg_operators::group::{GroupAggregate, GroupSpec};

use super::lower::{Edges, Lowering};
use super::window::{Prepared, call_of};
use crate::logical::{Aggregate, Node, unit};

impl Lowering<'_> {
    pub(super) fn lower_aggregate(
        &mut self,
        node: &Node,
        input: &Node,
        (keys, aggregates): (&[Expr], &[Aggregate]),
        state_ttl_ms: Option<i64>,
    ) -> Result<Edges> {
        let mut prepared = Prepared::default();
        let key_name = |i: usize| node.fields[i].name.as_str();
        let key_columns =
            keys.iter().enumerate().map(|(i, key)| prepared.place(key_name(i), key)).collect();
        let calls = aggregates.iter().map(|a| call_of(a, &mut prepared)).collect();
        if prepared.schema().is_empty() {
            // COUNT(*) over everything reads no column, but a batch must have one to have a length.
            prepared.place("unit", &unit());
        }
        let operator = Arc::new(GroupAggregate::new(GroupSpec {
            keys: key_columns,
            calls,
            input: prepared.schema(),
            retracts: self.changes.has_updates(input),
            state_ttl_ms: self.environment.lifetime_ms(state_ttl_ms),
            mini_batch: self.environment.mini_batch,
        })?);
        let edges = self.prepare_input(input, prepared)?;
        Ok(self.add_operator(node, input, operator, edges, "group"))
    }

    /// The row that an aggregate without keys has where no rows come.
    pub(super) fn result_of_nothing(
        &self,
        node: &Node,
        aggregates: &[Aggregate],
    ) -> Result<RecordBatch> {
        let mut prepared = Prepared::default();
        let column = |aggregate: &Aggregate| {
            let call = call_of(aggregate, &mut prepared);
            let argument = aggregate.argument.as_ref().map(|a| &a.column_type.data_type);
            let mut states = call.accumulator(argument)?;
            states.grow(1);
            states.evaluate(&[0])
        };
        let columns = aggregates.iter().map(column).collect::<Result<Vec<ArrayRef>>>()?;
        Ok(RecordBatch::try_new(node.schema().arrow(), columns)?)
    }
}
