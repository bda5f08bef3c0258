//! The listener.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::*;
use crate::test_server::Asked;

/// An address where nobody listens yet.
fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}/rows", listener.local_addr().expect("an address"))
}

fn address(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches("/rows")
}

/// The status and the body of the answer to a request that is written so.
fn answer_to(url: &str, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address(url)).expect("a listener");
    stream.write_all(text.as_bytes()).expect("sent");
    let answer = Asked::read(&mut BufReader::new(stream)).expect("an answer");
    let status = answer.line.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), answer.body)
}

fn post(url: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    answer_to(
        url,
        &format!(
            "POST /rows HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

/// The same, on a thread of its own.
fn post_later(url: &str, headers: &str, body: &str) -> Receiver<u16> {
    let (url, headers, body) = (url.to_owned(), headers.to_owned(), body.to_owned());
    let (answered, answer) = channel();
    thread::spawn(move || answered.send(post(&url, &headers, &body).0));
    answer
}

const LISTEN: (&str, &str) = ("scan.mode", "listen");
const SOON: Duration = Duration::from_secs(10);

#[test]
fn rows_are_answered_when_the_job_has_taken_them() {
    let url = free_url();
    let mut started = started(&url, &[LISTEN], None);
    let one = post_later(&url, "", "[{\"n\": 1}, {\"n\": 2}]");
    assert_eq!(started.numbers(2), [1, 2]);
    assert_eq!(one.recv_timeout(SOON), Ok(200));
    let lines = "Content-Type: application/x-ndjson\r\nExpect: 100-continue\r\n";
    let many = post_later(&url, lines, "{\"n\": 3}\n\n{\"n\": 4}");
    assert_eq!(started.numbers(2), [3, 4]);
    // The word to continue comes before the answer.
    assert_eq!(many.recv_timeout(SOON), Ok(100));
    assert_eq!(post(&url, "", ""), (200, "{}".to_owned()));
}

#[test]
fn bad_rows_are_refused_with_their_number_and_none_of_the_others_is_taken() {
    let url = free_url();
    let mut started = started(&url, &[LISTEN], None);
    let (status, body) = post(&url, "", "[{\"n\": 1}, {\"n\": 2}, {\"n\": \"x\"}]");
    assert!(
        status == 400 && body.contains("\"row\":3") && body.contains("column n (BIGINT)"),
        "{body}"
    );
    let lines = "Content-Type: application/x-ndjson\r\n";
    let (status, body) = post(&url, lines, "{\"n\": 1}\n{\"n\": 2\n");
    assert!(status == 400 && body.contains("\"row\":2"), "{body}");
    let good = post_later(&url, "", "{\"n\": 7}");
    assert_eq!(started.numbers(1), [7]);
    assert_eq!(good.recv_timeout(SOON), Ok(200));
}

#[test]
fn requests_that_are_no_rows_are_refused() {
    let url = free_url();
    let options = [
        LISTEN,
        ("scan.token", "s3cret"),
        ("scan.listen.body-max", "100 b"),
        ("scan.request.timeout", "300 ms"),
    ];
    let _started = started(&url, &options, None);
    let token = "Authorization: Bearer s3cret\r\n";
    let long = " ".repeat(101);
    let ask =
        |first: &str, more: &str| answer_to(&url, &format!("{first} HTTP/1.1\r\n{more}\r\n")).0;
    assert_eq!(post(&url, "", "{}").0, 401);
    assert_eq!(post(&url, "Authorization: Bearer s3creT\r\n", "{}").0, 401);
    assert_eq!(post(&url, token, &long).0, 413);
    assert_eq!(post(&url, &format!("{token}Content-Encoding: gzip\r\n"), "{}").0, 415);
    assert_eq!(ask("GET /rows", token), 405);
    assert_eq!(ask("POST /other", token), 404);
    assert_eq!(ask("POST /rows", token), 411);
    assert_eq!(ask("POST /rows", &format!("{token}Transfer-Encoding: chunked\r\n")), 411);
    assert_eq!(ask("POST /rows", &"a: b\r\n".repeat(100)), 431);
    assert_eq!(answer_to(&url, "SSH-2.0-x\r\n\r\n").0, 400);
    // Half a request, and then nothing.
    assert_eq!(answer_to(&url, "POST /rows HTTP/1.1\r\n").0, 408);
    assert_eq!(
        answer_to(&url, &format!("POST /rows HTTP/1.1\r\n{token}Content-Length: 9\r\n\r\n{{")).0,
        408
    );
}

#[test]
fn a_listener_that_others_can_reach_needs_a_token() {
    let error = |url: &str, options: &[(&str, &str)]| {
        let request = request(url, &[&[LISTEN], options].concat());
        Http::rows().validate(&request, false).err().map(|error| error.to_string())
    };
    assert!(error("http://0.0.0.0:8080/rows", &[]).expect("refused").contains("token"));
    assert_eq!(error("http://0.0.0.0:8080/rows", &[("scan.token", "${secret:t}")]), None);
    assert_eq!(error("http://[::1]:8080/rows", &[]), None);
    assert!(error("https://localhost:8080/rows", &[]).expect("refused").contains("encrypted"));
}

#[test]
fn more_connections_than_allowed_and_a_busy_job_are_answered_503() {
    let url = free_url();
    let options = [LISTEN, ("scan.listen.connections-max", "1")];
    let mut started = started(&url, &options, None);
    let idle = TcpStream::connect(address(&url)).expect("a listener");
    thread::sleep(Duration::from_millis(150));
    assert_eq!(post(&url, "", "{\"n\": 1}").0, 503);
    drop(idle);
    thread::sleep(Duration::from_millis(150));
    let good = post_later(&url, "", "{\"n\": 1}");
    assert_eq!(started.numbers(1), [1]);
    assert_eq!(good.recv_timeout(SOON), Ok(200));
}

#[test]
fn with_snapshots_an_answer_waits_for_the_one_that_covers_its_rows() {
    let url = free_url();
    let mut first = Started::new(source(&url, &[LISTEN]), None).expect("started");
    let one = post_later(&url, "", "{\"n\": 1}");
    assert_eq!(first.numbers(1), [1]);
    let position = first.source().position().expect("a position");
    let two = post_later(&url, "Idempotency-Key: two\r\n", "{\"n\": 2}");
    assert_eq!(first.numbers(1), [2]);
    assert!(one.recv_timeout(Duration::from_millis(300)).is_err(), "answered too early");
    first.source().committed(&position).expect("acknowledged");
    assert_eq!(one.recv_timeout(SOON), Ok(200));
    assert!(two.recv_timeout(Duration::from_millis(300)).is_err(), "answered too early");
    // A snapshot covers the second one; the job fails before it says so.
    let covered = first.source().position().expect("a position");
    first.source().stop();
    drop(first);
    assert_eq!(two.recv_timeout(SOON), Ok(503));
    let mut second = Started::new(source(&url, &[LISTEN]), Some(&covered)).expect("started");
    let again = post_later(&url, "Idempotency-Key: two\r\n", "{\"n\": 2}");
    assert_eq!(again.recv_timeout(SOON), Ok(200));
    let three = post_later(&url, "Idempotency-Key: three\r\n", "{\"n\": 3}");
    assert_eq!(second.numbers(1), [3]);
    let position = second.source().position().expect("a position");
    second.source().committed(&position).expect("acknowledged");
    assert_eq!(three.recv_timeout(SOON), Ok(200));
    // The answer may have been lost on its way.
    assert_eq!(post(&url, "Idempotency-Key: three\r\n", "{\"n\": 3}").0, 200);
}

#[test]
fn a_table_of_the_server_has_no_address_and_needs_a_server() {
    let of_server = |options: &[(&str, &str)]| {
        let mut request = request("", &[&[("scan.mode", "server")], options].concat());
        request.options.retain(|name, _| name != "url");
        request
    };
    let why = |request: &TableRequest| Http::rows().source(request).err().expect("refused");
    assert!(why(&of_server(&[])).help().expect("help").contains("thalweg serve"));
    let mut request = of_server(&[("scan.token", "x")]);
    assert!(why(&request).to_string().contains("'scan.token' has no effect"));
    request.options.insert("url".to_owned(), "http://127.0.0.1:1/rows".to_owned());
    assert!(why(&request).to_string().contains("'url' has no effect"));
    let sink = Http::rows().validate(&of_server(&[]), true).expect_err("nothing to write to");
    assert!(sink.to_string().contains("needs the option 'url'"), "{sink}");
}

#[test]
fn a_snapshot_has_all_rows_of_a_request_or_none() {
    let url = free_url();
    let mut first = Started::new(source(&url, &[LISTEN]), None).expect("started");
    let rows: String = (0..20_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    let headers = "Content-Type: application/x-ndjson\r\nIdempotency-Key: all\r\n";
    let sent = post_later(&url, headers, &rows);
    // One poll has them all, so no snapshot is between two of them.
    assert_eq!(first.numbers(20_000).len(), 20_000);
    let position = first.source().position().expect("a position");
    first.source().stop();
    drop(first);
    assert_eq!(sent.recv_timeout(SOON), Ok(503));
    let _second = Started::new(source(&url, &[LISTEN]), Some(&position)).expect("started");
    assert_eq!(post_later(&url, headers, &rows).recv_timeout(SOON), Ok(200));
}
