//! Comparisons. Floats compare as in Java (NaN equals nothing, -0.0 equals 0.0), which is not the
//! total order that Arrow's kernels use.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_ord::cmp;
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::decimal;
use crate::expr::CompareOp;
use crate::function::Value;

/// Compares two values of one type.
pub(crate) fn compare(op: CompareOp, left: &Value, right: &Value) -> Result<Value> {
    let is_plain = !matches!(op, CompareOp::Distinct | CompareOp::NotDistinct);
    let result = match left.array().data_type() {
        Arrow::Float32 if is_plain => floats::<Float32Type>(op, left, right),
        Arrow::Float64 if is_plain => floats::<Float64Type>(op, left, right),
        Arrow::Decimal128(..) if left.array().data_type() != right.array().data_type() => {
            decimals(op, left, right)
        }
        _ => match op {
            CompareOp::Equal => cmp::eq(left, right),
            CompareOp::NotEqual => cmp::neq(left, right),
            CompareOp::Less => cmp::lt(left, right),
            CompareOp::LessOrEqual => cmp::lt_eq(left, right),
            CompareOp::Greater => cmp::gt(left, right),
            CompareOp::GreaterOrEqual => cmp::gt_eq(left, right),
            CompareOp::Distinct => cmp::distinct(left, right),
            CompareOp::NotDistinct => cmp::not_distinct(left, right),
        }?,
    };
    let result: ArrayRef = Arc::new(result);
    Ok(if left.is_constant() && right.is_constant() {
        Value::Constant(result)
    } else {
        Value::Rows(result)
    })
}

/// DECIMAL of different precision and scale, exactly.
fn decimals(op: CompareOp, left: &Value, right: &Value) -> BooleanArray {
    let a = left.array().as_primitive::<Decimal128Type>();
    let b = right.array().as_primitive::<Decimal128Type>();
    let rows = if left.is_constant() { b.len() } else { a.len() };
    let (left_scale, right_scale) = (a.scale() as u8, b.scale() as u8);
    let test = |row: usize| {
        let i = if left.is_constant() { 0 } else { row };
        let j = if right.is_constant() { 0 } else { row };
        let order = match (a.is_valid(i), b.is_valid(j)) {
            (true, true) => decimal::order(a.value(i), left_scale, b.value(j), right_scale),
            (x, y) => match op {
                CompareOp::Distinct => return Some(x != y),
                CompareOp::NotDistinct => return Some(x == y),
                _ => return None,
            },
        };
        Some(match op {
            CompareOp::Equal | CompareOp::NotDistinct => order.is_eq(),
            CompareOp::NotEqual | CompareOp::Distinct => order.is_ne(),
            CompareOp::Less => order.is_lt(),
            CompareOp::LessOrEqual => order.is_le(),
            CompareOp::Greater => order.is_gt(),
            CompareOp::GreaterOrEqual => order.is_ge(),
        })
    };
    (0..rows).map(test).collect()
}

fn floats<T>(op: CompareOp, left: &Value, right: &Value) -> BooleanArray
where
    T: ArrowPrimitiveType,
    T::Native: PartialOrd,
{
    match op {
        CompareOp::NotEqual => floats_by::<T>(left, right, |a, b| a != b),
        CompareOp::Less => floats_by::<T>(left, right, |a, b| a < b),
        CompareOp::LessOrEqual => floats_by::<T>(left, right, |a, b| a <= b),
        CompareOp::Greater => floats_by::<T>(left, right, |a, b| a > b),
        CompareOp::GreaterOrEqual => floats_by::<T>(left, right, |a, b| a >= b),
        _ => floats_by::<T>(left, right, |a, b| a == b),
    }
}

fn floats_by<T: ArrowPrimitiveType>(
    left: &Value,
    right: &Value,
    test: impl Fn(T::Native, T::Native) -> bool,
) -> BooleanArray {
    let a = left.array().as_primitive::<T>();
    let b = right.array().as_primitive::<T>();
    let rows = if left.is_constant() { b.len() } else { a.len() };
    if (left.is_constant() && a.is_null(0)) || (right.is_constant() && b.is_null(0)) {
        return BooleanArray::new_null(rows);
    }
    let (x, y) = (a.values(), b.values());
    let (bits, nulls) = match (left.is_constant(), right.is_constant()) {
        (false, true) => {
            let y = y[0];
            (BooleanBuffer::collect_bool(rows, |i| test(x[i], y)), a.nulls().cloned())
        }
        (true, false) => {
            let x = x[0];
            (BooleanBuffer::collect_bool(rows, |i| test(x, y[i])), b.nulls().cloned())
        }
        _ => {
            let nulls = NullBuffer::union(a.nulls(), b.nulls());
            (BooleanBuffer::collect_bool(rows, |i| test(x[i], y[i])), nulls)
        }
    };
    BooleanArray::new(bits, nulls)
}
