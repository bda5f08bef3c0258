//! When the next snapshot is taken.
//!
//! The settings are Flink's: an interval from beginning to beginning, a pause from the end of one
//! to the beginning of the next, a time after which one is given up, and how many may fail in a row
//! before the job fails. One snapshot is under way at a time. Times are nanoseconds of a clock that
//! never goes back; when it began does not matter.

use std::time::Duration;

/// What a user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the beginning of one to the beginning of the next; `None` for none but those that are
    /// asked for.
    pub interval: Option<Duration>,
    /// From the end of one to the beginning of the next.
    pub pause_min: Duration,
    /// One that takes longer is given up.
    pub timeout: Duration,
    /// Up to this many may fail one after the other.
    pub failures_max: u32,
}

/// How a snapshot went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is kept.
    Done,
    /// It failed or was given up.
    Failed,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing, before this time at the earliest.
    Wait {
        /// When to ask again.
        until_ns: u64,
    },
    /// Nothing, for as long as nobody asks for a snapshot.
    Idle,
    /// A snapshot is to be taken.
    Take,
    /// The one under way takes too long: give it up.
    GiveUp,
    /// Too many failed one after the other: the job has to fail.
    Fail,
}

/// A snapshot is late when it begins by half an interval later than it should, and by this at
/// least.
const LATE_MIN: Duration = Duration::from_millis(500);
/// The interval is not kept when this many in a row are late.
const LATE_IN_A_ROW: u32 = 2;

/// What is known about the snapshots of a run.
#[derive(Clone, Debug)]
pub struct Schedule {
    timing: Timing,
    /// The first one is due an interval after this.
    last_began_ns: u64,
    last_ended_ns: Option<u64>,
    last_done_ns: Option<u64>,
    is_under_way: bool,
    is_asked_for: bool,
    failures: u32,
    /// This many in a row have begun late.
    late: u32,
    /// From the beginning of the one before the last to that of the last.
    distance: Duration,
}

impl Schedule {
    /// A run that begins now.
    pub fn new(timing: Timing, now_ns: u64) -> Schedule {
        Schedule {
            timing,
            last_began_ns: now_ns,
            last_ended_ns: None,
            last_done_ns: None,
            is_under_way: false,
            is_asked_for: false,
            failures: 0,
            late: 0,
            distance: Duration::ZERO,
        }
    }

    /// A snapshot was requested: the next begins as soon as none is under way, without a pause.
    pub fn ask(&mut self) {
        self.is_asked_for = true;
    }

    /// A snapshot begins.
    pub fn begin(&mut self, now_ns: u64) {
        debug_assert!(!self.is_under_way, "one at a time");
        self.distance = Duration::from_nanos(now_ns.saturating_sub(self.last_began_ns));
        self.late = if self.is_late() { self.late.saturating_add(1) } else { 0 };
        (self.is_under_way, self.is_asked_for, self.last_began_ns) = (true, false, now_ns);
    }

    /// The one under way has come to an end.
    pub fn end(&mut self, now_ns: u64, outcome: WriteOutcome) {
        debug_assert!(self.is_under_way, "it was begun");
        (self.is_under_way, self.last_ended_ns) = (false, Some(now_ns));
        self.failures = match outcome {
            WriteOutcome::Done => {
                self.last_done_ns = Some(now_ns);
                0
            }
            WriteOutcome::Failed => self.failures.saturating_add(1),
        };
    }

    fn is_late(&self) -> bool {
        let Some(interval) = self.timing.interval else { return false };
        let wanted = interval.max(self.timing.pause_min);
        self.distance >= wanted.saturating_add((wanted / 2).max(LATE_MIN))
    }

    /// How far apart snapshots begin, if that is more than the interval for some time already.
    pub fn behind(&self) -> Option<Duration> {
        (self.late >= LATE_IN_A_ROW).then_some(self.distance)
    }

    /// When the newest that is kept came to its end.
    pub fn last_done_ns(&self) -> Option<u64> {
        self.last_done_ns
    }

    /// How many have failed one after the other.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What is to be done now.
    pub fn next(&self, now_ns: u64) -> Next {
        if self.failures > self.timing.failures_max {
            return Next::Fail;
        }
        if self.is_under_way {
            let until_ns = after(self.last_began_ns, self.timing.timeout);
            return if now_ns >= until_ns { Next::GiveUp } else { Next::Wait { until_ns } };
        }
        if self.is_asked_for {
            return Next::Take;
        }
        let Some(interval) = self.timing.interval else { return Next::Idle };
        let due_ns = after(self.last_began_ns, interval);
        let rested_ns = self.last_ended_ns.map_or(0, |ended| after(ended, self.timing.pause_min));
        let until_ns = due_ns.max(rested_ns);
        if now_ns >= until_ns { Next::Take } else { Next::Wait { until_ns } }
    }
}

fn after(time_ns: u64, duration: Duration) -> u64 {
    time_ns.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TIMING: Timing = Timing {
        interval: Some(Duration::from_secs(10)),
        pause_min: Duration::from_secs(3),
        timeout: Duration::from_secs(60),
        failures_max: 1,
    };

    /// What happened, each at its second.
    enum Step {
        Begin,
        Done,
        Failed,
        Ask,
    }
    use Step::*;

    fn after_steps(timing: Timing, steps: &[(u64, Step)]) -> Schedule {
        let mut schedule = Schedule::new(timing, 0);
        for (second, step) in steps {
            match step {
                Begin => schedule.begin(second * SECOND),
                Done => schedule.end(second * SECOND, WriteOutcome::Done),
                Failed => schedule.end(second * SECOND, WriteOutcome::Failed),
                Ask => schedule.ask(),
            }
        }
        schedule
    }

    #[test]
    fn what_is_next() {
        let wait = |second: u64| Next::Wait { until_ns: second * SECOND };
        let cases: Vec<(&str, Vec<(u64, Step)>, u64, Next)> = vec![
            ("the first after one interval", vec![], 0, wait(10)),
            ("it is time", vec![], 10, Next::Take),
            (
                "an interval is from beginning to beginning",
                vec![(10, Begin), (12, Done)],
                13,
                wait(20),
            ),
            ("a slow one is followed by a pause", vec![(10, Begin), (19, Done)], 20, wait(22)),
            ("and then it is time", vec![(10, Begin), (19, Done)], 22, Next::Take),
            ("one at a time", vec![(10, Begin)], 30, wait(70)),
            ("one that takes too long", vec![(10, Begin)], 70, Next::GiveUp),
            ("asked for", vec![(0, Ask)], 0, Next::Take),
            ("asked for in the pause", vec![(10, Begin), (19, Done), (19, Ask)], 19, Next::Take),
            ("asked for while one is under way", vec![(10, Begin), (11, Ask)], 11, wait(70)),
            ("one may fail", vec![(10, Begin), (11, Failed)], 11, wait(20)),
            (
                "two may not",
                vec![(10, Begin), (11, Failed), (20, Begin), (21, Failed)],
                21,
                Next::Fail,
            ),
            (
                "one that is done makes up for those that failed",
                vec![(10, Begin), (11, Failed), (20, Begin), (21, Done), (30, Begin), (31, Failed)],
                31,
                wait(40),
            ),
        ];
        for (name, steps, second, next) in cases {
            assert_eq!(after_steps(TIMING, &steps).next(second * SECOND), next, "{name}");
        }
    }

    #[test]
    fn an_interval_that_is_not_kept_is_noticed_at_the_second_late_snapshot() {
        let seconds = |text: &str| text.split(' ').map(|s| s.parse().expect("a number")).collect();
        for (interval, pause_min, begins, behind) in [
            // One every ten seconds, or a little later.
            (10, 0, "10 20 34 48", None),
            (10, 0, "10 25 35 50", None),
            (10, 0, "10 25 40", Some(15)),
            (10, 0, "10 40 70 82", None),
            (10, 0, "10 40 70 107", Some(37)),
            // Pauses are wanted.
            (10, 20, "10 35 60", None),
            (10, 20, "10 40 70", Some(30)),
            (1, 0, "1 3 5", Some(2)),
        ] {
            let (interval, pause_min) =
                (Some(Duration::from_secs(interval)), Duration::from_secs(pause_min));
            let mut schedule = Schedule::new(Timing { interval, pause_min, ..TIMING }, 0);
            let seconds: Vec<u64> = seconds(begins);
            for second in seconds {
                schedule.begin(second * SECOND);
                schedule.end(second * SECOND + 1, WriteOutcome::Done);
            }
            assert_eq!(schedule.behind(), behind.map(Duration::from_secs), "{begins}");
        }
        // Those of an interval of milliseconds may be late by half a second.
        let timing = Timing { interval: Some(Duration::from_millis(20)), ..TIMING };
        let timing = Timing { pause_min: Duration::ZERO, ..timing };
        let mut schedule = Schedule::new(timing, 0);
        for tick in 1..5 {
            schedule.begin(tick * SECOND / 2);
            schedule.end(tick * SECOND / 2, WriteOutcome::Done);
        }
        assert_eq!(schedule.behind(), None);
    }

    #[test]
    fn without_an_interval_only_those_asked_for_are_taken() {
        let timing = Timing { interval: None, ..TIMING };
        assert_eq!(after_steps(timing, &[]).next(u64::MAX), Next::Idle);
        assert_eq!(after_steps(timing, &[(1, Ask)]).next(SECOND), Next::Take);
    }

    #[test]
    fn endless_durations_do_not_overflow() {
        let timing = Timing { timeout: Duration::MAX, interval: Some(Duration::MAX), ..TIMING };
        assert_eq!(after_steps(timing, &[]).next(1), Next::Wait { until_ns: u64::MAX });
        assert_eq!(after_steps(timing, &[(5, Begin)]).next(9), Next::Wait { until_ns: u64::MAX });
    }
}
