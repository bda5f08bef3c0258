//! The commands for a Flink cluster against a real one (`tests/services/flink`).
//!
//! It is not fetched by a plain `cargo test`: `make connect-test` runs what is ignored here. One
//! cluster serves all tests of a run, for it takes minutes of a busy machine to start.
#![cfg(feature = "flink")]

#[cfg(feature = "kafka")]
#[allow(dead_code, reason = "each test program uses some of it")]
#[path = "../connect_kafka/broker.rs"]
mod broker;
mod clients;
#[cfg(feature = "kafka")]
mod moves;
#[path = "../connect_kafka/services.rs"]
mod services;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use services::{Service, text};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("thalweg-flink-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn thalweg(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(arguments).output().expect("it runs")
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = thalweg(arguments);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[track_caller]
fn fails(arguments: &[&str]) -> String {
    let output = thalweg(arguments);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "{arguments:?}: {said}");
    said
}

/// The rows of the files of a folder that are visible, sorted.
fn rows(folder: &Path) -> Vec<String> {
    let mut rows = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !file.file_name().to_string_lossy().starts_with(['.', '_']) {
            let text = std::fs::read_to_string(file.path()).expect("text");
            rows.extend(text.lines().map(str::to_owned));
        }
    }
    rows.sort();
    rows
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(240), "waiting for {what}");
        sleep(Duration::from_millis(500));
    }
}

/// The cluster that tests share while they run, and whose turn it is: one of them kills parts of
/// it.
struct Cluster {
    service: Service,
    turn: Mutex<()>,
}

impl Cluster {
    fn shared() -> Option<Arc<Cluster>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Some(cluster);
        }
        let settings = [("FLINK_TASK_MANAGERS", "2"), ("FLINK_SLOTS", "2"), ("FLINK_HA", "1")];
        let service = Service::start_with("flink", &settings)?;
        let cluster = Arc::new(Cluster { service, turn: Mutex::new(()) });
        *shared = Arc::downgrade(&cluster);
        Some(cluster)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[test]
#[ignore = "needs a Flink cluster: make connect-test"]
fn a_file_of_ours_runs_on_flink_and_jobs_are_steered() {
    let Some(cluster) = Cluster::shared() else { return };
    let (_turn, url) = (cluster.turn(), cluster.service.value("FLINK"));
    a_bounded_file_runs_to_its_end(url);
    a_refusal_points_at_the_statement(url);
    a_job_is_refused_replaced_stopped_and_cancelled(url);
}

/// Short window form, reserved words, relative paths: all translated.
fn a_bounded_file_runs_to_its_end(url: &str) {
    let folder = Folder::new("bounded");
    folder.write(
        "in.csv",
        "2026-01-01 00:00:01,a,1\n2026-01-01 00:00:02,b,2\n2026-01-01 00:00:11,a,4\n",
    );
    let file = folder.write(
        "sums.sql",
        "CREATE TABLE i (at TIMESTAMP(3), name STRING, value INT, WATERMARK FOR at AS at)
           WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');
         CREATE TABLE o (start TIMESTAMP(3), total INT)
           WITH ('connector' = 'filesystem', 'path' = 'out/', 'format' = 'csv');
         INSERT INTO o SELECT window_start, SUM(value) FROM TUMBLE(i, at, INTERVAL '10' SECOND)
           WHERE value != 3 GROUP BY window_start, window_end;",
    );
    let said = succeeds(&["submit", "--flink", url, file.to_str().expect("text")]);
    assert!(said.contains("sums: FINISHED"), "{said}");
    let expected = ["\"2026-01-01 00:00:00\",3", "\"2026-01-01 00:00:10\",4"];
    assert_eq!(rows(&folder.0.join("out")), expected);
}

fn a_refusal_points_at_the_statement(url: &str) {
    let folder = Folder::new("refused");
    let file = folder.write(
        "refused.sql",
        "CREATE TABLE i (k INT) WITH ('connector' = 'datagen');\nCREATE TABLE o (k INT) WITH ('connector' = 'print');\n\
         INSERT INTO o\n  SELECT k FROM i;\n",
    );
    let file = file.to_str().expect("text");
    // The check does not know this setting; Flink refuses its value.
    let set = "execution.checkpointing.mode=SOMETIMES";
    let said = fails(&["submit", "--flink", url, "--detach", "--set", set, file]);
    assert!(said.contains("SOMETIMES") || said.contains("EXACTLY_ONCE"), "{said}");
    let refused = folder.write("own.sql", "CREATE TABLE i (k INT) WITH ('connector' = 'nexmark');");
    let said = fails(&["submit", "--flink", url, refused.to_str().expect("text")]);
    assert!(!said.contains("job"), "{said}");
}

fn a_job_is_refused_replaced_stopped_and_cancelled(url: &str) {
    let folder = Folder::new("steered");
    let file = folder.write(
        "endless.sql",
        "CREATE TABLE i (k INT) WITH ('connector' = 'datagen', 'rows-per-second' = '5');
         CREATE TABLE o (k INT, n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO o SELECT k, COUNT(*) FROM i GROUP BY k;",
    );
    let file = file.to_str().expect("text");
    succeeds(&["submit", "--flink", url, "--detach", "--checkpoint-interval", "1s", file]);
    let status = || succeeds(&["status", "--flink", url, "endless"]);
    wait_for("a checkpoint", || {
        let said = status();
        said.contains("RUNNING") && !said.contains("checkpoints: 0 complete")
    });
    let said = fails(&["submit", "--flink", url, "--detach", file]);
    assert!(said.contains("runs already") && said.contains("--replace"), "{said}");
    let said = succeeds(&["submit", "--flink", url, "--detach", "--replace", file]);
    assert!(said.contains("savepoint file:"), "{said}");
    wait_for("the state of the one before", || status().contains("1 restored"));
    let said = succeeds(&["stop", "--flink", url, "--savepoint", "endless"]);
    assert!(said.contains("savepoint file:"), "{said}");
    succeeds(&["submit", "--flink", url, "--detach", file]);
    succeeds(&["cancel", "--flink", url, "endless"]);
    assert!(status().contains("CANCELED"));
    assert!(fails(&["stop", "--flink", url, "endless"]).contains("CANCELED already"));
    assert!(succeeds(&["status", "--flink", url]).contains("task managers"));
}

/// A source that numbers its rows, a sink that commits with checkpoints: each number is there once,
/// whatever is killed, and who follows reads of it.
#[test]
#[ignore = "needs a Flink cluster: make connect-test"]
fn a_killed_task_manager_and_job_manager_cost_no_row() {
    let Some(cluster) = Cluster::shared() else { return };
    let (_turn, flink) = (cluster.turn(), &cluster.service);
    let folder = Folder::new("killed");
    let file = folder.write(
        "copy.sql",
        "SET 'execution.checkpointing.interval' = '1 s';
         SET 'restart-strategy.type' = 'fixed-delay';
         SET 'restart-strategy.fixed-delay.attempts' = '30';
         SET 'restart-strategy.fixed-delay.delay' = '1 s';
         CREATE TABLE i (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '400',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '40000');
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out/', 'format' = 'csv');
         INSERT INTO o SELECT n FROM i;",
    );
    let mut following = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["submit", "--flink", flink.value("FLINK"), file.to_str().expect("text")])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let out = folder.0.join("out");
    wait_for("rows", || rows(&out).len() > 1_000);
    crash(flink, "taskmanager1");
    let before = rows(&out).len();
    wait_for("rows of a job that has recovered", || rows(&out).len() > before + 2_000);
    crash(flink, "jobmanager");
    flink.start_again();
    wait_for("the end", || following.try_wait().expect("it runs").is_some());
    let output = following.wait_with_output().expect("it has ended");
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("copy: FINISHED"), "{said}");
    let mut numbers: Vec<u64> =
        rows(&out).iter().map(|row| row.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=40_000).collect::<Vec<u64>>(), "{said}");
    assert!(said.contains("copy: failed at") && said.contains("asking again"), "{said}");
}

fn crash(flink: &Service, process: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/flink");
    let killed = Command::new(script).arg("crash").arg(&flink.dir).arg(process).status();
    assert!(killed.expect("it runs").success());
}
