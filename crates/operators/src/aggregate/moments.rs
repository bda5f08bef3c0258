//! STDDEV_POP, STDDEV_SAMP, VAR_POP, VAR_SAMP.
//!
//! Integers keep exact sums of values and squares, so their states commute and can be subtracted;
//! the result is truncated into the argument's type, as Flink's is. Floats follow Welford, and
//! partial states Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
//! computing sample variances", 1979), because squares of large values would cancel; where values
//! leave again, sums of squares are exact ([`exact`](super::exact)). DECIMALs are exact for at most
//! 19 digits per value (the squares then fit 128 bits) and keep 256 bits.
//!
//! The naive formula `E[x²] - E[x]²` is only used on exact sums. On rounded doubles it loses all
//! digits where the deviation is small compared with the mean.

use arrow_array::types::{Decimal256Type, Float64Type, Int64Type};
use arrow_buffer::i256;
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Result};

use super::arithmetic::{Arithmetic, MergedState, NumberState};
use super::values::Number;
use super::{StateColumns, StateRows};

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
    pub fn finish(self, squares: f64, count: i64) -> Option<f64> {
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

impl NumberState<f64> for Welford {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }
    fn capture<'a>(
        states: impl Iterator<Item = &'a Self> + Clone,
        _: u8,
        columns: &mut StateColumns,
    ) -> Result<()> {
        columns.add_numbers::<Int64Type>("count", states.clone().map(|state| state.count));
        columns.add_numbers::<Float64Type>("mean", states.clone().map(|state| state.mean));
        columns.add_numbers::<Float64Type>("squares", states.map(|state| state.squares));
        Ok(())
    }
    fn restore(rows: &StateRows<'_>) -> Result<Vec<Self>> {
        let counts = rows.numbers::<Int64Type>("count")?;
        let means = rows.numbers::<Float64Type>("mean")?;
        let squares = rows.numbers::<Float64Type>("squares")?;
        let rows = counts.iter().zip(means).zip(squares);
        Ok(rows.map(|((&count, &mean), &squares)| Welford { count, mean, squares }).collect())
    }
}

impl MergedState<f64> for Welford {
    fn merge(&mut self, from: &Welford) {
        if from.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *from;
            return;
        }
        let count = self.count + from.count;
        let apart = from.mean - self.mean;
        let share = from.count as f64 / count as f64;
        self.mean += apart * share;
        self.squares += from.squares + apart * apart * self.count as f64 * share;
        self.count = count;
    }
}

/// Of FLOAT and DOUBLE.
pub(super) struct Moments {
    pub(super) kind: MomentsKind,
    pub(super) result: DataType,
}

impl Arithmetic for Moments {
    type Number = f64;
    type State = Welford;

    fn result(&self) -> &DataType {
        &self.result
    }
    fn value(&self, group: &Welford) -> Option<f64> {
        self.kind.finish(group.squares, group.count)
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

/// Numbers whose powers are summed.
pub(super) trait Squared: Number {
    /// Itself and its square.
    fn powers(self) -> [i256; 2];
}

impl Squared for i64 {
    fn powers(self) -> [i256; 2] {
        let value = i128::from(self);
        [i256::from_i128(value), i256::from_i128(value * value)]
    }
}

impl Squared for i128 {
    fn powers(self) -> [i256; 2] {
        let value = i256::from_i128(self);
        [value, value.wrapping_mul(value)]
    }
}

impl Powers {
    #[inline(always)]
    fn of(value: impl Squared) -> Self {
        let [sum, squares] = value.powers();
        Powers { count: 1, sum, squares }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Powers {
            count: self.count + other.count,
            sum: self.sum.wrapping_add(other.sum),
            squares: self.squares.wrapping_add(other.squares),
        }
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Powers {
            count: self.count - other.count,
            sum: self.sum.wrapping_sub(other.sum),
            squares: self.squares.wrapping_sub(other.squares),
        }
    }
}

impl<N: Squared> NumberState<N> for Powers {
    fn add(&mut self, value: N) {
        *self = self.plus(Powers::of(value));
    }
    fn remove(&mut self, value: N) {
        *self = self.minus(Powers::of(value));
    }
    fn capture<'a>(
        states: impl Iterator<Item = &'a Self> + Clone,
        scale: u8,
        columns: &mut StateColumns,
    ) -> Result<()> {
        let (sums, squares) =
            (states.clone().map(|of| of.sum), states.clone().map(|of| of.squares));
        let scaled = |times: i8| Arrow::Decimal256(76, scale as i8 * times);
        columns.add_numbers::<Int64Type>("count", states.map(|of| of.count));
        columns.add_numbers_of::<Decimal256Type>("sum", scaled(1), sums);
        columns.add_numbers_of::<Decimal256Type>("squares", scaled(2), squares);
        Ok(())
    }
    fn restore(rows: &StateRows<'_>) -> Result<Vec<Self>> {
        let counts = rows.numbers::<Int64Type>("count")?;
        let sums = rows.numbers::<Decimal256Type>("sum")?;
        let squares = rows.numbers::<Decimal256Type>("squares")?;
        let rows = counts.iter().zip(sums).zip(squares);
        Ok(rows.map(|((&count, &sum), &squares)| Powers { count, sum, squares }).collect())
    }
}

impl<N: Squared> MergedState<N> for Powers {
    fn merge(&mut self, from: &Powers) {
        *self = self.plus(*from);
    }
    fn subtract(&mut self, from: &Powers) -> bool {
        *self = self.minus(*from);
        true
    }
}

/// Of integers.
pub(super) struct IntegerMoments {
    pub(super) kind: MomentsKind,
    pub(super) result: DataType,
}

impl Arithmetic for IntegerMoments {
    type Number = i64;
    type State = Powers;

    fn result(&self) -> &DataType {
        &self.result
    }
    fn value(&self, group: &Powers) -> Option<i64> {
        let distance = squared_distance(group.count, group.sum, group.squares)?;
        let moment = self.kind.finish(distance, group.count)?.trunc() as i64;
        // A moment beyond the type is its greatest value, as where Java casts a DOUBLE.
        let greatest = match self.result {
            DataType::TinyInt | DataType::SmallInt | DataType::Int => i32::MAX.into(),
            _ => i64::MAX,
        };
        Some(moment.min(greatest))
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
pub(super) struct DecimalMoments {
    pub(super) kind: MomentsKind,
    pub(super) scale: u8,
    pub(super) result: DataType,
}

impl Arithmetic for DecimalMoments {
    type Number = i128;
    type State = Powers;

    fn result(&self) -> &DataType {
        &self.result
    }
    fn scale(&self) -> u8 {
        self.scale
    }
    fn value(&self, group: &Powers) -> Option<i128> {
        let DataType::Decimal(_, result_scale) = self.result else { return None };
        let unit = 10f64.powi(i32::from(self.scale));
        let fine = 10f64.powi(i32::from(result_scale));
        let Powers { count, sum, squares } = *group;
        let distance = squared_distance(count, sum, squares)? / (unit * unit);
        let value = (self.kind.finish(distance, count)? * fine).round();
        (value.abs() < 1e38).then_some(value as i128)
    }
}
