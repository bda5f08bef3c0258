//! Casts: those that a statement writes, and those that make an operand fit.

use thalweg_core::{ColumnType, DataType, Error, Result};

use crate::expr::{Expr, ExprKind, Scalar, Session};
use crate::kernels::cast::can_cast;

/// `CAST(expr AS type)`, or `TRY_CAST`.
pub fn cast(expr: Expr, to: DataType, safe: bool, session: &Session) -> Result<Expr> {
    let from = &expr.column_type.data_type;
    if !can_cast(from, &to) {
        let kind = if safe { "TRY_CAST" } else { "CAST" };
        let error = Error::plan(format!("{kind} from {from} to {to} is not supported"));
        return Err(if from.is_numeric() && to.is_timestamp() {
            error.hint("TO_TIMESTAMP_LTZ(number, 0 or 3) makes a time of seconds or milliseconds")
        } else {
            error
        });
    }
    let nullable = expr.column_type.nullable || safe;
    Ok(cast_node(expr, to, nullable, safe, session))
}

fn cast_node(expr: Expr, to: DataType, nullable: bool, safe: bool, session: &Session) -> Expr {
    let column_type = ColumnType { data_type: to, nullable };
    let same = expr.column_type.data_type == column_type.data_type;
    if same || expr.as_literal() == Some(&Scalar::Null) {
        return Expr { column_type, ..expr };
    }
    let span = expr.span;
    let kind = ExprKind::Cast { input: Box::new(expr), safe, zone: session.zone };
    Expr::new(kind, column_type).folded().at(span)
}

/// The cast that makes an operand fit: never refused, because the types were chosen to fit. Text is
/// only named differently, not cut.
pub(crate) fn implicit_cast(expr: Expr, to: &DataType) -> Expr {
    implicit_cast_in(expr, to, &Session::default())
}

/// [`implicit_cast`] where the session's zone matters: between TIMESTAMP and TIMESTAMP_LTZ.
pub(crate) fn implicit_cast_in(expr: Expr, to: &DataType, session: &Session) -> Expr {
    let nullable = expr.column_type.nullable;
    let from = &expr.column_type.data_type;
    let relabel = (from.is_string() && to.is_string())
        || (from.is_binary() && to.is_binary())
        || *from == *to;
    if relabel {
        let mut expr = expr;
        expr.column_type.data_type = to.clone();
        return expr;
    }
    cast_node(expr, to.clone(), nullable, false, session)
}
