use thalweg_core::shim::SplitMix64;
use thalweg_core::{ErrorKind, Extent, Operator, RowKind, Watermark};

use super::{IntervalJoin, IntervalJoinSpec};
use crate::join::JoinKind;
use crate::join::bounded::fixture::{
    Feed, Keys, Row, Shape, Step, pair, random_steps, script, sides, smaller_on_the_left, values,
};
use crate::join::equi::EquiJoin;
use crate::join::sides::Side;
use crate::reference::Value;
use crate::test_kit::{
    DriveOptions, assert_same_rows, capture_table, check_captures, check_damaged_state,
    check_operator, drive, rows_of,
};
use crate::window::LatePolicy;

fn join(keys: Keys, kind: JoinKind, bounds: (i64, i64), has_residual: bool) -> IntervalJoin {
    let spec = IntervalJoinSpec {
        join: EquiJoin {
            sides: sides(keys),
            kind,
            left_keys: vec![0],
            right_keys: vec![1],
            residual: has_residual.then(smaller_on_the_left),
        },
        left_time: 1,
        right_time: 0,
        lower_ms: bounds.0,
        upper_ms: bounds.1,
        late: LatePolicy::Emit,
    };
    IntervalJoin::new(spec).unwrap()
}

fn row(side: Side, key: i64, time: i64, n: i64, before: i64) -> Row {
    Row { side, key: Some(key), time, n, before, kind: RowKind::Insert }
}

/// The golden cases interval_join_inner and interval_join_full: `st BETWEEN ot - 1 s AND ot + 5 s`.
fn golden() -> Vec<Step> {
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
    let side = |side, rows: &[(Option<i64>, i64)]| -> Vec<Step> {
        let mut before = i64::MIN;
        let rows = rows.iter().enumerate().map(|(n, &(key, time))| {
            let row = Row { side, key, time, n: n as i64, before, kind: RowKind::Insert };
            before = before.max(time - 2_000);
            Step::Row(row)
        });
        rows.collect()
    };
    let mut steps = side(Side::Left, &lefts);
    steps.extend(side(Side::Right, &rights));
    steps
}

fn numbers(rows: &[Vec<Value>]) -> Vec<(Option<i64>, Option<i64>)> {
    let number = |value: &Value| match value {
        Value::Integer(n) => Some(*n),
        _ => None,
    };
    rows.iter().map(|row| (number(&row[2]), number(&row[5]))).collect()
}

#[test]
fn the_golden_pairs() {
    let script = script(Keys::Integer, &golden(), 2);
    let inner =
        check_operator(&join(Keys::Integer, JoinKind::Inner, (-5_000, 1_000), false), &script);
    let pairs = [(0, 0), (0, 1), (1, 3), (2, 5)].map(|(l, r)| (Some(l), Some(r)));
    assert_eq!(numbers(&inner.changes()), pairs);
    let full =
        check_operator(&join(Keys::Integer, JoinKind::Full, (-5_000, 1_000), false), &script);
    let mut all = pairs.to_vec();
    all.extend([2, 4, 6, 7].map(|r| (None, Some(r))));
    all.extend([3, 4].map(|l| (Some(l), None)));
    let mut found = numbers(&full.changes());
    found.sort_unstable();
    all.sort_unstable();
    assert_eq!(found, all);
    assert!(full.final_state_bytes < 4096, "all is forgotten: {}", full.final_state_bytes);
}

/// The golden case interval_join_late: the row at 1 s comes at watermark 58 s.
#[test]
fn a_row_that_can_meet_nobody_any_more_is_late() {
    let steps = [
        row(Side::Left, 1, 0, 0, i64::MIN),
        row(Side::Left, 2, 60_000, 1, -2_000),
        row(Side::Left, 1, 1_000, 2, 58_000),
        row(Side::Right, 1, 2_000, 0, i64::MIN),
        row(Side::Right, 2, 62_000, 1, 0),
    ];
    let script = script(Keys::Integer, &steps.map(Step::Row), 2);
    let driven =
        check_operator(&join(Keys::Integer, JoinKind::Inner, (-5_000, 1_000), false), &script);
    assert_eq!(numbers(&driven.changes()), [(Some(0), Some(0)), (Some(1), Some(1))]);
    assert_eq!((driven.accepted, driven.late), (4, 1));
    let late = rows_of(&driven.late_rows);
    assert_eq!(late[0][..2], [Value::Boolean(false), Value::Integer(1)]);
}

/// With `WATERMARK FOR ts AS ts` a second row of the same time is behind its watermark, but it
/// still meets whoever is not done.
#[test]
fn equal_times_without_delay_are_not_late() {
    let steps = [
        row(Side::Left, 1, 10, 0, i64::MIN),
        row(Side::Left, 1, 10, 1, 10),
        row(Side::Right, 1, 9, 0, i64::MIN),
        row(Side::Right, 1, 9, 1, 9),
    ];
    let script = script(Keys::Integer, &steps.map(Step::Row), 2);
    let driven = check_operator(&join(Keys::Integer, JoinKind::Inner, (-5, 5), false), &script);
    assert_eq!(driven.late, 0);
    assert_eq!(driven.changes().len(), 4);
}

/// One row after the other, everything looked at.
struct Naive {
    keys: Keys,
    kind: JoinKind,
    bounds: (i64, i64),
    has_residual: bool,
    kept: Vec<(Row, bool)>,
    changes: Vec<Vec<Value>>,
    late: Vec<Row>,
}

impl Naive {
    fn meet(&self, left: &Row, right: &Row) -> bool {
        let (lower, upper) = self.bounds;
        // The first time that is not passed, for a row behind its watermark.
        let effective = |row: &Row| row.time.max(row.before.saturating_add(1));
        left.key.is_some()
            && left.key == right.key
            && right.time + lower <= left.time
            && left.time <= right.time + upper
            && effective(right) + lower <= left.time
            && effective(left) <= right.time + upper
            && (!self.has_residual || left.n < right.n)
    }

    fn done_at(&self, row: &Row) -> i64 {
        match row.side {
            Side::Left => row.time - self.bounds.0,
            Side::Right => row.time + self.bounds.1,
        }
    }

    fn row(&mut self, row: Row) {
        if row.time <= row.before && self.done_at(&row) <= row.before {
            self.late.push(row);
            return;
        }
        let mut is_matched = false;
        for place in 0..self.kept.len() {
            let (other, other_matched) = self.kept[place];
            let (left, right) =
                if row.side == Side::Left { (&row, &other) } else { (&other, &row) };
            if other.side == row.side || !self.meet(left, right) {
                continue;
            }
            let left_matched = if row.side == Side::Left { is_matched } else { other_matched };
            match self.kind {
                JoinKind::Semi if !left_matched => {
                    self.changes.push(values(self.keys, Side::Left, Some(left)));
                }
                JoinKind::Semi | JoinKind::Anti => {}
                _ => self.changes.push(pair(self.keys, Some(left), Some(right))),
            }
            self.kept[place].1 = true;
            is_matched = true;
        }
        self.kept.push((row, is_matched));
    }

    fn watermark(&mut self, watermark: i64) {
        let mut done = Vec::new();
        for place in (0..self.kept.len()).rev() {
            let (row, is_matched) = self.kept[place];
            if self.done_at(&row) > watermark {
                continue;
            }
            self.kept.remove(place);
            let leaves = match row.side {
                Side::Left => self.kind.pads_left_rows() || self.kind == JoinKind::Anti,
                Side::Right => self.kind.pads_right_rows(),
            };
            if leaves && !is_matched {
                done.push(row);
            }
        }
        done.reverse();
        done.sort_by_key(|row| (self.done_at(row), row.side));
        for row in &done {
            self.changes.push(match (row.side, self.kind) {
                (_, JoinKind::Anti) => values(self.keys, Side::Left, Some(row)),
                (Side::Left, _) => pair(self.keys, Some(row), None),
                (Side::Right, _) => pair(self.keys, None, Some(row)),
            });
        }
    }
}

fn naive(
    keys: Keys,
    kind: JoinKind,
    bounds: (i64, i64),
    has_residual: bool,
    steps: &[Step],
) -> Naive {
    let (kept, changes, late) = Default::default();
    let mut naive = Naive { keys, kind, bounds, has_residual, kept, changes, late };
    for step in steps {
        match step {
            Step::Row(row) => naive.row(*row),
            Step::Watermark(watermark) => naive.watermark(*watermark),
        }
    }
    naive
}

/// Every kind, with bounds on either side of zero, rows out of order and behind their watermarks.
#[test]
fn random_rows_give_what_plain_loops_give() {
    for seed in 0..30u64 {
        let random = &mut SplitMix64::new(seed);
        let kind = JoinKind::ALL[seed as usize % 6];
        let keys = if seed % 4 == 3 { Keys::Text } else { Keys::Integer };
        let bounds =
            [(-7, 5), (0, 0), (3, 9), (-9, -3), (-100, 100), (0, 40), (5, 2)][seed as usize % 7];
        let has_residual = seed % 3 == 1;
        let shape = Shape {
            rows: 150,
            keys: [1, 3, 20][seed as usize % 3],
            disorder_ms: [0, 12, 30][random.below(3) as usize],
            delay_ms: [0, 8, 25][random.below(3) as usize],
        };
        let what = format!("seed {seed}: {kind:?} {keys:?} {bounds:?} {has_residual} {shape:?}");
        let steps = random_steps(shape, random);
        let expected = naive(keys, kind, bounds, has_residual, &steps);
        let operator = join(keys, kind, bounds, has_residual);
        let script = script(keys, &steps, 1 + seed as u32 % 2);
        check_damaged_state(&operator, &script);
        let driven = check_operator(&operator, &script);
        for (partitions, bundle_rows) in [(1, 1), (2, 5), (3, 40)] {
            let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
            check_captures(&operator, &script, &options);
        }
        assert_same_rows(&driven.changes(), &expected.changes, &what);
        let options = DriveOptions { bundle_rows: 1, refuse: true, ..DriveOptions::default() };
        let single = drive(&operator, &script, &options).unwrap();
        assert_same_rows(&single.changes(), &expected.changes, &format!("{what}, one by one"));
        assert_eq!(driven.late, expected.late.len() as u64, "{what}");
        assert!(driven.final_state_bytes < 16_384, "{what}: {}", driven.final_state_bytes);
        assert_times_in_reach(&operator, &driven.changes(), bounds, &what);
    }
}

/// No pair is wider than the watermark is held back by.
fn assert_times_in_reach(join: &IntervalJoin, rows: &[Vec<Value>], bounds: (i64, i64), what: &str) {
    let held = join.output_watermark(Watermark(1_000)).unwrap();
    assert_eq!(held.0, 1_000 - bounds.1.max(-bounds.0).max(0), "{what}");
    for row in rows.iter().filter(|row| row.len() == 6) {
        if let (Value::Integer(left), Value::Integer(right)) = (&row[1], &row[3]) {
            assert!((left - right).abs() <= bounds.1.abs().max(bounds.0.abs()), "{what}: {row:?}");
        }
    }
}

/// State follows what can still meet, also where keys never come again and a watermark is far
/// behind.
#[test]
fn memory_follows_the_interval() {
    let mut steps = Vec::new();
    for n in 0..200_000i64 {
        let side = if n % 2 == 0 { Side::Left } else { Side::Right };
        steps.push(Step::Row(row(side, n / 2, n / 100, n, n / 100 - 10)));
        if n % 1000 == 999 {
            steps.push(Step::Watermark(n / 100 - 10));
        }
    }
    let script = script(Keys::Integer, &steps, 1);
    let operator = join(Keys::Integer, JoinKind::Inner, (-10, 10), false);
    let options = DriveOptions { bundle_rows: 500, ..DriveOptions::default() };
    let driven = drive(&operator, &script, &options).unwrap();
    assert_eq!(driven.changes().len(), 100_000);
    assert!(driven.peak_state_bytes < 2_000_000, "{}", driven.peak_state_bytes);
    assert!(driven.final_state_bytes < 32_768, "{}", driven.final_state_bytes);
}

#[test]
fn errors_of_data_are_named() {
    let mut spec_row = row(Side::Left, 1, 5, 0, 90);
    spec_row.before = 90;
    let script = script(Keys::Integer, &[Step::Row(spec_row)], 1);
    let mut strict = join(Keys::Integer, JoinKind::Inner, (-1, 1), false);
    let shared = std::sync::Arc::get_mut(&mut strict.shared).unwrap();
    shared.spec.late = LatePolicy::Fail;
    let error = drive(&strict, &script, &DriveOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().contains("came late"), "{error}");
}

#[test]
fn a_side_whose_columns_nobody_reads_is_captured_once() {
    let mut feed = Feed::new(&join(Keys::Integer, JoinKind::Semi, (-100, 100), false));
    let right = |feed: &mut Feed| capture_table(&mut *feed.partition, Extent::Incremental, "right");
    let rows = |times: std::ops::Range<i64>| times.map(|n| row(Side::Right, n, n, n, i64::MIN));
    feed.rows(rows(0..20_000), 1);
    let all = right(&mut feed);
    assert_eq!((all.rows, all.extent), (20_000, Extent::Full), "the first");
    feed.rows(rows(19_900..20_100), 1);
    let few = right(&mut feed);
    assert_eq!((few.rows, few.removed, few.extent), (200, 0, Extent::Incremental));
    assert!(few.bytes * 50 < all.bytes, "{} bytes, and {} for all", few.bytes, all.bytes);
    feed.pass(10_099);
    let none = right(&mut feed);
    assert_eq!((none.rows, none.removed, none.kept_from), (0, 0, Some(10_000)), "the rest expires");
    assert_eq!(capture_table(&mut *feed.partition, Extent::Full, "right").rows, 10_200);
}
