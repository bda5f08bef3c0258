//! DECIMAL: exact, rounded HALF_UP to the result's scale, NULL where the result has too many
//! digits. Operands may have any precision and scale; the result's are decided by the caller.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::DataType as Arrow;
use thalweg_core::{DataType, Error, Result};

use super::arithmetic::{division_by_zero, row_by_row};
use crate::expr::ArithmeticOp;
use crate::function::Value;

/// 10 to the power of 0 to 38.
const POWERS: [i128; 39] = {
    let mut powers = [1i128; 39];
    let mut i = 1;
    while i < 39 {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// 10 to a power of at most 38.
pub(crate) fn power_of_ten(exponent: u32) -> i128 {
    POWERS[exponent as usize]
}

/// True if the unscaled value has at most this many digits.
#[inline]
pub(crate) fn fits(value: i128, precision: u8) -> bool {
    let bound = POWERS[usize::from(precision.min(38))];
    -bound < value && value < bound
}

/// Divides and rounds half away from zero.
#[inline]
pub(crate) fn divide_half_up(value: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (value / divisor, value % divisor);
    let half_or_more = remainder.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2);
    let sign = if (value < 0) == (divisor < 0) { 1 } else { -1 };
    quotient + if half_or_more { sign } else { 0 }
}

/// Changes the scale, rounding HALF_UP; `None` if the value does not fit the precision.
#[inline]
pub(crate) fn rescale(value: i128, from_scale: u8, precision: u8, scale: u8) -> Option<i128> {
    let scaled = if scale >= from_scale {
        value.checked_mul(power_of_ten(u32::from(scale - from_scale)))?
    } else {
        divide_half_up(value, power_of_ten(u32::from(from_scale - scale)))
    };
    fits(scaled, precision).then_some(scaled)
}

fn wide_power(exponent: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(exponent)
}

fn wide_divide_half_up(value: i256, divisor: i256) -> Option<i256> {
    let quotient = value.checked_div(divisor)?;
    let remainder = value.checked_rem(divisor)?;
    let twice = remainder.checked_abs()?.checked_mul(i256::from_i128(2))?;
    if twice < divisor.checked_abs()? {
        return Some(quotient);
    }
    let up = (value < i256::ZERO) == (divisor < i256::ZERO);
    quotient.checked_add(if up { i256::ONE } else { i256::MINUS_ONE })
}

fn wide_rescale(value: i256, from_scale: u32, precision: u8, scale: u8) -> Option<i128> {
    let scale = u32::from(scale);
    let scaled = if scale >= from_scale {
        value.checked_mul(wide_power(scale - from_scale)?)?
    } else {
        wide_divide_half_up(value, wide_power(from_scale - scale)?)?
    };
    scaled.to_i128().filter(|&value| fits(value, precision))
}

/// How two values of different scale compare.
pub(crate) fn order(a: i128, a_scale: u8, b: i128, b_scale: u8) -> std::cmp::Ordering {
    let common = a_scale.max(b_scale);
    // 38 digits shifted by at most 38 fit 76, and 256 bits hold those.
    let wide = |value: i128, scale: u8| {
        let power = i256::from_i128(power_of_ten(u32::from(common - scale)));
        i256::from_i128(value).wrapping_mul(power)
    };
    wide(a, a_scale).cmp(&wide(b, b_scale))
}

/// Scales of operands and the type of the result.
#[derive(Clone, Copy)]
struct Scales {
    left: u8,
    right: u8,
    precision: u8,
    scale: u8,
}

fn add(a: i128, b: i128, s: Scales) -> Option<i128> {
    let common = s.left.max(s.right);
    let narrow = || {
        let a = a.checked_mul(power_of_ten(u32::from(common - s.left)))?;
        let b = b.checked_mul(power_of_ten(u32::from(common - s.right)))?;
        a.checked_add(b)
    };
    match narrow() {
        Some(sum) => rescale(sum, common, s.precision, s.scale),
        None => {
            let a = i256::from_i128(a).checked_mul(wide_power(u32::from(common - s.left))?)?;
            let b = i256::from_i128(b).checked_mul(wide_power(u32::from(common - s.right))?)?;
            wide_rescale(a.checked_add(b)?, u32::from(common), s.precision, s.scale)
        }
    }
}

fn multiply(a: i128, b: i128, s: Scales) -> Option<i128> {
    let natural = s.left + s.right;
    if let (Some(product), true) = (a.checked_mul(b), natural <= s.scale + 38) {
        return rescale(product, natural, s.precision, s.scale);
    }
    let product = i256::from_i128(a).checked_mul(i256::from_i128(b))?;
    wide_rescale(product, u32::from(natural), s.precision, s.scale)
}

/// The divisor is not zero.
fn divide(a: i128, b: i128, s: Scales) -> Option<i128> {
    // a / 10^left / (b / 10^right), at the result's scale: shift a by scale - left + right digits.
    let shift = i32::from(s.scale) - i32::from(s.left) + i32::from(s.right);
    let power = (0..=38).contains(&shift).then(|| power_of_ten(shift.unsigned_abs()));
    if let Some(dividend) = power.and_then(|power| a.checked_mul(power)) {
        return Some(divide_half_up(dividend, b)).filter(|&q| fits(q, s.precision));
    }
    let (a, b) = (i256::from_i128(a), i256::from_i128(b));
    let power = wide_power(shift.unsigned_abs())?;
    let quotient = if shift >= 0 {
        wide_divide_half_up(a.checked_mul(power)?, b)?
    } else {
        wide_divide_half_up(a, b.checked_mul(power)?)?
    };
    quotient.to_i128().filter(|&q| fits(q, s.precision))
}

/// The divisor is not zero.
fn modulo(a: i128, b: i128, s: Scales) -> Option<i128> {
    let common = s.left.max(s.right);
    let a = i256::from_i128(a).checked_mul(wide_power(u32::from(common - s.left))?)?;
    let b = i256::from_i128(b).checked_mul(wide_power(u32::from(common - s.right))?)?;
    wide_rescale(a.checked_rem(b)?, u32::from(common), s.precision, s.scale)
}

pub(crate) fn scale_of(array: &dyn Array) -> u8 {
    match array.data_type() {
        Arrow::Decimal128(_, scale) => *scale as u8,
        _ => 0,
    }
}

/// `left op right` on DECIMAL columns.
pub(crate) fn arithmetic(
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    result: &DataType,
) -> Result<ArrayRef> {
    let DataType::Decimal(precision, scale) = *result else {
        return Err(Error::internal(format!("DECIMAL arithmetic with result {result}")));
    };
    let scales =
        Scales { left: scale_of(left.array()), right: scale_of(right.array()), precision, scale };
    match op {
        ArithmeticOp::Add => binary(left, right, scales, false, add),
        ArithmeticOp::Subtract => binary(left, right, scales, false, |a, b, s| add(a, -b, s)),
        ArithmeticOp::Multiply => binary(left, right, scales, false, multiply),
        ArithmeticOp::Divide => binary(left, right, scales, true, divide),
        ArithmeticOp::Modulo => binary(left, right, scales, true, modulo),
    }
}

fn binary(
    left: &Value,
    right: &Value,
    scales: Scales,
    is_division: bool,
    compute: impl Fn(i128, i128, Scales) -> Option<i128>,
) -> Result<ArrayRef> {
    let array = row_by_row::<Decimal128Type>(left, right, |x, y| match is_division && y == 0 {
        true => Err(division_by_zero()),
        false => Ok(compute(x, y, scales)),
    })?;
    Ok(Arc::new(array.with_precision_and_scale(scales.precision, scales.scale as i8)?))
}

/// Applies a function to every value of a DECIMAL column, NULL where it yields none.
pub(crate) fn map(
    array: &dyn Array,
    precision: u8,
    scale: u8,
    compute: impl Fn(i128) -> Option<i128>,
) -> Result<ArrayRef> {
    let array = array.as_primitive::<Decimal128Type>();
    let mapped: PrimitiveArray<Decimal128Type> = array.unary_opt(compute);
    Ok(Arc::new(mapped.with_precision_and_scale(precision, scale as i8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_half_away_from_zero() {
        let cases = [(5, 2, 3), (-5, 2, -3), (4, 3, 1), (-4, 3, -1), (5, 3, 2), (0, 7, 0)];
        for (value, divisor, expected) in cases {
            assert_eq!(divide_half_up(value, divisor), expected, "{value} / {divisor}");
        }
        assert_eq!(divide_half_up(5, -2), -3);
    }

    /// The short path through 128 bits and the long one through 256 must agree.
    #[test]
    fn narrow_and_wide_paths_agree() {
        let mut random = thalweg_core::shim::SplitMix64::new(11);
        for _ in 0..20_000 {
            let a = random.next_u64() as i64 as i128 >> random.below(60);
            let b = random.next_u64() as i64 as i128 >> random.below(60);
            let s = Scales {
                left: random.below(10) as u8,
                right: random.below(10) as u8,
                precision: 38,
                scale: random.below(12) as u8,
            };
            let natural = u32::from(s.left + s.right);
            let wide = i256::from_i128(a).wrapping_mul(i256::from_i128(b));
            assert_eq!(multiply(a, b, s), wide_rescale(wide, natural, s.precision, s.scale));
            if b != 0 {
                // |q * b - a * 10^shift| <= |b| / 2 defines the rounded quotient.
                let q = divide(a, b, s).expect("fits 38 digits");
                let shift = i32::from(s.scale) - i32::from(s.left) + i32::from(s.right);
                let ten = |n: i32| wide_power(n.max(0) as u32).expect("small");
                let exact = i256::from_i128(a).wrapping_mul(ten(shift));
                let divisor = i256::from_i128(b).wrapping_mul(ten(-shift));
                let error = i256::from_i128(q).wrapping_mul(divisor).wrapping_sub(exact);
                let twice = error.wrapping_abs().wrapping_mul(i256::from_i128(2));
                assert!(twice <= divisor.wrapping_abs(), "{a} / {b} at {shift}: {q}");
            }
        }
    }
}
