//! Traffic that is read at full speed up to a time, and from then on when it happens.
//!
//! **Invariant:** a record of second `s` of the run is never handed out before `s` minus the
//! beginning of the live part has passed since that part began. A response is measured from there,
//! whenever the engine came to ask: time spent waiting in the source counts.

use std::iter::Peekable;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use thalweg::Result;
use thalweg::rows::{RowPoll, RowSource, Waker};
use thalweg_workloads::linear_road::{Record, Traffic};

/// When the live part began, once it has.
pub type LiveSince = Arc<OnceLock<Instant>>;

/// A source of records.
pub struct PacedTraffic {
    traffic: Peekable<Traffic>,
    live_from_s: i64,
    live_since: LiveSince,
    /// Where to send the moments to be woken at.
    alarm: Option<Sender<Instant>>,
}

impl PacedTraffic {
    /// Records of the run; those from this second on come when they happen.
    pub fn new(traffic: Traffic, live_from_s: i64, live_since: LiveSince) -> Self {
        PacedTraffic { traffic: traffic.peekable(), live_from_s, live_since, alarm: None }
    }

    /// The moment at which the records of a second happen; `None` for those of the past.
    fn due(&self, time_s: i64) -> Option<Instant> {
        let since = u64::try_from(time_s - self.live_from_s).ok()?;
        let began = *self.live_since.get_or_init(Instant::now);
        Some(began + Duration::from_secs(since))
    }
}

impl RowSource<Record> for PacedTraffic {
    fn start(&mut self, waker: Waker) -> Result<()> {
        let (alarm, moments) = channel::<Instant>();
        // Ends when the source, which holds the sender, is dropped.
        thread::spawn(move || {
            for moment in moments {
                thread::sleep(moment.saturating_duration_since(Instant::now()));
                waker();
            }
        });
        self.alarm = Some(alarm);
        Ok(())
    }

    fn poll(&mut self, rows_max: usize, rows: &mut Vec<Record>) -> Result<RowPoll> {
        let now = Instant::now();
        while rows.len() < rows_max {
            let Some(next) = self.traffic.peek().copied() else { return Ok(RowPoll::End) };
            if let Some(due) = self.due(next.time_s)
                && due > now
            {
                if rows.is_empty()
                    && let Some(alarm) = &self.alarm
                {
                    // Nobody listens only if the thread has ended with the job.
                    let _ = alarm.send(due);
                }
                return Ok(if rows.is_empty() { RowPoll::Pending } else { RowPoll::Rows });
            }
            rows.push(next);
            self.traffic.next();
        }
        Ok(RowPoll::Rows)
    }

    fn is_bounded(&self) -> bool {
        true
    }
}
