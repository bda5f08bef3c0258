//! Deduplication against plain loops.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{DataType, ErrorKind, RowKind, TableSchema};

use super::{SEQUENCES, batch, changes, check_changes, in_sequence, inserts, lines, table};
use crate::test_kit::{DriveOptions, check_damaged_state, check_operator, drive, stamped};
use crate::top_n::{Deduplicate, DeduplicateBy, DeduplicateSpec, Keep};
use crate::window::LatePolicy;

/// Key, time, value.
type Row = (Option<i64>, i64, i64);

const DELAY_MS: i64 = 6;
const BY_TIME: DeduplicateBy = DeduplicateBy::EventTime(1);

fn input() -> TableSchema {
    table(&[("k", DataType::BigInt), ("ts", DataType::Timestamp(3)), ("v", DataType::BigInt)])
}

fn operator(keep: Keep, by: DeduplicateBy, late: LatePolicy) -> Deduplicate {
    let spec =
        DeduplicateSpec { keys: vec![0], keep, by, input: input(), state_ttl_ms: None, late };
    Deduplicate::new(spec).expect("a valid specification")
}

fn columns(rows: &[Row]) -> RecordBatch {
    let times = rows.iter().map(|row| row.1);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
        Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    batch(&input(), columns)
}

fn line(kind: &str, row: &Row) -> String {
    let key = row.0.map_or("\\N".to_string(), |key| key.to_string());
    format!("{kind},{key},{},{}", format_timestamp_millis(row.1, 3), row.2)
}

fn random_rows(count: i64, keys: u64, random: &mut SplitMix64) -> Vec<Row> {
    let row = |n: i64| {
        let key = random.below(keys) as i64;
        ((key > 0).then_some(key), n / 2 - random.below(9) as i64, n)
    };
    (0..count).map(row).collect()
}

/// The rows that are on time, as [`stamped`] stamps them, and how many are not.
fn on_time(rows: &[Row]) -> (Vec<Row>, u64) {
    let (mut kept, mut running) = (Vec::new(), i64::MIN);
    for row in rows {
        if row.1 > running {
            kept.push(*row);
        }
        running = running.max(row.1 - DELAY_MS);
    }
    let late = rows.len() - kept.len();
    (kept, late as u64)
}

#[test]
fn the_first_by_time_leaves_when_none_can_come_before() {
    let mut late_rows = 0;
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let rows = random_rows(400, 150, &mut random);
        let (kept, late) = on_time(&rows);
        late_rows += late;
        let mut first: BTreeMap<Option<i64>, Row> = BTreeMap::new();
        for row in kept {
            let entry = first.entry(row.0).or_insert(row);
            if row.1 < entry.1 {
                *entry = row;
            }
        }
        let mut expected: Vec<(i64, String)> =
            first.values().map(|row| (row.1, line("+I", row))).collect();
        expected.sort();
        let watermarks: Vec<Option<i64>> = rows.iter().map(|row| Some(row.1 - DELAY_MS)).collect();
        for epoch_rows in [1, 9, 1000] {
            let script = stamped(&columns(&rows), &watermarks, epoch_rows);
            let operator = operator(Keep::First, BY_TIME, LatePolicy::Emit);
            check_damaged_state(&operator, &script);
            let driven = check_operator(&operator, &script);
            check_changes(&operator, &script);
            assert_eq!(driven.late, late, "seed {seed}");
            assert_eq!(
                driven.late_rows.iter().map(RecordBatch::num_rows).sum::<usize>(),
                late as usize
            );
            let mut times = Vec::new();
            let mut actual = Vec::new();
            for line in lines(&driven) {
                let time = line.split(',').nth(2).expect("a time").to_string();
                times.push(time);
                actual.push(line);
            }
            assert!(times.is_sorted(), "seed {seed}: rows leave by time");
            actual.sort();
            let mut lines: Vec<String> = expected.iter().map(|row| row.1.clone()).collect();
            lines.sort();
            assert_eq!(actual, lines, "seed {seed}, epochs of {epoch_rows}");
        }
    }
    assert!(late_rows > 100, "{late_rows} late rows");
}

#[test]
fn the_first_and_the_last_follow_each_row() {
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let rows = random_rows(600, 30, &mut random);
        for (keep, by) in [
            (Keep::First, DeduplicateBy::Arrival),
            (Keep::Last, DeduplicateBy::Arrival),
            (Keep::Last, BY_TIME),
        ] {
            let mut kept: BTreeMap<Option<i64>, Row> = BTreeMap::new();
            let mut expected = Vec::new();
            for row in &rows {
                match kept.get(&row.0) {
                    None => expected.push(line("+I", row)),
                    Some(_) if keep == Keep::First => continue,
                    Some(old) if by == BY_TIME && row.1 < old.1 => continue,
                    Some(old) => expected.extend([line("-U", old), line("+U", row)]),
                }
                kept.insert(row.0, *row);
            }
            let operator = operator(keep, by, LatePolicy::Fail);
            let script = inserts(&columns(&rows));
            check_damaged_state(&operator, &script);
            check_operator(&operator, &script);
            check_changes(&operator, &script);
            for (bundle_rows, restores) in SEQUENCES {
                let options = in_sequence(bundle_rows, restores);
                let driven = drive(&operator, &script, &options).expect("a run");
                assert_eq!(lines(&driven), expected, "seed {seed}, {keep:?} {by:?} {options:?}");
            }
        }
    }
}

#[test]
fn bad_rows_are_refused() {
    let late = stamped(&columns(&[(Some(1), 9, 1), (Some(2), 5, 2)]), &[Some(7), None], 1);
    let by_time = operator(Keep::First, BY_TIME, LatePolicy::Fail);
    let error = drive(&by_time, &late, &DriveOptions::default()).expect_err("late");
    assert_eq!(error.kind(), ErrorKind::Data);
    let times = TimestampMillisecondArray::from(vec![Some(1), None]);
    let numbers = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
    let rows = batch(&input(), vec![numbers(), Arc::new(times), numbers()]);
    for keep in [Keep::First, Keep::Last] {
        let by_time = operator(keep, BY_TIME, LatePolicy::Drop);
        let error = drive(&by_time, &inserts(&rows), &DriveOptions::default());
        assert_eq!(error.expect_err("a row time of NULL").kind(), ErrorKind::Data);
        let script = changes(&columns(&[(None, 1, 1)]), &[RowKind::Delete]);
        let arrivals = operator(keep, DeduplicateBy::Arrival, LatePolicy::Drop);
        let error = drive(&arrivals, &script, &DriveOptions::default());
        assert_eq!(error.expect_err("a retraction").kind(), ErrorKind::Internal);
    }
}
