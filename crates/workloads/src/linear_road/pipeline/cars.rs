//! Car tracking by vehicle: what a report means for the trip of its car.

use serde::{Deserialize, Serialize};
use thalweg::rows::Emit;

use super::super::records::{ENTRY_LANE, EXIT_LANE, POSITION_REPORT, Record};
use super::{Place, Report, Step};

/// Reports of one place that make a car a stopped car.
const STOP_REPORTS: u32 = 4;
/// A car silent for longer than this may start a new trip.
const SILENCE_S: i64 = 60;

/// What leaves car tracking.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Tracked {
    /// A car that stood at this place does so no more. Comes before the report that shows it.
    StopEnded {
        /// The place that was left.
        place: Place,
        /// The car.
        vehicle: i32,
        /// The minute of the report.
        minute: i64,
    },
    /// A report; the car has stopped there if `stops`.
    Report {
        /// The report.
        report: Report,
        /// True for the report that makes the car a stopped car.
        stops: bool,
    },
    /// A query on its way.
    Query(Record),
}

impl Tracked {
    /// Expressway and direction; queries have no place and are spread by their vehicle.
    pub fn key(&self) -> (i32, i32) {
        match self {
            Tracked::StopEnded { place, .. } => (place.expressway, place.direction),
            Tracked::Report { report, .. } => (report.place.expressway, report.place.direction),
            Tracked::Query(query) => spread(query),
        }
    }
}

/// A key for queries that no report has.
pub(super) fn spread(query: &Record) -> (i32, i32) {
    (-1, query.vehicle & 0xFF)
}

/// The last report of a car.
#[derive(Default, Serialize, Deserialize)]
pub struct Car {
    last: Option<(i64, Place)>,
    reports_of_place: u32,
}

/// Tracks a car.
pub fn track(_: &i32, car: &mut Car, record: Record, out: &mut Emit<Tracked>) {
    if record.kind != POSITION_REPORT {
        return out.emit(Tracked::Query(record));
    }
    let place = Place::of(&record);
    let Record { time_s, vehicle, speed, .. } = record;
    let mut stays = false;
    let step = match car.last {
        None => Step::NewTrip,
        Some((last_s, last)) => {
            let gone = last.lane == EXIT_LANE;
            let silent = time_s - last_s > SILENCE_S;
            let reenters = place.lane == ENTRY_LANE && (gone || silent);
            if gone && !reenters {
                return;
            }
            stays = !reenters && last == place;
            if car.reports_of_place >= STOP_REPORTS && !stays {
                out.emit(Tracked::StopEnded { place: last, vehicle, minute: record.minute() });
            }
            match last.is_in_segment_of(&place) {
                _ if reenters => Step::NewTrip,
                true => Step::SameSegment,
                false => Step::NewSegment,
            }
        }
    };
    car.last = Some((time_s, place));
    car.reports_of_place = if stays { car.reports_of_place + 1 } else { 1 };
    let report = Report { time_s, vehicle, speed, place, step };
    out.emit(Tracked::Report { report, stops: car.reports_of_place == STOP_REPORTS });
}
