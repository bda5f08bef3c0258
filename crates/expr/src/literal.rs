//! Constants as Arrow arrays of one value, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalYearMonthType, Time32MillisecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    DurationMillisecondArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, IntervalYearMonthArray, StringViewArray, Time32MillisecondArray, new_null_array,
};
use arrow_schema::{DataType as Arrow, IntervalUnit};
use thalweg_core::{DataType, Error, Result};

use crate::expr::Scalar;
use crate::kernels::{ticks, timestamps_with};

/// An array of one value.
pub(crate) fn to_array(value: &Scalar, data_type: &DataType) -> Result<ArrayRef> {
    let mismatch = || Error::internal(format!("the literal {value:?} is no {data_type}"));
    Ok(match value {
        Scalar::Null => new_null_array(&data_type.arrow(), 1),
        Scalar::Boolean(v) => Arc::new(BooleanArray::from(vec![*v])),
        Scalar::Integer(v) => integer_array(*v, data_type).ok_or_else(mismatch)?,
        Scalar::Double(v) => match data_type {
            DataType::Float => Arc::new(Float32Array::from_value(*v as f32, 1)),
            DataType::Double => Arc::new(Float64Array::from_value(*v, 1)),
            _ => return Err(mismatch()),
        },
        Scalar::Decimal(v) => match data_type {
            DataType::Decimal(precision, scale) => Arc::new(
                Decimal128Array::from_value(*v, 1)
                    .with_precision_and_scale(*precision, *scale as i8)?,
            ),
            _ => return Err(mismatch()),
        },
        Scalar::String(v) => Arc::new(StringViewArray::from_iter_values([v])),
        Scalar::Binary(v) => Arc::new(BinaryArray::from_iter_values([v])),
    })
}

fn integer_array(v: i64, data_type: &DataType) -> Option<ArrayRef> {
    Some(match data_type.arrow() {
        Arrow::Int8 => Arc::new(Int8Array::from_value(v as i8, 1)),
        Arrow::Int16 => Arc::new(Int16Array::from_value(v as i16, 1)),
        Arrow::Int32 => Arc::new(Int32Array::from_value(v as i32, 1)),
        Arrow::Int64 => Arc::new(Int64Array::from_value(v, 1)),
        Arrow::Date32 => Arc::new(Date32Array::from_value(v as i32, 1)),
        Arrow::Time32(_) => Arc::new(Time32MillisecondArray::from_value(v as i32, 1)),
        Arrow::Duration(_) => Arc::new(DurationMillisecondArray::from_value(v, 1)),
        Arrow::Interval(_) => Arc::new(IntervalYearMonthArray::from_value(v as i32, 1)),
        Arrow::Timestamp(..) => timestamps_with(vec![v].into(), None, data_type),
        _ => return None,
    })
}

/// The first value of an array; `None` for types that have no literal (arrays, maps, rows).
pub(crate) fn from_array(array: &dyn Array) -> Option<Scalar> {
    if array.is_empty() {
        return None;
    }
    if array.is_null(0) || array.data_type() == &Arrow::Null {
        return Some(Scalar::Null);
    }
    Some(match array.data_type() {
        Arrow::Boolean => Scalar::Boolean(array.as_boolean().value(0)),
        Arrow::Int8 => Scalar::Integer(array.as_primitive::<Int8Type>().value(0).into()),
        Arrow::Int16 => Scalar::Integer(array.as_primitive::<Int16Type>().value(0).into()),
        Arrow::Int32 => Scalar::Integer(array.as_primitive::<Int32Type>().value(0).into()),
        Arrow::Int64 => Scalar::Integer(array.as_primitive::<Int64Type>().value(0)),
        Arrow::Date32 => Scalar::Integer(array.as_primitive::<Date32Type>().value(0).into()),
        Arrow::Time32(_) => {
            Scalar::Integer(array.as_primitive::<Time32MillisecondType>().value(0).into())
        }
        Arrow::Duration(_) => {
            Scalar::Integer(array.as_primitive::<DurationMillisecondType>().value(0))
        }
        Arrow::Interval(IntervalUnit::YearMonth) => {
            Scalar::Integer(array.as_primitive::<IntervalYearMonthType>().value(0).into())
        }
        Arrow::Timestamp(..) => Scalar::Integer(ticks(array)[0]),
        Arrow::Float32 => Scalar::Double(array.as_primitive::<Float32Type>().value(0).into()),
        Arrow::Float64 => Scalar::Double(array.as_primitive::<Float64Type>().value(0)),
        Arrow::Decimal128(..) => Scalar::Decimal(array.as_primitive::<Decimal128Type>().value(0)),
        Arrow::Utf8View => Scalar::String(array.as_string_view().value(0).into()),
        Arrow::Binary => Scalar::Binary(array.as_binary::<i32>().value(0).into()),
        _ => return None,
    })
}
