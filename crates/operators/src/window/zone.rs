//! Windows in a session's local time.
//!
//! Rows over `TIMESTAMP_LTZ` carry instants, but their windows are aligned to local wall clocks.
//! The operators work in local time throughout: instants are converted on the way in
//! ([`Zone::to_local`]), and so are watermarks: the local watermark is the latest reading that no
//! later instant can show or fall below ([`Zone::local_watermark`]). A window then closes by the
//! same rule as anywhere, and in an hour that is shown twice only when it is over for the second
//! time.
//!
//! Offsets are looked up for a stretch of at most a day and kept, since rows come near each other.
//!
//! ```text
//! Berlin, 2026-10-25: 02:00-03:00 is shown twice
//! instants (UTC)        23:59      00:30      01:00      01:30      02:00
//! local reading         01:59      02:30      02:00      02:30      03:00
//! local watermark       01:58:59   01:59:59   01:59:59   02:29:59   02:59:59   (a ms before)
//! ```
//!
//! The window `[02:00, 02:30)` therefore closes at 01:30 UTC, when clocks show 02:30 for the second
//! time. In spring no row has a reading of the skipped hour, and windows inside it stay empty.
//!
//! **Invariants**
//! - `local_watermark` never falls as the watermark rises. Otherwise a window could close twice.
//! - A window is closed by the local watermark exactly if every later instant shows a time at or
//!   after the window's end.

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;

const DAY_MS: i64 = 86_400_000;
/// Longer than any two clocks differ.
const FURTHEST_MS: i64 = 27 * 3_600_000;
/// Beyond these instants (about 100,000 years) the offset is taken as constant.
const LIMIT_MS: i64 = 3_000_000_000_000_000;

/// A stretch of instants with one offset from UTC.
#[derive(Clone, Copy, Debug)]
struct OffsetStretch {
    from: i64,
    /// Exclusive.
    to: i64,
    offset: i64,
}

/// Converts between instants and local time. UTC costs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    /// Absent for UTC and for timestamps without zone.
    zone: Option<Tz>,
    last: OffsetStretch,
}

impl Zone {
    pub fn new(zone: Option<Tz>) -> Self {
        let zone = zone.filter(|&zone| zone != Tz::UTC);
        Zone { zone, last: OffsetStretch { from: 0, to: 0, offset: 0 } }
    }

    /// True if local time is the instant itself.
    pub fn is_identity(&self) -> bool {
        self.zone.is_none()
    }

    /// The reading of local clocks at an instant.
    #[inline]
    #[expect(clippy::wrong_self_convention, reason = "it converts what it is given, not itself")]
    pub fn to_local(&mut self, instant: i64) -> i64 {
        if self.last.from <= instant && instant < self.last.to {
            return instant + self.last.offset;
        }
        instant.saturating_add(self.stretch(instant).offset)
    }

    /// The latest local time that no instant after this watermark shows again or undercuts.
    pub fn local_watermark(&mut self, watermark: i64) -> i64 {
        if self.is_identity() || watermark == i64::MIN || watermark == i64::MAX {
            return watermark;
        }
        let first = watermark.saturating_add(1);
        let mut next = first;
        let mut lowest = i64::MAX;
        while next <= first.saturating_add(FURTHEST_MS) {
            let stretch = self.stretch(next);
            lowest = lowest.min(next.saturating_add(stretch.offset));
            if stretch.to <= next {
                break;
            }
            next = stretch.to;
        }
        lowest - 1
    }

    /// The last instant whose local time lies before this one.
    pub fn last_instant_before(&mut self, local: i64) -> i64 {
        let wanted = local.saturating_sub(1);
        if self.is_identity() {
            return wanted;
        }
        let mut near = wanted.saturating_add(FURTHEST_MS);
        loop {
            let stretch = self.stretch(near);
            let instant = wanted.saturating_sub(stretch.offset).min(stretch.to.saturating_sub(1));
            if instant >= stretch.from || stretch.from <= -LIMIT_MS {
                return instant;
            }
            near = stretch.from - 1;
        }
    }

    /// A stretch of one offset around an instant.
    fn stretch(&mut self, instant: i64) -> OffsetStretch {
        let Some(zone) = self.zone else {
            return OffsetStretch { from: i64::MIN, to: i64::MAX, offset: 0 };
        };
        if self.last.from <= instant && instant < self.last.to {
            return self.last;
        }
        self.last = look_up(zone, instant);
        self.last
    }
}

fn look_up(zone: Tz, instant: i64) -> OffsetStretch {
    if instant >= LIMIT_MS {
        return OffsetStretch { from: LIMIT_MS, to: i64::MAX, offset: offset_at(zone, LIMIT_MS) };
    }
    if instant < -LIMIT_MS {
        return OffsetStretch { from: i64::MIN, to: -LIMIT_MS, offset: offset_at(zone, -LIMIT_MS) };
    }
    let offset = offset_at(zone, instant);
    let day = instant.div_euclid(DAY_MS) * DAY_MS;
    // No zone changes twice within a day, so equal offsets at both ends mean one offset between.
    let from = first_with(zone, offset, day, instant);
    let to = first_without(zone, offset, instant, day + DAY_MS);
    OffsetStretch { from, to, offset }
}

/// The first instant from `low` on with this offset, given that `high` has it.
fn first_with(zone: Tz, offset: i64, mut low: i64, mut high: i64) -> i64 {
    if offset_at(zone, low) == offset {
        return low;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if offset_at(zone, middle) == offset { high = middle } else { low = middle }
    }
    high
}

/// The first instant after `low`, which has this offset, without it, or `high`.
fn first_without(zone: Tz, offset: i64, mut low: i64, mut high: i64) -> i64 {
    if offset_at(zone, high - 1) == offset {
        return high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if offset_at(zone, middle) == offset { low = middle } else { high = middle }
    }
    high
}

fn offset_at(zone: Tz, instant: i64) -> i64 {
    let instant = DateTime::from_timestamp_millis(instant)
        .map_or_else(|| DateTime::UNIX_EPOCH.naive_utc(), |instant| instant.naive_utc());
    i64::from(zone.offset_from_utc_datetime(&instant).fix().local_minus_utc()) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn instant(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).expect("an instant").timestamp_millis()
    }

    /// Against the definition, by trying every minute of the days around both changes of clocks.
    #[test]
    fn watermarks_and_last_instants_follow_their_definition() {
        for (zone, around) in [
            (Tz::Europe__Berlin, "2026-03-29T01:00:00Z"),
            (Tz::Europe__Berlin, "2026-10-25T01:00:00Z"),
            (Tz::Australia__Lord_Howe, "2026-04-04T15:00:00Z"),
            (Tz::Asia__Kolkata, "2026-01-01T00:00:00Z"),
        ] {
            let middle = instant(around);
            let minutes = || (-40 * 60..40 * 60).map(move |n| middle + n * MINUTE);
            let shown: Vec<(i64, i64)> = minutes().map(|t| (t, t + offset_at(zone, t))).collect();
            let mut tested = Zone::new(Some(zone));
            for n in (-5 * 60..5 * 60).step_by(7) {
                let now = middle + n * MINUTE;
                assert_eq!(tested.to_local(now), now + offset_at(zone, now));
                let later = shown.iter().filter(|&&(t, _)| t >= now);
                let lowest = later.map(|&(_, local)| local).min().expect("later minutes");
                assert_eq!(tested.local_watermark(now - 1), lowest - 1, "{zone} {n}");
                let local = now + offset_at(zone, middle);
                let before = shown.iter().filter(|&&(_, reading)| reading < local);
                let last = before.map(|&(t, _)| t).max().expect("earlier minutes");
                let found = tested.last_instant_before(local);
                assert_eq!(found.div_euclid(MINUTE) * MINUTE, last, "{zone} {n}");
                assert!(found + offset_at(zone, found) < local);
            }
        }
    }

    #[test]
    fn utc_and_the_ends_of_time_stay_as_they_are() {
        let mut utc = Zone::new(Some(Tz::UTC));
        assert!(utc.is_identity());
        assert_eq!(utc.local_watermark(5), 5);
        let mut berlin = Zone::new(Some(Tz::Europe__Berlin));
        assert_eq!(berlin.local_watermark(i64::MAX), i64::MAX);
        assert_eq!(berlin.local_watermark(i64::MIN), i64::MIN);
        berlin.to_local(i64::MAX);
        berlin.to_local(i64::MIN);
    }
}
