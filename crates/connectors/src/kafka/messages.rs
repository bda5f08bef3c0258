//! From rows to messages.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::DataType as Arrow;
use thalweg_core::connector::TableRequest;
use thalweg_core::{Error, Result, RowKind, TableSchema};

use super::options::{KafkaOptions, Topics};
use super::spool::Outgoing;
use crate::format::{Format, TextEncoder};

/// Makes messages of rows.
pub struct MessageWriter {
    table: String,
    value: Part,
    key: Option<Part>,
    /// Where metadata stand in a batch.
    topic: Option<usize>,
    headers: Option<usize>,
    timestamp: Option<usize>,
    topics: Topics,
    is_upsert: bool,
    /// The format of values says what each row does.
    has_changes: bool,
}

/// Values and keys of a batch as bytes, which its messages borrow.
pub struct EncodedRows {
    values: BinaryArray,
    keys: Option<BinaryArray>,
}

/// A key or a value.
struct Part {
    encoder: TextEncoder,
    columns: Vec<usize>,
    schema: TableSchema,
}

impl Part {
    fn new(format: &Format, columns: &[usize], schema: TableSchema) -> Result<Part> {
        let encoder = TextEncoder::new(format, schema.clone());
        let encoder = encoder.ok_or_else(|| Error::internal("messages in a format of files"))?;
        Ok(Part { encoder, columns: columns.to_vec(), schema })
    }

    fn messages(&self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<BinaryArray> {
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|&at| batch.column(at).clone()).collect();
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let own = RecordBatch::try_new_with_options(self.schema.arrow(), columns, &rows)?;
        self.encoder.messages(&own, kinds)
    }
}

impl MessageWriter {
    /// For rows of this table.
    ///
    /// # Errors
    /// If the format is not one of messages.
    pub fn new(request: &TableRequest, options: &KafkaOptions) -> Result<MessageWriter> {
        let value =
            Part::new(&options.value, &options.value_columns, options.value_schema(request))?;
        let key = options
            .key
            .as_ref()
            .map(|format| Part::new(format, &options.key_columns, options.key_schema(request)));
        let physical = request.schema.len();
        let metadata = |name: &str| {
            let found = request.metadata.iter().position(|(key, _)| key == name);
            found.map(|at| physical + at)
        };
        Ok(MessageWriter {
            table: request.table.clone(),
            value,
            key: key.transpose()?,
            topic: metadata("topic"),
            headers: metadata("headers"),
            timestamp: metadata("timestamp"),
            topics: options.topics.clone(),
            is_upsert: options.is_upsert,
            has_changes: options.value.has_changes(),
        })
    }

    /// Keys and values of a batch.
    ///
    /// # Errors
    /// If a value can't be written.
    pub fn encode(&self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<EncodedRows> {
        let values = self.value.messages(batch, kinds.filter(|_| self.has_changes))?;
        let keys = self.key.as_ref().map(|key| key.messages(batch, None)).transpose()?;
        Ok(EncodedRows { values, keys })
    }

    /// The messages of a batch, with its keys and values.
    ///
    /// # Errors
    /// If a row goes to another topic than those of the table.
    pub fn messages<'b>(
        &self,
        batch: &'b RecordBatch,
        kinds: Option<&[RowKind]>,
        encoded: &'b EncodedRows,
    ) -> Result<Vec<Outgoing<'b>>> {
        let times = self.timestamp.map(|at| millis(batch.column(at))).transpose()?;
        let mut messages = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
            if kind == RowKind::UpdateBefore && !self.has_changes {
                continue;
            }
            let is_delete = self.is_upsert && kind == RowKind::Delete;
            let time = times.as_ref().filter(|times| times.is_valid(row));
            messages.push(Outgoing {
                topic: self.topic(batch, row)?,
                key: encoded.keys.as_ref().and_then(|keys| bytes(keys, row)),
                value: if is_delete { None } else { bytes(&encoded.values, row) },
                timestamp_ms: time.map(|times| times.value(row)),
                headers: self.headers.map_or_else(Vec::new, |at| headers(batch.column(at), row)),
            });
        }
        Ok(messages)
    }

    fn topic<'b>(&self, batch: &'b RecordBatch, row: usize) -> Result<Option<&'b str>> {
        let Some(at) = self.topic else { return Ok(None) };
        let names = batch.column(at).as_string_view();
        match names.is_valid(row).then(|| names.value(row)) {
            Some(name) if self.topics.has(name) => Ok(Some(name)),
            found => {
                let found = found.map_or("NULL".to_owned(), |name| format!("'{name}'"));
                let message = format!(
                    "table {}: a row goes to topic {found}, which is none of the table's",
                    self.table
                );
                Err(Error::data(message)
                    .hint("correct the column 'topic', or the option 'topic' ('topic-pattern')"))
            }
        }
    }
}

fn bytes(messages: &BinaryArray, row: usize) -> Option<&[u8]> {
    messages.is_valid(row).then(|| messages.value(row))
}

/// Timestamps in milliseconds, the precision that metadata have.
fn millis(column: &ArrayRef) -> Result<Int64Array> {
    let column = arrow_cast::cast(column, &Arrow::Int64)?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

fn headers(column: &ArrayRef, row: usize) -> Vec<(&str, Option<&[u8]>)> {
    let maps = column.as_map();
    if maps.is_null(row) {
        return Vec::new();
    }
    let (names, values) = (maps.keys().as_string_view(), maps.values().as_binary::<i32>());
    let header = |at: i32| {
        let at = at as usize;
        (names.value(at), values.is_valid(at).then(|| values.value(at)))
    };
    let offsets = maps.value_offsets();
    (offsets[row]..offsets[row + 1]).map(header).collect()
}
