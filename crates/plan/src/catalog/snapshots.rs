//! The settings of snapshots and restarts, read by type.
//!
//! Snapshots are taken if there is a place for them (`execution.checkpointing.dir`). The keys are
//! Flink's; a restart strategy applies to jobs with snapshots only, since a job without them would
//! begin from scratch and write its results twice.
//!
//! Builders in Rust use the same types, with SQL's defaults, so the two can't differ.

use std::path::Path;
use std::time::Duration;

use thalweg_core::Result;
use thalweg_core::connector::Access;

use super::Settings;

/// What is done when more snapshots than are tolerated have failed one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSnapshotFailure {
    /// The job fails; it may be started again.
    Fail,
    /// Nothing more is read until a snapshot succeeds.
    Pause,
    /// The job continues without.
    Continue,
}

/// Whether and when snapshots are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Where they are kept.
    pub location: String,
    /// How that place is reached, where it is not on this machine.
    pub access: Access,
    /// From the beginning of one to that of the next; `None` for none but those asked for.
    pub interval: Option<Duration>,
    /// Each result is there once; otherwise none is lost.
    /// Exactly once or at least once.
    pub exactly_once: bool,
    /// How many of the newest are kept.
    pub retained: usize,
    /// One that takes longer is given up.
    pub timeout: Duration,
    /// From the end of one to the beginning of the next, at least.
    pub pause_min: Duration,
    /// How many may fail one after the other.
    pub failures_max: u32,
    /// What is done when more have failed.
    pub on_failure: OnSnapshotFailure,
    /// Operators with much state write incremental snapshots.
    pub incremental: bool,
}

/// How a job that takes snapshots is started again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartSettings {
    /// It is not.
    None,
    /// So often at most, after this long each time.
    FixedDelay {
        /// How often at most.
        attempts: u32,
        /// How long to wait before each.
        delay: Duration,
    },
    /// As long as not too many failures fall into an interval.
    FailureRate {
        /// How many at most within the interval.
        failures_max: u32,
        /// The interval.
        interval: Duration,
        /// How long to wait before each.
        delay: Duration,
    },
    /// After ever longer waits.
    ExponentialDelay {
        /// Before the first.
        initial: Duration,
        /// At most.
        max: Duration,
        /// After this long without a failure it is reset.
        reset_after: Duration,
        /// How often at most before it is reset.
        attempts: u32,
    },
}

impl SnapshotSettings {
    /// Snapshots in this place (a folder, `file:///…`, `s3://bucket/prefix`), and what SQL takes
    /// where nothing is set for all else.
    pub fn new(location: &str) -> Self {
        Settings::default().snapshots_in(location)
    }
}

impl Default for RestartSettings {
    /// What SQL takes where nothing is set.
    fn default() -> Self {
        Settings::default().restarts()
    }
}

impl Settings {
    /// `execution.checkpointing.*`; `None` without a place to keep snapshots.
    pub fn snapshots(&self) -> Option<SnapshotSettings> {
        self.text("execution.checkpointing.dir").map(|location| self.snapshots_in(location))
    }

    /// Snapshots are taken at least this often.
    pub(super) fn take_snapshots_every(&mut self, interval: Duration) -> Result<()> {
        let key = "execution.checkpointing.interval";
        let current = self.duration(key);
        if current.is_zero() || current > interval {
            self.set(key, &format!("{} ms", interval.as_millis()))?;
        }
        Ok(())
    }

    fn snapshots_in(&self, location: &str) -> SnapshotSettings {
        let key = |name: &str| format!("execution.checkpointing.{name}");
        let interval = self.duration(&key("interval"));
        let failures_max = self.count(&key("tolerable-failed-checkpoints")).unwrap_or(0);
        SnapshotSettings {
            location: location.to_owned(),
            access: self.access(Path::new(""), &[]),
            interval: Some(interval).filter(|interval| !interval.is_zero()),
            exactly_once: !self.get(&key("mode")).eq_ignore_ascii_case("at_least_once"),
            retained: self.count(&key("num-retained")).unwrap_or(1),
            timeout: self.duration(&key("timeout")),
            pause_min: self.duration(&key("min-pause")),
            failures_max: u32::try_from(failures_max).unwrap_or(u32::MAX),
            on_failure: match self.get(&key("on-failure")).to_ascii_lowercase().as_str() {
                "pause" => OnSnapshotFailure::Pause,
                "continue" => OnSnapshotFailure::Continue,
                _ => OnSnapshotFailure::Fail,
            },
            incremental: self.get(&key("incremental")).eq_ignore_ascii_case("true"),
        }
    }

    /// `restart-strategy.*`
    pub fn restarts(&self) -> RestartSettings {
        let count = |name: &str| u32::try_from(self.count(name).unwrap_or(0)).unwrap_or(u32::MAX);
        match self.get("restart-strategy.type").to_ascii_lowercase().as_str() {
            "fixed-delay" => RestartSettings::FixedDelay {
                attempts: count("restart-strategy.fixed-delay.attempts"),
                delay: self.duration("restart-strategy.fixed-delay.delay"),
            },
            "failure-rate" => RestartSettings::FailureRate {
                failures_max: count("restart-strategy.failure-rate.max-failures-per-interval"),
                interval: self.duration("restart-strategy.failure-rate.failure-rate-interval"),
                delay: self.duration("restart-strategy.failure-rate.delay"),
            },
            "exponential-delay" => {
                let name = |end: &str| format!("restart-strategy.exponential-delay.{end}");
                RestartSettings::ExponentialDelay {
                    initial: self.duration(&name("initial-backoff")),
                    max: self.duration(&name("max-backoff")),
                    reset_after: self.duration(&name("reset-backoff-threshold")),
                    attempts: count(&name("attempts-before-reset-backoff")),
                }
            }
            _ => RestartSettings::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_place_no_snapshots_are_taken() {
        assert_eq!(Settings::default().snapshots(), None);
    }

    #[test]
    fn defaults_and_aliases() {
        let mut settings = Settings::default();
        settings.set("state.checkpoints.dir", "/data/snapshots").expect("a place");
        let snapshots = settings.snapshots().expect("there is a place");
        assert_eq!(snapshots.location, "/data/snapshots");
        assert_eq!(snapshots.interval, Some(Duration::from_secs(10)));
        assert_eq!((snapshots.retained, snapshots.failures_max), (3, 3));
        assert!(snapshots.exactly_once && snapshots.incremental);
        assert_eq!(snapshots, SnapshotSettings::new("/data/snapshots"));
        assert_eq!(snapshots.timeout, Duration::from_secs(600));
        settings.set("execution.checkpointing.interval", "0 s").expect("a duration");
        settings.set("execution.checkpointing.mode", "at_least_once").expect("a mode");
        let snapshots = settings.snapshots().expect("there is a place");
        assert_eq!((snapshots.interval, snapshots.exactly_once), (None, false));
    }

    #[test]
    fn restarts_are_those_of_flink() {
        let mut settings = Settings::default();
        assert!(matches!(
            RestartSettings::default(),
            RestartSettings::ExponentialDelay { attempts: 20, .. }
        ));
        settings.set("restart-strategy", "fixed-delay").expect("a strategy");
        settings.set("restart-strategy.fixed-delay.attempts", "7").expect("a count");
        let delay = Duration::from_secs(1);
        assert_eq!(settings.restarts(), RestartSettings::FixedDelay { attempts: 7, delay });
        settings.set("restart-strategy.type", "none").expect("a strategy");
        assert_eq!(settings.restarts(), RestartSettings::None);
    }
}
