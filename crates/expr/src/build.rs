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

pub(crate) mod arithmetic;
mod casts;
mod literals;
mod predicates;
mod single_value;
mod types;

use thalweg_core::{DataType, Error, Result};

use crate::expr::{CompareOp, Expr, ExprKind, Session};

pub use crate::functions::{call, function_names};
pub use casts::cast;
pub use literals::{
    binary_literal, boolean_literal, interval, null_literal, number_literal, string_literal,
    typed_literal,
};
pub use predicates::{between, case, in_list, is_distinct_from, is_null};
pub use single_value::single_value;
pub use types::{Misfit, coerce, common_type, enforce_length};

pub(crate) use casts::{implicit_cast, implicit_cast_in};
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

/// `expr [NOT] LIKE pattern [ESCAPE character]`, or `SIMILAR TO`.
pub fn like(
    expr: Expr,
    pattern: Expr,
    escape: Option<&str>,
    kind: PatternKind,
    negated: bool,
    session: &Session,
) -> Result<Expr> {
    let name = match kind {
        PatternKind::Like => "LIKE",
        PatternKind::SimilarTo => "SIMILAR TO",
    };
    let mut args = vec![expr, pattern];
    if let Some(escape) = escape {
        if escape.chars().count() != 1 {
            return Err(Error::plan(format!("ESCAPE takes one character, got '{escape}'")));
        }
        args.push(string_literal(escape));
    }
    let found = call(name, args, session)?;
    if negated { not(found) } else { Ok(found) }
}
