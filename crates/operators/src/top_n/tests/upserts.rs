//! Upserts as changes and changes as upserts, against plain loops.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{DataType, RowKind, TableSchema};

use super::{SEQUENCES, batch, changes, check_changes, in_sequence, lines, table};
use crate::test_kit::{DriveOptions, check_damaged_state, check_operator, drive};
use crate::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, Materialize, MaterializeSpec,
};
use crate::window::LatePolicy;

/// Key and value.
type Row = (Option<i64>, i64);

fn input() -> TableSchema {
    table(&[("k", DataType::BigInt), ("v", DataType::BigInt)])
}

fn columns(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
    ];
    batch(&input(), columns)
}

fn line(kind: &str, (key, value): Row) -> String {
    let key = key.map_or("\\N".to_string(), |key| key.to_string());
    format!("{kind},{key},{value}")
}

fn normalize(state_ttl_ms: Option<i64>) -> Deduplicate {
    Deduplicate::new(DeduplicateSpec {
        keys: vec![0],
        keep: Keep::Last,
        by: DeduplicateBy::Upserts,
        input: input(),
        state_ttl_ms,
        late: LatePolicy::Drop,
    })
    .expect("a valid specification")
}

fn materialize(state_ttl_ms: Option<i64>) -> Materialize {
    let spec = MaterializeSpec { keys: vec![0], input: input(), state_ttl_ms };
    Materialize::new(spec).expect("a valid specification")
}

fn random_row(random: &mut SplitMix64) -> Row {
    let key = random.below(12) as i64;
    ((key > 0).then_some(key), random.below(4) as i64)
}

fn random_kind(random: &mut SplitMix64) -> RowKind {
    let kinds = [RowKind::Insert, RowKind::UpdateAfter, RowKind::Delete, RowKind::UpdateBefore];
    kinds[random.below(4) as usize]
}

fn random_changes(seed: u64) -> (Vec<Row>, Vec<RowKind>) {
    let mut random = SplitMix64::new(seed);
    (0..500).map(|_| (random_row(&mut random), random_kind(&mut random))).unzip()
}

#[test]
fn upserts_leave_as_full_changes() {
    for seed in 0..30 {
        let (rows, kinds) = random_changes(seed);
        let mut kept: BTreeMap<Option<i64>, Row> = BTreeMap::new();
        let mut expected = Vec::new();
        for (&row, &kind) in rows.iter().zip(&kinds) {
            match (kind, kept.get(&row.0).copied()) {
                (RowKind::UpdateBefore, _) | (RowKind::Delete, None) => {}
                (RowKind::Delete, Some(old)) => {
                    expected.push(line("-D", old));
                    kept.remove(&row.0);
                }
                (_, Some(old)) if old == row => {}
                (_, Some(old)) => {
                    expected.extend([line("-U", old), line("+U", row)]);
                    kept.insert(row.0, row);
                }
                (_, None) => {
                    expected.push(line("+I", row));
                    kept.insert(row.0, row);
                }
            }
        }
        let script = changes(&columns(&rows), &kinds);
        check_damaged_state(&normalize(None), &script);
        check_operator(&normalize(None), &script);
        check_changes(&normalize(None), &script);
        for (bundle_rows, restores) in SEQUENCES {
            let options = in_sequence(bundle_rows, restores);
            let driven = drive(&normalize(None), &script, &options).expect("a run");
            assert_eq!(lines(&driven), expected, "seed {seed}, {options:?}");
            let left: Vec<String> = kept.values().map(|&row| line("+I", row)).collect();
            assert_eq!(driven.final_rows().len(), left.len(), "seed {seed}");
        }
    }
}

#[test]
fn the_last_row_that_was_not_retracted_counts() {
    for seed in 0..30 {
        let (rows, kinds) = random_changes(seed);
        let mut kept: BTreeMap<Option<i64>, Vec<Row>> = BTreeMap::new();
        let mut expected = Vec::new();
        for (&row, &kind) in rows.iter().zip(&kinds) {
            let of_key = kept.entry(row.0).or_default();
            match kind {
                RowKind::Insert | RowKind::UpdateAfter => {
                    expected.push(line(if of_key.is_empty() { "+I" } else { "+U" }, row));
                    of_key.push(row);
                }
                RowKind::Delete | RowKind::UpdateBefore => {
                    let Some(place) = of_key.iter().position(|other| *other == row) else {
                        continue;
                    };
                    of_key.remove(place);
                    match of_key.last() {
                        None => expected.push(line("-D", row)),
                        Some(&last) if place == of_key.len() => expected.push(line("+U", last)),
                        Some(_) => {}
                    }
                }
            }
        }
        let script = changes(&columns(&rows), &kinds);
        check_damaged_state(&materialize(None), &script);
        check_operator(&materialize(None), &script);
        check_changes(&materialize(None), &script);
        for (bundle_rows, restores) in SEQUENCES {
            let options = in_sequence(bundle_rows, restores);
            let driven = drive(&materialize(None), &script, &options).expect("a run");
            assert_eq!(lines(&driven), expected, "seed {seed}, {options:?}");
        }
    }
}

/// Ever new keys, each retracted a little later: memory is that of the rows that are live.
#[test]
fn state_follows_live_rows() {
    let (mut rows, mut kinds) = (Vec::new(), Vec::new());
    for n in 0..50_000_i64 {
        rows.push((Some(n), 1));
        kinds.push(RowKind::Insert);
        if n >= 10 {
            rows.push((Some(n - 10), 1));
            kinds.push(RowKind::Delete);
        }
    }
    let script = changes(&columns(&rows), &kinds);
    let options = DriveOptions { bundle_rows: 64, ..DriveOptions::default() };
    for driven in [
        drive(&materialize(None), &script, &options).expect("a run"),
        drive(&normalize(None), &script, &options).expect("a run"),
    ] {
        assert_eq!(lines(&driven).len(), 100_000 - 10);
        assert!(driven.final_state_bytes < 64 << 10, "{} bytes", driven.final_state_bytes);
    }
}
