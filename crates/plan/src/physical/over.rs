//! Functions over the rows before a row.
//!
//! The operator gets its input's columns at their old places, then the arguments that had to be
//! computed, and appends the results. A projection drops the arguments afterwards.
//!
//! On a stream, in an order of one ascending time, earlier rows are complete at some point, and
//! each row leaves once. In an ascending order of values each row updates those behind it
//! ([`OverValues`]); ranks with a usable condition are a Top-N (`logical::ranks`) and do not come
//! here. In batch mode anything runs, once all rows of the input have come ([`OverWhole`]).

use std::sync::Arc;

use thalweg_core::{Error, Result};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::over::{
    Frame, OverAggregate, OverCall as OperatorCall, OverFunction as OperatorFunction, OverSpec,
    OverTime,
};
use thalweg_operators::over_values::{OverValues, OverValuesSpec};
use thalweg_operators::over_whole::{
    Distance, FrameBound, FrameUnit, OverWhole, WholeCall, WholeFrame, WholeFunction, WholeSpec,
};
use thalweg_operators::window::LatePolicy;

use super::join::without_computed;
use super::lower::{Edges, Lowering};
use super::window::{Prepared, call_of};
use crate::catalog::RuntimeMode;
use crate::logical::{
    Node, OverCall, OverFrame, OverFunction, OverWindow, RankFunction, SortKey, WholeNumber,
};

impl Lowering<'_> {
    /// The input's columns, then one per call.
    pub(super) fn lower_over(
        &mut self,
        node: &Node,
        input: &Node,
        window: &OverWindow,
        calls: &[OverCall],
    ) -> Result<Edges> {
        if self.needs_all_rows(input, window, calls) {
            return self.lower_over_whole(node, input, window, calls);
        }
        if !window.is_by_time(&input.fields) {
            return self.lower_over_values(node, input, window, calls);
        }
        let time = window.order[0].column;
        let (time, (late, policy)) = match input.fields[time].time.is_proctime() {
            true => (OverTime::Arrival, (Vec::new(), LatePolicy::Drop)),
            false => (OverTime::EventTime(time), self.late_rows(input, time)?),
        };
        let mut prepared = Prepared::of(input);
        let named = calls.iter().zip(&node.fields[input.fields.len()..]);
        let calls = named.map(|(call, field)| {
            Ok(OperatorCall {
                function: operator_function(&call.function, &mut prepared)?,
                // LAG of a NULL is NULL also where a default makes its type NOT NULL, as in Flink.
                result: call.column_type.clone().with_nullable(true),
                name: field.name.clone(),
            })
        });
        let calls = calls.collect::<Result<_>>()?;
        let width = prepared.schema().len();
        let operator = Arc::new(OverAggregate::new(OverSpec {
            keys: window.keys.clone(),
            time,
            frame: match window.frame {
                OverFrame::Rows(preceding) => Frame::Rows { preceding },
                OverFrame::Range(preceding_ms) => Frame::Range { preceding_ms },
                OverFrame::Whole(_) => return Err(Error::internal("a frame of batch mode")),
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

    /// Aggregates in an order of values, which update the results of the rows behind each row.
    ///
    /// The binder admits other orders for ranks, since a condition above may make a Top-N of them.
    fn lower_over_values(
        &mut self,
        node: &Node,
        input: &Node,
        window: &OverWindow,
        calls: &[OverCall],
    ) -> Result<Edges> {
        let includes_peers = match (&window.order[..], window.frame) {
            ([SortKey { descending: false, .. }], OverFrame::Rows(None)) => false,
            ([SortKey { descending: false, .. }], OverFrame::Range(None)) => true,
            _ => return Err(unfiltered_rank()),
        };
        let mut prepared = Prepared::of(input);
        let named = calls.iter().zip(&node.fields[input.fields.len()..]);
        let calls = named.map(|(call, field)| {
            let name = field.name.clone();
            Ok(AggregateCall { name, ..updated_call(&call.function, &mut prepared)? })
        });
        let calls = calls.collect::<Result<_>>()?;
        let width = prepared.schema().len();
        let operator = Arc::new(OverValues::new(OverValuesSpec {
            keys: window.keys.clone(),
            order: window.order.iter().map(Into::into).collect(),
            includes_peers,
            calls,
            input: prepared.schema(),
            state_ttl_ms: self.environment.state_ttl_ms,
        })?);
        let edges = self.prepare_input(input, prepared)?;
        let edges = self.add_operator(node, input, operator, edges, "over");
        Ok(self.without_prepared(node, edges, input.fields.len(), width))
    }

    /// True for what only batch mode has: another order than one time, frames to rows that follow,
    /// numbers that depend on the last row.
    fn needs_all_rows(&self, input: &Node, window: &OverWindow, calls: &[OverCall]) -> bool {
        let is_number = |call: &OverCall| matches!(call.function, OverFunction::Number(_));
        self.environment.mode == RuntimeMode::Batch
            && (!window.is_by_time(&input.fields)
                || matches!(window.frame, OverFrame::Whole(_))
                || calls.iter().any(is_number))
    }

    fn lower_over_whole(
        &mut self,
        node: &Node,
        input: &Node,
        window: &OverWindow,
        calls: &[OverCall],
    ) -> Result<Edges> {
        let mut prepared = Prepared::of(input);
        let named = calls.iter().zip(&node.fields[input.fields.len()..]);
        let calls = named.map(|(call, field)| WholeCall {
            function: whole_function(&call.function, &mut prepared),
            // As for streams, above.
            result: call.column_type.clone().with_nullable(true),
            name: field.name.clone(),
        });
        let calls = calls.collect();
        let width = prepared.schema().len();
        let operator = OverWhole::new(WholeSpec {
            keys: window.keys.clone(),
            order: window.order.iter().map(Into::into).collect(),
            frame: whole_frame(window.frame),
            calls,
            input: prepared.schema(),
        });
        let edges = self.prepare_input(input, prepared)?;
        let edges = self.add_operator(node, input, Arc::new(operator), edges, "over");
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

/// A frame of streams as one of all rows.
fn whole_frame(frame: OverFrame) -> WholeFrame {
    let (unit, back) = match frame {
        OverFrame::Whole(frame) => return frame,
        OverFrame::Rows(rows) => (FrameUnit::Rows, rows.map(i128::from)),
        OverFrame::Range(ms) => (FrameUnit::Range, ms.map(i128::from)),
    };
    let start = back.map_or(FrameBound::UnboundedPreceding, |back| {
        FrameBound::Preceding(Distance::Whole(back))
    });
    WholeFrame { unit, start, end: FrameBound::CurrentRow }
}

fn whole_function(function: &OverFunction, prepared: &mut Prepared) -> WholeFunction {
    match function {
        OverFunction::Aggregate(aggregate) => {
            WholeFunction::Aggregate(call_of(aggregate, prepared))
        }
        OverFunction::Rank(RankFunction::RowNumber) => WholeFunction::RowNumber,
        OverFunction::Rank(RankFunction::Rank) => WholeFunction::Rank,
        OverFunction::Rank(RankFunction::DenseRank) => WholeFunction::DenseRank,
        OverFunction::Number(WholeNumber::Tile(tiles)) => WholeFunction::Tile(*tiles),
        OverFunction::Number(WholeNumber::PercentRank) => WholeFunction::PercentRank,
        OverFunction::Number(WholeNumber::CumulativeDistribution) => {
            WholeFunction::CumulativeDistribution
        }
        OverFunction::Shifted { value, offset, default, leads } => {
            let column = prepared.place("shifted", value);
            let default = default.as_ref().map(|expr| prepared.place("default", expr));
            let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
            let offset = if *leads { offset } else { -offset };
            WholeFunction::Shifted { column, offset, default }
        }
    }
}

fn operator_function(function: &OverFunction, prepared: &mut Prepared) -> Result<OperatorFunction> {
    Ok(match function {
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
        OverFunction::Number(_) => return Err(Error::internal("a number of batch mode")),
    })
}

/// What updates its results in an order of values. Flink's RANK and DENSE_RANK count the peers of a
/// row as well there, so they are refused.
fn updated_call(function: &OverFunction, prepared: &mut Prepared) -> Result<AggregateCall> {
    match function {
        OverFunction::Aggregate(aggregate) => Ok(call_of(aggregate, prepared)),
        // The number of a row is how many rows there are up to it.
        OverFunction::Rank(RankFunction::RowNumber) => {
            let (function, result) = resolve("COUNT", false, &[])?;
            let (argument, filter) = (None, None);
            let name = String::new();
            Ok(AggregateCall { function, argument, distinct: false, filter, result, name })
        }
        _ => Err(unfiltered_rank()),
    }
}

/// The error for a rank by values that no condition bounds.
fn unfiltered_rank() -> Error {
    Error::plan("a rank in an order of values changes with every row")
        .hint("ROW_NUMBER() in the order of one column, ascending, is updated; else SET 'execution.runtime-mode' = 'batch', or keep the first rows: SELECT … FROM (SELECT *, ROW_NUMBER() OVER (…) AS rn …) WHERE rn <= n")
}
