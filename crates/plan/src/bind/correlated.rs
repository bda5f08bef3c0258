//! Correlated sub-queries as tables: their values, and the columns by which they are correlated.
//!
//! A sub-query whose WHERE compares with the query around by `=` has what it compares as keys of
//! that table. One of aggregates that compares otherwise is computed for each combination of the
//! values that there are around.

use std::collections::BTreeSet;

use sqlparser::ast::{self as sql, BinaryOperator, Expr as SqlExpr, SelectItem, SetExpr};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::build::{self, BinaryOp};

use thalweg_expr::{CompareOp, Expr, ExprKind, Scalar};

use super::aggregate::Grouping;
use super::from::BoundSource;
use super::join::joined_scope;
use super::names::PlainNames;
use super::scope::Scope;
use super::subquery::Correlated;
use super::subquery_syntax::{has_subquery, is_grouped, is_plain, sql_conjuncts};
use super::values::Rows;
use super::{Binder, Context, unsupported};
use crate::logical::join::{join, join_key};
use crate::logical::{JoinCondition, JoinKind, LogicalKind, LogicalPlan, Node, column_of};

impl Binder<'_> {
    /// The rows of a sub-query, whether it is correlated or not.
    pub(super) fn subquery_rows(
        &self,
        outer: &BoundSource,
        query: &sql::Query,
        context: &Context<'_>,
    ) -> Result<Rows> {
        let error = match self.bind_tree(query, context) {
            Ok(node) => {
                let (values, is_single) = (node.fields.len(), self.has_one_row(query));
                // Without a row there is no COUNT in a stream either, as in Flink.
                return Ok(Rows { node, values, keys: Vec::new(), is_single, missing: None });
            }
            Err(error) => error,
        };
        let SetExpr::Select(select) = query.body.as_ref() else { return Err(error) };
        let groups = is_grouped(query, select);
        if !groups && !is_plain(query, select) {
            return Err(error);
        }
        let rows = match groups || self.aggregates(select) {
            true => self.correlated_aggregate(outer, query, select, context),
            false => self.correlated_rows(outer, select, context),
        };
        // What is wrong with it as it is written is reported, not what is wrong with it alone.
        rows.and_then(|rows| if rows.keys.is_empty() { Err(error) } else { Ok(rows) })
    }

    /// Values and keys of a correlated sub-query without aggregates.
    pub(super) fn correlated_rows(
        &self,
        outer: &BoundSource,
        select: &sql::Select,
        context: &Context<'_>,
    ) -> Result<Rows> {
        let inner = self.bind_correlated(outer, select, context)?;
        let width = outer.node.fields.len();
        let mut columns = Vec::new();
        for item in &select.projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
            else {
                // EXISTS (SELECT * …): no value is looked at.
                continue;
            };
            let value = self.expression(expr, &mut PlainNames::of(&inner.scope, "SELECT"))?;
            if value.columns().iter().any(|&column| column < width) {
                return Err(unsupported::subquery(
                    "a sub-query that selects columns of the query around",
                ));
            }
            columns.push(("{value}".to_owned(), value.remap(&|i| i - width)));
        }
        let values = columns.len();
        let mut keys = Vec::new();
        for condition in &inner.both {
            let key = join_key(condition, &outer.node.fields, &inner.node.fields);
            let key = key.filter(|key| !key.null_equals_null).ok_or_else(only_equalities)?;
            keys.push(key.left);
            columns.push(("{key}".to_owned(), key.right));
        }
        let node = LogicalPlan::project(inner.node, columns);
        Ok(Rows { node, values, keys, is_single: false, missing: None })
    }

    /// A correlated aggregate: grouped by what its WHERE compares with the query around, and by the
    /// keys of its own.
    pub(super) fn correlated_aggregate(
        &self,
        outer: &BoundSource,
        query: &sql::Query,
        select: &sql::Select,
        context: &Context<'_>,
    ) -> Result<Rows> {
        let Some(Correlation { own, keys, grouped }) =
            self.equalities_around(outer, select, context)?
        else {
            return self.aggregate_by_values(outer, select, context);
        };
        let values = select.projection.len();
        let selection = own.into_iter().reduce(|left, right| SqlExpr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        });
        let with = |select: sql::Select| {
            let body = Box::new(SetExpr::Select(Box::new(select)));
            self.bind_tree(&sql::Query { body, ..query.clone() }, context)
        };
        let mut select = sql::Select { selection, ..select.clone() };
        let is_single = own_keys(&select).is_empty();
        let missing = match is_single {
            // One that is wrong without its keys is wrong with them, or has no such value.
            true => with(select.clone()).ok().and_then(|node| value_of_no_rows(&node)),
            false => None,
        };
        group_as_well(&mut select, grouped);
        let node = with(select)?;
        Ok(Rows { node, values, keys, is_single, missing })
    }

    /// What the WHERE of a sub-query compares with the query around; `None` if it does so otherwise
    /// than by `=`.
    fn equalities_around(
        &self,
        outer: &BoundSource,
        select: &sql::Select,
        context: &Context<'_>,
    ) -> Result<Option<Correlation>> {
        let inner = self.bind_from(&select.from, context)?;
        let mut scope = joined_scope(outer, &inner);
        let width = outer.node.fields.len();
        scope.inner_from = Some(width);
        let bound = |expr: &SqlExpr| {
            let bound = self.expression(expr, &mut PlainNames::of(&scope, "WHERE"))?;
            let is_inner = bound.columns().iter().all(|&i| i >= width);
            Ok::<_, Error>((bound, is_inner))
        };
        let mut found = Correlation { own: Vec::new(), keys: Vec::new(), grouped: Vec::new() };
        for part in select.selection.iter().flat_map(sql_conjuncts) {
            if has_subquery(part) || bound(part)?.1 {
                found.own.push(part.clone());
                continue;
            }
            let SqlExpr::BinaryOp { left, op: BinaryOperator::Eq, right } = part else {
                return Ok(None);
            };
            let (of_left, of_right) = (bound(left)?, bound(right)?);
            let is_outer = |side: &Expr| side.columns().iter().all(|&i| i < width);
            let (key, expr) = match (of_left, of_right) {
                ((_, true), (key, false)) if is_outer(&key) => (key, left),
                ((key, false), (_, true)) if is_outer(&key) => (key, right),
                _ => return Ok(None),
            };
            found.keys.push(key);
            found.grouped.push((**expr).clone());
        }
        Ok(Some(found))
    }

    /// A correlated aggregate whose WHERE compares with the query around by more than `=`: the
    /// different values that there are around are joined to its rows, and are its keys.
    ///
    /// ```sql
    /// SELECT (SELECT MAX(w) FROM u WHERE u.w < t.v) FROM t
    /// -- t LEFT JOIN (SELECT MAX(w), v FROM (SELECT DISTINCT v FROM t) JOIN u ON w < v GROUP BY v)
    /// ```
    fn aggregate_by_values(
        &self,
        outer: &BoundSource,
        select: &sql::Select,
        context: &Context<'_>,
    ) -> Result<Rows> {
        let Correlated { node, inner, both, .. } = self.bind_correlated(outer, select, context)?;
        let width = outer.node.fields.len();
        let used: BTreeSet<usize> = both.iter().flat_map(Expr::columns).collect();
        let used: Vec<usize> = used.into_iter().filter(|&column| column < width).collect();
        let is_compared = |&column: &usize| both.iter().any(|part| compares(part, column));
        if select.distinct.is_some() || !used.iter().all(is_compared) {
            return Err(only_equalities());
        }
        let keys: Vec<Expr> =
            used.iter().map(|&column| outer.node.fields[column].at(column)).collect();
        let named = |(place, key): (usize, &Expr)| (format!("{{outer{place}}}"), key.clone());
        let columns = keys.iter().enumerate().map(named).collect();
        let around = LogicalPlan::distinct(LogicalPlan::project(outer.node.clone(), columns));
        let placed = |column: usize| match used.iter().position(|&used| used == column) {
            Some(place) => place,
            None => used.len() + column - width,
        };
        let on = both.iter().map(|part| part.remap(&placed)).collect();
        let condition = JoinCondition::of(on, &around.fields, &node.fields);
        let names = around.fields.iter().map(|f| SqlExpr::Identifier(sql::Ident::new(&f.name)));
        let names = names.collect();
        let scope = Scope::of(None, around.fields.clone());
        let joined = join(around, node, JoinKind::Inner, condition);
        let scope = scope.joined(&inner, joined.fields.clone());
        self.aggregated_by(&joined, &scope, (select, names, keys), context)
    }

    /// The aggregates of a sub-query over rows, by its own keys and by columns of the query around
    /// that the rows carry under these names.
    fn aggregated_by(
        &self,
        rows: &Node,
        scope: &Scope,
        (select, names, keys): (&sql::Select, Vec<SqlExpr>, Vec<Expr>),
        context: &Context<'_>,
    ) -> Result<Rows> {
        let bound = |select: &sql::Select| {
            let mut grouping = Grouping::new(self, (scope, rows), own_keys(select))?;
            let (behind, _clause) =
                self.values_behind_groups(select, None, &mut grouping, context)?;
            let grouping = (grouping, behind);
            Ok::<_, Error>(
                self.bind_grouped((select, None), rows.clone(), scope, grouping, context)?.node,
            )
        };
        let mut select = select.clone();
        let values = select.projection.len();
        let is_single = own_keys(&select).is_empty();
        let missing = if is_single { value_of_no_rows(&bound(&select)?) } else { None };
        group_as_well(&mut select, names);
        Ok(Rows { node: bound(&select)?, values, keys, is_single, missing })
    }

    /// For each key of a sub-query, behind columns as many as `width`, that it equals what it is
    /// compared with.
    pub(super) fn equal_keys(&self, rows: &Rows, width: usize) -> Result<Vec<Expr>> {
        let equal = |(key, at): (&Expr, usize)| {
            let column = rows.node.fields[at].at(width + at);
            build::binary(BinaryOp::Equal, key.clone(), column, self.session)
        };
        rows.keys.iter().zip(rows.values..).map(equal).collect()
    }
}

/// The WHERE of a sub-query that compares with the query around by `=`.
struct Correlation {
    /// The conditions that speak of the sub-query alone.
    own: Vec<SqlExpr>,
    /// What is compared of the query around.
    keys: Vec<Expr>,
    /// What each is compared with.
    grouped: Vec<SqlExpr>,
}

/// The keys of GROUP BY as they are written.
fn own_keys(select: &sql::Select) -> &[SqlExpr] {
    match &select.group_by {
        sql::GroupByExpr::Expressions(keys, _) => keys,
        sql::GroupByExpr::All(_) => &[],
    }
}

/// Groups by these as well, and selects them behind the list.
fn group_as_well(select: &mut sql::Select, keys: Vec<SqlExpr>) {
    select.projection.extend(keys.iter().cloned().map(SelectItem::UnnamedExpr));
    let all = own_keys(select).iter().cloned().chain(keys).collect();
    select.group_by = sql::GroupByExpr::Expressions(all, Vec::new());
}

/// True for a comparison of this column: it does not hold where the column is NULL.
fn compares(condition: &Expr, column: usize) -> bool {
    fn uncast(side: &Expr) -> &Expr {
        match &side.kind {
            ExprKind::Cast { input, .. } => uncast(input),
            _ => side,
        }
    }
    match &condition.kind {
        ExprKind::Compare { op: CompareOp::Distinct | CompareOp::NotDistinct, .. } => false,
        ExprKind::Compare { left, right, .. } => {
            [left, right].iter().any(|side| column_of(uncast(side)) == Some(column))
        }
        _ => false,
    }
}

/// The first value of an aggregate of no rows, from the plan of that aggregate without keys; `None`
/// if it is NULL.
fn value_of_no_rows(node: &Node) -> Option<Expr> {
    let (input, value) = match &node.kind {
        LogicalKind::Project { input, expressions } => (input, expressions.first()?.clone()),
        _ => (node, Expr::column(0, node.fields.first()?.column_type.clone())),
    };
    let LogicalKind::Aggregate { keys, aggregates, .. } = &input.kind else { return None };
    if !keys.is_empty() {
        return None;
    }
    let of_aggregate = |expr: &Expr| {
        let ExprKind::Column(position) = expr.kind else { return None };
        Some(match aggregates[position].name.as_str() {
            "COUNT" | "APPROX_COUNT_DISTINCT" => {
                Expr::literal(Scalar::Integer(0), DataType::BigInt.not_null())
            }
            _ => Expr::null(expr.column_type.data_type.clone()),
        })
    };
    let value = value.replace(&of_aggregate);
    (value.as_literal() != Some(&Scalar::Null)).then_some(value)
}

fn only_equalities() -> Error {
    unsupported::subquery(
        "a correlated sub-query here, unless its WHERE compares with the query around by =,",
    )
}
