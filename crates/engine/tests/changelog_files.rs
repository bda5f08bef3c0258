//! Changelogs in files: each row with what it does, refused where a table does not say so.

use std::fs;
use std::path::Path;

use thalweg::session::{Session, SessionOptions};

fn folder(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    fs::write(folder.join("in.csv"), "a,1\nb,2\na,3\n").expect("an input");
    folder
}

fn run(folder: &Path, format: &str, more: &str) -> thalweg::Result<()> {
    let script = format!(
        "CREATE TABLE t (k STRING, v INT) WITH
           ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv');
         CREATE TABLE o (k STRING, total INT) WITH
           ('connector' = 'filesystem', 'format' = '{format}', 'path' = 'out.{format}' {more});
         SET 'pipeline.order' = 'arrival';
         INSERT INTO o SELECT k, SUM(v) FROM t GROUP BY k;"
    );
    let options = SessionOptions {
        base_dir: folder.to_path_buf(),
        allowed_roots: vec![folder.to_path_buf()],
        ..SessionOptions::default()
    };
    Session::new(options)?.execute(&script).map(drop)
}

#[test]
fn csv_has_a_first_column_that_tells_what_each_row_does() {
    let folder = folder("changelog-csv");
    run(&folder, "csv", ", 'changelog' = 'op', 'csv.header' = 'true'").expect("it runs");
    let text = fs::read_to_string(folder.join("out.csv")).expect("it is written");
    assert_eq!(text, "op,k,total\n+I,a,1\n+I,b,2\n-U,a,1\n+U,a,4\n");
}

#[test]
fn json_has_a_first_key() {
    let folder = folder("changelog-json");
    run(&folder, "json", ", 'changelog' = 'op'").expect("it runs");
    let text = fs::read_to_string(folder.join("out.json")).expect("it is written");
    let last = text.lines().last().expect("a row");
    assert_eq!(last, r#"{"op":"+U","k":"a","total":4}"#);
}

#[test]
fn a_table_that_does_not_say_so_takes_no_changes() {
    let folder = folder("changelog-refused");
    let error = run(&folder, "csv", "").expect_err("it is refused").to_string();
    assert!(error.contains("GROUP BY without a window"), "{error}");
    assert!(!folder.join("out.csv").exists() && !folder.join("out.csv.partial").exists());
}

fn execute(folder: &Path, script: &str) -> thalweg::Result<()> {
    let options = SessionOptions {
        base_dir: folder.to_path_buf(),
        allowed_roots: vec![folder.to_path_buf()],
        ..SessionOptions::default()
    };
    Session::new(options)?.execute(script).map(drop)
}

#[test]
fn a_changelog_is_read_back() {
    let folder = folder("changelog-back");
    fs::write(folder.join("log.csv"), "+I,a,1\n+I,b,2\n-U,a,1\n+U,a,4\n-D,b,2\n").expect("an input");
    execute(
        &folder,
        "CREATE TABLE log (k STRING, v INT) WITH
           ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'log.csv', 'changelog' = 'op');
         CREATE TABLE o (n BIGINT, total INT) WITH
           ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv', 'changelog' = 'op');
         SET 'pipeline.order' = 'arrival';
         INSERT INTO o SELECT COUNT(*), SUM(v) FROM log;",
    )
    .expect("it runs");
    let text = fs::read_to_string(folder.join("out.csv")).expect("it is written");
    assert_eq!(text, "+I,1,1\n-U,1,1\n+U,2,3\n-U,2,3\n+U,1,2\n-U,1,2\n+U,2,6\n-U,2,6\n+U,1,4\n");
}
