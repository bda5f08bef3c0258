//! COALESCE and its kin, GREATEST and LEAST.

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::NullBuffer;
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;
use thalweg_core::Result;

use super::definition::{Call, Definition, custom};
use crate::build::{case, check_comparable, compare};
use crate::evaluate::true_mask;
use crate::expr::{CompareOp, Expr, ExprKind};
use crate::function::{Arguments, Value};
use crate::kernels;

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("COALESCE", "any any*", coalesce),
    custom("IFNULL", "any any", coalesce),
    custom("NULLIF", "any any", null_if),
    custom("IF", "boolean any any", choose),
    custom("GREATEST", "any any*", |call| extreme(call, CompareOp::Greater)),
    custom("LEAST", "any any*", |call| extreme(call, CompareOp::Less)),
];

fn coalesce(call: Call<'_>) -> Result<Expr> {
    let (Call { mut args, .. }, mut column_type) = call.unified()?;
    column_type.nullable = args.iter().all(|arg| arg.column_type.nullable);
    // What stands behind an argument that is never NULL is never used.
    if let Some(last) = args.iter().position(|arg| !arg.column_type.nullable) {
        args.truncate(last + 1);
    }
    if args.len() == 1 {
        return Ok(args.remove(0));
    }
    Ok(Expr::new(ExprKind::Coalesce(args), column_type).folded())
}

fn null_if(call: Call<'_>) -> Result<Expr> {
    let Call { mut args, session, .. } = call;
    let (first, second) = (args.remove(0), args.remove(0));
    let equal = compare(CompareOp::Equal, first.clone(), second, session)?;
    let null = Expr::null(first.column_type.data_type.clone());
    case(vec![(equal, null)], Some(first))
}

fn choose(call: Call<'_>) -> Result<Expr> {
    let mut args = call.args.into_iter();
    let (Some(condition), Some(yes), otherwise) = (args.next(), args.next(), args.next()) else {
        return Err(thalweg_core::Error::internal("IF without its arguments"));
    };
    case(vec![(condition, yes)], otherwise)
}

/// GREATEST and LEAST: NULL if any argument is.
fn extreme(call: Call<'_>, op: CompareOp) -> Result<Expr> {
    let (call, column_type) = call.unified()?;
    let compared = check_comparable(&column_type.data_type);
    compared.map_err(|error| error.hint(format!("{} compares its arguments", call.name)))?;
    let kernel = move |a: &Arguments<'_>| -> Result<ArrayRef> {
        let mut best = a.value(0).clone();
        let mut missing: Option<NullBuffer> = None;
        for value in a.values {
            let rows = value.clone().into_rows(a.rows)?;
            missing = NullBuffer::union(missing.as_ref(), rows.logical_nulls().as_ref());
            let better = kernels::compare::compare_totally(op, value, &best)?.into_rows(a.rows)?;
            let mask = BooleanArray::new(true_mask(&better)?, None);
            best = Value::Rows(zip(&mask, value, &best)?);
        }
        let best = best.into_rows(a.rows)?;
        match missing {
            None => Ok(best),
            Some(valid) => Ok(nullif(&best, &BooleanArray::new(!valid.inner(), None))?),
        }
    };
    Ok(call.with_kernel(column_type, kernel))
}
