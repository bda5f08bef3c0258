//! How long a window over many keys is held for a capture, and what its state weighs.
//!
//! Run with `cargo run --release -p thalweg-operators --example window_capture`. One partition,
//! COUNT(*) and SUM of a BIGINT per BIGINT key; the median of several captures. What is weighed is
//! captured in memory: in a file the bounds of slices, which are the same for many rows, cost next
//! to nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{SystemClock, mix64};
use thalweg_core::{
    Bundle, Column, DataType, Error, Exchange, Extent, Operator, Output, Partition,
    PartitionContext, Piece, Progress, Restored, Stamps, TableSchema, Watermark,
};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::window::{LatePolicy, WindowAggregate, WindowAggregateSpec, WindowSpec};

const KEYS: usize = 1_000_000;
const ROWS: usize = 8192;
const CAPTURES: usize = 7;
/// A key, a number of rows, a sum and how many values it is of.
const RAW_BYTES: usize = 4 * 8;

fn main() -> Result<(), Error> {
    let hop = WindowSpec::Hop { slide_ms: 1000, size_ms: 4000, offset_ms: 0 };
    measure("tumbling", WindowSpec::Tumble { size_ms: 4000, offset_ms: 0 })?;
    measure("hopping, 4 slices", hop)
}

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("time", DataType::Timestamp(3).not_null()),
        Column::new("key", DataType::BigInt.nullable()),
        Column::new("number", DataType::BigInt.nullable()),
    ])
}

fn call(name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> = argument.iter().map(|_| DataType::BigInt.nullable()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_string();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

fn output() -> Output {
    Output::new(Arc::new(SystemClock::default()), u64::MAX)
}

/// Fills all slices but the last with all keys, and lets the windows before it leave.
fn fill(partition: &mut dyn Partition) -> Result<(), Error> {
    for second in 0..4 {
        for from in (0..KEYS).step_by(ROWS) {
            let keys = (from..KEYS.min(from + ROWS)).map(|n| mix64(n as u64) as i64);
            let keys = Int64Array::from_iter_values(keys);
            let times = TimestampMillisecondArray::from_value(second * 1000, keys.len());
            let numbers = Int64Array::from_value(second, keys.len());
            let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(keys), Arc::new(numbers)];
            let bundle =
                Bundle::new(RecordBatch::try_new(schema().arrow(), columns)?, Stamps::first());
            partition.rows(Piece::whole(&bundle, 1), &mut output())?;
        }
        let exchange = Exchange::new(1);
        for phase in 0..2 {
            let watermark = Watermark(second * 1000);
            let call = WatermarkCall { watermark, phase, exchange: &exchange };
            while partition.watermark(&call, &mut output())? == Progress::More {}
        }
    }
    Ok(())
}

fn measure(name: &str, window: WindowSpec) -> Result<(), Error> {
    let operator = WindowAggregate::new(WindowAggregateSpec {
        window,
        rowtime: 0,
        zone: None,
        keys: vec![1],
        aggregates: vec![call("COUNT", None), call("SUM", Some(2))],
        late: LatePolicy::Drop,
        input: schema(),
    })?;
    let mut partition = operator.open(PartitionContext::only())?;
    fill(partition.as_mut())?;
    let (mut holds, mut tables) = (Vec::new(), Restored::default());
    for _ in 0..CAPTURES {
        let start = Instant::now();
        let captured = partition.capture(Extent::Full)?;
        holds.push(start.elapsed());
        tables = captured.into_restored()?;
    }
    holds.sort_unstable();
    let batches = || tables.names().flat_map(|name| tables.table(name));
    let rows: usize = batches().map(RecordBatch::num_rows).sum();
    let bytes: usize = batches().map(RecordBatch::get_array_memory_size).sum();
    let start = Instant::now();
    operator.open(PartitionContext::only())?.restore(&tables)?;
    let restored = start.elapsed();
    let each = |time: Duration| time.as_nanos() as f64 / rows as f64;
    println!(
        "{name}: {rows} states, held {:.1} ms ({:.0} ns each), {:.2} of the raw bytes; retracted in \
         {:.0} ns each",
        holds[CAPTURES / 2].as_secs_f64() * 1e3,
        each(holds[CAPTURES / 2]),
        bytes as f64 / (rows * RAW_BYTES) as f64,
        each(restored),
    );
    Ok(())
}
