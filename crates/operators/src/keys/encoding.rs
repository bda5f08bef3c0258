//! Keys of several columns as bytes that are equal exactly when the keys are.
//!
//! Arrow's row format would do, and has an order besides, which texts pay for: they are cut into
//! blocks with marks between them, written and read byte by byte. Here all stands at fixed places
//! but for long texts:
//!
//! | bytes | hold |
//! |---|---|
//! | one for each eight columns | bits of columns that are NULL |
//! | 8 for each number, 16 for a DECIMAL | the value |
//! | 16 for each text | its Arrow view: length, and the text or its first four bytes |
//! | 16 for each binary | its length |
//! | the rest | texts of more than 12 bytes and binaries, in the order of the columns |
//!
//! What is NULL has value 0 and no bytes.
//!
//! Why two keys with equal bytes are equal: all columns have fixed places except the texts, and
//! each view in the fixed part has the length of its text. So the same bytes cannot be cut in
//! another way (`('ab', 'c')` and `('a', 'bc')` have different lengths).

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::blocks::{Texts, is_long};
use super::integer::{array_of, is_integer_like, values};

/// A column of keys.
struct Field {
    data_type: Arrow,
    /// Where its value stands, or its view.
    at: usize,
}

/// How keys of some types are written.
pub(super) struct Encoding {
    fields: Vec<Field>,
    /// Bytes in front of long texts.
    header: usize,
}

/// The keys of some rows.
#[derive(Default)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl Encoded {
    /// Each key, by row.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

fn has_bytes(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8View | Arrow::Binary)
}

impl Encoding {
    /// `None` if a type is not one of these.
    pub fn of(types: &[Arrow]) -> Option<Encoding> {
        let mut header = types.len().div_ceil(8);
        let mut field = |data_type: &Arrow| {
            let bytes = match data_type {
                Arrow::Decimal128(_, _) | Arrow::Utf8View | Arrow::Binary => 16,
                Arrow::Float32 | Arrow::Float64 => 8,
                other if is_integer_like(other) => 8,
                _ => return None,
            };
            header += bytes;
            Some(Field { data_type: data_type.clone(), at: header - bytes })
        };
        let fields = types.iter().map(&mut field).collect::<Option<_>>()?;
        Some(Encoding { fields, header })
    }

    /// Writes the keys of all rows in the place of those that stood there.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize, encoded: &mut Encoded) {
        let Encoded { bytes, ends } = encoded;
        self.measure(columns, rows, ends);
        bytes.clear();
        bytes.resize(ends.last().copied().unwrap_or_default(), 0);
        let mut texts_at: Vec<usize> = starts(ends).map(|start| start + self.header).collect();
        for (place, (column, field)) in columns.iter().zip(&self.fields).enumerate() {
            match has_bytes(&field.data_type) {
                true => write_texts(column, field.at, &mut texts_at, starts(ends), bytes),
                false => write_numbers(column, field.at, starts(ends), bytes),
            }
            let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
                continue;
            };
            for (start, is_valid) in starts(ends).zip(nulls) {
                bytes[start + place / 8] |= u8::from(!is_valid) << (place % 8);
            }
        }
    }

    /// Finds where each key will end.
    fn measure(&self, columns: &[ArrayRef], rows: usize, ends: &mut Vec<usize>) {
        ends.clear();
        ends.resize(rows, self.header);
        for column in columns.iter().filter(|column| has_bytes(column.data_type())) {
            for (length, (_, text)) in ends.iter_mut().zip(slots(column)) {
                *length += text.len();
            }
        }
        let mut end = 0;
        for length in ends {
            end += *length;
            *length = end;
        }
    }

    /// The columns of keys.
    ///
    /// # Errors
    /// If the bytes are no keys of these types.
    pub fn decode(&self, keys: &[&[u8]]) -> Result<Vec<ArrayRef>> {
        let mut texts_at = vec![self.header; keys.len()];
        let column = |(place, field): (usize, &Field)| {
            let is_null = |key: &[u8]| key[place / 8] >> (place % 8) & 1 == 1;
            let nulls = keys
                .iter()
                .any(|key| is_null(key))
                .then(|| keys.iter().map(|key| !is_null(key)).collect::<NullBuffer>());
            match has_bytes(&field.data_type) {
                true => read_texts(keys, field, &mut texts_at, nulls.as_ref()),
                false => Ok(read_numbers(keys, field, nulls)),
            }
        };
        self.fields.iter().enumerate().map(column).collect()
    }
}

fn starts(ends: &[usize]) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(ends.iter().copied()).take(ends.len())
}

/// What stands for each value of a column of texts or binaries: at its place, and behind.
fn slots(column: &ArrayRef) -> impl Iterator<Item = (u128, &[u8])> {
    let texts = column.as_string_view_opt();
    let binaries = column.as_binary_opt::<i32>();
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    (0..column.len()).map(move |row| {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return (0, &[][..]);
        }
        match (texts, binaries) {
            (Some(texts), _) => match texts.views()[row] {
                view if is_long(view) => (u128::from(view as u64), texts.value(row).as_bytes()),
                view => (view, &[][..]),
            },
            (None, Some(binaries)) => {
                let value = binaries.value(row);
                (value.len() as u128, value)
            }
            (None, None) => unreachable!("only columns that have bytes are asked"),
        }
    })
}

fn write_texts(
    column: &ArrayRef,
    at: usize,
    texts_at: &mut [usize],
    starts: impl Iterator<Item = usize>,
    bytes: &mut [u8],
) {
    for ((start, text_at), (slot, text)) in starts.zip(texts_at).zip(slots(column)) {
        bytes[start + at..start + at + 16].copy_from_slice(&slot.to_le_bytes());
        if !text.is_empty() {
            bytes[*text_at..*text_at + text.len()].copy_from_slice(text);
            *text_at += text.len();
        }
    }
}

fn write_numbers(
    column: &ArrayRef,
    at: usize,
    starts: impl Iterator<Item = usize>,
    bytes: &mut [u8],
) {
    fn write<const N: usize>(
        column: &ArrayRef,
        places: impl Iterator<Item = usize>,
        bytes: &mut [u8],
        values: impl Iterator<Item = [u8; N]>,
    ) {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        for (row, (at, value)) in places.zip(values).enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                bytes[at..at + N].copy_from_slice(&value);
            }
        }
    }
    fn natives<T: ArrowPrimitiveType>(column: &ArrayRef) -> &[T::Native] {
        column.as_primitive::<T>().values()
    }
    let places = starts.map(|start| start + at);
    match column.data_type() {
        Arrow::Decimal128(_, _) => {
            let values = natives::<Decimal128Type>(column).iter().map(|value| value.to_le_bytes());
            write(column, places, bytes, values);
        }
        Arrow::Float64 => {
            let values = natives::<Float64Type>(column).iter().map(|value| value.to_le_bytes());
            write(column, places, bytes, values);
        }
        Arrow::Float32 => {
            let values = natives::<Float32Type>(column).iter().map(|value| value.to_le_bytes());
            write(column, places, bytes, values);
        }
        _ => {
            write(column, places, bytes, values(column).iter().map(|value| value.to_le_bytes()));
        }
    }
}

#[inline]
fn number<const N: usize>(key: &[u8], at: usize) -> [u8; N] {
    key[at..at + N].try_into().expect("a range of N bytes")
}

fn read_numbers(keys: &[&[u8]], field: &Field, nulls: Option<NullBuffer>) -> ArrayRef {
    let at = field.at;
    match &field.data_type {
        Arrow::Decimal128(_, _) => {
            let values = keys.iter().map(|key| i128::from_le_bytes(number(key, at)));
            let array = PrimitiveArray::<Decimal128Type>::new(values.collect(), nulls);
            Arc::new(array.with_data_type(field.data_type.clone()))
        }
        Arrow::Float64 => {
            let values = keys.iter().map(|key| f64::from_le_bytes(number(key, at)));
            Arc::new(PrimitiveArray::<Float64Type>::new(values.collect(), nulls))
        }
        Arrow::Float32 => {
            let values = keys.iter().map(|key| f32::from_le_bytes(number(key, at)));
            Arc::new(PrimitiveArray::<Float32Type>::new(values.collect(), nulls))
        }
        data_type => {
            let values = keys.iter().map(|key| i64::from_le_bytes(number(key, at)));
            array_of(data_type, values, nulls)
        }
    }
}

fn read_texts(
    keys: &[&[u8]],
    field: &Field,
    texts_at: &mut [usize],
    nulls: Option<&NullBuffer>,
) -> Result<ArrayRef> {
    let is_text = field.data_type == Arrow::Utf8View;
    let texts = keys.iter().zip(texts_at).enumerate().map(|(row, (&key, text_at))| {
        let view = u128::from_le_bytes(number(key, field.at));
        let length = view as u32 as usize;
        let from = match is_text && !is_long(view) {
            // Behind the length stand the bytes.
            true => field.at + 4,
            false => {
                *text_at += length;
                *text_at - length
            }
        };
        nulls.is_none_or(|nulls| nulls.is_valid(row)).then(|| &key[from..from + length])
    });
    if !is_text {
        let mut binaries = BinaryBuilder::new();
        texts.for_each(|value| binaries.append_option(value));
        return Ok(Arc::new(binaries.finish()));
    }
    let mut strings = Texts::default();
    texts.for_each(|text| strings.push(text));
    strings.finish()
}
