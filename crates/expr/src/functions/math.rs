//! Mathematics on DOUBLE, and numbers as text.

use std::f64::consts;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{ArrayRef, Float64Array};
use thalweg_core::shim::mix64;
use thalweg_core::{DataType, Result};

use super::definition::{Call, Definition, Returns, custom, plain};
use crate::build::{arithmetic, implicit_cast};
use crate::expr::{ArithmeticOp, Expr};
use crate::function::Arguments;

pub(super) const DEFINITIONS: &[Definition] = &[
    plain("SQRT", "double", Returns::Double, |a| map(a, f64::sqrt)),
    plain("EXP", "double", Returns::Double, |a| map(a, f64::exp)),
    plain("LN", "double", Returns::Double, |a| map(a, f64::ln)),
    plain("LOG10", "double", Returns::Double, |a| map(a, f64::log10)),
    plain("LOG2", "double", Returns::Double, |a| map(a, |x| x.ln() / consts::LN_2)),
    plain("LOG", "double double?", Returns::Double, |a| match a.len() {
        1 => map(a, f64::ln),
        _ => map_two(a, |base, x| x.ln() / base.ln()),
    }),
    plain("SIN", "double", Returns::Double, |a| map(a, f64::sin)),
    plain("COS", "double", Returns::Double, |a| map(a, f64::cos)),
    plain("TAN", "double", Returns::Double, |a| map(a, f64::tan)),
    plain("COT", "double", Returns::Double, |a| map(a, |x| 1.0 / x.tan())),
    plain("ASIN", "double", Returns::Double, |a| map(a, f64::asin)),
    plain("ACOS", "double", Returns::Double, |a| map(a, f64::acos)),
    plain("ATAN", "double", Returns::Double, |a| map(a, f64::atan)),
    plain("ATAN2", "double double", Returns::Double, |a| map_two(a, f64::atan2)),
    plain("SINH", "double", Returns::Double, |a| map(a, f64::sinh)),
    plain("COSH", "double", Returns::Double, |a| map(a, f64::cosh)),
    plain("TANH", "double", Returns::Double, |a| map(a, f64::tanh)),
    plain("DEGREES", "double", Returns::Double, |a| map(a, f64::to_degrees)),
    plain("RADIANS", "double", Returns::Double, |a| map(a, f64::to_radians)),
    plain("POWER", "double double", Returns::Double, |a| map_two(a, power)),
    plain("PI", "", Returns::Double, |a| constant(a, consts::PI)),
    plain("E", "", Returns::Double, |a| constant(a, consts::E)),
    custom("MOD", "number number", |call| {
        let Call { mut args, session, .. } = call;
        let (left, right) = (args.remove(0), args.remove(0));
        arithmetic::build(ArithmeticOp::Modulo, left, right, session)
    }),
    plain("BIN", "bigint", Returns::Text, |a| {
        let n = a.bigints(0);
        a.text_result(|row, out| write!(out, "{:b}", n.get(row)?).ok())
    }),
    custom("HEX", "any", hex),
    custom("UUID", "", uuid),
    custom("RAND", "int?", rand),
    custom("RAND_INTEGER", "int int?", rand_integer),
];

fn map(a: &Arguments<'_>, function: impl Fn(f64) -> f64) -> Result<ArrayRef> {
    let array: &Float64Array = arrow_array::cast::AsArray::as_primitive(a.value(0).array());
    Ok(Arc::new(array.unary::<_, Float64Type>(function)))
}

fn map_two(a: &Arguments<'_>, function: impl Fn(f64, f64) -> f64) -> Result<ArrayRef> {
    let (x, y) = (a.doubles(0), a.doubles(1));
    a.number_result::<Float64Type>(|row| Some(function(x.get(row)?, y.get(row)?)))
}

/// Java's Math.pow: unlike C's, 1 to the power of NaN and ±1 to that of an infinity are NaN.
fn power(base: f64, exponent: f64) -> f64 {
    if exponent.is_nan() || (base.abs() == 1.0 && exponent.is_infinite()) {
        return f64::NAN;
    }
    base.powf(exponent)
}

fn constant(a: &Arguments<'_>, value: f64) -> Result<ArrayRef> {
    Ok(Arc::new(Float64Array::from_value(value, a.rows)))
}

/// Upper-case hexadecimal digits of a number, or of the bytes of a text.
fn hex(mut call: Call<'_>) -> Result<Expr> {
    if call.arg_type(0).is_string() {
        return Ok(call.strict(DataType::STRING, hex_of_text));
    }
    if !call.arg_type(0).is_integer() {
        return Err(call.error("takes a whole number or text"));
    }
    call.args = vec![implicit_cast(call.args.remove(0), &DataType::BigInt)];
    Ok(call.strict(DataType::STRING, |a| {
        let n = a.bigints(0);
        a.text_result(|row, out| write!(out, "{:X}", n.get(row)?).ok())
    }))
}

fn hex_of_text(a: &Arguments<'_>) -> Result<ArrayRef> {
    let s = a.texts(0);
    a.text_result(|row, out| s.get(row)?.bytes().try_for_each(|b| write!(out, "{b:02X}")).ok())
}

/// Numbers that differ from call to call. Not for secrets.
struct Random {
    state: AtomicU64,
}

impl Random {
    fn new() -> Self {
        // The address of a fresh allocation differs between expressions and runs.
        let place = Box::new(0u8);
        Random { state: AtomicU64::new(mix64(std::ptr::from_ref(&*place) as u64)) }
    }
    /// The next 64 bits; the clock keeps two runs apart.
    fn next(&self, wall_ms: i64) -> u64 {
        // Relaxed: each call needs a step of its own, no order between them.
        let step = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        mix64(step ^ (wall_ms as u64).rotate_left(32))
    }
}

/// A number in `[0, 1)` of 64 random bits.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn rand(call: Call<'_>) -> Result<Expr> {
    let random = Random::new();
    let seeded = !call.args.is_empty();
    let kernel = move |a: &Arguments<'_>| {
        let seeds = seeded.then(|| a.ints(0));
        a.number_result::<Float64Type>(|row| {
            let mut bits = random.next(if seeded { 0 } else { a.wall_ms });
            if let Some(seeds) = &seeds {
                bits ^= mix64(seeds.get(row)? as u64);
            }
            Some(unit(bits))
        })
    };
    let column_type = DataType::Double.nullable().with_nullable(call.nullable());
    Ok(call.with_function(column_type, kernel, |f| f.deterministic = false))
}

/// `RAND_INTEGER([seed,] bound)`
fn rand_integer(call: Call<'_>) -> Result<Expr> {
    let random = Random::new();
    let kernel = move |a: &Arguments<'_>| {
        let bounds = a.ints(a.len() - 1);
        a.number_result::<Int32Type>(|row| {
            let bound = bounds.get(row)?.max(1);
            Some((unit(random.next(a.wall_ms)) * f64::from(bound)) as i32)
        })
    };
    let column_type = DataType::Int.nullable().with_nullable(call.nullable());
    Ok(call.with_function(column_type, kernel, |f| f.deterministic = false))
}

fn uuid(call: Call<'_>) -> Result<Expr> {
    let random = Random::new();
    let kernel = move |a: &Arguments<'_>| {
        a.text_result(|_, out| {
            let (high, low) = (random.next(a.wall_ms), random.next(a.wall_ms));
            // Version 4, variant 1.
            let high = high & !0xF000 | 0x4000;
            let low = low >> 2 | 1 << 63;
            write!(
                out,
                "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                high >> 32,
                high >> 16 & 0xFFFF,
                high & 0xFFFF,
                low >> 48,
                low & 0xFFFF_FFFF_FFFF
            )
            .ok()
        })
    };
    let column_type = DataType::Char(36).not_null();
    Ok(call.with_function(column_type, kernel, |f| f.deterministic = false))
}
