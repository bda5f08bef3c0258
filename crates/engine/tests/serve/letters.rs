//! Dead letters are read again after the statements were mended: each once, also where the server
//! is killed meanwhile.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_core::shim::SplitMix64;

use super::support::{PATIENCE, Place, Running};

const OPTIONS: [&str; 4] = ["-o", "snapshots.interval=50 ms", "-o", "start.deaths-max=0"];

/// A job that follows a folder; every tenth of its lines is `N.0`, which is no BIGINT.
fn job(column: &str, value: &str) -> String {
    format!(
        "CREATE TABLE numbers (n {column}) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in',
           'source.monitor-interval' = '20 ms', 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl');
         CREATE TABLE kept (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
         INSERT INTO kept SELECT {value} FROM numbers;"
    )
}

fn strict() -> String {
    job("BIGINT", "n")
}

fn mended() -> String {
    job("STRING", "CAST(CAST(n AS DOUBLE) AS BIGINT)")
}

fn line(n: u64) -> String {
    if n % 10 == 4 { format!("{n}.0\n") } else { format!("{n}\n") }
}

fn write_input(place: &Place, name: &str, numbers: std::ops::Range<u64>) {
    let folder = place.folder.join("files/in");
    fs::create_dir_all(&folder).expect("a folder");
    let hidden = folder.join(format!(".{name}"));
    fs::write(&hidden, numbers.map(line).collect::<String>()).expect("written");
    fs::rename(&hidden, folder.join(name)).expect("renamed");
}

fn await_rows(server: &Running, rows: u64) {
    server.await_job("a", &format!("at {rows} rows"), |job| {
        job["rows_out"].as_u64() >= Some(rows) && job["state"] == "running"
    });
}

fn listed(server: &Running, more: &[&str]) -> Vec<Value> {
    let (status, text) =
        server.command(&[&["dead", "a", "--limit", "500", "--json"], more].concat());
    assert_eq!(status, 0, "{text}");
    let body: Value = serde_json::from_str(&text).expect("JSON");
    body["items"].as_array().expect("a list").clone()
}

#[test]
fn letters_of_a_mended_job_become_rows_once() {
    let place = Place::new("replay");
    let server = place.serve(&OPTIONS);
    write_input(&place, "a.csv", 0..100);
    let (status, text) = server.submit("a", &strict(), &[]);
    assert_eq!(status, 0, "{text}");
    await_rows(&server, 90);
    assert_eq!(listed(&server, &[]).len(), 10);
    // Not mended: the answer says why, and nothing is lost.
    let text = server.done(&["dead", "a", "--replay", "--where", "line < 50"]);
    assert!(text.starts_with("0 rows were read again; 5 could not"), "{text}");
    assert!(text.contains("cannot read '4.0'"), "{text}");
    let refused = listed(&server, &[]);
    assert_eq!(refused.iter().filter(|letter| letter["replay"] == "refused").count(), 5);
    let (status, text) = server.submit("a", &mended(), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_job("a", "at revision 2", |job| job["revision"] == 2 && job["state"] == "running");
    let first = refused.last().expect("the oldest")["id"].as_str().expect("a name").to_owned();
    let text = server.done(&["dead", "a", "--replay", &first]);
    assert!(text.starts_with("1 rows were read again; 0 could not"), "{text}");
    let text = server.done(&["dead", "a", "--replay", &first]);
    assert!(text.starts_with("0 rows were read again"), "it is a row already: {text}");
    let text = server.done(&["dead", "a", "--replay"]);
    assert!(text.starts_with("9 rows were read again; 0 could not"), "{text}");
    assert!(listed(&server, &[]).is_empty());
    assert_eq!(listed(&server, &["--replayed"]).len(), 10);
    let (status, text) = server.command(&["dead", "a", "--replay", "numbers:7"]);
    assert!(status == 3 && text.contains("no dead letter 'numbers:7'"), "{status}: {text}");
    let (status, text) = server.command(&["dead", "a", "--replay", "--where", "line <"]);
    assert_eq!(status, 2, "{text}");
    server.done(&["stop", "a", "--how", "drain"]);
    assert_eq!(place.numbers("out.csv"), (0..100).collect::<Vec<u64>>());
    let (status, text) = server.command(&["dead", "a", "--replay"]);
    assert!(status == 3 && text.contains("only a job that runs"), "{status}: {text}");
    server.terminate();
}

#[test]
fn jobs_whose_inputs_are_in_the_order_of_time_take_no_letters() {
    let place = Place::new("replay-order");
    let server = place.serve(&OPTIONS);
    write_input(&place, "a.csv", 0..20);
    let sql = format!(
        "SET 'pipeline.order' = 'event_time';{}",
        strict().replace(
            "(n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in',",
            "(n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in',",
        )
    );
    let (status, text) = server.submit("a", &sql, &[]);
    assert_eq!(status, 0, "{text}");
    await_rows(&server, 18);
    let (status, text) = server.command(&["dead", "a", "--replay"]);
    assert!(status == 3 && text.contains("the contract 'event_time'"), "{status}: {text}");
    server.terminate();
}

/// Kills the server so often while letters are read again.
fn killed(test: &str, kills: u64) {
    let place = Place::new(test);
    let mut server = place.serve(&OPTIONS);
    let mut random = SplitMix64::new(5);
    write_input(&place, "0.csv", 0..1_000);
    let (status, text) = server.submit("a", &strict(), &[]);
    assert_eq!(status, 0, "{text}");
    await_rows(&server, 900);
    let (status, text) = server.submit("a", &mended(), &[]);
    assert_eq!(status, 0, "{text}");
    for kill in 0..kills {
        // Other rows come meanwhile.
        let from = 1_000 * (kill + 1);
        write_input(&place, &format!("{}.csv", kill + 1), from..from + 1_000);
        let half = 2 + 5 * kill;
        let condition = format!("line > {half}");
        let moment = Duration::from_millis(random.below(600));
        let mut asked = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        asked.args(["dead", "a", "--replay", "--where", &condition, "--data-dir"]);
        asked.arg(&place.folder).stdout(Stdio::null()).stderr(Stdio::null());
        let mut asked = asked.spawn().expect("a command");
        std::thread::sleep(moment);
        server.kill();
        asked.wait().expect("it ends");
        server = place.serve(&OPTIONS);
    }
    let begun = Instant::now();
    loop {
        server.await_state("a", "running");
        server.command(&["dead", "a", "--replay"]);
        if listed(&server, &[]).is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", listed(&server, &[]));
    }
    server.done(&["stop", "a", "--how", "drain"]);
    assert_eq!(place.numbers("out.csv"), (0..1_000 * (kills + 1)).collect::<Vec<u64>>());
    server.terminate();
}

#[test]
fn letters_are_rows_once_where_the_server_is_killed_meanwhile() {
    killed("replay-kills", 4);
}

#[test]
#[ignore = "minutes: `make serve-test`"]
fn letters_are_rows_once_over_a_hundred_kills() {
    killed("replay-hundred-kills", 100);
}
