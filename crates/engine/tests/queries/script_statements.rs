//! Compiled plans, jobs and jars in scripts, through the library.

use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use thalweg::jobs::ResumeFrom;
use thalweg::session::{Session, SessionOptions};
use thalweg::{Error, Result};

use super::workspace::{self, session};

fn run(folder: &Path, sql: &str) -> Result<Vec<RecordBatch>> {
    session(folder).execute(sql)
}

fn refused(folder: &Path, sql: &str) -> Error {
    match run(folder, sql) {
        Err(error) => error,
        Ok(_) => panic!("{sql}: runs"),
    }
}

/// The first columns of the last result.
fn texts(batches: &[RecordBatch], columns: usize) -> Vec<String> {
    let row = |batch: &RecordBatch, row: usize| {
        let cell = |column: usize| batch.column(column).as_string_view().value(row).to_owned();
        (0..columns).map(cell).collect::<Vec<_>>().join(" ")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |n| row(batch, n))).collect()
}

/// A table of three rows, and one to write.
const TABLES: &str = "CREATE TABLE t (k STRING, v INT)
      WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv');
    CREATE TABLE o (k STRING, v INT)
      WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');";

fn folder(name: &str) -> std::path::PathBuf {
    let folder = workspace::folder(name);
    fs::write(folder.join("in.csv"), "a,1\nb,2\na,3\n").expect("the input");
    folder
}

fn written(folder: &Path, file: &str) -> String {
    let found = fs::read_to_string(folder.join(file)).expect("the output");
    fs::remove_file(folder.join(file)).expect("it is there");
    found
}

#[test]
fn a_plan_runs_with_what_it_was_compiled_with() {
    let folder = folder("plan-runs");
    let compile = "CREATE VIEW w AS SELECT k, v + 1 AS v FROM t;
        SET 'table.local-time-zone' = 'Asia/Tokyo';
        COMPILE PLAN 'plans/p.json' FOR INSERT INTO o
          SELECT CAST(CAST(TO_TIMESTAMP_LTZ(v, 0) AS TIMESTAMP(0)) AS STRING), v FROM w;";
    run(&folder, &format!("{TABLES} {compile}")).expect("compiled");
    assert!(!folder.join("out.csv").exists(), "compiling runs nothing");
    let wanted = "1970-01-01 09:00:02,2\n1970-01-01 09:00:03,3\n1970-01-01 09:00:04,4\n";
    // In a session that has declared nothing, the tables are those of the plan.
    run(&folder, "EXECUTE PLAN 'plans/p.json'").expect("runs");
    assert_eq!(written(&folder, "out.csv"), wanted);
    // Options of a table are those of the session; a view is that of the plan.
    let other = TABLES.replace("out.csv", "other.csv");
    let changed = format!("{other} CREATE VIEW w AS SELECT k, v + 100 AS v FROM t;");
    run(&folder, &format!("{changed} EXECUTE PLAN 'file:plans/p.json';")).expect("runs");
    assert_eq!(written(&folder, "other.csv"), wanted);
    let inner = refused(&folder, &format!("{TABLES} {compile}"));
    assert!(inner.message().contains("there is a file 'plans/p.json' already"), "{inner}");
    let twice = compile.replace("p.json' FOR", "p.json' IF NOT EXISTS FOR");
    run(&folder, &format!("{TABLES} {twice}")).expect("the file stays");
}

#[test]
fn a_plan_is_refused_where_a_table_has_changed() {
    let folder = folder("plan-changed");
    run(&folder, &format!("{TABLES} COMPILE PLAN 'p.json' FOR INSERT INTO o SELECT k, v FROM t;"))
        .expect("compiled");
    let changed = TABLES.replacen("v INT", "v BIGINT", 1);
    let error = refused(&folder, &format!("{changed}\nEXECUTE PLAN 'p.json';"));
    assert!(
        error.message().contains("(k STRING, v INT) then, (k STRING, v BIGINT) now"),
        "{error}"
    );
    assert_eq!(error.span().map(|span| (span.line, span.column)), Some((5, 14)));
    let error = refused(&folder, "EXECUTE PLAN 'missing.json'");
    assert!(error.message().contains("there is no such file"), "{error}");
    fs::write(folder.join("flink.json"), r#"{"flinkVersion": "2.3", "nodes": []}"#)
        .expect("a file");
    let error = refused(&folder, "EXECUTE PLAN 'flink.json'");
    assert!(error.message().contains("Flink has compiled it"), "{error}");
    for text in ["{", "[]", r#"{"thalwegPlan": 1}"#, r#"{"thalwegPlan": 9}"#] {
        fs::write(folder.join("bad.json"), text).expect("a file");
        assert!(refused(&folder, "EXECUTE PLAN 'bad.json'").is_plan_error(), "{text}");
    }
    let outside = refused(&folder, "EXECUTE PLAN '../p.json'");
    assert!(outside.message().contains("outside the allowed folders"), "{outside}");
    let outside = refused(
        &folder,
        &format!("{TABLES} COMPILE PLAN 'a/../../p.json' FOR INSERT INTO o SELECT k, v FROM t"),
    );
    assert!(outside.message().contains("outside the allowed folders"), "{outside}");
}

#[test]
fn a_plan_that_is_there_is_executed_and_not_compiled_again() {
    let folder = folder("plan-execute");
    let set = "COMPILE AND EXECUTE PLAN 'p.json' FOR STATEMENT SET BEGIN
        INSERT INTO o SELECT k, v FROM t WHERE v > 2; END;";
    run(&folder, &format!("{TABLES} {set}")).expect("runs");
    assert_eq!(written(&folder, "out.csv"), "a,3\n");
    let other = "COMPILE AND EXECUTE PLAN 'p.json' FOR INSERT INTO o SELECT k, v FROM t;";
    run(&folder, &format!("{TABLES} {other}")).expect("runs");
    assert_eq!(written(&folder, "out.csv"), "a,3\n");
    let again = "SET 'table.plan.force-recompile' = 'true';
        COMPILE PLAN 'p.json' FOR INSERT INTO o SELECT k, v FROM t WHERE v = 2;
        EXECUTE PLAN 'p.json';";
    // What the plan says when the script runs counts, not what the file said before.
    let planned = session(&folder).planned_jobs(&format!("{TABLES} {again}")).expect("planned");
    assert_eq!(planned.len(), 1);
    assert_eq!(session(&folder).validate(&format!("{TABLES} {again}")).expect("valid"), 5);
    assert_eq!(written(&folder, "p.json").matches("v > 2").count(), 1);
    run(&folder, &format!("{TABLES} {again}")).expect("runs");
    assert_eq!(written(&folder, "out.csv"), "b,2\n");
}

/// State is matched by what operators compute: a plan continues what it or its INSERT has begun.
#[test]
fn a_plan_resumes_the_job_that_it_was_compiled_of() {
    let folder = folder("plan-resumes");
    let tables = "SET 'pipeline.name' = 'counts'; SET 'execution.checkpointing.dir' = 'snapshots';
        CREATE TABLE t (v INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
          'fields.v.kind' = 'sequence', 'fields.v.start' = '1', 'fields.v.end' = '300');
        CREATE TABLE o (n BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'filesystem',
          'format' = 'csv', 'path' = 'out.csv', 'changelog' = 'op');";
    let insert = "INSERT INTO o SELECT SUM(v) FROM t";
    run(&folder, &format!("{tables} COMPILE PLAN 'p.json' FOR {insert};")).expect("compiled");
    let stopped = format!("{tables} EXECUTE PLAN 'p.json'; STOP JOB 'counts' WITH SAVEPOINT;");
    let answer = run(&folder, &stopped).expect("stopped");
    let place = texts(&answer, 1).remove(0);
    assert!(Path::new(&place).is_dir(), "{place}");
    let resume = ResumeFrom::Newest;
    let options = SessionOptions { resume, ..workspace::options(&folder) };
    let mut resumed = Session::new(options).expect("a session");
    resumed.execute(&format!("{tables} EXECUTE PLAN 'p.json'")).expect("resumed");
    let all = fs::read_to_string(folder.join("out.csv")).expect("the output");
    assert!(all.lines().last().is_some_and(|line| line.ends_with("45150")), "{all}");
}

#[test]
fn jobs_of_a_script_are_listed_described_and_stopped_by_their_names() {
    let folder = folder("script-jobs");
    let endless = "CREATE TABLE t (v INT) WITH ('connector' = 'datagen', 'rows-per-second' = '50');
        CREATE TABLE a (v INT) WITH ('connector' = 'blackhole');
        SET 'pipeline.name' = 'first'; INSERT INTO a SELECT v FROM t;
        SET 'pipeline.name' = 'second'; INSERT INTO a SELECT v + 1 FROM t;";
    let stop = "STOP JOB 'first'; STOP JOB 'second' WITH DRAIN;";
    let jobs = run(&folder, &format!("{endless} SHOW JOBS; {stop}")).expect("it ends");
    assert_eq!(texts(&jobs, 3), ["first first RUNNING", "second second RUNNING"]);
    let jobs = run(&folder, &format!("{endless} {stop} SHOW JOBS;")).expect("it ends");
    assert_eq!(texts(&jobs, 3), ["first first CANCELED", "second second FINISHED"]);
    assert_eq!(jobs[0].schema().field(3).name(), "start time");
    assert_eq!(jobs[0].column(3).null_count(), 0);
    let one = run(&folder, &format!("{endless} {stop} DESCRIBE JOB 'second';")).expect("it ends");
    assert_eq!(texts(&one, 3), ["second second FINISHED"]);
    // Mistakes show before anything runs, or these scripts would never end.
    let error = refused(&folder, &format!("{endless} STOP JOB 'third';"));
    assert!(error.message().contains("no job 'third'"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("'first', 'second'")), "{error:?}");
    let error = refused(&folder, &format!("{endless} STOP JOB 'first' WITH SAVEPOINT;"));
    assert!(error.message().contains("keeps no snapshots"), "{error}");
    assert!(texts(&run(&folder, "SHOW JOBS").expect("an empty list"), 3).is_empty());
}

#[test]
fn jars_are_listed_and_carry_nothing() {
    let folder = folder("jars");
    for name in ["one.jar", "two.jar", "text.txt"] {
        fs::write(folder.join(name), "").expect("a file");
    }
    let add = "ADD JAR 'one.jar'; ADD JAR 'two.jar'; ADD JAR 'one.jar';";
    let shown = run(&folder, &format!("{add} SHOW JARS")).expect("shown");
    assert_eq!(texts(&shown, 1), ["one.jar", "two.jar"]);
    let shown = run(&folder, &format!("{add} REMOVE JAR 'one.jar'; SHOW JARS")).expect("shown");
    assert_eq!(texts(&shown, 1), ["two.jar"]);
    for (sql, why) in [
        ("ADD JAR 'no.jar'", "is not there"),
        ("ADD JAR 'text.txt'", "does not end with .jar"),
        ("ADD JAR '.'", "is a folder"),
        ("ADD JAR '/etc/passwd.jar'", "outside the allowed folders"),
        ("REMOVE JAR 'one.jar'", "ADD JAR has not named 'one.jar'"),
    ] {
        let error = refused(&folder, sql);
        assert!(error.message().contains(why), "{sql}: {error}");
    }
    let error = refused(
        &folder,
        "ADD JAR 'one.jar'; CREATE FUNCTION f AS 'com.example.F' USING JAR 'one.jar'; SELECT f(1);",
    );
    assert!(error.message().contains("'com.example.F', which is not there"), "{error}");
}

#[test]
fn a_table_with_source_watermarks_is_declared_and_written_and_not_read() {
    let folder = folder("source-watermark");
    let table = "CREATE TABLE w (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK())
        WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'w.csv');";
    let insert = "INSERT INTO w VALUES (TIMESTAMP '2024-01-01 00:00:00');";
    run(&folder, &format!("{table} {insert}")).expect("written");
    assert_eq!(written(&folder, "w.csv"), "2024-01-01 00:00:00.000\n");
    let error = refused(&folder, &format!("{table} SELECT ts FROM w;"));
    assert!(error.message().contains("the connector 'filesystem' supplies none"), "{error}");
    let error = refused(&folder, "SELECT SOURCE_WATERMARK();");
    assert!(error.help().is_some_and(|help| help.contains("WATERMARK FOR")), "{error:?}");
}
