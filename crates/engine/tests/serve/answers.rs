//! What programs read: watermarks, flame graphs, and rows as streams of Arrow.

use std::io::{Cursor, Read, Write};
use std::net::TcpStream;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use serde_json::Value;

use super::support::{PATIENCE, Place, Running};

const FAST: [&str; 2] = ["-o", "snapshots.interval=100 ms"];
const ARROW: &str = "accept: application/vnd.apache.arrow.stream\r\n";

/// Rows of which every tenth is late, and every hundredth a dead letter.
fn job(place: &Place) -> String {
    let folder = place.folder.join("files/in");
    std::fs::create_dir_all(&folder).expect("a folder");
    let line = |n: u64| match n {
        n if n % 100 == 99 => "x\n".to_owned(),
        n if n % 10 == 9 => format!("{}\n", n - 9),
        n => format!("{n}\n"),
    };
    std::fs::write(folder.join("a.csv"), (0..1_000).map(line).collect::<String>()).expect("rows");
    "CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts) WITH (
       'connector' = 'filesystem', 'format' = 'csv', 'path' = 'in', 'source.monitor-interval' = '20 ms',
       'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl');
     CREATE TABLE counts (e TIMESTAMP_LTZ(3), c BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
     INSERT INTO counts SELECT TUMBLE_END(ts, INTERVAL '5' SECOND), COUNT(*) FROM numbers
       GROUP BY TUMBLE(ts, INTERVAL '5' SECOND);"
        .to_owned()
}

/// The status, the head and the body of an answer.
fn asked(
    server: &Running,
    method: &str,
    path: &str,
    token: &str,
    more: (&str, &str),
) -> (String, Vec<u8>) {
    let (headers, body) = more;
    let mut stream = TcpStream::connect(&server.address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n{headers}content-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        server.address,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes.split_off(end + 4))
}

fn batches(body: Vec<u8>) -> Vec<RecordBatch> {
    let reader =
        arrow_ipc::reader::StreamReader::try_new(Cursor::new(body), None).expect("a stream");
    reader.collect::<Result<_, _>>().expect("batches")
}

#[test]
fn rows_come_as_streams_of_arrow() {
    let place = Place::new("arrow");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", &job(&place), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_job("a", "with late and dead rows", |job| {
        job["late_rows"].as_u64() == Some(90) && job["bad_rows"].as_u64() == Some(10)
    });
    let token = server.token("writer", "write");
    let json = "content-type: application/json\r\n";
    let sql = r#"{"sql":"SELECT a * 2 AS b FROM (VALUES (1), (2), (3)) AS t(a)","limit":2}"#;
    let (head, body) =
        asked(&server, "POST", "/v1/query", &token, (&format!("{ARROW}{json}"), sql));
    assert!(head.contains("200 OK") && head.contains("thalweg-is-cut: true"), "{head}");
    let found = batches(body);
    let values: Vec<i32> = found
        .iter()
        .flat_map(|batch| {
            batch
                .column_by_name("b")
                .expect("b")
                .as_primitive::<arrow_array::types::Int32Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(values, [2, 4]);
    // Rows that change say what they do.
    let sql = r#"{"sql":"SELECT COUNT(*) AS c FROM (VALUES (1), (2)) AS t(a)"}"#;
    let (_, body) = asked(&server, "POST", "/v1/query", &token, (&format!("{ARROW}{json}"), sql));
    let found = batches(body);
    assert_eq!(found[0].schema().field(0).name(), "op");
    let (head, body) = asked(&server, "GET", "/v1/jobs/a/late?limit=3", &token, (ARROW, ""));
    assert!(head.contains("200 OK"), "{head}");
    let late = batches(body);
    assert_eq!(late.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let (_, shown) = server.ask("GET", "/v1/jobs/a/late?limit=3", &token, "", "");
    let shown: Value =
        serde_json::from_str(shown.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    let numbers: Vec<i64> = late
        .iter()
        .flat_map(|batch| {
            batch
                .column_by_name("$number")
                .expect("$number")
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    let expected: Vec<i64> = shown["items"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["number"].as_i64())
        .collect();
    assert_eq!(numbers, expected, "{shown}");
    let (_, body) = asked(&server, "GET", "/v1/jobs/a/dead-letters", &token, (ARROW, ""));
    let letters = batches(body);
    let raw = letters[0].column_by_name("raw").expect("raw").as_binary::<i32>();
    assert_eq!((letters[0].num_rows(), raw.value(0)), (10, &b"x"[..]));
    server.terminate();
}

#[test]
fn watermarks_say_what_holds_and_how_far_others_are_ahead() {
    let place = Place::new("watermarks");
    let server = place.serve(&FAST);
    server.submit("a", &job(&place), &[]);
    server.await_job("a", "at its last row", |job| job["late_rows"].as_u64() >= Some(1));
    let token = server.token("reader", "read");
    let found = loop {
        let (status, text) = server.ask("GET", "/v1/jobs/a/watermarks", &token, "", "");
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        // The last row that is not late is number 998.
        let watermark_ms = body["stages"][0]["splits"][0]["watermark_ms"].as_i64();
        if status == 200 && watermark_ms > Some(997_000) {
            break body;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let stages = found["stages"].as_array().expect("stages");
    let source = &stages[0]["splits"][0];
    assert_eq!((&source["holds"], &source["lead_ms"]), (&true.into(), &0.into()), "{found}");
    let sink = stages.iter().find(|stage| stage["kind"] == "sink").expect("a sink");
    assert_eq!(sink["held_by"]["name"], "numbers", "{found}");
    assert!(
        sink["inputs"][0]["holds"] == true && sink["inputs"][0]["watermark_ms"].is_i64(),
        "{found}"
    );
    server.done(&["stop", "a"]);
    let (status, _) = server.ask("GET", "/v1/jobs/a/watermarks", &token, "", "");
    assert_eq!(status, 409, "it does not run");
    server.terminate();
}

#[test]
fn a_flame_graph_shows_the_stages_of_a_job() {
    let place = Place::new("profile");
    let server = place.serve(&FAST);
    server.submit("a", &super::support::numbers_job("a.csv", 1_000_000_000, 20_000), &[]);
    server.await_job("a", "with rows", |job| job["rows_out"].as_u64() > Some(100));
    let (token, path) = (server.token("operator", "operate"), "/v1/jobs/a/profile?seconds=1");
    let (head, body) = asked(&server, "POST", path, &token, ("accept: text/plain\r\n", ""));
    let folded = String::from_utf8(body).expect("text");
    assert!(head.contains("200 OK") && folded.contains("a;working;numbers"), "{head} {folded}");
    for line in folded.lines() {
        let (frames, us) = line.rsplit_once(' ').expect("a number");
        assert!(
            frames.starts_with("a;") && us.parse::<u64>().is_ok_and(|us| us < 60_000_000),
            "{line}"
        );
    }
    let (_, body) = asked(&server, "POST", path, &token, ("accept: image/svg+xml\r\n", ""));
    let svg = String::from_utf8(body).expect("text");
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("<title>numbers"),
        "{svg}"
    );
    let reader = server.token("reader", "read");
    assert!(asked(&server, "POST", path, &reader, ("", "")).0.contains("403"));
    let (head, _) = asked(&server, "POST", "/v1/jobs/b/profile", &token, ("", ""));
    assert!(head.contains("404"), "{head}");
    server.terminate();
}
