//! The sink.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::Result;
use thalweg_core::connector::Sink;

use super::*;
use crate::conformance::check_sink_cancel;
use crate::test_server::{Asked, TestServer, http_server};

fn rows(numbers: std::ops::Range<i64>) -> RecordBatch {
    let names = numbers.clone().map(|n| format!("{n}"));
    let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("n", numbers), ("name", names)]).expect("columns")
}

fn sink(port: u16, options: &[(&str, &str)]) -> Box<dyn Sink> {
    let request = request(&format!("http://127.0.0.1:{port}/in"), options);
    Http::sink_only().sink(&request).expect("a sink")
}

fn write(port: u16, options: &[(&str, &str)], numbers: std::ops::Range<i64>) -> Result<()> {
    let mut sink = sink(port, options);
    sink.open()?;
    sink.write(&rows(numbers), None)?;
    sink.prepare()?;
    sink.finish()
}

type Bodies = Arc<Mutex<Vec<String>>>;

/// A server that keeps bodies, and answers with the next of these statuses, at last with 200.
fn keeping(port: u16, statuses: &'static [u16]) -> (TestServer, Bodies) {
    let (bodies, times) = (Bodies::default(), AtomicUsize::new(0));
    let kept = Arc::clone(&bodies);
    let server = http_server(port, move |asked: &Asked| {
        let status = statuses.get(times.fetch_add(1, Ordering::SeqCst)).copied().unwrap_or(200);
        if status == 200 {
            kept.lock().expect("no panic").push(asked.body.clone());
        }
        (status, "Retry-After: 0\r\n".to_owned(), "too bad".to_owned())
    });
    (server, bodies)
}

#[test]
fn rows_go_in_batches_and_are_sent_again_while_the_server_is_busy() {
    let (server, bodies) = keeping(0, &[200, 503, 429]);
    write(server.port, &[("sink.batch.max-size", "2")], 0..3).expect("written");
    let row = |n: i64| format!("{{\"n\":{n},\"name\":\"{n}\"}}");
    let expected = [format!("[{},{}]", row(0), row(1)), format!("[{}]", row(2))];
    assert_eq!(*bodies.lock().expect("no panic"), expected);
    let (server, bodies) = keeping(0, &[]);
    write(server.port, &[("http.sink.writer.request.mode", "single")], 0..2).expect("written");
    assert_eq!(*bodies.lock().expect("no panic"), [row(0), row(1)]);
    let (server, bodies) = keeping(0, &[]);
    write(server.port, &[("format", "csv")], 0..2).expect("written");
    assert_eq!(*bodies.lock().expect("no panic"), ["0,0\n1,1\n"]);
}

#[test]
fn refused_rows_fail_the_job_or_are_left_out() {
    let (server, bodies) = keeping(0, &[400, 302, 400]);
    let error = write(server.port, &[], 0..2).expect_err("refused");
    assert!(error.to_string().contains("400 too bad"), "{error}");
    let error = write(server.port, &[], 0..2).expect_err("elsewhere");
    assert!(error.to_string().contains("302"), "{error}");
    let options = [("http.sink.on-error", "drop"), ("sink.batch.max-size", "1")];
    write(server.port, &options, 0..2).expect("written");
    assert_eq!(*bodies.lock().expect("no panic"), ["[{\"n\":1,\"name\":\"1\"}]"]);
    let (server, _) = keeping(0, &[404]);
    write(server.port, &[("http.sink.error.code.exclude", "404")], 0..1).expect("no error");
}

#[test]
fn a_server_that_comes_back_gets_all_rows() {
    let (server, _) = keeping(0, &[]);
    let port = server.port;
    let mut sink = sink(port, &[]);
    sink.open().expect("opened");
    assert_eq!(server.kill(), port);
    let writing = thread::spawn(move || {
        sink.write(&rows(0..5), None)?;
        sink.finish()
    });
    thread::sleep(Duration::from_millis(200));
    let (_server, bodies) = keeping(port, &[]);
    writing.join().expect("no panic").expect("written");
    let bodies = bodies.lock().expect("no panic");
    assert!(bodies.len() == 1 && bodies[0].matches("\"n\"").count() == 5, "{bodies:?}");
}

#[test]
fn a_server_that_does_not_answer_can_be_left() {
    let stuck = TestServer::start(|_stream| thread::sleep(Duration::from_secs(8)));
    check_sink_cancel(sink(stuck.port, &[]), &rows(0..10)).expect("opened");
}
