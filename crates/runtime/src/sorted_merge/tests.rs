//! Against a stable sort of what is known to be ready, computed row by row from the definition.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Int32Array, Int64Array, RecordBatchOptions,
    StringArray, TimestampMillisecondArray,
};
use proptest::prelude::*;
use thalweg_core::ErrorKind;

use super::*;

/// A batch whose columns all follow from time, input and position.
fn rows(times: &[i64], input: usize, position: usize) -> RecordBatch {
    let names: Vec<i64> =
        (position..).take(times.len()).map(|n| (input * 1_000_000 + n) as i64).collect();
    let nulls = names.iter().map(|&n| (n % 3 != 0).then_some(n as i32));
    let texts = names.iter().map(|n| format!("row {n}"));
    let columns: [(&str, ArrayRef); 6] = [
        ("name", Arc::new(Int64Array::from(names.clone()))),
        ("time", Arc::new(TimestampMillisecondArray::from(times.to_vec()))),
        ("nulls", Arc::new(nulls.collect::<Int32Array>())),
        ("text", Arc::new(StringArray::from_iter_values(texts))),
        ("flag", Arc::new(names.iter().map(|n| Some(n % 2 == 0)).collect::<BooleanArray>())),
        ("wide", Arc::new(names.iter().map(|&n| Some(i128::from(n))).collect::<Decimal128Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .expect("columns of one length")
}

fn stamps(times: &[i64]) -> WatermarkBefore {
    WatermarkBefore::Rows(times.iter().map(|time| time - 7).collect())
}

/// A row as (time, input, position).
type Row = (i64, usize, usize);

/// The rows of a batch, after a look at all that comes with them.
fn unpack(merged: &MergedRows) -> Vec<Row> {
    let names = merged.batch.column(0).as_primitive::<Int64Type>();
    let origins = merged.origins.as_ref().expect("asked for");
    let of = |at: usize| {
        let (name, time) = (names.value(at) as usize, merged.times[at]);
        let row = (time, name / 1_000_000, name % 1_000_000);
        let expected = rows(&[time], row.1, row.2);
        assert_eq!(merged.batch.slice(at, 1), expected);
        assert_eq!(origins[at] as usize, row.1);
        assert_eq!(merged.watermark_before.at(at).0, time - 7);
        row
    };
    (0..names.len()).map(of).collect()
}

fn drain(merge: &mut SortedMerge, max_rows: usize) -> Vec<Row> {
    let mut out = Vec::new();
    while let Some(merged) = merge.ready(max_rows).expect("columns fit") {
        assert!((1..=max_rows).contains(&merged.batch.num_rows()));
        out.extend(unpack(&merged));
    }
    out
}

fn push(merge: &mut SortedMerge, input: usize, position: usize, times: &[i64]) {
    merge.push(input, rows(times, input, position), Some(stamps(times))).expect("sorted");
}

/// What happens to one input.
#[derive(Clone, Debug)]
enum Step {
    /// Times by their distances.
    Push(Vec<u8>),
    Advance(u8),
    Finish,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        // Equal times, short and long runs.
        6 => prop::collection::vec(0..3_u8, 0..60).prop_map(Step::Push),
        2 => prop::collection::vec(Just(0_u8), 0..200).prop_map(Step::Push),
        2 => prop::collection::vec(0..100_u8, 0..5).prop_map(Step::Push),
        2 => (0..40_u8).prop_map(Step::Advance),
        1 => Just(Step::Finish),
    ];
    prop::collection::vec((0..5_usize, step), 1..40)
}

/// One input as the definition sees it.
#[derive(Clone, Default)]
struct Known {
    times: Vec<i64>,
    /// No later row is older.
    frontier: i64,
    ended: bool,
}

/// All ready rows, from the definition: every other input is past them.
fn ready_rows(inputs: &[Known]) -> Vec<Row> {
    let passed = |time: i64, i: usize, j: usize| {
        let frontier = inputs[j].frontier;
        i == j || inputs[j].ended || if j < i { frontier > time } else { frontier >= time }
    };
    let is_ready = |&(time, i, _): &Row| (0..inputs.len()).all(|j| passed(time, i, j));
    let rows = inputs.iter().enumerate().flat_map(|(input, known)| {
        known.times.iter().enumerate().map(move |(position, &time)| (time, input, position))
    });
    let mut rows: Vec<Row> = rows.filter(is_ready).collect();
    rows.sort_by_key(|&(time, input, _)| (time, input));
    rows
}

proptest! {
    #[test]
    fn what_is_ready_leaves_in_the_order_of_a_stable_sort(
        steps in steps(),
        count in 1..5_usize,
        max_rows in prop_oneof![1..9_usize, 20..300_usize],
        patience in 1..12_usize,
    ) {
        let mut merge = SortedMerge::new(count, 1).with_origins();
        let mut inputs = vec![Known::default(); count];
        // Time begins at 0 for the definition.
        (0..count).for_each(|input| merge.advance(input, Watermark(-1)));
        let mut out = Vec::new();
        for (number, (input, step)) in steps.into_iter().enumerate() {
            let input = input % count;
            let known = &mut inputs[input];
            match step {
                _ if known.ended => {}
                Step::Push(distances) => {
                    let position = known.times.len();
                    for distance in distances {
                        known.frontier += i64::from(distance);
                        known.times.push(known.frontier);
                    }
                    push(&mut merge, input, position, &known.times[position..]);
                }
                Step::Advance(by) => {
                    known.frontier += i64::from(by);
                    merge.advance(input, Watermark(known.frontier - 1));
                }
                Step::Finish => {
                    known.ended = true;
                    merge.finish(input);
                }
            }
            if number % patience == 0 {
                out.extend(drain(&mut merge, max_rows));
                prop_assert_eq!(&out, &ready_rows(&inputs));
            }
        }
        (0..count).for_each(|input| merge.finish(input));
        inputs.iter_mut().for_each(|known| known.ended = true);
        out.extend(drain(&mut merge, max_rows));
        prop_assert_eq!(&out, &ready_rows(&inputs));
        prop_assert!(merge.is_finished());
    }
}

#[test]
fn ties_go_to_the_first_input_and_wait_for_it() {
    let mut merge = SortedMerge::new(3, 1).with_origins();
    push(&mut merge, 1, 0, &[5]);
    push(&mut merge, 2, 0, &[5]);
    assert_eq!(merge.held_by(), Some(0));
    assert_eq!(drain(&mut merge, 10), [], "the first input may still show a row of time 5");
    merge.advance(0, Watermark(4));
    assert_eq!(drain(&mut merge, 10), [], "a watermark of 4 leaves time 5 open");
    merge.advance(0, Watermark(5));
    assert_eq!(drain(&mut merge, 10), [(5, 1, 0)]);
    assert_eq!(merge.held_by(), Some(1), "it may show another of time 5, before the third");
    push(&mut merge, 1, 1, &[5, 6]);
    assert_eq!(drain(&mut merge, 10), [(5, 1, 1), (5, 2, 0)]);
    assert_eq!(merge.held_by(), Some(2));
    merge.finish(2);
    merge.finish(0);
    assert_eq!(drain(&mut merge, 10), [(6, 1, 2)]);
}

#[test]
fn many_inputs_that_alternate_leave_in_order_of_time() {
    let (count, per_input) = (13, 1_000);
    let mut merge = SortedMerge::new(count, 1).with_origins();
    let mut expected = Vec::new();
    for input in 0..count {
        let times: Vec<i64> = (0..per_input).map(|n| (n * (input + 3) / 4) as i64).collect();
        expected.extend((0..per_input).map(|n| (times[n], input, n)));
        times.chunks(97).enumerate().for_each(|(n, chunk)| push(&mut merge, input, n * 97, chunk));
        merge.finish(input);
    }
    expected.sort_by_key(|&(time, input, _)| (time, input));
    assert_eq!(drain(&mut merge, 512), expected);
}

#[test]
fn a_long_run_is_not_copied() {
    let times: Vec<i64> = (0..10_000).collect();
    let mut merge = SortedMerge::new(2, 1);
    let batch = rows(&times, 0, 0);
    merge.push(0, batch.clone(), None).expect("sorted");
    merge.push(1, rows(&[9_000], 1, 0), None).expect("sorted");
    let merged = merge.ready(8_192).expect("fits").expect("is ready");
    let address =
        |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().as_ptr();
    assert_eq!((merged.batch.num_rows(), address(&merged.batch)), (8_192, address(&batch)));
}

#[test]
fn times_that_stand_in_a_column_are_joined_once() {
    for interleaved in [false, true] {
        let of = |input: i64| -> Vec<i64> {
            match interleaved {
                true => (0..100).map(|n| 2 * n + input).collect(),
                false => (100 * input..100 * (input + 1)).collect(),
            }
        };
        let mut merge = SortedMerge::with_separate_times(2);
        for input in 0..2 {
            let batch = rows(&of(input as i64), input, 0);
            let times = times_of(batch.column(1)).expect("milliseconds");
            let watermark_before = WatermarkBefore::All(Watermark::MIN);
            let rows =
                SortedRows { batch, times, watermark_before, kinds: None, ingest_ns: 0, bytes: 0 };
            merge.push_rows(input, rows).expect("sorted");
            merge.finish(input);
        }
        let merged = merge.ready(1000).expect("fits").expect("is ready");
        assert_eq!(merged.times[..], (0..200).collect::<Vec<_>>());
        assert!(times_of(merged.batch.column(1)).is_some_and(|of| of.ptr_eq(&merged.times)));
    }
}

#[test]
fn rows_ahead_of_all_stamps_may_share_the_highest() {
    let merged = |first_ms: i64, shared: bool| {
        let mut merge = SortedMerge::new(2, 1).with_shared_stamps(shared);
        for (input, before) in [(0, 5), (1, 7)] {
            let before = WatermarkBefore::All(Watermark(before));
            let times = [first_ms + input as i64, 20];
            merge.push(input, rows(&times, input, 0), Some(before)).expect("sorted");
            merge.finish(input);
        }
        merge.ready(10).expect("fits").expect("is ready").watermark_before
    };
    assert!(matches!(merged(9, true), WatermarkBefore::All(Watermark(7))));
    // A session that ends at 8 is closed by 7, and takes a row at 8.
    for (first_ms, shared) in [(8, true), (9, false)] {
        let WatermarkBefore::Rows(before) = merged(first_ms, shared) else {
            panic!("each its own")
        };
        assert_eq!(before[..], [5, 7, 5, 7]);
    }
}

#[test]
fn a_mark_stands_where_the_frontier_was() {
    let mut merge = SortedMerge::new(2, 1).with_origins();
    push(&mut merge, 0, 0, &[1, 3]);
    merge.advance(0, Watermark(4));
    merge.mark(0);
    push(&mut merge, 0, 2, &[5]);
    assert_eq!(merge.take_mark(), None, "rows stand before it");
    push(&mut merge, 1, 0, &[2, 4, 5, 6]);
    assert_eq!(drain(&mut merge, 10), [(1, 0, 0), (2, 1, 0), (3, 0, 1), (4, 1, 1)]);
    assert_eq!(merge.take_mark().map(|(input, _)| input), Some(0));
    assert_eq!(merge.take_mark(), None);
    assert_eq!(drain(&mut merge, 10), [(5, 0, 2)]);
    merge.mark(1);
    merge.advance(0, Watermark::END);
    assert_eq!(drain(&mut merge, 10), [(5, 1, 2), (6, 1, 3)]);
    assert_eq!(merge.take_mark().map(|(input, _)| input), Some(1));
    merge.finish(1);
    assert!(merge.is_finished());
}

#[test]
fn marks_end_shares_of_inputs_that_alternate() {
    let mut merge = SortedMerge::new(2, 1).with_origins();
    for block in 0..20 {
        for input in 0..2 {
            let times: Vec<i64> = (0..50).map(|n| (block * 100 + n * 2 + input) as i64).collect();
            push(&mut merge, input, block * 50, &times);
        }
        merge.advance(0, Watermark(block as i64 * 100 + 99));
        merge.mark(0);
    }
    (0..2).for_each(|input| merge.finish(input));
    for block in 0..20 {
        let out = drain(&mut merge, 4096);
        assert_eq!(out.first(), Some(&(block * 100, 0, block as usize * 50)));
        assert_eq!((out.len(), out.is_sorted()), (100, true));
        assert_eq!(merge.take_mark().map(|(input, _)| input), Some(0));
    }
    assert!(merge.is_finished());
}

#[test]
fn separate_times_and_no_columns_at_all() {
    let mut merge = SortedMerge::with_separate_times(2);
    for input in 0..2 {
        let options = RecordBatchOptions::new().with_row_count(Some(2));
        let batch = RecordBatch::try_new_with_options(
            Arc::new(arrow_schema::Schema::empty()),
            vec![],
            &options,
        )
        .expect("no columns");
        let times = vec![input, input + 2].into();
        let watermark_before = WatermarkBefore::All(Watermark(input));
        let rows =
            SortedRows { batch, times, watermark_before, kinds: None, ingest_ns: 0, bytes: 0 };
        merge.push_rows(input as usize, rows).expect("sorted");
        merge.finish(input as usize);
    }
    let merged = merge.ready(10).expect("fits").expect("is ready");
    assert_eq!(merged.batch.num_rows(), 4);
    assert_eq!(merged.times[..], [0, 1, 2, 3]);
    let stamps: Vec<i64> = (0..4).map(|row| merged.watermark_before.at(row).0).collect();
    assert_eq!(stamps, [0, 1, 0, 1]);
    assert!(merge.push(0, rows(&[1], 0, 0), None).is_err(), "there is no column of times");
}

#[test]
fn the_first_row_out_of_order_is_named_with_both_times() {
    let mut merge = SortedMerge::new(2, 1).with_origins();
    push(&mut merge, 1, 0, &[1_000, 2_000]);
    let error = merge.push(1, rows(&[2_000, 3_000, 2_500, 1], 1, 2), None).expect_err("unsorted");
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_eq!(
        error.to_string(),
        "input 1 is not sorted by time: its row 5 at 1970-01-01 00:00:02.500 comes after one at \
         1970-01-01 00:00:03.000"
    );
    let error = merge.push(1, rows(&[1_500], 1, 2), None).expect_err("older than the row before");
    assert!(error.to_string().contains("its row 3 at 1970-01-01 00:00:01.500"), "{error}");
    merge.advance(1, Watermark(4_000));
    let error = merge.push(1, rows(&[3_000], 1, 2), None).expect_err("older than the watermark");
    assert_eq!(
        error.to_string(),
        "row 3 of input 1 comes at 1970-01-01 00:00:03.000, but a watermark has promised that none \
         comes at or before 1970-01-01 00:00:04.000"
    );
    push(&mut merge, 1, 2, &[4_001]);
    merge.finish(0);
    assert_eq!(drain(&mut merge, 10), [(1_000, 1, 0), (2_000, 1, 1), (4_001, 1, 2)]);
}

#[test]
fn nulls_other_columns_and_rows_after_the_end_are_refused() {
    let mut merge = SortedMerge::new(2, 0);
    let batch = |times: Int64Array| {
        RecordBatch::try_from_iter_with_nullable([("time", Arc::new(times) as ArrayRef, true)])
            .expect("one column")
    };
    let error = merge.push(0, batch(Int64Array::from(vec![Some(1), None])), None);
    let error = error.expect_err("a null").to_string();
    assert_eq!(error, "row 2 of input 0 of a merge by time has no time");
    merge.push(0, batch(Int64Array::from(vec![1])), None).expect("sorted");
    let other = RecordBatch::try_from_iter([
        ("time", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
        ("more", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
    ]);
    assert!(merge.push(1, other.expect("two columns"), None).is_err());
    merge.finish(1);
    let error = merge.push(1, batch(Int64Array::from(vec![1])), None).expect_err("has ended");
    assert_eq!(error.kind(), ErrorKind::Internal);
    let texts = Arc::new(Int32Array::from(vec![1])) as ArrayRef;
    assert_eq!(texts.as_primitive::<Int32Type>().len(), 1);
    let of_other_type = RecordBatch::try_from_iter([("time", texts)]).expect("one column");
    assert!(merge.push(0, of_other_type, None).is_err(), "not in milliseconds");
}

#[test]
fn the_ends_of_time_are_times_as_others() {
    let mut merge = SortedMerge::new(2, 1).with_origins();
    let times = [i64::MIN + 7, i64::MAX];
    push(&mut merge, 0, 0, &times);
    push(&mut merge, 1, 0, &times);
    merge.finish(0);
    assert_eq!(drain(&mut merge, 10).len(), 4);
    assert!(!merge.is_finished());
}
