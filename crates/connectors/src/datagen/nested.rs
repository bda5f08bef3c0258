//! Arrays, maps and rows of generated values.
//!
//! The parts of a value are made as columns of their own: element `k` of row `i` in an array of
//! `n` is the value of a field at row `i * n + k`. So a nested value, too, depends on the seed and
//! the number of its row alone. A map keeps the first entry of each key.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ord::ord::make_comparator;
use arrow_schema::{DataType as Arrow, SortOptions};
use arrow_select::filter::filter;
use thalweg_core::{DataType, Error, Result};

use super::generate::{GeneratedField, Times, column};

/// How the parts of a nested value are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Nested {
    /// An array.
    Array {
        /// How many elements it has.
        length: usize,
        /// The elements.
        element: GeneratedField,
    },
    /// A map.
    Map {
        /// How many entries are made; of those with the same key one stays.
        length: usize,
        /// The keys.
        key: GeneratedField,
        /// The values.
        value: GeneratedField,
    },
    /// A row, field by field.
    Row(Vec<GeneratedField>),
}

impl Nested {
    /// The values of these rows.
    ///
    /// # Errors
    /// Those of an expression whose text is no value of its type.
    pub fn column(
        &self,
        (data_type, nulls): (&DataType, Option<NullBuffer>),
        rows: Range<u64>,
        times: Times,
    ) -> Result<ArrayRef> {
        match (self, data_type.arrow()) {
            (Nested::Array { length, element }, Arrow::List(item)) => {
                let values = column(element, parts(&rows, *length), times)?;
                let kept = |at: usize| nulls.as_ref().is_none_or(|n| n.is_valid(at / length));
                let (offsets, is_kept) = offsets(values.len(), *length, kept);
                let values = filter(&values, &is_kept)?;
                Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?))
            }
            (Nested::Map { length, key, value }, Arrow::Map(entries, is_sorted)) => {
                let keys = column(key, parts(&rows, *length), times)?;
                let values = column(value, parts(&rows, *length), times)?;
                let equal = make_comparator(&keys, &keys, SortOptions::default())?;
                let kept = |at: usize| {
                    let first = at / length * length;
                    nulls.as_ref().is_none_or(|n| n.is_valid(at / length))
                        && !(first..at).any(|earlier| equal(earlier, at).is_eq())
                };
                let (offsets, is_kept) = offsets(keys.len(), *length, kept);
                let pair = vec![filter(&keys, &is_kept)?, filter(&values, &is_kept)?];
                let Arrow::Struct(columns) = entries.data_type().clone() else {
                    return Err(Error::internal("a map has entries"));
                };
                let pair = StructArray::try_new(columns, pair, None)?;
                Ok(Arc::new(MapArray::try_new(entries, offsets, pair, nulls, is_sorted)?))
            }
            (Nested::Row(fields), Arrow::Struct(columns)) => {
                let made = fields.iter().map(|field| column(field, rows.clone(), times));
                let made = made.collect::<Result<Vec<_>>>()?;
                Ok(Arc::new(StructArray::try_new(columns, made, nulls)?))
            }
            (_, other) => Err(Error::internal(format!("datagen makes no {other} of parts"))),
        }
    }

    /// How many values a row has in its innermost parts, at most.
    pub fn size(&self) -> usize {
        match self {
            Nested::Array { length, element } => length.saturating_mul(element.size()),
            Nested::Map { length, key, value } => {
                length.saturating_mul(key.size().saturating_add(value.size()))
            }
            Nested::Row(fields) => fields.iter().map(GeneratedField::size).sum(),
        }
    }
}

/// The numbers of the parts of these rows.
fn parts(rows: &Range<u64>, length: usize) -> Range<u64> {
    rows.start * length as u64..rows.end * length as u64
}

/// Where each row begins among the parts that stay, and which do.
fn offsets(
    all: usize,
    length: usize,
    is_kept: impl Fn(usize) -> bool,
) -> (OffsetBuffer<i32>, BooleanArray) {
    let kept: Vec<bool> = (0..all).map(is_kept).collect();
    let lengths = kept.chunks(length).map(|row| row.iter().filter(|&&kept| kept).count());
    (OffsetBuffer::from_lengths(lengths), BooleanArray::from(kept))
}
