//! What a snapshot of many keys weighs, what one of few changes costs compared with it, and how
//! fast it is restored.
//!
//! Run with `cargo run --release -p thalweg --example snapshot_speed [FOLDER [KEYS]]`. A GROUP BY
//! with COUNT(*) and SUM(BIGINT) over 10 million keys, once of BIGINT and once of texts with 83
//! bytes (100 bytes a key with the two numbers and the partition). Printed are:
//! - the bytes of a key in memory, as captured and as written, compared with the bytes of its
//!   columns;
//! - processor time and bytes of a snapshot in which one key in a hundred has changed, compared
//!   with those of all of it;
//! - how long reading and restoring takes, compared with a floor: the same files decoded and their
//!   keys interned, by as many threads; alternating, medians of three. Files are in the page cache.
//!
//! Behind them, for a million keys at most: OVER with COUNT(*) and SUM(BIGINT) over all rows of a
//! key before, where one key in a hundred has had another row; and rows that wait in front of it,
//! where one in a hundred has come since.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use arrow_ipc::reader::FileReader;
use cpu_time::ProcessTime;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{SystemClock, mix64};
use thalweg_core::snapshot::{StageState, TakenCut};
use thalweg_core::{
    Bundle, Captured, Column, DataType, Error, Exchange, Extent, Operator, OrderContract, Output,
    Partition, PartitionContext, Piece, Result, Route, Stamps, TableSchema, Watermark,
};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::group::{GroupAggregate, GroupSpec};
use thalweg_operators::keys::KeyTable;
use thalweg_operators::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use thalweg_operators::window::LatePolicy;
use thalweg_state::{SnapshotKind, SnapshotStore, WriteRequest};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: u64 = 8192;
const PARTITIONS: usize = 8;
const ROUNDS: usize = 3;
const TEXT_BYTES: usize = 83;
const OVER_KEYS_MAX: u64 = 1_000_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "snapshot-speed".to_owned()));
    let keys: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    for key_type in [DataType::BigInt, DataType::STRING] {
        measure(&folder, keys, &key_type)?;
    }
    let keys = keys.min(OVER_KEYS_MAX);
    measure_over(&folder, keys, true)?;
    measure_over(&folder, keys, false)
}

/// A row for each key, then one for every hundredth; those before a snapshot leave or wait.
fn measure_over(folder: &Path, keys: u64, leave: bool) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    let operator = over()?;
    let mut partitions = open(&operator)?;
    let mut store = SnapshotStore::open(&folder.to_string_lossy(), "speed")?;
    let mut next = |time_ms: i64, keys: Vec<u64>, base| {
        let timed = |keys: &[u64]| timed_bundle(time_ms, keys);
        feed_each(&operator, &mut partitions, timed, keys.into_iter())?;
        if leave {
            pass(&mut partitions, time_ms)?;
        }
        write(&mut store, &mut partitions, base)
    };
    let all = next(1, (0..keys).collect(), None)?;
    let few = next(2, (0..keys).step_by(100).collect(), Some(1))?;
    let what = if leave { "keys of OVER" } else { "rows that wait in front of OVER" };
    println!("{keys} {what}: {} bytes, {:.2} processor seconds", all.0, all.1);
    let (bytes, time) = (few.0 as f64 / all.0 as f64, few.1 / all.1);
    println!(
        "  one in a hundred came since: {:.1} % of the bytes, {:.1} % of the processor time",
        bytes * 100.0,
        time * 100.0
    );
    Ok(())
}

/// A watermark comes to all partitions.
fn pass(partitions: &mut [Box<dyn Partition>], time_ms: i64) -> Result<()> {
    let exchange = Exchange::new(PARTITIONS);
    for partition in partitions {
        let mut output = Output::new(Arc::new(SystemClock::new()) as _, u64::MAX);
        let call = WatermarkCall { watermark: Watermark(time_ms), phase: 0, exchange: &exchange };
        let _ = partition.watermark(&call, &mut output)?;
    }
    Ok(())
}

fn over() -> Result<OverAggregate> {
    let of_call = |call: AggregateCall| OverCall {
        result: call.result.clone(),
        name: call.name.clone(),
        function: OverFunction::Aggregate(call),
    };
    OverAggregate::new(OverSpec {
        keys: vec![0],
        time: OverTime::EventTime(2),
        frame: Frame::Rows { preceding: None },
        calls: vec![of_call(call("COUNT", None)), of_call(call("SUM", Some(1)))],
        input: timed_input(),
        state_ttl_ms: None,
        late: LatePolicy::Drop,
    })
}

fn timed_input() -> TableSchema {
    let mut columns = input(&DataType::BigInt).columns;
    columns.push(Column::new("ts", DataType::Timestamp(3).not_null()));
    TableSchema::new(columns)
}

/// A row for each of these keys, at this time.
fn timed_bundle(time_ms: i64, keys: &[u64]) -> Result<Bundle> {
    let mut columns = bundle(keys, &DataType::BigInt)?.batch.columns().to_vec();
    columns.push(Arc::new(TimestampMillisecondArray::from(vec![time_ms; keys.len()])));
    let batch = RecordBatch::try_new(timed_input().arrow(), columns)?;
    Ok(Bundle::new(batch, Stamps::first()))
}

fn measure(folder: &Path, keys: u64, key_type: &DataType) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    let operator = operator(key_type)?;
    let mut partitions = open(&operator)?;
    let raw_bytes = if *key_type == DataType::BigInt { 8 } else { TEXT_BYTES } + 8 + 8;
    let of_keys = |keys: &[u64]| bundle(keys, key_type);
    feed_each(&operator, &mut partitions, of_keys, 0..keys)?;
    let memory: usize = partitions.iter().map(|partition| partition.state_bytes()).sum();
    let of = |bytes: u64| bytes as f64 / (keys as usize * raw_bytes) as f64;
    println!("{keys} keys of {key_type}: {raw_bytes} bytes of columns a key");
    println!("  in memory {:.2} of that", of(memory as u64));
    let mut store = SnapshotStore::open(&folder.to_string_lossy(), "speed")?;
    let all = write(&mut store, &mut partitions, None)?;
    println!("  written {:.2} of that, in {:.2} processor seconds", of(all.0), all.1);
    // Every hundredth, spread over all.
    let few = (0..keys).step_by(100);
    feed_each(&operator, &mut partitions, of_keys, few)?;
    let few = write(&mut store, &mut partitions, Some(1))?;
    let (bytes, time) = (few.0 as f64 / all.0 as f64, few.1 / all.1);
    println!(
        "  one in a hundred changed: {:.1} % of the bytes, {:.1} % of the processor time",
        bytes * 100.0,
        time * 100.0
    );
    drop(partitions);
    recover(&store, folder, &operator, key_type, keys, raw_bytes)
}

fn recover(
    store: &SnapshotStore,
    folder: &Path,
    operator: &GroupAggregate,
    key_type: &DataType,
    keys: u64,
    raw_bytes: usize,
) -> Result<()> {
    let (mut own, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(timed(|| {
            decode_and_intern(&folder.join("speed/snapshots/0000000001"), key_type)
        })?);
        own.push(timed(|| restore(store, operator))?);
    }
    own.sort_unstable();
    floor.sort_unstable();
    let (own, floor) = (own[ROUNDS / 2].as_secs_f64(), floor[ROUNDS / 2].as_secs_f64());
    let megabytes = (keys as usize * raw_bytes) as f64 / 1e6;
    println!(
        "  restored in {own:.2} s, {:.0} MB of columns a second; the floor needs {floor:.2} s: {:.2} of its rate",
        megabytes / own,
        floor / own
    );
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Reads the snapshot of all keys and gives it to new partitions, as a run that resumes does.
fn restore(store: &SnapshotStore, operator: &GroupAggregate) -> Result<()> {
    let snapshot = store.read(1)?;
    let state = &snapshot.cut.stages[0].state;
    in_halves(|half| {
        for partition in (half..PARTITIONS).step_by(2) {
            let opening = opening(partition);
            operator.open(opening)?.restore(&state.of_partition(opening)?)?;
        }
        Ok(())
    })
}

/// The least that anybody could do: decode the files, intern the keys, keep the numbers.
fn decode_and_intern(folder: &Path, key_type: &DataType) -> Result<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::from)? {
        let path = entry.map_err(Error::from)?.path();
        files.extend(path.extension().is_some_and(|own| own == "arrow").then_some(path));
    }
    in_halves(|half| {
        let mut table = KeyTable::new(std::slice::from_ref(key_type))?;
        let (mut ids, mut numbers) = (Vec::new(), Vec::new());
        for path in files.iter().skip(half).step_by(2) {
            let file = std::fs::read(path).map_err(Error::from)?;
            for batch in FileReader::try_new(std::io::Cursor::new(file), None)? {
                let batch = batch?;
                ids.clear();
                table.intern(&[Arc::clone(batch.column(1))], None, &mut ids)?;
                for column in &batch.columns()[2..] {
                    let values = column.as_primitive_opt::<Int64Type>();
                    numbers.extend_from_slice(values.map_or(&[], |values| values.values()));
                }
                std::hint::black_box(batch.column(0).as_primitive::<UInt8Type>());
            }
        }
        std::hint::black_box((table.len(), numbers.len()));
        Ok(())
    })
}

/// On two threads.
fn in_halves(work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        work(0)?;
        other.join().expect("no panics")
    })
}

/// Takes a snapshot: its bytes, and the seconds of processor time that it took.
fn write(
    store: &mut SnapshotStore,
    partitions: &mut [Box<dyn Partition>],
    base: Option<u64>,
) -> Result<(u64, f64)> {
    let start = ProcessTime::now();
    let extent = if base.is_some() { Extent::Incremental } else { Extent::Full };
    let captured = partitions.iter_mut().map(|partition| partition.capture(extent));
    let stage = stage(captured.collect::<Result<_>>()?);
    let cut = TakenCut { stages: vec![stage], serial: 0, is_complete: false };
    let number = store.next_number()?;
    let request = WriteRequest::new(cut, number, SnapshotKind::Manual, OrderContract::Epoch);
    let written = store.write(WriteRequest { base, ..request })?;
    Ok((written.bytes, start.elapsed().as_secs_f64()))
}

fn stage(state: Vec<Captured>) -> StageState<Vec<Captured>> {
    StageState {
        id: "group".to_owned(),
        name: "group".to_owned(),
        ended: false,
        inputs: None,
        places: 0,
        source: None,
        sink: None,
        state,
        waiting: Vec::new(),
    }
}

fn opening(partition: usize) -> PartitionContext {
    PartitionContext { partition, partitions: PARTITIONS, order: OrderContract::Epoch }
}

fn open(operator: &dyn Operator) -> Result<Vec<Box<dyn Partition>>> {
    (0..PARTITIONS).map(|partition| operator.open(opening(partition))).collect()
}

fn feed_each(
    operator: &dyn Operator,
    partitions: &mut [Box<dyn Partition>],
    bundle: impl Fn(&[u64]) -> Result<Bundle>,
    mut keys: impl Iterator<Item = u64>,
) -> Result<()> {
    let clock = Arc::new(SystemClock::new());
    loop {
        let some: Vec<u64> = keys.by_ref().take(ROWS as usize).collect();
        if some.is_empty() {
            return Ok(());
        }
        let bundle = bundle(&some)?;
        let Route::Scatter(parts) = operator.route(&bundle, PARTITIONS)? else {
            return Err(Error::internal("rows are scattered by key"));
        };
        for (partition, rows) in partitions.iter_mut().zip(&parts) {
            let mut output = Output::new(Arc::clone(&clock) as _, u64::MAX);
            let piece = Piece { bundle: &bundle, rows: Some(rows), is_local: false, lanes: 1 };
            partition.rows(piece, &mut output)?;
        }
    }
}

fn input(key_type: &DataType) -> TableSchema {
    TableSchema::new(vec![
        Column::new("key", key_type.clone().nullable()),
        Column::new("value", DataType::BigInt.nullable()),
    ])
}

fn operator(key_type: &DataType) -> Result<GroupAggregate> {
    GroupAggregate::new(GroupSpec {
        keys: vec![0],
        calls: vec![call("COUNT", None), call("SUM", Some(1))],
        input: input(key_type),
        retracts: false,
        state_ttl_ms: None,
        mini_batch: false,
    })
}

fn call(name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> = argument.iter().map(|_| DataType::BigInt.nullable()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_lowercase();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

/// A row for each of these keys, mixed, so that compression finds nothing in them.
fn bundle(keys: &[u64], key_type: &DataType) -> Result<Bundle> {
    let mixed = keys.iter().map(|&key| mix64(key));
    let column: ArrayRef = match key_type {
        DataType::BigInt => Arc::new(Int64Array::from_iter_values(mixed.map(|key| key as i64))),
        _ => {
            let text = |key: u64| {
                let words = (0..6).map(|word| format!("{:016x}", mix64(key ^ word)));
                let mut text: String = words.collect();
                text.truncate(TEXT_BYTES);
                text
            };
            Arc::new(StringViewArray::from_iter_values(mixed.map(text)))
        }
    };
    let values = Int64Array::from_iter_values(keys.iter().map(|&key| mix64(!key) as i64 >> 8));
    let batch = RecordBatch::try_new(input(key_type).arrow(), vec![column, Arc::new(values)])?;
    Ok(Bundle::new(batch, Stamps::first()))
}
