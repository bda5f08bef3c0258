//! ORDER BY row time, for streams: rows wait until the watermark has passed their time, then leave
//! in order of time, further keys, and arrival.
//!
//! Which rows come too late, as in Flink: a row at or before the last time that has been sent on
//! already. A time counts as sent on for a row as soon as the watermark before that row
//! (`watermark_before`) has passed it, whether or not the operator has been shown that watermark
//! yet, so the judgement depends on the data alone. With several lanes the times sent on depend on
//! the other lanes too; there a row is late if its own lane's watermark has passed it.
//!
//! Invariants:
//! - `ready` ascends by time, and every time in `waiting` is above the last one of `ready`;
//! - a time is complete when it gets ready: all later rows at that time are late.
//!
//! A singleton that takes rows in serial order. A row that is not late may still lie at or before
//! a watermark that has been passed on, so this stands at the end of a pipeline, in front of a
//! sink: nothing behind it may judge lateness by the row time again.
//!
//! Why a sort needs no state for rows that have left: `sent_on`, one number, is enough to see that
//! a row comes too late.

mod snapshot;
mod store;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{
    Captured, Error, Extent, Operator, Output, Partition, PartitionContext, Piece, Progress,
    Restored, Result, TableSchema, Watermark,
};

use crate::capture::serials::ExpiringSerials;
use crate::rows::input::treat_late;
use crate::sort::{EMIT_ROWS, KeyEncoder, SortKey};
use crate::window::LatePolicy;
use store::{Store, StoredPlace};

/// `ORDER BY rowtime [, …]`.
pub struct TemporalSort {
    rowtime: usize,
    keys: Vec<SortKey>,
    late: LatePolicy,
    schema: TableSchema,
}

impl TemporalSort {
    /// Sorts by the row time in this column, ascending, and then by these keys.
    pub fn new(rowtime: usize, keys: Vec<SortKey>, late: LatePolicy, schema: TableSchema) -> Self {
        TemporalSort { rowtime, keys, late, schema }
    }

    /// The columns that come out: those that come in.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }
}

impl Operator for TemporalSort {
    fn name(&self) -> String {
        format!("sort by {}", self.schema.columns[self.rowtime].name)
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn ports(&self) -> usize {
        if matches!(self.late, LatePolicy::Emit) { 2 } else { 1 }
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let encoder = match self.keys.as_slice() {
            [] => None,
            keys => Some(KeyEncoder::new(keys, &self.schema)?),
        };
        Ok(Box::new(TemporalSortPartition {
            schema: self.schema.clone(),
            rowtime: self.rowtime,
            late: self.late,
            encoder,
            store: Store::default(),
            waiting: BinaryHeap::new(),
            ready: VecDeque::new(),
            arrivals: 0,
            sent_on: None,
            serials: ExpiringSerials::default(),
        }))
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}

/// A row that waits, in the order in which rows leave, further keys aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedRow {
    time: i64,
    arrival: u64,
    place: StoredPlace,
}

struct TemporalSortPartition {
    schema: TableSchema,
    rowtime: usize,
    late: LatePolicy,
    encoder: Option<KeyEncoder>,
    store: Store,
    waiting: BinaryHeap<Reverse<TimedRow>>,
    ready: VecDeque<TimedRow>,
    arrivals: u64,
    /// The time of the last row made ready.
    sent_on: Option<i64>,
    /// Which rows the last capture has.
    serials: ExpiringSerials,
}

impl TemporalSortPartition {
    /// Makes the rows ready that a watermark has passed.
    ///
    /// With one lane it is called for each row with the watermark before it, not only at
    /// watermarks: a time is complete as soon as some row shows that its watermark has passed. Such
    /// rows leave at the next watermark.
    fn pass(&mut self, watermark: i64) {
        let first_new = self.ready.len();
        while let Some(Reverse(entry)) = self.waiting.peek()
            && entry.time <= watermark
        {
            self.sent_on = Some(entry.time);
            self.ready.push_back(*entry);
            self.waiting.pop();
        }
        if self.encoder.is_some() && self.ready.len() > first_new {
            let store = &self.store;
            let fresh = &mut self.ready.make_contiguous()[first_new..];
            // Stable, so rows with equal keys stay in order of arrival.
            fresh.sort_by(|a, b| {
                a.time.cmp(&b.time).then_with(|| store.compare_keys(a.place, b.place))
            });
        }
    }

    /// The time of the first row that has not left.
    fn first_time(&self) -> Option<i64> {
        let waiting = self.waiting.peek().map(|entry| entry.0.time);
        self.ready.iter().map(|entry| entry.time).chain(waiting).min()
    }

    /// With several lanes `sent_on` depends on the other lanes and on timing, so the row's own
    /// watermark decides.
    fn is_late(&self, time: i64, before: Watermark, lanes: usize) -> bool {
        if lanes > 1 { time <= before.0 } else { self.sent_on.is_some_and(|sent| time <= sent) }
    }

    fn times(&self, batch: &RecordBatch) -> Result<ScalarBuffer<i64>> {
        let column = batch.column(self.rowtime);
        let times = column
            .as_primitive_opt::<TimestampMillisecondType>()
            .ok_or_else(|| Error::internal(format!("a row time of type {}", column.data_type())))?;
        if times.null_count() > 0 {
            let schema = batch.schema_ref();
            let name = schema.field(self.rowtime).name();
            return Err(Error::data(format!("row time '{name}' is NULL, so its row has no place"))
                .hint("filter such rows out before ORDER BY"));
        }
        Ok(times.values().clone())
    }

    fn refuse_late(&self, time: i64, before: Watermark) -> Result<()> {
        if !matches!(self.late, LatePolicy::Fail) {
            return Ok(());
        }
        let time = format_timestamp_millis(time, 3);
        Err(Error::data(format!("a row at {time} came too late: the watermark was {before}"))
            .hint("allow more delay in WATERMARK FOR, or SET 'late.data' to 'drop' or a table"))
    }
}

impl Partition for TemporalSortPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let bundle = piece.bundle;
        let times = self.times(&bundle.batch)?;
        let keys = match &self.encoder {
            Some(encoder) if piece.num_rows() > 0 => Some(encoder.encode(&bundle.batch)?),
            _ => None,
        };
        let stored = self.store.add(bundle.batch.clone(), keys);
        let mut late = Vec::new();
        let mut take = |row: u32| -> Result<()> {
            let before = bundle.stamps.watermark_before.at(row as usize);
            if piece.lanes == 1 {
                self.pass(before.0);
            }
            let time = times[row as usize];
            if self.is_late(time, before, piece.lanes) {
                self.refuse_late(time, before)?;
                late.push((row, time));
                return Ok(());
            }
            let place = self.store.keep(stored, row);
            self.waiting.push(Reverse(TimedRow { time, arrival: self.arrivals, place }));
            self.arrivals += 1;
            Ok(())
        };
        match piece.rows {
            Some(rows) => rows.iter().try_for_each(|&row| take(row))?,
            None => (0..bundle.num_rows() as u32).try_for_each(take)?,
        }
        self.store.release_if_unused(stored);
        output.accepted += (piece.num_rows() - late.len()) as u64;
        treat_late(self.late, &late, &piece, output)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.pass(call.watermark.0);
        loop {
            let count = self
                .ready
                .iter()
                .take(EMIT_ROWS)
                .take_while(|entry| entry.time <= call.watermark.0)
                .count();
            if count == 0 {
                let first = self.first_time().unwrap_or(i64::MAX);
                self.serials.pass(call.watermark.0.saturating_add(1).min(first));
                return Ok(Progress::Done);
            }
            let leave = |entry: TimedRow| {
                self.serials.leave(entry.time);
                entry.place
            };
            let places = self.ready.drain(..count).map(leave).collect::<Vec<StoredPlace>>();
            output.emit(self.store.take(&places)?);
            if !self.ready.is_empty() && output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        let entries = self.waiting.capacity() + self.ready.capacity();
        self.store.bytes() + entries * size_of::<TimedRow>()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.waiting.len() + self.ready.len())
    }
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        self.capture_state(extent)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
