use thalweg_core::RowKind;
use thalweg_core::shim::SplitMix64;

use super::{SetOperation, SetOperationKind};
use crate::join::regular::tests::random::{Shape, changes};
use crate::join::regular::tests::{Change, Row, row, script, sides};
use crate::join::sides::Side;
use crate::reference::Value;
use crate::test_kit::{DriveOptions, assert_same_rows, check_damaged_state, check_operator, drive};

const KINDS: [SetOperationKind; 2] = [SetOperationKind::Intersect, SetOperationKind::Except];

fn copies(kind: SetOperationKind, all: bool, left: &[Row], right: &[Row], row: &Row) -> usize {
    let count = |rows: &[Row]| rows.iter().filter(|other| *other == row).count();
    let (left, right) = (count(left), count(right));
    match (kind, all) {
        (SetOperationKind::Intersect, true) => left.min(right),
        (SetOperationKind::Intersect, false) => left.min(right).min(1),
        (SetOperationKind::Except, true) => left.saturating_sub(right),
        (SetOperationKind::Except, false) if right == 0 => left.min(1),
        (SetOperationKind::Except, false) => 0,
    }
}

/// Lists of rows, recounted for each change.
fn naive(kind: SetOperationKind, all: bool, changes: &[Change]) -> Vec<Row> {
    let mut sides: [Vec<Row>; 2] = Default::default();
    let mut out = Vec::new();
    for (side, change, row) in changes {
        let before = copies(kind, all, &sides[0], &sides[1], row);
        let rows = &mut sides[*side as usize];
        match change {
            RowKind::Insert | RowKind::UpdateAfter => rows.push(row.clone()),
            RowKind::UpdateBefore | RowKind::Delete => {
                let place = rows.iter().position(|other| other == row);
                rows.swap_remove(place.expect("a row that is there"));
            }
        }
        let after = copies(kind, all, &sides[0], &sides[1], row);
        let changed = before.max(after) - before.min(after);
        let text = if after > before { "+I" } else { "-D" };
        (0..changed).for_each(|_| out.push([&[Value::text(text)], &row[..]].concat()));
    }
    out
}

#[test]
fn random_changelogs_make_the_changes_of_the_reference() {
    for seed in 0..4 {
        let mut random = SplitMix64::new(seed);
        let shape = Shape { changes: 400, keys: 2, numbers: 2, is_unique: false };
        let changes = changes(shape, &mut random);
        let script = script(&changes);
        for kind in KINDS {
            for all in [false, true] {
                let what = format!("{kind:?}, {all}, seed {seed}");
                let operator = SetOperation::new(sides(), kind, all).unwrap();
                let expected = naive(kind, all, &changes);
                for bundle_rows in [1, 7, usize::MAX] {
                    let options = DriveOptions { bundle_rows, ..DriveOptions::default() };
                    let driven = drive(&operator, &script, &options).unwrap();
                    assert_same_rows(&driven.changes(), &expected, &what);
                }
                check_damaged_state(&operator, &script);
                check_operator(&operator, &script);
            }
        }
    }
}

/// The golden case except_intersect, and its counterpart: NULL equals NULL.
#[test]
fn except_intersect() {
    let rows = |side, keys: &[Option<i64>]| -> Vec<Change> {
        keys.iter().map(|&key| (side, RowKind::Insert, row(key, 0, ""))).collect()
    };
    let left = rows(Side::Left, &[Some(1), Some(2), Some(3), Some(4), None]);
    let right = [1, 1, 1, 2, 2, 3].map(Some);
    let right = rows(Side::Right, &[&right[..], &[None, Some(9)]].concat());
    let script = script(&[left, right].concat());
    let changes = |kind| -> Vec<(Value, Value)> {
        let operator = SetOperation::new(sides(), kind, false).unwrap();
        let driven = check_operator(&operator, &script);
        driven.changes().iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    };
    let some = |kind: &str, keys: &[i64]| -> Vec<(Value, Value)> {
        keys.iter().map(|&key| (Value::text(kind), Value::Integer(key))).collect()
    };
    let null = |kind: &str| vec![(Value::text(kind), Value::Null)];
    let expected = [some("+I", &[1, 2, 3]), null("+I")].concat();
    assert_eq!(changes(SetOperationKind::Intersect), expected);
    let (inserted, deleted) = (some("+I", &[1, 2, 3, 4]), some("-D", &[1, 2, 3]));
    let expected = [inserted, null("+I"), deleted, null("-D")].concat();
    assert_eq!(changes(SetOperationKind::Except), expected);
}

#[test]
fn memory_follows_the_rows_that_stand_on_a_side() {
    let mut changes: Vec<Change> = Vec::new();
    for key in 0..20_000 {
        let any = row(Some(key), key, "a text");
        let side = if key % 2 == 0 { Side::Left } else { Side::Right };
        changes.push((side, RowKind::Insert, any.clone()));
        changes.push((side, RowKind::Delete, any));
    }
    let operator = SetOperation::new(sides(), SetOperationKind::Except, true).unwrap();
    let options = DriveOptions { bundle_rows: 100, ..DriveOptions::default() };
    let driven = drive(&operator, &script(&changes), &options).unwrap();
    assert!(driven.final_state_bytes < 100_000, "{}", driven.final_state_bytes);
}
