//! The aggregate functions of SQL: a file and a line in the table for each family.
//!
//! | function | result type | exactness | DISTINCT changes it |
//! |---|---|---|---|
//! | COUNT | BIGINT NOT NULL | invertible | yes |
//! | SUM, AVG | the argument's; DECIMAL(38, …) | invertible; FLOAT and DOUBLE ordered | yes |
//! | `STDDEV_*`, `VAR_*` | as AVG | as SUM | yes |
//! | MIN, MAX | the argument's | exact | no |
//! | FIRST_VALUE, LAST_VALUE | the argument's | exact | no; row by row it may |
//! | LISTAGG, ARRAY_AGG | STRING, ARRAY | ordered | yes |
//!
//! Result types are those of Flink's planner. All but COUNT are nullable: a group without values
//! gives NULL.
//!
//! The table below is what the parser and the planner know of built-in functions, so a new one
//! needs no other change. Users' functions come as [`AggregateFunction`] by another way.

mod approx_count_distinct;
mod array_agg;
mod count;
mod extremes;
mod first_last;
mod list_agg;
mod moments;
mod percentile;
mod sums;

use thalweg_core::{ColumnType, DataType, Error, Result};
use thalweg_expr::Expr;

use super::description::AggregateFunction;

/// A function by its names, the first of which is the one that is shown.
struct NamedAggregate {
    names: &'static [&'static str],
    function: fn() -> AggregateFunction,
}

const fn entry(
    names: &'static [&'static str],
    function: fn() -> AggregateFunction,
) -> NamedAggregate {
    NamedAggregate { names, function }
}

static FUNCTIONS: &[NamedAggregate] = &[
    entry(&["COUNT"], || AggregateFunction::new(count::Count)),
    entry(&["SUM"], || AggregateFunction::new(sums::Sum { is_mean: false })),
    entry(&["AVG"], || AggregateFunction::new(sums::Sum { is_mean: true })),
    entry(&["MIN"], || AggregateFunction::new(extremes::Extreme { is_max: false })),
    entry(&["MAX"], || AggregateFunction::new(extremes::Extreme { is_max: true })),
    entry(&["STDDEV_POP"], || AggregateFunction::new(moments::STDDEV_POP)),
    entry(&["STDDEV_SAMP", "STDDEV"], || AggregateFunction::new(moments::STDDEV_SAMP)),
    entry(&["VAR_POP"], || AggregateFunction::new(moments::VAR_POP)),
    entry(&["VAR_SAMP", "VARIANCE"], || AggregateFunction::new(moments::VAR_SAMP)),
    entry(&["FIRST_VALUE"], || AggregateFunction::new(first_last::FIRST_VALUE)),
    entry(&["LAST_VALUE"], || AggregateFunction::new(first_last::LAST_VALUE)),
    entry(&["LISTAGG"], || AggregateFunction::new(list_agg::ListAgg::default())),
    entry(&["ARRAY_AGG"], || AggregateFunction::new(array_agg::ArrayAgg::default())),
    entry(&["PERCENTILE"], || AggregateFunction::new(percentile::Percentile::default())),
    entry(&["APPROX_COUNT_DISTINCT"], || {
        AggregateFunction::new(approx_count_distinct::ApproxCountDistinct)
    }),
];

/// All names of aggregate functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().flat_map(|entry| entry.names.iter().copied())
}

/// The function of this name, in upper or lower case, with the constants that it has by itself.
pub fn by_name(name: &str) -> Option<AggregateFunction> {
    let is_it =
        |entry: &&NamedAggregate| entry.names.iter().any(|own| own.eq_ignore_ascii_case(name));
    FUNCTIONS.iter().find(is_it).map(|entry| (entry.function)())
}

/// FIRST_VALUE of a column.
pub(crate) fn first_value() -> AggregateFunction {
    AggregateFunction::new(first_last::FIRST_VALUE)
}

/// LAST_VALUE of a column.
pub(crate) fn last_value() -> AggregateFunction {
    AggregateFunction::new(first_last::LAST_VALUE)
}

/// The function that a call means and the type of its result, as Flink gives it. Every result but
/// that of a count is nullable.
///
/// # Errors
/// If there is no such function, or it takes no such arguments.
///
/// ```
/// use thalweg_core::DataType;
/// use thalweg_operators::aggregate::resolve;
/// let (_, result) = resolve("avg", false, &[DataType::Decimal(10, 2).nullable()])?;
/// assert_eq!(result.to_string(), "DECIMAL(38,6)");
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub fn resolve(
    name: &str,
    distinct: bool,
    arguments: &[ColumnType],
) -> Result<(AggregateFunction, ColumnType)> {
    let function = named(name)?;
    let result = result(&function, name, distinct, arguments)?;
    Ok((function, result))
}

/// As [`resolve`], for the arguments of a call, of which those behind the first may be constants of
/// the function: the separator of LISTAGG, the fraction or fractions of PERCENTILE. Rows hold the
/// first argument alone. `skips_nulls` says that IGNORE NULLS was written, which ARRAY_AGG heeds
/// and all others do anyway.
///
/// # Errors
/// As [`resolve`]; and where such an argument is missing, no constant, or out of range.
pub fn resolve_call(
    name: &str,
    distinct: bool,
    skips_nulls: bool,
    arguments: &[Expr],
) -> Result<(AggregateFunction, ColumnType)> {
    let function = named(name)?;
    let types: Vec<ColumnType> = arguments.iter().map(|a| a.column_type.clone()).collect();
    if let Some(first) = types.get(..1) {
        result(&function, name, distinct, first)?;
    }
    let (function, types) = match function.bind(arguments, skips_nulls)? {
        Some(bound) => (bound, &types[..1]),
        None => (function, &types[..]),
    };
    let result = result(&function, name, distinct, types)?;
    Ok((function, result))
}

fn named(name: &str) -> Result<AggregateFunction> {
    by_name(name).ok_or_else(|| Error::plan(format!("there is no aggregate function {name}")))
}

fn result(
    function: &AggregateFunction,
    name: &str,
    distinct: bool,
    arguments: &[ColumnType],
) -> Result<ColumnType> {
    let argument = match arguments {
        [argument] => &argument.data_type,
        [] if function.counts_rows() && !distinct => &DataType::Null,
        [_, _, ..] if function.counts_rows() => {
            return Err(Error::unsupported(format!("{} over several columns", function.name()))
                .hint("count a ROW or a concatenation of them"));
        }
        _ => {
            let given = arguments.len();
            return Err(Error::plan(format!("{name} takes one argument, not {given}")));
        }
    };
    function
        .result(argument)
        .ok_or_else(|| Error::plan(format!("{} cannot be applied to {argument}", function.name())))
}
