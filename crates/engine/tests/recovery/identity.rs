//! Everything that decides what state means is part of its identity: a resume under other options
//! is refused before a byte is changed, and `thalweg upgrade --dry-run` says so before.

use std::process::Command;

use super::jobs::{Workspace, contents, words};

/// The status of `upgrade --dry-run` and what it says.
fn upgrade(workspace: &Workspace, settings: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["upgrade", "--dry-run", "--dir", "state", "job", "job.sql"]).args(settings);
    let output = command.current_dir(&workspace.folder).output().expect("thalweg runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Runs a job that is stopped in its middle.
fn stopped(test: &str, job: &str, settings: &[&str]) -> Workspace {
    let workspace = Workspace::new(&format!("identity-{test}"));
    workspace.write("job.sql", job);
    let mut running = workspace.start(&words(settings));
    super::jobs::until("a snapshot is kept", || {
        if let Some(status) = running.ended() {
            panic!("it has ended: {status}: {}", running.messages());
        }
        !workspace.snapshots().is_empty()
    });
    running.signal("TERM");
    let (status, messages) = running.end();
    assert_eq!(status.code(), Some(130), "{messages}");
    workspace
}

/// A resume of what `job.sql` is now is refused with these words, and so is an upgrade; nothing is
/// changed.
fn refused(workspace: &Workspace, settings: &[&str], expected: &[&str]) {
    let before = contents(&workspace.folder);
    let (status, said) = upgrade(workspace, settings);
    assert_eq!(status, Some(1), "{said}");
    assert!(expected.iter().all(|word| said.contains(word)), "{expected:?} in {said}");
    for more in [&["--resume"][..], &["--resume", "--drop-state"]] {
        let messages = workspace.fail(2, &words(&[settings, more].concat()));
        assert!(expected.iter().all(|word| messages.contains(word)), "{expected:?} in {messages}");
        assert!(before == contents(&workspace.folder), "a refusal changes no byte: {messages}");
    }
}

/// A job over numbers that come for a long time. `WITH` options of its source and its sink, and its
/// query.
fn job(source: &str, sink: &str, query: &str) -> String {
    format!(
        "CREATE TABLE numbers (n BIGINT, m BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 1000000, 3), WATERMARK FOR ts AS ts) WITH (
           'connector' = 'datagen', 'rows-per-second' = '100',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000', {source});
         CREATE TABLE result ({sink});
         INSERT INTO result {query};"
    )
}

const SEED: &str = "'seed' = '1', 'fields.m.max' = '10'";
const FOLDER: &str = "a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'op'";
const FILE: &str =
    "a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv'";
const GROUPS: &str = "SELECT m, COUNT(*) FROM numbers GROUP BY m";
const ROWS: &str = "SELECT n, m FROM numbers";

/// Windows of days of one zone are none of another: windows of 40 and 50 rows came where one of 60
/// belonged.
#[test]
fn another_time_zone_is_refused() {
    let query = "SELECT COUNT(*), SUM(n) FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' DAY))
                 GROUP BY window_start, window_end";
    let workspace =
        stopped("zone", &job(SEED, &FOLDER.replace(", 'changelog' = 'op'", ""), query), &[]);
    let zone = ["--set", "table.local-time-zone=Europe/Berlin"];
    refused(&workspace, &zone, &["table.local-time-zone", "UTC", "Europe/Berlin"]);
}

/// State that expires has another layout than state that does not: it was called damaged.
#[test]
fn state_that_is_to_expire_is_refused_where_it_was_kept_for_ever() {
    let workspace = stopped("ttl", &job(SEED, FOLDER, GROUPS), &[]);
    let ttl = ["--set", "table.exec.state.ttl=1 h"];
    refused(&workspace, &ttl, &["table.exec.state.ttl", "for ever"]);
}

/// A generated table with another seed or other bounds is another table.
#[test]
fn a_generated_table_with_other_values_is_refused() {
    let workspace = stopped("seed", &job(SEED, FOLDER, GROUPS), &[]);
    for source in [SEED.replace("'1'", "'2'"), SEED.replace("'10'", "'20'")] {
        workspace.write("job.sql", &job(&source, FOLDER, GROUPS));
        refused(&workspace, &[], &["numbers", "was kept under"]);
    }
    // At another rate the rows are the same, unless their times follow from it.
    let plain = "'fields.m.max' = '10'";
    let workspace = stopped("rate", &job(plain, FOLDER, GROUPS), &[]);
    let faster = job(plain, FOLDER, GROUPS).replace("'100'", "'200'");
    workspace.write("job.sql", &faster);
    let (status, said) = upgrade(&workspace, &[]);
    assert_eq!(status, Some(0), "{said}");
}

/// A file that is half written continues in the way in which it was begun.
#[test]
fn a_half_written_file_of_another_form_is_refused() {
    let workspace = stopped("file", &job(SEED, FILE, ROWS), &[]);
    let (delimiter, column) = (
        FILE.replace("'out.csv'", "'out.csv', 'csv.field-delimiter' = ';'"),
        FILE.replace("b BIGINT)", "b BIGINT, c BIGINT)"),
    );
    workspace.write("job.sql", &job(SEED, &delimiter, ROWS));
    refused(&workspace, &[], &["csv.field-delimiter", "','", "';'"]);
    workspace.write("job.sql", &job(SEED, &column, "SELECT n, m, n FROM numbers"));
    refused(&workspace, &[], &["columns", "c BIGINT"]);
    let json = FILE.replace("'csv'", "'json'");
    workspace.write("job.sql", &job(SEED, &json, ROWS));
    refused(&workspace, &[], &["csv"]);
    workspace.write("job.sql", &job(SEED, FILE, ROWS));
    let (status, said) = upgrade(&workspace, &[]);
    assert_eq!(status, Some(0), "{said}");
}

/// Rows that a snapshot promises are committed by whoever resumes, so a run has to.
#[test]
fn a_sink_without_transactions_is_refused_where_it_had_some() {
    let workspace = stopped("guarantee", &job(SEED, FOLDER, GROUPS), &[]);
    let none = FOLDER.replace("'out/'", "'out/', 'sink.delivery-guarantee' = 'none'");
    workspace.write("job.sql", &job(SEED, &none, GROUPS));
    refused(&workspace, &[], &["sink.delivery-guarantee", "none"]);
}

/// A source under another name would be read from its beginning, and the output get its rows twice;
/// to drop the position of the old one is no answer.
#[test]
fn a_source_that_was_renamed_is_refused_where_its_output_stays() {
    let workspace = stopped("renamed", &job(SEED, FOLDER, GROUPS), &[]);
    workspace.write("job.sql", &job(SEED, FOLDER, GROUPS).replace("numbers", "figures"));
    let before = contents(&workspace.folder);
    let (status, said) = upgrade(&workspace, &[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("read from its beginning"), "{said}");
    let messages = workspace.fail(2, &words(&["--resume", "--drop-state"]));
    assert!(messages.contains("read from its beginning"), "{messages}");
    assert!(before == contents(&workspace.folder), "a refusal changes no byte: {messages}");
}

/// What is wrong with an output or an input is found by the same start that finds it later: a dry
/// run said "kept" where the resume was refused.
#[test]
fn an_output_that_is_not_of_the_snapshot_is_refused_before_the_upgrade() {
    let workspace = stopped("output", &job(SEED, FILE, ROWS), &[]);
    let (status, said) = upgrade(&workspace, &[]);
    assert_eq!(status, Some(0), "{said}");
    std::fs::remove_file(workspace.folder.join("out.csv.partial")).expect("it is half written");
    let before = contents(&workspace.folder);
    let (status, said) = upgrade(&workspace, &[]);
    assert_eq!(status, Some(1), "{said}");
    let messages = workspace.fail(1, &words(&["--resume"]));
    for found in [&said, &messages] {
        assert!(found.contains("out.csv.partial") && found.contains("is not there"), "{found}");
    }
    assert!(before == contents(&workspace.folder), "a refusal changes no byte: {messages}");
}

/// A running job holds its outputs: its newest snapshot is compared, nothing else, and the job does
/// not notice.
#[test]
fn the_upgrade_of_a_running_job_says_what_was_not_checked() {
    let workspace = Workspace::new("identity-running");
    workspace.write("job.sql", &job(SEED, FILE, ROWS));
    let mut running = workspace.start(&words(&[]));
    super::jobs::until("a snapshot is kept", || {
        assert!(running.ended().is_none(), "it has ended: {}", running.messages());
        !workspace.snapshots().is_empty()
    });
    let (status, said) = upgrade(&workspace, &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("not checked: inputs and outputs") && said.contains("process"), "{said}");
    assert!(running.ended().is_none(), "it runs on: {}", running.messages());
    running.signal("TERM");
    let (status, messages) = running.end();
    assert_eq!(status.code(), Some(130), "{messages}");
}

/// A run without snapshots replaced the output of a job, removed its mark and was killed. A resume
/// with `--overwrite` took the output without a mark for its own, and rows were missing from it.
#[test]
fn an_output_that_a_run_without_snapshots_replaced_is_not_resumed() {
    for (test, sink, query) in [("folder", FOLDER, GROUPS), ("file", FILE, ROWS)] {
        let workspace = stopped(&format!("replaced-{test}"), &job(SEED, sink, query), &[]);
        let mut plain = workspace.start(&["--quiet", "--overwrite", "job.sql"]);
        let is_released = |mark: &[u8]| mark.starts_with(br#"{"lineage":"""#);
        super::jobs::until("the output is replaced", || {
            assert!(plain.ended().is_none(), "it has ended: {}", plain.messages());
            // The run removes files while they are looked at.
            let mark = super::jobs::lineage(&workspace.folder);
            mark.and_then(|mark| std::fs::read(mark).ok()).is_some_and(|bytes| is_released(&bytes))
        });
        plain.signal("KILL");
        plain.end();
        for more in [&["--resume"][..], &["--resume", "--overwrite"]] {
            // The file may be shorter than what the snapshot has written of it: that is seen first.
            let (status, messages) = workspace.start(&words(more)).end();
            let is_seen = ["of another start, or of another job", "the snapshot has written"];
            let is_refused = is_seen.iter().any(|part| messages.contains(part));
            assert!(!status.success() && is_refused, "{test}: {status}: {messages}");
        }
        let (status, said) = upgrade(&workspace, &[]);
        assert!(status == Some(1) && said.contains("it cannot resume"), "{said}");
    }
}
