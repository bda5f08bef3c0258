//! A job that is changed, stopped and started again and again, as deployments do over weeks: the
//! server does not grow by it, in memory, threads, descriptors or files.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::{Place, Running};

/// What a server holds at the moment.
#[derive(Debug)]
struct Held {
    resident_bytes: u64,
    threads: usize,
    descriptors: usize,
    snapshots: usize,
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

impl Held {
    fn of(server: &Running, place: &Place) -> Held {
        let process = format!("/proc/{}", server.child.id());
        let pages = fs::read_to_string(format!("{process}/statm")).expect("statm");
        let pages: u64 = pages.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
        let snapshots = place.folder.join("jobs/a/state/a/snapshots");
        Held {
            resident_bytes: pages * 4_096,
            threads: entries(&format!("{process}/task")),
            descriptors: entries(&format!("{process}/fd")),
            snapshots: entries(&snapshots.display().to_string()),
        }
    }
}

/// The statements of a cycle. All of them have the same state.
fn statements(cycle: u64) -> Value {
    let sql = format!(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');
         CREATE TABLE counts (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO counts SELECT n % 7, COUNT(*) + {} FROM numbers GROUP BY n % 7;",
        cycle % 5
    );
    json!({"sql": sql, "desired": "running"})
}

fn ask(server: &Running, token: &str, (method, path): (&str, &str), body: &Value) {
    let kind = "content-type: application/json\r\n";
    let (status, text) = server.ask(method, path, token, kind, &body.to_string());
    assert!((200..300).contains(&status), "{method} {path}: {text}");
}

/// Changes, stops and starts a job so often.
fn cycle(server: &Running, token: &str, job: &str, cycles: std::ops::Range<u64>) {
    let path = |what: &str| format!("/v1/jobs/{job}{what}");
    for number in cycles {
        ask(server, token, ("PUT", &path("")), &statements(number));
        server.await_state(job, "running");
        ask(server, token, ("POST", &path("/stop")), &json!({}));
        server.await_state(job, "stopped");
        ask(server, token, ("POST", &path("/start")), &json!({}));
        server.await_state(job, "running");
    }
}

/// Some cycles of some jobs side by side, each of its own, then more of them. What the server held
/// in between, and at the end.
fn cycles(test: &str, jobs: &[&str], (warm, cycles): (u64, u64)) -> (Held, Held) {
    let place = Place::new(test);
    let server = place.serve(&["-o", "snapshots.interval=100 ms"]);
    let token = server.token("cycles", "admin");
    let all = |cycles: std::ops::Range<u64>| {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(|| cycle(&server, &token, job, cycles.clone()));
            }
        });
    };
    all(0..warm);
    let begun = Held::of(&server, &place);
    all(warm..warm + cycles);
    let held = (begun, Held::of(&server, &place));
    server.terminate();
    held
}

/// Snapshots that may be there: three of each kind, those that are being written or deleted.
const SNAPSHOTS_MAX: usize = 9;

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "asks the system as Linux answers")]
fn a_job_that_is_changed_and_restarted_leaves_nothing_behind() {
    let (before, after) = cycles("cycles", &["a"], (5, 10));
    assert!(after.threads <= before.threads + 1, "{before:?} {after:?}");
    assert!(after.descriptors <= before.descriptors + 2, "{before:?} {after:?}");
    assert!(after.snapshots <= SNAPSHOTS_MAX, "{after:?}");
}

#[test]
#[ignore = "half an hour: `make serve-test`"]
fn ten_thousand_cycles_leave_nothing_behind() {
    assert!(Path::new("/proc/self/statm").exists(), "this test needs Linux");
    let jobs = ["a", "b", "c", "d"];
    let (before, after) = cycles("ten-thousand-cycles", &jobs, (50, 2_500));
    // One more for each job that writes a snapshot at that moment.
    assert!(after.threads <= before.threads + jobs.len(), "{before:?} {after:?}");
    assert!(after.descriptors <= before.descriptors + 2 * jobs.len(), "{before:?} {after:?}");
    assert!(after.snapshots <= SNAPSHOTS_MAX, "{after:?}");
    println!("{before:?} {after:?}");
    // The journal of revisions grows in memory by some hundred bytes each.
    let grown = after.resident_bytes.saturating_sub(before.resident_bytes);
    assert!(grown < 64 << 20, "{before:?} {after:?}");
}
