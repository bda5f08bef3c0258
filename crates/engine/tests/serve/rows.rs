//! Rows that clients hand to a running job: each once, and their tokens say how far they are, also
//! where the server is killed meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use serde_json::Value;
use thalweg_connectors::output::arrow_stream;

use super::support::{PATIENCE, Place, Running};

const OFTEN: [&str; 4] = ["-o", "snapshots.interval=50 ms", "-o", "start.deaths-max=0"];
/// Snapshots are taken when they are asked for.
const SELDOM: [&str; 4] = ["-o", "snapshots.interval=1 h", "-o", "start.deaths-max=0"];
/// What a job that is stopped has written: it may continue.
const OUTPUT: &str = "out.csv.partial";
const LINES: &str = "application/x-ndjson";
const ARROW: &str = "application/vnd.apache.arrow.stream";

/// A job that writes the numbers that it is given.
fn job(more: &str) -> String {
    format!(
        "CREATE TABLE numbers (n BIGINT NOT NULL) WITH ('connector' = 'http', 'scan.mode' = 'server',
           'format' = 'json'{more});
         CREATE TABLE kept (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
         INSERT INTO kept SELECT n FROM numbers;"
    )
}

/// A client with a token of its own.
struct Client {
    address: String,
    token: String,
}

/// An answer: its status, its head, and its body.
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Client {
    fn new(server: &Running, role: &str) -> Client {
        let name = format!("{role}-{}", thalweg_core::shim::unique_name());
        Client { address: server.address.clone(), token: server.token(&name, role) }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (host, token, length) = (&self.address, &self.token, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n{headers}\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = serde_json::from_str(body).unwrap_or_default();
        Answer { status: status.unwrap_or(0), head: head.to_lowercase(), body }
    }

    fn post(&self, kind: &str, key: Option<&str>, body: impl AsRef<[u8]>) -> Answer {
        let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
        let headers = format!("content-type: {kind}\r\n{key}");
        self.ask("POST", "/v1/jobs/a/tables/numbers/rows", &headers, body.as_ref())
    }

    /// Posts rows that have to be taken, and returns their token.
    fn taken(&self, kind: &str, key: Option<&str>, body: impl AsRef<[u8]>) -> String {
        let Answer { status, head, body } = self.post(kind, key, body);
        assert_eq!(status, 202, "{body}");
        let token = body["token"].as_str().expect("a token").to_owned();
        assert!(head.contains(&format!("location: /v1/jobs/a/tokens/{token}")), "{head}");
        token
    }

    fn state(&self, token: &str) -> Value {
        let path = format!("/v1/jobs/a/tokens/{token}");
        let Answer { status, body, .. } = self.ask("GET", &path, "", b"");
        assert_eq!(status, 200, "{body}");
        body
    }

    fn await_state(&self, token: &str, state: &str) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.state(token);
            if found["state"] == state {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{found} is not {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn take_snapshot(&self) {
        let headers = "prefer: wait=60\r\ncontent-type: application/json\r\n";
        let Answer { status, body, .. } = self.ask("POST", "/v1/jobs/a/snapshots", headers, b"");
        assert!(status == 200 && body["state"] == "done", "{status}: {body}");
    }
}

fn begun(server: &Running, sql: &str) -> Client {
    let (status, text) = server.submit("a", sql, &[]);
    assert_eq!(status, 0, "{text}");
    server.await_state("a", "running");
    Client::new(server, "write")
}

/// Numbers as a stream of Arrow, narrower than the table's.
fn arrow(numbers: &[i32]) -> Vec<u8> {
    let column: ArrayRef = Arc::new(Int32Array::from(numbers.to_vec()));
    let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
    arrow_stream(&batch.schema(), &[batch]).expect("a stream")
}

#[test]
fn rows_of_each_format_come_once_and_are_committed() {
    let place = Place::new("rows");
    let server = place.serve(&OFTEN);
    let client = begun(&server, &job(""));
    let tokens = [
        client.taken(LINES, None, "{\"n\": 1}\n\n{\"n\": 2}\r\n"),
        client.taken("application/json", None, "[{\"n\": 3}, {\"n\": 4}]"),
        client.taken("text/csv", Some("csv"), "5\n6\n"),
        client.taken(ARROW, None, arrow(&[7, 8, 9])),
        client.taken("text/csv", Some("csv"), "5\n6\n"),
        client.taken(LINES, None, ""),
    ];
    for token in &tokens {
        let committed = client.await_state(token, "committed");
        assert!(committed["snapshot"].as_u64() >= Some(1), "{committed}");
    }
    server.done(&["stop", "a"]);
    assert_eq!(place.numbers(OUTPUT), (1..=9).collect::<Vec<u64>>());
    assert_eq!(client.state(&tokens[0])["state"], "committed");
    let late = client.post(LINES, None, "{\"n\": 1}");
    assert_eq!((late.status, &late.body["code"]), (409, &"does-not-run".into()));
    server.terminate();
}

#[test]
fn tokens_say_what_a_killed_server_has_kept() {
    let place = Place::new("rows-killed");
    let server = place.serve(&SELDOM);
    let client = begun(&server, &job(""));
    let first = client.taken(LINES, Some("one"), "{\"n\": 1}");
    client.await_state(&first, "processed");
    client.take_snapshot();
    let kept = client.await_state(&first, "committed");
    let second = client.taken(LINES, Some("two"), "{\"n\": 2}\n{\"n\": 3}");
    client.await_state(&second, "processed");
    server.kill();
    let server = place.serve(&SELDOM);
    server.await_state("a", "running");
    let client = Client::new(&server, "write");
    assert_eq!(client.state(&first), kept);
    assert_eq!(client.state(&second)["state"], "lost");
    // The one is recognized, the other was lost and counts now.
    let again = client.taken(LINES, Some("one"), "{\"n\": 1}");
    let second = client.taken(LINES, Some("two"), "{\"n\": 2}\n{\"n\": 3}");
    client.await_state(&second, "processed");
    client.take_snapshot();
    let snapshot = |token: &str| client.await_state(token, "committed")["snapshot"].as_u64();
    assert_eq!(snapshot(&first), kept["snapshot"].as_u64());
    assert!(snapshot(&again) == snapshot(&second) && snapshot(&second) > snapshot(&first));
    server.kill();
    let server = place.serve(&SELDOM);
    server.await_state("a", "running");
    let client = Client::new(&server, "write");
    client.taken(LINES, Some("two"), "{\"n\": 2}\n{\"n\": 3}");
    client.taken(LINES, None, "{\"n\": 4}");
    client.take_snapshot();
    server.done(&["stop", "a"]);
    assert_eq!(place.numbers(OUTPUT), [1, 2, 3, 4]);
    server.terminate();
}

/// Sends each body until its token says that it is kept, while the server is killed.
#[test]
fn bodies_that_are_sent_until_they_are_kept_count_once_over_kills() {
    let place = Place::new("rows-kills");
    let mut server = place.serve(&OFTEN);
    begun(&server, &job(""));
    for round in 0..5_u64 {
        let client = Client::new(&server, "write");
        let body = |n: u64| format!("{{\"n\": {}}}\n{{\"n\": {}}}", 2 * n, 2 * n + 1);
        let of_round = 10 * round..10 * round + 10;
        let sent = |client: &Client, n: u64| {
            client.post(LINES, Some(&format!("body {n}")), body(n)).body["token"].clone()
        };
        for n in of_round.clone() {
            sent(&client, n);
        }
        std::thread::sleep(Duration::from_millis(23 * round));
        server.kill();
        server = place.serve(&OFTEN);
        server.await_state("a", "running");
        let client = Client::new(&server, "write");
        for n in of_round {
            let begun = Instant::now();
            let mut token = sent(&client, n);
            loop {
                match token.as_str().map(|token| client.state(token)["state"].clone()) {
                    Some(state) if state == "committed" => break,
                    Some(state) if state != "lost" => {}
                    _ => token = sent(&client, n),
                }
                assert!(begun.elapsed() < PATIENCE, "{token} is not committed");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    server.done(&["stop", "a"]);
    assert_eq!(place.numbers(OUTPUT), (0..100).collect::<Vec<u64>>());
    server.terminate();
}

#[test]
fn what_is_no_body_of_rows_is_refused_whole() {
    let place = Place::new("rows-refused");
    let server = place.serve(&OFTEN);
    let client = begun(&server, &job(", 'scan.listen.body-max' = '1 kb'"));
    let refused = |answer: &Answer, status: u16, code: &str, text: &str| {
        let Answer { status: found, body, .. } = answer;
        assert!(*found == status && body["code"] == code, "{found}: {body}");
        assert!(body["detail"].as_str().expect("a text").contains(text), "{body}");
    };
    let post = |kind: &str, body: &str| client.post(kind, None, body);
    let bad = "{\"n\": 1}\n\n{\"n\": \"x\"}\n{\"n\": 3}";
    refused(&post(LINES, bad), 400, "row-wrong", "line 3: ");
    refused(&post("application/json", "[{\"n\": 1}, {\"n\": null}]"), 400, "row-wrong", "row 2: ");
    refused(&post("text/csv", "1\nx\n"), 400, "row-wrong", "line 2: ");
    refused(&post(ARROW, "1,2"), 400, "row-wrong", "Arrow");
    refused(&post("text/plain", "1"), 415, "kind-wrong", "text/csv");
    refused(&post(LINES, &" ".repeat(2_000)), 413, "too-large", "1024 bytes");
    refused(&post(LINES, &" ".repeat(17 << 20)), 413, "too-large", "bytes");
    let long = "k".repeat(256);
    refused(&client.post(LINES, Some(&long), "{}"), 400, "parameter-wrong", "255");
    let at = |path: &str| client.ask("POST", path, "content-type: text/csv\r\n", b"1\n");
    refused(&at("/v1/jobs/a/tables/number/rows"), 404, "no-such-table", "'numbers'");
    refused(&at("/v1/jobs/a/tables/kept/rows"), 409, "takes-no-rows", "scan.mode");
    refused(&at("/v1/jobs/b/tables/numbers/rows"), 404, "no-such-job", "'b'");
    let of_token = |token: &str| client.ask("GET", &format!("/v1/jobs/a/tokens/{token}"), "", b"");
    refused(&of_token("x-1"), 404, "no-such-token", "'x-1'");
    assert_eq!(client.state("0123456789abcdef-1")["state"], "lost");
    let operator = Client::new(&server, "operate");
    refused(&operator.post(LINES, None, "{\"n\": 1}"), 403, "role-wrong", "write");
    let good = client.taken(LINES, None, "{\"n\": 42}");
    client.await_state(&good, "committed");
    server.done(&["stop", "a"]);
    assert_eq!(place.numbers(OUTPUT), [42]);
    server.terminate();
}

#[test]
fn bad_rows_are_left_out_where_the_table_says_so() {
    let place = Place::new("rows-bad");
    let server = place.serve(&OFTEN);
    let letters = ", 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl'";
    let client = begun(&server, &job(letters));
    let answer = client.post("text/csv", None, "1\nx\n3\n");
    assert_eq!(
        (answer.status, &answer.body["rows"], &answer.body["bad_rows"]),
        (202, &2.into(), &1.into())
    );
    let token = answer.body["token"].as_str().expect("a token");
    client.await_state(token, "committed");
    let bad = server.done(&["dead", "a", "--json"]);
    assert!(bad.contains("\"raw\": \"x\"") || bad.contains("\"raw\":\"x\""), "{bad}");
    server.done(&["stop", "a"]);
    assert_eq!(place.numbers(OUTPUT), [1, 3]);
    server.terminate();
}

#[test]
fn a_job_that_reads_no_rows_is_not_sent_more_than_it_can_hold() {
    let place = Place::new("rows-slow");
    let server = place.serve(&OFTEN);
    let client = begun(&server, &job(""));
    server.done(&["pause", "a"]);
    server.await_state("a", "paused");
    let mut tokens = Vec::new();
    let full = loop {
        let answer = client.post(LINES, None, format!("{{\"n\": {}}}", tokens.len()));
        match answer.body["token"].as_str() {
            Some(token) => tokens.push(token.to_owned()),
            None => break answer,
        }
        assert!(tokens.len() < 1_000, "it takes without end");
    };
    assert_eq!((full.status, &full.body["code"]), (429, &"too-many-rows".into()));
    assert!(full.head.contains("retry-after: 1"), "{}", full.head);
    assert_eq!(client.state(tokens.last().expect("some"))["state"], "pending");
    server.done(&["resume", "a"]);
    client.await_state(tokens.last().expect("some"), "committed");
    server.done(&["stop", "a"]);
    assert_eq!(place.numbers(OUTPUT), (0..tokens.len() as u64).collect::<Vec<u64>>());
    server.terminate();
}
