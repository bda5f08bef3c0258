//! From JSON text straight into columns.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow_array::builder::StringViewBuilder;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thalweg_core::text::{
    parse_boolean, parse_date, parse_decimal, parse_double, parse_float, parse_integer, parse_time,
    parse_timestamp, parse_timestamp_iso,
};
use thalweg_core::{Column, DataType};

use super::JsonOptions;
use super::parser::{Broken, Cursor, Scalar};
use super::writer::append_string;
use crate::format::bad_data::BadFields;
use crate::format::builder::{ColumnBuilder, Field, Values};

/// True if a value of this column can be bad.
pub fn can_be_bad(column: &Column, options: &JsonOptions) -> bool {
    let takes_any_value = matches!(
        column.column_type.data_type,
        DataType::Char(_) | DataType::Varchar(_) | DataType::Boolean
    );
    !takes_any_value || !column.column_type.nullable || options.fail_on_missing_field
}

/// True if JSON can hold values of this type.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::Variant => false,
        DataType::Array(element) => is_supported(&element.data_type),
        DataType::Map(key, value) => key.data_type.is_string() && is_supported(&value.data_type),
        DataType::Row(columns) => columns.iter().all(|c| is_supported(&c.column_type.data_type)),
        _ => true,
    }
}

/// Reads objects into fields.
pub struct Reader<'r, 't> {
    /// Where it is.
    pub cursor: Cursor<'t>,
    options: &'r JsonOptions,
    /// The columns of the record, for messages.
    columns: &'r [&'r Column],
    /// The row that is read.
    pub row: usize,
    /// The column of the record that is read.
    slot: usize,
    /// What could not be read.
    pub bad: &'r mut BadFields,
}

impl<'r, 't> Reader<'r, 't> {
    /// At the beginning of a record.
    pub fn new(
        text: &'t str,
        options: &'r JsonOptions,
        columns: &'r [&'r Column],
        bad: &'r mut BadFields,
    ) -> Self {
        Reader { cursor: Cursor::new(text), options, columns, row: 0, slot: 0, bad }
    }

    /// Reads an object, which must come next, into the columns of a record.
    pub fn record(&mut self, fields: &mut [Field]) -> Result<(), Broken> {
        self.object(fields, self.row, true)
    }

    /// Of keys that come twice the first one counts, as in Flink.
    fn object(&mut self, fields: &mut [Field], row: usize, is_top: bool) -> Result<(), Broken> {
        if self.cursor.peek() != b'{' {
            return Err(Broken);
        }
        let mut expected = 0;
        let mut has_next = self.cursor.first_part(b'}');
        while has_next {
            match self.key(fields, expected)? {
                Some(slot) if fields[slot].column.len() == row => {
                    if is_top {
                        self.slot = slot;
                    }
                    self.value(&mut fields[slot].column)?;
                    expected = slot + 1;
                }
                _ => self.cursor.skip()?,
            }
            has_next = self.cursor.next_part(b'}')?;
        }
        for (slot, field) in fields.iter_mut().enumerate() {
            if field.column.len() == row {
                if is_top {
                    self.slot = slot;
                }
                self.missing(field);
            }
        }
        Ok(())
    }

    /// The field of the key that comes next. Mostly it is the one behind the last.
    #[inline]
    fn key(&mut self, fields: &[Field], expected: usize) -> Result<Option<usize>, Broken> {
        if let Some(field) = fields.get(expected)
            && self.cursor.key_is(&field.name)
        {
            return Ok(Some(expected));
        }
        let key = self.cursor.key()?;
        Ok(fields.iter().position(|field| field.name == *key))
    }

    #[cold]
    fn missing(&mut self, field: &mut Field) {
        if self.options.fail_on_missing_field {
            self.report("the field is missing");
        }
        if let Some(missing) = &mut field.missing {
            missing.push(field.column.len());
        }
        self.null(&mut field.column);
    }

    fn report(&mut self, reason: &str) {
        self.bad.begin_at(self.slot, self.columns[self.slot]);
        self.bad.add_reason(self.row, reason);
    }

    /// A value without one, where the type may not allow that.
    fn null(&mut self, out: &mut ColumnBuilder) {
        if !out.is_nullable() {
            self.bad.begin_at(self.slot, self.columns[self.slot]);
            self.bad.refuse_part(self.row);
        }
        out.append_null();
    }

    /// The value that began at this place cannot be read.
    #[cold]
    fn unreadable(&mut self, out: &mut ColumnBuilder, from: usize) {
        self.bad.begin_at(self.slot, self.columns[self.slot]);
        self.bad.add(self.row, self.cursor.slice(from, self.cursor.at));
        self.null(out);
    }

    /// Reads the value that comes next.
    fn value(&mut self, out: &mut ColumnBuilder) -> Result<(), Broken> {
        if self.cursor.null()? {
            self.null(out);
            return Ok(());
        }
        let from = self.cursor.at;
        let is_read = match &mut out.values {
            Values::Text(values) => return text(&mut self.cursor, values),
            Values::Array(..) | Values::Map(..) | Values::Row(_) => return self.parts(out),
            Values::Boolean(values) => {
                let scalar = self.cursor.scalar()?;
                values.append(scalar.text().is_some_and(parse_boolean));
                true
            }
            Values::TinyInt(values) => push(values, self.integer()?),
            Values::SmallInt(values) => push(values, self.integer()?),
            Values::Int(values) | Values::Months(values) => push(values, self.integer()?),
            Values::BigInt(values) | Values::Millis(values) => push(values, self.integer()?),
            Values::Float(values) => push(values, self.parsed(parse_float)?),
            Values::Double(values) => push(values, self.parsed(parse_double)?),
            Values::Decimal(precision, scale, values) => {
                let parse = |text: &str| parse_decimal(text, *precision, *scale).ok().flatten();
                push(values, parsed(&mut self.cursor, parse)?)
            }
            Values::Bytes(values) => {
                let bytes = match self.cursor.scalar()? {
                    Scalar::String(text) => STANDARD.decode(text.as_bytes()).ok(),
                    _ => None,
                };
                bytes.map(|bytes| values.append_value(bytes)).is_some()
            }
            Values::Date(values) => push(values, self.parsed(parse_date)?),
            Values::Time(precision, values) => {
                push(values, parsed(&mut self.cursor, |text| parse_time(text, *precision))?)
            }
            Values::Timestamp(precision, is_instant, values) => {
                let parse = match self.options.iso_timestamps {
                    true => parse_timestamp_iso,
                    false => parse_timestamp,
                };
                let time = parsed(&mut self.cursor, |text| {
                    let text = if *is_instant { text.strip_suffix('Z')? } else { text };
                    parse(text, *precision)
                });
                push(values, time?)
            }
        };
        match (is_read, &out.values) {
            (true, Values::Bytes(_)) => {}
            (true, _) => out.appended(),
            (false, _) => self.unreadable(out, from),
        }
        Ok(())
    }

    fn parsed<V>(&mut self, parse: impl Fn(&str) -> Option<V>) -> Result<Option<V>, Broken> {
        parsed(&mut self.cursor, parse)
    }

    /// A number, its fraction cut off, or a string with a whole number.
    #[inline]
    fn integer<V: TryFrom<i64>>(&mut self) -> Result<Option<V>, Broken> {
        let whole = match self.cursor.short_integer() {
            Some(whole) => Some(whole),
            None => match self.cursor.scalar()? {
                Scalar::Number(text) => parse_integer(text).or_else(|| {
                    let number: f64 = text.parse().ok()?;
                    let fits = number.abs() < 9_223_372_036_854_775_808.0;
                    fits.then_some(number.trunc() as i64)
                }),
                scalar => scalar.text().and_then(parse_integer),
            },
        };
        Ok(whole.and_then(|whole| V::try_from(whole).ok()))
    }

    /// Reads a value that has parts.
    fn parts(&mut self, out: &mut ColumnBuilder) -> Result<(), Broken> {
        let from = self.cursor.at;
        let row = out.len();
        match (&mut out.values, self.cursor.peek()) {
            (Values::Array(ends, element), b'[') => {
                let mut has_next = self.cursor.first_part(b']');
                while has_next {
                    self.value(element)?;
                    has_next = self.cursor.next_part(b']')?;
                }
                ends.push(element.len());
            }
            (Values::Map(ends, key, value), b'{') => {
                self.map(key, value)?;
                ends.push(key.len());
            }
            (Values::Row(fields), b'{') => self.object(fields, row, false)?,
            _ => {
                self.cursor.skip()?;
                self.unreadable(out, from);
                return Ok(());
            }
        }
        out.appended();
        Ok(())
    }

    /// Reads the entries of a map. Of keys that come twice the last value counts, as in Flink.
    fn map(&mut self, key: &mut ColumnBuilder, value: &mut ColumnBuilder) -> Result<(), Broken> {
        let mut entries: Vec<(Cow<'t, str>, usize)> = Vec::new();
        let mut places: HashMap<Cow<'t, str>, usize> = HashMap::new();
        let mut has_next = self.cursor.first_part(b'}');
        while has_next {
            let name = self.cursor.key()?;
            let place = *places.entry(name.clone()).or_insert(entries.len());
            match entries.get_mut(place) {
                Some(entry) => entry.1 = self.cursor.at,
                None => entries.push((name, self.cursor.at)),
            }
            self.cursor.skip()?;
            has_next = self.cursor.next_part(b'}')?;
        }
        let end = self.cursor.at;
        for (name, at) in entries {
            if let Values::Text(keys) = &mut key.values {
                keys.append_value(name);
            }
            self.cursor.at = at;
            self.value(value)?;
        }
        self.cursor.at = end;
        Ok(())
    }
}

/// The value of a string, number or boolean that comes next.
#[inline]
fn parsed<V>(
    cursor: &mut Cursor<'_>,
    parse: impl Fn(&str) -> Option<V>,
) -> Result<Option<V>, Broken> {
    let scalar = cursor.scalar()?;
    Ok(scalar.text().and_then(parse))
}

/// Appends a value, if there is one.
#[inline]
fn push<V>(values: &mut Vec<V>, value: Option<V>) -> bool {
    value.map(|value| values.push(value)).is_some()
}

/// The text of a value: what a string holds, and anything else as it is written, without blanks.
#[inline]
fn text(cursor: &mut Cursor<'_>, out: &mut StringViewBuilder) -> Result<(), Broken> {
    let from = cursor.at;
    match cursor.scalar()? {
        Scalar::Parts => {
            let written = cursor.slice(from, cursor.at);
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text);
            let parts = match parse(written) {
                Ok(parts) => parts,
                Err(_) => parse(&as_specified(written)?).map_err(|_| Broken)?,
            };
            out.append_value(parts.to_string());
        }
        scalar => out.append_value(scalar.text().unwrap_or_default()),
    }
    Ok(())
}

/// JSON that was passed over, with its strings as RFC 8259 has them: without control characters,
/// and without halves of characters.
#[cold]
fn as_specified(written: &str) -> Result<String, Broken> {
    let (mut out, mut cursor) = (String::with_capacity(written.len()), Cursor::new(written));
    while !cursor.is_at_end() {
        let from = cursor.at;
        match memchr::memchr(b'"', &written.as_bytes()[from..]) {
            None => cursor.at = written.len(),
            Some(at) => cursor.at = from + at,
        }
        out.push_str(cursor.slice(from, cursor.at));
        if !cursor.is_at_end() {
            append_string(&mut out, &cursor.string()?);
        }
    }
    Ok(out)
}
