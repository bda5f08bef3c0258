//! Names of columns that both sides of a join share, by `USING` or `NATURAL JOIN`.
//!
//! Here such a name alone means the one column of both sides. Flink takes it in some places only,
//! and calls it ambiguous elsewhere:
//!
//! | where | USING | NATURAL |
//! |---|---|---|
//! | an item of SELECT, if the last join of FROM has the name in USING | taken | refused |
//! | such an item that is the name with another one behind AS, without more | refused | refused |
//! | GROUP BY | taken | refused |
//! | ORDER BY, of a name that SELECT gives | taken | refused |
//! | WHERE, HAVING, ON, other keys of ORDER BY | refused | refused |

use std::collections::BTreeSet;

use sqlparser::ast::{
    self as sql, Expr, Ident, JoinConstraint, SelectItem, SetExpr, TableWithJoins,
};
use thalweg_core::Span;

use super::finding::Finding;
use crate::ast::Query;
use crate::bind::children::children;
use crate::bind::join::join_kind;

/// The names of a SELECT that USING shares, where Flink calls them ambiguous.
pub(super) fn of_using(select: &sql::Select) -> Vec<&Ident> {
    let [from] = select.from.as_slice() else { return Vec::new() };
    let shared = shared_by_using(from);
    let mut found = Vec::new();
    if shared.is_empty() {
        return found;
    }
    let last = from.joins.last().map(|join| using(&join.join_operator)).unwrap_or_default();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { expr: Expr::Identifier(name), .. } => found.push(name),
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                let names = bare_names(expr).into_iter();
                found.extend(names.filter(|name| !last.contains(name.value.as_str())));
            }
            _ => {}
        }
    }
    let conditions = from.joins.iter().filter_map(|join| on(&join.join_operator));
    let conditions = conditions.chain([&select.selection, &select.having].into_iter().flatten());
    found.extend(conditions.flat_map(bare_names));
    found.retain(|name| shared.contains(name.value.as_str()));
    found
}

/// The same of the keys that the rows of a query are sorted by.
pub(super) fn of_using_in_order(query: &sql::Query) -> Vec<&Ident> {
    let SetExpr::Select(select) = &*query.body else { return Vec::new() };
    let ([from], Some(order_by)) = (select.from.as_slice(), &query.order_by) else {
        return Vec::new();
    };
    let sql::OrderByKind::Expressions(keys) = &order_by.kind else { return Vec::new() };
    let shared = shared_by_using(from);
    let given: BTreeSet<&str> = select.projection.iter().filter_map(given_name).collect();
    let names = keys.iter().flat_map(|key| bare_names(&key.expr));
    let names = names.filter(|name| shared.contains(name.value.as_str()));
    names.filter(|name| !given.contains(name.value.as_str())).collect()
}

/// The query with cross joins for its NATURAL JOINs: there a name alone that both sides have is
/// ambiguous. None if it has no NATURAL JOIN next to its own SELECT.
pub(super) fn without_natural(query: &Query) -> Option<Query> {
    let SetExpr::Select(select) = &*query.query.body else { return None };
    if !select.from.iter().flat_map(|from| &from.joins).any(is_natural) {
        return None;
    }
    let mut plain = query.clone();
    if let SetExpr::Select(select) = &mut *plain.query.body {
        let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
        for join in joins.filter(|join| is_natural(join)) {
            join.join_operator = sql::JoinOperator::CrossJoin(JoinConstraint::None);
        }
    }
    Some(plain)
}

fn is_natural(join: &sql::Join) -> bool {
    matches!(join_kind(&join.join_operator), Some((_, JoinConstraint::Natural)))
}

/// What is said of such a name.
pub(super) fn ambiguous(span: Span) -> Finding {
    let text = "Flink calls this column, which both sides of a join have, ambiguous here: write the table in front of it";
    Finding::refused(span, text)
}

/// The names that SELECT gives its columns.
fn given_name(item: &SelectItem) -> Option<&str> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name))
        | SelectItem::ExprWithAlias { alias: name, .. } => Some(&name.value),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
            names.last().map(|name| name.value.as_str())
        }
        _ => None,
    }
}

fn shared_by_using(from: &TableWithJoins) -> BTreeSet<&str> {
    from.joins.iter().flat_map(|join| using(&join.join_operator)).collect()
}

fn using(operator: &sql::JoinOperator) -> BTreeSet<&str> {
    let Some((_, JoinConstraint::Using(names))) = join_kind(operator) else {
        return BTreeSet::new();
    };
    let idents = names.iter().filter_map(|name| name.0.last()?.as_ident());
    idents.map(|name| name.value.as_str()).collect()
}

fn on(operator: &sql::JoinOperator) -> Option<&Expr> {
    match join_kind(operator) {
        Some((_, JoinConstraint::On(condition))) => Some(condition),
        _ => None,
    }
}

/// The names without a table in an expression. Sub-queries have names of their own.
fn bare_names(expr: &Expr) -> Vec<&Ident> {
    match expr {
        Expr::Identifier(name) => vec![name],
        _ => children(expr).into_iter().flat_map(bare_names).collect(),
    }
}
