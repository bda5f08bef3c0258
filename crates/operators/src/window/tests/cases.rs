//! Exact cases: what a real Flink gave, zones, gaps, memory, errors.

use chrono_tz::Tz;
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::{
    Bundle, DataType, ErrorKind, Grid, Operator, OperatorClass, Result, Stamps, Watermark,
    WatermarkBefore,
};

use super::driver::{
    Driver, KEY, NUMBER, Outcome, PRICE, Row, Run, TIME, WEIGHT, WORD, batch, call, input_schema,
    run,
};
use crate::aggregate::AggregateCall;
use crate::window::{
    LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec, WindowSpec,
};

fn spec(window: WindowSpec, keys: &[usize], aggregates: Vec<AggregateCall>) -> WindowAggregateSpec {
    WindowAggregateSpec {
        window,
        rowtime: TIME,
        zone: None,
        keys: keys.to_vec(),
        aggregates,
        late: LatePolicy::Drop,
        input: input_schema(DataType::Timestamp(3)),
    }
}

/// The bids of the golden cases: milliseconds after midnight, item, cents.
fn bids() -> Vec<Row> {
    [
        (0, "A", 1000),
        (4_999, "B", 2050),
        (5_000, "A", 125),
        (9_999, "A", 300),
        (10_000, "B", 777),
        (8_500, "A", 200),
        (31_000, "C", 999),
        (20_000, "A", 400),
        (29_000, "A", 500),
        (36_000, "B", 600),
    ]
    .map(|(time, item, cents)| Row {
        time,
        word: Some(item.to_string()),
        price: Some(cents),
        ..Row::default()
    })
    .to_vec()
}

fn golden(window: WindowSpec) -> Outcome {
    let count_and_sum =
        vec![call("COUNT", false, None, None), call("SUM", false, Some(PRICE), None)];
    let operator = WindowAggregate::new(spec(window, &[WORD], count_and_sum)).expect("valid");
    let how = Run {
        partitions: 2,
        bundle_rows: 3,
        delay_ms: 5_000,
        early: false,
        hurried: false,
        restores: false,
    };
    run(&operator, &bids(), &input_schema(DataType::Timestamp(3)), how)
}

/// Rows of "item|count|sum|start|end" in seconds, as the driver prints them.
fn expected(rows: &[(&str, i64, &str, i64, i64)]) -> Vec<String> {
    let print = |&(item, count, sum, start, end): &(&str, i64, &str, i64, i64)| {
        let (start, end) = (start * 1000, end * 1000);
        format!("{item}|{count}|{sum}|{start}|{end}|{}", end - 1)
    };
    let mut rows: Vec<String> = rows.iter().map(print).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn hopping_windows_are_those_of_flink() {
    let hop = WindowSpec::Hop { slide_ms: 5_000, size_ms: 10_000, offset_ms: 0 };
    let outcome = golden(hop);
    let rows = [
        ("A", 1, "10.00", -5, 5),
        ("B", 1, "20.50", -5, 5),
        ("A", 4, "16.25", 0, 10),
        ("B", 1, "20.50", 0, 10),
        ("A", 3, "6.25", 5, 15),
        ("B", 1, "7.77", 5, 15),
        ("B", 1, "7.77", 10, 20),
        ("A", 2, "9.00", 20, 30),
        ("C", 1, "9.99", 25, 35),
        ("A", 1, "5.00", 25, 35),
        ("C", 1, "9.99", 30, 40),
        ("B", 1, "6.00", 30, 40),
        ("B", 1, "6.00", 35, 45),
    ];
    assert_eq!(outcome.rows, expected(&rows));
    assert_eq!((outcome.accepted, outcome.late, outcome.partly_late), (10, 0, 1));
}

#[test]
fn cumulating_windows_are_those_of_flink() {
    let outcome =
        golden(WindowSpec::Cumulate { step_ms: 5_000, max_size_ms: 20_000, offset_ms: 0 });
    let rows = [
        ("A", 1, "10.00", 0, 5),
        ("B", 1, "20.50", 0, 5),
        ("A", 4, "16.25", 0, 10),
        ("B", 1, "20.50", 0, 10),
        ("A", 4, "16.25", 0, 15),
        ("B", 2, "28.27", 0, 15),
        ("A", 4, "16.25", 0, 20),
        ("B", 2, "28.27", 0, 20),
        ("A", 2, "9.00", 20, 30),
        ("C", 1, "9.99", 20, 35),
        ("A", 2, "9.00", 20, 35),
        ("C", 1, "9.99", 20, 40),
        ("A", 2, "9.00", 20, 40),
        ("B", 1, "6.00", 20, 40),
    ];
    assert_eq!(outcome.rows, expected(&rows));
}

fn keyed(time: i64, key: i64) -> Row {
    Row { time, key: Some(key), number: Some(1), ..Row::default() }
}

fn bundle(rows: &[Row], schema: &thalweg_core::TableSchema, before: i64) -> Bundle {
    let watermark_before = WatermarkBefore::All(Watermark(before));
    Bundle::new(batch(rows, schema), Stamps { watermark_before, ..Stamps::first() })
}

/// A local hour shown twice is one window of two hours, closed when it is over for good; days
/// with 23 and 25 hours are one window each.
#[test]
fn windows_follow_local_clocks_across_daylight_saving() -> Result<()> {
    let hour = 3_600_000;
    // 2026-10-25T00:00Z is 02:00 in Berlin; at 01:00Z clocks go back from 03:00 to 02:00.
    let first = 1_792_886_400_000;
    let schema = input_schema(DataType::TimestampLtz(3));
    let operator = WindowAggregate::new(WindowAggregateSpec {
        zone: Some(Tz::Europe__Berlin),
        input: schema.clone(),
        ..spec(
            WindowSpec::Tumble { size_ms: hour, offset_ms: 0 },
            &[],
            vec![call("COUNT", false, None, None)],
        )
    })?;
    let mut driver = Driver::new(&operator, 1, false);
    driver.rows(&bundle(&[keyed(first + 1, 0)], &schema, i64::MIN))?;
    driver.watermark(first + hour + 5)?;
    assert!(driver.outcome.rows.is_empty(), "the hour comes a second time");
    driver.rows(&bundle(&[keyed(first + hour + 9, 0)], &schema, first + hour + 5))?;
    driver.watermark(first + 2 * hour - 2)?;
    assert!(driver.outcome.rows.is_empty());
    driver.watermark(first + 2 * hour - 1)?;
    let (start, end) = (first + 2 * hour, first + 3 * hour);
    let last = first + 2 * hour - 1;
    assert_eq!(driver.outcome.rows, [format!("2|{start}|{end}|{last}")]);
    assert_eq!(driver.finish().late, 0);

    let quarter = Grid { period_ms: 900_000, offset_ms: 0 };
    assert_eq!(operator.watermark_interest(), WatermarkInterest::Grids(vec![quarter]));
    Ok(())
}

/// The Asia/Shanghai day windows of the golden case, keyless, over seconds.
#[test]
fn days_start_at_local_midnight() {
    let schema = input_schema(DataType::TimestampLtz(3));
    let day = 86_400_000;
    let operator = WindowAggregate::new(WindowAggregateSpec {
        zone: Some(Tz::Asia__Shanghai),
        input: schema.clone(),
        ..spec(
            WindowSpec::Tumble { size_ms: day, offset_ms: 0 },
            &[],
            vec![call("COUNT", false, None, None)],
        )
    })
    .expect("valid");
    let rows: Vec<Row> =
        [1_767_196_799, 1_767_196_800, 1_767_225_599, 1_767_225_600, 1_767_283_200]
            .map(|second| keyed(second * 1000, 0))
            .to_vec();
    let how = Run {
        partitions: 2,
        bundle_rows: 1,
        delay_ms: 5000,
        early: false,
        hurried: false,
        restores: false,
    };
    let outcome = run(&operator, &rows, &schema, how);
    let midnight = 1_767_225_600_000;
    let window = |count: i64, from: i64| {
        // Start and end are local readings, the time is an instant.
        let instant = from + day - 1 - 8 * 3_600_000;
        format!("{count}|{from}|{}|{instant}", from + day)
    };
    let mut expected = [window(1, midnight - day), window(3, midnight), window(1, midnight + day)];
    expected.sort_unstable();
    assert_eq!(outcome.rows, expected);
}

#[test]
fn sessions_a_gap_apart_are_one() {
    let operator = SessionAggregate::new(SessionSpec {
        gap_ms: 5_000,
        rowtime: TIME,
        zone: None,
        keys: vec![],
        aggregates: vec![call("COUNT", false, None, None)],
        late: LatePolicy::Drop,
        input: input_schema(DataType::Timestamp(3)),
    })
    .expect("valid");
    let times = [0, 4_999, 9_999, 0, 5_000, 20_000, 27_000, 23_500, 60_000];
    let rows: Vec<Row> = times.map(|time| keyed(time, 0)).to_vec();
    let how = Run {
        partitions: 1,
        bundle_rows: 4,
        delay_ms: 10_000,
        early: false,
        hurried: true,
        restores: false,
    };
    let outcome = run(&operator, &rows, &input_schema(DataType::Timestamp(3)), how);
    let expected = ["1|60000|65000|64999", "3|20000|32000|31999", "5|0|14999|14998"];
    assert_eq!(outcome.rows, expected);
}

/// Memory follows the live keys: ever-new keys leave it flat, for every kind of window.
#[test]
fn memory_stays_flat_with_ever_new_keys() -> Result<()> {
    let schema = input_schema(DataType::Timestamp(3));
    let exact = || {
        vec![
            call("COUNT", false, None, None),
            call("MAX", false, Some(NUMBER), None),
            call("COUNT", true, Some(KEY), None),
        ]
    };
    let sums = || vec![call("COUNT", false, None, None), call("SUM", false, Some(NUMBER), None)];
    let hop = WindowSpec::Hop { slide_ms: 10, size_ms: 40, offset_ms: 0 };
    let cumulate = WindowSpec::Cumulate { step_ms: 10, max_size_ms: 40, offset_ms: 0 };
    let session = SessionSpec {
        gap_ms: 10,
        rowtime: TIME,
        zone: None,
        keys: vec![KEY],
        aggregates: exact(),
        late: LatePolicy::Drop,
        input: schema.clone(),
    };
    let tumble = WindowSpec::Tumble { size_ms: 10, offset_ms: 0 };
    let operators: Vec<Box<dyn Operator>> = vec![
        Box::new(WindowAggregate::new(spec(tumble, &[KEY], exact()))?),
        Box::new(WindowAggregate::new(spec(hop, &[KEY], exact()))?),
        Box::new(WindowAggregate::new(spec(hop, &[KEY], sums()))?),
        Box::new(WindowAggregate::new(spec(cumulate, &[KEY], exact()))?),
        Box::new(SessionAggregate::new(session)?),
    ];
    for (place, operator) in operators.iter().enumerate() {
        let mut driver = Driver::new(operator.as_ref(), 2, false);
        let mut early_bytes = 0;
        for step in 0..300i64 {
            let rows: Vec<Row> = (0..50).map(|n| keyed(step * 10, step * 50 + n)).collect();
            driver.rows(&bundle(&rows, &schema, step * 10 - 1))?;
            driver.watermark(step * 10)?;
            driver.outcome.rows.clear();
            if step == 60 {
                early_bytes = driver.state_bytes();
            }
        }
        let late_bytes = driver.state_bytes();
        assert!(late_bytes < early_bytes * 3 / 2, "{place}: {early_bytes} then {late_bytes}");
    }
    Ok(())
}

/// Three keys are three entries, in however many windows their rows are, and however often they
/// come; none is left when all windows are closed.
#[test]
fn open_windows_count_their_keys() -> Result<()> {
    let schema = input_schema(DataType::Timestamp(3));
    let exact = || vec![call("COUNT", false, None, None)];
    let session = SessionSpec {
        gap_ms: 10,
        rowtime: TIME,
        zone: None,
        keys: vec![KEY],
        aggregates: exact(),
        late: LatePolicy::Drop,
        input: schema.clone(),
    };
    let tumble = WindowSpec::Tumble { size_ms: 10, offset_ms: 0 };
    let hop = WindowSpec::Hop { slide_ms: 5, size_ms: 10, offset_ms: 0 };
    let operators: Vec<Box<dyn Operator>> = vec![
        Box::new(WindowAggregate::new(spec(tumble, &[KEY], exact()))?),
        Box::new(SessionAggregate::new(session)?),
        Box::new(WindowAggregate::new(spec(hop, &[KEY], exact()))?),
    ];
    for (place, operator) in operators.iter().enumerate() {
        let mut driver = Driver::new(operator.as_ref(), 1, false);
        assert_eq!(driver.state_keys(), Some(0), "{place}");
        let rows: Vec<Row> = (0..9).map(|n| keyed(n, n % 3)).collect();
        driver.rows(&bundle(&rows, &schema, i64::MIN))?;
        assert_eq!(driver.state_keys(), Some(3), "{place}");
        driver.watermark(100)?;
        // Windows over slices keep their keys for a while: they may come again.
        let left = if place == 2 { 3 } else { 0 };
        assert_eq!(driver.state_keys(), Some(left), "{place}");
    }
    Ok(())
}

/// Windows without rows cost nothing, however many a gap holds.
#[test]
fn a_gap_of_ages_is_passed_in_a_step() -> Result<()> {
    let schema = input_schema(DataType::Timestamp(3));
    let hop = WindowSpec::Hop { slide_ms: 1, size_ms: 3, offset_ms: 0 };
    let operator =
        WindowAggregate::new(spec(hop, &[], vec![call("MIN", false, Some(NUMBER), None)]))?;
    let mut driver = Driver::new(&operator, 1, false);
    driver.rows(&bundle(&[keyed(0, 0)], &schema, i64::MIN))?;
    driver.rows(&bundle(&[keyed(4_000_000_000_000, 0)], &schema, 0))?;
    assert_eq!(driver.finish().rows.len(), 6);
    Ok(())
}

#[test]
fn late_rows_and_missing_times_can_fail_the_job() -> Result<()> {
    let schema = input_schema(DataType::Timestamp(3));
    let tumble = WindowSpec::Tumble { size_ms: 10, offset_ms: 0 };
    let failing = WindowAggregateSpec { late: LatePolicy::Fail, ..spec(tumble, &[], vec![]) };
    let operator = WindowAggregate::new(failing)?;
    let mut driver = Driver::new(&operator, 1, false);
    let error = driver.rows(&bundle(&[keyed(5, 0)], &schema, 9)).expect_err("late");
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().contains("1970-01-01 00:00:00.005"), "{error}");
    assert!(error.message().contains("1970-01-01 00:00:00.009"), "{error}");

    let mut columns = batch(&[keyed(5, 0)], &schema).columns().to_vec();
    columns[TIME] = arrow_array::new_null_array(columns[TIME].data_type(), 1);
    let rows = arrow_array::RecordBatch::try_new(schema.arrow(), columns)?;
    let error = driver.rows(&Bundle::new(rows, Stamps::first())).expect_err("no row time");
    assert!(error.message().contains("row time time is NULL"), "{error}");
    Ok(())
}

#[test]
fn float_sums_are_sequenced_and_exact_aggregates_commute() -> Result<()> {
    let tumble = WindowSpec::Tumble { size_ms: 10, offset_ms: 0 };
    let class = |aggregate| -> Result<OperatorClass> {
        Ok(WindowAggregate::new(spec(tumble, &[KEY], vec![aggregate]))?.class())
    };
    assert_eq!(class(call("AVG", false, Some(WEIGHT), None))?, OperatorClass::Sequenced);
    assert_eq!(class(call("AVG", false, Some(PRICE), None))?, OperatorClass::Commuting);
    Ok(())
}
