//! Golden cases, as Flink answered them.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Decimal128Array, Int32Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
    UInt32Array,
};
use arrow_select::take::take_record_batch;
use thalweg_core::{DataType, Operator, TableSchema};

use super::{batch, check_changes, inserts, lines, numbered, operator, spec, table};
use crate::sort::SortKey;
use crate::test_kit::{DriveOptions, Event, check_operator, drive, stamped};
use crate::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, RankFunction, TopN, TopNSpec,
};
use crate::window::LatePolicy;

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

/// Some columns of the table `bid`.
fn bids(picked: &[&str]) -> (TableSchema, RecordBatch) {
    let times = BIDS.iter().map(|bid| NEW_YEAR_MS + bid.0);
    let prices = Decimal128Array::from_iter_values(BIDS.iter().map(|bid| bid.2));
    let all: [(&str, DataType, ArrayRef); 4] = [
        (
            "bidtime",
            DataType::Timestamp(3),
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        ),
        (
            "item",
            DataType::STRING,
            Arc::new(StringViewArray::from_iter_values(BIDS.iter().map(|bid| bid.1))),
        ),
        (
            "price",
            DataType::Decimal(10, 2),
            Arc::new(prices.with_precision_and_scale(10, 2).unwrap()),
        ),
        (
            "qty",
            DataType::Int,
            Arc::new(Int32Array::from_iter_values(BIDS.iter().map(|bid| bid.3))),
        ),
    ];
    let find = |name: &&str| all.iter().find(|column| column.0 == *name).expect("a column");
    let columns: Vec<(&str, DataType)> =
        picked.iter().map(|name| (find(name).0, find(name).1.clone())).collect();
    let input = table(&columns);
    let rows = batch(&input, picked.iter().map(|name| ArrayRef::clone(&find(name).2)).collect());
    (input, rows)
}

/// Each cut into bundles gives this sequence where there is one partition, and these rows in any
/// case.
fn check(operator: &dyn Operator, script: &[Event], expected: &[&str]) {
    assert_eq!(lines(&check_operator(operator, script)), expected);
    for bundle_rows in [1, 2, 3, 7] {
        let options = DriveOptions { bundle_rows, ..DriveOptions::default() };
        let driven = drive(operator, script, &options).expect("a run");
        assert_eq!(lines(&driven), expected, "bundles of {bundle_rows}");
    }
}

fn first_two(input: &TableSchema) -> TopNSpec {
    spec(input, &[0], vec![SortKey::descending(1)], 2)
}

#[test]
fn topn_changelog() {
    let (input, rows) = bids(&["item", "price"]);
    let expected = [
        "+I,A,10.00,1",
        "+I,B,20.50,1",
        "+I,A,1.25,2",
        "-U,A,1.25,2",
        "+U,A,3.00,2",
        "+I,B,7.77,2",
        "+I,C,9.99,1",
        "-U,A,3.00,2",
        "+U,A,4.00,2",
        "-U,A,4.00,2",
        "+U,A,5.00,2",
    ];
    check(&operator(numbered(first_two(&input))), &inserts(&rows), &expected);
    // What may be retracted changes nothing as long as nothing is.
    let retracting = TopNSpec { retracts: true, ..numbered(first_two(&input)) };
    check(&operator(retracting), &inserts(&rows), &expected);
    // rank_not_row_number: without ties ranks are row numbers.
    for function in [RankFunction::Rank, RankFunction::DenseRank] {
        let ranked = operator(TopNSpec { function, ..numbered(first_two(&input)) });
        let mut left = Vec::new();
        for row in check_operator(&ranked, &inserts(&rows)).final_rows() {
            left.push(format!("{row:?}"));
        }
        let numbers = operator(numbered(first_two(&input)));
        let numbers = check_operator(&numbers, &inserts(&rows)).final_rows();
        assert_eq!(left, numbers.iter().map(|row| format!("{row:?}")).collect::<Vec<_>>());
    }
}

#[test]
fn topn_no_rownum_output() {
    let (input, rows) = bids(&["item", "price"]);
    let expected = [
        "+I,A,10.00",
        "+I,B,20.50",
        "+I,A,1.25",
        "-D,A,1.25",
        "+I,A,3.00",
        "+I,B,7.77",
        "+I,C,9.99",
        "-D,A,3.00",
        "+I,A,4.00",
        "-D,A,4.00",
        "+I,A,5.00",
    ];
    for retracts in [false, true] {
        let spec = TopNSpec { retracts, ..first_two(&input) };
        check(&operator(spec), &inserts(&rows), &expected);
    }
}

#[test]
fn order_by_limit_changelog() {
    let (input, rows) = bids(&["item", "qty"]);
    let expected = [
        "+I,A,1", "+I,B,2", "-D,A,1", "+I,A,3", "-D,B,2", "+I,A,4", "-D,A,3", "+I,B,5", "-D,A,4",
        "+I,A,6", "-D,B,5", "+I,C,7", "-D,A,6", "+I,A,8", "-D,C,7", "+I,A,9", "-D,A,8", "+I,B,10",
    ];
    let limit = operator(spec(&input, &[], vec![SortKey::descending(1)], 2));
    assert!(limit.is_singleton());
    check(&limit, &inserts(&rows), &expected);
    // OFFSET 1: the second row.
    let second = TopNSpec { from: 2, ..spec(&input, &[], vec![SortKey::descending(1)], 2) };
    let expected = [
        "+I,A,1", "-D,A,1", "+I,B,2", "-D,B,2", "+I,A,3", "-D,A,3", "+I,A,4", "-D,A,4", "+I,B,5",
        "-D,B,5", "+I,A,6", "-D,A,6", "+I,C,7", "-D,C,7", "+I,A,8", "-D,A,8", "+I,A,9",
    ];
    check(&operator(second), &inserts(&rows), &expected);
}

/// The input of the window Top-N: what the aggregate before it sends, with the watermarks that the
/// bids establish.
#[test]
fn window_topn() {
    let input = table(&[
        ("window_start", DataType::Timestamp(3)),
        ("window_end", DataType::Timestamp(3)),
        ("item", DataType::STRING),
        ("sp", DataType::Decimal(38, 2)),
    ]);
    let sums = [(0, "A", 1625), (0, "B", 2827), (20, "A", 900), (20, "B", 600), (20, "C", 999)];
    let time = |at: fn(i64) -> i64| -> ArrayRef {
        let times = sums.iter().map(|sum| NEW_YEAR_MS + at(sum.0) * 1000);
        Arc::new(TimestampMillisecondArray::from_iter_values(times))
    };
    let prices = Decimal128Array::from_iter_values(sums.iter().map(|sum| sum.2));
    let columns: Vec<ArrayRef> = vec![
        time(|start| start),
        time(|start| start + 20),
        Arc::new(StringViewArray::from_iter_values(sums.iter().map(|sum| sum.1))),
        Arc::new(prices.with_precision_and_scale(38, 2).unwrap()),
    ];
    let rows = batch(&input, columns);
    let two = numbered(spec(&input, &[0, 1], vec![SortKey::descending(3)], 2));
    let first: TopN = operator(TopNSpec { window_end: Some(1), ..two });
    assert!(first.emits_inserts_only());
    let closing = NEW_YEAR_MS + 19_999;
    let watermarks = [None, Some(closing), None, None, None];
    let expected = [
        "+I,2026-01-01 00:00:00.000,2026-01-01 00:00:20.000,B,28.27,1",
        "+I,2026-01-01 00:00:00.000,2026-01-01 00:00:20.000,A,16.25,2",
        "+I,2026-01-01 00:00:20.000,2026-01-01 00:00:40.000,C,9.99,1",
        "+I,2026-01-01 00:00:20.000,2026-01-01 00:00:40.000,A,9.00,2",
    ];
    check(&first, &stamped(&rows, &watermarks, 2), &expected);
    // A row of the first window that comes now is late.
    let again = take_record_batch(&rows, &UInt32Array::from(vec![0, 1, 2, 0])).unwrap();
    let script = stamped(&again, &[None, Some(closing), None, None], 1);
    let driven = check_operator(&first, &script);
    assert_eq!((driven.accepted, driven.late), (3, 1));
    assert_eq!(lines(&driven).len(), 3);
}

fn deduplicate(input: &TableSchema, keep: Keep, by: DeduplicateBy) -> Deduplicate {
    Deduplicate::new(DeduplicateSpec {
        keys: vec![0],
        keep,
        by,
        input: input.clone(),
        state_ttl_ms: None,
        late: LatePolicy::Drop,
    })
    .expect("a valid specification")
}

#[test]
fn dedup_first_rowtime() {
    let (input, rows) = bids(&["item", "bidtime", "price"]);
    let first = deduplicate(&input, Keep::First, DeduplicateBy::EventTime(1));
    assert!(first.emits_inserts_only());
    let expected = [
        "+I,A,2026-01-01 00:00:00.000,10.00",
        "+I,B,2026-01-01 00:00:04.999,20.50",
        "+I,C,2026-01-01 00:00:31.000,9.99",
    ];
    let watermarks: Vec<Option<i64>> =
        BIDS.iter().map(|bid| Some(NEW_YEAR_MS + bid.0 - 5000)).collect();
    for epoch_rows in [1, 3, 100] {
        let script = stamped(&rows, &watermarks, epoch_rows);
        check(&first, &script, &expected);
        let driven = check_operator(&first, &script);
        check_changes(&first, &script);
        assert_eq!((driven.accepted, driven.late), (9, 1), "the row at 20.000");
    }
}

#[test]
fn dedup_last_proctime() {
    let (input, rows) = bids(&["item", "bidtime", "price"]);
    let expected = [
        "+I,A,2026-01-01 00:00:00.000,10.00",
        "+I,B,2026-01-01 00:00:04.999,20.50",
        "-U,A,2026-01-01 00:00:00.000,10.00",
        "+U,A,2026-01-01 00:00:05.000,1.25",
        "-U,A,2026-01-01 00:00:05.000,1.25",
        "+U,A,2026-01-01 00:00:09.999,3.00",
        "-U,B,2026-01-01 00:00:04.999,20.50",
        "+U,B,2026-01-01 00:00:10.000,7.77",
        "-U,A,2026-01-01 00:00:09.999,3.00",
        "+U,A,2026-01-01 00:00:08.500,2.00",
        "+I,C,2026-01-01 00:00:31.000,9.99",
        "-U,A,2026-01-01 00:00:08.500,2.00",
        "+U,A,2026-01-01 00:00:20.000,4.00",
        "-U,A,2026-01-01 00:00:20.000,4.00",
        "+U,A,2026-01-01 00:00:29.000,5.00",
        "-U,B,2026-01-01 00:00:10.000,7.77",
        "+U,B,2026-01-01 00:00:36.000,6.00",
    ];
    let last = deduplicate(&input, Keep::Last, DeduplicateBy::Arrival);
    assert!(!last.emits_inserts_only());
    check(&last, &inserts(&rows), &expected);
    // By row time the row at 08.500 is older than the one kept.
    let last = deduplicate(&input, Keep::Last, DeduplicateBy::EventTime(1));
    let mut by_time = expected.to_vec();
    by_time.splice(8..13, ["+I,C,2026-01-01 00:00:31.000,9.99", expected[8], expected[12]]);
    check(&last, &inserts(&rows), &by_time);
    check(
        &deduplicate(&input, Keep::First, DeduplicateBy::Arrival),
        &inserts(&rows),
        &[
            "+I,A,2026-01-01 00:00:00.000,10.00",
            "+I,B,2026-01-01 00:00:04.999,20.50",
            "+I,C,2026-01-01 00:00:31.000,9.99",
        ],
    );
}
