//! Reading values from text: what the CSV and JSON readers and `CAST` accept.
//!
//! The forms are Flink's. Numbers follow Java (`Integer.parseInt`, `Double.parseDouble`,
//! `BigDecimal`); dates that the calendar does not have are refused, where Flink's CSV format moves
//! them to the month's last day.

use crate::calendar::{days_from_civil, days_in_month};
use crate::error::{Error, Result};

/// Numbers of at most this many digits fit 64 bits.
const DIGITS_OF_I64: usize = 18;
/// Numbers of at most this many digits are integers that a DOUBLE holds exactly.
const DIGITS_OF_F64: usize = 15;
const POWERS_OF_TEN: [f64; DIGITS_OF_F64 + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// `yyyy-MM-dd HH:mm:ss[.f]`, in the unit in which this precision is stored. More fraction digits
/// than the precision has are cut off. Spaces around the text are allowed.
///
/// ```
/// use thalweg_core::text::parse_timestamp;
/// assert_eq!(parse_timestamp("1970-01-01 00:00:01.5678", 3), Some(1_567));
/// assert_eq!(parse_timestamp("1970-01-01T00:00:01", 3), None);
/// ```
#[inline]
pub fn parse_timestamp(text: &str, precision: u8) -> Option<i64> {
    timestamp(text, precision, b' ')
}

/// The same in ISO 8601's form, with a `T` between date and time.
#[inline]
pub fn parse_timestamp_iso(text: &str, precision: u8) -> Option<i64> {
    timestamp(text, precision, b'T')
}

#[inline]
fn timestamp(text: &str, precision: u8, separator: u8) -> Option<i64> {
    let text = trim(text.as_bytes());
    if text.len() < 19 || text[10] != separator {
        return None;
    }
    let days = date(&text[..10])?;
    let seconds = days * 86_400 + clock(&text[11..19])?;
    let (per_second, digits) = match precision {
        0..=3 => (1_000i64, 3),
        4..=6 => (1_000_000, 6),
        _ => (1_000_000_000, 9),
    };
    let fraction = fraction(&text[19..], digits)?;
    let cut = match digits.saturating_sub(precision) {
        0 => fraction,
        cut => fraction - fraction % 10i64.pow(u32::from(cut)),
    };
    seconds.checked_mul(per_second)?.checked_add(cut)
}

/// `yyyy-MM-dd`, in days since 1970-01-01. Spaces around the text are allowed.
pub fn parse_date(text: &str) -> Option<i32> {
    date(trim(text.as_bytes())).map(|days| days as i32)
}

/// `HH:mm[:ss[.f]]`, in milliseconds since midnight, cut off to the precision.
pub fn parse_time(text: &str, precision: u8) -> Option<i32> {
    let text = trim(text.as_bytes());
    if text.len() == 5 {
        let minutes = [text, b":00"].concat();
        return clock(&minutes).map(|seconds| (seconds * 1_000) as i32);
    }
    if text.len() < 8 {
        return None;
    }
    let seconds = clock(&text[..8])?;
    let kept = 10i64.pow(u32::from(3 - precision.min(3)));
    let millis = fraction(&text[8..], 3)? / kept * kept;
    Some((seconds * 1_000 + millis) as i32)
}

/// A whole number as Java's `parseInt` takes it, with spaces around it allowed. `None` if it is
/// none or does not fit 64 bits.
#[inline]
pub fn parse_integer(text: &str) -> Option<i64> {
    let text = trim(text.as_bytes());
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 64 {
        return None;
    }
    if digits.len() > DIGITS_OF_I64 {
        return long_integer(negative, digits);
    }
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// An integer with more digits than surely fit 64 bits.
#[cold]
fn long_integer(negative: bool, digits: &[u8]) -> Option<i64> {
    // Negative numbers reach one further, so the sum is kept below zero.
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// A DOUBLE as Java's `parseDouble` takes it.
pub fn parse_double(text: &str) -> Option<f64> {
    short_double(text.as_bytes()).or_else(|| java_float(text)?.parse().ok())
}

/// Digits with a minus and a point at most, few enough that they and the power of ten are exact.
/// Then the quotient is rounded once, so it is the closest DOUBLE (Clinger, "How to Read Floating
/// Point Numbers Accurately", 1990).
#[inline]
fn short_double(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > DIGITS_OF_F64 + 1 {
        return None;
    }
    let (mut value, mut point) = (0u64, None);
    for (place, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value * 10 + u64::from(digit);
        } else if byte == b'.' && point.is_none() {
            point = Some(place);
        } else {
            return None;
        }
    }
    let decimals = point.map_or(0, |point| digits.len() - 1 - point);
    let count = digits.len() - usize::from(point.is_some());
    if count == 0 || count > DIGITS_OF_F64 {
        return None;
    }
    let value = value as f64 / POWERS_OF_TEN[decimals];
    Some(if negative { -value } else { value })
}

/// A FLOAT as Java's `parseFloat` takes it.
pub fn parse_float(text: &str) -> Option<f32> {
    java_float(text)?.parse().ok()
}

/// Checks the form, which Rust's parser takes a little wider (`inf`, `nan`), and removes Java's
/// type suffix.
fn java_float(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let digits = text.trim_start_matches(['+', '-']);
    if digits == "NaN" || digits == "Infinity" {
        return Some(text);
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    Some(text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text))
}

/// TRUE for `true` in any case, FALSE for everything else, as Java's `parseBoolean` does.
pub fn parse_boolean(text: &str) -> bool {
    text.trim_matches(|c: char| c <= ' ').eq_ignore_ascii_case("true")
}

/// A number as Java's `BigDecimal` takes it, rounded HALF_UP to the scale: its unscaled value, or
/// `None` if it has too many digits before the point. An error if the text is not a number.
///
/// ```
/// use thalweg_core::text::parse_decimal;
/// assert_eq!(parse_decimal("1.555", 10, 2).ok(), Some(Some(156)));
/// assert_eq!(parse_decimal("1e2", 10, 2).ok(), Some(Some(10_000)));
/// assert_eq!(parse_decimal("123456789012.5", 10, 2).ok(), Some(None));
/// assert!(parse_decimal(" 3 ", 10, 2).is_err());
/// ```
pub fn parse_decimal(text: &str, precision: u8, scale: u8) -> Result<Option<i128>> {
    let bad = || Error::data(format!("'{text}' is not a DECIMAL({precision},{scale})"));
    let number = Number::read(text.as_bytes()).ok_or_else(bad)?;
    Ok(number.at_scale(precision, scale))
}

/// A decimal number in parts.
struct Number<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Number<'a> {
    fn read(text: &'a [u8]) -> Option<Self> {
        let (negative, rest) = match text.first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let whole_len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (whole, rest) = rest.split_at(whole_len);
        let (fraction, rest) = match rest.first() {
            Some(b'.') => {
                let digits = rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
                (&rest[1..=digits], &rest[1 + digits..])
            }
            _ => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest.first() {
            None => 0,
            Some(b'e' | b'E') => exponent(&rest[1..])?,
            Some(_) => return None,
        };
        Some(Number { negative, whole, fraction, exponent })
    }

    /// The unscaled value, rounded HALF_UP; `None` if it has more digits than the precision.
    fn at_scale(&self, precision: u8, scale: u8) -> Option<i128> {
        let limit = 10i128.checked_pow(u32::from(precision.min(38)))?;
        // How many of the digits count: those before the point, as the exponent and scale move it.
        let kept = self.whole.len() as i64 + self.exponent + i64::from(scale);
        let mut value = 0i128;
        let mut seen = 0i64;
        let mut round_up = false;
        for byte in self.whole.iter().chain(self.fraction) {
            let digit = i128::from(byte - b'0');
            if seen >= kept {
                round_up = seen == kept && digit >= 5;
                break;
            }
            value = value.checked_mul(10)?.checked_add(digit)?;
            seen += 1;
        }
        if value != 0 {
            for _ in seen..kept {
                value = value.checked_mul(10)?;
            }
        }
        value += i128::from(round_up);
        (value < limit).then_some(if self.negative { -value } else { value })
    }
}

fn exponent(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || digits.len() > 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |sum, b| sum * 10 + i64::from(b - b'0'));
    Some(if text[0] == b'-' { -value } else { value })
}

fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| *b > b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|b| *b > b' ').map_or(start, |at| at + 1);
    &text[start..end]
}

#[inline]
fn two(text: &[u8], at: usize) -> Option<i64> {
    let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens) * 10 + i64::from(ones))
}

/// Days since 1970-01-01 of exactly `yyyy-MM-dd`.
fn date(text: &[u8]) -> Option<i64> {
    if text.len() != 10 || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let year = two(text, 0)? * 100 + two(text, 2)?;
    let (month, day) = (two(text, 5)? as u32, two(text, 8)? as u32);
    let is_date = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    is_date.then(|| days_from_civil(year, month, day))
}

/// Seconds since midnight of exactly `HH:mm:ss`.
fn clock(text: &[u8]) -> Option<i64> {
    if text[2] != b':' || text[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (two(text, 0)?, two(text, 3)?, two(text, 6)?);
    (hour < 24 && minute < 60 && second < 60).then(|| hour * 3_600 + minute * 60 + second)
}

/// `.f` with one to nine digits, or nothing, as a whole number of 10^-digits.
fn fraction(text: &[u8], digits: u8) -> Option<i64> {
    let Some(fraction) = text.strip_prefix(b".") else {
        return text.is_empty().then_some(0);
    };
    if fraction.is_empty() || fraction.len() > 9 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit_at = |i: usize| fraction.get(i).map_or(0, |b| i64::from(b - b'0'));
    Some((0..usize::from(digits)).fold(0, |sum, i| sum * 10 + digit_at(i)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::SplitMix64;

    #[test]
    fn timestamps_round_trip_and_bad_ones_are_refused() {
        for millis in (-4_000_000_000_000i64..4_000_000_000_000).step_by(86_399_977_771) {
            let text = crate::text::format_timestamp_millis(millis, 3);
            assert_eq!(parse_timestamp(&text, 3), Some(millis), "{text}");
        }
        assert_eq!(parse_timestamp("1970-01-01 00:00:00.123456789", 9), Some(123_456_789));
        assert_eq!(parse_timestamp("1970-01-01 00:00:00.9", 0), Some(0));
        for bad in [
            "",
            "2026-02-29 00:00:00",
            "2026-13-01 00:00:00",
            "2026-01-01 24:00:00",
            "2026-01-01 00:00",
            "2026-01-01 00:00:00.",
            "2026-01-01 00:00:00Z",
            "2026-01-01 00:00:00.1234567890",
            "26-01-01 00:00:00",
            "é026-01-01 00:00:0",
        ] {
            assert_eq!(parse_timestamp(bad, 3), None, "{bad}");
        }
        assert_eq!(parse_timestamp("2024-02-29 00:00:00", 3), Some(1_709_164_800_000));
    }

    #[test]
    fn times_cut_their_fraction() {
        assert_eq!(parse_time("10:11:12.9", 0), Some(36_672_000));
        assert_eq!(parse_time("10:11:12.9", 3), Some(36_672_900));
        assert_eq!(parse_time("10:11", 0), Some(36_660_000));
        assert_eq!(parse_time("1:11:12", 0), None);
    }

    #[test]
    fn integers_stop_at_their_limits() {
        assert_eq!(parse_integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_integer("9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_integer("9223372036854775808"), None);
        assert_eq!(parse_integer(" +12 "), Some(12));
        for bad in ["", "-", "1.0", "1e2", "x", "--1"] {
            assert_eq!(parse_integer(bad), None, "{bad}");
        }
    }

    /// Texts of digits, and of what else numbers are made of.
    fn numbers(random: &mut SplitMix64) -> String {
        const BYTES: &[u8] = b"0123456789012345678901234567890123456789.-+ eE,dx";
        let digits_only = random.below(2) == 0;
        let length = random.below(24);
        let mut text = String::new();
        if random.below(4) == 0 {
            text.push('-');
        }
        for _ in 0..length {
            let among = if digits_only { 10 } else { BYTES.len() as u64 };
            text.push(char::from(BYTES[random.below(among) as usize]));
        }
        if digits_only && random.below(2) == 0 {
            let at = random.below(text.len() as u64 + 1) as usize;
            text.insert(at, '.');
        }
        text
    }

    #[test]
    fn integers_are_those_that_rust_takes() {
        let mut random = SplitMix64::new(11);
        let mut taken = [0; 2];
        for _ in 0..100_000 {
            let text = numbers(&mut random);
            let number = parse_integer(&text);
            assert_eq!(number, text.trim_matches(' ').parse().ok(), "{text:?}");
            let is_long = text.len() > DIGITS_OF_I64 + 1;
            taken[usize::from(is_long)] += usize::from(number.is_some());
        }
        assert!(taken[0] > 1_000 && taken[1] > 100, "{taken:?} numbers");
    }

    #[test]
    fn short_doubles_are_read_as_all_are() {
        let mut random = SplitMix64::new(5);
        let mut doubles = 0;
        for _ in 0..200_000 {
            let text = numbers(&mut random);
            if let Some(value) = short_double(text.as_bytes()) {
                let all: Option<f64> = java_float(&text).and_then(|text| text.parse().ok());
                assert_eq!(all.map(f64::to_bits), Some(value.to_bits()), "{text}");
                doubles += 1;
            }
        }
        assert!(doubles > 20_000, "{doubles} short ones");
        for none in ["", "-", ".", "-.", "1234567890123456", "1.2.3", "+1", " 1", "1 "] {
            assert_eq!(short_double(none.as_bytes()), None, "{none}");
        }
        assert_eq!(short_double(b"-0").map(f64::to_bits), Some((-0.0f64).to_bits()));
    }

    #[test]
    fn decimals_round_half_up() {
        let cases = [
            ("-0.005", Some(-1)),
            ("1.545", Some(155)),
            ("0.0049", Some(0)),
            (".5", Some(50)),
            ("5.", Some(500)),
            ("1e-2", Some(1)),
            ("5e-3", Some(1)),
            ("4e-3", Some(0)),
            ("9e-9", Some(0)),
            ("0e999999999", Some(0)),
            ("1e999999999", None),
            ("99999999.994", Some(9_999_999_999)),
            ("99999999.995", None),
            ("00000000000000000000000000000000000000000001", Some(100)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_decimal(text, 10, 2).expect(text), expected, "{text}");
        }
        for bad in ["", ".", "e5", "1e", "1 ", "NaN", "1,5", "0x1"] {
            assert!(parse_decimal(bad, 10, 2).is_err(), "{bad}");
        }
    }

    #[test]
    fn floats_are_javas() {
        assert_eq!(parse_double(" 1.5d "), Some(1.5));
        assert_eq!(parse_double("-Infinity"), Some(f64::NEG_INFINITY));
        assert!(parse_double("NaN").is_some_and(f64::is_nan));
        for bad in ["", "inf", "nan", "infinity", "x", "--1", "+-NaN"] {
            assert_eq!(parse_double(bad), None, "{bad}");
        }
    }
}
