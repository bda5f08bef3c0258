//! A build side that is captured on the way, and when its table is there.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Column, DataType, Exchange, Extent, Opening, Operator, Output, Partition, Piece,
    Restored, Stamps, TableSchema, Watermark, WatermarkBefore,
};

use super::{HashJoin, HashJoinSpec, Probed};
use crate::join::JoinKind;
use crate::join::sides::{Side, Sides};
use crate::test_kit::{Event, check_damaged_state, rows_of};

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("n", DataType::BigInt.not_null()),
        Column::new("k", DataType::STRING.nullable()),
    ])
}

fn join(kind: JoinKind) -> HashJoin {
    let spec = HashJoinSpec {
        sides: Sides::new(schema(), schema()),
        kind,
        build: Side::Right,
        left_keys: vec![1],
        right_keys: vec![1],
        residual: None,
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
    partition.rows(Piece { bundle: &bundle, rows: None, lanes: 1 }, &mut output()).unwrap();
}

fn end(partition: &mut dyn Partition) {
    let exchange = Exchange::new(1);
    let call = WatermarkCall { watermark: Watermark::END, phase: 0, exchange: &exchange };
    let _ = partition.watermark(&call, &mut output()).unwrap();
}

/// The numbers of the rows that leave, in order, or that stay.
fn probed(join: &HashJoin) -> Vec<Vec<i64>> {
    match join.probe().apply(&rows(0, 12), 0).unwrap() {
        Probed::Kept(mask) => vec![mask.values().set_indices().map(|n| n as i64).collect()],
        Probed::Joined { batch, .. } => [0, 2]
            .map(|column| batch.column(column).as_primitive::<Int64Type>().values().to_vec())
            .to_vec(),
    }
}

fn restored(join: &HashJoin, told: &Restored) -> Box<dyn Partition> {
    let mut partition = join.build().open(Opening::only()).unwrap();
    partition.restore(told).unwrap();
    partition
}

#[test]
fn a_build_side_goes_on_where_it_was_and_its_table_is_there_again() {
    for kind in [JoinKind::Inner, JoinKind::Semi, JoinKind::Anti] {
        let plain = join(kind);
        let mut partition = plain.build().open(Opening::only()).unwrap();
        take(&mut *partition, rows(0, 20));
        let on_the_way = partition.capture(Extent::Whole).unwrap().into_restored().unwrap();
        take(&mut *partition, rows(20, 20));
        end(&mut *partition);
        let expected = probed(&plain);
        assert!(expected[0].len() > 2, "{kind:?}: {expected:?}");

        let again = join(kind);
        let mut partition = restored(&again, &on_the_way);
        take(&mut *partition, rows(20, 20));
        end(&mut *partition);
        assert_eq!(probed(&again), expected, "{kind:?}, on the way");
        let ended = partition.capture(Extent::Whole).unwrap().into_restored().unwrap();

        let complete = join(kind);
        let mut partition = restored(&complete, &ended);
        assert_eq!(probed(&complete), expected, "{kind:?}, complete");
        end(&mut *partition);
        assert_eq!(probed(&complete), expected, "{kind:?}, ended twice");
        assert_eq!(
            told_rows(&ended),
            told_rows(&partition.capture(Extent::Whole).unwrap().into_restored().unwrap())
        );
    }
}

fn told_rows(told: &Restored) -> usize {
    rows_of(told.table("rows")).len()
}

#[test]
fn damaged_rows_are_refused() {
    for kind in [JoinKind::Inner, JoinKind::Semi] {
        let watermark_before = WatermarkBefore::All(Watermark::MIN);
        let script = [Event::Rows { lane: 0, batch: rows(0, 50), watermark_before }];
        check_damaged_state(&join(kind).build(), &script);
    }
}
