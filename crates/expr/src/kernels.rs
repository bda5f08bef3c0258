//! Computations over columns, with Flink's arithmetic. Nothing here knows of expressions' types
//! beyond its arguments.

pub(crate) mod arithmetic;
pub(crate) mod cast;
pub(crate) mod compare;
pub(crate) mod datetime;
pub(crate) mod decimal;
pub(crate) mod logic;
pub(crate) mod parse;
pub(crate) mod text;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef, MapArray, PrimitiveArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType as Arrow, TimeUnit};
use thalweg_core::types::timestamp_unit;
use thalweg_core::{DataType, Error, Result};

/// The numbers in a timestamp array, whatever its unit.
pub(crate) fn ticks(array: &dyn Array) -> ScalarBuffer<i64> {
    match array.data_type() {
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().values().clone()
        }
        Arrow::Timestamp(TimeUnit::Nanosecond, _) => {
            array.as_primitive::<TimestampNanosecondType>().values().clone()
        }
        _ => array.as_primitive::<TimestampMillisecondType>().values().clone(),
    }
}

/// A timestamp array of this type from numbers in its unit, with the nulls of `like`.
pub(crate) fn timestamps(values: ScalarBuffer<i64>, like: &dyn Array, to: &DataType) -> ArrayRef {
    let nulls = like.nulls().cloned();
    timestamps_with(values, nulls, to)
}

/// A timestamp array of this type from numbers in its unit.
pub(crate) fn timestamps_with(
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
    to: &DataType,
) -> ArrayRef {
    let Arrow::Timestamp(unit, zone) = to.arrow() else {
        unreachable!("only timestamps are built from ticks, not {to}")
    };
    macro_rules! of {
        ($type:ty) => {
            Arc::new(PrimitiveArray::<$type>::new(values, nulls).with_timezone_opt(zone))
        };
    }
    match unit {
        TimeUnit::Microsecond => of!(TimestampMicrosecondType),
        TimeUnit::Nanosecond => of!(TimestampNanosecondType),
        _ => of!(TimestampMillisecondType),
    }
}

/// A column of maps of keys, values and where each map ends.
pub(crate) fn map_array(
    data_type: &DataType,
    keys: ArrayRef,
    values: ArrayRef,
    offsets: OffsetBuffer<i32>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let Arrow::Map(field, sorted) = data_type.arrow() else {
        return Err(Error::internal("a map without the type of one"));
    };
    let Arrow::Struct(fields) = field.data_type().clone() else {
        return Err(Error::internal("a map without entries"));
    };
    let entries = StructArray::try_new(fields, vec![keys, values], None)?;
    Ok(Arc::new(MapArray::try_new(field, offsets, entries, nulls, sorted)?))
}

/// A time lies beyond what 64 bits hold in the unit of its type.
pub(crate) fn out_of_range(data_type: &DataType) -> Error {
    let error = Error::data(format!("a time is beyond the range of {data_type}"));
    match data_type {
        DataType::Timestamp(7..) | DataType::TimestampLtz(7..) => error.hint(
            "times of more than 6 fraction digits lie between 1677-09-21 and 2262-04-11; a precision \
             of 6 reaches from -290307 to 294247",
        ),
        _ => error,
    }
}

/// How many units of a timestamp type make a second: 1000, 1,000,000 or 1,000,000,000.
pub(crate) fn ticks_per_second(data_type: &DataType) -> i64 {
    let (DataType::Timestamp(precision) | DataType::TimestampLtz(precision)) = data_type else {
        return 1_000;
    };
    match timestamp_unit(*precision) {
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
        _ => 1_000,
    }
}
