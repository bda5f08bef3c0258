//! Tests of whole statements: every golden query, each kind of statement, each window form, the
//! words of errors, and that no text makes the parser panic.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::ast::{Query, Show, StatementKind, TableColumnKind, WindowInput};

fn one(text: &str) -> StatementKind {
    let mut statements =
        parse_script(text).unwrap_or_else(|e| panic!("{text}: {e:?} {:?}", e.span()));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0).kind
}

fn query_of(text: &str) -> Query {
    match one(text) {
        StatementKind::Select(query) => query,
        other => panic!("{text}: {other:?}"),
    }
}

/// Message, help, line and column of the error.
fn refused(text: &str) -> (String, String, u32, u32) {
    let error = parse_script(text).expect_err(text);
    let span = error.span().unwrap_or_default();
    (error.to_string(), error.help().unwrap_or_default().to_owned(), span.line, span.column)
}

/// Every query that a real Flink was given.
fn golden_texts() -> Vec<(String, String)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"));
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("tests/golden is part of the repository") {
        let path = entry.expect("an entry").path().join("query.sql");
        if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path.display().to_string(), text));
        }
    }
    assert!(texts.len() >= 85, "only {} golden queries", texts.len());
    texts
}

#[test]
fn every_golden_query_parses() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/known.tsv");
    let known = std::fs::read_to_string(folder).expect("known differences");
    let is_known = |name: &str| {
        let cases = known.lines().filter_map(|line| line.split('\t').next());
        cases.into_iter().any(|case| name.ends_with(&format!("/{case}/query.sql")))
    };
    for (name, text) in golden_texts() {
        match parse_script(&text) {
            Err(error) if !is_known(&name) => panic!("{name}: {error} at {:?}", error.span()),
            _ => {}
        }
    }
}

#[test]
fn the_examples_parse() {
    for file in ["delays.sql", "delays_24h.sql"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flights/");
        let text = std::fs::read_to_string(format!("{folder}{file}")).expect("an example");
        let statements = parse_script(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let last = statements.last().map(|s| &s.kind);
        assert!(matches!(last, Some(StatementKind::StatementSet(inserts)) if inserts.len() == 2));
    }
}

#[test]
fn a_table_is_read_with_all_its_parts() {
    let text = "CREATE TEMPORARY TABLE IF NOT EXISTS default_catalog.default_database.`t t` (
        a INT NOT NULL COMMENT 'a', b AS a * 2 + f(a, 3) COMMENT 'b',
        m STRING NOT NULL METADATA FROM 'file.name' VIRTUAL, n BIGINT METADATA,
        ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
        CONSTRAINT pk PRIMARY KEY (a, ts) NOT ENFORCED
      ) COMMENT 'it''s' PARTITIONED BY (a) WITH ('connector' = 'x', 'k' = 'v');";
    let StatementKind::CreateTable(table) = one(text) else { panic!() };
    let path = "default_catalog.default_database.t t";
    assert_eq!((table.name.text.as_str(), table.if_not_exists), (path, true));
    assert_eq!(table.comment.as_deref(), Some("it's"));
    let shown: Vec<String> = table
        .columns
        .iter()
        .map(|c| match &c.kind {
            TableColumnKind::Physical(column_type) => format!("{} {column_type}", c.name.text),
            TableColumnKind::Computed(expression) => format!("{} = {expression}", c.name.text),
            TableColumnKind::Metadata { column_type, key, is_virtual } => {
                format!("{} {column_type} {key} {is_virtual}", c.name.text)
            }
        })
        .collect();
    let expected = [
        "a INT NOT NULL",
        "b = a * 2 + f(a, 3)",
        "m STRING NOT NULL file.name true",
        "n BIGINT n false",
        "ts TIMESTAMP(3) NOT NULL",
    ];
    assert_eq!(shown, expected);
    let watermark = table.watermark.expect("there is one");
    assert_eq!(
        (watermark.column.text.as_str(), watermark.expression.to_string().as_str()),
        ("ts", "ts - INTERVAL '5' SECOND")
    );
    assert_eq!(table.primary_key.len(), 2);
    assert_eq!(table.partitioned_by.len(), 1);
    let options: Vec<_> =
        table.options.iter().map(|(k, v)| (k.text.as_str(), v.text.as_str())).collect();
    assert_eq!(options, [("connector", "x"), ("k", "v")]);
    let span = table.options[1].0.span;
    assert_eq!((span.line, span.column, span.end_column), (6, 69, 72));
}

#[test]
fn each_kind_of_statement_is_recognized() {
    assert!(matches!(
        one("DROP TEMPORARY VIEW IF EXISTS v"),
        StatementKind::Drop { is_view: true, if_exists: true, .. }
    ));
    assert!(
        matches!(one("show create table t"), StatementKind::Show(Show::CreateTable(n)) if n.text == "t")
    );
    assert!(matches!(one("\u{feff}SHOW TABLES;"), StatementKind::Show(Show::Tables(_))));
    assert!(matches!(one("DESC t"), StatementKind::Describe(n) if n.text == "t"));
    assert!(matches!(one("SHOW CONNECTORS"), StatementKind::Show(Show::Connectors)));
    for text in ["DESCRIBE CONNECTOR upsert-kafka", "DESC connector 'upsert-kafka'"] {
        let StatementKind::Show(Show::Connector(name)) = one(text) else { panic!("{text}") };
        assert_eq!(name.text, "upsert-kafka");
    }
    assert!(
        matches!(one("DESCRIBE connector"), StatementKind::Describe(n) if n.text == "connector")
    );
    assert!(matches!(one("RESET"), StatementKind::Reset(None)));
    assert!(matches!(one("RESET 'a.b'"), StatementKind::Reset(Some(k)) if k.text == "a.b"));
    assert!(
        matches!(one("SET 'a.b' = '30 s'"), StatementKind::Set { key, value } if key.text == "a.b" && value == "30 s")
    );
    assert!(
        matches!(one("SET a.b-c = 30 s;"), StatementKind::Set { key, value } if key.text == "a.b-c" && value == "30 s")
    );
    assert!(matches!(one("SET;"), StatementKind::Show(Show::Settings)));
    assert!(matches!(one("VALUES (1, 'a'), (2, 'b')"), StatementKind::Select(_)));
    assert!(matches!(one("WITH c AS (SELECT 1) SELECT * FROM c"), StatementKind::Select(_)));
    assert!(matches!(one("(SELECT 1) UNION ALL (SELECT 2)"), StatementKind::Select(_)));
    assert!(
        matches!(one("CREATE VIEW v (a, b) AS SELECT 1, 2"), StatementKind::CreateView { columns, .. } if columns.len() == 2)
    );
    let StatementKind::Insert(insert) = one("INSERT INTO t (a, b) VALUES (1, 2)") else { panic!() };
    assert_eq!(insert.columns.len(), 2);
    let StatementKind::Insert(insert) = one("INSERT INTO t (SELECT a FROM b)") else { panic!() };
    assert_eq!((insert.columns.len(), insert.query.text.as_str()), (0, "(SELECT a FROM b)"));
}

#[test]
fn statement_sets_in_both_forms_and_explained() {
    let sets = [
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t; INSERT INTO b SELECT 2; END;",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;",
    ];
    for text in sets {
        assert!(
            matches!(one(text), StatementKind::StatementSet(inserts) if inserts.len() == 2),
            "{text}"
        );
    }
    let explained = [
        "EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END",
        "EXPLAIN PLAN FOR EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END",
        "EXPLAIN ESTIMATED_COST, CHANGELOG_MODE INSERT INTO a SELECT 1",
        "EXPLAIN SELECT 1",
    ];
    for text in explained {
        assert!(matches!(one(text), StatementKind::Explain(_)), "{text}");
    }
    let two = parse_script("EXPLAIN SELECT 1; SELECT 2").expect("two statements");
    assert_eq!((two.len(), two[1].span.column), (2, 19));
}

#[test]
fn window_calls_are_taken_out_in_each_form() {
    let forms = [
        ("TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))", "TUMBLE", 1),
        (
            "TABLE(TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR, `OFFSET` => INTERVAL '1' MINUTE))",
            "TUMBLE",
            2,
        ),
        (
            "LATERAL TABLE(HOP(TABLE t, DESCRIPTOR(`ts`), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
            "HOP",
            2,
        ),
        (
            "table(cumulate(table t, descriptor(ts), interval '1' hour, interval '2' hour, interval '1' second))",
            "CUMULATE",
            3,
        ),
        (
            "TABLE(HOP(SIZE => INTERVAL '2' HOUR, SLIDE => INTERVAL '1' HOUR, TIMECOL => DESCRIPTOR(ts), DATA => TABLE t))",
            "HOP",
            2,
        ),
        ("TUMBLE(t, ts, INTERVAL '1' HOUR)", "TUMBLE", 1),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "TUMBLE", 1),
    ];
    for (form, function, intervals) in forms {
        let query = query_of(&format!("SELECT a, b FROM {form} AS w WHERE a > 1"));
        assert_eq!(query.windows.len(), 1, "{form}");
        let window = &query.windows[0];
        assert_eq!((window.function.name, window.intervals.len()), (function, intervals), "{form}");
        assert_eq!(window.time_column.text, "ts");
        assert!(matches!(&window.input, WindowInput::Table(name) if name.text == "t"), "{form}");
        assert_eq!(window.is_short, form.starts_with("TUMBLE"), "{form}");
        let tree = query.query.to_string();
        assert!(tree.contains(&format!("FROM `{}` AS w WHERE", window.placeholder)), "{tree}");
    }
    let hop = query_of(
        "SELECT 1 FROM TABLE(HOP(SIZE => INTERVAL '2' HOUR, SLIDE => INTERVAL '1' HOUR, TIMECOL => DESCRIPTOR(ts), DATA => TABLE t))",
    );
    assert_eq!(
        hop.windows[0].intervals[0].to_string(),
        "INTERVAL '1' HOUR",
        "slide first, as in positions"
    );
}

#[test]
fn sessions_have_partitions_and_inputs_can_be_queries() {
    let forms = [
        ("TABLE(SESSION(TABLE t PARTITION BY a, b, DESCRIPTOR(ts), INTERVAL '5' SECOND))", 2),
        ("TABLE(SESSION(TABLE t PARTITION BY (a, b), DESCRIPTOR(ts), INTERVAL '5' SECOND))", 2),
        (
            "TABLE(SESSION(DATA => TABLE t PARTITION BY a, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '5' SECOND))",
            1,
        ),
        ("SESSION(t PARTITION BY a, ts, INTERVAL '5' SECOND)", 1),
        ("TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))", 0),
    ];
    for (form, partitions) in forms {
        let query = query_of(&format!("SELECT 1 FROM {form}"));
        let window = &query.windows[0];
        assert_eq!(window.partition_by.len(), partitions, "{form}");
        assert_eq!((window.time_column.text.as_str(), window.function.name), ("ts", "SESSION"));
    }
    let text = "SELECT 1 FROM TABLE(TUMBLE((SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(x), \
        INTERVAL '1' SECOND)) WHERE y), DESCRIPTOR(ts), INTERVAL '1' HOUR)) JOIN TUMBLE(u, ts, INTERVAL '2' HOUR) ON 1 = 1";
    let query = query_of(text);
    assert_eq!(query.windows.len(), 2);
    let WindowInput::Query(inner) = &query.windows[0].input else { panic!() };
    assert_eq!(inner.windows.len(), 1);
    assert!(inner.text.starts_with("SELECT * FROM") && inner.text.ends_with("WHERE y"));
    let names: std::collections::HashSet<_> =
        query.windows.iter().chain(&inner.windows).map(|w| w.placeholder.clone()).collect();
    assert_eq!(names.len(), 3, "placeholders are unique");
}

#[test]
fn old_group_windows_stay_calls() {
    let query = query_of(
        "SELECT item, TUMBLE_END(ts, INTERVAL '1' HOUR), EXTRACT(DAY FROM HOP(a, b)) FROM a, b \
        GROUP BY item, TUMBLE(ts, INTERVAL '1' HOUR)",
    );
    assert!(query.windows.is_empty());
    assert!(query.query.to_string().contains("TUMBLE(ts, INTERVAL '1' HOUR)"));
    let both = query_of(
        "SELECT 1 FROM a, TUMBLE(b, ts, INTERVAL '1' HOUR) GROUP BY x, TUMBLE(ts, INTERVAL '1' HOUR)",
    );
    assert_eq!(both.windows.len(), 1);
}

#[test]
fn expressions_of_the_dialect_parse() {
    let expressions = [
        "TIMESTAMPDIFF(SECOND, a, b)",
        "TIMESTAMPADD(HOUR, 3, t)",
        "INTERVAL '1.5' SECOND",
        "INTERVAL '1' DAY(3)",
        "INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL '1 2:03:04.5' DAY TO SECOND(3)",
        "FLOOR(x TO MINUTE)",
        "CEILING(x TO HOUR)",
        "CAST(x AS STRING)",
        "CAST(x AS TIMESTAMP_LTZ(3))",
        "TRY_CAST(x AS ROW<a INT, b ARRAY<STRING>>)",
        "CAST(CAST(x AS MAP<STRING, INT>) AS TIMESTAMP(3) WITH LOCAL TIME ZONE)",
        "SUBSTRING(a FROM b FOR 2)",
        "a SIMILAR TO '[a-c]'",
        "OVERLAY('a' PLACING 'b' FROM 2 FOR 3)",
        "ARRAY[1, 2][1]",
        "MAP['a', 1, 'b', ARRAY[2]]",
        "MAP['a', 1]['a']",
        "x IS DISTINCT FROM y",
        "x IS NOT DISTINCT FROM y",
        "x IS JSON",
        "x IS NOT JSON OBJECT",
        "x IS NOT TRUE",
        "x IS UNKNOWN",
        "DATE '2026-01-01'",
        "TIME '10:00:00'",
        "TIMESTAMP '2026-01-01 00:00:00'",
        "COUNT(DISTINCT a) FILTER (WHERE b)",
        "SUM(x) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "POSITION('l' IN x)",
        "TRIM(BOTH 'x' FROM y)",
        "EXTRACT(DOW FROM d)",
        "CURRENT_TIMESTAMP",
        "PROCTIME()",
        "a NOT BETWEEN 1 AND 2",
        "a LIKE 'x!%' ESCAPE '!'",
        "x'0aff'",
        "(a, b) IN ((1, 2))",
        "ROW(1, 'a')",
        "a.b.c",
        "U&'\\00e9'",
        "CASE a WHEN 1 THEN 'x' ELSE NULL END",
        "-a % 3",
        "a <> b AND NOT c OR d",
        "LISTAGG(a, ',')",
        "LOCALTIMESTAMP",
    ];
    for text in expressions {
        if let Err(error) = parse_expression(text) {
            panic!("{text}: {error} {:?}", error.span());
        }
    }
}

#[test]
fn tables_and_clauses_of_the_dialect_parse() {
    let tables = [
        "t CROSS JOIN UNNEST(a) AS u(x)",
        "t, LATERAL TABLE(f(x)) AS g(a, b)",
        "t LEFT JOIN LATERAL TABLE(f(x)) AS g(a) ON TRUE",
        "t FOR SYSTEM_TIME AS OF x.pt AS d",
        "(VALUES (1, 2)) AS v(a, b)",
        "((SELECT 1) UNION ALL SELECT 2) x",
        "a NATURAL JOIN b",
    ];
    for table in tables {
        query_of(&format!("SELECT * FROM {table}"));
    }
    for tail in [
        "GROUP BY GROUPING SETS ((a), (a, b), ())",
        "GROUP BY ROLLUP (a)",
        "ORDER BY a DESC NULLS LAST LIMIT 3 OFFSET 2",
        "FETCH FIRST 3 ROWS ONLY",
        "WINDOW w AS (ORDER BY a)",
    ] {
        query_of(&format!("SELECT a FROM t {tail}"));
    }
}

#[test]
fn types_of_casts_come_out_of_the_tree() {
    let cases = [
        ("CAST(x AS ROW<a INT NOT NULL>)", "ROW<a INT NOT NULL>"),
        ("CAST(x AS STRING)", "STRING"),
        ("CAST(x AS DECIMAL(10, 2))", "DECIMAL(10,2)"),
        ("CAST(x AS DOUBLE PRECISION)", "DOUBLE"),
        ("CAST(x AS TIMESTAMP_LTZ(3))", "TIMESTAMP_LTZ(3)"),
        ("CAST(x AS TIMESTAMP)", "TIMESTAMP(6)"),
        ("CAST(x AS CHAR(3))", "CHAR(3)"),
        ("CAST(x AS BYTES)", "BYTES"),
        ("CAST(x AS INTEGER)", "INT"),
        ("CAST(x AS TIMESTAMP(3) WITHOUT TIME ZONE)", "TIMESTAMP(3)"),
        ("CAST(x AS INTERVAL DAY TO SECOND)", "INTERVAL DAY TO SECOND"),
    ];
    for (text, expected) in cases {
        let sqlparser::ast::Expr::Cast { data_type: parsed, .. } =
            parse_expression(text).expect(text)
        else {
            panic!("{text}")
        };
        assert_eq!(
            data_type(&parsed).map(|t| t.to_string()).ok().as_deref(),
            Some(expected),
            "{text}"
        );
    }
}

#[test]
fn errors_of_declarations_say_where_and_what_to_do() {
    check_refusals(&[
        ("SELECT 1;\n  ALTER MODEL t RENAME TO u", 2, 3, "ALTER MODEL is not supported"),
        ("CREATE MODEL f", 1, 1, "CREATE MODEL is not supported"),
        ("CREATE FUNCTION f", 1, 18, "expected AS"),
        ("ALTER TABLE t CHANGE a b", 1, 15, "ADD, MODIFY, DROP"),
        ("ALTER TABLE t ADD PARTITION (p = x)", 1, 34, "a text in single quotes or a number"),
        ("ALTER TABLE t ADD DISTRIBUTION INTO 0 BUCKETS", 1, 37, "a number of buckets above zero"),
        ("CREATE TABLE t (a INT) DISTRIBUTED", 1, 35, "BY and columns"),
        ("ANALYZE TABLE t COMPUTE", 1, 24, "STATISTICS"),
        ("ALTER TABLE t RESET ()", 1, 21, "RESET names no option"),
        ("DROP MODEL f", 1, 6, "DROP MODEL is not supported"),
        ("SHOW COLUMNS", 1, 13, "FROM and a table's name"),
        ("SHOW TABLES NOT 'a'", 1, 17, "expected LIKE"),
        ("USE CATALOG c d", 1, 15, "the end of the statement"),
        ("CREATE OR REPLACE TABLE t (a INT)", 1, 25, "without AS"),
        ("CREATE TABLE t (a, b) WITH ('k' = 'v')", 1, 17, "has no type"),
        ("CREATE TABLE t LIKE u (INCLUDING NOTHING)", 1, 34, "CONSTRAINTS"),
        ("SELECT a FROM t /*+ OPTIONS('k') */", 1, 17, "takes options of a table"),
        ("INSERT INTO t PARTITION (p = ) SELECT 1", 1, 30, "a value"),
    ]);
}

#[test]
fn errors_say_where_and_what_to_do() {
    let cases = [
        ("SELCT 1", 1, 1, "did you mean SELECT?"),
        ("SELECT a FROM", 1, 14, "the end of the statement"),
        ("SELECT a\nFROM t\nWHERE a = = 2", 3, 11, "'='"),
        ("SELECT a FROM t WHERE (a = 1", 1, 23, "never closed"),
        ("SELECT f(a FROM t", 1, 9, "'(' is never closed"),
        ("SELECT f(a]) FROM t", 1, 11, "can't close"),
        ("SELECT 1 # 2", 1, 10, "'#' is no operator here"),
        ("SELECT a) FROM t", 1, 9, "closes nothing"),
        ("SELECT a, FROM t", 1, 11, "found 'FROM'"),
        ("SELECT a FROM t WHERE EXISTS a", 1, 30, "'a'"),
        ("CREATE TABLE t", 1, 14, "no columns"),
        ("UPDATE t SET a = 1", 1, 1, "UPDATE is not"),
        ("EXPLAIN", 1, 8, "expected a statement"),
        ("SELECT 1 FROM TABLE(TUMBEL(TABLE t, DESCRIPTOR(ts), x))", 1, 21, "did you mean TUMBLE?"),
        ("SELECT 'abc", 1, 8, "closing quote"),
        ("SELECT \"a\" FROM t", 1, 8, "`a` for a name"),
        ("CREATE TABLE t (a INTT)", 1, 19, "did you mean INT?"),
        ("CREATE TABLE t (a INT b INT)", 1, 23, "',' or ')'"),
        ("CREATE TABLE t (a INT, a STRING)", 1, 24, "twice"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a))", 1, 39, "NOT ENFORCED"),
        ("CREATE TABLE t (id INT, PRIMARY KEY (idd) NOT ENFORCED)", 1, 38, "did you mean id?"),
        ("CREATE TABLE t (a INT) WITH (connector = 'x')", 1, 30, "in single quotes"),
        ("CREATE TABLE t (a INT) WITH ('k' = 'v', 'k' = 'w')", 1, 41, "twice"),
        ("SELECT CAST(a AS INTT) FROM t", 1, 18, "did you mean INT?"),
        ("SELECT 1 FROM TABLE(TUMBLE(TABLE t, ts, INTERVAL '1' HOUR))", 1, 37, "DESCRIPTOR"),
        (
            "SELECT 1 FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
            1,
            21,
            "slide, then size",
        ),
        (
            "SELECT 1 FROM TABLE(TUMBLE(TABLE t PARTITION BY a, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
            1,
            49,
            "SESSION only",
        ),
        (
            "SELECT 1 FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), SIZ => INTERVAL '1' HOUR))",
            1,
            53,
            "SIZE, OFFSET",
        ),
        ("EXECUTE STATEMENT SET BEGIN SELECT 1; END", 1, 29, "INSERT"),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", 1, 52, "END;"),
        ("SELECT 1 2", 1, 10, "'2'"),
        ("SELECT 1; /* no end", 1, 0, "not closed"),
        ("SET 'a' 'b'", 1, 9, "'='"),
    ];
    check_refusals(&cases);
}

/// For each text a part of its message or help, and where it points; column 0 is any.
fn check_refusals(cases: &[(&str, u32, u32, &str)]) {
    for (text, line, column, part) in cases.iter().copied() {
        let (message, help, at_line, at_column) = refused(text);
        assert!(message.contains(part) || help.contains(part), "{text}: {message} | {help}");
        assert_eq!(
            (at_line, if column == 0 { 0 } else { at_column }),
            (line, column),
            "{text}: {message}"
        );
        assert!(!message.contains("sql parser") && !message.contains("Line:"), "{message}");
    }
}

#[test]
fn named_arguments_are_given_once() {
    let (message, _, line, column) = refused(
        "SELECT 1 FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR,\nSIZE => INTERVAL '1' HOUR))",
    );
    assert!(message.contains("SIZE is given twice"), "{message}");
    assert_eq!((line, column), (2, 1));
    let (message, _, line, column) = refused(
        "SELECT 1 FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts),\nDATA => TABLE u, SIZE => INTERVAL '1' HOUR))",
    );
    assert!(message.contains("DATA is given twice"), "{message}");
    assert_eq!((line, column), (2, 1));
}

#[test]
fn hints_are_passed_over_with_a_note() {
    let script = parse_script_with_notes(
        "SELECT /*+ SHUFFLE_MERGE(t) */ a FROM t /*+ SHUFFLE_MERGE(t) */ /* plain */",
    )
    .expect("parses");
    assert_eq!(script.notes.len(), 2);
    assert_eq!((script.notes[1].span.line, script.notes[1].span.column), (1, 41));
    let (message, help, ..) = refused("SELECT /*+ STATE_TTL('t' = 'soon') */ a FROM t");
    assert!(message.contains("STATE_TTL") && help.contains("'1d'"), "{message} {help}");
    let text = "SELECT a\nFROM t /*+ OPTIONS('x'='y (z)') */";
    let StatementKind::Select(query) = one(text) else { panic!() };
    let [options] = &query.table_options[..] else { panic!("{:?}", query.table_options) };
    assert_eq!((options.behind, options.options[0].1.text.as_str()), ((2, 7), "y (z)"));
}

#[test]
fn deep_and_long_texts_are_refused_without_harm() {
    let deep = [
        format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("SELECT 1{}", " + 1".repeat(100_000)),
        format!("SELECT 1{}", " OR a".repeat(5_000)),
        format!("SELECT {}1", "- ".repeat(50_000)),
        format!("SELECT {}1", "NOT ".repeat(50_000)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(20_000)),
        format!("SELECT * FROM {}t{}", "(".repeat(3000), ")".repeat(3000)),
        format!("SELECT {}1{}", "CASE WHEN a THEN ".repeat(2000), " END".repeat(2000)),
        format!("SELECT * FROM {}", "TABLE(TUMBLE((SELECT * FROM ".repeat(2000)),
        format!("SELECT {}", "CAST(".repeat(3000)),
        format!("SELECT {}1{}", "f(".repeat(90), ")".repeat(90)),
        format!("SELECT {}", "EXISTS (SELECT ".repeat(90)),
        format!("CREATE TABLE t (a {}", "ROW<a ".repeat(10_000)),
        format!("{} SELECT 1", "EXPLAIN ".repeat(50_000)),
        format!("SELECT '{}'", "x".repeat(TEXT_BYTES_MAX)),
    ];
    for text in deep {
        assert!(parse_script(&text).is_err(), "{}", &text[..60]);
    }
    let wide = format!("SELECT a IN ({}1)", "1, ".repeat(20_000));
    assert!(parse_script(&wide).is_ok());
    let chain = format!("SELECT 1{}", " + 1".repeat(450));
    assert!(parse_script(&chain).is_ok());
}

/// Words, symbols and broken pieces that a text can be made of.
const PIECES: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "TABLE",
    "(",
    ")",
    ",",
    ";",
    "TUMBLE",
    "HOP",
    "SESSION",
    "CUMULATE",
    "DESCRIPTOR",
    "PARTITION BY",
    "INTERVAL",
    "'1'",
    "SECOND",
    "CAST",
    "AS",
    "ROW",
    "<",
    ">",
    ">>",
    "ARRAY",
    "[",
    "]",
    "MAP",
    "INT",
    "NOT NULL",
    "CREATE",
    "VIEW",
    "WATERMARK FOR",
    "WITH",
    "=",
    "=>",
    "'k'",
    "PRIMARY KEY",
    "NOT ENFORCED",
    "METADATA",
    "INSERT INTO",
    "t",
    "`q q`",
    "EXECUTE STATEMENT SET",
    "BEGIN",
    "END",
    "EXPLAIN",
    "SET",
    "RESET",
    "SHOW",
    "DESCRIBE",
    "CASE",
    "WHEN",
    "THEN",
    "1.5e3",
    "-",
    "+",
    "*",
    "LATERAL",
    "JOIN",
    "ON",
    "UNNEST",
    "UNION ALL",
    "VALUES",
    "--x\n",
    "/*+ h */",
    "'",
    "`",
    "\"",
    "é",
    "${",
    "U&'",
    "x'",
    "MATCH_RECOGNIZE",
    "FLOOR",
    "TO",
    "IS JSON",
    "BETWEEN",
    "AND",
    "TIMESTAMP",
    "DECIMAL",
    "LOCAL TIME ZONE",
    "EXISTS",
    "DATA",
    "SIZE",
    "OVER",
    ".",
    ":",
    "::",
    "\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn no_soup_of_words_panics(words in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let text = words.join(" ");
        if let Err(error) = parse_script(&text) {
            let _ = crate::diagnostic::render(&error, "soup", &text, false);
        }
    }

    #[test]
    fn no_mutated_statement_panics(which in 0usize..1000, at in 0usize..4000, cut in 0usize..40, piece in prop::sample::select(PIECES)) {
        let texts = golden_texts();
        let text: Vec<char> = texts[which % texts.len()].1.chars().collect();
        let from = at % (text.len() + 1);
        let to = (from + cut).min(text.len());
        let mutated: String = text[..from].iter().chain(piece.chars().collect::<Vec<_>>().iter()).chain(&text[to..]).collect();
        if let Err(error) = parse_script(&mutated) {
            let _ = crate::diagnostic::render(&error, "mutated", &mutated, true);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = parse_script(&text);
        let _ = parse_type(&text);
        let _ = crate::catalog::parse_duration(&text);
        let _ = crate::catalog::substitute(&text, &std::collections::BTreeMap::new());
    }
}
