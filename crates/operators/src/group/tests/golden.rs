//! Golden cases, as Flink answered them.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMillisecondArray,
};
use thalweg_core::{DataType, RowKind, TableSchema};

use super::{batch, call, changes, distinct, filtered, inserts, lines, operator, spec, table};
use crate::aggregate::AggregateCall;
use crate::test_kit::{DriveOptions, check_operator, drive};

const NEW_YEAR_MS: i64 = 1_767_225_600_000;

/// Milliseconds after the new year, item, cents, quantity.
const BIDS: [(i64, &str, i128, i32); 10] = [
    (0, "A", 1000, 1),
    (4_999, "B", 2050, 2),
    (5_000, "A", 125, 3),
    (9_999, "A", 300, 4),
    (10_000, "B", 777, 5),
    (8_500, "A", 200, 6),
    (31_000, "C", 999, 7),
    (20_000, "A", 400, 8),
    (29_000, "A", 500, 9),
    (36_000, "B", 600, 10),
];

/// The table `bid`, and two conditions: `qty > 6` and `price < 5`.
fn bids() -> (TableSchema, RecordBatch) {
    let input = table(&[
        ("bidtime", DataType::Timestamp(3)),
        ("item", DataType::STRING),
        ("price", DataType::Decimal(10, 2)),
        ("qty", DataType::Int),
        ("many", DataType::Boolean),
        ("cheap", DataType::Boolean),
    ]);
    let times = BIDS.iter().map(|bid| NEW_YEAR_MS + bid.0);
    let prices = Decimal128Array::from_iter_values(BIDS.iter().map(|bid| bid.2));
    let prices = prices.with_precision_and_scale(10, 2).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        Arc::new(StringViewArray::from_iter_values(BIDS.iter().map(|bid| bid.1))),
        Arc::new(prices),
        Arc::new(Int32Array::from_iter_values(BIDS.iter().map(|bid| bid.3))),
        Arc::new(BIDS.iter().map(|bid| Some(bid.3 > 6)).collect::<BooleanArray>()),
        Arc::new(BIDS.iter().map(|bid| Some(bid.2 < 500)).collect::<BooleanArray>()),
    ];
    let rows = batch(&input, columns);
    (input, rows)
}

fn check(
    input: &TableSchema,
    rows: &RecordBatch,
    keys: &[usize],
    calls: Vec<AggregateCall>,
    expected: &[&str],
) {
    for retracts in [false, true] {
        let spec = super::GroupSpec { retracts, ..spec(input, keys, calls.clone()) };
        let driven = check_operator(&operator(spec), &inserts(rows));
        assert_eq!(lines(&driven), expected, "retracts: {retracts}");
    }
}

#[test]
fn group_agg_changelog() {
    let (input, rows) = bids();
    let of = |name, argument| call(&input, name, argument);
    let calls = vec![
        of("COUNT", None),
        of("SUM", Some(2)),
        of("AVG", Some(2)),
        of("AVG", Some(3)),
        of("MIN", Some(0)),
        of("MAX", Some(2)),
    ];
    let expected = [
        "+I,A,1,10.00,10.000000,1,2026-01-01 00:00:00.000,10.00",
        "+I,B,1,20.50,20.500000,2,2026-01-01 00:00:04.999,20.50",
        "-U,A,1,10.00,10.000000,1,2026-01-01 00:00:00.000,10.00",
        "+U,A,2,11.25,5.625000,2,2026-01-01 00:00:00.000,10.00",
        "-U,A,2,11.25,5.625000,2,2026-01-01 00:00:00.000,10.00",
        "+U,A,3,14.25,4.750000,2,2026-01-01 00:00:00.000,10.00",
        "-U,B,1,20.50,20.500000,2,2026-01-01 00:00:04.999,20.50",
        "+U,B,2,28.27,14.135000,3,2026-01-01 00:00:04.999,20.50",
        "-U,A,3,14.25,4.750000,2,2026-01-01 00:00:00.000,10.00",
        "+U,A,4,16.25,4.062500,3,2026-01-01 00:00:00.000,10.00",
        "+I,C,1,9.99,9.990000,7,2026-01-01 00:00:31.000,9.99",
        "-U,A,4,16.25,4.062500,3,2026-01-01 00:00:00.000,10.00",
        "+U,A,5,20.25,4.050000,4,2026-01-01 00:00:00.000,10.00",
        "-U,A,5,20.25,4.050000,4,2026-01-01 00:00:00.000,10.00",
        "+U,A,6,25.25,4.208333,5,2026-01-01 00:00:00.000,10.00",
        "-U,B,2,28.27,14.135000,3,2026-01-01 00:00:04.999,20.50",
        "+U,B,3,34.27,11.423333,5,2026-01-01 00:00:04.999,20.50",
    ];
    check(&input, &rows, &[1], calls, &expected);
}

#[test]
fn group_agg_same_value_no_update() {
    let (input, rows) = bids();
    let calls = vec![call(&input, "MIN", Some(2))];
    let expected = [
        "+I,A,10.00",
        "+I,B,20.50",
        "-U,A,10.00",
        "+U,A,1.25",
        "-U,B,20.50",
        "+U,B,7.77",
        "+I,C,9.99",
        "-U,B,7.77",
        "+U,B,6.00",
    ];
    check(&input, &rows, &[1], calls, &expected);
}

/// The input of HAVING: what the filter behind lets through is Flink's answer.
#[test]
fn having_changelog() {
    let (input, rows) = bids();
    let aggregate = operator(spec(&input, &[1], vec![call(&input, "SUM", Some(3))]));
    let driven = check_operator(&aggregate, &inserts(&rows));
    let visible = |line: &String| {
        let sum: i32 = line.rsplit(',').next().and_then(|sum| sum.parse().ok()).unwrap();
        (4..=20).contains(&sum)
    };
    let lines: Vec<String> = lines(&driven).into_iter().filter(visible).collect();
    let expected = [
        "+U,A,4", "-U,A,4", "+U,A,8", "+U,B,7", "-U,A,8", "+U,A,14", "+I,C,7", "-U,A,14", "-U,B,7",
        "+U,B,17",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn distinct_select() {
    let (input, rows) = bids();
    check(&input, &rows, &[1], vec![], &["+I,A", "+I,B", "+I,C"]);
    let aggregate = operator(spec(&input, &[1], vec![]));
    assert!(aggregate.emits_inserts_only());
    let driven = drive(&aggregate, &inserts(&rows), &DriveOptions::default()).unwrap();
    assert!(driven.kinds.iter().all(Option::is_none), "nothing but inserts");
}

#[test]
fn global_agg_changelog() {
    let (input, rows) = bids();
    let calls = vec![call(&input, "COUNT", None), call(&input, "SUM", Some(3))];
    let mut expected = vec!["+I,1,1".to_string()];
    let sums = [1, 3, 6, 10, 15, 21, 28, 36, 45, 55];
    for count in 2..=10 {
        expected.push(format!("-U,{},{}", count - 1, sums[count - 2]));
        expected.push(format!("+U,{count},{}", sums[count - 1]));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(&input, &rows, &[], calls.clone(), &expected);
    // global_agg_empty_input
    check(&input, &rows.slice(0, 0), &[], calls, &[]);
}

/// Without LISTAGG, which is an aggregate of its own.
#[test]
fn count_distinct_filter() {
    let (input, rows) = bids();
    let items = distinct(call(&input, "COUNT", Some(1)));
    let calls = vec![
        items.clone(),
        filtered(items, 4),
        filtered(call(&input, "COUNT", None), 5),
        call(&input, "FIRST_VALUE", Some(1)),
        call(&input, "LAST_VALUE", Some(1)),
        call(&input, "COUNT", None),
    ];
    let after = [
        "1,0,0,A,A,1",
        "2,0,0,A,B,2",
        "2,0,1,A,A,3",
        "2,0,2,A,A,4",
        "2,0,2,A,B,5",
        "2,0,3,A,A,6",
        "3,1,3,A,C,7",
        "3,2,4,A,A,8",
        "3,2,4,A,A,9",
        "3,3,4,A,B,10",
    ];
    let mut expected = vec![format!("+I,{}", after[0])];
    for pair in after.windows(2) {
        expected.extend([format!("-U,{}", pair[0]), format!("+U,{}", pair[1])]);
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(&input, &rows, &[], calls, &expected);
}

#[test]
fn null_keys_values() {
    let input = table(&[
        ("item", DataType::STRING),
        ("price", DataType::Decimal(10, 2)),
        ("qty", DataType::Int),
    ]);
    let prices = Decimal128Array::from(vec![Some(100), Some(200), None, None, None]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from(vec![Some("A"), None, Some("A"), None, Some("B")])),
        Arc::new(prices.with_precision_and_scale(10, 2).unwrap()),
        Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(3), None])),
    ];
    let of = |name, argument| call(&input, name, argument);
    let calls = vec![
        of("COUNT", None),
        of("COUNT", Some(1)),
        of("SUM", Some(1)),
        of("SUM", Some(2)),
        of("AVG", Some(2)),
        of("MIN", Some(1)),
    ];
    let expected = [
        "+I,A,1,1,1.00,1,1,1.00",
        "+I,\\N,1,1,2.00,2,2,2.00",
        "-U,A,1,1,1.00,1,1,1.00",
        "+U,A,2,1,1.00,1,1,1.00",
        "-U,\\N,1,1,2.00,2,2,2.00",
        "+U,\\N,2,1,2.00,5,2,2.00",
        "+I,B,1,0,\\N,\\N,\\N,\\N",
    ];
    check(&input, &batch(&input, columns), &[0], calls, &expected);
}

#[test]
fn sum_int_overflow_and_avg_types() {
    let input = table(&[
        ("id", DataType::Int),
        ("wide", DataType::BigInt),
        ("cents", DataType::Decimal(10, 2)),
    ]);
    let rows = |ids: Vec<i32>| {
        let cents = ids.iter().map(|&id| i128::from(id) * 100 % 10i128.pow(10));
        let cents = Decimal128Array::from_iter_values(cents);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(ids.clone())),
            Arc::new(Int64Array::from_iter_values(ids.iter().map(|&id| id.into()))),
            Arc::new(cents.with_precision_and_scale(10, 2).unwrap()),
        ];
        batch(&input, columns)
    };
    let of = |name, argument| call(&input, name, argument);
    let calls = vec![of("SUM", Some(0)), of("AVG", Some(0)), of("SUM", Some(1))];
    let expected = [
        "+I,2147483647,2147483647,2147483647",
        "-U,2147483647,2147483647,2147483647",
        "+U,-2147483648,1073741824,2147483648",
    ];
    check(&input, &rows(vec![2_147_483_647, 1]), &[], calls, &expected);
    let calls = vec![
        of("AVG", Some(0)),
        of("AVG", Some(2)),
        of("STDDEV_POP", Some(0)),
        of("VAR_SAMP", Some(0)),
        of("COUNT", Some(0)),
    ];
    let expected = [
        "+I,1,1.000000,0,\\N,1",
        "-U,1,1.000000,0,\\N,1",
        "+U,1,1.500000,0,0,2",
        "-U,1,1.500000,0,0,2",
        "+U,1,1.666667,0,0,3",
    ];
    check(&input, &rows(vec![1, 2, 2]), &[], calls, &expected);
}

/// Rule 17: a group whose count falls to 0 leaves with -D, and starts from scratch with +I, also
/// within one bundle and for an aggregate over another one's updates.
#[test]
fn a_group_that_ends_starts_from_scratch() {
    let input = table(&[("k", DataType::BigInt), ("v", DataType::Double)]);
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
    let rows = [
        (Insert, 1, 0.1),
        (Insert, 1, 0.2),
        (UpdateBefore, 1, 0.1),
        (UpdateAfter, 2, 0.1),
        (UpdateBefore, 1, 0.2),
        (UpdateAfter, 1, 0.7),
        (Delete, 1, 0.7),
        (Delete, 2, 0.1),
    ];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(arrow_array::Float64Array::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    let kinds = rows.map(|row| row.0);
    let calls = vec![call(&input, "SUM", Some(1)), call(&input, "MAX", Some(1))];
    let spec = super::GroupSpec { retracts: true, ..spec(&input, &[0], calls) };
    let driven = check_operator(&operator(spec), &changes(&batch(&input, columns), &kinds));
    // What leaves a sum leaves no trace: 0.1 + 0.2 - 0.1 is 0.2.
    let left = 0.2;
    let expected = [
        "+I,1,0.1,0.1".to_string(),
        "-U,1,0.1,0.1".to_string(),
        format!("+U,1,{},0.2", 0.1 + 0.2),
        format!("-U,1,{},0.2", 0.1 + 0.2),
        format!("+U,1,{left},0.2"),
        "+I,2,0.1,0.1".to_string(),
        format!("-D,1,{left},0.2"),
        "+I,1,0.7,0.7".to_string(),
        "-D,1,0.7,0.7".to_string(),
        "-D,2,0.1,0.1".to_string(),
    ];
    assert_eq!(lines(&driven), expected);
}
