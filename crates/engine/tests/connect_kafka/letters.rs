//! Dead letters of a topic are read again by a server, each exactly once, also where the server is
//! killed meanwhile.

#![cfg(feature = "server")]

use std::time::{Duration, Instant};

use serde_json::Value;

use super::broker::Broker;
use super::server::{PATIENCE, Place, Running};

const OPTIONS: [&str; 4] = ["-o", "snapshots.interval=100 ms", "-o", "start.deaths-max=0"];
const MESSAGES: u64 = 300;

/// A job over a topic; every tenth message is `N.0`, which is no BIGINT.
fn job(servers: &str, column: &str, value: &str) -> String {
    format!(
        "CREATE TABLE numbers (n {column}) WITH ('connector' = 'kafka', 'topic' = 'numbers', 'format' = 'json',
           'properties.bootstrap.servers' = '{servers}', 'scan.startup.mode' = 'earliest-offset',
           'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl');
         CREATE TABLE kept (n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'kept', 'format' = 'json',
           'properties.bootstrap.servers' = '{servers}', 'sink.delivery-guarantee' = 'exactly-once',
           'sink.transactional-id-prefix' = 'letters');
         INSERT INTO kept SELECT {value} FROM numbers;"
    )
}

fn dead(server: &Running, more: &[&str]) -> Value {
    let text = server.done(&[&["dead", "a", "--limit", "500", "--json"], more].concat());
    serde_json::from_str(&text).expect("JSON")
}

fn await_bad(server: &Running, letters: usize) {
    let begun = Instant::now();
    while dead(server, &[])["items"].as_array().map(Vec::len) != Some(letters) {
        assert!(begun.elapsed() < PATIENCE, "{}", dead(server, &[]));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn letters_of_a_topic_become_rows_once_through_kills() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("numbers", 2, &[]);
    broker.topic("kept", 1, &[]);
    let message = |n: u64| match n % 10 {
        4 => format!("{{\"n\": \"{n}.0\"}}"),
        _ => format!("{{\"n\": {n}}}"),
    };
    let messages: Vec<String> = (0..MESSAGES).map(message).collect();
    let sent = messages.iter().enumerate();
    broker.send("numbers", sent.map(|(n, text)| ((n % 2) as i32, None, Some(text.as_str()))));
    let place = Place::new("kafka-letters");
    let mut server = place.serve(&OPTIONS);
    let (status, text) = server.submit("a", &job(&broker.servers, "BIGINT", "n"), &[]);
    assert_eq!(status, 0, "{text}");
    await_bad(&server, (MESSAGES / 10) as usize);
    server.await_snapshot("a");
    let mended = job(&broker.servers, "STRING", "CAST(CAST(n AS DOUBLE) AS BIGINT)");
    let (status, text) = server.submit("a", &mended, &[]);
    assert_eq!(status, 0, "{text}");
    server.await_job("a", "at revision 2", |job| job["revision"] == 2 && job["state"] == "running");
    // Asked for again and again, by servers that are killed at other moments each time.
    let token = server.token("writer", "write");
    for kill in 0..4_u64 {
        let json = "content-type: application/json\r\n";
        let (status, text) =
            server.ask("POST", "/v1/jobs/a/dead-letters/replay", &token, json, "{}");
        assert!(status == 200 || status == 202, "{text}");
        std::thread::sleep(Duration::from_millis(kill * 70));
        server.kill();
        server = place.serve(&OPTIONS);
        server.await_state("a", "running");
    }
    let text = server.done(&["dead", "a", "--replay"]);
    assert!(text.contains("rows were read again; 0 could not"), "{text}");
    await_bad(&server, 0);
    let replayed = dead(&server, &["--replayed"]);
    assert_eq!(replayed["items"].as_array().map(Vec::len), Some((MESSAGES / 10) as usize));
    server.done(&["stop", "a"]);
    let number = |text: String| serde_json::from_str::<Value>(&text).expect("JSON")["n"].as_u64();
    let mut found: Vec<u64> = broker.values("kept").into_iter().filter_map(number).collect();
    found.sort_unstable();
    assert_eq!(found, (0..MESSAGES).collect::<Vec<_>>(), "each once");
    server.terminate();
}
