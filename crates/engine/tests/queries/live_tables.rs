//! Materialized tables in a script: filled by one statement, read by the next.

use std::fs;

use super::workspace::{execute, folder, refused};

const INPUT: &str = "CREATE TABLE t (k STRING, v INT) WITH
    ('connector' = 'filesystem', 'format' = 'csv', 'path' = 't.csv');";

fn rows(test: &str, script: &str) -> String {
    let folder = folder(test);
    fs::write(folder.join("t.csv"), "a,1\nb,2\na,3\nc,4\nb,-2\n").expect("an input");
    let written = "CREATE TABLE o (k STRING, n BIGINT) WITH
        ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'o.csv');";
    let first = "SET 'table.dml-sync' = 'true'; SET 'execution.runtime-mode' = 'batch';";
    execute(&folder, &format!("{first} {INPUT} {written} {script}")).expect("it runs");
    let text = fs::read_to_string(folder.join("o.csv")).expect("it is written");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join(" ")
}

#[test]
fn the_end_of_the_input_publishes_the_last_version() {
    let table = "CREATE MATERIALIZED TABLE m (PRIMARY KEY (k) NOT ENFORCED)
        AS SELECT k, SUM(v) AS total FROM t GROUP BY k;";
    let read = "INSERT INTO o SELECT k, total FROM m;";
    assert_eq!(rows("live-script", &format!("{table} {read}")), "a,4 b,0 c,4");
}

#[test]
fn changes_by_another_key_and_deletions_are_kept() {
    let streaming = "SET 'execution.runtime-mode' = 'streaming';";
    let table = "CREATE MATERIALIZED TABLE m (PRIMARY KEY (total) NOT ENFORCED)
        REFRESH_MODE = CONTINUOUS
        AS SELECT SUM(v) AS total, k FROM t GROUP BY k HAVING SUM(v) > 0;";
    let read = "INSERT INTO o SELECT 'x', total FROM m;";
    // a: 1, then 4; b: 2, then gone; c: 4, the newest of that key or the other.
    let found = rows("live-other-key", &format!("{streaming} {table} {read}"));
    assert_eq!(found, "x,4");
}

#[test]
fn a_table_is_filled_by_its_own_query_alone() {
    let folder = folder("live-refused");
    fs::write(folder.join("t.csv"), "a,1\n").expect("an input");
    let table = "CREATE MATERIALIZED TABLE m (PRIMARY KEY (k) NOT ENFORCED) AS SELECT k, v FROM t;";
    let insert = format!("{INPUT} {table} INSERT INTO m SELECT k, v FROM t;");
    assert!(refused(&folder, &insert).contains("its own query fills it"));
    let read = format!("{INPUT} {table} SELECT * FROM m;");
    assert!(refused(&folder, &read).contains("does not wait for"));
    let full = "CREATE MATERIALIZED TABLE m (PRIMARY KEY (k) NOT ENFORCED) REFRESH_MODE = FULL AS SELECT k, v FROM t;";
    assert!(refused(&folder, &format!("{INPUT} {full}")).contains("REFRESH_MODE = FULL"));
    let unbounded = "CREATE TABLE u (n BIGINT) WITH ('connector' = 'datagen');
        CREATE MATERIALIZED TABLE m (PRIMARY KEY (n) NOT ENFORCED) AS SELECT n FROM u;";
    assert!(refused(&folder, unbounded).contains("would never show a row"));
}
