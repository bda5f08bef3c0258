//! Whether two rows are the same, as SQL groups them: NULL equals NULL, all NaN are one value, and
//! 0.0 and -0.0 are two. Agrees with [`crate::keys::hash_keys`].
//!
//! It must agree with the hash of all columns: a retraction is found by hash first (`contents`),
//! and two rows that are the same here must have the same hash there.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, downcast_primitive_array};
use arrow_ord::ord::make_comparator;
use arrow_schema::{DataType, SortOptions};

/// True if row `left_row` of some columns holds the values of row `right_row` of others.
pub(crate) fn same_row(
    left: &[ArrayRef],
    left_row: usize,
    right: &[ArrayRef],
    right_row: usize,
) -> bool {
    let mut pairs = left.iter().zip(right);
    pairs.all(|(left, right)| same_value(left, left_row, right, right_row))
}

fn same_value(left: &ArrayRef, i: usize, right: &ArrayRef, j: usize) -> bool {
    match (left.is_null(i), right.is_null(j)) {
        (false, false) => {}
        (left, right) => return left == right,
    }
    // As columns of any type: a typed array that becomes one brings all of that type's code.
    let (first, second) = (left.as_ref(), right.as_ref());
    let (left, right) = (first, second);
    downcast_primitive_array!(
        (left, right) => left.value(i).is_eq(right.value(j)) || both_nan(first, i, second, j),
        (DataType::Utf8View, _) => left.as_string_view().value(i) == right.as_string_view().value(j),
        (DataType::Boolean, _) => left.as_boolean().value(i) == right.as_boolean().value(j),
        (DataType::Binary, _) => left.as_binary::<i32>().value(i) == right.as_binary::<i32>().value(j),
        _ => same_nested(left, i, right, j),
    )
}

/// Two NaN of different bits.
fn both_nan(left: &dyn Array, i: usize, right: &dyn Array, j: usize) -> bool {
    match left.data_type() {
        DataType::Float64 => {
            let nan = |array: &dyn Array, row| array.as_primitive::<Float64Type>().value(row);
            nan(left, i).is_nan() && nan(right, j).is_nan()
        }
        DataType::Float32 => {
            let nan = |array: &dyn Array, row| array.as_primitive::<Float32Type>().value(row);
            nan(left, i).is_nan() && nan(right, j).is_nan()
        }
        _ => false,
    }
}

fn same_nested(left: &dyn Array, i: usize, right: &dyn Array, j: usize) -> bool {
    match make_comparator(left, right, SortOptions::default()) {
        Ok(compare) => compare(i, j) == Ordering::Equal,
        Err(_) => left.slice(i, 1).to_data() == right.slice(j, 1).to_data(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, Float64Array, Int32Array, ListArray, StringViewArray};

    use super::*;

    #[test]
    fn values_are_equal_as_sql_groups_them() {
        let other_nan = f64::from_bits(f64::NAN.to_bits() ^ 1 << 63);
        let doubles = vec![Some(0.0), Some(-0.0), Some(f64::NAN), Some(other_nan), None];
        let doubles: ArrayRef = Arc::new(Float64Array::from(doubles));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter([
            Some("a text that is longer than a view"),
            Some("short"),
            None,
        ]));
        let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]));
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([
                Some(vec![Some(1), None]),
                Some(vec![Some(1)]),
                None,
            ]));
        let integers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), Some(0), None]));
        let same_nan: &[(usize, usize)] = &[(2, 3)];
        for (column, also) in
            [(doubles, same_nan), (texts, &[]), (bytes, &[]), (lists, &[]), (integers, &[])]
        {
            for i in 0..column.len() {
                for j in 0..column.len() {
                    let expected = i == j || also.contains(&(i.min(j), i.max(j)));
                    let found = same_row(&[Arc::clone(&column)], i, &[Arc::clone(&column)], j);
                    assert_eq!(found, expected, "{:?}: {i} and {j}", column.data_type());
                }
            }
        }
    }
}
