//! Outputs of a run and those of another one, its inputs, its dead letters: nothing takes the place of anything else.

use std::process::Child;

use crate::support::{Workspace, assert_holds, until, wait};

const NUMBERS: &str = "CREATE TABLE numbers (n BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = 'unlimited', 'number-of-rows' = '3', 'fields.n.kind' = 'sequence',
      'fields.n.start' = '1', 'fields.n.end' = '3');
CREATE TABLE slow (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100', 'seed' = '1');
";

/// A table of one column over files.
fn table(name: &str, path: &str) -> String {
    format!(
        "CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}');\n"
    )
}

/// A process that writes `slow` to a table until it is killed.
fn writer(workspace: &Workspace, name: &str, path: &str, arguments: &[&str]) -> Child {
    let sql = format!("{NUMBERS}{}INSERT INTO {name} SELECT n FROM slow;", table(name, path));
    let mut all = vec!["run", "-e", &sql];
    all.extend(arguments);
    workspace.command(&all).spawn().expect("starting thalweg")
}

fn kill(child: &mut Child) {
    child.kill().expect("running");
    wait(child);
}

/// Two processes wrote one file: the first ended with status 0, and its rows were gone.
#[test]
fn an_output_is_written_by_one_process() {
    let workspace = Workspace::new("outputs-lock");
    for (path, begun, inner) in [
        ("out.csv", "out.csv.partial", "out.csv"),
        ("folder/", "folder/part-0.csv.partial", "folder/sub/other.csv"),
    ] {
        let mut first = writer(&workspace, "t", path, &[]);
        until("the first one writes", || workspace.has(begun));
        for path in [path, inner] {
            let sql = format!(
                "{NUMBERS}{}{}EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT n FROM numbers; \
                 INSERT INTO t SELECT n FROM numbers; END;",
                table("a", "earlier/a.csv"),
                table("t", path)
            );
            let second = workspace.execute(&sql);
            let process = format!("being written by process {}", first.id());
            assert_holds(second.message(1), &["table t", &process, "wait until"]);
            assert!(!workspace.has("earlier"), "the other output was not begun");
        }
        kill(&mut first);
        // Whoever was killed is in nobody's way.
        let again = workspace
            .execute(&format!("{NUMBERS}{}INSERT INTO t SELECT n FROM numbers;", table("t", path)));
        assert_eq!((again.status, again.stderr.as_str()), (Some(0), ""));
        let folder = workspace.folder.join(path);
        let folder = if folder.is_dir() { folder } else { workspace.folder.clone() };
        let locks = std::fs::read_dir(folder).expect("a folder").flatten();
        let locks = locks.filter(|entry| entry.file_name().to_string_lossy().contains("lock"));
        assert_eq!(locks.count(), 0, "no lock is left");
    }
    assert_eq!(workspace.read("out.csv"), "1\n2\n3\n");
    assert_eq!(workspace.read("folder/part-0.csv"), "1\n2\n3\n");
}

/// The same for parts that are written in transactions, under another job's name.
#[test]
fn a_folder_in_a_job_with_snapshots_is_written_by_one_process() {
    let workspace = Workspace::new("outputs-lock-parts");
    let snapshots = ["--set", "execution.checkpointing.dir=state"];
    let first_name = ["--set", "pipeline.name=first"];
    let mut first = writer(&workspace, "t", "out/", &[snapshots, first_name].concat());
    until("the first one writes", || {
        let parts = std::fs::read_dir(workspace.folder.join("out")).into_iter().flatten().flatten();
        parts.filter(|entry| entry.file_name().to_string_lossy().starts_with(".part-")).count() > 0
    });
    let sql = format!("{NUMBERS}{}INSERT INTO t SELECT n FROM numbers;", table("t", "out/"));
    let mut arguments = vec!["run", "-e", &sql, "--set", "pipeline.name=second"];
    arguments.extend(snapshots);
    let second = workspace.run(&arguments);
    let process = format!("being written by process {}", first.id());
    assert_holds(second.message(1), &["table t", &process]);
    assert!(first.try_wait().expect("asking").is_none(), "the first one is not disturbed");
    crate::support::interrupt(&first);
    assert_eq!(wait(&mut first).code(), Some(130), "it could take its last snapshot");
}

#[test]
fn a_recording_is_written_by_one_process_and_replaces_only_recordings() {
    let workspace = Workspace::new("outputs-record");
    let order = ["--set", "pipeline.order=arrival", "--record", "steps.txt"];
    let mut first = writer(&workspace, "t", "out.csv", &order);
    until("the first one writes", || workspace.has("out.csv.partial"));
    let sql = format!("{NUMBERS}{}INSERT INTO t SELECT n FROM numbers;", table("t", "other.csv"));
    let mut arguments = vec!["run", "-e", &sql];
    arguments.extend(order);
    let second = workspace.run(&arguments);
    let process = format!("being written by process {}", first.id());
    assert_holds(second.message(1), &["--record", &process]);
    assert!(!workspace.has("other.csv"));
    kill(&mut first);
    assert_eq!(workspace.run(&arguments).status, Some(0));
    let recorded = workspace.read("steps.txt");
    assert!(recorded.ends_with("done\n"), "{recorded}");
    workspace.write("steps.txt", "1\n2\n");
    let refused = workspace.run(&arguments);
    assert_holds(refused.message(2), &["steps.txt is there, and is no recording", "another file"]);
    assert_eq!(workspace.read("steps.txt"), "1\n2\n");
}
