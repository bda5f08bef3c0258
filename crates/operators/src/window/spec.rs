//! Which windows hold a time. Windows are aligned to the epoch (and shifted by an offset), also
//! before 1970.
//!
//! A kind of window is a variant of [`WindowSpec`] and its [`Shape`]: where windows begin, how far
//! apart they end, how short and how long they are. All else follows from the shape, here and in
//! the operators, so a further kind needs an arm of `WindowSpec::shape` and nothing more. Windows
//! of a kind either all have one size, or start in series of which each ends before the next
//! begins.
//!
//! | kind | starts | step of ends | shortest | longest |
//! |---|---|---|---|---|
//! | `TUMBLE(size)` | every `size` | `size` | `size` | `size` |
//! | `HOP(slide, size)` | every `slide` | `slide` | `size` | `size` |
//! | `CUMULATE(step, max)` | every `max` | `step` | `step` | `max` |
//!
//! **Invariants**
//! - Slices of one kind partition the time line: they neither overlap nor leave gaps.
//! - `enter` and `leave` never fall as time rises. `judge` and `assembly` depend on it.
//! - `enter > leave` means that no window holds the slice. That occurs only for `HOP` with a slide
//!   longer than the size.
//! - Times near the ends of `i64` saturate, and the windows there are wrong. Row times are far from
//!   them.

use std::fmt;

use thalweg_core::{Error, Grid, Result};

/// Windows that depend on time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Windows that share a start and grow by `step_ms` up to `max_size_ms`; then the next series
    /// starts.
    Cumulate {
        /// By how much each is longer than the one before.
        step_ms: i64,
        /// How long the longest is; a multiple of the step.
        max_size_ms: i64,
        /// How far windows are shifted from the epoch.
        offset_ms: i64,
    },
    /// A single one that holds every row, whatever its time, and closes when the input ends.
    Whole,
}

/// The end of [`WindowSpec::Whole`].
pub(super) const WHOLE_END: i64 = i64::MAX;

/// What distinguishes one kind of window from another.
struct Shape {
    /// In SQL.
    name: &'static str,
    /// Of the operator, in EXPLAIN and metrics.
    operator: &'static str,
    /// The lengths in SQL, in the order of the call.
    lengths: [Option<i64>; 2],
    /// Where windows begin.
    starts: Grid,
    /// From the end of one window to the end of the next.
    step_ms: i64,
    /// How long the shortest window is.
    shortest_ms: i64,
    /// How long the longest window is.
    longest_ms: i64,
}

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
    pub fn holds(&self, time: i64) -> bool {
        self.start <= time && time < self.end
    }
}

impl Shape {
    fn has_one_size(&self) -> bool {
        self.shortest_ms == self.longest_ms
    }

    /// The points in time at which windows end.
    fn ends(&self) -> Grid {
        let offset_ms = self.starts.offset_ms.saturating_add(self.shortest_ms);
        Grid { period_ms: self.step_ms, offset_ms }
    }

    /// The start of the window that ends there.
    fn start_of(&self, end: i64) -> i64 {
        if self.has_one_size() { end - self.longest_ms } else { floor(self.starts, end - 1) }
    }

    /// The slice that holds a time: a stretch within which no window begins or ends.
    ///
    /// Times before 1970 need no special case, since `floor` rounds towards negative infinity.
    fn slice(&self, time: i64) -> Slice {
        let last_start = floor(self.starts, time);
        // Where windows stand back to back, one ends wherever one begins.
        let is_back_to_back = self.shortest_ms == self.starts.period_ms;
        let last_end = if is_back_to_back { last_start } else { floor(self.ends(), time) };
        let enter = last_end.saturating_add(self.step_ms);
        Slice {
            start: last_start.max(last_end),
            end: last_start.saturating_add(self.starts.period_ms).min(enter),
            enter,
            leave: last_start.saturating_add(self.longest_ms),
        }
    }
}

impl WindowSpec {
    /// What all else follows from; `None` for the window of all rows, which has no bounds.
    #[inline]
    fn shape(&self) -> Option<Shape> {
        Some(match *self {
            WindowSpec::Tumble { size_ms, offset_ms } => Shape {
                name: "TUMBLE",
                operator: "tumbling window",
                lengths: [Some(size_ms), None],
                starts: Grid { period_ms: size_ms, offset_ms },
                step_ms: size_ms,
                shortest_ms: size_ms,
                longest_ms: size_ms,
            },
            WindowSpec::Hop { slide_ms, size_ms, offset_ms } => Shape {
                name: "HOP",
                operator: "hopping window",
                lengths: [Some(slide_ms), Some(size_ms)],
                starts: Grid { period_ms: slide_ms, offset_ms },
                step_ms: slide_ms,
                shortest_ms: size_ms,
                longest_ms: size_ms,
            },
            WindowSpec::Cumulate { step_ms, max_size_ms, offset_ms } => Shape {
                name: "CUMULATE",
                operator: "cumulating window",
                lengths: [Some(step_ms), Some(max_size_ms)],
                starts: Grid { period_ms: max_size_ms, offset_ms },
                step_ms,
                shortest_ms: step_ms,
                longest_ms: max_size_ms,
            },
            WindowSpec::Whole => return None,
        })
    }

    /// An error if lengths are not positive or do not fit each other.
    pub fn validate(&self) -> Result<()> {
        let Some(shape) = self.shape() else { return Ok(()) };
        if shape.lengths.iter().flatten().any(|&length| length <= 0) {
            return Err(Error::plan("the lengths of a window must be positive"));
        }
        let Shape { name, step_ms, longest_ms, .. } = shape;
        if !shape.has_one_size() && longest_ms % step_ms != 0 {
            return Err(Error::plan(format!(
                "{name} needs a maximum size that is a multiple of the step, \
                 but {longest_ms} ms is none of {step_ms} ms"
            )));
        }
        Ok(())
    }

    /// Of the operator that computes such windows; `None` for the window of all rows.
    pub(super) fn operator_name(&self) -> Option<&'static str> {
        self.shape().map(|shape| shape.operator)
    }

    /// What the state of such windows depends on.
    ///
    /// A snapshot is restored only into an operator with the same identity, so this text must not
    /// change between versions.
    pub fn identity(&self) -> String {
        let Some(Shape { name, lengths, starts, .. }) = self.shape() else {
            return "all rows".to_owned();
        };
        let lengths: Vec<String> = lengths.iter().rev().flatten().map(i64::to_string).collect();
        format!("{} {} from {}", name.to_lowercase(), lengths.join(" by "), starts.offset_ms)
    }

    /// True if no two windows hold the same time: a slice is then in one window, and all there is
    /// of it.
    pub(super) fn shares_no_slice(&self) -> bool {
        self.shape().is_none_or(|shape| shape.longest_ms <= shape.step_ms)
    }

    /// How many windows hold a time at most, where one begins before the one before has ended;
    /// `None` where windows that share rows share their start.
    pub(super) fn overlaps(&self) -> Option<usize> {
        let shape = self.shape().filter(Shape::has_one_size)?;
        let most = shape.longest_ms / shape.starts.period_ms;
        (shape.longest_ms > shape.starts.period_ms).then(|| usize::try_from(most).unwrap_or(0) + 1)
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
        let Some(shape) = self.shape() else { return Grid { period_ms: WHOLE_END, offset_ms: 0 } };
        let Grid { period_ms, offset_ms } = shape.ends();
        Grid { period_ms, offset_ms: offset_ms.rem_euclid(period_ms) }
    }

    /// From the end of one window to the end of the next.
    pub(super) fn step_ms(&self) -> i64 {
        self.shape().map_or(WHOLE_END, |shape| shape.step_ms)
    }

    /// How long the longest window is.
    pub(super) fn span_ms(&self) -> i64 {
        self.shape().map_or(WHOLE_END, |shape| shape.longest_ms)
    }

    /// The start of the window that ends there.
    pub(super) fn start_of(&self, end: i64) -> i64 {
        self.shape().map_or(i64::MIN, |shape| shape.start_of(end))
    }

    /// The slice that holds a time.
    #[inline]
    pub(super) fn slice(&self, time: i64) -> Slice {
        match self.shape() {
            Some(shape) => shape.slice(time),
            None => Slice { start: i64::MIN, end: WHOLE_END, enter: WHOLE_END, leave: WHOLE_END },
        }
    }
}

/// As in EXPLAIN: the call in SQL, with lengths in milliseconds.
impl fmt::Display for WindowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Shape { name, lengths, starts, .. }) = self.shape() else {
            return f.write_str("all rows");
        };
        let lengths: Vec<String> =
            lengths.iter().flatten().map(|length| format!("{length} ms")).collect();
        write!(f, "{name}({}", lengths.join(", "))?;
        if starts.offset_ms != 0 {
            write!(f, ", offset {} ms", starts.offset_ms)?;
        }
        f.write_str(")")
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
                WindowSpec::Cumulate { step_ms, max_size_ms, offset_ms } => {
                    let start = n * max_size_ms + offset_ms;
                    (1..=max_size_ms / step_ms).map(|k| (start, start + k * step_ms)).collect()
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
            WindowSpec::Cumulate { step_ms: 5, max_size_ms: 20, offset_ms: 7 },
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
        let odd = WindowSpec::Cumulate { step_ms: 7, max_size_ms: 20, offset_ms: 0 };
        assert!(odd.validate().expect_err("refused").message().contains("multiple of the step"));
        assert!(WindowSpec::Tumble { size_ms: 0, offset_ms: 0 }.validate().is_err());
    }
}
