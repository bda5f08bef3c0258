//! How fast changelogs of aggregates without windows are made, on one thread, with data in memory.
//!
//! Run with `cargo run --release -p thalweg-operators --example group_speed`. Each line is the best
//! of several passes over batches of 8192 rows, in million input rows per second; nearly every row
//! makes two output rows. Keys are mixed, because structured ones flatter a hash table.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::shim::{SplitMix64, SystemClock, mix64};
use thalweg_core::{
    Bundle, Column, DataType, Error, Operator, Output, PartitionContext, Piece, RowKind, Stamps,
    TableSchema,
};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::group::{GroupAggregate, GroupSpec};

const ROWS: usize = 8192;
const BATCHES: usize = 200;
const PASSES: usize = 5;
const KEYS: u64 = 10_000;

/// Columns of the input.
const KEY: usize = 0;
const WORD: usize = 1;
const VALUE: usize = 2;
const PRICE: usize = 3;

fn main() -> Result<(), Error> {
    let count = || call("COUNT", None);
    let sum = || call("SUM", Some(VALUE));
    let two = || vec![count(), sum()];
    measure("count, sum by key", &[KEY], two(), Mode::Inserts)?;
    measure("count, sum by word", &[WORD], two(), Mode::Inserts)?;
    measure("count, sum by key and word", &[KEY, WORD], two(), Mode::Inserts)?;
    measure("count, sum without key", &[], two(), Mode::Inserts)?;
    measure("count, sum by key, a third retracted", &[KEY], two(), Mode::Retractions)?;
    measure("count, sum by key, mini batches", &[KEY], two(), Mode::MiniBatch)?;
    let extremes = || vec![call("MIN", Some(VALUE)), call("MAX", Some(VALUE))];
    measure("min, max by key", &[KEY], extremes(), Mode::Inserts)?;
    measure("min, max by key, a third retracted", &[KEY], extremes(), Mode::Retractions)?;
    measure("avg of decimals by key", &[KEY], vec![call("AVG", Some(PRICE))], Mode::Inserts)?;
    let distinct = || vec![AggregateCall { distinct: true, ..call("COUNT", Some(VALUE)) }];
    measure("count distinct by key", &[KEY], distinct(), Mode::Inserts)?;
    let last = || vec![call("LAST_VALUE", Some(VALUE))];
    measure("last value by key", &[KEY], last(), Mode::Inserts)?;
    measure("last value by key, a third retracted", &[KEY], last(), Mode::Retractions)?;
    measure("select distinct", &[KEY], vec![], Mode::Inserts)
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Inserts,
    Retractions,
    MiniBatch,
}

fn input() -> TableSchema {
    let column = |(name, data_type): (&str, DataType)| Column::new(name, data_type.nullable());
    let columns = [
        ("key", DataType::BigInt),
        ("word", DataType::STRING),
        ("value", DataType::BigInt),
        ("price", DataType::Decimal(10, 2)),
    ];
    TableSchema::new(columns.into_iter().map(column).collect())
}

fn call(name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> =
        argument.iter().map(|&at| input().columns[at].column_type.clone()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_string();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

fn measure(what: &str, keys: &[usize], calls: Vec<AggregateCall>, mode: Mode) -> Result<(), Error> {
    let bundles = bundles(mode)?;
    let operator = GroupAggregate::new(GroupSpec {
        keys: keys.to_vec(),
        calls,
        input: input(),
        retracts: mode == Mode::Retractions,
        state_ttl_ms: None,
        mini_batch: mode == Mode::MiniBatch,
    })?;
    let clock = Arc::new(SystemClock::new());
    let mut best = f64::MAX;
    let mut emitted = 0;
    let mut state_bytes = 0;
    for _ in 0..PASSES {
        let mut partition = operator.open(PartitionContext::only())?;
        emitted = 0;
        let start = Instant::now();
        for bundle in &bundles {
            let mut output = Output::new(Arc::clone(&clock) as _, u64::MAX);
            partition.rows(Piece::whole(bundle, 1), &mut output)?;
            emitted += output.emitted.iter().map(|e| e.batch.num_rows()).sum::<usize>();
            std::hint::black_box(&output.emitted);
        }
        best = best.min(start.elapsed().as_secs_f64());
        state_bytes = partition.state_bytes();
    }
    let rows = (ROWS * BATCHES) as f64;
    let (speed, each) = (rows / best / 1e6, emitted as f64 / rows);
    println!(
        "{what:40} {speed:7.1} M rows/s, {each:4.2} rows out for each, {state_bytes} B of state"
    );
    Ok(())
}

/// Rows with keys of 10,000; retractions retract one of the rows of the same batch.
fn bundles(mode: Mode) -> Result<Vec<Bundle>, Error> {
    let mut random = SplitMix64::new(1);
    (0..BATCHES)
        .map(|_| {
            let mut rows: Vec<(u64, i64, RowKind)> = Vec::with_capacity(ROWS);
            let mut live = Vec::new();
            while rows.len() < ROWS {
                if mode == Mode::Retractions && !live.is_empty() && random.below(3) == 0 {
                    let (key, value) = live.swap_remove(random.below(live.len() as u64) as usize);
                    rows.push((key, value, RowKind::Delete));
                } else {
                    let row = (random.below(KEYS), random.below(1000) as i64);
                    live.push(row);
                    rows.push((row.0, row.1, RowKind::Insert));
                }
            }
            bundle(&rows, mode)
        })
        .collect()
}

fn bundle(rows: &[(u64, i64, RowKind)], mode: Mode) -> Result<Bundle, Error> {
    let words = rows.iter().map(|row| format!("{:x}", mix64(row.0) >> 44));
    let prices = rows.iter().map(|row| i128::from(row.1));
    let prices = arrow_array::Decimal128Array::from_iter_values(prices);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| mix64(row.0) as i64))),
        Arc::new(StringViewArray::from_iter_values(words)),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(prices.with_precision_and_scale(10, 2)?),
    ];
    let mut bundle = Bundle::new(RecordBatch::try_new(input().arrow(), columns)?, Stamps::first());
    if mode == Mode::Retractions {
        bundle.kinds = Some(rows.iter().map(|row| row.2).collect());
    }
    Ok(bundle)
}
