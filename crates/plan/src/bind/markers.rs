//! What the parser marks by functions that there are not (see `parser::clauses`): BETWEEN
//! SYMMETRIC, several values behind a WHEN, the distance of two times. And OVERLAPS and casts to
//! an INTERVAL, which `sqlparser` reads as such.

use sqlparser::ast::{self as sql, Expr as SqlExpr};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::Expr;
use thalweg_expr::build::{self, BinaryOp};

use super::Binder;
use super::functions::{function_name, plain_arguments};
use super::names::Names;
use super::spans::span_of;
use crate::parser::{MINUS, SYMMETRIC, WHEN};

/// The arguments of a marker, if the expression is one.
fn marked<'e>(expr: &'e SqlExpr, marker: &str) -> Result<Option<Vec<&'e SqlExpr>>> {
    match expr {
        SqlExpr::Function(function) if function_name(function) == marker => {
            plain_arguments(function).map(Some)
        }
        _ => Ok(None),
    }
}

impl Binder<'_> {
    /// `value [NOT] BETWEEN [SYMMETRIC] low AND high`
    pub(super) fn between(
        &self,
        [value, low, high]: [&SqlExpr; 3],
        negated: bool,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let symmetric = marked(low, SYMMETRIC)?;
        let low =
            symmetric.as_ref().and_then(|arguments| arguments.first().copied()).unwrap_or(low);
        let [value, low, high] = [value, low, high].map(|expr| self.expression(expr, names));
        let (value, low, high) = (value?, low?, high?);
        if symmetric.is_none() {
            return build::between(value, low, high, negated, self.session);
        }
        let upward = build::between(value.clone(), low.clone(), high.clone(), false, self.session)?;
        let downward = build::between(value, high, low, false, self.session)?;
        let found = build::binary(BinaryOp::Or, upward, downward, self.session)?;
        self.negated(found, negated)
    }

    /// The condition of `CASE operand WHEN value, … THEN`.
    pub(super) fn case_matches(
        &self,
        operand: &Expr,
        when: &SqlExpr,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let values = marked(when, WHEN)?.unwrap_or_else(|| vec![when]);
        let mut found: Option<Expr> = None;
        for value in values {
            let bound = self.expression(value, names)?;
            let equal = build::binary(BinaryOp::Equal, operand.clone(), bound, self.session)
                .map_err(|error| error.at(span_of(value)))?;
            found = Some(match found {
                Some(before) => build::binary(BinaryOp::Or, before, equal, self.session)?,
                None => equal,
            });
        }
        found.ok_or_else(|| Error::plan("WHEN needs a value"))
    }

    /// `(a - b) DAY`: the distance of two times.
    pub(super) fn distance(&self, args: &[&SqlExpr], names: &mut dyn Names) -> Result<Expr> {
        let [later, earlier, SqlExpr::Value(unit)] = args else {
            return Err(Error::internal(format!("{MINUS} without two times and a unit")));
        };
        let unit = unit.value.clone().into_string().unwrap_or_default();
        let (later, earlier) = (self.expression(later, names)?, self.expression(earlier, names)?);
        let unit_text = build::string_literal(&unit);
        if !matches!(unit.as_str(), "YEAR" | "QUARTER" | "MONTH") {
            return build::call(MINUS, vec![later, earlier], self.session);
        }
        let count = build::call("TIMESTAMPDIFF", vec![unit_text, earlier, later], self.session)?;
        let one = build::interval("1", &unit, None)?;
        build::binary(BinaryOp::Multiply, count, one, self.session)
    }

    /// `(start, end) OVERLAPS (start, end)`; an end may be an INTERVAL from the start.
    pub(super) fn overlaps(
        &self,
        left: &SqlExpr,
        right: &SqlExpr,
        names: &mut dyn Names,
    ) -> Result<Expr> {
        let ((start, end), (other_start, other_end)) =
            (self.period(left, names)?, self.period(right, names)?);
        let before = |left: Expr, right: Expr| {
            build::binary(BinaryOp::LessOrEqual, left, right, self.session)
        };
        let left = before(start, other_end)?;
        let right = before(other_start, end)?;
        build::binary(BinaryOp::And, left, right, self.session)
    }

    /// Start and end of a period, in this order.
    fn period(&self, expr: &SqlExpr, names: &mut dyn Names) -> Result<(Expr, Expr)> {
        let SqlExpr::Tuple(parts) = expr else {
            return Err(Error::plan("OVERLAPS takes periods: (start, end)").at(span_of(expr)));
        };
        let [start, end] = parts.as_slice() else {
            return Err(Error::plan("a period has a start and an end").at(span_of(expr)));
        };
        let (start, end) = (self.expression(start, names)?, self.expression(end, names)?);
        let is_length = matches!(
            end.column_type.data_type,
            DataType::IntervalDayTime | DataType::IntervalYearMonth
        );
        let end = match is_length {
            true => build::binary(BinaryOp::Add, start.clone(), end, self.session)?,
            false => end,
        };
        let in_order =
            build::binary(BinaryOp::LessOrEqual, start.clone(), end.clone(), self.session)?;
        let first = build::case(vec![(in_order.clone(), start.clone())], Some(end.clone()))?;
        let last = build::case(vec![(in_order, end)], Some(start))?;
        Ok((first, last))
    }

    /// `CAST(number AS INTERVAL DAY)`: a number of units. `None` for any other cast.
    pub(super) fn cast_to_interval(
        &self,
        input: &Expr,
        data_type: &sql::DataType,
    ) -> Result<Option<Expr>> {
        let text = data_type.to_string().replace('`', "").to_ascii_uppercase();
        let Some(units) = text.trim().strip_prefix("INTERVAL ") else { return Ok(None) };
        if !input.column_type.data_type.is_integer() {
            return Ok(None);
        }
        let last = units.rsplit(" TO ").next().unwrap_or(units);
        let unit = last.split('(').next().unwrap_or(last).trim();
        let one = build::interval("1", unit, None)?;
        build::binary(BinaryOp::Multiply, input.clone(), one, self.session).map(Some)
    }
}
