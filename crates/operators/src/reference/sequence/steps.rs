//! What enters and leaves a stage, step by step.

use crate::reference::{ReferenceAggregate, ReferenceWindow, Value};

/// A row.
pub type Values = Vec<Value>;

/// One step of an input, and of what leaves a stage.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A row arrives.
    Row {
        /// One per column.
        values: Values,
        /// The running watermark of its split just before it.
        before: i64,
    },
    /// The watermark advances to this time.
    Watermark(i64),
}

/// Windows and what is computed in them.
#[derive(Clone, Debug)]
pub struct WindowStage {
    /// The windows.
    pub window: ReferenceWindow,
    /// The position of the row time: a [`Value::Integer`] in milliseconds.
    pub rowtime: usize,
    /// The positions of the keys.
    pub keys: Vec<usize>,
    /// What is computed.
    pub aggregates: Vec<ReferenceAggregate>,
}

/// The time in this column.
pub(super) fn time_of(values: &[Value], rowtime: usize) -> i64 {
    match values[rowtime] {
        Value::Integer(time) => time,
        ref other => panic!("a row time is an integer and not NULL, but it is {other:?}"),
    }
}
