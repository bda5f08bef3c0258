//! Aggregates over the rows of one window and key, all at once.

use std::collections::BTreeSet;

use super::Value;

/// What an aggregate computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceFunction {
    /// Rows, or values that are not NULL.
    Count,
    /// Integers wrap at the width of their type, in bits; doubles add up by arrival.
    Sum {
        /// Width of an integer: 8, 16, 32 or 64.
        bits: u32,
    },
    /// Integers are cut towards zero.
    Avg,
    /// The mean of DECIMALs, rounded half away from zero.
    AvgOfDecimal {
        /// How many digits behind the point the result has more than the values.
        finer: u32,
    },
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The value that arrived first.
    First,
    /// The value that arrived last.
    Last,
    /// The texts by arrival, with a comma between them.
    ListAgg,
    /// The values by arrival, NULLs among them, as text.
    ArrayAgg,
    /// The value below which half of the values lie; of an even number the mean of two.
    Median,
    /// Variance of the population, of doubles.
    VarPop,
    /// Variance of a sample, of doubles.
    VarSamp,
    /// Standard deviation of the population, of doubles.
    StddevPop,
    /// Standard deviation of a sample, of doubles.
    StddevSamp,
}

/// One aggregate of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceAggregate {
    /// What is computed.
    pub function: ReferenceFunction,
    /// Position of the argument; `None` for `COUNT(*)`.
    pub argument: Option<usize>,
    /// True if equal values count once.
    pub distinct: bool,
    /// Position of a BOOLEAN that must be TRUE for a row to count.
    pub filter: Option<usize>,
}

impl ReferenceAggregate {
    /// Without DISTINCT and FILTER.
    pub fn new(function: ReferenceFunction, argument: Option<usize>) -> Self {
        ReferenceAggregate { function, argument, distinct: false, filter: None }
    }

    /// True if NULL is a value to the function.
    pub fn takes_nulls(&self) -> bool {
        self.function == ReferenceFunction::ArrayAgg
    }

    /// The result over these rows, which stand in order of arrival.
    pub fn of(&self, rows: &[Vec<Value>]) -> Value {
        let counted =
            rows.iter().filter(|row| self.filter.is_none_or(|at| row[at] == Value::Boolean(true)));
        let Some(argument) = self.argument else {
            return Value::Integer(counted.count() as i64);
        };
        let mut values: Vec<&Value> = counted
            .map(|row| &row[argument])
            .filter(|v| self.takes_nulls() || !v.is_null())
            .collect();
        if self.distinct {
            let mut seen = BTreeSet::new();
            values.retain(|value| seen.insert(*value));
        }
        if self.function == ReferenceFunction::Count {
            return Value::Integer(values.len() as i64);
        }
        if values.is_empty() {
            return Value::Null;
        }
        self.of_values(&values)
    }

    /// The result over these values, none of them NULL, in order of arrival.
    pub(super) fn of_values(&self, values: &[&Value]) -> Value {
        let spread = |sample: bool| variance(values, sample);
        match self.function {
            ReferenceFunction::Count => unreachable!("counted before"),
            ReferenceFunction::Sum { bits } => sum(values, bits),
            ReferenceFunction::Avg => average(values),
            ReferenceFunction::AvgOfDecimal { finer } => decimal_average(values, finer),
            ReferenceFunction::Min => (*values.iter().min().expect("not empty")).clone(),
            ReferenceFunction::Max => (*values.iter().max().expect("not empty")).clone(),
            ReferenceFunction::First => values[0].clone(),
            ReferenceFunction::Last => values[values.len() - 1].clone(),
            ReferenceFunction::ListAgg => Value::String(joined(values, ",")),
            ReferenceFunction::ArrayAgg => list(values),
            ReferenceFunction::Median => median(values),
            ReferenceFunction::VarPop => double(spread(false)),
            ReferenceFunction::VarSamp => double(spread(true)),
            ReferenceFunction::StddevPop => double(spread(false).map(f64::sqrt)),
            ReferenceFunction::StddevSamp => double(spread(true).map(f64::sqrt)),
        }
    }
}

fn joined(values: &[&Value], separator: &str) -> String {
    values.iter().map(|value| shown(value)).collect::<Vec<_>>().join(separator)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Double(value) => format!("{value:?}"),
        Value::String(text) => text.clone(),
        Value::Decimal(_) => panic!("a DECIMAL in an array is not part of the reference"),
    }
}

/// An array, as values of types that the reference does not know are shown.
pub(crate) fn list(values: &[&Value]) -> Value {
    Value::String(format!("[{}]", joined(values, ", ")))
}

/// The median of numbers.
pub(crate) fn median(values: &[&Value]) -> Value {
    let mut numbers: Vec<f64> = values.iter().filter_map(|value| value.number()).collect();
    numbers.sort_by(f64::total_cmp);
    let (low, high) = (numbers[(numbers.len() - 1) / 2], numbers[numbers.len() / 2]);
    Value::Double(if low == high { low } else { 0.5 * low + 0.5 * high })
}

fn double(value: Option<f64>) -> Value {
    value.map_or(Value::Null, Value::Double)
}

fn exact_sum(values: &[&Value]) -> i128 {
    values
        .iter()
        .map(|value| match value {
            Value::Integer(value) => i128::from(*value),
            Value::Decimal(value) => *value,
            other => panic!("{other:?} in an exact sum"),
        })
        .sum()
}

fn sum(values: &[&Value], bits: u32) -> Value {
    match values[0] {
        Value::Integer(_) => {
            let unused = 64 - bits;
            // Moving the unused bits out and back keeps the sign of the narrow type.
            Value::Integer(((exact_sum(values) as i64) << unused) >> unused)
        }
        Value::Decimal(_) => Value::Decimal(exact_sum(values)),
        _ => Value::Double(values.iter().filter_map(|value| value.number()).sum()),
    }
}

fn average(values: &[&Value]) -> Value {
    let count = values.len();
    match values[0] {
        Value::Integer(_) => Value::Integer((exact_sum(values) / count as i128) as i64),
        Value::Double(_) => {
            let sum: f64 = values.iter().filter_map(|value| value.number()).sum();
            Value::Double(sum / count as f64)
        }
        other => panic!("the average of {other:?} is not part of the reference"),
    }
}

fn decimal_average(values: &[&Value], finer: u32) -> Value {
    let (sum, count) = (exact_sum(values) * 10i128.pow(finer), values.len() as i128);
    let (quotient, rest) = (sum / count, sum % count);
    let away = if 2 * rest.abs() >= count { sum.signum() } else { 0 };
    Value::Decimal(quotient + away)
}

/// In two passes: the mean first. `None` for a sample of one.
fn variance(values: &[&Value], sample: bool) -> Option<f64> {
    let numbers: Vec<f64> = values.iter().filter_map(|value| value.number()).collect();
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    let degrees = if sample { count - 1.0 } else { count };
    (degrees > 0.0).then(|| squares / degrees)
}
