//! Declarations that change others, names with databases, and sub-queries as values, through the
//! library.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch};
use thalweg::session::Session;
use thalweg::{Error, Result};
use thalweg_core::DataType;
use thalweg_expr::ScalarFunction;

const ROWS: &str =
    "CREATE VIEW t AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'b')) AS v (n, s);";

/// The rows of the last result as text, sorted, with NULL as `-`.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayRef| match column.is_null(row) {
                true => "-".to_owned(),
                false => arrow_cast::display::array_value_to_string(column, row).expect("text"),
            };
            rows.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join(" "));
        }
    }
    rows.sort();
    rows
}

fn run(sql: &str) -> Vec<String> {
    rows(&Session::default().execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn refused(sql: &str) -> Error {
    match Session::default().execute(sql) {
        Err(error) => error,
        Ok(_) => panic!("{sql}: runs"),
    }
}

#[test]
fn names_are_looked_up_in_the_current_database() {
    let objects = "CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'default-database' = 'd');
        USE CATALOG c; CREATE VIEW v AS SELECT 1 AS n; CREATE VIEW w AS SELECT n + 1 AS n FROM v;
        CREATE DATABASE e; USE e; CREATE VIEW v AS SELECT 10 AS n; USE CATALOG default_catalog;
        CREATE VIEW v AS SELECT 100 AS n;";
    let values = run(&format!(
        "{objects} SELECT v.n AS a, x.n AS b, y.n AS c FROM v, c.d.w AS x, c.e.v AS y;"
    ));
    // The view w means the v of its own database.
    assert_eq!(values, ["100 2 10"]);
    assert_eq!(
        run(&format!("{objects} USE c.e; SELECT e.v.n, c.e.v.n, v.n FROM v;")),
        ["10 10 10"]
    );
    assert_eq!(run(&format!("{objects} SHOW TABLES FROM c.d LIKE '%v%';")), ["v"]);
    assert_eq!(run(&format!("{objects} SHOW DATABASES FROM c;")), ["d", "e"]);
    assert_eq!(run(&format!("{objects} USE c.e; SHOW CURRENT DATABASE;")), ["e"]);
    let error = refused(&format!("{objects} DROP DATABASE c.e;"));
    assert!(error.message().contains("not empty"), "{error}");
    assert_eq!(run(&format!("{objects} DROP DATABASE c.e CASCADE; SHOW DATABASES IN c;")), ["d"]);
    let error = refused("CREATE TABLE no.such.t (a INT) WITH ('connector' = 'print');");
    assert!(error.message().contains("no catalog no"), "{error}");
    assert_eq!(error.span().map(|span| span.column), Some(14));
}

#[test]
fn tables_are_altered_for_the_statements_that_follow() {
    let table = "CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3)) WITH
        ('connector' = 'datagen', 'number-of-rows' = '2', 'fields.a.kind' = 'sequence',
         'fields.a.start' = '1', 'fields.a.end' = '2');";
    let changes = "ALTER TABLE t ADD (c AS a * 10 AFTER a, WATERMARK FOR ts AS ts);
        ALTER TABLE t RENAME b TO name; ALTER TABLE t MODIFY name STRING NOT NULL FIRST;
        ALTER TABLE t ADD PRIMARY KEY (a) NOT ENFORCED;";
    let described = "name STRING FALSE   \na INT FALSE PRI(a)  \nc INT FALSE  AS a * 10 \nts TIMESTAMP(3) TRUE   ts";
    let described: Vec<&str> = described.lines().collect();
    let mut found = run(&format!("{table}{changes} DESCRIBE t;"));
    found.sort_by_key(|row| described.iter().position(|known| known == row));
    assert_eq!(found, described);
    let undone = "ALTER TABLE t DROP WATERMARK; ALTER TABLE t DROP PRIMARY KEY; ALTER TABLE t DROP (name, ts);
        ALTER TABLE t SET ('fields.a.end' = '3', 'number-of-rows' = '3'); ALTER TABLE t RENAME TO u;";
    assert_eq!(
        run(&format!("{table}{changes}{undone} SELECT a, c FROM u;")),
        ["1 10", "2 20", "3 30"]
    );
    let shown = run(&format!("{table}{changes} SHOW CREATE TABLE t;"));
    assert!(shown[0].contains("CONSTRAINT `PK_a` PRIMARY KEY (`a`) NOT ENFORCED"), "{shown:?}");
    for (change, part) in [
        ("ALTER TABLE t DROP a;", "there is no column 'a'"),
        ("ALTER TABLE t ADD a INT;", "has a column a already"),
        ("ALTER TABLE t MODIFY d INT;", "has no column d"),
        ("ALTER TABLE t DROP ts;", "is its row time"),
        ("ALTER TABLE t RESET ('connector');", "can't be reset"),
    ] {
        let computed = "ALTER TABLE t ADD (c AS a * 10, WATERMARK FOR ts AS ts);";
        let error = refused(&format!("{table}{computed}{change}"));
        assert!(error.message().contains(part), "{change}: {error}");
        assert!(error.span().is_some(), "{change}: {error}");
    }
}

#[test]
fn a_table_takes_over_parts_of_another_one() {
    let base = "CREATE TABLE b (a INT, ts TIMESTAMP(3), c AS a + 1, WATERMARK FOR ts AS ts)
        WITH ('connector' = 'datagen', 'number-of-rows' = '1');";
    let columns = |like: &str| {
        run(&format!("{base} CREATE TABLE t {like}; SHOW COLUMNS FROM t;"))
            .iter()
            .filter_map(|row| row.split(' ').next().map(str::to_owned))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(columns("LIKE b"), "a c ts");
    assert_eq!(columns("(d INT) LIKE b (EXCLUDING GENERATED)"), "a d ts");
    let error = refused(&format!("{base} CREATE TABLE t (a INT) LIKE b;"));
    assert!(error.message().contains("column a already"), "{error}");
    let error = refused(&format!("{base} CREATE TABLE t (WATERMARK FOR ts AS ts) LIKE b;"));
    assert!(error.help().is_some_and(|help| help.contains("EXCLUDING WATERMARKS")), "{error}");
    let shown = run(&format!(
        "{base} CREATE TABLE t (c AS a + 2) WITH ('number-of-rows' = '7') LIKE b (OVERWRITING GENERATED);
         SHOW CREATE TABLE t;"
    ));
    assert!(shown[0].contains("`c` AS a + 2") && shown[0].contains("'number-of-rows' = '7'"));
}

#[test]
fn functions_have_the_names_that_sql_gives_them() {
    let twice = |arguments: &[ArrayRef], _: usize| -> Result<ArrayRef> {
        let numbers = arguments[0].as_primitive::<Int32Type>();
        Ok(Arc::new(Int32Array::from_iter(numbers.iter().map(|n| n.map(|n| n * 2)))))
    };
    let mut session = Session::default();
    session.register_function(ScalarFunction {
        name: "com.example.twice".to_owned(),
        arguments: vec![DataType::Int],
        result: DataType::Int.nullable(),
        deterministic: true,
        function: Arc::new(twice),
    });
    let mut run = |sql: &str| session.execute(sql);
    let created = "CREATE FUNCTION double_it AS 'com.example.Twice' LANGUAGE RUST;";
    let shown = run(&format!("{created} SELECT double_it(21) AS a, DOUBLE_IT(4) AS b;"));
    assert_eq!(rows(&shown.expect("runs")), ["42 8"]);
    assert_eq!(rows(&run("SHOW USER FUNCTIONS;").expect("lists")), ["double_it"]);
    let error = run("CREATE FUNCTION f AS 'no.such.Class'; SELECT f(1);").expect_err("no Java");
    assert!(error.help().is_some_and(|help| help.contains("no JAVA code runs here")), "{error}");
    let error = run("CREATE FUNCTION double_it AS 'x';").expect_err("there is one");
    assert!(error.message().contains("already"), "{error}");
    let dropped = run("DROP FUNCTION double_it; SELECT double_it(1);").expect_err("it is gone");
    assert!(dropped.message().contains("there is no function"), "{dropped}");
}

#[test]
fn sub_queries_are_values_of_rows() {
    let batch = "SET 'execution.runtime-mode' = 'batch';";
    for (query, expected) in [
        ("SELECT n FROM t WHERE n > (SELECT AVG(n) FROM t)", "3"),
        ("SELECT n, (SELECT COUNT(*) FROM t AS u WHERE u.s = t.s) AS c FROM t", "1 1, 2 2, 3 2"),
        (
            "SELECT n, (SELECT COUNT(*) FROM t AS u WHERE u.n = t.n + 1) AS c FROM t",
            "1 1, 2 1, 3 0",
        ),
        ("SELECT n, (SELECT u.s FROM t AS u WHERE u.n = t.n + 1) AS c FROM t", "1 b, 2 b, 3 -"),
        ("SELECT n FROM t WHERE n = 1 OR s IN (SELECT s FROM t WHERE n = 3)", "1, 2, 3"),
        (
            "SELECT n FROM t WHERE n = 1 OR NOT EXISTS (SELECT 1 FROM t AS u WHERE u.n > 3)",
            "1, 2, 3",
        ),
        ("SELECT n FROM t WHERE (n, s) IN (SELECT n + 1, s FROM t)", "3"),
        ("SELECT n FROM t WHERE (n, s) NOT IN (SELECT n + 1, s FROM t)", "1, 2"),
        ("SELECT n FROM t WHERE n >= ALL (SELECT n FROM t)", "3"),
        ("SELECT n FROM t WHERE n < ANY (SELECT n FROM t WHERE s = 'b')", "1, 2"),
        ("SELECT n FROM t WHERE n > ALL (SELECT n FROM t WHERE n > 5)", "1, 2, 3"),
        ("SELECT n FROM t WHERE n <> ALL (SELECT n FROM t WHERE s = 'b')", "1"),
        ("SELECT n FROM t WHERE n IN (SELECT u.n FROM t AS u WHERE u.s = t.s AND u.n > 2)", "3"),
        (
            "SELECT s, COUNT(*) AS c FROM t GROUP BY s HAVING COUNT(*) > (SELECT MIN(n) FROM t)",
            "b 2",
        ),
        ("SELECT s, MAX(n) - (SELECT MIN(n) FROM t) AS d FROM t GROUP BY s", "a 0, b 2"),
        ("SELECT n, n IN (SELECT NULLIF(n, 2) FROM t) AS i FROM t", "1 true, 2 -, 3 true"),
        (
            "SELECT n, s FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY n DESC) = 1",
            "1 a, 3 b",
        ),
        (
            "SELECT n, SUM(n) OVER (ORDER BY n ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS a FROM t QUALIFY a > 3",
            "2 5",
        ),
        ("SELECT * FROM (SELECT t.*, u.* FROM t JOIN t AS u ON t.n = u.n) WHERE n0 = 2", "2 b 2 b"),
    ] {
        assert_eq!(run(&format!("{batch}{ROWS}{query};")).join(", "), expected, "{query}");
    }
    let error = refused(&format!("{batch}{ROWS} SELECT n FROM t WHERE n = (SELECT n FROM t);"));
    assert!(error.message().contains("stands for one value has 3 rows"), "{error}");
    let error = refused(&format!("{ROWS} SELECT (SELECT u.n FROM t AS u WHERE u.n > t.n) FROM t;"));
    assert!(error.message().contains("compares with the query around by ="), "{error}");
}

#[test]
fn over_windows_of_batch_jobs_take_any_order_and_any_frame() {
    let batch = "SET 'execution.runtime-mode' = 'batch';";
    for (query, expected) in [
        ("SELECT n, SUM(n) OVER (PARTITION BY s) AS a FROM t", "1 1, 2 5, 3 5"),
        ("SELECT n, RANK() OVER (ORDER BY s DESC) AS a FROM t", "1 3, 2 1, 3 1"),
        (
            "SELECT n, SUM(n) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a FROM t",
            "1 3, 2 6, 3 5",
        ),
        ("SELECT n, LEAD(s, 1, 'z') OVER (ORDER BY n DESC) AS a FROM t", "1 z, 2 a, 3 b"),
        ("SELECT n, NTILE(2) OVER (ORDER BY n) AS a FROM t", "1 1, 2 1, 3 2"),
    ] {
        assert_eq!(run(&format!("{batch}{ROWS}{query};")).join(", "), expected, "{query}");
    }
}

#[test]
fn explain_shows_the_details_that_are_named() {
    let explained = run(&format!(
        "{ROWS} EXPLAIN CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE SELECT s, COUNT(*) FROM t GROUP BY s;"
    ));
    for part in ["changes: I, UB, UA, D", "\"predecessors\"", "== Advice =="] {
        assert!(explained[0].contains(part), "{part}: {}", explained[0]);
    }
    let table = "EXPLAIN CREATE TABLE o WITH ('connector' = 'blackhole') AS SELECT n FROM t;";
    assert!(run(&format!("{ROWS}{table}"))[0].contains("== Stages =="));
}

/// The results of a window of processing time are rows of no window: grouped by its columns again
/// they make results that change.
#[test]
fn windows_of_processing_time_are_grouped_again() {
    let clicks = "CREATE TABLE clicks (n INT, p AS PROCTIME()) WITH ('connector' = 'datagen',
          'rows-per-second' = 'unlimited', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1',
          'fields.n.end' = '1000');
        CREATE VIEW by_digit AS SELECT window_start, window_end, n % 10 AS d, COUNT(*) AS c
          FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(p), INTERVAL '1' SECOND))
          GROUP BY window_start, window_end, n % 10;
        CREATE VIEW by_window AS SELECT window_start, window_end, SUM(c) AS c FROM by_digit
          WHERE d <> 3 GROUP BY window_start, window_end;";
    let total = run(&format!("{clicks} SELECT SUM(c) AS c FROM by_window;"));
    assert!(total.contains(&"900".to_owned()), "{total:?}");
    let explained = run(&format!("{clicks} EXPLAIN SELECT c FROM by_window;"));
    assert!(explained[0].contains("\n  #1 Aggregate by [$0, $1]"), "{explained:?}");
}
