//! The ways in which rows get to partitions, and windows that share no slice: what memory follows.

use std::collections::BTreeMap;

use thalweg_core::shim::SplitMix64;
use thalweg_core::{Bundle, DataType, Operator, Result, Route, Stamps, Watermark, WatermarkBefore};

use super::driver::{Driver, KEY, NUMBER, Row, TIME, WORD, batch, call, input_schema};
use crate::aggregate::AggregateCall;
use crate::test_kit::{Event, check_damaged_state, check_operator, stamped};
use crate::window::{LatePolicy, WindowAggregate, WindowAggregateSpec, WindowSpec};

const SIZE_MS: i64 = 10;

fn tumbling(keys: &[usize], aggregates: Vec<AggregateCall>) -> Result<WindowAggregate> {
    windows(WindowSpec::Tumble { size_ms: SIZE_MS, offset_ms: 0 }, keys, aggregates)
}

fn windows(
    window: WindowSpec,
    keys: &[usize],
    aggregates: Vec<AggregateCall>,
) -> Result<WindowAggregate> {
    WindowAggregate::new(WindowAggregateSpec {
        window,
        rowtime: TIME,
        zone: None,
        keys: keys.to_vec(),
        aggregates,
        late: LatePolicy::Drop,
        input: input_schema(DataType::Timestamp(3)),
    })
}

fn bundle_of(rows: &[Row], ordinal: u64, watermark: i64) -> Bundle {
    let before = WatermarkBefore::All(Watermark(watermark));
    let stamps = Stamps { ordinal, watermark_before: before, ..Stamps::first() };
    Bundle::new(batch(rows, &input_schema(DataType::Timestamp(3))), stamps)
}

/// The rows of a window in bundles of 300: by turns each of its own key, of ten keys, and most
/// or some of one key with the others each of its own.
fn habits(window: i64, random: &mut SplitMix64) -> Vec<Vec<Row>> {
    let mut row = |place: u64| {
        let key = match window / 6 % 4 {
            1 => random.below(10) as i64,
            2 if !place.is_multiple_of(4) => 5,
            3 if place % 8 < 3 => 5,
            _ => window * 10_000 + place as i64,
        };
        let time = window * SIZE_MS + random.below(SIZE_MS as u64) as i64;
        let number = Some(random.below(20) as i32);
        Row { time, key: Some(key), number, ..Row::default() }
    };
    (0..10).map(|bundle| (0..300).map(|n| row(bundle * 300 + n)).collect()).collect()
}

/// What a loop gives: COUNT, SUM and COUNT(DISTINCT) of the numbers by window and key. Windows last
/// as long as this many of those of `habits`, and begin with each of them.
struct Expected {
    lasts: i64,
    numbers: BTreeMap<(i64, i64), Vec<i64>>,
}

impl Expected {
    fn add(&mut self, window: i64, row: &Row) {
        let (key, number) = (row.key.expect("a key"), row.number.expect("a number"));
        for first in window - self.lasts + 1..=window {
            self.numbers.entry((first, key)).or_default().push(number.into());
        }
    }

    fn lines(self) -> Vec<String> {
        let line = |((window, key), mut numbers): ((i64, i64), Vec<i64>)| {
            let (count, sum) = (numbers.len(), numbers.iter().sum::<i64>());
            numbers.sort_unstable();
            numbers.dedup();
            let (start, end) = (window * SIZE_MS, (window + self.lasts) * SIZE_MS);
            format!("{key}|{count}|{sum}|{}|{start}|{end}|{}", numbers.len(), end - 1)
        };
        let mut lines: Vec<String> = self.numbers.into_iter().map(line).collect();
        lines.sort_unstable();
        lines
    }
}

/// Which way rows take changes with the data, and results are those of a loop.
#[test]
fn rows_are_spread_as_their_keys_ask_for_and_results_stay() -> Result<()> {
    for (seed, hurried, lasts) in [(1, false, 1), (2, true, 1), (3, false, 3), (4, true, 3)] {
        println!("seed {seed}");
        let aggregates = vec![
            call("COUNT", false, None, None),
            call("SUM", false, Some(NUMBER), None),
            call("COUNT", true, Some(NUMBER), None),
        ];
        let operator = match lasts {
            1 => tumbling(&[KEY], aggregates)?,
            _ => {
                let (slide_ms, size_ms) = (SIZE_MS, lasts * SIZE_MS);
                windows(WindowSpec::Hop { slide_ms, size_ms, offset_ms: 0 }, &[KEY], aggregates)?
            }
        };
        let mut random = SplitMix64::new(seed);
        let mut driver = Driver::new(&operator, 8, hurried);
        let mut expected = Expected { lasts, numbers: BTreeMap::new() };
        let (mut local, mut by_key, mut partly, mut ordinal) = (0, 0, 0, 0);
        for window in 0..36 {
            for rows in habits(window, &mut random) {
                let bundle = bundle_of(&rows, ordinal, window * SIZE_MS - 1);
                ordinal += 1;
                match operator.route(&bundle, 8)? {
                    Route::Any => local += 1,
                    Route::Scatter(_) => by_key += 1,
                    Route::Partly { .. } => partly += 1,
                }
                driver.rows(&bundle)?;
                rows.iter().for_each(|row| expected.add(window, row));
            }
            driver.watermark((window + 1) * SIZE_MS - 1)?;
        }
        let counts = format!("{local} local, {by_key} by key, {partly} partly");
        assert!(local > 60 && by_key > 50 && partly > 50, "{counts}");
        assert_eq!(driver.finish().rows, expected.lines());
    }
    Ok(())
}

/// Sets of windows without keys move whole from the partitions that took rows to the first.
#[test]
fn distinct_values_of_all_rows_are_counted_once() -> Result<()> {
    let operator = tumbling(&[], vec![call("COUNT", true, Some(NUMBER), None)])?;
    let mut driver = Driver::new(&operator, 3, false);
    for window in 0..4i64 {
        for ordinal in 0..5i64 {
            let row = |n: i64| {
                let number = Some((n + ordinal * 10) as i32);
                Row { time: window * SIZE_MS, number, ..Row::default() }
            };
            let rows: Vec<Row> = (0..30).map(row).collect();
            driver.rows(&bundle_of(&rows, ordinal as u64, window * SIZE_MS - 1))?;
        }
        driver.watermark((window + 1) * SIZE_MS - 1)?;
    }
    assert_eq!(driver.finish().rows, ["70|0|10|9", "70|10|20|19", "70|20|30|29", "70|30|40|39"]);
    Ok(())
}

/// Without keys rows are spread by the values that are to be distinct, where these are many;
/// however rows came, and if others continue with what partitions capture, each value counts once.
#[test]
fn rows_without_keys_are_spread_by_their_distinct_values() -> Result<()> {
    let distinct = |function| call(function, true, Some(NUMBER), None);
    let rows_of = call("COUNT", false, None, None);
    let operator = tumbling(&[], vec![distinct("COUNT"), rows_of, distinct("SUM")])?;
    let random = &mut SplitMix64::new(7);
    let values = |n: i64| if n / 300 % 2 == 0 { 5 } else { 400 };
    let row = |n: i64| Row {
        time: n / 30 - random.below(3) as i64,
        number: (random.below(9) > 0).then(|| random.below(values(n)) as i32),
        ..Row::default()
    };
    let rows: Vec<Row> = (0..3000).map(row).collect();
    let watermarks: Vec<Option<i64>> = rows.iter().map(|row| Some(row.time - 4)).collect();
    let script = stamped(&batch(&rows, &input_schema(DataType::Timestamp(3))), &watermarks, 300);
    let driven = check_operator(&operator, &script);
    assert_eq!(driven.emitted.len(), 11, "windows");
    assert!(operator.shared.key_spread.is_by_key(), "the last window has many values");
    check_damaged_state(&operator, &script);
    Ok(())
}

/// No column is better than the other where values of two are to be distinct.
#[test]
fn rows_are_spread_by_one_column() -> Result<()> {
    let distinct = |column| call("COUNT", true, Some(column), None);
    let spread_by = |keys: &[usize], aggregates| -> Result<Vec<usize>> {
        Ok(tumbling(keys, aggregates)?.shared.spread_by.clone())
    };
    assert_eq!(spread_by(&[], vec![distinct(NUMBER), distinct(NUMBER)])?, [NUMBER]);
    assert!(spread_by(&[], vec![distinct(NUMBER), distinct(WORD), distinct(NUMBER)])?.is_empty());
    assert_eq!(spread_by(&[KEY], vec![distinct(NUMBER)])?, [KEY]);
    Ok(())
}

/// Rows of three keys, late ones among them, and the watermark that each establishes.
fn script() -> Vec<Event> {
    let random = &mut SplitMix64::new(4);
    let row = |n: i64| Row {
        time: n / 4 - random.below(12) as i64,
        key: Some(random.below(3) as i64),
        word: Some(format!("word {}", random.below(4))),
        number: (random.below(5) > 0).then(|| random.below(7) as i32),
        ..Row::default()
    };
    let rows: Vec<Row> = (0..400).map(row).collect();
    let watermarks: Vec<Option<i64>> = rows.iter().map(|row| Some(row.time - 6)).collect();
    stamped(&batch(&rows, &input_schema(DataType::Timestamp(3))), &watermarks, 40)
}

/// Sets of keys, distinct values with and without keys, and counts: also where others continue with
/// what partitions capture, which is restored only if it is whole.
#[test]
fn the_test_kit_finds_no_difference() -> Result<()> {
    let distinct = || call("COUNT", true, Some(NUMBER), None);
    let mixed = || vec![call("COUNT", false, None, None), call("MAX", false, Some(WORD), None)];
    let shapes: [(&[usize], Vec<AggregateCall>); 6] = [
        (&[KEY], Vec::new()),
        (&[KEY, WORD], vec![distinct()]),
        (&[], vec![distinct()]),
        (&[], Vec::new()),
        (&[], mixed()),
        (&[KEY], mixed().into_iter().chain([distinct()]).collect()),
    ];
    let script = script();
    for (keys, aggregates) in shapes {
        let operator = tumbling(keys, aggregates)?;
        let driven = check_operator(&operator, &script);
        assert!(driven.emitted.len() > 5 && driven.late > 0, "windows close, and rows are late");
        check_damaged_state(&operator, &script);
    }
    Ok(())
}

/// Memory that windows of many keys needed is given back once windows have few.
#[test]
fn memory_follows_the_keys_of_the_windows() -> Result<()> {
    let operator = tumbling(&[KEY], vec![call("COUNT", true, Some(NUMBER), None)])?;
    let mut driver = Driver::new(&operator, 2, false);
    let mut bytes = Vec::new();
    for window in 0..12i64 {
        let keys = if window < 4 { 50_000 } else { 20 };
        let row = |key: i64| Row {
            time: window * SIZE_MS,
            key: Some(key),
            number: Some(1),
            ..Row::default()
        };
        let rows: Vec<Row> = (0..keys).map(row).collect();
        driver.rows(&bundle_of(&rows, 0, window * SIZE_MS - 1))?;
        bytes.push(driver.state_bytes());
        driver.watermark((window + 1) * SIZE_MS - 1)?;
    }
    assert!(bytes[0] > 50_000 * 12, "an open window counts: {bytes:?}");
    assert!(bytes[3] < bytes[1] * 2, "windows use the memory of those before: {bytes:?}");
    assert!(bytes[11] < bytes[3] / 5, "and it is given back: {bytes:?}");
    Ok(())
}
