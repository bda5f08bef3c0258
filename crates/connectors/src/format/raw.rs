//! Raw: a record is the value of one column, without anything around it.
//!
//! Texts are in a character set, numbers are as many bytes as their type has, in one of two orders.
//! A message that is missing is NULL, and one of no bytes is the empty text. A line of a file is a
//! record as well; there only texts and bytes make sense, and none with a line feed is written.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow_array::{Array, RecordBatch};
use memchr::memchr;
use thalweg_core::{Column, DataType, Error, Result};

use super::bad_data::{BadFields, DecodeError};
use super::builder::{self, ColumnBuilder, Values};
use super::records::{DecodedRecords, FoundRecords, RecordLayout, finish};
use super::text::{NOT_UTF8, TextBlock};

/// How values are read and written.
#[derive(Clone, Debug, Default)]
pub struct RawOptions {
    /// How texts are encoded.
    pub charset: Charset,
    /// True if the first byte of a number is its lowest.
    pub is_little_endian: bool,
}

/// How texts are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8.
    #[default]
    Utf8,
    /// One byte for each of the first 256 characters.
    Latin1,
    /// One byte for each of the first 128 characters.
    Ascii,
}

impl Charset {
    /// The names that `raw.charset` takes.
    pub const NAMES: [(&'static str, Charset); 3] =
        [("UTF-8", Charset::Utf8), ("ISO-8859-1", Charset::Latin1), ("US-ASCII", Charset::Ascii)];
}

/// True if a value of this type can be a record.
pub fn is_supported(data_type: &DataType) -> bool {
    use DataType::{
        BigInt, Binary, Boolean, Char, Double, Float, Int, SmallInt, TinyInt, Varbinary, Varchar,
    };
    matches!(
        data_type,
        Boolean
            | TinyInt
            | SmallInt
            | Int
            | BigInt
            | Float
            | Double
            | Char(_)
            | Varchar(_)
            | Binary(_)
            | Varbinary(_)
    )
}

/// Decodes a block.
pub(super) fn decode(
    options: &RawOptions,
    layout: &RecordLayout,
    block: &TextBlock<'_>,
) -> Result<DecodedRecords, DecodeError> {
    let columns: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
    let mut fields = builder::record(columns.iter().copied())?;
    let mut found = FoundRecords { records: Vec::new(), broken: None, error: bad_record };
    let mut bad = BadFields::new(layout.policy);
    for (number, record) in block.records() {
        let row = found.records.len();
        for (slot, field) in fields.iter_mut().enumerate() {
            let Some(bytes) = record else {
                field.column.append_null();
                continue;
            };
            if let Err(reason) = read(options, bytes, &mut field.column) {
                field.column.append_null();
                bad.begin_at(slot, columns[slot]);
                bad.add_reason(row, &reason);
            }
        }
        found.records.push((number, record.unwrap_or_default()));
    }
    let columns = builder::finish(fields, &columns, &mut bad)?;
    finish(layout, block, &mut found, columns, bad, Vec::new())
}

fn bad_record(reason: &str, number: u64) -> DecodeError {
    let hint = "correct the record or the column's type, or set 'bad-data' = 'drop' or \
                'dead-letter'";
    DecodeError::at(Error::data(reason).hint(hint), number)
}

/// Appends the value that these bytes are.
fn read(options: &RawOptions, bytes: &[u8], out: &mut ColumnBuilder) -> Result<(), String> {
    let is_little = options.is_little_endian;
    match &mut out.values {
        Values::Text(values) => {
            match options.charset {
                Charset::Utf8 => {
                    values.append_value(std::str::from_utf8(bytes).map_err(|_| NOT_UTF8)?);
                }
                Charset::Latin1 => {
                    values.append_value(bytes.iter().map(|b| char::from(*b)).collect::<String>());
                }
                Charset::Ascii if bytes.is_ascii() => {
                    values.append_value(String::from_utf8_lossy(bytes));
                }
                Charset::Ascii => return Err("the text is not ASCII".to_owned()),
            }
            return Ok(());
        }
        Values::Bytes(values) => {
            values.append_value(bytes);
            return Ok(());
        }
        Values::Boolean(values) => values.append(number::<1>(bytes, false)?[0] != 0),
        Values::TinyInt(values) => values.push(i8::from_be_bytes(number(bytes, is_little)?)),
        Values::SmallInt(values) => values.push(i16::from_be_bytes(number(bytes, is_little)?)),
        Values::Int(values) => values.push(i32::from_be_bytes(number(bytes, is_little)?)),
        Values::BigInt(values) => values.push(i64::from_be_bytes(number(bytes, is_little)?)),
        Values::Float(values) => values.push(f32::from_be_bytes(number(bytes, is_little)?)),
        Values::Double(values) => values.push(f64::from_be_bytes(number(bytes, is_little)?)),
        _ => return Err("format 'raw' has no such values".to_owned()),
    }
    out.appended();
    Ok(())
}

/// The bytes of a number, highest first.
fn number<const N: usize>(bytes: &[u8], is_little: bool) -> Result<[u8; N], String> {
    let found: Option<[u8; N]> = bytes.try_into().ok();
    let mut bytes = found.ok_or_else(|| {
        format!("{} bytes were found, but values of the type have {N}", bytes.len())
    })?;
    if is_little {
        bytes.reverse();
    }
    Ok(bytes)
}

/// Appends the record of each row; gives `end` each, and whether it is NULL.
///
/// # Errors
/// If a text cannot be written in the character set.
pub(super) fn write(
    options: &RawOptions,
    out: &mut Vec<u8>,
    batch: &RecordBatch,
    mut end: impl FnMut(&mut Vec<u8>, bool) -> Result<()>,
) -> Result<()> {
    let Some(values) = batch.columns().first() else {
        return Err(Error::internal("a raw record of no column"));
    };
    for row in 0..values.len() {
        let is_null = values.is_null(row);
        if !is_null {
            write_value(options, out, values.as_ref(), row)?;
        }
        end(out, is_null)?;
    }
    Ok(())
}

fn write_value(
    options: &RawOptions,
    out: &mut Vec<u8>,
    values: &dyn Array,
    row: usize,
) -> Result<()> {
    use arrow_schema::DataType as Arrow;
    fn native<T: ArrowPrimitiveType>(values: &dyn Array, row: usize) -> T::Native {
        values.as_primitive::<T>().value(row)
    }
    let start = out.len();
    match values.data_type() {
        Arrow::Utf8View => write_text(options, out, values.as_string_view().value(row))?,
        Arrow::Binary => out.extend_from_slice(values.as_binary::<i32>().value(row)),
        Arrow::Boolean => out.push(u8::from(values.as_boolean().value(row))),
        Arrow::Int8 => out.extend(native::<Int8Type>(values, row).to_be_bytes()),
        Arrow::Int16 => out.extend(native::<Int16Type>(values, row).to_be_bytes()),
        Arrow::Int32 => out.extend(native::<Int32Type>(values, row).to_be_bytes()),
        Arrow::Int64 => out.extend(native::<Int64Type>(values, row).to_be_bytes()),
        Arrow::Float32 => out.extend(native::<Float32Type>(values, row).to_be_bytes()),
        Arrow::Float64 => out.extend(native::<Float64Type>(values, row).to_be_bytes()),
        other => return Err(Error::internal(format!("format 'raw' cannot hold {other}"))),
    }
    let is_number = !matches!(values.data_type(), Arrow::Utf8View | Arrow::Binary);
    if options.is_little_endian && is_number {
        out[start..].reverse();
    }
    Ok(())
}

/// What the character set lacks is `?`, as where Java writes it.
fn write_text(options: &RawOptions, out: &mut Vec<u8>, text: &str) -> Result<()> {
    let last = match options.charset {
        Charset::Utf8 => {
            out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        Charset::Latin1 => 0xFF,
        Charset::Ascii => 0x7F,
    };
    let byte = |character: char| u8::try_from(character).ok().filter(|byte| *byte <= last);
    out.extend(text.chars().map(|character| byte(character).unwrap_or(b'?')));
    Ok(())
}

/// Refuses a record that lines cannot hold.
pub(super) fn check_line(line: &[u8]) -> Result<()> {
    match memchr(b'\n', line) {
        None => Ok(()),
        Some(_) => Err(Error::data("a raw record has a line feed, which would end its line")
            .hint("write it in format 'csv' or 'json'")),
    }
}
