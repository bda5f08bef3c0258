//! Inputs as a user meets them: which rows are bad, who reads standard input, files that changed
//! before a resume.

use std::io::Write;
use std::process::Stdio;

use super::support::{Workspace, assert_holds, interrupt, until, wait};

const BAD: &str = "CREATE TABLE t (a STRING, b INT, c DECIMAL(4, 2)) WITH (
  'connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv', 'bad-data' = 'drop'
);
";

/// `COUNT(b)` was 3 where `COUNT(*)` was 2: a row was bad only by the columns that were read.
#[test]
fn every_query_over_a_table_leaves_out_the_same_rows() {
    let workspace = Workspace::new("inputs-bad");
    workspace.write("in.csv", "x,1,1.5\ny,no,1.5\nz,3,100\nw,4,2\n\n");
    for (select, expected) in
        [("COUNT(*)", "2"), ("COUNT(a)", "2"), ("COUNT(b)", "2"), ("SUM(c)", "3.50")]
    {
        let sql =
            format!("{BAD}SET 'execution.runtime-mode' = 'batch'; SELECT {select} AS n FROM t;");
        let run = workspace.execute(&sql);
        assert_eq!((run.status, run.stdout), (Some(0), format!("n\n{expected}\n")), "{select}");
    }
    workspace.write("job.sql", &format!("{BAD}SELECT COUNT(b) AS n FROM t;"));
    let explained = workspace.run(&["explain", "job.sql"]);
    assert_holds(
        &explained.stdout,
        &["reads: b", "checks as well, for bad rows: c", "'bad-data.check'"],
    );
    let read_only = BAD.replace("'drop'", "'drop', 'bad-data.check' = 'read'");
    workspace.write("job.sql", &format!("{read_only}SELECT COUNT(b) AS n FROM t;"));
    assert!(!workspace.run(&["explain", "job.sql"]).stdout.contains("checks as well"));
}

/// The second job found an empty input, and ended with status 0.
#[test]
fn standard_input_is_read_once() {
    let workspace = Workspace::new("inputs-stdin");
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '-');\n"
        )
    };
    let two_jobs = format!("{}SELECT n FROM a; SELECT n FROM a;", table("a"));
    let two_tables =
        format!("{}{}SELECT n FROM a UNION ALL SELECT n FROM b;", table("a"), table("b"));
    // The side that is read first is read for itself, and found all rows; the other found none.
    let two_sides = format!(
        "{}SELECT /*+ BROADCAST(y) */ x.n FROM a AS x JOIN a AS y ON x.n = y.n;",
        table("a")
    );
    let is_read = "table a is standard input";
    for (sql, part) in
        [(&two_jobs, is_read), (&two_tables, "tables a and b"), (&two_sides, is_read)]
    {
        workspace.write("job.sql", sql);
        for command in ["validate", "run"] {
            let run = workspace.run(&[command, "job.sql"]);
            assert_holds(run.message(2), &[part, "read once"]);
            assert!(run.stdout.is_empty(), "{}", run.stdout);
        }
    }
    let set = "SET 'execution.runtime-mode' = 'batch';";
    workspace.write("job.sql", &format!("{}{set}SELECT SUM(n) AS total FROM a;", table("a")));
    let mut child =
        workspace.command(&["run", "job.sql"]).stdin(Stdio::piped()).spawn().expect("started");
    child.stdin.take().expect("piped").write_all(b"1\n2\n\n").expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "total\n3\n");
}

/// The table found an empty input, since the statements had come from there, and the status was 0.
#[test]
fn a_table_cannot_read_standard_input_after_the_statements() {
    let workspace = Workspace::new("inputs-stdin-statements");
    let sql =
        "CREATE TABLE a (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '-');
               SELECT n FROM a;";
    for command in ["run", "validate", "explain"] {
        let mut child =
            workspace.command(&[command, "-"]).stdin(Stdio::piped()).spawn().expect("started");
        child.stdin.take().expect("piped").write_all(sql.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_holds(&message, &["table a is standard input", "the statements were read", "-e"]);
    }
}

/// The rows of the folder that the job writes, sorted.
fn written(workspace: &Workspace) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(workspace.folder.join("out")) else { return Vec::new() };
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let texts = names
        .filter(|name| !name.starts_with('.'))
        .map(|name| workspace.read(&format!("out/{name}")));
    let mut rows: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    rows.sort();
    rows
}

/// A log that is followed, rotated while the job is down, and cut: the rows were skipped by their
/// number.
#[test]
fn a_resume_reads_rotated_logs_and_refuses_those_that_were_cut() {
    let workspace = Workspace::new("inputs-resume");
    let lines = |from: usize, to: usize| {
        (from..to).map(|n| format!("row {n:04},{n}\n")).collect::<String>()
    };
    let sql = "SET 'execution.checkpointing.dir' = 'state';
      SET 'execution.checkpointing.interval' = '50 ms';
      CREATE TABLE log (s STRING, n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in/app.log',
        'source.monitor-interval' = '10 ms');
      CREATE TABLE o (s STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
      INSERT INTO o SELECT s FROM log;";
    workspace.write("job.sql", sql);
    workspace.write("in/app.log", &lines(0, 100));
    let run_until = |rows: usize| {
        let mut child =
            workspace.command(&["run", "--resume", "job.sql"]).spawn().expect("started");
        until("the rows are there", || written(&workspace).len() >= rows);
        interrupt(&child);
        assert_eq!(wait(&mut child).code(), Some(130));
        let expected: Vec<String> = (0..rows).map(|n| format!("row {n:04}")).collect();
        assert_eq!(written(&workspace), expected);
    };
    run_until(100);
    workspace.write("in/app.log.1", "");
    let (log, old) = (workspace.folder.join("in/app.log"), workspace.folder.join("in/app.log.1"));
    workspace.write("in/app.log", &lines(0, 105));
    std::fs::rename(&log, &old).expect("renamed");
    workspace.write("in/app.log", &lines(105, 110));
    run_until(110);
    workspace.write("in/app.log", &lines(105, 108));
    let refused = workspace.run(&["run", "--resume", "job.sql"]);
    assert_holds(refused.message(1), &["in/app.log", "shorter", "put the file back"]);
    assert_eq!(written(&workspace).len(), 110);
    workspace.write("in/app.log", &lines(105, 111));
    run_until(111);
}
