//! Decodes blocks of records in a format that is read record by record.

use thalweg_core::{Error, Result};

use super::avro::AvroDecoder;
use super::bad_data::DecodeError;
use super::records::{DecodedRecords, RecordLayout};
use super::text::TextBlock;
use super::{Format, changes, csv, json, raw};

/// Decodes records of text. Shared by the threads that decode.
///
/// ```
/// use arrow_array::BinaryArray;
/// use thalweg_connectors::format::{Format, JsonOptions, RecordDecoder, RecordLayout, TextBlock};
/// use thalweg_core::{Column, DataType, TableSchema};
///
/// let schema = TableSchema::new(vec![Column::new("n", DataType::BigInt.nullable())]);
/// let layout = RecordLayout::new("t", schema, vec![0], false);
/// let decoder = RecordDecoder::new(Format::Json(JsonOptions::default()), layout);
/// let messages = BinaryArray::from_iter_values(["{\"n\": 1}", "{\"n\": 2}"]);
/// let decoded = decoder.decode(&TextBlock::messages(&messages)).expect("two objects");
/// assert_eq!((decoded.batch.num_rows(), decoded.messages), (2, vec![0, 1]));
/// ```
pub struct RecordDecoder {
    format: Format,
    layout: RecordLayout,
    /// Where records are Avro.
    avro: Option<AvroDecoder>,
}

impl RecordDecoder {
    /// A decoder of this format.
    pub fn new(format: Format, layout: RecordLayout) -> Self {
        let avro = match &format {
            Format::Avro(options) => Some(options),
            Format::Changes(changes) => changes.avro.as_ref(),
            _ => None,
        };
        let avro = avro.map(|options| AvroDecoder::new(options.clone()));
        RecordDecoder { format, layout, avro }
    }

    /// The format.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// What records look like.
    pub fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// Decodes all records of a block at once. Where schemas are registered, the first record of
    /// each schema waits for the registry.
    ///
    /// # Errors
    /// Where bad records fail the job: the first of the block. Where they do not: if the block is
    /// not of this format at all.
    pub fn decode(&self, block: &TextBlock<'_>) -> Result<DecodedRecords, DecodeError> {
        match (&self.format, &self.avro) {
            (Format::Csv(options), _) => csv::decode(options, &self.layout, block),
            (Format::Json(options), _) => json::decode(options, &self.layout, block),
            (Format::Raw(options), _) => raw::decode(options, &self.layout, block),
            (Format::Changes(options), avro) => {
                changes::decode(options, avro.as_ref(), &self.layout, block)
            }
            (Format::Avro(_), Some(avro)) => avro.decode(&self.layout, block),
            (Format::Protobuf(options), _) => options.decode(&self.layout, block),
            (Format::Avro(_) | Format::Parquet(_) | Format::Orc | Format::Arrow, _) => {
                let name = self.format.name();
                Err(Error::internal(format!("format '{name}' is not read record by record")).into())
            }
        }
    }
}
