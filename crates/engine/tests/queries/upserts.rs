//! Tables that are written and read by their primary key, in files.
//!
//! Small cases are written out; `neither_bundles_nor_workers_show` compares bytes in the contract
//! `arrival`, and what is left in `epoch`. What operators do is compared with plain loops in their
//! own tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::workspace::{execute, folder, refused};

fn file(name: &str, columns: &str, more: &str) -> String {
    format!(
        "CREATE TABLE {name} ({columns}) WITH
           ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{name}.csv' {more});"
    )
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("it is written")
}

const UPSERT: &str = ", 'changelog' = 'upsert'";
const OP: &str = ", 'changelog' = 'op'";

#[test]
fn updates_by_the_primary_key_leave_without_what_rows_were_before() {
    let folder = folder("upsert-by-key");
    fs::write(folder.join("t.csv"), "a,1\nb,2\na,3\n").expect("an input");
    let tables = file("t", "k STRING, v INT", "")
        + &file("o", "k STRING, total INT, PRIMARY KEY (k) NOT ENFORCED", UPSERT);
    let query = "INSERT INTO o SELECT k, SUM(v) FROM t GROUP BY k;";
    execute(&folder, &format!("{tables} SET 'pipeline.order' = 'arrival'; {query}"))
        .expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,a,1\n+I,b,2\n+U,a,4\n");
}

#[test]
fn deletions_are_written() {
    let folder = folder("upsert-deletion");
    fs::write(folder.join("t.csv"), "+I,a,1\n+I,a,2\n-D,a,1\n-D,a,2\n+I,b,1\n").expect("an input");
    let tables = file("t", "k STRING, v INT", OP)
        + &file("o", "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED", UPSERT);
    let query = "INSERT INTO o SELECT k, COUNT(*) FROM t GROUP BY k;";
    execute(&folder, &format!("{tables} SET 'pipeline.order' = 'arrival'; {query}"))
        .expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,a,1\n+U,a,2\n+U,a,1\n-D,a,1\n+I,b,1\n");
}

/// HAVING takes the `+U` of a pair away: the key goes.
#[test]
fn a_key_that_a_filter_hides_is_deleted() {
    let folder = folder("upsert-having");
    fs::write(folder.join("t.csv"), "a,1\na,1\na,1\nb,1\n").expect("an input");
    let tables = file("t", "k STRING, v INT", "")
        + &file("o", "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED", UPSERT);
    let query = "INSERT INTO o SELECT k, COUNT(*) FROM t GROUP BY k HAVING COUNT(*) < 3;";
    execute(&folder, &format!("{tables} SET 'pipeline.order' = 'arrival'; {query}"))
        .expect("it runs");
    assert_eq!(left_by_key(&read(&folder, "o.csv")), [("b".to_string(), "1".to_string())]);
}

/// What upserts leave: the first column is the key.
fn left_by_key(text: &str) -> Vec<(String, String)> {
    let mut left = BTreeMap::new();
    for line in text.lines() {
        let (op, row) = line.split_once(',').expect("an op");
        let (key, value) = row.split_once(',').expect("a value");
        match op {
            "+I" | "+U" => left.insert(key.to_owned(), value.to_owned()),
            "-D" => left.remove(key),
            other => panic!("{other} is no upsert"),
        };
    }
    left.into_iter().collect()
}

/// Two items have the same count: the table by count holds the one that came last, and when that
/// one moves on, the other one again.
#[test]
fn another_key_than_the_tables_is_materialized() {
    let folder = folder("upsert-other-key");
    fs::write(folder.join("t.csv"), "a\nb\nb\n").expect("an input");
    let tables = file("t", "k STRING", "")
        + &file("o", "n BIGINT, k STRING, PRIMARY KEY (n) NOT ENFORCED", UPSERT);
    let query = "INSERT INTO o SELECT COUNT(*), k FROM t GROUP BY k;";
    execute(&folder, &format!("{tables} SET 'pipeline.order' = 'arrival'; {query}"))
        .expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,1,a\n+U,1,b\n+U,1,a\n+I,2,b\n");
    let none = format!(
        "{tables} SET 'pipeline.order' = 'arrival';
         SET 'table.exec.sink.upsert-materialize' = 'NONE'; {query}"
    );
    execute(&folder, &none).expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,1,a\n+I,1,b\n+U,2,b\n", "the key 1 is wrong by request");
}

#[test]
fn rows_that_only_come_stay_as_they_are() {
    let folder = folder("upsert-append");
    fs::write(folder.join("t.csv"), "a,1\na,2\n").expect("an input");
    let key = "k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED";
    let tables = file("t", "k STRING, v INT", "") + &file("o", key, UPSERT) + &file("p", key, "");
    let set = "SET 'pipeline.order' = 'arrival';";
    execute(&folder, &format!("{tables} {set} INSERT INTO o SELECT * FROM t;")).expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,a,1\n+I,a,2\n");
    execute(&folder, &format!("{tables} {set} INSERT INTO p SELECT * FROM t;")).expect("it runs");
    assert_eq!(read(&folder, "p.csv"), "a,1\na,2\n", "a key changes nothing of a table of inserts");
    let force = "SET 'table.exec.sink.upsert-materialize' = 'FORCE';";
    execute(&folder, &format!("{tables} {set} {force} INSERT INTO o SELECT * FROM t;"))
        .expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,a,1\n+U,a,2\n");
}

#[test]
fn upserts_are_read_as_full_changes() {
    let folder = folder("upsert-read");
    let rows = "+I,a,1\n+I,b,2\n+I,a,1\n+U,a,4\n-D,b,0\n-D,c,0\n+U,c,5\n";
    fs::write(folder.join("t.csv"), rows).expect("an input");
    let key = "k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED";
    let tables = file("t", key, UPSERT) + &file("o", "k STRING, v INT", OP);
    let script =
        format!("{tables} SET 'pipeline.order' = 'arrival'; INSERT INTO o SELECT * FROM t;");
    execute(&folder, &script).expect("it runs");
    assert_eq!(read(&folder, "o.csv"), "+I,a,1\n+I,b,2\n-U,a,1\n+U,a,4\n-D,b,2\n+I,c,5\n");
    let sum = file("s", "total INT", OP) + "INSERT INTO s SELECT SUM(v) FROM t;";
    execute(&folder, &format!("{tables} {sum}")).expect("it runs");
    assert_eq!(read(&folder, "s.csv").lines().last(), Some("+U,9"));
}

/// Batch mode once took what is left of the upserts as if they were rows that are added and taken
/// back, and only then looked at keys: a row that was replaced stayed, and one without updates was
/// an internal error.
#[test]
fn batch_mode_settles_upserts_by_their_key() {
    let folder = folder("upsert-batch");
    fs::write(folder.join("t.csv"), "+I,1,a\n+U,1,b\n+I,2,a\n-D,2,a\n").expect("an input");
    let key = "k INT, c STRING, PRIMARY KEY (k) NOT ENFORCED";
    let tables = file("t", key, UPSERT)
        + &file("o", "k INT, c STRING", "")
        + &file("n", "c STRING, n BIGINT", "")
        + "SET 'execution.runtime-mode' = 'batch';";
    let snapshots = "SET 'execution.checkpointing.dir' = 'state';";
    for set in ["", snapshots] {
        // A job with snapshots does not start over the outputs of another run.
        ["o.csv", "n.csv"].iter().for_each(|name| drop(fs::remove_file(folder.join(name))));
        let script = format!(
            "{tables} {set} INSERT INTO o SELECT * FROM t;
             INSERT INTO n SELECT c, COUNT(*) FROM t GROUP BY c;"
        );
        execute(&folder, &script).expect("it runs");
        assert_eq!(read(&folder, "o.csv"), "1,b\n", "{set}");
        assert_eq!(read(&folder, "n.csv"), "b,1\n", "{set}");
    }
}

#[test]
fn a_table_without_a_primary_key_takes_no_upserts() {
    let folder = folder("upsert-no-key");
    fs::write(folder.join("t.csv"), "a,1\n").expect("an input");
    let tables = file("t", "k STRING, v INT", "") + &file("o", "k STRING, total INT", UPSERT);
    for query in ["SELECT k, SUM(v) FROM t GROUP BY k", "SELECT * FROM t"] {
        let message = refused(&folder, &format!("{tables}\n\nINSERT INTO o {query};"));
        assert!(message.contains("primary key") && message.contains("table o"), "{message}");
        assert!(message.contains("PRIMARY KEY"), "{message}");
    }
}

/// Every kind of table with every kind of query: what fits, and what names the reason.
#[test]
fn what_a_table_takes_is_checked() {
    let folder = folder("upsert-matrix");
    fs::write(folder.join("t.csv"), "a,1\nb,2\n").expect("an input");
    let key = "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED";
    let tables = file("t", "k STRING, v INT", "")
        + &file("append", "k STRING, n BIGINT", "")
        + &file("upsert", key, UPSERT)
        + &file("every", "k STRING, n BIGINT", OP);
    let queries = [
        ("stays", "SELECT k, v FROM t", None),
        ("by key", "SELECT k, COUNT(*) FROM t GROUP BY k", Some("GROUP BY without a window")),
        (
            "retracts",
            "SELECT a.k, COUNT(*) FROM t a LEFT JOIN t b ON a.k = b.k GROUP BY a.k HAVING COUNT(*) > 0",
            Some("GROUP BY without a window"),
        ),
        ("padded", "SELECT a.k, b.v FROM t a LEFT JOIN t b ON a.v = b.v", Some("an outer join")),
        ("distinct", "SELECT DISTINCT k, v FROM t", None),
    ];
    for (name, query, cause) in queries {
        for table in ["append", "upsert", "every"] {
            let result = execute(&folder, &format!("{tables} INSERT INTO {table} {query};"));
            match (table, cause) {
                ("append", Some(cause)) => {
                    let error = result.expect_err(name).to_string();
                    assert!(error.contains(cause) && error.contains("'append'"), "{name}: {error}");
                    assert!(!folder.join("append.csv.partial").exists());
                }
                _ => result.unwrap_or_else(|error| panic!("{name} into {table}: {error}")),
            }
        }
    }
}

/// Several queries of one statement set that write one table by key.
#[test]
fn several_queries_write_one_table() {
    let folder = folder("upsert-several");
    fs::write(folder.join("t.csv"), "a,1\nb,2\na,5\n").expect("an input");
    let tables = file("t", "k STRING, v INT", "")
        + &file("o", "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED", UPSERT);
    let script = format!(
        "{tables} EXECUTE STATEMENT SET BEGIN
           INSERT INTO o SELECT k, SUM(v) FROM t GROUP BY k;
           INSERT INTO o SELECT 'n', COUNT(*) FROM t;
         END;"
    );
    execute(&folder, &script).expect("it runs");
    let left = left_by_key(&read(&folder, "o.csv"));
    let expected = [("a", "6"), ("b", "2"), ("n", "3")];
    assert_eq!(left, expected.map(|(k, v)| (k.to_string(), v.to_string())));
}

/// A changelog in, upserts by another key out: the bytes are those of one worker and whole bundles.
#[test]
fn neither_bundles_nor_workers_show() {
    let folder = folder("upsert-bundles");
    let mut rows = String::new();
    for n in 0..3000_u32 {
        let (key, value) = (n * 7919 % 97, n % 13);
        rows.push_str(&format!("+I,{key},{value}\n"));
        if n % 3 == 0 {
            rows.push_str(&format!("-U,{key},{value}\n+U,{key},{}\n", value + 1));
        }
        if n % 7 == 0 && n % 3 != 0 {
            rows.push_str(&format!("-D,{key},{value}\n"));
        }
    }
    fs::write(folder.join("t.csv"), rows).expect("an input");
    let tables = file("t", "k INT, v INT", OP)
        + &file("o", "n BIGINT, k INT, PRIMARY KEY (n) NOT ENFORCED", UPSERT);
    let query = "INSERT INTO o SELECT SUM(v), k FROM t GROUP BY k;";
    let mut first: Option<(String, Vec<(String, String)>)> = None;
    for (order, workers, bundle_rows) in [
        ("arrival", 1, 65536),
        ("arrival", 1, 1),
        ("arrival", 4, 7),
        ("arrival", 4, 64),
        ("epoch", 1, 65536),
        ("epoch", 4, 7),
    ] {
        let set = format!(
            "SET 'pipeline.order' = '{order}'; SET 'pipeline.workers' = '{workers}';
             SET 'pipeline.bundle-rows-max' = '{bundle_rows}';"
        );
        execute(&folder, &format!("{tables} {set} {query}")).expect("it runs");
        let text = read(&folder, "o.csv");
        let keys = |left: &[(String, String)]| -> Vec<String> {
            left.iter().map(|(key, _)| key.clone()).collect()
        };
        let left = left_by_key(&text);
        let (bytes, expected) = first.get_or_insert_with(|| (text.clone(), left.clone()));
        let what = format!("{order}, {workers} workers, bundles of {bundle_rows}");
        if order == "arrival" {
            assert!(text == *bytes, "{what}: other bytes");
        }
        assert_eq!(keys(&left), keys(expected), "{what}");
    }
}
