//! Texts as Java's `SimpleDateFormat` reads them by a pattern, which TO_DATE and UNIX_TIMESTAMP do:
//! numbers have any number of digits, fields beyond their ends move the next one, and what follows
//! is not read. And texts as `java.sql.Timestamp` and `java.sql.Date` read them.

use super::pattern::{DAYS, MONTHS, Pattern, PatternPart, Reading, read_half_day, read_offset};
use crate::kernels::datetime::{DAY_MS, days_from_civil};

#[derive(Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    is_afternoon: bool,
    minute: i64,
    second: i64,
    millisecond: i64,
    offset_seconds: Option<i64>,
}

/// The reading of a text; `None` if it does not begin as the pattern says.
pub(super) fn read(pattern: &Pattern, text: &str) -> Option<Reading> {
    let parts = pattern.parts();
    let mut fields = Fields::default();
    let mut rest = text;
    for (index, part) in parts.iter().enumerate() {
        rest = match part {
            PatternPart::Text(expected) => rest.strip_prefix(expected.as_str())?,
            PatternPart::OptionalStart => rest.strip_prefix('[')?,
            PatternPart::OptionalEnd => rest.strip_prefix(']')?,
            PatternPart::Field(letter, count) => {
                let next = parts.get(index + 1);
                let adjacent = matches!(next, Some(PatternPart::Field(..)));
                fields.read(*letter, *count, adjacent, rest)?
            }
        };
    }
    fields.resolve()
}

impl Fields {
    fn read<'t>(
        &mut self,
        letter: char,
        count: usize,
        adjacent: bool,
        text: &'t str,
    ) -> Option<&'t str> {
        let text = text.trim_start_matches([' ', '\t']);
        match letter {
            'a' => {
                let (is_afternoon, rest) = read_half_day(text)?;
                self.is_afternoon = is_afternoon;
                return Some(rest);
            }
            'M' | 'L' if count > 2 => {
                let (index, rest) = name(&MONTHS, text)?;
                self.month = Some(index + 1);
                return Some(rest);
            }
            'E' => return name(&DAYS, text).map(|(_, rest)| rest),
            'x' | 'X' | 'Z' | 'z' => {
                let named = text.strip_prefix("UTC").or_else(|| text.strip_prefix("GMT"));
                let offset = match named {
                    Some(rest) if !rest.starts_with(['+', '-']) => (0, rest),
                    named => read_offset(named.unwrap_or(text))?,
                };
                self.offset_seconds = Some(offset.0);
                return Some(offset.1);
            }
            _ => {}
        }
        // Numbers without a separator between them have exactly their width.
        let longest = if adjacent { count } else { 9 };
        let digits = text.bytes().take_while(u8::is_ascii_digit).take(longest).count();
        let value: i64 = text[..digits].parse().ok()?;
        match letter {
            'y' if count <= 2 && digits == 2 => self.year = Some(year_of_two_digits(value)),
            'y' => self.year = Some(value),
            'M' | 'L' => self.month = Some(value),
            'd' => self.day = Some(value),
            'D' => self.day_of_year = Some(value),
            'H' => self.hour = value,
            'k' => self.hour = value % 24,
            'h' | 'K' => self.hour = value % 12,
            'm' => self.minute = value,
            's' => self.second = value,
            'S' => self.millisecond = value,
            _ => return None,
        }
        Some(&text[digits..])
    }

    fn resolve(&self) -> Option<Reading> {
        let hour = self.hour + if self.is_afternoon { 12 } else { 0 };
        let clock = ((hour * 60 + self.minute) * 60 + self.second) * 1_000 + self.millisecond;
        let year = self.year.unwrap_or(1970);
        let days = match (self.month, self.day, self.day_of_year) {
            (None, None, Some(day)) => lenient_days(year, 1, day)?,
            (month, day, _) => lenient_days(year, month.unwrap_or(1), day.unwrap_or(1))?,
        };
        let ms = days.checked_mul(DAY_MS)?.checked_add(clock)?;
        Some(Reading { offset_seconds: self.offset_seconds, ..Reading::of_ms(ms) })
    }
}

/// From 1946 to 2045. Java's hundred years end 20 years from today; here they do not move, so that
/// a query has the same result next year.
fn year_of_two_digits(value: i64) -> i64 {
    value + if value > 45 { 1900 } else { 2000 }
}

/// The index of a name, long or short, at the start of a text.
fn name<'t>(names: &[&str], text: &'t str) -> Option<(i64, &'t str)> {
    let at_start =
        |name: &str| text.get(..name.len()).is_some_and(|t| t.eq_ignore_ascii_case(name));
    let lengths =
        |full: &str| [full.len(), 3].into_iter().find(|length| at_start(&full[..*length]));
    let mut found = names.iter().enumerate();
    found.find_map(|(index, full)| Some((index as i64, &text[lengths(full)?..])))
}

/// Days since 1970, where months and days beyond their ends move the next field.
fn lenient_days(year: i64, month: i64, day: i64) -> Option<i64> {
    let months = year.checked_mul(12)?.checked_add(month - 1)?;
    let first = days_from_civil(months.div_euclid(12), months.rem_euclid(12) as u32 + 1, 1);
    first.checked_add(day - 1)
}

/// Days of `yyyy-[m]m-[d]d` as `java.sql.Date` reads it: each month may have 31 days.
fn sql_days(text: &str) -> Option<i64> {
    let [year, month, day] = text.splitn(3, '-').collect::<Vec<_>>().try_into().ok()?;
    if year.len() != 4 || !(1..=2).contains(&month.len()) || !(1..=2).contains(&day.len()) {
        return None;
    }
    let [year, month, day] = [year, month, day].map(|digits| digits.parse::<i64>().ok());
    let (month, day) = (month?, day?);
    let is_day = (1..=12).contains(&month) && (1..=31).contains(&day);
    is_day.then(|| lenient_days(year?, month, day))?
}

/// What Flink falls back to where a text does not fit a pattern of TO_TIMESTAMP: a
/// `java.sql.Timestamp`, `yyyy-[m]m-[d]d hh:mm:ss[.f…]`, or a date alone.
pub(super) fn read_sql(text: &str) -> Option<Reading> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let Some((date, clock)) = text.split_once(' ') else {
        return Some(Reading::of_ms(sql_days(text)?.checked_mul(DAY_MS)?));
    };
    let [hour, minute, second] = clock.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = |digits: &str| digits.parse::<i32>().ok().map(i64::from);
    let seconds = (number(hour)? * 60 + number(minute)?) * 60 + number(second)?;
    let nanos = fraction.parse::<i64>().ok()? * 10i64.pow(9 - fraction.len() as u32);
    let ms =
        sql_days(date)?.checked_mul(DAY_MS)?.checked_add(seconds * 1_000 + nanos / 1_000_000)?;
    Some(Reading { nanos_below_ms: (nanos % 1_000_000) as u32, ..Reading::of_ms(ms) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_by_simple_date_format() {
        let day = |year, month, day| lenient_days(year, month, day).map(|days| days * DAY_MS);
        let cases = [
            ("1999-2-8", "yyyy-MM-dd", day(1999, 2, 8)),
            ("1999-02-30", "yyyy-MM-dd", day(1999, 3, 2)),
            ("1999-14-01 x", "yyyy-MM-dd", day(2000, 2, 1)),
            (" 1999- 02-28", "yyyy-MM-dd", day(1999, 2, 28)),
            ("1999228", "yyyyMMdd", day(2000, 10, 8)),
            ("28/feb/1999", "dd/MMM/yyyy", day(1999, 2, 28)),
            ("1/1/99", "M/d/yy", day(1999, 1, 1)),
            ("1/1/1999", "M/d/yy", day(1999, 1, 1)),
            ("060", "DDD", day(1970, 3, 1)),
            ("10:11 PM", "hh:mm a", Some(79_860_000)),
            ("0:0:0.5", "H:m:s.SSS", Some(5)),
            ("x", "yyyy", None),
            ("1999", "yyyy-MM", None),
        ];
        for (text, pattern, expected) in cases {
            let pattern = Pattern::parse(pattern).expect(pattern);
            assert_eq!(read(&pattern, text).map(|read| read.ms), expected, "{text}");
        }
    }

    #[test]
    fn texts_are_read_as_by_java_sql() {
        let cases = [
            ("1970-1-1 5:0:0.25", Some(18_000_250)),
            ("1970-01-01 25:00:60", Some(90_060_000)),
            (" 1970-02-31 ", Some(61 * DAY_MS)),
            ("1970-02-32", None),
            ("70-01-01", None),
            ("1970-01-01 00:00", None),
            ("1970-01-01T00:00:00", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read_sql(text).map(|read| read.ms), expected, "{text}");
        }
    }
}
