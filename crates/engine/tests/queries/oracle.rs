//! Whole pipelines on threads and in the simulator equal the reference executor: random streams out
//! of order, windows of each kind, one and two inputs, 1, 2 and 4 workers, bundles of 1 to 64 Ki
//! rows. Every failure prints its seed.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use thalweg::pipeline::{
    Aggregate, Collect, Late, MemorySource, Pipeline, Window, aggregate, average, count,
    count_distinct, first_value, maximum, minimum, sum,
};
use thalweg::{Column, DataType, RunOptions, TableSchema};
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_operators::reference::{
    self, ReferenceAggregate, ReferenceFunction as Function, ReferenceQuery, ReferenceWindow, Row,
    Value,
};
use thalweg_operators::test_kit::{assert_same_rows, rows_of, sorted};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{SchedulerPolicy, start};

/// Watermarks often stand at a window's last millisecond.
const DELAY_MS: i64 = 41;

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("word", DataType::STRING.nullable()),
        Column::new("number", DataType::BigInt.nullable()),
        Column::new("double", DataType::Double.nullable()),
    ])
}

/// Rows that move on by about 3 ms each, up to 90 ms early, with a silence now and then.
fn random_rows(rows: usize, random: &mut SplitMix64) -> RecordBatch {
    const WORDS: [&str; 4] = ["", "a", "fits exactly", "a word too long to be inlined"];
    let mut now = 0;
    let times: Vec<i64> = (0..rows)
        .map(|_| {
            now += random.below(7) as i64 + if random.below(60) == 0 { 500 } else { 0 };
            now - random.below(90) as i64
        })
        .collect();
    let words: Vec<Option<&str>> =
        (0..rows).map(|_| (random.below(6) > 0).then(|| WORDS[random.below(4) as usize])).collect();
    let numbers: Vec<Option<i64>> =
        (0..rows).map(|_| (random.below(6) > 0).then(|| random.below(1000) as i64 - 500)).collect();
    let doubles: Vec<Option<f64>> =
        (0..rows).map(|_| (random.below(6) > 0).then(|| random.unit() * 10.0)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(times)),
        Arc::new(StringViewArray::from(words)),
        Arc::new(Int64Array::from(numbers)),
        Arc::new(Float64Array::from(doubles)),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns as declared")
}

/// Aggregates that commute bit for bit, so that bundles may be taken by any worker.
fn exact() -> Vec<(Aggregate, ReferenceAggregate)> {
    vec![
        (count(), ReferenceAggregate::new(Function::Count, None)),
        (
            count_distinct("number"),
            ReferenceAggregate {
                distinct: true,
                ..ReferenceAggregate::new(Function::Count, Some(2))
            },
        ),
        (sum("number"), ReferenceAggregate::new(Function::Sum { bits: 64 }, Some(2))),
        (minimum("number"), ReferenceAggregate::new(Function::Min, Some(2))),
        (maximum("double"), ReferenceAggregate::new(Function::Max, Some(3))),
        (average("number"), ReferenceAggregate::new(Function::Avg, Some(2))),
    ]
}

/// Aggregates whose rows are folded in the order of arrival.
fn ordered() -> Vec<(Aggregate, ReferenceAggregate)> {
    vec![
        (count(), ReferenceAggregate::new(Function::Count, None)),
        (sum("double"), ReferenceAggregate::new(Function::Sum { bits: 64 }, Some(3))),
        (first_value("number"), ReferenceAggregate::new(Function::First, Some(2))),
        (aggregate("LAST_VALUE", Some("word")), ReferenceAggregate::new(Function::Last, Some(1))),
    ]
}

const WINDOWS: [(Window, ReferenceWindow); 4] = [
    (
        Window::Aligned(thalweg_operators::window::WindowSpec::Tumble {
            size_ms: 100,
            offset_ms: 30,
        }),
        ReferenceWindow::Tumble { size_ms: 100, offset_ms: 30 },
    ),
    (
        Window::Aligned(thalweg_operators::window::WindowSpec::Hop {
            slide_ms: 40,
            size_ms: 200,
            offset_ms: 0,
        }),
        ReferenceWindow::Hop { slide_ms: 40, size_ms: 200, offset_ms: 0 },
    ),
    (
        Window::Aligned(thalweg_operators::window::WindowSpec::Cumulate {
            step_ms: 50,
            max_size_ms: 200,
            offset_ms: 0,
        }),
        ReferenceWindow::Cumulate { step_ms: 50, max_size_ms: 200, offset_ms: 0 },
    ),
    (Window::Session { gap_ms: 60 }, ReferenceWindow::Session { gap_ms: 60 }),
];

struct Case {
    inputs: Vec<RecordBatch>,
    window: (Window, ReferenceWindow),
    aggregates: fn() -> Vec<(Aggregate, ReferenceAggregate)>,
}

/// The pipeline of a case: numbers above -400 (or NULL), grouped by word.
fn pipeline(case: &Case) -> (Pipeline, Collect, Collect) {
    let (pipeline, results, late) = (Pipeline::new(), Collect::new(), Collect::new());
    let mut streams = case.inputs.iter().enumerate().map(|(n, batch)| {
        let source = MemorySource::new(schema(), vec![batch.clone()]);
        pipeline
            .read(&format!("input-{n}"), source, schema())
            .watermark("ts", DELAY_MS)
            .expect("ts is a timestamp")
            .filter("not tiny", |batch| {
                use arrow_array::cast::AsArray;
                let numbers = batch.column(2).as_primitive::<arrow_array::types::Int64Type>();
                Ok(numbers.iter().map(|n| Some(n.is_none_or(|n| n > -400))).collect())
            })
    });
    let first = streams.next().expect("a case has inputs");
    let rest: Vec<_> = streams.collect();
    let stream = if rest.is_empty() { first } else { first.union(rest).expect("same columns") };
    let calls = (case.aggregates)().into_iter().map(|(call, _)| call).collect();
    let (rows, late_rows) = stream
        .window(case.window.0, "ts")
        .expect("ts is there")
        .late(Late::Emit)
        .key_by(&["word"])
        .expect("word is there")
        .aggregate_with_late(calls)
        .expect("aggregates fit");
    rows.write("results", results.sink());
    late_rows.write("late", late.sink());
    (pipeline, results, late)
}

fn expected(case: &Case) -> reference::ReferenceResult {
    let query = ReferenceQuery {
        watermark: Box::new(|row| match row[0] {
            Value::Integer(t) => Some(t - DELAY_MS),
            _ => None,
        }),
        filter: Some(Box::new(|row| !matches!(row[2], Value::Integer(n) if n <= -400))),
        project: None,
        rowtime: 0,
        window: case.window.1,
        keys: vec![1],
        aggregates: (case.aggregates)().into_iter().map(|(_, call)| call).collect(),
    };
    let rows = case.inputs.iter().enumerate().flat_map(|(split, batch)| {
        rows_of(std::slice::from_ref(batch)).into_iter().map(move |values| Row { split, values })
    });
    reference::run(&query, rows.collect())
}

fn check(case: &Case, run: impl FnOnce(Pipeline), what: &str) {
    let (pipeline, results, late) = pipeline(case);
    run(pipeline);
    let rows = |collect: &Collect| -> Vec<Vec<Value>> { sorted(rows_of(&collect.batches())) };
    let expected = expected(case);
    // window_time is the last instant of the window; the reference leaves it out.
    let results = rows(&results).into_iter().map(|mut row| {
        row.pop();
        row
    });
    assert_same_rows(&sorted(results.collect()), &sorted(expected.rows), what);
    assert_same_rows(&rows(&late), &sorted(expected.late), &format!("late rows, {what}"));
}

fn options(workers: usize, bundle_rows_max: usize) -> RunOptions {
    RunOptions { workers, bundle_rows_max, ..RunOptions::default() }
}

#[test]
fn threads_equal_the_reference() {
    for (seed, window) in WINDOWS.into_iter().enumerate() {
        for aggregates in [exact as fn() -> _, ordered] {
            let mut random = SplitMix64::new(seed as u64);
            let inputs = vec![random_rows(1500, &mut random)];
            let case = Case { inputs, window, aggregates };
            for workers in [1, 2, 4] {
                for bundle_rows_max in [1, 7, 1000, 65_536] {
                    let what = format!("window {seed}, {workers} workers, {bundle_rows_max} rows");
                    let run = |pipeline: Pipeline| {
                        let job = start(pipeline.graph(), options(workers, bundle_rows_max));
                        job.and_then(|job| job.wait()).unwrap_or_else(|e| panic!("{what}: {e}"));
                    };
                    check(&case, run, &what);
                }
            }
        }
    }
}

#[test]
fn simulated_schedules_equal_the_reference() {
    for seed in 0..60u64 {
        let mut random = SplitMix64::new(seed);
        // Sessions over several inputs depend on which input is ahead, so they get one.
        let window = WINDOWS[random.below(4) as usize];
        let is_session = matches!(window.0, Window::Session { .. });
        let count = if is_session { 1 } else { 1 + random.below(2) as usize };
        let inputs = (0..count).map(|_| random_rows(300, &mut random)).collect();
        let aggregates = if count == 1 && random.below(2) == 0 { ordered } else { exact };
        let case = Case { inputs, window, aggregates };
        let mut options = options(3, 1 + random.below(60) as usize);
        options.clock = Arc::new(ManualClock::default());
        if random.below(2) == 0 {
            options.scheduler = SchedulerPolicy::RoundRobin;
        }
        let run = |pipeline: Pipeline| {
            let report = simulate(pipeline.graph(), options, 2, seed);
            report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        };
        check(&case, run, &format!("seed {seed}"));
    }
}
