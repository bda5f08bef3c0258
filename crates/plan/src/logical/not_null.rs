//! Which columns never hold NULL, beyond what their types say.
//!
//! A type says what Flink says. A condition says more: where `x IS NOT NULL` or `x > 3` holds, x is
//! not NULL. Rules that have less to do without NULL ask here; types stay as they are.

use std::collections::BTreeSet;

use thalweg_expr::{CompareOp, Expr, ExprKind};

use super::{JoinKind, LogicalKind, Node, column_of};

/// True if no row of the node has NULL in this column.
pub fn is_never_null(node: &Node, column: usize) -> bool {
    if node.fields.get(column).is_none_or(|field| !field.column_type.can_be_null()) {
        return true;
    }
    match &node.kind {
        LogicalKind::Filter { input, predicate } => {
            required(predicate).contains(&column) || is_never_null(input, column)
        }
        LogicalKind::Project { input, expressions } => {
            value_is_never_null(input, &expressions[column])
        }
        LogicalKind::Aggregate { input, keys, .. }
        | LogicalKind::WindowAggregate { input, keys, .. } => {
            keys.get(column).is_some_and(|key| value_is_never_null(input, key))
        }
        LogicalKind::Join { left, right, kind, condition } => {
            let required = || condition.conjuncts.iter().any(|c| required(c).contains(&column));
            let keeps_partners_only = matches!(kind, JoinKind::Inner | JoinKind::Semi);
            let of_side = match column.checked_sub(left.fields.len()) {
                None => !kind.pads_right_rows() && is_never_null(left, column),
                Some(column) => !kind.pads_left_rows() && is_never_null(right, column),
            };
            of_side || (keeps_partners_only && required())
        }
        LogicalKind::UnionAll { inputs } => inputs.iter().all(|input| is_never_null(input, column)),
        LogicalKind::CheckNotNull { input, columns, .. } => {
            columns.iter().any(|checked| checked.column == column) || is_never_null(input, column)
        }
        kind => kind
            .passed_on()
            .is_some_and(|input| column < input.fields.len() && is_never_null(input, column)),
    }
}

/// The same of a value computed from a row of the node.
pub fn value_is_never_null(node: &Node, value: &Expr) -> bool {
    !value.column_type.can_be_null()
        || column_of(value).is_some_and(|column| is_never_null(node, column))
}

/// The columns that are not NULL where a condition is TRUE.
fn required(condition: &Expr) -> BTreeSet<usize> {
    match &condition.kind {
        ExprKind::And(left, right) => &required(left) | &required(right),
        ExprKind::Or(left, right) => &required(left) & &required(right),
        ExprKind::IsNull { input, negated: true } => passed_on(input),
        ExprKind::Compare { op, left, right }
            if !matches!(op, CompareOp::Distinct | CompareOp::NotDistinct) =>
        {
            &passed_on(left) | &passed_on(right)
        }
        _ => BTreeSet::new(),
    }
}

/// The columns whose NULL makes a value NULL.
fn passed_on(value: &Expr) -> BTreeSet<usize> {
    match &value.kind {
        ExprKind::Column(column) => BTreeSet::from([*column]),
        ExprKind::Cast { input, .. } | ExprKind::Negate(input) => passed_on(input),
        ExprKind::Arithmetic { left, right, .. } => &passed_on(left) | &passed_on(right),
        _ => BTreeSet::new(),
    }
}
