//! Pipelines over rows against a loop that takes one row at a time, on one thread: the sequence is
//! the same for every number of workers and partitions, bundle size, policy and reorder scheme.
//!
//! `THALWEG_SWEEP_SEEDS` asks for more combinations; a failure prints its seed.

mod process;
mod snapshots;
mod two_streams;
mod vertex;

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::TryRecvError;

use serde::{Deserialize, Serialize};
use thalweg::pipeline::{Collect, MemorySource, Pipeline, Window, count};
use thalweg::rows::{
    Emit, KeyContext, PackedRows, RowOperator, RowPoll, RowSource, virtual_partition,
};
use thalweg::{
    Column, DataType, Error, ErrorKind, OrderContract, PartitionScheme, ReorderScheme, RunOptions,
    SchedulerPolicy, TableSchema,
};
use thalweg_core::connector::Waker;
use thalweg_core::shim::SplitMix64;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reading {
    time_ms: i64,
    sensor: String,
    level: Option<i32>,
}

fn readings(seed: u64, count: usize) -> Vec<Reading> {
    let mut random = SplitMix64::new(seed);
    let mut time_ms = 1_000_000;
    let mut reading = |_| {
        time_ms += random.below(40) as i64;
        // A few sensors send most rows.
        let few = 1 + random.below(30);
        let sensor = random.below(few);
        let level = (random.below(10) > 0).then(|| random.below(100) as i32);
        Reading { time_ms, sensor: format!("sensor {sensor}"), level }
    };
    (0..count).map(&mut reading).collect()
}

fn seeds(in_suite: u64) -> u64 {
    let asked = std::env::var("THALWEG_SWEEP_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(in_suite)
}

/// Options in which a run may differ without showing it, and a number of partitions.
fn sample(seed: u64) -> (RunOptions, usize) {
    let mut random = SplitMix64::new(seed);
    let mut pick = |below: usize| random.below(below as u64) as usize;
    let policy = SchedulerPolicy::NAMES[pick(6)].parse().expect("a policy");
    let options = RunOptions {
        workers: [1, 2, 3, 4, 8][pick(5)],
        bundle_rows_max: [1, 7, 1000, 65_536][pick(4)],
        scheduler: policy,
        reorder: [ReorderScheme::NonBlocking, ReorderScheme::Locked][pick(2)],
        partitioning: PartitionScheme::NAMES[pick(3)].parse().expect("a scheme"),
        order: OrderContract::Arrival,
        partitions_max: [None, Some(256)][pick(2)],
        pin_workers: false,
        ..RunOptions::default()
    };
    (options, [1, 3, 16, 100, 256][pick(5)])
}

fn described(options: &RunOptions) -> String {
    let RunOptions { workers, bundle_rows_max, scheduler, reorder, partitioning, .. } = options;
    format!("{workers} workers, {bundle_rows_max} rows, {scheduler}, {reorder:?}, {partitioning:?}")
}

/// Sums levels per sensor and second; a sensor that sends -1 more than once in a second is reported
/// at once, and how rows do that depends on the timer that forgets the second.
struct PerSecond;

#[derive(Default, Serialize, Deserialize)]
struct Second {
    sums: HashMap<i64, (i64, u32)>,
    gaps: u32,
}

type Line = (i64, String, i64);

impl RowOperator<String, Reading> for PerSecond {
    type State = Second;
    type Out = Line;

    fn timer_grid_ms(&self) -> Option<i64> {
        Some(1000)
    }
    fn row(&self, _: &String, state: &mut Second, row: Reading, context: &mut KeyContext<Line>) {
        per_second_row(state, &row, &mut |line| context.emit(line));
        context.set_timer(row.time_ms + 1);
    }
    fn timer(&self, key: &String, state: &mut Second, at: i64, context: &mut KeyContext<Line>) {
        if per_second_timer(key, state, at, &mut |line| context.emit(line)) {
            context.forget();
        }
    }
}

fn per_second_row(state: &mut Second, row: &Reading, emit: &mut dyn FnMut(Line)) {
    let sum = state.sums.entry(row.time_ms / 1000).or_default();
    match row.level {
        Some(level) => *sum = (sum.0 + i64::from(level), sum.1 + 1),
        None => {
            state.gaps += 1;
            for n in 1..state.gaps {
                emit((-row.time_ms, row.sensor.clone(), i64::from(n)));
            }
        }
    }
}

fn per_second_timer(key: &str, state: &mut Second, at_ms: i64, emit: &mut dyn FnMut(Line)) -> bool {
    state.gaps = 0;
    if let Some((sum, rows)) = state.sums.remove(&(at_ms / 1000 - 1))
        && rows > 0
    {
        emit((at_ms, key.to_owned(), sum));
    }
    state.sums.is_empty()
}

/// The same, row by row.
fn per_second_serially(rows: &[Reading]) -> Vec<Line> {
    let mut states: HashMap<String, Second> = HashMap::new();
    let mut timers: BTreeSet<(i64, u8, String)> = BTreeSet::new();
    let mut lines = Vec::new();
    let fire = |timers: &mut BTreeSet<(i64, u8, String)>,
                states: &mut HashMap<String, Second>,
                lines: &mut Vec<Line>,
                watermark_ms: i64| {
        while timers.first().is_some_and(|(at, ..)| *at - 1 <= watermark_ms) {
            let (at_ms, _, key) = timers.pop_first().expect("just seen");
            let state = states.entry(key.clone()).or_default();
            if per_second_timer(&key, state, at_ms, &mut |line| lines.push(line)) {
                states.remove(&key);
            }
        }
    };
    for row in rows {
        let state = states.entry(row.sensor.clone()).or_default();
        per_second_row(state, row, &mut |line| lines.push(line));
        let at_ms = (row.time_ms / 1000 + 1) * 1000;
        timers.insert((at_ms, virtual_partition(&row.sensor), row.sensor.clone()));
        fire(&mut timers, &mut states, &mut lines, row.time_ms);
    }
    fire(&mut timers, &mut states, &mut lines, i64::MAX - 1);
    lines
}

#[test]
fn timers_fire_behind_the_row_that_reached_them() {
    let rows = readings(1, 5000);
    let expected = per_second_serially(&rows);
    assert!(expected.iter().filter(|line| line.0 < 0).count() > 50, "rows that depend on timers");
    for seed in 0..seeds(20) {
        let (options, partitions) = sample(seed);
        let pipeline = Pipeline::new();
        let lines = pipeline
            .read_timed_rows("readings", rows.clone(), |row: &Reading| row.time_ms, 0)
            .key_by(partitions, |row: &Reading| row.sensor.clone())
            .process("per second", PerSecond)
            .collect("lines");
        pipeline.run(options.clone()).expect("the job runs");
        assert!(
            lines.rows() == expected,
            "seed {seed}: {}, {partitions} partitions",
            described(&options)
        );
    }
}

/// Numbers as words of one letter: none to three rows per row.
fn letters(row: Reading, out: &mut Emit<(String, i64)>) {
    for n in 0..row.level.unwrap_or(0) % 4 {
        out.emit((row.sensor.clone(), row.time_ms * 4 + i64::from(n)));
    }
}

#[test]
fn a_graph_of_all_kinds_equals_a_loop() {
    let rows = readings(2, 4000);
    let mut expected = Vec::new();
    let (mut counts, mut total) = (HashMap::new(), 0i64);
    for row in &rows {
        let mut alone = |line: (String, i64)| {
            total += line.1 % 7;
            expected.push((line.0, line.1, total));
        };
        for n in 0..row.level.unwrap_or(0) % 4 {
            let count = counts.entry(row.sensor.clone()).or_insert(0i64);
            *count += 1;
            if *count % 3 != 0 {
                alone((row.sensor.clone(), row.time_ms * 4 + i64::from(n) + *count));
            }
        }
        if row.level.is_none() {
            alone(("gap".to_owned(), row.time_ms));
        }
    }
    for seed in 0..seeds(20) {
        let (options, partitions) = sample(seed + 1000);
        let pipeline = Pipeline::new();
        let readings = pipeline.read_rows("readings", rows.clone()).shared();
        let gaps = readings
            .clone()
            .filter("gaps", |row: &Reading| row.level.is_none())
            .map("gap", |row| ("gap".to_owned(), row.time_ms));
        let sums = readings
            .stateless("letters", letters)
            .key_by(partitions, |line: &(String, i64)| line.0.clone())
            .stateful("count", |_, count: &mut i64, line: (String, i64), out| {
                *count += 1;
                if *count % 3 != 0 {
                    out.emit((line.0, line.1 + *count));
                }
            })
            .union(vec![gaps])
            .expect("one type")
            .singleton("total", |total: &mut i64, line: (String, i64), out| {
                *total += line.1 % 7;
                out.emit((line.0, line.1, *total));
            })
            .collect("sums");
        pipeline.run(options.clone()).expect("the job runs");
        assert!(
            sums.rows() == expected,
            "seed {seed}: {}, {partitions} partitions",
            described(&options)
        );
    }
}

/// Rows of an operator come with the hash of the next key, except where others read them too.
#[test]
fn keyed_operators_behind_each_other_equal_a_loop() {
    let rows = readings(3, 4000);
    let (mut counts, mut sums) = (HashMap::new(), HashMap::new());
    let (mut counted, mut summed) = (Vec::new(), Vec::new());
    for row in &rows {
        let count = counts.entry(row.sensor.clone()).or_insert(0i64);
        *count += 1;
        counted.push((row.sensor.clone(), *count));
        let sum = sums.entry(*count % 17).or_insert(0i64);
        *sum += row.sensor.len() as i64;
        summed.push((*count % 17, *sum));
    }
    for seed in 0..seeds(20) {
        let (options, partitions) = sample(seed + 3000);
        let pipeline = Pipeline::new();
        let counts = pipeline
            .read_rows("readings", rows.clone())
            .key_by(partitions, |row: &Reading| row.sensor.clone())
            .stateful("count", |_, count: &mut i64, row: Reading, out| {
                *count += 1;
                out.emit((row.sensor, *count));
            });
        let others = seed.is_multiple_of(2).then(|| counts.clone().collect("counts"));
        let sums = counts
            .key_by(partitions, |line: &(String, i64)| line.1 % 17)
            .stateful("sum", |bucket: &i64, sum: &mut i64, line: (String, i64), out| {
                *sum += line.0.len() as i64;
                out.emit((*bucket, *sum));
            })
            .collect("sums");
        pipeline.run(options.clone()).expect("the job runs");
        let shown = described(&options);
        assert!(sums.rows() == summed, "seed {seed}: {shown}, {partitions} partitions");
        if let Some(others) = others {
            assert!(others.rows() == counted, "seed {seed}: {shown}, {partitions} partitions");
        }
    }
}

#[test]
fn sorted_inputs_merge_by_time_input_and_position() {
    let inputs: Vec<Vec<Reading>> = (3..6).map(|seed| readings(seed, 800)).collect();
    let mut expected: Vec<(i64, usize, Reading)> = Vec::new();
    for (number, rows) in inputs.iter().enumerate() {
        expected.extend(rows.iter().map(|row| (row.time_ms, number, row.clone())));
    }
    expected.sort_by_key(|&(time_ms, number, _)| (time_ms, number));
    let expected: Vec<Reading> = expected.into_iter().map(|(.., row)| row).collect();
    for seed in 0..seeds(10) {
        let (options, _) = sample(seed + 2000);
        let options = RunOptions { order: OrderContract::EventTime, ..options };
        let pipeline = Pipeline::new();
        let mut streams = inputs.iter().map(|rows| {
            let packed = PackedRows::timed(rows.clone(), |row: &Reading| row.time_ms);
            pipeline.read_packed_rows("readings", packed.expect("rows are written"), 0)
        });
        let first = streams.next().expect("three inputs");
        let merged = first.union(streams.collect()).expect("one type").collect("merged");
        pipeline.run(options.clone()).expect("the job runs");
        assert!(merged.rows() == expected, "seed {seed}: {}", described(&options));
    }
}

fn columns() -> TableSchema {
    TableSchema::new(vec![
        Column::new("time_ms", DataType::BigInt.not_null()),
        Column::new("sensor", DataType::STRING.not_null()),
        Column::new("level", DataType::Int.nullable()),
    ])
}

#[test]
fn rows_become_columns_and_columns_rows() {
    let rows = readings(7, 500);
    let written = Collect::new();
    let pipeline = Pipeline::new();
    pipeline
        .read_rows("readings", rows.clone())
        .into_columns("columns", columns())
        .write("out", written.sink());
    pipeline.run(RunOptions::default()).expect("the job runs");
    assert_eq!(written.batches()[0].schema(), columns().arrow());
    let pipeline = Pipeline::new();
    let source = MemorySource::new(columns(), written.batches());
    let read = pipeline.read("columns", source, columns()).rows::<Reading>();
    let levels = read
        .clone()
        .key_by(4, |row: &Reading| row.sensor.clone())
        .stateful("rows", |_, _: &mut (), row, out| out.emit(row));
    let (read, levels) = (read.collect("read"), levels.collect("levels"));
    let order = OrderContract::Arrival;
    pipeline.run(RunOptions { order, workers: 2, ..RunOptions::default() }).expect("the job runs");
    assert_eq!(read.rows(), rows);
    assert_eq!(levels.rows(), rows);
}

#[test]
fn columns_that_do_not_fit_are_named() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Other {
        time_ms: i64,
        pressure: f64,
    }
    let pipeline = Pipeline::new();
    let source = pipeline.read_rows("readings", readings(7, 5)).into_columns("columns", columns());
    let others = source.rows::<Other>().map("same", |row| row).collect("others");
    let error = pipeline.run(RunOptions::default()).expect_err("a field is missing");
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.to_string().contains("pressure"), "{error}");
    assert!(error.operator().is_some() && others.is_empty());
}

#[test]
fn a_closure_can_fail_and_a_panic_is_an_error() {
    for panics in [false, true] {
        let pipeline = Pipeline::new();
        pipeline
            .read_rows("numbers", 0..1000i64)
            .key_by(8, |n: &i64| n % 10)
            .stateful("check", move |_, _: &mut (), n, out: &mut Emit<i64>| {
                assert!(!panics || n < 500, "too many");
                if n == 700 {
                    out.fail(Error::user("number 700 is not welcome"));
                }
            })
            .for_each("nowhere", |_| Ok(()));
        let error = pipeline.run(RunOptions::default()).expect_err("it fails");
        let expected = if panics { "too many" } else { "number 700 is not welcome" };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.operator(), Some("check"));
    }
}

#[test]
fn rows_continue_into_windows() {
    let schema = TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("sensor", DataType::STRING.not_null()),
    ]);
    let times = arrow_array::TimestampMillisecondArray::from(vec![100, 900, 1500]);
    let sensors = arrow_array::StringViewArray::from(vec!["a", "b", "a"]);
    let batch = arrow_array::RecordBatch::try_new(
        schema.arrow(),
        vec![std::sync::Arc::new(times), std::sync::Arc::new(sensors)],
    );
    let source = MemorySource::new(schema.clone(), vec![batch.expect("columns fit")]);
    #[derive(Serialize, Deserialize)]
    struct Named {
        ts: i64,
        sensor: String,
    }
    let results = Collect::new();
    let pipeline = Pipeline::new();
    pipeline
        .read("readings", source, schema.clone())
        .watermark("ts", 0)
        .expect("a timestamp")
        .rows::<Named>()
        .map("upper case", |row| Named { sensor: row.sensor.to_uppercase(), ..row })
        .into_columns("columns", schema)
        .window(Window::tumbling(1000), "ts")
        .and_then(|windows| windows.key_by(&["sensor"]))
        .and_then(|keyed| keyed.aggregate(vec![count().named("n")]))
        .expect("columns are there")
        .write("results", results.sink());
    pipeline.run(RunOptions::default()).expect("the job runs");
    assert_eq!(results.num_rows(), 3);
}

/// Rows that another thread sends.
struct Channel {
    receiver: std::sync::mpsc::Receiver<i64>,
    /// Where the sender finds whom to wake.
    waker: std::sync::Arc<std::sync::Mutex<Option<Waker>>>,
}

impl RowSource<i64> for Channel {
    fn start(&mut self, waker: Waker) -> thalweg::Result<()> {
        *self.waker.lock().expect("nobody panics") = Some(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize, rows: &mut Vec<i64>) -> thalweg::Result<RowPoll> {
        while rows.len() < rows_max {
            match self.receiver.try_recv() {
                Ok(row) => rows.push(row),
                // Rows may have been added: they count whatever is answered.
                Err(TryRecvError::Empty) => return Ok(RowPoll::Pending),
                Err(TryRecvError::Disconnected) => return Ok(RowPoll::End),
            }
        }
        Ok(RowPoll::Rows)
    }
}

#[test]
fn a_source_of_ones_own_is_asked_when_it_wakes_the_engine() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let waker = std::sync::Arc::default();
    let source = Channel { receiver, waker: std::sync::Arc::clone(&waker) };
    let pipeline = Pipeline::new();
    let doubled =
        pipeline.read_row_source("channel", source).map("double", |n| n * 2).collect("doubled");
    let order = OrderContract::Arrival;
    let job = pipeline.start(RunOptions { order, ..RunOptions::default() }).expect("it starts");
    let wake = || {
        if let Some(wake) = &*waker.lock().expect("nobody panics") {
            wake();
        }
    };
    for n in 0..3000 {
        sender.send(n).expect("the job listens");
        if n % 100 == 0 {
            wake();
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    }
    drop(sender);
    wake();
    job.wait().expect("the job ends");
    assert_eq!(doubled.rows(), (0..3000).map(|n| n * 2).collect::<Vec<i64>>());
}
