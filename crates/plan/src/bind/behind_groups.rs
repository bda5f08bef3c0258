//! Sub-queries that stand for values behind GROUP BY, in HAVING, the list and ORDER BY.
//!
//! They are joined to the groups, which are there only once all clauses are bound: until then each
//! is a column that stands in for its value.

use sqlparser::ast::{self as sql, Expr as SqlExpr};
use thalweg_core::{DataType, Result};
use thalweg_expr::Expr;

use super::aggregate::{GroupLayout, Grouping, WINDOW_COLUMNS};
use super::from::BoundSource;
use super::join::source;
use super::order::items;
use super::query::one_row;
use super::scope::Scope;
use super::spans::span_of;
use super::values::{OpenClause, values_of};
use super::{Binder, ClauseValues, Context};
use crate::logical::{Node, column_of};

/// Where the columns begin that stand in for values: behind all others.
const STAND_INS: usize = 1 << 33;

/// The sub-queries of a grouped query, in the order of their stand-ins.
pub(super) struct BehindGroups(Vec<Waiting>);

/// A sub-query that will be joined to the groups.
struct Waiting {
    expr: SqlExpr,
    /// What IN, ANY or ALL compares, over provisional columns.
    compared: Option<Expr>,
    is_two_valued: bool,
}

impl Binder<'_> {
    /// The sub-queries of a grouped query. They are found while what is returned with them is kept.
    pub(super) fn values_behind_groups(
        &self,
        select: &sql::Select,
        order: Option<&sql::OrderBy>,
        grouping: &mut Grouping<'_>,
        context: &Context<'_>,
    ) -> Result<(BehindGroups, OpenClause<'_>)> {
        let mut found = Vec::new();
        for part in value_parts(select, order)? {
            let is_having = select.having.as_ref().is_some_and(|having| std::ptr::eq(having, part));
            values_of(part, is_having, &mut found);
        }
        let mut waiting = Vec::with_capacity(found.len());
        let mut values = ClauseValues::with_capacity(found.len());
        for (expr, is_two_valued) in found {
            let compared = match expr {
                SqlExpr::InSubquery { expr: left, .. }
                | SqlExpr::AnyOp { left, .. }
                | SqlExpr::AllOp { left, .. } => Some(self.expression(left, grouping)?),
                _ => None,
            };
            let column_type = match expr {
                SqlExpr::Subquery(_) => {
                    let none = BoundSource { node: one_row(), scope: Scope::empty() };
                    let joined = self.join_value(none, (expr, None), false, context);
                    joined.map_err(|error| error.at(span_of(expr)))?.1.column_type
                }
                _ => DataType::Boolean.nullable(),
            };
            values.push((expr.clone(), Expr::column(STAND_INS + waiting.len(), column_type)));
            waiting.push(Waiting { expr: expr.clone(), compared, is_two_valued });
        }
        Ok((BehindGroups(waiting), self.open_clause(values)))
    }

    /// The groups with what is joined for the sub-queries behind their columns, and the values.
    pub(super) fn join_behind_groups(
        &self,
        groups: Node,
        behind: BehindGroups,
        layout: &GroupLayout,
        context: &Context<'_>,
    ) -> Result<(Node, Vec<Expr>)> {
        let scope = Scope { fields: groups.fields.clone(), ..Scope::empty() };
        let mut rows = source(groups, scope);
        let mut values = Vec::with_capacity(behind.0.len());
        for Waiting { expr, compared, is_two_valued } in behind.0 {
            let compared = compared.map(|value| layout.place(&value));
            let (joined, value) = self
                .join_value(rows, (&expr, compared), is_two_valued, context)
                .map_err(|error| error.at(span_of(&expr)))?;
            rows = joined;
            values.push(value);
        }
        Ok((rows.node, values))
    }
}

/// The expressions of a SELECT in which a sub-query is a value.
pub(super) fn value_parts<'q>(
    select: &'q sql::Select,
    order: Option<&'q sql::OrderBy>,
) -> Result<Vec<&'q sql::Expr>> {
    let listed = select.projection.iter().filter_map(|item| match item {
        sql::SelectItem::UnnamedExpr(expr) | sql::SelectItem::ExprWithAlias { expr, .. } => {
            Some(expr)
        }
        _ => None,
    });
    let sorted = items(order)?.iter().map(|item| &item.expr);
    Ok(listed.chain(&select.having).chain(&select.qualify).chain(sorted).collect())
}

/// An expression over the groups and these values, once both are there.
pub(super) fn placed(expr: &Expr, layout: &GroupLayout, values: &[Expr]) -> Expr {
    // The layout has moved the stand-ins as if they were aggregates.
    let stand_in = |part: &Expr| column_of(part)?.checked_sub(STAND_INS - WINDOW_COLUMNS);
    layout.place(expr).replace(&|part| values.get(stand_in(part)?).cloned())
}
