//! Column types as the interface writes them: Flink's `LogicalType` in JSON.

use serde_json::{Value, json};
use thalweg_core::types::ColumnType;
use thalweg_core::{Column, DataType};

/// A column of a result.
pub fn column(column: &Column) -> Value {
    json!({ "name": column.name, "logicalType": logical_type(&column.column_type), "comment": null })
}

fn logical_type(column_type: &ColumnType) -> Value {
    let (name, details) = named(&column_type.data_type);
    let mut shown = json!({ "type": name, "nullable": column_type.nullable });
    if let (Some(shown), Value::Object(details)) = (shown.as_object_mut(), details) {
        shown.extend(details);
    }
    shown
}

/// The name of a type, and what it has besides.
fn named(data_type: &DataType) -> (&'static str, Value) {
    let length = |length: &u32| json!({ "length": length });
    let precision = |precision: &u8| json!({ "precision": precision });
    match data_type {
        DataType::Null => ("NULL", Value::Null),
        DataType::Boolean => ("BOOLEAN", Value::Null),
        DataType::Variant => ("VARIANT", Value::Null),
        DataType::TinyInt => ("TINYINT", Value::Null),
        DataType::SmallInt => ("SMALLINT", Value::Null),
        DataType::Int => ("INTEGER", Value::Null),
        DataType::BigInt => ("BIGINT", Value::Null),
        DataType::Float => ("FLOAT", Value::Null),
        DataType::Double => ("DOUBLE", Value::Null),
        DataType::Decimal(digits, scale) => {
            ("DECIMAL", json!({ "precision": digits, "scale": scale }))
        }
        DataType::Char(own) => ("CHAR", length(own)),
        DataType::Varchar(own) => ("VARCHAR", length(own)),
        DataType::Binary(own) => ("BINARY", length(own)),
        DataType::Varbinary(own) => ("VARBINARY", length(own)),
        DataType::Date => ("DATE", Value::Null),
        DataType::Time(own) => ("TIME_WITHOUT_TIME_ZONE", precision(own)),
        DataType::Timestamp(own) => ("TIMESTAMP_WITHOUT_TIME_ZONE", precision(own)),
        DataType::TimestampLtz(own) => ("TIMESTAMP_WITH_LOCAL_TIME_ZONE", precision(own)),
        DataType::IntervalYearMonth => {
            ("INTERVAL_YEAR_MONTH", json!({ "precision": 2, "resolution": "MONTH" }))
        }
        DataType::IntervalDayTime => (
            "INTERVAL_DAY_TIME",
            json!({ "precision": 2, "fractionalPrecision": 3, "resolution": "SECOND" }),
        ),
        DataType::Array(element) => ("ARRAY", json!({ "elementType": logical_type(element) })),
        DataType::Map(key, value) => {
            ("MAP", json!({ "keyType": logical_type(key), "valueType": logical_type(value) }))
        }
        DataType::Row(columns) => {
            let field = |column: &Column| json!({ "name": column.name, "fieldType": logical_type(&column.column_type) });
            ("ROW", json!({ "fields": columns.iter().map(field).collect::<Vec<_>>() }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(data_type: DataType, expected: Value) {
        assert_eq!(logical_type(&data_type.not_null()), expected);
    }

    /// What a Flink 2.3 has answered.
    #[test]
    fn types_are_written_as_flink_writes_them() {
        is(DataType::Int, json!({"type": "INTEGER", "nullable": false}));
        is(DataType::STRING, json!({"type": "VARCHAR", "nullable": false, "length": 2147483647}));
        is(
            DataType::Decimal(10, 3),
            json!({"type": "DECIMAL", "nullable": false, "precision": 10, "scale": 3}),
        );
        is(
            DataType::TimestampLtz(3),
            json!({"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "nullable": false, "precision": 3}),
        );
        is(
            DataType::Array(Box::new(DataType::Int.not_null())),
            json!({"type": "ARRAY", "nullable": false,
                   "elementType": {"type": "INTEGER", "nullable": false}}),
        );
        is(
            DataType::Row(vec![Column::new("EXPR$0", DataType::Int.not_null())]),
            json!({"type": "ROW", "nullable": false, "fields": [
                {"name": "EXPR$0", "fieldType": {"type": "INTEGER", "nullable": false}}]}),
        );
    }
}
