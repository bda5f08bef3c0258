//! Sources whose rows are due by a schedule: records in memory that come again and again, and bids.
//!
//! They come out in ticks of 250 µs, as those of the engine's own sources with a rate do; a thread
//! wakes the job at each. What a row loses by that counts as its latency, and so does every delay
//! ([`Source::overdue_ns`]). Records in memory end at a time on the clock, bids after a number of
//! rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg::{Column, DataType, Result, Source, TableSchema};
use thalweg_core::connector::Waker;
use thalweg_core::{SourceBatch, SourcePoll};

use super::age_sinks::Began;
use super::oracle::{BASE_MS, KEYS};
use super::schedule::Schedule;
use crate::source::Replay;

const TICK_NS: u64 = 250_000;

/// Wakes a job at each tick until it is dropped.
struct Ticks(Arc<AtomicBool>);

impl Ticks {
    fn new(waker: Waker) -> Ticks {
        let stopped = Arc::new(AtomicBool::new(false));
        let ticks = Ticks(Arc::clone(&stopped));
        thread::spawn(move || {
            // Relaxed: the flag alone is read; it is late by at most one tick.
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_nanos(TICK_NS));
                waker();
            }
        });
        ticks
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rows that are due, and those that were given.
struct Due {
    schedule: Schedule,
    began: Began,
    given: u64,
    overdue_ns: u64,
    ticks: Option<Ticks>,
}

impl Due {
    fn new(schedule: Schedule, began: Began) -> Due {
        Due { schedule, began, given: 0, overdue_ns: 0, ticks: None }
    }

    fn start(&mut self, waker: Waker) {
        self.began.start();
        self.ticks = Some(Ticks::new(waker));
    }

    /// How many rows may be given now.
    fn ready(&mut self) -> u64 {
        let now_ns = self.began.now_ns();
        let ready = self.schedule.count_at(now_ns / TICK_NS * TICK_NS).saturating_sub(self.given);
        self.overdue_ns = now_ns.saturating_sub(self.schedule.due_ns(self.given));
        ready
    }
}

/// Records in memory that come again and again, when they are due.
pub struct PacedReplay {
    replay: Replay,
    due: Due,
    until: Until,
}

/// When a source ends, and how many rows it has given.
#[derive(Clone)]
pub struct Until {
    after_ns: u64,
    given: Arc<AtomicU64>,
}

impl Until {
    /// So long behind the start of the clock.
    pub fn after(time: Duration) -> Until {
        Until { after_ns: time.as_nanos() as u64, given: Arc::default() }
    }

    /// Rows so far.
    pub fn given(&self) -> u64 {
        // Relaxed: read when the job is over.
        self.given.load(Ordering::Relaxed)
    }
}

impl PacedReplay {
    /// Records of `replay`, which has enough laps, by a schedule of its own.
    pub fn new(replay: Replay, schedule: Schedule, began: Began, until: Until) -> PacedReplay {
        PacedReplay { replay, due: Due::new(schedule, began), until }
    }
}

impl Source for PacedReplay {
    fn name(&self) -> String {
        "paced".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.due.start(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let ready = self.due.ready();
        if self.due.began.now_ns() >= self.until.after_ns {
            return Ok(SourcePoll::End);
        }
        if ready == 0 {
            return Ok(SourcePoll::Pending);
        }
        let polled = self.replay.poll(rows_max.min(ready as usize))?;
        if let SourcePoll::Batch(SourceBatch { batch, .. }) = &polled {
            self.due.given += batch.num_rows() as u64;
            self.until.given.store(self.due.given, Ordering::Relaxed);
        }
        Ok(polled)
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn overdue_ns(&self) -> u64 {
        self.due.overdue_ns
    }
}

/// Bids on uniform auctions by a schedule of several rates: `auction`, `dateTime`.
pub struct Bids {
    due: Due,
    events: u64,
}

/// What [`Bids`] are in SQL.
pub const BIDS: &str = "CREATE TABLE bid (auction BIGINT NOT NULL, `dateTime` TIMESTAMP(3) NOT NULL, \
     WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND) \
     WITH ('connector' = 'registered', 'source' = 'bids');";

impl Bids {
    /// This many bids.
    pub fn new(schedule: Schedule, began: Began, events: u64) -> Bids {
        Bids { due: Due::new(schedule, began), events }
    }

    /// The auction of a bid.
    pub fn auction(event: u64) -> usize {
        (event % KEYS as u64) as usize
    }

    /// When a bid happens, in milliseconds since 1970.
    pub fn time_ms(schedule: &Schedule, event: u64) -> i64 {
        BASE_MS + (schedule.due_ns(event) / 1_000_000) as i64
    }

    fn schema() -> TableSchema {
        TableSchema::new(vec![
            Column::new("auction", DataType::BigInt.not_null()),
            Column::new("dateTime", DataType::Timestamp(3).not_null()),
        ])
    }
}

impl Source for Bids {
    fn name(&self) -> String {
        "bids".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.due.start(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let from = self.due.given;
        if from >= self.events {
            return Ok(SourcePoll::End);
        }
        let rows = self.due.ready().min(self.events - from).min(rows_max.max(1) as u64);
        if rows == 0 {
            return Ok(SourcePoll::Pending);
        }
        self.due.given += rows;
        let auctions = (from..from + rows).map(|event| Bids::auction(event) as i64);
        let times = (from..from + rows).map(|event| Bids::time_ms(&self.due.schedule, event));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(auctions)),
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        ];
        let batch = RecordBatch::try_new(Bids::schema().arrow(), columns)?;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn overdue_ns(&self) -> u64 {
        self.due.overdue_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bids_come_when_they_are_due_and_not_before() {
        let began = Began::default();
        let mut bids = Bids::new(Schedule::constant(1_000_000), began.clone(), 10_000);
        bids.start(Arc::new(|| {})).expect("starts");
        let mut rows = 0;
        loop {
            match bids.poll(1_000).expect("no error") {
                SourcePoll::Batch(read) => {
                    rows += read.batch.num_rows() as u64;
                    assert!(began.now_ns() >= (rows - 1) * 1_000, "row {rows}");
                }
                SourcePoll::End => break,
                _ => thread::sleep(Duration::from_micros(100)),
            }
        }
        assert_eq!(rows, 10_000);
    }
}
