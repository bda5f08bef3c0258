//! The very sequence of rows that a pipeline means in the contracts `arrival` and `event_time`:
//! what one thread gives that takes one row at a time.
//!
//! A plan is a list of [`Stage`]s, an input a list of [`Step`]s: rows, each with the running
//! watermark of its split just before it, and the watermarks where they stand between rows. Each
//! stage turns the steps of the one before into its own, so nothing here depends on bundles,
//! partitions or threads, because there are none. What is promised:
//!
//! - rows made from rows come in the order of the rows that caused them;
//! - windows leave at the watermark that closes them, by window end, then by the key's virtual
//!   partition, then by the key (NULL first, each column in the order of its values);
//! - rows made at a watermark have as their `before` the last watermark that was passed on earlier,
//!   and so have rows that a LIMIT lets through; a chain keeps `before`;
//! - doubles are added up in the order of rows within a slice, slices oldest first (see `fold.rs`).
//!
//! Written for clarity, and without any code of the operators. Windows stand in UTC, there is one
//! lane, and keys are of any type but FLOAT. Not for production: state is only freed when a window
//! closes, and every window keeps all values.

mod canonical;
mod fold;
mod sorting;
mod steps;
#[cfg(test)]
mod tests;
mod windows;

use super::{ReferenceWindow, Value};
use crate::sort::SortKey;

pub use steps::{Step, Values, WindowStage};

/// What each row becomes: no row, one or several.
pub type ChainFunction = Box<dyn Fn(&[Value]) -> Vec<Values>>;

/// A stage of a plan.
pub enum Stage {
    /// Filters, projections and everything else without state.
    Chain(ChainFunction),
    /// Aggregates per window and key: keys, results, window start, end and time.
    Windows(WindowStage),
    /// Passes over some rows, then lets some through.
    Limit {
        /// How many pass; `None` for all.
        limit: Option<u64>,
        /// How many are passed over first.
        offset: u64,
    },
    /// Sorts all rows at the end of time, ties by arrival.
    Sort {
        /// The first is the most significant.
        keys: Vec<SortKey>,
        /// How many leave; `None` for all.
        limit: Option<u64>,
        /// How many are passed over first.
        offset: u64,
    },
    /// Sorts rows by time as the watermark passes them, then by keys, then by arrival.
    TemporalSort {
        /// The position of the row time.
        rowtime: usize,
        /// Further keys.
        keys: Vec<SortKey>,
    },
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// The rows that left the last stage.
    pub rows: Vec<Values>,
    /// For each stage, the rows that it found late, by arrival.
    pub late: Vec<Vec<Values>>,
}

/// Runs a plan over an input. The end of time is added where it is missing.
///
/// ```
/// use thalweg_operators::reference::Value;
/// use thalweg_operators::reference::sequence::{Stage, Step, run};
/// let row = |n| Step::Row { values: vec![Value::Integer(n)], before: i64::MIN };
/// let result = run(&[Stage::Limit { limit: Some(1), offset: 1 }], vec![row(7), row(8), row(9)]);
/// assert_eq!(result.rows, [[Value::Integer(8)]]);
/// ```
pub fn run(stages: &[Stage], mut steps: Vec<Step>) -> Sequence {
    if steps.last() != Some(&Step::Watermark(i64::MAX)) {
        steps.push(Step::Watermark(i64::MAX));
    }
    let mut sequence = Sequence::default();
    for stage in stages {
        let mut late = Vec::new();
        steps = stage.run(steps, &mut late);
        sequence.late.push(late);
    }
    let row = |step| match step {
        Step::Row { values, .. } => Some(values),
        Step::Watermark(_) => None,
    };
    sequence.rows = steps.into_iter().filter_map(row).collect();
    sequence
}

impl Stage {
    fn run(&self, steps: Vec<Step>, late: &mut Vec<Values>) -> Vec<Step> {
        match self {
            Stage::Chain(function) => chain(function, steps),
            Stage::Windows(stage) => match stage.window {
                ReferenceWindow::Session { gap_ms } => {
                    windows::sessions(stage, gap_ms, steps, late)
                }
                _ => windows::aligned(stage, steps, late),
            },
            Stage::Limit { limit, offset } => cut(*limit, *offset, steps),
            Stage::Sort { keys, limit, offset } => {
                cut(*limit, *offset, sorting::at_the_end(keys, steps))
            }
            Stage::TemporalSort { rowtime, keys } => sorting::by_time(*rowtime, keys, steps, late),
        }
    }
}

fn chain(function: &ChainFunction, steps: Vec<Step>) -> Vec<Step> {
    let mut out = Vec::new();
    for step in steps {
        match step {
            Step::Row { values, before } => {
                let rows = function(&values).into_iter();
                out.extend(rows.map(|values| Step::Row { values, before }));
            }
            watermark => out.push(watermark),
        }
    }
    out
}

/// Passes over some rows, then lets some through.
fn cut(limit: Option<u64>, offset: u64, steps: Vec<Step>) -> Vec<Step> {
    let (mut skip, mut left) = (offset, limit.unwrap_or(u64::MAX));
    let mut passed = i64::MIN;
    let mut out = Vec::new();
    for step in steps {
        match step {
            Step::Watermark(watermark) => {
                passed = watermark;
                out.push(step);
            }
            Step::Row { .. } if skip > 0 => skip -= 1,
            Step::Row { values, .. } if left > 0 => {
                left -= 1;
                out.push(Step::Row { values, before: passed });
            }
            Step::Row { .. } => {}
        }
    }
    out
}
