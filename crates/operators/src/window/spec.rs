//! Which windows hold a time. Windows are aligned to the epoch (and shifted by an offset), also
//! before 1970.

use thalweg_core::{Error, Grid, Result};

/// Windows that depend on time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSpec {
    /// One after the other, each `size_ms` long.
    Tumble {
        /// How long a window is.
        size_ms: i64,
        /// How far windows are shifted from the epoch.
        offset_ms: i64,
    },
    /// One every `slide_ms`, each `size_ms` long.
    Hop {
        /// From one start to the next.
        slide_ms: i64,
        /// How long a window is.
        size_ms: i64,
        /// How far windows are shifted from the epoch.
        offset_ms: i64,
    },
    /// Windows that share a start and grow by `step_ms` up to `max_ms`; then it starts from
    /// scratch.
    Cumulate {
        /// By how much each is longer than the one before.
        step_ms: i64,
        /// How long the longest is; a multiple of the step.
        max_ms: i64,
        /// How far windows are shifted from the epoch.
        offset_ms: i64,
    },
    /// A single one that holds every row, whatever its time, and closes when the input ends.
    Whole,
}

/// The end of [`WindowSpec::Whole`].
pub(super) const WHOLE_END: i64 = i64::MAX;

/// The slice that holds a time, and the windows that hold the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Its first instant.
    pub(super) start: i64,
    /// The first instant behind it.
    pub(super) end: i64,
    /// The end of the first window that holds it.
    pub(super) enter: i64,
    /// The end of the last window that holds it; below `enter` where no window does.
    pub(super) leave: i64,
}

impl Slice {
    #[inline]
    pub(super) fn holds(&self, time: i64) -> bool {
        self.start <= time && time < self.end
    }
}

impl WindowSpec {
    /// An error if lengths are not positive or do not fit each other.
    pub fn validate(&self) -> Result<()> {
        let (lengths, fits) = match *self {
            WindowSpec::Tumble { size_ms, .. } => ([size_ms, size_ms], true),
            WindowSpec::Hop { slide_ms, size_ms, .. } => ([slide_ms, size_ms], true),
            WindowSpec::Cumulate { step_ms, max_ms, .. } => {
                ([step_ms, max_ms], step_ms <= 0 || max_ms % step_ms == 0)
            }
            WindowSpec::Whole => return Ok(()),
        };
        if lengths.iter().any(|&length| length <= 0) {
            return Err(Error::plan("the lengths of a window must be positive"));
        }
        if !fits {
            let [step, max] = lengths;
            return Err(Error::plan(format!(
                "CUMULATE needs a maximum size that is a multiple of the step, \
                 but {max} ms is none of {step} ms"
            )));
        }
        Ok(())
    }

    /// True if no two windows hold the same time: a slice is then in one window, and all there is
    /// of it.
    pub(super) fn shares_no_slice(&self) -> bool {
        match *self {
            WindowSpec::Tumble { .. } => true,
            WindowSpec::Hop { slide_ms, size_ms, .. } => size_ms <= slide_ms,
            WindowSpec::Cumulate { step_ms, max_ms, .. } => step_ms == max_ms,
            WindowSpec::Whole => true,
        }
    }

    /// All windows that hold a time, as (start, end), by end.
    ///
    /// ```
    /// use thalweg_operators::window::WindowSpec;
    /// let hop = WindowSpec::Hop { slide_ms: 5, size_ms: 10, offset_ms: 0 };
    /// assert_eq!(hop.assign(-1), [(-10, 0), (-5, 5)]);
    /// ```
    pub fn assign(&self, time: i64) -> Vec<(i64, i64)> {
        if *self == WindowSpec::Whole {
            return vec![(i64::MIN, WHOLE_END)];
        }
        let slice = self.slice(time);
        let mut windows = Vec::new();
        let mut end = slice.enter;
        while end <= slice.leave {
            windows.push((self.start_of(end), end));
            end += self.step_ms();
        }
        windows
    }

    /// How many windows hold a time.
    pub(crate) fn count(&self, time: i64) -> i64 {
        let slice = self.slice(time);
        match slice.enter <= slice.leave {
            true => (slice.leave - slice.enter) / self.step_ms() + 1,
            false => 0,
        }
    }

    /// One of the windows that hold a time, counted from the one that ends last, from 0.
    pub(crate) fn nth_latest(&self, time: i64, nth: i64) -> (i64, i64) {
        let slice = self.slice(time);
        let end = slice.enter + (self.count(time) - 1 - nth) * self.step_ms();
        (self.start_of(end), end)
    }

    /// The points in time at which windows end.
    pub fn ends(&self) -> Grid {
        match *self {
            WindowSpec::Tumble { size_ms, offset_ms } => Grid { period_ms: size_ms, offset_ms },
            WindowSpec::Hop { slide_ms, size_ms, offset_ms } => {
                let offset_ms = (offset_ms + size_ms).rem_euclid(slide_ms);
                Grid { period_ms: slide_ms, offset_ms }
            }
            WindowSpec::Cumulate { step_ms, offset_ms, .. } => {
                Grid { period_ms: step_ms, offset_ms }
            }
            WindowSpec::Whole => Grid { period_ms: WHOLE_END, offset_ms: 0 },
        }
    }

    /// From the end of one window to the end of the next.
    pub(super) fn step_ms(&self) -> i64 {
        match *self {
            WindowSpec::Tumble { size_ms, .. } => size_ms,
            WindowSpec::Hop { slide_ms, .. } => slide_ms,
            WindowSpec::Cumulate { step_ms, .. } => step_ms,
            WindowSpec::Whole => WHOLE_END,
        }
    }

    /// How long the longest window is.
    pub(super) fn span_ms(&self) -> i64 {
        match *self {
            WindowSpec::Tumble { size_ms, .. } | WindowSpec::Hop { size_ms, .. } => size_ms,
            WindowSpec::Cumulate { max_ms, .. } => max_ms,
            WindowSpec::Whole => WHOLE_END,
        }
    }

    /// The start of the window that ends there.
    pub(super) fn start_of(&self, end: i64) -> i64 {
        match *self {
            WindowSpec::Tumble { size_ms, .. } | WindowSpec::Hop { size_ms, .. } => end - size_ms,
            WindowSpec::Cumulate { max_ms, offset_ms, .. } => {
                floor(Grid { period_ms: max_ms, offset_ms }, end - 1)
            }
            WindowSpec::Whole => i64::MIN,
        }
    }

    /// The slice that holds a time.
    pub(super) fn slice(&self, time: i64) -> Slice {
        match *self {
            WindowSpec::Tumble { size_ms, offset_ms } => {
                let start = floor(Grid { period_ms: size_ms, offset_ms }, time);
                let end = start.saturating_add(size_ms);
                Slice { start, end, enter: end, leave: end }
            }
            WindowSpec::Hop { slide_ms, size_ms, offset_ms } => {
                let starts = Grid { period_ms: slide_ms, offset_ms };
                let last_start = floor(starts, time);
                // The end, at or before this time, of the last window that is over.
                let over = floor(starts, time.saturating_sub(size_ms)).saturating_add(size_ms);
                let enter = over.saturating_add(slide_ms);
                Slice {
                    start: last_start.max(over),
                    end: last_start.saturating_add(slide_ms).min(enter),
                    enter,
                    leave: last_start.saturating_add(size_ms),
                }
            }
            WindowSpec::Cumulate { step_ms, max_ms, offset_ms } => {
                let first = floor(Grid { period_ms: max_ms, offset_ms }, time);
                let start = floor(Grid { period_ms: step_ms, offset_ms: first }, time);
                let end = start.saturating_add(step_ms);
                Slice { start, end, enter: end, leave: first.saturating_add(max_ms) }
            }
            WindowSpec::Whole => {
                Slice { start: i64::MIN, end: WHOLE_END, enter: WHOLE_END, leave: WHOLE_END }
            }
        }
    }
}

#[inline]
fn floor(grid: Grid, time: i64) -> i64 {
    grid.start(grid.index(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every window by trying all starts near the time.
    fn by_trying(spec: WindowSpec, time: i64) -> Vec<(i64, i64)> {
        let mut windows: Vec<(i64, i64)> = (-200..200)
            .flat_map(|n: i64| match spec {
                WindowSpec::Tumble { size_ms, offset_ms } => {
                    vec![(n * size_ms + offset_ms, (n + 1) * size_ms + offset_ms)]
                }
                WindowSpec::Hop { slide_ms, size_ms, offset_ms } => {
                    let start = n * slide_ms + offset_ms;
                    vec![(start, start + size_ms)]
                }
                WindowSpec::Cumulate { step_ms, max_ms, offset_ms } => {
                    let start = n * max_ms + offset_ms;
                    (1..=max_ms / step_ms).map(|k| (start, start + k * step_ms)).collect()
                }
                WindowSpec::Whole => panic!("it has no start"),
            })
            .filter(|&(start, end)| start <= time && time < end)
            .collect();
        windows.sort_by_key(|&(_, end)| end);
        windows
    }

    #[test]
    fn windows_are_those_found_by_trying() {
        let specs = [
            WindowSpec::Tumble { size_ms: 10, offset_ms: 3 },
            WindowSpec::Hop { slide_ms: 5, size_ms: 20, offset_ms: -2 },
            WindowSpec::Hop { slide_ms: 4, size_ms: 10, offset_ms: 1 },
            WindowSpec::Hop { slide_ms: 10, size_ms: 4, offset_ms: 0 },
            WindowSpec::Cumulate { step_ms: 5, max_ms: 20, offset_ms: 7 },
        ];
        for spec in specs {
            for time in -60..60 {
                let slice = spec.slice(time);
                assert_eq!(spec.assign(time), by_trying(spec, time), "{spec:?} at {time}");
                assert!(slice.holds(time), "{spec:?} at {time}");
                for other in slice.start..slice.end {
                    assert_eq!(spec.slice(other), slice, "{spec:?}: {other} with {time}");
                }
                let counted = (0..spec.count(time)).rev().map(|nth| spec.nth_latest(time, nth));
                assert!(counted.eq(spec.assign(time)), "{spec:?} at {time}");
                let on_grid = |end| spec.ends().start(spec.ends().index(end)) == end;
                assert!(spec.assign(time).iter().all(|&(_, end)| on_grid(end)));
            }
        }
    }

    #[test]
    fn odd_lengths_are_refused() {
        let odd = WindowSpec::Cumulate { step_ms: 7, max_ms: 20, offset_ms: 0 };
        assert!(odd.validate().expect_err("refused").message().contains("multiple of the step"));
        assert!(WindowSpec::Tumble { size_ms: 0, offset_ms: 0 }.validate().is_err());
    }
}
