//! Writing batches as JSON objects.
//!
//! Numbers are JSON numbers; what JSON has no number for (NaN, Infinity) is a string, as are
//! dates, times and timestamps in their text form, and bytes as Base64. Shown to people, a value
//! has all digits of its type. In files and messages it is as Flink writes it: a DECIMAL without
//! trailing zeros, perhaps with an exponent, a time with as many fraction digits as it needs, and
//! characters beyond 16 bits as two escapes.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, BinaryArray, BooleanArray, Decimal128Array, DurationMillisecondArray,
    IntervalYearMonthArray, RecordBatch, StringViewArray,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono_tz::Tz;
use thalweg_core::text::{TextColumn, append_decimal, append_integer};
use thalweg_core::{DataType, Error, Result, RowKind, TableSchema};

use super::{JsonOptions, NullKeys};

/// How values are written.
#[derive(Clone, Debug)]
pub struct JsonStyle {
    /// Where instants are shown.
    zone: Tz,
    /// True for files and messages: as Flink writes them; instants in UTC with a `Z`.
    for_file: bool,
    options: JsonOptions,
}

/// Columns that are ready to be written as the members of objects.
pub struct JsonRows<'a> {
    members: Vec<(String, JsonColumn<'a>)>,
    style: &'a JsonStyle,
}

impl<'a> JsonRows<'a> {
    /// Appends the object of a row.
    ///
    /// # Errors
    /// If a key of a MAP is NULL and that is not allowed.
    pub fn append(&self, out: &mut String, row: usize) -> Result<()> {
        out.push('{');
        self.append_members(out, row)?;
        out.push('}');
        Ok(())
    }

    /// Appends the values of a row as an array.
    ///
    /// # Errors
    /// If a key of a MAP is NULL and that is not allowed.
    pub fn append_array(&self, out: &mut String, row: usize) -> Result<()> {
        out.push('[');
        for (place, (_, column)) in self.members.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            column.append(out, row, self.style)?;
        }
        out.push(']');
        Ok(())
    }

    fn append_members(&self, out: &mut String, row: usize) -> Result<()> {
        append_members(out, row, &self.members, self.style)
    }
}

impl JsonStyle {
    /// For people, who see instants in this zone.
    pub fn shown(zone: Tz) -> Self {
        JsonStyle { zone, for_file: false, options: JsonOptions::default() }
    }

    /// For files and messages.
    pub fn written(options: &JsonOptions) -> Self {
        JsonStyle { zone: Tz::UTC, for_file: true, options: options.clone() }
    }

    /// The rows of a batch.
    pub fn columns<'a>(&'a self, batch: &'a RecordBatch, schema: &TableSchema) -> JsonRows<'a> {
        let members = batch.columns().iter().zip(&schema.columns).map(|(array, column)| {
            let data_type = &column.column_type.data_type;
            (key(&column.name), JsonColumn::new(array.as_ref(), data_type, self))
        });
        JsonRows { members: members.collect(), style: self }
    }

    /// Appends an object per row, and `end` after each. `kinds`, if given, is a first key `op`.
    ///
    /// # Errors
    /// As [`JsonRows::append`].
    pub fn rows(
        &self,
        out: &mut String,
        batch: &RecordBatch,
        schema: &TableSchema,
        kinds: Option<&[RowKind]>,
        mut end: impl FnMut(&mut String),
    ) -> Result<()> {
        let rows = self.columns(batch, schema);
        for row in 0..batch.num_rows() {
            out.push('{');
            if let Some(kinds) = kinds {
                out.push_str("\"op\":\"");
                out.push_str(kinds[row].short());
                out.push('"');
                if !rows.members.is_empty() {
                    out.push(',');
                }
            }
            rows.append_members(out, row)?;
            out.push('}');
            end(out);
        }
        Ok(())
    }
}

/// `"name":`
fn key(name: &str) -> String {
    let mut key = String::new();
    append_string(&mut key, name);
    key.push(':');
    key
}

fn append_members(
    out: &mut String,
    row: usize,
    columns: &[(String, JsonColumn<'_>)],
    style: &JsonStyle,
) -> Result<()> {
    let mut is_first = true;
    for (key, column) in columns {
        if style.options.ignore_null_fields && column.text.is_null(row) {
            continue;
        }
        if !is_first {
            out.push(',');
        }
        is_first = false;
        out.push_str(key);
        column.append(out, row, style)?;
    }
    Ok(())
}

/// Appends a JSON string as Java's Jackson does: what needs 32 bits is two escapes.
fn append_java_string(out: &mut String, text: &str) {
    if text.bytes().all(|byte| byte < 0xF0) {
        return append_string(out, text);
    }
    out.push('"');
    for character in text.chars() {
        if character < '\u{10000}' {
            append_escaped(out, character.encode_utf8(&mut [0; 4]));
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
    out.push('"');
}

/// Appends a JSON string.
pub fn append_string(out: &mut String, text: &str) {
    out.push('"');
    append_escaped(out, text);
    out.push('"');
}

fn append_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|b| b < b' ' || b == b'"' || b == b'\\') {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => out.push_str(&format!("\\u{control:04x}")),
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

struct JsonColumn<'a> {
    text: TextColumn<'a>,
    form: Form<'a>,
}

enum Form<'a> {
    Number,
    /// A DECIMAL as Java's `BigDecimal.stripTrailingZeros().toString()`, of this scale.
    Stripped(&'a Decimal128Array, u8),
    /// A float, which may be no JSON number.
    Float,
    Boolean(&'a BooleanArray),
    Text(&'a StringViewArray),
    /// An interval, as a number of its unit.
    Months(&'a IntervalYearMonthArray),
    Millis(&'a DurationMillisecondArray),
    /// The text form in quotes; it never needs escaping.
    Quoted,
    /// The same of a time of day, with as many fraction digits as it needs.
    Time,
    Timestamp {
        is_utc_instant: bool,
    },
    Base64(&'a BinaryArray),
    Array(&'a [i32], Box<JsonColumn<'a>>),
    Map(&'a [i32], Box<JsonColumn<'a>>, Box<JsonColumn<'a>>),
    Row(Vec<(String, JsonColumn<'a>)>),
}

impl<'a> JsonColumn<'a> {
    fn new(array: &'a dyn Array, data_type: &DataType, style: &JsonStyle) -> Self {
        let inner = |array: &'a dyn Array, data_type: &DataType| {
            Box::new(JsonColumn::new(array, data_type, style))
        };
        let form = match data_type {
            DataType::Float | DataType::Double => Form::Float,
            DataType::Decimal(_, scale) if style.for_file && !style.options.plain_decimals => {
                Form::Stripped(array.as_primitive(), *scale)
            }
            DataType::Time(_) if style.for_file => Form::Time,
            DataType::IntervalYearMonth if style.for_file => Form::Months(array.as_primitive()),
            DataType::IntervalDayTime if style.for_file => Form::Millis(array.as_primitive()),
            numeric if numeric.is_numeric() => Form::Number,
            DataType::Boolean => Form::Boolean(array.as_boolean()),
            DataType::Char(_) | DataType::Varchar(_) | DataType::Variant => {
                Form::Text(array.as_string_view())
            }
            DataType::Timestamp(_) => Form::Timestamp { is_utc_instant: false },
            DataType::TimestampLtz(_) => Form::Timestamp { is_utc_instant: style.for_file },
            DataType::Binary(_) | DataType::Varbinary(_) => Form::Base64(array.as_binary()),
            DataType::Array(element) => {
                let list = array.as_list::<i32>();
                Form::Array(list.offsets(), inner(list.values().as_ref(), &element.data_type))
            }
            DataType::Map(key, value) => {
                let map = array.as_map();
                let keys = inner(map.keys().as_ref(), &key.data_type);
                Form::Map(map.offsets(), keys, inner(map.values().as_ref(), &value.data_type))
            }
            DataType::Row(columns) => {
                let arrays = array.as_struct().columns().iter().zip(columns);
                let member =
                    |(array, column): (&'a arrow_array::ArrayRef, &thalweg_core::Column)| {
                        let data_type = &column.column_type.data_type;
                        (key(&column.name), JsonColumn::new(array.as_ref(), data_type, style))
                    };
                Form::Row(arrays.map(member).collect())
            }
            _ => Form::Quoted,
        };
        let zone = if style.for_file { Tz::UTC } else { style.zone };
        JsonColumn { text: TextColumn::new(array, data_type, zone), form }
    }

    fn append(&self, out: &mut String, row: usize, style: &JsonStyle) -> Result<()> {
        if self.text.is_null(row) {
            out.push_str("null");
            return Ok(());
        }
        match &self.form {
            Form::Number => self.text.append(out, row),
            Form::Stripped(array, scale) => append_stripped(out, array.value(row), *scale),
            Form::Months(array) => append_integer(out, i64::from(array.value(row))),
            Form::Millis(array) => append_integer(out, array.value(row)),
            Form::Float => self.append_float(out, row),
            Form::Boolean(array) => out.push_str(if array.value(row) { "true" } else { "false" }),
            Form::Text(array) if style.for_file => append_java_string(out, array.value(row)),
            Form::Text(array) => append_string(out, array.value(row)),
            Form::Quoted => {
                out.push('"');
                self.text.append(out, row);
                out.push('"');
            }
            Form::Time | Form::Timestamp { .. } => self.append_time(out, row, style),
            Form::Base64(array) => {
                out.push('"');
                STANDARD.encode_string(array.value(row), out);
                out.push('"');
            }
            Form::Array(offsets, values) => {
                out.push('[');
                for at in offsets[row]..offsets[row + 1] {
                    if at > offsets[row] {
                        out.push(',');
                    }
                    values.append(out, at as usize, style)?;
                }
                out.push(']');
            }
            Form::Map(offsets, keys, values) => {
                append_map(out, (offsets[row], offsets[row + 1]), keys, values, style)?;
            }
            Form::Row(members) => {
                out.push('{');
                append_members(out, row, members, style)?;
                out.push('}');
            }
        }
        Ok(())
    }

    fn append_float(&self, out: &mut String, row: usize) {
        let start = out.len();
        self.text.append(out, row);
        if out.ends_with(['N', 'y']) {
            out.insert(start, '"');
            out.push('"');
        }
    }

    fn append_time(&self, out: &mut String, row: usize, style: &JsonStyle) {
        out.push('"');
        let start = out.len();
        self.text.append(out, row);
        if style.options.iso_timestamps
            && let Some(at) = out[start..].find(' ')
        {
            out.replace_range(start + at..=start + at, "T");
        }
        if style.for_file && out[start..].contains('.') {
            let needed = out[start..].trim_end_matches('0').trim_end_matches('.').len();
            out.truncate(start + needed);
        }
        let is_instant = matches!(self.form, Form::Timestamp { is_utc_instant: true });
        out.push_str(if is_instant { "Z\"" } else { "\"" });
    }
}

/// A number as Java's `BigDecimal.toString` writes it once trailing zeros are gone: with an
/// exponent where its scale is negative or it has more than five zeros behind the point.
pub fn append_stripped(out: &mut String, unscaled: i128, scale: u8) {
    if unscaled == 0 {
        return out.push('0');
    }
    let (mut unscaled, mut scale) = (unscaled, i32::from(scale));
    while unscaled % 10 == 0 {
        unscaled /= 10;
        scale -= 1;
    }
    let digits = unscaled.unsigned_abs().to_string();
    let exponent = digits.len() as i32 - 1 - scale;
    if scale >= 0 && exponent >= -6 {
        return append_decimal(out, unscaled, scale as u8);
    }
    out.push_str(if unscaled < 0 { "-" } else { "" });
    out.push_str(&digits[..1]);
    if digits.len() > 1 {
        out.push('.');
        out.push_str(&digits[1..]);
    }
    out.push_str(&format!("E{exponent:+}"));
}

/// Keys of a JSON object are strings, so other keys show their text form.
fn append_map(
    out: &mut String,
    (begin, end): (i32, i32),
    keys: &JsonColumn<'_>,
    values: &JsonColumn<'_>,
    style: &JsonStyle,
) -> Result<()> {
    out.push('{');
    let mut is_first = true;
    for at in begin as usize..end as usize {
        let mut name = String::new();
        match (keys.text.is_null(at), &style.options.null_keys) {
            (false, _) => keys.text.append(&mut name, at),
            (true, NullKeys::Literal(text)) => name.push_str(text),
            (true, NullKeys::Drop) => continue,
            (true, NullKeys::Fail) => return Err(null_key()),
        }
        if !is_first {
            out.push(',');
        }
        is_first = false;
        append_string(out, &name);
        out.push(':');
        values.append(out, at, style)?;
    }
    out.push('}');
    Ok(())
}

fn null_key() -> Error {
    Error::data("a key of a MAP is NULL, which JSON has no key for")
        .hint("leave such entries out, or replace the key: 'json.map-null-key.mode' = 'DROP' or 'LITERAL'")
}
