//! Arguments of aggregates that are constants: part of the function, not of the rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use thalweg_core::{ColumnType, Error, Result, Watermark, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr, Scalar};

use super::percentile::{Fractions, doubles};
use super::{AggregateFunction, resolve};

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
    let types: Vec<ColumnType> = arguments.iter().map(|a| a.column_type.clone()).collect();
    match (name.to_ascii_uppercase().as_str(), arguments) {
        ("LISTAGG", [_, separator]) => {
            let (_, result) = resolve(name, distinct, &types[..1])?;
            Ok((AggregateFunction::ListAgg { separator: text(separator)? }, result))
        }
        ("PERCENTILE", [_, fractions]) => {
            resolve(name, distinct, &types[..1])?;
            let fractions = fractions_of(fractions)?;
            let result = fractions.result_type().nullable();
            Ok((AggregateFunction::Percentile(fractions), result))
        }
        ("PERCENTILE", [_, _, _]) => {
            Err(Error::unsupported("PERCENTILE with a frequency comes with a later version"))
        }
        ("PERCENTILE", given) => Err(Error::plan(format!(
            "PERCENTILE takes a value and a fraction, not {} arguments",
            given.len()
        ))
        .hint("the median is PERCENTILE(x, 0.5)")),
        ("ARRAY_AGG", [_]) => {
            let (_, result) = resolve(name, distinct, &types)?;
            Ok((AggregateFunction::ArrayAgg { skips_nulls }, result))
        }
        _ => resolve(name, distinct, &types),
    }
}

fn text(separator: &Expr) -> Result<Arc<str>> {
    match separator.as_literal() {
        Some(Scalar::String(text)) => Ok(Arc::clone(text)),
        _ => Err(Error::plan("the separator of LISTAGG must be a text in quotes")),
    }
}

/// The constant fraction, or the constant array of them.
fn fractions_of(expr: &Expr) -> Result<Fractions> {
    let wrong = || {
        Error::plan(
            "the second argument of PERCENTILE must be a number from 0 to 1, or an ARRAY of them",
        )
        .hint("the median is PERCENTILE(x, 0.5)")
    };
    if !expr.columns().is_empty() || expr.undecided_function().is_some() {
        return Err(wrong());
    }
    let value = constant(expr)?;
    let numbers = match value.as_list_opt::<i32>() {
        Some(list) if list.is_valid(0) => list.value(0),
        Some(_) => return Err(wrong()),
        None => Arc::clone(&value),
    };
    if !numbers.data_type().is_numeric() || numbers.null_count() > 0 || numbers.is_empty() {
        return Err(wrong());
    }
    let numbers = doubles(&numbers)?;
    if !numbers.values().iter().all(|number| (0.0..=1.0).contains(number)) {
        return Err(wrong());
    }
    Ok(match value.as_list_opt::<i32>() {
        Some(_) => Fractions::Many(numbers.values().iter().copied().collect()),
        None => Fractions::One(numbers.value(0)),
    })
}

/// The one value of an expression that reads no column.
fn constant(expr: &Expr) -> Result<arrow_array::ArrayRef> {
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &one_row)?;
    let watermark_before = WatermarkBefore::All(Watermark::MIN);
    expr.evaluate(&EvalContext { batch: &batch, watermark_before: &watermark_before, wall_ms: 0 })
}
