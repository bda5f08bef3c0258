//! The changes of random streams against results that are computed again for each row.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, RowKind, TableSchema};

use thalweg_operators::aggregate::AggregateCall;
use thalweg_operators::over_values::{OverValues, OverValuesSpec};
use thalweg_operators::reference::{ReferenceAggregate, ReferenceFunction as F, Value};
use thalweg_operators::sort::SortKey;
use thalweg_operators::test_kit::{
    DriveOptions, aggregate_pair, assert_same_rows, changelog_of, changes, check_captures,
    check_damaged_state, check_operator, drive, inserts, rows_of,
};

const KEY: usize = 0;
const ORDER: usize = 1;
const NUMBER: usize = 2;
const WORD: usize = 3;
const DOUBLE: usize = 4;
const FLAG: usize = 5;

fn input() -> TableSchema {
    let columns = [
        ("key", DataType::BigInt),
        ("order", DataType::STRING),
        ("number", DataType::BigInt),
        ("word", DataType::STRING),
        ("double", DataType::Double),
        ("flag", DataType::Boolean),
    ];
    TableSchema::new(columns.map(|(name, of)| Column::new(name, of.nullable())).to_vec())
}

fn fresh_rows(random: &mut SplitMix64, count: usize) -> RecordBatch {
    const WORDS: [&str; 5] = ["", "b", "a text of more than sixteen bytes", "c", "d"];
    let mut column = |bound: u64| -> Vec<Option<u64>> {
        (0..count).map(|_| (random.below(7) > 0).then(|| random.below(bound))).collect()
    };
    let (keys, orders, numbers) = (column(3), column(5), column(6));
    let (words, doubles, flags) = (column(4), column(5), column(2));
    let number = |value: Option<u64>| value.map(|value| value as i64 - 2);
    let word = |at: Option<u64>| at.map(|at| WORDS[at as usize]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys.into_iter().map(number).collect::<Int64Array>()),
        Arc::new(orders.into_iter().map(word).collect::<StringViewArray>()),
        Arc::new(numbers.into_iter().map(number).collect::<Int64Array>()),
        Arc::new(words.into_iter().map(word).collect::<StringViewArray>()),
        Arc::new(doubles.iter().map(|v| v.map(|v| v as f64 / 4.0)).collect::<Float64Array>()),
        Arc::new(flags.iter().map(|v| v.map(|v| v == 1)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(input().arrow(), columns).expect("columns of the table")
}

/// Rows and retractions of rows that are there; now and then all that are there go.
fn changelog(random: &mut SplitMix64, count: usize) -> (RecordBatch, Vec<RowKind>) {
    let fresh = fresh_rows(random, count);
    let mut shrinks = false;
    changelog_of(&fresh, random, |random, live| {
        shrinks ^= random.below(25) == 0;
        let goes = !live.is_empty() && random.below(10) < if shrinks { 8 } else { 3 };
        goes.then(|| live.swap_remove(random.below(live.len() as u64) as usize))
    })
}

type Calls = Vec<(AggregateCall, ReferenceAggregate)>;

fn call(
    name: &str,
    function: F,
    argument: Option<usize>,
    distinct: bool,
    filter: Option<usize>,
) -> (AggregateCall, ReferenceAggregate) {
    aggregate_pair(&input(), (name, function), argument, distinct, filter)
}

/// Aggregates that lose values from behind.
fn subtracting() -> Calls {
    let sum = F::Sum { bits: 64 };
    vec![
        call("COUNT", F::Count, None, false, None),
        call("SUM", sum, Some(NUMBER), false, None),
        call("AVG", F::Avg, Some(NUMBER), false, Some(FLAG)),
        call("SUM", sum, Some(DOUBLE), false, None),
        call("MIN", F::Min, Some(NUMBER), false, None),
        call("MAX", F::Max, Some(WORD), false, Some(FLAG)),
        call("COUNT", F::Count, Some(WORD), true, None),
    ]
}

/// Aggregates that depend on the sequence of values, and one that does not.
fn by_sequence() -> Calls {
    vec![
        call("FIRST_VALUE", F::First, Some(NUMBER), false, None),
        call("LAST_VALUE", F::Last, Some(WORD), false, Some(FLAG)),
        call("LISTAGG", F::ListAgg, Some(WORD), false, None),
        call("SUM", F::Sum { bits: 64 }, Some(NUMBER), false, None),
    ]
}

fn operator(calls: &Calls, keys: &[usize], includes_peers: bool) -> OverValues {
    OverValues::new(OverValuesSpec {
        keys: keys.to_vec(),
        order: vec![SortKey::ascending(ORDER)],
        includes_peers,
        calls: calls.iter().map(|(call, _)| call.clone()).collect(),
        input: input(),
        state_ttl_ms: None,
    })
    .expect("a valid specification")
}

/// The rows of a key in their order, each with its results.
type Sorted = Vec<(Vec<Value>, Vec<Value>)>;

/// The results of these rows, computed again.
fn results(rows: &[Vec<Value>], calls: &Calls, includes_peers: bool) -> Sorted {
    let frame_of = |place: usize| match includes_peers {
        true => rows.iter().rposition(|row| row[ORDER] == rows[place][ORDER]).unwrap_or(place),
        false => place,
    };
    let of = |place: usize| {
        let frame = &rows[..=frame_of(place)];
        calls.iter().map(|(_, aggregate)| aggregate.of(frame)).collect()
    };
    (0..rows.len()).map(|place| (rows[place].clone(), of(place))).collect()
}

fn line(kind: RowKind, (row, results): &(Vec<Value>, Vec<Value>)) -> Vec<Value> {
    let kind = Value::text(kind.short());
    std::iter::once(kind).chain(row.iter().chain(results).cloned()).collect()
}

/// What leaves for each row, in the order of values.
fn expected(
    rows: &[Vec<Value>],
    kinds: &[RowKind],
    (calls, keys, includes_peers): (&Calls, &[usize], bool),
) -> Vec<Vec<Value>> {
    let mut lines = Vec::new();
    let mut all: std::collections::BTreeMap<Vec<Value>, Vec<Vec<Value>>> = Default::default();
    for (row, &kind) in rows.iter().zip(kinds) {
        let sorted = all.entry(keys.iter().map(|&key| row[key].clone()).collect()).or_default();
        let old = results(sorted, calls, includes_peers);
        let adds = matches!(kind, RowKind::Insert | RowKind::UpdateAfter);
        let place = match adds {
            true => sorted.partition_point(|other| other[ORDER] <= row[ORDER]),
            false => sorted.iter().position(|other| other == row).expect("a row that is there"),
        };
        if adds {
            sorted.insert(place, row.clone());
        } else {
            sorted.remove(place);
        }
        let new = results(sorted, calls, includes_peers);
        for at in 0..old.len().max(new.len()) {
            let (before, after) = match (adds, at.cmp(&place)) {
                (true, std::cmp::Ordering::Equal) => {
                    lines.push(line(kind, &new[at]));
                    continue;
                }
                (false, std::cmp::Ordering::Equal) => {
                    lines.push(line(RowKind::Delete, &old[at]));
                    continue;
                }
                (true, std::cmp::Ordering::Greater) => (&old[at - 1], &new[at]),
                (false, std::cmp::Ordering::Greater) => (&old[at], &new[at - 1]),
                (_, std::cmp::Ordering::Less) => (&old[at], &new[at]),
            };
            if before != after {
                lines.push(line(RowKind::UpdateBefore, before));
                lines.push(line(RowKind::UpdateAfter, after));
            }
        }
    }
    lines
}

fn check(calls: &Calls, keys: &[usize], includes_peers: bool, seed: u64) {
    let random = &mut SplitMix64::new(seed);
    let (batch, kinds) = match seed % 3 {
        0 => (fresh_rows(random, 60), vec![RowKind::Insert; 60]),
        _ => changelog(random, 120),
    };
    let rows = rows_of(std::slice::from_ref(&batch));
    let expected = expected(&rows, &kinds, (calls, keys, includes_peers));
    let script = if seed.is_multiple_of(3) { inserts(&batch) } else { changes(&batch, &kinds) };
    let operator = operator(calls, keys, includes_peers);
    let what = format!("keys {keys:?}, peers {includes_peers}, seed {seed}");
    for bundle_rows in [1, 7, usize::MAX] {
        let options = DriveOptions { bundle_rows, empty_bundles: true, ..DriveOptions::default() };
        let driven = drive(&operator, &script, &options).expect("a run");
        let what = format!("{what}, bundles of {bundle_rows}");
        assert_same_rows(&driven.changes(), &expected, &what);
    }
    check_operator(&operator, &script);
    for (seed, bundle_rows) in [(1, 1), (2, 13)] {
        let options = DriveOptions { partitions: 3, bundle_rows, seed, ..DriveOptions::default() };
        check_captures(&operator, &script, &options);
    }
}

#[test]
fn results_in_an_order_of_values_are_updated() {
    for seed in 0..3 {
        for includes_peers in [true, false] {
            for keys in [&[KEY][..], &[]] {
                check(&subtracting(), keys, includes_peers, seed);
                check(&by_sequence(), keys, includes_peers, seed);
            }
        }
    }
}

/// A state that was captured and damaged is refused, or read without a panic.
#[test]
fn damaged_state_is_refused() {
    let (batch, kinds) = changelog(&mut SplitMix64::new(5), 60);
    check_damaged_state(&operator(&subtracting(), &[KEY], true), &changes(&batch, &kinds));
}

/// When all rows of a key have gone, nothing of it is kept.
#[test]
fn state_follows_the_rows() {
    let rows = fresh_rows(&mut SplitMix64::new(6), 400);
    let twice = arrow_select::concat::concat_batches(&input().arrow(), [&rows, &rows]);
    let kinds = [vec![RowKind::Insert; 400], vec![RowKind::Delete; 400]].concat();
    let script = changes(&twice.expect("two batches alike"), &kinds);
    let driven = drive(&operator(&subtracting(), &[KEY], true), &script, &DriveOptions::default());
    assert!(driven.expect("a run").final_rows().is_empty());
}

/// A row behind all others costs one step, whatever stands before it; so a key of many rows that
/// come in their order is done soon.
#[test]
fn rows_in_their_order_change_no_row_before_them() {
    let numbers: Vec<i64> = (0..100_000).collect();
    let nulls = |of: DataType| arrow_array::new_null_array(&of.arrow(), numbers.len());
    let orders = numbers.iter().map(|number| Some(format!("{number:08}")));
    let columns: Vec<ArrayRef> = vec![
        nulls(DataType::BigInt),
        Arc::new(orders.collect::<StringViewArray>()),
        Arc::new(Int64Array::from(numbers.clone())),
        nulls(DataType::STRING),
        nulls(DataType::Double),
        nulls(DataType::Boolean),
    ];
    let batch = RecordBatch::try_new(input().arrow(), columns).expect("columns of the table");
    let operator = operator(&subtracting(), &[], true);
    let driven = drive(&operator, &inserts(&batch), &DriveOptions::default()).expect("a run");
    let rows: usize = driven.emitted.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, numbers.len(), "no row updates another");
}
