//! The life of a job, as commands steer it.

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

#[cfg(feature = "kafka")]
use super::support::UNREACHABLE_OUTPUT;
use super::support::{PATIENCE, Place, Running, numbers_job, raw_at};

const FAST: [&str; 2] = ["-o", "snapshots.interval=100 ms"];
/// More than a test waits for.
const ENDLESS: u64 = 1_000_000_000;

#[test]
fn a_job_is_paused_stopped_and_started_again_with_its_state() {
    let place = Place::new("cycle");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_state("a", "running");
    assert!(server.done(&["pause", "a"]).contains("paused"));
    // A poll that had begun before may bring its rows yet.
    let seen = Cell::new(None);
    server.await_job("a", "quiet", |job| {
        let before = seen.replace(job["rows_in"].as_u64());
        std::thread::sleep(std::time::Duration::from_millis(300));
        before.is_some() && before == seen.get()
    });
    assert!(server.done(&["resume", "a"]).contains("running"));
    assert!(server.done(&["restart", "a"]).contains("running"));
    assert!(server.done(&["stop", "a"]).contains("stopped"));
    assert!(server.done(&["stop", "a"]).contains("stopped"), "again is the same");
    let stopped = server.job("a");
    assert_eq!((&stopped["state"], &stopped["desired"]), (&"stopped".into(), &"stopped".into()));
    let (status, text) = server.command(&["pause", "a"]);
    assert_eq!(status, 3, "{text}");
    server.done(&["start", "a"]);
    assert!(server.done(&["stop", "a", "--how", "cancel"]).contains("stopped"));
    let events = server.done(&["events", "a"]);
    for word in ["running", "paused", "stopping", "stopped", "restart by user"] {
        assert!(events.contains(word), "{word}: {events}");
    }
    server.terminate();
}

/// Each number once, when a window has closed that only the end of the input closes.
fn one_window(output: &str) -> String {
    format!(
        "CREATE TABLE numbers (n BIGINT, at AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR at AS at)
           WITH ('connector' = 'datagen', 'rows-per-second' = '300000', 'fields.n.kind' = 'sequence',
             'fields.n.start' = '1', 'fields.n.end' = '{ENDLESS}');
         CREATE TABLE counts (n BIGINT)
           WITH ('connector' = 'filesystem', 'path' = '{output}', 'format' = 'csv');
         INSERT INTO counts SELECT n
           FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(at), INTERVAL '1' DAY)) GROUP BY n, window_start, window_end;"
    )
}

fn await_rows(server: &Running, rows: u64) {
    server.await_job("a", "read", |job| job["rows_in"].as_u64().unwrap_or(0) >= rows);
}

/// Lets the job drain: it finishes, and its window has each row that it has read.
fn drain(place: &Place, server: Running) {
    assert!(server.done(&["stop", "a", "--how", "drain"]).contains("finished"));
    let job = server.job("a");
    assert_eq!(job["state"], "finished", "{job}");
    let rows = job["rows_in"].as_u64().expect("a count");
    assert!(place.numbers("a.csv").into_iter().eq(1..=rows));
    server.terminate();
}

/// Closing the window takes far longer than anybody looks whether the job is to stop.
#[test]
fn a_job_that_drains_closes_its_windows_however_long_that_takes() {
    let place = Place::new("drains");
    let server = place.serve(&FAST);
    assert_eq!(server.submit("a", &one_window("a.csv"), &[]).0, 0);
    await_rows(&server, 500_000);
    drain(&place, server);
}

#[test]
fn a_job_that_is_paused_drains() {
    let place = Place::new("drains-paused");
    let server = place.serve(&FAST);
    assert_eq!(server.submit("a", &one_window("a.csv"), &[]).0, 0);
    await_rows(&server, 10_000);
    assert!(server.done(&["pause", "a"]).contains("paused"));
    drain(&place, server);
}

/// The server dies while the job drains: the next one drains it.
#[test]
fn a_drain_that_a_death_cuts_short_is_done_by_the_next_server() {
    let place = Place::new("drains-again");
    let server = place.serve(&FAST);
    assert_eq!(server.submit("a", &one_window("a.csv"), &[]).0, 0);
    await_rows(&server, 300_000);
    server.await_snapshot("a");
    let token = server.token("admin", "admin");
    let body = "{\"how\": \"drain\"}";
    let (status, text) =
        server.ask("POST", "/v1/jobs/a/stop", &token, "content-type: application/json\r\n", body);
    assert_eq!(status, 202, "{text}");
    server.kill();
    let server = place.serve(&FAST);
    let job = server.await_state("a", "finished");
    let numbers = place.numbers("a.csv");
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64) && !numbers.is_empty(), "{job}");
    server.terminate();
}

#[test]
fn who_follows_events_reads_each_once() {
    let place = Place::new("events");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    server.await_state("a", "running");
    let (address, token) = (server.address.clone(), server.token("reader", "read"));
    let request = format!(
        "GET /v1/jobs/a/events?follow=true HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    let reader = std::thread::spawn(move || raw_at(&address, &request));
    for request in ["pause", "resume", "restart", "stop"] {
        server.done(&[request, "a"]);
    }
    let listed: Value =
        serde_json::from_str(&server.done(&["events", "a", "--json"])).expect("JSON");
    // Time for the last of them to come.
    std::thread::sleep(Duration::from_secs(1));
    server.terminate();
    let text = reader.join().expect("no panic");
    let followed: Vec<Value> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    assert_eq!(Some(&followed), listed["items"].as_array(), "{text}");
    let ever: Vec<&Value> = followed.iter().map(|event| &event["text"]).collect();
    assert!(ever.contains(&&"paused".into()) && ever.contains(&&"stopped".into()), "{ever:?}");
}

#[test]
fn the_next_server_continues_with_what_ran_and_leaves_what_was_stopped() {
    let place = Place::new("next");
    let server = place.serve(&FAST);
    for name in ["runs", "rests"] {
        server.submit(name, &numbers_job(&format!("{name}.csv"), ENDLESS, 500), &[]);
        server.await_state(name, "running");
    }
    server.submit("draft", &numbers_job("draft.csv", 10, 500), &["--draft"]);
    server.done(&["stop", "rests"]);
    server.terminate();
    let held = place.serve(&[&FAST[..], &["--hold"]].concat());
    assert_eq!(held.job("runs")["state"], "planning");
    held.terminate();
    let server = place.serve(&FAST);
    server.await_state("runs", "running");
    assert_eq!(server.job("rests")["state"], "stopped");
    assert_eq!(server.job("draft")["state"], "draft");
    server.done(&["start", "draft"]);
    server.await_state("draft", "finished");
    assert_eq!(place.numbers("draft.csv"), (1..=10).collect::<Vec<_>>());
    server.terminate();
}

#[test]
fn wrong_statements_are_refused_with_their_place_and_change_nothing() {
    let place = Place::new("wrong");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", "INSERT INTO x SELECT 1", &[]);
    assert_eq!(status, 2, "{text}");
    let (status, text) = server.command(&["describe", "a"]);
    assert_eq!(status, 3, "{text}");
    let (status, text) = server.submit("a", "SELECT 1", &[]);
    assert_eq!(status, 2);
    assert!(text.contains("no INSERT"), "{text}");
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    server.await_state("a", "running");
    let (status, _) = server.submit("a", "INSERT INTO", &[]);
    assert_eq!((status, server.job("a")["revision"].as_u64()), (2, Some(1)));
    server.terminate();
}

#[test]
fn new_statements_take_the_place_of_old_ones_with_their_state() {
    let place = Place::new("upgrade");
    let server = place.serve(&FAST);
    let old = numbers_job("a.csv", 3_000, 1_000);
    server.submit("a", &old, &[]);
    server.await_state("a", "running");
    server.await_snapshot("a");
    // The same, behind a filter that lets everything through.
    let new = old.replace("FROM numbers", "FROM numbers WHERE n > 0");
    let (status, text) = server.submit("a", &new, &["--dry-run"]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("would be revision 2") && text.contains("kept: numbers"), "{text}");
    let (status, text) = server.submit("a", &new, &[]);
    assert_eq!(status, 0, "{text}");
    let job = server.await_state("a", "finished");
    assert_eq!(job["revision"], 2);
    assert_eq!(place.numbers("a.csv"), (1..=3_000).collect::<Vec<_>>(), "each once");
    server.terminate();
}

/// Nothing listens there, so the output tries again for as long as a start may take.
#[cfg(feature = "kafka")]
#[test]
fn a_job_that_starts_says_which_output_waits_for_what() {
    let place = Place::new("starts");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", UNREACHABLE_OUTPUT, &[]);
    assert_eq!(status, 0, "{text}");
    let job = server.await_job("a", "waiting for its output", |job| {
        job["waits_for"].as_str().is_some_and(|what| what.contains("the output away"))
    });
    assert_eq!(job["state"], "starting");
    // The client says one thing of each server, and another of all.
    let waits_for = job["waits_for"].as_str().unwrap_or_default();
    assert!(["refused", "brokers are down"].iter().any(|why| waits_for.contains(why)), "{job}");
    assert!(server.done(&["stop", "a"]).contains("stopped"));
}

/// What a job is doing is there for people and for Prometheus, within seconds of its start.
#[test]
fn readings_say_what_a_job_is_doing_and_why() {
    let place = Place::new("readings");
    let server = place.serve(&FAST);
    server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &["--draft"]);
    let (status, text) = server.command(&["why", "a"]);
    assert!(status == 3 && text.contains("draft"), "{status}: {text}");
    server.done(&["start", "a"]);
    server.await_state("a", "running");
    let begun = Instant::now();
    let why = loop {
        let (status, text) = server.command(&["why", "a"]);
        if status == 0 {
            break text;
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(why.starts_with("a:"), "{why}");
    let token = server.token("prometheus", "read");
    let (status, metrics) = server.ask("GET", "/metrics", &token, "", "");
    assert_eq!(status, 200, "{metrics}");
    for line in [
        "thalweg_job_state{job=\"a\",state=\"running\"} 1",
        "# TYPE thalweg_stage_input_rows_total counter",
        "thalweg_stage_output_rows_total{job=\"a\"",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    server.terminate();
}

#[test]
fn a_job_that_the_process_dies_of_is_not_started_again_and_others_are() {
    let place = Place::new("loop");
    let server = place.serve(&FAST);
    for name in ["bad", "good"] {
        server.submit(name, &numbers_job(&format!("{name}.csv"), ENDLESS, 500), &[]);
        server.await_state(name, "running");
    }
    server.kill();
    // As three deaths behind the start of this job leave it.
    let file = place.folder.join("jobs/bad/job.json");
    let text = fs::read_to_string(&file).expect("a job");
    let mut job: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    job["deaths"] = 2.into();
    job["unproven_since_ms"] = 1.into();
    fs::write(&file, job.to_string()).expect("written");
    let server = place.serve(&FAST);
    let bad = server.job("bad");
    assert_eq!(bad["state"], "failed");
    assert_eq!(bad["outcome"]["problem"]["code"], "crash-loop");
    server.await_state("good", "running");
    server.done(&["start", "bad"]);
    server.await_state("bad", "running");
    server.terminate();
}

#[test]
fn a_question_is_answered_and_an_insert_is_none() {
    let place = Place::new("query");
    let server = place.serve(&FAST);
    let text = server.done(&["query", "SELECT n * n AS square FROM (VALUES (2), (3)) AS t(n)"]);
    assert!(text.contains("square") && text.contains('4') && text.contains('9'), "{text}");
    let (status, text) = server.command(&["query", &numbers_job("q.csv", 1, 1)]);
    assert_eq!(status, 2, "{text}");
    let status = server.done(&["status", "--ready"]);
    assert_eq!(status, "ready\n");
    server.terminate();
}

#[test]
fn snapshots_are_verified_and_deleted_but_for_the_newest() {
    let place = Place::new("snapshots");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", &numbers_job("a.csv", ENDLESS, 500), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_snapshot("a");
    let token = server.token("operator", "operate");
    let ask = |token: &str, method: &str, path: &str| {
        server.ask(method, &format!("/v1/jobs/a/snapshots{path}"), token, "prefer: wait=30\r\n", "")
    };
    // It is asked for, so it stays while others expire.
    let (status, taken) = ask(&token, "POST", "");
    assert_eq!(status, 200, "{taken}");
    let body = taken.find('{').map_or("", |at| &taken[at..]);
    let taken: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let number = taken["snapshot"].as_u64().expect("a number");
    let newer = server.await_job("a", "further", |job| job["snapshot"].as_u64() > Some(number));
    let (status, text) = ask(&token, "POST", &format!("/{number}/verify"));
    assert!(status == 200 && text.contains("\"is_whole\":true"), "{status}: {text}");
    let (status, _) = ask(&token, "DELETE", &format!("/{number}"));
    assert_eq!(status, 403, "it takes the role write");
    let writer = server.token("writer", "write");
    let (status, text) = ask(&writer, "DELETE", &format!("/{number}"));
    assert_eq!(status, 204, "{text}");
    let (status, text) = ask(&writer, "DELETE", &format!("/{number}"));
    assert!(status == 404 && text.contains("no-such-snapshot"), "{status}: {text}");
    assert!(newer["state"] == "running");
    server.done(&["stop", "a"]);
    let newest = server.job("a")["snapshot"].as_u64().expect("a number");
    let (status, text) = ask(&writer, "DELETE", &format!("/{newest}"));
    assert!(status == 409 && text.contains("in-use"), "{status}: {text}");
    let (folder, own) = (place.folder.join("jobs/a/state"), format!("{newest:010}"));
    let files = walk(&folder);
    let largest = files.iter().filter(|path| path.to_string_lossy().contains(&own));
    let largest = largest.max_by_key(|path| fs::metadata(path).map_or(0, |found| found.len()));
    fs::write(largest.expect("a file"), "damaged").expect("written");
    let (status, text) = ask(&token, "POST", &format!("/{newest}/verify"));
    assert!(status == 200 && text.contains("\"is_whole\":false"), "{status}: {text}");
    server.terminate();
}

/// All files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(walk(&path)),
            path => found.push(path),
        }
    }
    found
}
