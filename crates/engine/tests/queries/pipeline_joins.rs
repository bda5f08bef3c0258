//! Joins and co-aggregation in the builder against loops over all pairs, at several numbers of
//! workers; and what is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow_cast::display::array_value_to_string;
use thalweg::expr::{Expr, Session, build};
use thalweg::pipeline::{
    Collect, JoinKind, Late, MemorySource, Pipeline, Stream, StreamJoin, Window, aggregate, count,
    maximum, sum,
};
use thalweg::{Column, DataType, Result, RowKind, RunOptions, TableSchema};
use thalweg_core::shim::SplitMix64;

/// Time, key, value.
type Row = (i64, i64, i64);

fn rows(seed: u64, count: usize, keys: u64) -> Vec<Row> {
    let mut random = SplitMix64::new(seed);
    let mut time_ms = 0;
    let mut row = |_| {
        time_ms += 1 + random.below(30) as i64;
        (time_ms, random.below(keys) as i64, random.below(50) as i64)
    };
    (0..count).map(&mut row).collect()
}

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("at", DataType::Timestamp(3).not_null()),
        Column::new("id", DataType::BigInt.not_null()),
        Column::new("value", DataType::BigInt.not_null()),
    ])
}

fn read(pipeline: &Pipeline, name: &str, rows: &[Row]) -> Stream {
    let numbers = |of: fn(&Row) -> i64| -> Vec<i64> { rows.iter().map(of).collect() };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(numbers(|row| row.0))),
        Arc::new(Int64Array::from(numbers(|row| row.1))),
        Arc::new(Int64Array::from(numbers(|row| row.2))),
    ];
    let batch = RecordBatch::try_new(schema().arrow(), columns).expect("it fits");
    let source = MemorySource::new(schema(), vec![batch]);
    pipeline.read(name, source, schema()).watermark("at", 0).expect("a time")
}

fn options(workers: usize) -> RunOptions {
    RunOptions { workers, bundle_rows_max: 7, pin_workers: false, ..RunOptions::default() }
}

/// The rows that are left of changes, as texts, sorted.
fn left_of(collected: &Collect) -> Vec<String> {
    let mut left: BTreeMap<String, i64> = BTreeMap::new();
    for changes in collected.changes() {
        for row in 0..changes.batch.num_rows() {
            let values = changes.batch.columns().iter();
            let texts: Vec<String> =
                values.map(|column| array_value_to_string(column, row).expect("a text")).collect();
            let one = match changes.kind(row) {
                RowKind::Insert | RowKind::UpdateAfter => 1,
                RowKind::UpdateBefore | RowKind::Delete => -1,
            };
            *left.entry(texts.join(",")).or_default() += one;
        }
    }
    assert!(left.values().all(|count| *count >= 0), "only what is there is retracted");
    left.into_iter().flat_map(|(text, count)| vec![text; count as usize]).collect()
}

fn run(
    workers: usize,
    (left, right): (&[Row], &[Row]),
    build: impl FnOnce(Stream, Stream) -> Result<Stream>,
) -> (Vec<String>, Vec<String>) {
    let (pipeline, results) = (Pipeline::new(), Collect::new());
    let (left, right) = (read(&pipeline, "left", left), read(&pipeline, "right", right));
    let stream = build(left, right).expect("it fits");
    let names = stream.schema().columns.iter().map(|column| column.name.clone()).collect();
    stream.write("results", results.sink());
    pipeline.run(options(workers)).expect("the job runs");
    (left_of(&results), names)
}

fn text(row: Option<&Row>) -> String {
    let time = |ms: i64| array_value_to_string(&TimestampMillisecondArray::from(vec![ms]), 0);
    let row = row.map(|row| format!("{},{},{}", time(row.0).expect("a text"), row.1, row.2));
    row.unwrap_or_else(|| ",,".to_owned())
}

/// The rows of a join; `more` says what stands behind the columns of both sides.
fn expected(
    kind: JoinKind,
    (left, right): (&[Row], &[Row]),
    meets: impl Fn(&Row, &Row) -> bool,
    more: impl Fn(&Row) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    let pair = |l: Option<&Row>, r: Option<&Row>| {
        let of = l.or(r).expect("a side");
        format!("{},{}{}", text(l), text(r), more(of))
    };
    for l in left {
        let partners: Vec<&Row> = right.iter().filter(|r| l.1 == r.1 && meets(l, r)).collect();
        match (kind, partners.is_empty()) {
            (JoinKind::Semi, false) | (JoinKind::Anti, true) => {
                lines.push(format!("{}{}", text(Some(l)), more(l)));
            }
            (JoinKind::Semi | JoinKind::Anti, _) => {}
            (JoinKind::Left | JoinKind::Full, true) => lines.push(pair(Some(l), None)),
            _ => lines.extend(partners.into_iter().map(|r| pair(Some(l), Some(r)))),
        }
    }
    if kind.pads_right_rows() {
        let meets = |l: &Row, r: &Row| l.1 == r.1 && meets(l, r);
        let alone = right.iter().filter(|r| !left.iter().any(|l| meets(l, r)));
        lines.extend(alone.map(|r| pair(None, Some(r))));
    }
    lines.sort();
    lines
}

fn by_id(left: Stream, kind: JoinKind, right: Stream) -> Result<StreamJoin> {
    left.join(kind, right).on(&[("id", "id")])
}

#[test]
fn joins_of_every_kind_are_those_of_a_loop() {
    let (left, right) = (rows(1, 90, 9), rows(2, 70, 9));
    let both = (left.as_slice(), right.as_slice());
    let none = |_: &Row| String::new();
    for workers in [1, 2, 4] {
        for kind in JoinKind::ALL {
            let (got, names) = run(workers, both, |l, r| by_id(l, kind, r)?.unbounded());
            let wanted = expected(kind, both, |_, _| true, none);
            assert_eq!(got, wanted, "{kind:?} unbounded, {workers} workers");
            let columns: &[&str] = match kind.has_right_columns() {
                true => &["at", "id", "value", "at0", "id0", "value0"],
                false => &["at", "id", "value"],
            };
            assert_eq!(names, columns);

            let within = |l: &Row, r: &Row| (r.0 - 40..=r.0 + 25).contains(&l.0);
            let (got, _) =
                run(workers, both, |l, r| by_id(l, kind, r)?.within(("at", "at"), -40, 25));
            assert_eq!(got, expected(kind, both, within, none), "{kind:?} within, {workers}");

            let window = |row: &Row| {
                let time = |ms: i64| text(Some(&(ms, 0, 0))).replace(",0,0", "");
                let start = row.0 / 300 * 300;
                format!(",{},{},{}", time(start), time(start + 300), time(start + 299))
            };
            let same = |l: &Row, r: &Row| l.0 / 300 == r.0 / 300;
            let (got, names) = run(workers, both, |l, r| {
                by_id(l, kind, r)?.in_windows(Window::tumbling(300), ("at", "at"))
            });
            assert_eq!(got, expected(kind, both, same, window), "{kind:?} windows, {workers}");
            assert_eq!(names[names.len() - 3..], ["window_start", "window_end", "window_time"]);
        }
    }
}

#[test]
fn tables_and_versions_are_looked_up() {
    // No two versions share a time, and not every key has one.
    let (left, right) = (rows(3, 120, 9), rows(4, 30, 8));
    let both = (left.as_slice(), right.as_slice());
    let none = |_: &Row| String::new();
    for workers in [1, 2, 4] {
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
            let (got, _) = run(workers, both, |l, r| by_id(l, kind, r)?.hashed());
            assert_eq!(got, expected(kind, both, |_, _| true, none), "{kind:?}, {workers} workers");
        }
        for kind in [JoinKind::Inner, JoinKind::Left] {
            let (got, _) = run(workers, both, |l, r| by_id(l, kind, r)?.as_of("at", "at"));
            let newest = |l: &Row, r: &Row| {
                let versions = right.iter().filter(|other| other.1 == l.1 && other.0 <= l.0);
                versions.max_by_key(|other| other.0).is_some_and(|newest| newest == r)
            };
            assert_eq!(
                got,
                expected(kind, both, newest, none),
                "{kind:?} as of, {workers} workers"
            );
        }
    }
}

#[test]
fn conditions_and_windows_of_results_join_too() {
    let (left, right) = (rows(5, 80, 5), rows(6, 60, 5));
    let both = (left.as_slice(), right.as_slice());
    let above = || {
        let column = |place| Expr::column(place, DataType::BigInt.not_null());
        build::binary(build::BinaryOp::Greater, column(2), column(5), &Session::default())
    };
    let (got, _) =
        run(2, both, |l, r| by_id(l, JoinKind::Left, r)?.condition(above()?).unbounded());
    let wanted = expected(JoinKind::Left, both, |l, r| l.2 > r.2, |_| String::new());
    assert_eq!(got, wanted);

    let sums = |stream: Stream, name: &str| {
        let windows = stream.window(Window::tumbling(200), "at")?.named(name).key_by(&["id"])?;
        windows.aggregate(vec![sum("value").named(name)])
    };
    let (got, names) = run(4, both, |l, r| {
        let (left, right) = (sums(l, "of left")?, sums(r, "of right")?);
        by_id(left, JoinKind::Inner, right)?.in_same_windows()
    });
    let grouped = |rows: &[Row]| -> BTreeMap<(i64, i64), i64> {
        let mut sums = BTreeMap::new();
        rows.iter().for_each(|row| *sums.entry((row.0 / 200, row.1)).or_default() += row.2);
        sums
    };
    let (left, right) = (grouped(&left), grouped(&right));
    let pairs = left.keys().filter(|key| right.contains_key(key)).count();
    assert_eq!((got.len(), names.len()), (pairs, 10));
}

#[test]
fn several_streams_are_aggregated_together() {
    let (left, right) = (rows(7, 150, 4), rows(8, 90, 6));
    let third = rows(9, 20, 7);
    type Sums = (i64, i64, Option<i64>, i64);
    let expected = |group: fn(&Row) -> (i64, i64)| {
        let mut groups: BTreeMap<(i64, i64), Sums> = BTreeMap::new();
        for row in &left {
            let of_group = groups.entry(group(row)).or_default();
            *of_group = (of_group.0 + 1, of_group.1 + row.2, of_group.2, of_group.3);
        }
        for row in &right {
            let of_group = groups.entry(group(row)).or_default();
            of_group.2 = of_group.2.max(Some(row.2));
        }
        third.iter().for_each(|row| groups.entry(group(row)).or_default().3 += 1);
        let line = |(key, sums): ((i64, i64), Sums)| {
            let (sum, max) = (Some(sums.1).filter(|_| sums.0 > 0), sums.2);
            let text = |of: Option<i64>| of.map(|of| of.to_string()).unwrap_or_default();
            format!("{},{},{},{},{}", key.1, sums.0, text(sum), text(max), sums.3)
        };
        let mut lines: Vec<String> = groups.into_iter().map(line).collect();
        lines.sort();
        lines
    };
    for workers in [1, 2, 4] {
        for is_whole in [false, true] {
            let (pipeline, results) = (Pipeline::new(), Collect::new());
            let grouped = |name: &str, rows: &[Row]| -> Result<_> {
                let stream = read(&pipeline, name, rows);
                match is_whole {
                    true => stream.group_by(&["id"]),
                    false => stream.window(Window::tumbling(250), "at")?.key_by(&["id"]),
                }
            };
            let co_aggregated = (|| {
                let (right, third) = (grouped("right", &right)?, grouped("third", &third)?);
                let others = vec![
                    (right, vec![maximum("value").named("highest")]),
                    (third, vec![count().named("thirds")]),
                ];
                grouped("left", &left)?.co_aggregate(vec![count(), sum("value")], others)
            })();
            let stream = co_aggregated.expect("it fits");
            let names: Vec<&str> = stream.schema().columns.iter().map(|c| &*c.name).collect();
            assert_eq!(names[..5], ["id", "count_rows", "sum_value", "highest", "thirds"]);
            let five = TableSchema::new(stream.schema().columns[..5].to_vec());
            let first =
                stream.map("first five", five, |batch| Ok(batch.project(&[0, 1, 2, 3, 4])?));
            first.write("results", results.sink());
            pipeline.run(options(workers)).expect("the job runs");
            let wanted = match is_whole {
                true => expected(|row| (0, row.1)),
                false => expected(|row| (row.0 / 250, row.1)),
            };
            assert_eq!(left_of(&results), wanted, "{workers} workers, whole: {is_whole}");
        }
    }
}

#[test]
fn co_groups_are_lists_of_each_stream() {
    let (left, right) = (rows(10, 40, 3), rows(11, 30, 3));
    let (pipeline, results) = (Pipeline::new(), Collect::new());
    let grouped = |name: &str, rows: &[Row]| read(&pipeline, name, rows).group_by(&["id"]);
    let lists = |name: &str| vec![aggregate("ARRAY_AGG", Some("value")).named(name)];
    let other = (grouped("right", &right).expect("a column"), lists("of right"));
    let groups =
        grouped("left", &left).expect("a column").co_aggregate(lists("of left"), vec![other]);
    groups.expect("it fits").write("results", results.sink());
    pipeline.run(options(1)).expect("the job runs");
    let list = |rows: &[Row], key: i64| {
        let values = rows.iter().filter(|row| row.1 == key).map(|row| row.2.to_string());
        format!("[{}]", values.collect::<Vec<_>>().join(", "))
    };
    let wanted: Vec<String> =
        (0..3).map(|key| format!("{key},{},{}", list(&left, key), list(&right, key))).collect();
    assert_eq!(left_of(&results), wanted);
}

/// The message of what is refused.
fn refused(build: impl FnOnce(Stream, Stream) -> Result<Stream>) -> String {
    let pipeline = Pipeline::new();
    let (left, right) = (read(&pipeline, "left", &[]), read(&pipeline, "right", &[]));
    let error = build(left, right).err().expect("it does not fit");
    error.to_string()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let inner = JoinKind::Inner;
    let message = refused(|l, r| l.join(inner, r).on(&[("id", "ID")])?.unbounded());
    assert!(message.contains("'join': right side:") && message.contains("'ID'"), "{message}");
    let message = refused(|l, r| l.join(inner, r).named("pay").on(&[("at", "id")])?.unbounded());
    assert!(message.contains("'pay': 'at' is TIMESTAMP(3), and 'id' is BIGINT"), "{message}");
    let message = refused(|l, r| by_id(l, inner, r)?.within(("id", "at"), 0, 0));
    assert!(message.contains("'join': the time 'id' is BIGINT, no timestamp"), "{message}");
    let message = refused(|l, r| by_id(l, JoinKind::Full, r)?.hashed());
    assert!(message.contains("'full join': rows of the side that is read first"), "{message}");
    let message = refused(|l, r| by_id(l, inner, r)?.in_windows(Window::session(5), ("at", "at")));
    assert!(message.contains("SESSION(5 ms)"), "{message}");
    let message = refused(|l, r| by_id(l, JoinKind::Semi, r)?.as_of("at", "at"));
    assert!(message.contains("inner or a left join"), "{message}");
    let message = refused(|l, _| {
        let other = read(&Pipeline::new(), "elsewhere", &[]);
        by_id(l, inner, other)?.unbounded()
    });
    assert!(message.contains("two pipelines"), "{message}");
    let message = refused(|l, r| {
        let both = by_id(l, inner, r)?.unbounded()?.shared();
        by_id(both.clone(), inner, both)?.hashed()
    });
    assert!(message.contains("feeds 'table of join'"), "{message}");
}

#[test]
fn what_is_updated_later_goes_where_changes_are_taken() {
    let message = refused(|l, r| {
        let updated = by_id(l, JoinKind::Left, r)?.unbounded()?;
        assert!(updated.has_updates());
        updated.window(Window::tumbling(10), "at")?.aggregate(vec![count()])
    });
    assert!(message.contains("a window takes rows that stay"), "{message}");
    let message = refused(|l, r| {
        let updated = by_id(l, JoinKind::Anti, r.clone())?.unbounded()?;
        by_id(updated, JoinKind::Inner, r)?.within(("at", "at"), 0, 1)
    });
    assert!(message.contains("'join', a join within a time, takes rows that stay"), "{message}");
    let pipeline = Pipeline::new();
    let (left, right) = (read(&pipeline, "left", &[]), read(&pipeline, "right", &[]));
    let updated = by_id(left, JoinKind::Full, right).expect("a key").unbounded().expect("it fits");
    updated.rows::<(i64, i64)>().for_each("none", |_| Ok(()));
    let error = pipeline.run(options(1)).expect_err("rows stay");
    assert!(error.to_string().contains("rows of (i64, i64) takes rows that stay"), "{error}");
}

#[test]
fn streams_that_differ_are_not_aggregated_together() {
    let windows = |stream: Stream, window: Window| stream.window(window, "at");
    let seconds = Window::tumbling(1000);
    let message = refused(|l, r| {
        let other = (windows(r, Window::tumbling(7))?.key_by(&["id"])?, vec![count()]);
        windows(l, seconds)?.key_by(&["id"])?.co_aggregate(vec![count()], vec![other])
    });
    assert!(message.contains("TUMBLE(1000 ms)") && message.contains("TUMBLE(7 ms)"), "{message}");
    let message = refused(|l, r| {
        let other = (windows(r, seconds)?.key_by(&["at"])?, vec![count().named("others")]);
        windows(l, seconds)?.key_by(&["id"])?.co_aggregate(vec![count()], vec![other])
    });
    assert!(message.contains("'id' is BIGINT, and 'at' is TIMESTAMP(3)"), "{message}");
    let message = refused(|l, r| {
        let other = (windows(r, seconds)?.key_by(&["id"])?, vec![count()]);
        windows(l, seconds)?.key_by(&["id"])?.co_aggregate(vec![count()], vec![other])
    });
    assert!(message.contains("two columns of the result are called 'count_rows'"), "{message}");
    let message = refused(|l, r| {
        let other = (windows(r, seconds)?.key_by(&["id"])?, vec![count().named("others")]);
        let late = windows(l, seconds)?.late(Late::Emit).key_by(&["id"])?;
        late.co_aggregate(vec![count()], vec![other])
    });
    assert!(message.contains("late rows"), "{message}");
}
