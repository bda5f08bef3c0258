//! The serial oracle of Linear Road: one thread, one record at a time, hash maps.
//!
//! # The four steps of a record
//!
//! Each step has a key and sees the records of its key in order, so a parallel pipeline can run the
//! four behind each other and gets the same answers:
//!
//! 1. **Car tracking by vehicle**: is this report a new trip, a new segment, a stop, the end of a
//!    stop? Knows the car's last time, place and how often it has reported that place.
//! 2. **Accidents by (expressway, direction)**: stops and ends of stops of a place come in, the
//!    nearest accident ahead of a car that enters a segment goes out. The end of a stop belongs to
//!    the place that was left, which after a re-entry may be on another expressway than the report:
//!    in a pipeline it is an event of its own, before the report.
//! 3. **Statistics by (expressway, direction, segment)**: counts the report, and computes the toll
//!    of a car that enters. Uses minutes before the report's own only, as step 2 does, so the order
//!    within a minute does not matter to either.
//! 4. **Accounts by vehicle**: the toll quoted last and the sum charged. Queries go here directly.
//!
//! # Decisions where the benchmark is loose
//!
//! * Minute M is `time_s / 60 + 1`. LAV is the sum of speeds over the number of readings of minutes
//!   M-5 to M-1, rounded half up; without readings it is 0.
//! * A report in lane 0 more than 60 s after the car's last one starts a new trip. After a report
//!   in lane 4 the car is ignored (also in the statistics) until a report in lane 0, whenever that
//!   comes, starts a new trip. A new trip forgets the segment, the stop and the toll quoted.
//! * A place is (expressway, direction, lane, segment, position). A car is stopped from its fourth
//!   report of one place in a row; every other report of it, and a new trip, ends the stop.
//! * An accident begins when a second car is stopped at a place, and is cleared when the first car
//!   stopped there ends its stop. Another car that stops there later begins a new accident if
//!   one is still standing there. Active from the minute after the beginning to that of the
//!   clearing.
//! * An alert names the nearest accident ahead and comes before the toll notification, whose toll
//!   is 0 then.
//! * The toll quoted is charged with the next report in a new segment, in any lane. A report in
//!   lane 4 of the same segment, or a new trip, drops it.
//! * A balance holds all that was charged up to the query; its result time is the query's.
//!
//! Travel times are not answered.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::answers::Answer;
use super::history::expenditure;
use super::records::{
    BALANCE_QUERY, ENTRY_LANE, EXIT_LANE, EXPENDITURE_QUERY, POSITION_REPORT, Record,
};

/// Reports of one place that make a car a stopped car.
const STOP_REPORTS: u32 = 4;
/// A car silent for longer than this may start a new trip.
const SILENCE_S: i64 = 60;
/// How many segments ahead an accident is announced.
const ALERT_SEGMENTS: i32 = 4;
/// Minutes that the average speed looks back.
const SPEED_MINUTES: i64 = 5;
/// Cars in the minute before that a segment takes without toll.
const FREE_CARS: i64 = 50;
/// From this average speed in miles per hour on a segment is free.
const FREE_SPEED: i64 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Segment {
    expressway: i32,
    direction: i32,
    segment: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    segment: Segment,
    lane: i32,
    position: i32,
}

impl Place {
    fn of(report: &Record) -> Self {
        let Record { expressway, direction, segment, lane, position, .. } = *report;
        Place { segment: Segment { expressway, direction, segment }, lane, position }
    }
}

/// What a report means for its trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    NewTrip,
    NewSegment,
    SameSegment,
}

/// What car tracking finds in a report.
#[derive(Clone, Copy, Debug)]
struct Movement {
    step: Step,
    /// The place where the car was stopped until now.
    left: Option<Place>,
    /// The place where the car is stopped from now on.
    stopped: Option<Place>,
}

#[derive(Debug)]
struct Car {
    time_s: i64,
    place: Place,
    reports_of_place: u32,
}

#[derive(Debug)]
struct Accident {
    place: Place,
    start_minute: i64,
    clear_minute: Option<i64>,
}

impl Accident {
    fn is_active(&self, minute: i64) -> bool {
        self.start_minute < minute && self.clear_minute.is_none_or(|clear| minute <= clear)
    }
}

#[derive(Debug, Default)]
struct Minute {
    cars: HashSet<i32>,
    speed_sum: i64,
    readings: i64,
}

#[derive(Debug, Default)]
struct Account {
    quoted: Option<i64>,
    charged: i64,
}

/// The state of all keys.
#[derive(Debug, Default)]
struct Validator {
    minute: i64,
    cars: HashMap<i32, Car>,
    stopped: HashMap<Place, BTreeSet<i32>>,
    accidents: HashMap<(i32, i32), Vec<Accident>>,
    minutes: HashMap<(Segment, i64), Minute>,
    accounts: HashMap<i32, Account>,
}

/// The answers to sorted records, in the order of the records that cause them.
pub fn validate_serially(records: impl IntoIterator<Item = Record>) -> Vec<Answer> {
    let mut answers = Vec::new();
    validate_each(records, |answer| answers.push(answer));
    answers
}

/// The same answers one after the other, for runs whose answers are too many to be kept.
pub fn validate_each(records: impl IntoIterator<Item = Record>, mut take: impl FnMut(Answer)) {
    let mut validator = Validator::default();
    let mut answers = Vec::new();
    for record in records {
        validator.forget_old_minutes(record.minute());
        match record.kind {
            POSITION_REPORT => validator.position_report(&record, &mut answers),
            BALANCE_QUERY => answers.push(validator.balance(&record)),
            EXPENDITURE_QUERY => answers.extend(spent(&record)),
            _ => {}
        }
        answers.drain(..).for_each(&mut take);
    }
}

fn spent(query: &Record) -> Option<Answer> {
    let Record { time_s, vehicle, expressway, query, day, .. } = *query;
    let toll = expenditure(vehicle, day, expressway)?;
    Some(Answer::Expenditure { time_s, query, vehicle, toll })
}

impl Validator {
    /// Only saves memory: what is dropped is never asked for again.
    fn forget_old_minutes(&mut self, minute: i64) {
        if minute > self.minute {
            self.minute = minute;
            self.minutes.retain(|&(_, counted), _| counted >= minute - SPEED_MINUTES);
            for accidents in self.accidents.values_mut() {
                accidents.retain(|accident| accident.clear_minute.is_none_or(|m| minute <= m));
            }
        }
    }

    fn position_report(&mut self, report: &Record, answers: &mut Vec<Answer>) {
        let Some(movement) = self.track(report) else { return };
        if let Some(place) = movement.left {
            self.end_stop(place, report);
        }
        if let Some(place) = movement.stopped {
            self.begin_stop(place, report);
        }
        self.count(report);
        self.settle(report, movement.step);
        if movement.step != Step::SameSegment && report.lane != EXIT_LANE {
            self.quote_toll(report, answers);
        }
    }

    /// Step 1. `None` for a car that has left.
    fn track(&mut self, report: &Record) -> Option<Movement> {
        let place = Place::of(report);
        let mut now = Car { time_s: report.time_s, place, reports_of_place: 1 };
        let Some(before) = self.cars.get_mut(&report.vehicle) else {
            self.cars.insert(report.vehicle, now);
            return Some(Movement { step: Step::NewTrip, left: None, stopped: None });
        };
        let gone = before.place.lane == EXIT_LANE;
        let silent = report.time_s - before.time_s > SILENCE_S;
        let reenters = report.lane == ENTRY_LANE && (gone || silent);
        if gone && !reenters {
            return None;
        }
        let stays = !reenters && before.place == place;
        if stays {
            now.reports_of_place = before.reports_of_place + 1;
        }
        let step = match before.place.segment == place.segment {
            _ if reenters => Step::NewTrip,
            true => Step::SameSegment,
            false => Step::NewSegment,
        };
        let was_stopped = before.reports_of_place >= STOP_REPORTS;
        let left = (was_stopped && !stays).then_some(before.place);
        let stopped = (now.reports_of_place == STOP_REPORTS).then_some(place);
        *before = now;
        Some(Movement { step, left, stopped })
    }

    /// Step 2: clears the accident at the place the car has left.
    fn end_stop(&mut self, place: Place, report: &Record) {
        if let Some(cars) = self.stopped.get_mut(&place) {
            cars.remove(&report.vehicle);
        }
        for accident in self.accidents_like(place) {
            if accident.place == place && accident.clear_minute.is_none() {
                accident.clear_minute = Some(report.minute());
            }
        }
    }

    /// Step 2: begins an accident if another car is stopped at the place.
    fn begin_stop(&mut self, place: Place, report: &Record) {
        let cars = self.stopped.entry(place).or_default();
        cars.insert(report.vehicle);
        let collided = cars.len() >= 2;
        let start_minute = report.minute();
        let accidents = self.accidents_like(place);
        let known = accidents.iter().any(|a| a.place == place && a.clear_minute.is_none());
        if collided && !known {
            accidents.push(Accident { place, start_minute, clear_minute: None });
        }
    }

    fn accidents_like(&mut self, place: Place) -> &mut Vec<Accident> {
        let Segment { expressway, direction, .. } = place.segment;
        self.accidents.entry((expressway, direction)).or_default()
    }

    /// Step 2: the segment of the nearest active accident ahead.
    fn accident_ahead(&self, report: &Record) -> Option<i32> {
        let toward = if report.direction == 0 { 1 } else { -1 };
        let accidents = self.accidents.get(&(report.expressway, report.direction))?;
        accidents
            .iter()
            .filter(|accident| accident.is_active(report.minute()))
            .map(|accident| accident.place.segment.segment)
            .filter(|segment| (0..=ALERT_SEGMENTS).contains(&((segment - report.segment) * toward)))
            .min_by_key(|segment| (segment - report.segment) * toward)
    }

    /// Step 3: adds the report to its minute.
    fn count(&mut self, report: &Record) {
        let key = (Place::of(report).segment, report.minute());
        let minute = self.minutes.entry(key).or_default();
        minute.cars.insert(report.vehicle);
        minute.speed_sum += i64::from(report.speed);
        minute.readings += 1;
    }

    /// Step 3: the average speed before this minute.
    fn average_speed(&self, segment: Segment, minute: i64) -> i64 {
        let (mut speed_sum, mut readings) = (0, 0);
        for counted in minute - SPEED_MINUTES..minute {
            if let Some(counts) = self.minutes.get(&(segment, counted)) {
                speed_sum += counts.speed_sum;
                readings += counts.readings;
            }
        }
        if readings == 0 { 0 } else { (2 * speed_sum + readings) / (2 * readings) }
    }

    /// Step 3: the toll of a segment without accidents.
    fn toll(&self, segment: Segment, minute: i64, lav: i64) -> i64 {
        let counts = self.minutes.get(&(segment, minute - 1));
        let cars = counts.map_or(0, |counts| counts.cars.len() as i64);
        if cars > FREE_CARS && lav < FREE_SPEED { 2 * (cars - FREE_CARS).pow(2) } else { 0 }
    }

    /// Steps 2 to 4 for a car that enters a segment: the alert and the toll.
    fn quote_toll(&mut self, report: &Record, answers: &mut Vec<Answer>) {
        let Record { time_s, vehicle, expressway, direction, segment, .. } = *report;
        let entered = Place::of(report).segment;
        let lav = self.average_speed(entered, report.minute());
        let mut toll = self.toll(entered, report.minute(), lav);
        if let Some(segment) = self.accident_ahead(report) {
            toll = 0;
            answers.push(Answer::Accident { time_s, expressway, segment, direction, vehicle });
        }
        self.accounts.entry(vehicle).or_default().quoted = Some(toll);
        answers.push(Answer::Toll { vehicle, time_s, lav, toll, expressway, direction, segment });
    }

    /// Step 4: charges or drops the toll quoted before this report.
    fn settle(&mut self, report: &Record, step: Step) {
        let account = self.accounts.entry(report.vehicle).or_default();
        match step {
            Step::NewTrip => account.quoted = None,
            Step::NewSegment => account.charged += account.quoted.take().unwrap_or(0),
            Step::SameSegment if report.lane == EXIT_LANE => account.quoted = None,
            Step::SameSegment => {}
        }
    }

    /// Step 4: the balance.
    fn balance(&self, query: &Record) -> Answer {
        let Record { time_s, vehicle, query, .. } = *query;
        let balance = self.accounts.get(&vehicle).map_or(0, |account| account.charged);
        Answer::Balance { time_s, query, vehicle, balance, result_time_s: time_s }
    }
}

#[cfg(test)]
mod tests;
