use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, TimestampMillisecondArray};
use chrono_tz::Tz;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Column, DataType, Exchange, Extent, Operator, Output, Partition, PartitionContext,
    Piece, Progress, Restored, RowKind, Stamps, TableSchema, Watermark, WatermarkBefore,
};

use super::{WindowJoin, WindowJoinSpec};
use crate::join::JoinKind;
use crate::join::bounded::fixture::{
    Keys, Row, Shape, Step, pair, random_steps, script, sides, smaller_on_the_left, tagged, values,
};
use crate::join::equi::EquiJoin;
use crate::join::sides::{Side, Sides};
use crate::reference::Value;
use crate::test_kit::{
    DriveOptions, Event, assert_same_rows, capture_all, capture_table, check_captures,
    check_damaged, check_damaged_state, check_operator, drive, expiry_times, sorted,
};
use crate::window::KnownWindows;

/// The time of a row is both start and end of its window here: the rows of a window share both.
fn join(keys: Keys, kind: JoinKind, has_residual: bool) -> WindowJoin {
    let spec = WindowJoinSpec {
        join: EquiJoin {
            sides: sides(keys),
            kind,
            left_keys: vec![0],
            right_keys: vec![1],
            residual: has_residual.then(smaller_on_the_left),
        },
        left_window: (1, 1),
        right_window: (0, 0),
    };
    WindowJoin::new(spec).unwrap()
}

fn row(side: Side, key: Option<i64>, time: i64, n: i64, before: i64) -> Row {
    Row { side, key, time, n, before, kind: RowKind::Insert }
}

/// Rows in windows of this length: their time becomes its end.
fn windowed(steps: Vec<Step>, size_ms: i64) -> Vec<Step> {
    let end = |step| match step {
        Step::Row(row) => {
            let time = (row.time.div_euclid(size_ms) + 1) * size_ms;
            Step::Row(Row { time, ..row })
        }
        watermark => watermark,
    };
    steps.into_iter().map(end).collect()
}

/// The golden case window_join, windows of 10 s.
#[test]
fn the_golden_rows() {
    let lefts =
        [(Some(1), 0), (Some(2), 10_000), (Some(3), 20_000), (Some(4), 30_000), (None, 31_000)];
    let rights = [
        (Some(1), 0),
        (Some(1), 5_000),
        (Some(1), 5_001),
        (Some(2), 9_000),
        (Some(2), 8_999),
        (Some(3), 22_000),
        (None, 31_000),
        (Some(9), 91_000),
    ];
    let mut steps = Vec::new();
    for (side, rows) in [(Side::Left, &lefts[..]), (Side::Right, &rights[..])] {
        let mut before = i64::MIN;
        for (n, &(key, time)) in rows.iter().enumerate() {
            steps.push(Step::Row(row(side, key, time, n as i64, before)));
            before = before.max(time - 2_000);
        }
    }
    let script = script(Keys::Integer, &windowed(steps, 10_000), 2);
    let full = check_operator(&join(Keys::Integer, JoinKind::Full, false), &script);
    let number = |value: &Value| match value {
        Value::Integer(n) => *n,
        _ => -1,
    };
    let mut found: Vec<_> =
        full.changes().iter().map(|row| (number(&row[2]), number(&row[5]))).collect();
    found.sort_unstable();
    let expected = [
        (-1, 3),
        (-1, 4),
        (-1, 6),
        (-1, 7),
        (0, 0),
        (0, 1),
        (0, 2),
        (1, -1),
        (2, 5),
        (3, -1),
        (4, -1),
    ];
    assert_eq!(found, expected);
    assert!(full.final_state_bytes < 4096, "{}", full.final_state_bytes);
}

/// Windows one after the other; within each, keys in the order in which they first came.
fn naive(keys: Keys, kind: JoinKind, has_residual: bool, steps: &[Step]) -> (Vec<Vec<Value>>, u64) {
    let rows = steps.iter().filter_map(|step| match step {
        Step::Row(row) => Some(*row),
        Step::Watermark(_) => None,
    });
    let (taken, late): (Vec<Row>, Vec<Row>) = rows.partition(|row| row.time - 1 > row.before);
    let mut windows: Vec<i64> = taken.iter().map(|row| row.time).collect();
    windows.sort_unstable();
    windows.dedup();
    let mut changes = Vec::new();
    for window in windows {
        let of = |side| taken.iter().filter(move |row| row.side == side && row.time == window);
        let meets =
            |l: &Row, r: &Row| l.key.is_some() && l.key == r.key && (!has_residual || l.n < r.n);
        for l in of(Side::Left) {
            let partners: Vec<&Row> = of(Side::Right).filter(|r| meets(l, r)).collect();
            match kind {
                JoinKind::Semi | JoinKind::Anti => {
                    if partners.is_empty() == (kind == JoinKind::Anti) {
                        changes.push(values(keys, Side::Left, Some(l)));
                    }
                }
                _ => {
                    changes.extend(partners.iter().map(|r| pair(keys, Some(l), Some(r))));
                    if partners.is_empty() && kind.pads_left_rows() {
                        changes.push(pair(keys, Some(l), None));
                    }
                }
            }
        }
        for r in of(Side::Right) {
            if kind.pads_right_rows() && !of(Side::Left).any(|l| meets(l, r)) {
                changes.push(pair(keys, None, Some(r)));
            }
        }
    }
    (changes, late.len() as u64)
}

#[test]
fn random_rows_give_what_plain_loops_give() {
    for seed in 0..12u64 {
        let random = &mut SplitMix64::new(seed);
        let kind = JoinKind::ALL[seed as usize % 6];
        let keys = if seed % 4 == 3 { Keys::Text } else { Keys::Integer };
        let has_residual = seed / 6 == 1;
        let shape = Shape {
            rows: 200,
            keys: [1, 3, 20][seed as usize / 2 % 3],
            disorder_ms: [0, 12, 30][random.below(3) as usize],
            delay_ms: [0, 8, 25][random.below(3) as usize],
        };
        let what = format!("seed {seed}: {kind:?} {keys:?} {has_residual} {shape:?}");
        let steps = windowed(random_steps(shape, random), [5, 40, 1][seed as usize % 3]);
        let (expected, late) = naive(keys, kind, has_residual, &steps);
        let operator = join(keys, kind, has_residual);
        let script = script(keys, &steps, 1 + seed as u32 % 2);
        check_damaged_state(&operator, &script);
        let driven = check_operator(&operator, &script);
        assert_same_rows(&sorted(driven.changes()), &sorted(expected), &what);
        assert_eq!(driven.late, late, "{what}");
        for (partitions, bundle_rows) in [(1, 1), (2, 7), (3, 40)] {
            let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
            check_captures(&operator, &script, &options);
        }
        let options = DriveOptions { bundle_rows: 1, refuse: true, ..DriveOptions::default() };
        let single = drive(&operator, &script, &options).unwrap();
        assert!(driven.final_state_bytes < 16_384, "{what}: {}", driven.final_state_bytes);
        assert_eq!(single.changes().len(), driven.changes().len());
    }
}

/// Rows of a key leave in the order of their lanes, each side as it came, whichever bundles are
/// taken first. A join without keys has one partition, of which the sequence shows.
#[test]
fn the_sequence_of_a_window_does_not_depend_on_who_comes_first() {
    for seed in 0..24u64 {
        let random = &mut SplitMix64::new(seed);
        let shape = Shape { rows: 120, keys: 3, disorder_ms: 20, delay_ms: 25 };
        let steps = windowed(random_steps(shape, random), [10, 40][seed as usize % 2]);
        let operator = WindowJoin::new(WindowJoinSpec {
            join: EquiJoin {
                sides: sides(Keys::Integer),
                kind: JoinKind::ALL[seed as usize % 6],
                left_keys: vec![],
                right_keys: vec![],
                residual: Some(smaller_on_the_left()),
            },
            left_window: (1, 1),
            right_window: (0, 0),
        })
        .unwrap();
        let script = script(Keys::Integer, &steps, 1 + seed as u32 / 12);
        let plain = drive(&operator, &script, &DriveOptions::default()).unwrap();
        assert!(!plain.changes().is_empty(), "seed {seed}");
        for bundle_rows in [1, 7] {
            let options = DriveOptions { bundle_rows, seed, early: true, ..Default::default() };
            let driven = drive(&operator, &script, &options).unwrap();
            let what = format!("seed {seed}, {bundle_rows} rows");
            assert_same_rows(&driven.changes(), &plain.changes(), &what);
        }
    }
}

/// Rows of one key leave as they came, whatever the bundles; the rows of many steps of one key are
/// whole.
#[test]
fn a_hot_key_leaves_in_order_over_many_steps() {
    let mut steps = Vec::new();
    for n in 0..300 {
        let side = if n % 3 == 0 { Side::Left } else { Side::Right };
        steps.push(Step::Row(row(side, Some(1), 10, n, i64::MIN)));
    }
    for has_residual in [false, true] {
        let (expected, _) = naive(Keys::Integer, JoinKind::Full, has_residual, &steps);
        let operator = join(Keys::Integer, JoinKind::Full, has_residual);
        let script = script(Keys::Integer, &steps, 1);
        let driven = check_operator(&operator, &script);
        assert_same_rows(&driven.changes(), &expected, "the hot key");
    }
}

/// Ends are local: 01:00 in Berlin in winter is over an hour before it is in UTC.
#[test]
fn windows_in_a_zone_close_by_its_clocks() {
    let windows = KnownWindows { zone: Some(Tz::Europe__Berlin), ends: None };
    let operator = join(Keys::Integer, JoinKind::Full, false).of(windows);
    let end = 3_600_000;
    let steps = [
        Step::Row(row(Side::Left, Some(1), end, 0, -2)),
        Step::Row(row(Side::Right, Some(1), end, 1, -1)),
        Step::Watermark(-1),
    ];
    let driven = check_operator(&operator, &script(Keys::Integer, &steps, 1));
    assert_eq!(driven.late, 1, "the right row's watermark has closed the window");
    assert_eq!(driven.changes().len(), 1);
}

/// Sessions of one end may have different starts: those do not meet.
#[test]
fn windows_of_equal_ends_and_other_starts_are_apart() {
    let time = |name| Column::new(name, DataType::Timestamp(3).not_null());
    let schema = || TableSchema::new(vec![time("key"), time("start"), time("end")]);
    let sides = Sides::new(schema(), schema());
    let columns: [[Option<i64>; 6]; 3] = [
        [Some(1), Some(1), Some(2), None, None, None],
        [Some(3), Some(5), Some(3), None, None, None],
        [Some(9); 6],
    ];
    let of = |values: &[Option<i64>], side: Side| -> ArrayRef {
        // The rows of the right side have the same values in reverse.
        let own = |n: usize| if side == Side::Left { n < 3 } else { n >= 3 };
        let value = |n: usize| values[if n < 3 { n } else { 5 - n }];
        let values = (0..6).map(|n| if own(n) { value(n) } else { None });
        Arc::new(TimestampMillisecondArray::from_iter(values))
    };
    let mut arrays: Vec<ArrayRef> =
        vec![Arc::new(BooleanArray::from_iter((0..6).map(|n| Some(n >= 3))))];
    for side in [Side::Left, Side::Right] {
        arrays.extend(columns.iter().map(|values| of(values, side)));
    }
    let batch = RecordBatch::try_new(sides.combined().arrow(), arrays).unwrap();
    let rows =
        Event::Rows { lane: 0, batch, watermark_before: WatermarkBefore::All(Watermark::MIN) };
    let (left_window, right_window) = ((1, 2), (1, 2));
    let (left_keys, right_keys) = (vec![0], vec![0]);
    let kind = JoinKind::Inner;
    let spec = WindowJoinSpec {
        join: EquiJoin { sides, kind, left_keys, right_keys, residual: None },
        left_window,
        right_window,
    };
    let driven = check_operator(&WindowJoin::new(spec).unwrap(), &[rows]);
    let found: Vec<Vec<Value>> = driven.changes().iter().map(|row| row[..2].to_vec()).collect();
    let pair = |key, start| vec![Value::Integer(key), Value::Integer(start)];
    assert_same_rows(&found, &[pair(1, 3), pair(1, 5), pair(2, 3)], "pairs of one start");
}

/// One partition of an inner join, and its incremental captures.
struct Captured {
    partition: Box<dyn Partition>,
    exchange: Exchange,
}

impl Captured {
    fn new(kind: JoinKind) -> Self {
        let partition = join(Keys::Integer, kind, false).open(PartitionContext::only()).unwrap();
        Captured { partition, exchange: Exchange::new(1) }
    }

    /// Rows of both sides in the window with this end, and then perhaps a watermark. How many rows
    /// both tables hold, below which time nothing is left, and whether that is all.
    fn step(&mut self, end: i64, rows: i64, watermark: Option<i64>) -> (usize, i64, Extent) {
        let side = |n: i64| if n % 2 == 0 { Side::Left } else { Side::Right };
        let rows: Vec<Row> =
            (0..rows).map(|n| row(side(n), Some(n / 2), end, n, i64::MIN)).collect();
        let bundle = Bundle::new(tagged(Keys::Integer, &rows), Stamps::first());
        let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
        let piece = Piece::whole(&bundle, 1);
        self.partition.rows(piece, &mut output).unwrap();
        if let Some(watermark) = watermark.map(Watermark) {
            let call = WatermarkCall { watermark, phase: 0, exchange: &self.exchange };
            assert_eq!(self.partition.watermark(&call, &mut output).unwrap(), Progress::Done);
        }
        let mut captured = (0, 0, Extent::Full);
        for table in self.partition.capture(Extent::Incremental).unwrap().tables {
            (captured.1, captured.2) = (table.kept_from.unwrap(), table.extent);
            let rows = (table.rows)().unwrap();
            assert!(rows.removed.is_empty(), "rows expire");
            let is_kept =
                |rows: &RecordBatch| expiry_times(rows).iter().all(|&time| time >= captured.1);
            assert!(rows.rows.iter().all(is_kept), "nothing is captured that has expired");
            captured.0 += rows.rows.iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        captured
    }
}

#[test]
fn only_new_rows_are_captured_and_windows_expire() {
    for kind in [JoinKind::Full, JoinKind::Semi] {
        let mut join = Captured::new(kind);
        let first = join.step(1000, 5000, Some(10));
        assert_eq!(first, (5000, 12, Extent::Full), "the first");
        let more = join.step(1000, 50, Some(20));
        assert_eq!(more, (50, 22, Extent::Incremental), "rows that came");
        let other = join.step(2000, 40, Some(998));
        assert_eq!(other, (40, 1000, Extent::Incremental), "another window");
        let closed = join.step(2000, 10, Some(999));
        assert_eq!(closed, (10, 1001, Extent::Incremental), "one has closed");
        let again = join.step(1000, 20, None);
        assert_eq!(again, (20, 1001, Extent::Incremental), "a lane was idle");
        let left = join.step(2000, 0, Some(1500));
        assert_eq!(left, (50, 1502, Extent::Full), "its window has left");
        let end = join.step(2000, 0, Some(i64::MAX));
        assert_eq!(end, (0, i64::MAX, Extent::Full), "the end");
    }
}

/// A lane was idle: rows come for a window that has closed. Earlier versions captured all rows as
/// these are captured.
#[test]
fn rows_of_windows_that_were_over_say_when_they_expire() {
    let kept = |partition: &mut dyn Partition| {
        let tables = ["left_rows", "left_late", "right_rows", "right_late"];
        tables.map(|name| capture_table(partition, Extent::Full, name).rows)
    };
    // Nobody reads the right columns of a semi join.
    for kind in [JoinKind::Full, JoinKind::Semi] {
        let restored = |captured: &Restored| {
            let mut other = Captured::new(kind);
            other.partition.restore(captured).unwrap();
            kept(&mut *other.partition)
        };
        let mut join = Captured::new(kind);
        join.step(1000, 40, Some(999));
        join.step(1000, 20, None);
        join.step(2000, 6, None);
        assert_eq!(kept(&mut *join.partition), [3, 10, 3, 10]);
        let captured = capture_all(std::slice::from_mut(&mut join.partition)).unwrap();
        check_damaged(
            &self::join(Keys::Integer, kind, false),
            std::slice::from_mut(&mut join.partition),
        );
        assert_eq!(restored(&captured), [13, 0, 13, 0], "no watermark has come yet");
    }
}
