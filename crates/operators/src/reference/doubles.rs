//! Sums of doubles bit by bit: as an integer is added in school, in units of the lowest bit that a
//! double, or a product of two, can have.

use thalweg_core::shim::SplitMix64;

/// The lowest bit of a double, and of a product of two, is two to the minus this.
const UNITS: [i32; 2] = [1074, 2148];

/// How often each power of two is in a sum.
struct Bits {
    times: Vec<i64>,
    unit: i32,
}

impl Bits {
    fn new(unit: i32) -> Bits {
        Bits { times: vec![0; 4400], unit }
    }

    fn add(&mut self, integer: i128, place: usize) {
        for bit in 0..127 {
            let is_set = integer.unsigned_abs() >> bit & 1;
            self.times[place + bit] += integer.signum() as i64 * is_set as i64;
        }
    }

    /// The sum divided by a number. Both the sum and the quotient are rounded.
    fn divided(&self, divisor: f64) -> f64 {
        let mut carry = 0;
        let mut digit = |&times: &i64| {
            let total = times + carry;
            carry = total >> 1;
            total & 1 == 1
        };
        let digits: Vec<bool> = self.times.iter().map(&mut digit).collect();
        if carry < 0 {
            let times = self.times.iter().map(|times| -times).collect();
            return -Bits { times, unit: self.unit }.divided(divisor);
        }
        let Some(top) = digits.iter().rposition(|&digit| digit) else { return 0.0 };
        let lowest = top.saturating_sub(52);
        let mut mantissa = digits[lowest..=top].iter().rev().fold(0, |m, &d| 2 * m + u64::from(d));
        let below = &digits[..lowest];
        let is_half = below.last() == Some(&true);
        let is_more = below.iter().rev().skip(1).any(|&digit| digit);
        if is_half && (is_more || mantissa % 2 == 1) {
            mantissa += 1;
        }
        // In steps, since not every power of two that can occur is a double; the last one rounds.
        let mut result = mantissa as f64 / divisor;
        let mut exponent = lowest as i32 - self.unit;
        while exponent != 0 {
            let step = exponent.clamp(-1000, 1000);
            result *= 2f64.powi(step);
            exponent -= step;
        }
        result
    }
}

/// The integer and the power of two that a finite double consists of.
fn parts(value: f64) -> (i128, usize) {
    let exponent = (value.abs().to_bits() >> 52) as usize;
    let fraction = value.to_bits() & ((1 << 52) - 1);
    let integer = if exponent == 0 { fraction } else { fraction + (1 << 52) };
    let sign = if value < 0.0 { -1 } else { 1 };
    (sign * i128::from(integer), exponent.saturating_sub(1))
}

/// The sum of these values, rounded once. Infinities and NaN as in any sum.
pub(crate) fn sum(values: &[f64]) -> f64 {
    let (finite, others): (Vec<f64>, Vec<f64>) = values.iter().partition(|value| value.is_finite());
    if !others.is_empty() {
        return others.iter().sum();
    }
    let mut bits = Bits::new(UNITS[0]);
    for (integer, place) in finite.into_iter().map(parts) {
        bits.add(integer, place);
    }
    bits.divided(1.0)
}

/// The sum of squared distances from the mean, from those between each two values: exact up to the
/// division by their number.
pub(crate) fn squared_distance(values: &[f64]) -> f64 {
    if values.iter().any(|value| !value.is_finite()) {
        return f64::NAN;
    }
    let mut bits = Bits::new(UNITS[1]);
    for (first, &value) in values.iter().enumerate() {
        let (one, at_one) = parts(value);
        for &value in &values[..first] {
            let (other, at_other) = parts(value);
            bits.add(one * one, 2 * at_one);
            bits.add(other * other, 2 * at_other);
            bits.add(-one * other, at_one + at_other);
            bits.add(-one * other, at_one + at_other);
        }
    }
    bits.divided(values.len() as f64)
}

/// A double of any kind: often simple, sometimes huge, tiny, subnormal, a zero with sign, infinite
/// or NaN.
pub(crate) fn wild_double(random: &mut SplitMix64) -> f64 {
    let sign = if random.below(2) == 0 { -1.0 } else { 1.0 };
    let any = f64::from_bits(random.next_u64());
    match random.below(40) {
        0 => f64::NAN,
        1 => -f64::NAN,
        2 => sign * f64::INFINITY,
        3 => sign * f64::MAX,
        4 => sign * 1e300,
        5 => sign * 5e-324,
        6 => sign * f64::MIN_POSITIVE / 8.0,
        7 => sign * 0.0,
        8..12 if any.is_finite() => any,
        12..20 => sign * (random.below(1 << 40) as f64) / 1e7,
        _ => random.below(80) as f64 / 4.0 - 10.0,
    }
}
