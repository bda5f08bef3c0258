//! Seeded input, in memory before any clock starts.
//!
//! Every record is a pure function of its number, so any split over sources gives the same
//! records. Buffers are 256 MiB or more, so that nothing is measured out of a cache.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg::{Column, DataType, TableSchema};
use thalweg_core::shim::mix64;
use thalweg_workloads::streambox::wordcount;

/// Event time per record: a million records span one second.
const RECORDS_PER_MS: usize = 1000;

/// Records of exactly 100 bytes of words, `count` of them: those of the workload.
pub fn text_records(count: usize, seed: u64) -> Vec<RecordBatch> {
    let settings = wordcount::Settings::with_records(count as u64);
    wordcount::table(&wordcount::Settings { seed, ..settings }).batches
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
        let below = |x: u64, bound: u64| ((u128::from(x) * u128::from(bound)) >> 64) as u64;
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

/// One of `inputs` sorted inputs: merged by time, runs of this many rows come from each in turn.
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
