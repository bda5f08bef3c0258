//! Sub-queries that stand for a value of each row: scalar sub-queries, and IN, EXISTS, ANY and ALL
//! where they are not among the conjuncts of WHERE.
//!
//! What a sub-query gives is joined to the rows before the clause is bound, by a left join that
//! keeps the number of rows; in the clause the sub-query is an expression over the joined columns.
//!
//! | sub-query | table that is joined | value |
//! |---|---|---|
//! | `(SELECT MAX(v) …)` | the aggregate | its column |
//! | `(SELECT v …)` | MAX(v) and COUNT(*) | MAX(v); an error where COUNT(*) > 1 |
//! | `x IN (SELECT v …)` | each v once, and TRUE | whether a row was found for x = v |
//! | `EXISTS (SELECT …)` | TRUE, once | whether it was found |
//! | `x > ALL (SELECT v …)` | MIN(v), MAX(v), COUNT(*), COUNT(v) | x > MAX(v), if there are rows |
//!
//! A correlated sub-query has the columns by which it is correlated as keys of that table: its
//! WHERE may compare them with the query around by `=` alone.
//!
//! **NULL.** IN, ANY and ALL are NULL where a NULL could decide. Where TRUE alone matters, under
//! AND and OR in WHERE, IN is FALSE then, which saves a join.

use std::cell::RefCell;

use sqlparser::ast::{self as sql, BinaryOperator, Expr as SqlExpr, SelectItem, SetExpr};
use thalweg_core::{Column, DataType, Error, Result};
use thalweg_expr::build::{self, BinaryOp};
use thalweg_expr::{Expr, ExprKind, Scalar};

use super::children::children;
use super::expression::binary_op;
use super::from::BoundSource;
use super::join::{joined_scope, source};
use super::names::PlainNames;
use super::scope::Scope;
use super::spans::span_of;
use super::subquery_syntax::{has_subquery, is_plain, is_value, sql_conjuncts};
use super::{Binder, ClauseValues, Context, unsupported};
use crate::logical::join::{conjuncts, join, join_key};
use crate::logical::{Aggregate, Field, JoinCondition, JoinKind, LogicalKind, LogicalPlan, Node};

/// Forgets what stands for the sub-queries of a clause once the clause is bound, or has failed.
pub(super) struct OpenClause<'b>(&'b RefCell<Vec<ClauseValues>>);

impl Drop for OpenClause<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().pop();
    }
}

/// Where the columns of values begin that are joined behind an aggregation: behind all others.
const BEHIND: usize = 1 << 33;

/// The rows of a sub-query: its values, then the columns by which it is correlated.
pub(super) struct Rows {
    pub(super) node: Node,
    /// How many columns are values.
    pub(super) values: usize,
    /// For each further column what it equals in the query around.
    pub(super) keys: Vec<Expr>,
    /// True if there is one row at most for each combination of keys.
    is_single: bool,
    /// The value where there is no row, if that is not NULL: a COUNT is 0 there, and
    /// `COALESCE(SUM(v), 7)` is 7.
    missing: Option<Expr>,
}

/// What a sub-query compares with a value.
#[derive(Clone, Copy)]
struct Quantifier {
    op: BinaryOp,
    /// ALL; else ANY.
    is_all: bool,
}

/// The sub-queries of an expression; true with those of which only TRUE matters.
fn values_of<'e>(expr: &'e SqlExpr, is_two_valued: bool, found: &mut Vec<(&'e SqlExpr, bool)>) {
    if is_value(expr) {
        found.push((expr, is_two_valued));
        return;
    }
    let keeps = match expr {
        SqlExpr::Nested(_) => true,
        SqlExpr::BinaryOp { op, .. } => {
            matches!(op, BinaryOperator::And | BinaryOperator::Or)
        }
        _ => false,
    };
    children(expr).into_iter().for_each(|e| values_of(e, is_two_valued && keeps, found));
}

impl Binder<'_> {
    /// The rows for which conditions with sub-queries hold.
    pub(super) fn filter_by_values(
        &self,
        rows: BoundSource,
        parts: &[&SqlExpr],
        context: &Context<'_>,
    ) -> Result<BoundSource> {
        if parts.is_empty() {
            return Ok(rows);
        }
        let (width, scope) = (rows.node.fields.len(), rows.scope.clone());
        let (joined, clause) = self.join_values(rows, parts, true, context)?;
        let mut conditions = Vec::new();
        for part in parts {
            let mut names = PlainNames::of(&joined.scope, "WHERE");
            conditions.extend(conjuncts(self.condition(part, "WHERE", &mut names)?));
        }
        drop(clause);
        let node = conditions.into_iter().fold(joined.node, LogicalPlan::filter);
        let columns = node.columns().take(width).collect();
        Ok(source(LogicalPlan::project(node, columns), scope))
    }

    /// Rows with the values of the sub-queries in these expressions behind their columns. They are
    /// found while what is returned with the rows is kept.
    pub(super) fn join_values(
        &self,
        mut rows: BoundSource,
        parts: &[&SqlExpr],
        is_two_valued: bool,
        context: &Context<'_>,
    ) -> Result<(BoundSource, OpenClause<'_>)> {
        let mut found = Vec::new();
        parts.iter().for_each(|part| values_of(part, is_two_valued, &mut found));
        let own = rows.node.fields.len();
        let mut values = ClauseValues::with_capacity(found.len());
        for (expr, is_two_valued) in found {
            let (joined, value) = self
                .join_value(rows, expr, is_two_valued, context)
                .map_err(|error| error.at(span_of(expr)))?;
            rows = joined;
            values.push((expr.clone(), value));
        }
        if rows.node.fields.len() > own {
            rows.scope.hidden_from.get_or_insert(own);
        }
        Ok((rows, self.open_clause(values)))
    }

    fn open_clause(&self, values: ClauseValues) -> OpenClause<'_> {
        self.values.borrow_mut().push(values);
        OpenClause(&self.values)
    }

    /// What stands for a sub-query whose values were joined.
    pub(super) fn joined_value(&self, expr: &SqlExpr) -> Result<Expr> {
        let clauses = self.values.borrow();
        let place = span_of(expr);
        let is_same = |own: &SqlExpr| span_of(own) == place && own == expr;
        let found = clauses.last().and_then(|values| values.iter().find(|(own, _)| is_same(own)));
        found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| unsupported::subquery("a sub-query here"))
    }

    fn join_value(
        &self,
        rows: BoundSource,
        expr: &SqlExpr,
        is_two_valued: bool,
        context: &Context<'_>,
    ) -> Result<(BoundSource, Expr)> {
        match expr {
            SqlExpr::Subquery(query) => {
                let found = self.subquery_rows(&rows, query, context)?;
                self.join_scalar(rows, found)
            }
            SqlExpr::Exists { subquery, negated } => {
                let found = self.subquery_rows(&rows, subquery, context)?;
                let (rows, value) = self.join_found(rows, found, Vec::new())?;
                Ok((rows, negated_if(value, *negated)?))
            }
            SqlExpr::InSubquery { expr, subquery, negated } => {
                let value = self.expression(expr, &mut PlainNames::of(&rows.scope, "IN"))?;
                let found = self.subquery_rows(&rows, subquery, context)?;
                let two = is_two_valued && !*negated;
                let (rows, value) = self.join_in(rows, found, value, two)?;
                Ok((rows, negated_if(value, *negated)?))
            }
            SqlExpr::AnyOp { left, compare_op, right, .. } => {
                self.join_quantified(rows, (left, compare_op, right, false), is_two_valued, context)
            }
            SqlExpr::AllOp { left, compare_op, right } => {
                self.join_quantified(rows, (left, compare_op, right, true), false, context)
            }
            _ => Err(unsupported::subquery("a sub-query here")),
        }
    }

    /// A scalar sub-query: one row at most for each row.
    fn join_scalar(&self, rows: BoundSource, found: Rows) -> Result<(BoundSource, Expr)> {
        if found.values != 1 {
            return Err(Error::plan(format!(
                "a sub-query that stands for one value has {} columns",
                found.values
            )));
        }
        let value = found.node.fields[0].column_type.clone();
        if found.is_single {
            let (rows, first) = self.join_rows(rows, &found, &found.node, 1)?;
            let value = Expr::column(first, value.with_nullable(true));
            let Some(missing) = found.missing else { return Ok((rows, value)) };
            let key = found.node.fields[1].column_type.clone().with_nullable(true);
            // A key that equals something is not NULL.
            let is_missing = build::is_null(Expr::column(first + 1, key), false);
            return Ok((rows, build::case(vec![(is_missing, missing)], Some(value))?));
        }
        let all = self.aggregated(&found, &[("MAX", true), ("COUNT", false)])?;
        let (rows, first) = self.join_rows(rows, &found, &all, 0)?;
        let first = first + found.keys.len();
        let column = |at: usize| {
            let column_type = all.fields[found.keys.len() + at].column_type.clone();
            Expr::column(first + at, column_type.with_nullable(true))
        };
        Ok((rows, build::single_value(column(0), column(1), self.session)))
    }

    /// Whether a row was found: for EXISTS, and with equalities for IN. These compare columns of
    /// `rows` with the values of `found`, by position.
    fn join_found(
        &self,
        rows: BoundSource,
        found: Rows,
        equal_to: Vec<Expr>,
    ) -> Result<(BoundSource, Expr)> {
        let compared = equal_to.len();
        let kept = (0..compared).chain(found.values..found.node.fields.len());
        let mut columns: Vec<(String, Expr)> =
            kept.map(|at| found.node.fields[at].named_at(at)).collect();
        columns.push(("{found}".to_owned(), build::boolean_literal(true)));
        let node = LogicalPlan::distinct(LogicalPlan::project(found.node, columns));
        let mark = node.fields.len() - 1;
        let keys = equal_to.into_iter().chain(found.keys);
        let (rows, first) = self.left_join(rows, &node, keys.collect(), 0)?;
        let mark = Expr::column(first + mark, DataType::Boolean.nullable());
        Ok((rows, build::is_null(mark, true)))
    }

    /// `value IN (sub-query)`
    fn join_in(
        &self,
        rows: BoundSource,
        found: Rows,
        value: Expr,
        is_two_valued: bool,
    ) -> Result<(BoundSource, Expr)> {
        if found.values != 1 {
            return Err(Error::plan(format!(
                "the sub-query of IN has {} columns, not one",
                found.values
            ))
            .hint("IN of several values stands among the conditions that AND joins in WHERE"));
        }
        let can_be_null =
            value.column_type.can_be_null() || found.node.fields[0].column_type.can_be_null();
        if is_two_valued || !can_be_null {
            return self.join_found(rows, found, vec![value]);
        }
        if !found.keys.is_empty() {
            return Err(unsupported::subquery("a correlated IN here, of values that can be NULL"));
        }
        let counts = self.aggregated(&found, &[("COUNT", false), ("COUNT", true)])?;
        let (rows, is_found) = self.join_found(rows, found, vec![value.clone()])?;
        let (rows, first) = self.left_join(rows, &counts, Vec::new(), 0)?;
        let count = |at: usize| Expr::column(first + at, DataType::BigInt.nullable());
        let is_empty = self.is_empty(count(0))?;
        let has_null = build::binary(BinaryOp::Less, count(1), count(0), self.session)?;
        let unknown = build::is_null(value, false);
        let unknown = build::binary(BinaryOp::Or, unknown, has_null, self.session)?;
        let branches = vec![
            (is_found, build::boolean_literal(true)),
            (is_empty, build::boolean_literal(false)),
            (unknown, Expr::null(DataType::Boolean)),
        ];
        Ok((rows, build::case(branches, Some(build::boolean_literal(false)))?))
    }

    /// `left op ANY (sub-query)` or `left op ALL (sub-query)`
    fn join_quantified(
        &self,
        rows: BoundSource,
        (left, op, right, is_all): (&SqlExpr, &BinaryOperator, &SqlExpr, bool),
        is_two_valued: bool,
        context: &Context<'_>,
    ) -> Result<(BoundSource, Expr)> {
        let SqlExpr::Subquery(query) = right else {
            return Err(unsupported::never("ANY or ALL of something other than a sub-query"));
        };
        let value = self.expression(left, &mut PlainNames::of(&rows.scope, "ANY or ALL"))?;
        let found = self.subquery_rows(&rows, query, context)?;
        let op =
            binary_op(op).ok_or_else(|| unsupported::never(&format!("{op} with ANY or ALL")))?;
        match (op, is_all) {
            (BinaryOp::Equal, false) => return self.join_in(rows, found, value, is_two_valued),
            (BinaryOp::NotEqual, true) => {
                let (rows, found) = self.join_in(rows, found, value, false)?;
                return Ok((rows, negated_if(found, true)?));
            }
            _ => {}
        }
        if found.values != 1 {
            let count = found.values;
            return Err(Error::plan(format!("the sub-query of ANY or ALL has {count} columns")));
        }
        let wanted = [("MIN", true), ("MAX", true), ("COUNT", false), ("COUNT", true)];
        let bounds = self.aggregated(&found, &wanted)?;
        let (rows, first) = self.join_rows(rows, &found, &bounds, 0)?;
        let first = first + found.keys.len();
        let column = |at: usize| {
            let column_type = bounds.fields[found.keys.len() + at].column_type.clone();
            Expr::column(first + at, column_type.with_nullable(true))
        };
        let columns = [0, 1, 2, 3].map(column);
        Ok((rows, self.quantified(value, Quantifier { op, is_all }, columns)?))
    }

    /// A comparison with all values, from the least and the greatest of them and their numbers: of
    /// all rows, and of those that are not NULL.
    fn quantified(
        &self,
        value: Expr,
        quantifier: Quantifier,
        [least, greatest, rows, values]: [Expr; 4],
    ) -> Result<Expr> {
        let Quantifier { op, is_all } = quantifier;
        let compare = |bound: Expr| build::binary(op, value.clone(), bound, self.session);
        let is_upper = matches!(op, BinaryOp::Greater | BinaryOp::GreaterOrEqual);
        let decisive = match op {
            // `= ALL`, or `<> ANY`.
            BinaryOp::Equal | BinaryOp::NotEqual => {
                let join = if is_all { BinaryOp::And } else { BinaryOp::Or };
                build::binary(join, compare(least)?, compare(greatest)?, self.session)?
            }
            _ if is_upper == is_all => compare(greatest)?,
            _ => compare(least)?,
        };
        let is_empty = self.is_empty(rows.clone())?;
        let decides = if is_all { build::UnaryOp::IsFalse } else { build::UnaryOp::IsTrue };
        let is_decided = build::unary(decides, decisive.clone())?;
        let has_null = build::binary(BinaryOp::Less, values, rows, self.session)?;
        let branches = vec![
            (is_empty, build::boolean_literal(is_all)),
            (is_decided, build::boolean_literal(!is_all)),
            (has_null, Expr::null(DataType::Boolean)),
        ];
        build::case(branches, Some(decisive))
    }

    /// True without rows: in batch mode their number is 0, in a stream there is none yet.
    fn is_empty(&self, rows: Expr) -> Result<Expr> {
        let zero = build::number_literal("0")?;
        let none = build::binary(BinaryOp::Equal, rows.clone(), zero, self.session)?;
        let missing = build::is_null(rows, false);
        build::binary(BinaryOp::Or, missing, none, self.session)
    }

    /// Aggregates of the one value of a sub-query (true) or of its rows, for each of its keys.
    fn aggregated(&self, found: &Rows, wanted: &[(&str, bool)]) -> Result<Node> {
        let input = found.node.clone();
        let keys: Vec<Expr> = (found.values..input.fields.len())
            .map(|at| Expr::column(at, input.fields[at].column_type.clone()))
            .collect();
        let mut fields: Vec<Field> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| Field::plain(format!("{{key{at}}}"), key.column_type.clone()))
            .collect();
        let mut aggregates = Vec::with_capacity(wanted.len());
        for (place, (name, of_value)) in wanted.iter().enumerate() {
            let argument = of_value.then(|| Expr::column(0, input.fields[0].column_type.clone()));
            let (function, column_type) =
                self.resolve_aggregate(name, false, false, argument.as_slice())?;
            let column = Column::new(format!("value${place}"), column_type);
            fields.push(Field::plain(column.name.clone(), column.column_type.clone()));
            let (name, distinct, filter) = ((*name).to_owned(), false, None);
            aggregates.push(Aggregate { function, name, column, argument, distinct, filter });
        }
        let kind = LogicalKind::Aggregate { input, keys, aggregates, state_ttl_ms: None };
        Ok(LogicalPlan::node(kind, fields))
    }

    /// Joins a table made of a sub-query by its keys, which begin at `first_key` in it.
    fn join_rows(
        &self,
        rows: BoundSource,
        found: &Rows,
        table: &Node,
        first_key: usize,
    ) -> Result<(BoundSource, usize)> {
        self.left_join(rows, table, found.keys.clone(), first_key)
    }

    /// A left join on the equality of these expressions with columns of the table, from `first_key`
    /// on. Returns where the table's columns begin.
    fn left_join(
        &self,
        rows: BoundSource,
        table: &Node,
        keys: Vec<Expr>,
        first_key: usize,
    ) -> Result<(BoundSource, usize)> {
        self.join_by_keys(rows, table, keys, (first_key, JoinKind::Left))
    }

    /// The same as an inner or a left join.
    pub(super) fn join_by_keys(
        &self,
        rows: BoundSource,
        table: &Node,
        keys: Vec<Expr>,
        (first_key, kind): (usize, JoinKind),
    ) -> Result<(BoundSource, usize)> {
        let width = rows.node.fields.len();
        let mut conditions = Vec::with_capacity(keys.len());
        for (place, key) in keys.into_iter().enumerate() {
            let field = &table.fields[first_key + place];
            let column = Expr::column(width + first_key + place, field.column_type.clone());
            conditions.push(build::binary(BinaryOp::Equal, key, column, self.session)?);
        }
        let condition = JoinCondition::of(conditions, &rows.node.fields, &table.fields);
        let scope = rows.scope.clone();
        let joined = join(rows.node, hidden(table), kind, condition);
        Ok((source(joined, scope), width))
    }

    /// The rows of a sub-query, whether it is correlated or not.
    fn subquery_rows(
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
        if !is_plain(query, select) {
            return Err(error);
        }
        let rows = match self.aggregates(select) {
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

    /// A correlated aggregate: grouped by what its WHERE compares with the query around.
    pub(super) fn correlated_aggregate(
        &self,
        outer: &BoundSource,
        query: &sql::Query,
        select: &sql::Select,
        context: &Context<'_>,
    ) -> Result<Rows> {
        let inner = self.bind_from(&select.from, context)?;
        let mut scope = joined_scope(outer, &inner);
        let width = outer.node.fields.len();
        scope.inner_from = Some(width);
        let bound = |expr: &SqlExpr| {
            let bound = self.expression(expr, &mut PlainNames::of(&scope, "WHERE"))?;
            let is_inner = bound.columns().iter().all(|&i| i >= width);
            Ok::<_, Error>((bound, is_inner))
        };
        let (mut own, mut keys, mut grouped) = (Vec::new(), Vec::new(), Vec::new());
        for part in select.selection.iter().flat_map(sql_conjuncts) {
            if has_subquery(part) || bound(part)?.1 {
                own.push(part.clone());
                continue;
            }
            let SqlExpr::BinaryOp { left, op: BinaryOperator::Eq, right } = part else {
                return Err(only_equalities());
            };
            let (of_left, of_right) = (bound(left)?, bound(right)?);
            let is_outer = |side: &Expr| side.columns().iter().all(|&i| i < width);
            let (key, expr) = match (of_left, of_right) {
                ((_, true), (key, false)) if is_outer(&key) => (key, left),
                ((key, false), (_, true)) if is_outer(&key) => (key, right),
                _ => return Err(only_equalities()),
            };
            keys.push(key);
            grouped.push((**expr).clone());
        }
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
        // One that is wrong without its keys is wrong with them, or has no such value.
        let missing = with(select.clone()).ok().and_then(|node| value_of_no_rows(&node));
        select.projection.extend(grouped.iter().cloned().map(SelectItem::UnnamedExpr));
        select.group_by = sql::GroupByExpr::Expressions(grouped, Vec::new());
        let node = with(select)?;
        Ok(Rows { node, values, keys, is_single: true, missing })
    }

    /// The tables of the sub-queries in expressions of a grouped query. They are joined to its
    /// groups by [`BehindGroups::join`], and stand for provisional columns until then.
    pub(super) fn values_behind_groups(
        &self,
        parts: &[&SqlExpr],
        context: &Context<'_>,
    ) -> Result<(BehindGroups, OpenClause<'_>)> {
        let mut found = Vec::new();
        parts.iter().for_each(|part| values_of(part, false, &mut found));
        let none = || BoundSource { node: super::query::one_row(), scope: Scope::empty() };
        let mut behind = BehindGroups { tables: Vec::new(), columns: 0 };
        let mut values = ClauseValues::with_capacity(found.len());
        for (expr, _) in found {
            if !matches!(expr, SqlExpr::Subquery(_) | SqlExpr::Exists { .. }) {
                return Err(unsupported::subquery("IN, ANY or ALL of a sub-query behind GROUP BY")
                    .at(span_of(expr)));
            }
            let joined = self.join_value(none(), expr, false, context);
            let (rows, value) = joined.map_err(|error| error.at(span_of(expr)))?;
            let LogicalKind::Join { right, .. } = &rows.node.kind else {
                return Err(Error::internal("the value of a sub-query is joined"));
            };
            let first = BEHIND + behind.columns;
            behind.columns += right.fields.len();
            behind.tables.push(right.clone());
            values.push((expr.clone(), value.remap(&|column| first + column)));
        }
        Ok((behind, self.open_clause(values)))
    }
}

/// Tables of one row each that are joined to the groups of a query.
pub(super) struct BehindGroups {
    tables: Vec<Node>,
    columns: usize,
}

impl BehindGroups {
    /// The groups with the columns of all tables behind theirs, and how many columns they had.
    pub(super) fn join(self, mut node: Node) -> (Node, usize) {
        let width = node.fields.len();
        for table in self.tables {
            let condition = JoinCondition::of(Vec::new(), &node.fields, &table.fields);
            node = join(node, table, JoinKind::Left, condition);
        }
        (node, width)
    }

    /// A provisional column once the groups have this many columns. `shift` is by how much the
    /// layout of the groups has moved it.
    pub(super) fn placed(column: usize, shift: usize, width: usize) -> usize {
        match (column + shift).checked_sub(BEHIND) {
            Some(place) => width + place,
            None => column,
        }
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

/// A table whose columns no name reaches.
fn hidden(table: &Node) -> Node {
    let columns = table.columns().map(|(_, column)| ("{value}".to_owned(), column)).collect();
    LogicalPlan::project(table.clone(), columns)
}

fn negated_if(value: Expr, negated: bool) -> Result<Expr> {
    if negated { build::unary(build::UnaryOp::Not, value) } else { Ok(value) }
}

fn only_equalities() -> Error {
    unsupported::subquery(
        "a correlated sub-query here, unless its WHERE compares with the query around by =,",
    )
}
