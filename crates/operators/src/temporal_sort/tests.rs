use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Column, DataType, ErrorKind, Exchange, Extent, Operator, Output, Partition,
    PartitionContext, Piece, Progress, Stamps, TableSchema, Watermark, WatermarkBefore,
};

use super::TemporalSort;
use crate::reference::Value;
use crate::sort::SortKey;
use crate::test_kit::{
    DriveOptions, Event, check_captures, check_damaged_state, check_operator, drive, rows_of,
    stamped,
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
        for (seed, bundle_rows) in [(1, 1), (2, 5), (3, 40)] {
            let options = DriveOptions { bundle_rows, seed, ..DriveOptions::default() };
            check_captures(&operator, &script, &options);
        }
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

/// One partition, and its incremental captures.
struct Captured {
    partition: Box<dyn Partition>,
    exchange: Exchange,
}

impl Captured {
    /// Rows of these times, each with this watermark before it, and then perhaps another watermark.
    /// How many rows the next capture writes, below which time nothing is left, and whether that is
    /// all.
    fn step(
        &mut self,
        times: std::ops::Range<i64>,
        before: i64,
        watermark: Option<i64>,
    ) -> (usize, i64, Extent) {
        let rows: Vec<(i64, i64)> = times.map(|time| (time, time)).collect();
        let stamps =
            Stamps { watermark_before: WatermarkBefore::All(Watermark(before)), ..Stamps::first() };
        let bundle = Bundle::new(batch(&rows), stamps);
        let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
        self.partition.rows(Piece::whole(&bundle, 2), &mut output).unwrap();
        if let Some(watermark) = watermark.map(Watermark) {
            let call = WatermarkCall { watermark, phase: 0, exchange: &self.exchange };
            assert_eq!(self.partition.watermark(&call, &mut output).unwrap(), Progress::Done);
        }
        let captured = self.partition.capture(Extent::Incremental).unwrap();
        let table = captured.tables.into_iter().find(|table| table.name == "rows").unwrap();
        let (kept_from, extent) = (table.kept_from.unwrap(), table.extent);
        let captured = (table.rows)().unwrap();
        assert!(captured.removed.is_empty(), "rows expire");
        let expires = |rows: &RecordBatch| rows.column(1).as_primitive::<Int64Type>().clone();
        assert!(
            captured.rows.iter().all(|rows| expires(rows).values().iter().all(|&e| e >= kept_from))
        );
        (captured.rows.iter().map(RecordBatch::num_rows).sum(), kept_from, extent)
    }
}

#[test]
fn only_new_rows_are_captured_and_those_that_left_expire() {
    let partition = by_time(LatePolicy::Drop, Vec::new()).open(PartitionContext::only()).unwrap();
    let mut sort = Captured { partition, exchange: Exchange::new(1) };
    let min = i64::MIN;
    assert_eq!(sort.step(100..5100, min, Some(50)), (5000, 51, Extent::Full), "the first");
    assert_eq!(sort.step(300..400, 50, Some(60)), (100, 61, Extent::Incremental), "rows that came");
    assert_eq!(sort.step(0..0, 60, Some(4000)), (0, 4001, Extent::Incremental), "rows have left");
    assert_eq!(sort.step(3000..3010, 70, None), (10, 4001, Extent::Incremental), "a lane was idle");
    assert_eq!(sort.step(0..0, 60, Some(4000)), (1099, 4001, Extent::Full), "they have left");
    assert_eq!(
        sort.step(6000..6005, 4000, Some(4001)),
        (5, 4002, Extent::Incremental),
        "it continues"
    );
    assert_eq!(sort.step(0..0, 4001, Some(i64::MAX)), (0, i64::MAX, Extent::Full), "the end");
}
