//! Sums of doubles that lose nothing: a value that leaves a sum leaves no trace in it.
//!
//! A finite double is an integer of 53 bits times a power of two, and its square one of 106 bits.
//! Their sums are kept as such products too, in an integer that is as wide as it has to be. So a
//! sum depends on the values that are in it, and neither on their order nor on values that have
//! left. NaN and infinities are counted apart.
//!
//! It is for sums that values leave (changelogs, frames of rows). Sums that only grow are kept in a
//! double.
//!
//! Invariant: an integer of at most 127 bits, from its highest to its lowest one, is
//! [`Fixed::Near`], and a wider one [`Fixed::Far`]. So a result is computed the same way whatever a
//! sum has held before.
//!
//! How wide it can become: a double has bits from 2^-1074 to 2^1023, so a sum of 2^63 of them fits
//! 2,161 bits, and a sum of their squares 4,259. Sums of values of similar size stay below 127
//! bits.
//!
//! Why not compensated (Kahan) sums: they are more precise, not exact. After a large value has been
//! retracted they still differ from the sum of the rest, so a changelog would show a result that no
//! set of its rows has.

use super::arithmetic::MergedState;

/// The lowest bit of a double is worth two to the minus this.
const VALUE_UNIT: i32 = 1074;
/// The lowest bit of the square of one.
const SQUARE_UNIT: i32 = 2 * VALUE_UNIT;

/// More limbs than the squares of 2^63 doubles can fill.
const LIMBS_MAX: u64 = 128;

/// An integer of any size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wide {
    negative: bool,
    /// How many limbs of zero there are below the first.
    low: u32,
    /// From the lowest; neither the first nor the last is zero.
    limbs: Vec<u64>,
}

impl Wide {
    /// `value * 2^shift`.
    fn of(value: i128, shift: u32) -> Wide {
        let (low, bits) = (shift / 64, shift % 64);
        let magnitude = value.unsigned_abs();
        let above = if bits == 0 { 0 } else { (magnitude >> (128 - bits)) as u64 };
        let magnitude = magnitude << bits;
        let limbs = vec![magnitude as u64, (magnitude >> 64) as u64, above];
        Wide { negative: value < 0, low, limbs }.trimmed()
    }

    fn trimmed(mut self) -> Wide {
        let used = self.limbs.iter().rposition(|&limb| limb != 0).map_or(0, |last| last + 1);
        self.limbs.truncate(used);
        let zeros = self.limbs.iter().position(|&limb| limb != 0).unwrap_or(0);
        self.limbs.drain(..zeros);
        self.low += zeros as u32;
        if self.limbs.is_empty() { Wide::default() } else { self }
    }

    fn high(&self) -> u32 {
        self.low + self.limbs.len() as u32
    }

    /// The limb at a place, with the sign.
    fn limb(&self, at: u32) -> i128 {
        let limb = at.checked_sub(self.low).and_then(|at| self.limbs.get(at as usize));
        let limb = limb.map_or(0, |&limb| i128::from(limb));
        if self.negative { -limb } else { limb }
    }

    fn plus(&self, other: &Wide) -> Wide {
        let low = self.low.min(other.low);
        let mut carry = 0;
        let mut add = |at| {
            let total = self.limb(at) + other.limb(at) + carry;
            carry = total >> 64;
            total as u64
        };
        let mut limbs: Vec<u64> = (low..self.high().max(other.high())).map(&mut add).collect();
        limbs.push(carry as u64);
        let negative = carry < 0;
        if negative {
            negate(&mut limbs);
        }
        Wide { negative, low, limbs }.trimmed()
    }

    fn times(&self, other: &Wide) -> Wide {
        let mut limbs = vec![0; self.limbs.len() + other.limbs.len()];
        for (at, &own) in self.limbs.iter().enumerate() {
            let mut carry = 0;
            for (limb, &other) in limbs[at..].iter_mut().zip(&other.limbs) {
                let total = u128::from(own) * u128::from(other) + u128::from(*limb) + carry;
                *limb = total as u64;
                carry = total >> 64;
            }
            limbs[at + other.limbs.len()] = carry as u64;
        }
        let negative = self.negative != other.negative;
        Wide { negative, low: self.low + other.low, limbs }.trimmed()
    }

    fn minus(&self, other: &Wide) -> Wide {
        self.plus(&Wide { negative: !other.negative, ..other.clone() })
    }

    /// A double and the power of two that it has to be multiplied by: together they are this number
    /// times `2^-unit`, rounded once to 53 bits.
    fn rounded(&self, unit: i32) -> (f64, i32) {
        let mut from_top = self.limbs.iter().rev();
        let mut next = || from_top.next().map_or(0, |&limb| u128::from(limb));
        let bits = next() << 64 | next();
        // The lowest limb is not zero. It is far below the 53 bits and the one that decides.
        let bits = (bits | u128::from(self.limbs.len() > 2)) as f64;
        let exponent = 64 * (self.high() as i32 - 2) - unit;
        (if self.negative { -bits } else { bits }, exponent)
    }
}

fn negate(limbs: &mut [u64]) {
    let mut carry = true;
    for limb in limbs {
        (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
    }
}

/// `value * 2^exponent`. Powers of two are exact, so it is rounded where the result is subnormal
/// and nowhere else.
fn scaled(mut value: f64, exponent: i32) -> f64 {
    let mut left = exponent;
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        value *= f64::from_bits(((1023 + step) as u64) << 52);
        left -= step;
    }
    value
}

/// The integer and the shift that a finite double consists of, in units of its lowest bit.
fn parts(value: f64) -> Option<(i128, u32)> {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52) as u32 & 0x7ff, bits & ((1 << 52) - 1));
    let (magnitude, shift) = match exponent {
        0x7ff => return None,
        0 => (fraction, 0),
        _ => (fraction | 1 << 52, exponent - 1),
    };
    let magnitude = i128::from(magnitude);
    Some((if value.is_sign_negative() { -magnitude } else { magnitude }, shift))
}

/// A sum of integers times powers of two.
#[derive(Clone, Debug)]
pub(super) enum Fixed {
    /// This times two to the power of that.
    Near(i128, u32),
    Far(Box<Wide>),
}

impl Default for Fixed {
    fn default() -> Self {
        Fixed::Near(0, 0)
    }
}

impl Fixed {
    fn add(&mut self, value: i128, shift: u32) {
        if let Fixed::Near(sum, at) = *self
            && let Some((sum, at)) = near_sum((sum, at), (value, shift))
        {
            *self = Fixed::Near(sum, at);
        } else if value != 0 {
            *self = Fixed::from(self.wide().plus(&Wide::of(value, shift)));
        }
    }

    fn plus(&self, other: &Fixed) -> Fixed {
        if let (&Fixed::Near(a, a_shift), &Fixed::Near(b, b_shift)) = (self, other)
            && let Some((sum, at)) = near_sum((a, a_shift), (b, b_shift))
        {
            return Fixed::Near(sum, at);
        }
        Fixed::from(self.wide().plus(&other.wide()))
    }

    pub fn wide(&self) -> Wide {
        match self {
            Fixed::Near(sum, shift) => Wide::of(*sum, *shift),
            Fixed::Far(sum) => Wide::clone(sum),
        }
    }

    /// This times `2^-unit`, as a double.
    fn to_f64(&self, unit: i32) -> f64 {
        match self {
            Fixed::Near(sum, shift) => scaled(*sum as f64, *shift as i32 - unit),
            Fixed::Far(sum) => {
                let (value, exponent) = sum.rounded(unit);
                scaled(value, exponent)
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Fixed::Near(..) => 0,
            Fixed::Far(sum) => size_of::<Wide>() + sum.limbs.capacity() * 8,
        }
    }

    /// As numbers of 64 bits: none for the double that this rounds to; else the place of the first
    /// limb from 1, negative for a negative sum, and the limbs.
    fn encode(&self, unit: i32, numbers: &mut Vec<i64>) {
        let wide = self.wide();
        if Fixed::of(self.to_f64(unit), unit).is_some_and(|rounded| rounded.wide() == wide) {
            return;
        }
        let place = i64::from(wide.low) + 1;
        numbers.push(if wide.negative { -place } else { place });
        numbers.extend(wide.limbs.iter().map(|&limb| limb as i64));
    }

    /// What [`Fixed::encode`] made of a sum that rounds to this double; `None` where it can't have
    /// made it.
    fn decode(rounded: f64, unit: i32, numbers: &[i64]) -> Option<Fixed> {
        let Some((&place, limbs)) = numbers.split_first() else { return Fixed::of(rounded, unit) };
        let low = place.unsigned_abs().checked_sub(1)?;
        if low + limbs.len() as u64 > LIMBS_MAX {
            return None;
        }
        let limbs = limbs.iter().map(|&limb| limb as u64).collect();
        Some(Fixed::from(Wide { negative: place < 0, low: low as u32, limbs }.trimmed()))
    }

    fn of(value: f64, unit: i32) -> Option<Fixed> {
        let (value, shift) = parts(value)?;
        Some(Fixed::from(Wide::of(value, shift + (unit - VALUE_UNIT) as u32)))
    }
}

impl From<Wide> for Fixed {
    fn from(wide: Wide) -> Self {
        let (Some(first), Some(last)) = (wide.limbs.first(), wide.limbs.last()) else {
            return Fixed::default();
        };
        let zeros = first.trailing_zeros();
        let bits = wide.limbs.len() as u32 * 64 - last.leading_zeros() - zeros;
        if bits >= 128 {
            return Fixed::Far(Box::new(wide));
        }
        let mut magnitude = 0;
        for (at, &limb) in wide.limbs.iter().enumerate() {
            let at = at as u32 * 64;
            let limb = u128::from(limb);
            magnitude |= if at < zeros { limb >> (zeros - at) } else { limb << (at - zeros) };
        }
        let magnitude = magnitude as i128;
        Fixed::Near(if wide.negative { -magnitude } else { magnitude }, wide.low * 64 + zeros)
    }
}

/// The sum of two such products, if it can be had without a wider integer.
#[inline]
fn near_sum((a, a_shift): (i128, u32), (b, b_shift): (i128, u32)) -> Option<(i128, u32)> {
    if a == 0 {
        return Some((b, b_shift));
    }
    let shift = a_shift.min(b_shift);
    let sum = shifted(a, a_shift - shift)?.checked_add(shifted(b, b_shift - shift)?)?;
    Some((sum, shift))
}

#[inline]
fn shifted(value: i128, by: u32) -> Option<i128> {
    let unused = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    (by < unused).then(|| value << by)
}

/// How many values are not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NotFinite {
    pub(super) nans: i64,
    pub(super) positive: i64,
    pub(super) negative: i64,
}

/// A sum of doubles that values can leave, and how many values it is of.
#[derive(Clone, Debug, Default)]
pub(super) struct ExactSum {
    count: i64,
    sum: Fixed,
    /// `None` where all values are finite.
    others: Option<Box<NotFinite>>,
}

impl ExactSum {
    /// Adds a value (`by` is 1), or takes one out (-1).
    #[inline]
    pub fn change(&mut self, value: f64, by: i64) {
        self.count += by;
        match parts(value) {
            Some((value, shift)) => self.sum.add(value * i128::from(by), shift),
            None => self.change_others(value, by),
        }
    }

    #[cold]
    fn change_others(&mut self, value: f64, by: i64) {
        let others = self.others.get_or_insert_default();
        let counted = match value {
            f64::INFINITY => &mut others.positive,
            f64::NEG_INFINITY => &mut others.negative,
            _ => &mut others.nans,
        };
        *counted += by;
        if **others == NotFinite::default() {
            self.others = None;
        }
    }

    pub fn count(&self) -> i64 {
        self.count
    }

    /// The sum, rounded once.
    #[inline]
    pub fn value(&self) -> f64 {
        self.not_finite().unwrap_or_else(|| self.sum.to_f64(VALUE_UNIT))
    }

    /// The sum of the values that are not finite, if there are any.
    #[inline]
    fn not_finite(&self) -> Option<f64> {
        let others = self.others.as_deref()?;
        match (others.positive > 0, others.negative > 0) {
            _ if others.nans > 0 => Some(f64::NAN),
            (true, true) => Some(f64::NAN),
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            (false, false) => None,
        }
    }

    pub fn bytes_elsewhere(&self) -> usize {
        let others = if self.others.is_some() { size_of::<NotFinite>() } else { 0 };
        others + self.sum.heap_bytes()
    }

    /// The parts that a state is captured in: the sum of the finite values, rounded; what it is
    /// exactly, in numbers that are added to the list; how many values are not finite.
    pub fn encode(&self, numbers: &mut Vec<i64>) -> (f64, NotFinite) {
        self.sum.encode(VALUE_UNIT, numbers);
        (self.sum.to_f64(VALUE_UNIT), self.others.as_deref().copied().unwrap_or_default())
    }

    /// The sum with these parts; `None` where no sum has them.
    pub fn decode(
        count: i64,
        rounded: f64,
        numbers: &[i64],
        others: NotFinite,
    ) -> Option<ExactSum> {
        let mut sum = ExactSum { count, ..ExactSum::default() };
        sum.others = (others != NotFinite::default()).then(|| Box::new(others));
        sum.sum = Fixed::decode(rounded, VALUE_UNIT, numbers)?;
        Some(sum)
    }
}

impl MergedState<f64> for ExactSum {
    fn merge(&mut self, from: &Self) {
        self.count += from.count;
        self.sum = self.sum.plus(&from.sum);
        let Some(more) = from.others.as_deref() else { return };
        let others = self.others.get_or_insert_default();
        others.nans += more.nans;
        others.positive += more.positive;
        others.negative += more.negative;
        if **others == NotFinite::default() {
            self.others = None;
        }
    }
}

/// The sum of doubles and the sum of their squares, which values can leave.
#[derive(Clone, Debug, Default)]
pub(super) struct ExactPowers {
    pub(super) sum: ExactSum,
    squares: Fixed,
}

impl ExactPowers {
    /// Adds a value (`by` is 1), or takes one out (-1).
    pub fn change(&mut self, value: f64, by: i64) {
        self.sum.change(value, by);
        if let Some((value, shift)) = parts(value) {
            self.squares.add(value * value * i128::from(by), 2 * shift);
        }
    }

    /// The sum of squared distances from the mean, `(n * squares - sum * sum) / n`: exact up to the
    /// division. NaN where a value is not finite.
    pub fn squared_distance(&self) -> f64 {
        if self.sum.not_finite().is_some() {
            return f64::NAN;
        }
        let (count, sum) = (self.sum.count, self.sum.sum.wide());
        let squares = self.squares.wide().times(&Wide::of(count.into(), 0));
        let (value, exponent) = squares.minus(&sum.times(&sum)).rounded(SQUARE_UNIT);
        scaled(value / count as f64, exponent)
    }

    pub fn bytes_elsewhere(&self) -> usize {
        self.sum.bytes_elsewhere() + self.squares.heap_bytes()
    }

    /// The sum of squares, as [`ExactSum::encode`] has sums.
    pub fn encode_squares(&self, numbers: &mut Vec<i64>) -> f64 {
        self.squares.encode(SQUARE_UNIT, numbers);
        self.squares.to_f64(SQUARE_UNIT)
    }

    /// The sums with these parts.
    pub fn decode(sum: ExactSum, rounded: f64, numbers: &[i64]) -> Option<ExactPowers> {
        let squares = Fixed::decode(rounded, SQUARE_UNIT, numbers)?;
        Some(ExactPowers { sum, squares })
    }
}

impl MergedState<f64> for ExactPowers {
    fn merge(&mut self, from: &Self) {
        self.sum.merge(&from.sum);
        self.squares = self.squares.plus(&from.squares);
    }
}

#[cfg(test)]
mod tests;
