//! Patterns against plain search, over random rows, and by hand.

mod captures;
mod fixture;
mod search;

use std::collections::BTreeMap;

use thalweg_core::shim::SplitMix64;

use super::{MatchRecognize, Skip};
use crate::reference::Value;
use crate::test_kit::{DriveOptions, Driven, check_operator, drive, rows_of};
use fixture::{Case, Fits, Part, Row, script};
use search::search;

const DELAY_MS: i64 = 6;

fn random_rows(random: &mut SplitMix64, count: usize, keys: u64) -> Vec<Row> {
    let mut now = 0;
    let mut row = || {
        now += random.below(4) as i64;
        let time = now - random.below(10) as i64;
        let key = random.below(keys);
        let key = (key > 0).then(|| format!("a key that is not inlined, {key}"));
        let n = (random.below(6) > 0).then(|| random.below(4) as i64);
        Row { time, key, n, rank: random.below(3) as i64 }
    };
    (0..count).map(|_| row()).collect()
}

/// The rows that are not late, by key and in their order; how many are late; the last watermark.
fn in_order(case: &Case, rows: &[Row]) -> (BTreeMap<Option<String>, Vec<Row>>, u64) {
    let (mut watermark, mut late) = (i64::MIN, 0);
    let mut keys: BTreeMap<Option<String>, Vec<Row>> = BTreeMap::new();
    for row in rows {
        match row.time <= watermark {
            true => late += 1,
            false => {
                let key = row.key.clone().filter(|_| case.by_key);
                keys.entry(key).or_default().push(row.clone());
            }
        }
        watermark = watermark.max(row.time - DELAY_MS);
    }
    for rows in keys.values_mut() {
        rows.sort_by_key(|row| (row.time, if case.by_rank { -row.rank } else { 0 }));
    }
    (keys, late)
}

fn expected(case: &Case, rows: &[Row]) -> Vec<String> {
    let text = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    let lines = search(case, rows, i64::MAX).into_iter().map(|found| {
        let of = |variable: usize| -> Vec<Option<i64>> {
            let labels = found.variables.iter().zip(&found.rows);
            labels.filter(|&(&label, _)| label == variable).map(|(_, row)| row.n).collect()
        };
        let (first, last) = (&found.rows[0], &found.rows[found.rows.len() - 1]);
        let mut values = vec![Some(first.time), Some(last.time)];
        values.extend((0..case.parts.len()).map(|variable| Some(of(variable).len() as i64)));
        let sum: Vec<i64> = of(case.parts.len() - 1).into_iter().flatten().collect();
        values.push((!sum.is_empty()).then(|| sum.iter().sum()));
        let of_first = of(0);
        values.push(of_first.len().checked_sub(2).and_then(|place| of_first[place]));
        values.push(Some(found.time));
        values.into_iter().map(text).collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

/// What left, by key.
fn left(case: &Case, driven: &Driven) -> BTreeMap<Option<String>, Vec<String>> {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let mut keys: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for row in rows_of(&driven.emitted) {
        let (key, values) = match (case.by_key, &row[0]) {
            (false, _) => (None, &row[..]),
            (true, Value::String(key)) => (Some(key.to_string()), &row[1..]),
            (true, _) => (None, &row[1..]),
        };
        let line = values.iter().map(text).collect::<Vec<_>>().join(" ");
        keys.entry(key).or_default().push(line);
    }
    keys
}

fn check(case: &Case, rows: &[Row], what: &str) -> usize {
    let (keys, late) = in_order(case, rows);
    let expected = keys.iter().map(|(key, rows)| (key.clone(), expected(case, rows)));
    let expected: BTreeMap<_, _> = expected.filter(|(_, lines)| !lines.is_empty()).collect();
    let operator = MatchRecognize::new(case.spec()).unwrap();
    for epoch_rows in [1, 13] {
        let what = format!("{what}, a watermark every {epoch_rows} rows, {case:?}");
        let driven = check_operator(&operator, &script(rows, DELAY_MS, epoch_rows));
        assert_eq!(driven.late, late, "{what}");
        assert_eq!(left(case, &driven), expected, "{what}");
        let times = rows_of(&driven.emitted).into_iter().map(|row| row[row.len() - 1].clone());
        let times: Vec<Value> = times.collect();
        assert!(case.by_key || times.is_sorted(), "{what}: they leave in the order of time");
    }
    expected.values().map(Vec::len).sum()
}

#[test]
fn random_patterns_find_what_trying_every_way_finds() {
    let mut found = 0;
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let case = Case::random(&mut random);
        let rows = random_rows(&mut random, 40, 4);
        found += check(&case, &rows, &format!("seed {seed}"));
    }
    assert!(found > 300, "only {found} matches");
}

fn one(fits: Fits) -> Part {
    Part { min: 1, max: Some(1), is_greedy: false, fits }
}

fn rows(numbers: &[i64]) -> Vec<Row> {
    let row = |(place, &n): (usize, &i64)| Row {
        time: 10 * place as i64,
        key: None,
        n: Some(n),
        rank: 0,
    };
    numbers.iter().enumerate().map(row).collect()
}

fn case(parts: Vec<Part>, skip: Skip) -> Case {
    Case { parts, skip, within_ms: None, by_key: false, by_rank: false }
}

fn lines(case: &Case, rows: &[Row]) -> Vec<String> {
    let operator = MatchRecognize::new(case.spec()).unwrap();
    let driven = drive(&operator, &script(rows, 0, 1), &DriveOptions::default()).unwrap();
    left(case, &driven).into_values().flatten().collect()
}

/// Flink's documentation, "After Match Strategy": A+ C with SUM(A.price) < 30 over 7 9 10 5 10 7
/// 14.
#[test]
fn the_strategies_of_flinks_documentation() {
    let a = Part { max: None, is_greedy: true, ..one(Fits::SumBelow(Some(0), 30)) };
    let rows = rows(&[7, 9, 10, 5, 10, 7, 14]);
    let starts = |skip: Skip| -> Vec<String> {
        let case = case(vec![a, one(Fits::All)], skip);
        let first = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        lines(&case, &rows).into_iter().map(first).collect()
    };
    assert_eq!(starts(Skip::PastLastRow), ["0 30", "40 60"]);
    assert_eq!(starts(Skip::ToNextRow), ["0 30", "10 40", "20 50", "30 60", "40 60"]);
    assert_eq!(starts(Skip::ToLast(0)), ["0 30", "20 50", "40 60"]);
}

/// Flink's documentation, "Greedy & Reluctant Quantifiers".
#[test]
fn a_reluctant_variable_takes_as_few_rows_as_it_can() {
    let b = Part { min: 0, max: None, is_greedy: true, fits: Fits::All };
    let greedy = vec![one(Fits::Is(1)), Part { fits: Fits::AtLeast(2), ..b }, one(Fits::Is(0))];
    let numbers = [1, 2, 3, 2, 0, 1, 0];
    let found = lines(&case(greedy, Skip::PastLastRow), &rows(&numbers));
    assert_eq!(found, ["0 40 1 3 1 0 - 40", "50 60 1 0 1 0 - 60"]);
    let reluctant = vec![one(Fits::Is(1)), Part { is_greedy: false, ..b }, one(Fits::AtLeast(2))];
    let found = lines(&case(reluctant, Skip::PastLastRow), &rows(&numbers));
    assert_eq!(found, ["0 10 1 0 1 2 - 10"]);
}

#[test]
fn a_skip_that_leads_nowhere_is_an_error_of_the_data() {
    let optional = Part { min: 0, max: Some(1), is_greedy: false, fits: Fits::Is(9) };
    let parts = vec![one(Fits::Is(1)), optional, one(Fits::Is(2))];
    for (skip, words) in [(Skip::ToLast(1), "no row of V1"), (Skip::ToLast(0), "found again")] {
        let operator = MatchRecognize::new(case(parts.clone(), skip).spec()).unwrap();
        let script = script(&rows(&[1, 2]), 0, 1);
        let error = drive(&operator, &script, &DriveOptions::default()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// WITHIN frees what is kept by time alone: keys that get no further row do not stay.
#[test]
fn keys_without_further_rows_are_forgotten() {
    let parts = vec![one(Fits::Is(1)), Part { max: None, ..one(Fits::Is(2)) }, one(Fits::Is(3))];
    let mut case = case(parts, Skip::PastLastRow);
    (case.by_key, case.within_ms) = (true, Some(50));
    let mut rows = rows(&[1; 3000]);
    for (place, row) in rows.iter_mut().enumerate() {
        row.key = Some(format!("a key of its own, {place}"));
    }
    let operator = MatchRecognize::new(case.spec()).unwrap();
    let driven = drive(&operator, &script(&rows, 0, 10), &DriveOptions::default()).unwrap();
    assert!(driven.peak_state_bytes < 60_000, "{}", driven.peak_state_bytes);
}
