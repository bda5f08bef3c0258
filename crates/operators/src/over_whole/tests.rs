use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, TableSchema, Watermark, WatermarkBefore};

use super::*;
use crate::aggregate::resolve;
use crate::test_kit::{Event, check_damaged_state, check_operator};

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("k", DataType::BigInt.nullable()),
        Column::new("v", DataType::BigInt.nullable()),
        Column::new("n", DataType::BigInt.not_null()),
    ])
}

type Row = (i64, Option<i64>, i64);

fn rows(count: usize, seed: u64) -> Vec<Row> {
    let mut random = SplitMix64::new(seed);
    (0..count as i64)
        .map(|n| {
            let value = random.below(12) as i64;
            (random.below(4) as i64, (value != 0).then_some(value), n)
        })
        .collect()
}

fn script(rows: &[Row]) -> Vec<Event> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    let batch = RecordBatch::try_new(schema().arrow(), columns).unwrap();
    let watermark_before = WatermarkBefore::All(Watermark::MIN);
    vec![Event::Rows { lane: 0, batch, watermark_before }]
}

fn sum_and_others(frame: WholeFrame) -> WholeSpec {
    let (function, result) = resolve("SUM", false, &[DataType::BigInt.nullable()]).unwrap();
    let name = "sum".to_owned();
    let argument = Some(2);
    let sum = AggregateCall {
        function,
        argument,
        distinct: false,
        filter: None,
        result: result.clone(),
        name: name.clone(),
    };
    let call = |name: &str, function, result| WholeCall { function, result, name: name.to_owned() };
    let lead = WholeFunction::Shifted { column: 2, offset: 1, default: None };
    WholeSpec {
        keys: vec![0],
        order: vec![SortKey::ascending(1)],
        frame,
        calls: vec![
            WholeCall { function: WholeFunction::Aggregate(sum), result, name },
            call("rank", WholeFunction::Rank, DataType::BigInt.not_null()),
            call("tile", WholeFunction::Tile(3), DataType::BigInt.not_null()),
            call("share", WholeFunction::CumulativeDistribution, DataType::Double.not_null()),
            call("lead", lead, DataType::BigInt.nullable()),
        ],
        input: schema(),
    }
}

/// The rows of each key in their order.
fn sorted(rows: &[Row]) -> Vec<Vec<Row>> {
    let mut all = rows.to_vec();
    all.sort_by_key(|row| (row.0, row.1, row.2));
    all.chunk_by(|a, b| a.0 == b.0).map(<[Row]>::to_vec).collect()
}

/// The sum of `n` of the rows of a key that a row sees, as the standard says it.
fn seen(key: &[Row], row: usize, frame: &WholeFrame) -> Option<i64> {
    let whole = |distance: Distance| match distance {
        Distance::Whole(distance) => distance as i64,
        Distance::Real(_) => panic!("no such frame here"),
    };
    let is_in = |other: usize, bound: FrameBound, is_end: bool| {
        let side = if is_end { 1 } else { -1 };
        // How far the other row is behind the bound, or in front of it for an end.
        let (own, far) = match frame.unit {
            FrameUnit::Rows => (row as i64, other as i64),
            FrameUnit::Range => match (key[row].1, key[other].1) {
                (Some(own), Some(far)) => (own, far),
                (own, far) if own == far => (0, 0),
                // NULLs come first, at no distance.
                (own, _) => {
                    let other_is_first = own.is_some();
                    return match bound {
                        FrameBound::UnboundedPreceding | FrameBound::UnboundedFollowing => true,
                        _ if is_end => other_is_first,
                        _ => !other_is_first,
                    };
                }
            },
        };
        let is_null = frame.unit == FrameUnit::Range && key[row].1.is_none();
        match bound {
            FrameBound::UnboundedPreceding | FrameBound::UnboundedFollowing => true,
            _ if is_null => far == own,
            FrameBound::CurrentRow => (far - own) * side <= 0,
            FrameBound::Preceding(distance) => (far - own + whole(distance)) * side <= 0,
            FrameBound::Following(distance) => (far - own - whole(distance)) * side <= 0,
        }
    };
    let sees = |&other: &usize| is_in(other, frame.start, false) && is_in(other, frame.end, true);
    (0..key.len()).filter(sees).map(|other| key[other].2).reduce(|a, b| a + b)
}

fn bounds() -> Vec<(FrameBound, FrameBound)> {
    use FrameBound::{CurrentRow, Following, Preceding, UnboundedFollowing, UnboundedPreceding};
    let far = |rows| Distance::Whole(rows);
    vec![
        (UnboundedPreceding, CurrentRow),
        (UnboundedPreceding, UnboundedFollowing),
        (UnboundedPreceding, Preceding(far(1))),
        (UnboundedPreceding, Following(far(2))),
        (Preceding(far(2)), CurrentRow),
        (Preceding(far(3)), Preceding(far(1))),
        (Preceding(far(1)), Following(far(1))),
        (CurrentRow, UnboundedFollowing),
        (CurrentRow, Following(far(2))),
        (Following(far(1)), Following(far(3))),
        (Following(far(1)), UnboundedFollowing),
    ]
}

#[test]
fn every_frame_equals_the_standards() {
    for seed in 0..6 {
        let rows = rows(40, seed);
        for unit in [FrameUnit::Rows, FrameUnit::Range] {
            for (start, end) in bounds() {
                let frame = WholeFrame { unit, start, end };
                let operator = OverWhole::new(sum_and_others(frame));
                let driven = check_operator(&operator, &script(&rows));
                let mut sums = Vec::new();
                for batch in &driven.emitted {
                    sums.extend(batch.column(3).as_primitive::<Int64Type>().iter());
                }
                let keys = sorted(&rows);
                let want = keys.iter().flat_map(|key| {
                    (0..key.len()).map(|row| seen(key, row, &frame)).collect::<Vec<_>>()
                });
                assert_eq!(sums, want.collect::<Vec<_>>(), "{frame:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn numbers_look_at_all_rows_of_the_key() {
    let rows: Vec<Row> =
        vec![(1, Some(5), 0), (1, Some(5), 1), (1, Some(7), 2), (1, None, 3), (2, Some(1), 4)];
    let operator = OverWhole::new(sum_and_others(WholeFrame::ALL));
    let script = script(&rows);
    check_damaged_state(&operator, &script);
    let driven = check_operator(&operator, &script);
    let whole = |column: usize| -> Vec<Option<i64>> {
        let of = |batch: &RecordBatch| {
            batch.column(column).as_primitive::<Int64Type>().iter().collect::<Vec<_>>()
        };
        driven.emitted.iter().flat_map(of).collect()
    };
    // NULL is the smallest.
    assert_eq!(whole(2), [3, 0, 1, 2, 4].map(Some));
    assert_eq!(whole(3), [6, 6, 6, 6, 4].map(Some));
    assert_eq!(whole(4), [1, 2, 2, 4, 1].map(Some));
    assert_eq!(whole(5), [1, 1, 2, 3, 1].map(Some));
    let shares = driven
        .emitted
        .iter()
        .flat_map(|batch| batch.column(6).as_primitive::<Float64Type>().values().to_vec());
    assert_eq!(shares.collect::<Vec<f64>>(), [0.25, 0.75, 0.75, 1.0, 1.0]);
    assert_eq!(whole(7), [Some(0), Some(1), Some(2), None, None]);
    assert_eq!(driven.emitted[0].column(0).len(), driven.emitted[0].num_rows());
}
