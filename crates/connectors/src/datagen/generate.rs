//! Making columns from counters.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringViewBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringViewArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_cast::cast::{CastOptions, cast_with_options};
use thalweg_core::shim::{SplitMix64, mix64};
use thalweg_core::types::{timestamp_units_per_ms, timestamps};
use thalweg_core::{DataType, Error, Result};

use super::fake::Expression;
use super::nested::Nested;

/// How the values of a field are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueKind {
    /// `start`, `start + 1`, … `end`
    Sequence {
        /// The first value.
        start: i64,
        /// The last value.
        end: i64,
    },
    /// An integer from `min` to `max`, both included.
    Integer {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// A float from `min` to `max`.
    Float {
        /// The least value.
        min: f64,
        /// The greatest value.
        max: f64,
    },
    /// An unscaled value from `min` to `max`, both included.
    Decimal {
        /// The least value.
        min: i128,
        /// The greatest value.
        max: i128,
    },
    /// TRUE or FALSE.
    Boolean,
    /// Hexadecimal digits.
    Text {
        /// How many.
        length: usize,
    },
    /// Bytes.
    Bytes {
        /// How many.
        length: usize,
    },
    /// The row's time, or up to `max_past_ms` before it.
    Now {
        /// How far back.
        max_past_ms: u64,
    },
    /// What an expression makes.
    Fake(Arc<Expression>),
    /// An array, a map or a row, of parts.
    Nested(Box<Nested>),
}

/// When rows happen.
#[derive(Clone, Copy, Debug)]
pub enum Times {
    /// All at this instant, in milliseconds since 1970.
    Now(i64),
    /// One after the other at even distances.
    Even {
        /// When row 0 happens, in milliseconds since 1970.
        start_ms: i64,
        /// How many happen in a second.
        rows_per_second: u64,
    },
}

impl Times {
    #[inline]
    fn at(self, row: u64) -> i64 {
        match self {
            Times::Now(now_ms) => now_ms,
            Times::Even { start_ms, rows_per_second } => {
                let elapsed = u128::from(row) * 1_000 / u128::from(rows_per_second);
                start_ms.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
            }
        }
    }
}

/// A field that is made.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedField {
    data_type: DataType,
    /// How the values of the field are chosen.
    pub kind: ValueKind,
    null_rate: f64,
    seed: u64,
    /// Longer texts are cut.
    length_max: usize,
}

impl GeneratedField {
    /// A field at a position of its table.
    pub fn new(
        data_type: DataType,
        kind: ValueKind,
        null_rate: f64,
        seed: u64,
        position: u64,
    ) -> Self {
        // Mixed twice, so that neighbouring seeds and positions have nothing in common.
        let seed = mix64(mix64(seed.wrapping_add(1)).wrapping_add(position));
        let length_max = match data_type {
            DataType::Char(length) | DataType::Varchar(length) => length as usize,
            _ => usize::MAX,
        };
        GeneratedField { data_type, kind, null_rate, seed, length_max }
    }

    /// True if some of its values are NULL.
    pub fn has_nulls(&self) -> bool {
        self.null_rate > 0.0
    }

    /// How many values a row has of it, at most.
    pub fn size(&self) -> usize {
        match &self.kind {
            ValueKind::Nested(nested) => nested.size(),
            _ => 1,
        }
    }

    /// The random numbers of a row.
    #[inline]
    fn numbers(&self, row: u64) -> SplitMix64 {
        SplitMix64::new(mix64(self.seed ^ row.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    fn nulls(&self, rows: Range<u64>) -> Option<NullBuffer> {
        if self.null_rate == 0.0 {
            return None;
        }
        let is_valid = |row: u64| SplitMix64::new(!self.seed ^ mix64(row)).unit() >= self.null_rate;
        Some(NullBuffer::new(BooleanBuffer::collect_bool((rows.end - rows.start) as usize, |i| {
            is_valid(rows.start + i as u64)
        })))
    }
}

/// The values of these rows.
pub fn column(field: &GeneratedField, rows: Range<u64>, times: Times) -> Result<ArrayRef> {
    if let ValueKind::Fake(expression) = &field.kind {
        return fakes(field, expression, rows);
    }
    if let ValueKind::Nested(nested) = &field.kind {
        let nulls = field.nulls(rows.clone());
        return nested.column((&field.data_type, nulls), rows, times);
    }
    Ok(match &field.data_type {
        DataType::TinyInt => numbers::<Int8Type>(field, rows, |row| integer(field, row) as i8),
        DataType::SmallInt => numbers::<Int16Type>(field, rows, |row| integer(field, row) as i16),
        DataType::Int => numbers::<Int32Type>(field, rows, |row| integer(field, row) as i32),
        DataType::BigInt => numbers::<Int64Type>(field, rows, |row| integer(field, row)),
        DataType::Float => numbers::<Float32Type>(field, rows, |row| float(field, row) as f32),
        DataType::Double => numbers::<Float64Type>(field, rows, |row| float(field, row)),
        DataType::Decimal(precision, scale) => {
            let unit = 10i128.pow(u32::from(*scale));
            let array = array::<Decimal128Type>(field, rows, |row| decimal(field, row, unit));
            Arc::new(array.with_precision_and_scale(*precision, *scale as i8)?)
        }
        DataType::Boolean => booleans(field, rows),
        DataType::Char(_) | DataType::Varchar(_) => texts(field, rows),
        DataType::Binary(_) | DataType::Varbinary(_) => bytes(field, rows),
        DataType::Date => {
            numbers::<Date32Type>(field, rows, |row| times.at(row).div_euclid(86_400_000) as i32)
        }
        DataType::Time(_) => numbers::<Time32MillisecondType>(field, rows, |row| {
            (times.at(row).rem_euclid(86_400_000) / 1_000 * 1_000) as i32
        }),
        DataType::Timestamp(precision) => instants(field, rows, *precision, false, times),
        DataType::TimestampLtz(precision) => instants(field, rows, *precision, true, times),
        other => return Err(Error::internal(format!("datagen was asked for {other}"))),
    })
}

/// Values of an expression, which are texts until they become those of the type.
fn fakes(field: &GeneratedField, expression: &Expression, rows: Range<u64>) -> Result<ArrayRef> {
    let texts = written(field, rows, |text, row| {
        expression.append(text, &mut field.numbers(row));
        if let Some((end, _)) = text.char_indices().nth(field.length_max) {
            text.truncate(end);
        }
    });
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&texts, &field.data_type.arrow(), &options).map_err(|error| {
        let data_type = &field.data_type;
        Error::data(format!("a value of 'fields.*.expression' is no {data_type}: {error}"))
            .hint("correct the expression, or declare the column STRING")
    })
}

fn array<T: ArrowPrimitiveType>(
    field: &GeneratedField,
    rows: Range<u64>,
    value: impl Fn(u64) -> T::Native,
) -> PrimitiveArray<T> {
    let nulls = field.nulls(rows.clone());
    PrimitiveArray::new(rows.map(value).collect::<ScalarBuffer<T::Native>>(), nulls)
}

fn numbers<T: ArrowPrimitiveType>(
    field: &GeneratedField,
    rows: Range<u64>,
    value: impl Fn(u64) -> T::Native,
) -> ArrayRef {
    Arc::new(array::<T>(field, rows, value))
}

#[inline]
fn integer(field: &GeneratedField, row: u64) -> i64 {
    match field.kind {
        ValueKind::Sequence { start, .. } => start.wrapping_add(row as i64),
        ValueKind::Integer { min, max } => {
            let span = max.wrapping_sub(min) as u64;
            let mut numbers = field.numbers(row);
            let step = if span == u64::MAX { numbers.next_u64() } else { numbers.below(span + 1) };
            min.wrapping_add(step as i64)
        }
        _ => 0,
    }
}

#[inline]
fn float(field: &GeneratedField, row: u64) -> f64 {
    match field.kind {
        ValueKind::Sequence { start, .. } => start.wrapping_add(row as i64) as f64,
        ValueKind::Float { min, max } => {
            let unit = field.numbers(row).unit();
            // Weighted ends: the difference of the ends may be infinite.
            min * (1.0 - unit) + max * unit
        }
        _ => 0.0,
    }
}

fn decimal(field: &GeneratedField, row: u64, unit: i128) -> i128 {
    match field.kind {
        ValueKind::Sequence { start, .. } => i128::from(start.wrapping_add(row as i64)) * unit,
        ValueKind::Decimal { min, max } => {
            let mut numbers = field.numbers(row);
            let wide = u128::from(numbers.next_u64()) << 64 | u128::from(numbers.next_u64());
            min + (wide % ((max - min) as u128 + 1)) as i128
        }
        _ => 0,
    }
}

fn booleans(field: &GeneratedField, rows: Range<u64>) -> ArrayRef {
    let nulls = field.nulls(rows.clone());
    let length = (rows.end - rows.start) as usize;
    let value = |i: usize| field.numbers(rows.start + i as u64).next_u64() >> 63 == 1;
    Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(length, value), nulls))
}

fn texts(field: &GeneratedField, rows: Range<u64>) -> ArrayRef {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let texts = written(field, rows, |text, row| match field.kind {
        ValueKind::Text { length } => {
            let mut numbers = field.numbers(row);
            let mut digits = 0;
            for at in 0..length {
                if at % 16 == 0 {
                    digits = numbers.next_u64();
                }
                text.push(char::from(HEX[(digits & 15) as usize]));
                digits >>= 4;
            }
        }
        ValueKind::Sequence { start, .. } => {
            thalweg_core::text::append_integer(text, start.wrapping_add(row as i64));
        }
        _ => {}
    });
    Arc::new(texts)
}

/// The texts that `write` appends for each row that is not NULL.
fn written(
    field: &GeneratedField,
    rows: Range<u64>,
    write: impl Fn(&mut String, u64),
) -> StringViewArray {
    let nulls = field.nulls(rows.clone());
    let mut builder = StringViewBuilder::with_capacity((rows.end - rows.start) as usize);
    let mut text = String::new();
    for (i, row) in rows.enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) {
            builder.append_null();
            continue;
        }
        text.clear();
        write(&mut text, row);
        builder.append_value(&text);
    }
    builder.finish()
}

fn bytes(field: &GeneratedField, rows: Range<u64>) -> ArrayRef {
    let ValueKind::Bytes { length } = field.kind else {
        return Arc::new(BinaryBuilder::new().finish());
    };
    let nulls = field.nulls(rows.clone());
    let count = (rows.end - rows.start) as usize;
    let mut builder = BinaryBuilder::with_capacity(count, count * length);
    let mut value = Vec::with_capacity(length + 8);
    for (i, row) in rows.enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) {
            builder.append_null();
            continue;
        }
        value.clear();
        let mut numbers = field.numbers(row);
        while value.len() < length {
            value.extend_from_slice(&numbers.next_u64().to_le_bytes());
        }
        builder.append_value(&value[..length]);
    }
    Arc::new(builder.finish())
}

fn instants(
    field: &GeneratedField,
    rows: Range<u64>,
    precision: u8,
    is_instant: bool,
    times: Times,
) -> ArrayRef {
    let max_past_ms = match field.kind {
        ValueKind::Now { max_past_ms } => max_past_ms,
        _ => 0,
    };
    let per_ms = timestamp_units_per_ms(precision);
    let value = |row: u64| {
        let back = field.numbers(row).below(max_past_ms.saturating_add(1));
        times.at(row).saturating_sub_unsigned(back).saturating_mul(per_ms)
    };
    timestamps(&array(field, rows, value), precision, is_instant)
}
