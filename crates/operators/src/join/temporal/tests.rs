use thalweg_core::shim::SplitMix64;
use thalweg_core::{Extent, Operator, Restored, RowKind, Watermark};

use super::{TemporalJoin, TemporalJoinSpec};
use crate::join::JoinKind;
use crate::join::bounded::fixture::{
    Feed, Keys, Row, Shape, Step, pair, random_steps, script, sides, smaller_on_the_left,
};
use crate::join::equi::EquiJoin;
use crate::join::sides::Side;
use crate::reference::Value;
use crate::test_kit::{
    DriveOptions, assert_same_rows, capture_all, capture_table, check_captures, check_damaged,
    check_damaged_state, check_operator, drive,
};

fn join(keys: Keys, kind: JoinKind, has_residual: bool) -> TemporalJoin {
    let spec = TemporalJoinSpec {
        join: EquiJoin {
            sides: sides(keys),
            kind,
            left_keys: vec![0],
            right_keys: vec![1],
            residual: has_residual.then(smaller_on_the_left),
        },
        left_time: 1,
        right_time: 0,
    };
    TemporalJoin::new(spec).unwrap()
}

fn row(side: Side, key: i64, time: i64, n: i64, before: i64) -> Row {
    Row { side, key: Some(key), time, n, before, kind: RowKind::Insert }
}

fn numbers(rows: &[Vec<Value>]) -> Vec<(i64, Option<i64>)> {
    let number = |value: &Value| match value {
        Value::Integer(n) => Some(*n),
        _ => None,
    };
    rows.iter().map(|row| (number(&row[2]).unwrap(), number(&row[5]))).collect()
}

/// The golden case temporal_join_versioned: EUR is 1, USD is 2.
#[test]
fn the_golden_rows() {
    let lefts = [(1, 5), (1, 10), (2, 12), (1, 20), (1, 60)];
    let rights = [
        (1, 0, RowKind::Insert),
        (1, 10, RowKind::UpdateAfter),
        (2, 15, RowKind::Insert),
        (1, 120, RowKind::UpdateAfter),
    ];
    let mut steps = Vec::new();
    let mut before = i64::MIN;
    for (n, (key, time)) in lefts.into_iter().enumerate() {
        steps.push(Step::Row(row(Side::Left, key, time, n as i64, before)));
        before = time;
    }
    before = i64::MIN;
    for (n, (key, time, kind)) in rights.into_iter().enumerate() {
        steps.push(Step::Row(Row { kind, ..row(Side::Right, key, time, n as i64, before) }));
        before = time;
    }
    let script = script(Keys::Text, &steps, 2);
    let driven = check_operator(&join(Keys::Text, JoinKind::Left, false), &script);
    let expected = [(0, Some(0)), (1, Some(1)), (2, None), (3, Some(1)), (4, Some(1))];
    assert_eq!(numbers(&driven.changes()), expected);
    let inner = check_operator(&join(Keys::Text, JoinKind::Inner, false), &script);
    assert_eq!(inner.changes().len(), 4);
}

/// With `WATERMARK FOR ts AS ts` on both sides, rows of one time still see one another.
#[test]
fn versions_of_the_same_time_are_seen_without_delay() {
    let steps = [
        Step::Row(row(Side::Left, 1, 5, 0, i64::MIN)),
        Step::Row(row(Side::Left, 2, 5, 1, 5)),
        Step::Row(row(Side::Right, 1, 5, 10, i64::MIN)),
        Step::Watermark(5),
        Step::Row(row(Side::Right, 2, 5, 11, 5)),
        Step::Row(row(Side::Right, 1, 5, 12, 5)),
        Step::Watermark(6),
    ];
    let operator = join(Keys::Integer, JoinKind::Left, false);
    let driven = check_operator(&operator, &script(Keys::Integer, &steps, 2));
    let mut found = numbers(&driven.changes());
    found.sort_unstable();
    assert_eq!(found, [(0, Some(12)), (1, Some(11))]);
    assert_eq!(operator.output_watermark(Watermark(5)), Some(Watermark(4)));
}

/// The left side may be a changelog: a row and its retraction meet the same version.
#[test]
fn rows_of_the_left_side_keep_their_kinds() {
    let kind = |kind, row: Row| Step::Row(Row { kind, ..row });
    let steps = [
        Step::Row(row(Side::Right, 1, 0, 7, i64::MIN)),
        Step::Row(row(Side::Left, 1, 5, 0, i64::MIN)),
        kind(RowKind::UpdateBefore, row(Side::Left, 1, 5, 0, 1)),
        kind(RowKind::UpdateAfter, row(Side::Left, 1, 5, 3, 1)),
        kind(RowKind::Delete, row(Side::Left, 1, 5, 3, 1)),
        Step::Row(row(Side::Left, 1, 5, 4, i64::MIN)),
    ];
    let script = script(Keys::Integer, &steps, 1);
    let driven =
        drive(&join(Keys::Integer, JoinKind::Inner, false), &script, &DriveOptions::default());
    let driven = driven.unwrap();
    assert_eq!(driven.final_rows().len(), 1);
    let kinds: Vec<_> = driven.changes().iter().map(|row| row[0].clone()).collect();
    assert_eq!(kinds, ["+I", "-U", "+U", "-D", "+I"].map(Value::text));
}

/// Everything kept, everything looked at.
fn naive(keys: Keys, kind: JoinKind, has_residual: bool, steps: &[Step]) -> Vec<Vec<Value>> {
    let mut versions: Vec<Row> = Vec::new();
    let mut lefts: Vec<Row> = Vec::new();
    for step in steps {
        match step {
            Step::Row(row) if row.side == Side::Left => lefts.push(*row),
            Step::Row(row) => versions.push(*row),
            Step::Watermark(_) => {}
        }
    }
    let at = |row: &Row| row.time.max(row.before);
    lefts.sort_by_key(|row| (at(row), row.time));
    let mut changes = Vec::new();
    for left in &lefts {
        let seen: Vec<&Row> = versions
            .iter()
            .filter(|version| version.kind != RowKind::UpdateBefore)
            .filter(|version| version.key.is_some() && version.key == left.key)
            .filter(|version| at(version) <= at(left))
            .collect();
        // What was seen before a deletion that stands behind it in time is gone.
        let hidden = |version: &&&Row| {
            let after = seen.iter().position(|other| std::ptr::eq(**version, *other)).unwrap();
            seen.iter().enumerate().any(|(place, other)| {
                other.kind == RowKind::Delete
                    && (other.time, place) > (version.time, after)
                    && at(version) <= at(other)
            })
        };
        let latest = seen
            .iter()
            .filter(|version| version.kind != RowKind::Delete)
            .filter(|version| !hidden(version))
            .enumerate()
            .max_by_key(|(place, version)| (version.time, *place))
            .map(|(_, version)| **version)
            .filter(|version| version.time <= left.time)
            .filter(|version| !has_residual || left.n < version.n);
        if latest.is_some() || kind == JoinKind::Left {
            changes.push(pair(keys, Some(left), latest.as_ref()));
        }
    }
    changes
}

#[test]
fn random_rows_give_what_plain_loops_give() {
    for seed in 0..30u64 {
        let random = &mut SplitMix64::new(seed);
        let kind = [JoinKind::Inner, JoinKind::Left][seed as usize % 2];
        let keys = if seed % 4 == 3 { Keys::Text } else { Keys::Integer };
        let has_residual = seed / 2 % 3 == 1;
        let shape = Shape {
            rows: 250,
            keys: [1, 3, 20][seed as usize % 3],
            disorder_ms: [0, 12, 30][random.below(3) as usize],
            delay_ms: [0, 8, 25][random.below(3) as usize],
        };
        let what = format!("seed {seed}: {kind:?} {keys:?} {has_residual} {shape:?}");
        let steps: Vec<Step> = random_steps(shape, random)
            .into_iter()
            .map(|step| match step {
                Step::Row(row) if row.side == Side::Right && seed % 5 > 0 => {
                    let kinds = [RowKind::Delete, RowKind::UpdateBefore];
                    let kind = match random.below(8) {
                        choice @ 0..2 => kinds[choice as usize],
                        _ => RowKind::UpdateAfter,
                    };
                    Step::Row(Row { kind, ..row })
                }
                step => step,
            })
            .collect();
        let expected = naive(keys, kind, has_residual, &steps);
        let mut operator = join(keys, kind, has_residual);
        if seed % 5 == 0 {
            operator = operator.append_only_versions();
        }
        let script = script(keys, &steps, 1 + seed as u32 % 2);
        check_damaged_state(&operator, &script);
        let driven = check_operator(&operator, &script);
        for (partitions, bundle_rows) in [(1, 1), (2, 5), (3, 40)] {
            let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
            check_captures(&operator, &script, &options);
        }
        let rows = |changes: Vec<Vec<Value>>| changes;
        assert_same_rows(&rows(driven.changes()), &expected, &what);
        let options = DriveOptions { bundle_rows: 1, refuse: true, ..DriveOptions::default() };
        let single = drive(&operator, &script, &options).unwrap();
        assert_same_rows(&rows(single.changes()), &expected, &format!("{what}, one by one"));
    }
}

/// Keys that never come again and have no version are forgotten; old versions are dropped.
#[test]
fn memory_follows_versions_and_waiting_rows() {
    let mut steps = Vec::new();
    for n in 0..100_000i64 {
        let time = n / 10;
        steps.push(Step::Row(match n % 2 {
            0 => row(Side::Left, n, time, n, time - 5),
            _ => row(Side::Right, n % 10, time, n, time - 5),
        }));
        if n % 1000 == 999 {
            steps.push(Step::Watermark(time - 5));
        }
    }
    let operator = join(Keys::Integer, JoinKind::Left, false);
    let options = DriveOptions { bundle_rows: 500, ..DriveOptions::default() };
    let driven = drive(&operator, &script(Keys::Integer, &steps, 1), &options).unwrap();
    assert_eq!(driven.changes().len(), 50_000);
    assert!(driven.peak_state_bytes < 6_000_000, "{}", driven.peak_state_bytes);
}

#[test]
fn waiting_rows_are_captured_once() {
    let mut feed = Feed::new(&join(Keys::Integer, JoinKind::Left, false));
    let left = |kind, time, n| Row { kind, ..row(Side::Left, n, time, n, i64::MIN) };
    let waiting =
        |feed: &mut Feed| capture_table(&mut *feed.partition, Extent::Incremental, "waiting_rows");
    feed.rows((0..20_000).map(|n| left(RowKind::Insert, 100 + n % 2 * 100, n)), 1);
    let all = waiting(&mut feed);
    assert_eq!((all.rows, all.extent), (20_000, Extent::Full), "the first");
    feed.rows((0..100).map(|n| left(RowKind::Delete, 150, n)), 1);
    let few = waiting(&mut feed);
    assert_eq!((few.rows, few.removed, few.extent), (100, 0, Extent::Incremental));
    assert!(few.bytes * 100 < all.bytes, "{} bytes, and {} for all", few.bytes, all.bytes);
    feed.pass(150);
    let none = waiting(&mut feed);
    assert_eq!((none.rows, none.removed, none.kept_from), (0, 0, Some(150)), "the rest expires");
    assert_eq!(capture_table(&mut *feed.partition, Extent::Full, "waiting_rows").rows, 10_100);
}

/// Earlier versions captured all rows like those that came late.
#[test]
fn rows_that_came_late_say_when_they_are_due() {
    let operator = join(Keys::Integer, JoinKind::Left, false);
    let kept = |feed: &mut Feed| {
        let tables = ["waiting_rows", "late", "overdue"];
        tables.map(|name| capture_table(&mut *feed.partition, Extent::Full, name).rows)
    };
    let restored = |captured: &Restored| {
        let mut other = Feed::new(&operator);
        other.partition.restore(captured).unwrap();
        other
    };
    let mut feed = Feed::new(&operator);
    let left = |time, n| row(Side::Left, n, time, n, i64::MIN);
    feed.rows_behind(120, (0..10).map(|n| left(100, n)), 1);
    feed.rows_behind(120, (0..5).map(|n| left(121, n)), 1);
    assert_eq!(kept(&mut feed), [5, 10, 0]);
    let captured = capture_all(std::slice::from_mut(&mut feed.partition)).unwrap();
    check_damaged(&operator, std::slice::from_mut(&mut feed.partition));
    for mut feed in [restored(&captured), feed] {
        feed.pass(120);
        assert_eq!(kept(&mut feed), [5, 10, 0], "none was due");
        feed.pass(121);
        assert_eq!(kept(&mut feed), [5, 0, 0]);
        feed.pass(122);
        assert_eq!(kept(&mut feed), [0, 0, 0]);
    }
}

/// A watermark may be ahead of that of a lane: rows come when their time is over, also those with
/// kinds.
#[test]
fn changes_put_together_are_the_whole_where_rows_come_when_their_time_is_over() {
    for seed in 0..20u64 {
        let random = &mut SplitMix64::new(seed);
        let shape = Shape { rows: 200, keys: 5, disorder_ms: 40, delay_ms: 3 };
        let kinds = [RowKind::Insert, RowKind::Insert, RowKind::UpdateAfter, RowKind::Delete];
        let steps = random_steps(shape, random).into_iter().map(|step| match step {
            Step::Row(row) => {
                let before = if random.below(3) == 0 { i64::MIN } else { row.before };
                Step::Row(Row { before, kind: kinds[random.below(4) as usize], ..row })
            }
            step => step,
        });
        let steps: Vec<Step> = steps.collect();
        let operator = join(Keys::Text, JoinKind::Left, false);
        for (partitions, bundle_rows) in [(1, 1), (3, 7)] {
            let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
            check_captures(&operator, &script(Keys::Text, &steps, 2), &options);
        }
    }
}
