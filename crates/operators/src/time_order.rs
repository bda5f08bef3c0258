//! A source whose rows come in the order of their row time: checked, or sorted within a bound.
//!
//! The contract `event_time` merges inputs by time, so each must be sorted. Without a bound the
//! first row that is older than the one before it is refused. With a bound (`'source.sort-within'`)
//! rows wait until the newest time seen is more than the bound ahead of them and leave by (time,
//! arrival); a row that comes later than the bound allows is refused. Whether it is depends on the
//! rows before it alone, not on how they were cut into batches.
//!
//! # Where to continue
//! A position has no rows, so those that wait are read again: it is a position of the inner source
//! before the oldest row that waits, with how many rows had come since, and the time up to which
//! rows had left. Of the rows that come again those up to that time are dropped; all others wait as
//! they did. `Marks` keeps positions of the inner source, from the first time on that a position
//! was asked for.
//!
//! Rows that were sorted no longer come from one place of one file, so errors downstream name none.
//!
//! **Invariants**
//! - `newest_ms - within_ms` never falls, and all rows up to it have left.
//! - A row is refused exactly if it is older than that bound, so no row can arrive behind one that
//!   has left.
//! - Rows leave by (time, arrival): rows of equal time keep the order of the source.

mod position;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::connector::{self, Origin, Waker};
use thalweg_core::shim::SharedClock;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{
    Error, Result, Source, SourceBatch, SourcePoll, SplitId, Watermark, WatermarkBefore,
};
use thalweg_expr::{EvalContext, Expr};

use self::position::{Marks, OrderedPosition};

/// From this mean length on runs are copied whole instead of row by row.
const RUN_ROWS_MIN: usize = 8;

/// Wraps a source.
pub struct TimeOrderedSource {
    inner: Box<dyn Source>,
    table: String,
    /// The row time over the delivered columns.
    rowtime: Expr,
    /// How far rows may be out of order; `None` if they may not.
    within_ms: Option<i64>,
    clock: SharedClock,
    waiting: Waiting,
    newest_ms: i64,
    /// A promise of the source, to be passed on behind the rows that it lets go.
    heartbeat_ms: Option<i64>,
    has_ended: bool,
    marks: Marks,
    /// Rows that had come before the position that this run continues from: they come again.
    again: u64,
}

impl TimeOrderedSource {
    /// A source of `table` whose row time is this expression over the columns that it delivers.
    pub fn new(
        inner: Box<dyn Source>,
        table: String,
        rowtime: Expr,
        within_ms: Option<i64>,
        clock: SharedClock,
    ) -> Self {
        TimeOrderedSource {
            inner,
            table,
            rowtime,
            within_ms,
            clock,
            waiting: Waiting::default(),
            newest_ms: i64::MIN,
            heartbeat_ms: None,
            has_ended: false,
            marks: Marks::default(),
            again: 0,
        }
    }

    fn times(&self, batch: &RecordBatch, origin: Option<&Origin>) -> Result<ScalarBuffer<i64>> {
        let watermark_before = WatermarkBefore::All(Watermark::MIN);
        let wall_ms = self.clock.wall_ms();
        let context = EvalContext { batch, watermark_before: &watermark_before, wall_ms };
        let times = self.rowtime.evaluate(&context)?;
        let times = times
            .as_primitive_opt::<TimestampMillisecondType>()
            .ok_or_else(|| Error::internal(format!("a row time of type {}", times.data_type())))?;
        if times.null_count() > 0 {
            let row = (0..times.len()).find(|&row| times.is_null(row)).unwrap_or_default();
            let error = Error::data(format!(
                "a row time of table '{}' is NULL, so its row has no place in the order of time",
                self.table
            ))
            .hint("repair the row, or fill the gap with a computed column (COALESCE)");
            return Err(at(error, origin, row));
        }
        Ok(times.values().clone())
    }

    /// Refuses the first row that is further behind the newest before it than is allowed.
    fn check(&mut self, times: &[i64], origin: Option<&Origin>) -> Result<()> {
        // Rows that come again were checked by the run before.
        let again = self.again.saturating_sub(self.waiting.arrived);
        let again = usize::try_from(again).unwrap_or(usize::MAX);
        for (row, &time) in times.iter().enumerate().skip(again) {
            let behind = i128::from(self.newest_ms) - i128::from(time);
            if self.newest_ms > i64::MIN && behind > i128::from(self.within_ms.unwrap_or(0)) {
                return Err(at(self.out_of_order(time, behind), origin, row));
            }
            self.newest_ms = self.newest_ms.max(time);
        }
        Ok(())
    }

    fn out_of_order(&self, time: i64, behind_ms: i128) -> Error {
        let (time, newest) =
            (format_timestamp_millis(time, 3), format_timestamp_millis(self.newest_ms, 3));
        let table = &self.table;
        match self.within_ms {
            None => Error::data(format!(
                "table '{table}' is not sorted by its row time: a row of {time} comes after one of {newest}"
            ))
            .hint(format!(
                "contract 'event_time' needs sorted inputs: add 'source.sort-within' = '{behind_ms} ms' \
                 (or more) to the table's options, or SET 'pipeline.order' = 'arrival'"
            )),
            Some(within_ms) => Error::data(format!(
                "a row of table '{table}' comes {behind_ms} ms behind the newest one ({time} after \
                 {newest}), and 'source.sort-within' is {within_ms} ms"
            ))
            .hint("raise 'source.sort-within'"),
        }
    }

    /// No row to come is older than this, so none has to wait for one.
    fn take_heartbeat(&mut self, time_ms: i64) -> Result<SourcePoll> {
        let within_ms = self.within_ms.unwrap_or(0);
        // As if a row had come that is so far ahead that none before the promise is allowed.
        self.newest_ms = self.newest_ms.max(time_ms.saturating_add(within_ms));
        let Some(batch) = self.release(self.newest_ms.saturating_sub(within_ms))? else {
            return Ok(SourcePoll::Heartbeat(SplitId::ONLY, time_ms));
        };
        self.heartbeat_ms = Some(time_ms);
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }

    /// Takes rows in and returns those that can leave.
    fn sort(&mut self, batch: RecordBatch, times: &[i64], within_ms: i64) -> Result<RecordBatch> {
        let nothing = batch.slice(0, 0);
        self.waiting.add(batch, times, self.again);
        let released = self.release(self.newest_ms.saturating_sub(within_ms))?;
        Ok(released.unwrap_or(nothing))
    }

    /// The rows up to this time, and the mark behind which others were read.
    fn release(&mut self, bound_ms: i64) -> Result<Option<RecordBatch>> {
        let released = self.waiting.release(bound_ms)?;
        self.marks.forget(self.waiting.oldest());
        Ok(released)
    }
}

/// Adds the file and the row, where they are known.
fn at(error: Error, origin: Option<&Origin>, row: usize) -> Error {
    match origin {
        Some(origin) => error.at_row(&*origin.file, origin.first_row + row as u64),
        None => error,
    }
}

/// Rows that wait for others, and leave by (time, arrival).
struct Waiting {
    /// In the order of arrival; each has a row that waits, but for some in the middle.
    batches: VecDeque<WaitingBatch>,
    /// (time, number of the row by arrival) of every row that waits.
    rows: BinaryHeap<Reverse<(i64, u64)>>,
    /// Rows that have come so far.
    arrived: u64,
    /// Bytes of `batches`.
    bytes: usize,
    /// How many of `batches` have no row that waits.
    empty: usize,
    /// All rows up to this time have left.
    left_ms: i64,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting {
            batches: VecDeque::new(),
            rows: BinaryHeap::new(),
            arrived: 0,
            bytes: 0,
            empty: 0,
            left_ms: i64::MIN,
        }
    }
}

struct WaitingBatch {
    batch: RecordBatch,
    /// The number of its first row.
    first: u64,
    rows_left: usize,
    bytes: usize,
}

/// Rows of one batch that leave one behind the other.
struct Run {
    batch: usize,
    from: usize,
    rows: usize,
}

impl Waiting {
    /// Adds rows. Of those with a number below `again` the ones that have left before are dropped.
    fn add(&mut self, batch: RecordBatch, times: &[i64], again: u64) {
        let (first, before) = (self.arrived, self.rows.len());
        let left_ms = self.left_ms;
        let rows = times.iter().zip(first..).map(|(&time, number)| Reverse((time, number)));
        if first < again {
            let waits = |row: &Reverse<(i64, u64)>| row.0.1 >= again || row.0.0 > left_ms;
            self.rows.extend(rows.filter(waits));
        } else {
            self.rows.extend(rows);
        }
        self.arrived += times.len() as u64;
        let (rows_left, bytes) = (self.rows.len() - before, batch_bytes(&batch));
        if rows_left > 0 {
            self.bytes += bytes;
            self.batches.push_back(WaitingBatch { batch, first, rows_left, bytes });
        }
    }

    /// The number of the first row that may wait.
    fn oldest(&self) -> u64 {
        self.batches.front().map_or(self.arrived, |batch| batch.first)
    }

    fn bytes(&self) -> usize {
        self.bytes + self.rows.capacity() * size_of::<(i64, u64)>()
    }

    /// The rows up to this time, sorted; `None` if there are none.
    fn release(&mut self, bound_ms: i64) -> Result<Option<RecordBatch>> {
        self.left_ms = self.left_ms.max(bound_ms);
        let mut runs: Vec<Run> = Vec::new();
        let mut rows = 0;
        while let Some(&Reverse((time, number))) = self.rows.peek()
            && time <= bound_ms
        {
            self.rows.pop();
            rows += 1;
            let batch = self.batches.partition_point(|batch| batch.first <= number) - 1;
            let row = (number - self.batches[batch].first) as usize;
            self.batches[batch].rows_left -= 1;
            self.empty += usize::from(self.batches[batch].rows_left == 0);
            match runs.last_mut() {
                Some(run) if (run.batch, run.from + run.rows) == (batch, row) => run.rows += 1,
                _ => runs.push(Run { batch, from: row, rows: 1 }),
            }
        }
        let released = match &runs[..] {
            [] => None,
            runs if runs.len() * RUN_ROWS_MIN <= rows || runs.len() == 1 => Some(self.whole(runs)?),
            runs => Some(self.row_by_row(runs, rows)?),
        };
        self.drop_empty();
        Ok(released)
    }

    /// Rows in long runs as one batch.
    fn whole(&self, runs: &[Run]) -> Result<RecordBatch> {
        let slice = |run: &Run| self.batches[run.batch].batch.slice(run.from, run.rows);
        if let [only] = runs {
            return Ok(slice(only));
        }
        let slices: Vec<RecordBatch> = runs.iter().map(slice).collect();
        Ok(concat_batches(&slices[0].schema(), &slices)?)
    }

    /// Rows that go to and fro between batches as one batch.
    fn row_by_row(&self, runs: &[Run], rows: usize) -> Result<RecordBatch> {
        let mut used: Vec<usize> = runs.iter().map(|run| run.batch).collect();
        used.sort_unstable();
        used.dedup();
        let batches: Vec<&RecordBatch> =
            used.iter().map(|&batch| &self.batches[batch].batch).collect();
        let mut indices = Vec::with_capacity(rows);
        for run in runs {
            let batch = used.partition_point(|&batch| batch < run.batch);
            indices.extend((run.from..run.from + run.rows).map(|row| (batch, row)));
        }
        Ok(interleave_record_batch(&batches, &indices)?)
    }

    /// Forgets batches of which no row waits. Some may stay in the middle until they are half of
    /// all: then forgetting them costs little for each row.
    fn drop_empty(&mut self) {
        while self.batches.front().is_some_and(|batch| batch.rows_left == 0) {
            let batch = self.batches.pop_front().expect("seen above");
            self.bytes -= batch.bytes;
            self.empty -= 1;
        }
        if 2 * self.empty > self.batches.len() {
            self.empty = 0;
            self.batches.retain(|batch| batch.rows_left > 0);
            self.bytes = self.batches.iter().map(|batch| batch.bytes).sum();
        }
    }
}

impl connector::SourceLayer for TimeOrderedSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        self.inner.as_mut()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.marks.begin(self.inner.position());
        self.inner.start(waker)
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(time_ms) = self.heartbeat_ms.take() {
            return Ok(SourcePoll::Heartbeat(SplitId::ONLY, time_ms));
        }
        if self.has_ended {
            return Ok(SourcePoll::End);
        }
        if self.within_ms.is_some() && self.marks.wants(self.waiting.arrived) {
            self.marks.add(self.waiting.arrived, self.inner.position());
        }
        let SourceBatch { batch, origin, .. } = match self.inner.poll(rows_max)? {
            SourcePoll::Batch(batch) => batch,
            SourcePoll::Pending => return Ok(SourcePoll::Pending),
            SourcePoll::Heartbeat(_, time_ms) => return self.take_heartbeat(time_ms),
            SourcePoll::Split(..) => {
                return Err(Error::unsupported(
                    "the order of time over inputs with several splits",
                ));
            }
            SourcePoll::End => {
                self.has_ended = true;
                return Ok(match self.release(i64::MAX)? {
                    None => SourcePoll::End,
                    Some(batch) => SourcePoll::Batch(SourceBatch::new(batch)),
                });
            }
        };
        let times = self.times(&batch, origin.as_ref())?;
        self.check(&times, origin.as_ref())?;
        Ok(SourcePoll::Batch(match self.within_ms {
            None => SourceBatch { origin, ..SourceBatch::new(batch) },
            Some(within_ms) => {
                let batch = self.sort(batch, &times, within_ms)?;
                SourceBatch::new(batch)
            }
        }))
    }

    fn buffered_bytes(&self) -> usize {
        self.waiting.bytes() + self.marks.bytes() + self.inner.buffered_bytes()
    }

    fn position(&self) -> Option<String> {
        let arrived = self.waiting.arrived.max(self.again);
        let (first, inner) = match self.marks.first() {
            Some((first, inner)) if self.waiting.oldest() < arrived => (first, inner?.to_owned()),
            _ => (arrived, self.inner.position()?),
        };
        let position = OrderedPosition {
            rows: arrived - first,
            left_ms: self.waiting.left_ms,
            newest_ms: self.newest_ms,
            heartbeat_ms: self.heartbeat_ms,
            inner,
        };
        Some(position.write())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let position = OrderedPosition::read(position)?;
        self.inner.seek(&position.inner)?;
        self.marks.ask();
        self.again = position.rows;
        self.waiting.left_ms = position.left_ms;
        self.newest_ms = position.newest_ms;
        self.heartbeat_ms = position.heartbeat_ms;
        Ok(())
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        self.inner.check_ended(&OrderedPosition::read(position)?.inner)
    }

    fn committed(&mut self, position: &str) -> Result<()> {
        self.inner.committed(&OrderedPosition::read(position)?.inner)
    }
}
