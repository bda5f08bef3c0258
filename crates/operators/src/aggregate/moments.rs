//! STDDEV_POP, STDDEV_SAMP, VAR_POP, VAR_SAMP.
//!
//! Integers keep exact sums of values and squares, so their states commute and can be subtracted;
//! the result is truncated into the argument's type, as Flink's is. Floats follow Welford, and
//! partial states Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
//! computing sample variances", 1979), because squares of large values would cancel; where values
//! leave again, sums of squares are exact ([`exact`](super::exact)). DECIMALs are exact for at most
//! 19 digits per value (the squares then fit 128 bits) and keep 256 bits.

use std::sync::Arc;

use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type, Int64Type};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::fold::Fold;
use super::values::{
    decimal_array, float_array, for_each_float, for_each_integer, for_each_value, integer_array,
};
use super::{StateColumns, StateRows, UpdateInput};

/// Which of the four it is.
#[derive(Clone, Copy)]
pub(super) struct MomentsKind {
    /// Divides by n - 1 instead of n.
    pub(super) sample: bool,
    /// A deviation, not a variance.
    pub(super) root: bool,
}

impl MomentsKind {
    /// The result from the sum of squared distances from the mean of `count` values.
    pub(super) fn finish(self, squares: f64, count: i64) -> Option<f64> {
        let divisor = count - i64::from(self.sample);
        if divisor <= 0 {
            return None;
        }
        let variance = squares / divisor as f64;
        // NaN stays.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        Some(if self.root { variance.sqrt() } else { variance })
    }
}

/// How many values, their mean, and the sum of their squared distances from it.
#[derive(Clone, Copy, Default)]
pub(super) struct Welford {
    count: i64,
    mean: f64,
    squares: f64,
}

impl Welford {
    /// Adds a value.
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }
}

/// Of FLOAT and DOUBLE.
#[derive(Clone)]
pub(super) struct Moments {
    pub(super) kind: MomentsKind,
    pub(super) result: DataType,
}

impl Moments {
    /// The result of a group.
    pub(super) fn value(&self, group: &Welford) -> Option<f64> {
        self.kind.finish(group.squares, group.count)
    }
}

impl Fold for Moments {
    type Group = Welford;

    fn update(&self, groups: &mut [Welford], input: &UpdateInput<'_>) -> Result<()> {
        for_each_float(input.column()?, input, |id, value| {
            groups[id].add(value);
        })
    }
    fn merge(&self, into: &mut Welford, from: &Welford) {
        if from.count == 0 {
            return;
        }
        if into.count == 0 {
            *into = *from;
            return;
        }
        let count = into.count + from.count;
        let apart = from.mean - into.mean;
        let share = from.count as f64 / count as f64;
        into.mean += apart * share;
        into.squares += from.squares + apart * apart * into.count as f64 * share;
        into.count = count;
    }
    fn evaluate(&self, groups: &[Welford], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(float_array(&self.result, values))
    }
    fn capture(&self, groups: &[Welford], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let of = |&id: &u32| &groups[id as usize];
        columns.add_numbers::<Int64Type>("count", ids.iter().map(|id| of(id).count));
        columns.add_numbers::<Float64Type>("mean", ids.iter().map(|id| of(id).mean));
        columns.add_numbers::<Float64Type>("squares", ids.iter().map(|id| of(id).squares));
        Ok(())
    }
    fn restore(&self, groups: &mut [Welford], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let counts = rows.numbers::<Int64Type>("count")?;
        let means = rows.numbers::<Float64Type>("mean")?;
        let squares = rows.numbers::<Float64Type>("squares")?;
        for (row, &id) in ids.iter().enumerate() {
            let (count, mean, squares) = (counts[row], means[row], squares[row]);
            groups[id as usize] = Welford { count, mean, squares };
        }
        Ok(())
    }
}

/// How many values, their sum, and the sum of their squares: in 256 bits, since those of four large
/// BIGINTs do not fit 128.
#[derive(Clone, Copy, Default)]
pub(super) struct Powers {
    count: i64,
    sum: i256,
    squares: i256,
}

impl Powers {
    /// Adds an integer.
    pub(super) fn add_integer(&mut self, value: i64) {
        let value = i128::from(value);
        self.count += 1;
        self.sum = self.sum.wrapping_add(i256::from_i128(value));
        self.squares = self.squares.wrapping_add(i256::from_i128(value * value));
    }
    /// Takes an integer out.
    pub(super) fn remove_integer(&mut self, value: i64) {
        let value = i128::from(value);
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(i256::from_i128(value));
        self.squares = self.squares.wrapping_sub(i256::from_i128(value * value));
    }
    /// Adds an unscaled DECIMAL.
    pub(super) fn add(&mut self, value: i128) {
        let value = i256::from_i128(value);
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.squares = self.squares.wrapping_add(value.wrapping_mul(value));
    }
    /// Takes an unscaled DECIMAL out.
    pub(super) fn remove(&mut self, value: i128) {
        let value = i256::from_i128(value);
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(value);
        self.squares = self.squares.wrapping_sub(value.wrapping_mul(value));
    }
}

impl Powers {
    /// Captures sums and sums of squares, as columns of these types.
    fn capture(
        groups: &[Self],
        ids: &[u32],
        columns: &mut StateColumns,
        [of_sums, of_squares]: [Arrow; 2],
    ) {
        let of = |&id: &u32| &groups[id as usize];
        columns.add_numbers::<Int64Type>("count", ids.iter().map(|id| of(id).count));
        let sums = ids.iter().map(|id| of(id).sum);
        let sums = PrimitiveArray::<Decimal256Type>::from_iter_values(sums);
        columns.add("sum", Arc::new(sums.with_data_type(of_sums)));
        let squares = ids.iter().map(|id| of(id).squares);
        let squares = PrimitiveArray::<Decimal256Type>::from_iter_values(squares);
        columns.add("squares", Arc::new(squares.with_data_type(of_squares)));
    }

    fn restore(groups: &mut [Self], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let counts = rows.numbers::<Int64Type>("count")?;
        let sums = rows.numbers::<Decimal256Type>("sum")?;
        let squares = rows.numbers::<Decimal256Type>("squares")?;
        for (row, &id) in ids.iter().enumerate() {
            let (count, sum, squares) = (counts[row], sums[row], squares[row]);
            groups[id as usize] = Powers { count, sum, squares };
        }
        Ok(())
    }
}

/// Of integers.
#[derive(Clone)]
pub(super) struct IntegerMoments {
    pub(super) kind: MomentsKind,
    pub(super) result: DataType,
}

impl IntegerMoments {
    /// The result of a group.
    pub(super) fn value(&self, group: &Powers) -> Option<i64> {
        let distance = squared_distance(group.count, group.sum, group.squares)?;
        Some(self.kind.finish(distance, group.count)?.trunc() as i64)
    }
}

impl Fold for IntegerMoments {
    type Group = Powers;

    fn update(&self, groups: &mut [Powers], input: &UpdateInput<'_>) -> Result<()> {
        for_each_integer(input.column()?, input, |id, value| {
            groups[id].add_integer(value);
        })
    }
    fn merge(&self, into: &mut Powers, from: &Powers) {
        into.count += from.count;
        into.sum = into.sum.wrapping_add(from.sum);
        into.squares = into.squares.wrapping_add(from.squares);
    }
    fn subtract(&self, into: &mut Powers, from: &Powers) -> bool {
        into.count -= from.count;
        into.sum = into.sum.wrapping_sub(from.sum);
        into.squares = into.squares.wrapping_sub(from.squares);
        true
    }
    fn evaluate(&self, groups: &[Powers], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(integer_array(&self.result, values))
    }
    fn capture(&self, groups: &[Powers], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let whole = || Arrow::Decimal256(76, 0);
        Powers::capture(groups, ids, columns, [whole(), whole()]);
        Ok(())
    }
    fn restore(&self, groups: &mut [Powers], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        Powers::restore(groups, ids, rows)
    }
}

/// The sum of squared distances from the mean: `(n * squares - sum * sum) / n`, exact up to the
/// last division.
fn squared_distance(count: i64, sum: i256, squares: i256) -> Option<f64> {
    let total = i256::from_i128(count.into());
    let numerator = squares.checked_mul(total)?.checked_sub(sum.checked_mul(sum)?)?;
    Some(to_f64(numerator) / count.max(1) as f64)
}

fn to_f64(value: i256) -> f64 {
    let (low, high) = value.to_parts();
    high as f64 * 2f64.powi(128) + low as f64
}

/// Of DECIMAL.
#[derive(Clone)]
pub(super) struct DecimalMoments {
    pub(super) kind: MomentsKind,
    pub(super) scale: u8,
    pub(super) result: DataType,
}

impl DecimalMoments {
    /// The unscaled result of a group.
    pub(super) fn value(&self, group: &Powers) -> Option<i128> {
        let DataType::Decimal(_, result_scale) = self.result else { return None };
        let unit = 10f64.powi(i32::from(self.scale));
        let fine = 10f64.powi(i32::from(result_scale));
        let Powers { count, sum, squares } = *group;
        let distance = squared_distance(count, sum, squares)? / (unit * unit);
        let value = (self.kind.finish(distance, count)? * fine).round();
        (value.abs() < 1e38).then_some(value as i128)
    }
}

impl Fold for DecimalMoments {
    type Group = Powers;

    fn update(&self, groups: &mut [Powers], input: &UpdateInput<'_>) -> Result<()> {
        for_each_value::<Decimal128Type>(input.column()?, input, |id, value, _| {
            groups[id].add(value);
        })
    }
    fn merge(&self, into: &mut Powers, from: &Powers) {
        into.count += from.count;
        into.sum = into.sum.wrapping_add(from.sum);
        into.squares = into.squares.wrapping_add(from.squares);
    }
    fn subtract(&self, into: &mut Powers, from: &Powers) -> bool {
        into.count -= from.count;
        into.sum = into.sum.wrapping_sub(from.sum);
        into.squares = into.squares.wrapping_sub(from.squares);
        true
    }
    fn evaluate(&self, groups: &[Powers], ids: &[u32]) -> Result<ArrayRef> {
        let values = ids.iter().map(|&id| self.value(&groups[id as usize]));
        Ok(decimal_array(&self.result, values))
    }
    fn capture(&self, groups: &[Powers], ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let scaled = |times: i8| Arrow::Decimal256(76, self.scale as i8 * times);
        Powers::capture(groups, ids, columns, [scaled(1), scaled(2)]);
        Ok(())
    }
    fn restore(&self, groups: &mut [Powers], ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        Powers::restore(groups, ids, rows)
    }
}
