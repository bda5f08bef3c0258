//! Polls and streams of events.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;

use super::*;
use crate::conformance::check_source_cancel;
use crate::test_server::{Asked, TestServer, http_server};

const FAST: (&str, &str) = ("scan.poll.interval", "10 ms");

fn url(server: &TestServer) -> String {
    format!("http://127.0.0.1:{}/rows", server.port)
}

#[test]
fn a_poll_takes_only_news_and_waits_for_a_busy_server() {
    let server = http_server(0, {
        let times = AtomicUsize::new(0);
        move |asked| {
            let tag = |n: usize| format!("ETag: \"{n}\"\r\n");
            let known = asked.header("if-none-match").unwrap_or_default().to_owned();
            match times.fetch_add(1, Ordering::SeqCst) {
                0 => (200, tag(0), "[{\"n\": 0}, {\"n\": 1}]".to_owned()),
                1 => (503, "Retry-After: 0\r\n".to_owned(), String::new()),
                2 | 3 => {
                    assert_eq!(known, "\"0\"");
                    (304, tag(0), String::new())
                }
                4 => (200, tag(1), "{\"n\": 2}".to_owned()),
                _ => {
                    assert_eq!(known, "\"1\"");
                    (304, tag(1), String::new())
                }
            }
        }
    });
    let mut started = started(&url(&server), &[FAST], None);
    assert_eq!(started.numbers(3), [0, 1, 2]);
    let position = started.source().position().expect("a position");
    assert!(position.contains("\"place\":{\"etag\":\"\\\"1\\\"\"}"), "{position}");
}

#[test]
fn a_poll_resumes_within_an_answer_also_after_the_server_was_killed() {
    let answer = |_: &Asked| {
        let headers = "Content-Type: application/x-ndjson\r\nLast-Modified: now\r\n".to_owned();
        (200, headers, "{\"n\": 1}\n{\"n\": 2}\n\n{\"n\": 3}\n".to_owned())
    };
    let server = http_server(0, answer);
    let url = url(&server);
    let options = [("scan.poll.interval", "1 h")];
    let mut first = started(&url, &options, None);
    assert_eq!(first.numbers(2), [1, 2]);
    let position = first.source().position().expect("a position");
    first.source().stop();
    let port = server.kill();
    let mut second = started(&url, &options, Some(&position));
    std::thread::sleep(Duration::from_millis(150));
    let _again = http_server(port, answer);
    assert_eq!(second.numbers(1), [3]);
}

#[test]
fn a_poll_that_is_refused_fails_and_one_that_hangs_holds_nobody_up() {
    let refusing = http_server(0, |_| (404, String::new(), "no such thing".to_owned()));
    let error = started(&url(&refusing), &[FAST], None).next(1).expect_err("refused");
    assert!(error.to_string().contains("404 no such thing"), "{error}");
    let stuck = TestServer::start(|_stream| std::thread::sleep(Duration::from_secs(5)));
    check_source_cancel(source(&url(&stuck), &[FAST])).expect("started");
}

#[test]
fn secrets_are_sent_and_not_shown() {
    let server = http_server(0, |asked| {
        assert_eq!(asked.header("authorization"), Some("Bearer s3cret"));
        (400, String::new(), "the token is wrong".to_owned())
    });
    let headers = [("scan.header.Authorization", "Bearer s3cret")];
    let error = started(&url(&server), &headers, None).next(1).expect_err("refused");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

/// Serves the events behind `Last-Event-ID`, two a connection.
fn serve_events(stream: TcpStream, seen: &Mutex<Vec<String>>) {
    let mut writer = stream.try_clone().expect("a second handle");
    let mut reader = BufReader::new(stream);
    let Some(asked) = Asked::read(&mut reader) else { return };
    let last = asked.header("last-event-id").unwrap_or("none").to_owned();
    let next = last.strip_prefix("id ").and_then(|n| n.parse().ok()).map_or(0, |n: i64| n + 1);
    seen.lock().expect("no panic").push(last);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:hello\n\n";
    let _ = writer.write_all(head.as_bytes());
    for n in next..next + 2 {
        let event = format!("event: row\nid: id {n}\ndata: {{\"n\":\ndata: {n}}}\n\n");
        let _ = writer.write_all(event.as_bytes());
    }
    let _ = writer.write_all(b"data: {\"n\": 99999");
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn events_continue_behind_the_last_one_over_new_connections_and_after_a_restart() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let server = TestServer::start(|stream| serve_events(stream, &SEEN));
    let options = [("scan.mode", "events")];
    let mut first = started(&url(&server), &options, None);
    assert_eq!(first.numbers(5), [0, 1, 2, 3, 4]);
    let position = first.source().position().expect("a position");
    assert!(position.contains("\"place\":\"id 4\""), "{position}");
    first.source().stop();
    drop(first);
    let before = SEEN.lock().expect("no panic").len();
    let mut second = started(&url(&server), &options, Some(&position));
    assert_eq!(second.numbers(2), [5, 6]);
    let seen = SEEN.lock().expect("no panic");
    assert!(seen[before..].contains(&"id 4".to_owned()), "{seen:?}");
}

#[test]
fn events_have_metadata_and_other_streams_are_refused() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let server = TestServer::start(|stream| serve_events(stream, &SEEN));
    let mut with_metadata = request(&url(&server), &[("scan.mode", "events")]);
    for key in ["event-type", "event-id"] {
        let column = Column::new(key, DataType::STRING.nullable());
        with_metadata.metadata.push((key.to_owned(), column));
    }
    let source = Http::rows().source(&with_metadata).expect("a source");
    let batch = Started::new(source, None).expect("started").next(1).expect("a row").expect("one");
    let text = |at: usize| batch.column(at).as_string_view().value(0).to_owned();
    assert_eq!((text(2), text(3)), ("row".to_owned(), "id 0".to_owned()));
    let other = http_server(0, |_| (200, "Content-Type: text/html\r\n".to_owned(), String::new()));
    let source = super::source(&url(&other), &[("scan.mode", "events")]);
    let error = Started::new(source, None).err().expect("no stream");
    assert!(error.to_string().contains("text/html"), "{error}");
    let stuck = TestServer::start(|stream| {
        let mut stream = stream;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        std::thread::sleep(Duration::from_secs(5));
    });
    check_source_cancel(super::source(&url(&stuck), &[("scan.mode", "events")])).expect("started");
}
