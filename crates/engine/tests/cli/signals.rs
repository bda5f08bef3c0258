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
