//! `thalweg snapshot`: what a job has kept is listed, shown, verified, deleted and asked for.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{EVENTS, EVENTS_TABLE, Workspace, assert_holds, interrupt, until, wait};

const COUNTS: &str = "CREATE TABLE counts (k STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'counts/');
INSERT INTO counts SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY k, window_start, window_end;
";

/// A folder in which the job `daily` has run to its end, and kept a snapshot.
fn after_a_job(test: &str) -> Workspace {
    let workspace = Workspace::new(test);
    workspace.write("events.csv", EVENTS);
    let sql = format!("SET 'execution.checkpointing.dir' = 'state';\n{EVENTS_TABLE}{COUNTS}");
    workspace.write("daily.sql", &sql);
    let run = workspace.run(&["run", "daily.sql"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    workspace
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn snapshots_are_listed_and_shown_for_people_and_for_programs() {
    let workspace = after_a_job("snapshot-list");
    let listed = workspace.run(&["snapshot", "ls", "--dir", "state"]).stdout;
    assert_holds(&listed, &["taken at (UTC)", "daily", "final", "kept, input ended"]);
    let lines = workspace.run(&["snapshot", "ls", "daily", "--dir", "state", "--format", "ndjson"]);
    let rows = lines.rows();
    assert!(!rows.is_empty());
    let newest = rows[rows.len() - 1];
    assert_holds(newest, &["\"job\":\"daily\"", "\"kind\":\"final\"", "\"bytes\":"]);

    let mut command = workspace.command(&["snapshot", "show", "daily"]);
    let shown = command.env("THALWEG_SNAPSHOT_DIR", "state").output().expect("starting thalweg");
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    assert_holds(&shown, &["of job 'daily' (final, input had ended)", "events", "source-", "end"]);
    assert_holds(&shown, &["counts", "sink-", "exactly once"]);
}

#[test]
fn what_is_damaged_is_found_with_its_path_and_deleted_only_by_hand() {
    let workspace = after_a_job("snapshot-verify");
    let sound = workspace.run(&["snapshot", "verify", "daily", "--dir", "state"]);
    assert_holds(&sound.rows().join("\n"), &["ok"]);
    let all = files(&workspace.folder.join("state/daily/snapshots"));
    let manifest = all.iter().rev().find(|path| path.ends_with("manifest.json")).expect("one");
    let text = fs::read_to_string(manifest).expect("a manifest");
    fs::write(manifest, text.replace("\"is_complete\": true", "\"is_complete\": false"))
        .expect("damage");
    let damaged = workspace.run(&["snapshot", "verify", "daily", "--dir", "state"]);
    assert_eq!(damaged.status, Some(1), "{}", damaged.stderr);
    assert_holds(&damaged.stdout, &["damaged", "manifest.json"]);
    let listed = workspace.run(&["snapshot", "ls", "--dir", "state"]);
    assert_holds(&listed.stdout, &["damaged: "]);

    let folder = manifest.parent().expect("of the snapshot");
    let number = folder.file_name().and_then(|name| name.to_str()).expect("a number");
    let number = number.trim_start_matches('0');
    let deleted = workspace.run(&["snapshot", "delete", "daily", number, "--dir", "state"]);
    assert_eq!((deleted.status, deleted.stderr.as_str()), (Some(0), ""));
    assert!(!manifest.exists());
}

#[test]
fn a_wrong_request_is_answered_with_what_there_is() {
    let workspace = after_a_job("snapshot-wrong");
    let no_place = workspace.run(&["snapshot", "ls"]);
    assert_holds(no_place.message(2), &["--dir DIR", "THALWEG_SNAPSHOT_DIR"]);
    let no_job = workspace.run(&["snapshot", "show", "dayly", "--dir", "state"]);
    assert_holds(no_job.message(2), &["job 'dayly' has no snapshots", "jobs there are daily"]);
    let no_number = workspace.run(&["snapshot", "show", "daily", "99", "--dir", "state"]);
    assert_holds(no_number.message(1), &["no snapshot 99"]);
    let no_folder = workspace.run(&["snapshot", "take", "dayly", "--dir", "state"]);
    assert_holds(no_folder.message(2), &["does it run"]);
    let no_run =
        workspace.run(&["snapshot", "take", "daily", "--dir", "state", "--timeout", "0.2"]);
    assert_holds(no_run.message(1), &["no job answers", "is it running?"]);
}

#[test]
fn a_running_job_is_asked_for_a_snapshot() {
    let workspace = Workspace::new("snapshot-take");
    let sql = "SET 'execution.checkpointing.dir' = 'state';
SET 'execution.checkpointing.interval' = '0 s';
CREATE TABLE endless (n BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'seed' = '1');
CREATE TABLE numbers (n BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'numbers/');
INSERT INTO numbers SELECT n FROM endless;";
    workspace.write("flow.sql", sql);
    let mut child = workspace.command(&["run", "flow.sql"]).spawn().expect("starting thalweg");
    until("the job holds its folder", || workspace.has("state/flow/lock"));
    let taken = workspace.run(&["snapshot", "take", "flow", "--dir", "state", "--timeout", "50"]);
    assert_eq!(taken.rows(), ["1"]);
    let listed = workspace.run(&["snapshot", "ls", "flow", "--dir", "state"]);
    assert_holds(&listed.stdout, &["manual"]);
    interrupt(&child);
    assert_eq!(wait(&mut child).code(), Some(130));
}

/// What is new behind an input that has ended waited for it for ever.
#[test]
fn an_upgrade_is_described_before_it_is_done() {
    let workspace = after_a_job("snapshot-upgrade");
    let sql = workspace.read("daily.sql");
    let upgrade = |name: &str, new: &str| {
        workspace.write(name, &format!("SET 'pipeline.name' = 'daily';\n{new}"));
        workspace.run(&["upgrade", "--dry-run", "daily", name])
    };
    let same = upgrade("same.sql", &sql);
    assert_eq!(same.status, Some(0), "{}", same.stderr);
    assert_holds(&same.stdout, &["kept", "to resume: thalweg run --resume same.sql"]);
    assert!(!same.stdout.contains("begins empty"), "{}", same.stdout);
    let other_order = upgrade("ordered.sql", &format!("SET 'pipeline.order' = 'arrival';\n{sql}"));
    assert_eq!(other_order.status, Some(1));
    assert_holds(
        &other_order.stdout,
        &["it cannot resume: the snapshot was taken under 'pipeline.order' = 'epoch'"],
    );

    let changed = upgrade("changed.sql", &sql.replace("COUNT(*)", "SUM(n)"));
    assert_eq!(changed.status, Some(1), "{}", changed.stderr);
    assert_holds(&changed.stdout, &["begins empty", "an input of window events (window-"]);
    let resumed = workspace.run(&["run", "--resume", "changed.sql"]);
    assert_holds(resumed.message(2), &["window events", "start from scratch"]);

    workspace.write("old.sql", &sql);
    let of_files = workspace.run(&["upgrade", "--dry-run", "old.sql", "changed.sql"]);
    assert_eq!(of_files.status, Some(1), "{}", of_files.stderr);
    assert_holds(&of_files.stdout, &["removed", "--drop-state changed.sql"]);
}
