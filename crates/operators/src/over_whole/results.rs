//! What is computed from the rows of a key.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::UInt32Array;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, new_null_array};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use thalweg_core::{Error, Result};

use super::frames::{FrameBound, frames, peers};
use super::{WholeFunction, WholeSpec};
use crate::aggregate::{Accumulator, AggregateCall, RowOrder, UpdateInput};

/// Rows of frames that are aggregated at once.
const PAIRS: usize = 64 * 1024;

/// A column for each call, over the rows of one key in their order.
pub(super) fn of_key(spec: &WholeSpec, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let peers = peers(&spec.order, rows, &spec.input)?;
    let mut seen = None;
    let mut results = Vec::with_capacity(spec.calls.len());
    for call in &spec.calls {
        results.push(match &call.function {
            WholeFunction::Aggregate(aggregate) => {
                if seen.is_none() {
                    seen = Some(frames(&spec.frame, &spec.order, rows, &peers)?);
                }
                let frames = seen.as_deref().unwrap_or_default();
                aggregated(spec, aggregate, rows, frames)?
            }
            WholeFunction::Shifted { column, offset, default } => {
                shifted(rows, *column, *offset, *default, &call.result.data_type.arrow())?
            }
            number => numbered(number, &peers),
        });
    }
    Ok(results)
}

fn numbered(function: &WholeFunction, peers: &[Range<usize>]) -> ArrayRef {
    let count = peers.len();
    let whole = |value: &dyn Fn(usize) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..count).map(value)))
    };
    let share = |value: &dyn Fn(usize) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..count).map(value)))
    };
    match function {
        WholeFunction::Rank => whole(&|row| peers[row].start as i64 + 1),
        WholeFunction::DenseRank => {
            let mut rank = 0;
            let ranks = peers.iter().enumerate().map(|(row, peers)| {
                rank += i64::from(peers.start == row);
                rank
            });
            Arc::new(Int64Array::from_iter_values(ranks))
        }
        WholeFunction::PercentRank => share(&|row| match count {
            1 => 0.0,
            _ => peers[row].start as f64 / (count - 1) as f64,
        }),
        WholeFunction::CumulativeDistribution => share(&|row| peers[row].end as f64 / count as f64),
        WholeFunction::Tile(tiles) => {
            let tiles = usize::try_from(*tiles).unwrap_or(usize::MAX);
            whole(&|row| tile(row, count, tiles))
        }
        _ => whole(&|row| row as i64 + 1),
    }
}

/// The first `count % tiles` shares have one row more than the others.
fn tile(row: usize, count: usize, tiles: usize) -> i64 {
    let (size, larger) = (count / tiles, count % tiles);
    let of_larger = larger * (size + 1);
    let tile = match row < of_larger {
        true => row / (size + 1),
        false => larger + (row - of_larger) / size.max(1),
    };
    tile as i64 + 1
}

/// The value of another row, or what stands in for it.
fn shifted(
    rows: &RecordBatch,
    column: usize,
    offset: i64,
    default: Option<usize>,
    result: &arrow_schema::DataType,
) -> Result<ArrayRef> {
    let count = rows.num_rows();
    let values = rows.column(column);
    let other = match default {
        Some(default) => Arc::clone(rows.column(default)),
        None => new_null_array(values.data_type(), count),
    };
    let place = |row: usize| {
        let at = i64::try_from(row).ok().and_then(|row| row.checked_add(offset));
        let at = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < count);
        at.map_or((1, row), |at| (0, at))
    };
    let places: Vec<(usize, usize)> = (0..count).map(place).collect();
    let shifted = interleave(&[values.as_ref(), other.as_ref()], &places)?;
    if shifted.data_type() != result {
        return Err(Error::internal("LAG and LEAD give values of the type of their argument"));
    }
    Ok(shifted)
}

/// An aggregate for each row over its frame.
fn aggregated(
    spec: &WholeSpec,
    call: &AggregateCall,
    rows: &RecordBatch,
    frames: &[Range<usize>],
) -> Result<ArrayRef> {
    let argument = call.argument.map(|column| &spec.input.columns[column].column_type.data_type);
    let rows = CountedRows {
        argument: call.argument.map(|column| rows.column(column)),
        filter: call.filter.map(|column| rows.column(column)),
        states: call.accumulator(argument)?,
    };
    let is_suffix = spec.frame.end == FrameBound::UnboundedFollowing
        && frames.is_sorted_by_key(|frame| frame.start);
    match spec.frame.start {
        FrameBound::UnboundedPreceding => rows.growing(frames),
        _ if is_suffix && call.is_exact() => rows.growing_backwards(frames),
        _ => rows.each(frames),
    }
}

struct CountedRows<'a> {
    argument: Option<&'a ArrayRef>,
    filter: Option<&'a ArrayRef>,
    states: Box<dyn Accumulator>,
}

impl CountedRows<'_> {
    fn counts(&self, row: usize) -> bool {
        self.filter.is_none_or(|filter| {
            let filter = filter.as_boolean();
            filter.is_valid(row) && filter.value(row)
        })
    }

    fn update(&mut self, ids: &[u32], rows: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let (argument, order) = (self.argument, RowOrder::default());
        self.states.update(&UpdateInput { ids, rows: Some(rows), argument, order })
    }

    /// Frames that begin with the first row: each continues the one before.
    fn growing(self, frames: &[Range<usize>]) -> Result<ArrayRef> {
        let mut end = 0;
        let added = |(row, frame): (usize, &Range<usize>)| {
            (row, std::mem::replace(&mut end, frame.end)..frame.end)
        };
        self.running(frames.iter().enumerate().map(added), frames.len())
    }

    /// Frames that end with the last row, from the last one on: each continues the one behind. Only
    /// for aggregates that do not depend on the order of rows.
    fn growing_backwards(self, frames: &[Range<usize>]) -> Result<ArrayRef> {
        let mut start = None;
        let added = |(row, frame): (usize, &Range<usize>)| {
            (row, frame.start..start.replace(frame.start).unwrap_or(frame.end))
        };
        self.running(frames.iter().enumerate().rev().map(added), frames.len())
    }

    /// One state for all results, `count` of them: each has a place, and adds rows to those of the
    /// result before it.
    fn running(
        mut self,
        results: impl Iterator<Item = (usize, Range<usize>)>,
        count: usize,
    ) -> Result<ArrayRef> {
        self.states.grow(1);
        let (mut different, mut of_row) = (Vec::new(), vec![0; count]);
        for (row, added) in results {
            if different.is_empty() || !added.is_empty() {
                let counted = added.filter(|&row| self.counts(row)).map(|row| row as u32);
                let rows: Vec<u32> = counted.collect();
                self.update(&vec![0; rows.len()], &rows)?;
                different.push(self.states.evaluate(&[0])?);
            }
            of_row[row] = (different.len() - 1) as u32;
        }
        let different: Vec<&dyn Array> = different.iter().map(AsRef::as_ref).collect();
        Ok(take(&concat(&different)?, &UInt32Array::from(of_row), None)?)
    }

    /// Other frames, each for itself.
    fn each(mut self, frames: &[Range<usize>]) -> Result<ArrayRef> {
        let mut results = Vec::new();
        let mut next = 0;
        while next < frames.len() {
            let (first, mut pairs) = (next, 0);
            let (mut ids, mut rows) = (Vec::new(), Vec::new());
            while next < frames.len() && (pairs == 0 || pairs + frames[next].len() <= PAIRS) {
                let id = (next - first) as u32;
                let seen = frames[next].clone().filter(|&row| self.counts(row));
                rows.extend(seen.map(|row| row as u32));
                ids.resize(rows.len(), id);
                pairs += frames[next].len();
                next += 1;
            }
            self.states.grow(next - first);
            self.update(&ids, &rows)?;
            let all: Vec<u32> = (0..(next - first) as u32).collect();
            results.push(self.states.evaluate(&all)?);
            self.states.reset(&all);
        }
        let results: Vec<&dyn Array> = results.iter().map(AsRef::as_ref).collect();
        Ok(concat(&results)?)
    }
}
