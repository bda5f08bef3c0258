//! Regular joins against a naive reference, and against what Flink did.

mod cases;
pub(crate) mod random;
mod reference;

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::{Column, DataType, RowKind, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::{CompareOp, Expr, ExprKind};

use super::JoinSpec;
use crate::join::JoinKind;
use crate::join::equi::EquiJoin;
use crate::join::sides::{Side, Sides};
use crate::reference::Value;
use crate::test_kit::Event;

pub(crate) type Row = Vec<Value>;

/// A row of one side, and what it does.
pub(crate) type Change = (Side, RowKind, Row);

/// Both sides: a key, a number and a text.
pub(crate) fn sides() -> Sides {
    let schema = |number: &str| {
        TableSchema::new(vec![
            Column::new("k", DataType::BigInt.nullable()),
            Column::new(number, DataType::BigInt.not_null()),
            Column::new("s", DataType::STRING.nullable()),
        ])
    };
    Sides::new(schema("a"), schema("b"))
}

fn spec(kind: JoinKind, keys: &[usize], null_equals_null: bool, residual: bool) -> JoinSpec {
    JoinSpec {
        join: EquiJoin {
            sides: sides(),
            kind,
            left_keys: keys.to_vec(),
            right_keys: keys.to_vec(),
            residual: residual.then(a_less_than_b),
        },
        null_equals_null: vec![null_equals_null; keys.len()],
        left_unique: false,
        right_unique: false,
        state_ttl_ms: (None, None),
    }
}

/// `a < b`.
fn a_less_than_b() -> Expr {
    let column = |index| Box::new(Expr::column(index, DataType::BigInt.nullable()));
    let kind = ExprKind::Compare { op: CompareOp::Less, left: column(1), right: column(4) };
    Expr::new(kind, DataType::Boolean.nullable())
}

/// The tagged stream of these changes.
pub(crate) fn batch(changes: &[Change]) -> RecordBatch {
    let is_right: Vec<bool> = changes.iter().map(|change| change.0 == Side::Right).collect();
    let values = |side: Side, at: usize| {
        changes.iter().map(move |change| match change.0 == side {
            true => change.2[at].clone(),
            false => Value::Null,
        })
    };
    let integer = |value: Value| match value {
        Value::Integer(value) => Some(value),
        _ => None,
    };
    let text = |value: Value| match value {
        Value::String(value) => Some(value),
        _ => None,
    };
    let mut columns: Vec<ArrayRef> = vec![Arc::new(BooleanArray::from(is_right))];
    for side in [Side::Left, Side::Right] {
        for at in 0..2 {
            columns.push(Arc::new(values(side, at).map(integer).collect::<Int64Array>()));
        }
        columns.push(Arc::new(values(side, 2).map(text).collect::<StringViewArray>()));
    }
    RecordBatch::try_new(sides().combined().arrow(), columns).unwrap()
}

/// The changes as a changelog.
pub(crate) fn script(changes: &[Change]) -> Vec<Event> {
    vec![Event::Changes {
        lane: 0,
        batch: batch(changes),
        kinds: changes.iter().map(|change| change.1).collect(),
        watermark_before: WatermarkBefore::All(Watermark::MIN),
    }]
}

/// The rows of two sides that only append.
fn appends(changes: &[Change]) -> Vec<Event> {
    vec![Event::Rows {
        lane: 0,
        batch: batch(changes),
        watermark_before: WatermarkBefore::All(Watermark::MIN),
    }]
}

pub(crate) fn row(key: Option<i64>, number: i64, text: &str) -> Row {
    let key = key.map_or(Value::Null, Value::Integer);
    vec![key, Value::Integer(number), Value::text(text)]
}
