//! Sub-queries as they are written: where they stand, and what they are made of.

use sqlparser::ast::{self as sql, BinaryOperator, Expr as SqlExpr};

use super::children::children;

/// True if a sub-query occurs in an expression.
pub(super) fn has_subquery(expr: &SqlExpr) -> bool {
    is_value(expr) || children(expr).into_iter().any(has_subquery)
}

/// True for a sub-query that stands for a value.
pub(super) fn is_value(expr: &SqlExpr) -> bool {
    match expr {
        SqlExpr::Subquery(_) | SqlExpr::InSubquery { .. } | SqlExpr::Exists { .. } => true,
        SqlExpr::AnyOp { right, .. } | SqlExpr::AllOp { right, .. } => {
            matches!(**right, SqlExpr::Subquery(_))
        }
        _ => false,
    }
}

/// A sub-query whose rows are those of its FROM and WHERE.
/// DISTINCT is allowed: it changes how often a row is there, not whether.
pub(super) fn is_plain(query: &sql::Query, select: &sql::Select) -> bool {
    query.with.is_none() && is_whole(query, select)
}

/// A SELECT that keeps all its rows, ungrouped.
pub(super) fn is_whole(query: &sql::Query, select: &sql::Select) -> bool {
    let no_groups = matches!(&select.group_by,
        sql::GroupByExpr::Expressions(list, modifiers) if list.is_empty() && modifiers.is_empty());
    query.limit_clause.is_none() && query.fetch.is_none() && no_groups && select.having.is_none()
}

/// A SELECT of groups by keys: without rows to group it has none.
pub(super) fn is_grouped(query: &sql::Query, select: &sql::Select) -> bool {
    let is_set = |key: &SqlExpr| {
        matches!(key, SqlExpr::GroupingSets(_) | SqlExpr::Cube(_) | SqlExpr::Rollup(_))
    };
    let has_keys = matches!(&select.group_by,
        sql::GroupByExpr::Expressions(list, modifiers)
            if !list.is_empty() && modifiers.is_empty() && !list.iter().any(is_set));
    query.with.is_none() && query.limit_clause.is_none() && query.fetch.is_none() && has_keys
}

/// The parts of a condition that all have to hold, as they are written.
pub(super) fn sql_conjuncts(condition: &SqlExpr) -> Vec<&SqlExpr> {
    match condition {
        SqlExpr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut parts = sql_conjuncts(left);
            parts.extend(sql_conjuncts(right));
            parts
        }
        SqlExpr::Nested(inner) if !is_subquery(condition) => sql_conjuncts(inner),
        other => vec![other],
    }
}

/// True for `IN (SELECT …)` and `EXISTS (SELECT …)`, negated or not.
pub(super) fn is_subquery(expr: &SqlExpr) -> bool {
    match expr {
        SqlExpr::InSubquery { .. } | SqlExpr::Exists { .. } => true,
        SqlExpr::Nested(inner) => is_subquery(inner),
        SqlExpr::UnaryOp { op: sql::UnaryOperator::Not, expr } => is_subquery(expr),
        _ => false,
    }
}
