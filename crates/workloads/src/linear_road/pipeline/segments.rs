//! Statistics by (expressway, direction, segment): average speed and toll of a car that enters.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use thalweg::rows::Emit;

use super::super::records::{EXIT_LANE, Record};
use super::accidents::Located;
use super::{Report, Step};

/// Minutes that the average speed looks back.
const SPEED_MINUTES: i64 = 5;
/// Cars in the minute before that a segment takes without toll.
const FREE_CARS: i64 = 50;
/// From this average speed in miles per hour on a segment is free.
const FREE_SPEED: i64 = 40;

/// What leaves the segments: only what accounts need to know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Assessed {
    /// A car has entered or left a segment.
    Report {
        /// The report.
        report: Report,
        /// The segment of the accident ahead.
        accident: Option<i32>,
        /// The average speed before this minute.
        lav: i64,
        /// The toll to quote.
        toll: i64,
    },
    /// A query on its way.
    Query(Record),
}

impl Assessed {
    /// The car.
    pub fn vehicle(&self) -> i32 {
        match self {
            Assessed::Report { report, .. } => report.vehicle,
            Assessed::Query(query) => query.vehicle,
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Minute {
    minute: i64,
    cars: HashSet<i32>,
    speed_sum: i64,
    readings: i64,
}

/// The last minutes of a segment, the oldest first.
#[derive(Default, Serialize, Deserialize)]
pub struct Segment {
    minutes: VecDeque<Minute>,
}

/// Counts a report, and assesses the toll of a car that enters.
pub fn assess(
    _: &(i32, i32, i32),
    segment: &mut Segment,
    located: Located,
    out: &mut Emit<Assessed>,
) {
    let (report, accident) = match located {
        Located::Query(query) => return out.emit(Assessed::Query(query)),
        Located::Report { report, accident } => (report, accident),
    };
    segment.count(&report);
    if report.step == Step::SameSegment && report.place.lane != EXIT_LANE {
        return;
    }
    let (mut lav, mut toll) = (0, 0);
    if report.enters() {
        lav = segment.average_speed(report.minute());
        toll = if accident.is_none() { segment.toll(report.minute(), lav) } else { 0 };
    }
    out.emit(Assessed::Report { report, accident, lav, toll });
}

impl Segment {
    fn count(&mut self, report: &Report) {
        let minute = report.minute();
        if self.minutes.back().is_none_or(|last| last.minute < minute) {
            while self.minutes.front().is_some_and(|first| first.minute < minute - SPEED_MINUTES) {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute { minute, ..Minute::default() });
        }
        let counted = self.minutes.back_mut().expect("just added");
        counted.cars.insert(report.vehicle);
        counted.speed_sum += i64::from(report.speed);
        counted.readings += 1;
    }

    /// The mean of the readings of the minutes before this one, rounded half up.
    fn average_speed(&self, minute: i64) -> i64 {
        let looked_at = minute - SPEED_MINUTES..minute;
        let counted = self.minutes.iter().filter(|counted| looked_at.contains(&counted.minute));
        let add = |(sum, n), counted: &Minute| (sum + counted.speed_sum, n + counted.readings);
        let (speed_sum, readings) = counted.fold((0, 0), add);
        if readings == 0 { 0 } else { (2 * speed_sum + readings) / (2 * readings) }
    }

    fn toll(&self, minute: i64, lav: i64) -> i64 {
        let before = self.minutes.iter().find(|counted| counted.minute == minute - 1);
        let cars = before.map_or(0, |counted| counted.cars.len() as i64);
        if cars > FREE_CARS && lav < FREE_SPEED { 2 * (cars - FREE_CARS).pow(2) } else { 0 }
    }
}
