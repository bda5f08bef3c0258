//! What Flink did (golden cases), and single behaviours.

use std::sync::Arc;

use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, ErrorKind, Extent, Operator, Output, PartitionContext, Piece, RowKind, Stamps,
};

use super::{Change, JoinKind, Row, appends, batch, row, script, spec};
use crate::join::regular::{JoinSpec, RegularJoin};
use crate::join::sides::Side;
use crate::reference::Value;
use crate::test_kit::{check_damaged_state, check_operator, drive, sorted};

const INSERT: RowKind = RowKind::Insert;
const DELETE: RowKind = RowKind::Delete;

/// Tables `o` (left) and `s` of the golden cases of regular joins: key, seconds, tag.
fn golden() -> Vec<Change> {
    let left = [(Some(1), 0), (Some(2), 10), (Some(3), 20), (Some(4), 30), (None, 31)];
    let right = [
        (Some(1), 0, "s1-at-0"),
        (Some(1), 5, "s1-at-+5"),
        (Some(1), 6, "s1-over"),
        (Some(2), 9, "s2-at--1"),
        (Some(2), 8, "s2-under"),
        (Some(3), 22, "s3"),
        (None, 31, "nullkey"),
        (Some(9), 91, "late-end"),
    ];
    let left = left.iter().map(|&(key, time)| (Side::Left, INSERT, row(key, time, "o")));
    let right = right.iter().map(|&(key, time, tag)| (Side::Right, INSERT, row(key, time, tag)));
    left.chain(right).collect()
}

/// Kind, key of the left side and tag of the right side, as text.
fn short(changes: &[Row]) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Integer(value) => value.to_string(),
        Value::String(text) => text.clone(),
        _ => "-".to_owned(),
    };
    let line = |row: &Row| format!("{} {} {}", text(&row[0]), text(&row[1]), text(&row[6]));
    changes.iter().map(line).collect()
}

#[test]
fn regular_join_inner() {
    let join = RegularJoin::new(spec(JoinKind::Inner, &[0], false, false)).unwrap();
    let driven = check_operator(&join, &script(&golden()));
    let expected = [
        "+I 1 s1-at-0",
        "+I 1 s1-at-+5",
        "+I 1 s1-over",
        "+I 2 s2-at--1",
        "+I 2 s2-under",
        "+I 3 s3",
    ];
    assert_eq!(short(&driven.changes()), expected);
    let plain = check_operator(&join, &appends(&golden()));
    assert!(plain.kinds.iter().all(Option::is_none), "inputs that append give rows that append");
    assert_eq!(plain.final_rows(), driven.final_rows());
}

#[test]
fn regular_join_left_changelog() {
    let join = RegularJoin::new(spec(JoinKind::Left, &[0], false, false)).unwrap();
    for script in [script(&golden()), appends(&golden())] {
        let driven = check_operator(&join, &script);
        let expected = [
            "+I 1 -",
            "+I 2 -",
            "+I 3 -",
            "+I 4 -",
            "+I - -",
            "-D 1 -",
            "+I 1 s1-at-0",
            "+I 1 s1-at-+5",
            "+I 1 s1-over",
            "-D 2 -",
            "+I 2 s2-at--1",
            "+I 2 s2-under",
            "-D 3 -",
            "+I 3 s3",
        ];
        assert_eq!(short(&driven.changes()), expected);
    }
}

#[test]
fn semi_join_in() {
    let join = RegularJoin::new(spec(JoinKind::Semi, &[0], false, false)).unwrap();
    let driven = check_operator(&join, &appends(&golden()));
    let keys: Vec<Value> = driven.changes().iter().map(|row| row[0].clone()).collect();
    assert_eq!(keys, [1, 2, 3].map(Value::Integer));
    assert!(driven.kinds.iter().all(Option::is_none));
}

/// Rule 19: what is not there yet is in the result, and is retracted when it comes.
#[test]
fn anti_joins_retract_what_they_emitted() {
    let join = RegularJoin::new(spec(JoinKind::Anti, &[0], false, false)).unwrap();
    let driven = check_operator(&join, &appends(&golden()));
    let changes: Vec<(Value, Value)> =
        driven.changes().iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let insert = |key: Value| (Value::text("+I"), key);
    let delete = |key| (Value::text("-D"), Value::Integer(key));
    let inserted = [1, 2, 3, 4].map(|key| insert(Value::Integer(key)));
    let expected: Vec<_> = inserted
        .into_iter()
        .chain([insert(Value::Null), delete(1), delete(2), delete(3)])
        .collect();
    assert_eq!(changes, expected);
}

#[test]
fn the_schema_says_which_columns_can_be_null() {
    let nullable = |kind| -> Vec<bool> {
        let join = RegularJoin::new(spec(kind, &[0], false, false)).unwrap();
        join.output_schema().columns.iter().map(|column| column.column_type.nullable).collect()
    };
    assert_eq!(nullable(JoinKind::Inner), [true, false, true, true, false, true]);
    assert_eq!(nullable(JoinKind::Left), [true, false, true, true, true, true]);
    assert_eq!(nullable(JoinKind::Right), [true, true, true, true, false, true]);
    assert_eq!(nullable(JoinKind::Full), [true; 6]);
    assert_eq!(nullable(JoinKind::Semi), [true, false, true]);
    let inserts_only = |kind, left, right| {
        let join = RegularJoin::new(spec(kind, &[0], false, false)).unwrap();
        join.emits_inserts_only(left, right)
    };
    assert!(inserts_only(JoinKind::Inner, true, true) && inserts_only(JoinKind::Semi, true, true));
    assert!(!inserts_only(JoinKind::Inner, true, false));
    assert!(!inserts_only(JoinKind::Left, true, true) && !inserts_only(JoinKind::Anti, true, true));
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let mut bad = spec(JoinKind::Inner, &[0], false, false);
    bad.join.right_keys = vec![2];
    let error = RegularJoin::new(bad).err().expect("a number is no text");
    assert_eq!(error.kind(), ErrorKind::Internal);
    let mut bad = spec(JoinKind::Inner, &[0], false, false);
    bad.join.right_keys = vec![7];
    assert!(RegularJoin::new(bad).is_err());
}

/// Ever new keys, each retracted a little later: memory is that of the rows that are live.
#[test]
fn memory_follows_the_live_rows() {
    let turn = |start: i64, kind: RowKind| {
        let rows = (start..start + 500).flat_map(move |key| {
            [Side::Left, Side::Right].map(|side| (side, kind, row(Some(key), key, "some text")))
        });
        rows.collect::<Vec<Change>>()
    };
    let run = |turns: i64| {
        let changes: Vec<Change> = (0..turns)
            .flat_map(|n| [turn(n * 500, INSERT), turn(n * 500, DELETE)].concat())
            .collect();
        let join = RegularJoin::new(spec(JoinKind::Full, &[0], false, true)).unwrap();
        let options = crate::test_kit::DriveOptions { bundle_rows: 64, ..Default::default() };
        drive(&join, &script(&changes), &options).unwrap().final_state_bytes
    };
    let (few, many) = (run(2), run(40));
    assert!(many <= few * 3 / 2, "{many} bytes after 40 turns, {few} after 2");
}

#[test]
fn damaged_state_is_refused() {
    for kind in JoinKind::ALL {
        for (residual, ttl_ms) in [(false, None), (true, None), (false, Some(100))] {
            let spec =
                JoinSpec { state_ttl_ms: (ttl_ms, ttl_ms), ..spec(kind, &[0], false, residual) };
            check_damaged_state(&RegularJoin::new(spec).unwrap(), &appends(&golden()));
        }
    }
}

/// Feeds one partition by hand, at given times, with and without restores in between.
fn at_times(join: &RegularJoin, steps: &[(u64, &[Change])]) -> Vec<String> {
    let plain = fed(join, steps, false);
    assert_eq!(fed(join, steps, true), plain, "with restores");
    plain
}

fn fed(join: &RegularJoin, steps: &[(u64, &[Change])], restores: bool) -> Vec<String> {
    let clock = Arc::new(ManualClock::default());
    let mut partition = join.open(PartitionContext::only()).unwrap();
    let mut driven = crate::test_kit::Driven::default();
    let mut now_ms = 0;
    for &(time_ms, changes) in steps {
        clock.advance(std::time::Duration::from_millis(time_ms - now_ms));
        now_ms = time_ms;
        let mut bundle = Bundle::new(batch(changes), Stamps::first());
        bundle.kinds = Some(changes.iter().map(|change| change.1).collect());
        if restores {
            let captured = partition.capture(Extent::Full).unwrap().into_restored().unwrap();
            partition = join.open(PartitionContext::only()).unwrap();
            partition.restore(&captured).unwrap();
        }
        let mut output = Output::new(clock.clone(), u64::MAX);
        partition.rows(Piece::whole(&bundle, 1), &mut output).unwrap();
        for emitted in output.emitted {
            driven.emitted.push(emitted.batch);
            driven.kinds.push(emitted.kinds);
        }
    }
    short(&driven.changes())
}

/// A row goes when it was not written for so long; gaining a partner writes a row of a padded side,
/// as in Flink. A row that is gone is not retracted, and the others do not notice.
#[test]
fn rows_expire_by_the_wall_clock() {
    let left = |key, number, kind| (Side::Left, kind, row(Some(key), number, "l"));
    let right = |key, text| (Side::Right, INSERT, row(Some(key), 0, text));
    let limited = JoinSpec {
        state_ttl_ms: (Some(100), Some(50)),
        ..spec(JoinKind::Left, &[0], false, false)
    };
    let join = RegularJoin::new(limited).unwrap();
    let steps: [(u64, &[Change]); 6] = [
        (0, &[left(1, 0, INSERT), left(2, 0, INSERT)]),
        (60, &[right(1, "writes")]),
        (99, &[right(2, "just in time")]),
        (120, &[left(1, 1, INSERT)]),
        // The first partner of key 1 is gone, but its row had counted it: no padding is retracted.
        (159, &[right(1, "second")]),
        (400, &[right(1, "too late"), left(1, 0, DELETE)]),
    ];
    let expected = [
        "+I 1 -",
        "+I 2 -",
        "-D 1 -",
        "+I 1 writes",
        "-D 2 -",
        "+I 2 just in time",
        "+I 1 -",
        "+I 1 second",
        "-D 1 -",
        "+I 1 second",
        "-D 1 too late",
    ];
    assert_eq!(at_times(&join, &steps), expected);
}

/// Long chains expire as well: the oldest of equal rows first.
#[test]
fn rows_of_long_chains_expire() {
    let limited =
        JoinSpec { state_ttl_ms: (Some(100), None), ..spec(JoinKind::Inner, &[0], false, false) };
    let join = RegularJoin::new(limited).unwrap();
    let left = |number, kind| (Side::Left, kind, row(Some(1), number % 7, "l"));
    let many = |numbers: std::ops::Range<i64>| -> Vec<Change> {
        numbers.map(|number| left(number, INSERT)).collect()
    };
    let right = [(Side::Right, INSERT, row(Some(1), 0, "r"))];
    let steps: [(u64, &[Change]); 5] = [
        (0, &many(0..30)),
        (10, &[left(3, DELETE)]),
        (50, &many(30..40)),
        (120, &[left(3, DELETE)]),
        (130, &right),
    ];
    assert_eq!(at_times(&join, &steps), vec!["+I 1 r"; 9]);
}

#[test]
fn a_piece_may_be_a_part_of_a_bundle() {
    let changes = golden();
    let bundle = Bundle::new(batch(&changes), Stamps::first());
    let rows: Vec<u32> = vec![0, 3, 6, 7];
    let join = RegularJoin::new(spec(JoinKind::Left, &[0], false, true)).unwrap();
    let mut partition = join.open(PartitionContext::only()).unwrap();
    let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
    let piece = Piece { bundle: &bundle, rows: Some(&rows), is_local: false, lanes: 1 };
    partition.rows(piece, &mut output).unwrap();
    let mut driven = crate::test_kit::Driven::default();
    let emitted = output.emitted.remove(0);
    let causes = thalweg_core::Place::Caused(vec![0, 3, 6, 6, 7]);
    assert_eq!(emitted.place, causes, "rows say what caused them");
    driven.emitted.push(emitted.batch);
    driven.kinds.push(emitted.kinds);
    let expected = ["+I 1 -", "+I 4 -", "-D 1 -", "+I 1 s1-at-+5", "+I 1 s1-over"];
    assert_eq!(short(&driven.changes()), expected);
    assert_eq!(sorted(driven.final_rows()).len(), 3);
}
