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
//! A correlated sub-query has the columns by which it is correlated as keys of that table
//! (`correlated`).
//!
//! **NULL.** IN, ANY and ALL are NULL where a NULL could decide. Where TRUE alone matters, under
//! AND and OR in WHERE, IN is FALSE then, which saves a join.

use std::cell::RefCell;

use sqlparser::ast::{BinaryOperator, Expr as SqlExpr};
use thalweg_core::{Column, DataType, Error, Result};
use thalweg_expr::Expr;
use thalweg_expr::build::{self, BinaryOp};

use super::children::children;
use super::expression::binary_op;
use super::from::BoundSource;
use super::join::source;
use super::names::PlainNames;
use super::spans::span_of;
use super::subquery_syntax::is_value;
use super::{Binder, ClauseValues, Context, unsupported};
use crate::logical::join::{conjuncts, join};
use crate::logical::{Aggregate, Field, JoinCondition, JoinKind, LogicalKind, LogicalPlan, Node};

/// Forgets what stands for the sub-queries of a clause once the clause is bound, or has failed.
pub(super) struct OpenClause<'b>(&'b RefCell<Vec<ClauseValues>>);

impl Drop for OpenClause<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().pop();
    }
}

/// The rows of a sub-query: its values, then the columns by which it is correlated.
pub(super) struct Rows {
    pub(super) node: Node,
    /// How many columns are values.
    pub(super) values: usize,
    /// For each further column what it equals in the query around.
    pub(super) keys: Vec<Expr>,
    /// True if there is one row at most for each combination of keys.
    pub(super) is_single: bool,
    /// The value where there is no row, if that is not NULL: a COUNT is 0 there, and
    /// `COALESCE(SUM(v), 7)` is 7.
    pub(super) missing: Option<Expr>,
}

/// What a sub-query compares with a value.
#[derive(Clone, Copy)]
struct Quantifier {
    op: BinaryOp,
    /// ALL; else ANY.
    is_all: bool,
}

/// The sub-queries of an expression; true with those of which only TRUE matters.
pub(super) fn values_of<'e>(
    expr: &'e SqlExpr,
    is_two_valued: bool,
    found: &mut Vec<(&'e SqlExpr, bool)>,
) {
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
                .join_value(rows, (expr, None), is_two_valued, context)
                .map_err(|error| error.at(span_of(expr)))?;
            rows = joined;
            values.push((expr.clone(), value));
        }
        if rows.node.fields.len() > own {
            rows.scope.hidden_from.get_or_insert(own);
        }
        Ok((rows, self.open_clause(values)))
    }

    pub(super) fn open_clause(&self, values: ClauseValues) -> OpenClause<'_> {
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

    /// Rows with a sub-query joined, and what stands for it. Of IN, ANY and ALL, `compared` is the
    /// value on the left where it is bound already.
    pub(super) fn join_value(
        &self,
        rows: BoundSource,
        (expr, compared): (&SqlExpr, Option<Expr>),
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
                let value = match compared {
                    Some(value) => value,
                    None => self.expression(expr, &mut PlainNames::of(&rows.scope, "IN"))?,
                };
                let found = self.subquery_rows(&rows, subquery, context)?;
                let two = is_two_valued && !*negated;
                let (rows, value) = self.join_in(rows, found, value, two)?;
                Ok((rows, negated_if(value, *negated)?))
            }
            SqlExpr::AnyOp { left, compare_op, right, .. }
            | SqlExpr::AllOp { left, compare_op, right } => {
                let is_all = matches!(expr, SqlExpr::AllOp { .. });
                let value = match compared {
                    Some(value) => value,
                    None => {
                        self.expression(left, &mut PlainNames::of(&rows.scope, "ANY or ALL"))?
                    }
                };
                let two = is_two_valued && !is_all;
                self.join_quantified(rows, value, (compare_op, right, is_all, two), context)
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

    /// `value op ANY (sub-query)` or `value op ALL (sub-query)`
    fn join_quantified(
        &self,
        rows: BoundSource,
        value: Expr,
        (op, right, is_all, is_two_valued): (&BinaryOperator, &SqlExpr, bool, bool),
        context: &Context<'_>,
    ) -> Result<(BoundSource, Expr)> {
        let SqlExpr::Subquery(query) = right else {
            return Err(unsupported::never("ANY or ALL of something other than a sub-query"));
        };
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
}

/// A table whose columns no name reaches.
fn hidden(table: &Node) -> Node {
    let columns = table.columns().map(|(_, column)| ("{value}".to_owned(), column)).collect();
    LogicalPlan::project(table.clone(), columns)
}

fn negated_if(value: Expr, negated: bool) -> Result<Expr> {
    if negated { build::unary(build::UnaryOp::Not, value) } else { Ok(value) }
}
