//! Starts: what is refused changes no byte, what started from scratch is never resumed as what it
//! abandoned, and outputs say which snapshot they belong to.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::jobs::{Running, Workspace, contents, copy_folder, files, until};

const SNAPSHOTS: [&str; 5] = [
    "--quiet",
    "--set",
    "execution.checkpointing.dir=state",
    "--set",
    "restart-strategy.type=none",
];
const OFTEN: [&str; 2] = ["--set", "execution.checkpointing.interval=20 ms"];
const NEVER: [&str; 2] = ["--set", "execution.checkpointing.interval=0 s"];

/// How many numbers there are.
const NUMBERS: i64 = 2_000;

/// Copies numbers into a folder and into one file. A second and a half at this rate, hours at a
/// slower one.
const JOB: &str = "
CREATE TABLE numbers (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '${rate}',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '2000'
);
CREATE TABLE one (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'one.csv');
CREATE TABLE many (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'many/');
EXECUTE STATEMENT SET BEGIN
  INSERT INTO one SELECT n FROM numbers;
  INSERT INTO many SELECT n FROM numbers;
END;
";
const FAST: &str = "rate=20000";
const SLOW: &str = "rate=500";

fn workspace(test: &str) -> Workspace {
    let workspace = Workspace::new(&format!("starts-{test}"));
    workspace.write("job.sql", JOB);
    workspace
}

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SNAPSHOTS[..], more, &["job.sql"]].concat()
}

/// Starts the job slowly and waits until a snapshot is kept that was not there.
fn with_a_snapshot(workspace: &Workspace, more: &[&str]) -> Running {
    let before = workspace.snapshots().last().copied();
    let slowly = [&OFTEN[..], &["--param", SLOW], more].concat();
    let mut running = workspace.start(&words(&slowly));
    let visible = workspace.visible("many").len();
    until("a snapshot with rows is committed", || {
        if let Some(status) = running.ended() {
            panic!("it has ended: {status}: {}", running.messages());
        }
        workspace.snapshots().last().copied() > before && workspace.visible("many").len() > visible
    });
    running
}

/// Starts the job, which takes no snapshots by itself, and kills it when both outputs have rows of
/// it.
fn killed_before_its_first_snapshot(workspace: &Workspace, more: &[&str]) {
    let slowly = [&NEVER[..], &["--param", SLOW], more].concat();
    let length = |path: &PathBuf| fs::metadata(path).map_or(0, |found| found.len());
    let hidden = || {
        let mut found = files(&workspace.path("many"));
        found.retain(|path| path.to_string_lossy().contains("/.part-") && length(path) > 0);
        found
    };
    let before = hidden();
    let mut running = workspace.start(&words(&slowly));
    until("rows are written", || {
        if let Some(status) = running.ended() {
            panic!("it has ended: {status}: {}", running.messages());
        }
        // Each run gives its parts other names.
        length(&workspace.path("one.csv.partial")) > 0
            && hidden().iter().any(|path| !before.contains(path))
    });
    running.kill();
}

/// Ends a run with this status, before it has changed anything. What it said.
fn refused(workspace: &Workspace, status: i32, more: &[&str]) -> String {
    let before = contents(&workspace.folder);
    let messages = workspace.fail(status, &words(&[&["--param", FAST], more].concat()));
    let after = contents(&workspace.folder);
    let names = |found: &[(String, Vec<u8>)]| -> Vec<String> {
        found.iter().map(|(name, bytes)| format!("{name} {}", bytes.len())).collect()
    };
    assert!(before == after, "{:?}\n{:?}\n{messages}", names(&before), names(&after));
    messages
}

/// Resumes the job, which ends with each number once in both outputs.
fn completes(workspace: &Workspace, more: &[&str]) {
    workspace.succeed(&words(&[&["--param", FAST], more].concat()));
    let expected: Vec<String> = (1..=NUMBERS).map(|n| n.to_string()).collect();
    assert_eq!(workspace.visible("many"), expected);
    let one = fs::read_to_string(workspace.path("one.csv")).expect("the file is complete");
    assert_eq!(one.lines().collect::<Vec<_>>(), expected);
}

/// A job with two outputs was started again without `--resume` by mistake: it was refused, since
/// the folder had files, but the other output was empty by then, and no resume was possible any
/// more.
#[test]
fn a_refused_start_from_scratch_changes_nothing() {
    let workspace = workspace("refused-scratch");
    with_a_snapshot(&workspace, &[]).kill();
    let messages = refused(&workspace, 2, &[]);
    assert!(messages.contains("--resume") && messages.contains("--overwrite"), "{messages}");
    // Also without snapshots, and under another name.
    let messages = workspace.fail(2, &["--quiet", "--param", FAST, "job.sql"]);
    assert!(messages.contains("takes no snapshots"), "{messages}");
    refused(&workspace, 2, &["--set", "pipeline.name=other"]);
    completes(&workspace, &["--resume"]);
}

/// A way back to an older snapshot was refused by the folder when the file was cut off already.
#[test]
fn a_refused_way_back_changes_nothing() {
    let workspace = workspace("refused-back");
    with_a_snapshot(&workspace, &[]).kill();
    with_a_snapshot(&workspace, &["--resume"]).kill();
    let snapshots = workspace.snapshots();
    let oldest = snapshots.first().expect("a snapshot").to_string();
    let messages = refused(&workspace, 2, &["--from", &oldest]);
    assert!(messages.contains("--overwrite"), "{messages}");
    completes(&workspace, &["--resume"]);
}

/// Whoever goes back and says so gets each row once: what was written since is removed.
#[test]
fn a_way_back_that_is_wanted_writes_nothing_twice() {
    let workspace = workspace("back");
    with_a_snapshot(&workspace, &[]).kill();
    with_a_snapshot(&workspace, &["--resume"]).kill();
    let snapshots = workspace.snapshots();
    let oldest = snapshots.first().expect("a snapshot").to_string();
    let back = ["--from", &oldest, "--overwrite"];
    // It dies before its first snapshot: a resume continues from the old one, not from those that
    // were abandoned.
    killed_before_its_first_snapshot(&workspace, &back);
    completes(&workspace, &["--resume"]);
}

/// A run that started from scratch and died before its first snapshot was resumed from the
/// abandoned run.
#[test]
fn a_resume_continues_the_start_from_scratch_and_not_what_it_abandoned() {
    let workspace = workspace("scratch");
    with_a_snapshot(&workspace, &[]).kill();
    for _ in 0..2 {
        killed_before_its_first_snapshot(&workspace, &["--overwrite"]);
    }
    let abandoned = workspace.snapshots().last().expect("a snapshot").to_string();
    // What the run has written belongs to it, and to no snapshot of the one before.
    let messages = refused(&workspace, 2, &["--from", &abandoned]);
    assert!(messages.contains("another start"), "{messages}");
    killed_before_its_first_snapshot(&workspace, &["--resume"]);
    completes(&workspace, &["--resume"]);
}

/// The last snapshot of an earlier run over the outputs of a newer one gave 39,011 rows for 30,000;
/// so did a backup of the state that was brought back without the outputs.
#[test]
fn outputs_of_a_newer_snapshot_are_not_written_again() {
    let workspace = workspace("marks");
    with_a_snapshot(&workspace, &[]).kill();
    copy_folder(&workspace.path("state"), &workspace.path("backup"));
    let of_first_run = workspace.snapshots().last().expect("a snapshot").to_string();
    with_a_snapshot(&workspace, &["--resume"]).kill();
    let messages = refused(&workspace, 2, &["--from", &of_first_run]);
    assert!(messages.contains("newer than"), "{messages}");

    let newest = workspace.path("newest");
    fs::rename(workspace.path("state"), &newest).expect("the state is put away");
    fs::rename(workspace.path("backup"), workspace.path("state"))
        .expect("the backup takes its place");
    let messages = refused(&workspace, 2, &["--resume"]);
    assert!(messages.contains("newer than"), "{messages}");
    fs::remove_dir_all(workspace.path("state")).expect("the backup");
    fs::rename(&newest, workspace.path("state")).expect("the state is back");
    completes(&workspace, &["--resume"]);
}

/// Files that were written before the first manifest stood in the way of each resume.
#[test]
fn a_job_that_writes_at_least_once_resumes_though_its_files_came_before_its_first_snapshot() {
    let workspace = workspace("at-least-once");
    let mode = ["--set", "execution.checkpointing.mode=AT_LEAST_ONCE"];
    // Manifests cannot be written: a snapshot dies behind what its sinks have ready.
    workspace.write("state/job/snapshots/0000000001", "in the way");
    killed_before_its_first_snapshot(&workspace, &[&OFTEN[..], &mode].concat());
    fs::remove_file(workspace.path("state/job/snapshots/0000000001")).expect("what was in the way");
    workspace.succeed(&words(&[&["--param", FAST, "--resume"], &mode[..]].concat()));
    let visible = workspace.visible("many");
    let lost = (1..=NUMBERS).filter(|n| !visible.contains(&n.to_string())).count();
    assert_eq!(lost, 0);
}

/// A finished file is an output as well; a folder that is appended to is none that is replaced.
#[test]
fn a_start_from_scratch_over_a_finished_output_has_to_be_wanted() {
    let workspace = workspace("finished");
    completes(&workspace, &OFTEN);
    let messages = refused(&workspace, 2, &[]);
    assert!(messages.contains("--overwrite"), "{messages}");
    completes(&workspace, &["--overwrite"]);
    // A run without snapshots replaces what is complete, as it always does; then the output is no
    // longer that of a snapshot.
    workspace.write("job.sql", &JOB.replace("'many/'", "'many/', 'sink.append' = 'true'"));
    workspace.succeed(&["--quiet", "--param", FAST, "job.sql"]);
    assert_eq!(workspace.visible("many").len() as i64, 2 * NUMBERS);
    workspace.fail(2, &words(&["--param", FAST, "--resume"]));
}

/// Runs `thalweg snapshot` with these words. Its status, and what it said.
fn snapshot(workspace: &Workspace, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("snapshot").args(words).args(["--dir", "state"]);
    let output = command.current_dir(&workspace.folder).output().expect("thalweg runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// A backup holds the outputs as they were in its snapshot, so a job that resumes from it writes
/// each row once, here and elsewhere.
#[test]
fn a_backup_brings_state_and_outputs_back_together() {
    let workspace = workspace("backup");
    let mut running = with_a_snapshot(&workspace, &[]);
    let (status, said) = snapshot(&workspace, &["export", "job", "backup"]);
    assert_eq!(status, Some(1), "the job runs: {said}");
    running.kill();
    let (status, said) = snapshot(&workspace, &["export", "job", "backup"]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = snapshot(&workspace, &["export", "job", "backup"]);
    assert_eq!(status, Some(2), "a backup is never written over: {said}");

    with_a_snapshot(&workspace, &["--resume"]).kill();
    let before = contents(&workspace.folder);
    let (status, said) = snapshot(&workspace, &["import", "backup"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(before == contents(&workspace.folder), "a refusal changes no byte: {said}");
    let (status, said) = snapshot(&workspace, &["import", "backup", "--overwrite"]);
    assert_eq!(status, Some(0), "{said}");
    killed_before_its_first_snapshot(&workspace, &["--resume"]);
    completes(&workspace, &["--resume"]);

    let elsewhere = self::workspace("backup-elsewhere");
    copy_folder(&workspace.path("backup"), &elsewhere.path("backup"));
    let (status, said) = snapshot(&elsewhere, &["import", "backup"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(!elsewhere.visible("many").is_empty(), "rows that were committed are there");
    completes(&elsewhere, &["--resume"]);
}
