//! Reading argument columns in tight loops, and building result columns.
//!
//! Values under a NULL are never looked at: what stands there is arbitrary.
//!
//! Numbers are computed with in four types, and code is compiled for these alone:
//!
//! | values of | are held as | and leave |
//! |---|---|---|
//! | TINYINT, SMALLINT, INT, DATE, TIME, months | INT | as their lowest bits |
//! | BIGINT, TIMESTAMP, milliseconds | BIGINT | |
//! | FLOAT, DOUBLE | DOUBLE | rounded |
//! | DECIMAL | DECIMAL | |

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type,
};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Float64Array, Int64Array, PrimitiveArray, UInt32Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType as Arrow;
use arrow_select::take::take;
use thalweg_core::{DataType, Error, Result};

use super::UpdateInput;
pub(super) use crate::rows::columns::retyped;

/// The column of an argument as the numbers that hold its declared type: days, milliseconds and the
/// like of dates and times, and small numbers in wider ones, exactly.
pub(super) fn declared<T: ArrowPrimitiveType>(column: &ArrayRef) -> Result<PrimitiveArray<T>> {
    let held: ArrayRef = match column.data_type() {
        Arrow::Int8 => Arc::new(column.as_primitive::<Int8Type>().unary::<_, Int32Type>(i32::from)),
        Arrow::Int16 => {
            Arc::new(column.as_primitive::<Int16Type>().unary::<_, Int32Type>(i32::from))
        }
        Arrow::Float32 => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float64Type>(f64::from))
        }
        Arrow::Date32 | Arrow::Time32(_) | Arrow::Interval(_) => {
            retyped(ArrayRef::clone(column), &Arrow::Int32)
        }
        Arrow::Timestamp(_, _) | Arrow::Duration(_) => {
            retyped(ArrayRef::clone(column), &Arrow::Int64)
        }
        _ => ArrayRef::clone(column),
    };
    let array = held.as_primitive_opt().cloned();
    array.ok_or_else(|| Error::internal("an argument's column is not of its declared type"))
}

/// The native type of a primitive column and a loop over its non-NULL values: `each(group, value,
/// row)`. The shapes (with and without NULLs and selection) are distinguished once per run.
#[inline]
pub(super) fn for_each_value<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    input: &UpdateInput<'_>,
    mut each: impl FnMut(usize, T::Native, u32),
) -> Result<()> {
    if let Some(rows) = input.rows
        && matches!(column.data_type(), Arrow::Int8 | Arrow::Int16 | Arrow::Float32)
    {
        // A piece may be a small part of a bundle: its rows alone are made wide.
        let column = take(column, &UInt32Array::from(rows.to_vec()), None)?;
        let declared = declared::<T>(&column)?;
        for (place, (&id, &row)) in input.ids.iter().zip(rows).enumerate() {
            if declared.is_valid(place) {
                each(id as usize, declared.value(place), row);
            }
        }
        return Ok(());
    }
    let declared = declared::<T>(column)?;
    let values: &[T::Native] = declared.values();
    match (input.rows, nulls(column)) {
        (None, None) => {
            for (row, (&id, &value)) in input.ids.iter().zip(values).enumerate() {
                each(id as usize, value, row as u32);
            }
        }
        (Some(rows), None) => {
            for (&id, &row) in input.ids.iter().zip(rows) {
                each(id as usize, values[row as usize], row);
            }
        }
        (rows, Some(nulls)) => {
            for (place, &id) in input.ids.iter().enumerate() {
                let row = rows.map_or(place, |rows| rows[place] as usize);
                if nulls.is_valid(row) {
                    each(id as usize, values[row], row as u32);
                }
            }
        }
    }
    Ok(())
}

/// The column with one NaN: Arrow orders NaNs by sign and payload, and SQL knows one, the largest
/// value.
pub(crate) fn with_one_nan(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        Arrow::Float32 => one_nan::<Float32Type>(column, |value| value.is_nan(), f32::NAN),
        Arrow::Float64 => one_nan::<Float64Type>(column, |value| value.is_nan(), f64::NAN),
        _ => ArrayRef::clone(column),
    }
}

fn one_nan<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    is_nan: impl Fn(T::Native) -> bool,
    nan: T::Native,
) -> ArrayRef {
    let values = column.as_primitive::<T>();
    if !values.values().iter().any(|&value| is_nan(value)) {
        return ArrayRef::clone(column);
    }
    Arc::new(values.unary::<_, T>(|value| if is_nan(value) { nan } else { value }))
}

/// The NULLs of a column, if it has any.
pub(super) fn nulls(column: &ArrayRef) -> Option<&NullBuffer> {
    column.nulls().filter(|nulls| nulls.null_count() > 0)
}

/// Numbers as aggregates compute with them: any integer in 64 bits, FLOAT and DOUBLE as doubles,
/// DECIMAL unscaled.
pub(super) trait Number: Copy + Send + Sync + 'static {
    /// A loop over the non-NULL values of a column of such numbers.
    fn for_each(
        column: &ArrayRef,
        input: &UpdateInput<'_>,
        each: impl FnMut(usize, Self),
    ) -> Result<()>;
    /// A column of a type of such numbers. Integers wrap into it; DECIMALs fit its precision.
    fn array(result: &DataType, values: impl Iterator<Item = Option<Self>>) -> ArrayRef;
}

impl Number for i64 {
    #[inline]
    fn for_each(
        column: &ArrayRef,
        input: &UpdateInput<'_>,
        mut each: impl FnMut(usize, i64),
    ) -> Result<()> {
        match column.data_type() {
            Arrow::Int8 | Arrow::Int16 | Arrow::Int32 => {
                for_each_value::<Int32Type>(column, input, |id, v, _| each(id, v.into()))
            }
            _ => for_each_value::<Int64Type>(column, input, |id, v, _| each(id, v)),
        }
    }
    fn array(result: &DataType, values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        retyped(Arc::new(values.collect::<Int64Array>()), &result.arrow())
    }
}

impl Number for f64 {
    #[inline]
    fn for_each(
        column: &ArrayRef,
        input: &UpdateInput<'_>,
        mut each: impl FnMut(usize, f64),
    ) -> Result<()> {
        for_each_value::<Float64Type>(column, input, |id, v, _| each(id, v))
    }
    fn array(result: &DataType, values: impl Iterator<Item = Option<f64>>) -> ArrayRef {
        retyped(Arc::new(values.collect::<Float64Array>()), &result.arrow())
    }
}

impl Number for i128 {
    #[inline]
    fn for_each(
        column: &ArrayRef,
        input: &UpdateInput<'_>,
        mut each: impl FnMut(usize, i128),
    ) -> Result<()> {
        for_each_value::<Decimal128Type>(column, input, |id, value, _| each(id, value))
    }
    fn array(result: &DataType, values: impl Iterator<Item = Option<i128>>) -> ArrayRef {
        Arc::new(values.collect::<Decimal128Array>().with_data_type(result.arrow()))
    }
}
