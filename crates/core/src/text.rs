//! The text form of values, as golden cases, CSV output and `CAST(… AS STRING)` show them.
//!
//! Timestamps show exactly as many fraction digits as their precision says, DECIMAL exactly its
//! scale, booleans are TRUE and FALSE, and doubles print as Java's `Double.toString` does
//! (`1.0E7`), because that is what Flink shows.

use chrono::{DateTime, Datelike, Timelike};

/// `yyyy-MM-dd HH:mm:ss` with this many fraction digits (0 to 3), in UTC or as a wall clock.
///
/// ```
/// use thalweg_core::text::format_timestamp_millis;
/// assert_eq!(format_timestamp_millis(1_500, 3), "1970-01-01 00:00:01.500");
/// assert_eq!(format_timestamp_millis(-1, 0), "1969-12-31 23:59:59");
/// ```
pub fn format_timestamp_millis(millis: i64, precision: u8) -> String {
    let Some(t) = DateTime::from_timestamp_millis(millis) else {
        return format!("{millis} ms");
    };
    let mut text = format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        t.year(),
        t.month(),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    );
    if precision > 0 {
        let fraction = format!("{:09}", t.nanosecond());
        text.push('.');
        text.push_str(&fraction[..usize::from(precision.min(9))]);
    }
    text
}
