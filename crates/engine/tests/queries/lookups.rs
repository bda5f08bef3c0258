//! Lookup joins with a table of the user's that is asked by key: it answers late, out of order, and
//! sometimes not at all, and the result is that of a join with what it knows.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray};
use thalweg::session::{Session, SessionOptions};
use thalweg::{Error, Result};
use thalweg_core::connector::{
    Capabilities, Connector, ConnectorDescription, Options, TableRequest,
};
use thalweg_core::lookup::{Answer, AsyncLookup, LookupRequest};

/// What the table was asked, and how it behaves.
#[derive(Default)]
struct Store {
    /// One of this many calls fails; 0 for none.
    fails: usize,
    /// Answers never.
    is_silent: bool,
    calls: AtomicUsize,
    keys: AtomicUsize,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
}

/// Key k has k % 4 rows, (k, "k-0"), (k, "k-1"), …
struct Opened(Arc<Store>, Vec<String>);

impl AsyncLookup for Opened {
    fn lookup(&self, keys: RecordBatch) -> Answer {
        let (store, columns) = (Arc::clone(&self.0), self.1.clone());
        let call = store.calls.fetch_add(1, Ordering::SeqCst);
        let now = store.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        store.at_once_max.fetch_max(now, Ordering::SeqCst);
        let keys = keys.column(0).as_primitive::<Int64Type>().clone();
        store.keys.fetch_add(keys.len(), Ordering::SeqCst);
        let later = Later::default();
        let state = Arc::clone(&later.0);
        if store.is_silent {
            return Box::pin(later);
        }
        std::thread::spawn(move || {
            // The first calls take longest.
            std::thread::sleep(Duration::from_millis(1 + (call as u64 * 7) % 23));
            store.at_once.fetch_sub(1, Ordering::SeqCst);
            let fails = store.fails > 0 && call % store.fails == 1;
            let answer =
                if fails { Err(Error::io("the store is away")) } else { Ok(rows(&keys, &columns)) };
            let mut state = state.lock().expect("no panic");
            state.0 = Some(answer);
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        });
        Box::pin(later)
    }
}

fn rows(keys: &Int64Array, columns: &[String]) -> RecordBatch {
    let (mut k, mut v) = (Vec::new(), Vec::new());
    for &key in keys.values() {
        for n in 0..key % 4 {
            k.push(key);
            v.push(format!("{key}-{n}"));
        }
    }
    let k: ArrayRef = Arc::new(Int64Array::from(k));
    let v: ArrayRef = Arc::new(StringViewArray::from_iter_values(v));
    let named =
        [("k", k), ("v", v)].into_iter().filter(|(name, _)| columns.iter().any(|c| c == name));
    RecordBatch::try_from_iter(named).expect("fits")
}

#[derive(Default)]
struct Later(Arc<Mutex<(Option<Result<RecordBatch>>, Option<Waker>)>>);

impl Future for Later {
    type Output = Result<RecordBatch>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock().expect("no panic");
        match state.0.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

struct StoreConnector(Arc<Store>);

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::LOOKUP,
    ..ConnectorDescription::new("store", "a store in memory")
};

impl Connector for StoreConnector {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        Options::of(request, &DESCRIPTION).map(drop)
    }
    fn lookup(&self, request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>> {
        assert_eq!(request.keys, ["k"]);
        let columns = request.columns().columns.into_iter().map(|column| column.name).collect();
        Ok(Arc::new(Opened(Arc::clone(&self.0), columns)))
    }
}

const ROWS: i32 = 3000;

fn script(order: &str, options: &str, query: &str) -> String {
    format!(
        "SET 'pipeline.order' = '{order}'; SET 'pipeline.order.allow-nondeterministic' = 'true';
         SET 'pipeline.bundle-rows-max' = '50';
         CREATE TABLE t (n INT, ts AS TO_TIMESTAMP_LTZ(n, 3), clock AS PROCTIME(), WATERMARK FOR ts AS ts) WITH (
           'connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{}');
         CREATE TABLE store (k BIGINT, v STRING, w INT) WITH ('connector' = 'store'{options});
         CREATE VIEW keyed AS SELECT n, ts, clock, CASE WHEN n % 7 = 0 THEN NULL ELSE CAST(n % 40 AS BIGINT) END AS k FROM t;
         {query}",
        ROWS - 1
    )
}

fn run(store: &Arc<Store>, workers: usize, text: &str) -> Result<Vec<RecordBatch>> {
    let options = SessionOptions { workers: Some(workers), ..SessionOptions::default() };
    let mut session = Session::new(options)?;
    session.register_connector(Arc::new(StoreConnector(Arc::clone(store))));
    session.execute(text)
}

const QUERY: &str = "SELECT n, v FROM keyed KIND JOIN store FOR SYSTEM_TIME AS OF keyed.clock AS s ON keyed.k = s.k;";

fn expected(pads: bool) -> Vec<(i32, Option<String>)> {
    let mut rows = Vec::new();
    for n in 0..ROWS {
        let partners = if n % 7 == 0 { 0 } else { (n % 40) % 4 };
        rows.extend((0..partners).map(|i| (n, Some(format!("{}-{i}", n % 40)))));
        if partners == 0 && pads {
            rows.push((n, None));
        }
    }
    rows
}

fn pairs(batches: &[RecordBatch]) -> Vec<(i32, Option<String>)> {
    let mut rows = Vec::new();
    for batch in batches {
        let (n, v): (&Int32Array, _) =
            (batch.column(0).as_primitive::<Int32Type>(), batch.column(1));
        let v = v.as_string_view();
        rows.extend(n.values().iter().copied().zip(v.iter().map(|v| v.map(str::to_owned))));
    }
    rows
}

#[test]
fn answers_out_of_order_give_results_in_order() {
    for (kind, pads) in [("", false), ("LEFT", true)] {
        for order in ["epoch", "arrival", "event_time"] {
            for workers in [1, 2, 4] {
                let store = Arc::new(Store { fails: 5, ..Store::default() });
                let options = ", 'lookup.async.capacity' = '8', 'lookup.max-retries' = '20'";
                let text = script(order, options, &QUERY.replace("KIND", kind));
                let mut got = pairs(&run(&store, workers, &text).expect("runs"));
                if order == "epoch" {
                    got.sort_by_key(|(n, v)| (*n, v.clone()));
                }
                assert!(got == expected(pads), "{kind} {order} {workers}: {} rows", got.len());
                assert!(store.at_once_max.load(Ordering::SeqCst) > 1, "several at once");
                assert!(store.at_once_max.load(Ordering::SeqCst) <= 8, "but not too many");
            }
        }
    }
}

#[test]
fn what_is_remembered_is_not_asked_again() {
    let store = Arc::new(Store::default());
    let options = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '1000', 'lookup.async.capacity' = '1'";
    let text = script("arrival", options, &QUERY.replace("KIND", "LEFT"));
    assert!(pairs(&run(&store, 1, &text).expect("runs")) == expected(true));
    let (cached, calls) = (store.keys.load(Ordering::SeqCst), store.calls.load(Ordering::SeqCst));
    let without = Arc::new(Store::default());
    run(&without, 1, &script("arrival", "", &QUERY.replace("KIND", "LEFT"))).expect("runs");
    let asked = without.keys.load(Ordering::SeqCst);
    assert!(cached * 2 < asked, "{cached} keys in {calls} calls instead of {asked}");
}

#[test]
fn windows_wait_for_the_answers() {
    let store = Arc::new(Store::default());
    let query = "CREATE VIEW joined AS SELECT keyed.ts, v FROM keyed LEFT JOIN store FOR SYSTEM_TIME AS OF keyed.clock AS s ON keyed.k = s.k;
        SELECT CAST(COUNT(*) AS INT) AS c FROM TABLE(TUMBLE(TABLE joined, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end;";
    for order in ["epoch", "arrival"] {
        let batches = run(&store, 2, &script(order, "", query)).expect("runs");
        let counts: i32 = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int32Type>().values())
            .sum();
        assert_eq!(counts as usize, expected(true).len(), "{order}: no row is late");
    }
}

#[test]
fn a_table_that_does_not_answer_fails_the_job() {
    let silent = Arc::new(Store { is_silent: true, ..Store::default() });
    let options = ", 'lookup.async.timeout' = '30 ms', 'lookup.max-retries' = '1'";
    let text = script("epoch", options, &QUERY.replace("KIND", ""));
    let error = run(&silent, 2, &text).expect_err("nobody answers");
    let hint = error.help().unwrap_or_default();
    assert!(hint.contains("'lookup.async.timeout'"), "an option of the table: {hint}");
    let error = error.to_string();
    assert!(error.contains("lookup store") && error.contains("no answer within 30 ms"), "{error}");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let store = Arc::new(Store::default());
    let ordered = script("arrival", "", &QUERY.replace("KIND", "")).replace("'true'", "'false'");
    let cases = [
        (ordered, "depends on when the job runs"),
        (script("epoch", "", "SELECT k FROM store;"), "can't be read as a whole"),
        (script("epoch", "", "INSERT INTO store SELECT k, 'x', 1 FROM keyed;"), "can't be written"),
        (
            script("epoch", ", 'lookup.cache' = 'FULL'", &QUERY.replace("KIND", "")),
            "NONE or PARTIAL",
        ),
        (
            script("epoch", ", 'lookup.async.timeout' = 'soon'", &QUERY.replace("KIND", "")),
            "a duration above zero",
        ),
        (
            script("epoch", "", &QUERY.replace("KIND", "").replace("s.k", "s.k + 1")),
            "joined by its columns",
        ),
    ];
    for (text, part) in cases {
        let error = run(&store, 1, &text).expect_err(part);
        let text = format!("{error} {:?}", error.help());
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(store.calls.load(Ordering::SeqCst), 0);
}
