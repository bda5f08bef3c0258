//! From JSON values to typed columns.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType,
};
use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::DataType as Arrow;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use thalweg_core::text::{
    parse_boolean, parse_date, parse_decimal, parse_double, parse_float, parse_integer, parse_time,
    parse_timestamp, parse_timestamp_iso,
};
use thalweg_core::types::timestamps;
use thalweg_core::{Column, ColumnType, DataType, Error, Result};

use super::JsonOptions;
use crate::format::bad_data::BadFields;

/// A value and the row that it belongs to.
#[derive(Clone, Copy)]
pub struct Cell<'v> {
    /// The row of the block.
    pub row: usize,
    /// The value; absent if the key is.
    pub value: Option<&'v Value>,
}

impl<'v> Cell<'v> {
    fn present(&self) -> Option<&'v Value> {
        self.value.filter(|value| !value.is_null())
    }
}

/// True if a value of this column can be bad.
pub fn can_be_bad(column: &Column, options: JsonOptions) -> bool {
    let takes_any_value = matches!(
        column.column_type.data_type,
        DataType::Char(_) | DataType::Varchar(_) | DataType::Boolean
    );
    !takes_any_value || !column.column_type.nullable || options.fail_on_missing_field
}

/// True if JSON can hold values of this type.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::IntervalYearMonth | DataType::IntervalDayTime => false,
        DataType::Array(element) => is_supported(&element.data_type),
        DataType::Map(key, value) => key.data_type.is_string() && is_supported(&value.data_type),
        DataType::Row(columns) => columns.iter().all(|c| is_supported(&c.column_type.data_type)),
        _ => true,
    }
}

/// Reads one column.
pub fn column(
    cells: &[Cell<'_>],
    data_type: &DataType,
    options: JsonOptions,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Char(_) | DataType::Varchar(_) => strings(cells),
        DataType::Boolean => booleans(cells),
        DataType::TinyInt => primitive::<Int8Type>(cells, bad, integer),
        DataType::SmallInt => primitive::<Int16Type>(cells, bad, integer),
        DataType::Int => primitive::<Int32Type>(cells, bad, integer),
        DataType::BigInt => primitive::<Int64Type>(cells, bad, integer),
        DataType::Float => primitive::<Float32Type>(cells, bad, |v| parsed(v, parse_float)),
        DataType::Double => primitive::<Float64Type>(cells, bad, |v| parsed(v, parse_double)),
        DataType::Decimal(precision, scale) => {
            let parse = |value: &Value| {
                // Out of range is no value either; where bad values are NULL that is Flink's
                // answer.
                parse_decimal(&scalar_text(value)?, *precision, *scale).ok().flatten()
            };
            let array = builder::<Decimal128Type>(cells, bad, parse).finish();
            Arc::new(array.with_precision_and_scale(*precision, *scale as i8)?)
        }
        DataType::Binary(_) | DataType::Varbinary(_) => binary(cells, bad),
        DataType::Date => primitive::<Date32Type>(cells, bad, |v| parsed(v, parse_date)),
        DataType::Time(precision) => primitive::<Time32MillisecondType>(cells, bad, |value| {
            parsed(value, |text| parse_time(text, *precision))
        }),
        DataType::Timestamp(precision) => times(cells, *precision, false, options, bad),
        DataType::TimestampLtz(precision) => times(cells, *precision, true, options, bad),
        DataType::Array(element) => array(cells, data_type, element, options, bad)?,
        DataType::Map(_, value) => map(cells, data_type, value, options, bad)?,
        DataType::Row(columns) => row(cells, data_type, columns, options, bad)?,
        other => {
            return Err(Error::unsupported(format!("JSON cannot hold values of type {other}")));
        }
    })
}

/// The text of a string, number or boolean.
fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Borrowed(number.as_str())),
        Value::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        _ => None,
    }
}

fn parsed<V>(value: &Value, parse: impl Fn(&str) -> Option<V>) -> Option<V> {
    parse(&scalar_text(value)?)
}

/// A number, its fraction cut off, or a string with a whole number.
fn integer<V: TryFrom<i64>>(value: &Value) -> Option<V> {
    let text = scalar_text(value)?;
    let whole = parse_integer(&text).or_else(|| {
        let number: f64 = value.as_number()?.as_str().parse().ok()?;
        let fits = number.abs() < 9_223_372_036_854_775_808.0;
        fits.then_some(number.trunc() as i64)
    });
    whole.and_then(|whole| V::try_from(whole).ok())
}

fn builder<T: ArrowPrimitiveType>(
    cells: &[Cell<'_>],
    bad: &mut BadFields,
    parse: impl Fn(&Value) -> Option<T::Native>,
) -> PrimitiveBuilder<T> {
    let mut builder = PrimitiveBuilder::<T>::with_capacity(cells.len());
    for cell in cells {
        let Some(value) = cell.present() else {
            builder.append_null();
            continue;
        };
        let parsed = parse(value);
        builder.append_option(parsed);
        if parsed.is_none() {
            bad.add(cell.row, &value.to_string());
        }
    }
    builder
}

fn primitive<T: ArrowPrimitiveType>(
    cells: &[Cell<'_>],
    bad: &mut BadFields,
    parse: impl Fn(&Value) -> Option<T::Native>,
) -> ArrayRef {
    Arc::new(builder::<T>(cells, bad, parse).finish())
}

fn strings(cells: &[Cell<'_>]) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(cells.len());
    for cell in cells {
        match cell.present() {
            None => builder.append_null(),
            Some(value) => match scalar_text(value) {
                Some(text) => builder.append_value(text),
                None => builder.append_value(value.to_string()),
            },
        }
    }
    Arc::new(builder.finish())
}

fn booleans(cells: &[Cell<'_>]) -> ArrayRef {
    let mut builder = BooleanBuilder::with_capacity(cells.len());
    for cell in cells {
        let truth = |value| scalar_text(value).is_some_and(|text| parse_boolean(&text));
        builder.append_option(cell.present().map(truth));
    }
    Arc::new(builder.finish())
}

fn binary(cells: &[Cell<'_>], bad: &mut BadFields) -> ArrayRef {
    let mut builder = BinaryBuilder::new();
    for cell in cells {
        let Some(value) = cell.present() else {
            builder.append_null();
            continue;
        };
        match value.as_str().and_then(|text| STANDARD.decode(text).ok()) {
            Some(bytes) => builder.append_value(bytes),
            None => {
                builder.append_null();
                bad.add(cell.row, &value.to_string());
            }
        }
    }
    Arc::new(builder.finish())
}

fn times(
    cells: &[Cell<'_>],
    precision: u8,
    is_instant: bool,
    options: JsonOptions,
    bad: &mut BadFields,
) -> ArrayRef {
    let parse = |value: &Value| {
        parsed(value, |text| {
            let text = if is_instant { text.strip_suffix('Z')? } else { text };
            if options.iso_timestamps {
                parse_timestamp_iso(text, precision)
            } else {
                parse_timestamp(text, precision)
            }
        })
    };
    timestamps(&builder(cells, bad, parse).finish(), precision, is_instant)
}

/// A container that has an element of its own which is NULL but declared NOT NULL.
fn inner_null(error: &arrow_schema::ArrowError) -> Error {
    Error::data(format!("a NULL within a value whose type does not allow it: {error}"))
}

fn array(
    cells: &[Cell<'_>],
    data_type: &DataType,
    element: &ColumnType,
    options: JsonOptions,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    let mut inner = Vec::new();
    let mut lengths = Vec::with_capacity(cells.len());
    let mut nulls = NullBufferBuilder::new(cells.len());
    for cell in cells {
        let elements = cell.present().and_then(Value::as_array);
        if let (None, Some(value)) = (elements, cell.present()) {
            bad.add(cell.row, &value.to_string());
        }
        nulls.append(elements.is_some());
        let elements = elements.map_or(&[][..], Vec::as_slice);
        lengths.push(elements.len());
        inner.extend(elements.iter().map(|value| Cell { row: cell.row, value: Some(value) }));
    }
    let values = column(&inner, &element.data_type, options, bad)?;
    let Arrow::List(item) = data_type.arrow() else {
        return Err(Error::internal("ARRAY is not a list"));
    };
    let list =
        ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, nulls.finish());
    Ok(Arc::new(list.map_err(|e| inner_null(&e))?))
}

fn map(
    cells: &[Cell<'_>],
    data_type: &DataType,
    value_type: &ColumnType,
    options: JsonOptions,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    let mut inner = Vec::new();
    let mut keys = StringViewBuilder::new();
    let mut lengths = Vec::with_capacity(cells.len());
    let mut nulls = NullBufferBuilder::new(cells.len());
    for cell in cells {
        let entries = cell.present().and_then(Value::as_object);
        if let (None, Some(value)) = (entries, cell.present()) {
            bad.add(cell.row, &value.to_string());
        }
        nulls.append(entries.is_some());
        lengths.push(entries.map_or(0, serde_json::Map::len));
        for (key, value) in entries.into_iter().flatten() {
            keys.append_value(key);
            inner.push(Cell { row: cell.row, value: Some(value) });
        }
    }
    let values = column(&inner, &value_type.data_type, options, bad)?;
    let Arrow::Map(entry, _) = data_type.arrow() else {
        return Err(Error::internal("MAP is not a map"));
    };
    let Arrow::Struct(fields) = entry.data_type() else {
        return Err(Error::internal("a map has no entries"));
    };
    let columns: Vec<ArrayRef> = vec![Arc::new(keys.finish()), values];
    let entries =
        StructArray::try_new(fields.clone(), columns, None).map_err(|e| inner_null(&e))?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let map = MapArray::try_new(entry, offsets, entries, nulls.finish(), false);
    Ok(Arc::new(map.map_err(|e| inner_null(&e))?))
}

fn row(
    cells: &[Cell<'_>],
    data_type: &DataType,
    columns: &[Column],
    options: JsonOptions,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    let mut nulls = NullBufferBuilder::new(cells.len());
    for cell in cells {
        let value = cell.present();
        let is_object = value.is_some_and(Value::is_object);
        if let Some(value) = value.filter(|_| !is_object) {
            bad.add(cell.row, &value.to_string());
        }
        nulls.append(is_object);
    }
    let mut arrays = Vec::with_capacity(columns.len());
    for declared in columns {
        let inner: Vec<Cell<'_>> = cells
            .iter()
            .map(|cell| Cell {
                row: cell.row,
                value: cell.value.and_then(|value| value.get(&declared.name)),
            })
            .collect();
        arrays.push(column(&inner, &declared.column_type.data_type, options, bad)?);
    }
    let Arrow::Struct(fields) = data_type.arrow() else {
        return Err(Error::internal("ROW is not a struct"));
    };
    let array = StructArray::try_new(fields, arrays, nulls.finish());
    Ok(Arc::new(array.map_err(|e| inner_null(&e))?))
}
