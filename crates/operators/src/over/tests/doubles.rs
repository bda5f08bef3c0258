//! Frames of doubles of any kind: what is in a frame decides, and nothing that has left it.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, TableSchema};

use crate::aggregate::{AggregateCall, resolve};
use crate::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use crate::reference::Value;
use crate::reference::doubles::{self, wild_double};
use crate::test_kit::{
    DriveOptions, Event, assert_same_rows, check_captures, check_operator, rows_of, stamped,
};
use crate::window::LatePolicy;

const NAMES: [&str; 7] = ["SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP", "VAR_SAMP", "MIN", "MAX"];

fn input() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("id", DataType::BigInt.not_null()),
        Column::new("x", DataType::Double.nullable()),
    ])
}

fn operator(frame: Frame) -> OverAggregate {
    let call = |name: &&str| {
        let (function, result) = resolve(name, false, &[DataType::Double.nullable()]).unwrap();
        let (argument, distinct, filter) = (Some(2), false, None);
        let (own, name) = (result.clone(), (*name).to_owned());
        let call = AggregateCall { function, argument, distinct, filter, result: own, name };
        OverCall { name: call.name.clone(), function: OverFunction::Aggregate(call), result }
    };
    let (calls, keys) = (NAMES.iter().map(call).collect(), vec![]);
    let (time, late) = (OverTime::EventTime(0), LatePolicy::Drop);
    let spec = OverSpec { keys, time, frame, calls, input: input(), state_ttl_ms: None, late };
    OverAggregate::new(spec).unwrap()
}

/// Rows in the order of their times, 0, 1, 2, …
fn script(values: &[Option<f64>]) -> Vec<Event> {
    let count = values.len() as i64;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(0..count)),
        Arc::new(Int64Array::from_iter_values(0..count)),
        Arc::new(Float64Array::from(values.to_vec())),
    ];
    let batch = RecordBatch::try_new(input().arrow(), columns).unwrap();
    let watermarks: Vec<Option<i64>> = (0..count).map(Some).collect();
    stamped(&batch, &watermarks, 7)
}

/// What the aggregates of [`NAMES`] give over these values.
fn expected(values: &[f64]) -> Vec<Value> {
    let count = values.len() as f64;
    if values.is_empty() {
        return vec![Value::Null; NAMES.len()];
    }
    let (sum, distance) = (doubles::sum(values), doubles::squared_distance(values));
    let sample = |root: bool| match values.len() {
        1 => Value::Null,
        _ if root => Value::Double((distance / (count - 1.0)).sqrt()),
        _ => Value::Double(distance / (count - 1.0)),
    };
    let sorted = || values.iter().map(|&value| Value::Double(value));
    vec![
        Value::Double(sum),
        Value::Double(sum / count),
        Value::Double((distance / count).sqrt()),
        sample(true),
        sample(false),
        sorted().min().unwrap(),
        sorted().max().unwrap(),
    ]
}

/// Equal values have equal bits, but for NaN, of which there is one.
fn bits(row: &[Value]) -> Vec<Value> {
    let of = |value: &Value| match value {
        Value::Double(value) if value.is_nan() => Value::text("NaN"),
        Value::Double(value) => Value::text(&format!("{value:?}")),
        other => other.clone(),
    };
    row.iter().map(of).collect()
}

#[test]
fn nothing_that_has_left_a_frame_is_seen() {
    for seed in 0..2 {
        let random = &mut SplitMix64::new(seed);
        let mut value = || (random.below(8) > 0).then(|| wild_double(random));
        let values: Vec<Option<f64>> = (0..70).map(|_| value()).collect();
        for preceding in [1, 5] {
            let frames = [
                Frame::Rows { preceding: Some(preceding) },
                Frame::Range { preceding_ms: Some(preceding as i64) },
            ];
            for frame in frames {
                let (operator, script) = (operator(frame), script(&values));
                let driven = check_operator(&operator, &script);
                let rows = rows_of(&driven.emitted);
                assert_eq!(rows.len(), values.len());
                let got: Vec<Vec<Value>> = rows.iter().map(|row| bits(&row[3..])).collect();
                let of_row = |at: usize| {
                    let from = at.saturating_sub(preceding as usize);
                    let there: Vec<f64> = values[from..=at].iter().copied().flatten().collect();
                    bits(&expected(&there))
                };
                let wanted: Vec<Vec<Value>> = (0..values.len()).map(of_row).collect();
                assert_same_rows(&got, &wanted, &format!("seed {seed}, {frame:?}"));
                let options = DriveOptions { bundle_rows: 3, ..DriveOptions::default() };
                check_captures(&operator, &script, &options);
            }
        }
    }
}

/// A value that is infinite, not a number, or so large that it hides the others, is gone once it
/// has left.
#[test]
fn large_and_infinite_values_leave_frames() {
    let values = [1e300, 2.5, 3.5, f64::NAN, 1.0, 2.0, f64::INFINITY, 3.0, 4.0].map(Some);
    let of = operator(Frame::Rows { preceding: Some(1) });
    let driven = check_operator(&of, &script(&values));
    let sum = |row: &Vec<Value>| bits(&row[3..4]).remove(0);
    let sums: Vec<Value> = rows_of(&driven.emitted).iter().map(sum).collect();
    let wanted = ["1e300", "1e300", "6.0", "NaN", "NaN", "3.0", "inf", "inf", "7.0"];
    assert_eq!(sums, wanted.map(Value::text));
}
