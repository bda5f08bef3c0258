//! Types of Arrow as types of SQL.
//!
//! Each SQL type has one layout in the engine ([`DataType::arrow`]). Columns that have it already
//! go in without a copy; others are cast: small unsigned numbers to the next larger type, texts to
//! views of the same bytes, dictionaries to their values.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType as Arrow, Field, IntervalUnit, Schema, TimeUnit};
use thalweg::{Column, DataType, Error, Result, TableSchema};
use thalweg_core::quoting::quoted_name;

/// The columns of a table that has this schema. A row time has milliseconds, as SQL wants it.
pub fn table_schema(schema: &Schema, rowtime: Option<&str>) -> Result<TableSchema> {
    let column = |field: &Arc<Field>| {
        let data_type = sql_type(field.data_type()).ok_or_else(|| {
            let (name, arrow) = (field.name(), field.data_type());
            Error::plan(format!("column '{name}': SQL has no type for values of Arrow's {arrow}"))
                .hint("cast the column before it is registered, or leave it out")
        })?;
        let data_type = match data_type {
            DataType::Timestamp(4..) if rowtime == Some(field.name()) => DataType::Timestamp(3),
            DataType::TimestampLtz(4..) if rowtime == Some(field.name()) => {
                DataType::TimestampLtz(3)
            }
            other => other,
        };
        let column_type = data_type.nullable().with_nullable(field.is_nullable());
        Ok(Column::new(field.name(), column_type))
    };
    Ok(TableSchema::new(schema.fields().iter().map(column).collect::<Result<_>>()?))
}

/// The SQL type of values of an Arrow type, if there is one.
pub fn sql_type(arrow: &Arrow) -> Option<DataType> {
    Some(match arrow {
        Arrow::Null | Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => DataType::STRING,
        Arrow::Boolean => DataType::Boolean,
        Arrow::Int8 => DataType::TinyInt,
        Arrow::Int16 | Arrow::UInt8 => DataType::SmallInt,
        Arrow::Int32 | Arrow::UInt16 => DataType::Int,
        Arrow::Int64 | Arrow::UInt32 => DataType::BigInt,
        Arrow::UInt64 => DataType::Decimal(20, 0),
        Arrow::Float16 | Arrow::Float32 => DataType::Float,
        Arrow::Float64 => DataType::Double,
        Arrow::Decimal32(precision, scale)
        | Arrow::Decimal64(precision, scale)
        | Arrow::Decimal128(precision, scale) => {
            DataType::Decimal(*precision, u8::try_from(*scale).ok()?)
        }
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
            DataType::BYTES
        }
        Arrow::Date32 | Arrow::Date64 => DataType::Date,
        Arrow::Time32(_) | Arrow::Time64(_) => DataType::Time(3),
        Arrow::Timestamp(unit, zone) => {
            let precision = match unit {
                TimeUnit::Second | TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            match zone {
                Some(_) => DataType::TimestampLtz(precision),
                None => DataType::Timestamp(precision),
            }
        }
        Arrow::Duration(_) => DataType::IntervalDayTime,
        Arrow::Interval(IntervalUnit::YearMonth) => DataType::IntervalYearMonth,
        Arrow::List(item)
        | Arrow::LargeList(item)
        | Arrow::ListView(item)
        | Arrow::LargeListView(item)
        | Arrow::FixedSizeList(item, _) => DataType::Array(Box::new(
            sql_type(item.data_type())?.nullable().with_nullable(item.is_nullable()),
        )),
        Arrow::Map(entries, _) => {
            let Arrow::Struct(fields) = entries.data_type() else { return None };
            let of = |field: &Field| {
                let of = sql_type(field.data_type())?.nullable();
                Some(Box::new(of.with_nullable(field.is_nullable())))
            };
            DataType::Map(of(fields.first()?)?, of(fields.get(1)?)?)
        }
        Arrow::Struct(fields) => {
            let column = |field: &Arc<Field>| {
                let of = sql_type(field.data_type())?.nullable();
                Some(Column::new(field.name(), of.with_nullable(field.is_nullable())))
            };
            DataType::Row(fields.iter().map(column).collect::<Option<_>>()?)
        }
        Arrow::Dictionary(_, values) => sql_type(values)?,
        Arrow::RunEndEncoded(_, values) => sql_type(values.data_type())?,
        _ => return None,
    })
}

/// A batch with the layout that the engine has for these columns.
pub fn engine_batch(batch: RecordBatch, columns: &TableSchema) -> Result<RecordBatch> {
    let (_, arrays, rows) = batch.into_parts();
    let arrays = arrays.iter().zip(&columns.columns).map(|(array, column)| {
        let wrong = |error: ArrowError| Error::data(format!("column '{}': {error}", column.name));
        engine_array(array, &column.column_type.data_type).map_err(wrong)
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(columns.arrow(), arrays, &options)?)
}

/// An array with the layout that the engine has for a type.
pub fn engine_array(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let layout = data_type.arrow();
    match array.data_type() == &layout {
        true => Ok(Arc::clone(array)),
        false => cast(array, &layout),
    }
}

/// A type as a declaration spells it.
pub fn declared(data_type: &DataType) -> String {
    let of = |column_type: &thalweg::ColumnType| {
        let not_null = if column_type.nullable { "" } else { " NOT NULL" };
        format!("{}{not_null}", declared(&column_type.data_type))
    };
    match data_type {
        DataType::Array(item) => format!("ARRAY<{}>", of(item)),
        DataType::Map(key, value) => format!("MAP<{}, {}>", of(key), of(value)),
        DataType::Row(columns) => {
            let column = |column: &Column| {
                format!("{} {}", quoted_name(&column.name), of(&column.column_type))
            };
            format!("ROW<{}>", columns.iter().map(column).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}
