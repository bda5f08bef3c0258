//! A source whose rows come in the order of their row time: checked, or sorted within a bound.
//!
//! The contract `event_time` merges inputs by time, so each must be sorted. Without a bound the
//! first row that is older than the one before it is refused. With a bound (`'source.sort-within'`)
//! rows wait until the newest time seen is more than the bound ahead of them and leave by (time,
//! arrival); a row that comes later than the bound allows is refused. Whether it is depends on the
//! rows before it alone, not on how they were cut into batches.
//!
//! Rows that were sorted no longer come from one place of one file, so errors downstream name none.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::connector::{Origin, Waker};
use thalweg_core::shim::SharedClock;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result, Source, SourceBatch, SourcePoll, Watermark, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr};

/// Wraps a source.
pub struct TimeOrderedSource {
    inner: Box<dyn Source>,
    table: String,
    /// The row time over the delivered columns.
    rowtime: Expr,
    /// How far rows may be out of order; `None` if they may not.
    within_ms: Option<i64>,
    clock: SharedClock,
    /// Rows that wait, sorted by time, then arrival.
    waiting: Option<(RecordBatch, Vec<i64>)>,
    newest_ms: i64,
    has_ended: bool,
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
            waiting: None,
            newest_ms: i64::MIN,
            has_ended: false,
        }
    }

    fn times(&self, batch: &RecordBatch) -> Result<ScalarBuffer<i64>> {
        let watermark_before = WatermarkBefore::All(Watermark::MIN);
        let wall_ms = self.clock.wall_ms();
        let context = EvalContext { batch, watermark_before: &watermark_before, wall_ms };
        let times = self.rowtime.evaluate(&context)?;
        let times = times
            .as_primitive_opt::<TimestampMillisecondType>()
            .ok_or_else(|| Error::internal(format!("a row time of type {}", times.data_type())))?;
        if times.null_count() > 0 {
            return Err(Error::data(format!(
                "a row time of table '{}' is NULL, so its row has no place in the order of time",
                self.table
            ))
            .hint("repair the row, or fill the gap with a computed column (COALESCE)"));
        }
        Ok(times.values().clone())
    }

    /// Refuses the first row that is further behind the newest before it than is allowed.
    fn check(&mut self, times: &[i64], origin: Option<&Origin>) -> Result<()> {
        for (row, &time) in times.iter().enumerate() {
            let behind = i128::from(self.newest_ms) - i128::from(time);
            if self.newest_ms > i64::MIN && behind > i128::from(self.within_ms.unwrap_or(0)) {
                let error = self.out_of_order(time, behind);
                return Err(match origin {
                    Some(origin) => error.at_row(&*origin.file, origin.first_row + row as u64),
                    None => error,
                });
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

    /// Takes rows in and returns those that can leave.
    fn sort(&mut self, batch: &RecordBatch, times: &[i64], within_ms: i64) -> Result<RecordBatch> {
        let (all, mut all_times) = match self.waiting.take() {
            None => (batch.clone(), Vec::new()),
            Some((waiting, waiting_times)) => {
                (concat_batches(batch.schema_ref(), [&waiting, batch])?, waiting_times)
            }
        };
        all_times.extend_from_slice(times);
        let mut places: Vec<u64> = (0..all_times.len() as u64).collect();
        // Stable: rows of one time keep the order in which they came.
        places.sort_by_key(|&place| all_times[place as usize]);
        let bound = self.newest_ms.saturating_sub(within_ms);
        let ready = places.partition_point(|&place| all_times[place as usize] <= bound);
        let (ready, rest) = places.split_at(ready);
        if !rest.is_empty() {
            let times = rest.iter().map(|&place| all_times[place as usize]).collect();
            let rows = take_record_batch(&all, &UInt64Array::from(rest.to_vec()))?;
            self.waiting = Some((rows, times));
        }
        Ok(take_record_batch(&all, &UInt64Array::from(ready.to_vec()))?)
    }
}

impl Source for TimeOrderedSource {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        self.inner.start(waker)
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if self.has_ended {
            return Ok(SourcePoll::End);
        }
        let SourceBatch { batch, origin } = match self.inner.poll(rows_max)? {
            SourcePoll::Batch(batch) => batch,
            SourcePoll::Pending => return Ok(SourcePoll::Pending),
            SourcePoll::End => {
                self.has_ended = true;
                return Ok(match self.waiting.take() {
                    None => SourcePoll::End,
                    Some((batch, _)) => SourcePoll::Batch(SourceBatch { batch, origin: None }),
                });
            }
        };
        let times = self.times(&batch)?;
        self.check(&times, origin.as_ref())?;
        Ok(SourcePoll::Batch(match self.within_ms {
            None => SourceBatch { batch, origin },
            Some(within_ms) => {
                let batch = self.sort(&batch, &times, within_ms)?;
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
        let waiting = self.waiting.as_ref();
        waiting.map_or(0, |(batch, times)| batch_bytes(batch) + times.capacity() * 8)
            + self.inner.buffered_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};
    use thalweg_core::DataType;
    use thalweg_core::shim::ManualClock;

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
        assert_eq!(source.buffered_bytes(), 0);
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
}
