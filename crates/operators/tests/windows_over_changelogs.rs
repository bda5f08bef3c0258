//! Windows over a changelog, driven in every way that their contract allows, with captures at any
//! row: what is emitted is what is left in each window when it closes.
//!
//! The reference keeps for each window, key and aggregate the rows that are left; of rows with
//! equal arguments the oldest is retracted. A session keeps its bounds when its rows are retracted.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMillisecondArray,
};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, Operator, RowKind, TableSchema};
use thalweg_operators::aggregate::AggregateCall;
use thalweg_operators::reference::{ReferenceAggregate, ReferenceFunction, ReferenceWindow, Value};
use thalweg_operators::test_kit::{
    Event, aggregate_pair, assert_same_rows, changelog_of, check_operator, rows_of, sorted, stamped,
};
use thalweg_operators::window::{
    LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec, WindowSpec,
};

const TIME: usize = 0;
const KEY: usize = 1;
const WORD: usize = 2;
const NUMBER: usize = 3;
const DOUBLE: usize = 4;
const FLAG: usize = 5;

fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).nullable()),
        Column::new("key", DataType::BigInt.nullable()),
        Column::new("word", DataType::STRING.nullable()),
        Column::new("number", DataType::BigInt.nullable()),
        Column::new("double", DataType::Double.nullable()),
        Column::new("flag", DataType::Boolean.nullable()),
    ])
}

/// Rows that move on by about 2 ms each, out of order. Most words and numbers occur often.
fn fresh_rows(rows: usize, random: &mut SplitMix64) -> RecordBatch {
    const WORDS: [&str; 3] = ["", "a", "a word too long to be inlined"];
    let mut now = 0;
    let times = (0..rows).map(|_| {
        now += random.below(5) as i64 + if random.below(40) == 0 { 90 } else { 0 };
        now - random.below(12) as i64
    });
    let times = TimestampMillisecondArray::from_iter_values(times.collect::<Vec<_>>());
    let mut column = |bound: u64| -> Vec<Option<u64>> {
        (0..rows).map(|_| (random.below(5) > 0).then(|| random.below(bound))).collect()
    };
    let (keys, words, numbers) = (column(3), column(3), column(6));
    let (doubles, flags) = (column(9), column(2));
    let number = |value: Option<u64>| value.map(|value| value as i64 - 2);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times),
        Arc::new(keys.into_iter().map(number).collect::<Int64Array>()),
        Arc::new(
            words.iter().map(|at| at.map(|at| WORDS[at as usize])).collect::<StringViewArray>(),
        ),
        Arc::new(numbers.into_iter().map(number).collect::<Int64Array>()),
        Arc::new(doubles.iter().map(|v| v.map(|v| v as f64 / 4.0)).collect::<Float64Array>()),
        Arc::new(flags.iter().map(|v| v.map(|v| v == 1)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns as declared")
}

/// A changelog: now and then a row that is there is retracted, mostly one that came lately.
fn changelog(count: usize, random: &mut SplitMix64) -> (RecordBatch, Vec<RowKind>) {
    let fresh = fresh_rows(count, random);
    changelog_of(&fresh, random, |random, live| {
        let goes = !live.is_empty() && random.below(9) < 4;
        goes.then(|| {
            let newest = live.len();
            live.remove(newest - 1 - random.below(newest.min(12) as u64) as usize)
        })
    })
}

type Aggregates = Vec<(AggregateCall, ReferenceAggregate)>;

fn aggregates() -> Aggregates {
    let of = |name: &str, function, argument: Option<usize>, distinct, filter| {
        aggregate_pair(&schema(), (name, function), argument, distinct, filter)
    };
    use ReferenceFunction as F;
    vec![
        of("COUNT", F::Count, None, false, None),
        of("COUNT", F::Count, Some(NUMBER), false, Some(FLAG)),
        of("SUM", F::Sum { bits: 64 }, Some(NUMBER), false, None),
        of("AVG", F::Avg, Some(NUMBER), false, None),
        of("SUM", F::Sum { bits: 64 }, Some(DOUBLE), false, None),
        of("MIN", F::Min, Some(NUMBER), false, None),
        of("MAX", F::Max, Some(WORD), false, None),
        of("COUNT", F::Count, Some(WORD), true, None),
        of("SUM", F::Sum { bits: 64 }, Some(NUMBER), true, Some(FLAG)),
        of("FIRST_VALUE", F::First, Some(NUMBER), false, None),
        of("LAST_VALUE", F::Last, Some(NUMBER), false, None),
        of("LISTAGG", F::ListAgg, Some(WORD), false, None),
    ]
}

/// What is left of a window and key.
#[derive(Clone, Default)]
struct Left {
    count: usize,
    /// For each aggregate the rows that are left, with when they came.
    rows: Vec<Vec<(usize, Vec<Value>)>>,
}

impl Left {
    fn apply(&mut self, of: &Aggregates, row: &[Value], arrival: usize, retracts: bool) {
        self.rows.resize(of.len(), Vec::new());
        if retracts && self.count == 0 {
            return;
        }
        self.count = if retracts { self.count - 1 } else { self.count + 1 };
        for ((_, aggregate), rows) in of.iter().zip(&mut self.rows) {
            let counts =
                |row: &[Value]| aggregate.filter.is_none_or(|at| row[at] == Value::Boolean(true));
            let argument = |row: &[Value]| aggregate.argument.map(|at| row[at].clone());
            if !counts(row) {
            } else if retracts {
                let oldest = rows.iter().position(|(_, other)| argument(other) == argument(row));
                oldest.map(|place| rows.remove(place));
            } else if !aggregate.distinct {
                rows.push((arrival, row.to_vec()));
            } else {
                // DISTINCT: a value stands where it was new, however often it comes.
                let place = rows.iter().rposition(|(_, other)| argument(other) == argument(row));
                rows.insert(place.map_or(rows.len(), |place| place + 1), (arrival, row.to_vec()));
            }
        }
    }

    fn merge(&mut self, other: Left) {
        self.count += other.count;
        self.rows.resize(other.rows.len().max(self.rows.len()), Vec::new());
        for (own, more) in self.rows.iter_mut().zip(other.rows) {
            own.extend(more);
            own.sort_by_key(|(arrival, _)| *arrival);
        }
    }

    fn results(&self, of: &Aggregates) -> Vec<Value> {
        let rows = self.rows.iter().map(|rows| rows.iter().map(|(_, row)| row.clone()).collect());
        of.iter().zip(rows).map(|((_, aggregate), rows): (_, Vec<_>)| aggregate.of(&rows)).collect()
    }
}

struct Session {
    start: i64,
    end: i64,
    left: Left,
}

#[derive(Default)]
struct Expected {
    /// By end, start and key.
    windows: BTreeMap<(i64, i64, Vec<Value>), Left>,
    sessions: BTreeMap<Vec<Value>, Vec<Session>>,
    late: u64,
}

impl Expected {
    fn add(
        &mut self,
        (window, of): (ReferenceWindow, &Aggregates),
        (key, time, row): (Vec<Value>, i64, &[Value]),
        (arrival, retracts, before): (usize, bool, i64),
    ) {
        if let ReferenceWindow::Session { gap_ms } = window {
            let sessions = self.sessions.entry(key.clone()).or_default();
            let closed = sessions.extract_if(.., |session| session.end - 1 <= before);
            for Session { start, end, left } in closed {
                self.windows.insert((end, start, key.clone()), left);
            }
            let mut own = Session { start: time, end: time + gap_ms, left: Left::default() };
            let mut joined: Vec<Session> = sessions
                .extract_if(.., |other| other.start <= own.end && own.start <= other.end)
                .collect();
            joined.sort_by_key(|session| session.start);
            for other in joined {
                own.start = own.start.min(other.start);
                own.end = own.end.max(other.end);
                own.left.merge(other.left);
            }
            if own.end - 1 <= before {
                self.late += 1;
                return;
            }
            own.left.apply(of, row, arrival, retracts);
            return sessions.push(own);
        }
        let windows = window.windows_of(time);
        let open: Vec<_> = windows.iter().filter(|(_, end)| end - 1 > before).collect();
        self.late += u64::from(open.is_empty() && !windows.is_empty());
        for &&(start, end) in &open {
            let left = self.windows.entry((end, start, key.clone())).or_default();
            left.apply(of, row, arrival, retracts);
        }
    }

    fn rows(mut self, of: &Aggregates) -> Vec<Vec<Value>> {
        for (key, sessions) in std::mem::take(&mut self.sessions) {
            for Session { start, end, left } in sessions {
                self.windows.insert((end, start, key.clone()), left);
            }
        }
        let with_rows = self.windows.into_iter().filter(|(_, left)| left.count > 0);
        let row = |((end, start, key), left): ((i64, i64, Vec<Value>), Left)| {
            let times = [start, end, end - 1].map(Value::Integer);
            key.into_iter().chain(left.results(of)).chain(times).collect()
        };
        with_rows.map(row).collect()
    }
}

fn operator(window: ReferenceWindow, keys: &[usize]) -> Box<dyn Operator> {
    let (keys, input, late) = (keys.to_vec(), schema(), LatePolicy::Drop);
    let aggregates = aggregates().into_iter().map(|(call, _)| call).collect();
    let window = match window {
        ReferenceWindow::Session { gap_ms } => {
            let spec =
                SessionSpec { gap_ms, rowtime: TIME, zone: None, keys, aggregates, late, input };
            let sessions = SessionAggregate::new(spec).expect("a specification that fits");
            return Box::new(sessions.with_retractions().expect("all aggregates retract"));
        }
        ReferenceWindow::Tumble { size_ms, offset_ms } => WindowSpec::Tumble { size_ms, offset_ms },
        ReferenceWindow::Hop { slide_ms, size_ms, offset_ms } => {
            WindowSpec::Hop { slide_ms, size_ms, offset_ms }
        }
        ReferenceWindow::Cumulate { step_ms, max_size_ms, offset_ms } => {
            WindowSpec::Cumulate { step_ms, max_size_ms, offset_ms }
        }
    };
    let spec =
        WindowAggregateSpec { window, rowtime: TIME, zone: None, keys, aggregates, late, input };
    let windows = WindowAggregate::new(spec).expect("a specification that fits");
    Box::new(windows.with_retractions().expect("all aggregates retract"))
}

fn check(window: ReferenceWindow, keys: &[usize], seed: u64) {
    let mut random = SplitMix64::new(seed);
    let delay_ms = random.below(30) as i64;
    let (batch, kinds) = changelog(160, &mut random);
    let rows = rows_of(std::slice::from_ref(&batch));
    let time_of = |row: &Vec<Value>| match row[TIME] {
        Value::Integer(time) => time,
        ref other => panic!("a row time is {other:?}"),
    };
    let (mut running, mut expected) = (i64::MIN, Expected::default());
    let aggregates = aggregates();
    for (arrival, row) in rows.iter().enumerate() {
        let key = keys.iter().map(|&key| row[key].clone()).collect();
        let retracts = matches!(kinds[arrival], RowKind::UpdateBefore | RowKind::Delete);
        let arrived = (arrival, retracts, running);
        expected.add((window, &aggregates), (key, time_of(row), row), arrived);
        running = running.max(time_of(row) - delay_ms);
    }
    let watermarks: Vec<_> = rows.iter().map(|row| Some(time_of(row) - delay_ms)).collect();
    let mut from = 0;
    let script: Vec<Event> = stamped(&batch, &watermarks, 1 + random.below(40) as usize)
        .into_iter()
        .map(|event| match event {
            Event::Rows { lane, batch, watermark_before } => {
                let kinds = kinds[from..from + batch.num_rows()].to_vec();
                from += batch.num_rows();
                Event::Changes { lane, batch, kinds, watermark_before }
            }
            other => other,
        })
        .collect();
    let driven = check_operator(operator(window, keys).as_ref(), &script);
    let what = format!("{window:?} by {keys:?}, seed {seed}");
    assert_eq!(driven.late, expected.late, "{what}: late rows and retractions");
    assert_eq!(driven.accepted + driven.late, rows.len() as u64, "{what}: all are counted");
    let expected = sorted(expected.rows(&aggregates));
    assert!(!expected.is_empty(), "{what}: something is emitted");
    assert_same_rows(&sorted(rows_of(&driven.emitted)), &expected, &what);
    assert!(driven.kinds.iter().all(Option::is_none), "{what}: a window is emitted once");
}

fn check_all(window: ReferenceWindow) {
    for seed in 0..2 {
        for keys in [&[KEY][..], &[], &[WORD, KEY]] {
            check(window, keys, seed);
        }
    }
}

#[test]
fn tumbling_windows_retract() {
    check_all(ReferenceWindow::Tumble { size_ms: 20, offset_ms: 3 });
}

#[test]
fn hopping_windows_retract() {
    check_all(ReferenceWindow::Hop { slide_ms: 5, size_ms: 20, offset_ms: 0 });
    check_all(ReferenceWindow::Hop { slide_ms: 8, size_ms: 20, offset_ms: -3 });
}

#[test]
fn cumulating_windows_retract() {
    check_all(ReferenceWindow::Cumulate { step_ms: 10, max_size_ms: 40, offset_ms: 1 });
}

#[test]
fn sessions_retract() {
    check_all(ReferenceWindow::Session { gap_ms: 9 });
}
