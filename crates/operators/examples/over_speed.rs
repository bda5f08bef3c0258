//! How fast OVER windows take rows, on one thread, with data in memory.
//!
//! Run with `cargo run --release -p thalweg-operators --example over_speed`. Each line is the best
//! of several passes over bundles of 8192 rows, in million rows per second. Rows come in the order
//! of time; a watermark follows every hundred milliseconds of event time.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{SplitMix64, SystemClock};
use thalweg_core::{
    Bundle, Column, DataType, Error, Exchange, Operator, Output, PartitionContext, Piece, Progress,
    Stamps, TableSchema, Watermark, WatermarkBefore,
};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use thalweg_operators::window::LatePolicy;

const ROWS: usize = 8192;
const BUNDLES: usize = 800;
const PASSES: usize = 3;
const ROWS_PER_SECOND: usize = 200_000;
const KEYS: u64 = 10_000;

fn main() -> Result<(), Error> {
    let bundles = bundles();
    let ten_seconds = Frame::Range { preceding_ms: Some(10_000) };
    let ten_rows = Frame::Rows { preceding: Some(10) };
    let all = Frame::Range { preceding_ms: None };
    measure("SUM, RANGE 10 s", ten_seconds, vec![aggregate("SUM")?], &bundles)?;
    measure("SUM, ROWS 10", ten_rows, vec![aggregate("SUM")?], &bundles)?;
    measure("SUM, RANGE unbounded", all, vec![aggregate("SUM")?], &bundles)?;
    measure("MAX, RANGE 10 s", ten_seconds, vec![aggregate("MAX")?], &bundles)?;
    let lag = OverFunction::Lag { column: 2, offset: 1, default: None };
    measure("LAG 1", all, vec![call(lag)], &bundles)?;
    measure("ROW_NUMBER", all, vec![call(OverFunction::RowNumber)], &bundles)
}

fn call(function: OverFunction) -> OverCall {
    OverCall { function, result: DataType::BigInt.nullable(), name: "r".to_owned() }
}

fn aggregate(name: &str) -> Result<OverCall, Error> {
    let (function, result) = resolve(name, false, &[DataType::BigInt.nullable()])?;
    Ok(call(OverFunction::Aggregate(AggregateCall {
        function,
        argument: Some(2),
        distinct: false,
        filter: None,
        result,
        name: "r".to_owned(),
    })))
}

fn input() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("key", DataType::BigInt.nullable()),
        Column::new("value", DataType::BigInt.nullable()),
    ])
}

/// Bundles with the time of their last row.
fn bundles() -> Vec<(Bundle, i64)> {
    let mut random = SplitMix64::new(7);
    let mut bundle = |number: usize| {
        let time = |row: usize| ((number * ROWS + row) * 1000 / ROWS_PER_SECOND) as i64;
        let mut numbers = |limit: u64| -> ArrayRef {
            let number = |_| random.below(limit) as i64;
            Arc::new(Int64Array::from_iter_values((0..ROWS).map(number)))
        };
        let (key, value) = (numbers(KEYS), numbers(1 << 40));
        let ts = Arc::new(TimestampMillisecondArray::from_iter_values((0..ROWS).map(time)));
        let batch = RecordBatch::try_new(input().arrow(), vec![ts, key, value]);
        let watermark_before = WatermarkBefore::All(Watermark(time(0) - 20));
        let stamps = Stamps { watermark_before, ..Stamps::first() };
        (Bundle::new(batch.expect("three columns"), stamps), time(ROWS - 1))
    };
    (0..BUNDLES).map(&mut bundle).collect()
}

fn measure(
    what: &str,
    frame: Frame,
    calls: Vec<OverCall>,
    bundles: &[(Bundle, i64)],
) -> Result<(), Error> {
    let operator = OverAggregate::new(OverSpec {
        keys: vec![1],
        time: OverTime::EventTime(0),
        frame,
        calls,
        input: input(),
        state_ttl_ms: None,
        late: LatePolicy::Drop,
    })?;
    let (mut best, mut peak) = (f64::MAX, 0);
    for _ in 0..PASSES {
        let mut partition = operator.open(PartitionContext::only())?;
        let exchange = Exchange::new(1);
        let clock = Arc::new(SystemClock::new());
        let (mut captured, mut rows) = (i64::MIN, 0);
        let start = Instant::now();
        for (bundle, newest) in bundles {
            let mut output = Output::new(clock.clone(), u64::MAX);
            partition.rows(Piece::whole(bundle, 1), &mut output)?;
            if newest / 100 > captured {
                captured = newest / 100;
                peak = peak.max(partition.state_bytes());
                let watermark = Watermark(newest - 20);
                let call = WatermarkCall { watermark, phase: 0, exchange: &exchange };
                while partition.watermark(&call, &mut output)? == Progress::More {}
            }
            rows += output.emitted.iter().map(|emitted| emitted.batch.num_rows()).sum::<usize>();
        }
        best = best.min(start.elapsed().as_secs_f64());
        assert!(rows > 0, "rows leave");
    }
    let rate = (ROWS * bundles.len()) as f64 / best / 1e6;
    println!("{what:25} {rate:7.1} M rows/s, {:4} MB", peak >> 20);
    Ok(())
}
