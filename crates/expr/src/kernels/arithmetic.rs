//! Arithmetic on numbers: integers wrap, their division truncates and fails on zero, floats follow
//! IEEE 754, DECIMAL is in [`super::decimal`].

use std::sync::Arc;

use arrow_arith::numeric;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Error, Result};

use super::decimal;
use crate::expr::ArithmeticOp;
use crate::function::Value;

/// Computes `left op right`. Both have the type of the result, or both are DECIMAL.
pub(crate) fn arithmetic(
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    result: &DataType,
) -> Result<Value> {
    let is_division = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo);
    let array = match left.array().data_type() {
        Arrow::Decimal128(..) => decimal::arithmetic(op, left, right, result)?,
        Arrow::Int8 if is_division => divide::<Int8Type>(op, left, right)?,
        Arrow::Int16 if is_division => divide::<Int16Type>(op, left, right)?,
        Arrow::Int32 if is_division => divide::<Int32Type>(op, left, right)?,
        Arrow::Int64 if is_division => divide::<Int64Type>(op, left, right)?,
        _ => match op {
            ArithmeticOp::Add => numeric::add_wrapping(left, right),
            ArithmeticOp::Subtract => numeric::sub_wrapping(left, right),
            ArithmeticOp::Multiply => numeric::mul_wrapping(left, right),
            ArithmeticOp::Divide => numeric::div(left, right),
            ArithmeticOp::Modulo => numeric::rem(left, right),
        }?,
    };
    Ok(same_kind(left, right, array))
}

/// A constant if both operands are.
pub(crate) fn same_kind(left: &Value, right: &Value, array: ArrayRef) -> Value {
    if left.is_constant() && right.is_constant() {
        Value::Constant(array)
    } else {
        Value::Rows(array)
    }
}

pub(crate) fn division_by_zero() -> Error {
    Error::data("division by zero").hint("guard the divisor: CASE WHEN d <> 0 THEN n / d END")
}

/// Integer division or remainder. A NULL divides by nothing and so never fails.
fn divide<T>(op: ArithmeticOp, left: &Value, right: &Value) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: ArrowNativeTypeOp,
{
    let (a, b) = (left.array().as_primitive::<T>(), right.array().as_primitive::<T>());
    let rows = if left.is_constant() { b.len() } else { a.len() };
    if (left.is_constant() && a.is_null(0)) || (right.is_constant() && b.is_null(0)) {
        return Ok(Arc::new(PrimitiveArray::<T>::new_null(rows)));
    }
    let nulls = NullBuffer::union(
        a.nulls().filter(|_| !left.is_constant()),
        b.nulls().filter(|_| !right.is_constant()),
    );
    let zero = T::Native::ZERO;
    let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let (x, y) = (a.values(), b.values());
    let compute = |x: T::Native, y: T::Native| match op {
        ArithmeticOp::Divide => x.div_wrapping(y),
        _ => x.mod_wrapping(y),
    };
    let mut values = Vec::with_capacity(rows);
    if right.is_constant() {
        let y = y[0];
        if y.is_eq(zero) {
            let fails = (0..rows).any(is_valid);
            return if fails {
                Err(division_by_zero())
            } else {
                Ok(Arc::new(PrimitiveArray::<T>::new_null(rows)))
            };
        }
        values.extend(x.iter().map(|&x| compute(x, y)));
    } else {
        for (row, &y) in y.iter().enumerate() {
            let x = if left.is_constant() { x[0] } else { x[row] };
            if !y.is_eq(zero) {
                values.push(compute(x, y));
            } else if is_valid(row) {
                return Err(division_by_zero());
            } else {
                values.push(zero);
            }
        }
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}
