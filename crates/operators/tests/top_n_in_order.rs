//! In ordered contracts Top-N and deduplication give one sequence, wherever bundles are cut and
//! however many partitions there are. (That one row at a time and one partition give the right rows
//! is what their own tests compare with plain lists.)

#[expect(dead_code, reason = "stateless stages are driven by another test")]
mod ordered_driver;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, Operator, TableSchema};
use thalweg_operators::sort::SortKey;
use thalweg_operators::test_kit::rows_of;
use thalweg_operators::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, RankFunction, TopN, TopNSpec,
};
use thalweg_operators::window::LatePolicy;

use ordered_driver::{Input, Schedule, assert_same, drive};

const TIME: usize = 1;
const WINDOW_END: usize = 2;
const VALUE: usize = 3;

/// Key, time, end of a window of 20 ms, value.
fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("key", DataType::STRING.nullable()),
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("window_end", DataType::Timestamp(3).not_null()),
        Column::new("value", DataType::BigInt.nullable()),
    ])
}

type Row = (Option<String>, i64, Option<i64>);

/// Rows out of order by less than the watermark allows, or by a little more.
fn inputs(rows: usize, keys: u64, random: &mut SplitMix64) -> Vec<Input> {
    let (mut now, mut running, mut last) = (0i64, i64::MIN, i64::MIN);
    let (mut inputs, mut waiting, mut befores) = (Vec::new(), Vec::<Row>::new(), Vec::new());
    for _ in 0..rows {
        now += random.below(4) as i64;
        let time = now - random.below(14) as i64;
        let key = (random.below(9) > 0).then(|| format!("key number {}", random.below(keys)));
        let value = random.below(12) as i64;
        waiting.push((key, time, (value > 0).then_some(value)));
        befores.push(running);
        running = running.max(time - 11);
        // The data decide where watermarks stand.
        if running.div_euclid(7) > last.div_euclid(7) {
            last = running;
            inputs.push(Input::Rows(batch(&waiting), std::mem::take(&mut befores)));
            waiting.clear();
            inputs.push(Input::Watermark(last));
        }
    }
    inputs.push(Input::Rows(batch(&waiting), befores));
    inputs.push(Input::Watermark(i64::MAX));
    inputs
}

fn batch(rows: &[Row]) -> RecordBatch {
    let times = |of: fn(i64) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| of(row.1))))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0.as_deref()).collect::<StringViewArray>()),
        times(|time| time),
        times(|time| time.div_euclid(20) * 20 + 20),
        Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns as declared")
}

/// Runs one row at a time in one partition, and in many other ways.
fn check(operator: &dyn Operator, inputs: &[Input], what: &str) {
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
    let rows = expected.rows().len();
    assert!(rows > 20, "{what}: {rows} rows");
}

fn top(keys: &[usize], function: RankFunction) -> TopNSpec {
    TopNSpec {
        keys: keys.to_vec(),
        order: vec![SortKey::descending(VALUE)],
        function,
        from: 1,
        to: 3,
        rank_column: Some("rn".to_owned()),
        input: schema(),
        retracts: false,
        unique: None,
        state_ttl_ms: None,
        window_end: None,
    }
}

#[test]
fn top_n() {
    use RankFunction::{DenseRank, Rank, RowNumber};
    for (seed, function) in (0..).zip([RowNumber, Rank, DenseRank]) {
        let inputs = inputs(600, 12, &mut SplitMix64::new(seed));
        let first = TopN::new(top(&[0], function)).expect("it fits");
        check(&first, &inputs, &format!("{seed} {function:?}"));
        // By window alone, and by window and key.
        for keys in [vec![WINDOW_END], vec![0, WINDOW_END]] {
            let spec = TopNSpec { window_end: Some(WINDOW_END), ..top(&keys, function) };
            let of_windows = TopN::new(spec).expect("it fits");
            check(&of_windows, &inputs, &format!("{seed} {function:?}, windows by {keys:?}"));
        }
    }
}

#[test]
fn deduplication() {
    for seed in 0..4 {
        let inputs = inputs(600, 200, &mut SplitMix64::new(seed));
        for keep in [Keep::First, Keep::Last] {
            for by in [DeduplicateBy::Arrival, DeduplicateBy::EventTime(TIME)] {
                let operator = Deduplicate::new(DeduplicateSpec {
                    keys: vec![0],
                    keep,
                    by,
                    input: schema(),
                    state_ttl_ms: None,
                    late: LatePolicy::Emit,
                });
                check(&operator.expect("it fits"), &inputs, &format!("{seed} {keep:?} {by:?}"));
            }
        }
    }
}
