//! How jobs end: by signals in every state that a job can be in, by a drain, and what a resume
//! finds behind an end.

use std::fs;
use std::time::Duration;

use super::jobs::{Running, Workspace, folders, until, words};

fn workspace(test: &str, job: &str) -> Workspace {
    let workspace = Workspace::new(&format!("endings-{test}"));
    workspace.write("job.sql", job);
    workspace
}

/// Waits until the job has kept a snapshot.
fn with_a_snapshot(workspace: &Workspace, mut running: Running) -> Running {
    until("a snapshot is kept", || {
        if let Some(status) = running.ended() {
            panic!("it has ended: {status}: {}", running.messages());
        }
        !workspace.snapshots().is_empty()
    });
    running
}

/// Two inputs of which one is far ahead of the other: its rows wait in the merge by time.
const UNEVEN: &str = "
SET 'pipeline.order' = 'event_time';
CREATE TABLE a (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 10, 3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'datagen', 'rows-per-second' = '2000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000'
);
CREATE TABLE b (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 10, 3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'datagen', 'rows-per-second' = '300',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000'
);
CREATE TABLE result (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result SELECT n FROM a UNION ALL SELECT n FROM b;
";

/// Rows that wait in a merge by time for another input are in flight for as long as that input
/// brings none. A job that is stopped brings none any more, and used to wait for them for ever.
#[test]
fn a_job_in_event_time_stops_though_rows_wait_in_its_merge() {
    for signal in ["TERM", "INT"] {
        let workspace = workspace(&format!("event-time-{signal}"), UNEVEN);
        let running = with_a_snapshot(&workspace, workspace.start(&words(&[])));
        running.signal(signal);
        let (status, messages) = running.end();
        assert_eq!(status.code(), Some(130), "{signal}: {messages}");
        // Without snapshots there is nobody else who would end it.
        fs::remove_dir_all(workspace.path("out")).expect("the output of the first run");
        let running = workspace.start(&["--quiet", "job.sql"]);
        until("rows are written", || workspace.path("out").exists());
        std::thread::sleep(Duration::from_millis(200));
        running.signal(signal);
        let (status, messages) = running.end();
        assert_eq!(status.code(), Some(130), "{signal}: {messages}");
    }
}

/// A job over one file.
const OF_A_FILE: &str = "
CREATE TABLE a (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv');
CREATE TABLE result (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result SELECT n FROM a;
";

/// A job whose input takes half a second.
const SHORT: &str = "
CREATE TABLE a (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '500'
);
CREATE TABLE result (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result SELECT n FROM a;
";

/// The last snapshot of a job cannot be kept, and it is to continue without: it tried again for
/// ever, whatever signal came. Whoever stops it gets an error, since rows that are written are not
/// visible.
#[test]
fn a_job_that_cannot_keep_its_last_snapshot_can_be_stopped() {
    for on_failure in ["continue", "pause"] {
        let workspace = workspace(&format!("no-last-{on_failure}"), SHORT);
        let on = format!("execution.checkpointing.on-failure={on_failure}");
        let more =
            ["--set", &on, "--set", "execution.checkpointing.tolerable-failed-checkpoints=0"];
        let mut running = with_a_snapshot(&workspace, workspace.start(&words(&more)));
        // No folder can be made where a file is.
        let (snapshots, aside) = (workspace.path("state/job/snapshots"), workspace.path("aside"));
        fs::rename(&snapshots, &aside).expect("moving the snapshots away");
        fs::write(&snapshots, "in the way").expect("a file in the way");
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(running.ended().is_none(), "it tries again: {}", running.messages());
        running.signal("TERM");
        let (status, messages) = running.end();
        assert_eq!(status.code(), Some(1), "{on_failure}: {messages}");
        fs::remove_file(&snapshots).expect("what was in the way");
        fs::rename(&aside, &snapshots).expect("moving the snapshots back");
        workspace.succeed(&words(&["--resume"]));
        let expected: Vec<String> = (1..=500).map(|n| n.to_string()).collect();
        assert_eq!(workspace.visible("out"), expected, "{on_failure}");
    }
}

/// A resume behind the end of an input used to ignore what had come since, with status 0.
#[test]
fn rows_behind_the_end_of_an_input_are_not_ignored_in_silence() {
    let workspace = workspace("grown", OF_A_FILE);
    workspace.write("a.csv", "1\n2\n");
    workspace.succeed(&words(&[]));
    workspace.succeed(&words(&["--resume"]));
    workspace.succeed(&words(&["--resume"]));
    workspace.write("a.csv", "1\n2\n3\n");
    let messages = workspace.fail(2, &words(&["--resume"]));
    assert!(messages.contains("a.csv") && messages.contains("not read"), "{messages}");
    assert_eq!(workspace.visible("out"), ["1", "2"]);
    workspace.write("a.csv", "1\n2\n");
    workspace.succeed(&words(&["--resume"]));
}

/// A drain ends inputs in their middle: a resume has to say that the rest is not read.
#[test]
fn a_resume_behind_a_drain_says_that_rows_are_not_read() {
    let job = UNEVEN.replace("'event_time'", "'epoch'");
    let workspace = workspace("drained", &job);
    let running = with_a_snapshot(&workspace, workspace.start(&words(&["--drain"])));
    running.signal("TERM");
    let (status, messages) = running.end();
    assert_eq!(status.code(), Some(130), "{messages}");
    let visible = workspace.visible("out");
    for _ in 0..2 {
        let messages = workspace.fail(2, &words(&["--resume"]));
        assert!(messages.contains("drain") && messages.contains("not read"), "{messages}");
        assert_eq!(workspace.visible("out"), visible, "nothing was written");
    }
    assert_eq!(folders(&workspace.path("state")).len(), 1);
}
