//! The proleptic Gregorian calendar: days since 1970-01-01 to year, month and day, and back.
//!
//! Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". What zones and units make
//! of it is with the functions of SQL.

/// Days since 1970-01-01 of a date: month 1 to 12, day 1 to 31.
#[inline]
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month (1 to 12) and day (1 to 31) of a day since 1970-01-01.
#[inline]
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_index + 2) / 5 + 1) as u32;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// How many days a month (1 to 12) has.
#[inline]
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_chrono() {
        use chrono::{DateTime, Datelike};
        for days in (-800_000..800_000i64).step_by(97) {
            let date = DateTime::from_timestamp(days * 86_400, 0).expect("in range");
            assert_eq!(civil_from_days(days), (i64::from(date.year()), date.month(), date.day()));
            assert_eq!(days_from_civil(date.year().into(), date.month(), date.day()), days);
            let next = days_from_civil(date.year().into(), date.month(), 1)
                + i64::from(days_in_month(date.year().into(), date.month()));
            assert_eq!(civil_from_days(next).2, 1, "the first day of the month after {days}");
        }
    }
}
