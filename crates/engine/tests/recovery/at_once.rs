//! Jobs of a file that run at the same time, and are killed and stopped together: each resumes from
//! its own snapshot.

use std::time::Duration;

use thalweg_core::shim::SplitMix64;

use super::jobs::{Workspace, until, words};

/// Two jobs; the second takes twice as long.
const JOB: &str = "
CREATE TABLE numbers (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '4000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '2000'
);
CREATE TABLE one (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'one/');
CREATE TABLE two (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'two/');
INSERT INTO one SELECT n FROM numbers;
INSERT INTO two SELECT a.n FROM (SELECT n FROM numbers UNION ALL SELECT -n FROM numbers) a;
";

fn workspace(test: &str) -> Workspace {
    let workspace = Workspace::new(test);
    workspace.write("job.sql", JOB);
    workspace
}

/// The numbers in a folder, sorted.
fn visible(workspace: &Workspace, folder: &str) -> Vec<i64> {
    let rows = workspace.visible(folder);
    let mut numbers: Vec<i64> = rows.iter().map(|row| row.parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

fn check_complete(workspace: &Workspace) {
    let all = |range: std::ops::RangeInclusive<i64>| range.filter(|n| *n != 0).collect::<Vec<_>>();
    assert_eq!(visible(workspace, "one"), all(1..=2000));
    assert_eq!(visible(workspace, "two"), all(-2000..=2000));
}

#[test]
fn jobs_that_are_killed_together_resume_each_from_its_own_snapshot() {
    let workspace = workspace("at-once-kills");
    let mut random = SplitMix64::new(5);
    for round in 0..6 {
        let mut running = workspace.start(&words(&["--resume"]));
        std::thread::sleep(Duration::from_millis(50 + random.below(250)));
        if running.ended().is_some() {
            assert!(round > 0, "it ends before it is killed");
            break;
        }
        running.kill();
    }
    workspace.succeed(&words(&["--resume"]));
    check_complete(&workspace);
    let listed = ["job", "job-2"].map(|job| workspace.path("state").join(job).exists());
    assert_eq!(listed, [true, true]);
}

#[test]
fn jobs_that_are_stopped_resume_and_drain_together() {
    let workspace = workspace("at-once-stops");
    for round in 0..3 {
        // A new snapshot: the process is far enough to be stopped, and has work left to resume.
        let before = workspace.snapshots().last().copied();
        let mut running = workspace.start(&words(&["--resume"]));
        until("a snapshot is kept", || {
            running.ended().is_some() || workspace.snapshots().last().copied() > before
        });
        std::thread::sleep(Duration::from_millis(60));
        running.signal(if round == 0 { "TERM" } else { "INT" });
        let (status, messages) = running.end();
        assert!(matches!(status.code(), Some(130 | 0)), "{status}: {messages}");
    }
    workspace.succeed(&words(&["--resume"]));
    check_complete(&workspace);
}

/// The folder of a snapshot is of one job: the others resume from their newest.
#[test]
fn one_of_several_jobs_goes_back_to_a_snapshot() {
    let workspace = workspace("at-once-from");
    let mut running = workspace.start(&words(&["--resume"]));
    let first = workspace.path("state/job-2/snapshots/0000000001/manifest.json");
    until("a snapshot is kept", || first.exists());
    running.kill();
    let kept = workspace.path("state/job-2/snapshots");
    let number = std::fs::read_dir(&kept).expect("a folder").flatten();
    let number = number
        .map(|entry| entry.file_name())
        .filter(|name| kept.join(name).join("manifest.json").exists());
    let number = number.max().expect("one is kept").into_string().expect("a number");
    let folder = format!("state/job-2/snapshots/{number}");
    let wrong = workspace.fail(2, &words(&["--from", "state/other/snapshots/0000000001"]));
    assert!(wrong.contains("the statements have the jobs job, job-2"), "{wrong}");
    workspace.succeed(&words(&["--overwrite", "--from", &folder]));
    check_complete(&workspace);
}
