//! Captures of what has changed, read while rows are processed, are what whole ones are.

use std::sync::Arc;

use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, DataType, Exchange, Extent, OrderContract, Output, Partition, PartitionContext, Piece,
    Progress, Stamps, Watermark, WatermarkBefore,
};

use super::driver::{KEY, Row, WORD, batch, input_schema, running_watermarks};
use super::restore::{aggregates, aligned, random_rows, sessions};
use crate::aggregate::AggregateCall;
use crate::test_kit::{DriveOptions, Event, check_captures};
use crate::window::WindowSpec;

/// How many rows a partition's next capture of changes writes in its first table, how many names it
/// removes, and whether that is all.
fn capture(partition: &mut dyn Partition) -> (usize, usize, Extent) {
    let captured = partition.capture(Extent::Incremental).expect("it is captured");
    let table = captured.tables.into_iter().next().expect("there is a table");
    let rows = (table.rows)().expect("it is read");
    let count = |batches: &[arrow_array::RecordBatch]| batches.iter().map(|b| b.num_rows()).sum();
    (count(&rows.rows), count(&rows.removed), table.extent)
}

/// Takes rows of these times and keys, and then a watermark.
fn step(partition: &mut dyn Partition, rows: &[(i64, i64)], watermark: i64) {
    let rows: Vec<Row> =
        rows.iter().map(|&(time, key)| Row { time, key: Some(key), ..Row::default() }).collect();
    let bundle = Bundle::new(batch(&rows, &input_schema(DataType::Timestamp(3))), Stamps::first());
    let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
    partition.rows(Piece::whole(&bundle, 1), &mut output).expect("taken");
    let (watermark, exchange) = (Watermark(watermark), Exchange::new(1));
    for phase in 0..2 {
        let call = WatermarkCall { watermark, phase, exchange: &exchange };
        let progress = partition.watermark(&call, &mut output).expect("taken");
        assert_eq!(progress, Progress::Done, "there was time enough");
    }
}

const ONE: PartitionContext =
    PartitionContext { partition: 0, partitions: 1, order: OrderContract::Epoch };

#[test]
fn only_changes_are_captured_and_windows_expire() {
    let operator = aligned(WindowSpec::Tumble { size_ms: 10, offset_ms: 0 }, Vec::new());
    let mut partition = operator.open(ONE).expect("it opens");
    let partition = partition.as_mut();
    let kept_from = |partition: &mut dyn Partition| {
        partition.capture(Extent::Incremental).expect("it is captured").tables[0].kept_from
    };
    step(partition, &[(0, 1), (1, 2), (10, 1), (11, 2), (12, 3)], 0);
    assert_eq!(capture(partition), (5, 0, Extent::Full), "the first");
    step(partition, &[(2, 1), (13, 4)], 8);
    assert_eq!(capture(partition), (2, 0, Extent::Incremental), "a key again, and a new one");
    assert_eq!(kept_from(partition), Some(10), "no window that ends before");
    step(partition, &[(3, 9)], 9);
    assert_eq!(capture(partition), (0, 0, Extent::Incremental), "a window that has left");
    assert_eq!(kept_from(partition), Some(11), "which expires");
    step(partition, &[(25, 1)], 19);
    assert_eq!(capture(partition), (1, 0, Extent::Incremental));
}

#[test]
fn a_session_that_begins_earlier_takes_its_own_place() {
    let operator = sessions(10, &[KEY]);
    let mut partition = operator.open(ONE).expect("it opens");
    let partition = partition.as_mut();
    step(partition, &[(50, 1), (50, 2), (80, 2), (50, 3)], 0);
    assert_eq!(capture(partition), (4, 0, Extent::Full), "the first");
    step(partition, &[(55, 1), (100, 4)], 1);
    assert_eq!(capture(partition), (2, 0, Extent::Incremental), "one continued, one is new");
    step(partition, &[(45, 1), (62, 3), (58, 3)], 2);
    assert_eq!(
        capture(partition),
        (2, 0, Extent::Incremental),
        "one begins earlier, one continues"
    );
    step(partition, &[(60, 2), (70, 2), (200, 5), (202, 5)], 70);
    assert_eq!(
        capture(partition),
        (2, 2, Extent::Incremental),
        "two are one, another one has closed"
    );
}

/// Some rows at a time, each time followed by their watermark.
fn script(rows: &[Row], random: &mut SplitMix64) -> Vec<Event> {
    let schema = input_schema(DataType::Timestamp(3));
    let watermarks = running_watermarks(rows, 6);
    let (mut script, mut from) = (Vec::new(), 0);
    while from < rows.len() {
        let to = (from + 1 + random.below(12) as usize).min(rows.len());
        let watermark_before = WatermarkBefore::Rows(watermarks[from..to].to_vec().into());
        let batch = batch(&rows[from..to], &schema);
        script.push(Event::Rows { lane: 0, batch, watermark_before });
        script.push(Event::Watermark(Watermark(watermarks[to])));
        from = to;
    }
    script
}

#[test]
fn changes_put_together_are_the_whole() {
    let all = aggregates();
    let of = |fits: fn(&AggregateCall) -> bool| all.iter().filter(move |call| fits(call)).cloned();
    let hop = WindowSpec::Hop { slide_ms: 5, size_ms: 40, offset_ms: 1 };
    let uneven = WindowSpec::Hop { slide_ms: 6, size_ms: 20, offset_ms: 0 };
    let cumulate = WindowSpec::Cumulate { step_ms: 4, max_size_ms: 16, offset_ms: 0 };
    let tumble = WindowSpec::Tumble { size_ms: 3, offset_ms: 0 };
    let gaps = WindowSpec::Hop { slide_ms: 6, size_ms: 4, offset_ms: 1 };
    for (place, window) in [hop, uneven, cumulate, tumble, gaps].into_iter().enumerate() {
        let exact = of(AggregateCall::is_exact).collect();
        let invertible = of(AggregateCall::is_invertible).collect();
        for calls in [all.clone(), exact, invertible] {
            let operator = aligned(window, calls);
            for seed in 0..6 {
                let mut random = SplitMix64::new(seed);
                let script = script(&random_rows(&mut random, 250), &mut random);
                let partitions = 1 + seed as usize % 3;
                let bundle_rows = [1, 5, 100, 7, 1][place];
                let options =
                    DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
                check_captures(operator.as_ref(), &script, &options);
            }
        }
    }
}

#[test]
fn changes_of_sessions_put_together_are_the_whole() {
    for gap_ms in [1, 3, 9] {
        for keys in [&[KEY][..], &[], &[WORD, KEY]] {
            let operator = sessions(gap_ms, keys);
            for seed in 0..6 {
                let mut random = SplitMix64::new(seed);
                let script = script(&random_rows(&mut random, 250), &mut random);
                let partitions = 1 + seed as usize % 3;
                let bundle_rows = [1, 5, 100][seed as usize / 2];
                let options =
                    DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
                check_captures(operator.as_ref(), &script, &options);
            }
        }
    }
}
