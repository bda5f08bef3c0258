//! The table of what each car spent on each of the last 69 days, computed instead of stored.
//!
//! A car has one row a day, with one expressway and a toll of 10 to 99. Vehicle numbers carry the
//! expressway the car drives on today ([`home_expressway`]); three rows in four name that one, the
//! others its neighbour. So the table depends on nothing but the question, and a quarter of the
//! questions find no row.

use crate::random::Random;

/// The days that the table has: 1 to this. Day 0 is today and has no row.
pub const DAYS: i32 = 69;

/// Cars an expressway can have in a run: the spacing of vehicle numbers.
pub const VEHICLES_PER_EXPRESSWAY: i32 = 1 << 21;

const HISTORY_SEED: u64 = 0x001D_A117;

/// The expressway that a vehicle drives on in generated traffic.
pub fn home_expressway(vehicle: i32) -> i32 {
    vehicle.div_euclid(VEHICLES_PER_EXPRESSWAY)
}

/// What the car spent on this expressway on this day, `None` where the table has no row.
pub fn expenditure(vehicle: i32, day: i32, expressway: i32) -> Option<i64> {
    if !(1..=DAYS).contains(&day) {
        return None;
    }
    let mut random = Random::new(HISTORY_SEED, vehicle as u64, day as u64);
    let home = home_expressway(vehicle);
    let driven = if random.chance(0.75) { home } else { home + 1 };
    let toll = random.between(10, 99);
    (driven == expressway).then_some(toll)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rows_in_four_are_of_the_home_expressway() {
        let vehicle = |index| 3 * VEHICLES_PER_EXPRESSWAY + index;
        let questions = || (0..1000).flat_map(|index| (1..=DAYS).map(move |day| (index, day)));
        let home: Vec<i64> =
            questions().filter_map(|(index, day)| expenditure(vehicle(index), day, 3)).collect();
        let share = home.len() as f64 / (1000 * DAYS) as f64;
        assert!((share - 0.75).abs() < 0.01, "{share}");
        assert!(home.iter().all(|toll| (10..=99).contains(toll)));
        for (index, day) in questions() {
            let rows = (0..10).filter(|&x| expenditure(vehicle(index), day, x).is_some()).count();
            assert_eq!(rows, 1);
        }
    }

    #[test]
    fn today_and_days_long_gone_have_no_row() {
        assert!((0..100).all(|vehicle| expenditure(vehicle, 0, 0).is_none()));
        assert!((0..100).all(|vehicle| expenditure(vehicle, DAYS + 1, 0).is_none()));
    }
}
