//! Which columns of a node anybody needs.
//!
//! Walks from the roots, which need all of theirs, to the scans. What is needed is dropped nowhere;
//! [`prune`](super::prune) drops the rest.
//!
//! **Invariants:**
//! - a node is visited after all its readers, so its demand is complete when it is passed on to its
//!   inputs. Reverse post-order gives that also where a node has several readers;
//! - a demand only grows: it is the union of what the readers need;
//! - a column is in demand for what it computes and for what it decides: join keys, sort keys,
//!   filter conditions, the time by which rows are late.
//!
//! Not counted are columns that are computed and never read, down to whole aggregate functions
//! (`with_needed`). That changes which rows fail: an expression that is not computed can't fail.
//! Flink's planner does the same.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_core::Result;
use thalweg_operators::pattern::PatternValue;

use super::references::{Demand, Reference};
use super::{Field, JoinBound, JoinCondition, LogicalKind, LogicalPlan, Node};

/// Finds the columns of an input that its late rows need, besides those that the operator uses.
/// Takes the columns of the input, those of the other side of a join, and the position of the row
/// time.
///
/// The arguments are those of `LateData::columns_of_side`. It fails if the table of late rows names
/// a column that the rows do not have.
pub type LateColumns<'a> = &'a dyn Fn(&[Field], &[Field], usize) -> Result<Vec<usize>>;

/// For every node the columns that are needed downstream. Parents are visited before their inputs.
///
/// `order` is the post-order of the whole plan.
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
/// Keys, residual and bound are needed whether the result's columns are or not. Columns of the
/// result count over both sides, those of the bound on their own side.
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
    let mut kind = node.kind.with_needed(own);
    kind.each_reference(&mut |reference| match reference {
        Reference::Column(column) => drop(wanted.insert(*column)),
        Reference::Expr(expr) => wanted.extend(expr.columns()),
    });
    match &kind {
        LogicalKind::Join { .. } => unreachable!("the sides of a join have demands of their own"),
        // Rows are equal if all columns are: without one of them other rows would be.
        LogicalKind::SetOperation { .. } => wanted.extend(0..node.fields.len()),
        LogicalKind::Match { pattern, values, .. } => {
            wanted.extend(pattern.columns());
            wanted.extend(values.iter().flat_map(PatternValue::columns));
        }
        LogicalKind::Process { input, .. } => wanted.extend(0..input.fields.len()),
        // All inputs must agree on the column that stays, even if nobody reads it.
        LogicalKind::UnionAll { .. } => wanted.extend(at_least_one(own, node.fields.len())),
        LogicalKind::Refused { inputs, .. } => {
            wanted.extend(0..inputs.iter().map(|i| i.fields.len()).max().unwrap_or(0));
        }
        passing => {
            let width = passing.passed_on().map_or(0, |input| input.fields.len());
            wanted.extend(own.iter().filter(|&&i| i < width));
        }
    }
    if let Some(rowtime) = kind.judged_time() {
        wanted.extend(late(&node.inputs()[0].fields, &[], rowtime)?);
    }
    Ok(wanted)
}

/// The needed columns; one where none is, since a batch must have a column to have a length.
pub(super) fn at_least_one(demand: &Demand, width: usize) -> Vec<usize> {
    if demand.is_empty() && width > 0 { vec![0] } else { demand.iter().copied().collect() }
}
