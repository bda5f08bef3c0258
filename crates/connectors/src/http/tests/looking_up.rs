//! Lookups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::Result;
use thalweg_core::lookup::{Answer, LookupRequest};

use super::*;
use crate::test_server::http_server;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(mut answer: Answer) -> Result<RecordBatch> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

fn look_up(port: u16, options: &[(&str, &str)], keys: Vec<i64>) -> Result<Vec<(i64, String)>> {
    let url = format!("http://127.0.0.1:{port}/names");
    let delay = ("http.source.lookup.retry-strategy.fixed-delay.delay", "1 ms");
    let table = request(&url, &[&[delay], options].concat());
    let request = LookupRequest { table, keys: vec!["n".to_owned()] };
    let lookup = Http::rows().lookup(&request)?;
    let keys: ArrayRef = Arc::new(Int64Array::from(keys));
    let rows = wait(lookup.lookup(RecordBatch::try_from_iter([("n", keys)]).expect("keys")))?;
    let (keys, names) = (rows.column(0).as_primitive::<Int64Type>(), rows.column(1));
    let names = names.as_string_view();
    Ok((0..rows.num_rows()).map(|at| (keys.value(at), names.value(at).to_owned())).collect())
}

#[test]
fn keys_are_parameters_or_a_body_and_answers_have_any_number_of_rows() {
    let server = http_server(0, |asked| match (asked.line.as_str(), asked.body.as_str()) {
        ("GET /names?n=1 HTTP/1.1", "") => (200, String::new(), "{\"name\": \"a\"}".to_owned()),
        ("GET /names?n=2 HTTP/1.1", "") => {
            (200, String::new(), "[{\"name\": \"b\", \"n\": 2}, {\"name\": \"c\"}]".to_owned())
        }
        ("POST /names HTTP/1.1", "{\"n\":1}") => {
            (200, String::new(), "{\"name\": \"posted\"}".to_owned())
        }
        _ => (404, String::new(), "{}".to_owned()),
    });
    let ignored = ("http.source.lookup.ignored-response-codes", "404");
    let rows = look_up(server.port, &[ignored], vec![1, 2, 3]).expect("rows");
    let row = |n: i64, name: &str| (n, name.to_owned());
    assert_eq!(rows, [row(1, "a"), row(2, "b"), row(2, "c")]);
    let posted = look_up(server.port, &[("lookup-method", "POST")], vec![1]).expect("rows");
    assert_eq!(posted, [row(1, "posted")]);
    let error = look_up(server.port, &[], vec![1, 3]).expect_err("no row");
    assert!(error.to_string().contains("404"), "{error}");
    let on = ("http.source.lookup.continue-on-error", "true");
    assert_eq!(look_up(server.port, &[on], vec![3]).expect("rows"), []);
}

#[test]
fn answers_that_are_no_rows_and_servers_that_are_down_are_errors() {
    let times = AtomicUsize::new(0);
    let server = http_server(0, move |_| match times.fetch_add(1, Ordering::SeqCst) {
        0 => (503, String::new(), String::new()),
        _ => (200, String::new(), "<html>".to_owned()),
    });
    let error = look_up(server.port, &[], vec![1]).expect_err("busy");
    assert!(error.to_string().contains("503"), "{error}");
    let error = look_up(server.port, &[], vec![1]).expect_err("no row");
    assert!(error.to_string().contains("/names is no row"), "{error}");
    let port = server.kill();
    assert!(look_up(port, &[], vec![1]).is_err());
}
