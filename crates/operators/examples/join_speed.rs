//! How fast regular joins and set operations take rows, on one thread, with data in memory.
//!
//! Run with `cargo run --release -p thalweg-operators --example join_speed`. Each line is the best
//! of several passes over bundles of 8192 rows, in million rows of input per second. Keys are mixed
//! 64-bit numbers, and each row has one partner; next to the key a row has one number.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use thalweg_core::shim::{SplitMix64, SystemClock, mix64};
use thalweg_core::{
    Bundle, Column, DataType, Error, Operator, Output, PartitionContext, Piece, RowKind, Stamps,
    TableSchema,
};
use thalweg_operators::join::JoinKind;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::regular::{JoinSpec, RegularJoin};
use thalweg_operators::join::set_operation::{SetOperation, SetOperationKind};
use thalweg_operators::join::sides::Sides;

const ROWS: usize = 8192;
const PASSES: usize = 3;

/// A row: true for the right side, what it does, key, number.
type Row = (bool, RowKind, u64, i64);

fn main() -> Result<(), Error> {
    let million = 1 << 20;
    for (name, keys) in [("64 Ki keys", 1 << 16), ("1 Mi keys", million)] {
        let apart = bundles(&side_by_side(keys, ROWS as u64), false);
        report(
            &format!("inner, {name}, a bundle of either side in turn"),
            &join(JoinKind::Inner)?,
            &apart,
        )?;
    }
    let mixed = bundles(&side_by_side(million, 1), false);
    report("inner, 1 Mi keys, sides row by row", &join(JoinKind::Inner)?, &mixed)?;
    let apart = bundles(&side_by_side(million, ROWS as u64), false);
    for kind in [JoinKind::Left, JoinKind::Full, JoinKind::Semi, JoinKind::Anti] {
        report(&format!("{kind:?}, 1 Mi keys"), &join(kind)?, &apart)?;
    }
    let updated = bundles(&updates(1 << 16, 40), true);
    report(
        "inner, 64 Ki keys, each row updated again and again",
        &join(JoinKind::Inner)?,
        &updated,
    )?;
    let hot = bundles(&hot(1 << 16), true);
    report("anti, one key, 64 Ki rows come and go in any order", &join(JoinKind::Anti)?, &hot)?;
    let intersect = SetOperation::new(sides(), SetOperationKind::Intersect, false)?;
    report("INTERSECT, 1 Mi rows", &intersect, &apart)
}

fn sides() -> Sides {
    let schema = || {
        TableSchema::new(vec![
            Column::new("k", DataType::BigInt.nullable()),
            Column::new("v", DataType::BigInt.nullable()),
        ])
    };
    Sides::new(schema(), schema())
}

fn join(kind: JoinKind) -> Result<RegularJoin, Error> {
    RegularJoin::new(JoinSpec {
        join: EquiJoin {
            sides: sides(),
            kind,
            left_keys: vec![0],
            right_keys: vec![0],
            residual: None,
        },
        null_equals_null: vec![false],
        left_unique: false,
        right_unique: false,
        state_ttl_ms: (None, None),
    })
}

/// Each key once on either side, the sides in turn.
fn side_by_side(keys: u64, turn: u64) -> Vec<Row> {
    let of_turn = |start: u64| {
        [false, true].into_iter().flat_map(move |side| {
            (start..start + turn).map(move |key| (side, RowKind::Insert, mix64(key), key as i64))
        })
    };
    (0..keys).step_by(turn as usize).flat_map(of_turn).collect()
}

/// Rows of random keys are replaced.
fn updates(keys: u64, times: i64) -> Vec<Row> {
    let mut random = SplitMix64::new(1);
    let mut rows = side_by_side(keys, 1);
    let mut numbers: [Vec<i64>; 2] = [0, 1].map(|_| (0..keys as i64).collect());
    for n in 0..keys as i64 * times {
        let (side, key) = (random.below(2) as usize, random.below(keys));
        let number = &mut numbers[side][key as usize];
        rows.push((side == 1, RowKind::UpdateBefore, mix64(key), *number));
        *number = n;
        rows.push((side == 1, RowKind::UpdateAfter, mix64(key), n));
    }
    rows
}

/// Rows of one key and one side.
fn hot(count: u64) -> Vec<Row> {
    let mut random = SplitMix64::new(2);
    let mut live: Vec<i64> = (0..count as i64).collect();
    let mut rows: Vec<Row> = live.iter().map(|&n| (false, RowKind::Insert, 7, n)).collect();
    for n in 0..4 * count as i64 {
        let place = &mut live[random.below(count) as usize];
        rows.push((false, RowKind::Delete, 7, *place));
        *place = count as i64 + n;
        rows.push((false, RowKind::Insert, 7, *place));
    }
    rows
}

fn bundles(rows: &[Row], is_changelog: bool) -> Vec<Bundle> {
    let bundle = |rows: &[Row]| {
        let of_side = |side: bool, value: fn(&Row) -> i64| -> ArrayRef {
            let values = rows.iter().map(|row| (row.0 == side).then(|| value(row)));
            Arc::new(values.collect::<Int64Array>())
        };
        let tags: ArrayRef = Arc::new(BooleanArray::from_iter(rows.iter().map(|row| Some(row.0))));
        let key = |row: &Row| row.2 as i64;
        let mut columns = vec![tags];
        for side in [false, true] {
            columns.push(of_side(side, key));
            columns.push(of_side(side, |row| row.3));
        }
        let batch = RecordBatch::try_new(sides().combined().arrow(), columns)?;
        let mut bundle = Bundle::new(batch, Stamps::first());
        bundle.kinds = is_changelog.then(|| rows.iter().map(|row| row.1).collect());
        Ok(bundle)
    };
    let bundles: Result<Vec<Bundle>, Error> = rows.chunks(ROWS).map(bundle).collect();
    bundles.expect("columns of the declared types")
}

fn report(name: &str, operator: &dyn Operator, bundles: &[Bundle]) -> Result<(), Error> {
    let rows: usize = bundles.iter().map(Bundle::num_rows).sum();
    let (mut best, mut emitted, mut state_bytes) = (0.0_f64, 0, 0);
    for _ in 0..PASSES {
        let mut partition = operator.open(PartitionContext::only())?;
        let clock = Arc::new(SystemClock::default());
        emitted = 0;
        let start = Instant::now();
        for bundle in bundles {
            let mut output = Output::new(clock.clone(), u64::MAX);
            partition.rows(Piece::whole(bundle, 2), &mut output)?;
            emitted += output.emitted.iter().map(|one| one.batch.num_rows()).sum::<usize>();
        }
        best = best.max(rows as f64 / start.elapsed().as_secs_f64() / 1e6);
        state_bytes = partition.state_bytes();
    }
    let state_mib = state_bytes >> 20;
    println!("{best:8.2} M rows/s  {emitted:9} out of {rows:9}, {state_mib:5} MiB  {name}");
    Ok(())
}
