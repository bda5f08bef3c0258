//! The type that several types have in common, and the casts that INSERT INTO makes by itself.
//!
//! Source: Calcite's `RelDataTypeFactory.leastRestrictive` and Flink's `LogicalTypeCasts`, as the
//! golden cases show them.

use thalweg_core::types::MAX_LENGTH;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::casts::implicit_cast_in;
use crate::expr::{Expr, Session};
use crate::functions::lengths;

/// The most digits of a DECIMAL.
pub(super) const MAX_PRECISION: i32 = 38;

/// The type to which values of all these types are cast in UNION ALL, CASE, COALESCE and IN.
pub fn common_type(types: &[ColumnType]) -> Result<ColumnType> {
    let mut result = DataType::Null;
    let mut nullable = false;
    for column_type in types {
        nullable |= column_type.nullable || column_type.data_type == DataType::Null;
        result = merge(&result, &column_type.data_type).ok_or_else(|| {
            Error::plan(format!("{result} and {} have no common type", column_type.data_type))
                .hint("cast one to the type of the other")
        })?;
    }
    Ok(ColumnType { data_type: result, nullable })
}

fn merge(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType as T;
    Some(match (left, right) {
        (T::Null, other) | (other, T::Null) => other.clone(),
        (l, r) if l == r => l.clone(),
        (T::Char(l) | T::Varchar(l), T::Char(r) | T::Varchar(r)) => T::Varchar(*l.max(r)),
        (T::Binary(l) | T::Varbinary(l), T::Binary(r) | T::Varbinary(r)) => T::Varbinary(*l.max(r)),
        (l, r) if l.is_numeric() && r.is_numeric() => merge_numbers(l, r),
        (T::Timestamp(l), T::Timestamp(r)) => T::Timestamp(*l.max(r)),
        (T::Timestamp(l) | T::TimestampLtz(l), T::Timestamp(r) | T::TimestampLtz(r)) => {
            T::TimestampLtz(*l.max(r))
        }
        (T::Time(l), T::Time(r)) => T::Time(*l.max(r)),
        (T::Date, T::Timestamp(_) | T::TimestampLtz(_)) => right.clone(),
        (T::Timestamp(_) | T::TimestampLtz(_), T::Date) => left.clone(),
        (T::Array(l), T::Array(r)) => T::Array(Box::new(merge_columns(l, r)?)),
        (T::Map(lk, lv), T::Map(rk, rv)) => {
            T::Map(Box::new(merge_columns(lk, rk)?), Box::new(merge_columns(lv, rv)?))
        }
        (T::Row(l), T::Row(r)) if l.len() == r.len() => {
            let mut columns = Vec::with_capacity(l.len());
            for (l, r) in l.iter().zip(r) {
                let column_type = merge_columns(&l.column_type, &r.column_type)?;
                columns.push(Column::new(l.name.clone(), column_type));
            }
            T::Row(columns)
        }
        _ => return None,
    })
}

fn merge_columns(left: &ColumnType, right: &ColumnType) -> Option<ColumnType> {
    let data_type = merge(&left.data_type, &right.data_type)?;
    Some(ColumnType { data_type, nullable: left.nullable || right.nullable })
}

fn merge_numbers(left: &DataType, right: &DataType) -> DataType {
    use DataType as T;
    if left.is_float() || right.is_float() {
        let is_decimal = |t: &T| matches!(t, T::Decimal(..));
        let double = [left, right].iter().any(|t| **t == T::Double || is_decimal(t));
        return if double { T::Double } else { T::Float };
    }
    if left.is_integer() && right.is_integer() {
        return if integer_rank(left) >= integer_rank(right) {
            left.clone()
        } else {
            right.clone()
        };
    }
    let (lp, ls) = decimal_of(left);
    let (rp, rs) = decimal_of(right);
    let scale = ls.max(rs);
    let whole = (lp - ls).max(rp - rs);
    let precision = (whole + scale).min(MAX_PRECISION);
    // Whole digits matter more than fraction digits where both do not fit.
    T::Decimal(precision as u8, scale.min(MAX_PRECISION - whole.min(MAX_PRECISION)) as u8)
}

/// True if one side is DECIMAL and no DECIMAL holds every value of both.
pub(super) fn loses_digits(left: &DataType, right: &DataType) -> bool {
    let exact = |t: &DataType| t.is_numeric() && !t.is_float();
    let decimal = |t: &DataType| matches!(t, DataType::Decimal(..));
    let ((lp, ls), (rp, rs)) = (decimal_of(left), decimal_of(right));
    let digits = (lp - ls).max(rp - rs) + ls.max(rs);
    exact(left) && exact(right) && (decimal(left) || decimal(right)) && digits > MAX_PRECISION
}

fn integer_rank(data_type: &DataType) -> u8 {
    match data_type {
        DataType::TinyInt => 1,
        DataType::SmallInt => 2,
        DataType::Int => 3,
        _ => 4,
    }
}

/// Precision and scale of an exact number.
pub(super) fn decimal_of(data_type: &DataType) -> (i32, i32) {
    match data_type {
        DataType::TinyInt => (3, 0),
        DataType::SmallInt => (5, 0),
        DataType::Int => (10, 0),
        DataType::BigInt => (19, 0),
        DataType::Decimal(precision, scale) => (i32::from(*precision), i32::from(*scale)),
        _ => (MAX_PRECISION, 0),
    }
}

/// The implicit cast that INSERT INTO makes of a query's column to a table's: numbers widen, text
/// is text, times change precision. NULL in a NOT NULL
/// column is the sink's to refuse; the result keeps the expression's nullability.
pub fn coerce(expr: Expr, target: &ColumnType, session: &Session) -> Result<Expr> {
    let (from, to) = (&expr.column_type.data_type, &target.data_type);
    if !can_coerce(from, to) {
        return Err(Error::plan(format!("a {from} does not go into a column of type {to}"))
            .hint(format!("write CAST(… AS {to})")));
    }
    // A text whose type says its length is cut and padded to that of the column.
    let is_cast = match (from, to) {
        (DataType::Char(from), DataType::Char(to)) => from != to,
        (DataType::Char(from), DataType::Varchar(to)) => from > to,
        _ => false,
    };
    if is_cast {
        return super::cast(expr, target.data_type.clone(), false, session);
    }
    Ok(implicit_cast_in(expr, &target.data_type, session))
}

/// What becomes of a text or of bytes that do not have the length of their column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It is written as it is.
    Ignore,
    /// What is too long is cut; what is too short for CHAR or BINARY is padded.
    TrimPad,
    /// The job fails.
    Error,
}

/// Holds what goes into a column to the length of its type. `column` is for the message.
pub fn enforce_length(
    expr: Expr,
    target: &DataType,
    misfit: Misfit,
    column: &str,
    session: &Session,
) -> Result<Expr> {
    let any_length = match target {
        DataType::Varchar(MAX_LENGTH) | DataType::Varbinary(MAX_LENGTH) => return Ok(expr),
        other if other.is_string() => DataType::STRING,
        other if other.is_binary() => DataType::BYTES,
        _ => return Ok(expr),
    };
    // A type with a length does not say that its values have it.
    let expr = implicit_cast_in(expr, &any_length, session);
    match misfit {
        Misfit::Ignore => Ok(implicit_cast_in(expr, target, session)),
        Misfit::TrimPad => super::cast(expr, target.clone(), false, session),
        Misfit::Error => lengths::checked(expr, target, column, session),
    }
}

fn can_coerce(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (T::Null, _) => true,
        (f, t) if f == t => true,
        // What a CHAR column does with other lengths is said by `enforce_length`.
        (f, T::Char(_)) => f.is_string(),
        (f, T::Varchar(_)) => f.is_string(),
        (f, T::Binary(_)) => f.is_binary(),
        (f, T::Varbinary(_)) => f.is_binary(),
        (f, t) if f.is_integer() && t.is_integer() => integer_rank(f) <= integer_rank(t),
        (f, T::Decimal(..)) => f.is_numeric(),
        (f, T::Double) => f.is_numeric(),
        (f, T::Float) => f.is_numeric() && *f != T::Double,
        (f, t) if f.is_timestamp() && t.is_timestamp() => true,
        (T::Date, T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::Timestamp(_), T::Date | T::Time(_)) => true,
        (T::Time(_), T::Time(_)) => true,
        (T::Array(f), T::Array(t)) => can_coerce(&f.data_type, &t.data_type),
        (T::Map(fk, fv), T::Map(tk, tv)) => {
            can_coerce(&fk.data_type, &tk.data_type) && can_coerce(&fv.data_type, &tv.data_type)
        }
        (T::Row(f), T::Row(t)) => {
            let fits = |(f, t): (&Column, &Column)| {
                can_coerce(&f.column_type.data_type, &t.column_type.data_type)
            };
            f.len() == t.len() && f.iter().zip(t).all(fits)
        }
        _ => from.arrow() == to.arrow() && !from.is_string() && !from.is_binary(),
    }
}
