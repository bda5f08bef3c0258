//! The direct operands of a syntax node, for looking into expressions before they are bound.
//!
//! It answers one question, whether an aggregate occurs in an expression, before names and types
//! are known. A kind that is missing here hides its operands from that question: the query is then
//! bound without aggregation, and its aggregate is refused with a misleading message.

use sqlparser::ast::{self as sql, Expr, FunctionArg, FunctionArgExpr, FunctionArguments};

/// The operands of an expression that is part of the dialect. Sub-queries have none here.
pub(crate) fn children(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::BinaryOp { left, right, .. }
        | Expr::IsDistinctFrom(left, right)
        | Expr::IsNotDistinctFrom(left, right) => vec![left, right],
        Expr::Between { expr, low, high, .. } => vec![expr, low, high],
        Expr::InList { expr, list, .. } => std::iter::once(&**expr).chain(list).collect(),
        Expr::Like { expr, pattern, .. } | Expr::SimilarTo { expr, pattern, .. } => {
            vec![expr, pattern]
        }
        Expr::Case { operand, conditions, else_result, .. } => {
            let whens = conditions.iter().flat_map(|when| [&when.condition, &when.result]);
            let ends = [operand, else_result].into_iter().flatten().map(|e| &**e);
            whens.chain(ends).collect()
        }
        Expr::Function(function) => arguments(function),
        Expr::Position { expr, r#in } => vec![expr, r#in],
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            let rest = [substring_from, substring_for].into_iter().flatten().map(|e| &**e);
            std::iter::once(&**expr).chain(rest).collect()
        }
        Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
            let first = [&**expr, &**overlay_what, &**overlay_from];
            first.into_iter().chain(overlay_for.as_deref()).collect()
        }
        Expr::Trim { expr, trim_what, .. } => {
            std::iter::once(&**expr).chain(trim_what.as_deref()).collect()
        }
        Expr::Array(array) => array.elem.iter().collect(),
        Expr::Tuple(items) => items.iter().collect(),
        _ => operand(expr).into_iter().collect(),
    }
}

/// The operand of an expression that has one.
fn operand(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Nested(inner)
        | Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotUnknown(inner)
        | Expr::UnaryOp { expr: inner, .. }
        | Expr::Cast { expr: inner, .. }
        | Expr::Extract { expr: inner, .. }
        | Expr::Floor { expr: inner, .. }
        | Expr::Ceil { expr: inner, .. }
        | Expr::IsJson { expr: inner, .. }
        | Expr::CompoundFieldAccess { root: inner, .. } => Some(inner),
        _ => None,
    }
}

fn arguments(function: &sql::Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    list.args.iter().filter_map(argument).collect()
}

fn argument(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. } => Some(expr),
        _ => None,
    }
}
