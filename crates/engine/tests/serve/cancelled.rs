//! Requests that take time and are not wanted any more.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[cfg(feature = "kafka")]
use super::support::UNREACHABLE_OUTPUT;
use super::support::{PATIENCE, Place, Running, numbers_job};

const FAST: [&str; 2] = ["-o", "snapshots.interval=100 ms"];
const ENDLESS: u64 = 1_000_000_000;

fn asked(
    server: &Running,
    method: &str,
    path: &str,
    token: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let text = body.map(Value::to_string).unwrap_or_default();
    let headers = if body.is_some() { "content-type: application/json\r\n" } else { "" };
    let (status, text) = server.ask(method, path, token, headers, &text);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn ended(server: &Running, token: &str, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let (_, operation) = asked(server, "GET", &format!("/v1/operations/{id}"), token, None);
        if operation["state"] != "running" {
            return operation;
        }
        assert!(begun.elapsed() < PATIENCE, "{operation}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_trial_ends_early_with_what_it_has_found() {
    let place = Place::new("cancel-trial");
    let server = place.serve(&FAST);
    let sql = numbers_job("a.csv", ENDLESS, 500);
    server.submit("a", &sql, &[]);
    server.await_snapshot("a");
    let token = server.token("writer", "write");
    let body = json!({ "sql": sql, "seconds": 600 });
    let (status, operation) = asked(&server, "POST", "/v1/jobs/a/trials", &token, Some(&body));
    assert_eq!(status, 202, "{operation}");
    let path = format!("/v1/operations/{}", operation["id"].as_str().expect("a name"));
    let reader = server.token("reader", "read");
    assert_eq!(asked(&server, "DELETE", &path, &reader, None).0, 403);
    std::thread::sleep(Duration::from_secs(1));
    let (status, operation) = asked(&server, "DELETE", &path, &token, None);
    assert!(status == 202 && operation["is_cancelled"] == true, "{status} {operation}");
    let operation = ended(&server, &token, operation["id"].as_str().expect("a name"));
    assert_eq!(operation["state"], "done", "{operation}");
    let (status, again) = asked(&server, "DELETE", &path, &token, None);
    assert_eq!((status, &again["code"]), (409, &"has-ended".into()), "{again}");
    let trial = format!("/v1/jobs/a/trials/{}", operation["id"].as_str().expect("a name"));
    let (_, view) = asked(&server, "GET", &trial, &token, None);
    assert!(view["outcome"]["ran_ms"].as_i64().is_some_and(|ms| ms < 60_000), "{view}");
    server.terminate();
}

#[test]
fn an_upgrade_goes_back_and_a_snapshot_takes_its_course() {
    let place = Place::new("cancel-upgrade");
    // The new statements would have an hour to prove themselves, and their output waits for nobody.
    let options = ["-o", "snapshots.interval=100 ms", "-o", "upgrade.confirm-within=3600"];
    let server = place.serve(&options);
    let old = numbers_job("a.csv", 10_000, 500);
    server.submit("a", &old, &[]);
    server.await_snapshot("a");
    let token = server.token("writer", "write");
    let slow = format!(
        "SET 'execution.checkpointing.interval' = '1 h'; {}",
        old.replace("SELECT n FROM", "SELECT n + 0 FROM")
    );
    let (status, put) = asked(&server, "PUT", "/v1/jobs/a", &token, Some(&json!({ "sql": slow })));
    assert_eq!(status, 202, "{put}");
    let id = put["operation"]["id"].as_str().expect("an operation").to_owned();
    let begun = Instant::now();
    while asked(&server, "DELETE", &format!("/v1/operations/{id}"), &token, None).0 == 409 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    let operation = ended(&server, &token, &id);
    assert!(operation["state"] == "failed" && operation["is_cancelled"] == true, "{operation}");
    assert!(
        operation["problem"]["detail"].as_str().is_some_and(|text| text.contains("cancelled")),
        "{operation}"
    );
    server.await_job("a", "back at revision 1", |job| job["revision"] == 1);
    let (status, taken) = asked(&server, "POST", "/v1/jobs/a/snapshots", &token, None);
    if status == 202 {
        let path = format!("/v1/operations/{}", taken["id"].as_str().expect("a name"));
        let (status, answer) = asked(&server, "DELETE", &path, &token, None);
        assert_eq!(status, 409, "{answer}");
    }
    server.await_state("a", "finished");
    assert_eq!(place.numbers("a.csv"), (1..=10_000).collect::<Vec<_>>(), "each once");
    server.terminate();
}

/// Nothing listens there, so the output tries again for as long as a start may take.
#[cfg(feature = "kafka")]
#[test]
fn a_start_that_waits_ends_with_the_job_stopped() {
    let place = Place::new("cancel-start");
    let server = place.serve(&FAST);
    server.submit("a", UNREACHABLE_OUTPUT, &["--draft"]);
    let token = server.token("writer", "write");
    let (status, operation) = asked(&server, "POST", "/v1/jobs/a/start", &token, None);
    assert_eq!(status, 202, "{operation}");
    let path = format!("/v1/operations/{}", operation["id"].as_str().expect("a name"));
    let (status, operation) = asked(&server, "DELETE", &path, &token, None);
    assert_eq!((status, &operation["problem"]["code"]), (200, &"cancelled".into()), "{operation}");
    let job = server.await_state("a", "stopped");
    assert_eq!(job["desired"], "stopped");
    server.terminate();
}
