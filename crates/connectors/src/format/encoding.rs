//! From batches to bytes: text appended to a buffer, or an output with a footer.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringViewArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer};
use chrono_tz::Tz;
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

use super::Format;
use super::arrow::writer::ArrowWriter;
use super::avro::AvroEncoder;
use super::avro::file::AvroWriter;
use super::changes::{self, ChangeOptions};
use super::csv::writer::CsvStyle;
use super::json::writer::JsonStyle;
use super::parquet::writer::ParquetWriter;
use super::protobuf::ProtobufOptions;
use super::raw::{self, RawOptions};

/// The name of the column, or key, that says what a record does to its table.
pub const OP: &str = "op";

/// Writes rows as text, so that a decoder with the same options gets the same values back.
pub struct TextEncoder {
    style: TextStyle,
    schema: TableSchema,
}

enum TextStyle {
    Csv {
        style: CsvStyle,
        header: bool,
    },
    Json(JsonStyle),
    Raw(RawOptions),
    Changes(ChangeOptions, JsonStyle),
    /// With the columns of a record: those of the rows, or of the envelope around them.
    Avro {
        encoder: Result<AvroEncoder>,
        columns: TableSchema,
        is_envelope: bool,
    },
    Protobuf(ProtobufOptions),
}

impl TextEncoder {
    /// An encoder of rows with these columns; `None` if the format is not written record by
    /// record. What stands in the way of writing is said with the first rows.
    pub fn new(format: &Format, schema: TableSchema) -> Option<Self> {
        let style = match format {
            Format::Csv(options) => {
                let style = CsvStyle {
                    delimiter: options.dialect.delimiter,
                    quote: options.dialect.quote,
                    escape: options.dialect.escape,
                    null_text: options.null_literal.clone().unwrap_or_default(),
                    zone: Tz::UTC,
                    array_delimiter: Some(options.array_delimiter.clone()),
                    scientific_decimals: options.scientific_decimals,
                };
                TextStyle::Csv { style, header: options.header }
            }
            Format::Json(options) => TextStyle::Json(JsonStyle::written(options)),
            Format::Raw(options) => TextStyle::Raw(options.clone()),
            Format::Changes(ChangeOptions { avro: Some(options), .. }) => {
                let columns = changes::avro_envelope(&schema.columns);
                let encoder = AvroEncoder::new(options, &columns.columns);
                TextStyle::Avro { encoder, columns, is_envelope: true }
            }
            Format::Changes(options) => {
                TextStyle::Changes(options.clone(), JsonStyle::written(&options.json))
            }
            Format::Avro(options) => {
                let (encoder, columns) =
                    (AvroEncoder::new(options, &schema.columns), schema.clone());
                TextStyle::Avro { encoder, columns, is_envelope: false }
            }
            Format::Protobuf(options) => TextStyle::Protobuf(options.clone()),
            Format::Parquet(_) | Format::Orc | Format::Arrow => return None,
        };
        Some(TextEncoder { style, schema })
    }

    /// Appends what stands before the first record: the line of column names, if there is one.
    ///
    /// # Errors
    /// If a name cannot be written with these options.
    pub fn begin(&self, out: &mut String, has_kinds: bool) -> Result<()> {
        let TextStyle::Csv { style, header: true } = &self.style else { return Ok(()) };
        let names = self.schema.columns.iter().map(|column| column.name.as_str());
        style.header(out, has_kinds.then_some(OP).into_iter().chain(names))
    }

    /// Appends a line per row. `kinds`, if given, is a first column or key `op`; in a format of
    /// changes it is what each record says.
    ///
    /// # Errors
    /// If a value cannot be written with these options.
    pub fn lines(
        &self,
        out: &mut String,
        batch: &RecordBatch,
        kinds: Option<&[RowKind]>,
    ) -> Result<()> {
        let TextStyle::Raw(options) = &self.style else {
            return self.text(out, batch, kinds, |out| out.push('\n'));
        };
        let mut record = Vec::new();
        raw::write(options, &mut record, batch, |record, _| {
            raw::check_line(record)?;
            let text = std::str::from_utf8(record);
            out.push_str(text.map_err(|_| Error::data("a line of a file must be UTF-8"))?);
            out.push('\n');
            record.clear();
            Ok(())
        })
    }

    /// A message per row.
    ///
    /// # Errors
    /// If a value cannot be written with these options, or the messages are longer than 2 GiB.
    pub fn messages(&self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<BinaryArray> {
        let mut lengths = Vec::with_capacity(batch.num_rows());
        let (mut start, mut nulls) = (0, NullBufferBuilder::new(0));
        let mut end = |length: usize, is_null: bool| {
            lengths.push(length - start);
            nulls.append(!is_null);
            start = length;
        };
        let out = if let TextStyle::Raw(options) = &self.style {
            let mut out = Vec::new();
            raw::write(options, &mut out, batch, |out, is_null| {
                end(out.len(), is_null);
                Ok(())
            })?;
            out
        } else if let TextStyle::Avro { encoder, columns, is_envelope } = &self.style {
            let enveloped = match is_envelope {
                true => Some(changes::in_avro_envelope(batch, columns, kinds)?),
                false => None,
            };
            let batch = enveloped.as_ref().unwrap_or(batch);
            let mut out = Vec::new();
            let encoder = encoder.as_ref().map_err(Clone::clone)?;
            encoder.write(&mut out, batch, columns, |out| end(out.len(), false))?;
            out
        } else if let TextStyle::Protobuf(options) = &self.style {
            let (mut out, columns) = (Vec::new(), &self.schema.columns);
            options.write(&mut out, batch, columns, |out| end(out.len(), false))?;
            out
        } else {
            let mut out = String::new();
            self.text(&mut out, batch, kinds, |out| end(out.len(), false))?;
            out.into_bytes()
        };
        if i32::try_from(out.len()).is_err() {
            return Err(Error::resource("a batch of messages is longer than 2 GiB"));
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(BinaryArray::try_new(offsets, Buffer::from(out), nulls.finish())?)
    }

    /// Appends a record per row, and `end` after each.
    fn text(
        &self,
        out: &mut String,
        batch: &RecordBatch,
        kinds: Option<&[RowKind]>,
        end: impl FnMut(&mut String),
    ) -> Result<()> {
        let schema = &self.schema;
        match &self.style {
            TextStyle::Csv { style, .. } => style.rows(out, batch, schema, kinds, end),
            TextStyle::Json(style) => style.rows(out, batch, schema, kinds, end),
            TextStyle::Changes(options, style) => {
                changes::write(options, style, out, batch, schema, kinds, end)
            }
            TextStyle::Raw(_) | TextStyle::Avro { .. } | TextStyle::Protobuf(_) => {
                Err(Error::internal("the records of this format are no text"))
            }
        }
    }
}

/// Writes rows to an output that ends with a footer.
pub enum RowWriter<W: Write + Send> {
    /// Parquet.
    Parquet(ParquetWriter<W>),
    /// Arrow IPC.
    Arrow(ArrowWriter<W>),
    /// Avro.
    Avro(AvroWriter<W>),
}

impl<W: Write + Send> RowWriter<W> {
    /// Starts an output. `has_kinds` puts a column `op` in front of the columns.
    ///
    /// # Errors
    /// If it cannot be written, or the format is text.
    pub fn new(format: &Format, out: W, schema: &TableSchema, has_kinds: bool) -> Result<Self> {
        let op = has_kinds.then(|| Column::new(OP, DataType::STRING.not_null()));
        let columns = op.into_iter().chain(schema.columns.iter().cloned()).collect();
        let columns = TableSchema::new(columns);
        let schema = columns.arrow();
        match format {
            Format::Avro(options) => Ok(RowWriter::Avro(AvroWriter::new(options, out, columns)?)),
            Format::Parquet(options) => {
                Ok(RowWriter::Parquet(ParquetWriter::new(options, out, schema)?))
            }
            Format::Arrow => Ok(RowWriter::Arrow(ArrowWriter::new(out, schema)?)),
            _ => Err(Error::internal("a text has no footer")),
        }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let op = kinds.map(|kinds| -> ArrayRef {
            let names = kinds.iter().map(|kind| kind.short());
            Arc::new(StringViewArray::from_iter_values(names))
        });
        let columns = op.into_iter().chain(batch.columns().iter().cloned()).collect();
        match self {
            RowWriter::Parquet(writer) => writer.write(columns),
            RowWriter::Arrow(writer) => writer.write(columns),
            RowWriter::Avro(writer) => writer.write(columns),
        }
    }

    /// About how many bytes the output has.
    pub fn bytes(&self) -> u64 {
        match self {
            RowWriter::Parquet(writer) => writer.bytes(),
            RowWriter::Arrow(writer) => writer.bytes(),
            RowWriter::Avro(writer) => writer.bytes(),
        }
    }

    /// Writes the footer and returns the output.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<W> {
        match self {
            RowWriter::Parquet(writer) => writer.finish(),
            RowWriter::Arrow(writer) => writer.finish(),
            RowWriter::Avro(writer) => writer.finish(),
        }
    }
}
