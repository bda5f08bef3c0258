//! `LATERAL (SELECT …)`: a sub-query of FROM that speaks of what stands before it.
//!
//! A join: the conditions of its WHERE that speak of both sides become the condition of the join.
//!
//! | sub-query | becomes |
//! |---|---|
//! | one that speaks of nothing around it | the right side of a join, as without LATERAL |
//! | FROM and WHERE | the same, joined by the conditions that speak of both sides |
//! | DISTINCT | its different rows for each combination of what it compares by `=` |
//! | aggregates without GROUP BY | one row for each such combination; where there is none, no row, as in Flink |
//!
//! GROUP BY, LIMIT and set operations are not there: which rows they give depends on all of them.

use sqlparser::ast::{self as sql, Expr as SqlExpr, JoinConstraint, SelectItem, SetExpr};
use thalweg_core::{Error, Result};
use thalweg_expr::Expr;

use super::from::BoundSource;
use super::names::PlainNames;
use super::query::{alias_columns, with_distinct_names};
use super::scope::Scope;
use super::select::{implied_name, wildcard_range};
use super::spans::{ident_span, span_of};
use super::subquery::Correlated;
use super::subquery_syntax::is_plain;
use super::{Binder, Context, unsupported};
use crate::logical::join::{conjuncts, filter, join};
use crate::logical::{JoinCondition, JoinKind, LogicalPlan, Node, column_of};

/// The columns of the left side with those of the sub-query behind them.
struct Joined {
    node: Node,
    /// Names and values of the sub-query's columns, over `node`.
    list: Vec<(String, Expr)>,
}

impl Binder<'_> {
    /// `left JOIN LATERAL (SELECT …) ON …`
    pub(super) fn bind_lateral(
        &self,
        left: BoundSource,
        (query, alias): (&sql::Query, Option<&sql::TableAlias>),
        (kind, constraint): (JoinKind, &JoinConstraint),
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        let error = match self.bind_tree(query, context) {
            Ok(node) => {
                let right = self.named(with_distinct_names(node), alias, None)?;
                return self.join_sources(left, right, (kind, constraint), context);
            }
            Err(error) => error,
        };
        let SetExpr::Select(select) = query.body.as_ref() else { return Err(error) };
        if !is_plain(query, select) {
            return Err(unsupported::lateral());
        }
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            return Err(Error::plan("LATERAL stands behind an inner or a left join"));
        }
        let on = match constraint {
            JoinConstraint::On(condition) if !is_true(condition) => Some(condition),
            JoinConstraint::None | JoinConstraint::On(_) => None,
            _ => return Err(unsupported::never("USING behind LATERAL").hint("write ON TRUE")),
        };
        if let (Some(condition), JoinKind::Left) = (on, kind) {
            return Err(unsupported::later("a condition of LEFT JOIN LATERAL other than TRUE")
                .hint("put it into the WHERE of the sub-query, and write ON TRUE")
                .at(span_of(condition)));
        }
        let (scope, width) = (left.scope.clone(), left.node.fields.len());
        let joined = match () {
            () if self.aggregates(select) || select.distinct.is_some() => {
                self.lateral_by_keys(left, (query, select), kind, context)?
            }
            () => self.lateral_rows(left, select, kind, context)?,
        };
        let source = named_list(joined, &scope, width, alias)?;
        let Some(condition) = on else { return Ok(source) };
        let condition =
            self.condition(condition, "ON", &mut PlainNames::of(&source.scope, "ON"))?;
        Ok(BoundSource { node: filter(source.node, conjuncts(condition)), ..source })
    }

    /// FROM and WHERE: a join on what speaks of both sides.
    ///
    /// What is computed from the sub-query's columns alone is computed before the join, so that it
    /// is NULL where a left join finds no row.
    fn lateral_rows(
        &self,
        left: BoundSource,
        select: &sql::Select,
        kind: JoinKind,
        context: &Context<'_>,
    ) -> Result<Joined> {
        let Correlated { node, scope, both, .. } = self.bind_correlated(&left, select, context)?;
        let width = left.node.fields.len();
        let mut own: Vec<(String, Expr)> = node.columns().collect();
        let mut list = Vec::new();
        for (name, value) in self.lateral_list(select, &scope, width)? {
            let columns = value.columns();
            if column_of(&value).is_none() && columns.iter().all(|&column| column >= width) {
                let place = Expr::column(width + own.len(), value.column_type.clone());
                own.push((name.clone(), value.remap(&|column| column - width)));
                list.push((name, place));
            } else if kind == JoinKind::Inner || column_of(&value).is_some_and(|c| c >= width) {
                list.push((name, value));
            } else {
                return Err(unsupported::later(
                    "a LATERAL sub-query of a left join that selects columns of the query around",
                ));
            }
        }
        let right =
            if own.len() > node.fields.len() { LogicalPlan::project(node, own) } else { node };
        let condition = JoinCondition::of(both, &left.node.fields, &right.fields);
        let node = join(left.node, right, kind, condition);
        let typed = |(name, value): (String, Expr)| match column_of(&value) {
            Some(column) => (name, Expr::column(column, node.fields[column].column_type.clone())),
            None => (name, value),
        };
        let list = list.into_iter().map(typed).collect();
        Ok(Joined { node, list })
    }

    /// DISTINCT, or aggregates without GROUP BY: a table of rows for each combination of the keys,
    /// joined by these.
    fn lateral_by_keys(
        &self,
        left: BoundSource,
        (query, select): (&sql::Query, &sql::Select),
        kind: JoinKind,
        context: &Context<'_>,
    ) -> Result<Joined> {
        let names = self.lateral_names(select)?;
        let mut rows = match self.aggregates(select) {
            true => self.correlated_aggregate(&left, query, select, context)?,
            false => self.correlated_rows(&left, select, context)?,
        };
        if !self.aggregates(select) {
            rows.node = LogicalPlan::distinct(rows.node);
        }
        // The values of a sub-query stand before its keys.
        let (joined, first) =
            self.join_by_keys(left, &rows.node, rows.keys, (rows.values, kind))?;
        let column = |at: usize| {
            Expr::column(first + at, joined.node.fields[first + at].column_type.clone())
        };
        let list = names.into_iter().enumerate().map(|(at, name)| (name, column(at))).collect();
        Ok(Joined { node: joined.node, list })
    }

    /// The select list of a sub-query, over both sides' columns; `*` is its own columns.
    fn lateral_list(
        &self,
        select: &sql::Select,
        scope: &Scope,
        width: usize,
    ) -> Result<Vec<(String, Expr)>> {
        let column = |at: usize| (scope.fields[at].name.clone(), scope.column(at));
        let mut list = Vec::with_capacity(select.projection.len());
        for item in &select.projection {
            let (expr, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, implied_name(expr, list.len())),
                SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.clone()),
                SelectItem::Wildcard(_) => {
                    list.extend((width..scope.fields.len()).map(column));
                    continue;
                }
                SelectItem::QualifiedWildcard(kind, _) => {
                    list.extend(wildcard_range(kind, scope)?.map(column));
                    continue;
                }
                SelectItem::ExprWithAliases { .. } => {
                    return Err(unsupported::never("an expression with several names"));
                }
            };
            list.push((name, self.expression(expr, &mut PlainNames::of(scope, "SELECT"))?));
        }
        Ok(list)
    }

    /// The names of a list without `*`.
    fn lateral_names(&self, select: &sql::Select) -> Result<Vec<String>> {
        let name = |(at, item): (usize, &SelectItem)| match item {
            SelectItem::UnnamedExpr(expr) => Ok(implied_name(expr, at)),
            SelectItem::ExprWithAlias { alias, .. } => Ok(alias.value.clone()),
            _ => Err(unsupported::later("* with DISTINCT in a LATERAL sub-query")
                .hint("name the columns")
                .at(span_of(item))),
        };
        select.projection.iter().enumerate().map(name).collect()
    }
}

/// The left side's columns, then the list under the names of the alias.
fn named_list(
    joined: Joined,
    left: &Scope,
    width: usize,
    alias: Option<&sql::TableAlias>,
) -> Result<BoundSource> {
    let Joined { node, mut list } = joined;
    let names = alias.map(alias_columns).unwrap_or_default();
    if let (Some(alias), false) = (alias, names.is_empty()) {
        if names.len() != list.len() {
            return Err(Error::plan(format!(
                "the sub-query has {} columns, but '{}' names {}",
                list.len(),
                alias.name.value,
                names.len()
            ))
            .at(ident_span(&alias.name)));
        }
        list.iter_mut().zip(names).for_each(|(column, (name, _))| column.0 = name);
    }
    let columns: Vec<(String, Expr)> = node.columns().take(width).chain(list).collect();
    let node = LogicalPlan::project(node, columns);
    let own = node.fields[width..].to_vec();
    let right = Scope::of(alias.map(|alias| alias.name.value.clone()), own.into());
    left.check_names(&right)?;
    let scope = left.joined(&right, node.fields.clone());
    Ok(BoundSource { node, scope })
}

fn is_true(condition: &SqlExpr) -> bool {
    match condition {
        SqlExpr::Nested(inner) => is_true(inner),
        SqlExpr::Value(value) => matches!(value.value, sql::Value::Boolean(true)),
        _ => false,
    }
}
