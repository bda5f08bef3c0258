//! Values of Arrow arrays as values of the reference executor.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time32MillisecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, TimeUnit};

use crate::reference::Value;

/// The rows of these batches, one after another.
pub fn rows_of(batches: &[RecordBatch]) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            rows.push(batch.columns().iter().map(|column| value_at(column, row)).collect());
        }
    }
    rows
}

/// One value. Types that the reference does not know become their text.
pub fn value_at(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    macro_rules! integer {
        ($arrow:ty) => {
            Value::Integer(array.as_primitive::<$arrow>().value(row).into())
        };
    }
    match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::Date32 => integer!(Date32Type),
        DataType::Time32(TimeUnit::Millisecond) => integer!(Time32MillisecondType),
        DataType::Duration(TimeUnit::Millisecond) => integer!(DurationMillisecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => integer!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integer!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => integer!(TimestampNanosecondType),
        DataType::Float32 => {
            Value::Double(f64::from(array.as_primitive::<Float32Type>().value(row)))
        }
        DataType::Float64 => Value::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) => {
            Value::Decimal(array.as_primitive::<Decimal128Type>().value(row))
        }
        DataType::Utf8View => Value::text(array.as_string_view().value(row)),
        _ => Value::String(
            array_value_to_string(array, row).unwrap_or_else(|error| error.to_string()),
        ),
    }
}
