//! Changelogs in files: each row with what it does, refused where a table does not say so, and read
//! back.
//!
//! `what_golden_queries_write_reads_back` writes the changelogs of golden cases, reads them, and
//! compares what is left with what Flink had left.

use std::fs;
use std::path::{Path, PathBuf};

use super::workspace::{self, execute};

fn folder(name: &str) -> PathBuf {
    let folder = workspace::folder(name);
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
    execute(folder, &script)
}

#[test]
fn csv_has_a_first_column_that_says_what_each_row_does() {
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

#[test]
fn a_changelog_is_read_back() {
    let folder = folder("changelog-back");
    fs::write(folder.join("log.csv"), "+I,a,1\n+I,b,2\n-U,a,1\n+U,a,4\n-D,b,2\n")
        .expect("an input");
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

/// Golden cases whose results change.
const GOLDEN: [&str; 8] = [
    "dedup_last_proctime",
    "group_agg_changelog",
    "having_changelog",
    "null_keys_values",
    "order_by_limit_changelog",
    "regular_join_left_changelog",
    "topn_changelog",
    "topn_no_rownum_output",
];

#[test]
fn what_golden_queries_write_reads_back() {
    for case in GOLDEN {
        let folder = folder(&format!("changelog-{case}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(case);
        for name in ["in.csv", "in2.csv"] {
            let _ = fs::copy(source.join(name), folder.join(name));
        }
        let script = fs::read_to_string(source.join("query.sql")).expect("the query");
        let script = script.replace("@DIR@", &folder.display().to_string());
        let (tables, query) = script.split_at(script.find("\nSELECT").expect("a query") + 1);
        let query = query.trim_end().trim_end_matches(';');
        for (format, order) in [
            ("csv", "epoch"),
            ("json", "epoch"),
            ("parquet", "epoch"),
            ("csv", "arrival"),
            ("json", "arrival"),
        ] {
            check_read_back(case, &folder, (tables, query), (format, order));
        }
    }
}

fn check_read_back(
    case: &str,
    folder: &Path,
    (tables, query): (&str, &str),
    (format, order): (&str, &str),
) {
    let mut session = workspace::session(folder);
    session.execute(tables).expect("tables");
    let schema = session.result_schema(query).expect("the types of the result");
    let columns = schema.columns.iter();
    let columns = columns.map(|c| format!("`{}` {}", c.name, c.column_type.data_type));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let null = |format: &str| if format == "csv" { ", 'csv.null-literal' = '\\N'" } else { "" };
    let table = |name: &str, format: &str| {
        format!(
            "CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'changelog' = 'op',
               'format' = '{format}', 'path' = '{name}.{format}' {});",
            null(format)
        )
    };
    let script = format!(
        "{} {} SET 'pipeline.order' = '{order}';
         SET 'table.dml-sync' = 'true';
         INSERT INTO log {query}; INSERT INTO back SELECT * FROM log;",
        table("log", format),
        table("back", "csv")
    );
    let what = format!("{case} as {format} in {order}");
    session.execute(&script).unwrap_or_else(|error| panic!("{what}: {error}"));
    let back = fs::read_to_string(folder.join("back.csv")).expect("it is written");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(case);
    let expected = fs::read_to_string(golden.join("final.csv")).expect("what Flink had left");
    let mut expected: Vec<&str> = expected.lines().skip(1).collect();
    expected.sort_unstable();
    assert_eq!(left(&back, &what), expected, "{what}");
    if format == "csv" && order == "arrival" {
        assert_eq!(back, fs::read_to_string(folder.join("log.csv")).expect("written"), "{what}");
    }
}

/// What is left when all changes were applied, sorted.
fn left<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    let mut left: Vec<&str> = Vec::new();
    for line in text.lines() {
        let (op, row) = line.split_once(',').expect("an op");
        match op {
            "+I" | "+U" => left.push(row),
            _ => {
                let found = left.iter().position(|other| *other == row);
                left.remove(found.unwrap_or_else(|| panic!("{what}: {line} is not there")));
            }
        }
    }
    left.sort_unstable();
    left
}

#[test]
fn an_unknown_op_is_bad_data() {
    let folder = folder("changelog-bad-op");
    let tables = |format: &str, more: &str| {
        format!(
            "CREATE TABLE log (k STRING, v INT) WITH ('connector' = 'filesystem',
               'changelog' = 'op', 'format' = '{format}', 'path' = 'log.{format}' {more});
             CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv',
               'path' = 'out.csv', 'changelog' = 'op');
             INSERT INTO o SELECT COUNT(*) FROM log;"
        )
    };
    fs::write(folder.join("log.csv"), "+I,a,1\nI,b,2\n+I,c,3\n").expect("an input");
    let json = "{\"op\":\"+I\",\"k\":\"a\",\"v\":1}\n{\"k\":\"b\",\"v\":2}\n";
    fs::write(folder.join("log.json"), json).expect("an input");
    for (format, place) in [("csv", "log.csv"), ("json", "log.json")] {
        let error = execute(&folder, &tables(format, "")).expect_err("bad data");
        let text = format!("{error:?} {error}");
        assert!(text.contains(place) && text.contains("op is"), "{text}");
        assert!(text.contains('2'), "the line is named: {text}");
    }
    execute(&folder, &tables("csv", ", 'bad-data' = 'drop'")).expect("it is dropped");
    let text = fs::read_to_string(folder.join("out.csv")).expect("it is written");
    assert_eq!(text.lines().last(), Some("+U,2"));
    let error = execute(&folder, &tables("csv", ", 'csv.ignore-parse-errors' = 'true'"));
    error.expect("the row is left out");
}

/// A deletion takes its row out of the window, which is emitted once.
#[test]
fn windows_count_what_is_left_of_a_table_of_changes() {
    let folder = folder("changelog-counted");
    let rows = "+I,a,2024-01-01 00:00:01\n+I,b,2024-01-01 00:00:02\n\
                -D,b,2024-01-01 00:00:02\n+I,c,2024-01-01 00:01:00\n";
    fs::write(folder.join("in.csv"), rows).expect("an input");
    let script = "CREATE TABLE log (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
          ('connector' = 'filesystem', 'changelog' = 'op', 'format' = 'csv', 'path' = 'in.csv');
        CREATE TABLE o (at TIMESTAMP(3), c BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
        INSERT INTO o SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE log, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end;";
    execute(&folder, script).expect("it runs");
    let text = fs::read_to_string(folder.join("out.csv")).expect("it is written");
    let counts: Vec<&str> = text.lines().filter_map(|line| line.rsplit(',').next()).collect();
    assert_eq!(counts, ["1", "1"], "{text}");
}

/// What needs rows that stay refuses a table of changes by name.
#[test]
fn what_needs_rows_that_stay_refuses_changes() {
    let folder = folder("changelog-window");
    let table = "CREATE TABLE log (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
        ('connector' = 'filesystem', 'changelog' = 'op', 'format' = 'csv', 'path' = 'in.csv');";
    for query in [
        "SELECT * FROM log ORDER BY ts",
        "SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts) FROM log",
        "SELECT a.k FROM log a JOIN log b ON a.k = b.k
           AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts",
    ] {
        let error = execute(&folder, &format!("{table} {query};")).expect_err(query).to_string();
        assert!(error.contains("table 'log' holds changes"), "{query}: {error}");
    }
}

/// Two changelogs that meet, each sorted by time, in all contracts.
#[test]
fn changelogs_meet_in_joins() {
    let folder = folder("changelog-join");
    let day = |second: u32| format!("2024-01-01 00:00:0{second}");
    let left_rows = [("+I", 1, 1), ("+I", 2, 2), ("-U", 1, 3), ("+U", 5, 3), ("-D", 2, 5)];
    let right_rows = [("+I", 1, 1), ("+I", 5, 2), ("+I", 2, 3), ("-D", 5, 6), ("+I", 5, 7)];
    for (name, rows) in [("l", left_rows), ("r", right_rows)] {
        let line = |(op, k, time): (&str, i32, u32)| format!("{op},{k},{}\n", day(time));
        // Times say when a change was made, so that a row that goes has another one than it came
        // with.
        let text: String = rows.into_iter().map(line).collect();
        fs::write(folder.join(format!("{name}.csv")), text).expect("an input");
    }
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
               ('connector' = 'filesystem', 'changelog' = 'op', 'format' = 'csv',
                'path' = '{name}.csv');"
        )
    };
    let mut texts = Vec::new();
    for order in ["epoch", "arrival", "event_time", "event_time"] {
        let script = format!(
            "{} {} CREATE TABLE o (k INT, other INT) WITH ('connector' = 'filesystem',
               'changelog' = 'op', 'format' = 'csv', 'path' = 'out.csv');
             SET 'pipeline.order' = '{order}';
             INSERT INTO o SELECT x.k, y.k FROM (SELECT k FROM l) x LEFT JOIN (SELECT k FROM r) y
               ON x.k = y.k;",
            table("l"),
            table("r")
        );
        execute(&folder, &script).unwrap_or_else(|error| panic!("{order}: {error}"));
        let text = fs::read_to_string(folder.join("out.csv")).expect("it is written");
        assert_eq!(left(&text, order), ["5,5"], "{order}");
        texts.push(text);
    }
    assert_eq!(texts[2], texts[3], "event_time depends on the data alone");
}
