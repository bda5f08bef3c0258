//! Literals and intervals.
//!
//! Intervals of days and less are milliseconds, those of years and months are months. Only the
//! first kind has a fixed length, so windows, WITHIN and frames take no other.

use sqlparser::ast::{DateTimeField, Expr as SqlExpr, Interval, UnaryOperator, Value};
use thalweg_core::{DataType, Error, Result};
use thalweg_expr::{Expr, Scalar, build};

use super::spans::span_of;

/// A literal.
pub fn bind_value(value: &Value) -> Result<Expr> {
    match value {
        Value::Number(text, _) => build::number_literal(text),
        Value::SingleQuotedString(text)
        | Value::UnicodeStringLiteral(text)
        | Value::NationalStringLiteral(text)
        | Value::EscapedStringLiteral(text) => Ok(build::string_literal(text)),
        Value::Boolean(value) => Ok(build::boolean_literal(*value)),
        Value::Null => Ok(build::null_literal()),
        Value::HexStringLiteral(text) => build::binary_literal(text),
        Value::DoubleQuotedString(text) => Err(Error::plan(format!("\"{text}\" is no literal"))
            .hint("strings stand in single quotes, names in backticks")),
        other => Err(Error::unsupported(format!("the literal {other} is not part of the dialect"))),
    }
}

/// `INTERVAL '…' UNIT [TO UNIT]`
pub fn bind_interval(interval: &Interval) -> Result<Expr> {
    // A sign may stand outside of the quotes: `INTERVAL -'1' DAY`.
    let (text, negative) = interval_text(&interval.value)?;
    let Some(leading) = &interval.leading_field else {
        return Err(Error::plan("an interval needs a unit").hint("write INTERVAL '10' SECOND"));
    };
    let leading = unit_name(leading)?;
    let last = interval.last_field.as_ref().map(unit_name).transpose()?;
    let expr = build::interval(&text, &leading, last.as_deref())?;
    Ok(if negative { negate(expr) } else { expr })
}

fn negate(expr: Expr) -> Expr {
    match expr.as_literal() {
        Some(Scalar::Integer(value)) => {
            Expr::literal(Scalar::Integer(value.wrapping_neg()), expr.column_type)
        }
        _ => expr,
    }
}

/// The text of an interval and whether a minus stands before it.
fn interval_text(value: &SqlExpr) -> Result<(String, bool)> {
    match value {
        SqlExpr::Value(literal) => match &literal.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Ok((text.clone(), false)),
            other => Err(Error::plan(format!("an interval's length is a string, not {other}"))
                .hint("write INTERVAL '10' SECOND")),
        },
        SqlExpr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            interval_text(expr).map(|(text, negative)| (text, !negative))
        }
        other => Err(Error::unsupported("an interval's length must be a literal")
            .hint("write INTERVAL '10' SECOND, or multiply: n * INTERVAL '1' SECOND")
            .at(span_of(other))),
    }
}

/// The unit of an interval in the singular, upper case.
pub fn unit_name(field: &DateTimeField) -> Result<String> {
    let text = field.to_string().to_uppercase();
    let singular = match text.as_str() {
        "YEARS" => "YEAR",
        "MONTHS" => "MONTH",
        "WEEKS" => "WEEK",
        "DAYS" => "DAY",
        "HOURS" => "HOUR",
        "MINUTES" => "MINUTE",
        "SECONDS" => "SECOND",
        "MILLISECONDS" => "MILLISECOND",
        other => other,
    };
    Ok(singular.to_string())
}

/// Milliseconds of a constant interval, for windows.
pub fn interval_ms(expr: &Expr, what: &str) -> Result<i64> {
    match (&expr.column_type.data_type, expr.as_literal()) {
        (DataType::IntervalDayTime, Some(Scalar::Integer(ms))) => Ok(*ms),
        (DataType::IntervalYearMonth, _) => Err(Error::plan(format!(
            "{what} must be a fixed length of time, and months and years are not"
        ))
        .hint("use days, as in INTERVAL '30' DAY")),
        (found, _) => Err(Error::plan(format!("{what} must be a constant interval, not {found}"))
            .hint("write it as INTERVAL '10' SECOND")),
    }
}
