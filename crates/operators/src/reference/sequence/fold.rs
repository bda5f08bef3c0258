//! What an aggregate has seen, row by row.
//!
//! Most aggregates give the same for any order of rows; for them the values are kept and looked at
//! together. Sums, means and deviations of doubles do not, so what is kept for them is what a state
//! is: the sum and, for deviations, the mean so far and the sum of squared distances from it, as
//! Welford updates them and as Chan, Golub and LeVeque put two of them together.

use super::steps::Values;
use crate::reference::{ReferenceAggregate, ReferenceFunction as Function, Value};

/// The state of one aggregate.
#[derive(Clone, Debug, Default)]
pub(super) struct Fold {
    /// What counted, with its place in arrival order.
    seen: Vec<(u64, Value)>,
    sum: f64,
    mean: f64,
    squares: f64,
}

impl Fold {
    /// Adds a row.
    pub(super) fn add(&mut self, aggregate: &ReferenceAggregate, arrival: u64, row: &Values) {
        if aggregate.filter.is_some_and(|filter| row[filter] != Value::Boolean(true)) {
            return;
        }
        let value = match aggregate.argument {
            None => Value::Boolean(true),
            Some(argument) => row[argument].clone(),
        };
        if aggregate.takes_nulls() || !value.is_null() {
            self.add_value(aggregate, arrival, value);
        }
    }

    fn add_value(&mut self, aggregate: &ReferenceAggregate, arrival: u64, value: Value) {
        if is_distinct(aggregate) && self.seen.iter().any(|(_, seen)| *seen == value) {
            return;
        }
        if let Value::Double(number) = value {
            let count = (self.seen.len() + 1) as f64;
            self.sum += number;
            let before = number - self.mean;
            self.mean += before / count;
            self.squares += before * (number - self.mean);
        }
        self.seen.push((arrival, value));
    }

    /// Adds the state of a younger slice or session. DISTINCT values enter one by one, since only
    /// those that are new here count.
    pub(super) fn merge(&mut self, aggregate: &ReferenceAggregate, younger: Fold) {
        if is_distinct(aggregate) {
            for (arrival, value) in younger.seen {
                self.add_value(aggregate, arrival, value);
            }
            return;
        }
        if younger.seen.is_empty() {
            return;
        }
        if self.seen.is_empty() {
            *self = younger;
            return;
        }
        let (count, more) = (self.seen.len() as f64, younger.seen.len() as f64);
        let apart = younger.mean - self.mean;
        let share = more / (count + more);
        self.sum += younger.sum;
        self.mean += apart * share;
        self.squares += younger.squares + apart * apart * count * share;
        self.seen.extend(younger.seen);
    }

    /// The result.
    pub(super) fn result(mut self, aggregate: &ReferenceAggregate) -> Value {
        let count = self.seen.len();
        // Lists are put together as slices are: oldest slices first.
        if !matches!(aggregate.function, Function::ListAgg | Function::ArrayAgg) {
            self.seen.sort_by_key(|(arrival, _)| *arrival);
        }
        let values: Vec<&Value> = self.seen.iter().map(|(_, value)| value).collect();
        match (aggregate.function, values.first()) {
            (Function::Count, _) => Value::Integer(count as i64),
            (_, None) => Value::Null,
            (Function::Sum { .. }, Some(Value::Double(_))) => Value::Double(self.sum),
            (Function::Avg, Some(Value::Double(_))) => Value::Double(self.sum / count as f64),
            (function, Some(Value::Double(_))) if spread(function).is_some() => {
                deviation(function, self.squares, count).map_or(Value::Null, Value::Double)
            }
            (function, Some(Value::Integer(_))) if spread(function).is_some() => {
                let squares = squared_distance(&values);
                let result = deviation(function, squares, count);
                result.map_or(Value::Null, |result| Value::Integer(result.trunc() as i64))
            }
            _ => aggregate.of_values(&values),
        }
    }
}

/// DISTINCT changes nothing for the smallest, largest, first and last value.
fn is_distinct(aggregate: &ReferenceAggregate) -> bool {
    use Function::{First, Last, Max, Min};
    aggregate.distinct && !matches!(aggregate.function, Min | Max | First | Last)
}

/// For deviations and variances: whether of a sample, and whether the root is taken.
fn spread(function: Function) -> Option<(bool, bool)> {
    match function {
        Function::VarPop => Some((false, false)),
        Function::VarSamp => Some((true, false)),
        Function::StddevPop => Some((false, true)),
        Function::StddevSamp => Some((true, true)),
        _ => None,
    }
}

fn deviation(function: Function, squares: f64, count: usize) -> Option<f64> {
    let (sample, root) = spread(function)?;
    let degrees = if sample { count - 1 } else { count };
    if degrees == 0 || squares.is_nan() {
        return (degrees > 0).then_some(f64::NAN);
    }
    let variance = (squares / degrees as f64).max(0.0);
    Some(if root { variance.sqrt() } else { variance })
}

/// Of integers: exact up to the division by their number.
fn squared_distance(values: &[&Value]) -> f64 {
    let (mut sum, mut squares) = (0i128, 0i128);
    for value in values {
        if let Value::Integer(value) = value {
            sum += i128::from(*value);
            squares += i128::from(*value) * i128::from(*value);
        }
    }
    let count = values.len() as i128;
    (squares * count - sum * sum) as f64 / count as f64
}
