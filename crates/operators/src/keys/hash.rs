//! The hash of a key: 64 bits, stable, cheap, with every bit of the key in every bit of the hash.
//!
//! - NULL has a constant of its own.
//! - Integers, dates, times, timestamps and booleans: `mix64` of the value as 64 bits.
//! - Strings of at most 12 bytes: two multiplications over the 16 bytes of their Arrow view, which
//!   hold length and text. Longer strings and binaries: [`hash_bytes`].
//! - DOUBLE and FLOAT: `mix64` of the bits, with one NaN; 0.0 and -0.0 differ.
//! - DECIMAL: two multiplications over its 128 bits.
//! - Nested values: [`hash_bytes`] over their row encoding.
//! - Several columns: `mix64(rotate(hash, 5) + hash of the next column)`, starting from 0.
//!
//! **What must never change** without a new version of the snapshot format: the hash of any value.
//! The virtual partition is its top byte and is written with each row of state; a snapshot read
//! with another hash would hand keys to partitions that never see their rows.
//!
//! **What must agree:** equal keys have equal hashes in every layout and on both sides of a join.
//! So all integer-like types are widened to 64 bits first, and NaN is made canonical here and in
//! encoded keys alike.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;
use thalweg_core::shim::mix64;

use super::ids::NULL_HASH;
use super::integer;

const FIRST: u64 = 0xA076_1D64_78BD_642F;
const SECOND: u64 = 0xE703_7ED1_A0B4_28DB;
const THIRD: u64 = 0x8EBC_6AF0_9C88_C6E3;

/// Multiplies to 128 bits and folds the halves together.
#[inline]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline]
pub(super) fn hash_u128(value: u128) -> u64 {
    let mixed = fold(value as u64 ^ FIRST, (value >> 64) as u64 ^ SECOND);
    fold(mixed ^ value as u64, THIRD)
}

/// The hash of a string longer than 12 bytes or of a binary value: 16 bytes at a time through a
/// folded multiplication, then the rest with the length.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut state = fold(bytes.len() as u64 ^ FIRST, SECOND);
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        state = absorb(state, chunk);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut last = [0u8; 16];
        last[..rest.len()].copy_from_slice(rest);
        state = absorb(state, &last);
    }
    fold(state ^ THIRD, FIRST)
}

#[inline]
fn absorb(state: u64, chunk: &[u8]) -> u64 {
    let low = u64::from_le_bytes(chunk[..8].try_into().expect("a chunk has 16 bytes"));
    let high = u64::from_le_bytes(chunk[8..16].try_into().expect("a chunk has 16 bytes"));
    fold(low ^ SECOND ^ state, high ^ THIRD).wrapping_add(state.rotate_left(23))
}

/// The hash of one string view: short ones by value, longer ones by their bytes.
#[inline]
pub(super) fn hash_view(view: u128, bytes: impl FnOnce() -> u64) -> u64 {
    if view as u32 <= 12 { hash_u128(view) } else { bytes() }
}

pub(super) fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

pub(super) fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// The hash of a key of several columns so far, with that of the next column. `state` is `None`
/// before the first.
#[inline(always)]
pub(super) fn combine(state: Option<u64>, hash: u64) -> u64 {
    match state {
        None => mix64(hash),
        Some(state) => mix64(state.rotate_left(5).wrapping_add(hash)),
    }
}

/// The hash of each row of a key. Without columns every hash is 0.
pub fn hash_keys(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0u64; rows];
    hash_into(columns, &mut hashes)?;
    Ok(hashes)
}

/// The same where the hashes of others stood before. The columns have as many rows as there is room
/// for.
pub(super) fn hash_into(columns: &[ArrayRef], hashes: &mut [u64]) -> Result<()> {
    match columns {
        [] => hashes.fill(0),
        [only] => hash_column(only, hashes, |_, hash| hash)?,
        [first, others @ ..] => {
            hash_column(first, hashes, |_, hash| combine(None, hash))?;
            for column in others {
                hash_column(column, hashes, |state, hash| combine(Some(state), hash))?;
            }
        }
    }
    Ok(())
}

/// True for the types whose values have different hashes if they differ: the hash of a single
/// integer is a mixture that can be undone.
pub(crate) fn is_proved_by_hash(data_type: &Arrow) -> bool {
    integer::is_integer_like(data_type)
}

fn hash_column(
    column: &ArrayRef,
    hashes: &mut [u64],
    combine: impl Fn(u64, u64) -> u64,
) -> Result<()> {
    match column.data_type() {
        data_type if integer::is_integer_like(data_type) => {
            let values = integer::values(column);
            each(column, hashes, combine, values.iter().map(|&value| mix64(value as u64)));
        }
        Arrow::Utf8View => {
            let strings = column.as_string_view();
            let views = strings.views().iter().enumerate();
            let hash_of = |(row, &view): (usize, &u128)| {
                hash_view(view, || hash_bytes(strings.value(row).as_bytes()))
            };
            each(column, hashes, combine, views.map(hash_of));
        }
        Arrow::Binary => {
            let values = column.as_binary::<i32>();
            let rows = 0..values.len();
            each(column, hashes, combine, rows.map(|row| hash_bytes(values.value(row))));
        }
        Arrow::Float64 => {
            let values = native::<Float64Type>(column).iter();
            let bits = values.map(|&value| canonical_f64(value).to_bits());
            each(column, hashes, combine, bits.map(mix64));
        }
        Arrow::Float32 => {
            let values = native::<Float32Type>(column).iter();
            let bits = values.map(|&value| u64::from(canonical_f32(value).to_bits()));
            each(column, hashes, combine, bits.map(mix64));
        }
        Arrow::Decimal128(_, _) => {
            let values = native::<Decimal128Type>(column).iter();
            each(column, hashes, combine, values.map(|&value| hash_u128(value as u128)));
        }
        data_type => {
            let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
            let rows = converter.convert_columns(&[ArrayRef::clone(column)])?;
            each(column, hashes, combine, rows.iter().map(|row| hash_bytes(row.data())));
        }
    }
    Ok(())
}

fn native<T: ArrowPrimitiveType>(column: &ArrayRef) -> &[T::Native] {
    column.as_primitive::<T>().values()
}

/// Adds the hashes of a column's values, of which those at NULL mean nothing.
#[inline]
fn each(
    column: &ArrayRef,
    hashes: &mut [u64],
    combine: impl Fn(u64, u64) -> u64,
    of_values: impl Iterator<Item = u64>,
) {
    let hashes = hashes.iter_mut().zip(of_values);
    match column.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => hashes.for_each(|(state, hash)| *state = combine(*state, hash)),
        Some(nulls) => {
            for ((state, hash), is_valid) in hashes.zip(nulls.iter()) {
                *state = combine(*state, if is_valid { hash } else { NULL_HASH });
            }
        }
    }
}
