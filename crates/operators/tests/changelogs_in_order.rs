//! In ordered contracts GROUP BY, OVER and patterns give one sequence, wherever bundles are cut,
//! however many partitions there are, and wherever others continue with what they captured. (That
//! one row at a time and one partition give the right rows is what their own tests compare with.)

#[expect(dead_code, reason = "stateless stages are driven by another test")]
mod ordered_driver;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, Operator, TableSchema};
use thalweg_expr::build::{self, BinaryOp};
use thalweg_expr::{Expr, Session};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::group::{GroupAggregate, GroupSpec};
use thalweg_operators::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use thalweg_operators::pattern::{
    Condition, End, MatchRecognize, MatchSpec, Output, Pattern, PatternValue, Skip, Variable,
};
use thalweg_operators::test_kit::{check_damaged_state, rows_of, stamped};
use thalweg_operators::window::LatePolicy;

use ordered_driver::{Input, Schedule, assert_same, drive};

const KEY: usize = 0;
const TIME: usize = 1;
const VALUE: usize = 2;

/// Key, time, value: sums of these values depend on their sequence.
fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("key", DataType::STRING.nullable()),
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("value", DataType::Double.nullable()),
    ])
}

type Row = (Option<String>, i64, Option<f64>);

/// Rows out of order by less than the watermark allows, or by a little more.
fn inputs(rows: usize, random: &mut SplitMix64) -> Vec<Input> {
    let (mut now, mut running, mut last) = (0i64, i64::MIN, i64::MIN);
    let (mut inputs, mut waiting, mut befores) = (Vec::new(), Vec::<Row>::new(), Vec::new());
    for _ in 0..rows {
        now += random.below(4) as i64;
        let time = now - random.below(14) as i64;
        let key = (random.below(9) > 0).then(|| format!("key number {}", random.below(9)));
        let value = (random.below(9) > 0).then(|| 0.1 + random.below(1000) as f64 * 1e10);
        waiting.push((key, time, value));
        befores.push(running);
        running = running.max(time - 11);
        // The data decide where watermarks stand.
        if running.div_euclid(7) > last.div_euclid(7) {
            last = running;
            inputs.push(Input::Rows(batch(&waiting), std::mem::take(&mut befores)));
            waiting.clear();
            inputs.push(Input::Watermark(last));
        }
    }
    inputs.push(Input::Rows(batch(&waiting), befores));
    inputs.push(Input::Watermark(i64::MAX));
    inputs
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0.clone()).collect::<StringViewArray>()),
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>()),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns fit the schema")
}

fn check(operator: &dyn Operator, inputs: &[Input], what: &str) {
    let single = Schedule { partitions: 1, bundle_rows: 1, seed: 0, restores: false };
    let expected = drive(operator, inputs, &single);
    assert!(!expected.rows().is_empty(), "{what}: something comes out");
    let ways = [(1, 1000), (2, 1), (3, 7), (8, 1000), (256, 13)];
    for (seed, (partitions, bundle_rows)) in (0..).zip(ways) {
        for restores in [false, true] {
            let schedule = Schedule { partitions, bundle_rows, seed, restores };
            let driven = drive(operator, inputs, &schedule);
            let what = format!("{what}, {schedule:?}");
            assert_same(&driven.rows(), &expected.rows(), &what);
            assert_same(&rows_of(&driven.late_rows), &rows_of(&expected.late_rows), &what);
        }
    }
}

fn call(name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> =
        argument.iter().map(|&at| schema().columns[at].column_type.clone()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    AggregateCall { function, argument, distinct: false, filter: None, result, name: name.into() }
}

fn calls() -> Vec<AggregateCall> {
    let names = ["SUM", "AVG", "STDDEV_POP", "MIN", "FIRST_VALUE", "LAST_VALUE", "ARRAY_AGG"];
    names.into_iter().map(|name| call(name, Some(VALUE))).collect()
}

fn group(keys: &[usize], retracts: bool) -> GroupAggregate {
    GroupAggregate::new(GroupSpec {
        keys: keys.to_vec(),
        calls: calls(),
        input: schema(),
        retracts,
        state_ttl_ms: None,
        mini_batch: false,
    })
    .expect("a valid specification")
}

#[test]
fn groups_keep_their_sequence() {
    for seed in 0..3 {
        let inputs = inputs(250, &mut SplitMix64::new(seed));
        for keys in [&[KEY][..], &[]] {
            let what = format!("keys {keys:?}, seed {seed}");
            check(&group(keys, false), &inputs, &what);
        }
    }
}

fn over(frame: Frame, functions: Vec<OverFunction>) -> OverAggregate {
    let over_call = |function: OverFunction| {
        let result = match &function {
            OverFunction::Aggregate(call) => call.result.clone(),
            OverFunction::Lag { .. } | OverFunction::Lead { .. } => DataType::Double.nullable(),
            _ => DataType::BigInt.not_null(),
        };
        OverCall { function, result, name: "r".to_owned() }
    };
    OverAggregate::new(OverSpec {
        keys: vec![KEY],
        time: OverTime::EventTime(TIME),
        frame,
        calls: functions.into_iter().map(over_call).collect(),
        input: schema(),
        state_ttl_ms: None,
        late: LatePolicy::Emit,
    })
    .expect("a valid specification")
}

fn neighbors() -> Vec<OverFunction> {
    vec![
        OverFunction::RowNumber,
        OverFunction::DenseRank,
        OverFunction::Lag { column: VALUE, offset: 2, default: None },
        OverFunction::Lead { column: VALUE, offset: 1, default: Some(VALUE) },
    ]
}

#[test]
fn over_windows_keep_their_sequence() {
    let numbers = || neighbors().into_iter().filter(|f| !matches!(f, OverFunction::Lead { .. }));
    let unbounded = Frame::Range { preceding_ms: None };
    for seed in 0..3 {
        let inputs = inputs(250, &mut SplitMix64::new(seed));
        check(&over(unbounded, numbers().collect()), &inputs, &format!("numbers, seed {seed}"));
        check(&over(unbounded, neighbors()), &inputs, &format!("LEAD, seed {seed}"));
        let sums = || calls().into_iter().map(OverFunction::Aggregate).collect();
        check(&over(unbounded, sums()), &inputs, &format!("sums, seed {seed}"));
    }
}

/// What is late by what has left for its key depends on where watermarks are shown, so bundles are
/// not cut.
#[test]
fn bounded_frames_resume() {
    for frame in [Frame::Rows { preceding: Some(3) }, Frame::Range { preceding_ms: Some(12) }] {
        for seed in 0..3 {
            let inputs = inputs(250, &mut SplitMix64::new(seed));
            let operator = over(frame, calls().into_iter().map(OverFunction::Aggregate).collect());
            for partitions in [1, 4] {
                let schedule =
                    |restores| Schedule { partitions, bundle_rows: 1000, seed, restores };
                let expected = drive(&operator, &inputs, &schedule(false));
                let driven = drive(&operator, &inputs, &schedule(true));
                let what = format!("{frame:?}, seed {seed}, {partitions} partitions");
                assert_same(&driven.rows(), &expected.rows(), &what);
            }
        }
    }
}

/// `A B{2,4} C` where the sum of B is small.
fn pattern() -> MatchRecognize {
    let row = |variable, end, offset| PatternValue::Row {
        variable,
        end,
        offset,
        column: VALUE,
        column_type: DataType::Double.nullable(),
    };
    let sum = |variable| {
        let AggregateCall { function, result, .. } = call("SUM", Some(VALUE));
        let argument = Some(Expr::column(VALUE, DataType::Double.nullable()));
        PatternValue::Aggregate { variable, function, argument, column_type: result }
    };
    // A run continues while its sum is small.
    let small = || {
        let bound = build::number_literal("9e12").expect("a number");
        let sum_so_far = Expr::column(0, DataType::Double.nullable());
        let predicate = build::binary(BinaryOp::Less, sum_so_far, bound, &Session::default());
        let predicate = predicate.expect("numbers are compared");
        Condition { values: vec![sum(Some(1))], predicate }
    };
    let variable = |name: &str, min, max, condition| Variable {
        name: name.to_owned(),
        min,
        max,
        is_greedy: false,
        condition,
    };
    MatchRecognize::new(MatchSpec {
        pattern: Pattern {
            keys: vec![KEY],
            rowtime: TIME,
            ties: Vec::new(),
            variables: vec![
                variable("A", 1, Some(1), None),
                variable("B", 2, Some(4), Some(small())),
                variable("C", 1, Some(1), None),
            ],
            skip: Skip::ToNextRow,
            within_ms: Some(60),
        },
        outputs: vec![
            Output { name: "first".to_owned(), value: row(None, End::First, 0) },
            Output { name: "sum".to_owned(), value: sum(Some(1)) },
        ],
        input: schema(),
        late: LatePolicy::Drop,
    })
    .expect("a valid pattern")
}

#[test]
fn patterns_keep_their_sequence() {
    for seed in 0..3 {
        let inputs = inputs(250, &mut SplitMix64::new(seed));
        check(&pattern(), &inputs, &format!("seed {seed}"));
    }
}

#[test]
fn damaged_state_is_refused() {
    let mut random = SplitMix64::new(7);
    let row = |n: i64, random: &mut SplitMix64| {
        let value = 0.1 + random.below(1000) as f64 * 1e10;
        (Some(format!("key number {}", n % 3)), n, Some(value))
    };
    let rows: Vec<Row> = (0..40).map(|n| row(n, &mut random)).collect();
    let watermarks: Vec<Option<i64>> = (0..40).map(|n| Some(n - 9)).collect();
    let script = stamped(&batch(&rows), &watermarks, 5);
    check_damaged_state(&group(&[KEY], false), &script);
    check_damaged_state(&group(&[KEY], true), &script);
    let frames = [Frame::Rows { preceding: Some(3) }, Frame::Range { preceding_ms: None }];
    for frame in frames {
        let functions = calls().into_iter().map(OverFunction::Aggregate);
        check_damaged_state(&over(frame, functions.chain(neighbors()).collect()), &script);
    }
    check_damaged_state(&pattern(), &script);
}
