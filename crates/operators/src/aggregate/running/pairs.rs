//! Results before and after each row, and which rows changed theirs.
//!
//! Only rows whose result differs leave as updates. NULL equals NULL here, and bits decide: results
//! that print alike but differ in the last bit are changes, or downstream sums would drift.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

/// Builds an array of pairs.
pub(in crate::aggregate) struct Pairs<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    valid: Vec<bool>,
}

impl<T: ArrowPrimitiveType> Pairs<T> {
    pub fn new(rows: usize) -> Self {
        Pairs { values: Vec::with_capacity(rows * 2), valid: Vec::with_capacity(rows * 2) }
    }
    #[inline(always)]
    pub fn push(&mut self, before: Option<T::Native>, after: Option<T::Native>) {
        self.values.extend_from_slice(&[before.unwrap_or_default(), after.unwrap_or_default()]);
        self.valid.extend_from_slice(&[before.is_some(), after.is_some()]);
    }
    pub fn finish(self, data_type: &Arrow) -> ArrayRef {
        let nulls = self.valid.contains(&false).then(|| NullBuffer::from(self.valid));
        let array = PrimitiveArray::<T>::new(self.values.into(), nulls);
        super::super::values::retyped(Arc::new(array), data_type)
    }
}

/// Marks the rows whose pair in this array differs. Numbers are the same if their bits are: NaN
/// does not differ from itself, 0.0 does from -0.0.
pub(crate) fn mark_changes(pairs: &ArrayRef, changed: &mut [bool]) -> Result<()> {
    match pairs.data_type().primitive_width() {
        Some(1) => mark_numbers::<u8>(pairs, changed),
        Some(2) => mark_numbers::<u16>(pairs, changed),
        Some(4) => mark_numbers::<u32>(pairs, changed),
        Some(8) => mark_numbers::<u64>(pairs, changed),
        Some(16) => mark_numbers::<i128>(pairs, changed),
        _ => mark_others(pairs, changed)?,
    }
    Ok(())
}

fn mark_numbers<N: ArrowNativeType>(pairs: &ArrayRef, changed: &mut [bool]) {
    let data = pairs.to_data();
    let values = &data.buffer::<N>(0)[..pairs.len()];
    let (values, _) = values.as_chunks::<2>();
    let Some(nulls) = super::super::values::nulls(pairs) else {
        for ([before, after], changed) in values.iter().zip(changed) {
            *changed |= before != after;
        }
        return;
    };
    for (row, ([before, after], changed)) in values.iter().zip(changed).enumerate() {
        let (was, is) = (nulls.is_valid(2 * row), nulls.is_valid(2 * row + 1));
        *changed |= was != is || (is && before != after);
    }
}

fn mark_others(pairs: &ArrayRef, changed: &mut [bool]) -> Result<()> {
    match pairs.data_type() {
        Arrow::Utf8View => {
            let texts = pairs.as_string_view();
            // Views of equal bits show equal text: most often that settles it.
            let views = texts.views();
            mark(pairs, changed, |a, b| views[a] != views[b] && texts.value(a) != texts.value(b));
        }
        Arrow::Boolean => {
            let values = pairs.as_boolean();
            mark(pairs, changed, |a, b| values.value(a) != values.value(b));
        }
        Arrow::Binary => {
            let values = pairs.as_binary::<i32>();
            mark(pairs, changed, |a, b| values.value(a) != values.value(b));
        }
        other => {
            let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
            let rows = converter.convert_columns(&[ArrayRef::clone(pairs)])?;
            mark(pairs, changed, |a, b| rows.row(a) != rows.row(b));
        }
    }
    Ok(())
}

fn mark(pairs: &ArrayRef, changed: &mut [bool], differ: impl Fn(usize, usize) -> bool) {
    let nulls = super::super::values::nulls(pairs);
    let is_valid = |at| nulls.is_none_or(|nulls| nulls.is_valid(at));
    for (row, changed) in changed.iter_mut().enumerate() {
        let (before, after) = (2 * row, 2 * row + 1);
        let (was, is) = (is_valid(before), is_valid(after));
        *changed |= was != is || (is && differ(before, after));
    }
}
