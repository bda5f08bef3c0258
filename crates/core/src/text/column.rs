//! Writing the values of an Arrow column as text.
//!
//! A [`TextColumn`] knows its array type, so that a value costs a match and no downcast. NULL is
//! the caller's business at the top; inside arrays, maps and rows it prints as `NULL`.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalYearMonthType, Time32MillisecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow_array::{
    Array, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationMillisecondArray,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    IntervalYearMonthArray, StringViewArray, StructArray, Time32MillisecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;

use super::{
    append_binary, append_boolean, append_date, append_decimal, append_double, append_float,
    append_integer, append_time, append_timestamp, append_unsigned,
};
use crate::types::{ColumnType, DataType, timestamp_unit};

/// A column that is ready to be written as text.
pub struct TextColumn<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    TinyInt(&'a Int8Array),
    SmallInt(&'a Int16Array),
    Int(&'a Int32Array),
    BigInt(&'a Int64Array),
    Float(&'a Float32Array),
    Double(&'a Float64Array),
    Decimal(&'a Decimal128Array, u8),
    Text(&'a StringViewArray),
    Binary(&'a BinaryArray),
    Date(&'a Date32Array),
    Time(&'a Time32MillisecondArray, u8),
    Timestamp(&'a ScalarBuffer<i64>, u8),
    Instant(&'a ScalarBuffer<i64>, u8, Tz),
    Months(&'a IntervalYearMonthArray),
    Millis(&'a DurationMillisecondArray),
    List(&'a OffsetBuffer<i32>, Box<TextColumn<'a>>),
    Map(&'a OffsetBuffer<i32>, Box<TextColumn<'a>>, Box<TextColumn<'a>>),
    Row(Vec<TextColumn<'a>>),
}

impl<'a> TextColumn<'a> {
    /// A column of this SQL type; the array must have the type's Arrow layout
    /// ([`DataType::arrow`]). Instants are shown in `zone`.
    pub fn new(array: &'a dyn Array, data_type: &DataType, zone: Tz) -> Self {
        TextColumn { nulls: array.nulls(), values: values(array, data_type, zone) }
    }

    /// True if the value of this row is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match self.nulls {
            Some(nulls) => nulls.is_null(row),
            None => matches!(self.values, Values::Null),
        }
    }

    /// Appends the value of a row that is not NULL.
    pub fn append(&self, out: &mut String, row: usize) {
        match &self.values {
            Values::Null => out.push_str("NULL"),
            Values::Boolean(array) => append_boolean(out, array.value(row)),
            Values::TinyInt(array) => append_integer(out, i64::from(array.value(row))),
            Values::SmallInt(array) => append_integer(out, i64::from(array.value(row))),
            Values::Int(array) => append_integer(out, i64::from(array.value(row))),
            Values::BigInt(array) => append_integer(out, array.value(row)),
            Values::Float(array) => append_float(out, array.value(row)),
            Values::Double(array) => append_double(out, array.value(row)),
            Values::Decimal(array, scale) => append_decimal(out, array.value(row), *scale),
            Values::Text(array) => out.push_str(array.value(row)),
            Values::Binary(array) => append_binary(out, array.value(row)),
            Values::Date(array) => append_date(out, array.value(row)),
            Values::Time(array, precision) => append_time(out, array.value(row), *precision),
            Values::Timestamp(values, precision) => append_timestamp(out, values[row], *precision),
            Values::Instant(values, precision, zone) => {
                append_timestamp(out, local(values[row], *precision, *zone), *precision);
            }
            Values::Months(array) => append_months(out, array.value(row)),
            Values::Millis(array) => append_duration(out, array.value(row)),
            Values::List(offsets, values) => append_list(out, row, offsets, values),
            Values::Map(offsets, keys, values) => append_map(out, row, offsets, keys, values),
            Values::Row(fields) => append_row(out, row, fields),
        }
    }

    fn append_or_null(&self, out: &mut String, row: usize) {
        if self.is_null(row) {
            out.push_str("NULL");
        } else {
            self.append(out, row);
        }
    }
}

/// Appends one value, which must not be NULL, in its text form. For whole columns, make a
/// [`TextColumn`] once.
pub fn append_value(
    out: &mut String,
    array: &dyn Array,
    row: usize,
    data_type: &DataType,
    zone: Tz,
) {
    TextColumn::new(array, data_type, zone).append(out, row);
}

fn values<'a>(array: &'a dyn Array, data_type: &DataType, zone: Tz) -> Values<'a> {
    match data_type {
        DataType::Null => Values::Null,
        DataType::Boolean => Values::Boolean(array.as_boolean()),
        DataType::TinyInt => Values::TinyInt(array.as_primitive::<Int8Type>()),
        DataType::SmallInt => Values::SmallInt(array.as_primitive::<Int16Type>()),
        DataType::Int => Values::Int(array.as_primitive::<Int32Type>()),
        DataType::BigInt => Values::BigInt(array.as_primitive::<Int64Type>()),
        DataType::Float => Values::Float(array.as_primitive::<Float32Type>()),
        DataType::Double => Values::Double(array.as_primitive::<Float64Type>()),
        DataType::Decimal(_, scale) => {
            Values::Decimal(array.as_primitive::<Decimal128Type>(), *scale)
        }
        DataType::Char(_) | DataType::Varchar(_) | DataType::Variant => {
            Values::Text(array.as_string_view())
        }
        DataType::Binary(_) | DataType::Varbinary(_) => Values::Binary(array.as_binary()),
        DataType::Date => Values::Date(array.as_primitive::<Date32Type>()),
        DataType::Time(precision) => {
            Values::Time(array.as_primitive::<Time32MillisecondType>(), *precision)
        }
        DataType::Timestamp(precision) => {
            Values::Timestamp(timestamp_values(array, *precision), *precision)
        }
        DataType::TimestampLtz(precision) => {
            Values::Instant(timestamp_values(array, *precision), *precision, zone)
        }
        DataType::IntervalYearMonth => {
            Values::Months(array.as_primitive::<IntervalYearMonthType>())
        }
        DataType::IntervalDayTime => {
            Values::Millis(array.as_primitive::<DurationMillisecondType>())
        }
        DataType::Array(element) => {
            let list = array.as_list::<i32>();
            let values = TextColumn::new(list.values().as_ref(), &element.data_type, zone);
            Values::List(list.offsets(), Box::new(values))
        }
        DataType::Map(key, value) => {
            let map = array.as_map();
            let keys = TextColumn::new(map.keys().as_ref(), &key.data_type, zone);
            let values = TextColumn::new(map.values().as_ref(), &value.data_type, zone);
            Values::Map(map.offsets(), Box::new(keys), Box::new(values))
        }
        DataType::Row(columns) => {
            let types = columns.iter().map(|column| &column.column_type);
            Values::Row(fields(array.as_struct(), types, zone))
        }
    }
}

fn fields<'a, 'b>(
    array: &'a StructArray,
    types: impl Iterator<Item = &'b ColumnType>,
    zone: Tz,
) -> Vec<TextColumn<'a>> {
    array
        .columns()
        .iter()
        .zip(types)
        .map(|(column, column_type)| TextColumn::new(column.as_ref(), &column_type.data_type, zone))
        .collect()
}

fn timestamp_values(array: &dyn Array, precision: u8) -> &ScalarBuffer<i64> {
    use arrow_schema::TimeUnit;
    match timestamp_unit(precision) {
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
        _ => array.as_primitive::<TimestampMillisecondType>().values(),
    }
}

/// An instant as the wall clock of a zone shows it, in the same unit.
fn local(value: i64, precision: u8, zone: Tz) -> i64 {
    let per_second = match precision {
        0..=3 => 1_000,
        4..=6 => 1_000_000,
        _ => 1_000_000_000,
    };
    if zone == Tz::UTC {
        return value;
    }
    let Some(instant) = DateTime::from_timestamp(value.div_euclid(per_second), 0) else {
        return value;
    };
    let offset = zone.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc();
    value.saturating_add(i64::from(offset) * per_second)
}

fn append_months(out: &mut String, months: i32) {
    out.push(if months < 0 { '-' } else { '+' });
    let months = u64::from(months.unsigned_abs());
    append_unsigned(out, months / 12, 1);
    out.push('-');
    append_unsigned(out, months % 12, 2);
}

fn append_duration(out: &mut String, millis: i64) {
    out.push(if millis < 0 { '-' } else { '+' });
    let millis = millis.unsigned_abs();
    append_unsigned(out, millis / 86_400_000, 1);
    out.push(' ');
    append_time(out, (millis % 86_400_000) as i32, 3);
}

fn append_list(out: &mut String, row: usize, offsets: &[i32], values: &TextColumn<'_>) {
    out.push('[');
    for (i, at) in (offsets[row] as usize..offsets[row + 1] as usize).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        values.append_or_null(out, at);
    }
    out.push(']');
}

fn append_map(
    out: &mut String,
    row: usize,
    offsets: &[i32],
    keys: &TextColumn<'_>,
    values: &TextColumn<'_>,
) {
    out.push('{');
    for (i, at) in (offsets[row] as usize..offsets[row + 1] as usize).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        keys.append_or_null(out, at);
        out.push('=');
        values.append_or_null(out, at);
    }
    out.push('}');
}

fn append_row(out: &mut String, row: usize, fields: &[TextColumn<'_>]) {
    out.push('(');
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        field.append_or_null(out, row);
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{ListBuilder, StringViewBuilder};
    use arrow_array::{ArrayRef, TimestampMillisecondArray};

    use super::*;

    fn text(array: &dyn Array, data_type: &DataType, zone: Tz) -> String {
        let mut out = String::new();
        append_value(&mut out, array, 0, data_type, zone);
        out
    }

    #[test]
    fn values_take_the_form_of_the_golden_cases() {
        let cases: Vec<(ArrayRef, DataType, &str)> = vec![
            (Arc::new(BooleanArray::from(vec![true])), DataType::Boolean, "TRUE"),
            (Arc::new(Int8Array::from(vec![i8::MIN])), DataType::TinyInt, "-128"),
            (Arc::new(Int64Array::from(vec![i64::MIN])), DataType::BigInt, "-9223372036854775808"),
            (Arc::new(BinaryArray::from(vec![b"ab".as_ref()])), DataType::BYTES, "x'6162'"),
            (
                Arc::new(Time32MillisecondArray::from(vec![36_672_900])),
                DataType::Time(0),
                "10:11:12",
            ),
            (Arc::new(Date32Array::from(vec![0])), DataType::Date, "1970-01-01"),
            (
                Arc::new(TimestampMillisecondArray::from(vec![1_678])),
                DataType::Timestamp(0),
                "1970-01-01 00:00:01",
            ),
            (
                Arc::new(DurationMillisecondArray::from(vec![-90_061_001])),
                DataType::IntervalDayTime,
                "-1 01:01:01.001",
            ),
            (
                Arc::new(IntervalYearMonthArray::from(vec![14])),
                DataType::IntervalYearMonth,
                "+1-02",
            ),
        ];
        for (array, data_type, expected) in cases {
            assert_eq!(text(array.as_ref(), &data_type, Tz::UTC), expected);
        }
    }

    #[test]
    fn instants_follow_the_zone_through_daylight_saving() {
        let winter = TimestampMillisecondArray::from(vec![0]).with_timezone("UTC");
        let summer = TimestampMillisecondArray::from(vec![1_751_328_000_000]).with_timezone("UTC");
        let zone = Tz::Europe__Berlin;
        let data_type = DataType::TimestampLtz(3);
        assert_eq!(text(&winter, &data_type, zone), "1970-01-01 01:00:00.000");
        assert_eq!(text(&summer, &data_type, zone), "2025-07-01 02:00:00.000");
    }

    #[test]
    fn arrays_show_their_nulls() {
        let mut builder = ListBuilder::new(StringViewBuilder::new());
        builder.values().append_value("a");
        builder.values().append_null();
        builder.append(true);
        let data_type = DataType::Array(Box::new(DataType::STRING.nullable()));
        assert_eq!(text(&builder.finish(), &data_type, Tz::UTC), "[a, NULL]");
    }
}
