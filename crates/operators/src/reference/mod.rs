//! The reference executor: one thread, one row at a time, written for clarity.
//!
//! It says what a pipeline `assign → filter and project → window aggregate` means, and is the
//! oracle of the engine's tests. It shares no code with the operators: values are an enum, windows
//! are enumerated one by one, every window of every key keeps all the values that it was given, and
//! nothing is freed before the end. It is slow on purpose; not for production.
//!
//! What lateness means, as the code below has it:
//! - each split has a running watermark, the maximum that its rows have established so far;
//! - a row is judged against the running watermark of its split just before it;
//! - a window is closed for a row when that watermark is at or after the window's end minus 1 ms;
//! - a row whose windows are all closed is late; otherwise it is accepted and added to the windows
//!   that are open for it, and counted as partly late if some were closed.

mod aggregate;
#[cfg(test)]
pub(crate) mod doubles;
pub mod sequence;
mod session;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;

pub use aggregate::{ReferenceAggregate, ReferenceFunction};
#[cfg(test)]
pub(crate) use aggregate::{list, median};
pub use value::Value;

/// A row and the split (file, partition or input) that it arrived by.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// From 0.
    pub split: usize,
    /// One per column.
    pub values: Vec<Value>,
}

impl Row {
    /// A row of the first split.
    pub fn new(values: Vec<Value>) -> Self {
        Row { split: 0, values }
    }
}

/// A kind of window, times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceWindow {
    /// Side by side.
    Tumble {
        /// Length.
        size_ms: i64,
        /// Where one of them begins.
        offset_ms: i64,
    },
    /// One begins every `slide_ms`.
    Hop {
        /// Distance between two beginnings.
        slide_ms: i64,
        /// Length.
        size_ms: i64,
        /// Where one of them begins.
        offset_ms: i64,
    },
    /// Growing by `step_ms` up to `max_size_ms`, then from the start.
    Cumulate {
        /// By how much each grows.
        step_ms: i64,
        /// Length of the longest.
        max_size_ms: i64,
        /// Where one of them begins.
        offset_ms: i64,
    },
    /// Rows of one key no further apart than `gap_ms`.
    Session {
        /// The longest silence inside a session.
        gap_ms: i64,
    },
}

impl ReferenceWindow {
    /// The windows that a row at this time belongs to, as (start, end). A session that the row
    /// would make alone, for sessions.
    pub fn windows_of(self, time: i64) -> Vec<(i64, i64)> {
        match self {
            ReferenceWindow::Tumble { size_ms, offset_ms } => {
                let start = floor(time, size_ms, offset_ms);
                vec![(start, start + size_ms)]
            }
            ReferenceWindow::Hop { slide_ms, size_ms, offset_ms } => {
                let mut windows = Vec::new();
                let mut start = floor(time, slide_ms, offset_ms);
                while start + size_ms > time {
                    windows.push((start, start + size_ms));
                    start -= slide_ms;
                }
                windows
            }
            ReferenceWindow::Cumulate { step_ms, max_size_ms, offset_ms } => {
                let start = floor(time, max_size_ms, offset_ms);
                (1..=max_size_ms / step_ms)
                    .map(|steps| (start, start + steps * step_ms))
                    .filter(|(_, end)| *end > time)
                    .collect()
            }
            ReferenceWindow::Session { gap_ms } => vec![(time, time + gap_ms)],
        }
    }
}

fn floor(time: i64, period: i64, offset: i64) -> i64 {
    (time - offset).div_euclid(period) * period + offset
}

/// What the watermark expression of a table gives for a row.
pub type WatermarkFunction = Box<dyn Fn(&[Value]) -> Option<i64>>;
/// A condition on a row.
pub type FilterFunction = Box<dyn Fn(&[Value]) -> bool>;
/// A row made of another.
pub type ProjectFunction = Box<dyn Fn(&[Value]) -> Vec<Value>>;

/// A pipeline.
pub struct ReferenceQuery {
    /// The watermark that a row of the source establishes, in milliseconds.
    pub watermark: WatermarkFunction,
    /// Which rows continue.
    pub filter: Option<FilterFunction>,
    /// What the rows that continue look like.
    pub project: Option<ProjectFunction>,
    /// Position of the row time behind the projection; a [`Value::Integer`] in milliseconds.
    pub rowtime: usize,
    /// The windows.
    pub window: ReferenceWindow,
    /// Positions of the key columns behind the projection.
    pub keys: Vec<usize>,
    /// What is computed per window and key.
    pub aggregates: Vec<ReferenceAggregate>,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferenceResult {
    /// Keys, aggregates, window start, window end; by end, then start, then keys.
    pub rows: Vec<Vec<Value>>,
    /// Rows that were late for all their windows, as they were behind the projection, by arrival.
    pub late: Vec<Vec<Value>>,
    /// How many rows were added to a window at least.
    pub accepted: u64,
    /// How many of them were late for another.
    pub partly_late: u64,
}

/// A window's end, its start, and a key: results come out in this order.
type Cell = (i64, i64, Vec<Value>);

/// Runs the pipeline over the rows in order of arrival.
pub fn run(query: &ReferenceQuery, rows: Vec<Row>) -> ReferenceResult {
    let splits = rows.iter().map(|row| row.split + 1).max().unwrap_or(0);
    let mut running = vec![i64::MIN; splits];
    let mut state = State::default();
    for row in rows {
        let before = running[row.split];
        let joint = running.iter().copied().min().unwrap_or(i64::MIN);
        if let Some(watermark) = (query.watermark)(&row.values) {
            running[row.split] = before.max(watermark);
        }
        if query.filter.as_ref().is_some_and(|keep| !keep(&row.values)) {
            continue;
        }
        let values = match &query.project {
            Some(project) => project(&row.values),
            None => row.values,
        };
        state.add(query, values, before, joint);
    }
    state.finish(query)
}

#[derive(Default)]
struct State {
    /// The rows of each window and key, by arrival.
    cells: BTreeMap<Cell, Vec<Vec<Value>>>,
    sessions: session::Sessions,
    result: ReferenceResult,
}

impl State {
    fn add(&mut self, query: &ReferenceQuery, values: Vec<Value>, before: i64, joint: i64) {
        let Value::Integer(time) = values[query.rowtime] else {
            panic!("a row time is an integer and not NULL, but it is {:?}", values[query.rowtime])
        };
        let key: Vec<Value> = query.keys.iter().map(|&key| values[key].clone()).collect();
        if let ReferenceWindow::Session { gap_ms } = query.window {
            self.sessions.close(joint, &mut self.cells);
            match self.sessions.add(key, time, gap_ms, values, before) {
                Ok(()) => self.result.accepted += 1,
                Err(late) => self.result.late.push(late),
            }
            return;
        }
        let windows = query.window.windows_of(time);
        let open: Vec<_> = windows.iter().filter(|(_, end)| end - 1 > before).collect();
        if open.is_empty() {
            // A hopping window may leave gaps: a row in a gap has no window to be late for.
            if !windows.is_empty() {
                self.result.late.push(values);
            } else {
                self.result.accepted += 1;
            }
            return;
        }
        self.result.accepted += 1;
        if open.len() < windows.len() {
            self.result.partly_late += 1;
        }
        for (start, end) in open {
            self.cells.entry((*end, *start, key.clone())).or_default().push(values.clone());
        }
    }

    fn finish(mut self, query: &ReferenceQuery) -> ReferenceResult {
        self.sessions.close(i64::MAX, &mut self.cells);
        for ((end, start, key), rows) in self.cells {
            let mut out = key;
            out.extend(query.aggregates.iter().map(|aggregate| aggregate.of(&rows)));
            out.extend([Value::Integer(start), Value::Integer(end)]);
            self.result.rows.push(out);
        }
        self.result
    }
}
