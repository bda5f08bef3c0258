//! The reference: for each row the values of its group are listed, and all results recomputed.

use std::collections::BTreeMap;

use thalweg_core::RowKind;

use super::GroupSpec;
use crate::aggregate::AggregateCall;
use crate::reference::{Value, doubles, list, median};

/// The values that one call has taken, in order of arrival.
#[derive(Clone, Default)]
struct Taken {
    all: Vec<Value>,
    /// Each value once, by when it came while it was not there.
    distinct: Vec<Value>,
}

impl Taken {
    fn take(&mut self, value: Value, retracts: bool) {
        let at = self.all.iter().position(|other| *other == value);
        if retracts {
            let Some(at) = at else { return };
            self.all.remove(at);
            if !self.all.contains(&value) {
                self.distinct.retain(|other| *other != value);
            }
            return;
        }
        if at.is_none() {
            self.distinct.push(value.clone());
        }
        self.all.push(value);
    }
}

#[derive(Clone)]
struct Group {
    rows: usize,
    taken: Vec<Taken>,
}

/// The changes of a changelog, one row after another.
pub(super) fn changes(spec: &GroupSpec, rows: &[Vec<Value>], kinds: &[RowKind]) -> Vec<Vec<Value>> {
    let mut groups: BTreeMap<Vec<Value>, Group> = BTreeMap::new();
    let mut changes = Vec::new();
    for (row, &kind) in rows.iter().zip(kinds) {
        let retracts = matches!(kind, RowKind::UpdateBefore | RowKind::Delete);
        let key: Vec<Value> = spec.keys.iter().map(|&at| row[at].clone()).collect();
        let old = groups.get(&key).cloned();
        if old.is_none() && retracts {
            continue;
        }
        let empty = || Group { rows: 0, taken: vec![Taken::default(); spec.calls.len()] };
        let mut new = old.clone().unwrap_or_else(empty);
        new.rows = if retracts { new.rows - 1 } else { new.rows + 1 };
        for (call, taken) in spec.calls.iter().zip(&mut new.taken) {
            let passes = call.filter.is_none_or(|at| row[at] == Value::Boolean(true));
            let value = call.argument.map_or(Value::Boolean(true), |at| row[at].clone());
            if passes && (call.function.takes_nulls() || !value.is_null()) {
                taken.take(value, retracts);
            }
        }
        let mut push = |kind: &str, group: &Group| {
            let results = spec.calls.iter().zip(&group.taken).map(|(call, t)| result(call, t));
            let mut change = vec![Value::text(kind)];
            change.extend(key.iter().cloned().chain(results));
            changes.push(change);
        };
        match old {
            None => push("+I", &new),
            Some(old) if new.rows == 0 => push("-D", &old),
            Some(old) => {
                let same = spec.calls.iter().zip(old.taken.iter().zip(&new.taken));
                let same = same.fold(true, |same, (call, (old, new))| {
                    same && result(call, old) == result(call, new)
                });
                if !same {
                    push("-U", &old);
                    push("+U", &new);
                }
            }
        }
        match new.rows {
            0 => groups.remove(&key),
            _ => groups.insert(key, new),
        };
    }
    changes
}

fn result(call: &AggregateCall, taken: &Taken) -> Value {
    let values = if call.distinct { &taken.distinct } else { &taken.all };
    let chosen = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
    match call.function.name() {
        "COUNT" => Value::Integer(values.len() as i64),
        "APPROX_COUNT_DISTINCT" => Value::Integer(taken.distinct.len() as i64),
        "MIN" => chosen(values.iter().min()),
        "MAX" => chosen(values.iter().max()),
        "FIRST_VALUE" => chosen(values.first()),
        "LAST_VALUE" => chosen(values.last()),
        _ if values.is_empty() => Value::Null,
        "LISTAGG" => {
            let texts = values.iter().map(|value| match value {
                Value::String(text) => text.clone(),
                other => panic!("{other:?} is no text"),
            });
            Value::String(texts.collect::<Vec<_>>().join(","))
        }
        "ARRAY_AGG" => list(&values.iter().collect::<Vec<_>>()),
        "PERCENTILE" => median(&values.iter().collect::<Vec<_>>()),
        name @ ("SUM" | "AVG") => total(values, name == "AVG"),
        "VAR_POP" => variance(values, 0),
        "VAR_SAMP" => variance(values, 1),
        _ => panic!("{:?} is not in the reference", call.function),
    }
}

/// Sums of integers are small here. Those of doubles are rounded once, which makes no difference
/// for multiples of a quarter.
fn total(values: &[Value], mean: bool) -> Value {
    let count = values.len() as i64;
    match &values[0] {
        Value::Integer(_) => {
            let sum: i64 = values.iter().map(integer).sum();
            Value::Integer(if mean { sum / count } else { sum })
        }
        Value::Decimal(_) => {
            let sum: i128 = values.iter().map(decimal).sum();
            if !mean {
                return Value::Decimal(sum);
            }
            let (fine, count) = (sum * 10_000, i128::from(count));
            let away = if fine < 0 { -count } else { count };
            Value::Decimal((2 * fine + away) / (2 * count))
        }
        _ => {
            let numbers: Vec<f64> = values.iter().map(double).collect();
            let is_simple = |number: &f64| number.abs() < 1e6 && (number * 4.0).fract() == 0.0;
            let sum = match numbers.iter().all(is_simple) {
                true => numbers.iter().fold(0.0, |sum, number| sum + number),
                false => doubles::sum(&numbers),
            };
            Value::Double(if mean { sum / count as f64 } else { sum })
        }
    }
}

/// Of integers, truncated as Flink's is, without a fraction on the way.
fn variance(values: &[Value], less: i64) -> Value {
    let count = values.len() as i64;
    if let (Value::Double(_), 1..) = (&values[0], count - less) {
        let distance = doubles::squared_distance(&values.iter().map(double).collect::<Vec<_>>());
        return Value::Double(distance / (count - less) as f64);
    }
    if count == less {
        return Value::Null;
    }
    let sum: i64 = values.iter().map(integer).sum();
    let squares: i64 = values.iter().map(|value| integer(value).pow(2)).sum();
    Value::Integer((count * squares - sum * sum) / (count * (count - less)))
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Integer(value) => *value,
        other => panic!("{other:?} is no integer"),
    }
}

fn decimal(value: &Value) -> i128 {
    match value {
        Value::Decimal(value) => *value,
        other => panic!("{other:?} is no DECIMAL"),
    }
}

fn double(value: &Value) -> f64 {
    match value {
        Value::Double(value) => *value,
        other => panic!("{other:?} is no double"),
    }
}
