//! Dead letters of jobs that are killed: none is lost, and none is there twice.
//!
//! Two jobs of a file read one table one after the other, so the second adds to what the first has
//! written.

use std::fs;
use std::time::{Duration, Instant};

use thalweg_core::shim::SplitMix64;

use super::jobs::Workspace;

const JOB: &str = "
CREATE TABLE numbers (n BIGINT) WITH (
  'connector' = 'filesystem', 'format' = 'csv', 'path' = 'in', 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl'
);
CREATE TABLE one (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'one.csv');
CREATE TABLE two (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'two.csv');
SET 'table.dml-sync' = 'true';
INSERT INTO one SELECT n FROM numbers;
INSERT INTO two SELECT n + 1 FROM numbers;
";

const OUTPUTS: [&str; 3] = ["bad.jsonl", "one.csv", "two.csv"];

const TAKES: [&str; 7] = [
    "--quiet",
    "--resume",
    "--set",
    "execution.checkpointing.dir=state",
    "--set",
    "execution.checkpointing.interval=10 ms",
    "job.sql",
];

fn read(workspace: &Workspace) -> [String; 3] {
    OUTPUTS.map(|name| fs::read_to_string(workspace.path(name)).unwrap_or_default())
}

/// The job and its inputs, in a folder of their own.
fn workspace(name: &str) -> Workspace {
    let workspace = Workspace::new(name);
    for file in 0..40 {
        let line = |n: i32| if n % 7 == 3 { format!("x{file}-{n}\n") } else { format!("{n}\n") };
        let text = (0..500).map(line).collect::<String>();
        workspace.write(&format!("in/{file:02}.csv"), &text);
    }
    workspace.write("job.sql", JOB);
    workspace
}

#[test]
fn dead_letters_of_jobs_that_are_killed_are_there_once() {
    let whole = workspace("letters");
    let begun = Instant::now();
    whole.succeed(&["--quiet", "job.sql"]);
    let duration = begun.elapsed();
    let expected = read(&whole);
    assert_eq!(expected[0].lines().count(), 2 * 40 * 71, "both jobs have their letters");
    let mut random = SplitMix64::new(11);
    let mut kills = 0;
    for round in 0..3 {
        let workspace = workspace(&format!("letters-{round}"));
        for attempt in 0.. {
            let mut running = workspace.start(&TAKES);
            let is_last = attempt >= 5;
            if !is_last {
                let wait_us = random.below(duration.as_micros() as u64 + 1);
                std::thread::sleep(Duration::from_micros(wait_us));
            }
            if is_last || running.ended().is_some() {
                let (status, messages) = running.end();
                assert!(status.success(), "{messages}");
                break;
            }
            running.kill();
            kills += 1;
            for (found, all) in read(&workspace).iter().zip(&expected) {
                assert!(all.starts_with(found), "what is visible is complete");
            }
        }
        assert_eq!(read(&workspace), expected);
        assert!(!workspace.path("bad.jsonl.partial").exists());
    }
    assert!(kills > 0, "jobs end before they are killed");
}
