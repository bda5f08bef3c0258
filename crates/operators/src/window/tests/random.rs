//! Random rows, windows, lateness, bundle sizes and partitions: the operators equal the reference.

use proptest::prelude::*;
use thalweg_core::DataType;

use super::driver::{FLAG, NUMBER, PRICE, Row, Run, TIME, WEIGHT, WORD, call, input_schema, run};
use super::reference::{self, KeyOf};
use crate::aggregate::AggregateCall;
use crate::window::{
    LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec, WindowSpec,
};

type Fold = fn(&[Row]) -> String;

/// The families of aggregates, each with its reference: they take different ways through windows.
fn families() -> Vec<(Vec<AggregateCall>, Fold)> {
    let invertible = vec![
        call("COUNT", false, None, None),
        call("COUNT", false, Some(NUMBER), None),
        call("SUM", false, Some(NUMBER), None),
        call("AVG", false, Some(NUMBER), None),
        call("COUNT", true, Some(NUMBER), None),
        call("SUM", true, Some(NUMBER), None),
        call("COUNT", false, None, Some(FLAG)),
        call("SUM", false, Some(PRICE), None),
        call("AVG", false, Some(PRICE), None),
        call("VAR_POP", false, Some(NUMBER), None),
        call("SUM", false, Some(NUMBER), Some(FLAG)),
    ];
    let extremes = vec![
        call("MIN", false, Some(NUMBER), None),
        call("MAX", false, Some(NUMBER), None),
        call("MIN", false, Some(WORD), None),
        call("MAX", true, Some(WORD), None),
        call("MAX", false, Some(PRICE), None),
        call("MIN", false, Some(FLAG), None),
        call("COUNT", true, Some(WORD), None),
        call("COUNT", false, None, None),
    ];
    let by_arrival = vec![
        call("FIRST_VALUE", false, Some(NUMBER), None),
        call("LAST_VALUE", false, Some(WORD), None),
        call("FIRST_VALUE", false, Some(WORD), None),
        call("LAST_VALUE", false, Some(PRICE), None),
    ];
    let floats = vec![
        call("SUM", false, Some(WEIGHT), None),
        call("AVG", false, Some(WEIGHT), None),
        call("STDDEV_POP", false, Some(WEIGHT), None),
        call("VAR_SAMP", false, Some(WEIGHT), None),
        call("MIN", false, Some(WEIGHT), None),
        call("MAX", false, Some(WEIGHT), None),
        call("COUNT", false, Some(WEIGHT), None),
    ];
    vec![
        (invertible, reference::invertible),
        (extremes, reference::extremes),
        (by_arrival, reference::by_arrival),
        (floats, reference::floats),
    ]
}

fn a_row() -> impl Strategy<Value = Row> {
    let word = prop_oneof![
        Just(None),
        (0..4u32).prop_map(|n| Some(format!("w{n}"))),
        (0..2u32).prop_map(|n| Some(format!("a word too long to be inlined {n}"))),
    ];
    (
        0..12i64,
        proptest::option::of(0..5i64),
        word,
        proptest::option::of(-20..20i32),
        proptest::option::of(any::<bool>()),
        proptest::option::of(-5000..5000i128),
        proptest::option::of(a_weight()),
    )
        .prop_map(|(time, key, word, number, flag, price, weight)| Row {
            time,
            key,
            word,
            number,
            flag,
            price,
            weight,
            serial: 0,
        })
}

/// A multiple of a quarter, or what would stay in a sum for ever if it were only taken out again.
fn a_weight() -> impl Strategy<Value = f64> {
    prop_oneof![
        40 => (-40..40i32).prop_map(|quarters| f64::from(quarters) / 4.0),
        1 => Just(f64::NAN),
        1 => Just(-f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
    ]
}

/// Rows whose times advance with jitter, and now and then leap.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    proptest::collection::vec((a_row(), 0..3i64, 0..40u32), 1..120).prop_map(|rows| {
        let mut now = -20;
        let place = |(mut row, step, leap): (Row, i64, u32)| {
            now += if leap == 0 { 1000 } else { step };
            row.time = now - row.time;
            row
        };
        rows.into_iter().map(place).collect()
    })
}

fn how() -> impl Strategy<Value = Run> {
    (
        prop_oneof![Just(1usize), Just(2), Just(4)],
        prop_oneof![Just(1usize), Just(2), Just(7), Just(1000)],
        0..12i64,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(partitions, bundle_rows, delay_ms, early, hurried, restores)| Run {
            partitions,
            bundle_rows,
            delay_ms,
            early,
            hurried,
            restores,
        })
}

fn window() -> impl Strategy<Value = WindowSpec> {
    prop_oneof![
        (1..12i64, -3..4i64)
            .prop_map(|(size_ms, offset_ms)| WindowSpec::Tumble { size_ms, offset_ms }),
        (1..8i64, 1..20i64, -3..4i64).prop_map(|(slide_ms, size_ms, offset_ms)| {
            WindowSpec::Hop { slide_ms, size_ms, offset_ms }
        }),
        (1..6i64, 1..6i64, -3..4i64).prop_map(|(step_ms, steps, offset_ms)| {
            WindowSpec::Cumulate { step_ms, max_size_ms: step_ms * steps, offset_ms }
        }),
    ]
}

fn key() -> impl Strategy<Value = KeyOf> {
    prop_oneof![Just(KeyOf::Nothing), Just(KeyOf::Key), Just(KeyOf::Word), Just(KeyOf::Both)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn aligned_windows_equal_the_reference(
        rows in rows(), how in how(), window in window(), key in key(), family in 0..4usize,
    ) {
        let (aggregates, fold) = families().swap_remove(family);
        let input = input_schema(DataType::Timestamp(3));
        let spec = WindowAggregateSpec {
            window,
            rowtime: TIME,
            zone: None,
            keys: key.columns(),
            aggregates,
            late: LatePolicy::Emit,
            input: input.clone(),
        };
        let operator = WindowAggregate::new(spec).expect("a valid specification");
        let expected = reference::aligned(window, key, &rows, how.delay_ms, &fold);
        prop_assert_eq!(run(&operator, &rows, &input, how), expected);
    }

    #[test]
    fn sessions_equal_the_reference(
        rows in rows(), how in how(), gap_ms in 1..8i64, key in key(), family in 0..4usize,
    ) {
        let (aggregates, fold) = families().swap_remove(family);
        // Sessions take rows and watermarks in order.
        let how = Run { early: false, ..how };
        let input = input_schema(DataType::Timestamp(3));
        let spec = SessionSpec {
            gap_ms,
            rowtime: TIME,
            zone: None,
            keys: key.columns(),
            aggregates,
            late: LatePolicy::Emit,
            input: input.clone(),
        };
        let operator = SessionAggregate::new(spec).expect("a valid specification");
        let expected = reference::sessions(gap_ms, key, &rows, how.delay_ms, &fold);
        prop_assert_eq!(run(&operator, &rows, &input, how), expected);
    }
}
