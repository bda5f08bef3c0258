//! Functions over the rows before a row.

use std::sync::Arc;

use thalweg_core::{Error, Result};
use thalweg_operators::over::{
    Frame, OverAggregate, OverCall as OperatorCall, OverFunction as OperatorFunction, OverSpec,
    OverTime,
};
use thalweg_operators::window::LatePolicy;

use super::join::without_computed;
use super::lower::{Edges, Lowering};
use super::window::{Prepared, call_of};
use crate::logical::{Node, OverCall, OverFrame, OverFunction, OverWindow, RankFunction, SortKey};

impl Lowering<'_> {
    pub(super) fn lower_over(
        &mut self,
        node: &Node,
        input: &Node,
        window: &OverWindow,
        calls: &[OverCall],
    ) -> Result<Edges> {
        let [SortKey { column: time, descending: false, .. }] = window.order[..] else {
            return Err(unfiltered_rank());
        };
        let (late, policy) = match input.fields[time].time.is_proctime() {
            true => (Vec::new(), LatePolicy::Drop),
            false => self.late_rows(input, time)?,
        };
        let time = match input.fields[time].time {
            attribute if attribute.is_proctime() => OverTime::Arrival,
            attribute if attribute.is_rowtime() => OverTime::EventTime(time),
            _ => return Err(unfiltered_rank()),
        };
        let mut prepared = Prepared::default();
        prepared.all_of(input);
        let calls = calls.iter().enumerate().map(|(i, call)| OperatorCall {
            function: operator_function(&call.function, &mut prepared),
            // LAG of a NULL is NULL also where a default makes its type NOT NULL, as in Flink.
            result: call.column_type.clone().with_nullable(true),
            name: node.fields[input.fields.len() + i].name.clone(),
        });
        let calls = calls.collect();
        let width = prepared.schema().len();
        let operator = Arc::new(OverAggregate::new(OverSpec {
            keys: window.keys.clone(),
            time,
            frame: match window.frame {
                OverFrame::Rows(preceding) => Frame::Rows { preceding },
                OverFrame::Range(preceding_ms) => Frame::Range { preceding_ms },
            },
            calls,
            input: prepared.schema(),
            state_ttl_ms: self.environment.state_ttl_ms,
            late: policy,
        })?);
        let late_schema = prepared.schema();
        let edges = self.prepare_input(input, prepared)?;
        let late = (late, policy);
        let edges = self.add_late((node, input), operator, edges, "over", late, late_schema);
        Ok(self.without_prepared(node, edges, input.fields.len(), width))
    }

    /// Drops the columns that were computed for an operator, which stand behind those of its input.
    fn without_prepared(&mut self, node: &Node, edges: Edges, width: usize, all: usize) -> Edges {
        if all == width {
            return edges;
        }
        self.close_chain(edges, vec![without_computed(node, width, all)], node)
    }
}

fn operator_function(function: &OverFunction, prepared: &mut Prepared) -> OperatorFunction {
    match function {
        OverFunction::Aggregate(aggregate) => {
            OperatorFunction::Aggregate(call_of(aggregate, prepared))
        }
        OverFunction::Rank(RankFunction::RowNumber) => OperatorFunction::RowNumber,
        OverFunction::Rank(RankFunction::Rank) => OperatorFunction::Rank,
        OverFunction::Rank(RankFunction::DenseRank) => OperatorFunction::DenseRank,
        OverFunction::Shifted { value, offset, default, leads } => {
            let column = prepared.place("shifted", value);
            let default = default.as_ref().map(|expr| prepared.place("default", expr));
            let offset = *offset;
            match leads {
                false => OperatorFunction::Lag { column, offset, default },
                true => OperatorFunction::Lead { column, offset, default },
            }
        }
    }
}

fn unfiltered_rank() -> Error {
    Error::plan("a rank in an order of values changes with every row")
        .hint("keep the first rows: SELECT … FROM (SELECT *, ROW_NUMBER() OVER (…) AS rn …) WHERE rn <= n")
}
