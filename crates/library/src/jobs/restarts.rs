//! Whether and when a job that has failed is started again: a pure function of the times of its
//! failures.
//!
//! The strategies are Flink's (documentation, "Task Failure Recovery"). Jobs without snapshots are
//! not started again, as in Flink without checkpoints.

use std::collections::VecDeque;
use std::time::Duration;

use thalweg_plan::catalog::RestartSettings;

/// The failures of a job.
#[derive(Debug)]
pub(crate) struct Restarts {
    settings: RestartSettings,
    count: u32,
    backoff: Duration,
    /// When it failed, as far back as matters.
    failures_ns: VecDeque<u64>,
}

impl Restarts {
    /// A job that has not failed yet.
    pub(crate) fn new(settings: RestartSettings) -> Self {
        Restarts { settings, count: 0, backoff: Duration::ZERO, failures_ns: VecDeque::new() }
    }

    /// How often it was started again.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The job has failed at this time. How long to wait before it is started again; `None` if it
    /// is not.
    pub(crate) fn failed(&mut self, now_ns: u64) -> Option<Duration> {
        let delay = match self.settings {
            RestartSettings::None => None,
            RestartSettings::FixedDelay { attempts, delay } => {
                (self.count < attempts).then_some(delay)
            }
            RestartSettings::FailureRate { failures_max, interval, delay } => {
                let since_ns = now_ns.saturating_sub(interval.as_nanos() as u64);
                self.failures_ns.push_back(now_ns);
                while self.failures_ns.front().is_some_and(|&at_ns| at_ns < since_ns) {
                    self.failures_ns.pop_front();
                }
                (self.failures_ns.len() <= failures_max as usize).then_some(delay)
            }
            RestartSettings::ExponentialDelay { initial, max, reset_after, attempts } => {
                let last_ns = self.failures_ns.pop_back();
                self.failures_ns.push_back(now_ns);
                let was_well =
                    last_ns.is_some_and(|at_ns| now_ns - at_ns >= reset_after.as_nanos() as u64);
                if was_well || last_ns.is_none() {
                    (self.count, self.backoff) = (0, initial);
                } else {
                    self.backoff = (self.backoff + self.backoff / 2).min(max);
                }
                (self.count < attempts).then_some(self.backoff)
            }
        };
        self.count += u32::from(delay.is_some());
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(settings: RestartSettings, seconds: &[u64]) -> Vec<Option<u64>> {
        let mut restarts = Restarts::new(settings);
        let failed = |second: &u64| restarts.failed(second * 1_000_000_000);
        seconds
            .iter()
            .map(failed)
            .map(|delay| delay.map(|delay| delay.as_millis() as u64))
            .collect()
    }

    #[test]
    fn each_strategy_does_as_it_says() {
        assert_eq!(after(RestartSettings::None, &[1]), [None]);
        let fixed = RestartSettings::FixedDelay { attempts: 2, delay: SECOND };
        assert_eq!(after(fixed, &[1, 2, 3]), [Some(1000), Some(1000), None]);
        let rate = RestartSettings::FailureRate {
            failures_max: 2,
            interval: 10 * SECOND,
            delay: 3 * SECOND,
        };
        assert_eq!(
            after(rate, &[1, 5, 12, 13, 14]),
            [Some(3000), Some(3000), Some(3000), None, None]
        );
        let exponential = RestartSettings::ExponentialDelay {
            initial: SECOND,
            max: 2 * SECOND,
            reset_after: 60 * SECOND,
            attempts: 4,
        };
        let seconds = [1, 2, 4, 8, 10, 80];
        assert_eq!(
            after(exponential, &seconds),
            [Some(1000), Some(1500), Some(2000), Some(2000), None, Some(1000)]
        );
    }
}
