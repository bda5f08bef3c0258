//! When events are due: phases of constant rates, fixed before the run, so that what is late counts
//! in full.
//!
//! **Invariant:** event n is due at a time that depends on n and the phases alone. Its event time
//! is that time, cut to milliseconds. After the last phase its rate continues.

const SECOND_NS: u128 = 1_000_000_000;

/// This many events per second for so long.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    from_ns: u64,
    first_event: u64,
    events_per_second: u64,
}

/// The phases one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    phases: Vec<Phase>,
}

impl Schedule {
    /// The same rate all the time.
    pub fn constant(events_per_second: u64) -> Schedule {
        Schedule::phases(&[(0, events_per_second)])
    }

    /// Rates, each with the millisecond at which it begins; the first begins at 0.
    pub fn phases(rates: &[(u64, u64)]) -> Schedule {
        let mut phases: Vec<Phase> = Vec::with_capacity(rates.len());
        for &(from_ms, rate) in rates {
            let from_ns = from_ms * 1_000_000;
            let first_event = phases.last().map_or(0, |before: &Phase| before.count_at(from_ns));
            phases.push(Phase { from_ns, first_event, events_per_second: rate.max(1) });
        }
        Schedule { phases }
    }

    /// How many events are due at this time after the start.
    pub fn count_at(&self, now_ns: u64) -> u64 {
        let phase = self.phases.iter().rev().find(|phase| phase.from_ns <= now_ns);
        phase.map_or(0, |phase| phase.count_at(now_ns))
    }

    /// When an event is due, in nanoseconds after the start.
    pub fn due_ns(&self, event: u64) -> u64 {
        let phase = self.phases.iter().rev().find(|phase| phase.first_event <= event);
        phase.map_or(0, |phase| phase.due_ns(event))
    }
}

impl Phase {
    fn count_at(&self, now_ns: u64) -> u64 {
        let since = u128::from(now_ns - self.from_ns) * u128::from(self.events_per_second);
        self.first_event + since.div_ceil(SECOND_NS) as u64
    }

    fn due_ns(&self, event: u64) -> u64 {
        let after = u128::from(event - self.first_event) * SECOND_NS;
        self.from_ns + (after / u128::from(self.events_per_second)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_due_at_their_rate() {
        let steady = Schedule::constant(1_000_000);
        assert_eq!(steady.due_ns(0), 0);
        assert_eq!(steady.due_ns(1_500), 1_500_000);
        assert_eq!(steady.count_at(1_500_000), 1_500, "the event at that very time is not over");
        assert_eq!(steady.count_at(1_500_001), 1_501);
    }

    #[test]
    fn a_burst_brings_its_events_and_then_the_rate_is_back() {
        let burst = Schedule::phases(&[(0, 1_000), (2_000, 10_000), (3_000, 1_000)]);
        assert_eq!(burst.count_at(2_000_000_000), 2_000);
        assert_eq!(burst.count_at(3_000_000_000), 12_000);
        assert_eq!(burst.count_at(4_000_000_000), 13_000);
        assert_eq!(burst.due_ns(2_000), 2_000_000_000);
        assert_eq!(burst.due_ns(2_001), 2_000_100_000);
        assert_eq!(burst.due_ns(12_001), 3_001_000_000);
        let times: Vec<u64> = (0..13_000).map(|event| burst.due_ns(event)).collect();
        assert!(times.is_sorted(), "time advances");
        let counts = times.iter().map(|&at| burst.count_at(at));
        assert!(counts.zip(0..).all(|(count, event)| count == event), "each the other's inverse");
    }
}
