//! The rules one by one on a few cars, and the figures of generated traffic.

use std::collections::{HashMap, HashSet};

use super::super::traffic::{Traffic, TrafficSettings};
use super::*;

/// A report of a car on expressway 0, direction 0, at the start of a segment.
fn report(time_s: i64, vehicle: i32, lane: i32, segment: i32, speed: i32) -> Record {
    Record {
        speed,
        lane,
        segment,
        expressway: 0,
        direction: 0,
        position: segment * 5280,
        ..Record::bare(POSITION_REPORT, time_s, vehicle)
    }
}

fn balance_query(time_s: i64, vehicle: i32) -> Record {
    Record { query: 7, ..Record::bare(BALANCE_QUERY, time_s, vehicle) }
}

fn answers(mut records: Vec<Record>) -> Vec<Answer> {
    records.sort_by_key(Record::order);
    validate_serially(records)
}

/// (lav, toll) of each toll notification to this car.
fn tolls(answers: &[Answer], car: i32) -> Vec<(i64, i64)> {
    let of_car = |answer: &Answer| match *answer {
        Answer::Toll { vehicle, lav, toll, .. } if vehicle == car => Some((lav, toll)),
        _ => None,
    };
    answers.iter().filter_map(of_car).collect()
}

/// (time, segment of the accident) of each alert to this car.
fn alerts(answers: &[Answer], car: i32) -> Vec<(i64, i32)> {
    let of_car = |answer: &Answer| match *answer {
        Answer::Accident { vehicle, time_s, segment, .. } if vehicle == car => {
            Some((time_s, segment))
        }
        _ => None,
    };
    answers.iter().filter_map(of_car).collect()
}

fn balances(answers: &[Answer]) -> Vec<i64> {
    let balance = |answer: &Answer| match *answer {
        Answer::Balance { balance, time_s, result_time_s, query: 7, .. } => {
            assert_eq!(time_s, result_time_s);
            Some(balance)
        }
        _ => None,
    };
    answers.iter().filter_map(balance).collect()
}

/// This many cars with numbers from 1000 in a segment in minute 1.
fn crowd(cars: i32, segment: i32, speed: i32) -> Vec<Record> {
    (0..cars).map(|car| report(0, 1000 + car, 1, segment, speed)).collect()
}

#[test]
fn the_toll_grows_with_the_square_of_the_cars_above_50() {
    for (cars, speed, expected) in [(50, 20, 0), (51, 20, 2), (60, 39, 200), (60, 40, 0)] {
        let mut records = crowd(cars, 10, speed);
        records.push(report(60, 1, 1, 10, 99));
        assert_eq!(tolls(&answers(records), 1), [(i64::from(speed), expected)]);
    }
}

#[test]
fn the_average_speed_is_of_five_earlier_minutes_and_rounded_half_up() {
    let records = vec![
        report(0, 2, 1, 10, 90),
        report(60, 3, 1, 10, 20),
        report(300, 4, 1, 10, 21),
        report(360, 1, 1, 10, 99),
    ];
    assert_eq!(tolls(&answers(records), 1), [(21, 0)]);
    assert_eq!(tolls(&answers(vec![report(0, 1, 0, 10, 50)]), 1), [(0, 0)]);
}

#[test]
fn cars_of_this_minute_and_cars_counted_twice_make_no_toll() {
    let mut records = crowd(50, 10, 20);
    records.extend(crowd(50, 10, 20).into_iter().map(|r| Record { time_s: 30, ..r }));
    records.extend((0..20).map(|car| report(60, 2000 + car, 1, 10, 20)));
    records.push(report(61, 3000, 1, 10, 20));
    assert_eq!(tolls(&answers(records), 3000), [(20, 0)]);
}

/// Cars 1 and 2 stand in segment 12 from 0 on; the accident begins at 90 (minute 2).
fn collision(until_s: i64) -> Vec<Record> {
    let times = (0..until_s).step_by(30);
    times.flat_map(|time_s| [1, 2].map(|car| report(time_s, car, 2, 12, 0))).collect()
}

#[test]
fn an_accident_is_announced_from_the_next_minute_on_up_to_four_segments_ahead() {
    let mut records = collision(600);
    records.extend([
        report(119, 10, 1, 12, 50),
        report(120, 11, 1, 12, 50),
        report(121, 12, 1, 8, 50),
        report(122, 13, 1, 7, 50),
        report(123, 14, 1, 13, 50),
        report(124, 15, 4, 11, 50),
        Record { direction: 1, ..report(125, 16, 1, 12, 50) },
        Record { expressway: 1, ..report(126, 17, 1, 12, 50) },
    ]);
    let answers = answers(records);
    let notified: Vec<_> = (10..=17).map(|car| alerts(&answers, car)).collect();
    let none = Vec::new();
    let expected = [vec![], vec![(120, 12)], vec![(121, 12)]];
    assert_eq!(notified[..3], expected);
    assert!(notified[3..].iter().all(|alerts| *alerts == none));
    let first = answers.iter().position(|a| matches!(a, Answer::Accident { .. })).unwrap();
    assert!(matches!(answers[first + 1], Answer::Toll { vehicle: 11, toll: 0, .. }));
    assert!(alerts(&answers, 1).is_empty() && alerts(&answers, 2).is_empty());
}

#[test]
fn westward_an_accident_lies_ahead_in_lower_segments() {
    let mut records = collision(600);
    records.extend([report(200, 10, 1, 16, 50), report(200, 11, 1, 17, 50)]);
    records.extend([report(200, 12, 1, 11, 50)]);
    records.iter_mut().for_each(|record| record.direction = 1);
    let answers = answers(records);
    assert_eq!(alerts(&answers, 10), [(200, 12)]);
    assert!(alerts(&answers, 11).is_empty() && alerts(&answers, 12).is_empty());
}

#[test]
fn a_cleared_accident_is_announced_to_the_end_of_its_minute_and_may_come_again() {
    let mut records = collision(180);
    records.extend([report(180, 1, 2, 13, 9), report(180, 2, 2, 12, 0), report(210, 2, 2, 12, 0)]);
    records.extend([report(239, 10, 1, 9, 50), report(240, 11, 1, 9, 50)]);
    records.extend([240, 270, 300, 330].map(|time_s| report(time_s, 2, 2, 12, 0)));
    records.extend([240, 270, 300, 330].map(|time_s| report(time_s, 3, 2, 12, 0)));
    records.extend([report(359, 12, 1, 9, 50), report(360, 13, 1, 9, 50)]);
    let answers = answers(records);
    assert_eq!(alerts(&answers, 10), [(239, 12)]);
    assert!(alerts(&answers, 11).is_empty());
    assert!(alerts(&answers, 12).is_empty());
    assert_eq!(alerts(&answers, 13), [(360, 12)]);
}

#[test]
fn an_accident_cleared_in_its_first_minute_is_never_announced() {
    let mut records = collision(120);
    records.extend([report(119, 1, 2, 13, 9), report(120, 10, 1, 12, 9)]);
    records.extend([report(180, 11, 1, 12, 9)]);
    let answers = answers(records);
    assert!(alerts(&answers, 10).is_empty() && alerts(&answers, 11).is_empty());
}

#[test]
fn one_car_or_two_lanes_or_three_reports_are_no_accident() {
    let one: Vec<Record> = collision(600).into_iter().filter(|r| r.vehicle == 1).collect();
    let mut lanes = collision(600);
    lanes.iter_mut().for_each(|record| record.lane = record.vehicle);
    for mut records in [one, lanes, collision(90)] {
        records.push(report(300, 10, 1, 12, 50));
        assert!(alerts(&answers(records), 10).is_empty());
    }
}

#[test]
fn the_nearest_accident_is_named_and_makes_the_toll_zero() {
    let mut records = collision(600);
    let nearer = [3, 4].map(|car| move |time_s| report(time_s, car, 1, 11, 0));
    records.extend((0..600).step_by(30).flat_map(|time_s| nearer.map(|at| at(time_s))));
    records.extend((0..60).map(|car| report(150, 1000 + car, 1, 10, 20)));
    records.extend([report(180, 10, 1, 10, 20), report(181, 11, 1, 12, 20)]);
    let answers = answers(records);
    assert_eq!(alerts(&answers, 10), [(180, 11)]);
    assert_eq!(alerts(&answers, 11), [(181, 12)]);
    assert_eq!(tolls(&answers, 10), [(20, 0)]);
}

#[test]
fn a_toll_is_charged_on_entering_the_next_segment() {
    let mut records = crowd(60, 10, 20);
    records.extend([report(60, 1, 0, 10, 50), balance_query(60, 1)]);
    records.extend([report(90, 1, 1, 10, 50), balance_query(90, 1)]);
    records.extend([report(120, 1, 1, 11, 50), balance_query(120, 1)]);
    records.extend([report(150, 1, 4, 12, 50), balance_query(150, 1), balance_query(150, 99)]);
    assert_eq!(balances(&answers(records)), [0, 0, 200, 200, 0]);
}

#[test]
fn the_next_segment_charges_also_in_the_exit_lane() {
    let mut records = crowd(60, 10, 20);
    records.extend([report(60, 1, 0, 10, 50), report(90, 1, 4, 11, 50), balance_query(90, 1)]);
    let answers = answers(records);
    assert_eq!(balances(&answers), [200]);
    assert_eq!(tolls(&answers, 1).len(), 1);
}

#[test]
fn leaving_inside_the_segment_costs_nothing() {
    let mut records = crowd(60, 10, 20);
    records.extend([report(60, 1, 0, 10, 50), report(90, 1, 4, 10, 50)]);
    records.extend([report(200, 1, 0, 20, 50), report(230, 1, 1, 21, 50), balance_query(230, 1)]);
    assert_eq!(balances(&answers(records)), [0]);
}

#[test]
fn a_car_that_left_is_ignored_until_it_enters_again() {
    let records = vec![
        report(0, 1, 0, 10, 50),
        report(30, 1, 4, 10, 50),
        report(60, 1, 1, 11, 50),
        report(60, 2, 1, 11, 50),
        report(90, 1, 0, 10, 50),
        report(120, 3, 1, 11, 10),
    ];
    let answers = answers(records);
    assert_eq!(tolls(&answers, 1), [(0, 0), (50, 0)]);
    assert_eq!(tolls(&answers, 3), [(50, 0)]);
}

#[test]
fn lane_0_after_more_than_a_minute_starts_a_new_trip_uncharged() {
    for (time_s, notifications, balance) in [(120, 1, 0), (121, 2, 0)] {
        let mut records = crowd(60, 10, 20);
        records.extend([report(60, 1, 0, 10, 50), report(time_s, 1, 0, 10, 50)]);
        records.push(balance_query(time_s, 1));
        let answers = answers(records);
        assert_eq!((tolls(&answers, 1).len(), balances(&answers)), (notifications, vec![balance]));
    }
    let mut records = crowd(60, 10, 20);
    records.extend([report(60, 1, 0, 10, 50), report(121, 1, 0, 11, 50), balance_query(121, 1)]);
    assert_eq!(balances(&answers(records)), [0]);
}

#[test]
fn a_new_trip_of_a_stopped_car_clears_its_accident() {
    let mut records = collision(180);
    records.extend([Record { expressway: 1, ..report(300, 1, 0, 40, 9) }]);
    records.extend([report(301, 10, 1, 12, 50), report(360, 11, 1, 12, 50)]);
    let answers = answers(records);
    assert_eq!(alerts(&answers, 10), [(301, 12)]);
    assert!(alerts(&answers, 11).is_empty());
}

#[test]
fn an_expenditure_is_answered_if_the_table_has_it() {
    let days: Vec<Option<i64>> = (0..=69).map(|day| expenditure(5, day, 0)).collect();
    let query = |day| Record { query: 7, expressway: 0, day, ..Record::bare(3, 9, 5) };
    let answers = answers((0..=69).map(query).collect());
    let expected: Vec<Answer> = days
        .into_iter()
        .flatten()
        .map(|toll| Answer::Expenditure { time_s: 9, query: 7, vehicle: 5, toll })
        .collect();
    assert_eq!(answers, expected);
    assert!(validate_serially([Record::bare(4, 0, 1)]).is_empty());
}

fn within(value: usize, expected: usize, percent: usize) -> bool {
    value.abs_diff(expected) * 100 <= expected * percent
}

#[test]
fn small_traffic_has_the_expected_figures() {
    let records: Vec<Record> = Traffic::new(TrafficSettings::ci()).collect();
    let reports = records.iter().filter(|record| record.kind == POSITION_REPORT).count();
    let share = reports as f64 / records.len() as f64;
    let answers = validate_serially(records);
    let count = |wanted: fn(&Answer) -> bool| answers.iter().filter(|a| wanted(a)).count();
    let tolls = count(|a| matches!(a, Answer::Toll { .. }));
    let charged = count(|a| matches!(a, Answer::Toll { toll: 1.., .. }));
    let alerts = count(|a| matches!(a, Answer::Accident { .. }));
    println!("{reports} reports ({share}), {tolls} tolls, {charged} above 0, {alerts} alerts");
    assert!(within(reports, 230_828, 5), "{reports}");
    assert!((share - 0.99).abs() < 0.003, "{share}");
    assert!((4000..=9500).contains(&charged), "{charged}");
    let accident = |answer: &Answer| match *answer {
        Answer::Accident { direction, segment, .. } => Some((direction, segment)),
        _ => None,
    };
    let accidents: HashSet<_> = answers.iter().filter_map(accident).collect();
    assert_eq!(accidents, HashSet::from([(0, 40), (1, 60), (0, 75)]));
}

#[test]
fn an_hour_has_the_expected_figures() {
    let answers = validate_serially(Traffic::new(TrafficSettings::full_hour()));
    let count = |wanted: fn(&Answer) -> bool| answers.iter().filter(|a| wanted(a)).count();
    let tolls = count(|a| matches!(a, Answer::Toll { .. }));
    let charged = count(|a| matches!(a, Answer::Toll { toll: 1.., .. }));
    assert!(within(tolls, 257_785, 5), "{tolls}");
    assert!(within(charged, 71_517, 5), "{charged}");
    for present in [
        count(|a| matches!(a, Answer::Accident { .. })),
        count(|a| matches!(a, Answer::Balance { balance: 1.., .. })),
        count(|a| matches!(a, Answer::Expenditure { .. })),
    ] {
        assert!(present > 500, "{present}");
    }
}

#[test]
fn statistics_equal_those_of_a_batch_group_by() {
    let settings = TrafficSettings { seconds: 700, expressways: 2, ..TrafficSettings::ci() };
    let records: Vec<Record> = Traffic::new(settings).collect();
    let mut groups: HashMap<(i32, i32, i32, i64), Vec<(i32, i32)>> = HashMap::new();
    for r in records.iter().filter(|record| record.kind == POSITION_REPORT) {
        let key = (r.expressway, r.direction, r.segment, r.time_s / 60 + 1);
        groups.entry(key).or_default().push((r.vehicle, r.speed));
    }
    let mut alerted = false;
    let mut compared = 0;
    for answer in validate_serially(records) {
        if let Answer::Toll { time_s, lav, toll, expressway, direction, segment, .. } = answer {
            let minute = time_s / 60 + 1;
            let group = |m| groups.get(&(expressway, direction, segment, m)).into_iter().flatten();
            let speeds: Vec<f64> =
                (minute - 5..minute).flat_map(group).map(|&(_, speed)| f64::from(speed)).collect();
            let mean = speeds.iter().sum::<f64>() / (speeds.len().max(1) as f64);
            assert_eq!(lav, (mean + 0.5).floor() as i64);
            let cars: HashSet<i32> = group(minute - 1).map(|&(vehicle, _)| vehicle).collect();
            let excess = (cars.len() as i64 - 50).max(0);
            let due = if lav < 40 && !alerted { 2 * excess * excess } else { 0 };
            assert_eq!(toll, due);
            compared += 1;
        }
        alerted = matches!(answer, Answer::Accident { .. });
    }
    assert!(compared > 10_000, "{compared}");
}
