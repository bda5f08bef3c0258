//! From messages of a partition to rows.

use arrow_array::builder::BinaryBuilder;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int8Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringViewArray, UInt32Array, new_null_array,
};
use arrow_schema::SchemaRef;
use arrow_select::take::take;
use rdkafka::message::Timestamp;
use std::sync::Arc;
use thalweg_core::connector::{SplitId, TableRequest};
use thalweg_core::types::timestamps;
use thalweg_core::{Column, DataType, Error, Result, RowKind};

use super::offsets::PartitionName;
use super::options::{BadData, KafkaOptions};
use super::queue::MessageRef;
use crate::format::{
    BadDataPolicy, DecodeError, DecodedRecords, Format, RecordDecoder, RecordLayout, TextBlock,
};
use crate::metadata;

/// Messages that are decoded together at most.
pub const BLOCK_MESSAGES: usize = 8_192;
/// Bytes of their values and keys, as soon as which no more are added.
pub const BLOCK_BYTES: usize = 1 << 20;

/// A header: its name and value.
pub type Header = (String, Option<Vec<u8>>);

/// Messages of a partition, not yet decoded.
#[derive(Default)]
pub struct Block {
    wants: Wants,
    pub(super) offsets: Vec<i64>,
    pub(super) values: BinaryBuilder,
    pub(super) keys: BinaryBuilder,
    pub(super) timestamps: Vec<Timestamp>,
    pub(super) headers: Vec<Vec<Header>>,
    pub(super) leader_epochs: Vec<Option<i32>>,
    bytes: usize,
}

/// What of a message is needed besides its value and offset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    pub(super) keys: bool,
    pub(super) timestamps: bool,
    pub(super) headers: bool,
    pub(super) leader_epochs: bool,
}

impl Block {
    /// An empty block.
    pub fn new(wants: Wants) -> Block {
        Block { wants, ..Block::default() }
    }

    /// Adds a message.
    pub fn push(&mut self, message: MessageRef<'_>) {
        self.offsets.push(message.offset());
        let value = message.payload();
        self.bytes += value.map_or(0, <[u8]>::len) + 16;
        self.values.append_option(value);
        if self.wants.keys {
            let key = message.key();
            self.bytes += key.map_or(0, <[u8]>::len);
            self.keys.append_option(key);
        }
        if self.wants.timestamps {
            self.timestamps.push(message.timestamp());
        }
        if self.wants.headers {
            self.headers.push(message.headers());
        }
        if self.wants.leader_epochs {
            self.leader_epochs.push(message.leader_epoch());
        }
    }

    /// How many messages it has.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// True if no more should be added.
    pub fn is_full(&self) -> bool {
        self.len() >= BLOCK_MESSAGES || self.bytes >= BLOCK_BYTES
    }
}

/// A message that could not be read and was left out.
#[derive(Clone, Debug)]
pub struct BadMessage {
    /// Its offset.
    pub offset: i64,
    /// What is wrong with it.
    pub reason: String,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its key, if that was kept.
    pub key: Option<Vec<u8>>,
    /// Its headers, if they were kept.
    pub headers: Vec<Header>,
    /// Its time, if that was kept.
    pub timestamp: Option<Timestamp>,
    /// What was kept of it.
    pub kept: Wants,
}

/// Rows of a partition.
pub struct Rows {
    /// Of which split.
    pub split: SplitId,
    /// The rows.
    pub batch: RecordBatch,
    /// The offset of the message of each row.
    pub offsets: Vec<i64>,
    /// Where reading resumes behind all of them.
    pub next: i64,
    /// Messages that could not be read, in order.
    pub bad: Vec<BadMessage>,
}

/// Where a column of the table comes from.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Value(usize),
    Key(usize),
    Metadata(usize),
    Kind,
}

/// Which columns are read, and where they come from.
struct Columns {
    slots: Vec<Slot>,
    /// Positions in the value, in the key, and metadata of the format.
    of_value: Vec<usize>,
    of_key: Vec<usize>,
    of_format: Vec<(String, Column)>,
}

impl Columns {
    fn find(request: &TableRequest, options: &KafkaOptions) -> Columns {
        let physical = request.wanted_columns();
        let (mut of_value, mut of_key, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for at in physical {
            let in_key = options.key_columns.iter().position(|&column| column == at);
            let in_value = options.value_columns.iter().position(|&column| column == at);
            match (in_key.filter(|_| options.is_upsert || in_value.is_none()), in_value) {
                (Some(column), _) => {
                    slots.push(Slot::Key(of_key.len()));
                    of_key.push(column);
                }
                (None, column) => {
                    slots.push(Slot::Value(of_value.len()));
                    of_value.extend(column);
                }
            }
        }
        let mut of_format = Vec::new();
        for (at, (key, column)) in request.metadata.iter().enumerate() {
            match key.strip_prefix("value.") {
                None => slots.push(Slot::Metadata(at)),
                Some(key) => {
                    slots.push(Slot::Value(of_value.len() + of_format.len()));
                    of_format.push((key.to_owned(), column.clone()));
                }
            }
        }
        slots.extend(request.reads_kinds.then_some(match options.value.has_changes() {
            true => Slot::Value(of_value.len() + of_format.len()),
            false => Slot::Kind,
        }));
        Columns { slots, of_value, of_key, of_format }
    }
}

/// Decodes messages.
pub struct RowReader {
    value: RecordDecoder,
    key: Option<RecordDecoder>,
    slots: Vec<Slot>,
    schema: SchemaRef,
    metadata: Vec<(String, DataType)>,
    is_upsert: bool,
    wants: Wants,
}

impl RowReader {
    /// A reader of the columns that are delivered.
    pub fn new(request: &TableRequest, options: &KafkaOptions) -> RowReader {
        let has_changes = options.value.has_changes();
        let Columns { slots, of_value, of_key, of_format } = Columns::find(request, options);
        let layout = |format: &Format, schema, wanted: Vec<usize>| {
            let layout = RecordLayout::new(&request.table, schema, wanted, false);
            format.with_bad_data(layout, options.bad_data == BadData::Fail)
        };
        let reads_key = options.is_upsert || !of_key.is_empty();
        let mut value = layout(&options.value, options.value_schema(request), of_value);
        if has_changes {
            value = value.of_changes(of_format);
        }
        let key = options.key.clone().filter(|_| reads_key).map(|format| {
            let layout = layout(&format, options.key_schema(request), of_key);
            RecordDecoder::new(format, layout)
        });
        let metadata = request.metadata.iter();
        let has = |keys: &[&str]| metadata.clone().any(|(key, _)| keys.contains(&key.as_str()));
        let keeps_all = matches!(options.bad_data, BadData::Topic(_));
        RowReader {
            wants: Wants {
                keys: key.is_some() || keeps_all,
                timestamps: has(&["timestamp", "timestamp-type"]),
                headers: has(&["headers"]) || keeps_all,
                leader_epochs: has(&["leader-epoch"]),
            },
            value: RecordDecoder::new(options.value.clone(), value),
            key,
            slots,
            schema: request.delivered().arrow(),
            metadata: metadata
                .map(|(key, column)| (key.clone(), column.column_type.data_type.clone()))
                .collect(),
            is_upsert: options.is_upsert,
        }
    }

    /// What it needs of messages.
    pub fn wants(&self) -> Wants {
        self.wants
    }

    /// Decodes messages of a partition.
    ///
    /// # Errors
    /// Where bad messages fail the job: the first one.
    pub fn decode(&self, split: SplitId, name: &PartitionName, mut block: Block) -> Result<Rows> {
        let next = block.offsets.last().map_or(0, |offset| offset + 1);
        let values = block.values.finish();
        let keys = block.keys.finish();
        let in_partition = |error: DecodeError| {
            let offset = error.number.and_then(|number| block.offsets.get(number as usize));
            let number = offset.map(|&offset| offset as u64);
            DecodeError { number, ..error }.in_input(&name.text())
        };
        let decoded = self.value.decode(&TextBlock::messages(&values)).map_err(in_partition)?;
        let of_keys = match &self.key {
            None => None,
            Some(decoder) => {
                Some(decoder.decode(&TextBlock::messages(&keys)).map_err(in_partition)?)
            }
        };
        let mut found = Found::new(&decoded, of_keys.as_ref(), values.len());
        if self.is_upsert {
            found.add_tombstones(&values);
        }
        found.leave_out_bad_keys(self.is_upsert, self.key_must_be_there());
        if let (BadDataPolicy::Fail, Some((number, reason))) =
            (self.value.layout().policy, found.bad.first())
        {
            let offset = block.offsets[*number as usize] as u64;
            return Err(Error::data(reason.clone())
                .hint("correct the message, or set 'bad-data' = 'skip' or 'dead-letter'")
                .at_row(name.text(), offset));
        }
        let columns = self.columns(name, &block, &found, &decoded, of_keys.as_ref())?;
        let rows = RecordBatchOptions::new().with_row_count(Some(found.rows.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows)?;
        let offsets = found.rows.iter().map(|row| block.offsets[row.message as usize]).collect();
        let bad = found.bad.iter().map(|(number, reason)| {
            let at = *number as usize;
            let key = keys.len() > at && keys.is_valid(at);
            BadMessage {
                offset: block.offsets[at],
                reason: reason.clone(),
                value: values.is_valid(at).then(|| values.value(at).to_vec()),
                key: key.then(|| keys.value(at).to_vec()),
                headers: block.headers.get_mut(at).map(std::mem::take).unwrap_or_default(),
                timestamp: block.timestamps.get(at).copied(),
                kept: self.wants,
            }
        });
        let bad = bad.collect();
        Ok(Rows { split, batch, offsets, next, bad })
    }

    fn key_must_be_there(&self) -> bool {
        self.key.as_ref().is_some_and(|key| {
            let layout = key.layout();
            layout.wanted.iter().any(|&at| !layout.schema.columns[at].column_type.nullable)
        })
    }

    fn columns(
        &self,
        name: &PartitionName,
        block: &Block,
        found: &Found,
        decoded: &DecodedRecords,
        of_keys: Option<&DecodedRecords>,
    ) -> Result<Vec<ArrayRef>> {
        let keys = of_keys.map(|_| found.rows.iter().map(|row| row.key).collect::<UInt32Array>());
        let values = found.rows.iter().map(|row| row.value);
        // Mostly the rows are those of the values, as they are.
        let values = (!found.is_as_decoded).then(|| values.collect::<UInt32Array>());
        let mut columns = Vec::with_capacity(self.slots.len());
        for (slot, field) in self.slots.iter().zip(self.schema.fields()) {
            let column = match *slot {
                Slot::Value(at) => match &values {
                    None => decoded.batch.column(at).clone(),
                    Some(rows) => take(decoded.batch.column(at), rows, None)?,
                },
                Slot::Key(at) => match (of_keys, &keys) {
                    (Some(decoded), Some(rows)) => take(decoded.batch.column(at), rows, None)?,
                    _ => return Err(Error::internal("a column of the key without a key")),
                },
                Slot::Metadata(at) => self.metadata_column(at, name, block, found)?,
                Slot::Kind => {
                    let kind = |row: &FoundRow| match row.is_delete {
                        true => RowKind::Delete.code(),
                        false => RowKind::UpdateAfter.code(),
                    };
                    Arc::new(found.rows.iter().map(kind).collect::<Int8Array>()) as ArrayRef
                }
            };
            let must_be_there = !field.is_nullable() && column.null_count() > 0;
            columns.push(if must_be_there { without_nulls(&column)? } else { column });
        }
        Ok(columns)
    }

    fn metadata_column(
        &self,
        at: usize,
        name: &PartitionName,
        block: &Block,
        found: &Found,
    ) -> Result<ArrayRef> {
        let (key, data_type) = &self.metadata[at];
        let rows = found.rows.iter().map(|row| row.message as usize);
        let count = found.rows.len();
        Ok(match key.as_str() {
            "topic" => Arc::new(StringViewArray::from_iter_values(rows.map(|_| &name.topic))),
            "partition" => whole_numbers(rows.map(|_| name.partition.into()), data_type),
            "offset" => Arc::new(rows.map(|row| block.offsets[row]).collect::<Int64Array>()),
            "leader-epoch" => {
                let epochs = rows.map(|row| block.leader_epochs[row]);
                Arc::new(epochs.collect::<Int32Array>())
            }
            "timestamp" => {
                let millis = rows.map(|row| block.timestamps[row].to_millis().unwrap_or(0));
                let is_instant = matches!(data_type, DataType::TimestampLtz(_));
                timestamps(&millis.collect::<Int64Array>(), 3, is_instant)
            }
            "timestamp-type" => {
                let word = |row: usize| timestamp_type(block.timestamps[row]);
                Arc::new(StringViewArray::from_iter_values(rows.map(word)))
            }
            "headers" => {
                let pairs = rows.map(|row| block.headers[row].as_slice());
                let values = |values: Vec<&Option<Vec<u8>>>| {
                    let values = values.into_iter().map(Option::as_deref);
                    Arc::new(BinaryArray::from_iter(values)) as ArrayRef
                };
                metadata::maps(pairs, values, data_type)?
            }
            _ => new_null_array(&data_type.arrow(), count),
        })
    }
}

/// What the metadata column `timestamp-type` says of a time.
pub(super) fn timestamp_type(timestamp: Timestamp) -> &'static str {
    match timestamp {
        Timestamp::CreateTime(_) => "CreateTime",
        Timestamp::LogAppendTime(_) => "LogAppendTime",
        Timestamp::NotAvailable => "NoTimestampType",
    }
}

/// A row that was found.
struct FoundRow {
    message: u32,
    value: Option<u32>,
    key: Option<u32>,
    is_delete: bool,
}

/// What was found in a block.
struct Found {
    rows: Vec<FoundRow>,
    /// The rows are those of the values, in their order.
    is_as_decoded: bool,
    /// Messages that are bad, and why.
    bad: Vec<(u32, String)>,
    /// The row of each message's key.
    keys: Option<Vec<Option<u32>>>,
    /// Messages whose keys can't be read.
    bad_keys: Vec<u32>,
}

impl Found {
    fn new(values: &DecodedRecords, keys: Option<&DecodedRecords>, messages: usize) -> Found {
        let of_messages = keys.map(|keys| {
            let mut rows = vec![None; messages];
            for (row, &message) in (0..).zip(&keys.messages) {
                rows[message as usize] = Some(row);
            }
            rows
        });
        let mut bad: Vec<(u32, String)> = Vec::new();
        for rejected in &values.rejected {
            bad.push((rejected.number as u32, rejected.reason.clone()));
        }
        let mut bad_keys = Vec::new();
        for rejected in keys.iter().flat_map(|keys| &keys.rejected) {
            bad.push((rejected.number as u32, format!("key: {}", rejected.reason)));
            bad_keys.push(rejected.number as u32);
        }
        let row = |(value, &message): (u32, &u32)| FoundRow {
            message,
            value: Some(value),
            key: of_messages.as_ref().and_then(|keys| keys[message as usize]),
            is_delete: false,
        };
        let rows = (0..).zip(&values.messages).map(row).collect();
        Found { rows, is_as_decoded: true, bad, keys: of_messages, bad_keys }
    }

    /// Messages without a value delete their key.
    fn add_tombstones(&mut self, values: &BinaryArray) {
        if values.null_count() == 0 {
            return;
        }
        // Formats may have rows for what is missing.
        self.rows.retain(|row| values.is_valid(row.message as usize));
        for message in (0..values.len() as u32).filter(|&at| values.is_null(at as usize)) {
            let key = self.keys.as_ref().and_then(|keys| keys[message as usize]);
            self.rows.push(FoundRow { message, value: None, key, is_delete: true });
        }
        self.rows.sort_by_key(|row| row.message);
        self.is_as_decoded = false;
    }

    /// Rows whose keys can't be read, or are missing where there has to be one.
    fn leave_out_bad_keys(&mut self, is_upsert: bool, must_be_there: bool) {
        let has_keys = self.keys.is_some();
        let before = self.rows.len();
        let (bad, bad_keys) = (&mut self.bad, &self.bad_keys);
        self.rows.retain(|row| {
            if bad_keys.binary_search(&row.message).is_ok() {
                return false;
            }
            let is_missing = has_keys && row.key.is_none() && (is_upsert || must_be_there);
            if is_missing {
                bad.push((row.message, "the message has no key".to_owned()));
            }
            !is_missing
        });
        bad.sort_by_key(|(message, _)| *message);
        bad.dedup_by_key(|(message, _)| *message);
        self.is_as_decoded &= self.rows.len() == before;
    }
}

fn whole_numbers(values: impl Iterator<Item = i64>, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Int => Arc::new(values.map(|value| value as i32).collect::<Int32Array>()),
        _ => Arc::new(values.collect::<Int64Array>()),
    }
}

/// Where a row is deleted, columns other than the key have no value; those that must have one get
/// the empty one, which nobody reads.
fn without_nulls(column: &ArrayRef) -> Result<ArrayRef> {
    let data = column.to_data().into_builder().nulls(None).build()?;
    Ok(arrow_array::make_array(data))
}
