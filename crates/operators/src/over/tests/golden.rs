//! Golden cases, as Flink answered them: times are milliseconds after the new year, `n` is `qty`.

use super::fixture::{MINUS_ONE, N, Row, aggregate, function, lines, operator, script};
use crate::over::{Frame, OverAggregate, OverFunction};
use crate::test_kit::check_operator;

/// `second` is the time of the sixth row.
fn bids(sixth: i64) -> Vec<Row> {
    let times = [0, 4_999, 5_000, 9_999, 10_000, sixth, 31_000, 20_000, 29_000, 36_000];
    let items = ["A", "B", "A", "A", "B", "A", "C", "A", "A", "B"];
    let row = |((time, item), n): ((i64, &str), i64)| Row {
        time,
        key: Some(item.to_owned()),
        n: Some(n),
    };
    times.into_iter().zip(items).zip(1..).map(row).collect()
}

/// Drives the rows with a watermark behind each, and with fewer, and compares with the rows that
/// Flink gave, whatever their order.
fn check(operator: &OverAggregate, sixth: i64, delay_ms: i64, expected: &[&str]) {
    for epoch_rows in [1, 3, 100] {
        let driven = check_operator(operator, &script(&bids(sixth), delay_ms, 200, epoch_rows));
        let mut lines = lines(&driven);
        let mut expected = expected.to_vec();
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "a watermark every {epoch_rows} rows");
        assert_eq!(driven.late, 10 - expected.len() as u64);
    }
}

#[test]
fn over_lag() {
    let lag = |offset, default| function(OverFunction::Lag { column: N, offset, default });
    let operator =
        operator(Frame::Range { preceding_ms: None }, vec![lag(1, None), lag(2, Some(MINUS_ONE))]);
    let expected = [
        "0 A 1 - -1",
        "4999 B 2 - -1",
        "5000 A 3 1 -1",
        "8500 A 6 3 1",
        "9999 A 4 6 3",
        "10000 B 5 2 -1",
        "29000 A 9 4 6",
        "31000 C 7 - -1",
        "36000 B 10 5 2",
    ];
    check(&operator, 8_500, 5_000, &expected);
}

#[test]
fn over_late_dropped() {
    let operator = operator(Frame::Rows { preceding: Some(1) }, vec![aggregate("SUM", Some(N))]);
    let expected = [
        "0 A 1 1",
        "4999 B 2 2",
        "5000 A 3 4",
        "9999 A 4 7",
        "10000 B 5 7",
        "31000 C 7 7",
        "20000 A 8 12",
        "29000 A 9 17",
        "36000 B 10 15",
    ];
    check(&operator, 8_500, 0, &expected);
    let each = lines(&check_operator(&operator, &script(&bids(8_500), 0, 200, 1)));
    assert_eq!(each, expected, "a row behind its watermark leaves at the next one");
}

#[test]
fn over_range_rows() {
    let calls = vec![aggregate("SUM", Some(N)), aggregate("COUNT", None)];
    let operator = operator(Frame::Range { preceding_ms: Some(5_000) }, calls);
    let expected = [
        "0 A 1 1 1",
        "4999 B 2 2 1",
        "5000 A 3 10 3",
        "5000 A 6 10 3",
        "9999 A 4 13 3",
        "10000 B 5 5 1",
        "20000 A 8 8 1",
        "29000 A 9 9 1",
        "31000 C 7 7 1",
        "36000 B 10 10 1",
    ];
    check(&operator, 5_000, 5_000, &expected);
}

#[test]
fn over_rows() {
    let operator = operator(Frame::Rows { preceding: Some(1) }, vec![aggregate("SUM", Some(N))]);
    let expected = [
        "0 A 1 1",
        "4999 B 2 2",
        "5000 A 3 4",
        "5000 A 6 9",
        "9999 A 4 10",
        "10000 B 5 7",
        "20000 A 8 12",
        "29000 A 9 17",
        "31000 C 7 7",
        "36000 B 10 15",
    ];
    check(&operator, 5_000, 5_000, &expected);
}

#[test]
fn over_unbounded_peers() {
    let operator = operator(Frame::Range { preceding_ms: None }, vec![aggregate("SUM", Some(N))]);
    let expected = [
        "0 A 1 1",
        "4999 B 2 2",
        "5000 A 3 10",
        "5000 A 6 10",
        "9999 A 4 14",
        "10000 B 5 7",
        "29000 A 9 23",
        "31000 C 7 7",
        "36000 B 10 17",
    ];
    check(&operator, 5_000, 5_000, &expected);
}
