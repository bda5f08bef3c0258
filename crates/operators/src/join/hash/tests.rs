//! A build side that is captured on the way, and when its table is there.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Column, DataType, Exchange, Extent, Operator, Output, Partition, PartitionContext,
    Piece, Restored, Stamps, TableSchema, Watermark, WatermarkBefore,
};

use super::{HashJoin, HashJoinSpec, Probed};
use crate::join::JoinKind;
use crate::join::equi::EquiJoin;
use crate::join::sides::{Side, Sides};
use crate::test_kit::{Event, capture_table, check_damaged_state, rows_of};

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("n", DataType::BigInt.not_null()),
        Column::new("k", DataType::STRING.nullable()),
    ])
}

fn join(kind: JoinKind) -> HashJoin {
    let spec = HashJoinSpec {
        join: EquiJoin {
            sides: Sides::new(schema(), schema()),
            kind,
            left_keys: vec![1],
            right_keys: vec![1],
            residual: None,
        },
        build: Side::Right,
        is_null_aware: false,
    };
    HashJoin::new(spec).unwrap()
}

/// Rows with the numbers from `from` on; keys recur, and some are NULL.
fn rows(from: i64, count: i64) -> RecordBatch {
    let key = |n: i64| (n % 5 > 0).then(|| format!("a key that is not inlined, {}", n % 7));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
    let keys: ArrayRef = Arc::new((from..from + count).map(key).collect::<StringViewArray>());
    RecordBatch::try_new(schema().arrow(), vec![numbers, keys]).unwrap()
}

fn output() -> Output {
    Output::new(Arc::new(ManualClock::default()), u64::MAX)
}

fn take(partition: &mut dyn Partition, batch: RecordBatch) {
    let bundle = Bundle::new(batch, Stamps::first());
    partition.rows(Piece::whole(&bundle, 1), &mut output()).unwrap();
}

fn end(partition: &mut dyn Partition) {
    let exchange = Exchange::new(1);
    let call = WatermarkCall { watermark: Watermark::END, phase: 0, exchange: &exchange };
    let _ = partition.watermark(&call, &mut output()).unwrap();
}

/// The numbers of the rows that leave, in order, or that stay.
fn probed(join: &HashJoin) -> Vec<Vec<i64>> {
    match join.probe().apply(&rows(0, 12), 0, usize::MAX).unwrap().0 {
        Probed::Kept(mask) => vec![mask.values().set_indices().map(|n| n as i64).collect()],
        Probed::Joined { batch, .. } => [0, 2]
            .map(|column| batch.column(column).as_primitive::<Int64Type>().values().to_vec())
            .to_vec(),
    }
}

fn restored(join: &HashJoin, captured: &Restored) -> Box<dyn Partition> {
    let mut partition = join.build().open(PartitionContext::only()).unwrap();
    partition.restore(captured).unwrap();
    partition
}

#[test]
fn a_build_side_resumes_with_its_table() {
    for kind in [JoinKind::Inner, JoinKind::Semi, JoinKind::Anti] {
        let plain = join(kind);
        let mut partition = plain.build().open(PartitionContext::only()).unwrap();
        take(&mut *partition, rows(0, 20));
        let on_the_way = partition.capture(Extent::Full).unwrap().into_restored().unwrap();
        take(&mut *partition, rows(20, 20));
        end(&mut *partition);
        let expected = probed(&plain);
        assert!(expected[0].len() > 2, "{kind:?}: {expected:?}");

        let again = join(kind);
        let mut partition = restored(&again, &on_the_way);
        take(&mut *partition, rows(20, 20));
        end(&mut *partition);
        assert_eq!(probed(&again), expected, "{kind:?}, on the way");
        let ended = partition.capture(Extent::Full).unwrap().into_restored().unwrap();

        let complete = join(kind);
        let mut partition = restored(&complete, &ended);
        assert_eq!(probed(&complete), expected, "{kind:?}, complete");
        end(&mut *partition);
        assert_eq!(probed(&complete), expected, "{kind:?}, ended twice");
        assert_eq!(
            captured_rows(&ended),
            captured_rows(&partition.capture(Extent::Full).unwrap().into_restored().unwrap())
        );
    }
}

/// Rows of a table of few keys, for `NOT IN`.
fn few(keys: &[Option<&str>]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..keys.len() as i64));
    let keys: ArrayRef = Arc::new(StringViewArray::from_iter(keys.iter().copied()));
    RecordBatch::try_new(schema().arrow(), vec![numbers, keys]).unwrap()
}

/// `NOT IN`: every row stays where the table is empty, none where it holds NULL, else those with
/// another key.
#[test]
fn a_null_could_be_any_value() {
    let probe = few(&[Some("a"), None, Some("b"), Some("a"), Some("c")]);
    let cases: [(&[Option<&str>], &[usize]); 5] = [
        (&[], &[0, 1, 2, 3, 4]),
        (&[Some("a"), Some("x")], &[2, 4]),
        (&[Some("x")], &[0, 2, 3, 4]),
        (&[None], &[]),
        (&[Some("x"), None, Some("x"), None], &[]),
    ];
    for (table, expected) in cases {
        let not_in = || {
            let spec = join(JoinKind::Anti).plan.spec.clone();
            HashJoin::new(HashJoinSpec { is_null_aware: true, ..spec }).unwrap()
        };
        let kept = |join: &HashJoin| match join.probe().apply(&probe, 0, usize::MAX).unwrap().0 {
            Probed::Kept(mask) => mask.values().set_indices().collect::<Vec<_>>(),
            Probed::Joined { .. } => panic!("an anti join adds no columns"),
        };
        let own = not_in();
        let mut partition = own.build().open(PartitionContext::only()).unwrap();
        take(&mut *partition, few(table));
        let on_the_way = partition.capture(Extent::Full).unwrap().into_restored().unwrap();
        end(&mut *partition);
        assert_eq!(kept(&own), expected, "{table:?}");
        let ended = partition.capture(Extent::Full).unwrap().into_restored().unwrap();
        for captured in [on_the_way, ended] {
            let again = not_in();
            end(&mut *restored(&again, &captured));
            assert_eq!(kept(&again), expected, "{table:?}, from a snapshot");
        }
    }
}

fn captured_rows(captured: &Restored) -> usize {
    rows_of(captured.table("numbered_rows")).len()
}

#[test]
fn damaged_rows_are_refused() {
    for kind in [JoinKind::Inner, JoinKind::Semi] {
        let watermark_before = WatermarkBefore::All(Watermark::MIN);
        let script = [Event::Rows { lane: 0, batch: rows(0, 50), watermark_before }];
        check_damaged_state(&join(kind).build(), &script);
    }
}

#[test]
fn rows_are_captured_once_and_again_when_they_lie_in_their_table() {
    for kind in [JoinKind::Inner, JoinKind::Semi] {
        let plain = join(kind);
        let mut partition = plain.build().open(PartitionContext::only()).unwrap();
        let capture = |partition: &mut Box<dyn Partition>| {
            let table = capture_table(&mut **partition, Extent::Incremental, "numbered_rows");
            (table.rows, table.removed, table.extent)
        };
        take(&mut *partition, rows(0, 10_000));
        assert_eq!(capture(&mut partition), (8_000, 0, Extent::Full), "the first, without NULL");
        take(&mut *partition, rows(10_000, 100));
        assert_eq!(capture(&mut partition), (80, 0, Extent::Incremental));
        end(&mut *partition);
        let all = if kind == JoinKind::Semi { 7 } else { 8_080 };
        assert_eq!(capture(&mut partition), (all, 0, Extent::Full), "they lie otherwise");
        assert_eq!(capture(&mut partition), (0, 0, Extent::Incremental));
        let mut again = plain.build().again().unwrap();
        again.add(rows(0, 50)).unwrap();
        again.publish().unwrap();
        let all = if kind == JoinKind::Semi { 7 } else { 40 };
        assert_eq!(capture(&mut partition), (all, 0, Extent::Full), "another table");
    }
}

#[test]
fn several_captures_restore_the_table() {
    for kind in [JoinKind::Inner, JoinKind::Semi, JoinKind::Anti] {
        let plain = join(kind);
        let mut partition = plain.build().open(PartitionContext::only()).unwrap();
        let mut captured = Restored::default();
        for round in 0..4 {
            take(&mut *partition, rows(round * 10, 10));
            let changes = partition.capture(Extent::Incremental).unwrap();
            for table in changes.tables.into_iter().filter(|table| table.name != "progress") {
                assert_eq!(table.extent == Extent::Full, round == 0);
                captured.add(table.name, (table.rows)().unwrap().rows);
            }
        }
        end(&mut *partition);
        let again = join(kind);
        end(&mut *restored(&again, &captured));
        assert_eq!(probed(&again), probed(&plain), "{kind:?}");
    }
}
