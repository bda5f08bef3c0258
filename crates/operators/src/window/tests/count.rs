//! Count windows against a loop that keeps the last rows of each key.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{
    Bundle, Column, DataType, Operator, OrderContract, Output, PartitionContext, Piece, Place,
    Route, Stamps, TableSchema, Watermark, WatermarkBefore,
};

use crate::aggregate::{AggregateCall, resolve};
use crate::test_kit::{DriveOptions, Event, check_operator, drive, lines_of};
use crate::window::{CountWindowAggregate, CountWindowSpec};

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("key", DataType::BigInt.nullable()),
        Column::new("value", DataType::BigInt.not_null()),
        Column::new("weight", DataType::Double.not_null()),
    ])
}

fn aggregate(name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> = argument.iter().map(|&a| schema().columns[a].column_type.clone()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_lowercase();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

fn operator(size: u64, slide: u64, keys: &[usize]) -> CountWindowAggregate {
    let aggregates = vec![
        aggregate("COUNT", None),
        aggregate("SUM", Some(2)),
        aggregate("MIN", Some(2)),
        aggregate("FIRST_VALUE", Some(2)),
        aggregate("LAST_VALUE", Some(2)),
        aggregate("SUM", Some(3)),
    ];
    let spec = CountWindowSpec { size, slide, keys: keys.to_vec(), aggregates, input: schema() };
    CountWindowAggregate::new(spec).expect("it fits")
}

/// (key, value) with a weight that depends on the value.
type Row = (Option<i64>, i64);

fn weight(value: i64) -> f64 {
    1.0 / (value as f64 + 3.0)
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_value(0, rows.len())),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| weight(row.1)))),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("it fits")
}

/// The results, each with the row that completes it.
fn reference(rows: &[Row], size: usize, slide: usize) -> Vec<(usize, String)> {
    let mut of_key: HashMap<Option<i64>, Vec<i64>> = HashMap::new();
    let mut results = Vec::new();
    for (place, &(key, value)) in rows.iter().enumerate() {
        let seen = of_key.entry(key).or_default();
        seen.push(value);
        if seen.len().is_multiple_of(slide) {
            let last = &seen[seen.len().saturating_sub(size)..];
            let weights = last.iter().fold(0.0, |sum, &value| sum + weight(value));
            let key = key.map_or("\\N".to_owned(), |key| key.to_string());
            let (count, sum) = (last.len(), last.iter().sum::<i64>());
            let smallest = last.iter().min().expect("the row itself");
            let (first, newest) = (last[0], value);
            let line = format!("+I,{key},{count},{sum},{smallest},{first},{newest},{weights:?}");
            results.push((place, line));
        }
    }
    results
}

fn random_rows(random: &mut SplitMix64, count: usize) -> Vec<Row> {
    let row = |_| {
        let key = random.below(6) as i64;
        ((key > 0).then_some(key), random.below(1000) as i64)
    };
    (0..count).map(row).collect()
}

fn all_lines(batches: &[RecordBatch]) -> Vec<String> {
    batches.iter().flat_map(|batch| lines_of(batch, None)).collect()
}

#[test]
fn windows_are_those_of_a_loop_whatever_the_bundles() {
    for seed in 0..150 {
        let mut random = SplitMix64::new(seed);
        let (size, slide) = (1 + random.below(7), 1 + random.below(7));
        let rows = random_rows(&mut random, 120);
        let operator = operator(size, slide, &[1]);
        let open = PartitionContext { order: OrderContract::Arrival, ..PartitionContext::only() };
        let mut partition = operator.open(open).expect("it opens");
        let (mut found, mut from) = (Vec::new(), 0);
        while from < rows.len() {
            let to = (from + 1 + random.below(40) as usize).min(rows.len());
            // FIRST_VALUE goes by where a bundle stands among its neighbours.
            let stamps = Stamps { ordinal: from as u64, ..Stamps::first() };
            let bundle = Bundle::new(batch(&rows[from..to]), stamps);
            let mut output =
                Output::new(Arc::new(thalweg_core::shim::ManualClock::default()), u64::MAX);
            let piece = Piece::whole(&bundle, 1);
            partition.rows(piece, &mut output).expect("rows are taken");
            for emitted in output.emitted {
                let Place::Caused(causes) = emitted.place else { panic!("caused by rows") };
                let lines = lines_of(&emitted.batch, None);
                found.extend(causes.iter().map(|&cause| from + cause as usize).zip(lines));
            }
            from = to;
        }
        let wanted = reference(&rows, size as usize, slide as usize);
        assert_eq!(found, wanted, "size {size}, slide {slide}, seed {seed}");
    }
}

#[test]
fn the_test_kit_finds_no_difference() {
    let mut random = SplitMix64::new(7);
    let rows = random_rows(&mut random, 300);
    let rows_event = Event::Rows {
        lane: 0,
        batch: batch(&rows),
        watermark_before: WatermarkBefore::All(Watermark::MIN),
    };
    for (size, slide) in [(4, 4), (5, 2), (2, 5)] {
        let script = [rows_event.clone()];
        let driven = check_operator(&operator(size, slide, &[1]), &script);
        let mut found = all_lines(&driven.emitted);
        let wanted = reference(&rows, size as usize, slide as usize);
        let mut wanted: Vec<String> = wanted.into_iter().map(|(_, line)| line).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "size {size}, slide {slide}");
    }
}

#[test]
fn without_keys_all_rows_are_counted_together() {
    let rows: Vec<Row> = (0..7).map(|value| (Some(value), value)).collect();
    let bundle = Bundle::new(batch(&rows), Stamps::first());
    let operator = operator(3, 3, &[]);
    let Route::Scatter(parts) = operator.route(&bundle, 2).expect("it routes") else {
        panic!("one partition has all")
    };
    assert_eq!(parts[0].len(), 7);
    let mut partition = operator.open(PartitionContext::only()).expect("it opens");
    let mut output = Output::new(Arc::new(thalweg_core::shim::ManualClock::default()), u64::MAX);
    let piece = Piece::whole(&bundle, 1);
    partition.rows(piece, &mut output).expect("rows are taken");
    let batches: Vec<_> = output.emitted.into_iter().map(|emitted| emitted.batch).collect();
    let lines = all_lines(&batches);
    assert_eq!(lines.len(), 2, "the seventh row completes nothing: {lines:?}");
    assert!(lines[1].starts_with("+I,3,12,3,3,5"), "{lines:?}");
}

#[test]
fn keys_whose_window_has_left_take_no_memory() {
    let operator = operator(2, 2, &[1]);
    let rows_of = |key: i64| [(Some(key), 1), (Some(key), 2)];
    let events = |keys: i64| {
        let rows: Vec<Row> = (0..keys).flat_map(rows_of).collect();
        [Event::Rows {
            lane: 0,
            batch: batch(&rows),
            watermark_before: WatermarkBefore::All(Watermark::MIN),
        }]
    };
    let options = DriveOptions { bundle_rows: 100, ..DriveOptions::default() };
    let few = drive(&operator, &events(1_000), &options).expect("it runs");
    let many = drive(&operator, &events(100_000), &options).expect("it runs");
    assert_eq!(many.final_state_bytes, few.final_state_bytes);
}

#[test]
fn windows_of_no_rows_are_refused() {
    let spec = CountWindowSpec {
        size: 0,
        slide: 1,
        keys: vec![],
        aggregates: vec![aggregate("COUNT", None)],
        input: schema(),
    };
    let error = CountWindowAggregate::new(spec).err().expect("refused");
    assert!(error.message().contains("at least one row"), "{error}");
}
