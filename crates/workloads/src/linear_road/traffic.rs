//! Traffic: what the original simulator would send, from a compact model.
//!
//! Cars enter each expressway at a given rate, drive between two segments, report every 30 s and
//! ask a question after one report in a hundred. Downtown and in front of accidents they are slow,
//! so that segments fill and tolls rise.
//!
//! The records come sorted by (time, kind, vehicle), and those of an expressway depend on the seed
//! and the number of the expressway alone: a run with more expressways holds the same records and
//! more. Only live cars, and the few that will re-enter, are in memory. Nothing here is the
//! published simulator, whose licence is not known.

use super::expressway::Expressway;
use super::records::Record;

/// One accident that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedAccident {
    /// From here on the next two cars that report there collide, if they come within a minute.
    pub start_s: i64,
    /// From here on they drive on.
    pub end_s: i64,
    /// The direction.
    pub direction: i32,
    /// The segment.
    pub segment: i32,
}

/// Which accidents happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accidents {
    /// These, on every expressway.
    Planned(Vec<PlannedAccident>),
    /// On each expressway one every 5 to 15 minutes, lasting 5 to 15 minutes, anywhere.
    Random,
}

/// How much traffic, of what kind.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSettings {
    /// Length of the run: records have times from 0 to one less than this.
    pub seconds: i64,
    /// Cars that enter an expressway each second, once the ramp is over.
    pub rate: f64,
    /// How many expressways, at most 1024, so that vehicle numbers fit.
    pub expressways: i32,
    /// Another seed, another run.
    pub seed: u64,
    /// Mean speed of free traffic in miles per hour.
    pub field_mph: f64,
    /// Whether the rate grows from 0.4 of itself over the first half hour and downtown becomes
    /// slow over 40 minutes; without, both are as they will be from the start.
    pub ramps: bool,
    /// Which accidents happen.
    pub accidents: Accidents,
}

fn planned(accidents: &[(i64, i64, i32, i32)]) -> Accidents {
    let plan = |&(start_s, end_s, direction, segment)| PlannedAccident {
        start_s,
        end_s,
        direction,
        segment,
    };
    Accidents::Planned(accidents.iter().map(plan).collect())
}

impl TrafficSettings {
    /// Three hours of one expressway, as the benchmark is run.
    pub fn full() -> Self {
        TrafficSettings {
            seconds: 10_800,
            accidents: Accidents::Random,
            ..TrafficSettings::full_hour()
        }
    }

    /// The first hour of one expressway, with three accidents: what the published selectivities
    /// are checked against.
    pub fn full_hour() -> Self {
        TrafficSettings {
            seconds: 3600,
            rate: 6.0,
            expressways: 1,
            seed: 1,
            field_mph: 54.5,
            ramps: true,
            accidents: planned(&[(600, 1200, 0, 40), (1400, 2000, 1, 60), (2200, 2900, 0, 75)]),
        }
    }

    /// Twenty minutes of dense traffic with three accidents, small enough for every test run.
    pub fn ci() -> Self {
        TrafficSettings {
            seconds: 1200,
            rate: 10.0,
            field_mph: 52.0,
            ramps: false,
            accidents: planned(&[(300, 700, 0, 40), (500, 950, 1, 60), (700, 1200, 0, 75)]),
            ..TrafficSettings::full_hour()
        }
    }

    /// Cars that enter in this second, on average.
    pub(super) fn entering(&self, time_s: i64) -> f64 {
        let ramp = if self.ramps { (time_s as f64 / 1800.0).min(1.0) } else { 1.0 };
        self.rate * (0.4 + 0.6 * ramp)
    }

    /// By how much downtown is slower in this second, in miles per hour.
    pub(super) fn downtown_drop_mph(&self, time_s: i64) -> f64 {
        30.0 * if self.ramps { (time_s as f64 / 2400.0).min(1.0) } else { 1.0 }
    }
}

/// The queries of one second, by kind: they come after all position reports.
#[derive(Debug, Default)]
pub(super) struct Queries {
    pub(super) balances: Vec<Record>,
    pub(super) expenditures: Vec<Record>,
    pub(super) travel_times: Vec<Record>,
}

/// The records of a run, in order.
#[derive(Debug)]
pub struct Traffic {
    settings: TrafficSettings,
    expressways: Vec<Expressway>,
    /// The second to simulate next.
    time_s: i64,
    /// The records of the second simulated last, in order.
    ready: Vec<Record>,
    /// How many of them have been given.
    given: usize,
    queries: Queries,
}

impl Traffic {
    /// The run with these settings.
    pub fn new(settings: TrafficSettings) -> Self {
        let expressways =
            (0..settings.expressways).map(|number| Expressway::new(&settings, number)).collect();
        Traffic {
            settings,
            expressways,
            time_s: 0,
            ready: Vec::new(),
            given: 0,
            queries: Queries::default(),
        }
    }

    /// Vehicle numbers grow with the expressway, so the runs of all expressways simply follow each
    /// other within a kind.
    fn simulate_second(&mut self) {
        self.ready.clear();
        self.given = 0;
        for expressway in &mut self.expressways {
            expressway.second(&self.settings, self.time_s, &mut self.ready, &mut self.queries);
        }
        self.ready.append(&mut self.queries.balances);
        self.ready.append(&mut self.queries.expenditures);
        self.ready.append(&mut self.queries.travel_times);
        self.time_s += 1;
    }
}

impl Iterator for Traffic {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.given == self.ready.len() {
            if self.time_s >= self.settings.seconds {
                return None;
            }
            self.simulate_second();
        }
        self.given += 1;
        Some(self.ready[self.given - 1])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn small(expressways: i32) -> TrafficSettings {
        TrafficSettings { expressways, seconds: 400, ..TrafficSettings::ci() }
    }

    #[test]
    fn records_are_sorted_and_the_same_each_time() {
        let records: Vec<Record> = Traffic::new(small(3)).collect();
        assert!(records.is_sorted_by(|a, b| a.order() < b.order()));
        assert!(Traffic::new(small(3)).eq(records.iter().copied()));
        let other = TrafficSettings { seed: 2, ..small(3) };
        assert!(Traffic::new(other).ne(records));
    }

    #[test]
    fn more_expressways_leave_the_others_as_they_are() {
        let one = Traffic::new(small(1));
        let three = Traffic::new(small(3));
        let home = |vehicle| super::super::history::home_expressway(vehicle);
        assert!(one.eq(three.filter(|record| home(record.vehicle) == 0)));
    }

    #[test]
    fn random_accidents_keep_the_order_over_three_hours() {
        let settings = TrafficSettings { rate: 0.5, ..TrafficSettings::full() };
        let mut last = (-1, 0, 0);
        for record in Traffic::new(settings) {
            assert!(last < record.order());
            last = record.order();
        }
        assert!(last.0 >= 10_790);
    }

    #[test]
    fn cars_report_every_30_seconds_from_entry_to_exit() {
        let mut last: HashMap<i32, Record> = HashMap::new();
        let mut entries_again = 0;
        let settings = TrafficSettings { rate: 2.0, ..TrafficSettings::full_hour() };
        for report in Traffic::new(settings).filter(|record| record.kind == 0) {
            assert_eq!(report.segment, report.position / 5280);
            assert!((0..100).contains(&report.segment) && (0..=100).contains(&report.speed));
            match last.insert(report.vehicle, report) {
                Some(before) if before.lane == 4 => {
                    assert_eq!(report.lane, 0);
                    assert!((1000..=2000).contains(&(report.time_s - before.time_s)));
                    entries_again += 1;
                }
                Some(before) => {
                    assert_eq!(report.time_s - before.time_s, 30);
                    assert_eq!(report.direction, before.direction);
                    assert_ne!(report.lane, 0);
                }
                None => assert_eq!(report.lane, 0),
            }
        }
        assert!(entries_again > 30, "{entries_again}");
    }
}
