//! Event time, watermarks, and the grids on which windows begin and end.
//!
//! Event time is a number of milliseconds since 1970-01-01T00:00:00 (UTC for `TIMESTAMP_LTZ`, wall
//! clock for `TIMESTAMP`). A watermark `t` promises that no later row has a time at or before `t`,
//! so a window `[start, end)` is complete at `t >= end - 1`.

use std::fmt;

/// A promise that no later row has an event time at or before this many milliseconds.
///
/// ```
/// use thalweg_core::Watermark;
/// let watermark = Watermark(9_999);
/// assert!(watermark.closes(10_000));
/// assert!(!watermark.closes(10_001));
/// assert!(Watermark::END.closes(i64::MAX));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watermark(pub i64);

impl Watermark {
    /// Nothing is promised yet.
    pub const MIN: Watermark = Watermark(i64::MIN);
    /// The end of time: a bounded input has ended. Closes every window.
    pub const END: Watermark = Watermark(i64::MAX);

    /// True if a window that ends (exclusively) at `window_end` is complete.
    #[inline]
    pub fn closes(self, window_end: i64) -> bool {
        window_end.saturating_sub(1) <= self.0
    }
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Watermark::MIN => f.write_str("none"),
            Watermark::END => f.write_str("end"),
            Watermark(t) => f.write_str(&crate::text::format_timestamp_millis(t, 3)),
        }
    }
}

/// Equally spaced points in event time, `offset + n * period` for every whole `n`: the edges of the
/// slices of a window. A watermark matters to a window operator only when it crosses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grid {
    /// Distance between two points in milliseconds, at least 1.
    pub period_ms: i64,
    /// Where one of the points lies.
    pub offset_ms: i64,
}

impl Grid {
    /// The number of the interval that holds `time`: `floor((time - offset) / period)`.
    #[inline]
    pub fn index(&self, time: i64) -> i64 {
        time.saturating_sub(self.offset_ms).div_euclid(self.period_ms)
    }
    /// The first instant of the interval with this number.
    #[inline]
    pub fn start(&self, index: i64) -> i64 {
        index.saturating_mul(self.period_ms).saturating_add(self.offset_ms)
    }
    /// True if a point lies in `(low, high]`.
    #[inline]
    pub fn crossed(&self, low: i64, high: i64) -> bool {
        high > low && self.index(low) != self.index(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_floor_below_zero() {
        let grid = Grid { period_ms: 10, offset_ms: 3 };
        assert_eq!(grid.index(3), 0);
        assert_eq!(grid.index(2), -1);
        assert_eq!(grid.start(-1), -7);
        assert!(grid.crossed(2, 3));
        assert!(!grid.crossed(3, 12));
        assert!(grid.crossed(3, 13));
    }
}
