//! From messages to rows.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringViewArray,
};
use arrow_schema::SchemaRef;
use thalweg_core::connector::{SplitId, TableRequest};
use thalweg_core::types::timestamps;
use thalweg_core::{Column, DataType, Error, Result};

use super::inbox::{Block, Metadata};
use super::options::RecordOptions;
use super::progress::{Mark, MarkText};
use crate::format::{
    BadDataPolicy, DecodeError, DecodedRecords, Format, RecordDecoder, RecordLayout, TextBlock,
};
use crate::metadata;
use crate::replay::{Letter, LetterReader};

/// A message that could not be read and was left out.
#[derive(Clone, Debug)]
pub struct BadMessage {
    /// Its place in its block.
    pub number: u32,
    /// Where it is, for people.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
    /// What it says.
    pub value: Vec<u8>,
}

/// Rows of a split.
pub struct Rows {
    /// Which split.
    pub split: SplitId,
    /// The rows.
    pub batch: RecordBatch,
    /// The message that each row came from: its place in the block.
    pub messages: Vec<u32>,
    /// What the messages of the block are known by.
    pub marks: Vec<Option<Mark>>,
    /// Messages that could not be read, in order.
    pub bad: Vec<BadMessage>,
}

/// Decodes messages.
pub struct RowReader {
    decoder: RecordDecoder,
    schema: SchemaRef,
    /// How many columns are of the record itself.
    width: usize,
    /// Where each metadata column comes from: the message, or a column that the format has made.
    slots: Vec<Slot>,
    has_kinds: bool,
    text: MarkText,
}

enum Slot {
    Message(usize, DataType),
    Format(usize),
}

/// What metadata of formats begins with.
pub const OF_FORMAT: &str = "value.";

/// The keys of the metadata that messages have.
pub fn message_metadata(request: &TableRequest) -> impl Iterator<Item = &(String, Column)> + Clone {
    request.metadata.iter().filter(|(key, _)| !key.starts_with(OF_FORMAT))
}

impl RowReader {
    /// A reader of the columns that are delivered.
    pub fn new(request: &TableRequest, options: &RecordOptions, text: MarkText) -> RowReader {
        RowReader::with(request, options, text, false)
    }

    /// The same for whoever refuses bad messages himself: they are noted where they fail the job.
    pub fn noting_bad(request: &TableRequest, options: &RecordOptions, text: MarkText) -> Self {
        RowReader::with(request, options, text, true)
    }

    fn with(
        request: &TableRequest,
        options: &RecordOptions,
        text: MarkText,
        notes_bad: bool,
    ) -> RowReader {
        let wanted = request.wanted_columns();
        let width = wanted.len();
        let (mut slots, mut of_format, mut of_message) = (Vec::new(), Vec::new(), 0);
        for (key, column) in &request.metadata {
            match key.strip_prefix(OF_FORMAT) {
                Some(key) => {
                    slots.push(Slot::Format(width + of_format.len()));
                    of_format.push((key.to_owned(), column.clone()));
                }
                None => {
                    slots.push(Slot::Message(of_message, column.column_type.data_type.clone()));
                    of_message += 1;
                }
            }
        }
        let layout = RecordLayout::new(&request.table, request.schema.clone(), wanted, false);
        let is_fatal = options.bad_data.is_fatal();
        let mut layout = options.format.with_bad_data(layout, is_fatal);
        if notes_bad && layout.policy == BadDataPolicy::Fail {
            layout = layout.with_policy(BadDataPolicy::Reject, Vec::new());
        }
        if options.format.has_changes() {
            layout = layout.of_changes(of_format);
        }
        RowReader {
            decoder: RecordDecoder::new(options.format.clone(), layout),
            schema: request.delivered().arrow(),
            width,
            slots,
            has_kinds: request.reads_kinds,
            text,
        }
    }

    /// The format.
    pub fn format(&self) -> &Format {
        self.decoder.format()
    }

    /// Decodes messages of a split, whose name is for errors.
    ///
    /// # Errors
    /// Where bad messages fail the job: the first one.
    pub fn decode(&self, name: &str, mut block: Block) -> Result<Rows> {
        let values = block.values.finish();
        let place = |number: u64| match block.marks.get(number as usize).copied().flatten() {
            Some(mark) => format!("{name}, {} {}", self.text.noun, (self.text.write)(mark)),
            None => name.to_owned(),
        };
        let in_message = |error: DecodeError| {
            let error_place = error.number.map_or_else(|| name.to_owned(), place);
            DecodeError { number: None, ..error }.in_input(&error_place)
        };
        let decoded = self.decoder.decode(&TextBlock::messages(&values)).map_err(in_message)?;
        let rejected = self.rejected(&decoded, &values);
        if let (BadDataPolicy::Fail, Some((number, reason))) =
            (self.decoder.layout().policy, rejected.first())
        {
            return Err(Error::data(reason.clone())
                .hint("correct the message, or set 'bad-data' = 'skip' or 'dead-letter'")
                .in_file(place(u64::from(*number))));
        }
        let mut columns: Vec<ArrayRef> = decoded.batch.columns()[..self.width].to_vec();
        for slot in &self.slots {
            columns.push(match slot {
                Slot::Format(at) => decoded.batch.column(*at).clone(),
                Slot::Message(at, data_type) => {
                    let rows = decoded.messages.iter();
                    let values = rows.map(|&row| &block.metadata[row as usize][*at]);
                    metadata_column(values, data_type)?
                }
            });
        }
        if self.has_kinds {
            columns.push(decoded.batch.column(decoded.batch.num_columns() - 1).clone());
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(decoded.batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows)?;
        let value = |number: u32| match values.is_valid(number as usize) {
            true => values.value(number as usize).to_vec(),
            false => Vec::new(),
        };
        let bad = rejected.into_iter().map(|(number, reason)| BadMessage {
            number,
            place: place(number.into()),
            reason,
            value: value(number),
        });
        let bad = bad.collect();
        Ok(Rows { split: block.split, batch, messages: decoded.messages, marks: block.marks, bad })
    }

    /// The messages that can't be read, in order, and why.
    fn rejected(&self, decoded: &DecodedRecords, values: &BinaryArray) -> Vec<(u32, String)> {
        let of_format = decoded.rejected.iter();
        let of_format = of_format.map(|rejected| (rejected.number as u32, rejected.reason.clone()));
        let mut rejected: Vec<(u32, String)> = of_format.collect();
        if values.null_count() > 0 && !matches!(self.decoder.format(), Format::Raw(_)) {
            let missing = (0..values.len() as u32).filter(|&at| values.is_null(at as usize));
            rejected.extend(missing.map(|at| (at, "the message has no record".to_owned())));
            rejected.sort_by_key(|(number, _)| *number);
        }
        rejected
    }
}

/// A column of metadata of this type.
fn metadata_column<'a>(
    values: impl ExactSizeIterator<Item = &'a Metadata>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let number = |value: &Metadata| match value {
        Metadata::Number(number) | Metadata::Time(number) => Some(*number),
        _ => None,
    };
    Ok(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            Metadata::Flag(flag) => Some(*flag),
            _ => None,
        }))),
        DataType::Int => {
            let numbers = values.map(|value| number(value).and_then(|n| i32::try_from(n).ok()));
            Arc::new(Int32Array::from_iter(numbers))
        }
        DataType::BigInt => Arc::new(Int64Array::from_iter(values.map(number))),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
            let millis = Int64Array::from_iter(values.map(number));
            timestamps(&millis, 3, matches!(data_type, DataType::TimestampLtz(_)))
        }
        DataType::Map(..) => {
            let pairs = values.map(|value| match value {
                Metadata::Texts(pairs) => pairs.as_slice(),
                _ => &[],
            });
            let texts = |texts| Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
            metadata::maps(pairs, texts, data_type)?
        }
        _ => Arc::new(StringViewArray::from_iter(values.map(|value| match value {
            Metadata::Text(text) => Some(text.as_str()),
            _ => None,
        }))),
    })
}

impl LetterReader for RowReader {
    fn read(&self, letter: &Letter) -> Result<RecordBatch, String> {
        if self.slots.iter().any(|slot| matches!(slot, Slot::Message(..))) {
            return Err("columns of the table are about the message, and dead letters keep only \
                        what it says"
                .to_owned());
        }
        let block = Block::of_values(&[&letter.raw]);
        let rows = self.decode(&letter.file, block).map_err(|error| error.to_string())?;
        match rows.bad.into_iter().next() {
            Some(bad) => Err(bad.reason),
            None => Ok(rows.batch),
        }
    }
}
