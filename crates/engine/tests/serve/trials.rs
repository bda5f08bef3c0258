//! New statements are tried on a copy of a job's state, and the job and its outputs do not notice.

use serde_json::Value;

use super::support::Place;

const FAST: [&str; 2] = ["-o", "snapshots.interval=100 ms"];

fn counting(more: &str, set: &str) -> String {
    format!(
        "{set}
         CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'datagen', 'rows-per-second' = '500',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000');
         CREATE TABLE counts (n BIGINT, c BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'counts/');
         INSERT INTO counts SELECT n / 100, COUNT(*){more} FROM numbers GROUP BY n / 100,
           TUMBLE(ts, INTERVAL '0.1' SECOND);"
    )
}

fn trial(server: &super::support::Running, place: &Place, sql: &str, more: &[&str]) -> Value {
    let file = place.folder.join("new.sql");
    std::fs::write(&file, sql).expect("a file");
    let file = file.display().to_string();
    let text = server.done(&[&["trial", "a", &file, "--json"], more].concat());
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_trial_begins_from_the_state_of_the_job_and_changes_nothing() {
    let place = Place::new("trial");
    let server = place.serve(&FAST);
    let set = "SET 'pipeline.order' = 'event_time';";
    let (status, text) = server.submit("a", &counting("", set), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_job("a", "with results", |job| {
        job["snapshot"].is_u64() && job["rows_out"].as_u64() > Some(3)
    });
    let folder = place.folder.join("files/counts");
    let found = trial(&server, &place, &counting(" * 2", set), &["--seconds", "3"]);
    assert_eq!(found["state"], "done", "{found}");
    let outcome = &found["outcome"];
    let output = &outcome["outputs"][0];
    let rows = output["rows"].as_u64().expect("a number");
    assert!(rows > 3 && outcome["inputs"][0]["rows"].as_u64() > Some(500), "{found}");
    // The first window was half full in the snapshot: its state was there.
    for row in output["first"].as_array().expect("rows") {
        let (n, c) = (row["row"]["n"].as_u64(), row["row"]["c"].as_u64());
        assert!(n > Some(0) && c == Some(200), "{found}");
    }
    let difference = &outcome["differences"][0];
    assert_eq!(difference["place"], 1, "{found}");
    assert_eq!(
        (&difference["now"]["row"]["c"], &difference["new"]["row"]["c"]),
        (&100.into(), &200.into())
    );
    // The same statements write the same.
    let same = trial(&server, &place, &counting("", set), &["--seconds", "2"]);
    assert_eq!(same["outcome"]["differences"], serde_json::json!([]), "{same}");
    assert!(
        !place
            .folder
            .join("jobs/a/trials")
            .read_dir()
            .is_ok_and(|mut found| found.next().is_some())
    );
    // What the job writes is its own.
    server.done(&["stop", "a"]);
    let mut counts = Vec::new();
    for entry in folder.read_dir().expect("outputs").flatten() {
        if !entry.file_name().to_string_lossy().starts_with('.') {
            counts.push(std::fs::read_to_string(entry.path()).expect("an output"));
        }
    }
    let text = counts.concat();
    assert!(
        text.lines().skip(1).all(|line| line.ends_with(",100") || line.starts_with("0,")),
        "{text}"
    );
    // A job that is stopped can be tried as well, and one line for people says what came of it.
    let file = place.folder.join("new.sql").display().to_string();
    let shown = server.done(&["trial", "a", &file, "--seconds", "1"]);
    assert!(shown.contains("nothing was written") && shown.contains("kept: "), "{shown}");
    server.terminate();
}

#[test]
fn a_trial_says_why_it_is_not_to_be() {
    let place = Place::new("trial-refused");
    let server = place.serve(&FAST);
    let (status, text) = server.submit("a", &counting("", ""), &[]);
    assert_eq!(status, 0, "{text}");
    server.await_snapshot("a");
    let file = place.folder.join("new.sql");
    let name = file.display().to_string();
    let refused = |sql: &str, more: &[&str]| {
        std::fs::write(&file, sql).expect("a file");
        // Each ends by its error; a second would be over before a busy machine has read a row.
        server.command(&[&["trial", "a", &name, "--seconds", "60"], more].concat())
    };
    let (status, text) = refused("SELECT 1 FROM nowhere", &[]);
    assert_eq!(status, 2, "{text}");
    let (status, text) = refused(&counting("", ""), &["--from", "999999"]);
    assert!(status == 3 && text.contains("snapshot 999999"), "{status}: {text}");
    // Not every build has this connector.
    let one_reader = counting("", "").replace(
        "'connector' = 'datagen', 'rows-per-second' = '500',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000'",
        "'connector' = 'mqtt', 'url' = 'mqtt://127.0.0.1:1', 'topic' = 'a', 'format' = 'json', 'qos' = '0'",
    );
    let (status, text) = refused(&one_reader, &[]);
    let is_there = !text.contains("built without it");
    assert!(status != 0 && (!is_there || text.contains("one reader")), "{status}: {text}");
    // The statements fail at a row: the trial says so, and the job runs on.
    let failing = counting(" / (n / 100 - n / 100)", "");
    let (status, text) = refused(&failing, &[]);
    assert!(status != 0 && text.contains("zero"), "{status}: {text}");
    server.await_state("a", "running");
    let operator = server.token("operator", "operate");
    let (status, _) = server.ask(
        "POST",
        "/v1/jobs/a/trials",
        &operator,
        "content-type: application/json\r\n",
        "{\"sql\":\"\"}",
    );
    assert_eq!(status, 403, "statements take the role write");
    server.terminate();
}
