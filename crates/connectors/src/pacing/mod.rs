//! Rows that are due at fixed times: a number a second, each at a time that is fixed when the job
//! starts.
//!
//! They come out in ticks. A source that gave each row the moment it is due would be asked all the
//! time and would fill the pipeline with bundles of a row or two; so a poll gets what was due at
//! the last tick, and a thread wakes the job when the next one has come. What a row loses by that
//! counts as its latency, like any other delay ([`Pacing::overdue_ns`]).

pub(crate) mod timer;

use thalweg_core::Result;
use thalweg_core::connector::Waker;
use thalweg_core::shim::{Clock, SystemClock};

use self::timer::Registration;

/// A source is woken at least this often, however slow the rate is.
const PAUSE_MAX_NS: u64 = 100_000_000;
/// Rows that are worth a tick, unless the first of them would wait for longer than this: a bundle
/// of a row or two costs as much as one of many.
const ROWS_PER_TICK: u64 = 16;
const TICK_MAX_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The clock of a source with a rate, or of one without: then all rows are due at once.
pub(crate) struct Pacing {
    rate_per_second: Option<u64>,
    /// The row that this run began with: the rate counts from it.
    first: u64,
    clock: SystemClock,
    ticks: Option<Registration>,
}

impl Pacing {
    pub(crate) fn new(rate_per_second: Option<u64>) -> Self {
        Pacing { rate_per_second, first: 0, clock: SystemClock::new(), ticks: None }
    }

    /// The first row of this run, which is due at once.
    pub(crate) fn begin_at(&mut self, row: u64) {
        self.first = row;
    }

    /// The clock starts; if there is a rate, the waker is called at each tick with new rows.
    ///
    /// # Errors
    /// If there is no thread for that.
    pub(crate) fn start(&mut self, waker: Waker) -> Result<()> {
        self.clock = SystemClock::new();
        if let Some(rate) = self.rate_per_second {
            self.ticks = Some(timer::register(waker, period_ns(rate))?);
        }
        Ok(())
    }

    /// Rows before this one are due.
    pub(crate) fn due(&self) -> u64 {
        let Some(rate) = self.rate_per_second else { return u64::MAX };
        let now_ns = self.clock.now_ns().saturating_sub(timer::since_tick_ns());
        let elapsed = u128::from(now_ns) * u128::from(rate) / u128::from(SECOND_NS);
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        elapsed.saturating_add(self.first).saturating_add(1)
    }

    /// For how long a row has been due.
    pub(crate) fn overdue_ns(&self, row: u64) -> u64 {
        let Some(rate) = self.rate_per_second else { return 0 };
        let after = u128::from(row.saturating_sub(self.first)) * u128::from(SECOND_NS);
        let due_ns = u64::try_from(after / u128::from(rate.max(1))).unwrap_or(u64::MAX);
        self.clock.now_ns().saturating_sub(due_ns)
    }

    /// The waker is not called any more.
    pub(crate) fn stop(&mut self) {
        self.ticks = None;
    }
}

/// How far ticks with new rows are apart, at least.
fn period_ns(rate_per_second: u64) -> u64 {
    let row_ns = SECOND_NS / rate_per_second.max(1);
    row_ns.max((row_ns * ROWS_PER_TICK).min(TICK_MAX_NS)).min(PAUSE_MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn rows_are_due_at_their_rate_and_delays_count() {
        let mut pacing = Pacing::new(Some(1_000_000));
        pacing.begin_at(500);
        assert!(pacing.due() > 500, "the first is due at once");
        thread::sleep(Duration::from_millis(3));
        let due = pacing.due();
        let age_ns = pacing.clock.now_ns();
        assert!(
            (3_000 - 250..=age_ns / 1000 + 1).contains(&(due - 500)),
            "{due} after {age_ns} ns"
        );
        let overdue_ns = pacing.overdue_ns(500 + 1000);
        assert!(overdue_ns >= 2_000_000 && overdue_ns <= pacing.clock.now_ns(), "{overdue_ns}");
        assert_eq!(pacing.overdue_ns(u64::MAX), 0, "what is not due yet has no delay");
    }

    #[test]
    fn a_tick_has_several_rows_unless_they_would_wait_for_long() {
        let periods = [0, 1, 100, 1_000, 10_000, 40_000, 1_000_000, u64::MAX].map(period_ns);
        let expected =
            [100_000_000, 100_000_000, 10_000_000, 1_000_000, 1_000_000, 400_000, 16_000, 0];
        assert_eq!(periods, expected);
    }

    #[test]
    fn without_a_rate_everything_is_due() {
        let pacing = Pacing::new(None);
        assert_eq!((pacing.due(), pacing.overdue_ns(0)), (u64::MAX, 0));
    }
}
