//! Sums that values enter and leave in any order, against sums bit by bit of the values that are in
//! them.

use thalweg_core::shim::SplitMix64;

use super::super::arithmetic::NumberState;
use super::{ExactPowers, ExactSum, Fixed, LIMBS_MAX, NotFinite, SQUARE_UNIT};
use crate::reference::doubles::{self, wild_double};

fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

fn check(powers: &ExactPowers, values: &[f64], what: &str) {
    let (sum, expected) = (powers.sum.value(), doubles::sum(values));
    assert_eq!(bits(sum), bits(expected), "{what}: the sum is {sum:?} and not {expected:?}");
    if (1..12).contains(&values.len()) {
        let (distance, expected) = (powers.squared_distance(), doubles::squared_distance(values));
        assert_eq!(bits(distance), bits(expected), "{what}: {distance:?} and not {expected:?}");
    }
}

/// What a snapshot has of it.
fn restored(powers: &ExactPowers) -> ExactPowers {
    let (mut numbers, mut of_squares) = (Vec::new(), Vec::new());
    let (sum, others) = powers.sum.encode(&mut numbers);
    let squares = powers.encode_squares(&mut of_squares);
    let sum = ExactSum::decode(powers.sum.count(), sum, &numbers, others).expect("a sum");
    ExactPowers::decode(sum, squares, &of_squares).expect("a sum of squares")
}

#[test]
fn values_that_leave_leave_no_trace() {
    for seed in 0..30 {
        let random = &mut SplitMix64::new(seed);
        let (mut powers, mut values) = (ExactPowers::default(), Vec::new());
        for step in 0..50 {
            if !values.is_empty() && random.below(5) < 2 {
                let at = random.below(values.len() as u64) as usize;
                powers.remove(values.swap_remove(at));
            } else {
                let value = wild_double(random);
                values.push(value);
                powers.add(value);
            }
            if random.below(4) == 0 {
                powers = restored(&powers);
            }
            check(&powers, &values, &format!("seed {seed}, step {step}, {values:?}"));
        }
        values.drain(..).for_each(|value| powers.remove(value));
        assert_eq!(powers.heap_bytes(), 0, "seed {seed}: nothing is left");
        check(&powers, &[], &format!("seed {seed}, empty"));
    }
}

#[test]
fn sums_beyond_the_largest_double_come_back() {
    let mut powers = ExactPowers::default();
    let values = [f64::MAX, f64::MAX, 5e-324, -f64::MAX];
    values.iter().for_each(|&value| powers.add(value));
    assert_eq!(restored(&powers).sum.value(), f64::MAX);
    powers.remove(-f64::MAX);
    assert_eq!(restored(&powers).sum.value(), f64::INFINITY);
    powers.remove(f64::MAX);
    powers.remove(f64::MAX);
    assert_eq!(restored(&powers).sum.value(), 5e-324);
}

#[test]
fn numbers_that_no_sum_has_made_are_refused() {
    let refused = [vec![0, 1], vec![i64::MIN, 1], vec![LIMBS_MAX as i64 + 1, 1, 1]];
    for numbers in refused {
        assert!(Fixed::decode(1.0, SQUARE_UNIT, &numbers).is_none(), "{numbers:?}");
    }
    assert!(Fixed::decode(f64::NAN, SQUARE_UNIT, &[]).is_none());
    let none = NotFinite::default();
    assert!(ExactSum::decode(1, f64::NAN, &[], none).is_none(), "NaN is counted apart");
}
