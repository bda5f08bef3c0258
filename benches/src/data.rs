//! Seeded input, in memory before any clock starts.
//!
//! Every record is a pure function of its number (workloads.md, rule 1 of the workload
//! specification). Buffers are 256 MiB or more, so that nothing is measured out of a cache.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use arrow_buffer::Buffer;
use thalweg::{Column, DataType, TableSchema};
use thalweg_core::shim::{SplitMix64, mix64};

/// Event time per record: a million records span one second.
const RECORDS_PER_MS: usize = 1000;

/// Columns of a text stream.
pub fn text_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("text", DataType::STRING.not_null()),
    ])
}

/// The vocabulary of text C: 50,000 words, word of rank r with probability ~ 1 / (r + 2)^1.05,
/// lengths as in English prose (mean of the words drawn about 3.3 letters).
pub struct Vocabulary {
    words: Vec<String>,
    cumulative: Vec<f64>,
}

impl Vocabulary {
    /// The vocabulary of a seed.
    pub fn new(seed: u64) -> Self {
        let mut seen = std::collections::HashSet::new();
        let mut words = Vec::with_capacity(50_000);
        let mut number = 0u64;
        while words.len() < 50_000 {
            let mut random = SplitMix64::new(mix64(seed ^ mix64(number)));
            number += 1;
            // Frequent words are short: the length grows with the logarithm of the rank.
            let base = 1.6 + 0.42 * ((words.len() + 2) as f64).ln();
            let length = (base + 2.0 * random.unit()).round().clamp(1.0, 14.0) as usize;
            let word: String =
                (0..length).map(|_| (b'a' + random.below(26) as u8) as char).collect();
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        let mut sum = 0.0;
        let cumulative = (0..words.len())
            .map(|rank| {
                sum += 1.0 / ((rank + 2) as f64).powf(1.05);
                sum
            })
            .collect();
        Vocabulary { words, cumulative }
    }

    fn draw(&self, random: &mut SplitMix64) -> &str {
        let last = self.cumulative.last().copied().unwrap_or(1.0);
        let wanted = random.unit() * last;
        let rank = self.cumulative.partition_point(|&sum| sum < wanted);
        &self.words[rank.min(self.words.len() - 1)]
    }
}

/// Records of exactly 100 bytes of words, `count` of them, in one buffer per batch.
pub fn text_records(count: usize, rows_per_batch: usize, seed: u64) -> Vec<RecordBatch> {
    let vocabulary = Vocabulary::new(seed);
    let schema = text_schema().arrow();
    let mut random = SplitMix64::new(seed);
    let mut batches = Vec::new();
    for first in (0..count).step_by(rows_per_batch) {
        let rows = rows_per_batch.min(count - first);
        let mut bytes = Vec::with_capacity(rows * 100);
        for _ in 0..rows {
            let end = bytes.len() + 100;
            while bytes.len() < end {
                bytes.extend_from_slice(vocabulary.draw(&mut random).as_bytes());
                bytes.push(b' ');
            }
            bytes.truncate(end);
        }
        let mut builder = StringViewBuilder::new();
        let block = builder.append_block(Buffer::from_vec(bytes));
        for row in 0..rows {
            builder.try_append_view(block, (row * 100) as u32, 100).expect("inside the block");
        }
        let times = (first..first + rows).map(|i| (i / RECORDS_PER_MS) as i64);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
            Arc::new(builder.finish()) as Arc<StringViewArray>,
        ];
        batches.push(RecordBatch::try_new(schema.clone(), columns).expect("columns fit"));
    }
    batches
}

/// Columns of a stream of bids: four longs.
pub fn bid_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("auction", DataType::BigInt.not_null()),
        Column::new("bidder", DataType::BigInt.not_null()),
        Column::new("price", DataType::BigInt.not_null()),
    ])
}

/// Bids on `keys` auctions whose numbers are mixed, a million per second of event time.
pub fn bids(count: usize, rows_per_batch: usize, keys: u64) -> Vec<RecordBatch> {
    let schema = bid_schema().arrow();
    let long = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let batch = |first: usize| {
        let rows = rows_per_batch.min(count - first);
        let numbers = first..first + rows;
        let draw = |i: usize, stream: u64| mix64(mix64(stream) ^ i as u64);
        let below = |x: u64, bound: u64| (u128::from(x) * u128::from(bound) >> 64) as u64;
        let times = numbers.clone().map(|i| (i / RECORDS_PER_MS) as i64);
        let auctions = numbers.clone().map(|i| mix64(below(draw(i, 1), keys)) as i64 >> 1);
        let bidders = numbers.clone().map(|i| below(draw(i, 2), 1_000_000) as i64);
        let prices = numbers.map(|i| 100 + below(draw(i, 3), 10_000) as i64);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
            long(auctions.collect()),
            long(bidders.collect()),
            long(prices.collect()),
        ];
        RecordBatch::try_new(schema.clone(), columns).expect("columns fit")
    };
    (0..count).step_by(rows_per_batch).map(batch).collect()
}

/// Columns of one of several sorted inputs: row time, number, value.
pub fn sorted_schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("number", DataType::BigInt.not_null()),
        Column::new("value", DataType::BigInt.not_null()),
    ])
}

/// One of `inputs` sorted inputs: merged by time, runs of so many rows come from each in turn.
pub fn sorted_input(
    count: usize,
    rows_per_batch: usize,
    input: usize,
    inputs: usize,
    run: usize,
) -> Vec<RecordBatch> {
    let schema = sorted_schema().arrow();
    let time = |i: usize| ((i / run * inputs + input) * run + i % run) as i64;
    let batch = |first: usize| {
        let numbers = first..first + rows_per_batch.min(count - first);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(numbers.clone().map(time))),
            Arc::new(Int64Array::from_iter_values(numbers.clone().map(|i| i as i64))),
            Arc::new(Int64Array::from_iter_values(numbers.map(|i| time(i) * 3))),
        ];
        RecordBatch::try_new(schema.clone(), columns).expect("columns fit")
    };
    (0..count).step_by(rows_per_batch).map(batch).collect()
}
