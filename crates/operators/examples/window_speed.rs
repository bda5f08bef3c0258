//! How fast keys are interned and windows aggregated, on one thread, with data in memory.
//!
//! Run with `cargo run --release -p thalweg-operators --example window_speed`. Each line is the
//! best of several passes over batches of 8192 rows, in million rows per second; windows once for
//! each of the contracts `epoch` and `arrival`. Keys are mixed, because structured ones flatter a
//! hash table.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use hashbrown::HashMap;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{SplitMix64, SystemClock, mix64};
use thalweg_core::{
    Bundle, Column, DataType, Error, Exchange, Operator, OrderContract, Output, PartitionContext,
    Piece, Progress, Stamps, TableSchema, Watermark, WatermarkBefore,
};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::keys::KeyTable;
use thalweg_operators::window::{LatePolicy, WindowAggregate, WindowAggregateSpec, WindowSpec};

const ROWS: usize = 8192;
const BATCHES: usize = 400;
const PASSES: usize = 5;

fn main() -> Result<(), Error> {
    let few = integers(10_000);
    let many = integers(1_000_000);
    let words = words(50_000);
    floor("the floor: hashbrown count, 10,000 integers", &few);
    interning("intern 10,000 integers", &DataType::BigInt, &few)?;
    interning("intern 1,000,000 integers", &DataType::BigInt, &many)?;
    interning("intern 50,000 short words", &DataType::STRING, &words)?;

    let tumble = WindowSpec::Tumble { size_ms: 1000, offset_ms: 0 };
    let count = || vec![call("COUNT", None)];
    windows("count per key, tumbling", &few, tumble, count())?;
    windows("count per word, tumbling", &words, tumble, count())?;
    let four = ["SUM", "MIN", "MAX", "AVG"].map(|name| call(name, Some(2)));
    windows("sum, min, max, avg per key, tumbling", &few, tumble, four.to_vec())?;
    let hop = WindowSpec::Hop { slide_ms: 10, size_ms: 10_000, offset_ms: 0 };
    windows("count per key, 10 s by 10 ms", &few, hop, count())?;
    windows("max per key, 10 s by 10 ms", &few, hop, vec![call("MAX", Some(2))])?;
    let hop = WindowSpec::Hop { slide_ms: 10, size_ms: 200, offset_ms: 0 };
    windows("sum of doubles per key, 200 ms by 10 ms", &few, hop, vec![call("SUM", Some(3))])
}

fn integers(keys: u64) -> Vec<ArrayRef> {
    let mut random = SplitMix64::new(1);
    let batch = |_| {
        let keys = (0..ROWS).map(|_| mix64(random.below(keys)) as i64);
        Arc::new(Int64Array::from_iter_values(keys)) as ArrayRef
    };
    (0..BATCHES).map(batch).collect()
}

fn words(words: u64) -> Vec<ArrayRef> {
    let mut random = SplitMix64::new(2);
    let batch = |_| {
        let words = (0..ROWS).map(|_| {
            // Skewed: the square of a number below one prefers small ones.
            let rank = (random.unit().powi(2) * words as f64) as u64;
            format!("{:x}", mix64(rank) >> 44)
        });
        Arc::new(StringViewArray::from_iter_values(words)) as ArrayRef
    };
    (0..BATCHES).map(batch).collect()
}

fn call(name: &str, argument: Option<usize>) -> AggregateCall {
    let of = |&place: &usize| if place == 3 { DataType::Double } else { DataType::BigInt };
    let types: Vec<_> = argument.iter().map(|place| of(place).nullable()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_string();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

fn report(what: &str, seconds: f64) {
    println!("{what:45} {:7.1} M rows/s", (ROWS * BATCHES) as f64 / seconds / 1e6);
}

/// Counting in a hash map by hand.
fn floor(what: &str, columns: &[ArrayRef]) {
    #[derive(Default)]
    struct Mixed(u64);
    impl Hasher for Mixed {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _bytes: &[u8]) {}
        fn write_i64(&mut self, key: i64) {
            self.0 = mix64(key as u64);
        }
    }
    let mut counts: HashMap<i64, i64, BuildHasherDefault<Mixed>> = HashMap::default();
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let start = Instant::now();
        for column in columns {
            for &key in column.as_primitive::<Int64Type>().values() {
                *counts.entry(key).or_default() += 1;
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    std::hint::black_box(&counts);
    report(what, best);
}

fn interning(what: &str, data_type: &DataType, columns: &[ArrayRef]) -> Result<(), Error> {
    let mut table = KeyTable::new(std::slice::from_ref(data_type))?;
    let mut ids = Vec::with_capacity(ROWS);
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let start = Instant::now();
        for column in columns {
            ids.clear();
            table.intern(std::slice::from_ref(column), None, &mut ids)?;
            std::hint::black_box(&ids);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    report(what, best);
    Ok(())
}

fn windows(
    what: &str,
    keys: &[ArrayRef],
    window: WindowSpec,
    aggregates: Vec<AggregateCall>,
) -> Result<(), Error> {
    windows_in(OrderContract::Epoch, what, keys, window, aggregates.clone())?;
    windows_in(OrderContract::Arrival, "  the same in canonical order", keys, window, aggregates)
}

/// One batch is 10 ms of event time; a watermark follows each.
fn windows_in(
    order: OrderContract,
    what: &str,
    keys: &[ArrayRef],
    window: WindowSpec,
    aggregates: Vec<AggregateCall>,
) -> Result<(), Error> {
    let key_type = if keys[0].data_type() == &DataType::STRING.arrow() {
        DataType::STRING
    } else {
        DataType::BigInt
    };
    let input = TableSchema::new(vec![
        Column::new("time", DataType::Timestamp(3).nullable()),
        Column::new("key", key_type.nullable()),
        Column::new("value", DataType::BigInt.nullable()),
        Column::new("double", DataType::Double.nullable()),
    ]);
    let operator = WindowAggregate::new(WindowAggregateSpec {
        window,
        rowtime: 0,
        zone: None,
        keys: vec![1],
        aggregates,
        late: LatePolicy::Drop,
        input: input.clone(),
    })?;
    let mut partition = operator.open(PartitionContext { order, ..PartitionContext::only() })?;
    let clock = Arc::new(SystemClock::new());
    let mut best = f64::MAX;
    let mut slowest = 0f64;
    for pass in 0..PASSES {
        let bundles = bundles(pass, keys, &input)?;
        let start = Instant::now();
        for (bundle, watermark) in &bundles {
            let mut output = Output::new(Arc::clone(&clock) as _, u64::MAX);
            partition.rows(Piece::whole(bundle, 1), &mut output)?;
            let step = Instant::now();
            let exchange = Exchange::new(1);
            for phase in 0..operator.watermark_phases() {
                let call = WatermarkCall { watermark: *watermark, phase, exchange: &exchange };
                while partition.watermark(&call, &mut output)? == Progress::More {}
            }
            slowest = slowest.max(step.elapsed().as_secs_f64());
            std::hint::black_box(&output.emitted);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    report(what, best);
    println!("{:45} {:7.0} µs the slowest watermark", "", slowest * 1e6);
    Ok(())
}

fn bundles(
    pass: usize,
    keys: &[ArrayRef],
    input: &TableSchema,
) -> Result<Vec<(Bundle, Watermark)>, Error> {
    let mut bundles = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let begin = ((pass * BATCHES + number) * 10) as i64;
        let times = (0..ROWS).map(|row| begin + (row * 10 / ROWS) as i64);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
            ArrayRef::clone(key),
            Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| mix64(row as u64) as i64))),
            Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| row as f64 * 0.1))),
        ];
        let batch = RecordBatch::try_new(input.arrow(), columns)?;
        let watermark_before = WatermarkBefore::All(Watermark(begin - 1));
        let stamps = Stamps { ordinal: number as u64, watermark_before, ..Stamps::first() };
        bundles.push((Bundle::new(batch, stamps), Watermark(begin + 9)));
    }
    Ok(bundles)
}
