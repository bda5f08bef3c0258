//! From fields to typed columns, one column at a time.
//!
//! What each type takes is Flink's: integers and floats with spaces around them, DECIMAL without;
//! `true` in any case is TRUE and everything else FALSE; an instant ends in `Z`; bytes are Base64.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType,
};
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thalweg_core::text::{
    parse_boolean, parse_date, parse_decimal, parse_double, parse_float, parse_integer, parse_time,
    parse_timestamp,
};
use thalweg_core::types::timestamps;
use thalweg_core::{Column, DataType, Error, Result};

use super::{CsvOptions, FoundRecords};
use crate::format::bad_data::BadFields;

/// True if a field of this column can be bad.
pub fn can_be_bad(column: &Column, options: &CsvOptions) -> bool {
    let takes_any_text = matches!(
        column.column_type.data_type,
        DataType::Char(_) | DataType::Varchar(_) | DataType::Boolean
    );
    let has_nulls = options.null_literal.is_some() || options.reading.has_empty_nulls;
    !takes_any_text || (!column.column_type.nullable && has_nulls)
}

/// True if CSV can hold values of this type.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Array(element) => is_scalar(&element.data_type),
        DataType::Row(columns) => columns.iter().all(|c| is_scalar(&c.column_type.data_type)),
        other => is_scalar(other),
    }
}

fn is_scalar(data_type: &DataType) -> bool {
    !matches!(
        data_type,
        DataType::Null
            | DataType::Variant
            | DataType::Array(_)
            | DataType::Map(..)
            | DataType::Row(_)
            | DataType::IntervalYearMonth
            | DataType::IntervalDayTime
    )
}

/// Reads one column of all records.
pub fn column(
    text: &str,
    records: &FoundRecords<'_>,
    position: usize,
    declared: &Column,
    options: &CsvOptions,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    let rows = records.rows();
    let null_literal = options.null_literal.as_deref();
    let has_empty_nulls = options.reading.has_empty_nulls;
    let is_null =
        |value: &str| null_literal == Some(value) || (has_empty_nulls && value.is_empty());
    let data_type = &declared.column_type.data_type;
    let delimiter = &options.array_delimiter;
    match records {
        FoundRecords::Plain(records) => {
            let field = |row: usize| {
                let value = records.value(row, position);
                if is_null(&value) { None } else { Some(value) }
            };
            typed(data_type, delimiter, rows, field, bad)
        }
        FoundRecords::Walked(records) => {
            let width = records.fields.len().checked_div(rows).unwrap_or(0);
            let field = |row: usize| {
                let field = records.fields[row * width + position];
                if field.is_missing() {
                    return None;
                }
                let value = field.text(text, &options.dialect);
                if is_null(&value) { None } else { Some(value) }
            };
            typed(data_type, delimiter, rows, field, bad)
        }
    }
}

/// A column of one of the types that CSV can hold.
fn typed<'a>(
    data_type: &DataType,
    delimiter: &str,
    rows: usize,
    field: impl Fn(usize) -> Option<Cow<'a, str>>,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    match data_type {
        DataType::Array(element) => {
            array(&element.data_type, data_type, delimiter, rows, &field, bad)
        }
        DataType::Row(columns) => row_values(columns, data_type, (delimiter, rows), &field, bad),
        scalar_type => scalar(scalar_type, rows, field, &mut |row, text| bad.add(row, text)),
    }
}

/// One value from its text; `None` if it is no value of the type.
///
/// # Errors
/// If values of this type have no text.
pub fn one(data_type: &DataType, text: Option<&str>) -> Result<Option<ArrayRef>> {
    let mut is_bad = false;
    let field: Field<'_, '_> = &|_| text.map(Cow::Borrowed);
    let value = scalar(data_type, 1, field, &mut |_, _| is_bad = true)?;
    Ok((!is_bad).then_some(value))
}

/// A field by its row, where a call for each costs little next to the rest: the loops of columns
/// are long code, which is compiled for each kind of field.
type Field<'f, 'a> = &'f dyn Fn(usize) -> Option<Cow<'a, str>>;

/// Reads arrays: elements between delimiters.
fn array(
    element: &DataType,
    list: &DataType,
    delimiter: &str,
    rows: usize,
    field: Field<'_, '_>,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    let mut elements: Vec<(usize, String)> = Vec::new();
    let mut lengths = Vec::with_capacity(rows);
    let mut nulls = NullBufferBuilder::new(rows);
    for row in 0..rows {
        let before = elements.len();
        let value = field(row);
        nulls.append(value.is_some());
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            elements.extend(value.split(delimiter).map(|text| (row, text.to_string())));
        }
        lengths.push(elements.len() - before);
    }
    let text: Field<'_, '_> = &|i| Some(Cow::Borrowed(elements[i].1.as_str()));
    let mut note = |i: usize, text: &str| bad.add(elements[i].0, text);
    let values = scalar(element, elements.len(), text, &mut note)?;
    let arrow_schema::DataType::List(item) = list.arrow() else {
        return Err(Error::internal("ARRAY is not a list"));
    };
    let offsets = OffsetBuffer::from_lengths(lengths);
    let list = ListArray::try_new(item, offsets, values, nulls.finish());
    Ok(Arc::new(list.map_err(|_| Error::data("an array has an element that is NULL"))?))
}

/// Reads ROWs: fields between delimiters, by their places. What is left over is dropped, as in
/// Flink; a ROW with too few fields cannot be read.
fn row_values(
    columns: &[Column],
    data_type: &DataType,
    (delimiter, rows): (&str, usize),
    field: Field<'_, '_>,
    bad: &mut BadFields,
) -> Result<ArrayRef> {
    let mut parts: Vec<Vec<Option<String>>> = vec![Vec::with_capacity(rows); columns.len()];
    let mut nulls = NullBufferBuilder::new(rows);
    for row in 0..rows {
        let value = field(row).filter(|value| !value.is_empty());
        nulls.append(value.is_some());
        let mut texts = value.as_deref().map(|value| value.split(delimiter));
        for part in &mut parts {
            part.push(texts.as_mut().and_then(Iterator::next).map(str::to_owned));
        }
        if let (Some(value), Some(None)) = (&value, parts.last().and_then(|part| part.last())) {
            bad.add(row, value);
        }
    }
    let values = columns.iter().zip(&parts).map(|(column, part)| {
        let text: Field<'_, '_> = &|row| part[row].as_deref().map(Cow::Borrowed);
        scalar(&column.column_type.data_type, rows, text, &mut |row, text| bad.add(row, text))
    });
    let values = values.collect::<Result<Vec<ArrayRef>>>()?;
    let arrow_schema::DataType::Struct(fields) = data_type.arrow() else {
        return Err(Error::internal("ROW is not a struct"));
    };
    let made = StructArray::try_new(fields, values, nulls.finish());
    Ok(Arc::new(made.map_err(|_| Error::data("a ROW has a field that is NULL"))?))
}

/// Called with each value that cannot be read: its row and text.
type Note<'n> = &'n mut dyn FnMut(usize, &str);

fn scalar<'a>(
    data_type: &DataType,
    rows: usize,
    text: impl Fn(usize) -> Option<Cow<'a, str>>,
    note: Note<'_>,
) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Char(_) | DataType::Varchar(_) => {
            let mut builder = StringViewBuilder::with_capacity(rows);
            for row in 0..rows {
                builder.append_option(text(row));
            }
            Arc::new(builder.finish())
        }
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(rows);
            for row in 0..rows {
                builder.append_option(text(row).map(|text| parse_boolean(&text)));
            }
            Arc::new(builder.finish())
        }
        DataType::TinyInt => integer::<Int8Type>(rows, text, note),
        DataType::SmallInt => integer::<Int16Type>(rows, text, note),
        DataType::Int => integer::<Int32Type>(rows, text, note),
        DataType::BigInt => integer::<Int64Type>(rows, text, note),
        DataType::Float => primitive::<Float32Type>(rows, text, note, parse_float),
        DataType::Double => primitive::<Float64Type>(rows, text, note, parse_double),
        DataType::Decimal(precision, scale) => {
            // Out of range is no value either; where bad fields are NULL that is Flink's answer.
            let parse = |text: &str| parse_decimal(text, *precision, *scale).ok().flatten();
            let array = primitive_builder::<Decimal128Type>(rows, text, note, parse).finish();
            Arc::new(array.with_precision_and_scale(*precision, *scale as i8)?)
        }
        DataType::Binary(_) | DataType::Varbinary(_) => binary(rows, text, note),
        DataType::Date => primitive::<Date32Type>(rows, text, note, parse_date),
        DataType::Time(precision) => {
            let parse = |text: &str| parse_time(text, *precision);
            primitive::<Time32MillisecondType>(rows, text, note, parse)
        }
        DataType::Timestamp(precision) => {
            let parse = |text: &str| parse_timestamp(text, *precision);
            timestamps(&primitive_builder(rows, text, note, parse).finish(), *precision, false)
        }
        DataType::TimestampLtz(precision) => {
            let parse =
                |text: &str| parse_timestamp(text.trim_end().strip_suffix('Z')?, *precision);
            timestamps(&primitive_builder(rows, text, note, parse).finish(), *precision, true)
        }
        other => return Err(Error::unsupported(format!("CSV cannot hold values of type {other}"))),
    })
}

fn primitive_builder<'a, T: ArrowPrimitiveType>(
    rows: usize,
    text: impl Fn(usize) -> Option<Cow<'a, str>>,
    note: Note<'_>,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> PrimitiveBuilder<T> {
    let mut builder = PrimitiveBuilder::<T>::with_capacity(rows);
    for row in 0..rows {
        let Some(text) = text(row) else {
            builder.append_null();
            continue;
        };
        let value = parse(&text);
        builder.append_option(value);
        if value.is_none() {
            note(row, &text);
        }
    }
    builder
}

fn primitive<'a, T: ArrowPrimitiveType>(
    rows: usize,
    text: impl Fn(usize) -> Option<Cow<'a, str>>,
    note: Note<'_>,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> ArrayRef {
    Arc::new(primitive_builder::<T>(rows, text, note, parse).finish())
}

fn integer<'a, T: ArrowPrimitiveType>(
    rows: usize,
    text: impl Fn(usize) -> Option<Cow<'a, str>>,
    note: Note<'_>,
) -> ArrayRef
where
    T::Native: TryFrom<i64>,
{
    let parse = |text: &str| T::Native::try_from(parse_integer(text)?).ok();
    primitive::<T>(rows, text, note, parse)
}

fn binary<'a>(
    rows: usize,
    text: impl Fn(usize) -> Option<Cow<'a, str>>,
    note: Note<'_>,
) -> ArrayRef {
    let mut builder = BinaryBuilder::with_capacity(rows, rows * 8);
    for row in 0..rows {
        let Some(text) = text(row) else {
            builder.append_null();
            continue;
        };
        match STANDARD.decode(text.as_bytes()) {
            Ok(bytes) => builder.append_value(bytes),
            Err(_) => {
                builder.append_null();
                note(row, &text);
            }
        }
    }
    Arc::new(builder.finish())
}
