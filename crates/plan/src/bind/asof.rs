//! ASOF JOIN: each row of the left side with the latest row of the right side that is not newer.
//!
//! ```sql
//! SELECT * FROM trades AS t ASOF JOIN quotes AS q
//! MATCH_CONDITION (t.ts >= q.ts) ON t.symbol = q.symbol
//! ```
//!
//! ```text
//! trades: 12:00:05 A      quotes: 12:00:01 A 9.5, 12:00:04 A 9.7, 12:00:06 A 9.8
//! result: 12:00:05 A 12:00:04 A 9.7
//! ```
//!
//! It runs as a temporal join whose versions are the rows of the right side, none of which ends
//! another's key (`JoinBound::Version` with `is_asof`). Flink has none; Snowflake's and DuckDB's
//! forms are read. Only `>=` is accepted (or `<=`, the other way round): that is what a temporal
//! join computes.
//!
//! The parser marks such a join by a function in its ON, so that it passes through sqlparser as an
//! ordinary join.

use sqlparser::ast::{self as sql, Expr as SqlExpr, JoinConstraint};
use thalweg_core::{Error, Result};
use thalweg_expr::{CompareOp, Expr, ExprKind};

use super::Binder;
use super::from::BoundSource;
use super::join::{joined_scope, source};
use super::names::PlainNames;
use super::spans::span_of;
use super::subquery_syntax::sql_conjuncts;
use crate::logical::join::{conjuncts, join};
use crate::logical::{JoinBound, JoinCondition, JoinKind, column_of};
use crate::parser::ASOF;

/// The match condition of an ASOF JOIN, where it stands apart, and the conjuncts of ON; `None` for
/// any other join.
pub(super) fn condition(constraint: &JoinConstraint) -> Option<(Option<&SqlExpr>, Vec<&SqlExpr>)> {
    let JoinConstraint::On(condition) = constraint else { return None };
    let mut parts = sql_conjuncts(condition);
    let place = parts.iter().position(|part| marked(part).is_some())?;
    let marked = marked(parts.remove(place))?;
    Some((marked, parts))
}

/// The argument of the function that marks such a join.
fn marked(expr: &SqlExpr) -> Option<Option<&SqlExpr>> {
    let SqlExpr::Function(call) = expr else { return None };
    let is_it =
        matches!(&call.name.0[..], [sql::ObjectNamePart::Identifier(name)] if name.value == ASOF);
    let sql::FunctionArguments::List(list) = &call.args else { return None };
    let argument = list.args.first().and_then(|argument| match argument {
        sql::FunctionArg::Unnamed(sql::FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    is_it.then_some(argument)
}

impl Binder<'_> {
    /// Binds `left ASOF JOIN right MATCH_CONDITION (time) ON rest`.
    pub(super) fn bind_asof_join(
        &self,
        left: BoundSource,
        right: BoundSource,
        kind: JoinKind,
        (time, rest): (Option<&SqlExpr>, &[&SqlExpr]),
    ) -> Result<BoundSource> {
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            return Err(Error::plan("an ASOF JOIN is an inner or a left join"));
        }
        let scope = joined_scope(&left, &right);
        let bind = |part: &SqlExpr, clause: &'static str| {
            let bound = self.condition(part, clause, &mut PlainNames::of(&scope, clause));
            bound.map(conjuncts).map_err(|error| error.at(span_of(part)))
        };
        let mut all = Vec::new();
        for part in rest {
            all.extend(bind(part, "ON")?);
        }
        let (left_time, right_time) = match time {
            Some(time) => match &bind(time, "MATCH_CONDITION")?[..] {
                [only] => match_times(only, &left, &right).ok_or_else(not_two_times)?,
                _ => return Err(not_two_times()),
            },
            None => {
                let found = all.iter().position(|part| match_times(part, &left, &right).is_some());
                let place = found.ok_or_else(not_two_times)?;
                match_times(&all.remove(place), &left, &right).ok_or_else(not_two_times)?
            }
        };
        let width = left.node.fields.len();
        let bound = JoinBound::Version { left_time, right_time, is_asof: true };
        let condition = JoinCondition::without_bound(all, &left.node.fields, &right.node.fields)
            .within(bound, width);
        if let Some(other) = condition.residual.first() {
            return Err(Error::plan(format!(
                "ON of an ASOF JOIN takes equalities of both sides besides the times, not {other}"
            ))
            .hint("filter after the join with WHERE, or one side before it in a sub-query"));
        }
        Ok(source(join(left.node, right.node, kind, condition), scope))
    }
}

/// The row times of `left.time >= right.time`, whichever way round it is written.
/// Both must be row times, since the join waits for the watermark of both.
fn match_times(conjunct: &Expr, left: &BoundSource, right: &BoundSource) -> Option<(usize, usize)> {
    let ExprKind::Compare { op, left: first, right: second } = &conjunct.kind else { return None };
    let (later, earlier) = match op {
        CompareOp::GreaterOrEqual => (first, second),
        CompareOp::LessOrEqual => (second, first),
        _ => return None,
    };
    let (later, earlier) = (column_of(later)?, column_of(earlier)?);
    let earlier = earlier.checked_sub(left.node.fields.len())?;
    let is_time = left.node.fields.get(later)?.time.is_rowtime()
        && right.node.fields.get(earlier)?.time.is_rowtime();
    is_time.then_some((later, earlier))
}

fn not_two_times() -> Error {
    Error::plan("an ASOF JOIN compares the row times of both sides: left.time >= right.time").hint(
        "write MATCH_CONDITION (a.ts >= b.ts); both tables declare a WATERMARK for their time",
    )
}
