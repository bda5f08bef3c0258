use super::{
    ReferenceAggregate, ReferenceFunction, ReferenceQuery, ReferenceResult, ReferenceWindow, Row,
    Value, run,
};

/// The ten bids of the golden cases: seconds, item, quantity.
fn bids() -> Vec<Row> {
    let times = [0, 4_999, 5_000, 9_999, 10_000, 8_500, 31_000, 20_000, 29_000, 36_000];
    let items = ["A", "B", "A", "A", "B", "A", "C", "A", "A", "B"];
    times
        .iter()
        .zip(items)
        .zip(1..)
        .map(|((&time, item), quantity)| {
            Row::new(vec![Value::Integer(time), Value::text(item), Value::Integer(quantity)])
        })
        .collect()
}

fn query(window: ReferenceWindow, delay_ms: i64) -> ReferenceQuery {
    ReferenceQuery {
        watermark: Box::new(move |row| match row[0] {
            Value::Integer(time) => Some(time - delay_ms),
            _ => None,
        }),
        filter: None,
        project: None,
        rowtime: 0,
        window,
        keys: vec![1],
        aggregates: vec![
            ReferenceAggregate::new(ReferenceFunction::Count, None),
            ReferenceAggregate::new(ReferenceFunction::Sum { bits: 32 }, Some(2)),
        ],
    }
}

fn text(result: &ReferenceResult) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Integer(value) => value.to_string(),
        Value::String(value) => value.clone(),
        other => format!("{other:?}"),
    };
    result.rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn tumbling_as_worked_out_by_hand() {
    let window = ReferenceWindow::Tumble { size_ms: 10_000, offset_ms: 0 };
    let result = run(&query(window, 5_000), bids());
    let expected = [
        "A 4 14 0 10000",
        "B 1 2 0 10000",
        "B 1 5 10000 20000",
        "A 2 17 20000 30000",
        "B 1 10 30000 40000",
        "C 1 7 30000 40000",
    ];
    assert_eq!(text(&result), expected);
    assert_eq!((result.accepted, result.late.len()), (10, 0));
}

/// At watermark 26 s the row at 20 s is late for [15, 25) and in time for [20, 30), as in the
/// golden case hop_basic.
#[test]
fn hopping_drops_a_row_per_window() {
    let window = ReferenceWindow::Hop { slide_ms: 5_000, size_ms: 10_000, offset_ms: 0 };
    let result = run(&query(window, 5_000), bids());
    assert_eq!(result.partly_late, 1);
    let text = text(&result);
    assert!(text.contains(&"A 2 17 20000 30000".to_owned()), "{text:?}");
    assert!(!text.iter().any(|row| row.ends_with("15000 25000")), "{text:?}");
}

#[test]
fn sessions_at_a_distance_of_the_gap_merge() {
    let window = ReferenceWindow::Session { gap_ms: 5_000 };
    let row = |time| Row::new(vec![Value::Integer(time), Value::text("k"), Value::Integer(1)]);
    let result = run(&query(window, 60_000), vec![row(0), row(10_001), row(5_000)]);
    assert_eq!(text(&result), ["k 2 2 0 10000", "k 1 1 10001 15001"]);
    let bridged = run(&query(window, 60_000), vec![row(0), row(9_000), row(4_500)]);
    assert_eq!(text(&bridged), ["k 3 3 0 14000"]);
    // The watermark of the second row closes [0, 5), so the third is late though it touches it;
    // one millisecond later it would be part of the second's session.
    let late = run(&query(window, 0), vec![row(0), row(9_000), row(3_999)]);
    assert_eq!(text(&late), ["k 1 1 0 5000", "k 1 1 9000 14000"]);
    assert_eq!(late.late.len(), 1);
}

#[test]
fn splits_are_judged_by_their_own_watermarks() {
    let window = ReferenceWindow::Tumble { size_ms: 10, offset_ms: 0 };
    let row = |split, time| Row {
        split,
        values: vec![Value::Integer(time), Value::text("k"), Value::Integer(1)],
    };
    let result = run(&query(window, 0), vec![row(0, 50), row(1, 3), row(1, 20), row(1, 4)]);
    assert_eq!(text(&result), ["k 1 1 0 10", "k 1 1 20 30", "k 1 1 50 60"]);
    assert_eq!(result.late, [row(1, 4).values]);
}

#[test]
fn integer_sums_wrap_and_averages_are_cut_as_in_flink() {
    let rows: Vec<Vec<Value>> =
        [i64::from(i32::MAX), 1].map(|value| vec![Value::Integer(value)]).to_vec();
    let sum = ReferenceAggregate::new(ReferenceFunction::Sum { bits: 32 }, Some(0));
    assert_eq!(sum.of(&rows), Value::Integer(i64::from(i32::MIN)));
    let average = ReferenceAggregate::new(ReferenceFunction::Avg, Some(0));
    let rows = [-1, -2].map(|value| vec![Value::Integer(value)]);
    assert_eq!(average.of(&rows), Value::Integer(-1));
}
