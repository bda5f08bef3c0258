//! Patterns of dates and times as in Java's `DateTimeFormatter`: `yyyy-MM-dd HH:mm:ss.SSS`.
//!
//! Letters: `y u M L d D H k h K m s S n a E e Q q w` for the fields, `x X Z z V` for the zone,
//! text in single quotes. Other letters are refused when the statement is planned.

use std::fmt::Write;

use chrono_tz::Tz;
use thalweg_core::{Error, Result};

use crate::kernels::datetime::{self, DAY_MS, TimeField, days_from_civil, days_in_month, extract};

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PatternPart {
    Text(String),
    /// A letter and how often it stands there.
    Field(char, usize),
    /// `[` and `]` around what a text may lack.
    OptionalStart,
    OptionalEnd,
}

/// A pattern, ready to print and parse.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    parts: Vec<PatternPart>,
}

/// A point on a wall clock: milliseconds, and nanoseconds below them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) ms: i64,
    pub(crate) nanos_below_ms: u32,
    /// The distance from UTC that a text named, in seconds.
    pub(crate) offset_seconds: Option<i64>,
}

impl Reading {
    /// A local time of whole milliseconds, without an offset.
    pub fn of_ms(ms: i64) -> Self {
        Reading { ms, nanos_below_ms: 0, offset_seconds: None }
    }
}

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Pattern> {
        let mut parts = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '\'' => parts.push(PatternPart::Text(quoted(&mut rest, text)?)),
                '[' => parts.push(PatternPart::OptionalStart),
                ']' => parts.push(PatternPart::OptionalEnd),
                c if c.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while rest.next_if_eq(&c).is_some() {
                        count += 1;
                    }
                    if !"GyYuMLwWdDEecaHkhKmsSnANQqxXZzV".contains(c) {
                        return Err(Error::plan(format!(
                            "the letter {c} in the time pattern '{text}' is not supported"
                        ))
                        .hint("for example yyyy-MM-dd HH:mm:ss.SSS"));
                    }
                    parts.push(PatternPart::Field(c, count));
                }
                c => match parts.last_mut() {
                    Some(PatternPart::Text(text)) => text.push(c),
                    _ => parts.push(PatternPart::Text(c.to_string())),
                },
            }
        }
        Ok(Pattern { parts })
    }

    /// Appends a wall clock reading of a zone.
    pub fn print(&self, out: &mut String, reading: Reading, zone: Tz) {
        for part in &self.parts {
            match part {
                PatternPart::Text(text) => out.push_str(text),
                PatternPart::Field(letter, count) => {
                    print_field(out, *letter, *count, reading, zone)
                }
                PatternPart::OptionalStart | PatternPart::OptionalEnd => {}
            }
        }
    }

    /// How many milliseconds a text lasts, counted from the start of 1970 on the wall clock:
    /// readings of one such span print the same.
    pub fn span_ms(&self) -> i64 {
        let of = |part: &PatternPart| match part {
            PatternPart::Field('H' | 'k' | 'K' | 'h' | 'a', _) => 3_600_000,
            PatternPart::Field('m', _) => 60_000,
            PatternPart::Field('s', _) => 1_000,
            // Zones have changed their distance from UTC at odd moments.
            PatternPart::Field('n' | 'A' | 'N' | 'S' | 'x' | 'X' | 'Z', _) => 1,
            _ => DAY_MS,
        };
        self.parts.iter().map(of).min().unwrap_or(DAY_MS)
    }

    pub(super) fn parts(&self) -> &[PatternPart] {
        &self.parts
    }

    /// Reads a whole text; `None` if it does not fit.
    pub fn read(&self, text: &str) -> Option<Reading> {
        let mut fields = Fields::default();
        let rest = read_parts(&self.parts, text, &mut fields)?;
        if rest.is_empty() { fields.resolve() } else { None }
    }
}

fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, pattern: &str) -> Result<String> {
    if rest.next_if_eq(&'\'').is_some() {
        return Ok("'".to_owned());
    }
    let mut text = String::new();
    loop {
        match rest.next() {
            Some('\'') if rest.next_if_eq(&'\'').is_some() => text.push('\''),
            Some('\'') => return Ok(text),
            Some(c) => text.push(c),
            None => {
                return Err(Error::plan(format!("the quote in '{pattern}' is not closed")));
            }
        }
    }
}

fn print_field(out: &mut String, letter: char, count: usize, reading: Reading, zone: Tz) {
    let ms = reading.ms;
    let of = |field: TimeField| extract(field, ms);
    let mut number = |value: i64, width: usize| {
        if value < 0 {
            out.push('-');
        }
        // Writing to a String can't fail.
        let _ = write!(out, "{:0width$}", value.unsigned_abs());
    };
    match letter {
        'y' | 'u' if count == 2 => number(of(TimeField::Year).rem_euclid(100), 2),
        'y' | 'u' => number(of(TimeField::Year), count),
        'M' | 'L' if count <= 2 => number(of(TimeField::Month), count),
        'd' => number(of(TimeField::Day), count),
        'D' => number(of(TimeField::DayOfYear), count),
        'H' => number(of(TimeField::Hour), count),
        'k' => number((of(TimeField::Hour) + 23) % 24 + 1, count),
        'K' => number(of(TimeField::Hour) % 12, count),
        'h' => number((of(TimeField::Hour) + 11) % 12 + 1, count),
        'm' => number(of(TimeField::Minute), count),
        's' => number(of(TimeField::Second), count),
        'Q' | 'q' if count > 2 => {
            let quarter = of(TimeField::Quarter);
            out.push_str(&match count {
                3 => format!("Q{quarter}"),
                4 => format!("{quarter}{} quarter", ["st", "nd", "rd", "th"][quarter as usize - 1]),
                _ => quarter.to_string(),
            });
        }
        'Q' | 'q' => number(of(TimeField::Quarter), count),
        'Y' if count == 2 => number(week_of_year(ms).0.rem_euclid(100), 2),
        'Y' => number(week_of_year(ms).0, count),
        'w' => number(week_of_year(ms).1, count),
        // The Saturday that ends the week, in sevens.
        'W' => number((of(TimeField::Day) + 6 - of(TimeField::DayOfWeek)) / 7 + 1, count),
        'A' => number(ms.rem_euclid(DAY_MS), count),
        'N' => number(ms.rem_euclid(DAY_MS) * 1_000_000 + i64::from(reading.nanos_below_ms), count),
        'e' | 'c' => number(of(TimeField::DayOfWeek), count),
        'n' => number(nanos(reading), count),
        'S' => {
            let digits = format!("{:09}", nanos(reading));
            out.push_str(&digits[..count.min(9)]);
        }
        'a' => out.push_str(if of(TimeField::Hour) < 12 { "AM" } else { "PM" }),
        'M' | 'L' => name(out, MONTHS[(of(TimeField::Month) - 1) as usize], count),
        'E' => name(out, DAYS[(of(TimeField::DayOfWeek) - 1) as usize], count),
        'G' => out.push_str(match (of(TimeField::Year) > 0, count) {
            (true, 4) => "Anno Domini",
            (true, 5) => "A",
            (true, _) => "AD",
            (false, 4) => "Before Christ",
            (false, 5) => "B",
            (false, _) => "BC",
        }),
        'V' | 'z' => out.push_str(zone.name()),
        _ => print_offset(out, letter, count, ms - datetime::to_instant(ms, zone)),
    }
}

/// The year and the week that a day belongs to: those of the Saturday that ends its week.
fn week_of_year(ms: i64) -> (i64, i64) {
    let saturday = ms + (7 - extract(TimeField::DayOfWeek, ms)) * DAY_MS;
    let day = extract(TimeField::DayOfYear, saturday);
    (extract(TimeField::Year, saturday), (day - 1) / 7 + 1)
}

fn nanos(reading: Reading) -> i64 {
    reading.ms.rem_euclid(1_000) * 1_000_000 + i64::from(reading.nanos_below_ms)
}

fn name(out: &mut String, full: &str, count: usize) {
    out.push_str(match count {
        4 => full,
        5 => &full[..1],
        _ => &full[..3],
    });
}

/// `X` writes Z for UTC; one letter hours, two `+0200`, three `+02:00`. `Z` is `+0200`.
fn print_offset(out: &mut String, letter: char, count: usize, offset_ms: i64) {
    let minutes = offset_ms / 60_000;
    if letter == 'X' && minutes == 0 {
        out.push('Z');
        return;
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
    out.push_str(&match (letter, count) {
        ('x' | 'X', 1) if rest == 0 => format!("{sign}{hours:02}"),
        ('x' | 'X', 3 | 5) => format!("{sign}{hours:02}:{rest:02}"),
        _ => format!("{sign}{hours:02}{rest:02}"),
    });
}

/// What a text said.
#[derive(Clone, Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: Option<i64>,
    half_day_hour: Option<i64>,
    afternoon: Option<bool>,
    minute: Option<i64>,
    second: Option<i64>,
    nanos: Option<i64>,
    offset_seconds: Option<i64>,
}

impl Fields {
    /// What is missing is 1970-01-01 00:00:00; a day beyond the month's end is its last.
    fn resolve(&self) -> Option<Reading> {
        let year = self.year.unwrap_or(1970);
        let month = self.month.unwrap_or(1);
        let day = self.day.unwrap_or(1);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year.abs() > 999_999_999 {
            return None;
        }
        let month = month as u32;
        let mut days = days_from_civil(year, month, (day as u32).min(days_in_month(year, month)));
        if let Some(day_of_year) = self.day_of_year {
            let day_of_year = Some(day_of_year).filter(|day| (1..=366).contains(day))?;
            days = days_from_civil(year, 1, 1) + day_of_year - 1;
        }
        let half_day = |hour: i64| hour % 12 + if self.afternoon == Some(true) { 12 } else { 0 };
        let hour = self.hour.or(self.half_day_hour.map(half_day)).unwrap_or(0);
        let (minute, second) = (self.minute.unwrap_or(0), self.second.unwrap_or(0));
        if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..60).contains(&second) {
            return None;
        }
        let nanos = self.nanos.unwrap_or(0);
        let seconds = hour * 3_600 + minute * 60 + second;
        Some(Reading {
            ms: days.checked_mul(DAY_MS)?.checked_add(seconds * 1_000 + nanos / 1_000_000)?,
            nanos_below_ms: (nanos % 1_000_000) as u32,
            offset_seconds: self.offset_seconds,
        })
    }
}

/// Reads the parts from the text and returns what is left of it.
fn read_parts<'t>(parts: &[PatternPart], text: &'t str, fields: &mut Fields) -> Option<&'t str> {
    let mut rest = text;
    let mut index = 0;
    while let Some(part) = parts.get(index) {
        index += 1;
        match part {
            PatternPart::Text(expected) => rest = rest.strip_prefix(expected.as_str())?,
            PatternPart::Field(letter, count) => {
                // Fields without a separator between them have exactly their width.
                let adjacent = matches!(parts.get(index), Some(PatternPart::Field(..)));
                rest = read_field(*letter, *count, adjacent, rest, fields)?;
            }
            PatternPart::OptionalStart => {
                let end = matching_end(parts, index);
                let mut attempt = fields.clone();
                if let Some(tail) = read_parts(&parts[index..end], rest, &mut attempt) {
                    *fields = attempt;
                    rest = tail;
                }
                index = end + 1;
            }
            PatternPart::OptionalEnd => {}
        }
    }
    Some(rest)
}

fn matching_end(parts: &[PatternPart], start: usize) -> usize {
    let mut depth = 1;
    for (index, part) in parts.iter().enumerate().skip(start) {
        match part {
            PatternPart::OptionalStart => depth += 1,
            PatternPart::OptionalEnd => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    parts.len()
}

fn read_field<'t>(
    letter: char,
    count: usize,
    adjacent: bool,
    text: &'t str,
    fields: &mut Fields,
) -> Option<&'t str> {
    match letter {
        'a' => {
            let (is_afternoon, rest) = read_half_day(text)?;
            fields.afternoon = Some(is_afternoon);
            return Some(rest);
        }
        'M' | 'L' if count > 2 => {
            let (index, rest) = read_name(&MONTHS, count, text)?;
            fields.month = Some(index as i64 + 1);
            return Some(rest);
        }
        'E' => return read_name(&DAYS, count, text).map(|(_, rest)| rest),
        'x' | 'X' | 'Z' => {
            let (offset, rest) = read_offset(text)?;
            fields.offset_seconds = Some(offset);
            return Some(rest);
        }
        'z' | 'V' | 'G' | 'Y' | 'w' | 'W' | 'c' | 'A' | 'N' => return None,
        _ => {}
    }
    let (negative, digits) = match (letter, text.strip_prefix('-')) {
        ('y' | 'u', Some(rest)) => (true, rest),
        _ => (false, text),
    };
    let widest = match letter {
        _ if adjacent || count == 2 || letter == 'S' => count,
        // A year of more digits than its pattern has needs a sign.
        'y' | 'u' if count >= 4 => count,
        'y' | 'u' | 'n' => 10,
        _ => count.max(2),
    };
    let have = digits.bytes().take_while(u8::is_ascii_digit).count().min(widest);
    if have < count.min(widest) {
        return None;
    }
    let value: i64 = digits[..have].parse().ok()?;
    store(letter, count, if negative { -value } else { value }, fields);
    Some(&digits[have..])
}

fn store(letter: char, count: usize, value: i64, fields: &mut Fields) {
    match letter {
        'y' | 'u' if count == 2 => fields.year = Some(2000 + value),
        'y' | 'u' => fields.year = Some(value),
        'M' | 'L' => fields.month = Some(value),
        'd' => fields.day = Some(value),
        'D' => fields.day_of_year = Some(value),
        'H' => fields.hour = Some(value),
        'k' => fields.hour = Some(value % 24),
        'h' | 'K' => fields.half_day_hour = Some(value),
        'm' => fields.minute = Some(value),
        's' => fields.second = Some(value),
        'S' => fields.nanos = Some(value * 10i64.pow(9 - count.min(9) as u32)),
        'n' => fields.nanos = Some(value),
        _ => {}
    }
}

fn read_name<'t>(names: &[&str], count: usize, text: &'t str) -> Option<(usize, &'t str)> {
    names.iter().enumerate().find_map(|(index, full)| {
        let name = if count == 4 { full } else { &full[..3] };
        let head = text.get(..name.len())?;
        head.eq_ignore_ascii_case(name).then(|| (index, &text[name.len()..]))
    })
}

/// Whether a text begins with PM, or AM, and what follows.
pub(super) fn read_half_day(text: &str) -> Option<(bool, &str)> {
    let half = text.get(..2)?;
    let is_afternoon = half.eq_ignore_ascii_case("PM");
    (is_afternoon || half.eq_ignore_ascii_case("AM")).then(|| (is_afternoon, &text[2..]))
}

pub(super) fn read_offset(text: &str) -> Option<(i64, &str)> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some((0, rest));
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours: i64 = text.get(1..3)?.parse().ok()?;
    let rest = &text[3..];
    let tail = rest.strip_prefix(':').unwrap_or(rest);
    match tail.get(..2).and_then(|minutes| minutes.parse::<i64>().ok()) {
        Some(minutes) => Some((sign * (hours * 3_600 + minutes * 60), &tail[2..])),
        None => Some((sign * hours * 3_600, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ms: i64) -> Reading {
        Reading { ms, nanos_below_ms: 0, offset_seconds: None }
    }

    #[test]
    fn prints_as_java_does() {
        // 2026-01-04 13:14:15.678, a Sunday
        let ms = days_from_civil(2026, 1, 4) * DAY_MS + 47_655_678;
        let cases = [
            ("yyyy-MM-dd HH:mm:ss.SSS", "2026-01-04 13:14:15.678"),
            ("yy/M/d h:mm a", "26/1/4 1:14 PM"),
            ("EEE, dd MMM yyyy", "Sun, 04 Jan 2026"),
            ("EEEE d MMMM", "Sunday 4 January"),
            ("yyyyMMdd'T'HHmmss", "20260104T131415"),
            ("D Q ''", "4 1 '"),
            ("HH:mmXXX", "13:14+01:00"),
            ("G GGGG YYYY-ww W", "AD Anno Domini 2026-02 2"),
            ("A N c", "47655678 47655678000000 1"),
            ("Q QQQ QQQQ", "1 Q1 1st quarter"),
        ];
        for (pattern, expected) in cases {
            let mut out = String::new();
            Pattern::parse(pattern).expect(pattern).print(
                &mut out,
                reading(ms),
                Tz::Europe__Berlin,
            );
            assert_eq!(out, expected, "{pattern}");
        }
    }

    #[test]
    fn a_text_lasts_as_long_as_its_finest_field() {
        let spans = [
            ("yyyy-MM-dd", DAY_MS),
            ("EEEE w Q D VV", DAY_MS),
            ("HH", 3_600_000),
            ("h a", 3_600_000),
            ("HH:mm", 60_000),
            ("mm:ss", 1_000),
            ("ss.SSS", 1),
            ("HH:mmXXX", 1),
        ];
        for (pattern, span_ms) in spans {
            let parsed = Pattern::parse(pattern).expect(pattern);
            assert_eq!(parsed.span_ms(), span_ms, "{pattern}");
            // Around the start of 1970, before which spans have negative numbers.
            let print = |ms: i64| {
                let mut out = String::new();
                parsed.print(&mut out, reading(ms), Tz::UTC);
                out
            };
            for start in [-span_ms, 0, span_ms] {
                assert_eq!(print(start), print(start + span_ms - 1), "{pattern}");
            }
        }
    }

    #[test]
    fn reads_what_it_prints() {
        let ms = days_from_civil(2026, 1, 4) * DAY_MS + 47_655_678;
        for pattern in ["yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMddHHmmssSSS", "d MMM yyyy hh:mm:ss.SSS a"]
        {
            let parsed = Pattern::parse(pattern).expect(pattern);
            let mut out = String::new();
            parsed.print(&mut out, reading(ms), Tz::UTC);
            assert_eq!(parsed.read(&out), Some(reading(ms)), "{pattern}: {out}");
        }
        let optional = Pattern::parse("yyyy-MM-dd[ HH:mm]").expect("a pattern");
        assert_eq!(optional.read("1970-01-02"), Some(reading(DAY_MS)));
        assert_eq!(optional.read("1970-01-02 00:01"), Some(reading(DAY_MS + 60_000)));
        assert_eq!(optional.read("1970-01-02 00"), None);
        let beyond = [
            ("yyyy-MM-dd", "9999999999-01-01"),
            ("yyyy-MM-dd", "10000-01-01"),
            ("yyyyyyyyyyyyyyyyyyyMM", "999999999999999999912"),
        ];
        for (pattern, text) in beyond.into_iter().chain([("yyyy D", "1970 9999999999999")]) {
            assert_eq!(Pattern::parse(pattern).expect(pattern).read(text), None, "{text}");
        }
        assert!(Pattern::parse("yyyy-MM-dd g").is_err());
    }
}
