//! Rows with a time, a key and a number, and operators over them.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use thalweg_core::{Column, ColumnType, DataType, TableSchema};

use crate::aggregate::{AggregateCall, resolve};
use crate::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use crate::reference::Value;
use crate::test_kit::{Driven, Event, rows_of, stamped};
use crate::window::LatePolicy;

/// A row that comes in.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) time: i64,
    pub(super) key: Option<String>,
    pub(super) n: Option<i64>,
}

pub(super) const TIME: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const N: usize = 2;
/// A column that is -1 in all rows.
pub(super) const MINUS_ONE: usize = 3;

pub(super) fn input() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("item", DataType::STRING.nullable()),
        Column::new("n", DataType::BigInt.nullable()),
        Column::new("minus_one", DataType::BigInt.nullable()),
    ])
}

pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.time))),
        Arc::new(rows.iter().map(|row| row.key.clone()).collect::<StringViewArray>()),
        Arc::new(rows.iter().map(|row| row.n).collect::<Int64Array>()),
        Arc::new(Int64Array::from(vec![-1; rows.len()])),
    ];
    RecordBatch::try_new(input().arrow(), columns).unwrap()
}

/// A script in which every row establishes its time minus `delay_ms`, if that is more than
/// `step_ms` above the last: Flink's watermarks continue in steps of 200 ms.
pub(super) fn script(rows: &[Row], delay_ms: i64, step_ms: i64, epoch_rows: usize) -> Vec<Event> {
    let mut last: Option<i64> = None;
    let mut establish = |row: &Row| {
        let watermark = row.time - delay_ms;
        if last.is_none_or(|last| watermark > last + step_ms) {
            last = Some(watermark);
        }
        last
    };
    let watermarks: Vec<Option<i64>> = rows.iter().map(&mut establish).collect();
    stamped(&batch(rows), &watermarks, epoch_rows)
}

pub(super) fn function(function: OverFunction) -> OverCall {
    let result = match &function {
        OverFunction::Aggregate(call) => call.result.clone(),
        _ => DataType::BigInt.nullable(),
    };
    OverCall { function, result, name: "r".to_owned() }
}

pub(super) fn aggregate(name: &str, argument: Option<usize>) -> OverCall {
    let types: Vec<ColumnType> =
        argument.iter().map(|&at| input().columns[at].column_type.clone()).collect();
    let (function_of, result) = resolve(name, false, &types).unwrap();
    function(OverFunction::Aggregate(AggregateCall {
        function: function_of,
        argument,
        distinct: false,
        filter: None,
        result,
        name: "r".to_owned(),
    }))
}

pub(super) fn spec(frame: Frame, calls: Vec<OverCall>) -> OverSpec {
    OverSpec {
        keys: vec![KEY],
        time: OverTime::EventTime(TIME),
        frame,
        calls,
        input: input(),
        state_ttl_ms: None,
        late: LatePolicy::Drop,
    }
}

pub(super) fn operator(frame: Frame, calls: Vec<OverCall>) -> OverAggregate {
    OverAggregate::new(spec(frame, calls)).unwrap()
}

/// `time key n results…` of what left, without the column that is always the same.
pub(super) fn lines(driven: &Driven) -> Vec<String> {
    rows_of(&driven.emitted).iter().map(|row| line(row)).collect()
}

fn line(row: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::String(text) => text.to_string(),
        other => format!("{other:?}"),
    };
    let shown = row.iter().enumerate().filter(|&(place, _)| place != MINUS_ONE);
    shown.map(|(_, value)| text(value)).collect::<Vec<_>>().join(" ")
}
