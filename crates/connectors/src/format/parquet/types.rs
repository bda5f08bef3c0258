//! Which Parquet columns can be read as which SQL types.
//!
//! Only what loses nothing is allowed: wider integers and floats, other units of time, other string
//! and binary encodings. DECIMAL is rescaled as everywhere, HALF_UP; one that overflows is an
//! error.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, make_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType as Arrow, Field, Schema, TimeUnit};
use thalweg_core::{DataType, Error, Result};

/// True if Parquet can hold values of this type.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null
        | DataType::Variant
        | DataType::IntervalYearMonth
        | DataType::IntervalDayTime => false,
        DataType::Array(element) => is_supported(&element.data_type),
        DataType::Map(key, value) => is_supported(&key.data_type) && is_supported(&value.data_type),
        DataType::Row(columns) => columns.iter().all(|c| is_supported(&c.column_type.data_type)),
        _ => true,
    }
}

/// True if a column that the file has as `file` can be read as `declared`.
pub fn is_readable(file: &Arrow, declared: &DataType) -> bool {
    match declared {
        DataType::Boolean => *file == Arrow::Boolean,
        integer if integer.is_integer() => match integer_bits(file) {
            Some(bits) => integer_bits(&integer.arrow()).is_some_and(|room| bits <= room),
            None => false,
        },
        DataType::Float => *file == Arrow::Float32,
        DataType::Double => matches!(file, Arrow::Float32 | Arrow::Float64),
        DataType::Decimal(..) => matches!(
            file,
            Arrow::Decimal32(..)
                | Arrow::Decimal64(..)
                | Arrow::Decimal128(..)
                | Arrow::Decimal256(..)
        ),
        DataType::Char(_) | DataType::Varchar(_) => is_string(file) || is_binary(file),
        DataType::Binary(_) | DataType::Varbinary(_) => is_binary(file),
        DataType::Date => matches!(file, Arrow::Date32 | Arrow::Date64),
        DataType::Time(_) => matches!(file, Arrow::Time32(_) | Arrow::Time64(_)),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => matches!(file, Arrow::Timestamp(..)),
        DataType::Array(element) => match file {
            Arrow::List(item) => is_readable(item.data_type(), &element.data_type),
            _ => false,
        },
        DataType::Map(key, value) => match file {
            Arrow::Map(entry, _) => match entry.data_type() {
                Arrow::Struct(fields) if fields.len() == 2 => {
                    is_readable(fields[0].data_type(), &key.data_type)
                        && is_readable(fields[1].data_type(), &value.data_type)
                }
                _ => false,
            },
            _ => false,
        },
        DataType::Row(columns) => match file {
            Arrow::Struct(fields) => {
                fields.len() == columns.len()
                    && fields.iter().zip(columns).all(|(field, column)| {
                        *field.name() == column.name
                            && is_readable(field.data_type(), &column.column_type.data_type)
                    })
            }
            _ => false,
        },
        _ => false,
    }
}

/// How many bits a signed integer needs to hold every value.
fn integer_bits(data_type: &Arrow) -> Option<u8> {
    Some(match data_type {
        Arrow::Int8 => 8,
        Arrow::UInt8 => 9,
        Arrow::Int16 => 16,
        Arrow::UInt16 => 17,
        Arrow::Int32 => 32,
        Arrow::UInt32 => 33,
        Arrow::Int64 => 64,
        _ => return None,
    })
}

fn is_string(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View)
}

fn is_binary(data_type: &Arrow) -> bool {
    matches!(
        data_type,
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_)
    )
}

/// The name of a Parquet column's type for messages.
pub fn describe(file: &Arrow) -> String {
    match file {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => "STRING".to_string(),
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView => "BYTES".to_string(),
        Arrow::Int8 => "TINYINT".to_string(),
        Arrow::Int16 => "SMALLINT".to_string(),
        Arrow::Int32 => "INT".to_string(),
        Arrow::Int64 => "BIGINT".to_string(),
        Arrow::Float32 => "FLOAT".to_string(),
        Arrow::Float64 => "DOUBLE".to_string(),
        Arrow::Boolean => "BOOLEAN".to_string(),
        Arrow::Date32 => "DATE".to_string(),
        Arrow::Timestamp(unit, None) => format!("TIMESTAMP in {unit:?}s"),
        Arrow::Timestamp(unit, Some(_)) => format!("TIMESTAMP_LTZ in {unit:?}s"),
        Arrow::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        other => other.to_string(),
    }
}

/// The schema with which a file is read: strings as views, which need no copy later.
pub fn with_views(schema: &Schema) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            Arrow::Utf8 => field.as_ref().clone().with_data_type(Arrow::Utf8View),
            _ => field.as_ref().clone(),
        })
        .collect();
    Schema::new(fields)
}

/// A column as its declared type lays it out.
///
/// # Errors
/// If a value does not fit; with its row, where that is known.
pub fn convert(column: &ArrayRef, declared: &DataType) -> Result<ArrayRef, (Error, u64)> {
    let wanted = declared.arrow();
    if *column.data_type() == wanted {
        return Ok(column.clone());
    }
    // What does not fit in a DECIMAL is NULL first: the NULL marks its row.
    let is_decimal = matches!(declared, DataType::Decimal(..));
    let options = CastOptions { safe: is_decimal, ..CastOptions::default() };
    if let (Arrow::Timestamp(from, _), Arrow::Timestamp(to, zone)) = (column.data_type(), &wanted) {
        return timestamps(column, *from, *to, zone.clone(), declared).map_err(|e| (e, 0));
    }
    let no_value =
        |e: &dyn std::fmt::Display| Error::data(format!("a value is no {declared}: {e}"));
    let cast = cast_with_options(column, &wanted, &options).map_err(|e| (no_value(&e), 0))?;
    match (0..cast.len()).find(|&row| cast.is_null(row) && !column.is_null(row)) {
        Some(row) => Err((no_value(&"it is out of range"), row as u64)),
        None => Ok(cast),
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Changes the unit, downwards also before 1970, and takes the zone for a label: instants and wall
/// clocks have the same numbers when the zone is UTC, and Parquet knows no other.
fn timestamps(
    column: &ArrayRef,
    from: TimeUnit,
    to: TimeUnit,
    zone: Option<Arc<str>>,
    declared: &DataType,
) -> Result<ArrayRef> {
    let (from, unit, to) = (per_second(from), to, per_second(to));
    let data = column.to_data();
    let numbers = Int64Array::from(data.into_builder().data_type(Arrow::Int64).build()?);
    let change = |value: i64| {
        if to >= from { value.checked_mul(to / from) } else { Some(value.div_euclid(from / to)) }
    };
    let numbers = numbers.try_unary::<_, Int64Type, Error>(|value| {
        change(value).ok_or_else(|| Error::data(format!("a timestamp lies beyond {declared}")))
    })?;
    let data = numbers.into_data().into_builder();
    Ok(make_array(data.data_type(Arrow::Timestamp(unit, zone)).build()?))
}
