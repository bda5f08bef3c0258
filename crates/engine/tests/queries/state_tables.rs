//! What a job has kept, read by SQL: `snapshot('PLACE', 'OPERATOR' [, 'TABLE'] [, NUMBER])`; and
//! tables that no job with snapshots can resume.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use thalweg::session::{Session, SessionOptions};
use thalweg::{Error, ErrorKind};

use super::workspace;

/// Sums of ten numbers by their rest.
const JOB: &str = "
    SET 'execution.checkpointing.dir' = 'state';
    SET 'pipeline.name' = 'sums';
    CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen',
      'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '10');
    CREATE TABLE sums (rest INT, total BIGINT, rows_in BIGINT)
      WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'sums/', 'changelog' = 'op');
    INSERT INTO sums SELECT n % 3, SUM(CAST(n AS BIGINT)), COUNT(*) FROM numbers GROUP BY n % 3;";

/// The same under another name.
const AGAIN: &str = "SET 'pipeline.name' = 'again';
    CREATE TABLE nowhere (rest INT, rows_in BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO nowhere SELECT n % 3, COUNT(*) FROM numbers GROUP BY n % 3;";

fn folder(test: &str) -> PathBuf {
    workspace::folder(&format!("state-tables-{test}"))
}

fn session(folder: &Path) -> Session {
    let options = SessionOptions { workers: Some(2), ..workspace::options(folder) };
    Session::new(options).expect("valid options")
}

/// A session in a folder in which the job has run.
fn after_a_job(test: &str) -> Session {
    let mut session = session(&folder(test));
    session.execute(JOB).expect("the job runs");
    session
}

/// (rest, total, rows) as the state has them, by the rest.
fn sums(batches: &[RecordBatch]) -> Vec<(i32, i64, i64)> {
    let rows = batches.iter().flat_map(|batch| {
        let rests = batch.column(0).as_primitive::<Int32Type>();
        let numbers = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        (0..batch.num_rows())
            .map(move |row| (rests.value(row), numbers(1).value(row), numbers(2).value(row)))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    rows
}

fn refused(session: &mut Session, sql: &str) -> Error {
    let error = session.execute(sql).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Plan, "{error}");
    assert!(error.span().is_some() && error.help().is_some(), "{error}");
    error
}

fn said(error: &Error) -> String {
    format!("{error} / {}", error.help().unwrap_or_default())
}

#[test]
fn the_state_of_a_job_is_a_table() {
    let mut session = after_a_job("whole");
    let schema = session.result_schema("SELECT * FROM snapshot('state', 'group numbers')");
    let columns = schema.expect("it is bound").columns;
    let columns: Vec<String> =
        columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    let expected = [
        "$partition SMALLINT",
        "key$0 INT",
        "$rows BIGINT",
        "sum$0.sum BIGINT",
        "sum$0.count BIGINT",
        "count$1 BIGINT",
    ];
    assert_eq!(columns, expected);
    for place in ["sums", "state", "state/sums", "state/sums/snapshots/0000000001"] {
        let sql = format!(
            "SELECT `key$0`, `sum$0.sum`, `count$1` FROM snapshot('{place}', 'group numbers') AS s WHERE s.`$partition` >= 0"
        );
        let found = sums(&session.execute(&sql).expect("it runs"));
        assert_eq!(found, [(0, 18, 3), (1, 22, 4), (2, 15, 3)], "{place}");
    }
}

#[test]
fn a_job_with_snapshots_of_its_own_reads_those_of_others() {
    let mut session = after_a_job("copied");
    let copied = session.execute(
        "SET 'pipeline.name' = 'copy'; SET 'table.dml-sync' = 'true';
         CREATE TABLE copied (rest INT, total BIGINT)
           WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'copied/');
         INSERT INTO copied
           SELECT s.`key$0`, s.`sum$0.sum` + o.`sum$0.sum`
           FROM snapshot('sums', 'group numbers', 'groups', 1) AS s
           JOIN snapshot('state', 'group numbers') AS o ON o.`key$0` = s.`key$0`;
         SELECT rest, total, total FROM copied;",
    );
    let found = sums(&copied.expect("it runs"));
    assert_eq!(found, [(0, 36, 36), (1, 44, 44), (2, 30, 30)]);
}

#[test]
fn what_is_not_there_is_reported_with_what_there_is() {
    let mut session = after_a_job("missing");
    for (call, what, there) in [
        ("'other', 'group numbers'", "no snapshots in 'other'", "'sums'"),
        ("'sums', 'window'", "no operator 'window'", "group numbers"),
        ("'sums', 'group numbers', 'rows'", "no table 'rows'", "'groups'"),
        ("'sums', 'group numbers', 77", "no snapshot 77", "there are 1"),
        ("'sums'", "an operator", "write snapshot("),
        ("'sums', 'group numbers', -1", "literals", "write snapshot("),
        ("'/etc', 'group numbers'", "outside", ""),
    ] {
        let error = refused(&mut session, &format!("SELECT * FROM snapshot({call})"));
        let said = said(&error);
        assert!(said.contains(what) && said.contains(there), "{call}: {said}");
        assert_eq!(error.span().map(|span| span.line), Some(1), "{call}");
    }
}

#[test]
fn several_jobs_in_a_folder_are_named() {
    let mut session = after_a_job("several");
    session.execute(AGAIN).expect("it runs too");
    let error = refused(&mut session, "SELECT * FROM snapshot('state/', 'group numbers')");
    assert!(said(&error).contains("'again', 'sums'"), "{}", said(&error));
}

#[test]
fn options_that_were_written_by_hand_lead_nowhere_else() {
    let mut session = session(&folder("by-hand"));
    let error = refused(
        &mut session,
        "CREATE TABLE t (n INT) WITH ('connector' = 'snapshot', 'location' = '/etc', 'job' = 'x',
           'number' = '1', 'operator' = 'x', 'table' = 'x');
         SELECT * FROM t;",
    );
    assert!(error.to_string().contains("outside"), "{error}");
}

#[test]
fn tables_that_no_job_with_snapshots_can_resume_are_refused_before_it_starts() {
    let mut session = session(&folder("unsuitable"));
    let tables = "SET 'execution.checkpointing.dir' = 'state';
      CREATE TABLE typed (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '-');
      CREATE TABLE zipped (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv.gz');
      CREATE TABLE good (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');";
    for (statement, line, what) in [
        ("INSERT INTO good\nSELECT n FROM typed;", 1, "standard input"),
        ("\nINSERT INTO zipped VALUES (1);", 2, "zipped"),
    ] {
        let script = format!("{}{statement}", tables.replace('\n', " "));
        let error = session.validate(&script).expect_err("it is refused");
        assert!(error.is_plan_error() && said(&error).contains(what), "{}", said(&error));
        assert_eq!(error.span().map(|span| span.line), Some(line), "{error}");
        session
            .validate(&script.replace("SET 'execution.checkpointing.dir' = 'state';", ""))
            .expect("no snapshots");
    }
    session
        .validate(&format!("{tables} SELECT n FROM typed;"))
        .expect("a SELECT takes no snapshots");
}
