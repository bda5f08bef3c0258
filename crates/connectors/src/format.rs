//! Formats: bytes to columns and back, for files, brokers and whatever else carries records.
//!
//! A format knows no file: it gets bytes, a [`RecordLayout`] and typed options ([`Format`]), and
//! yields Arrow batches and the records that it [rejected](Rejected). Its errors say where in the
//! input they lie ([`DecodeError`]); the connector adds which file, topic or partition that is.
//!
//! ```text
//! text:    TextBlock (lines, or one record a message) ─▶ RecordDecoder ─▶ DecodedRecords
//! rows:    ParquetFile, ArrowFile over what can seek  ─▶ RecordBatch, group by group
//! writing: RecordBatch ─▶ TextEncoder (lines or messages) | RowWriter (Parquet, Arrow)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`bad_data`] | what happens to records that cannot be read |
//! | [`text`] | blocks of text, and where their records are |
//! | [`records`] | which columns records have and which are wanted; their batches |
//! | [`decoding`] | blocks of records to batches |
//! | [`encoding`] | batches to bytes |
//! | [`csv`], [`json`], [`raw`] | text formats |
//! | [`avro`] | binary records with a schema, which may be registered |
//! | [`protobuf`] | binary records whose type a `.proto` file declares |
//! | [`changes`] | what happened to rows, as Debezium, Maxwell, Canal and Ogg write it |
//! | `builder` | the columns that decoders write into |
//! | [`parquet`], `orc`, [`arrow`] | formats that are read by random access |
//!
//! What formats do not do: find files, cut streams into blocks, compress, commit.

pub mod arrow;
pub mod avro;
pub mod bad_data;
pub(crate) mod builder;
pub mod changes;
mod columns;
pub mod csv;
pub mod decoding;
pub mod encoding;
#[cfg(feature = "registry")]
mod http;
pub mod json;
pub mod options;
#[cfg(feature = "orc")]
pub mod orc;
pub mod parquet;
pub mod protobuf;
pub mod raw;
pub mod record_end;
pub mod records;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;

use thalweg_core::connector::AcceptedChanges;
use thalweg_core::{Column, DataType, Error, Result};

pub use self::avro::AvroOptions;
pub use self::bad_data::{BadDataPolicy, DecodeError, Rejected};
pub use self::changes::ChangeOptions;
pub use self::csv::CsvOptions;
pub use self::decoding::RecordDecoder;
pub use self::encoding::{RowWriter, TextEncoder};
pub use self::json::JsonOptions;
pub use self::parquet::writer::ParquetOptions;
pub use self::protobuf::ProtobufOptions;
pub use self::raw::RawOptions;
pub use self::records::{DecodedRecords, RecordLayout};
pub use self::text::TextBlock;

/// A format with its options.
#[derive(Clone, Debug)]
pub enum Format {
    /// `'format' = 'csv'`
    Csv(CsvOptions),
    /// `'format' = 'json'`: a JSON object a record.
    Json(JsonOptions),
    /// `'format' = 'raw'`: the value of one column a record.
    Raw(RawOptions),
    /// `'format' = 'debezium-json'`, `'maxwell-json'`, `'canal-json'`, `'ogg-json'`: a change of a
    /// table a record.
    Changes(ChangeOptions),
    /// `'format' = 'avro'`, `'avro-confluent'`: a binary record a message.
    Avro(AvroOptions),
    /// `'format' = 'protobuf'`: a binary record a message.
    Protobuf(ProtobufOptions),
    /// `'format' = 'parquet'`
    Parquet(ParquetOptions),
    /// `'format' = 'orc'`, which is only read.
    Orc,
    /// `'format' = 'arrow'`: Arrow IPC files.
    Arrow,
}

impl Format {
    /// The value of the option `format`.
    pub fn name(&self) -> &'static str {
        self.description().name
    }

    /// True for formats that are read record by record.
    pub fn is_text(&self) -> bool {
        !matches!(
            self,
            Format::Avro(_)
                | Format::Protobuf(_)
                | Format::Parquet(_)
                | Format::Orc
                | Format::Arrow
        )
    }

    /// True if records are JSON.
    pub fn is_json(&self) -> bool {
        matches!(self, Format::Json(_) | Format::Changes(ChangeOptions { avro: None, .. }))
    }

    /// True if records say themselves what each row does: [`RecordLayout::of_changes`].
    pub fn has_changes(&self) -> bool {
        matches!(self, Format::Changes(_))
    }

    /// The changes that a table of such records has.
    pub fn changes(&self) -> AcceptedChanges {
        if self.has_changes() { AcceptedChanges::All } else { AcceptedChanges::Inserts }
    }

    /// True if values that cannot be read become NULL.
    pub fn ignores_parse_errors(&self) -> bool {
        match self {
            Format::Csv(csv) => csv.ignore_parse_errors,
            Format::Json(json) => json.ignore_parse_errors,
            Format::Changes(changes) => changes.json.ignore_parse_errors,
            Format::Protobuf(protobuf) => protobuf.ignore_parse_errors,
            Format::Raw(_) | Format::Avro(_) => false,
            Format::Parquet(_) | Format::Orc | Format::Arrow => false,
        }
    }

    /// Checks that the format has values of the types of these columns.
    ///
    /// # Errors
    /// If it lacks one.
    pub fn check_types<'a>(
        &self,
        table: &str,
        columns: impl IntoIterator<Item = &'a Column>,
    ) -> Result<()> {
        let is_missing = |column: &&Column| !self.is_supported(&column.column_type.data_type);
        match columns.into_iter().find(is_missing) {
            None => Ok(()),
            Some(column) => Err(Error::unsupported(format!(
                "table {table}: column {} is {}, which format '{}' cannot hold",
                column.name,
                column.column_type.data_type,
                self.name()
            ))),
        }
    }

    /// True if the format has values of this type.
    pub fn is_supported(&self, data_type: &DataType) -> bool {
        match self {
            Format::Csv(_) => csv::values::is_supported(data_type),
            Format::Changes(ChangeOptions { avro: Some(options), .. }) | Format::Avro(options) => {
                avro::is_supported(data_type, options)
            }
            Format::Protobuf(_) => protobuf::is_supported(data_type),
            Format::Json(_) | Format::Changes(_) => json::values::is_supported(data_type),
            Format::Raw(_) => raw::is_supported(data_type),
            Format::Orc if matches!(data_type, DataType::Time(_)) => false,
            Format::Parquet(_) | Format::Orc | Format::Arrow => {
                parquet::types::is_supported(data_type)
            }
        }
    }

    /// Checks that the types of records that an option names have what these columns need.
    ///
    /// # Errors
    /// If one lacks a column, or has another type for it.
    pub fn check_columns(&self, columns: &[Column], as_sink: bool) -> Result<()> {
        match self {
            Format::Protobuf(options) => options.check_columns(columns),
            Format::Avro(options) if as_sink => options.check_columns(columns),
            Format::Changes(options) if as_sink => options.check_columns(columns),
            _ => Ok(()),
        }
    }

    /// True if a value of this column can make its record a bad one.
    pub fn can_be_bad(&self, column: &Column) -> bool {
        match self {
            Format::Csv(csv) => csv::values::can_be_bad(column, csv),
            Format::Json(json) => json::values::can_be_bad(column, json),
            Format::Changes(changes) => json::values::can_be_bad(column, &changes.json),
            Format::Raw(_) | Format::Avro(_) | Format::Protobuf(_) => true,
            Format::Parquet(_) | Format::Orc | Format::Arrow => false,
        }
    }

    /// The layout of messages with what happens to bad ones: they fail the job, or are left out,
    /// and then every query over the table leaves out the same.
    pub fn with_bad_data(&self, layout: RecordLayout, is_fatal: bool) -> RecordLayout {
        if is_fatal {
            let policy = match self.ignores_parse_errors() {
                true => BadDataPolicy::Null,
                false => BadDataPolicy::Fail,
            };
            return layout.with_policy(policy, Vec::new());
        }
        let columns = layout.schema.columns.iter().enumerate();
        let others =
            columns.filter(|(at, column)| !layout.wanted.contains(at) && self.can_be_bad(column));
        let checked = others.map(|(at, _)| at).collect();
        layout.with_policy(BadDataPolicy::Reject, checked)
    }

    /// The length of the longest prefix of a text that ends with a record's end. Empty lines after
    /// it may be the end of the input.
    pub fn complete_length(&self, text: &[u8]) -> usize {
        match self {
            Format::Csv(CsvOptions { dialect, .. }) => {
                let complete = csv::scan::complete_length(text, dialect);
                dialect.without_blank_lines(&text[..complete])
            }
            _ => memchr::memrchr(b'\n', text).map_or(0, |at| at + 1),
        }
    }
}
