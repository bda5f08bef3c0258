//! A source whose rows come in the order of their row time: checked, or sorted within a bound.
//!
//! The contract `event_time` merges inputs by time, so each must be sorted. Without a bound the
//! first row that is older than the one before it is refused. With a bound (`'source.sort-within'`)
//! rows wait until the newest time seen is more than the bound ahead of them and leave by (time,
//! arrival); a row that comes later than the bound allows is refused. Whether it is depends on the
//! rows before it alone, not on how they were cut into batches.
//!
//! # Several splits
//! A source with splits is brought into one sequence, by (time, name of the split, place in the
//! split): each split must be sorted, or sorted within the bound, and a row leaves when every split
//! has shown that it has none that old any more. So the sequence depends on the data alone. Behind
//! this there is one split. A split that only waits is not idle: the sequence would depend on the
//! clock. While much waits, splits that are ahead are paused.
//!
//! A split that comes while others are under way may have no rows older than those that have left.
//!
//! # Where to continue
//! A position has no rows, so those that wait are read again: it is a position of the inner source
//! before the oldest row that waits, with how many rows of each split had come since, and the time
//! up to which rows had left. Of the rows that come again those up to that time are dropped; all
//! others wait as they did. `Marks` keeps positions of the inner source, from the first time on
//! that a position was asked for.
//!
//! Rows that were sorted no longer come from one place of one file, so errors downstream name none.
//!
//! **Invariants**
//! - `newest_ms - within_ms` of a split never falls, and all rows up to the least of all splits
//!   have left; where splits are merged, all rows before it.
//! - A row is refused exactly if it is older than the bound of its split, so no row can arrive
//!   behind one that has left.
//! - Rows leave by (time, split, arrival): rows of equal time keep the order of their split.

mod position;
mod splits;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::connector::{self, MergedSplit, Origin, SplitEvent, Waker};
use thalweg_core::shim::SharedClock;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{
    Error, Result, Source, SourceBatch, SourcePoll, SplitId, Watermark, WatermarkBefore,
};
use thalweg_expr::{EvalContext, Expr};

use self::position::{Mark, Marks, OrderedPosition, SplitPosition};
use self::splits::{SplitOrder, Splits};

/// From this mean length on runs are copied whole instead of row by row.
const RUN_ROWS_MIN: usize = 8;

/// While rows of splits that are ahead take more than this, such splits are paused.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Wraps a source.
pub struct TimeOrderedSource {
    inner: Box<dyn Source>,
    table: String,
    /// The row time over the delivered columns.
    rowtime: Expr,
    /// How far rows may be out of order; `None` if they may not.
    within_ms: Option<i64>,
    /// Whether splits become one sequence.
    merges: bool,
    clock: SharedClock,
    waiting: Waiting,
    splits: Splits,
    /// Where the only split of a source that opens none continues.
    only: SplitPosition,
    /// A promise of the source, to be passed on behind the rows that it lets go.
    heartbeat_ms: Option<i64>,
    has_ended: bool,
    marks: Marks,
}

impl TimeOrderedSource {
    /// A source of `table` whose row time is this expression over the columns that it delivers.
    /// Its splits become one sequence if it `merges`; else it can have only one.
    pub fn new(
        inner: Box<dyn Source>,
        table: String,
        rowtime: Expr,
        within_ms: Option<i64>,
        merges: bool,
        clock: SharedClock,
    ) -> Self {
        TimeOrderedSource {
            inner,
            table,
            rowtime,
            within_ms,
            merges,
            clock,
            waiting: Waiting::default(),
            splits: Splits::default(),
            only: SplitPosition { newest_ms: i64::MIN, ..SplitPosition::default() },
            heartbeat_ms: None,
            has_ended: false,
            marks: Marks::default(),
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

    /// Refuses the first row that is further behind the newest before it in its split than is
    /// allowed. Says how many rows come again: the run before has checked those.
    fn check(&mut self, split: SplitId, times: &[i64], origin: Option<&Origin>) -> Result<usize> {
        let of = self.splits.at(split, &self.only)?;
        let again = of.again.saturating_sub(of.arrived).min(times.len() as u64) as usize;
        of.arrived += times.len() as u64;
        let mut newest_ms = of.newest_ms;
        let within_ms = self.within_ms.unwrap_or(0);
        for (row, &time) in times.iter().enumerate().skip(again) {
            let behind = i128::from(newest_ms) - i128::from(time);
            if newest_ms > i64::MIN && behind > i128::from(within_ms) {
                return Err(at(self.out_of_order(split, time, newest_ms), origin, row));
            }
            newest_ms = newest_ms.max(time);
        }
        of.newest_ms = newest_ms;
        Ok(again)
    }

    fn out_of_order(&self, split: SplitId, time_ms: i64, newest_ms: i64) -> Error {
        let behind_ms = i128::from(newest_ms) - i128::from(time_ms);
        let (time, newest) =
            (format_timestamp_millis(time_ms, 3), format_timestamp_millis(newest_ms, 3));
        let name = self.splits.get(split).map_or("", |split| &split.name);
        let of_split = if name.is_empty() { String::new() } else { format!(", split '{name}',") };
        let table = &self.table;
        match self.within_ms {
            None => Error::data(format!(
                "table '{table}'{of_split} is not sorted by its row time: a row of {time} comes after one of {newest}"
            ))
            .hint(format!(
                "contract 'event_time' needs sorted inputs: add 'source.sort-within' = '{behind_ms} ms' \
                 (or more) to the table's options, or SET 'pipeline.order' = 'arrival'"
            )),
            Some(within_ms) => Error::data(format!(
                "a row of table '{table}'{of_split} comes {behind_ms} ms behind the newest one ({time} after \
                 {newest}), and 'source.sort-within' is {within_ms} ms"
            ))
            .hint("raise 'source.sort-within'"),
        }
    }

    /// The time before which no row is to come any more; `None` before it is known.
    fn frontier_ms(&self) -> Option<i64> {
        let newest_ms = self.splits.last()?.shown_ms();
        (newest_ms > i64::MIN).then(|| newest_ms.saturating_sub(self.within_ms.unwrap_or(0)))
    }

    /// The rows that can leave: of one split those up to the frontier, since rows of equal time
    /// leave as they come; of several those before it, since another one may have some of its time.
    fn release_due(&mut self) -> Result<Option<RecordBatch>> {
        let is_merged = i64::from(self.splits.are_merged());
        let released = match self.frontier_ms() {
            Some(frontier_ms) => self.release(frontier_ms.saturating_sub(is_merged))?,
            None => None,
        };
        // Also before all have shown something: a split may stay empty.
        self.pause_if_much_waits();
        Ok(released)
    }

    /// Splits that are ahead of the last one bring nothing more while much waits for it.
    fn pause_if_much_waits(&mut self) {
        if !self.splits.are_merged() {
            return;
        }
        let last_ms = self.splits.last().map_or(i64::MAX, SplitOrder::shown_ms);
        let bytes = self.waiting.bytes;
        for split in self.splits.all_mut() {
            let is_ahead = split.shown_ms() > last_ms && !split.has_ended;
            let limit = if split.is_paused { WAITING_BYTES_MAX / 2 } else { WAITING_BYTES_MAX };
            let is_paused = is_ahead && bytes > limit;
            if std::mem::replace(&mut split.is_paused, is_paused) != is_paused {
                self.inner.pause_split(split.id, is_paused);
            }
        }
    }

    /// No row of a split to come is older than this, so none has to wait for one of it.
    fn take_heartbeat(&mut self, split: SplitId, time_ms: i64) -> Result<Option<SourcePoll>> {
        let within_ms = self.within_ms.unwrap_or(0);
        // As if a row had come that is so far ahead that none before the promise is allowed.
        let of = self.splits.at(split, &self.only)?;
        of.newest_ms = of.newest_ms.max(time_ms.saturating_add(within_ms));
        self.promise()
    }

    /// What is known of rows to come has changed: rows that can leave, or how far all have come.
    fn promise(&mut self) -> Result<Option<SourcePoll>> {
        let Some(frontier_ms) = self.frontier_ms() else { return Ok(None) };
        let Some(batch) = self.release_due()? else {
            return Ok(Some(SourcePoll::Heartbeat(SplitId::ONLY, frontier_ms)));
        };
        self.heartbeat_ms = Some(frontier_ms);
        Ok(Some(SourcePoll::Batch(SourceBatch::new(batch))))
    }

    fn take_event(&mut self, id: SplitId, event: &SplitEvent) -> Result<Option<SourcePoll>> {
        match event {
            SplitEvent::Opened(_) if !self.merges => Err(Error::unsupported(format!(
                "table '{}': 'source.sort-within' sorts an input of several splits only where they \
                 become one sequence",
                self.table
            ))
            .hint("SET 'pipeline.order' = 'event_time', or leave the option out")),
            SplitEvent::Opened(name) => {
                let left_ms = self.waiting.left_ms;
                let newest_ms = match left_ms == i64::MIN {
                    true => i64::MIN,
                    false => left_ms.saturating_add(1).saturating_add(self.within_ms.unwrap_or(0)),
                };
                self.splits.open(id, name, newest_ms);
                self.waiting.rank(self.splits.all());
                Ok(None)
            }
            SplitEvent::Ended => {
                self.splits.at(id, &self.only)?.has_ended = true;
                self.promise()
            }
        }
    }

    /// Where the rows that have come so far end.
    fn mark(&self, position: Option<String>) -> Mark {
        let arrived = |split: &SplitOrder| (split.id, split.arrived);
        let arrived = self.splits.all().iter().map(arrived).collect();
        Mark { row: self.waiting.arrived, arrived, position }
    }

    /// True if rows wait for others.
    fn waits(&self) -> bool {
        self.within_ms.is_some() || self.splits.are_merged()
    }

    /// Asks the inner source once. `None` if it has said only what nobody needs to know.
    fn ask(&mut self, rows_max: usize) -> Result<Option<SourcePoll>> {
        if self.waits() && self.marks.wants(self.waiting.arrived) {
            let mark = self.mark(self.inner.position());
            self.marks.add(mark);
        }
        let batch = match self.inner.poll(rows_max)? {
            SourcePoll::Batch(batch) => batch,
            SourcePoll::Pending => return Ok(Some(SourcePoll::Pending)),
            SourcePoll::Heartbeat(split, time_ms) => return self.take_heartbeat(split, time_ms),
            SourcePoll::Split(split, event) => return self.take_event(split, &event),
            SourcePoll::End => {
                self.has_ended = true;
                return Ok(Some(match self.release(i64::MAX)? {
                    None => SourcePoll::End,
                    Some(batch) => SourcePoll::Batch(SourceBatch::new(batch)),
                }));
            }
        };
        let times = self.times(&batch.batch, batch.origin.as_ref())?;
        let again = self.check(batch.split, &times, batch.origin.as_ref())?;
        let batch = match self.waits() {
            false => batch,
            true => SourceBatch::new(self.sort(batch, &times, again)?),
        };
        Ok(Some(SourcePoll::Batch(batch)))
    }

    /// Takes rows in and returns those that can leave.
    fn sort(&mut self, batch: SourceBatch, times: &[i64], again: usize) -> Result<RecordBatch> {
        let SourceBatch { batch, split, .. } = batch;
        let nothing = batch.slice(0, 0);
        let rank = self.splits.at(split, &self.only)?.rank;
        self.waiting.add(batch, times, (split, rank), again);
        Ok(self.release_due()?.unwrap_or(nothing))
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

/// Rows that wait for others, and leave by (time, split, arrival).
struct Waiting {
    /// In the order of arrival; each has a row that waits, but for some in the middle.
    batches: VecDeque<WaitingBatch>,
    /// (time, rank of the split, number of the row by arrival) of every row that waits.
    rows: BinaryHeap<Reverse<(i64, u32, u64)>>,
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
    split: SplitId,
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
    /// Adds rows of a split. Of the first ones, which come `again`, those that have left before are
    /// dropped.
    fn add(
        &mut self,
        batch: RecordBatch,
        times: &[i64],
        (split, rank): (SplitId, u32),
        again: usize,
    ) {
        let (first, before) = (self.arrived, self.rows.len());
        let left_ms = self.left_ms;
        let rows = times.iter().zip(first..).map(|(&time, number)| Reverse((time, rank, number)));
        if again > 0 {
            let new = first + again as u64;
            let waits = |row: &Reverse<(i64, u32, u64)>| row.0.2 >= new || row.0.0 > left_ms;
            self.rows.extend(rows.filter(waits));
        } else {
            self.rows.extend(rows);
        }
        self.arrived += times.len() as u64;
        let (rows_left, bytes) = (self.rows.len() - before, batch_bytes(&batch));
        if rows_left > 0 {
            self.bytes += bytes;
            self.batches.push_back(WaitingBatch { batch, split, first, rows_left, bytes });
        }
    }

    /// The ranks of splits have changed.
    fn rank(&mut self, splits: &[SplitOrder]) {
        let rank_of = |number: u64| {
            let batch = self.batches.partition_point(|batch| batch.first <= number) - 1;
            let split = self.batches[batch].split;
            splits.iter().find(|of| of.id == split).map_or(0, |of| of.rank)
        };
        let ranked = |Reverse((time, _, number))| Reverse((time, rank_of(number), number));
        self.rows = std::mem::take(&mut self.rows).into_iter().map(ranked).collect();
    }

    /// The number of the first row that may wait.
    fn oldest(&self) -> u64 {
        self.batches.front().map_or(self.arrived, |batch| batch.first)
    }

    fn bytes(&self) -> usize {
        self.bytes + self.rows.capacity() * size_of::<(i64, u32, u64)>()
    }

    /// The rows up to this time, sorted; `None` if there are none.
    fn release(&mut self, bound_ms: i64) -> Result<Option<RecordBatch>> {
        self.left_ms = self.left_ms.max(bound_ms);
        let mut runs: Vec<Run> = Vec::new();
        let mut rows = 0;
        while let Some(&Reverse((time, _, number))) = self.rows.peek()
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
        loop {
            if let Some(answer) = self.ask(rows_max)? {
                return Ok(answer);
            }
        }
    }

    fn merged_splits(&self) -> Vec<MergedSplit> {
        if !self.splits.are_merged() {
            return Vec::new();
        }
        let within_ms = self.within_ms.unwrap_or(0);
        let last = self.splits.last().filter(|_| self.waiting.bytes > 0).map(SplitOrder::shown_ms);
        let merged = |split: &SplitOrder| MergedSplit {
            id: split.id,
            name: Arc::clone(&split.name),
            reached_ms: split.shown_ms().saturating_sub(within_ms),
            holds_back: !split.has_ended && last == Some(split.shown_ms()),
            has_ended: split.has_ended,
        };
        self.splits.all().iter().map(merged).collect()
    }

    /// The runtime knows one split, and does not ask while that is ahead.
    fn pause_split(&mut self, _split: SplitId, _is_paused: bool) {}

    fn buffered_bytes(&self) -> usize {
        self.waiting.bytes() + self.marks.bytes() + self.inner.buffered_bytes()
    }

    fn position(&self) -> Option<String> {
        let is_again = self.splits.all().iter().any(|split| split.arrived < split.again);
        let has_waiting = is_again || self.waiting.oldest() < self.waiting.arrived;
        let (mark, inner) = match self.marks.first() {
            Some(mark) if has_waiting => (mark.clone(), mark.position.clone()?),
            _ => (self.mark(None), self.inner.position()?),
        };
        let since = |split: &SplitOrder| SplitPosition {
            name: split.name.to_string(),
            rows: split.arrived.max(split.again) - mark.arrived_of(split.id),
            newest_ms: split.newest_ms,
        };
        let all = self.splits.all().iter().map(since).chain(self.splits.restored.iter().cloned());
        let (only, splits): (Vec<_>, Vec<_>) = all.partition(|split| split.name.is_empty());
        let only = only.first().unwrap_or(&self.only);
        let position = OrderedPosition {
            rows: only.rows,
            left_ms: self.waiting.left_ms,
            newest_ms: only.newest_ms,
            heartbeat_ms: self.heartbeat_ms,
            splits,
            inner,
        };
        Some(position.write())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let position = OrderedPosition::read(position)?;
        self.inner.seek(&position.inner)?;
        self.marks.ask();
        let (rows, newest_ms) = (position.rows, position.newest_ms);
        self.only = SplitPosition { rows, newest_ms, ..SplitPosition::default() };
        self.splits.restored = position.splits;
        self.waiting.left_ms = position.left_ms;
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
