//! What operators capture of their state takes little more than the rows that they keep.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::bundle::batch_bytes;
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Column, DataType, Operator, Output, PartitionContext, Piece, Stamps, TableSchema,
};
use thalweg_operators::join::JoinKind;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::interval::{IntervalJoin, IntervalJoinSpec};
use thalweg_operators::join::regular::{JoinSpec, RegularJoin};
use thalweg_operators::join::set_operation::{SetOperation, SetOperationKind};
use thalweg_operators::join::sides::Sides;
use thalweg_operators::join::temporal::{TemporalJoin, TemporalJoinSpec};
use thalweg_operators::join::window::{WindowJoin, WindowJoinSpec};
use thalweg_operators::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use thalweg_operators::sort::SortKey;
use thalweg_operators::test_kit::capture_all;
use thalweg_operators::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, RankFunction, TopN, TopNSpec,
};
use thalweg_operators::window::LatePolicy;

const ROWS: i64 = 100_000;

/// A key, a time, the start and the end of a window, and a number.
fn schema() -> TableSchema {
    let column = |name: &str, of: DataType| Column::new(name, of.not_null());
    TableSchema::new(vec![
        column("key", DataType::BigInt),
        column("ts", DataType::Timestamp(3)),
        column("window_start", DataType::Timestamp(3)),
        column("window_end", DataType::Timestamp(3)),
        column("n", DataType::BigInt),
    ])
}

fn columns() -> Vec<ArrayRef> {
    let time = |time: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values((0..ROWS).map(time)))
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let (start, end) = (time(&|n| n / 10_000 * 10_000), time(&|n| n / 10_000 * 10_000 + 10_000));
    vec![Arc::clone(&numbers), time(&|n| n), start, end, numbers]
}

/// Rows of the left side and of the right side in turn.
fn both_sides() -> (Sides, RecordBatch) {
    let sides = Sides::new(schema(), schema());
    let is_right = |n: i64| n % 2 == 1;
    let mut both: Vec<ArrayRef> =
        vec![Arc::new((0..ROWS).map(|n| Some(is_right(n))).collect::<BooleanArray>())];
    for right in [false, true] {
        let others: BooleanArray = (0..ROWS).map(|n| Some(is_right(n) != right)).collect();
        let own = |column: &ArrayRef| {
            arrow_select::nullif::nullif(column, &others).expect("columns of one length")
        };
        both.extend(columns().iter().map(own));
    }
    let batch = RecordBatch::try_new(sides.combined().arrow(), both).expect("as declared");
    (sides, batch)
}

/// How many bytes an operator captures for each that it keeps, where it keeps all rows.
fn ratio(operator: &dyn Operator, batch: &RecordBatch) -> f64 {
    let mut partition = operator.open(PartitionContext::only()).expect("a partition");
    let bundle = Bundle::new(batch.clone(), Stamps::first());
    let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
    let piece = Piece::whole(&bundle, 1);
    partition.rows(piece, &mut output).expect("rows without errors");
    let captured = capture_all(&mut [partition]).expect("the state is captured");
    let batches = captured.names().flat_map(|name| captured.table(name));
    let bytes: usize = batches.map(batch_bytes).sum();
    let raw: usize = columns().iter().map(|column| column.len() * 8).sum();
    bytes as f64 / raw as f64
}

fn check(operator: &dyn Operator, batch: &RecordBatch, what: &str) {
    let ratio = ratio(operator, batch);
    println!("{what}: {ratio:.2}");
    assert!((0.99..1.3).contains(&ratio), "{what}: {ratio:.2} times the bytes of the rows");
}

#[test]
fn joins() {
    let (sides, batch) = both_sides();
    for kind in [JoinKind::Inner, JoinKind::Full] {
        let regular = RegularJoin::new(JoinSpec {
            join: EquiJoin {
                sides: sides.clone(),
                kind,
                left_keys: vec![0],
                right_keys: vec![0],
                residual: None,
            },
            null_equals_null: vec![false],
            left_unique: false,
            right_unique: false,
            state_ttl_ms: (None, None),
        });
        check(&regular.expect("it fits"), &batch, &format!("regular, {kind:?}"));
        let interval = IntervalJoin::new(IntervalJoinSpec {
            join: EquiJoin {
                sides: sides.clone(),
                kind,
                left_keys: vec![0],
                right_keys: vec![0],
                residual: None,
            },
            left_time: 1,
            right_time: 1,
            lower_ms: -1000,
            upper_ms: 1000,
            late: LatePolicy::Drop,
        });
        check(&interval.expect("it fits"), &batch, &format!("interval, {kind:?}"));
        let window = WindowJoin::new(WindowJoinSpec {
            join: EquiJoin {
                sides: sides.clone(),
                kind,
                left_keys: vec![0],
                right_keys: vec![0],
                residual: None,
            },
            left_window: (2, 3),
            right_window: (2, 3),
        });
        // Rows of 40 bytes here, and 9 in front of each: whose it is, and its number. When it
        // expires is a column of it.
        check(&window.expect("it fits"), &batch, &format!("window, {kind:?}"));
    }
    let temporal = TemporalJoin::new(TemporalJoinSpec {
        join: EquiJoin {
            sides: sides.clone(),
            kind: JoinKind::Left,
            left_keys: vec![0],
            right_keys: vec![0],
            residual: None,
        },
        left_time: 1,
        right_time: 1,
    });
    // The same here: a row is due right behind its time.
    check(&temporal.expect("it fits"), &batch, "temporal");
}

#[test]
fn rows_that_wait_for_their_time() {
    let batch = RecordBatch::try_new(schema().arrow(), columns()).expect("as declared");
    let over = OverAggregate::new(OverSpec {
        keys: vec![2],
        time: OverTime::EventTime(1),
        frame: Frame::Rows { preceding: None },
        calls: vec![OverCall {
            function: OverFunction::RowNumber,
            result: DataType::BigInt.not_null(),
            name: "number".to_owned(),
        }],
        input: schema(),
        state_ttl_ms: None,
        late: LatePolicy::Drop,
    });
    check(&over.expect("it fits"), &batch, "over");
}

#[test]
fn set_operations_store_two_counts() {
    let (sides, batch) = both_sides();
    let except = SetOperation::new(sides, SetOperationKind::Except, true).expect("it fits");
    let ratio = ratio(&except, &batch);
    assert!((1.0..1.5).contains(&ratio), "{ratio:.2}");
}

#[test]
fn ranks_and_duplicates() {
    let batch = RecordBatch::try_new(schema().arrow(), columns()).expect("as declared");
    let top = TopN::new(TopNSpec {
        keys: vec![0],
        order: vec![SortKey::ascending(4)],
        function: RankFunction::RowNumber,
        from: 1,
        to: 3,
        rank_column: None,
        input: schema(),
        retracts: true,
        unique: None,
        state_ttl_ms: None,
        window_end: None,
    });
    check(&top.expect("it fits"), &batch, "top");
    let last = |state_ttl_ms| {
        Deduplicate::new(DeduplicateSpec {
            keys: vec![0],
            keep: Keep::Last,
            by: DeduplicateBy::Arrival,
            input: schema(),
            state_ttl_ms,
            late: LatePolicy::Drop,
        })
    };
    check(&last(None).expect("it fits"), &batch, "last");
    check(&last(Some(1000)).expect("it fits"), &batch, "last, for a limited time");
}
