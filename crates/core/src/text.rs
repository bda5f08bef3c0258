//! The text form of values, as golden cases, CSV output and `CAST(… AS STRING)` show them, and the
//! way back.
//!
//! Timestamps show exactly as many fraction digits as their precision says, DECIMAL exactly its
//! scale, booleans are TRUE and FALSE, and doubles print as Java's `Double.toString` does
//! (`1.0E7`), because that is what Flink shows. [`TextColumn`] resolves the Arrow type once per
//! column, so that writing a value costs no downcast; [`append_value`] is for single values.
//!
//! Quoting is not done here: it belongs to the format that is written.

mod column;
mod parse;

use std::borrow::Cow;
use std::fmt::LowerExp;

use crate::calendar::civil_from_days;

pub use column::{TextColumn, append_value};
pub use parse::{
    parse_boolean, parse_date, parse_decimal, parse_double, parse_float, parse_integer, parse_time,
    parse_timestamp, parse_timestamp_iso,
};

/// The text with its control characters as a terminal can show them, but for line ends and tabs: a
/// value must not control a terminal.
///
/// ```
/// use thalweg_core::text::without_controls;
/// assert_eq!(without_controls("\x1b[31mred\n"), "\\u{1b}[31mred\n");
/// ```
pub fn without_controls(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let show = |c: char| if is_control(c) { c.escape_default().collect() } else { c.to_string() };
    Cow::Owned(text.chars().map(show).collect())
}

/// `yyyy-MM-dd HH:mm:ss` with this many fraction digits (0 to 3), in UTC or as a wall clock.
///
/// ```
/// use thalweg_core::text::format_timestamp_millis;
/// assert_eq!(format_timestamp_millis(1_500, 3), "1970-01-01 00:00:01.500");
/// assert_eq!(format_timestamp_millis(-1, 0), "1969-12-31 23:59:59");
/// ```
pub fn format_timestamp_millis(millis: i64, precision: u8) -> String {
    let mut text = String::with_capacity(24);
    append_timestamp(&mut text, millis, precision.min(3));
    text
}

/// Appends a DOUBLE as Java's `Double.toString` writes it.
///
/// ```
/// let mut text = String::new();
/// thalweg_core::text::append_double(&mut text, 0.1 + 0.2);
/// assert_eq!(text, "0.30000000000000004");
/// ```
pub fn append_double(out: &mut String, value: f64) {
    if append_special(out, value) {
        return;
    }
    if value.fract() == 0.0 && value.abs() < 1e7 {
        if value.is_sign_negative() {
            out.push('-');
        }
        append_unsigned(out, value.abs() as u64, 1);
        out.push_str(".0");
        return;
    }
    if !append_short_fraction(out, value) {
        append_shortest(out, value);
    }
}

fn append_shortest(out: &mut String, value: impl LowerExp) {
    let shortest = format!("{value:e}");
    // Java shows at least two digits and takes the closest decimal of that length.
    let one_digit = !shortest.contains('.');
    append_scientific(out, &if one_digit { format!("{value:.1e}") } else { shortest });
}

/// Appends a number from 1e-3 to 1e7 that has at most four digits behind its point, such as a
/// price, in a fraction of the time that the general way takes. False if it is not one.
///
/// If `value` is the double nearest to n / 10^k, then that decimal reads as `value`. No two
/// decimals of at most 15 digits read as the same double, so it is the shortest one.
fn append_short_fraction(out: &mut String, value: f64) -> bool {
    let magnitude = value.abs();
    if !(1e-3..1e7).contains(&magnitude) {
        return false;
    }
    let mut scale = 10.0;
    for digits in 1..=4 {
        // Exact: below 2^53, and a division is rounded correctly.
        let scaled = (magnitude * scale).round();
        if scaled / scale == magnitude {
            let (scaled, scale) = (scaled as u64, scale as u64);
            if value < 0.0 {
                out.push('-');
            }
            append_unsigned(out, scaled / scale, 1);
            out.push('.');
            append_unsigned(out, scaled % scale, digits);
            return true;
        }
        scale *= 10.0;
    }
    false
}

/// Appends a FLOAT as Java's `Float.toString` writes it.
pub fn append_float(out: &mut String, value: f32) {
    if !append_special(out, f64::from(value)) {
        append_shortest(out, value);
    }
}

fn append_special(out: &mut String, value: f64) -> bool {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        return false;
    }
    true
}

/// Turns Rust's `d.ddde±x` into Java's plain form between 1e-3 and 1e7 and its `d.dddE±x` outside.
fn append_scientific(out: &mut String, text: &str) {
    let (mantissa, exponent) = text.split_once('e').expect("scientific notation");
    let exponent: i32 = exponent.parse().expect("a small exponent");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    out.push_str(sign);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_zero = whole == "0" && fraction.bytes().all(|b| b == b'0');
    if is_zero {
        out.push_str("0.0");
    } else if (-3..0).contains(&exponent) {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        out.push_str(whole);
        out.push_str(fraction.trim_end_matches('0'));
    } else if (0..7).contains(&exponent) {
        let digits = exponent as usize;
        out.push_str(whole);
        if fraction.len() > digits {
            out.push_str(&fraction[..digits]);
            out.push('.');
            let rest = fraction[digits..].trim_end_matches('0');
            out.push_str(if rest.is_empty() { "0" } else { rest });
        } else {
            out.push_str(fraction);
            (fraction.len()..digits).for_each(|_| out.push('0'));
            out.push_str(".0");
        }
    } else {
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
        out.push('E');
        out.push_str(&exponent.to_string());
    }
}

/// Appends a timestamp, given in the unit in which its precision is stored (milliseconds up to 3,
/// microseconds up to 6, nanoseconds up to 9), with exactly `precision` fraction digits.
pub fn append_timestamp(out: &mut String, value: i64, precision: u8) {
    let (per_second, stored_digits) = match precision {
        0..=3 => (1_000, 3),
        4..=6 => (1_000_000, 6),
        _ => (1_000_000_000, 9),
    };
    let seconds = value.div_euclid(per_second);
    let fraction = value.rem_euclid(per_second) as u64;
    append_date_days(out, seconds.div_euclid(86_400));
    out.push(' ');
    append_clock(out, seconds.rem_euclid(86_400) as u64);
    append_fraction(out, fraction, stored_digits, precision);
}

/// Appends a DATE, given in days since 1970-01-01.
pub fn append_date(out: &mut String, days: i32) {
    append_date_days(out, i64::from(days));
}

/// Appends a TIME, given in milliseconds since midnight.
pub fn append_time(out: &mut String, millis: i32, precision: u8) {
    let millis = u64::from(millis.unsigned_abs());
    append_clock(out, millis / 1_000);
    append_fraction(out, millis % 1_000, 3, precision);
}

/// Appends a DECIMAL, given as its unscaled value.
pub fn append_decimal(out: &mut String, unscaled: i128, scale: u8) {
    if unscaled < 0 {
        out.push('-');
    }
    let magnitude = unscaled.unsigned_abs();
    let scale = u32::from(scale.min(38));
    let unit = 10u128.pow(scale);
    let (whole, fraction) = match (u64::try_from(magnitude), u64::try_from(unit)) {
        (Ok(magnitude), Ok(unit)) => ((magnitude / unit).into(), (magnitude % unit).into()),
        _ => (magnitude / unit, magnitude % unit),
    };
    append_unsigned(out, whole, 1);
    if scale > 0 {
        out.push('.');
        append_unsigned(out, fraction, scale as usize);
    }
}

/// Appends `x'6162'`.
pub fn append_binary(out: &mut String, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push_str("x'");
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
    out.push('\'');
}

/// Appends an integer.
#[inline]
pub fn append_integer(out: &mut String, value: i64) {
    if value < 0 {
        out.push('-');
    }
    append_unsigned(out, value.unsigned_abs(), 1);
}

/// Appends `TRUE` or `FALSE`.
#[inline]
pub fn append_boolean(out: &mut String, value: bool) {
    out.push_str(if value { "TRUE" } else { "FALSE" });
}

fn append_date_days(out: &mut String, days: i64) {
    let (year, month, day) = civil_from_days(days);
    if year < 0 {
        out.push('-');
    }
    append_unsigned(out, year.unsigned_abs(), 4);
    out.push('-');
    append_unsigned(out, month, 2);
    out.push('-');
    append_unsigned(out, day, 2);
}

fn append_clock(out: &mut String, seconds: u64) {
    append_unsigned(out, seconds / 3_600, 2);
    out.push(':');
    append_unsigned(out, seconds / 60 % 60, 2);
    out.push(':');
    append_unsigned(out, seconds % 60, 2);
}

/// Appends `.fff` with `precision` digits of a fraction that has `stored_digits`.
fn append_fraction(out: &mut String, fraction: u64, stored_digits: u8, precision: u8) {
    if precision == 0 {
        return;
    }
    let precision = precision.min(9);
    let shown = if precision <= stored_digits {
        fraction / 10u64.pow(u32::from(stored_digits - precision))
    } else {
        fraction * 10u64.pow(u32::from(precision - stored_digits))
    };
    out.push('.');
    append_unsigned(out, shown, usize::from(precision));
}

/// Appends digits, with zeros in front up to `width` (at most 20).
fn append_unsigned(out: &mut String, value: impl itoa::Integer, width: usize) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value);
    (digits.len()..width).for_each(|_| out.push('0'));
    out.push_str(digits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::SplitMix64;

    #[test]
    fn doubles_print_as_java_does() {
        // Expected texts are those of Double.toString (JDK 19 and later).
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.5, "9999999.5"),
            (12_345_678.9, "1.23456789E7"),
            (0.001, "0.001"),
            (0.012, "0.012"),
            (0.000_999, "9.99E-4"),
            (0.1 + 0.2, "0.30000000000000004"),
            (2e23, "2.0E23"),
            (f64::from_bits(1), "4.9E-324"),
            (f64::MAX, "1.7976931348623157E308"),
            (123_456.789, "123456.789"),
            (1_234_567.0, "1234567.0"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in cases {
            let mut out = String::new();
            append_double(&mut out, value);
            assert_eq!(out, text);
        }
    }

    /// The short way and the general one agree.
    #[test]
    fn prices_print_as_any_double_does() {
        let mut random = SplitMix64::new(1);
        for _ in 0..200_000 {
            let scale = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6][random.below(7) as usize];
            let bound = 1 << (1 + random.below(40));
            let nearest = random.below(bound) as f64 / scale;
            let value = [nearest, nearest.next_up(), -nearest][random.below(3) as usize];
            let (mut text, mut general) = (String::new(), String::new());
            append_double(&mut text, value);
            append_shortest(&mut general, value);
            assert_eq!(text, general);
            assert_eq!(text.parse(), Ok(value));
        }
    }

    #[test]
    fn floats_print_as_java_does() {
        let cases = [
            (0.1f32, "0.1"),
            (1e10, "1.0E10"),
            (f32::from_bits(1), "1.4E-45"),
            (3.402_823_5e38, "3.4028235E38"),
            (16_777_216.0, "1.6777216E7"),
            (-0.0, "-0.0"),
            (100.0, "100.0"),
        ];
        for (value, text) in cases {
            let mut out = String::new();
            append_float(&mut out, value);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn a_time_before_1970_counts_its_fraction_forwards() {
        let mut text = String::new();
        append_timestamp(&mut text, -1, 9);
        assert_eq!(text, "1969-12-31 23:59:59.999999999");
    }

    #[test]
    fn decimals_show_their_scale() {
        let cases = [
            (150, 2, "1.50"),
            (-1, 2, "-0.01"),
            (0, 3, "0.000"),
            (7, 0, "7"),
            (
                99_999_999_999_999_999_999_999_999_999_999_999_999,
                37,
                "9.9999999999999999999999999999999999999",
            ),
            (5, 38, "0.00000000000000000000000000000000000005"),
        ];
        for (unscaled, scale, expected) in cases {
            let mut text = String::new();
            append_decimal(&mut text, unscaled, scale);
            assert_eq!(text, expected);
        }
    }
}
