//! Equal sub-plans are computed once, and what only looks equal is not. And sub-queries and joins
//! whose rows do not decide what they seem to.

use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use thalweg::session::Session;

use super::workspace;

const T: &str = "CREATE TABLE t (k INT, v STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
    ('connector' = 'filesystem', 'format' = 'csv', 'path' = 't.csv');";

fn folder(name: &str) -> PathBuf {
    let folder = workspace::folder(name);
    let rows = "1,aa,2024-01-01 00:00:01\n1,bb,2024-01-01 00:00:02\n2,zz,2024-01-01 00:01:03\n";
    fs::write(folder.join("t.csv"), rows).expect("an input");
    folder
}

fn execute(folder: &Path, script: &str) -> thalweg::Result<Vec<String>> {
    let options = workspace::options(folder);
    let batches = Session::new(options)?.execute(&format!("{T}{script}"))?;
    let texts = |column: &arrow_array::ArrayRef| -> Vec<String> {
        column.as_string_view().iter().map(|text| text.unwrap_or("-").to_owned()).collect()
    };
    let mut rows: Vec<String> =
        batches.iter().flat_map(|batch| texts(batch.columns().last().expect("a column"))).collect();
    rows.sort_unstable();
    Ok(rows)
}

/// The last column of a query's rows, which is a STRING, sorted.
fn rows(name: &str, script: &str) -> Vec<String> {
    execute(&folder(name), script).unwrap_or_else(|error| panic!("{script}: {error}"))
}

/// What two INSERTs of one statement set write into columns x of these types.
fn written(name: &str, types: [&str; 2], queries: [&str; 2], settings: &str) -> [String; 2] {
    let folder = folder(name);
    let table = |n: usize| {
        format!(
            "CREATE TABLE o{n} (x {}) WITH
               ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'o{n}.csv');",
            types[n]
        )
    };
    let insert = |n: usize| format!("INSERT INTO o{n} {};", queries[n]);
    let script = format!(
        "{settings}{}{}EXECUTE STATEMENT SET BEGIN {}{} END;",
        table(0),
        table(1),
        insert(0),
        insert(1)
    );
    execute(&folder, &script).unwrap_or_else(|error| panic!("{script}: {error}"));
    [0, 1].map(|n| fs::read_to_string(folder.join(format!("o{n}.csv"))).expect("it is written"))
}

/// The second of two aggregates that pruning made equal had 1970 as the end of its windows: it was
/// merged with one whose windows' ends nobody read.
#[test]
fn aggregates_are_one_only_if_the_same_columns_of_the_window_are_read() {
    let windows = |column: &str, more: &str| {
        format!(
            "SELECT CAST({column} AS STRING) FROM (SELECT {column}, COUNT(v) AS n {more}
               FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
               GROUP BY window_start, window_end) WHERE n > 0"
        )
    };
    let both = format!(
        "{} UNION ALL {};",
        windows("window_start", ""),
        windows("window_end", ", MAX(v) AS m")
    );
    let minutes = [0, 1, 1, 2].map(|minute| format!("2024-01-01 00:0{minute}:00.000"));
    assert_eq!(rows("sharing-windows", &both), minutes);
}

/// Each row drew the same number in both queries.
#[test]
fn queries_that_draw_do_so_each_for_itself() {
    let view = |name: &str| format!("CREATE VIEW {name} AS SELECT k, RAND() AS x FROM t;");
    let equal = |pair: &str| format!("SELECT CAST(COUNT(*) AS STRING) FROM {pair} ON a.x = b.x;");
    let batch = "SET 'execution.runtime-mode' = 'batch';";
    for (name, script) in [
        ("views", format!("{}{}{}", view("a"), view("b"), equal("a JOIN b"))),
        ("uses", format!("{}{}", view("w"), equal("w AS a JOIN w AS b"))),
        (
            "above",
            format!(
                "{}CREATE VIEW u AS SELECT x FROM w WHERE k > 0;{}",
                view("w"),
                equal("u AS a JOIN u AS b")
            ),
        ),
        ("with", format!("WITH w AS (SELECT RAND() AS x FROM t) {}", equal("w AS a JOIN w AS b"))),
    ] {
        assert_eq!(rows(&format!("sharing-{name}"), &format!("{batch}{script}")), ["0"], "{name}");
    }
    let kept = "SELECT CAST(COUNT(*) AS STRING) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts),
        INTERVAL '1' SECOND, INTERVAL '1000' SECOND)) WHERE k = 2 AND RAND() < 0.5;";
    let kept = rows("sharing-hop", &format!("{batch}{kept}"));
    assert!(kept != ["0"] && kept != ["1000"], "one draw decides for all windows: {kept:?}");
}

/// The text of a number or of NULL is the same in every type: the job panicked, since the second
/// table was given the first one's columns.
#[test]
fn constants_of_different_types_are_different() {
    let of = |value: &str| format!("SELECT {value} AS x FROM t WHERE k = 2");
    let cases = [
        (["INT", "BIGINT"], ["1", "CAST(1 AS BIGINT)"], ["1\n", "1\n"]),
        (
            ["DECIMAL(3, 1)", "DECIMAL(9, 1)"],
            ["1.5", "CAST(1.5 AS DECIMAL(9, 1))"],
            ["1.5\n", "1.5\n"],
        ),
        (
            ["STRING", "BIGINT"],
            ["CAST(NULL AS STRING)", "CAST(NULL AS BIGINT)"],
            ["\"\"\n", "\"\"\n"],
        ),
    ];
    for (place, (types, [first, second], expected)) in cases.into_iter().enumerate() {
        let queries = [of(first), of(second)];
        let name = format!("sharing-types{place}");
        assert_eq!(written(&name, types, [&queries[0], &queries[1]], ""), expected, "{types:?}");
    }
    let trims = "SET 'table.exec.sink.type-length-enforcer' = 'error';";
    let wide = written(
        "sharing-lengths",
        ["VARCHAR(2)", "VARCHAR(9)"],
        ["SELECT v AS x FROM t WHERE k = 2"; 2],
        trims,
    );
    assert_eq!(wide, ["zz\n", "zz\n"]);
    let sums = "SET 'execution.runtime-mode' = 'batch';
        SELECT CAST(SUM(2147483647) AS STRING) || ' ' || CAST(SUM(CAST(2147483647 AS BIGINT)) AS STRING) FROM t WHERE k = 1;";
    assert_eq!(rows("sharing-sums", sums), ["-2 4294967294"]);
}

/// The second list had the separator of the first.
#[test]
fn aggregates_of_a_match_are_one_only_with_the_same_constants() {
    let matches = "SELECT x || ' ' || y FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
        MEASURES LISTAGG(A.v, ',') AS x, LISTAGG(A.v, ';') AS y
        PATTERN (A{2}) DEFINE A AS A.v < 'c') AS m;";
    assert_eq!(rows("sharing-match", matches), ["aa,bb aa;bb"]);
}

/// EXISTS of such a sub-query asked whether there are rows to count.
#[test]
fn an_aggregate_without_group_by_has_a_row_whatever_it_reads() {
    let of = "(VALUES (1)) AS b (k) WHERE b.k = t.k";
    let none = "(VALUES (1)) AS b (k) WHERE b.k > 7";
    let cases = [
        (format!("EXISTS (SELECT 1 FROM {of})"), 2),
        (format!("EXISTS (SELECT COUNT(*) FROM {of})"), 3),
        (format!("EXISTS (SELECT COUNT(*) FROM {none})"), 3),
        (format!("EXISTS (WITH c AS (SELECT * FROM {none}) SELECT MAX(k) FROM c)"), 3),
        (format!("NOT EXISTS (SELECT COUNT(*) FROM {of})"), 0),
        (format!("NOT EXISTS (SELECT k + MAX(k) FROM {none} GROUP BY k)"), 3),
        (format!("EXISTS (SELECT COUNT(*) FROM {none} GROUP BY k)"), 0),
    ];
    for mode in ["streaming", "batch"] {
        for (condition, expected) in &cases {
            let script = format!(
                "SET 'execution.runtime-mode' = '{mode}'; SELECT v FROM t WHERE {condition};"
            );
            assert_eq!(rows("sharing-exists", &script).len(), *expected, "{condition}, {mode}");
        }
    }
}

/// A column of the right side was a panic.
#[test]
fn behind_a_semi_join_there_are_the_columns_of_the_left_side() {
    let folder = folder("sharing-semi");
    let join = |list: &str, on: &str| {
        execute(&folder, &format!("SELECT {list} FROM t AS a LEFT SEMI JOIN t AS b {on};"))
    };
    assert_eq!(join("a.v", "ON a.k = b.k AND b.v = 'zz'").expect("runs"), ["zz"]);
    assert_eq!(join("v", "USING (k)").expect("runs").len(), 3);
    for (list, on) in [("b.v", "ON a.k = b.k"), ("b.k", "USING (k)")] {
        let error = join(list, on).expect_err("b is no relation here");
        assert!(error.message().contains("no relation 'b'"), "{error}");
    }
}
