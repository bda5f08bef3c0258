//! Comparisons. Floats compare as in Java (NaN equals nothing, -0.0 equals 0.0), which is not the
//! total order that Arrow's kernels use.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_ord::cmp;
use arrow_ord::ord::make_comparator;
use arrow_schema::{DataType as Arrow, SortOptions};
use thalweg_core::Result;

use super::arithmetic::same_kind;
use super::decimal;
use crate::expr::CompareOp;
use crate::function::Value;

/// Compares two values of one type.
pub(crate) fn compare(op: CompareOp, left: &Value, right: &Value) -> Result<Value> {
    let is_plain = !matches!(op, CompareOp::Distinct | CompareOp::NotDistinct);
    let result = match left.array().data_type() {
        Arrow::Float32 if is_plain => floats::<Float32Type>(op, left, right),
        Arrow::Float64 if is_plain => floats::<Float64Type>(op, left, right),
        Arrow::Decimal128(..) if left.array().data_type() != right.array().data_type() => {
            decimals(op, left, right)
        }
        nested if nested.is_nested() => nested_values(op, left, right)?,
        _ => plain(op, left, right)?,
    };
    Ok(same_kind(left, right, Arc::new(result)))
}

/// The same in a total order: as in Java's `compareTo`, NaN is greater than any number.
pub(crate) fn compare_totally(op: CompareOp, left: &Value, right: &Value) -> Result<Value> {
    if !left.array().data_type().is_floating() {
        return compare(op, left, right);
    }
    Ok(same_kind(left, right, Arc::new(plain(op, left, right)?)))
}

/// By Arrow's kernels, in whose order NaN is greater than any number.
fn plain(op: CompareOp, left: &Value, right: &Value) -> Result<BooleanArray> {
    Ok(match op {
        CompareOp::Equal => cmp::eq(left, right),
        CompareOp::NotEqual => cmp::neq(left, right),
        CompareOp::Less => cmp::lt(left, right),
        CompareOp::LessOrEqual => cmp::lt_eq(left, right),
        CompareOp::Greater => cmp::gt(left, right),
        CompareOp::GreaterOrEqual => cmp::gt_eq(left, right),
        CompareOp::Distinct => cmp::distinct(left, right),
        CompareOp::NotDistinct => cmp::not_distinct(left, right),
    }?)
}

/// Whether the values at two places are equal, NULL being equal to NULL.
type Equality = Box<dyn Fn(usize, usize) -> bool>;

/// Arrays and maps: equal if their elements are, NULL being equal to NULL among them. Entries of
/// maps have no order.
fn nested_values(op: CompareOp, left: &Value, right: &Value) -> Result<BooleanArray> {
    let equal = equality(left.array(), right.array())?;
    let rows = if left.is_constant() { right.array().len() } else { left.array().len() };
    let is_plain = matches!(op, CompareOp::Equal | CompareOp::NotEqual);
    let wants_equal = matches!(op, CompareOp::Equal | CompareOp::NotDistinct);
    let test = |row: usize| {
        let (i, j) = (left.place(row), right.place(row));
        let known = left.array().is_valid(i) && right.array().is_valid(j);
        (known || !is_plain).then(|| equal(i, j) == wants_equal)
    };
    Ok((0..rows).map(test).collect())
}

fn equality(left: &ArrayRef, right: &ArrayRef) -> Result<Equality> {
    let values: Equality = match left.data_type() {
        Arrow::List(_) => {
            let (l, r) = (left.as_list::<i32>().clone(), right.as_list::<i32>().clone());
            let elements = equality(l.values(), r.values())?;
            Box::new(move |i, j| {
                let (ours, theirs) = (range(l.value_offsets(), i), range(r.value_offsets(), j));
                ours.len() == theirs.len() && ours.zip(theirs).all(|(i, j)| elements(i, j))
            })
        }
        Arrow::Map(..) => {
            let (l, r) = (left.as_map().clone(), right.as_map().clone());
            let keys = equality(l.keys(), r.keys())?;
            let values = equality(l.values(), r.values())?;
            Box::new(move |i, j| {
                let (mut ours, theirs) = (range(l.value_offsets(), i), range(r.value_offsets(), j));
                let is_there = |i| theirs.clone().any(|j| keys(i, j) && values(i, j));
                ours.len() == theirs.len() && ours.all(is_there)
            })
        }
        Arrow::Struct(_) => {
            let columns = left.as_struct().columns().iter().zip(right.as_struct().columns());
            let fields = columns.map(|(l, r)| equality(l, r)).collect::<Result<Vec<_>>>()?;
            Box::new(move |i, j| fields.iter().all(|equal| equal(i, j)))
        }
        Arrow::Null => Box::new(|_, _| true),
        _ => {
            let order = make_comparator(left, right, SortOptions::default())?;
            Box::new(move |i, j| order(i, j).is_eq())
        }
    };
    let (l, r) = (left.logical_nulls(), right.logical_nulls());
    let is_valid = |nulls: &Option<NullBuffer>, at| nulls.as_ref().is_none_or(|n| n.is_valid(at));
    Ok(Box::new(move |i, j| match (is_valid(&l, i), is_valid(&r, j)) {
        (true, true) => values(i, j),
        (i, j) => i == j,
    }))
}

fn range(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}

/// DECIMAL of different precision and scale, exactly.
fn decimals(op: CompareOp, left: &Value, right: &Value) -> BooleanArray {
    let a = left.array().as_primitive::<Decimal128Type>();
    let b = right.array().as_primitive::<Decimal128Type>();
    let rows = if left.is_constant() { b.len() } else { a.len() };
    let (left_scale, right_scale) = (a.scale() as u8, b.scale() as u8);
    let test = |row: usize| {
        let (i, j) = (left.place(row), right.place(row));
        let order = match (a.is_valid(i), b.is_valid(j)) {
            (true, true) => decimal::order(a.value(i), left_scale, b.value(j), right_scale),
            (x, y) => match op {
                CompareOp::Distinct => return Some(x != y),
                CompareOp::NotDistinct => return Some(x == y),
                _ => return None,
            },
        };
        Some(match op {
            CompareOp::Equal | CompareOp::NotDistinct => order.is_eq(),
            CompareOp::NotEqual | CompareOp::Distinct => order.is_ne(),
            CompareOp::Less => order.is_lt(),
            CompareOp::LessOrEqual => order.is_le(),
            CompareOp::Greater => order.is_gt(),
            CompareOp::GreaterOrEqual => order.is_ge(),
        })
    };
    (0..rows).map(test).collect()
}

fn floats<T>(op: CompareOp, left: &Value, right: &Value) -> BooleanArray
where
    T: ArrowPrimitiveType,
    T::Native: PartialOrd,
{
    match op {
        CompareOp::Less => floats_by::<T>(left, right, |a, b| a < b),
        CompareOp::LessOrEqual => floats_by::<T>(left, right, |a, b| a <= b),
        CompareOp::Greater => floats::<T>(CompareOp::Less, right, left),
        CompareOp::GreaterOrEqual => floats::<T>(CompareOp::LessOrEqual, right, left),
        // NaN differs from every value, itself among them: what is not equal is different.
        CompareOp::NotEqual => {
            let equal = floats::<T>(CompareOp::Equal, left, right);
            BooleanArray::new(!equal.values(), equal.nulls().cloned())
        }
        CompareOp::Equal | CompareOp::Distinct | CompareOp::NotDistinct => {
            floats_by::<T>(left, right, |a, b| a == b)
        }
    }
}

fn floats_by<T: ArrowPrimitiveType>(
    left: &Value,
    right: &Value,
    test: impl Fn(T::Native, T::Native) -> bool,
) -> BooleanArray {
    let a = left.array().as_primitive::<T>();
    let b = right.array().as_primitive::<T>();
    let rows = if left.is_constant() { b.len() } else { a.len() };
    if (left.is_constant() && a.is_null(0)) || (right.is_constant() && b.is_null(0)) {
        return BooleanArray::new_null(rows);
    }
    let (x, y) = (a.values(), b.values());
    let (bits, nulls) = match (left.is_constant(), right.is_constant()) {
        (false, true) => {
            let y = y[0];
            (BooleanBuffer::collect_bool(rows, |i| test(x[i], y)), a.nulls().cloned())
        }
        (true, false) => {
            let x = x[0];
            (BooleanBuffer::collect_bool(rows, |i| test(x, y[i])), b.nulls().cloned())
        }
        _ => {
            let nulls = NullBuffer::union(a.nulls(), b.nulls());
            (BooleanBuffer::collect_bool(rows, |i| test(x[i], y[i])), nulls)
        }
    };
    BooleanArray::new(bits, nulls)
}
