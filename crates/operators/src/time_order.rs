//! A source whose rows come in the order of their row time: checked, or sorted within a bound.
//!
//! The contract `event_time` merges inputs by time, so each must be sorted. Without a bound the
//! first row that is older than the one before it is refused. With a bound (`'source.sort-within'`)
//! rows wait until the newest time seen is more than the bound ahead of them and leave by (time,
//! arrival); a row that comes later than the bound allows is refused. Whether it is depends on the
//! rows before it alone, not on how they were cut into batches.
//!
//! # Where to go on
//! A position has no rows, so those that wait are read again: it is a position of the inner source before
//! the oldest row that waits, with how many rows had come since, and the time up to which rows had left.
//! Of the rows that come again those up to that time are dropped; all others wait as they did. [`Marks`]
//! keeps positions of the inner source, from the first time on that a position was asked for.
//!
//! Rows that were sorted no longer come from one place of one file, so errors downstream name none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::connector::{Origin, Waker};
use thalweg_core::shim::SharedClock;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result, Source, SourceBatch, SourcePoll, Watermark, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr};

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
    /// Rows that had come before the position that this run goes on from: they come again.
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
            return Ok(SourcePoll::Heartbeat(time_ms));
        };
        self.heartbeat_ms = Some(time_ms);
        Ok(SourcePoll::Batch(SourceBatch { batch, origin: None }))
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

/// Positions of the inner source, each before a row that is known by its number.
#[derive(Default)]
struct Marks {
    /// Ascending; the first is before every row that waits.
    marks: VecDeque<(u64, Option<String>)>,
    /// One more is kept so many rows behind the last.
    distance: u64,
    /// Somebody takes snapshots.
    is_asked: AtomicBool,
}

/// When there are more marks than this, every other one goes.
const MARKS_MAX: usize = 32;
/// The least number of rows between marks.
const MARK_DISTANCE: u64 = 4 << 10;

impl Marks {
    /// Before the first row of this run.
    fn begin(&mut self, position: Option<String>) {
        self.marks = VecDeque::from([(0, position)]);
        self.distance = MARK_DISTANCE;
    }

    /// True if a mark before this row is worth its memory.
    fn wants(&self, row: u64) -> bool {
        // Relaxed: it says only that marks are worth while from about now on.
        let last = self.marks.back().map_or(0, |(row, _)| *row);
        self.is_asked.load(Ordering::Relaxed) && row >= last + self.distance
    }

    fn add(&mut self, row: u64, position: Option<String>) {
        self.marks.push_back((row, position));
        if self.marks.len() > MARKS_MAX {
            self.distance = self.distance.saturating_mul(2);
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// All rows before this one have left.
    fn forget(&mut self, row: u64) {
        while self.marks.get(1).is_some_and(|(first, _)| *first <= row) {
            self.marks.pop_front();
        }
        if self.marks.len() < 4 {
            self.distance = MARK_DISTANCE;
        }
    }

    fn bytes(&self) -> usize {
        let text = |mark: &(u64, Option<String>)| mark.1.as_ref().map_or(0, String::capacity);
        self.marks.iter().map(text).sum::<usize>()
            + self.marks.capacity() * size_of::<(u64, Option<String>)>()
    }
}

/// Where a sorted source goes on, in words.
struct OrderedPosition {
    /// Rows that had come since the inner position.
    rows: u64,
    /// The time up to which rows had left.
    left_ms: i64,
    /// The newest time.
    newest_ms: i64,
    /// A promise that was not passed on yet.
    heartbeat_ms: Option<i64>,
    /// The position of the inner source.
    inner: String,
}

impl OrderedPosition {
    fn write(&self) -> String {
        let OrderedPosition { rows, left_ms, newest_ms, heartbeat_ms, inner } = self;
        let heartbeat = heartbeat_ms.map_or("null".to_owned(), |time_ms| time_ms.to_string());
        format!(
            "{{\"rows\":{rows},\"leftMs\":{left_ms},\"newestMs\":{newest_ms},\"heartbeatMs\":{heartbeat},\
             \"inner\":{inner}}}"
        )
    }

    fn read(position: &str) -> Result<Self> {
        fn next<'a>(rest: &mut &'a str, key: &str, end: char) -> Option<&'a str> {
            let (value, behind) = rest.strip_prefix(key)?.split_once(end)?;
            *rest = behind;
            Some(value)
        }
        let parse = || {
            let mut rest = position.trim().strip_prefix('{')?;
            let rows = next(&mut rest, "\"rows\":", ',')?.parse().ok()?;
            let left_ms = next(&mut rest, "\"leftMs\":", ',')?.parse().ok()?;
            let newest_ms = next(&mut rest, "\"newestMs\":", ',')?.parse().ok()?;
            let heartbeat_ms = match next(&mut rest, "\"heartbeatMs\":", ',')? {
                "null" => None,
                time_ms => Some(time_ms.parse().ok()?),
            };
            let inner = rest.strip_prefix("\"inner\":")?.strip_suffix('}')?.to_owned();
            Some(OrderedPosition { rows, left_ms, newest_ms, heartbeat_ms, inner })
        };
        parse().ok_or_else(|| {
            Error::user(format!("this is no position in an input in the order of time: {position}"))
                .hint("the snapshot is of another contract or version, or damaged")
        })
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

    /// Forgets batches of which no row waits. Some may stay in the middle until they are half of all:
    /// then forgetting them costs little for each row.
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

impl Source for TimeOrderedSource {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        self.marks.begin(self.inner.position());
        self.inner.start(waker)
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(time_ms) = self.heartbeat_ms.take() {
            return Ok(SourcePoll::Heartbeat(time_ms));
        }
        if self.has_ended {
            return Ok(SourcePoll::End);
        }
        if self.within_ms.is_some() && self.marks.wants(self.waiting.arrived) {
            self.marks.add(self.waiting.arrived, self.inner.position());
        }
        let SourceBatch { batch, origin } = match self.inner.poll(rows_max)? {
            SourcePoll::Batch(batch) => batch,
            SourcePoll::Pending => return Ok(SourcePoll::Pending),
            SourcePoll::Heartbeat(time_ms) => return self.take_heartbeat(time_ms),
            SourcePoll::End => {
                self.has_ended = true;
                return Ok(match self.release(i64::MAX)? {
                    None => SourcePoll::End,
                    Some(batch) => SourcePoll::Batch(SourceBatch { batch, origin: None }),
                });
            }
        };
        let times = self.times(&batch, origin.as_ref())?;
        self.check(&times, origin.as_ref())?;
        Ok(SourcePoll::Batch(match self.within_ms {
            None => SourceBatch { batch, origin },
            Some(within_ms) => {
                let batch = self.sort(batch, &times, within_ms)?;
                SourceBatch { batch, origin: None }
            }
        }))
    }

    fn is_bounded(&self) -> bool {
        self.inner.is_bounded()
    }

    fn stop(&mut self) {
        self.inner.stop();
    }

    fn bad_rows(&self) -> u64 {
        self.inner.bad_rows()
    }

    fn buffered_bytes(&self) -> usize {
        self.waiting.bytes() + self.marks.bytes() + self.inner.buffered_bytes()
    }

    fn position(&self) -> Option<String> {
        // Relaxed: see `Marks::wants`.
        self.marks.is_asked.store(true, Ordering::Relaxed);
        let arrived = self.waiting.arrived.max(self.again);
        let (first, inner) = match self.marks.marks.front() {
            Some((first, inner)) if self.waiting.oldest() < arrived => (*first, inner.clone()?),
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
        self.again = position.rows;
        self.waiting.left_ms = position.left_ms;
        self.newest_ms = position.newest_ms;
        self.heartbeat_ms = position.heartbeat_ms;
        Ok(())
    }

    fn committed(&mut self, position: &str) -> Result<()> {
        self.inner.committed(&OrderedPosition::read(position)?.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};
    use thalweg_core::DataType;
    use thalweg_core::shim::{ManualClock, SplitMix64};

    /// Batches of (time, number) as told.
    struct Given(Vec<Vec<(i64, i64)>>);

    impl Source for Given {
        fn name(&self) -> String {
            "given".to_owned()
        }
        fn start(&mut self, _: Waker) -> Result<()> {
            Ok(())
        }
        fn poll(&mut self, _: usize) -> Result<SourcePoll> {
            if self.0.is_empty() {
                return Ok(SourcePoll::End);
            }
            let (times, numbers): (Vec<i64>, Vec<i64>) = self.0.remove(0).into_iter().unzip();
            let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times));
            let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
            let batch = RecordBatch::try_from_iter([("ts", times), ("n", numbers)])?;
            let origin = Some(Origin { file: "given.csv".into(), first_row: 11 });
            Ok(SourcePoll::Batch(SourceBatch { batch, origin }))
        }
        fn is_bounded(&self) -> bool {
            true
        }
    }

    fn read(batches: Vec<Vec<(i64, i64)>>, within_ms: Option<i64>) -> Result<Vec<i64>> {
        let rowtime = Expr::column(0, DataType::Timestamp(3).not_null());
        let clock = Arc::new(ManualClock::default());
        let given = Box::new(Given(batches));
        let mut source = TimeOrderedSource::new(given, "t".into(), rowtime, within_ms, clock);
        let mut numbers = Vec::new();
        while let SourcePoll::Batch(SourceBatch { batch, .. }) = source.poll(100)? {
            let column = batch.column(1).as_primitive::<arrow_array::types::Int64Type>();
            numbers.extend_from_slice(column.values());
        }
        assert_eq!((source.waiting.bytes, source.waiting.batches.len()), (0, 0));
        Ok(numbers)
    }

    #[test]
    fn sorted_rows_pass_and_the_first_other_is_named() {
        let sorted = vec![vec![(1, 1), (1, 2)], vec![(1, 3), (5, 4)]];
        assert_eq!(read(sorted, None).expect("sorted"), [1, 2, 3, 4]);
        let error = read(vec![vec![(1, 1), (7, 2), (3, 3)]], None).expect_err("not sorted");
        let text = error.to_string();
        assert!(text.contains("given.csv") && text.contains("13"), "{text}");
        assert!(error.help().is_some_and(|help| help.contains("'4 ms'")), "{:?}", error.help());
    }

    #[test]
    fn rows_within_the_bound_are_sorted_by_time_then_arrival_however_they_are_cut() {
        let rows = [(5, 1), (3, 2), (5, 3), (4, 4), (9, 5), (5, 6), (12, 7), (8, 8)];
        let expected = [2, 4, 1, 3, 6, 8, 5, 7];
        for cut in 1..=rows.len() {
            let batches = rows.chunks(cut).map(<[_]>::to_vec).collect();
            assert_eq!(read(batches, Some(4)).expect("within"), expected, "cut at {cut}");
            let batches = rows.chunks(cut).map(<[_]>::to_vec).collect();
            let error = read(batches, Some(3)).expect_err("two rows are 4 ms behind");
            assert!(error.to_string().contains("4 ms behind"), "{error}");
        }
    }
    #[test]
    fn random_disorder_is_sorted_stably_and_nothing_is_kept_that_has_left() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let rows: Vec<(i64, i64)> =
                (0..2000).map(|n| (n / 4 + random.below(60) as i64, n)).collect();
            let mut expected = rows.clone();
            expected.sort_by_key(|&(time, _)| time);
            let expected: Vec<i64> = expected.into_iter().map(|(_, n)| n).collect();
            let mut batches = Vec::new();
            let mut rest = &rows[..];
            while !rest.is_empty() {
                let cut = rest.len().min(random.below(90) as usize);
                let (first, others) = rest.split_at(cut);
                batches.push(first.to_vec());
                rest = others;
            }
            assert_eq!(read(batches, Some(60)).expect("within"), expected, "seed {seed}");
        }
    }

    #[test]
    fn a_long_wait_keeps_only_its_own_batch() {
        // The first row waits for all others, each of which can soon leave.
        let mut waiting = Waiting::default();
        let batch = |time: i64| {
            let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![time]));
            RecordBatch::try_from_iter([("ts", times)]).expect("one column")
        };
        waiting.add(batch(1_000_000), &[1_000_000], 0);
        let one = waiting.bytes;
        for time in 0..1000 {
            waiting.add(batch(time), &[time], 0);
            let released = waiting.release(time - 1).expect("sorts");
            assert_eq!(released.map_or(0, |rows| rows.num_rows()), usize::from(time > 0));
            assert!(waiting.batches.len() <= 4 && waiting.bytes <= 4 * one, "at {time}");
        }
    }
}
