//! COUNT, SUM and AVG.
//!
//! Integers are summed in 64 wrapping bits, which any narrower result wraps from as Flink's does.
//! DECIMALs of at most 18 digits are summed in 128 bits, which 10^20 of them cannot overflow, wider
//! ones in 256 bits. Floats are summed in DOUBLE, in the order in which rows come.

use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float64Type, Int64Type,
};
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::DataType as Arrow;
use std::sync::Arc;
use thalweg_core::{DataType, Result};

use super::fold::Fold;
use super::values::{
    decimal_array, float_array, for_each_float, for_each_integer, for_each_value, integer_array,
    nulls,
};
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
    fn capture(&self, groups: &[i64], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        columns.add("", self.evaluate(groups, ids)?);
        Ok(())
    }
    fn restore(&self, groups: &mut [i64], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        for (&id, &count) in ids.iter().zip(rows.numbers::<Int64Type>("")?) {
            groups[id as usize] = count;
        }
        Ok(())
    }
}

/// A sum and how many values it is of.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum<T> {
    sum: T,
    count: i64,
}

impl Sum<i64> {
    /// Adds a value.
    #[inline(always)]
    pub(super) fn add(&mut self, value: i64) {
        self.sum = self.sum.wrapping_add(value);
        self.count += 1;
    }
    /// Takes a value out.
    #[inline(always)]
    pub(super) fn remove(&mut self, value: i64) {
        self.sum = self.sum.wrapping_sub(value);
        self.count -= 1;
    }
}

impl Sum<f64> {
    /// Adds a value. None is subtracted again: small values that a large one hid would stay lost
    /// ([`exact`](super::exact)).
    #[inline(always)]
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }
}

impl<W: Wide> Sum<W> {
    /// Adds an unscaled DECIMAL.
    #[inline(always)]
    pub(super) fn add_decimal(&mut self, value: i128) {
        self.sum = self.sum.add_value(value);
        self.count += 1;
    }
    /// Takes an unscaled DECIMAL out.
    #[inline(always)]
    pub(super) fn remove_decimal(&mut self, value: i128) {
        self.sum = self.sum.minus(W::default().add_value(value));
        self.count -= 1;
    }
}

impl<T: Copy> Sum<T> {
    /// Captures sums of this type, and how many values each is of.
    fn capture<P: ArrowPrimitiveType<Native = T>>(
        groups: &[Self],
        ids: &[u32],
        columns: &mut StateColumns,
        data_type: Arrow,
    ) {
        let of = |&id: &u32| &groups[id as usize];
        let sums = PrimitiveArray::<P>::from_iter_values(ids.iter().map(|id| of(id).sum));
        columns.add("sum", Arc::new(sums.with_data_type(data_type)));
        columns.add_numbers::<Int64Type>("count", ids.iter().map(|id| of(id).count));
    }

    fn restore<P: ArrowPrimitiveType<Native = T>>(
        groups: &mut [Self],
        ids: &[u32],
        rows: &StateRows<'_>,
    ) -> Result<()> {
        let (sums, counts) = (rows.numbers::<P>("sum")?, rows.numbers::<Int64Type>("count")?);
        for ((&id, &sum), &count) in ids.iter().zip(sums).zip(counts) {
            groups[id as usize] = Sum { sum, count };
        }
        Ok(())
    }
}

/// SUM and AVG of integers.
#[derive(Clone)]
pub(super) struct IntegerSum {
    pub(super) result: DataType,
    pub(super) mean: bool,
}

impl IntegerSum {
    /// The result of a group, in 64 bits that a narrower type wraps from.
    #[inline(always)]
    pub(super) fn value(&self, group: &Sum<i64>) -> Option<i64> {
        let Sum { sum, count } = *group;
        let value = if self.mean { sum.checked_div(count)? } else { sum };
        (count > 0).then_some(value)
    }
}

impl Fold for IntegerSum {
    type Group = Sum<i64>;

    fn update(&self, groups: &mut [Sum<i64>], input: &UpdateInput<'_>) -> Result<()> {
        for_each_integer(input.column()?, input, |id, value| {
            groups[id].add(value);
        })
    }
    fn merge(&self, into: &mut Sum<i64>, from: &Sum<i64>) {
        into.sum = into.sum.wrapping_add(from.sum);
        into.count += from.count;
    }
    fn subtract(&self, into: &mut Sum<i64>, from: &Sum<i64>) -> bool {
        into.sum = into.sum.wrapping_sub(from.sum);
        into.count -= from.count;
        true
    }
    fn evaluate(&self, groups: &[Sum<i64>], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(integer_array(&self.result, values))
    }
    fn capture(&self, groups: &[Sum<i64>], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        Sum::capture::<Int64Type>(groups, ids, columns, Arrow::Int64);
        Ok(())
    }
    fn restore(&self, groups: &mut [Sum<i64>], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        Sum::restore::<Int64Type>(groups, ids, rows)
    }
}

/// SUM and AVG of FLOAT and DOUBLE.
#[derive(Clone)]
pub(super) struct FloatSum {
    pub(super) result: DataType,
    pub(super) mean: bool,
}

impl FloatSum {
    /// The result of a group.
    #[inline(always)]
    pub(super) fn value(&self, group: &Sum<f64>) -> Option<f64> {
        let Sum { sum, count } = *group;
        let value = if self.mean { sum / count as f64 } else { sum };
        (count > 0).then_some(value)
    }
}

impl Fold for FloatSum {
    type Group = Sum<f64>;

    fn update(&self, groups: &mut [Sum<f64>], input: &UpdateInput<'_>) -> Result<()> {
        for_each_float(input.column()?, input, |id, value| {
            groups[id].add(value);
        })
    }
    fn merge(&self, into: &mut Sum<f64>, from: &Sum<f64>) {
        into.sum += from.sum;
        into.count += from.count;
    }
    fn evaluate(&self, groups: &[Sum<f64>], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(float_array(&self.result, values))
    }
    fn capture(&self, groups: &[Sum<f64>], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        Sum::capture::<Float64Type>(groups, ids, columns, Arrow::Float64);
        Ok(())
    }
    fn restore(&self, groups: &mut [Sum<f64>], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        Sum::restore::<Float64Type>(groups, ids, rows)
    }
}

/// An integer wide enough for a sum of DECIMALs.
pub(super) trait Wide: Copy + Default + Send + Sync + 'static {
    /// Adds an unscaled value.
    fn add_value(self, value: i128) -> Self;
    /// Adds.
    fn plus(self, other: Self) -> Self;
    /// Subtracts.
    fn minus(self, other: Self) -> Self;
    /// As 256 bits.
    fn wide(self) -> i256;
    /// The column type of such numbers.
    type Type: ArrowPrimitiveType<Native = Self>;
    /// The same with this scale. A sum may have more digits than it says, which Arrow does not
    /// mind.
    fn arrow(scale: u8) -> Arrow;
}

impl Wide for i128 {
    #[inline]
    fn add_value(self, value: i128) -> Self {
        self.wrapping_add(value)
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    fn wide(self) -> i256 {
        i256::from_i128(self)
    }
    type Type = Decimal128Type;
    fn arrow(scale: u8) -> Arrow {
        Arrow::Decimal128(38, scale as i8)
    }
}

impl Wide for i256 {
    fn add_value(self, value: i128) -> Self {
        self.wrapping_add(i256::from_i128(value))
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    fn wide(self) -> i256 {
        self
    }
    type Type = Decimal256Type;
    fn arrow(scale: u8) -> Arrow {
        Arrow::Decimal256(76, scale as i8)
    }
}

/// SUM and AVG of DECIMAL.
#[derive(Clone)]
pub(super) struct DecimalSum<W> {
    scale: u8,
    result: DataType,
    mean: bool,
    /// What a sum is multiplied by before the division of AVG, for its finer scale.
    factor: i256,
    width: std::marker::PhantomData<fn() -> W>,
}

impl<W> DecimalSum<W> {
    pub(super) fn new(scale: u8, result: DataType, mean: bool) -> Self {
        let finer = match &result {
            DataType::Decimal(_, result_scale) if mean => result_scale.saturating_sub(scale),
            _ => 0,
        };
        let factor = i256::from_i128(10i128.pow(u32::from(finer)));
        DecimalSum { scale, result, mean, factor, width: std::marker::PhantomData }
    }
}

impl<W: Wide> DecimalSum<W> {
    /// The unscaled result of a group; `None` also where it has too many digits.
    pub(super) fn value(&self, group: &Sum<W>) -> Option<i128> {
        let Sum { sum, count } = *group;
        if count <= 0 {
            return None;
        }
        if !self.mean {
            return fits(sum.wide());
        }
        fits(divide_half_up(sum.wide().checked_mul(self.factor)?, i256::from_i128(count.into())))
    }
}

impl<W: Wide> Fold for DecimalSum<W> {
    type Group = Sum<W>;

    fn update(&self, groups: &mut [Sum<W>], input: &UpdateInput<'_>) -> Result<()> {
        for_each_value::<Decimal128Type>(input.column()?, input, |id, value, _| {
            groups[id].add_decimal(value);
        })
    }
    fn merge(&self, into: &mut Sum<W>, from: &Sum<W>) {
        into.sum = into.sum.plus(from.sum);
        into.count += from.count;
    }
    fn subtract(&self, into: &mut Sum<W>, from: &Sum<W>) -> bool {
        into.sum = into.sum.minus(from.sum);
        into.count -= from.count;
        true
    }
    fn evaluate(&self, groups: &[Sum<W>], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(decimal_array(&self.result, values))
    }
    fn capture(&self, groups: &[Sum<W>], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        Sum::capture::<W::Type>(groups, ids, columns, W::arrow(self.scale));
        Ok(())
    }
    fn restore(&self, groups: &mut [Sum<W>], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        Sum::restore::<W::Type>(groups, ids, rows)
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
