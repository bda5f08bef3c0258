//! `'late.data'` holds for every operator that judges rows late one by one: joins within an
//! interval, OVER, and the first row by row time, as for windows.

use std::fs;
use std::path::{Path, PathBuf};

use super::workspace;

fn folder(name: &str) -> PathBuf {
    let folder = workspace::folder(name);
    let row = |(k, second, v): (&str, u32, u32)| format!("{k},2024-01-01 00:00:{second:02},{v}\n");
    let left = [("a", 10, 1), ("a", 50, 2), ("b", 5, 3), ("a", 51, 4)];
    let right = [("a", 10, 10), ("b", 52, 20), ("a", 6, 30)];
    fs::write(folder.join("l.csv"), left.map(row).concat()).expect("an input");
    fs::write(folder.join("r.csv"), right.map(row).concat()).expect("an input");
    folder
}

fn execute(folder: &Path, script: &str) -> thalweg::Result<()> {
    let table = |name: &str, value: &str| {
        format!(
            "CREATE TABLE {name} (k STRING, ts TIMESTAMP(3), {value} INT,
               WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH
               ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{name}.csv');"
        )
    };
    let late = "CREATE TABLE late (ts TIMESTAMP(3), k STRING) WITH
        ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'late.csv');
        CREATE TABLE o (k STRING, n BIGINT) WITH
        ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv', 'changelog' = 'op');";
    let script = format!("{}{}{late} {script}", table("l", "v"), table("r", "w"));
    workspace::execute(folder, &script)
}

const OVER: &str = "INSERT INTO o SELECT k, COUNT(*) OVER (ORDER BY ts
    RANGE BETWEEN INTERVAL '59' SECOND PRECEDING AND CURRENT ROW) FROM l;";
const FIRST: &str = "INSERT INTO o SELECT k, v FROM
    (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM l) WHERE n = 1;";
const JOIN: &str = "INSERT INTO o SELECT l.k, r.w FROM l JOIN r ON l.k = r.k
    AND l.ts BETWEEN r.ts - INTERVAL '1' SECOND AND r.ts + INTERVAL '1' SECOND;";

#[test]
fn late_rows_go_to_their_table() {
    let left = "2024-01-01 00:00:05.000,b\n";
    let both = "2024-01-01 00:00:05.000,b\n2024-01-01 00:00:06.000,a\n";
    for (name, query, expected) in
        [("over", OVER, left), ("first", FIRST, left), ("join", JOIN, both)]
    {
        let folder = folder(&format!("late-{name}"));
        for order in ["epoch", "arrival"] {
            let set = format!("SET 'late.data' = 'late'; SET 'pipeline.order' = '{order}';");
            execute(&folder, &format!("{set} {query}"))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let text = fs::read_to_string(folder.join("late.csv")).expect("it is written");
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            lines.sort_unstable();
            assert_eq!(lines.concat(), expected, "{name} in {order}");
            let text = fs::read_to_string(folder.join("out.csv")).expect("it is written");
            assert!(!text.is_empty() && !text.contains("+I,b,3"), "{name}: {text}");
        }
    }
}

#[test]
fn a_job_fails_at_a_late_row_if_it_shall() {
    for (name, query) in [("over", OVER), ("first", FIRST), ("join", JOIN)] {
        let folder = folder(&format!("late-fail-{name}"));
        execute(&folder, query).expect("late rows are dropped");
        let error = execute(&folder, &format!("SET 'late.data' = 'fail'; {query}"));
        let error = error.expect_err(name).to_string();
        assert!(error.contains("came late"), "{name}: {error}");
    }
}

/// A table for late rows of a join could only have columns that both sides have.
#[test]
fn late_rows_of_a_join_keep_the_columns_of_their_side() {
    let folder = folder("late-columns");
    let all = |columns: &str| {
        format!(
            "CREATE TABLE all_of_it ({columns}) WITH
               ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'all.csv');
             SET 'late.data' = 'all_of_it'; {JOIN}"
        )
    };
    execute(&folder, &all("w INT, k STRING, v INT, ts TIMESTAMP(3)")).expect("both sides fit");
    let text = fs::read_to_string(folder.join("all.csv")).expect("it is written");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [",b,3,2024-01-01 00:00:05.000", "30,a,,2024-01-01 00:00:06.000"]);
    let refused = |columns: &str| execute(&folder, &all(columns)).expect_err(columns).to_string();
    let error = refused("k STRING, x INT");
    assert!(error.contains("'x' is no column of the rows"), "{error}");
    let error = refused("k STRING, v INT NOT NULL");
    assert!(error.contains("'v' is NOT NULL, and one side of the join"), "{error}");
}

/// The job failed, whatever the setting said.
#[test]
fn a_late_row_without_a_value_for_its_table_is_left_out_or_fails_the_job() {
    let folder = folder("late-null");
    let mut text = fs::read_to_string(folder.join("l.csv")).expect("an input");
    text.push_str("-,2024-01-01 00:00:04,5\n");
    fs::write(folder.join("l.csv"), text).expect("an input");
    let table = "DROP TABLE late; DROP TABLE l;
        CREATE TABLE l (k STRING, ts TIMESTAMP(3), v INT, WATERMARK FOR ts AS ts) WITH
        ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'l.csv', 'csv.null-literal' = '-');
        CREATE TABLE late (k STRING NOT NULL, v INT) WITH
        ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'late.csv');
        SET 'late.data' = 'late';";
    let error = execute(&folder, &format!("{table}{OVER}")).expect_err("k is NULL");
    assert!(error.message().contains("'late'"), "{error}");
    let drops = "SET 'table.exec.sink.not-null-enforcer' = 'drop';";
    execute(&folder, &format!("{table}{drops}{OVER}")).expect("the row is left out");
    let text = fs::read_to_string(folder.join("late.csv")).expect("it is written");
    assert_eq!(text, "b,3\n");
}
