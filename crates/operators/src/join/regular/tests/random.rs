//! Random changelogs: any order of additions and retractions of either side.

use thalweg_core::RowKind;
use thalweg_core::shim::SplitMix64;

use super::reference::Naive;
use super::{Change, JoinKind, Row, row, script, spec};
use crate::join::regular::{JoinSpec, RegularJoin};
use crate::join::sides::Side;
use crate::test_kit::{DriveOptions, assert_same_rows, check_captures, check_operator, drive};

/// How rows are made.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub changes: usize,
    pub keys: u64,
    /// How many different numbers there are: few make equal rows.
    pub numbers: u64,
    /// True if no two live rows of a side have one key.
    pub is_unique: bool,
}

/// A changelog that grows in its first half and shrinks in its second one.
pub(crate) fn changes(shape: Shape, random: &mut SplitMix64) -> Vec<Change> {
    let mut live: [Vec<Row>; 2] = Default::default();
    let mut changes = Vec::new();
    while changes.len() < shape.changes {
        let side = if random.below(2) == 0 { Side::Left } else { Side::Right };
        let rows = &mut live[side as usize];
        let growth = if changes.len() * 2 < shape.changes { 7 } else { 3 };
        let is_update = random.below(2) == 0;
        if random.below(10) < growth {
            let row = any_row(shape, random);
            if shape.is_unique && rows.iter().any(|other| other[0] == row[0]) {
                continue;
            }
            let kind = if is_update { RowKind::UpdateAfter } else { RowKind::Insert };
            rows.push(row.clone());
            changes.push((side, kind, row));
        } else if !rows.is_empty() {
            let row = rows.swap_remove(random.below(rows.len() as u64) as usize);
            let kind = if is_update { RowKind::UpdateBefore } else { RowKind::Delete };
            changes.push((side, kind, row));
        }
    }
    changes
}

fn any_row(shape: Shape, random: &mut SplitMix64) -> Row {
    let key = random.below(shape.keys + 1);
    let key = (key < shape.keys).then_some(key as i64);
    let number = random.below(shape.numbers) as i64;
    let text = ["short", "a text that does not fit into a view"][random.below(2) as usize];
    let mut row = row(key, number, text);
    if random.below(10) == 0 {
        row[2] = crate::reference::Value::Null;
    }
    row
}

/// Compares with the reference: the sequence with one partition whatever the bundles, the multiset
/// in all other ways, and what is left at the end.
fn check(spec: JoinSpec, changes: &[Change], what: &str) {
    let (kind, keys) = (spec.join.kind, spec.join.left_keys.clone());
    let null_equals_null = spec.null_equals_null.first() == Some(&true);
    let has_residual = spec.join.residual.is_some();
    let naive = || Naive::new(kind, &keys, null_equals_null, has_residual);
    let expected = naive().run(changes);
    let join = RegularJoin::new(spec).unwrap();
    let script = script(changes);
    let ways = [(1, false), (3, false), (50, false), (usize::MAX, false), (3, true), (20, true)];
    for (bundle_rows, restores) in ways {
        let options = DriveOptions {
            bundle_rows,
            restores,
            keeps_partitions: true,
            ..DriveOptions::default()
        };
        let driven = drive(&join, &script, &options).unwrap();
        let what = format!("{what}, bundles of {bundle_rows}, restores: {restores}");
        assert_same_rows(&driven.changes(), &expected, &what);
    }
    let driven = check_operator(&join, &script);
    assert_same_rows(&driven.final_rows(), &naive().final_rows(changes), what);
}

#[test]
fn every_join_makes_the_changes_of_the_reference() {
    for seed in 0..2 {
        let mut random = SplitMix64::new(seed);
        for kind in JoinKind::ALL {
            let shape = Shape { changes: 150, keys: 6, numbers: 3, is_unique: false };
            let changes = changes(shape, &mut random);
            for residual in [false, true] {
                for null_equals_null in [false, true] {
                    let what = format!("{kind:?}, seed {seed}, {residual}, {null_equals_null}");
                    check(spec(kind, &[0], null_equals_null, residual), &changes, &what);
                    let what = format!("{what}, two keys");
                    check(spec(kind, &[0, 2], null_equals_null, residual), &changes, &what);
                }
            }
        }
    }
}

#[test]
fn without_keys_every_pair_is_a_candidate() {
    for seed in 10..12 {
        let mut random = SplitMix64::new(seed);
        for kind in JoinKind::ALL {
            let shape = Shape { changes: 120, keys: 6, numbers: 6, is_unique: false };
            let changes = changes(shape, &mut random);
            for residual in [false, true] {
                let what = format!("{kind:?}, seed {seed}, {residual}");
                check(spec(kind, &[], false, residual), &changes, &what);
            }
        }
    }
}

/// One key with hundreds of rows, among them many equal ones: rows are found by their hash.
#[test]
fn long_chains_make_the_changes_of_the_reference() {
    for seed in 20..22 {
        let mut random = SplitMix64::new(seed);
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Anti] {
            for numbers in [4, 1000] {
                let shape = Shape { changes: 400, keys: 1, numbers, is_unique: false };
                let changes = changes(shape, &mut random);
                let what = format!("{kind:?}, seed {seed}, {numbers} numbers");
                check(spec(kind, &[0], false, numbers == 4), &changes, &what);
            }
        }
    }
}

#[test]
fn unique_keys_make_the_same_changes() {
    for seed in 30..33 {
        let mut random = SplitMix64::new(seed);
        for kind in JoinKind::ALL {
            let shape = Shape { changes: 200, keys: 20, numbers: 3, is_unique: true };
            let changes = changes(shape, &mut random);
            let unique = JoinSpec {
                left_unique: true,
                right_unique: true,
                ..spec(kind, &[0], false, seed == 30)
            };
            check(unique, &changes, &format!("{kind:?}, seed {seed}"));
        }
    }
}

/// Rows that come and go while captures are read: put together, changes are the whole.
#[test]
fn changes_put_together_are_the_whole() {
    for seed in 40..44 {
        let mut random = SplitMix64::new(seed);
        for kind in JoinKind::ALL {
            for (residual, ttl_ms) in [(false, None), (true, None), (false, Some(1000))] {
                let shape = Shape { changes: 300, keys: 6, numbers: 3, is_unique: false };
                let script = script(&changes(shape, &mut random));
                let keys: &[usize] = [&[0, 2][..], &[0], &[]][seed as usize % 3];
                let spec = spec(kind, keys, seed % 2 == 0, residual);
                let join = RegularJoin::new(JoinSpec { state_ttl_ms: (ttl_ms, ttl_ms), ..spec });
                let partitions = 1 + seed as usize % 3;
                let bundle_rows = [1, 7, 30][random.below(3) as usize];
                let options =
                    DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
                check_captures(&join.unwrap(), &script, &options);
            }
        }
    }
}
