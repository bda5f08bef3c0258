//! The text of values, as `CAST(… AS STRING)` shows them.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalYearMonthType, Time32MillisecondType,
};
use thalweg_core::{DataType, text};

use super::ticks;
use crate::expr::Scalar;
use crate::literal;

pub(crate) use thalweg_core::text::append_decimal;

/// The text of a constant; `None` for NULL and for types without literals.
pub(crate) fn scalar_text(value: &Scalar, data_type: &DataType) -> Option<String> {
    if *value == Scalar::Null {
        return None;
    }
    let array = literal::to_array(value, data_type).ok()?;
    let mut out = String::new();
    append_value(&mut out, array.as_ref(), 0, data_type);
    Some(out)
}

/// Appends the text of a value; nested NULLs show as NULL.
pub(crate) fn append_value(out: &mut String, array: &dyn Array, row: usize, data_type: &DataType) {
    use DataType as T;
    if array.is_null(row) || *data_type == T::Null {
        out.push_str("NULL");
        return;
    }
    match data_type {
        T::Null => {}
        T::Boolean => text::append_boolean(out, array.as_boolean().value(row)),
        T::TinyInt => {
            text::append_integer(out, array.as_primitive::<Int8Type>().value(row).into());
        }
        T::SmallInt => {
            text::append_integer(out, array.as_primitive::<Int16Type>().value(row).into());
        }
        T::Int => text::append_integer(out, array.as_primitive::<Int32Type>().value(row).into()),
        T::BigInt => text::append_integer(out, array.as_primitive::<Int64Type>().value(row)),
        T::Float => text::append_float(out, array.as_primitive::<Float32Type>().value(row)),
        T::Double => text::append_double(out, array.as_primitive::<Float64Type>().value(row)),
        T::Decimal(_, scale) => {
            append_decimal(out, array.as_primitive::<Decimal128Type>().value(row), *scale);
        }
        T::Char(_) | T::Varchar(_) => out.push_str(array.as_string_view().value(row)),
        T::Binary(_) | T::Varbinary(_) => {
            text::append_binary(out, array.as_binary::<i32>().value(row));
        }
        T::Date => text::append_date(out, array.as_primitive::<Date32Type>().value(row)),
        T::Time(precision) => {
            let millis = array.as_primitive::<Time32MillisecondType>().value(row);
            text::append_time(out, millis, *precision);
        }
        T::Timestamp(precision) | T::TimestampLtz(precision) => {
            text::append_timestamp(out, ticks(array)[row], *precision);
        }
        T::IntervalYearMonth => {
            let months = array.as_primitive::<IntervalYearMonthType>().value(row);
            let sign = if months < 0 { '-' } else { '+' };
            let months = months.unsigned_abs();
            out.push_str(&format!("{sign}{}-{:02}", months / 12, months % 12));
        }
        T::IntervalDayTime => {
            append_span(out, array.as_primitive::<DurationMillisecondType>().value(row));
        }
        T::Array(_) | T::Map(..) | T::Row(_) => append_nested(out, array, row, data_type),
    }
}

/// `+1 02:03:04.005`
fn append_span(out: &mut String, millis: i64) {
    let sign = if millis < 0 { '-' } else { '+' };
    let millis = millis.unsigned_abs();
    let seconds = millis / 1_000;
    out.push_str(&format!(
        "{sign}{} {:02}:{:02}:{:02}.{:03}",
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        millis % 1_000
    ));
}

/// `[1, 2]`, `{a=1, b=2}` and `(1, x)`, as Flink casts collections to text.
fn append_nested(out: &mut String, array: &dyn Array, row: usize, data_type: &DataType) {
    let comma = |out: &mut String, index: usize| {
        if index > 0 {
            out.push_str(", ");
        }
    };
    match data_type {
        DataType::Array(element) => {
            let values = array.as_list::<i32>().value(row);
            out.push('[');
            for index in 0..values.len() {
                comma(out, index);
                append_value(out, values.as_ref(), index, &element.data_type);
            }
            out.push(']');
        }
        DataType::Map(key, value) => {
            let entries = array.as_map().value(row);
            out.push('{');
            for index in 0..entries.len() {
                comma(out, index);
                append_value(out, entries.column(0).as_ref(), index, &key.data_type);
                out.push('=');
                append_value(out, entries.column(1).as_ref(), index, &value.data_type);
            }
            out.push('}');
        }
        DataType::Row(columns) => {
            let fields = array.as_struct();
            out.push('(');
            for (index, column) in columns.iter().enumerate() {
                comma(out, index);
                let field = fields.column(index).as_ref();
                append_value(out, field, row, &column.column_type.data_type);
            }
            out.push(')');
        }
        _ => {}
    }
}
