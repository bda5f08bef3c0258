//! ROUND, TRUNCATE, CEIL, FLOOR, ABS and SIGN, which keep the type of a number.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type,
};
use arrow_array::{Array, ArrayRef};
use thalweg_core::{DataType, Result};

use super::definition::{Call, Definition, Returns, custom, plain};
use super::time;
use crate::expr::{Expr, Scalar};
use crate::function::Arguments;
use crate::kernels::{decimal, parse};

pub(super) const DEFINITIONS: &[Definition] = &[
    custom("ROUND", "number int?", |call| round(call, true)),
    custom("TRUNCATE", "number int?", |call| round(call, false)),
    custom("CEIL", "any string?", |call| whole(call, true)),
    custom("CEILING", "any string?", |call| whole(call, true)),
    custom("FLOOR", "any string?", |call| whole(call, false)),
    plain("ABS", "number", Returns::First, absolute),
    plain("SIGN", "number", Returns::First, sign),
];

/// Each value, changed.
fn mapped<T: ArrowPrimitiveType>(
    array: &dyn Array,
    change: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    Arc::new(array.as_primitive::<T>().unary::<_, T>(change))
}

fn absolute(a: &Arguments<'_>) -> Result<ArrayRef> {
    let array = a.value(0).array();
    Ok(match a.result {
        DataType::TinyInt => mapped::<Int8Type>(array, i8::wrapping_abs),
        DataType::SmallInt => mapped::<Int16Type>(array, i16::wrapping_abs),
        DataType::Int => mapped::<Int32Type>(array, i32::wrapping_abs),
        DataType::BigInt => mapped::<Int64Type>(array, i64::wrapping_abs),
        DataType::Float => mapped::<Float32Type>(array, f32::abs),
        DataType::Decimal(precision, scale) => {
            return decimal::map(array, *precision, *scale, |v| Some(v.abs()));
        }
        _ => mapped::<Float64Type>(array, f64::abs),
    })
}

/// Java's Math.signum: a zero keeps its sign, NaN stays.
fn signum(x: f64) -> f64 {
    if x == 0.0 { x } else { x.signum() }
}

fn sign(a: &Arguments<'_>) -> Result<ArrayRef> {
    let array = a.value(0).array();
    Ok(match a.result {
        DataType::TinyInt => mapped::<Int8Type>(array, i8::signum),
        DataType::SmallInt => mapped::<Int16Type>(array, i16::signum),
        DataType::Int => mapped::<Int32Type>(array, i32::signum),
        DataType::BigInt => mapped::<Int64Type>(array, i64::signum),
        DataType::Float => mapped::<Float32Type>(array, |v| signum(v.into()) as f32),
        DataType::Decimal(precision, scale) => {
            let one = decimal::power_of_ten((*scale).into());
            return decimal::map(array, *precision, *scale, |v| {
                let signed = v.signum() * one;
                decimal::fits(signed, *precision).then_some(signed)
            });
        }
        _ => mapped::<Float64Type>(array, signum),
    })
}

/// CEIL and FLOOR of a number, or of a time to a unit.
fn whole(call: Call<'_>, up: bool) -> Result<Expr> {
    if call.args.len() > 1 {
        return time::round_to_unit(call, up);
    }
    let data_type = match call.arg_type(0) {
        DataType::Decimal(precision, _) => DataType::Decimal(*precision, 0),
        other if other.is_integer() => return Ok(call.args.into_iter().next().expect("one")),
        other if other.is_float() => other.clone(),
        other => return Err(call.error(format!("does not take {other}; a time needs a unit"))),
    };
    Ok(call.strict(data_type, move |a| whole_kernel(a, up)))
}

fn whole_kernel(a: &Arguments<'_>, up: bool) -> Result<ArrayRef> {
    let array = a.value(0).array();
    Ok(match a.result {
        DataType::Decimal(precision, _) => {
            let power = decimal::power_of_ten(decimal::scale_of(array).into());
            let round = |v: i128| {
                let floor = v.div_euclid(power);
                let above = i128::from(up && v.rem_euclid(power) != 0);
                decimal::fits(floor + above, *precision).then_some(floor + above)
            };
            return decimal::map(array, *precision, 0, round);
        }
        DataType::Float => mapped::<Float32Type>(array, if up { f32::ceil } else { f32::floor }),
        _ => mapped::<Float64Type>(array, if up { f64::ceil } else { f64::floor }),
    })
}

/// The type of ROUND and TRUNCATE of a DECIMAL to a literal number of places.
fn rounded_type(precision: u8, scale: u8, places: i64) -> DataType {
    let (precision, scale) = (i64::from(precision), i64::from(scale));
    if places >= scale {
        DataType::Decimal(precision as u8, scale as u8)
    } else if places < 0 {
        DataType::Decimal((1 + precision - scale).min(38) as u8, 0)
    } else {
        DataType::Decimal((1 + precision - scale + places) as u8, places as u8)
    }
}

fn round(call: Call<'_>, half_up: bool) -> Result<Expr> {
    let literal = match call.args.get(1).map(Expr::as_literal) {
        None => Some(0),
        Some(Some(Scalar::Integer(places))) => Some(*places),
        Some(_) => None,
    };
    let data_type = match (call.arg_type(0), literal) {
        (DataType::Decimal(precision, scale), Some(places)) => {
            rounded_type(*precision, *scale, places)
        }
        (other, _) => other.clone(),
    };
    Ok(call.strict(data_type, move |a| round_kernel(a, half_up)))
}

/// Rounds an unscaled value to `places` digits behind the point, keeping its scale.
fn round_unscaled(value: i128, scale: i64, places: i64, half_up: bool) -> i128 {
    let drop = scale - places;
    if drop <= 0 {
        return value;
    }
    if drop > 38 {
        return 0;
    }
    let power = decimal::power_of_ten(drop as u32);
    let kept = if half_up { decimal::divide_half_up(value, power) } else { value / power };
    kept * power
}

fn round_double(value: f64, places: i64, half_up: bool) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let wanted = places.clamp(0, 37) as u8;
    // Through the shortest text of the number, as Java's BigDecimal.valueOf does.
    match parse::decimal(&format!("{value}"), 38, 37.min(wanted + 18)) {
        Some(parse::Decimal::Fits(unscaled)) => {
            let scale = i64::from(37.min(wanted + 18));
            let rounded = round_unscaled(unscaled, scale, places, half_up);
            let mut text = String::new();
            crate::kernels::text::append_decimal(&mut text, rounded, scale as u8);
            text.parse().unwrap_or(value)
        }
        _ if places < 0 => {
            let power = 10f64.powi(places.unsigned_abs().min(400) as i32);
            let scaled = value / power;
            (if half_up { scaled.round() } else { scaled.trunc() }) * power
        }
        // Too large to have a fraction.
        _ => value,
    }
}

fn round_kernel(a: &Arguments<'_>, half_up: bool) -> Result<ArrayRef> {
    let places_arg = a.ints_or(1, 0);
    let places = |row: usize| places_arg.get(row).map(i64::from);
    let integer = |v: i64, p: i64| round_unscaled(v.into(), 0, p, half_up) as i64;
    macro_rules! integers {
        ($type:ty) => {{
            let x = a.numbers::<$type>(0);
            a.number_result::<$type>(|r| Some(integer(x.get(r)?.into(), places(r)?) as _))
        }};
    }
    match a.result {
        DataType::TinyInt => integers!(Int8Type),
        DataType::SmallInt => integers!(Int16Type),
        DataType::Int => integers!(Int32Type),
        DataType::BigInt => integers!(Int64Type),
        DataType::Float => {
            let x = a.numbers::<Float32Type>(0);
            a.number_result::<Float32Type>(|r| {
                let shortest: f64 = format!("{}", x.get(r)?).parse().ok()?;
                Some(round_double(shortest, places(r)?, half_up) as f32)
            })
        }
        DataType::Decimal(precision, scale) => {
            let from = decimal::scale_of(a.value(0).array());
            let x = a.numbers::<Decimal128Type>(0);
            let array = a.number_result::<Decimal128Type>(|r| {
                let rounded = round_unscaled(x.get(r)?, from.into(), places(r)?, half_up);
                decimal::rescale(rounded, from, *precision, *scale)
            })?;
            decimal::map(&array, *precision, *scale, Some)
        }
        _ => {
            let x = a.doubles(0);
            a.number_result::<Float64Type>(|r| Some(round_double(x.get(r)?, places(r)?, half_up)))
        }
    }
}
