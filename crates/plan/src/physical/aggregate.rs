//! Aggregation without windows: an operator that updates its results, or in batch mode one that
//! gives each once.
//!
//! Jobs with snapshots update them in batch mode as well, and settle that behind: so their state
//! has one layout.
//!
//! | mode | operator | stage |
//! |---|---|---|
//! | streaming | `GroupAggregate`, a changelog | `group` |
//! | batch | a window over all rows, which closes at the end | `aggregate` |
//! | batch with snapshots | `GroupAggregate`, then `FinalRows` | `group`, `final` |
//!
//! Batch mode without snapshots takes the third way too for DISTINCT calls whose result depends on
//! the changes before (`distinct_depends_on_changes`).
//!
//! An aggregate without keys has a row even where no row comes (`COUNT(*)` is 0), but only in batch
//! mode: a stream that has not ended may still have rows, and Flink emits nothing there.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Operator, Result, TableSchema};
use thalweg_expr::Expr;
use thalweg_operators::aggregate::AggregateCall;
use thalweg_operators::group::{GroupAggregate, GroupSpec};
use thalweg_operators::window::WindowAggregate;

use super::lower::{Edges, Lowering};
use super::window::{Prepared, call_of};
use crate::catalog::RuntimeMode;
use crate::logical::{Aggregate, Node, unit};

impl Lowering<'_> {
    /// An aggregate without windows. Its columns are those of the node: keys, then results.
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
        let calls: Vec<AggregateCall> =
            aggregates.iter().map(|a| call_of(a, &mut prepared)).collect();
        if prepared.schema().is_empty() {
            // COUNT(*) over everything reads no column, but a batch must have one to have a length.
            prepared.place("unit", &unit());
        }
        if self.gives_once(aggregates) {
            let operator =
                self.aggregate_of_all(node, aggregates, key_columns, (calls, prepared.schema()))?;
            let edges = self.prepare_input(input, prepared)?;
            let details = vec![node.describe(), "results: once, when the input has ended".into()];
            let kind = (input, "aggregate");
            return Ok(self.add_described(node, kind, operator, edges, details));
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

    /// True if changed results are not emitted: the window of all rows yields the same at the end,
    /// at less cost.
    ///
    /// DISTINCT without functions is not among them: `GroupAggregate` only remembers keys then, and
    /// its result of append-only rows needs no settling.
    pub(super) fn gives_once(&self, aggregates: &[Aggregate]) -> bool {
        let depends_on_changes =
            |a: &Aggregate| a.distinct && a.function.distinct_depends_on_changes();
        self.environment.mode == RuntimeMode::Batch
            && !self.environment.takes_snapshots
            && !aggregates.is_empty()
            && !aggregates.iter().any(depends_on_changes)
    }

    /// The operator of batch mode: one window over everything, which closes with the last
    /// watermark.
    fn aggregate_of_all(
        &self,
        node: &Node,
        aggregates: &[Aggregate],
        keys: Vec<usize>,
        (calls, input): (Vec<AggregateCall>, TableSchema),
    ) -> Result<Arc<dyn Operator>> {
        let is_global = keys.is_empty();
        let mut operator = WindowAggregate::of_whole(keys, calls, input)?;
        if is_global {
            operator = operator.or_else(self.result_of_nothing(node, aggregates)?)?;
        }
        Ok(Arc::new(operator))
    }

    /// The row that an aggregate without keys has where no rows come.
    /// The states of fresh accumulators, evaluated: 0 for COUNT, NULL for most others.
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
