//! Values by which tables are partitioned.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType as Arrow, TimeUnit};
use serde_json::{Value, json};

use super::avro::Records;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Literal {
    Null,
    Boolean(bool),
    /// A number, a date in days, or a time in microseconds.
    Number(i64),
    Text(String),
}

/// True for types of which partitions can be made.
pub fn is_partition_type(data_type: &Arrow) -> bool {
    matches!(
        data_type,
        Arrow::Boolean
            | Arrow::Int32
            | Arrow::Int64
            | Arrow::Utf8
            | Arrow::Date32
            | Arrow::Timestamp(TimeUnit::Microsecond, _)
    )
}

impl Literal {
    /// A value of a column as Iceberg has it.
    pub fn at(column: &ArrayRef, row: usize) -> Literal {
        if column.is_null(row) {
            return Literal::Null;
        }
        let number = |value: i64| Literal::Number(value);
        match column.data_type() {
            Arrow::Boolean => Literal::Boolean(column.as_boolean().value(row)),
            Arrow::Int32 => number(column.as_primitive::<Int32Type>().value(row).into()),
            Arrow::Date32 => number(column.as_primitive::<Date32Type>().value(row).into()),
            Arrow::Int64 => number(column.as_primitive::<Int64Type>().value(row)),
            Arrow::Timestamp(..) => {
                number(column.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            Arrow::Utf8 => Literal::Text(column.as_string::<i32>().value(row).to_owned()),
            other => unreachable!("no partition is made of {other}: see is_partition_type"),
        }
    }

    /// For the handle of a transaction.
    pub fn to_json(&self) -> Value {
        match self {
            Literal::Null => Value::Null,
            Literal::Boolean(value) => json!(value),
            Literal::Number(value) => json!(value),
            Literal::Text(text) => json!(text),
        }
    }

    /// From the handle of a transaction.
    pub fn from_json(value: &Value) -> Option<Literal> {
        Some(match value {
            Value::Null => Literal::Null,
            Value::Bool(value) => Literal::Boolean(*value),
            Value::String(text) => Literal::Text(text.clone()),
            other => Literal::Number(other.as_i64()?),
        })
    }

    /// Adds it to a record of Avro.
    pub fn write(&self, out: &mut Records) {
        let value = (*self != Literal::Null).then_some(self);
        out.optional(value, |out, value| match value {
            Literal::Null => {}
            Literal::Boolean(value) => out.boolean(*value),
            Literal::Number(value) => out.long(*value),
            Literal::Text(text) => out.bytes(text.as_bytes()),
        });
    }

    /// It as bytes of a bound; `None` for NULL. `is_int`: a number has four bytes.
    pub fn bound(&self, is_int: bool) -> Option<Vec<u8>> {
        Some(match self {
            Literal::Null => return None,
            Literal::Boolean(value) => vec![u8::from(*value)],
            Literal::Number(value) if is_int => (*value as i32).to_le_bytes().to_vec(),
            Literal::Number(value) => value.to_le_bytes().to_vec(),
            Literal::Text(text) => text.as_bytes().to_vec(),
        })
    }

    /// It in the name of a folder. Only people read it: the values stand in the manifest.
    pub fn folder(&self) -> String {
        let text = match self {
            Literal::Null => "null".to_owned(),
            Literal::Boolean(value) => value.to_string(),
            Literal::Number(value) => value.to_string(),
            Literal::Text(text) => text.clone(),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let plain = text.chars().map(|c| if is_plain(c) { c } else { '_' });
        plain.take(64).collect()
    }
}
