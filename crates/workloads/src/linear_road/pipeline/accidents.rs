//! Accidents by (expressway, direction): which one lies ahead of a car that enters a segment.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thalweg::rows::Emit;

use super::super::records::Record;
use super::cars::{Tracked, spread};
use super::{Place, Report};

/// How many segments ahead an accident is announced.
const ALERT_SEGMENTS: i32 = 4;

/// What leaves the accidents.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Located {
    /// A report, and the segment of the accident ahead of a car that enters.
    Report {
        /// The report.
        report: Report,
        /// The segment of the nearest active accident.
        accident: Option<i32>,
    },
    /// A query on its way.
    Query(Record),
}

impl Located {
    /// Expressway, direction and segment; queries are spread by their vehicle.
    pub fn key(&self) -> (i32, i32, i32) {
        match self {
            Located::Report { report, .. } => {
                (report.place.expressway, report.place.direction, report.place.segment)
            }
            Located::Query(query) => {
                let (none, spread) = spread(query);
                (none, spread, 0)
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Accident {
    place: Place,
    start_minute: i64,
    clear_minute: Option<i64>,
}

/// The accidents of one direction of an expressway, and the cars that stand there.
#[derive(Default, Serialize, Deserialize)]
pub struct Direction {
    minute: i64,
    stopped: BTreeMap<Place, BTreeSet<i32>>,
    accidents: Vec<Accident>,
}

/// Keeps accidents and looks ahead of cars that enter a segment.
pub fn look_ahead(
    _: &(i32, i32),
    direction: &mut Direction,
    tracked: Tracked,
    out: &mut Emit<Located>,
) {
    match tracked {
        Tracked::StopEnded { place, vehicle, minute } => direction.end_stop(place, vehicle, minute),
        Tracked::Query(query) => out.emit(Located::Query(query)),
        Tracked::Report { report, stops } => {
            direction.forget_old(report.minute());
            if stops {
                direction.begin_stop(&report);
            }
            let accident = if report.enters() { direction.ahead(&report) } else { None };
            out.emit(Located::Report { report, accident });
        }
    }
}

impl Direction {
    fn forget_old(&mut self, minute: i64) {
        if minute > self.minute {
            self.minute = minute;
            self.accidents.retain(|accident| accident.clear_minute.is_none_or(|m| minute <= m));
        }
    }

    fn begin_stop(&mut self, report: &Report) {
        let (place, start_minute) = (report.place, report.minute());
        let cars = self.stopped.entry(place).or_default();
        cars.insert(report.vehicle);
        let is_open =
            |accident: &Accident| accident.place == place && accident.clear_minute.is_none();
        if cars.len() >= 2 && !self.accidents.iter().any(is_open) {
            self.accidents.push(Accident { place, start_minute, clear_minute: None });
        }
    }

    fn end_stop(&mut self, place: Place, vehicle: i32, minute: i64) {
        if let Some(cars) = self.stopped.get_mut(&place) {
            cars.remove(&vehicle);
            if cars.is_empty() {
                self.stopped.remove(&place);
            }
        }
        for accident in self.accidents.iter_mut().filter(|accident| accident.place == place) {
            accident.clear_minute.get_or_insert(minute);
        }
    }

    /// The segment of the nearest active accident at or ahead of a report.
    fn ahead(&self, report: &Report) -> Option<i32> {
        let minute = report.minute();
        let toward = if report.place.direction == 0 { 1 } else { -1 };
        let distance = |segment: i32| (segment - report.place.segment) * toward;
        let is_active = |accident: &&Accident| {
            let open = accident.clear_minute.is_none_or(|clear| minute <= clear);
            accident.start_minute < minute && open
        };
        let segments = self.accidents.iter().filter(is_active).map(|a| a.place.segment);
        segments
            .filter(|&s| (0..=ALERT_SEGMENTS).contains(&distance(s)))
            .min_by_key(|&s| distance(s))
    }
}
