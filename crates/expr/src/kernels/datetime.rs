//! Calendar arithmetic on milliseconds and days since 1970, and the session's time zone.
//!
//! Months subtract as in Calcite's `DateTimeUtils.subtractMonths`, which counts 31 January to
//! 28 February as a month.

use chrono::{DateTime, LocalResult, Offset, TimeZone};
use chrono_tz::Tz;
pub(crate) use thalweg_core::calendar::{civil_from_days, days_from_civil, days_in_month};

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// A field of a date or time, or a unit to add or truncate by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeField {
    Millisecond,
    Microsecond,
    Nanosecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
}

impl TimeField {
    /// Reads a name such as `HOUR`, `HOURS` or `SQL_TSI_HOUR`.
    pub fn parse(name: &str) -> Option<TimeField> {
        use TimeField::*;
        let upper = name.to_ascii_uppercase();
        let name = upper.strip_prefix("SQL_TSI_").unwrap_or(&upper);
        Some(match name {
            "MILLISECOND" | "MILLISECONDS" => Millisecond,
            "MICROSECOND" | "MICROSECONDS" => Microsecond,
            "NANOSECOND" | "NANOSECONDS" | "FRAC_SECOND" => Nanosecond,
            "SECOND" | "SECONDS" => Second,
            "MINUTE" | "MINUTES" => Minute,
            "HOUR" | "HOURS" => Hour,
            "DAY" | "DAYS" | "DAYOFMONTH" => Day,
            "WEEK" | "WEEKS" => Week,
            "MONTH" | "MONTHS" => Month,
            "QUARTER" | "QUARTERS" => Quarter,
            "YEAR" | "YEARS" => Year,
            "DECADE" => Decade,
            "CENTURY" => Century,
            "MILLENNIUM" => Millennium,
            "DOW" | "DAYOFWEEK" => DayOfWeek,
            "ISODOW" => IsoDayOfWeek,
            "DOY" | "DAYOFYEAR" => DayOfYear,
            "ISOYEAR" => IsoYear,
            "EPOCH" => Epoch,
            _ => return None,
        })
    }
    /// Milliseconds of a unit of fixed length.
    pub fn millis(self) -> Option<i64> {
        Some(match self {
            TimeField::Millisecond => 1,
            TimeField::Second => 1_000,
            TimeField::Minute => 60_000,
            TimeField::Hour => 3_600_000,
            TimeField::Day => DAY_MS,
            TimeField::Week => 7 * DAY_MS,
            _ => return None,
        })
    }
    /// Months of a unit that is counted in months.
    pub fn months(self) -> Option<i64> {
        Some(match self {
            TimeField::Month => 1,
            TimeField::Quarter => 3,
            TimeField::Year => 12,
            TimeField::Decade => 120,
            TimeField::Century => 1_200,
            TimeField::Millennium => 12_000,
            _ => return None,
        })
    }
}

/// Adds months to a day; the day of the month is clamped to the month's last.
pub(crate) fn add_months_to_days(days: i64, months: i64) -> i64 {
    let (year, month, day) = civil_from_days(days);
    let total = year * 12 + i64::from(month) - 1 + months;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
    days_from_civil(year, month, day.min(days_in_month(year, month)))
}

/// Adds months to a timestamp in ticks, `ticks_per_day` of them a day; `None` where 64 bits end.
pub(crate) fn add_months(ticks: i64, months: i64, ticks_per_day: i64) -> Option<i64> {
    let days = add_months_to_days(ticks.div_euclid(ticks_per_day), months);
    // Counted from the day after a negative one, which may begin before 64 bits do.
    let (days, rest) = match (days < 0, ticks.rem_euclid(ticks_per_day)) {
        (true, rest) => (days + 1, rest - ticks_per_day),
        (false, rest) => (days, rest),
    };
    days.checked_mul(ticks_per_day)?.checked_add(rest)
}

fn months_between_days(later: i64, earlier: i64) -> i64 {
    if later < earlier {
        return -months_between_days(earlier, later);
    }
    let month_number = |days: i64| {
        let (year, month, _) = civil_from_days(days);
        year * 12 + i64::from(month)
    };
    // That many months later is the same month: its day is reached, or one month is missing.
    let months = month_number(later) - month_number(earlier);
    if add_months_to_days(earlier, months) > later { months - 1 } else { months }
}

/// Whole months from `start` to `end`, both in milliseconds.
pub(crate) fn months_between(start: i64, end: i64) -> i64 {
    let (end_days, end_ms) = (end.div_euclid(DAY_MS), end.rem_euclid(DAY_MS));
    let (start_days, start_ms) = (start.div_euclid(DAY_MS), start.rem_euclid(DAY_MS));
    let months = months_between_days(end_days, start_days);
    if add_months_to_days(start_days, months) == end_days && end_ms < start_ms {
        months - 1
    } else {
        months
    }
}

/// Sunday is 1, as in Flink.
pub(crate) fn day_of_week(days: i64) -> i64 {
    (days + 4).rem_euclid(7) + 1
}

fn day_of_year(days: i64) -> i64 {
    days - days_from_civil(civil_from_days(days).0, 1, 1) + 1
}

/// ISO 8601 year and week of a day.
pub(crate) fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday of the same week decides its year.
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let year = civil_from_days(thursday).0;
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

/// A field of a wall clock reading in milliseconds.
pub(crate) fn extract(field: TimeField, ms: i64) -> i64 {
    use TimeField::*;
    let days = ms.div_euclid(DAY_MS);
    let in_day = ms.rem_euclid(DAY_MS);
    let year = || civil_from_days(days).0;
    match field {
        Millisecond => in_day % 1_000,
        Microsecond => in_day % 1_000 * 1_000,
        Nanosecond => in_day % 1_000 * 1_000_000,
        Second => in_day / 1_000 % 60,
        Minute => in_day / 60_000 % 60,
        Hour => in_day / 3_600_000,
        Day => civil_from_days(days).2.into(),
        Week => iso_week(days).1,
        Month => civil_from_days(days).1.into(),
        Quarter => i64::from(civil_from_days(days).1 - 1) / 3 + 1,
        Year => year(),
        Decade => year().div_euclid(10),
        Century => (year() + 99).div_euclid(100),
        Millennium => (year() + 999).div_euclid(1_000),
        DayOfWeek => day_of_week(days),
        IsoDayOfWeek => (days + 3).rem_euclid(7) + 1,
        DayOfYear => day_of_year(days),
        IsoYear => iso_week(days).0,
        Epoch => ms.div_euclid(1_000),
    }
}

/// The start of the unit that holds a wall clock reading; weeks start on Sunday, as in Flink.
/// `None` where 64 bits end.
pub(crate) fn floor(field: TimeField, ms: i64) -> Option<i64> {
    if field == TimeField::Week {
        let days = ms.div_euclid(DAY_MS);
        return (days - (day_of_week(days) - 1)).checked_mul(DAY_MS);
    }
    if let Some(length) = field.millis() {
        return ms.div_euclid(length).checked_mul(length);
    }
    let Some(months) = field.months() else { return Some(ms) };
    let (year, month, _) = civil_from_days(ms.div_euclid(DAY_MS));
    let (year, month) = match field {
        TimeField::Month | TimeField::Quarter => {
            let step = months as u32;
            (year, (month - 1) / step * step + 1)
        }
        // A century runs from 2001 to 2100, a decade from 2000 to 2009.
        TimeField::Century => ((year - 1).div_euclid(100) * 100 + 1, 1),
        TimeField::Millennium => ((year - 1).div_euclid(1_000) * 1_000 + 1, 1),
        TimeField::Decade => (year.div_euclid(10) * 10, 1),
        _ => (year, 1),
    };
    days_from_civil(year, month, 1).checked_mul(DAY_MS)
}

/// The first start of a unit at or after a wall clock reading; `None` where 64 bits end.
pub(crate) fn ceil(field: TimeField, ms: i64) -> Option<i64> {
    let start = floor(field, ms)?;
    if start == ms {
        return Some(ms);
    }
    match (field.millis(), field.months()) {
        (Some(length), _) => start.checked_add(length),
        (None, Some(months)) => add_months(start, months, DAY_MS),
        _ => Some(ms),
    }
}

/// The wall clock in a zone at an instant (both in milliseconds).
pub(crate) fn to_local(instant_ms: i64, zone: Tz) -> i64 {
    if zone == Tz::UTC {
        return instant_ms;
    }
    match DateTime::from_timestamp_millis(instant_ms) {
        Some(instant) => {
            let offset = zone.offset_from_utc_datetime(&instant.naive_utc()).fix();
            instant_ms + i64::from(offset.local_minus_utc()) * 1_000
        }
        None => instant_ms,
    }
}

/// The instant at which a zone's wall clock shows this. Of two, the earlier; a reading that is
/// skipped moves forward by the length of the gap, as in Java.
pub(crate) fn to_instant(local_ms: i64, zone: Tz) -> i64 {
    instant_of(local_ms, zone, false)
}

/// The same, but of two instants the later one, as in Java's `SimpleDateFormat`.
pub(crate) fn to_later_instant(local_ms: i64, zone: Tz) -> i64 {
    instant_of(local_ms, zone, true)
}

fn instant_of(local_ms: i64, zone: Tz, is_later: bool) -> i64 {
    if zone == Tz::UTC {
        return local_ms;
    }
    let Some(local) = DateTime::from_timestamp_millis(local_ms) else { return local_ms };
    let local = local.naive_utc();
    let offset_ms = |offset: chrono::FixedOffset| i64::from(offset.local_minus_utc()) * 1_000;
    match zone.offset_from_local_datetime(&local) {
        LocalResult::Ambiguous(_, second) if is_later => local_ms - offset_ms(second.fix()),
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => {
            local_ms - offset_ms(offset.fix())
        }
        LocalResult::None => {
            // The offset before the gap, found three hours earlier.
            let before = zone.offset_from_local_datetime(&(local - chrono::Duration::hours(3)));
            let offset = before.earliest().map_or(0, |offset| offset_ms(offset.fix()));
            local_ms - offset
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_agree_with_chrono() {
        use chrono::{Datelike, NaiveDate};
        let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).expect("a date");
        for days in (-800_000..800_000).step_by(97) {
            let date = epoch + chrono::Duration::days(days);
            let week = date.iso_week();
            assert_eq!(iso_week(days), (week.year().into(), week.week().into()));
            assert_eq!(day_of_week(days), i64::from(date.weekday().number_from_sunday()));
        }
    }

    #[test]
    fn wall_clock_of_a_zone_and_back() {
        let berlin = Tz::Europe__Berlin;
        let day = |y, m, d| days_from_civil(y, m, d) * DAY_MS;
        let hour = 3_600_000;
        assert_eq!(to_local(day(2026, 7, 1), berlin), day(2026, 7, 1) + 2 * hour);
        // 02:30 does not exist on 2026-03-29: it becomes 03:30 summer time, 01:30 UTC.
        let gap = day(2026, 3, 29) + 2 * hour + hour / 2;
        assert_eq!(to_instant(gap, berlin), day(2026, 3, 29) + hour + hour / 2);
        // 02:30 comes twice on 2026-10-25: the first is 00:30 UTC.
        let twice = day(2026, 10, 25) + 2 * hour + hour / 2;
        assert_eq!(to_instant(twice, berlin), day(2026, 10, 25) + hour / 2);
        assert_eq!(to_later_instant(twice, berlin), day(2026, 10, 25) + hour + hour / 2);
    }
}
