//! Sub-queries in conditions and as values.
//!
//! `x IN (SELECT …)` and `EXISTS (SELECT …)` among the conjuncts of WHERE keep the rows of the
//! query that have a partner in the sub-query: a semi join, or an anti join where they are negated.
//!
//! ```sql
//! SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.x > 3)
//! -- a SEMI JOIN (SELECT * FROM b WHERE x > 3) AS b ON b.k = a.k
//! SELECT * FROM a WHERE k NOT IN (SELECT k FROM b)
//! -- a ANTI JOIN b ON a.k = b.k, with NULL on either side as a partner (logical::anti_join)
//! ```
//!
//! Anywhere else a sub-query is a value of each row: `values` joins it to the rows first.
//!
//! A sub-query is *correlated* if its own WHERE speaks of the query around. Its names are looked up
//! in its own FROM first. A correlated sub-query with GROUP BY is a table of groups with keys
//! (`correlated`). One with LIMIT or a set operation is bound as a whole, and can't be correlated:
//! which rows it has depends on all of them.

use sqlparser::ast::{self as sql, Expr as SqlExpr, SetExpr};
use thalweg_core::{Error, Result};
use thalweg_expr::Expr;
use thalweg_expr::build::{self, BinaryOp};

use super::from::BoundSource;
use super::join::joined_scope;
use super::names::PlainNames;
use super::scope::Scope;
use super::spans::span_of;
use super::subquery_syntax::{
    has_subquery, is_grouped, is_plain, is_subquery, is_whole, sql_conjuncts,
};
use super::{Binder, Context, unsupported};
use crate::logical::join::{conjuncts, filter, join};
use crate::logical::not_null::{is_never_null, value_is_never_null};
use crate::logical::{JoinCondition, JoinKind, LogicalKind, LogicalPlan, Node, anti_join, ranks};

/// The rows of a sub-query's FROM, split by its WHERE.
pub(super) struct Correlated {
    /// The rows for which the conditions hold that speak of the sub-query alone.
    pub(super) node: Node,
    /// Their columns alone.
    pub(super) inner: Scope,
    /// The columns of the query around, then those of `node`.
    pub(super) scope: Scope,
    /// The conditions that speak of the query around, over the columns of `scope`.
    pub(super) both: Vec<Expr>,
}

impl Binder<'_> {
    /// WHERE over a FROM clause: conditions become part of the joins that they are about,
    /// sub-queries become joins, and bounds of a rank below become the first rows.
    ///
    /// Plain conditions come first, so that the joins of sub-queries see fewer rows.
    pub(super) fn bind_where(
        &self,
        from: BoundSource,
        condition: &SqlExpr,
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let BoundSource { mut node, scope } = from;
        let (mut plain, mut subqueries, mut of_values) = (Vec::new(), Vec::new(), Vec::new());
        for part in sql_conjuncts(condition) {
            if is_subquery(part) {
                subqueries.push(part);
                continue;
            }
            if has_subquery(part) {
                of_values.push(part);
                continue;
            }
            let mut names = PlainNames::of(&scope, "WHERE");
            plain.extend(conjuncts(self.condition(part, "WHERE", &mut names)?));
        }
        node = match &node.kind {
            LogicalKind::Join { .. } => filter(node, plain),
            _ => ranks::filter(node, plain),
        };
        for part in subqueries {
            let fields = node.fields.clone();
            let seen = BoundSource { node, scope: Scope { fields, ..scope.clone() } };
            node =
                self.bind_subquery(seen, part, false, context).map_err(|e| e.at(span_of(part)))?;
        }
        let fields = node.fields.clone();
        let bound = BoundSource { node, scope: Scope { fields, ..scope } };
        self.filter_by_values(bound, &of_values, context)
    }

    fn bind_subquery(
        &self,
        outer: BoundSource,
        expr: &SqlExpr,
        negated: bool,
        context: &Context<'_>,
    ) -> Result<Node> {
        match expr {
            SqlExpr::Nested(inner) => self.bind_subquery(outer, inner, negated, context),
            SqlExpr::UnaryOp { op: sql::UnaryOperator::Not, expr } => {
                self.bind_subquery(outer, expr, !negated, context)
            }
            SqlExpr::InSubquery { expr, subquery, negated: not } => {
                self.bind_in(outer, expr, subquery, negated != *not, context)
            }
            SqlExpr::Exists { subquery, negated: not } => {
                self.bind_exists(outer, subquery, negated != *not, context)
            }
            _ => Err(unsupported::subquery("this use of a sub-query")),
        }
    }

    /// `x IN (SELECT …)`. Negated, a NULL on either side means that the row is not known to be out.
    ///
    /// Not negated, UNKNOWN and FALSE drop the row alike, so NULL needs no attention.
    fn bind_in(
        &self,
        outer: BoundSource,
        value: &SqlExpr,
        subquery: &sql::Query,
        negated: bool,
        context: &Context<'_>,
    ) -> Result<Node> {
        let (inner, found, both) = match self.bind_tree(subquery, context) {
            Ok(inner) => {
                let width = outer.node.fields.len();
                let columns = inner.fields.iter().enumerate();
                let found = columns.map(|(i, f)| Expr::column(width + i, f.column_type.clone()));
                (inner.clone(), found.collect(), Vec::new())
            }
            Err(error) => self.correlated_in(&outer, subquery, context)?.ok_or(error)?,
        };
        let equal = self.equalities(&outer, value, &found)?;
        let width = outer.node.fields.len();
        if !negated {
            let all = both.into_iter().chain(equal.into_iter().map(|(_, _, equal)| equal));
            let all = all.flat_map(conjuncts).collect();
            let condition = JoinCondition::of(all, &outer.node.fields, &inner.fields);
            return Ok(join(outer.node, inner, JoinKind::Semi, condition));
        }
        let mut all = both;
        for (value, found, equal) in equal {
            let is_certain = value_is_never_null(&outer.node, &value)
                && crate::logical::column_of(&found)
                    .is_some_and(|column| is_never_null(&inner, column - width));
            let nullable = [value, found].into_iter().filter(|side| side.column_type.can_be_null());
            let mut condition = equal;
            for side in nullable.filter(|_| !is_certain) {
                let is_null = build::is_null(side, false);
                condition = build::binary(BinaryOp::Or, condition, is_null, self.session)?;
            }
            all.extend(conjuncts(condition));
        }
        Ok(anti_join(outer.node, inner, all))
    }

    /// The rows of a correlated sub-query of IN, its values over both sides, and the conditions
    /// that speak of both. `None` if it is not one.
    fn correlated_in(
        &self,
        outer: &BoundSource,
        subquery: &sql::Query,
        context: &Context<'_>,
    ) -> Result<Option<(Node, Vec<Expr>, Vec<Expr>)>> {
        let SetExpr::Select(select) = subquery.body.as_ref() else { return Ok(None) };
        if is_grouped(subquery, select) {
            let Ok(rows) = self.subquery_rows(outer, subquery, context) else { return Ok(None) };
            let width = outer.node.fields.len();
            let both = self.equal_keys(&rows, width)?;
            let found = (0..rows.values).map(|at| rows.node.fields[at].at(width + at)).collect();
            return Ok(Some((rows.node, found, both)));
        }
        if !is_plain(subquery, select) || self.aggregates(select) {
            return Ok(None);
        }
        let Ok(inner) = self.bind_correlated(outer, select, context) else { return Ok(None) };
        let mut found = Vec::with_capacity(select.projection.len());
        for item in &select.projection {
            let (sql::SelectItem::UnnamedExpr(expr) | sql::SelectItem::ExprWithAlias { expr, .. }) =
                item
            else {
                return Ok(None);
            };
            found.push(self.expression(expr, &mut PlainNames::of(&inner.scope, "SELECT"))?);
        }
        Ok(Some((inner.node, found, inner.both)))
    }

    /// Each value with what it is compared with, and their equality: one, or those of `(a, b)`.
    fn equalities(
        &self,
        outer: &BoundSource,
        value: &SqlExpr,
        found: &[Expr],
    ) -> Result<Vec<(Expr, Expr, Expr)>> {
        let values = tuple(value);
        if values.len() != found.len() {
            let one = if values.len() == 1 { "one" } else { "as many as there are values" };
            return Err(Error::plan(format!(
                "the sub-query of IN has {} columns, not {one}",
                found.len()
            )));
        }
        let equal = |(value, found): (&&SqlExpr, &Expr)| {
            let value = self.expression(value, &mut PlainNames::of(&outer.scope, "IN"))?;
            let equal = build::binary(BinaryOp::Equal, value.clone(), found.clone(), self.session)?;
            Ok((value, found.clone(), equal))
        };
        values.iter().zip(found).map(equal).collect()
    }

    /// Binds FROM and WHERE of a sub-query that may speak of the query around.
    pub(super) fn bind_correlated(
        &self,
        outer: &BoundSource,
        select: &sql::Select,
        context: &Context<'_>,
    ) -> Result<Correlated> {
        let inner = self.bind_from(&select.from, context)?;
        let scope = joined_with_inner(outer, &inner);
        let width = outer.node.fields.len();
        let (mut own, mut both) = (Vec::new(), Vec::new());
        for part in select.selection.iter().flat_map(sql_conjuncts) {
            let mut names = PlainNames::of(&scope, "WHERE");
            for conjunct in conjuncts(self.condition(part, "WHERE", &mut names)?) {
                let is_own = conjunct.columns().iter().all(|&i| i >= width);
                if is_own { own.push(conjunct.remap(&|i| i - width)) } else { both.push(conjunct) }
            }
        }
        Ok(Correlated { node: filter(inner.node, own), inner: inner.scope, scope, both })
    }

    /// `EXISTS (SELECT … FROM … WHERE …)`, whose WHERE may speak of the query around.
    ///
    /// The select list is not bound: it does not decide whether there is a row, unless it
    /// aggregates. An aggregate without GROUP BY has one row whatever it reads.
    fn bind_exists(
        &self,
        outer: BoundSource,
        subquery: &sql::Query,
        negated: bool,
        context: &Context<'_>,
    ) -> Result<Node> {
        let kind = if negated { JoinKind::Anti } else { JoinKind::Semi };
        let always_one_row = |outer: Node| match negated {
            true => LogicalPlan::filter(outer, build::boolean_literal(false)),
            false => outer,
        };
        let has_one_row = self.has_one_row(subquery);
        let select = match subquery.body.as_ref() {
            SetExpr::Select(select) if is_plain(subquery, select) => select,
            _ => {
                let inner = self.subquery_rows(&outer, subquery, context)?;
                if has_one_row {
                    return Ok(always_one_row(outer.node));
                }
                let equal = self.equal_keys(&inner, outer.node.fields.len())?;
                let condition = JoinCondition::of(equal, &outer.node.fields, &inner.node.fields);
                return Ok(join(outer.node, inner.node, kind, condition));
            }
        };
        let Correlated { node: inner, both, .. } = self.bind_correlated(&outer, select, context)?;
        if has_one_row {
            return Ok(always_one_row(outer.node));
        }
        if negated {
            return Ok(anti_join(outer.node, inner, both));
        }
        let condition = JoinCondition::of(both, &outer.node.fields, &inner.fields);
        Ok(join(outer.node, inner, kind, condition))
    }

    /// True for an aggregate over all rows: there is one row, also if there are none to aggregate.
    pub(super) fn has_one_row(&self, query: &sql::Query) -> bool {
        matches!(query.body.as_ref(), SetExpr::Select(select)
            if is_whole(query, select) && self.aggregates(select))
    }
}

/// The same for a sub-query, whose own names hide those of the query around.
fn joined_with_inner(outer: &BoundSource, inner: &BoundSource) -> Scope {
    Scope { inner_from: Some(outer.node.fields.len()), ..joined_scope(outer, inner) }
}

/// The values of `(a, b)`, or the one value.
fn tuple(value: &SqlExpr) -> Vec<&SqlExpr> {
    match value {
        SqlExpr::Tuple(values) => values.iter().collect(),
        SqlExpr::Nested(inner) if matches!(**inner, SqlExpr::Tuple(_)) => tuple(inner),
        other => vec![other],
    }
}
