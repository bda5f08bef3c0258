//! Writing batches as NDJSON.
//!
//! Numbers are JSON numbers, DECIMAL with its scale; what JSON has no number for (NaN, Infinity)
//! is a string, as are dates, times and timestamps in their text form, and bytes as Base64.

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, BooleanArray, RecordBatch, StringViewArray};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono_tz::Tz;
use thalweg_core::text::TextColumn;
use thalweg_core::{DataType, RowKind, TableSchema};

/// How values are written.
#[derive(Clone, Copy, Debug)]
pub struct JsonStyle {
    /// Where instants are shown.
    pub zone: Tz,
    /// True for files: instants in UTC with a `Z`, so that they can be read back.
    pub for_file: bool,
    /// True for a `T` between date and time.
    pub iso_timestamps: bool,
}

impl JsonStyle {
    /// Appends an object per row, and `end` after each. `kinds`, if given, is a first key `op`.
    pub fn rows(
        &self,
        out: &mut String,
        batch: &RecordBatch,
        schema: &TableSchema,
        kinds: Option<&[RowKind]>,
        mut end: impl FnMut(&mut String),
    ) {
        let columns: Vec<(String, JsonColumn<'_>)> = batch
            .columns()
            .iter()
            .zip(&schema.columns)
            .map(|(array, column)| {
                let data_type = &column.column_type.data_type;
                (key(&column.name), JsonColumn::new(array.as_ref(), data_type, *self))
            })
            .collect();
        for row in 0..batch.num_rows() {
            out.push('{');
            if let Some(kinds) = kinds {
                out.push_str("\"op\":\"");
                out.push_str(kinds[row].short());
                out.push('"');
                if !columns.is_empty() {
                    out.push(',');
                }
            }
            append_members(out, row, &columns);
            out.push('}');
            end(out);
        }
    }
}

/// `"name":`
fn key(name: &str) -> String {
    let mut key = String::new();
    append_string(&mut key, name);
    key.push(':');
    key
}

fn append_members(out: &mut String, row: usize, columns: &[(String, JsonColumn<'_>)]) {
    for (i, (key, column)) in columns.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(key);
        column.append(out, row);
    }
}

/// Appends a JSON string.
pub fn append_string(out: &mut String, text: &str) {
    out.push('"');
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
    out.push('"');
}

struct JsonColumn<'a> {
    text: TextColumn<'a>,
    form: Form<'a>,
}

enum Form<'a> {
    Number,
    /// A float, which may be no JSON number.
    Float,
    Boolean(&'a BooleanArray),
    Text(&'a StringViewArray),
    /// The text form in quotes; it never needs escaping.
    Quoted,
    Timestamp {
        iso: bool,
        is_utc_instant: bool,
    },
    Base64(&'a BinaryArray),
    Array(&'a [i32], Box<JsonColumn<'a>>),
    Map(&'a [i32], Box<JsonColumn<'a>>, Box<JsonColumn<'a>>),
    Row(Vec<(String, JsonColumn<'a>)>),
}

impl<'a> JsonColumn<'a> {
    fn new(array: &'a dyn Array, data_type: &DataType, style: JsonStyle) -> Self {
        let inner = |array: &'a dyn Array, data_type: &DataType| {
            Box::new(JsonColumn::new(array, data_type, style))
        };
        let form = match data_type {
            DataType::Float | DataType::Double => Form::Float,
            numeric if numeric.is_numeric() => Form::Number,
            DataType::Boolean => Form::Boolean(array.as_boolean()),
            DataType::Char(_) | DataType::Varchar(_) => Form::Text(array.as_string_view()),
            DataType::Timestamp(_) => {
                Form::Timestamp { iso: style.iso_timestamps, is_utc_instant: false }
            }
            DataType::TimestampLtz(_) => {
                Form::Timestamp { iso: style.iso_timestamps, is_utc_instant: style.for_file }
            }
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

    fn append(&self, out: &mut String, row: usize) {
        if self.text.is_null(row) {
            out.push_str("null");
            return;
        }
        match &self.form {
            Form::Number => self.text.append(out, row),
            Form::Float => self.append_float(out, row),
            Form::Boolean(array) => out.push_str(if array.value(row) { "true" } else { "false" }),
            Form::Text(array) => append_string(out, array.value(row)),
            Form::Quoted => {
                out.push('"');
                self.text.append(out, row);
                out.push('"');
            }
            Form::Timestamp { iso, is_utc_instant } => {
                self.append_timestamp(out, row, *iso, *is_utc_instant);
            }
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
                    values.append(out, at as usize);
                }
                out.push(']');
            }
            Form::Map(offsets, keys, values) => append_map(out, row, offsets, keys, values),
            Form::Row(members) => {
                out.push('{');
                append_members(out, row, members);
                out.push('}');
            }
        }
    }

    fn append_float(&self, out: &mut String, row: usize) {
        let start = out.len();
        self.text.append(out, row);
        if out.ends_with(['N', 'y']) {
            out.insert(start, '"');
            out.push('"');
        }
    }

    fn append_timestamp(&self, out: &mut String, row: usize, iso: bool, is_utc_instant: bool) {
        out.push('"');
        let start = out.len();
        self.text.append(out, row);
        if iso && let Some(at) = out[start..].find(' ') {
            out.replace_range(start + at..=start + at, "T");
        }
        out.push_str(if is_utc_instant { "Z\"" } else { "\"" });
    }
}

/// Keys of a JSON object are strings, so other keys show their text form.
fn append_map(
    out: &mut String,
    row: usize,
    offsets: &[i32],
    keys: &JsonColumn<'_>,
    values: &JsonColumn<'_>,
) {
    out.push('{');
    for at in offsets[row] as usize..offsets[row + 1] as usize {
        if at > offsets[row] as usize {
            out.push(',');
        }
        let mut name = String::new();
        keys.text.append(&mut name, at);
        append_string(out, &name);
        out.push(':');
        values.append(out, at);
    }
    out.push('}');
}
