//! Latency at a fixed rate: contract `arrival` compared with `epoch` at half of the load that
//! `epoch` carries.
//!
//! The clock starts when a row happens by its event time, whenever the source was asked for it, so
//! time spent waiting in front of the engine counts. Rows of one millisecond of event time happen
//! together, when that millisecond is over. A windowed result counts from the window's end, and the
//! first row of each window is taken; for other results the oldest row of each batch is.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use hdrhistogram::Histogram;
use thalweg::{Result, RowKind, Sink, Source};
use thalweg_core::connector::Waker;
use thalweg_core::{SourceBatch, SourcePoll};

use crate::source::Replay;

/// Rows per millisecond of event time in all inputs.
const ROWS_PER_MS: u64 = 1000;

/// How long a source that has nothing yet sleeps.
const TICK: Duration = Duration::from_micros(250);

/// When rows happen.
#[derive(Clone)]
pub struct Schedule {
    rows_per_second: f64,
    first_ms: i64,
    began: Arc<OnceLock<Instant>>,
}

impl Schedule {
    /// Rows from this event time on, this many per second.
    pub fn new(rows_per_second: f64, first_ms: i64) -> Self {
        Schedule { rows_per_second, first_ms, began: Arc::default() }
    }

    fn began(&self) -> Instant {
        *self.began.get_or_init(Instant::now)
    }

    /// How many rows have happened by now, by whole milliseconds of event time.
    fn happened(&self) -> u64 {
        let rows = (self.began().elapsed().as_secs_f64() * self.rows_per_second) as u64;
        rows / ROWS_PER_MS * ROWS_PER_MS
    }

    /// How long ago this event time was over.
    fn age(&self, time_ms: i64) -> Duration {
        let rows = (time_ms - self.first_ms) as f64 * ROWS_PER_MS as f64;
        self.began().elapsed().saturating_sub(Duration::from_secs_f64(rows / self.rows_per_second))
    }
}

/// A replay that hands rows out when they happen.
pub struct Paced {
    replay: Replay,
    schedule: Schedule,
    handed_out: u64,
    rows_max: u64,
}

impl Paced {
    /// The first `rows_max` rows of a replay.
    pub fn new(replay: Replay, schedule: Schedule, rows_max: u64) -> Self {
        Paced { replay, schedule, handed_out: 0, rows_max }
    }
}

impl Source for Paced {
    fn name(&self) -> String {
        "paced".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        let began = Arc::downgrade(&self.schedule.began);
        std::thread::spawn(move || {
            // Ends with the schedule, which the source and the sink hold.
            while began.upgrade().is_some() {
                std::thread::sleep(TICK);
                waker();
            }
        });
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if self.handed_out >= self.rows_max {
            return Ok(SourcePoll::End);
        }
        let ready = self.schedule.happened().min(self.rows_max) - self.handed_out;
        if ready == 0 {
            return Ok(SourcePoll::Pending);
        }
        let polled = self.replay.poll(rows_max.min(ready as usize))?;
        if let SourcePoll::Batch(SourceBatch { batch, .. }) = &polled {
            self.handed_out += batch.num_rows() as u64;
        }
        Ok(polled)
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// Latencies in microseconds, from after the warm-up.
pub type Latencies = Arc<Mutex<Histogram<u64>>>;

/// No latencies yet.
pub fn latencies() -> Latencies {
    let bounds = Histogram::new_with_bounds(1, 600_000_000, 3);
    Arc::new(Mutex::new(bounds.expect("the bounds are valid")))
}

/// Records how late results leave.
pub struct AgeSink {
    pub schedule: Schedule,
    pub latencies: Latencies,
    /// The column of times: row times, or window ends.
    pub column: usize,
    /// Only the first row of each time counts.
    pub windows: bool,
    pub warm_up: Duration,
    pub newest_ms: i64,
}

impl Sink for AgeSink {
    fn name(&self) -> String {
        "age".to_owned()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        let times = batch.column(self.column).as_primitive::<TimestampMillisecondType>().values();
        let Some(&first_ms) = times.first() else { return Ok(()) };
        // A row happens when its millisecond is over, a window when its end is reached.
        let time_ms = if self.windows { first_ms } else { first_ms + 1 };
        if (self.windows && time_ms <= self.newest_ms)
            || self.schedule.began().elapsed() < self.warm_up
        {
            return Ok(());
        }
        self.newest_ms = time_ms;
        let age_us = self.schedule.age(time_ms).as_micros() as u64;
        let mut latencies = self.latencies.lock().expect("the sink does not panic");
        latencies.saturating_record(age_us.max(1));
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
