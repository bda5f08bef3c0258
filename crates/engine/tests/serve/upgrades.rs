//! New statements that do not prove themselves, state that a person has to approve, and jobs that
//! are files of a folder.

use std::fs;

use super::support::{PATIENCE, Place, numbers_job};

const FAST: [&str; 4] = ["-o", "snapshots.interval=100 ms", "-o", "upgrade.confirm-within=10"];

#[test]
fn statements_that_fail_go_back_and_nothing_of_them_is_seen() {
    let place = Place::new("way-back");
    let server = place.serve(&FAST);
    let old = numbers_job("a.csv", 5_000, 1_000);
    server.submit("a", &old, &[]);
    server.await_snapshot("a");
    // It can be planned, and its first row is an error.
    let wrong = "SELECT CAST('x' || CAST(n AS STRING) AS BIGINT) FROM numbers";
    let new = old.replace("SELECT n FROM numbers", wrong);
    let (status, text) = server.submit("a", &new, &[]);
    assert_eq!(status, 0, "{text}");
    let job = server.await_job("a", "back at revision 1", |job| {
        job["revision"] == 1 && (job["state"] == "running" || job["state"] == "finished")
    });
    assert_eq!(job["desired"], "running");
    let events = server.done(&["events", "a"]);
    assert!(events.contains("back to revision 1"), "{events}");
    server.await_state("a", "finished");
    assert_eq!(place.numbers("a.csv"), (1..=5_000).collect::<Vec<_>>(), "each once");
    server.terminate();
}

#[test]
fn state_is_dropped_only_if_a_person_says_which() {
    let place = Place::new("approve");
    let server = place.serve(&FAST);
    let job = |select: &str| {
        format!(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '500',
               'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000');
             CREATE TABLE counts (n BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
             INSERT INTO counts {select};"
        )
    };
    let counting = job("SELECT n % 10, COUNT(*) FROM numbers GROUP BY n % 10");
    let (status, text) = server.submit("a", &counting, &[]);
    assert_eq!(status, 0, "{text}");
    server.await_snapshot("a");
    let plain = job("SELECT n, n FROM numbers");
    let (status, text) = server.submit("a", &plain, &[]);
    assert_eq!(status, 3, "a job that runs keeps its state: {text}");
    server.done(&["stop", "a"]);
    let (status, text) = server.submit("a", &plain, &["--draft"]);
    assert_eq!(status, 0, "{text}");
    let (_, text) = server.command(&["start", "a"]);
    let job = server.await_state("a", "undecided");
    let at_stake = job["outcome"]["at_stake"].as_array().expect("stages");
    assert_eq!(at_stake.len(), 1, "{text}: {job}");
    let stage = at_stake[0]["id"].as_str().expect("an identifier");
    let (status, text) = server.command(&["approve", "a", "another-stage"]);
    assert!(status == 3 && text.contains(stage), "{text}");
    server.done(&["approve", "a", stage]);
    server.await_state("a", "running");
    server.terminate();
}

#[test]
fn a_folder_of_files_says_which_jobs_there_are() {
    let place = Place::new("folder");
    let folder = place.folder.join("sql");
    fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, end: u64| {
        let sql = numbers_job(
            &place.folder.join(format!("files/{name}.csv")).display().to_string(),
            end,
            500,
        );
        fs::write(folder.join(format!("{name}.sql")), sql).expect("a file");
    };
    write("one", 1_000_000_000);
    write("two", 1_000_000_000);
    fs::write(folder.join("wrong.sql"), "INSERT INTO nothing SELECT 1").expect("a file");
    let option = format!("jobs-dir={}", folder.display());
    let options = [&FAST[..], &["-o", &option]].concat();
    let server = place.serve(&options);
    server.await_state("one", "running");
    server.await_state("two", "running");
    server.await_snapshot("two");
    let (status, _) = server.command(&["describe", "wrong"]);
    assert_eq!(status, 3, "what is wrong is no job, and keeps no other from running");
    let (status, text) = server.submit("one", &numbers_job("x.csv", 10, 10), &[]);
    assert!(status == 3, "such a job is changed in its folder: {text}");
    server.terminate();
    fs::remove_file(folder.join("two.sql")).expect("it was there");
    write("three", 20);
    let server = place.serve(&options);
    server.await_state("two", "stopped");
    assert!(server.job("two")["snapshot"].is_null() || server.job("two")["desired"] == "stopped");
    server.await_state("three", "finished");
    server.await_state("one", "running");
    assert_eq!(place.numbers("three.csv"), (1..=20).collect::<Vec<_>>());
    // A server that runs reads the folder again at a signal.
    write("four", 10);
    server.hang_up();
    let begun = std::time::Instant::now();
    while server.command(&["describe", "four"]).0 != 0 {
        assert!(begun.elapsed() < PATIENCE, "nobody has read the folder");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.await_state("four", "finished");
    server.terminate();
}
