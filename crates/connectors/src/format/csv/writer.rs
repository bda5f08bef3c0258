//! Writing batches as CSV text.
//!
//! Values take the text form of [`thalweg_core::text`]. Files are written so that the reader gets
//! the same values back: instants in UTC with a `Z`, bytes as Base64, arrays with the array
//! delimiter. Output for people shows them as the golden cases do.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, Decimal128Array, RecordBatch};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono_tz::Tz;
use thalweg_core::text::TextColumn;
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

use crate::format::json::writer::append_stripped;

/// How rows are written.
#[derive(Clone, Debug)]
pub struct CsvStyle {
    /// Between fields.
    pub delimiter: u8,
    /// Around fields that need it.
    pub quote: Option<u8>,
    /// Before a byte that would mean something.
    pub escape: Option<u8>,
    /// What stands for NULL.
    pub null_text: String,
    /// Where instants are shown.
    pub zone: Tz,
    /// For files, to be read back: the delimiter between the elements of an ARRAY.
    pub array_delimiter: Option<String>,
    /// A DECIMAL has no trailing zeros, and perhaps an exponent.
    pub scientific_decimals: bool,
}

impl CsvStyle {
    /// Comma and quotes, for people.
    pub fn shown(null_text: String, zone: Tz) -> Self {
        CsvStyle {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            null_text,
            zone,
            array_delimiter: None,
            scientific_decimals: false,
        }
    }

    /// Appends the column names.
    pub fn header<'n>(
        &self,
        out: &mut String,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<()> {
        for (i, name) in names.into_iter().enumerate() {
            if i > 0 {
                out.push(char::from(self.delimiter));
            }
            let start = out.len();
            out.push_str(name);
            self.protect(out, start)?;
        }
        out.push('\n');
        Ok(())
    }

    /// Appends the rows of a batch, `end` after each. `kinds`, if given, is a first column.
    pub fn rows(
        &self,
        out: &mut String,
        batch: &RecordBatch,
        schema: &TableSchema,
        kinds: Option<&[RowKind]>,
        mut end: impl FnMut(&mut String),
    ) -> Result<()> {
        let columns: Vec<CsvColumn<'_>> = batch
            .columns()
            .iter()
            .zip(&schema.columns)
            .map(|(array, column)| {
                CsvColumn::new(array.as_ref(), &column.column_type.data_type, self)
            })
            .collect();
        let is_single = columns.len() == 1 && kinds.is_none() && self.array_delimiter.is_some();
        for row in 0..batch.num_rows() {
            let line = out.len();
            if let Some(kinds) = kinds {
                out.push_str(kinds[row].short());
            }
            for (i, column) in columns.iter().enumerate() {
                if i > 0 || kinds.is_some() {
                    out.push(char::from(self.delimiter));
                }
                column.append(out, row, self)?;
            }
            if is_single && out.len() == line {
                // An empty line would be skipped when the file is read.
                let quote = self.quote.map(char::from);
                out.extend(quote.into_iter().chain(quote));
            }
            end(out);
        }
        Ok(())
    }

    /// Quotes or escapes what was appended from `start` on, if it needs that.
    fn protect(&self, out: &mut String, start: usize) -> Result<()> {
        let text = &out.as_bytes()[start..];
        let is_special = |byte: &u8| {
            *byte == self.delimiter
                || *byte == b'\n'
                || *byte == b'\r'
                || Some(*byte) == self.quote
                || Some(*byte) == self.escape
        };
        if !text.iter().any(is_special) && text.first() != Some(&b'#') {
            return Ok(());
        }
        let text = out.split_off(start);
        if self.quote.is_none() && self.escape.is_none() {
            return Err(Error::data(format!("'{text}' cannot be written without quotes"))
                .hint("leave quotes on, set 'csv.escape-character', or choose another delimiter"));
        }
        let (quote, escape) = (self.quote.map(char::from), self.escape.map(char::from));
        out.extend(quote);
        for c in text.chars() {
            if Some(c) == quote {
                out.extend(escape.or(quote));
            } else if Some(c) == escape {
                out.push(c);
            } else if quote.is_none() && c == char::from(self.delimiter) {
                out.extend(escape);
            } else if quote.is_none() && (c == '\n' || c == '\r') {
                out.extend(escape);
                out.push(if c == '\n' { 'n' } else { 'r' });
                continue;
            }
            out.push(c);
        }
        out.extend(quote);
        Ok(())
    }
}

struct CsvColumn<'a> {
    text: TextColumn<'a>,
    form: Form<'a>,
}

enum Form<'a> {
    /// Digits and the like, which never need quotes.
    Plain,
    /// Text that may need quotes.
    Protected,
    /// An instant in UTC.
    Instant,
    Base64(&'a BinaryArray),
    /// A DECIMAL of this scale, without trailing zeros.
    Stripped(&'a Decimal128Array, u8),
    Elements(&'a [i32], Box<CsvColumn<'a>>),
    /// The fields of a ROW.
    Fields(Vec<CsvColumn<'a>>),
}

impl<'a> CsvColumn<'a> {
    fn new(array: &'a dyn Array, data_type: &DataType, style: &CsvStyle) -> Self {
        let for_file = style.array_delimiter.is_some();
        let form = match data_type {
            DataType::TimestampLtz(_) if for_file => Form::Instant,
            DataType::Binary(_) | DataType::Varbinary(_) if for_file => {
                Form::Base64(array.as_binary())
            }
            DataType::Array(element) if for_file => {
                let list = array.as_list::<i32>();
                let values = CsvColumn::new(list.values().as_ref(), &element.data_type, style);
                Form::Elements(list.offsets(), Box::new(values))
            }
            DataType::Row(columns) if for_file => {
                let fields = array.as_struct().columns().iter().zip(columns);
                let field = |(array, column): (&'a ArrayRef, &Column)| {
                    CsvColumn::new(array.as_ref(), &column.column_type.data_type, style)
                };
                Form::Fields(fields.map(field).collect())
            }
            DataType::Decimal(_, scale) if style.scientific_decimals => {
                Form::Stripped(array.as_primitive(), *scale)
            }
            DataType::Boolean | DataType::Date => Form::Plain,
            numeric if numeric.is_numeric() => Form::Plain,
            _ => Form::Protected,
        };
        // An unusual delimiter may stand in a number.
        let is_usual = matches!(style.delimiter, b',' | b';' | b'\t' | b'|');
        let form = if matches!(form, Form::Plain) && !is_usual { Form::Protected } else { form };
        let zone = if for_file { Tz::UTC } else { style.zone };
        CsvColumn { text: TextColumn::new(array, data_type, zone), form }
    }

    fn append(&self, out: &mut String, row: usize, style: &CsvStyle) -> Result<()> {
        if self.text.is_null(row) {
            out.push_str(&style.null_text);
            return Ok(());
        }
        let start = out.len();
        self.append_plain(out, row, style);
        if matches!(self.form, Form::Plain) { Ok(()) } else { style.protect(out, start) }
    }

    fn append_plain(&self, out: &mut String, row: usize, style: &CsvStyle) {
        match &self.form {
            Form::Plain | Form::Protected => self.text.append(out, row),
            Form::Instant => {
                self.text.append(out, row);
                out.push('Z');
            }
            Form::Base64(array) => STANDARD.encode_string(array.value(row), out),
            Form::Stripped(array, scale) => append_stripped(out, array.value(row), *scale),
            Form::Elements(offsets, values) => {
                for at in offsets[row]..offsets[row + 1] {
                    values.append_part(out, (at as usize, at > offsets[row]), style);
                }
            }
            Form::Fields(fields) => {
                for (place, field) in fields.iter().enumerate() {
                    field.append_part(out, (row, place > 0), style);
                }
            }
        }
    }

    /// Appends an element of an array or a field of a ROW, with the delimiter in front of all but
    /// the first.
    fn append_part(&self, out: &mut String, (row, is_later): (usize, bool), style: &CsvStyle) {
        if is_later {
            out.push_str(style.array_delimiter.as_deref().unwrap_or(";"));
        }
        match self.text.is_null(row) {
            true => out.push_str(&style.null_text),
            false => self.append_plain(out, row, style),
        }
    }
}
