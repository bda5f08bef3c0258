use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::builder::{Int32Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Column, DataType, Error, Result, RowKind, Span, Stamps, TableSchema, Transform,
    Watermark, WatermarkBefore,
};
use thalweg_expr::expr::{ArithmeticOp, CompareOp};
use thalweg_expr::{Expr, ExprKind, Scalar};

use super::{Chain, NotNull, Step};
use crate::reference::Value;
use crate::test_kit::{check_transform, rows_of};
use crate::window::WindowSpec;

fn chain(steps: Vec<Step>) -> Chain {
    Chain::new("test".to_owned(), steps, Arc::new(ManualClock::default()))
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::BigInt.nullable())
}

fn number(value: i64) -> Expr {
    Expr::literal(Scalar::Integer(value), DataType::BigInt.not_null())
}

fn less(left: Expr, right: Expr) -> Expr {
    let kind =
        ExprKind::Compare { op: CompareOp::Less, left: Box::new(left), right: Box::new(right) };
    Expr::new(kind, DataType::Boolean.nullable())
}

fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let kind = ExprKind::Arithmetic { op, left: Box::new(left), right: Box::new(right) };
    Expr::new(kind, DataType::BigInt.nullable())
}

fn named(name: &str, expr: Expr) -> (Column, Expr) {
    (Column::new(name, expr.column_type.clone()), expr)
}

fn longs(columns: &[(&str, Vec<Option<i64>>)]) -> RecordBatch {
    let schema = TableSchema::new(
        columns.iter().map(|(name, _)| Column::new(*name, DataType::BigInt.nullable())).collect(),
    );
    let arrays = columns
        .iter()
        .map(|(_, values)| Arc::new(Int64Array::from(values.clone())) as ArrayRef)
        .collect();
    RecordBatch::try_new(schema.arrow(), arrays).unwrap()
}

fn range(rows: i64) -> RecordBatch {
    longs(&[
        ("a", (0..rows).map(Some).collect()),
        ("b", (0..rows).map(|i| (i % 5 != 0).then_some(i % 10)).collect()),
        ("c", (0..rows).map(|i| Some(1000 + i)).collect()),
    ])
}

fn stamps(rows: i64) -> WatermarkBefore {
    WatermarkBefore::Rows((0..rows).map(|i| i * 100).collect())
}

#[test]
fn filters_and_projections_keep_rows_and_their_watermarks_together() {
    let steps = vec![
        Step::Filter(less(column(1), number(4))),
        Step::Filter(less(column(0), number(40))),
        Step::Project(vec![
            named("twice", arithmetic(ArithmeticOp::Add, column(0), column(0))),
            named("c", column(2)),
        ]),
        Step::Filter(less(number(1010), column(1))),
    ];
    let (result, watermarks) = check_transform(&chain(steps), &range(100), &stamps(100));
    // b is NULL where 5 divides a; NULL < 4 is not TRUE.
    let expected: Vec<i64> = (11..40).filter(|a| [1, 2, 3].contains(&(a % 10))).collect();
    assert_eq!(
        result.column(0).as_primitive::<Int64Type>().values().to_vec(),
        expected.iter().map(|a| 2 * a).collect::<Vec<_>>()
    );
    assert_eq!(
        result.column(1).as_primitive::<Int64Type>().values().to_vec(),
        expected.iter().map(|a| 1000 + a).collect::<Vec<_>>()
    );
    assert_eq!(watermarks, expected.iter().map(|a| a * 100).collect::<Vec<_>>());
    assert_eq!(result.schema().field(0).name(), "twice");
}

#[test]
fn an_expression_that_can_fail_sees_only_rows_that_are_left() {
    let batch =
        longs(&[("a", vec![Some(10), Some(10), Some(10)]), ("b", vec![Some(0), Some(5), Some(2)])]);
    let divide =
        || Step::Project(vec![named("q", arithmetic(ArithmeticOp::Divide, column(0), column(1)))]);
    let all = WatermarkBefore::All(Watermark::MIN);
    let guarded = chain(vec![Step::Filter(less(number(0), column(1))), divide()]);
    let (result, _) = check_transform(&guarded, &batch, &all);
    assert_eq!(result.column(0).as_primitive::<Int64Type>().values(), &[2, 5]);

    let mut bundle_stamps = Stamps::first();
    bundle_stamps.watermark_before = all;
    let error = chain(vec![divide()]).apply(Bundle::new(batch, bundle_stamps)).unwrap_err();
    assert!(error.message().contains("zero"), "{error}");
}

#[test]
fn nothing_left_is_an_empty_batch_with_the_right_columns() {
    let steps =
        vec![Step::Filter(less(column(0), number(-1))), Step::Project(vec![named("x", column(2))])];
    let (result, watermarks) = check_transform(&chain(steps), &range(10), &stamps(10));
    assert_eq!((result.num_rows(), result.num_columns()), (0, 1));
    assert_eq!(result.schema().field(0).name(), "x");
    assert!(watermarks.is_empty());
}

#[test]
fn a_projection_to_no_columns_keeps_the_count() {
    let steps = vec![Step::Filter(less(column(0), number(7))), Step::Project(vec![])];
    let (result, _) = check_transform(&chain(steps), &range(10), &stamps(10));
    assert_eq!((result.num_rows(), result.num_columns()), (7, 0));
}

#[test]
fn null_in_a_not_null_column_fails_only_for_rows_that_are_written() {
    let b = NotNull { column: 1, is_key: false, span: Span::default() };
    let check = || Step::CheckNotNull { columns: vec![b], sink: "out".to_owned() };
    let apply = |steps| chain(steps).apply(Bundle::new(range(10), Stamps::first()));
    let error = apply(vec![check()]).unwrap_err();
    assert!(error.message().contains("'b'") && error.message().contains("'out'"), "{error}");
    // b is NULL at a = 0 and a = 5.
    let filtered = vec![
        Step::Filter(less(number(0), column(0))),
        Step::Filter(less(column(0), number(5))),
        check(),
    ];
    assert_eq!(apply(filtered).unwrap().num_rows(), 4);
    let too_wide = vec![
        Step::Filter(less(number(0), column(0))),
        Step::Filter(less(column(0), number(6))),
        check(),
    ];
    assert!(apply(too_wide).is_err());
}

fn lists() -> RecordBatch {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(3), Some(1), None]);
    lists.append_null();
    lists.append_value([]);
    lists.append_value([Some(7)]);
    let element = DataType::Int.nullable();
    let schema = TableSchema::new(vec![
        Column::new("id", DataType::BigInt.nullable()),
        Column::new("list", DataType::Array(Box::new(element)).nullable()),
    ]);
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![10, 20, 30, 40]));
    RecordBatch::try_new(schema.arrow(), vec![ids, Arc::new(lists.finish())]).unwrap()
}

fn unnest(outer: bool) -> Step {
    unnest_with(outer, true)
}

fn unnest_with(outer: bool, ordinality: bool) -> Step {
    let list = DataType::Array(Box::new(DataType::Int.nullable())).nullable();
    Step::Unnest {
        array: Expr::column(1, list),
        columns: [Some("x"), ordinality.then_some("n")]
            .into_iter()
            .flatten()
            .map(|name| Column::new(name, DataType::Int.nullable()))
            .collect(),
        outer,
        ordinality,
    }
}

#[test]
fn unnest_repeats_rows_and_their_watermarks() {
    let (result, watermarks) = check_transform(&chain(vec![unnest(false)]), &lists(), &stamps(4));
    let int = Value::Integer;
    let picked: Vec<_> = rows_of(&[result])
        .into_iter()
        .map(|row| (row[0].clone(), row[2].clone(), row[3].clone()))
        .collect();
    let expected = vec![
        (int(10), int(3), int(1)),
        (int(10), int(1), int(2)),
        (int(10), Value::Null, int(3)),
        (int(40), int(7), int(1)),
    ];
    assert_eq!(picked, expected);
    assert_eq!(watermarks, [0, 0, 0, 300]);
    let (outer, watermarks) = check_transform(&chain(vec![unnest(true)]), &lists(), &stamps(4));
    assert_eq!(outer.num_rows(), 6);
    assert_eq!(watermarks, [0, 0, 0, 100, 200, 300]);
    assert_eq!(rows_of(&[outer])[3][2..], [Value::Null, Value::Null]);
}

#[test]
fn unnest_without_ordinals_has_the_same_elements() {
    // All rows; those without a NULL, of which one is empty; the last one, which lies behind
    // others.
    for (from, rows) in [(0, 4), (2, 2), (3, 1)] {
        let lists = lists().slice(from, rows);
        for outer in [false, true] {
            let run = |ordinality| {
                let steps = vec![unnest_with(outer, ordinality)];
                check_transform(&chain(steps), &lists, &stamps(rows as i64))
            };
            let ((plain, watermarks), (numbered, expected)) = (run(false), run(true));
            let without: Vec<_> =
                rows_of(&[numbered]).into_iter().map(|row| row[..3].to_vec()).collect();
            assert_eq!(rows_of(&[plain]), without, "from {from}, outer {outer}");
            assert_eq!(watermarks, expected);
        }
    }
}

#[test]
fn unnest_keeps_the_places_of_columns_that_nobody_reads() {
    let of = |place| Expr::column(place, DataType::Int.nullable());
    let project = |(name, place)| (Column::new(name, DataType::Int.nullable()), of(place));
    let steps = vec![
        unnest(false),
        Step::Filter(less(column(0), number(20))),
        Step::Project([("x", 2), ("n", 3)].map(project).to_vec()),
    ];
    let (result, _) = check_transform(&chain(steps), &lists(), &stamps(4));
    let int = Value::Integer;
    assert_eq!(rows_of(&[result]), [[int(3), int(1)], [int(1), int(2)], [Value::Null, int(3)]]);
}

#[test]
fn user_functions_see_dense_rows_and_are_held_to_their_word() {
    let keep_all: super::BatchFunction = Arc::new(Ok);
    let cut: super::BatchFunction = Arc::new(|batch: RecordBatch| Ok(batch.slice(0, 1)));
    let custom = |function| {
        let half = Step::Filter(less(column(0), number(5)));
        chain(vec![half, Step::Custom { name: "f".to_owned(), function }])
    };
    let (result, _) = check_transform(&custom(keep_all), &range(10), &stamps(10));
    assert_eq!(result.num_rows(), 5);
    let error = custom(cut).apply(Bundle::new(range(10), Stamps::first())).unwrap_err();
    assert!(error.message().contains("'f' returned 1 rows for 5"), "{error}");
}

/// Rows from 40 on whose b is below 4; NULL is not true.
fn from_40_and_b_below_4(batch: &RecordBatch) -> Result<BooleanArray> {
    let [a, b] = [0, 1].map(|n| batch.column(n).as_primitive::<Int64Type>());
    Ok(a.iter().zip(b).map(|(a, b)| Some(a? >= 40 && b? < 4)).collect())
}

#[test]
fn a_function_selects_rows_as_a_filter_does() {
    let select = Step::Select { name: "f".to_owned(), function: Arc::new(from_40_and_b_below_4) };
    let dense: super::BatchFunction = Arc::new(|batch: RecordBatch| {
        let a = batch.column(0).as_primitive::<Int64Type>();
        assert!(a.values().iter().all(|a| *a >= 40), "only rows that are left");
        Ok(batch)
    });
    let custom = Step::Custom { name: "g".to_owned(), function: dense };
    let steps = vec![Step::Filter(less(column(0), number(60))), select, custom];
    let (result, watermarks) = check_transform(&chain(steps), &range(100), &stamps(100));
    let expected: Vec<i64> = (40..60).filter(|a| [1, 2, 3].contains(&(a % 10))).collect();
    assert_eq!(result.column(0).as_primitive::<Int64Type>().values().to_vec(), expected);
    assert_eq!(watermarks, expected.iter().map(|a| a * 100).collect::<Vec<_>>());
}

#[test]
fn a_mask_of_the_wrong_length_is_the_users_fault() {
    let short: super::MaskFunction = Arc::new(|_| Ok(BooleanArray::from(vec![true; 3])));
    let select = Step::Select { name: "short".to_owned(), function: short };
    let error = chain(vec![select]).apply(Bundle::new(range(10), Stamps::first())).unwrap_err();
    assert_eq!(error.kind(), thalweg_core::ErrorKind::User);
    assert!(error.message().contains("'short' returned 3 answers for 10 rows"), "{error}");
}

/// Once the chain knows what it returns without rows, a bundle that loses all its rows skips the
/// steps behind; rows that come later do not.
#[test]
fn steps_are_skipped_only_while_no_row_is_left() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&seen);
    let function: super::BatchFunction = Arc::new(move |batch: RecordBatch| {
        counts.fetch_add(1, Ordering::Relaxed);
        Ok(batch)
    });
    let small = Step::Filter(less(column(0), number(2)));
    let chain = chain(vec![small, Step::Custom { name: "count".to_owned(), function }]);
    for row in 0..6 {
        let mut bundle = Bundle::new(range(6).slice(row, 1), Stamps::first());
        bundle.stamps.watermark_before = stamps(1);
        bundle.stamps.row_places = Some(vec![7].into());
        bundle.kinds = Some(Arc::from([RowKind::Delete]));
        let result = chain.apply(bundle).unwrap();
        let rows = usize::from(row < 2);
        assert_eq!((result.num_rows(), result.batch.schema()), (rows, range(1).schema()));
        assert_eq!(result.kinds.unwrap().len(), rows);
        assert_eq!(result.stamps.row_places.unwrap().len(), rows);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

fn twice(batch: &RecordBatch) -> Result<(RecordBatch, Vec<u32>)> {
    let origins: Vec<u32> = (0..batch.num_rows() as u32).flat_map(|row| [row, row]).collect();
    let indices = arrow_array::UInt32Array::from(origins.clone());
    Ok((arrow_select::take::take_record_batch(batch, &indices)?, origins))
}

#[test]
fn a_flat_map_carries_watermarks_and_kinds_along() {
    let flat_map = Step::FlatMap { name: "twice".to_owned(), function: Arc::new(twice) };
    let chain = chain(vec![Step::Filter(less(number(7), column(0))), flat_map]);
    let mut bundle = Bundle::new(range(10), Stamps::first());
    bundle.stamps.watermark_before = stamps(10);
    bundle.kinds =
        Some((0..10).map(|i| if i == 8 { RowKind::Delete } else { RowKind::Insert }).collect());
    let result = chain.apply(bundle).unwrap();
    let kinds: Vec<&str> = result.kinds.unwrap().iter().map(|kind| kind.short()).collect();
    assert_eq!(kinds, ["-D", "-D", "+I", "+I"]);
    assert_eq!(result.stamps.watermark_before.at(3), Watermark(900));
}

#[test]
fn a_flat_map_with_wrong_origins_is_the_users_fault() {
    let wrong: super::FlatMapFunction = Arc::new(|batch| Ok((batch.clone(), vec![99; 10])));
    let step = Step::FlatMap { name: "wrong".to_owned(), function: wrong };
    let error: Error =
        chain(vec![step]).apply(Bundle::new(range(10), Stamps::first())).unwrap_err();
    assert_eq!(error.kind(), thalweg_core::ErrorKind::User);
}

fn times(values: &[i64], zone: Option<&str>) -> RecordBatch {
    let array = arrow_array::TimestampMillisecondArray::from(values.to_vec())
        .with_timezone_opt(zone.map(str::to_owned));
    let data_type = if zone.is_some() { DataType::TimestampLtz(3) } else { DataType::Timestamp(3) };
    let schema = TableSchema::new(vec![Column::new("ts", data_type.nullable())]);
    RecordBatch::try_new(schema.arrow(), vec![Arc::new(array)]).unwrap()
}

fn window_rows(window: WindowSpec, zone: Option<chrono_tz::Tz>) -> Chain {
    chain(vec![Step::WindowRows { window, rowtime: 0, zone }])
}

/// The first and sixth row of the golden case window_tvf_rows.
#[test]
fn a_row_comes_once_per_window_the_latest_first() {
    let hop = WindowSpec::Hop { slide_ms: 5_000, size_ms: 10_000, offset_ms: 0 };
    let batch = times(&[0, 8_500], None);
    let (result, watermarks) = check_transform(&window_rows(hop, None), &batch, &stamps(2));
    let row = |values: [i64; 4]| values.map(Value::Integer).to_vec();
    let expected = [
        row([0, 0, 10_000, 9_999]),
        row([0, -5_000, 5_000, 4_999]),
        row([8_500, 5_000, 15_000, 14_999]),
        row([8_500, 0, 10_000, 9_999]),
    ];
    assert_eq!(rows_of(&[result]), expected);
    assert_eq!(watermarks, [0, 0, 100, 100]);
}

#[test]
fn windows_of_instants_are_aligned_in_the_sessions_zone() {
    const HOUR_MS: i64 = 3_600_000;
    let day = WindowSpec::Tumble { size_ms: 24 * HOUR_MS, offset_ms: 0 };
    let shanghai = chrono_tz::Tz::Asia__Shanghai;
    // 17:00 UTC is 01:00 of the next day in Shanghai.
    let batch = times(&[17 * HOUR_MS], Some("UTC"));
    let (result, _) = check_transform(&window_rows(day, Some(shanghai)), &batch, &stamps(1));
    let expected = [17 * HOUR_MS, 24 * HOUR_MS, 48 * HOUR_MS, 40 * HOUR_MS - 1];
    assert_eq!(rows_of(std::slice::from_ref(&result))[0], expected.map(Value::Integer));
    assert_eq!(result.schema().field(3).data_type(), &DataType::TimestampLtz(3).arrow());
}

#[test]
fn what_cannot_be_computed_names_its_column() {
    let divided = arithmetic(ArithmeticOp::Divide, number(1), column(0));
    let project = Step::Project(vec![(Column::new("share", DataType::BigInt.nullable()), divided)]);
    let error = chain(vec![project]).apply(Bundle::new(range(3), Stamps::first())).unwrap_err();
    assert_eq!(error.message(), "column 'share': division by zero");
    assert!(error.help().is_some());
}
