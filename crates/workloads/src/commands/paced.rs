//! Records that come when they happen, and how long what they lead to takes.
//!
//! **Invariant:** a record is never handed out before it is due. A response is measured from when
//! it was due, whenever the engine came to ask: time spent waiting in the source counts.

use std::iter::Peekable;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use thalweg::Result;
use thalweg::rows::{RowPoll, RowSource, Waker};
use thalweg_workloads::linear_road::Record;

/// Latencies, in microseconds.
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let bounds = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Latency(bounds.expect("the bounds are valid"))
    }
}

impl Latency {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_micros().max(1) as u64);
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("the bounds are the same");
    }

    /// What this share of them, from 0 to 1, is at most, in milliseconds.
    pub fn ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// Median and 99th percentile, as a cell of a table.
    pub fn line(&self) -> String {
        format!("{:.2}, {:.2} ms", self.ms(0.5), self.ms(0.99))
    }
}

/// A thread that sleeps until the next moment and calls a waker. It takes one moment after the
/// other.
pub struct Sleeper {
    moments: Sender<(Instant, Waker)>,
}

impl Sleeper {
    /// The thread ends when this is dropped.
    pub fn new() -> Self {
        let (moments, to_come) = channel::<(Instant, Waker)>();
        thread::spawn(move || {
            for (moment, waker) in to_come {
                thread::sleep(moment.saturating_duration_since(Instant::now()));
                waker();
            }
        });
        Sleeper { moments }
    }

    /// Calls the waker at this moment.
    pub fn wake_at(&self, moment: Instant, waker: Waker) {
        // Nobody listens only if a waker has panicked.
        let _ = self.moments.send((moment, waker));
    }
}

/// A source of records, each of which is due at a moment.
pub struct Paced<I: Iterator, D> {
    records: Peekable<I>,
    /// When a record is due; `None` if it is of the past.
    due: D,
    /// Who calls it when a record is due, and how.
    alarm: Option<(Sleeper, Waker)>,
}

impl<I, D> Paced<I, D>
where
    I: Iterator<Item = Record>,
    D: FnMut(&Record) -> Option<Instant>,
{
    /// These records, in this order.
    pub fn new(records: I, due: D) -> Self {
        Paced { records: records.peekable(), due, alarm: None }
    }
}

impl<I, D> RowSource<Record> for Paced<I, D>
where
    I: Iterator<Item = Record> + Send,
    D: FnMut(&Record) -> Option<Instant> + Send,
{
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.alarm = Some((Sleeper::new(), waker));
        Ok(())
    }

    fn poll(&mut self, rows_max: usize, rows: &mut Vec<Record>) -> Result<RowPoll> {
        let now = Instant::now();
        while rows.len() < rows_max {
            let Some(next) = self.records.peek() else { return Ok(RowPoll::End) };
            if let Some(due) = (self.due)(next)
                && due > now
            {
                if rows.is_empty()
                    && let Some((sleeper, waker)) = &self.alarm
                {
                    sleeper.wake_at(due, waker.clone());
                }
                return Ok(if rows.is_empty() { RowPoll::Pending } else { RowPoll::Rows });
            }
            rows.extend(self.records.next());
        }
        Ok(RowPoll::Rows)
    }

    fn is_bounded(&self) -> bool {
        true
    }
}
