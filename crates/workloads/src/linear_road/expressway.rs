//! One expressway of the traffic model, second by second.
//!
//! A car reports every 30 s, so it stays in one of 30 buckets for all its trip. New cars have
//! larger numbers than all before, so buckets stay sorted by vehicle by themselves; only a car that
//! re-enters is inserted in its place. Each car has its own sequence of random numbers.

use std::collections::BTreeMap;

use super::history::{DAYS, VEHICLES_PER_EXPRESSWAY};
use super::records::{
    BALANCE_QUERY, ENTRY_LANE, EXIT_LANE, EXPENDITURE_QUERY, POSITION_REPORT, Record, SEGMENT_FEET,
    SEGMENTS, TRAVEL_TIME_QUERY, UNUSED,
};
use super::traffic::{Accidents, PlannedAccident, Queries, TrafficSettings};
use crate::random::Random;

const REPORT_INTERVAL_S: i64 = 30;
/// Feet driven in 30 s at one mile per hour.
const FEET_PER_MPH: i32 = 44;
const SPEED_DEVIATION_MPH: f64 = 8.0;
const DOWNTOWN: std::ops::RangeInclusive<usize> = 33..=65;
const JAM_MPH: f64 = 12.0;
const JAM_SEGMENTS: i32 = 6;
const COLLISION_WINDOW_S: i64 = 60;
const QUERY_SHARE: f64 = 0.01;
const REENTRY_SHARE: f64 = 0.1;

/// Random streams of an expressway; cars have the vehicle's number.
const ARRIVAL_STREAM: u64 = 1 << 40;
const ACCIDENT_STREAM: u64 = 1 << 41;

#[derive(Clone, Debug)]
struct Car {
    random: Random,
    vehicle: i32,
    position: i32,
    exit_segment: i32,
    lane: i32,
    direction: i32,
    on_the_way: bool,
    /// The car stands in an accident until then.
    stands_until_s: i64,
}

impl Car {
    /// A new trip. `index` distinguishes the trips of a car.
    fn enter(seed: u64, vehicle: i32, index: u64) -> Self {
        let mut random = Random::new(seed, vehicle as u64, index);
        let (mut from, mut to): (i32, i32) = (0, 0);
        while (from - to).abs() < 2 {
            from = random.below(SEGMENTS as u64) as i32;
            to = random.below(SEGMENTS as u64) as i32;
        }
        let offset = random.below(1000) as i32;
        let direction = i32::from(from > to);
        let into = if direction == 0 { offset } else { SEGMENT_FEET - 1 - offset };
        let lane = 1 + random.below(3) as i32;
        let position = from * SEGMENT_FEET + into;
        let (exit_segment, on_the_way, stands_until_s) = (to, false, 0);
        Car { random, vehicle, position, exit_segment, lane, direction, on_the_way, stands_until_s }
    }

    fn segment(&self) -> i32 {
        self.position / SEGMENT_FEET
    }

    fn speed(&mut self, field_mph: f64) -> i32 {
        self.random.normal(field_mph, SPEED_DEVIATION_MPH).round().clamp(0.0, 100.0) as i32
    }

    fn drive(&mut self, speed: i32) {
        let feet = speed * FEET_PER_MPH;
        self.position += if self.direction == 0 { feet } else { -feet };
    }

    fn report(&self, time_s: i64, expressway: i32, lane: i32, speed: i32) -> Record {
        Record {
            speed,
            expressway,
            lane,
            direction: self.direction,
            segment: self.segment(),
            position: self.position,
            ..Record::bare(POSITION_REPORT, time_s, self.vehicle)
        }
    }
}

/// An accident that has begun.
#[derive(Clone, Debug)]
struct Roadblock {
    plan: PlannedAccident,
    /// Where the first car stands: position and lane.
    place: Option<(i32, i32)>,
    cars: usize,
}

impl Roadblock {
    /// Stops a car that reports at the right place and time.
    fn catch(&mut self, car: &mut Car, time_s: i64) {
        let late = time_s > self.plan.start_s + COLLISION_WINDOW_S;
        let here = (car.direction, car.segment()) == (self.plan.direction, self.plan.segment);
        if late || !here || self.cars == 2 {
            return;
        }
        (car.position, car.lane) = *self.place.get_or_insert((car.position, car.lane));
        car.stands_until_s = self.plan.end_s;
        self.cars += 1;
    }
}

/// One expressway: its live cars and accidents.
#[derive(Debug)]
pub(super) struct Expressway {
    number: i32,
    seed: u64,
    /// Cars by the second of their reports modulo 30, each bucket sorted by vehicle.
    buckets: Vec<Vec<Car>>,
    /// Cars that will re-enter, by time.
    absent: BTreeMap<i64, Vec<i32>>,
    vehicles: i32,
    queries: i32,
    arrivals: Random,
    /// Accidents to come, the next one last; one at a time if they are random.
    planned: Vec<PlannedAccident>,
    /// Where the next random accidents come from.
    random_accidents: Option<Random>,
    roadblocks: Vec<Roadblock>,
    /// Mean speed by direction and segment in this second.
    field_mph: [[f64; SEGMENTS as usize]; 2],
}

impl Expressway {
    /// An empty expressway.
    pub(super) fn new(settings: &TrafficSettings, number: i32) -> Self {
        assert!(number <= i32::MAX / VEHICLES_PER_EXPRESSWAY, "too many expressways");
        let stream = |kind: u64| Random::new(settings.seed, kind + number as u64, 0);
        let mut expressway = Expressway {
            number,
            seed: settings.seed,
            buckets: vec![Vec::new(); REPORT_INTERVAL_S as usize],
            absent: BTreeMap::new(),
            vehicles: 0,
            queries: 0,
            arrivals: stream(ARRIVAL_STREAM),
            planned: Vec::new(),
            random_accidents: None,
            roadblocks: Vec::new(),
            field_mph: [[0.0; SEGMENTS as usize]; 2],
        };
        match &settings.accidents {
            Accidents::Planned(plan) => {
                expressway.planned.clone_from(plan);
                expressway.planned.sort_by_key(|accident| -accident.start_s);
            }
            Accidents::Random => {
                expressway.random_accidents = Some(stream(ACCIDENT_STREAM));
                expressway.plan_next(0);
            }
        }
        expressway
    }

    /// Simulates one second: appends its reports to `reports` and its queries to `queries`.
    pub(super) fn second(
        &mut self,
        settings: &TrafficSettings,
        time_s: i64,
        reports: &mut Vec<Record>,
        queries: &mut Queries,
    ) {
        self.begin_accidents(time_s);
        self.set_field(settings, time_s);
        self.admit(settings, time_s);
        let bucket = (time_s % REPORT_INTERVAL_S) as usize;
        let mut cars = std::mem::take(&mut self.buckets[bucket]);
        cars.retain_mut(|car| {
            let report = self.report(car, time_s);
            reports.push(report);
            if car.random.chance(QUERY_SHARE) {
                self.ask(car, time_s, queries);
            }
            report.lane != EXIT_LANE
        });
        self.buckets[bucket] = cars;
    }

    fn begin_accidents(&mut self, time_s: i64) {
        self.roadblocks.retain(|roadblock| time_s < roadblock.plan.end_s);
        while let Some(plan) = self.planned.pop_if(|plan| plan.start_s <= time_s) {
            self.roadblocks.push(Roadblock { plan, place: None, cars: 0 });
            self.plan_next(plan.start_s);
        }
    }

    fn plan_next(&mut self, after_s: i64) {
        let Some(random) = &mut self.random_accidents else { return };
        let start_s = after_s + random.between(300, 900);
        self.planned.push(PlannedAccident {
            start_s,
            end_s: start_s + random.between(300, 900),
            direction: random.below(2) as i32,
            segment: random.below(SEGMENTS as u64) as i32,
        });
    }

    /// Mean speeds: slower downtown, nearly standing in front of an accident.
    fn set_field(&mut self, settings: &TrafficSettings, time_s: i64) {
        let downtown = settings.field_mph - settings.downtown_drop_mph(time_s);
        for field in &mut self.field_mph {
            field.fill(settings.field_mph);
            field[DOWNTOWN].fill(downtown);
        }
        for Roadblock { plan, .. } in &self.roadblocks {
            let upstream = if plan.direction == 0 { -1 } else { 1 };
            for distance in 0..=JAM_SEGMENTS {
                let segment = plan.segment + upstream * distance;
                if (0..SEGMENTS).contains(&segment) {
                    let field = &mut self.field_mph[plan.direction as usize][segment as usize];
                    *field = field.min(JAM_MPH);
                }
            }
        }
    }

    /// Lets cars enter: those that come back, then new ones.
    fn admit(&mut self, settings: &TrafficSettings, time_s: i64) {
        let bucket = &mut self.buckets[(time_s % REPORT_INTERVAL_S) as usize];
        for vehicle in self.absent.remove(&time_s).unwrap_or_default() {
            let place = bucket.partition_point(|car| car.vehicle < vehicle);
            bucket.insert(place, Car::enter(self.seed, vehicle, time_s as u64));
        }
        let expected = settings.entering(time_s);
        let more = i32::from(self.arrivals.chance(expected.fract()));
        for _ in 0..expected as i32 + more {
            assert!(self.vehicles < VEHICLES_PER_EXPRESSWAY, "too many cars for one expressway");
            let vehicle = self.number * VEHICLES_PER_EXPRESSWAY + self.vehicles;
            self.vehicles += 1;
            bucket.push(Car::enter(self.seed, vehicle, time_s as u64));
        }
    }

    /// The car's report; afterwards the car is where it will report next.
    fn report(&mut self, car: &mut Car, time_s: i64) -> Record {
        let segment = car.segment();
        let leaves = segment == car.exit_segment;
        if car.on_the_way && !leaves && time_s >= car.stands_until_s {
            for roadblock in &mut self.roadblocks {
                roadblock.catch(car, time_s);
            }
        }
        if time_s < car.stands_until_s {
            return car.report(time_s, self.number, car.lane, 0);
        }
        let speed = car.speed(self.field_mph[car.direction as usize][segment as usize]);
        if leaves {
            self.maybe_return(car, time_s);
            return car.report(time_s, self.number, EXIT_LANE, speed);
        }
        let lane = if car.on_the_way { car.lane } else { ENTRY_LANE };
        let report = car.report(time_s, self.number, lane, speed);
        car.on_the_way = true;
        car.drive(speed);
        report
    }

    fn maybe_return(&mut self, car: &mut Car, time_s: i64) {
        if car.random.chance(REENTRY_SHARE) {
            let back_s = time_s + car.random.between(1000, 2000);
            self.absent.entry(back_s).or_default().push(car.vehicle);
        }
    }

    /// One question: balance, expenditure and travel time come as 5 to 1 to 4.
    fn ask(&mut self, car: &mut Car, time_s: i64, queries: &mut Queries) {
        let query = self.number * VEHICLES_PER_EXPRESSWAY + self.queries;
        self.queries += 1;
        let random = &mut car.random;
        let bare = |kind| Record { query, ..Record::bare(kind, time_s, car.vehicle) };
        match random.below(10) {
            0..5 => queries.balances.push(bare(BALANCE_QUERY)),
            5 => queries.expenditures.push(Record {
                expressway: self.number,
                day: random.between(1, i64::from(DAYS)) as i32,
                ..bare(EXPENDITURE_QUERY)
            }),
            _ => queries.travel_times.push(Record {
                expressway: self.number,
                start_segment: random.below(SEGMENTS as u64) as i32,
                end_segment: random.below(SEGMENTS as u64) as i32,
                day_of_week: random.between(1, 7) as i32,
                time_of_day: random.between(1, 1440) as i32,
                day: UNUSED,
                ..bare(TRAVEL_TIME_QUERY)
            }),
        }
    }
}
