//! A source that replays batches in laps, with event time shifted by a whole period at each lap.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{RecordBatch, TimestampMillisecondArray};
use thalweg_core::connector::Waker;
use thalweg_core::{Result, Source, SourceBatch, SourcePoll};

/// Replays batches whose first column is the row time.
pub struct Replay {
    batches: Arc<Vec<RecordBatch>>,
    period_ms: i64,
    laps: usize,
    lap: usize,
    next: usize,
    offset: usize,
}

impl Replay {
    /// `laps` laps over the batches.
    pub fn new(batches: Arc<Vec<RecordBatch>>, period_ms: i64, laps: usize) -> Self {
        Replay { batches, period_ms, laps, lap: 0, next: 0, offset: 0 }
    }
}

impl Source for Replay {
    fn name(&self) -> String {
        "replay".to_owned()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if self.next == self.batches.len() {
            (self.next, self.lap) = (0, self.lap + 1);
        }
        if self.lap >= self.laps {
            return Ok(SourcePoll::End);
        }
        let front = &self.batches[self.next];
        let rows = rows_max.min(front.num_rows() - self.offset);
        let batch = shifted(&front.slice(self.offset, rows), self.period_ms * self.lap as i64);
        self.offset += rows;
        if self.offset >= front.num_rows() {
            (self.next, self.offset) = (self.next + 1, 0);
        }
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// The batch with its row times moved. Floors use it too, so that both pay for it.
pub fn shifted(batch: &RecordBatch, by_ms: i64) -> RecordBatch {
    if by_ms == 0 {
        return batch.clone();
    }
    let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
    let moved: TimestampMillisecondArray = times.unary(|t| t + by_ms);
    let mut columns = batch.columns().to_vec();
    columns[0] = Arc::new(moved);
    RecordBatch::try_new(batch.schema(), columns).expect("only times have changed")
}
