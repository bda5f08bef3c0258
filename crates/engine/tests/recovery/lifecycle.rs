//! Stops, locks, damaged and foreign snapshots, restarts, full disks.
//!
//! The job counts and sums 3,000 numbers in windows of a hundred, so its output is known without a
//! run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::jobs::{PATIENCE, Running, Workspace, files, folders, until};

/// How many numbers there are.
const NUMBERS: i64 = 3_000;
/// Milliseconds from one number to the next.
const STEP_MS: i64 = 10;

/// The job; its input takes a second and a half at the usual rate.
const JOB: &str = "
CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 10, 3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'datagen', 'rows-per-second' = '${rate}',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '3000'
);
CREATE TABLE result (at TIMESTAMP_LTZ(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT window_start, COUNT(*), SUM(n) FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end;
";

const TAKES: [&str; 5] = [
    "--quiet",
    "--set",
    "execution.checkpointing.dir=state",
    "--set",
    "execution.checkpointing.interval=20 ms",
];

const USUAL: [&str; 2] = ["--param", "rate=2000"];
/// The input takes ten seconds: whatever is done to the job comes before its end.
const SLOW: [&str; 2] = ["--param", "rate=300"];

/// The command line: the snapshots of every test, these words, and the job.
fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TAKES[..], &USUAL, more, &["job.sql"]].concat()
}

/// Count and sum of each window, in order.
fn expected() -> Vec<(i64, i64)> {
    let window = |numbers: &[i64]| (numbers.len() as i64, numbers.iter().sum());
    let numbers: Vec<i64> = (1..=NUMBERS).collect();
    let windows = numbers.chunk_by(|one, next| one * STEP_MS / 1_000 == next * STEP_MS / 1_000);
    windows.map(window).collect()
}

/// Count and sum of each window that is visible.
fn visible(workspace: &Workspace) -> Vec<(i64, i64)> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).expect("a number");
    let row = |row: &String| {
        let mut values = row.split(',').skip(1);
        (number(values.next()), number(values.next()))
    };
    workspace.visible("out").iter().map(row).collect()
}

fn workspace(test: &str) -> Workspace {
    let workspace = Workspace::new(test);
    workspace.write("job.sql", JOB);
    workspace
}

/// Starts the job at a rate and waits until it has committed rows.
fn begun(workspace: &Workspace, rate: [&str; 2], more: &[&str]) -> Running {
    let mut running = workspace.start(&[&TAKES[..], &rate, more, &["job.sql"]].concat());
    until("rows are committed", || {
        if let Some(status) = running.ended() {
            panic!("it has ended: {status}: {}", running.messages());
        }
        !workspace.visible("out").is_empty()
    });
    running
}

/// Starts the job and kills it when it has committed rows.
fn killed(workspace: &Workspace) {
    begun(workspace, SLOW, &[]).kill();
    assert!(visible(workspace).len() < expected().len(), "it was killed before its end");
}

/// The manifests of the job, oldest first; none if it has not begun.
fn manifests_or_none(workspace: &Workspace) -> Vec<PathBuf> {
    if folders(&workspace.path("state")).is_empty() { Vec::new() } else { manifests(workspace) }
}

/// The manifests of the job, oldest first.
fn manifests(workspace: &Workspace) -> Vec<PathBuf> {
    let snapshots = folders(&workspace.path("state")).pop().expect("a job").join("snapshots");
    let manifest = |folder: &PathBuf| folder.join("manifest.json");
    let manifests: Vec<PathBuf> = folders(&snapshots).iter().map(manifest).collect();
    manifests.into_iter().filter(|path| path.exists()).collect()
}

fn flip_a_byte(path: &Path) {
    let mut bytes = fs::read(path).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).expect("a damaged file");
}

#[test]
fn a_stop_keeps_a_last_snapshot_and_the_job_resumes_from_it() {
    let workspace = workspace("stop");
    for signal in ["TERM", "INT"] {
        let before = manifests_or_none(&workspace).pop();
        let running = begun(&workspace, SLOW, &["--resume"]);
        // What an earlier run has committed says nothing of this one.
        until("a snapshot is kept", || manifests_or_none(&workspace).pop() != before);
        running.signal(signal);
        let (status, messages) = running.end();
        assert_eq!(status.code(), Some(130), "{messages}");
        let newest = manifests(&workspace).pop().expect("a snapshot");
        let text = fs::read_to_string(newest).expect("a manifest");
        assert!(text.contains("\"final\""), "{text}");
        assert!(visible(&workspace).len() < expected().len(), "{signal} came before the end");
    }
    workspace.succeed(&words(&["--resume"]));
    assert_eq!(visible(&workspace), expected());
}

#[test]
fn a_stop_that_drains_closes_windows() {
    let workspace = workspace("drain");
    let running = begun(&workspace, SLOW, &["--drain"]);
    running.signal("TERM");
    let (status, messages) = running.end();
    assert_eq!(status.code(), Some(130), "{messages}");
    let (read, total) =
        visible(&workspace).iter().fold((0, 0), |(read, total), (n, sum)| (read + n, total + sum));
    assert!(read < NUMBERS, "it was stopped before its end");
    assert_eq!(total, read * (read + 1) / 2, "each number that was read is in a window");
    assert!(!expected().starts_with(&visible(&workspace)) || read % 100 == 99, "{read}");
}

#[test]
fn a_second_signal_ends_the_process_at_once_and_loses_nothing() {
    let workspace = workspace("twice");
    let running = begun(&workspace, SLOW, &[]);
    running.signal("INT");
    running.signal("INT");
    let (status, messages) = running.end();
    assert_eq!(status.code(), Some(130), "{messages}");
    workspace.succeed(&words(&["--resume"]));
    assert_eq!(visible(&workspace), expected());
}

#[test]
fn at_least_once_loses_nothing_that_a_snapshot_covers() {
    let workspace = workspace("at-least-once");
    let mode = ["--set", "execution.checkpointing.mode=AT_LEAST_ONCE"];
    for _ in 0..2 {
        begun(&workspace, SLOW, &[&mode[..], &["--resume"]].concat()).kill();
    }
    workspace.succeed(&words(&[&mode[..], &["--resume"]].concat()));
    let visible = visible(&workspace);
    let lost: Vec<_> = expected().into_iter().filter(|row| !visible.contains(row)).collect();
    assert!(lost.is_empty(), "{lost:?} of {visible:?}");
}

#[test]
fn a_second_run_is_refused_and_a_dead_one_holds_nothing() {
    let workspace = workspace("lock");
    let mut first = begun(&workspace, SLOW, &[]);
    let messages = workspace.fail(1, &words(&["--resume"]));
    assert!(messages.contains("holds the job directory"), "{messages}");
    assert!(first.ended().is_none(), "the first run continues");
    first.kill();
    workspace.succeed(&words(&["--resume"]));
    assert_eq!(visible(&workspace), expected());
}

#[test]
fn a_damaged_newest_snapshot_asks_before_rows_are_written_twice() {
    let workspace = workspace("damaged");
    killed(&workspace);
    let manifests = manifests(&workspace);
    let [.., before, newest] = &manifests[..] else { panic!("two snapshots: {manifests:?}") };
    let number = |path: &Path| {
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        folder.and_then(|name| name.parse::<u64>().ok()).expect("a number")
    };
    flip_a_byte(newest);
    let before_number = number(before).to_string();
    let rows = visible(&workspace);
    let messages = workspace.fail(1, &words(&["--resume"]));
    assert!(messages.contains(&format!("--from {before_number}")), "{messages}");
    assert!(messages.contains("--overwrite"), "{messages}");
    assert_eq!(visible(&workspace), rows, "nothing was written");

    // Whoever wants to go back says so: what was written since is removed.
    let messages = workspace.fail(2, &words(&["--from", &before_number]));
    assert!(messages.contains("--overwrite"), "{messages}");
    assert_eq!(visible(&workspace), rows, "nothing was written");
    workspace.succeed(&words(&["--from", &before_number, "--overwrite"]));
    assert_eq!(visible(&workspace), expected(), "each row is there once");
}

#[test]
fn snapshots_that_are_not_there_or_do_not_fit_are_refused() {
    let workspace = workspace("refused");
    killed(&workspace);
    let rows = visible(&workspace);
    let messages = workspace.fail(1, &words(&["--from", "4711"]));
    assert!(messages.contains("4711"), "{messages}");

    workspace.write("job.sql", &JOB.replace("SUM(n)", "MAX(n)"));
    let messages = workspace.fail(2, &words(&["--resume"]));
    assert!(messages.contains("--drop-state"), "{messages}");
    let ordered = "pipeline.order=arrival";
    workspace.write("job.sql", JOB);
    let messages = workspace.fail(2, &words(&["--resume", "--set", ordered]));
    assert!(messages.contains("arrival"), "{messages}");
    assert_eq!(visible(&workspace), rows, "nothing was written");

    workspace.write("job.sql", &JOB.replace("SUM(n)", "MAX(n)"));
    workspace.succeed(&words(&["--resume", "--drop-state"]));
}

/// A job that fails again and again: a value of the second file fits no INT.
const FAILS: &str = "
CREATE TABLE a (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a');
CREATE TABLE result (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result SELECT n FROM a;
";

#[test]
fn a_job_that_fails_is_started_again_so_often_and_no_more() {
    let workspace = workspace("restarts");
    workspace.write("job.sql", FAILS);
    workspace.write("a/1.csv", "1\n2\n");
    workspace.write("a/2.csv", "many\n");
    let strategy = [
        ["--set", "restart-strategy.type=fixed-delay"],
        ["--set", "restart-strategy.fixed-delay.attempts=2"],
        ["--set", "restart-strategy.fixed-delay.delay=10 ms"],
    ];
    let messages = workspace.fail(1, &words(&strategy.concat()));
    assert_eq!(messages.matches("started again").count(), 2, "{messages}");
    assert!(messages.contains("2.csv"), "{messages}");
    // The data are mended: it resumes.
    workspace.write("a/2.csv", "3\n");
    workspace.succeed(&words(&["--resume"]));
    assert_eq!(workspace.visible("out"), ["1", "2", "3"]);
}

/// A run that starts from scratch next to the snapshots of an earlier one and fails before its
/// first is not to resume from them: that one has read all there was, so nothing of the new data
/// would ever be read.
#[test]
fn a_restart_does_not_resume_from_what_an_earlier_run_has_kept() {
    let workspace = workspace("from-scratch");
    workspace.write("job.sql", FAILS);
    workspace.write("a/1.csv", "1\n");
    workspace.succeed(&words(&[]));
    workspace.write("a/1.csv", "many\n");
    // A job that starts from scratch writes into a folder of its own.
    files(&workspace.path("out")).iter().for_each(|file| fs::remove_file(file).expect("a file"));
    let strategy = [
        ["--set", "restart-strategy.type=fixed-delay"],
        ["--set", "restart-strategy.fixed-delay.attempts=1"],
        ["--set", "restart-strategy.fixed-delay.delay=10 ms"],
        ["--set", "execution.checkpointing.interval=0 s"],
    ];
    let messages = workspace.fail(1, &words(&strategy.concat()));
    assert_eq!(messages.matches("1.csv").count(), 2, "both runs read the file: {messages}");
}

/// A file system of a megabyte, while it lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None where this user may not mount one.
    fn mount(path: PathBuf) -> Option<SmallDisk> {
        fs::create_dir_all(&path).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&path);
        let output = mount.output().ok()?;
        output.status.success().then(|| SmallDisk(path))
    }

    fn fill(&self) {
        let mut ballast = fs::OpenOptions::new();
        let ballast = ballast.create(true).append(true).open(self.0.join("ballast"));
        // It ends with an error when nothing more fits.
        let _ = ballast.and_then(|mut ballast| ballast.write_all(&vec![0_u8; 2 << 20]));
    }

    /// Fills it again and again, for a while or until the job ends: a snapshot that was being
    /// taken may have removed an older one since, whose room the next one would find.
    fn stay_full(&self, running: &mut Running, duration: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < duration && running.ended().is_none() {
            self.fill();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).expect("the ballast is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_pauses_a_job_until_there_is_room_or_fails_it() {
    for on_failure in ["pause", "continue", "fail"] {
        let workspace = workspace(&format!("full-disk-{on_failure}"));
        let Some(disk) = SmallDisk::mount(workspace.path("state")) else {
            println!("SKIPPED: no file system can be mounted here");
            return;
        };
        let on = format!("execution.checkpointing.on-failure={on_failure}");
        let tolerated = "execution.checkpointing.tolerable-failed-checkpoints=0";
        let more = ["--set", &on, "--set", tolerated, "--set", "restart-strategy.type=none"];
        let mut running = begun(&workspace, SLOW, &more);
        if on_failure == "fail" {
            disk.stay_full(&mut running, PATIENCE);
            let (status, messages) = running.end();
            assert_eq!(status.code(), Some(1), "{messages}");
            disk.free();
            workspace.succeed(&words(&["--resume"]));
        } else {
            disk.stay_full(&mut running, Duration::from_millis(2_500));
            assert!(running.ended().is_none(), "{on_failure}: {}", running.messages());
            assert!(visible(&workspace).len() < expected().len(), "nothing is committed meanwhile");
            disk.free();
            let (status, messages) = running.end();
            assert!(status.success(), "{on_failure}: {status}: {messages}");
        }
        assert_eq!(visible(&workspace), expected(), "{on_failure}");
        assert!(!files(&workspace.path("out")).is_empty());
    }
}
