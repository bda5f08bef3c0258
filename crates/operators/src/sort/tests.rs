use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, TableSchema, Watermark, WatermarkBefore};

use super::{SortKey, SortLimit};
use crate::limit::Limit;
use crate::reference::Value;
use crate::test_kit::{DriveOptions, Event, check_damaged_state, check_operator, drive, rows_of};

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("x", DataType::Double.nullable()),
        Column::new("s", DataType::STRING.nullable()),
        Column::new("n", DataType::BigInt.nullable()),
    ])
}

fn script(rows: usize, seed: u64) -> Vec<Event> {
    let mut random = SplitMix64::new(seed);
    let doubles =
        [None, Some(-0.0), Some(0.0), Some(f64::NAN), Some(-f64::NAN), Some(1.5), Some(-7.0)];
    let words = [None, Some("a"), Some("b"), Some("a longer word than fits"), Some("")];
    let x: ArrayRef =
        Arc::new(Float64Array::from_iter((0..rows).map(|_| doubles[random.below(7) as usize])));
    let s: ArrayRef =
        Arc::new(StringViewArray::from_iter((0..rows).map(|_| words[random.below(5) as usize])));
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let batch = RecordBatch::try_new(schema().arrow(), vec![x, s, n]).unwrap();
    let watermark_before = WatermarkBefore::All(Watermark::MIN);
    vec![Event::Rows { lane: 0, batch, watermark_before }]
}

fn input_rows(script: &[Event]) -> Vec<Vec<Value>> {
    match &script[0] {
        Event::Rows { batch, .. } => rows_of(std::slice::from_ref(batch)),
        Event::Changes { .. } | Event::Watermark(_) => panic!("a script begins with rows"),
    }
}

#[test]
fn sorts_with_flinks_nulls_and_ties_by_arrival() {
    let script = script(500, 1);
    // NULL is the smallest: last in descending order. The column n is the arrival.
    let mut expected = input_rows(&script);
    expected.sort_by(|a, b| b[0].cmp(&a[0]).then_with(|| a[1].cmp(&b[1])));
    let keys = vec![SortKey::descending(0), SortKey::ascending(1)];
    let operator = SortLimit::new(keys, None, 0, schema());
    check_damaged_state(&operator, &script);
    let driven = check_operator(&operator, &script);
    assert_eq!(rows_of(&driven.emitted), expected);
    assert!(driven.final_state_bytes < 1000);
}

#[test]
fn nulls_sort_where_the_key_says() {
    let script = script(50, 2);
    let first = |nulls_first| {
        let key = SortKey { column: 1, descending: false, nulls_first: Some(nulls_first) };
        let driven = check_operator(&SortLimit::new(vec![key], None, 0, schema()), &script);
        rows_of(&driven.emitted)[0][1].is_null()
    };
    assert!(first(true));
    assert!(!first(false));
}

#[test]
fn a_limit_keeps_few_rows_and_the_right_ones() {
    let script = script(200_000, 3);
    let mut expected = input_rows(&script);
    expected.sort_by(|a, b| a[0].cmp(&b[0]).then_with(|| b[1].cmp(&a[1])));
    let keys = vec![SortKey::ascending(0), SortKey::descending(1)];
    let operator = SortLimit::new(keys, Some(10), 5, schema());
    for (bundle_rows, restores) in [(1000, false), (usize::MAX, false), (1000, true)] {
        let options = DriveOptions { bundle_rows, restores, ..DriveOptions::default() };
        let driven = drive(&operator, &script, &options).unwrap();
        assert_eq!(rows_of(&driven.emitted), expected[5..15]);
        assert!(bundle_rows > 1000 || driven.peak_state_bytes < 2 << 20, "{driven:?}");
    }
    let beyond = SortLimit::new(vec![SortKey::ascending(2)], Some(3), 1_000_000, schema());
    let driven = drive(&beyond, &script, &DriveOptions::default()).unwrap();
    assert!(driven.emitted.is_empty());
}

#[test]
fn limit_takes_the_first_rows_by_arrival() {
    let script = script(100, 4);
    let expected = input_rows(&script);
    let driven = check_operator(&Limit::new(Some(10), 5, schema()), &script);
    assert_eq!(rows_of(&driven.emitted), expected[5..15]);
    assert!(driven.ended);
    let driven = check_operator(&Limit::new(None, 95, schema()), &script);
    assert_eq!(rows_of(&driven.emitted), expected[95..]);
    assert!(!driven.ended);
    let driven = check_operator(&Limit::new(Some(0), 0, schema()), &script);
    assert!(driven.emitted.is_empty());
}
