//! Tables whose files lie in a folder for each combination of some columns' values.

use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;

use super::workspace::{execute, folder, refused, session};

/// The files below a folder with their text, by path.
fn files(root: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let name = entry.path().strip_prefix(root).expect("inside").display().to_string();
            files.push((name, fs::read_to_string(entry.path()).unwrap_or_default()));
        }
    }
    files.sort();
    files
}

fn table(name: &str, format: &str, more: &str) -> String {
    format!(
        "CREATE TABLE {name} (k STRING, v INT, day DATE, w STRING) PARTITIONED BY (day, k) WITH
           ('connector' = 'filesystem', 'format' = '{format}', 'path' = 'out' {more});"
    )
}

const INPUT: &str = "CREATE TABLE t (k STRING, v INT, day DATE, w STRING) WITH
    ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv', 'csv.null-literal' = '\\N');";
const ROWS: &str =
    "a,1,2024-01-01,x\na/b,2,2024-01-01,y\n\\N,3,2024-01-02,z\na,4,2024-01-01,u\n..,5,\\N,v\n";

#[test]
fn rows_go_to_the_folders_of_their_values() {
    let folder = folder("partition-write");
    fs::write(folder.join("in.csv"), ROWS).expect("an input");
    let write = format!("{INPUT} {} INSERT INTO o SELECT * FROM t;", table("o", "csv", ""));
    execute(&folder, &write).expect("it runs");
    let expected = [
        ("day=2024-01-01/k=a%2Fb/part-0.csv", "2,y\n"),
        ("day=2024-01-01/k=a/part-0.csv", "1,x\n4,u\n"),
        ("day=2024-01-02/k=__HIVE_DEFAULT_PARTITION__/part-0.csv", "3,z\n"),
        ("day=__HIVE_DEFAULT_PARTITION__/k=../part-0.csv", "5,v\n"),
    ];
    let expected = expected.map(|(name, text)| (name.to_string(), text.to_string()));
    assert_eq!(files(&folder.join("out")), expected);
}

#[test]
fn folders_are_read_as_columns() {
    let folder = folder("partition-read");
    fs::write(folder.join("in.csv"), ROWS).expect("an input");
    for (format, more) in [
        ("csv", ""),
        ("json", ""),
        ("parquet", ""),
        ("csv", ", 'changelog' = 'op'"),
        ("parquet", ", 'changelog' = 'op'"),
    ] {
        let _ = fs::remove_dir_all(folder.join("out"));
        let back = "CREATE TABLE back (w STRING, k STRING, day DATE, v INT) WITH
            ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'back.csv',
             'csv.null-literal' = '\\N', 'changelog' = 'op');
            CREATE TABLE days (day DATE, n BIGINT) WITH
            ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'days.csv', 'changelog' = 'op');";
        let script = format!(
            "{INPUT} {} {back}
             SET 'table.dml-sync' = 'true';
             INSERT INTO o SELECT * FROM t;
             INSERT INTO back SELECT w, k, day, v FROM o WHERE v > 0;
             INSERT INTO days SELECT day, COUNT(*) FROM o GROUP BY day;",
            table("o", format, more)
        );
        execute(&folder, &script).unwrap_or_else(|error| panic!("{format}: {error}"));
        let text = fs::read_to_string(folder.join("back.csv")).expect("it is written");
        let mut rows: Vec<&str> = text.lines().collect();
        rows.sort_unstable();
        let expected = [
            "+I,u,a,2024-01-01,4",
            "+I,v,..,\\N,5",
            "+I,x,a,2024-01-01,1",
            "+I,y,a/b,2024-01-01,2",
            "+I,z,\\N,2024-01-02,3",
        ];
        assert_eq!(rows, expected, "{format} {more}");
        let days = fs::read_to_string(folder.join("days.csv")).expect("it is written");
        assert!(days.contains("+U,2024-01-01,3\n"), "only folders are asked for: {days}");
    }
}

/// More partitions than files may be open: a partition continues in the next part, and is read in
/// order.
#[test]
fn few_files_are_open() {
    let folder = folder("partition-many");
    let rows: String = (0..396).map(|n| format!("{},{n}\n", n % 36)).collect();
    fs::write(folder.join("in.csv"), rows).expect("an input");
    let script = "CREATE TABLE t (k INT, v INT) WITH
          ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv');
        CREATE TABLE o (k INT, v INT) PARTITIONED BY (k) WITH
          ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out');
        CREATE TABLE back (k INT, v INT) WITH
          ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'back.csv');
        SET 'pipeline.order' = 'arrival'; SET 'pipeline.bundle-rows-max' = '36';
        SET 'table.dml-sync' = 'true';
        INSERT INTO o SELECT * FROM t;
        INSERT INTO back SELECT * FROM o;";
    execute(&folder, script).expect("it runs");
    assert!(folder.join("out/k=7/part-10.csv").exists(), "two parts sort differently by name");
    let text = fs::read_to_string(folder.join("back.csv")).expect("it is written");
    let mut last = [-1; 36];
    for line in text.lines() {
        let (k, v) = line.split_once(',').expect("two columns");
        let (k, v): (usize, i32) = (k.parse().expect("k"), v.parse().expect("v"));
        assert!(v > last[k] && v as usize % 36 == k, "{line} after {}", last[k]);
        last[k] = v;
    }
    assert_eq!(text.lines().count(), 396);
    // A second run with fewer rows leaves nothing of the first in its partitions.
    fs::write(folder.join("in.csv"), "7,1\n").expect("an input");
    execute(&folder, script).expect("it runs again");
    let parts = files(&folder.join("out/k=7"));
    assert_eq!(parts, [("part-0.csv".to_string(), "1\n".to_string())]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = folder("partition-refused");
    fs::write(folder.join("in.csv"), ROWS).expect("an input");
    let create = |columns: &str, by: &str, more: &str| {
        format!(
            "{INPUT} CREATE TABLE o ({columns}) PARTITIONED BY ({by}) WITH
               ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out' {more});
             INSERT INTO o SELECT k, v FROM t;"
        )
    };
    let message = refused(&folder, &create("k STRING, v INT", "x", ""));
    assert!(message.contains("has no column x"), "{message}");
    let message = refused(&folder, &create("k STRING, v INT", "k, v", ""));
    assert!(message.contains("every column"), "{message}");
    let key = "k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED";
    let message = refused(&folder, &create(key, "v", ", 'changelog' = 'upsert'"));
    assert!(message.contains("not part of the primary key"), "{message}");
    assert!(!folder.join("out").exists());
    fs::create_dir_all(folder.join("out")).expect("a folder");
    fs::write(folder.join("out/stray.csv"), "1\n").expect("a file");
    let read = "CREATE TABLE o (k INT, v INT) PARTITIONED BY (k) WITH
        ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out'); SELECT * FROM o;";
    let message = refused(&folder, read);
    assert!(message.contains("stray.csv") && message.contains("k=…"), "{message}");
    fs::remove_file(folder.join("out/stray.csv")).expect("removed");
    fs::create_dir_all(folder.join("out/k=a")).expect("a folder");
    fs::write(folder.join("out/k=a/part-0.csv"), "1\n").expect("a file");
    let message = refused(&folder, read);
    assert!(message.contains("'a', which is no INT"), "{message}");
}

#[test]
fn a_planted_link_does_not_lead_out() {
    let folder = self::folder("partition-link");
    let outside = self::folder("partition-link-outside");
    fs::write(folder.join("in.csv"), "a,1,2024-01-01,x\n").expect("an input");
    fs::create_dir_all(folder.join("out/day=2024-01-01")).expect("a folder");
    std::os::unix::fs::symlink(&outside, folder.join("out/day=2024-01-01/k=a")).expect("a link");
    let write = format!("{INPUT} {} INSERT INTO o SELECT * FROM t;", table("o", "csv", ""));
    let message = refused(&folder, &write);
    assert!(message.contains("leads out"), "{message}");
    assert!(files(&outside).is_empty());
}

/// EXPLAIN's words for parts of files that are passed over.
const PASSED: &str = "passes over parts of files without rows where ";

#[test]
fn a_filter_says_which_parts_of_files_are_passed_over() {
    let folder = folder("passed-over");
    let table = |name: &str, more: &str| {
        format!(
            "CREATE TABLE {name} (n BIGINT, ts TIMESTAMP(3) {more}) WITH
               ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'in.parquet');"
        )
    };
    let timed = table("timed", ", WATERMARK FOR ts AS ts - INTERVAL '5' SECOND");
    let tables = format!("{} {timed}", table("plain", ""));
    let write =
        "INSERT INTO plain SELECT n, TO_TIMESTAMP('1970-01-01 00:00:0' || CAST(n AS STRING)) FROM
        (VALUES (1), (2), (3), (4)) AS v (n);";
    execute(&folder, &format!("{tables}{write}")).expect("written");
    let explained = |query: &str| -> String {
        let batches =
            session(&folder).execute(&format!("{tables}{query}")).expect("it is explained");
        let texts = batches.iter().flat_map(|batch| batch.column(0).as_string_view().iter());
        texts.flatten().collect::<Vec<_>>().join("\n")
    };
    let batch = "SET 'execution.runtime-mode' = 'batch';";
    for (query, expected) in [
        ("EXPLAIN SELECT ts FROM plain WHERE n > 2 AND ABS(n) < 9", Some("n > 2")),
        ("EXPLAIN SELECT ts FROM plain WHERE 3 = n", Some("n >= 3 AND n <= 3")),
        (
            "EXPLAIN SELECT n FROM plain WHERE ts <= TIMESTAMP '1970-01-01 00:00:02'",
            Some("ts <= 1970-01-01 00:00:02.000"),
        ),
        ("EXPLAIN SELECT ts FROM plain WHERE n > 2 OR n < 1", None),
        ("EXPLAIN SELECT n FROM plain WHERE n + 1 > 2", None),
        // All rows are read by one of the two readers.
        ("EXPLAIN SELECT n FROM plain WHERE n > 2 UNION ALL SELECT n FROM plain", None),
        // Which rows are late depends on all rows.
        ("EXPLAIN SELECT ts FROM timed WHERE n > 2", None),
        (&format!("{batch} EXPLAIN SELECT ts FROM timed WHERE n > 2"), Some("n > 2")),
    ] {
        let text = explained(query);
        let found = text.split(PASSED).nth(1).map(|rest| rest.lines().next().unwrap_or_default());
        assert_eq!(found, expected, "{query}: {text}");
    }
    let rows = |query: &str| -> usize {
        let batches = session(&folder).execute(&format!("{tables}{query}")).expect("it runs");
        batches.iter().map(|batch| batch.num_rows()).sum()
    };
    assert_eq!(rows("SELECT n FROM plain WHERE n > 2"), 2);
    assert_eq!(rows("SELECT n FROM plain WHERE n > 4"), 0);
}
