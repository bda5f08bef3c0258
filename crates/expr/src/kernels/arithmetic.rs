//! Arithmetic on numbers: integers wrap, their division truncates and fails on zero, floats follow
//! IEEE 754, sums of intervals fail where they are too long, DECIMAL is in [`super::decimal`].

use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, DurationMillisecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalYearMonthType,
};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Error, Result};

use super::decimal;
use crate::expr::ArithmeticOp;
use crate::function::Value;

/// Computes `left op right`. Both have the type of the result, or both are DECIMAL.
pub(crate) fn arithmetic(
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    result: &DataType,
) -> Result<Value> {
    let array = match left.array().data_type() {
        Arrow::Decimal128(..) => decimal::arithmetic(op, left, right, result)?,
        Arrow::Int8 => integers::<Int8Type>(op, left, right)?,
        Arrow::Int16 => integers::<Int16Type>(op, left, right)?,
        Arrow::Int32 => integers::<Int32Type>(op, left, right)?,
        Arrow::Int64 => integers::<Int64Type>(op, left, right)?,
        Arrow::Float32 => floats::<Float32Type>(op, left, right),
        Arrow::Float64 => floats::<Float64Type>(op, left, right),
        Arrow::Duration(_) => intervals::<DurationMillisecondType>(op, left, right)?,
        Arrow::Interval(_) => intervals::<IntervalYearMonthType>(op, left, right)?,
        other => return Err(no_numbers(other)),
    };
    Ok(same_kind(left, right, array))
}

/// Each value with the opposite sign. The smallest integer stays, an interval too long fails.
pub(crate) fn negate(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        Arrow::Int8 => negated::<Int8Type>(array),
        Arrow::Int16 => negated::<Int16Type>(array),
        Arrow::Int32 => negated::<Int32Type>(array),
        Arrow::Int64 => negated::<Int64Type>(array),
        Arrow::Float32 => negated::<Float32Type>(array),
        Arrow::Float64 => negated::<Float64Type>(array),
        Arrow::Decimal128(..) => negated::<Decimal128Type>(array),
        Arrow::Duration(_) => negated_interval::<DurationMillisecondType>(array)?,
        Arrow::Interval(_) => negated_interval::<IntervalYearMonthType>(array)?,
        other => return Err(no_numbers(other)),
    })
}

fn negated<T: ArrowPrimitiveType>(array: &ArrayRef) -> ArrayRef {
    let negated = array.as_primitive::<T>().unary::<_, T>(|value| value.neg_wrapping());
    Arc::new(negated.with_data_type(array.data_type().clone()))
}

fn negated_interval<T: ArrowPrimitiveType>(array: &ArrayRef) -> Result<ArrayRef> {
    let zero = PrimitiveArray::<T>::from_value(T::default_value(), 1);
    let (zero, array) = (Value::Constant(Arc::new(zero)), Value::Rows(ArrayRef::clone(array)));
    intervals::<T>(ArithmeticOp::Subtract, &zero, &array)
}

fn no_numbers(found: &Arrow) -> Error {
    Error::internal(format!("the planner let {found} through to arithmetic"))
}

fn integers<T: ArrowPrimitiveType>(
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
) -> Result<ArrayRef> {
    match op {
        ArithmeticOp::Divide | ArithmeticOp::Modulo => divide::<T>(op, left, right),
        ArithmeticOp::Multiply => Ok(each::<T>(left, right, T::Native::mul_wrapping)),
        ArithmeticOp::Add => Ok(each::<T>(left, right, T::Native::add_wrapping)),
        ArithmeticOp::Subtract => Ok(each::<T>(left, right, T::Native::sub_wrapping)),
    }
}

/// Sums and differences.
fn intervals<T: ArrowPrimitiveType>(
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
) -> Result<ArrayRef> {
    let array = row_by_row::<T>(left, right, |x, y| {
        let sum = match op {
            ArithmeticOp::Add => x.add_checked(y),
            ArithmeticOp::Subtract => x.sub_checked(y),
            _ => return Err(no_numbers(left.array().data_type())),
        };
        sum.map(Some).map_err(|_| Error::data("a sum of intervals is too long"))
    })?;
    Ok(Arc::new(array))
}

/// Computes the rows in which neither side is NULL, one by one: what can fail, or give NULL.
pub(super) fn row_by_row<T: ArrowPrimitiveType>(
    left: &Value,
    right: &Value,
    compute: impl Fn(T::Native, T::Native) -> Result<Option<T::Native>>,
) -> Result<PrimitiveArray<T>> {
    let (a, b) = (left.array().as_primitive::<T>(), right.array().as_primitive::<T>());
    let rows = if left.is_constant() { b.len() } else { a.len() };
    let mut builder = PrimitiveBuilder::<T>::with_capacity(rows);
    for row in 0..rows {
        let (i, j) = (left.place(row), right.place(row));
        if a.is_null(i) || b.is_null(j) {
            builder.append_null();
        } else {
            builder.append_option(compute(a.value(i), b.value(j))?);
        }
    }
    Ok(builder.finish())
}

fn floats<T: ArrowPrimitiveType>(op: ArithmeticOp, left: &Value, right: &Value) -> ArrayRef {
    match op {
        ArithmeticOp::Add => each::<T>(left, right, T::Native::add_wrapping),
        ArithmeticOp::Subtract => each::<T>(left, right, T::Native::sub_wrapping),
        ArithmeticOp::Multiply => each::<T>(left, right, T::Native::mul_wrapping),
        ArithmeticOp::Divide => each::<T>(left, right, T::Native::div_wrapping),
        ArithmeticOp::Modulo => each::<T>(left, right, T::Native::mod_wrapping),
    }
}

/// Computes every row, those of NULL as well: without a branch, several rows are computed at once.
///
/// A constant on the left is rare and becomes a column, so that each operation of each type is
/// compiled for two forms of operands.
fn each<T: ArrowPrimitiveType>(
    left: &Value,
    right: &Value,
    compute: impl Fn(T::Native, T::Native) -> T::Native,
) -> ArrayRef {
    let (a, b) = (left.array().as_primitive::<T>(), right.array().as_primitive::<T>());
    if right.is_constant() {
        if b.is_null(0) {
            return Arc::new(PrimitiveArray::<T>::new_null(a.len()));
        }
        let y = b.value(0);
        return Arc::new(a.unary::<_, T>(|x| compute(x, y)));
    }
    let spread = left.is_constant().then(|| spread(a, b.len()));
    let a = spread.as_ref().unwrap_or(a);
    let pairs = a.values().iter().zip(b.values());
    let values: Vec<T::Native> = pairs.map(|(&x, &y)| compute(x, y)).collect();
    Arc::new(PrimitiveArray::<T>::new(values.into(), NullBuffer::union(a.nulls(), b.nulls())))
}

fn spread<T: ArrowPrimitiveType>(constant: &PrimitiveArray<T>, rows: usize) -> PrimitiveArray<T> {
    let nulls = constant.is_null(0).then(|| NullBuffer::new_null(rows));
    PrimitiveArray::new(vec![constant.value(0); rows].into(), nulls)
}

/// A constant if both operands are.
pub(crate) fn same_kind(left: &Value, right: &Value, array: ArrayRef) -> Value {
    if left.is_constant() && right.is_constant() {
        Value::Constant(array)
    } else {
        Value::Rows(array)
    }
}

pub(crate) fn division_by_zero() -> Error {
    Error::data("division by zero").hint("guard the divisor: CASE WHEN d <> 0 THEN n / d END")
}

/// Integer division or remainder. A NULL divides by nothing and so never fails.
fn divide<T: ArrowPrimitiveType>(
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
) -> Result<ArrayRef> {
    let (a, b) = (left.array().as_primitive::<T>(), right.array().as_primitive::<T>());
    let rows = if left.is_constant() { b.len() } else { a.len() };
    if (left.is_constant() && a.is_null(0)) || (right.is_constant() && b.is_null(0)) {
        return Ok(Arc::new(PrimitiveArray::<T>::new_null(rows)));
    }
    let nulls = NullBuffer::union(
        a.nulls().filter(|_| !left.is_constant()),
        b.nulls().filter(|_| !right.is_constant()),
    );
    let zero = T::Native::ZERO;
    let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let (x, y) = (a.values(), b.values());
    let compute = |x: T::Native, y: T::Native| match op {
        ArithmeticOp::Divide => x.div_wrapping(y),
        _ => x.mod_wrapping(y),
    };
    let mut values = Vec::with_capacity(rows);
    if right.is_constant() {
        let y = y[0];
        if y.is_eq(zero) {
            let fails = (0..rows).any(is_valid);
            return if fails {
                Err(division_by_zero())
            } else {
                Ok(Arc::new(PrimitiveArray::<T>::new_null(rows)))
            };
        }
        values.extend(x.iter().map(|&x| compute(x, y)));
    } else {
        for (row, &y) in y.iter().enumerate() {
            let x = if left.is_constant() { x[0] } else { x[row] };
            if !y.is_eq(zero) {
                values.push(compute(x, y));
            } else if is_valid(row) {
                return Err(division_by_zero());
            } else {
                values.push(zero);
            }
        }
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int8Array};

    use super::*;

    const OPS: [ArithmeticOp; 3] =
        [ArithmeticOp::Add, ArithmeticOp::Subtract, ArithmeticOp::Multiply];

    fn computed(op: ArithmeticOp, left: &Value, right: &Value) -> ArrayRef {
        let value = arithmetic(op, left, right, &DataType::Null).expect("no division by zero");
        assert_eq!(value.is_constant(), left.is_constant() && right.is_constant());
        value.array().clone()
    }

    /// Rows and rows, rows and a constant, a constant and rows, two constants: the same results.
    fn each_kind(
        op: ArithmeticOp,
        pairs: (&ArrayRef, &ArrayRef),
        check: impl Fn(&ArrayRef, usize, (usize, usize)),
    ) {
        let (left, right) = pairs;
        let (rows, constant) = (
            |array: &ArrayRef| Value::Rows(array.clone()),
            |array: &ArrayRef, row| Value::Constant(array.slice(row, 1)),
        );
        let all = computed(op, &rows(left), &rows(right));
        (0..all.len()).for_each(|row| check(&all, row, (row, row)));
        for chosen in 0..left.len() {
            let one_right = computed(op, &rows(left), &constant(right, chosen));
            let one_left = computed(op, &constant(left, chosen), &rows(right));
            for row in 0..left.len() {
                check(&one_right, row, (row, chosen));
                check(&one_left, row, (chosen, row));
            }
            let both = computed(op, &constant(left, chosen), &constant(right, chosen));
            check(&both, 0, (chosen, chosen));
        }
    }

    #[test]
    fn integers_wrap_however_their_operands_come() {
        let numbers = [Some(-128), Some(127), None, Some(0), Some(-1), Some(7), None];
        let left: ArrayRef = Arc::new(Int8Array::from(numbers.to_vec()).slice(1, 5));
        let right: ArrayRef = Arc::new(Int8Array::from(numbers.to_vec()).slice(2, 5));
        for op in OPS {
            each_kind(op, (&left, &right), |result, row, (l, r)| {
                let expected = numbers[1 + l].zip(numbers[2 + r]).map(|(x, y): (i8, i8)| {
                    let (x, y) = (i32::from(x), i32::from(y));
                    (match op {
                        ArithmeticOp::Add => x + y,
                        ArithmeticOp::Subtract => x - y,
                        _ => x * y,
                    }) as i8
                });
                let result = result.as_primitive::<Int8Type>();
                let found = result.is_valid(row).then(|| result.value(row));
                assert_eq!(found, expected, "{:?} {op} {:?}", numbers[1 + l], numbers[2 + r]);
            });
        }
    }

    #[test]
    fn floats_follow_ieee_754() {
        let numbers = [
            Some(1.5),
            None,
            Some(0.0),
            Some(-0.0),
            Some(f64::INFINITY),
            Some(f64::NAN),
            Some(3.0),
        ];
        let left: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        let right: ArrayRef = Arc::new(Float64Array::from_iter(numbers.iter().rev().copied()));
        for op in OPS.into_iter().chain([ArithmeticOp::Divide, ArithmeticOp::Modulo]) {
            each_kind(op, (&left, &right), |result, row, (l, r)| {
                let expected = numbers[l].zip(numbers[6 - r]).map(|(x, y)| match op {
                    ArithmeticOp::Add => x + y,
                    ArithmeticOp::Subtract => x - y,
                    ArithmeticOp::Multiply => x * y,
                    ArithmeticOp::Divide => x / y,
                    ArithmeticOp::Modulo => x % y,
                });
                let result = result.as_primitive::<Float64Type>();
                let found = result.is_valid(row).then(|| result.value(row));
                let is_same = match (found, expected) {
                    (Some(found), Some(expected)) if expected.is_nan() => found.is_nan(),
                    (found, expected) => found.map(f64::to_bits) == expected.map(f64::to_bits),
                };
                assert!(is_same, "{:?} {op} {:?}: {found:?}", numbers[l], numbers[6 - r]);
            });
        }
    }

    #[test]
    fn intervals_are_added_and_negated_and_decimals_keep_their_type() {
        let days = |values: Vec<Option<i64>>| -> ArrayRef {
            Arc::new(PrimitiveArray::<DurationMillisecondType>::from(values))
        };
        let (left, right) = (days(vec![Some(5), None]), days(vec![Some(7), Some(1)]));
        let sides = (Value::Rows(left.clone()), Value::Rows(right));
        let sum = computed(ArithmeticOp::Add, &sides.0, &sides.1);
        assert_eq!(&sum, &days(vec![Some(12), None]));
        assert_eq!(&negate(&left).expect("an interval"), &days(vec![Some(-5), None]));
        let product = arithmetic(ArithmeticOp::Multiply, &sides.0, &sides.1, &DataType::Null);
        assert!(product.is_err(), "intervals are not multiplied");
        let longest = Value::Constant(days(vec![Some(i64::MAX)]));
        let too_long = arithmetic(ArithmeticOp::Add, &longest, &sides.0, &DataType::Null);
        assert!(too_long.expect_err("more than 64 bits").to_string().contains("too long"));
        let shortest = days(vec![Some(i64::MIN)]);
        assert!(negate(&shortest).is_err(), "there is none as long the other way");
        let of_null = computed(ArithmeticOp::Add, &longest, &Value::Rows(left.slice(1, 1)));
        assert!(of_null.is_null(0));
        let months: ArrayRef =
            Arc::new(PrimitiveArray::<IntervalYearMonthType>::from(vec![14, -3]));
        let sides = (Value::Rows(months.clone()), Value::Constant(months.slice(1, 1)));
        let difference = computed(ArithmeticOp::Subtract, &sides.0, &sides.1);
        assert_eq!(difference.as_primitive::<IntervalYearMonthType>().values()[..], [17, 0]);

        let money: ArrayRef = Arc::new(
            PrimitiveArray::<Decimal128Type>::from(vec![Some(125), None, Some(-1)])
                .with_data_type(Arrow::Decimal128(9, 2)),
        );
        let negated = negate(&money).expect("a number");
        assert_eq!(negated.data_type(), &Arrow::Decimal128(9, 2));
        assert_eq!(negated.as_primitive::<Decimal128Type>().value(0), -125);
        assert_eq!(&negate(&negated).expect("a number"), &money);
        let small: ArrayRef = Arc::new(Int8Array::from(vec![-128, 5]));
        assert_eq!(
            negate(&small).expect("a number").as_primitive::<Int8Type>().values()[..],
            [-128, -5]
        );
    }
}
