//! Moments of the past, as people name them on the command line.

use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::{parse_time, parse_timestamp, parse_timestamp_iso};
use thalweg_plan::catalog::parse_duration;

const DAY_MS: i64 = 86_400_000;

/// A moment in milliseconds since 1970: a time of today or yesterday, a day with a time, a span
/// that has passed since, or the number itself. Times are of UTC.
pub fn parse(text: &str) -> Result<i64, String> {
    moment_ms(text, SystemClock::new().wall_ms()).ok_or_else(|| {
        "write a time of UTC such as 10:03:12 or '2026-01-31 10:03:12', how long ago it is such as '5 min', or \
         milliseconds since 1970"
            .to_owned()
    })
}

fn moment_ms(text: &str, now_ms: i64) -> Option<i64> {
    if let Ok(at_ms) = text.parse() {
        return Some(at_ms);
    }
    let at = text.strip_suffix('Z').unwrap_or(text);
    if let Some(at_ms) = parse_timestamp(at, 3).or_else(|| parse_timestamp_iso(at, 3)) {
        return Some(at_ms);
    }
    if at.contains(':') {
        let today_ms = now_ms - now_ms.rem_euclid(DAY_MS) + i64::from(parse_time(at, 3)?);
        // A time that has not come yet is one of yesterday.
        return Some(if today_ms > now_ms { today_ms - DAY_MS } else { today_ms });
    }
    let ago_ms = i64::try_from(parse_duration(text).ok()?.as_millis()).ok()?;
    Some(now_ms.saturating_sub(ago_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_spans_and_numbers() {
        // 2026-01-02 10:00:00 UTC
        let now_ms = 1_767_348_000_000;
        for (text, wanted) in [
            ("1767348000001", Some(now_ms + 1)),
            ("2026-01-02 09:59:59.500", Some(now_ms - 500)),
            ("2026-01-02T09:59:59Z", Some(now_ms - 1_000)),
            ("09:59:00", Some(now_ms - 60_000)),
            ("10:00:00", Some(now_ms)),
            ("10:00:01", Some(now_ms + 1_000 - DAY_MS)),
            ("5 min", Some(now_ms - 300_000)),
            ("1h", Some(now_ms - 3_600_000)),
            ("yesterday", None),
            ("10:61:00", None),
            ("", None),
        ] {
            assert_eq!(moment_ms(text, now_ms), wanted, "{text}");
        }
    }
}
