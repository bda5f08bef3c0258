//! Worked out by hand, and the virtual partition next to the hash of the operators.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array};
use arrow_array::{RecordBatch, StringViewArray};
use thalweg_core::shim::SplitMix64;

use super::canonical::virtual_partition;
use super::*;
use crate::keys::hash_keys;
use crate::reference::{ReferenceAggregate, ReferenceFunction};
use crate::test_kit::rows_of;

#[test]
fn the_virtual_partition_is_that_of_the_written_hash() {
    let mut random = SplitMix64::new(1);
    let count = 500;
    let some = |random: &mut SplitMix64| random.below(6) > 0;
    let mut draw = || some(&mut random).then(|| random.next_u64());
    let numbers: Vec<Option<u64>> = (0..count).map(|_| draw()).collect();
    let text = |n: u64| "abcdefghij".repeat(5)[..(n % 50) as usize].to_owned();
    let decimals: Decimal128Array =
        numbers.iter().map(|n| n.map(|n| i128::from(n as i64) * 1_000_003)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(numbers.iter().map(|n| n.map(|n| n as i64)).collect::<Int64Array>()),
        Arc::new(numbers.iter().map(|n| n.map(text)).collect::<StringViewArray>()),
        Arc::new(numbers.iter().map(|n| n.map(f64::from_bits)).collect::<Float64Array>()),
        Arc::new(numbers.iter().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>()),
        Arc::new(decimals.with_precision_and_scale(38, 2).expect("38 digits")),
    ];
    for places in [&[][..], &[0], &[1], &[2], &[3], &[4], &[0, 1], &[4, 3, 2, 1, 0]] {
        let keys: Vec<ArrayRef> = places.iter().map(|&at: &usize| columns[at].clone()).collect();
        let hashes = hash_keys(&keys, count).expect("types with a hash");
        let rows = match keys.as_slice() {
            [] => vec![Vec::new(); count],
            keys => {
                let named = keys.iter().enumerate().map(|(n, key)| (n.to_string(), key.clone()));
                rows_of(&[RecordBatch::try_from_iter(named).expect("one length")])
            }
        };
        for (row, hash) in rows.iter().zip(hashes) {
            assert_eq!(virtual_partition(row), (hash >> 56) as u8, "{row:?}");
        }
    }
}

fn row(time: i64, key: &str, number: f64, before: i64) -> Step {
    let values = vec![Value::Integer(time), Value::text(key), Value::Double(number)];
    Step::Row { values, before }
}

fn sum_by_key(window: ReferenceWindow) -> Stage {
    let sum = ReferenceAggregate::new(ReferenceFunction::Sum { bits: 64 }, Some(2));
    Stage::Windows(WindowStage { window, rowtime: 0, keys: vec![1], aggregates: vec![sum] })
}

fn sums(sequence: &Sequence) -> Vec<(String, f64, i64)> {
    let of = |row: &Values| match &row[..] {
        [Value::String(key), Value::Double(sum), _, Value::Integer(end), _] => {
            (key.clone(), *sum, *end)
        }
        other => panic!("{other:?}"),
    };
    sequence.rows.iter().map(of).collect()
}

/// 2^53 swallows each 1 that is added alone, but not two that were added up before.
const LARGE: f64 = 9_007_199_254_740_992.0;

#[test]
fn doubles_of_a_hopping_window_are_added_by_slice_oldest_first() {
    let window = ReferenceWindow::Hop { slide_ms: 10, size_ms: 20, offset_ms: 0 };
    let steps = vec![
        row(12, "k", 1.0, i64::MIN),
        row(3, "k", LARGE, i64::MIN),
        row(13, "k", 1.0, i64::MIN),
    ];
    let sequence = run(&[sum_by_key(window)], steps);
    let of = |sum, end| ("k".to_owned(), sum, end);
    assert_eq!(sums(&sequence), [of(LARGE, 10), of(LARGE + 2.0, 20), of(2.0, 30)]);
}

#[test]
fn doubles_of_joined_sessions_are_added_by_session_oldest_first() {
    let steps = vec![
        row(20, "k", 1.0, i64::MIN),
        row(21, "k", 1.0, i64::MIN),
        row(0, "k", LARGE, i64::MIN),
        row(10, "k", 1.0, i64::MIN),
    ];
    let sequence = run(&[sum_by_key(ReferenceWindow::Session { gap_ms: 10 })], steps);
    assert_eq!(sums(&sequence), [("k".to_owned(), LARGE + 2.0 + 1.0, 31)]);
}

#[test]
fn windows_leave_by_end_then_virtual_partition_then_key() {
    let window = ReferenceWindow::Tumble { size_ms: 10, offset_ms: 0 };
    let keys: Vec<String> = (0..2000).map(|n| format!("key {n}")).collect();
    let steps = keys
        .iter()
        .flat_map(|key| [row(15, key, 0.0, i64::MIN), row(5, key, 0.0, i64::MIN)])
        .collect();
    let sequence = run(&[sum_by_key(window)], steps);
    let order: Vec<(i64, u8, String)> = sums(&sequence)
        .into_iter()
        .map(|(key, _, end)| (end, virtual_partition(&[Value::text(&key)]), key))
        .collect();
    assert_eq!(order.len(), 4000);
    assert!(order.is_sorted());
}

#[test]
fn stages_follow_one_another() {
    let keep: ChainFunction = Box::new(|row| match row[2] {
        Value::Double(number) if number > 0.0 => vec![row.to_vec(), row.to_vec()],
        _ => Vec::new(),
    });
    let window = ReferenceWindow::Tumble { size_ms: 10, offset_ms: 0 };
    let steps = vec![
        row(1, "a", 1.0, i64::MIN),
        row(2, "a", 0.0, 1),
        row(11, "a", 3.0, 2),
        Step::Watermark(11),
        row(3, "a", 5.0, 11),
    ];
    let stages = [Stage::Chain(keep), sum_by_key(window), Stage::Limit { limit: None, offset: 1 }];
    let sequence = run(&stages, steps);
    assert_eq!(sums(&sequence), [("a".to_owned(), 6.0, 20)]);
    let late: Vec<usize> = sequence.late.iter().map(Vec::len).collect();
    assert_eq!(late, [0, 2, 0]);
}
