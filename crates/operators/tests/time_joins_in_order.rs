//! In ordered contracts the joins that time bounds give one sequence, wherever bundles are cut and
//! however many partitions there are. (That one row at a time and one partition give the right rows
//! is what their own tests compare with plain loops.)

#[expect(dead_code, reason = "stateless stages are driven by another test")]
mod ordered_driver;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, Operator, TableSchema};
use thalweg_operators::join::JoinKind;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::interval::{IntervalJoin, IntervalJoinSpec};
use thalweg_operators::join::sides::Sides;
use thalweg_operators::join::temporal::{TemporalJoin, TemporalJoinSpec};
use thalweg_operators::join::window::{WindowJoin, WindowJoinSpec};
use thalweg_operators::test_kit::rows_of;
use thalweg_operators::window::LatePolicy;

use ordered_driver::{Input, Schedule, assert_same, drive};

/// Key, time, start and end of a window of 20 ms.
fn sides() -> Sides {
    let schema = || {
        TableSchema::new(vec![
            Column::new("key", DataType::STRING.nullable()),
            Column::new("ts", DataType::Timestamp(3).not_null()),
            Column::new("window_start", DataType::Timestamp(3).not_null()),
            Column::new("window_end", DataType::Timestamp(3).not_null()),
        ])
    };
    Sides::new(schema(), schema())
}

/// Rows of both sides, out of order by less than the watermark allows, or by a little more.
fn inputs(rows: usize, random: &mut SplitMix64) -> Vec<Input> {
    let (mut now, mut running, mut last) = (0i64, i64::MIN, i64::MIN);
    let mut inputs = Vec::new();
    let (mut tags, mut keys, mut times, mut befores) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rows {
        now += random.below(4) as i64;
        let time = now - random.below(14) as i64;
        tags.push(random.below(2) == 1);
        keys.push((random.below(9) > 0).then(|| format!("key number {}", random.below(12))));
        times.push(time);
        befores.push(running);
        running = running.max(time - 11);
        // The data decide where watermarks stand.
        if running.div_euclid(7) > last.div_euclid(7) {
            last = running;
            inputs.push(Input::Rows(batch(&tags, &keys, &times), std::mem::take(&mut befores)));
            (tags, keys, times) = (vec![], vec![], vec![]);
            inputs.push(Input::Watermark(last));
        }
    }
    inputs.push(Input::Rows(batch(&tags, &keys, &times), befores));
    inputs.push(Input::Watermark(i64::MAX));
    inputs
}

fn batch(tags: &[bool], keys: &[Option<String>], times: &[i64]) -> RecordBatch {
    let mut columns: Vec<ArrayRef> = vec![Arc::new(BooleanArray::from(tags.to_vec()))];
    for side in [false, true] {
        let own = |row: usize| tags[row] == side;
        let rows = 0..tags.len();
        let of = |value: &dyn Fn(i64) -> i64| -> ArrayRef {
            let values = rows.clone().map(|row| own(row).then(|| value(times[row])));
            Arc::new(values.collect::<TimestampMillisecondArray>())
        };
        let keys = rows.clone().map(|row| keys[row].as_deref().filter(|_| own(row)));
        columns.push(Arc::new(keys.collect::<StringViewArray>()));
        columns.push(of(&|time| time));
        columns.push(of(&|time| time.div_euclid(20) * 20));
        columns.push(of(&|time| time.div_euclid(20) * 20 + 20));
    }
    RecordBatch::try_new(sides().combined().arrow(), columns).expect("columns as declared")
}

/// Runs one row at a time in one partition, and in many other ways.
fn check(operator: &dyn Operator, inputs: &[Input], what: &str) -> usize {
    let single = Schedule { partitions: 1, bundle_rows: 1, seed: 0, restores: false };
    let expected = drive(operator, inputs, &single);
    let ways = [(1, 1000), (2, 1), (3, 7), (8, 1000), (256, 13)];
    for (seed, (partitions, bundle_rows)) in (0..).zip(ways) {
        for restores in [false, true] {
            let schedule = Schedule { partitions, bundle_rows, seed, restores };
            let driven = drive(operator, inputs, &schedule);
            let what = format!("{what}, {schedule:?}");
            assert_same(&driven.rows(), &expected.rows(), &what);
            assert_same(&rows_of(&driven.late_rows), &rows_of(&expected.late_rows), &what);
        }
    }
    expected.rows().len()
}

#[test]
fn interval_joins() {
    for seed in 0..12u64 {
        let inputs = inputs(500, &mut SplitMix64::new(seed));
        let kind = JoinKind::ALL[seed as usize % 6];
        let (lower_ms, upper_ms) = [(-9, 6), (4, 12)][seed as usize / 6];
        let operator = IntervalJoin::new(IntervalJoinSpec {
            join: EquiJoin {
                sides: sides(),
                kind,
                left_keys: vec![0],
                right_keys: vec![0],
                residual: None,
            },
            left_time: 1,
            right_time: 1,
            lower_ms,
            upper_ms,
            late: LatePolicy::Emit,
        });
        let rows = check(&operator.expect("it fits"), &inputs, &format!("{seed} {kind:?}"));
        assert!(rows > 20, "{seed} {kind:?}: {rows} rows");
    }
}

#[test]
fn window_joins() {
    for seed in 0..6u64 {
        let inputs = inputs(500, &mut SplitMix64::new(seed));
        let kind = JoinKind::ALL[seed as usize % 6];
        let operator = WindowJoin::new(WindowJoinSpec {
            join: EquiJoin {
                sides: sides(),
                kind,
                left_keys: vec![0],
                right_keys: vec![0],
                residual: None,
            },
            left_window: (2, 3),
            right_window: (2, 3),
        });
        let rows = check(&operator.expect("it fits"), &inputs, &format!("{seed} {kind:?}"));
        assert!(rows > 20, "{seed} {kind:?}: {rows} rows");
    }
}

#[test]
fn temporal_joins() {
    for seed in 0..6u64 {
        let inputs = inputs(500, &mut SplitMix64::new(seed));
        let kind = [JoinKind::Inner, JoinKind::Left][seed as usize % 2];
        let operator = TemporalJoin::new(TemporalJoinSpec {
            join: EquiJoin {
                sides: sides(),
                kind,
                left_keys: vec![0],
                right_keys: vec![0],
                residual: None,
            },
            left_time: 1,
            right_time: 1,
        });
        let operator = operator.expect("it fits").append_only_versions();
        let rows = check(&operator, &inputs, &format!("{seed} {kind:?}"));
        assert!(rows > 20, "{seed} {kind:?}: {rows} rows");
    }
}
