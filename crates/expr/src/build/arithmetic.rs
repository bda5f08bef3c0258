//! Operators on numbers, times and intervals.
//!
//! Source of the DECIMAL rules: Flink's `LogicalTypeMerging`, as the golden cases show them.

use thalweg_core::{ColumnType, DataType, Error, Result};

use super::casts::implicit_cast;
use super::types::{MAX_PRECISION, common_type, decimal_of};
use crate::expr::{ArithmeticOp, Expr, ExprKind, Scalar, Session};
use crate::functions::time;

/// Builds `left op right`.
pub(crate) fn build(op: ArithmeticOp, left: Expr, right: Expr, session: &Session) -> Result<Expr> {
    let (l, r) = (&left.column_type.data_type, &right.column_type.data_type);
    if is_number(l) && is_number(r) {
        return match op == ArithmeticOp::Modulo && (l.is_float() || r.is_float()) {
            true => Err(refuse(op, l, r)),
            false => Ok(numbers(op, left, right)),
        };
    }
    match (op, is_interval(l), is_interval(r)) {
        (ArithmeticOp::Add, _, true) if l.is_time() => time::add_interval(left, right, 1, session),
        (ArithmeticOp::Add, true, _) if r.is_time() => time::add_interval(right, left, 1, session),
        (ArithmeticOp::Subtract, _, true) if l.is_time() => {
            time::add_interval(left, right, -1, session)
        }
        (ArithmeticOp::Add | ArithmeticOp::Subtract, true, true) if l == r => {
            Ok(same_type(op, left, right))
        }
        (ArithmeticOp::Multiply, true, _) if r.is_integer() => {
            time::multiply_interval(left, right, session)
        }
        (ArithmeticOp::Multiply, _, true) if l.is_integer() => {
            time::multiply_interval(right, left, session)
        }
        _ => Err(refuse(op, l, r)),
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Null
}
fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::IntervalDayTime | DataType::IntervalYearMonth)
}
fn refuse(op: ArithmeticOp, left: &DataType, right: &DataType) -> Error {
    let error = Error::plan(format!("cannot apply '{op}' to {left} and {right}"));
    if left.is_time() && right.is_time() && op == ArithmeticOp::Subtract {
        error.hint("TIMESTAMPDIFF(SECOND, start, end) gives the distance of two times")
    } else if left.is_string() || right.is_string() {
        error.hint("text is not cast by itself: write CAST(… AS INT), or || to join text")
    } else if op == ArithmeticOp::Modulo {
        error.hint("a remainder is of exact numbers: cast FLOAT and DOUBLE to DECIMAL or INT")
    } else {
        error.hint("supported: numbers with numbers; times with INTERVAL")
    }
}

/// Two operands of one type that is also the result's.
fn same_type(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.column_type.nullable || right.column_type.nullable;
    let column_type = left.column_type.clone().with_nullable(nullable);
    node(op, left, right, column_type)
}

fn node(op: ArithmeticOp, left: Expr, right: Expr, column_type: ColumnType) -> Expr {
    let kind = ExprKind::Arithmetic { op, left: Box::new(left), right: Box::new(right) };
    Expr::new(kind, column_type).folded()
}

fn numbers(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let types = [left.column_type.clone(), right.column_type.clone()];
    let common = common_type(&types).expect("numbers have a common type");
    if common.data_type == DataType::Null {
        return Expr::null(DataType::Null);
    }
    let nullable = common.nullable;
    let data_type_of = |expr: &Expr| expr.column_type.data_type.clone();
    let common = match (data_type_of(&left), data_type_of(&right)) {
        // Of FLOAT and DOUBLE Flink takes the type of the left side.
        (DataType::Float, DataType::Double) => ColumnType { data_type: DataType::Float, nullable },
        _ => common,
    };
    if matches!(common.data_type, DataType::Decimal(..)) {
        let data_type = decimal_result(op, &left, &right);
        let divisor = data_type_of(&right);
        // The remainder of whole numbers has the type of the divisor.
        let of_whole = op == ArithmeticOp::Modulo && is_whole(&divisor);
        let of_whole = of_whole && is_whole(&left.column_type.data_type);
        let (left, right) = (to_decimal(left), to_decimal(right));
        let result = node(op, left, right, ColumnType { data_type, nullable });
        return if of_whole { implicit_cast(result, &divisor) } else { result };
    }
    let result = match op {
        // The remainder has the type of the divisor.
        ArithmeticOp::Modulo if right.column_type.data_type.is_integer() => {
            right.column_type.data_type.clone()
        }
        _ => common.data_type.clone(),
    };
    let left = implicit_cast(left, &common.data_type);
    let right = implicit_cast(right, &common.data_type);
    implicit_cast(node(op, left, right, common), &result)
}

fn is_whole(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal(_, 0))
}

/// An exact number as DECIMAL of as many digits as its type has.
pub(super) fn to_decimal(expr: Expr) -> Expr {
    match &expr.column_type.data_type {
        DataType::Decimal(..) => expr,
        other => {
            let (precision, scale) = decimal_of(other);
            implicit_cast(expr, &DataType::Decimal(precision as u8, scale as u8))
        }
    }
}

fn decimal_result(op: ArithmeticOp, left: &Expr, right: &Expr) -> DataType {
    // A bare NULL takes the type of the other side.
    let of = |expr: &Expr, other: &Expr| match &expr.column_type.data_type {
        DataType::Null => decimal_of(&other.column_type.data_type),
        data_type => decimal_of(data_type),
    };
    let ((lp, ls), (rp, rs)) = (of(left, right), of(right, left));
    match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let scale = ls.max(rs);
            adjusted((lp - ls).max(rp - rs) + scale + 1, scale)
        }
        ArithmeticOp::Multiply => adjusted(lp + rp + 1, ls + rs),
        ArithmeticOp::Divide => {
            let scale = 6.max(ls + rp + 1);
            adjusted(lp - ls + rs + scale, scale)
        }
        ArithmeticOp::Modulo => {
            let scale = ls.max(rs);
            adjusted((lp - ls).min(rp - rs) + scale, scale)
        }
    }
}

/// Cuts a precision beyond 38: whole digits are kept, the scale shrinks, but not below 6.
fn adjusted(precision: i32, scale: i32) -> DataType {
    if precision <= MAX_PRECISION {
        return DataType::Decimal(precision.max(1) as u8, scale as u8);
    }
    let whole = precision - scale;
    let scale = (MAX_PRECISION - whole).max(scale.min(6));
    DataType::Decimal(MAX_PRECISION as u8, scale as u8)
}

/// Unary minus.
pub(super) fn negate(expr: Expr) -> Result<Expr> {
    let data_type = &expr.column_type.data_type;
    if !is_number(data_type) && !is_interval(data_type) {
        return Err(Error::plan(format!("cannot apply '-' to {data_type}")));
    }
    if *data_type == DataType::Null || expr.as_literal() == Some(&Scalar::Null) {
        return Ok(expr);
    }
    let column_type = expr.column_type.clone();
    Ok(Expr::new(ExprKind::Negate(Box::new(expr)), column_type).folded())
}

/// Unary plus.
pub(super) fn plus(expr: Expr) -> Result<Expr> {
    let data_type = &expr.column_type.data_type;
    if is_number(data_type) || is_interval(data_type) {
        return Ok(expr);
    }
    Err(Error::plan(format!("cannot apply '+' to {data_type}")))
}
