//! Functions over rows, first rows, and one row per key.

use std::sync::Arc;

use thalweg_core::graph::{Input, StageKind};
use thalweg_core::{Error, Operator, Result};
use thalweg_operators::over::{
    Frame, OverAggregate, OverCall as OperatorCall, OverFunction as OperatorFunction, OverSpec,
    OverTime,
};
use thalweg_operators::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, RankFunction, TopN, TopNSpec,
};
use thalweg_operators::window::LatePolicy;

use super::identity::table_name;
use super::lower::{Edges, Lowering, describe_operator};
use super::window::{Prepared, call_of, sort_key};
use crate::logical::{
    LogicalKind, Node, OverCall, OverFrame, OverFunction, OverWindow, SortKey, TimeAttribute,
};

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
        let time = match input.fields[time].time {
            TimeAttribute::ProcTime => OverTime::Arrival,
            attribute if attribute.is_rowtime() => OverTime::EventTime(time),
            _ => return Err(unfiltered_rank()),
        };
        let mut prepared = Prepared::default();
        prepared.all_of(input);
        let calls = calls.iter().enumerate().map(|(i, call)| OperatorCall {
            function: operator_function(&call.function, &mut prepared),
            result: call.column_type.clone(),
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
            late: LatePolicy::Drop,
        })?);
        let edges = self.prepare_input(input, prepared)?;
        let edges = vec![self.add_ranking(node, input, operator, edges, "over")];
        Ok(self.without_prepared(node, edges, input.fields.len(), width))
    }

    pub(super) fn lower_top_n(&mut self, node: &Node) -> Result<Edges> {
        let LogicalKind::TopN { input, keys, order, function, ranks, shows_rank } = &node.kind
        else {
            return Err(Error::internal("no Top-N"));
        };
        let rank_column = shows_rank.then(|| node.fields[input.fields.len()].name.clone());
        // Rows of a window are complete when it closes; then their ranks leave, once.
        let has = |what: fn(TimeAttribute) -> bool| {
            keys.iter().copied().find(|&key| what(input.fields[key].time))
        };
        let ends = has(|time| matches!(time, TimeAttribute::WindowEnd(_)));
        let starts = has(|time| matches!(time, TimeAttribute::WindowStart(_)));
        let retracts = self.changes.has_updates(input);
        let operator = Arc::new(TopN::new(TopNSpec {
            keys: keys.clone(),
            order: order.iter().map(sort_key).collect(),
            function: *function,
            from: ranks.0,
            to: ranks.1,
            rank_column,
            input: input.schema(),
            retracts,
            unique: None,
            window_end: ends.filter(|_| starts.is_some() && !retracts),
            state_ttl_ms: self.environment.state_ttl_ms,
        })?);
        let edges = self.edges(input)?;
        Ok(vec![self.add_ranking(node, input, operator, edges, "top")])
    }

    /// The first rows of everything, in an order of values.
    pub(super) fn lower_first_rows(
        &mut self,
        node: &Node,
        input: &Node,
        keys: &[SortKey],
        (limit, offset): (u64, u64),
    ) -> Result<Edges> {
        let operator = Arc::new(TopN::new(TopNSpec {
            keys: Vec::new(),
            order: keys.iter().map(sort_key).collect(),
            function: RankFunction::RowNumber,
            from: offset.saturating_add(1),
            to: offset.saturating_add(limit),
            rank_column: None,
            input: input.schema(),
            retracts: self.changes.has_updates(input),
            unique: None,
            window_end: None,
            state_ttl_ms: self.environment.state_ttl_ms,
        })?);
        let edges = self.edges(input)?;
        Ok(vec![self.add_ranking(node, input, operator, edges, "top")])
    }

    pub(super) fn lower_deduplicate(
        &mut self,
        node: &Node,
        input: &Node,
        keys: &[usize],
        keeps_last: bool,
        rowtime: Option<usize>,
    ) -> Result<Edges> {
        let operator = Arc::new(Deduplicate::new(DeduplicateSpec {
            keys: keys.to_vec(),
            keep: if keeps_last { Keep::Last } else { Keep::First },
            by: rowtime.map_or(DeduplicateBy::Arrival, DeduplicateBy::EventTime),
            input: input.schema(),
            state_ttl_ms: self.environment.state_ttl_ms,
            late: LatePolicy::Drop,
        })?);
        let edges = self.edges(input)?;
        Ok(vec![self.add_ranking(node, input, operator, edges, "deduplicate")])
    }

    /// Drops the columns that were computed for an operator, which stand behind those of its input.
    fn without_prepared(&mut self, node: &Node, edges: Edges, width: usize, all: usize) -> Edges {
        if all == width {
            return edges;
        }
        let place = |i: usize| if i < width { i } else { i - width + all };
        let columns = node.fields.iter().enumerate();
        let columns = columns.map(|(i, f)| {
            (f.column(), thalweg_expr::Expr::column(place(i), f.column_type.clone()))
        });
        let step = thalweg_operators::chain::Step::Project(columns.collect());
        self.close_chain(edges, vec![step], node)
    }

    fn add_ranking(
        &mut self,
        node: &Node,
        input: &Node,
        operator: Arc<dyn Operator>,
        edges: Edges,
        kind: &str,
    ) -> Input {
        let id = self.identities.give(kind, "", &[node]);
        let name = format!("{kind} {}", table_name(input));
        let word = describe_operator(operator.as_ref());
        let details = vec![node.describe()];
        let stage = self.add(id, name, StageKind::Operator(operator), edges, &word, details);
        Input { from: stage, port: 0 }
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
