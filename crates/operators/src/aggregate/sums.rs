//! COUNT, SUM and AVG.
//!
//! Integers are summed in 64 wrapping bits, which any narrower result wraps from as Flink's does.
//! DECIMALs of at most 18 digits are summed in 128 bits, which 10^20 of them cannot overflow, wider
//! ones in 256 bits. Floats are summed in DOUBLE, in the order in which rows come.
//!
//! **Why nothing overflows unseen.** Integers wrap on purpose: adding and subtracting modulo 2^64
//! are inverse whatever happens in between, so a window's sum is right if its true value fits.
//! DECIMALs run in a wider type than any number of rows can fill, and are judged when a result is
//! read.
//!
//! `count` counts values that are not NULL: the result is NULL while it is 0.

use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float64Type, Int64Type,
};
use arrow_array::{ArrayRef, ArrowNativeTypeOp, Int64Array};
use arrow_buffer::i256;
use arrow_schema::DataType as Arrow;
use std::sync::Arc;
use thalweg_core::{DataType, Result};

use super::arithmetic::{Arithmetic, MergedState, NumberState};
use super::fold::Fold;
use super::values::{Number, nulls};
use super::{StateColumns, StateRows, UpdateInput};

/// Ten to the 38th: the first number with too many digits.
const TOO_LARGE: i128 = 10i128.pow(38);

/// `COUNT(*)` of some rows, or `COUNT(x)`.
#[derive(Clone)]
pub(super) struct Count;

impl Fold for Count {
    type Group = i64;

    fn update(&self, groups: &mut [i64], input: &UpdateInput<'_>) -> Result<()> {
        match input.argument.and_then(nulls) {
            None => input.ids.iter().for_each(|&id| groups[id as usize] += 1),
            Some(nulls) => {
                for (place, &id) in input.ids.iter().enumerate() {
                    groups[id as usize] += i64::from(nulls.is_valid(input.row(place) as usize));
                }
            }
        }
        Ok(())
    }
    fn retract(&self, groups: &mut [i64], input: &UpdateInput<'_>) -> Result<()> {
        let nulls = input.argument.and_then(nulls);
        for (place, &id) in input.ids.iter().enumerate() {
            let counts = nulls.is_none_or(|nulls| nulls.is_valid(input.row(place) as usize));
            groups[id as usize] -= i64::from(counts);
        }
        Ok(())
    }
    fn merge(&self, into: &mut i64, from: &i64) {
        *into += from;
    }
    fn subtract(&self, into: &mut i64, from: &i64) -> bool {
        *into -= from;
        true
    }
    fn evaluate(&self, groups: &[i64], ids: &[u32]) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from_iter_values(ids.iter().map(|&id| groups[id as usize]))))
    }
    fn restore(&self, groups: &mut [i64], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        for (&id, &count) in ids.iter().zip(rows.numbers::<Int64Type>("")?) {
            groups[id as usize] = count;
        }
        Ok(())
    }
}

/// What sums are kept in.
pub(super) trait Total: ArrowNativeTypeOp + Default + Send + Sync {
    /// What is added.
    type Number: Number;
    /// Arrow's type of sums.
    type Type: ArrowPrimitiveType<Native = Self>;
    /// False if nothing is subtracted again: small values that a large one hid would stay lost
    /// ([`exact`](super::exact)).
    const IS_EXACT: bool = true;
    /// This number.
    fn of(number: Self::Number) -> Self;
    /// The type of a column of sums of DECIMALs with this scale. A sum may have more digits than
    /// it says, which Arrow does not mind.
    fn arrow(scale: u8) -> Arrow;
}

impl Total for i64 {
    type Number = i64;
    type Type = Int64Type;
    #[inline(always)]
    fn of(number: i64) -> Self {
        number
    }
    fn arrow(_: u8) -> Arrow {
        Arrow::Int64
    }
}

impl Total for f64 {
    type Number = f64;
    type Type = Float64Type;
    const IS_EXACT: bool = false;
    #[inline(always)]
    fn of(number: f64) -> Self {
        number
    }
    fn arrow(_: u8) -> Arrow {
        Arrow::Float64
    }
}

impl Total for i128 {
    type Number = i128;
    type Type = Decimal128Type;
    #[inline(always)]
    fn of(number: i128) -> Self {
        number
    }
    fn arrow(scale: u8) -> Arrow {
        Arrow::Decimal128(38, scale as i8)
    }
}

impl Total for i256 {
    type Number = i128;
    type Type = Decimal256Type;
    #[inline(always)]
    fn of(number: i128) -> Self {
        i256::from_i128(number)
    }
    fn arrow(scale: u8) -> Arrow {
        Arrow::Decimal256(76, scale as i8)
    }
}

/// A sum and how many values it is of.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum<T> {
    sum: T,
    count: i64,
}

impl<T: Total> NumberState<T::Number> for Sum<T> {
    #[inline(always)]
    fn add(&mut self, value: T::Number) {
        self.sum = self.sum.add_wrapping(T::of(value));
        self.count += 1;
    }
    #[inline(always)]
    fn remove(&mut self, value: T::Number) {
        debug_assert!(T::IS_EXACT, "a value was taken out of a sum that loses some of it");
        self.sum = self.sum.sub_wrapping(T::of(value));
        self.count -= 1;
    }
    fn capture<'a>(
        sums: impl Iterator<Item = &'a Self> + Clone,
        scale: u8,
        columns: &mut StateColumns,
    ) -> Result<()> {
        columns.add_numbers_of::<T::Type>("sum", T::arrow(scale), sums.clone().map(|of| of.sum));
        columns.add_numbers::<Int64Type>("count", sums.map(|of| of.count));
        Ok(())
    }
    fn restore(rows: &StateRows<'_>) -> Result<Vec<Self>> {
        let (sums, counts) = (rows.numbers::<T::Type>("sum")?, rows.numbers::<Int64Type>("count")?);
        Ok(sums.iter().zip(counts).map(|(&sum, &count)| Sum { sum, count }).collect())
    }
}

impl<T: Total> MergedState<T::Number> for Sum<T> {
    fn merge(&mut self, from: &Self) {
        self.sum = self.sum.add_wrapping(from.sum);
        self.count += from.count;
    }
    fn subtract(&mut self, from: &Self) -> bool {
        if T::IS_EXACT {
            self.sum = self.sum.sub_wrapping(from.sum);
            self.count -= from.count;
        }
        T::IS_EXACT
    }
}

/// SUM and AVG of integers, in 64 bits that a narrower type wraps from.
pub(super) struct IntegerSum {
    pub(super) result: DataType,
    pub(super) mean: bool,
}

impl Arithmetic for IntegerSum {
    type Number = i64;
    type State = Sum<i64>;
    const IS_COSTLY: bool = false;

    fn result(&self) -> &DataType {
        &self.result
    }
    #[inline(always)]
    fn value(&self, group: &Sum<i64>) -> Option<i64> {
        let Sum { sum, count } = *group;
        let value = if self.mean { sum.checked_div(count)? } else { sum };
        (count > 0).then_some(value)
    }
}

/// SUM and AVG of FLOAT and DOUBLE, in DOUBLE.
pub(super) struct FloatSum {
    pub(super) result: DataType,
    pub(super) mean: bool,
}

impl Arithmetic for FloatSum {
    type Number = f64;
    type State = Sum<f64>;
    const IS_COSTLY: bool = false;

    fn result(&self) -> &DataType {
        &self.result
    }
    #[inline(always)]
    fn value(&self, group: &Sum<f64>) -> Option<f64> {
        let Sum { sum, count } = *group;
        let value = if self.mean { sum / count as f64 } else { sum };
        (count > 0).then_some(value)
    }
}

/// SUM and AVG of DECIMAL.
pub(super) struct DecimalSum<W> {
    scale: u8,
    result: DataType,
    mean: bool,
    /// What a sum is multiplied by before the division of AVG, for its finer scale.
    factor: i256,
    width: std::marker::PhantomData<fn() -> W>,
}

impl<W> DecimalSum<W> {
    pub fn new(scale: u8, result: DataType, mean: bool) -> Self {
        let finer = match &result {
            DataType::Decimal(_, result_scale) if mean => result_scale.saturating_sub(scale),
            _ => 0,
        };
        let factor = i256::from_i128(10i128.pow(u32::from(finer)));
        DecimalSum { scale, result, mean, factor, width: std::marker::PhantomData }
    }
}

impl<W: Total<Number = i128> + Into<i256>> Arithmetic for DecimalSum<W> {
    type Number = i128;
    type State = Sum<W>;

    fn result(&self) -> &DataType {
        &self.result
    }
    fn scale(&self) -> u8 {
        self.scale
    }
    fn value(&self, group: &Sum<W>) -> Option<i128> {
        let Sum { sum, count } = *group;
        if count <= 0 {
            return None;
        }
        if !self.mean {
            return fits(sum.into());
        }
        fits(divide_half_up(sum.into().checked_mul(self.factor)?, i256::from_i128(count.into())))
    }
}

/// The quotient, rounded half away from zero as Flink rounds DECIMALs.
pub(super) fn divide_half_up(dividend: i256, divisor: i256) -> i256 {
    let quotient = dividend.wrapping_div(divisor);
    let rest = dividend.wrapping_rem(divisor);
    let twice = rest.wrapping_abs().wrapping_mul(i256::from_i128(2));
    if twice < divisor.wrapping_abs() {
        quotient
    } else if dividend.is_negative() == divisor.is_negative() {
        quotient.wrapping_add(i256::ONE)
    } else {
        quotient.wrapping_sub(i256::ONE)
    }
}

/// The value if it has at most 38 digits.
pub(super) fn fits(value: i256) -> Option<i128> {
    value.to_i128().filter(|value| value.unsigned_abs() < TOO_LARGE.unsigned_abs())
}
