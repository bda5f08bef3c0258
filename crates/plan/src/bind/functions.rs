//! Which function names mean aggregates, windows or something else that needs its own rule.
//!
//! Scalar functions are found by `thalweg_expr::build`; nothing of them is known here. Names are
//! compared in upper case: functions, unlike tables and columns, are not case-sensitive.

use sqlparser::ast::{
    Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments,
};
use thalweg_core::{Error, Result};
use thalweg_operators::aggregate;

use super::Binder;
use super::spans::span_of;
use crate::windows::WindowFunction;

/// What is computed over the rows of a key or of GROUP BY, and means nothing elsewhere.
pub const OVER_ROWS: &[&str] =
    &["DENSE_RANK", "GROUPING", "GROUPING_ID", "GROUP_ID", "LAG", "LEAD", "RANK", "ROW_NUMBER"];

/// Distinguishes equal grouping sets; sets are different here, so it is 0.
pub const GROUP_ID: &str = "GROUP_ID";

/// Aggregates that make JSON; they are made of others.
pub const JSON_AGGREGATES: [&str; 2] = ["JSON_ARRAYAGG", "JSON_OBJECTAGG"];

/// Aggregates of Flink that are not there yet.
const LATER_AGGREGATES: &str = "RANK DENSE_RANK ROW_NUMBER \
    PERCENT_RANK CUME_DIST NTILE LAG LEAD";

/// True for an aggregate of Flink that comes with a later version.
/// Known, so that the message says so in the place of "no such function".
pub fn is_later_aggregate(name: &str) -> bool {
    LATER_AGGREGATES.split(' ').any(|other| other == name)
}

/// True for a function that comes with the engine.
pub fn is_built_in(name: &str) -> bool {
    aggregate::names().any(|own| own == name)
        || OVER_ROWS.contains(&name)
        || thalweg_expr::build::function_names().contains(&name)
}

/// The name of a function, upper case.
pub fn function_name(function: &Function) -> String {
    function.name.to_string().replace('`', "").to_uppercase()
}

/// True for a built-in or registered aggregate, also for one that can't be computed yet.
pub fn is_aggregate(binder: &Binder<'_>, name: &str) -> bool {
    aggregate::names().any(|own| own == name)
        || super::sets::is_grouping(name)
        || name == "COLLECT"
        || name == GROUP_ID
        || JSON_AGGREGATES.contains(&name)
        || is_later_aggregate(name)
        || binder.is_user_aggregate(name)
}

/// True for `TUMBLE_START` and its kin.
pub fn is_group_window_function(name: &str) -> bool {
    let Some((window, part)) = name.split_once('_') else { return false };
    WindowFunction::named(window).is_some_and(|function| function.is_in_group_by)
        && matches!(part, "START" | "END" | "ROWTIME" | "PROCTIME")
}

/// The arguments of a function as expressions. A `*` is only for COUNT.
pub fn plain_arguments(function: &Function) -> Result<Vec<&SqlExpr>> {
    let list = match &function.args {
        FunctionArguments::None => return Ok(Vec::new()),
        FunctionArguments::List(list) => list,
        FunctionArguments::Subquery(_) => {
            return Err(Error::unsupported(format!(
                "{} takes no sub-query",
                function_name(function)
            ))
            .at(span_of(function)));
        }
    };
    list.args.iter().map(|arg| plain_argument(function, arg)).collect()
}

/// Refuses what stands inside the brackets of a scalar function besides its arguments: it would
/// change the result if it were heard.
pub fn refuse_clauses(function: &Function) -> Result<()> {
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let name = function_name(function);
    if list.duplicate_treatment.is_some() {
        let message = format!("DISTINCT is for aggregates, and {name} is none");
        return Err(Error::plan(message).at(span_of(function)));
    }
    let Some(clause) = list.clauses.first() else { return Ok(()) };
    let error = super::unsupported::later(&format!("{clause} in {name}"));
    let error = match clause {
        FunctionArgumentClause::JsonReturningClause(returning) => {
            let data_type = &returning.data_type;
            error.hint(format!("convert the result: TRY_CAST({name}(…) AS {data_type})"))
        }
        _ => error,
    };
    Err(error.at(span_of(function)))
}

fn plain_argument<'a>(function: &Function, arg: &'a FunctionArg) -> Result<&'a SqlExpr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
        FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => Err(Error::unsupported(
            format!("{} takes its arguments by position", function_name(function)),
        )
        .at(span_of(arg))),
        FunctionArg::Unnamed(_) => {
            Err(Error::plan(format!("'*' is no argument of {}", function_name(function)))
                .at(span_of(function)))
        }
    }
}

/// True for `f(*)`.
pub fn is_star_call(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)])
}
