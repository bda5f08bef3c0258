//! Event time, watermarks, and the grids on which windows begin and end.
//!
//! Event time is a number of milliseconds since 1970-01-01T00:00:00 (UTC for `TIMESTAMP_LTZ`, wall
//! clock for `TIMESTAMP`). A watermark `t` promises that no later row has a time at or before `t`,
//! so a window `[start, end)` is complete at `t >= end - 1`.

use std::fmt;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;

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

impl Default for Watermark {
    /// Nothing is promised.
    fn default() -> Self {
        Watermark::MIN
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

/// For each row, the running watermark of its own split just before it. Lateness is judged against
/// this and nothing else, so it depends on the data alone.
#[derive(Clone, Debug)]
pub enum WatermarkBefore {
    /// The same for every row. Also used where no row of the bundle can be late for any window
    /// downstream, neither for its own watermark nor for this one: the assigner then gives a lower
    /// bound, a merge by time the highest of its inputs.
    All(Watermark),
    /// One per row, in milliseconds.
    Rows(ScalarBuffer<i64>),
}

/// How far above a watermark a time has to be for the watermark to have closed nothing that a row
/// at that time meets: a session takes a row that comes right at its end, and is closed a
/// millisecond before.
pub const AHEAD_MS: i64 = 2;

impl WatermarkBefore {
    /// The watermark before this row.
    #[inline]
    pub fn at(&self, row: usize) -> Watermark {
        match self {
            WatermarkBefore::All(watermark) => *watermark,
            WatermarkBefore::Rows(rows) => Watermark(rows[row]),
        }
    }
    /// The watermarks of the rows at these indices, in that order.
    #[must_use]
    pub fn take(&self, indices: &[u32]) -> WatermarkBefore {
        match self {
            WatermarkBefore::All(watermark) => WatermarkBefore::All(*watermark),
            WatermarkBefore::Rows(rows) => {
                WatermarkBefore::Rows(indices.iter().map(|&i| rows[i as usize]).collect())
            }
        }
    }
    /// The watermark before all rows of several bundles, if it is one.
    pub fn one_of<'a>(bundles: impl IntoIterator<Item = &'a Self>) -> Option<Watermark> {
        let mut bundles = bundles.into_iter().map(|before| match before {
            WatermarkBefore::All(watermark) => Some(*watermark),
            WatermarkBefore::Rows(_) => None,
        });
        let first = bundles.next()??;
        bundles.all(|before| before == Some(first)).then_some(first)
    }
    /// These watermarks, and at least this one.
    #[must_use]
    pub fn raised_to(&self, least: Watermark) -> WatermarkBefore {
        match self {
            WatermarkBefore::All(watermark) => WatermarkBefore::All(least.max(*watermark)),
            WatermarkBefore::Rows(rows) => {
                WatermarkBefore::Rows(rows.iter().map(|&row| row.max(least.0)).collect())
            }
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

/// What is known of the times of a bundle as a whole, found by whoever reads them first. It belongs
/// to the very buffers that it was found in: whoever meets the same ones again need not read them.
#[derive(Clone, Debug)]
pub struct TimeExtremes(Arc<FoundTimes>);

/// What was found. It goes with each copy of a bundle's stamps, so it stands apart.
#[derive(Clone, Debug)]
struct FoundTimes {
    times: ScalarBuffer<i64>,
    lowest: i64,
    highest: i64,
    is_ascending: bool,
    /// Watermarks that each row is ahead of.
    passed: Option<ScalarBuffer<i64>>,
}

impl TimeExtremes {
    /// The extremes of these times; `None` if there are none.
    pub fn of(times: &ScalarBuffer<i64>) -> Option<TimeExtremes> {
        let is_ascending = is_ascending(times);
        let found = if is_ascending { ends(times) } else { extremes_of_any(times) };
        Some(TimeExtremes::new(times, found?, is_ascending))
    }
    /// Extremes that were found on the way.
    pub fn found(times: &ScalarBuffer<i64>, (lowest, highest): (i64, i64)) -> TimeExtremes {
        debug_assert_eq!(extremes(times), Some((lowest, highest)), "they belong to these times");
        TimeExtremes::new(times, (lowest, highest), is_ascending(times))
    }
    fn new(times: &ScalarBuffer<i64>, (lowest, highest): (i64, i64), is_ascending: bool) -> Self {
        let times = times.clone();
        TimeExtremes(Arc::new(FoundTimes { times, lowest, highest, is_ascending, passed: None }))
    }
    /// The same, with what is found out about the watermarks before the rows.
    #[must_use]
    pub fn with_watermarks(self, before: &WatermarkBefore) -> TimeExtremes {
        let WatermarkBefore::Rows(before) = before else { return self };
        let is_ahead = |(times, before): (&[i64], &[i64])| {
            times.iter().zip(before).fold(true, |all, (time, before)| all & (time > before))
        };
        let mut found = Arc::unwrap_or_clone(self.0);
        let fits = before.len() == found.times.len();
        let all = fits && found.times.chunks(BLOCK).zip(before.chunks(BLOCK)).all(is_ahead);
        found.passed = all.then(|| before.clone());
        TimeExtremes(Arc::new(found))
    }
    /// The lowest time.
    pub fn lowest(&self) -> i64 {
        self.0.lowest
    }
    /// The highest time.
    pub fn highest(&self) -> i64 {
        self.0.highest
    }
    /// True if these are the very times in which this was found.
    // This holds the buffer, so nobody else's can lie at the same address; below too.
    pub fn is_of(&self, times: &[i64]) -> bool {
        std::ptr::eq(self.0.times.as_ref(), times)
    }
    /// True if no time is below one before it.
    pub fn is_ascending(&self) -> bool {
        self.0.is_ascending
    }
    /// True if it is known that each row's time is above the watermark before it: of one for all
    /// rows, or of the very ones that were looked at.
    pub fn is_ahead_of(&self, before: &WatermarkBefore) -> bool {
        match (before, &self.0.passed) {
            (WatermarkBefore::All(before), _) => self.0.lowest > before.0,
            (WatermarkBefore::Rows(rows), Some(passed)) => {
                std::ptr::eq(passed.as_ref(), rows.as_ref())
            }
            (WatermarkBefore::Rows(_), None) => false,
        }
    }
}

/// How many values are compared together, without a branch.
const BLOCK: usize = 256;

/// True if no value is below the one before it.
fn is_ascending(values: &[i64]) -> bool {
    let block_is = |from: usize| {
        let to = values.len().min(from + BLOCK + 1);
        values[from..to].windows(2).fold(true, |all, pair| all & (pair[0] <= pair[1]))
    };
    (0..values.len()).step_by(BLOCK).all(block_is)
}

/// The lowest and the highest value. Those of most sources ascend, which is found out for less.
pub fn extremes(values: &[i64]) -> Option<(i64, i64)> {
    if is_ascending(values) { ends(values) } else { extremes_of_any(values) }
}

fn ends(values: &[i64]) -> Option<(i64, i64)> {
    values.first().copied().zip(values.last().copied())
}

/// Eight pairs side by side, so that no comparison waits for the one before.
fn extremes_of_any(values: &[i64]) -> Option<(i64, i64)> {
    let mut low = [i64::MAX; 8];
    let mut high = [i64::MIN; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (place, &value) in chunk.iter().enumerate() {
            low[place] = low[place].min(value);
            high[place] = high[place].max(value);
        }
    }
    let lowest = low.iter().chain(rest).copied().min().unwrap_or(i64::MAX);
    let highest = high.iter().chain(rest).copied().max().unwrap_or(i64::MIN);
    (lowest <= highest).then_some((lowest, highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_those_of_the_buffer_they_were_found_in() {
        let times: ScalarBuffer<i64> = (0..29).map(|n| (n * 7) % 29 - 3).collect();
        let found = TimeExtremes::of(&times).expect("there are times");
        assert_eq!((found.lowest(), found.highest()), (-3, 25));
        assert!(found.is_of(&times));
        let others: Vec<i64> = times.iter().copied().collect();
        assert!(!found.is_of(&others), "equal values of another buffer");
        assert!(!found.is_of(&times[1..]), "a part of it");
        assert!(TimeExtremes::of(&Vec::new().into()).is_none());
    }

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
