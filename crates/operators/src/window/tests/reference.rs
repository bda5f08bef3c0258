//! Windows by keeping every row and folding it at the end.

use std::collections::{BTreeMap, HashSet};

use super::driver::{Outcome, Row, running_watermarks};
use crate::window::WindowSpec;

/// A window of one key with its rows in arrival order.
struct Filled {
    start: i64,
    end: i64,
    key: String,
    rows: Vec<Row>,
}

/// Which columns the key consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KeyOf {
    Nothing,
    Key,
    Word,
    Both,
}

impl KeyOf {
    pub(super) fn columns(self) -> Vec<usize> {
        use super::driver::{KEY, WORD};
        match self {
            KeyOf::Nothing => vec![],
            KeyOf::Key => vec![KEY],
            KeyOf::Word => vec![WORD],
            KeyOf::Both => vec![WORD, KEY],
        }
    }
    fn print(self, row: &Row) -> String {
        let key = show(row.key);
        let word = show(row.word.clone());
        match self {
            KeyOf::Nothing => String::new(),
            KeyOf::Key => format!("{key}|"),
            KeyOf::Word => format!("{word}|"),
            KeyOf::Both => format!("{word}|{key}|"),
        }
    }
}

fn show<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_string(), |value| value.to_string())
}

type Fold<'a> = &'a dyn Fn(&[Row]) -> String;

/// Tumbling, hopping and cumulating windows.
pub(super) fn aligned(
    spec: WindowSpec,
    key: KeyOf,
    rows: &[Row],
    delay_ms: i64,
    fold: Fold<'_>,
) -> Outcome {
    let watermarks = running_watermarks(rows, delay_ms);
    let mut windows: BTreeMap<(i64, i64, String), Vec<Row>> = BTreeMap::new();
    let mut outcome = Outcome::default();
    for (row, before) in rows.iter().zip(watermarks) {
        let all = spec.assign(row.time);
        let open: Vec<_> = all.iter().filter(|(_, end)| end - 1 > before).collect();
        if open.is_empty() && !all.is_empty() {
            outcome.late += 1;
            outcome.late_times.push(row.time);
            continue;
        }
        outcome.accepted += 1;
        outcome.partly_late += u64::from(open.len() < all.len());
        for &&(start, end) in &open {
            windows.entry((start, end, key.print(row))).or_default().push(row.clone());
        }
    }
    let filled =
        windows.into_iter().map(|((start, end, key), rows)| Filled { start, end, key, rows });
    finish(outcome, filled.collect(), fold)
}

/// Session windows.
pub(super) fn sessions(
    gap_ms: i64,
    key: KeyOf,
    rows: &[Row],
    delay_ms: i64,
    fold: Fold<'_>,
) -> Outcome {
    let watermarks = running_watermarks(rows, delay_ms);
    let mut done = Vec::new();
    let mut open: Vec<Filled> = Vec::new();
    let mut outcome = Outcome::default();
    for (serial, (row, before)) in rows.iter().zip(watermarks).enumerate() {
        let (closed, still): (Vec<_>, Vec<_>) = open.into_iter().partition(|w| w.end - 1 <= before);
        done.extend(closed);
        let own = Filled {
            start: row.time,
            end: row.time + gap_ms,
            key: key.print(row),
            rows: vec![Row { serial, ..row.clone() }],
        };
        let (mut met, rest): (Vec<_>, Vec<_>) = still
            .into_iter()
            .partition(|w| w.key == own.key && w.start <= own.end && own.start <= w.end);
        open = rest;
        met.push(own);
        let start = met.iter().map(|w| w.start).min().expect("not empty");
        let end = met.iter().map(|w| w.end).max().expect("not empty");
        if end - 1 <= before {
            met.pop();
            open.extend(met);
            outcome.late += 1;
            outcome.late_times.push(row.time);
            continue;
        }
        outcome.accepted += 1;
        let key = key.print(row);
        let mut rows: Vec<Row> = met.into_iter().flat_map(|w| w.rows).collect();
        rows.sort_by_key(|row| row.serial);
        open.push(Filled { start, end, key, rows });
    }
    done.extend(open);
    finish(outcome, done, fold)
}

fn finish(mut outcome: Outcome, windows: Vec<Filled>, fold: Fold<'_>) -> Outcome {
    outcome.rows = windows
        .into_iter()
        .map(|w| format!("{}{}|{}|{}|{}", w.key, fold(&w.rows), w.start, w.end, w.end - 1))
        .collect();
    outcome.rows.sort_unstable();
    outcome.late_times.sort_unstable();
    outcome
}

/// COUNT(*), COUNT(number), SUM(number), AVG(number), COUNT(DISTINCT number), SUM(DISTINCT number),
/// COUNT(*) FILTER (flag), SUM(price), AVG(price), VAR_POP(number), SUM(number) FILTER (flag).
pub(super) fn invertible(rows: &[Row]) -> String {
    let numbers: Vec<i64> = rows.iter().filter_map(|row| row.number.map(i64::from)).collect();
    let count = numbers.len() as i64;
    let sum = |values: &[i64]| -> Option<i32> {
        (!values.is_empty()).then(|| values.iter().sum::<i64>() as i32)
    };
    let distinct: Vec<i64> = numbers.iter().copied().collect::<HashSet<_>>().into_iter().collect();
    let mean = (count > 0).then(|| numbers.iter().sum::<i64>() / count);
    let flagged: Vec<&Row> = rows.iter().filter(|row| row.flag == Some(true)).collect();
    let prices: Vec<i128> = rows.iter().filter_map(|row| row.price).collect();
    let total: i128 = prices.iter().sum();
    let price = (!prices.is_empty()).then(|| decimal(total, 2));
    let price_mean = (!prices.is_empty()).then(|| {
        // Half away from zero, at six digits.
        let (scaled, divisor) = (total * 10_000, prices.len() as i128);
        let half = if scaled < 0 { -divisor } else { divisor };
        decimal((2 * scaled + half) / (2 * divisor), 6)
    });
    let variance = (count > 0).then(|| {
        let squares: i64 = numbers.iter().map(|n| n * n).sum();
        let all: i64 = numbers.iter().sum();
        (count * squares - all * all) / (count * count)
    });
    let flagged_numbers: Vec<i64> =
        flagged.iter().filter_map(|row| row.number.map(i64::from)).collect();
    [
        rows.len().to_string(),
        count.to_string(),
        show(sum(&numbers)),
        show(mean),
        distinct.len().to_string(),
        show(sum(&distinct)),
        flagged.len().to_string(),
        show(price),
        show(price_mean),
        show(variance),
        show(sum(&flagged_numbers)),
    ]
    .join("|")
}

/// MIN(number), MAX(number), MIN(word), MAX(word), MAX(price), MIN(flag), COUNT(DISTINCT word),
/// COUNT(*).
pub(super) fn extremes(rows: &[Row]) -> String {
    let numbers = || rows.iter().filter_map(|row| row.number);
    let words = || rows.iter().filter_map(|row| row.word.clone());
    [
        show(numbers().min()),
        show(numbers().max()),
        show(words().min()),
        show(words().max()),
        show(rows.iter().filter_map(|row| row.price).max().map(|price| decimal(price, 2))),
        show(rows.iter().filter_map(|row| row.flag).min()),
        words().collect::<HashSet<_>>().len().to_string(),
        rows.len().to_string(),
    ]
    .join("|")
}

/// FIRST_VALUE(number), LAST_VALUE(word), FIRST_VALUE(word), LAST_VALUE(price).
pub(super) fn by_arrival(rows: &[Row]) -> String {
    let words = || rows.iter().filter_map(|row| row.word.clone());
    [
        show(rows.iter().find_map(|row| row.number)),
        show(words().next_back()),
        show(words().next()),
        show(rows.iter().filter_map(|row| row.price).next_back().map(|price| decimal(price, 2))),
    ]
    .join("|")
}

/// SUM(weight), AVG(weight), STDDEV_POP(weight), VAR_SAMP(weight), MIN(weight), MAX(weight),
/// COUNT(weight).
pub(super) fn floats(rows: &[Row]) -> String {
    let weights: Vec<f64> = rows.iter().filter_map(|row| row.weight).collect();
    let count = weights.len() as f64;
    let some = |value: f64| (count > 0.0).then_some(value);
    let sum: f64 = weights.iter().sum();
    let distances: f64 = weights.iter().map(|w| (w - sum / count).powi(2)).sum();
    let print = |value: Option<f64>| show(value.map(|value| format!("{value:.9}")));
    // NaN is one value, above all others.
    let order = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(b),
        (a, b) => a.cmp(&b),
    };
    [
        print(some(sum)),
        print(some(sum / count)),
        print(some((distances / count).sqrt())),
        print((count > 1.0).then(|| distances / (count - 1.0))),
        print(weights.iter().copied().min_by(order)),
        print(weights.iter().copied().max_by(order)),
        weights.len().to_string(),
    ]
    .join("|")
}

pub(super) fn decimal(unscaled: i128, scale: u32) -> String {
    let unit = 10i128.pow(scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    let (whole, rest) = (unscaled.abs() / unit, unscaled.abs() % unit);
    format!("{sign}{whole}.{rest:0width$}", width = scale as usize)
}
