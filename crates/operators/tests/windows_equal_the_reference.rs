//! Window operators, driven in every way that their contract allows, equal the reference executor.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMillisecondArray,
};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, Operator, TableSchema};
use thalweg_operators::aggregate::AggregateCall;
use thalweg_operators::reference::{
    self, ReferenceAggregate, ReferenceFunction, ReferenceQuery, ReferenceWindow, Row, Value,
};
use thalweg_operators::test_kit::{
    aggregate_pair, assert_same_rows, check_operator, rows_of, sorted, stamped,
};
use thalweg_operators::window::{
    LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec, WindowSpec,
};

const TIME: usize = 0;
const KEY: usize = 1;
const WORD: usize = 2;
const NUMBER: usize = 3;
const DOUBLE: usize = 4;
const FLAG: usize = 5;
/// What the row establishes: the watermark of the source.
const WATERMARK: usize = 6;

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).nullable()),
        Column::new("key", DataType::BigInt.nullable()),
        Column::new("word", DataType::STRING.nullable()),
        Column::new("number", DataType::Int.nullable()),
        Column::new("double", DataType::Double.nullable()),
        Column::new("flag", DataType::Boolean.nullable()),
        Column::new("watermark", DataType::Timestamp(3).nullable()),
    ])
}

/// A quarter of the values is NULL.
fn column<T>(
    rows: usize,
    random: &mut SplitMix64,
    value: impl Fn(&mut SplitMix64) -> T,
) -> Vec<Option<T>> {
    (0..rows).map(|_| (random.below(4) > 0).then(|| value(random))).collect()
}

/// Rows that move on by about 3 ms each, up to `disorder_ms` early, with silences in between.
fn random_rows(
    rows: usize,
    disorder_ms: u64,
    delay_ms: i64,
    random: &mut SplitMix64,
) -> RecordBatch {
    let mut now = -200;
    let mut times = Vec::with_capacity(rows);
    for _ in 0..rows {
        now += random.below(7) as i64;
        if random.below(50) == 0 {
            now += 400;
        }
        times.push(now - random.below(disorder_ms) as i64);
    }
    let watermarks = times.iter().map(|time| (random.below(8) > 0).then_some(time - delay_ms));
    let watermarks = TimestampMillisecondArray::from_iter(watermarks.collect::<Vec<_>>());
    const WORDS: [&str; 4] = ["", "a", "fits exactly", "a word too long to be inlined"];
    let words = column(rows, random, |random| WORDS[random.below(4) as usize]);
    let doubles = [0.0, -0.0, 1.5, -2.25, f64::INFINITY, 1e-3, 7.0, 7.125];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(times)),
        Arc::new(Int64Array::from(column(rows, random, |random| random.below(5) as i64))),
        Arc::new(StringViewArray::from(words)),
        Arc::new(Int32Array::from(column(rows, random, |random| random.next_u64() as i32 >> 1))),
        Arc::new(Float64Array::from(column(rows, random, |r| doubles[r.below(8) as usize]))),
        Arc::new(BooleanArray::from(column(rows, random, |random| random.below(2) == 0))),
        Arc::new(watermarks),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns as declared")
}

/// One aggregate for the operator and for the reference.
fn aggregate(
    name: &str,
    argument: Option<usize>,
    distinct: bool,
    filter: Option<usize>,
) -> (AggregateCall, ReferenceAggregate) {
    let function = match name {
        "COUNT" => ReferenceFunction::Count,
        "SUM" => ReferenceFunction::Sum { bits: 32 },
        "AVG" => ReferenceFunction::Avg,
        "MIN" => ReferenceFunction::Min,
        "MAX" => ReferenceFunction::Max,
        "FIRST_VALUE" => ReferenceFunction::First,
        "LAST_VALUE" => ReferenceFunction::Last,
        "STDDEV_POP" => ReferenceFunction::StddevPop,
        "VAR_SAMP" => ReferenceFunction::VarSamp,
        other => panic!("{other}"),
    };
    aggregate_pair(&schema(), (name, function), argument, distinct, filter)
}

type Aggregates = Vec<(AggregateCall, ReferenceAggregate)>;

/// Sums that can subtract, extremes that cannot, and such that depend on the order of rows.
fn families() -> Vec<Aggregates> {
    let plain = |name, argument| aggregate(name, Some(argument), false, None);
    vec![
        vec![
            aggregate("COUNT", None, false, None),
            plain("SUM", NUMBER),
            plain("AVG", NUMBER),
            aggregate("SUM", Some(NUMBER), false, Some(FLAG)),
        ],
        vec![
            plain("MIN", WORD),
            plain("MAX", NUMBER),
            plain("MAX", DOUBLE),
            aggregate("COUNT", Some(WORD), true, None),
            plain("FIRST_VALUE", NUMBER),
            plain("LAST_VALUE", WORD),
        ],
        vec![
            plain("SUM", DOUBLE),
            aggregate("COUNT", None, false, Some(FLAG)),
            plain("LAST_VALUE", DOUBLE),
        ],
    ]
}

fn operator(window: ReferenceWindow, keys: &[usize], aggregates: &Aggregates) -> Box<dyn Operator> {
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

fn query(window: ReferenceWindow, keys: &[usize], aggregates: &Aggregates) -> ReferenceQuery {
    ReferenceQuery {
        watermark: Box::new(|row| match row[WATERMARK] {
            Value::Integer(watermark) => Some(watermark),
            _ => None,
        }),
        filter: None,
        project: None,
        rowtime: TIME,
        window,
        keys: keys.to_vec(),
        aggregates: aggregates.iter().map(|(_, aggregate)| aggregate.clone()).collect(),
    }
}

fn check(window: ReferenceWindow, keys: &[usize], aggregates: &Aggregates, seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (disorder_ms, delay_ms) = (1 + random.below(60), random.below(40) as i64);
    let batch = random_rows(150, disorder_ms, delay_ms, &mut random);
    let rows = rows_of(std::slice::from_ref(&batch));
    let watermarks: Vec<Option<i64>> = rows
        .iter()
        .map(|row| if let Value::Integer(time) = row[WATERMARK] { Some(time) } else { None })
        .collect();
    let script = stamped(&batch, &watermarks, 1 + random.below(40) as usize);
    let driven = check_operator(operator(window, keys, aggregates).as_ref(), &script);

    let expected =
        reference::run(&query(window, keys, aggregates), rows.into_iter().map(Row::new).collect());
    let what = format!("{window:?} by {keys:?}, seed {seed}");
    let actual = rows_of(&driven.emitted).into_iter().map(|row| without_window_time(row, &what));
    assert_same_rows(&by_window(actual.collect()), &by_window(expected.rows), &what);
    let late = sorted(rows_of(&driven.late_rows));
    assert_eq!(driven.late, late.len() as u64, "{what}: late rows and their count");
    assert_same_rows(&late, &sorted(expected.late), &format!("{what}, late"));
    assert_eq!(driven.accepted, expected.accepted, "{what}: accepted");
    assert_eq!(driven.partly_late, expected.partly_late, "{what}: partly late");
}

/// window_time is the last instant of the window; the reference does not give it.
fn without_window_time(mut row: Vec<Value>, what: &str) -> Vec<Value> {
    let time = row.pop().expect("a row ends with window_time");
    let (Value::Integer(time), Value::Integer(end)) = (time, &row[row.len() - 1]) else {
        panic!("{what}: window_end and window_time are times");
    };
    assert_eq!(time, end - 1, "{what}: window_time");
    row
}

/// Window, keys, aggregates: sorted like this, doubles that differ in their last
/// bit change no order.
fn by_window(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    for row in &mut rows {
        row.rotate_right(2);
    }
    sorted(rows)
}

fn check_all(window: ReferenceWindow) {
    for (family, aggregates) in families().iter().enumerate() {
        for (n, keys) in [&[KEY][..], &[], &[WORD, KEY], &[DOUBLE]].into_iter().enumerate() {
            check(window, keys, aggregates, (family * 10 + n) as u64);
        }
    }
}

#[test]
fn tumbling_windows() {
    check_all(ReferenceWindow::Tumble { size_ms: 20, offset_ms: 3 });
}

#[test]
fn hopping_windows() {
    check_all(ReferenceWindow::Hop { slide_ms: 5, size_ms: 40, offset_ms: 0 });
}

#[test]
fn hopping_windows_whose_size_is_no_multiple_of_the_slide() {
    check_all(ReferenceWindow::Hop { slide_ms: 8, size_ms: 20, offset_ms: -3 });
}

#[test]
fn cumulating_windows() {
    check_all(ReferenceWindow::Cumulate { step_ms: 10, max_size_ms: 50, offset_ms: 1 });
}

#[test]
fn sessions() {
    check_all(ReferenceWindow::Session { gap_ms: 11 });
}
