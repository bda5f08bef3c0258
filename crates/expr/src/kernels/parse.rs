//! Values from text, as Flink's CAST reads them. `None` means that the text is no such value.

use chrono_tz::Tz;

use super::datetime::{DAY_MS, days_from_civil, days_in_month, to_instant};
use super::decimal;

/// An integer: blanks around it, a sign, and a fraction that is cut off.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if digits.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value: i64 = 0;
    for byte in whole.bytes() {
        let digit = i64::from(char::from(byte).to_digit(10)?);
        // Counted downwards, because the smallest value has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// A double as Java reads it.
pub(crate) fn double(text: &str) -> Option<f64> {
    let text = text.trim();
    match text.trim_start_matches(['+', '-']) {
        "NaN" => return Some(f64::NAN),
        "Infinity" => {
            let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
            return Some(sign * f64::INFINITY);
        }
        _ => {}
    }
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let plain = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    if digits.bytes().all(plain) { digits.parse().ok() } else { None }
}

/// What a text says about a DECIMAL.
pub(crate) enum Decimal {
    /// The unscaled value.
    Fits(i128),
    /// A number with too many digits.
    Overflows,
}

/// A DECIMAL, rounded HALF_UP to the scale.
pub(crate) fn decimal(text: &str, precision: u8, scale: u8) -> Option<Decimal> {
    let text = text.trim();
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    // The digits that the scale keeps, and whether the first one beyond rounds up.
    let keep = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(scale);
    let mut digits = whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0'));
    let mut value: i128 = 0;
    for place in 0..keep.max(0) {
        let digit = digits.next().unwrap_or(0);
        let Some(next) = value.checked_mul(10).and_then(|v| v.checked_add(digit)) else {
            return Some(Decimal::Overflows);
        };
        value = next;
        if value == 0 && place > 100_000 {
            break;
        }
    }
    if keep >= 0 && digits.next().is_some_and(|digit| digit >= 5) {
        value += 1;
    }
    let value = if negative { -value } else { value };
    Some(if decimal::fits(value, precision) { Decimal::Fits(value) } else { Decimal::Overflows })
}

/// A truth value: t, true, y, yes, 1 and their opposites, in any case, without blanks around.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// Digits up to a separator or the end, and what follows.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 || end > 9 {
        return None;
    }
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn date_prefix(text: &str) -> Option<(i64, &str)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (year, rest) = number(text)?;
    let (month, rest) = match rest.strip_prefix('-') {
        Some(rest) => number(rest)?,
        None => (1, rest),
    };
    let (day, rest) = match rest.strip_prefix('-') {
        Some(rest) => number(rest)?,
        None => (1, rest),
    };
    let year = if negative { -i64::from(year) } else { i64::from(year) };
    let valid = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    valid.then(|| (days_from_civil(year, month, day), rest))
}

/// Days from 1970 to the year 10000.
const YEAR_10000: i64 = 2_932_897;

/// Days since 1970 of a date up to the year 9999; a time of day behind it is ignored.
pub(crate) fn date(text: &str) -> Option<i32> {
    // As in Flink, a blank at the start is no end of the date.
    let end = text.find(' ').filter(|&at| at > 0).unwrap_or(text.len());
    let text = text[..end].trim();
    let (days, rest) = date_prefix(text)?;
    let is_in_range = !text.starts_with('-') && days < YEAR_10000;
    if rest.is_empty() && is_in_range { i32::try_from(days).ok() } else { None }
}

/// Nanoseconds since midnight of `HH[:mm[:ss[.f…]]]`, and what follows.
fn time_prefix(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = number(text)?;
    let (minute, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest)?,
        None => (0, rest),
    };
    let (second, nanos, rest) = match rest.strip_prefix(':') {
        Some(rest) => {
            let (second, rest) = number(rest)?;
            let (nanos, rest) = rest.strip_prefix('.').map_or((0, rest), fraction_prefix);
            (second, nanos, rest)
        }
        None => (0, 0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second);
    Some((seconds * 1_000_000_000 + nanos, rest))
}

/// Nanoseconds of the digits behind a point, and what follows.
fn fraction_prefix(text: &str) -> (i64, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let mut nanos = 0;
    let mut unit = 100_000_000;
    for byte in text[..end].bytes() {
        nanos += i64::from(byte - b'0') * unit;
        unit /= 10;
    }
    (nanos, &text[end..])
}

/// Milliseconds since midnight.
pub(crate) fn time(text: &str) -> Option<i32> {
    let (nanos, rest) = time_prefix(text.trim())?;
    rest.is_empty().then_some((nanos / 1_000_000) as i32)
}

/// Days and nanoseconds of a wall clock reading, and what follows (a zone).
fn timestamp_prefix(text: &str) -> Option<(i64, i64, &str)> {
    let (days, rest) = date_prefix(text.trim())?;
    let Some(clock) = rest.strip_prefix([' ', 'T']) else { return Some((days, 0, rest)) };
    let (nanos, rest) = time_prefix(clock)?;
    Some((days, nanos, rest))
}

fn to_ticks(days: i64, nanos: i64, ticks_per_second: i64) -> Option<i64> {
    let nanos_per_tick = 1_000_000_000 / ticks_per_second;
    days.checked_mul(86_400)?.checked_mul(ticks_per_second)?.checked_add(nanos / nanos_per_tick)
}

/// The TIMESTAMP of a literal in ticks; digits beyond its unit are cut off.
pub(crate) fn timestamp_literal(text: &str, ticks_per_second: i64) -> Option<i64> {
    let (days, nanos, rest) = timestamp_prefix(text)?;
    if rest.is_empty() { to_ticks(days, nanos, ticks_per_second) } else { None }
}

/// One or two digits, and what follows.
fn one_or_two(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    Some((text.get(..digits)?.parse().ok()?, &text[digits..]))
}

/// Days and nanoseconds as CAST and TO_TIMESTAMP read them, `yyyy-MM-dd[ HH:mm:ss[.fffffffff]]`,
/// and what follows. As Java's `ResolverStyle.SMART`: a day that the month does not have is its
/// last, and 24:00:00 is midnight.
fn smart_prefix(text: &str) -> Option<(i64, i64, &str)> {
    let year = text.get(..4).filter(|year| year.bytes().all(|b| b.is_ascii_digit()))?;
    let year: i64 = year.parse().ok().filter(|year| *year > 0)?;
    let (month, rest) = one_or_two(text[4..].strip_prefix('-')?)?;
    let (day, rest) = one_or_two(rest.strip_prefix('-')?)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_from_civil(year, month, day.min(days_in_month(year, month)));
    let Some(clock) = rest.strip_prefix(' ') else { return Some((days, 0, rest)) };
    let (hour, rest) = one_or_two(clock)?;
    let (minute, rest) = one_or_two(rest.strip_prefix(':')?)?;
    let (second, rest) = one_or_two(rest.strip_prefix(':')?)?;
    let (nanos, tail) = rest.strip_prefix('.').map_or((0, rest), fraction_prefix);
    let is_midnight = (hour, minute, second, nanos) == (24, 0, 0, 0);
    if (hour > 23 && !is_midnight) || minute > 59 || second > 59 || rest.len() - tail.len() > 10 {
        return None;
    }
    let seconds = i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second);
    Some((days, seconds * 1_000_000_000 + nanos, tail))
}

/// A TIMESTAMP in ticks; digits beyond its unit are cut off.
pub(crate) fn timestamp(text: &str, ticks_per_second: i64) -> Option<i64> {
    let (days, nanos, rest) = smart_prefix(text)?;
    if rest.is_empty() { to_ticks(days, nanos, ticks_per_second) } else { None }
}

/// Milliseconds of `yyyy-MM-dd HH:mm:ss` as Java's `SimpleDateFormat` reads it, as UNIX_TIMESTAMP
/// and CONVERT_TZ do: any number of digits, fields beyond their ends move the next one, and what
/// follows is not read.
pub(crate) fn simple_timestamp(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut fields = [0i64; 6];
    for (field, separator) in fields.iter_mut().zip(["", "-", "-", " ", ":", ":"]) {
        let (value, tail) = number(rest.strip_prefix(separator)?.trim_start_matches([' ', '\t']))?;
        (*field, rest) = (value.into(), tail);
    }
    let [year, month, day, hour, minute, second] = fields;
    let months = year * 12 + month - 1;
    let first = days_from_civil(months.div_euclid(12), months.rem_euclid(12) as u32 + 1, 1);
    let clock = ((hour * 60 + minute) * 60 + second) * 1_000;
    (first + day - 1).checked_mul(DAY_MS)?.checked_add(clock)
}

/// An instant in ticks, read in a zone or as UTC where a `Z` follows.
pub(crate) fn timestamp_ltz(text: &str, ticks_per_second: i64, zone: Tz) -> Option<i64> {
    let (days, nanos, rest) = smart_prefix(text)?;
    let zone = match rest {
        "" => zone,
        "Z" => Tz::UTC,
        _ => return None,
    };
    let local_ms = days.checked_mul(DAY_MS)?.checked_add(nanos / 1_000_000)?;
    let instant_ms = to_instant(local_ms, zone);
    let below_ms = nanos % 1_000_000 / (1_000_000_000 / ticks_per_second);
    Some(instant_ms.checked_mul(ticks_per_second / 1_000)? + below_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_as_flink_reads_them() {
        let cases = [
            (" 12 ", Some(12)),
            ("1.9", Some(1)),
            ("-7.", Some(-7)),
            ("+3", Some(3)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("x", None),
            ("1.x", None),
            ("1e3", None),
            ("", None),
            ("-", None),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(text), expected, "{text:?}");
        }
    }

    #[test]
    fn decimals_round_half_up() {
        let cases = [
            ("1.555", 10, 2, Some(Some(156))),
            ("-0.005", 10, 2, Some(Some(-1))),
            ("1e2", 10, 2, Some(Some(10_000))),
            ("123456", 5, 0, Some(None)),
            ("0.04", 3, 1, Some(Some(0))),
            ("5e-1", 3, 0, Some(Some(1))),
            ("4e-2", 3, 0, Some(Some(0))),
            ("abc", 3, 0, None),
        ];
        for (text, precision, scale, expected) in cases {
            let got = decimal(text, precision, scale).map(|d| match d {
                Decimal::Fits(value) => Some(value),
                Decimal::Overflows => None,
            });
            assert_eq!(got, expected, "{text:?}");
        }
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(date("1970-01-02"), Some(1));
        assert_eq!(date("2026-02-30"), None);
        assert_eq!(date("1970-1-2 03:04:05"), Some(1));
        assert_eq!(time("01:02:03.5"), Some(3_723_500));
        assert_eq!(timestamp("1970-01-01 00:00:01.6789", 1_000), Some(1_678));
        assert_eq!(timestamp_literal("1970-01-01T00:00:01.6789", 1_000_000), Some(1_678_900));
        assert_eq!(timestamp("1970-1-1 0:0:1.6789", 1_000_000), Some(1_678_900));
        assert_eq!(timestamp("1970-01-01 24:00:00", 1_000), Some(DAY_MS));
        assert_eq!(timestamp("1970-02-30", 1_000), Some(58 * DAY_MS));
        for none in ["1", "1970-01-01T00:00:01", "1970-01-01 00:00", " 1970-01-01", "0000-01-01"] {
            assert_eq!(timestamp(none, 1_000), None, "{none}");
        }
        assert_eq!(time("1."), None);
        assert_eq!(simple_timestamp("1970-1-32 0:0:61.9 x"), Some(31 * DAY_MS + 61_000));
        assert_eq!(simple_timestamp("1970-01-01"), None);
        assert_eq!(timestamp("garbage", 1_000), None);
        let shanghai = Tz::Asia__Shanghai;
        assert_eq!(timestamp_ltz("1970-01-01 08:00:00", 1_000, shanghai), Some(0));
        assert_eq!(timestamp_ltz("1970-01-01 08:00:00Z", 1_000, shanghai), Some(28_800_000));
    }
}
