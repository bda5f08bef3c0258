//! Rows as arrays of JSON, for clients of Flink's SQL gateway: with the values of the JSON format,
//! or with each value as text.

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::text::TextColumn;
use thalweg_core::{Result, TableSchema};

use crate::format::json::writer::{JsonStyle, append_string};
use crate::format::json::{JsonOptions, NullKeys};

/// What the values of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// Numbers, booleans, arrays and objects where JSON has them, as Flink's JSON format writes
    /// them; instants in UTC.
    Json,
    /// Texts, as CAST to STRING gives them; NULL stays.
    Text,
}

/// An array for each row. Instants as text are shown in `zone`.
///
/// # Errors
/// As writers of the JSON format do.
pub fn row_arrays(
    form: ValueForm,
    schema: &TableSchema,
    zone: Tz,
    rows: &RecordBatch,
) -> Result<Vec<String>> {
    match form {
        ValueForm::Json => {
            let options = JsonOptions {
                iso_timestamps: true,
                null_keys: NullKeys::Literal("null".to_owned()),
                ..JsonOptions::default()
            };
            let style = JsonStyle::written(&options);
            let columns = style.columns(rows, schema);
            let array = |row| {
                let mut out = String::new();
                columns.append_array(&mut out, row).map(|()| out)
            };
            (0..rows.num_rows()).map(array).collect()
        }
        ValueForm::Text => Ok(text_arrays(schema, zone, rows)),
    }
}

fn text_arrays(schema: &TableSchema, zone: Tz, rows: &RecordBatch) -> Vec<String> {
    let columns = rows.columns().iter().zip(&schema.columns);
    let columns: Vec<TextColumn<'_>> = columns
        .map(|(array, column)| TextColumn::new(&**array, &column.column_type.data_type, zone))
        .collect();
    let mut text = String::new();
    let mut array = |row: usize| {
        let mut out = String::from("[");
        for (place, column) in columns.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            if column.is_null(row) {
                out.push_str("null");
                continue;
            }
            text.clear();
            column.append(&mut text, row);
            append_string(&mut out, &text);
        }
        out.push(']');
        out
    };
    (0..rows.num_rows()).map(&mut array).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BooleanArray, Decimal128Array, Int32Array, StringViewArray,
        TimestampMillisecondArray,
    };
    use thalweg_core::{Column, DataType};

    use super::*;

    #[test]
    fn values_are_of_json_or_texts() {
        let schema = TableSchema::new(vec![
            Column::new("n", DataType::Int.nullable()),
            Column::new("n", DataType::STRING.nullable()),
            Column::new("is", DataType::Boolean.nullable()),
            Column::new("price", DataType::Decimal(10, 2).nullable()),
            Column::new("at", DataType::TimestampLtz(3).nullable()),
        ]);
        let price = Decimal128Array::from(vec![Some(150), None]).with_precision_and_scale(10, 2);
        let at = TimestampMillisecondArray::from(vec![Some(1_500), None]).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(1), None])),
            Arc::new(StringViewArray::from(vec![Some("a \"b\""), None])),
            Arc::new(BooleanArray::from(vec![Some(true), None])),
            Arc::new(price.expect("a type")),
            Arc::new(at),
        ];
        let batch = RecordBatch::try_new(schema.arrow(), columns).expect("a batch");
        let zone = Tz::Europe__Berlin;
        let json = row_arrays(ValueForm::Json, &schema, zone, &batch).expect("rows");
        assert_eq!(json[0], r#"[1,"a \"b\"",true,1.5,"1970-01-01T00:00:01.5Z"]"#);
        assert_eq!(json[1], "[null,null,null,null,null]");
        let text = row_arrays(ValueForm::Text, &schema, zone, &batch).expect("rows");
        assert_eq!(text[0], r#"["1","a \"b\"","TRUE","1.50","1970-01-01 01:00:01.500"]"#);
        assert_eq!(text[1], "[null,null,null,null,null]");
    }
}
