//! Which columns of a node anybody needs.
//!
//! Walks from the roots, which need all of theirs, to the scans. What is needed is dropped nowhere;
//! [`prune`](super::prune) drops the rest.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use thalweg_core::Result;
use thalweg_expr::Expr;

use super::{
    Aggregate, Field, JoinBound, JoinCondition, LogicalKind, LogicalPlan, Node, OverCall,
    OverWindow,
};

/// Finds the columns of an input that its late rows need, besides those that the operator uses.
/// Takes the columns of the input, those of the other side of a join, and the position of the row
/// time.
pub type LateColumns<'a> = &'a dyn Fn(&[Field], &[Field], usize) -> Result<Vec<usize>>;

/// Positions of columns.
pub(super) type Demand = BTreeSet<usize>;

/// For every node the columns that are needed downstream. Parents are visited before their inputs.
pub(super) fn demands(
    roots: &[Node],
    order: &[Node],
    late: LateColumns<'_>,
) -> Result<HashMap<*const LogicalPlan, Demand>> {
    let mut demand: HashMap<*const LogicalPlan, Demand> =
        order.iter().map(|node| (Arc::as_ptr(node), Demand::new())).collect();
    for root in roots {
        demand.insert(Arc::as_ptr(root), (0..root.fields.len()).collect());
    }
    for node in order.iter().rev() {
        let of_node = demand.get_mut(&Arc::as_ptr(node)).expect("every node has a demand");
        of_node.extend(always_needed(node, of_node));
        let own = of_node.clone();
        if let LogicalKind::Join { left, right, condition, .. } = &node.kind {
            let (mut of_left, mut of_right) = join_demand(left.fields.len(), condition, &own);
            if let JoinBound::Interval { left_time, right_time, .. } = condition.bound {
                of_left.extend(late(&left.fields, &right.fields, left_time)?);
                of_right.extend(late(&right.fields, &left.fields, right_time)?);
            }
            for (input, wanted) in [(left, of_left), (right, of_right)] {
                let of_input = demand.get_mut(&Arc::as_ptr(input));
                of_input.expect("every node has a demand").extend(wanted);
            }
            continue;
        }
        for input in node.inputs() {
            let wanted = input_demand(node, &own, late)?;
            if let Some(of_input) = demand.get_mut(&Arc::as_ptr(input)) {
                of_input.extend(wanted.into_iter().filter(|&i| i < input.fields.len()));
            }
        }
    }
    Ok(demand)
}

/// What stays of a node although nobody needs it: an aggregate of all rows has to compute
/// something, since whether there is a row depends on its input.
fn always_needed(node: &LogicalPlan, own: &Demand) -> Option<usize> {
    match &node.kind {
        LogicalKind::Aggregate { keys, .. } if keys.is_empty() && own.is_empty() => Some(0),
        _ => None,
    }
}

/// What a join needs of its sides.
fn join_demand(width: usize, condition: &JoinCondition, own: &Demand) -> (Demand, Demand) {
    let mut all = own.clone();
    for (expr, shift) in condition.expressions(width) {
        all.extend(expr.columns().into_iter().map(|i| i + shift));
    }
    let (mut left, right): (Demand, Demand) = all.into_iter().partition(|&i| i < width);
    let mut right: Demand = right.into_iter().map(|i| i - width).collect();
    let (of_left, of_right) = condition.bound_columns();
    left.extend(of_left);
    right.extend(of_right);
    (left, right)
}

/// What a node needs of (each of) its inputs, when these of its own columns are needed.
fn input_demand(node: &LogicalPlan, own: &Demand, late: LateColumns<'_>) -> Result<Demand> {
    let mut wanted = Demand::new();
    match &node.kind {
        LogicalKind::Scan { .. } | LogicalKind::Values { .. } => {}
        LogicalKind::Project { expressions, .. } => {
            for &column in own {
                wanted.extend(expressions[column].columns());
            }
        }
        LogicalKind::WindowAggregate { input, window, keys, aggregates, .. } => {
            wanted.insert(window.rowtime);
            for expr in keys.iter().chain(used_expressions(keys.len(), aggregates, own)) {
                wanted.extend(expr.columns());
            }
            wanted.extend(late(&input.fields, &[], window.rowtime)?);
        }
        LogicalKind::Aggregate { keys, aggregates, .. } => {
            for expr in keys.iter().chain(used_expressions(keys.len(), aggregates, own)) {
                wanted.extend(expr.columns());
            }
        }
        LogicalKind::Join { .. } => unreachable!("the sides of a join have demands of their own"),
        LogicalKind::SetOperation { .. } => wanted.extend(0..node.fields.len()),
        LogicalKind::Over { input, window, calls } => {
            wanted.extend(own.iter().filter(|&&i| i < input.fields.len()));
            wanted.extend(over_demand(input.fields.len(), window, calls, own));
            wanted.extend(
                window
                    .order
                    .first()
                    .map_or(Ok(Vec::new()), |key| late(&input.fields, &[], key.column))?,
            );
        }
        LogicalKind::Match { input, pattern, values } => {
            wanted.extend(pattern.columns());
            let used = values.iter().enumerate();
            let used = used.filter(|(i, _)| own.contains(&(pattern.keys.len() + i)));
            wanted.extend(used.flat_map(|(_, value)| value.columns()));
            wanted.extend(late(&input.fields, &[], pattern.rowtime)?);
        }
        LogicalKind::UnionAll { .. } => wanted.extend(at_least_one(own, node.fields.len())),
        LogicalKind::Refused { inputs, .. } => {
            wanted.extend(0..inputs.iter().map(|i| i.fields.len()).max().unwrap_or(0));
        }
        passing => {
            let width = node.inputs().first().map_or(0, |input| input.fields.len());
            wanted.extend(own.iter().filter(|&&i| i < width));
            wanted.extend(read_in_passing(passing, late)?);
        }
    }
    Ok(wanted)
}

/// What a node reads of the columns that it passes on.
fn read_in_passing(kind: &LogicalKind, late: LateColumns<'_>) -> Result<Demand> {
    Ok(match kind {
        LogicalKind::Filter { predicate, .. } => predicate.columns(),
        LogicalKind::WindowRows { window, .. } => Demand::from([window.rowtime]),
        LogicalKind::Unnest { array, .. } => array.columns(),
        LogicalKind::TemporalSort { input, keys } => {
            let late = late(&input.fields, &[], keys[0].column)?;
            keys.iter().map(|key| key.column).chain(late).collect()
        }
        LogicalKind::SortLimit { keys, .. } => keys.iter().map(|key| key.column).collect(),
        LogicalKind::TopN { keys, order, .. } => {
            keys.iter().copied().chain(order.iter().map(|key| key.column)).collect()
        }
        LogicalKind::Deduplicate { input, keys, rowtime, keeps_last } => {
            let judged = rowtime.filter(|_| !keeps_last);
            let late =
                judged.map_or(Ok(Vec::new()), |rowtime| late(&input.fields, &[], rowtime))?;
            keys.iter().copied().chain(*rowtime).chain(late).collect()
        }
        LogicalKind::Normalize { keys, .. } => keys.iter().copied().collect(),
        LogicalKind::CheckNotNull { columns, .. } => columns.iter().map(|c| c.column).collect(),
        _ => Demand::new(),
    })
}

/// What functions over rows read, of those that are needed.
fn over_demand(width: usize, window: &OverWindow, calls: &[OverCall], own: &Demand) -> Demand {
    let keys = window.keys.iter().copied();
    let mut wanted: Demand = keys.chain(window.order.iter().map(|key| key.column)).collect();
    let used = calls.iter().enumerate().filter(|(i, _)| own.contains(&(width + i)));
    for expr in used.flat_map(|(_, call)| call.function.expressions()) {
        wanted.extend(expr.columns());
    }
    wanted
}

fn used_expressions<'a>(
    keys: usize,
    aggregates: &'a [Aggregate],
    own: &'a Demand,
) -> impl Iterator<Item = &'a Expr> {
    let used = aggregates.iter().enumerate().filter(move |(i, _)| own.contains(&(keys + i)));
    used.flat_map(|(_, a)| a.argument.iter().chain(a.filter.iter()))
}

/// The needed columns; one where none is, since a batch must have a column to have a length.
pub(super) fn at_least_one(demand: &Demand, width: usize) -> Vec<usize> {
    if demand.is_empty() && width > 0 { vec![0] } else { demand.iter().copied().collect() }
}
