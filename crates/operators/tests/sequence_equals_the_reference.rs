//! In ordered contracts the operators give the very sequence of the reference: whatever the number
//! of partitions and wherever bundles are cut, every row in its place and every double bit for bit.
//!
//! The partitions' outputs are put together here by the rule of `thalweg_core::operator::Place`.

mod ordered_driver;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray, TimestampMillisecondArray,
};
use thalweg_core::shim::{ManualClock, SharedClock, SplitMix64};
use thalweg_core::{Column, DataType, Operator, OperatorClass, TableSchema};
use thalweg_operators::aggregate::AggregateCall;
use thalweg_operators::chain::{self, Chain};
use thalweg_operators::limit::Limit;
use thalweg_operators::reference::sequence::{ChainFunction, Stage, Step, WindowStage, run};
use thalweg_operators::reference::{ReferenceAggregate, ReferenceFunction, ReferenceWindow, Value};
use thalweg_operators::sort::{SortKey, SortLimit};
use thalweg_operators::temporal_sort::TemporalSort;
use thalweg_operators::test_kit::{aggregate_pair, rows_of};
use thalweg_operators::window::{
    LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec, WindowSpec,
};

use ordered_driver::{Input, Schedule, assert_same, drive, drive_chain};

const TIME: usize = 0;
const KEY: usize = 1;
const WORD: usize = 2;
const NUMBER: usize = 3;
const DOUBLE: usize = 4;
const FLAG: usize = 5;
const PRICE: usize = 6;

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).nullable()),
        Column::new("key", DataType::BigInt.nullable()),
        Column::new("word", DataType::STRING.nullable()),
        Column::new("number", DataType::Int.nullable()),
        Column::new("double", DataType::Double.nullable()),
        Column::new("flag", DataType::Boolean.nullable()),
        Column::new("price", DataType::Decimal(10, 2).nullable()),
    ])
}

/// A sixth of the values is NULL.
fn column<T>(
    rows: usize,
    random: &mut SplitMix64,
    value: impl Fn(&mut SplitMix64) -> T,
) -> Vec<Option<T>> {
    (0..rows).map(|_| (random.below(6) > 0).then(|| value(random))).collect()
}

/// Doubles whose sum depends on the order: of many magnitudes and both signs.
fn double(random: &mut SplitMix64) -> f64 {
    let digits = (random.below(2_000_001) as f64 - 1e6) / 7.0;
    digits * 10f64.powi(random.below(12) as i32 - 6)
}

/// Rows that move on by about 3 ms each, up to `disorder_ms` early, with silences in between.
fn random_rows(rows: usize, disorder_ms: u64, random: &mut SplitMix64) -> RecordBatch {
    let mut now = -200;
    let mut times = Vec::with_capacity(rows);
    for _ in 0..rows {
        now += random.below(7) as i64;
        if random.below(60) == 0 {
            now += 150;
        }
        times.push(now - random.below(disorder_ms) as i64);
    }
    const WORDS: [&str; 5] = ["", "a", "a\u{0}", "fits exactly", "a word too long to be inlined"];
    let prices: Decimal128Array =
        column(rows, random, |r| i128::from(r.below(2_000)) - 1_000).into_iter().collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(times)),
        Arc::new(Int64Array::from(column(rows, random, |r| r.below(20) as i64 - 10))),
        Arc::new(StringViewArray::from(column(rows, random, |r| WORDS[r.below(5) as usize]))),
        Arc::new(Int32Array::from(column(rows, random, |r| r.next_u64() as i32 >> 1))),
        Arc::new(Float64Array::from(column(rows, random, double))),
        Arc::new(BooleanArray::from(column(rows, random, |r| r.below(2) == 0))),
        Arc::new(prices.with_precision_and_scale(10, 2).expect("ten digits")),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns as declared")
}

/// The rows with their watermarks, and a watermark wherever a multiple of `step_ms` is passed: the
/// data decide it, never a bundle.
fn inputs(batch: &RecordBatch, delay_ms: i64, step_ms: i64) -> Vec<Input> {
    let (mut running, mut sent) = (i64::MIN, i64::MIN);
    let mut inputs = Vec::new();
    let (mut from, mut before) = (0, Vec::new());
    for (row, values) in rows_of(std::slice::from_ref(batch)).iter().enumerate() {
        let Value::Integer(time) = values[TIME] else { panic!("a row time is never NULL here") };
        before.push(running);
        running = running.max(time - delay_ms);
        if running.div_euclid(step_ms) > sent.div_euclid(step_ms) {
            inputs.push(Input::Rows(batch.slice(from, before.len()), std::mem::take(&mut before)));
            inputs.push(Input::Watermark(running));
            (from, sent) = (row + 1, running);
        }
    }
    inputs.push(Input::Rows(batch.slice(from, before.len()), before));
    inputs.push(Input::Watermark(i64::MAX));
    inputs
}

fn steps(inputs: &[Input]) -> Vec<Step> {
    let mut steps = Vec::new();
    for input in inputs {
        match input {
            Input::Watermark(watermark) => steps.push(Step::Watermark(*watermark)),
            Input::Rows(batch, before) => {
                let rows = rows_of(std::slice::from_ref(batch)).into_iter().zip(before);
                steps.extend(rows.map(|(values, &before)| Step::Row { values, before }));
            }
        }
    }
    steps
}

/// One aggregate for the operator and for the reference.
type Aggregate = (AggregateCall, ReferenceAggregate);

fn aggregate(
    name: &str,
    argument: Option<usize>,
    distinct: bool,
    filter: Option<usize>,
) -> Aggregate {
    let function = match name {
        "COUNT" => ReferenceFunction::Count,
        "SUM" => ReferenceFunction::Sum { bits: 32 },
        "AVG" if argument == Some(PRICE) => ReferenceFunction::AvgOfDecimal { finer: 4 },
        "AVG" => ReferenceFunction::Avg,
        "MIN" => ReferenceFunction::Min,
        "MAX" => ReferenceFunction::Max,
        "FIRST_VALUE" => ReferenceFunction::First,
        "LAST_VALUE" => ReferenceFunction::Last,
        "LISTAGG" => ReferenceFunction::ListAgg,
        "ARRAY_AGG" => ReferenceFunction::ArrayAgg,
        "PERCENTILE" => ReferenceFunction::Median,
        "STDDEV_POP" => ReferenceFunction::StddevPop,
        "STDDEV_SAMP" => ReferenceFunction::StddevSamp,
        "VAR_POP" => ReferenceFunction::VarPop,
        "VAR_SAMP" => ReferenceFunction::VarSamp,
        other => panic!("{other}"),
    };
    aggregate_pair(&schema(), (name, function), argument, distinct, filter)
}

/// Exact ones that can subtract, exact ones that cannot, and such that depend on the order of rows.
fn families() -> Vec<Vec<Aggregate>> {
    let plain = |name, argument| aggregate(name, Some(argument), false, None);
    let distinct = |name, argument| aggregate(name, Some(argument), true, None);
    vec![
        vec![
            aggregate("COUNT", None, false, None),
            plain("SUM", NUMBER),
            plain("AVG", NUMBER),
            plain("VAR_SAMP", KEY),
            plain("STDDEV_POP", KEY),
            aggregate("SUM", Some(NUMBER), false, Some(FLAG)),
            plain("SUM", PRICE),
            plain("AVG", PRICE),
            distinct("COUNT", WORD),
        ],
        vec![
            plain("MIN", WORD),
            plain("MAX", NUMBER),
            plain("MAX", DOUBLE),
            plain("FIRST_VALUE", NUMBER),
            plain("LAST_VALUE", WORD),
            plain("PERCENTILE", NUMBER),
            plain("PERCENTILE", DOUBLE),
            distinct("PERCENTILE", NUMBER),
        ],
        vec![
            plain("LISTAGG", WORD),
            distinct("LISTAGG", WORD),
            plain("ARRAY_AGG", NUMBER),
            distinct("ARRAY_AGG", WORD),
            aggregate("ARRAY_AGG", Some(FLAG), false, Some(FLAG)),
        ],
        vec![
            aggregate("COUNT", None, false, Some(FLAG)),
            plain("SUM", DOUBLE),
            plain("AVG", DOUBLE),
            plain("STDDEV_POP", DOUBLE),
            plain("STDDEV_SAMP", DOUBLE),
            plain("VAR_POP", DOUBLE),
            plain("VAR_SAMP", DOUBLE),
            distinct("SUM", DOUBLE),
            distinct("AVG", DOUBLE),
            distinct("STDDEV_SAMP", DOUBLE),
            plain("LAST_VALUE", DOUBLE),
            plain("MIN", PRICE),
        ],
    ]
}

fn operator(
    window: ReferenceWindow,
    keys: &[usize],
    aggregates: &[Aggregate],
) -> Box<dyn Operator> {
    let (keys, input, late) = (keys.to_vec(), schema(), LatePolicy::Emit);
    let aggregates = aggregates.iter().map(|(call, _)| call.clone()).collect();
    let window = match window {
        ReferenceWindow::Session { gap_ms } => {
            let spec =
                SessionSpec { gap_ms, rowtime: TIME, zone: None, keys, aggregates, late, input };
            return Box::new(SessionAggregate::new(spec).expect("a specification that fits"));
        }
        ReferenceWindow::Tumble { size_ms, offset_ms } => WindowSpec::Tumble { size_ms, offset_ms },
        ReferenceWindow::Hop { slide_ms, size_ms, offset_ms } => {
            WindowSpec::Hop { slide_ms, size_ms, offset_ms }
        }
        ReferenceWindow::Cumulate { step_ms, max_size_ms, offset_ms } => {
            WindowSpec::Cumulate { step_ms, max_size_ms, offset_ms }
        }
    };
    let spec =
        WindowAggregateSpec { window, rowtime: TIME, zone: None, keys, aggregates, late, input };
    Box::new(WindowAggregate::new(spec).expect("a specification that fits"))
}

fn stage(window: ReferenceWindow, keys: &[usize], aggregates: &[Aggregate]) -> Stage {
    let aggregates = aggregates.iter().map(|(_, aggregate)| aggregate.clone()).collect();
    Stage::Windows(WindowStage { window, rowtime: TIME, keys: keys.to_vec(), aggregates })
}

/// Every number of partitions with every cut, and something random besides.
fn schedules(seed: u64) -> impl Iterator<Item = Schedule> {
    let sizes = [1, 2, 4, 8].into_iter();
    sizes.flat_map(move |partitions| {
        let ways = [(1, false), (7, false), (1000, false), (13, true)];
        ways.map(|(bundle_rows, restores)| Schedule { partitions, bundle_rows, seed, restores })
    })
}

fn check_window(window: ReferenceWindow, keys: &[usize], aggregates: &[Aggregate], seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (disorder_ms, delay_ms) = (1 + random.below(60), random.below(40) as i64);
    let batch = random_rows(250, disorder_ms, &mut random);
    check_rows(window, keys, aggregates, (&batch, delay_ms), seed);
}

fn check_rows(
    window: ReferenceWindow,
    keys: &[usize],
    aggregates: &[Aggregate],
    (batch, delay_ms): (&RecordBatch, i64),
    seed: u64,
) {
    let mut random = SplitMix64::new(seed);
    let expected = run(
        &[stage(window, keys, aggregates)],
        // One thread sees every watermark; which of them operators see must not matter.
        steps(&inputs(batch, delay_ms, 1)),
    );
    let operator = operator(window, keys, aggregates);
    let exact = aggregates.iter().all(|(call, _)| call.is_exact());
    let is_session = matches!(window, ReferenceWindow::Session { .. });
    let commutes = operator.class() == OperatorClass::Commuting;
    assert_eq!(commutes, exact && !is_session, "order asks for no other class");
    for schedule in schedules(seed) {
        let what = format!("{window:?} by {keys:?}, {schedule:?}");
        let inputs = inputs(batch, delay_ms, [1, 10, 70][random.below(3) as usize]);
        let driven = drive(operator.as_ref(), &inputs, &schedule);
        assert_same(&driven.rows(), &expected.rows, &what);
        assert_same(&rows_of(&driven.late_rows), &expected.late[0], &format!("{what}, late"));
    }
}

fn check_windows(window: ReferenceWindow) {
    let keys: [&[usize]; 6] = [&[KEY], &[], &[WORD, KEY], &[DOUBLE], &[PRICE], &[FLAG, NUMBER]];
    for (family, aggregates) in families().iter().enumerate() {
        for (n, keys) in keys.into_iter().enumerate() {
            check_window(window, keys, aggregates, (family * 10 + n) as u64);
        }
    }
}

#[test]
fn tumbling_windows() {
    check_windows(ReferenceWindow::Tumble { size_ms: 20, offset_ms: 3 });
}

#[test]
fn hopping_windows() {
    check_windows(ReferenceWindow::Hop { slide_ms: 5, size_ms: 40, offset_ms: 0 });
}

#[test]
fn hopping_windows_whose_size_is_no_multiple_of_the_slide() {
    check_windows(ReferenceWindow::Hop { slide_ms: 8, size_ms: 20, offset_ms: -3 });
}

#[test]
fn hopping_windows_with_gaps() {
    check_windows(ReferenceWindow::Hop { slide_ms: 12, size_ms: 7, offset_ms: 1 });
}

#[test]
fn cumulating_windows() {
    check_windows(ReferenceWindow::Cumulate { step_ms: 10, max_size_ms: 50, offset_ms: 1 });
}

#[test]
fn sessions() {
    check_windows(ReferenceWindow::Session { gap_ms: 11 });
    check_windows(ReferenceWindow::Session { gap_ms: 60 });
}

/// Rows far out of order, all of them in time: sessions of several rows grow side by side until a
/// row joins them.
#[test]
fn sessions_that_rows_join() {
    for seed in 0..6 {
        let batch = random_rows(250, 200, &mut SplitMix64::new(seed));
        for gap_ms in [6, 11] {
            let window = ReferenceWindow::Session { gap_ms };
            for aggregates in &families()[1..] {
                check_rows(window, &[FLAG], aggregates, (&batch, 200), seed);
            }
        }
    }
}

/// Aligned to the clocks of New York, in the night in which they are set back: windows are captured
/// apart by local ends, so two hours fall together. The reference knows no zones; what any schedule
/// gives, all give.
#[test]
fn windows_in_local_time() {
    const SET_BACK: i64 = 1_730_613_600_000;
    let mut input = schema();
    input.columns[TIME] = Column::new("ts", DataType::TimestampLtz(3).nullable());
    let mut random = SplitMix64::new(5);
    let batch = random_rows(250, 60, &mut random);
    let time = batch.column(TIME).as_primitive::<TimestampMillisecondType>();
    // From 3 ms on average to a minute: the rows reach over twelve hours.
    let times = time.unary::<_, TimestampMillisecondType>(|time| SET_BACK + (time - 600) * 20_000);
    let mut columns = batch.columns().to_vec();
    columns[TIME] = Arc::new(times.with_data_type(input.arrow().field(TIME).data_type().clone()));
    let batch = RecordBatch::try_new(input.arrow(), columns).expect("columns as declared");
    let inputs = inputs(&batch, 300_000, 600_000);
    let window = WindowSpec::Hop { slide_ms: 900_000, size_ms: 3_600_000, offset_ms: 0 };
    for aggregates in families() {
        let spec = WindowAggregateSpec {
            window,
            rowtime: TIME,
            zone: Some(chrono_tz::America::New_York),
            keys: vec![KEY],
            aggregates: aggregates.into_iter().map(|(call, _)| call).collect(),
            late: LatePolicy::Emit,
            input: input.clone(),
        };
        let operator = WindowAggregate::new(spec).expect("a specification that fits");
        let mut schedules = schedules(5);
        let first = schedules.next().expect("one thread, row by row");
        let expected = drive(&operator, &inputs, &first);
        let rows = expected.rows();
        assert!(rows.len() > 100, "{} rows", rows.len());
        assert!(rows.is_sorted_by_key(|row| row[row.len() - 2].clone()), "by window end");
        for schedule in schedules {
            let driven = drive(&operator, &inputs, &schedule);
            assert_same(&driven.rows(), &rows, &format!("{schedule:?}"));
            let late = rows_of(&expected.late_rows);
            assert_same(&rows_of(&driven.late_rows), &late, &format!("{schedule:?}, late"));
        }
    }
}

/// One stage of the engine and the same of the reference, over random rows.
fn check_singleton(operator: &dyn Operator, stage: Stage) {
    for seed in 0..8 {
        let mut random = SplitMix64::new(seed);
        let delay_ms = random.below(40) as i64;
        let batch = random_rows(200, 1 + random.below(60), &mut random);
        let expected = run(std::slice::from_ref(&stage), steps(&inputs(&batch, delay_ms, 1)));
        for schedule in schedules(seed) {
            let what = format!("{}, {schedule:?}", operator.name());
            let inputs = inputs(&batch, delay_ms, [1, 10, 70][random.below(3) as usize]);
            let driven = drive(operator, &inputs, &schedule);
            assert_same(&driven.rows(), &expected.rows, &what);
            assert_same(&rows_of(&driven.late_rows), &expected.late[0], &format!("{what}, late"));
        }
    }
}

#[test]
fn limits_and_sorts() {
    for (limit, offset) in [(Some(10), 0), (Some(100), 33), (None, 190), (Some(0), 0)] {
        let operator = Limit::new(limit, offset, schema());
        check_singleton(&operator, Stage::Limit { limit, offset });
        let last = SortKey { nulls_first: Some(false), ..SortKey::ascending(WORD) };
        let keys = vec![SortKey::descending(KEY), last, SortKey::ascending(PRICE)];
        let operator = SortLimit::new(keys.clone(), limit, offset, schema());
        check_singleton(&operator, Stage::Sort { keys, limit, offset });
    }
}

#[test]
fn sorts_by_row_time() {
    for keys in [vec![], vec![SortKey::descending(KEY), SortKey::ascending(WORD)]] {
        let operator = TemporalSort::new(TIME, keys.clone(), LatePolicy::Emit, schema());
        check_singleton(&operator, Stage::TemporalSort { rowtime: TIME, keys });
    }
}

/// Rows out of a chain: none, one or three for each, then windows, then a limit.
#[test]
fn pipelines_of_several_stages() {
    let clock: SharedClock = Arc::new(ManualClock::default());
    let window = ReferenceWindow::Hop { slide_ms: 5, size_ms: 20, offset_ms: 0 };
    let repeats = |key: &Value| match key {
        Value::Integer(key) if *key > 0 => 3,
        Value::Integer(0) | Value::Null => 1,
        _ => 0,
    };
    for (seed, aggregates) in families().iter().enumerate() {
        let mut random = SplitMix64::new(seed as u64);
        let batch = random_rows(250, 40, &mut random);
        let inputs = inputs(&batch, 15, 10);
        let repeat: ChainFunction = Box::new(move |row| vec![row.to_vec(); repeats(&row[KEY])]);
        let stages = [
            Stage::Chain(repeat),
            stage(window, &[WORD], aggregates),
            Stage::Limit { limit: Some(200), offset: 3 },
        ];
        let expected = run(&stages, steps(&inputs));
        let function: chain::FlatMapFunction = Arc::new(move |batch| {
            let rows = rows_of(std::slice::from_ref(batch));
            let of = |(n, row): (usize, &Vec<Value>)| vec![n as u32; repeats(&row[KEY])];
            let causes: Vec<u32> = rows.iter().enumerate().flat_map(of).collect();
            let indices = arrow_array::UInt32Array::from(causes.clone());
            Ok((arrow_select::take::take_record_batch(batch, &indices)?, causes))
        });
        let repeat = chain::Step::FlatMap { name: "repeat".to_owned(), function };
        let chain = Chain::new("repeat".to_owned(), vec![repeat], Arc::clone(&clock));
        let windows = operator(window, &[WORD], aggregates);
        for schedule in schedules(seed as u64) {
            let repeated = drive_chain(&chain, &inputs, &schedule);
            let of_windows = drive(windows.as_ref(), &repeated, &schedule);
            let schema = TableSchema::new(Vec::new());
            let limited = drive(&Limit::new(Some(200), 3, schema), &of_windows.outputs, &schedule);
            let what = format!("pipeline {seed}, {schedule:?}");
            assert_same(&limited.rows(), &expected.rows, &what);
            let late = rows_of(&of_windows.late_rows);
            assert_same(&late, &expected.late[1], &format!("{what}, late"));
        }
    }
}
