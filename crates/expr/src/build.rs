//! Builds typed expressions: decides types as Flink does and inserts every cast.
//!
//! Everything here runs once, when a statement is planned. An expression of literals is computed
//! at once, unless that fails: then it fails when it runs, on the row that needs it, as in Flink.
//!
//! | function | builds |
//! |---|---|
//! | [`call`] | a function by its SQL name |
//! | [`binary`], [`unary`] | operators |
//! | [`between`], [`in_list`], [`like`], [`is_null`], [`is_distinct_from`] | predicates |
//! | [`case`], [`cast`] | CASE, CAST and TRY_CAST |
//! | [`interval`], [`typed_literal`], [`number_literal`], [`string_literal`] | literals |
//! | [`common_type`], [`coerce`] | the implicit casts of UNION ALL and INSERT INTO |
//! | [`enforce_length`] | the lengths of a table's columns, where they are enforced |

mod arithmetic;
mod literals;
mod predicates;
mod types;

use thalweg_core::{ColumnType, DataType, Error, Result};

use crate::expr::{CompareOp, Expr, ExprKind, Scalar, Session};
use crate::kernels::cast::can_cast;

pub use crate::functions::{call, function_names};
pub use literals::{
    binary_literal, boolean_literal, interval, null_literal, number_literal, string_literal,
    typed_literal,
};
pub use predicates::{between, in_list, is_distinct_from, is_null, like};
pub use types::{Misfit, coerce, common_type, enforce_length};

pub(crate) use predicates::{and, check_comparable, compare, not, or};

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `AND`
    And,
    /// `OR`
    Or,
    /// `||`
    Concat,
}

/// A unary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `NOT`
    Not,
    /// `-`
    Minus,
    /// `+`
    Plus,
    /// `IS TRUE`
    IsTrue,
    /// `IS NOT TRUE`
    IsNotTrue,
    /// `IS FALSE`
    IsFalse,
    /// `IS NOT FALSE`
    IsNotFalse,
    /// `IS UNKNOWN`
    IsUnknown,
    /// `IS NOT UNKNOWN`
    IsNotUnknown,
}

/// The pattern languages of [`like`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternKind {
    /// `LIKE`
    Like,
    /// `SIMILAR TO`
    SimilarTo,
}

/// An operator between two expressions.
pub fn binary(op: BinaryOp, left: Expr, right: Expr, session: &Session) -> Result<Expr> {
    use crate::expr::ArithmeticOp as A;
    match op {
        BinaryOp::Add => arithmetic::build(A::Add, left, right, session),
        BinaryOp::Subtract => arithmetic::build(A::Subtract, left, right, session),
        BinaryOp::Multiply => arithmetic::build(A::Multiply, left, right, session),
        BinaryOp::Divide => arithmetic::build(A::Divide, left, right, session),
        BinaryOp::Modulo => arithmetic::build(A::Modulo, left, right, session),
        BinaryOp::Equal => compare(CompareOp::Equal, left, right, session),
        BinaryOp::NotEqual => compare(CompareOp::NotEqual, left, right, session),
        BinaryOp::Less => compare(CompareOp::Less, left, right, session),
        BinaryOp::LessOrEqual => compare(CompareOp::LessOrEqual, left, right, session),
        BinaryOp::Greater => compare(CompareOp::Greater, left, right, session),
        BinaryOp::GreaterOrEqual => compare(CompareOp::GreaterOrEqual, left, right, session),
        BinaryOp::And => and(left, right),
        BinaryOp::Or => or(left, right),
        BinaryOp::Concat => call("||", vec![left, right], session),
    }
}

/// An operator on one expression.
pub fn unary(op: UnaryOp, expr: Expr) -> Result<Expr> {
    let or_false = |expr: Expr| {
        let args = vec![expr, boolean_literal(false)];
        Expr::new(ExprKind::Coalesce(args), DataType::Boolean.not_null()).folded()
    };
    match op {
        UnaryOp::Not => not(expr),
        UnaryOp::Minus => arithmetic::negate(expr),
        UnaryOp::Plus => arithmetic::plus(expr),
        UnaryOp::IsTrue => Ok(or_false(predicates::condition(expr, "IS TRUE")?)),
        UnaryOp::IsNotTrue => not(unary(UnaryOp::IsTrue, expr)?),
        UnaryOp::IsFalse => Ok(or_false(not(expr)?)),
        UnaryOp::IsNotFalse => not(unary(UnaryOp::IsFalse, expr)?),
        UnaryOp::IsUnknown => Ok(is_null(predicates::condition(expr, "IS UNKNOWN")?, false)),
        UnaryOp::IsNotUnknown => Ok(is_null(predicates::condition(expr, "IS NOT UNKNOWN")?, true)),
    }
}

/// `CASE WHEN condition THEN result … [ELSE otherwise] END`. `CASE x WHEN y` is the caller's to
/// write as `x = y`.
pub fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Result<Expr> {
    let otherwise = otherwise.unwrap_or_else(|| Expr::null(DataType::Null));
    let types: Vec<ColumnType> = branches
        .iter()
        .map(|(_, result)| result.column_type.clone())
        .chain([otherwise.column_type.clone()])
        .collect();
    let column_type = common_type(&types).map_err(|_| {
        let list: Vec<String> = types.iter().map(|t| t.data_type.to_string()).collect();
        Error::plan(format!("the branches of CASE have no common type: {}", list.join(", ")))
            .hint("cast them to one type")
    })?;
    let mut typed = Vec::with_capacity(branches.len());
    for (condition, result) in branches {
        let condition = predicates::condition(condition, "CASE WHEN")?;
        typed.push((condition, implicit_cast(result, &column_type.data_type)));
    }
    let otherwise = Box::new(implicit_cast(otherwise, &column_type.data_type));
    Ok(Expr::new(ExprKind::Case { branches: typed, otherwise }, column_type).folded())
}

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
