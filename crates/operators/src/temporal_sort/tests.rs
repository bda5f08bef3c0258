use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, ErrorKind, TableSchema, Watermark, WatermarkBefore};

use super::TemporalSort;
use crate::reference::Value;
use crate::sort::SortKey;
use crate::test_kit::{
    DriveOptions, Event, check_damaged_state, check_operator, drive, rows_of, stamped,
};
use crate::window::LatePolicy;

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).nullable()),
        Column::new("n", DataType::BigInt.nullable()),
    ])
}

fn batch(rows: &[(i64, i64)]) -> RecordBatch {
    let times: ArrayRef =
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.0)));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
    RecordBatch::try_new(schema().arrow(), vec![times, numbers]).unwrap()
}

fn pairs(batches: &[RecordBatch]) -> Vec<(i64, i64)> {
    let int = |value: &Value| match value {
        Value::Integer(value) => *value,
        other => panic!("{other:?}"),
    };
    rows_of(batches).iter().map(|row| (int(&row[0]), int(&row[1]))).collect()
}

fn by_time(late: LatePolicy, keys: Vec<SortKey>) -> TemporalSort {
    TemporalSort::new(0, keys, late, schema())
}

/// The golden case order_by_time: the row at 20 s comes when the watermark is at 26 s, but the last
/// time sent on is 10 s, so it still finds its place.
#[test]
fn late_is_what_lies_before_the_last_time_sent_on() {
    let times = [0, 4_999, 5_000, 9_999, 10_000, 8_500, 31_000, 20_000, 29_000, 36_000, 3_000];
    let rows: Vec<(i64, i64)> = times.iter().enumerate().map(|(n, &t)| (t, n as i64)).collect();
    let watermarks: Vec<Option<i64>> = times.iter().map(|time| Some(time - 5_000)).collect();
    let script = stamped(&batch(&rows), &watermarks, 3);
    let driven = check_operator(&by_time(LatePolicy::Emit, Vec::new()), &script);
    let order: Vec<i64> = pairs(&driven.emitted).into_iter().map(|row| row.1).collect();
    assert_eq!(order, [0, 1, 2, 5, 3, 4, 7, 8, 6, 9]);
    assert_eq!(pairs(&driven.late_rows), [(3_000, 10)]);
    assert_eq!((driven.accepted, driven.late), (10, 1));
    assert_eq!(driven.final_state_bytes % 8192, driven.final_state_bytes, "rows are freed");
}

#[test]
fn random_rows_leave_in_order_and_none_is_lost() {
    let mut random = SplitMix64::new(3);
    for _ in 0..20 {
        let rows: Vec<(i64, i64)> =
            (0..300).map(|i| (i + random.below(40) as i64, random.below(5) as i64)).collect();
        let watermarks: Vec<Option<i64>> = rows.iter().map(|row| Some(row.0 - 25)).collect();
        let script = stamped(&batch(&rows), &watermarks, 17);
        let keys = vec![SortKey::descending(1)];
        let operator = by_time(LatePolicy::Emit, keys);
        check_damaged_state(&operator, &script);
        let driven = check_operator(&operator, &script);
        let (kept, late) = naive(&rows, &watermarks);
        assert_eq!(pairs(&driven.emitted), kept);
        assert_eq!(pairs(&driven.late_rows), late);
    }
}

type Pairs = Vec<(i64, i64)>;

/// One row at a time: everything that the watermark has passed is sent on at once.
fn naive(rows: &[(i64, i64)], watermarks: &[Option<i64>]) -> (Pairs, Pairs) {
    let (mut waiting, mut sent, mut late): (Pairs, Pairs, Pairs) = Default::default();
    let mut running = i64::MIN;
    for (row, watermark) in rows.iter().zip(watermarks) {
        if sent.last().is_some_and(|last| row.0 <= last.0) {
            late.push(*row);
        } else {
            waiting.push(*row);
        }
        running = running.max(watermark.unwrap());
        let mut passed: Pairs = waiting.iter().copied().filter(|row| row.0 <= running).collect();
        passed.sort_by_key(|row| (row.0, -row.1));
        waiting.retain(|row| row.0 > running);
        sent.extend(passed);
    }
    waiting.sort_by_key(|row| (row.0, -row.1));
    sent.extend(waiting);
    (sent, late)
}

#[test]
fn a_late_row_is_fatal_by_policy() {
    let script = stamped(&batch(&[(10, 0), (5, 1)]), &[Some(10), None], 1);
    let fatal = by_time(LatePolicy::Fail, Vec::new());
    let error = drive(&fatal, &script, &DriveOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().contains("00:00:00.005"), "{error}");
}

/// Two inputs: the slower one holds rows of the other back, and what is late for its own lane is
/// late, whatever has been sent on.
#[test]
fn several_lanes_are_judged_by_their_own_watermarks() {
    let rows = |lane, row: (i64, i64), before| Event::Rows {
        lane,
        batch: batch(&[row]),
        watermark_before: WatermarkBefore::All(Watermark(before)),
    };
    let script = vec![
        rows(0, (10, 0), i64::MIN),
        rows(1, (3, 1), i64::MIN),
        rows(0, (9, 2), 10),
        Event::Watermark(Watermark(5)),
        rows(1, (8, 3), 5),
    ];
    let driven = check_operator(&by_time(LatePolicy::Drop, Vec::new()), &script);
    assert_eq!(pairs(&driven.emitted), [(3, 1), (8, 3), (10, 0)]);
    assert_eq!(driven.late, 1);
}
