//! Ctrl-C: the job stops cleanly, and unfinished files keep the name NAME.partial.

use std::io::Read;
use std::time::Duration;

use crate::support::{ENDLESS, Workspace, end, interrupt, until, wait};

#[test]
fn ctrl_c_stops_an_endless_job() {
    let workspace = Workspace::new("interrupt");
    let sql = "CREATE TABLE endless (n BIGINT)
         WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'seed' = '1');
         CREATE TABLE out (n BIGINT)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
         INSERT INTO out SELECT n FROM endless;";
    let mut child = workspace.command(&["run", "-e", sql]).spawn().expect("starting thalweg");
    until("the job writes", || workspace.has("out.csv.partial"));
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let run = end(&mut child);
    assert_eq!((run.status, run.stderr.as_str()), (Some(130), ""));
    assert!(!workspace.has("out.csv"));
    let written = workspace.read("out.csv.partial");
    assert!(written.lines().count() > 0, "what was complete is written");
    assert!(written.ends_with('\n'), "no line is cut");
}

#[test]
fn the_second_ctrl_c_ends_the_process_at_once() {
    let workspace = Workspace::new("interrupt-twice");
    let sql = format!("{ENDLESS} SELECT n FROM endless");
    // Nobody reads, so that the sink is stuck and the job can't stop.
    let mut child = workspace.command(&["run", "-e", &sql]).spawn().expect("starting thalweg");
    let mut first = [0; 1];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a row");
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().expect("asking").is_none(), "the sink is stuck");
    interrupt(&child);
    assert_eq!(wait(&mut child).code(), Some(130));
}

/// A job whose input has fallen silent closes no window. Whoever stops it learns why.
#[test]
fn a_job_that_is_stopped_says_what_held_its_results() {
    let workspace = Workspace::new("interrupt-held");
    workspace.write("in/a.csv", "2026-01-01 10:00:00,1\n2026-01-01 10:03:12,2\n");
    let sql = "CREATE TABLE meters (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in',
               'source.monitor-interval' = '50 ms');
         CREATE TABLE totals (ends TIMESTAMP(3), n INT)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
         INSERT INTO totals SELECT window_end, SUM(n)
         FROM TABLE(TUMBLE(TABLE meters, DESCRIPTOR(ts), INTERVAL '5' MINUTES))
         GROUP BY window_start, window_end;";
    let mut child = workspace.command(&["run", "--metrics", "-e", sql]).spawn().expect("starting");
    // It counts as standing still after 5 s, and is looked at once a second.
    std::thread::sleep(Duration::from_secs(8));
    interrupt(&child);
    let run = end(&mut child);
    assert_eq!(run.status, Some(130), "{}", run.stderr);
    let said = &run.stderr;
    assert!(
        said.contains("output watermark 2026-01-01 10:03:12.000, standing still for "),
        "{said}"
    );
    assert!(said.contains("held by   source meters: no row for "), "{said}");
    let next =
        "ends at 2026-01-01 10:05:00.000 closes when the watermark reaches 2026-01-01 10:04:59.999";
    assert!(said.contains(next), "{said}");
    assert!(said.contains("advice    it falls idle after 30 s of silence"), "{said}");
}
