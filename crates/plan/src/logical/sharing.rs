//! Which nodes are one: what two nodes over the same inputs must agree in.
//!
//! The text of a node ([`LogicalPlan::describe`]) stands in stage identifiers, so it leaves out
//! what does not change the meaning of a stage's state. Sharing needs more: the key of a node is
//! its text and whatever else decides which values its columns hold.
//!
//! A node that draws (`RAND()`, `UUID()`) has no key: two queries that draw see different values,
//! and each use of a view or common table expression that draws is a query of its own, as in Flink,
//! which reuses no sub-plan that is not deterministic. A reading of the clock is no draw: queries
//! that share it agree on the time.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use thalweg_expr::{Expr, ExprKind};

use super::pattern::value_key as pattern_value_key;
use super::pushdown::with_inputs;
use super::traversal::post_order;
use super::{LogicalKind, LogicalPlan, Node};

/// What a node computes, without its inputs: two nodes of the same key over the same inputs have
/// the same rows, in columns of the same types. `None` for a node that draws.
pub(super) fn key(node: &LogicalPlan) -> Option<String> {
    let expressions = all_expressions(&node.kind);
    if expressions.iter().any(draws) {
        return None;
    }
    let mut key = node.describe();
    match &node.kind {
        // Columns of the window that are not read are undefined.
        LogicalKind::WindowAggregate { read, .. } => {
            let _ = write!(key, " reads {read:?}");
        }
        // A table that is looked up may be read again.
        LogicalKind::Join { condition, .. } if condition.is_lookup => key.push_str(" looked up"),
        LogicalKind::Match { pattern, values, .. } => {
            let of_conditions = pattern.conditions().flat_map(|condition| &condition.values);
            for value in of_conditions.chain(values) {
                let _ = write!(key, " {}", pattern_value_key(&pattern.variables, value));
            }
        }
        _ => {}
    }
    // The text of a number is the same in every type.
    for field in node.fields.iter() {
        let _ = write!(key, " {}", field.column_type.data_type);
    }
    expressions.iter().for_each(|expr| write_literal_types(expr, &mut key));
    Some(key)
}

/// True if two evaluations of an expression differ by chance.
pub(super) fn draws(expr: &Expr) -> bool {
    let own = match &expr.kind {
        ExprKind::Call { function, .. } => !function.deterministic && !function.uses_wall_clock,
        _ => false,
    };
    own || expr.children().into_iter().any(draws)
}

/// The same plan for another use of it: what draws, and what is computed from that, are new nodes.
/// A node that several others in the plan read stays one node.
pub fn drawn_again(node: &Node) -> Node {
    let mut copies: HashMap<*const LogicalPlan, Node> = HashMap::new();
    for node in post_order(std::slice::from_ref(node)) {
        let copy = |input: &&Node| copies.get(&Arc::as_ptr(input)).unwrap_or(input).clone();
        let inputs: Vec<Node> = node.inputs().iter().map(copy).collect();
        let mut again = with_inputs(&node, &inputs);
        if all_expressions(&node.kind).iter().any(draws) {
            again = LogicalPlan::node(again.kind.clone(), again.fields.clone());
        }
        copies.insert(Arc::as_ptr(&node), again);
    }
    copies.remove(&Arc::as_ptr(node)).unwrap_or_else(|| node.clone())
}

fn all_expressions(kind: &LogicalKind) -> Vec<Expr> {
    match kind {
        LogicalKind::Values { rows } => rows.concat(),
        kind => kind.expressions(),
    }
}

fn write_literal_types(expr: &Expr, key: &mut String) {
    if matches!(expr.kind, ExprKind::Literal(_)) {
        let _ = write!(key, " {}", expr.column_type.data_type);
    }
    expr.children().into_iter().for_each(|child| write_literal_types(child, key));
}
