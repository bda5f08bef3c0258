//! Columns to text for the server, which takes each for a value of the column that it goes to.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use chrono_tz::Tz;
use thalweg_core::text::TextColumn;
use thalweg_core::{DataType, TableSchema};

/// The columns of a batch, ready to be written.
pub struct TextRows<'a>(Vec<ServerText<'a>>);

enum ServerText<'a> {
    /// Values whose text the server reads as it is.
    Plain(TextColumn<'a>),
    /// Hexadecimal digits.
    Bytes(&'a BinaryArray),
    /// Instants in UTC.
    Instant(TextColumn<'a>),
    /// `{"a",NULL}`
    List(&'a dyn Array, &'a OffsetBuffer<i32>, Box<ServerText<'a>>),
}

impl<'a> TextRows<'a> {
    /// The rows of a batch with these columns.
    pub fn new(batch: &'a RecordBatch, columns: &TableSchema) -> Self {
        let types = columns.columns.iter().map(|column| &column.column_type.data_type);
        TextRows(batch.columns().iter().zip(types).map(|(array, of)| text(array, of)).collect())
    }

    /// The values of a row.
    pub fn row(&self, row: usize) -> Vec<Option<String>> {
        self.0.iter().map(|column| column.text(row)).collect()
    }
}

fn text<'a>(array: &'a ArrayRef, of: &DataType) -> ServerText<'a> {
    match of {
        DataType::Binary(_) | DataType::Varbinary(_) => ServerText::Bytes(array.as_binary()),
        DataType::TimestampLtz(_) => ServerText::Instant(TextColumn::new(array, of, Tz::UTC)),
        DataType::Array(element) => {
            let list = array.as_list::<i32>();
            let values = text(list.values(), &element.data_type);
            ServerText::List(array, list.offsets(), Box::new(values))
        }
        of => ServerText::Plain(TextColumn::new(array, of, Tz::UTC)),
    }
}

impl ServerText<'_> {
    /// A value; `None` for NULL.
    fn text(&self, row: usize) -> Option<String> {
        let mut text = String::new();
        self.append(&mut text, row).then_some(text)
    }

    /// Appends a value; false if it is NULL.
    fn append(&self, out: &mut String, row: usize) -> bool {
        match self {
            ServerText::Plain(column) if !column.is_null(row) => column.append(out, row),
            ServerText::Instant(column) if !column.is_null(row) => {
                column.append(out, row);
                out.push_str("+00");
            }
            ServerText::Bytes(array) if array.is_valid(row) => {
                out.push_str("\\x");
                for byte in array.value(row) {
                    write!(out, "{byte:02x}").expect("a text takes everything");
                }
            }
            ServerText::List(array, offsets, values) if array.is_valid(row) => {
                let places = offsets[row] as usize..offsets[row + 1] as usize;
                append_array(out, places.map(|place| values.text(place)));
            }
            _ => return false,
        }
        true
    }
}

/// Appends an array: each element in quotes, or NULL.
fn append_array(out: &mut String, elements: impl Iterator<Item = Option<String>>) {
    out.push('{');
    for (number, element) in elements.enumerate() {
        if number > 0 {
            out.push(',');
        }
        let Some(element) = element else {
            out.push_str("NULL");
            continue;
        };
        out.push('"');
        for c in element.chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
        out.push('"');
    }
    out.push('}');
}

/// Appends a row in the text form of `COPY`.
pub fn append_copy_line(out: &mut String, values: &[Option<String>]) {
    for (number, value) in values.iter().enumerate() {
        if number > 0 {
            out.push('\t');
        }
        let Some(value) = value else {
            out.push_str("\\N");
            continue;
        };
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                c => out.push(c),
            }
        }
    }
    out.push('\n');
}

/// A row as one value of the type `text[]`.
pub fn array_text(values: &[Option<String>]) -> String {
    let mut out = String::new();
    append_array(&mut out, values.iter().cloned());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::decode::RowBuilder;
    use thalweg_core::Column;

    #[test]
    fn what_is_written_reads_back() {
        let array = DataType::Array(Box::new(DataType::STRING.nullable()));
        let types = [
            (DataType::STRING, "a\tb\\'\""),
            (DataType::BYTES, "\\x0aff"),
            (DataType::TimestampLtz(6), "2024-01-02 03:04:05.000006+00"),
            (DataType::Decimal(10, 2), "-12.30"),
            (array, "{\"a\\\"b\",NULL,\"\"}"),
            (DataType::Date, "2024-02-29"),
        ];
        let columns = types.iter().map(|(of, _)| Column::new("c", of.clone().nullable()));
        let schema = TableSchema::new(columns.collect());
        let mut builder = RowBuilder::new(&schema);
        builder.append(types.iter().map(|(_, text)| Some(text.as_bytes()))).expect("fits");
        builder.append(types.iter().map(|_| None)).expect("NULLs");
        let batch = builder.finish().expect("a batch");
        let rows = TextRows::new(&batch, &schema);
        let expected: Vec<Option<String>> =
            types.iter().map(|(_, text)| Some((*text).to_owned())).collect();
        assert_eq!(rows.row(0), expected);
        assert_eq!(rows.row(1), vec![None; types.len()]);
        let mut line = String::new();
        append_copy_line(&mut line, &rows.row(0)[..2]);
        assert_eq!(line, "a\\tb\\\\'\"\t\\\\x0aff\n");
        assert_eq!(array_text(&[None, Some("a\"\\".to_owned())]), "{NULL,\"a\\\"\\\\\"}");
    }
}
