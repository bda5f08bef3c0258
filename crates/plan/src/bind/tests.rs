//! Schemas of the golden cases, and messages of mistakes.

use std::path::{Path, PathBuf};

use thalweg_core::{Error, Result, TableSchema};
use thalweg_expr::Session;

use super::Binder;
use crate::ast::StatementKind;
use crate::catalog::Catalog;
use crate::logical::traversal::post_order;
use crate::logical::{LogicalKind, Node};
use crate::parser::parse_script;

/// A catalog and session made by the statements of a script, and what its last query means.
struct Bound {
    catalog: Catalog,
    session: Session,
    last: Option<StatementKind>,
}

fn script(text: &str) -> Result<Bound> {
    let mut bound = Bound { catalog: Catalog::new(), session: Session::default(), last: None };
    for mut statement in parse_script(text)? {
        if let StatementKind::CreateTable(table) = &mut statement.kind
            && let Some(clause) = &table.as_query
        {
            let aggregates = Default::default();
            let binder = Binder::new(&bound.catalog, &bound.session, &aggregates);
            let node = binder.bind_result(&clause.query)?;
            *table = bound.catalog.completed(table, Some(&node.fields))?;
        }
        if !bound.catalog.apply(&statement)? {
            bound.last = Some(statement.kind);
        }
    }
    bound.session.zone = bound.catalog.settings().zone();
    Ok(bound)
}

fn bind(text: &str) -> Result<Node> {
    let bound = script(text)?;
    let aggregates = Default::default();
    let binder = Binder::new(&bound.catalog, &bound.session, &aggregates);
    match bound.last {
        Some(StatementKind::Select(query)) => binder.bind_result(&query),
        Some(StatementKind::Insert(insert)) => Ok(binder.bind_insert(&insert)?.node),
        other => panic!("no query: {other:?}"),
    }
}

fn bind_error(text: &str) -> Error {
    match bind(text) {
        Err(error) => error,
        Ok(node) => panic!("bound: {}", node.describe()),
    }
}

fn schema_text(schema: &TableSchema) -> String {
    let columns = schema.columns.iter().map(|c| format!("{} {}", c.name, c.column_type));
    columns.collect::<Vec<_>>().join("\n")
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The cases of this kind, by INDEX.tsv, but for those that are known to differ.
fn cases(kind: &str) -> Vec<String> {
    let index = std::fs::read_to_string(golden().join("INDEX.tsv")).expect("the index is there");
    let known = std::fs::read_to_string(golden().join("known.tsv")).expect("known differences");
    let is_known = |case: &str| known.lines().any(|line| line.split('\t').next() == Some(case));
    let rows = index.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let rows = rows.filter(|row| row[1] == kind && !is_known(row[0]));
    rows.map(|row| row[0].to_string()).collect()
}

/// Columns that are NOT NULL in Flink though they can be NULL, so that `IS NULL` of them is FALSE:
/// LPAD and FROM_BASE64. Here they are nullable.
const NULLABLE_HERE: [(&str, &str); 2] = [("string_fns", "q"), ("string_fns", "ah")];

/// `[["name", "TYPE"], …]` as lines.
fn expected_schema(case: &str) -> String {
    let text = std::fs::read_to_string(golden().join(case).join("schema.json")).expect("a schema");
    let quoted: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
    let text = quoted.chunks(2).map(|pair| pair.join(" ")).collect::<Vec<_>>().join("\n");
    let own = NULLABLE_HERE.iter().filter(|(of, _)| *of == case);
    let text = own.fold(text, |text, (_, column)| {
        text.replace(&format!("{column} STRING NOT NULL"), &format!("{column} STRING"))
    });
    // DECIMAL and the fields of ROW are written in more than one way.
    let text = with_plain_decimals(&text.replace('`', ""));
    // The gateway wrote these two as its interface calls them, not as SQL does.
    text.replace("TIME_WITHOUT_TIME_ZONE", "TIME").replace("VARBINARY NOT", "BYTES NOT")
}

/// `DECIMAL(10, 2)` without the blank.
fn with_plain_decimals(text: &str) -> String {
    let mut parts = text.split("DECIMAL(");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (arguments, rest) = part.split_once(')').unwrap_or((part, ""));
        plain.push_str(&format!("DECIMAL({}){rest}", arguments.replace(' ', "")));
    }
    plain
}

fn query_of(case: &str) -> String {
    std::fs::read_to_string(golden().join(case).join("query.sql")).expect("a query")
}

#[test]
fn golden_schemas_are_exact() {
    let mut wrong = Vec::new();
    let cases = cases("append").into_iter().chain(cases("changelog"));
    for case in cases {
        let expected = expected_schema(&case);
        match bind(&query_of(&case)) {
            Ok(node) if schema_text(&node.schema()) == expected => {}
            Ok(node) => wrong.push(format!("{case}:\n{}", difference(&expected, &node))),
            Err(error) => wrong.push(format!("{case}: {error:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn difference(expected: &str, node: &Node) -> String {
    let found = schema_text(&node.schema());
    let pairs = expected.lines().zip(found.lines()).filter(|(a, b)| a != b);
    pairs.map(|(a, b)| format!("  expected {a}, found {b}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn golden_plan_errors_name_what_is_wrong() {
    let named = [
        ("cumulate_not_multiple", "CUMULATE requires"),
        ("hop_not_multiple", "HOP requires size to be a multiple of slide"),
        ("hop_slide_gt_size", "HOP requires size to be a multiple of slide"),
        ("implicit_coercion", "INT"),
        ("implicit_coercion_bad", "CHAR"),
        ("order_by_nontime_no_limit", "ORDER BY 'qty' (INT) needs a LIMIT"),
        ("two_rowtime_join_output_fails", "column 'ot' is an ordinary TIMESTAMP(3)"),
        ("window_on_retract_input_fails", "column 'mt' is an ordinary TIMESTAMP(3)"),
    ];
    for (case, part) in named {
        let error = bind_error(&query_of(case));
        assert!(error.is_plan_error(), "{case}: {error:?}");
        assert!(error.message().contains(part), "{case}: {error:?}");
        assert!(error.span().is_some(), "{case}: no place");
    }
}

const BID: &str = "CREATE TABLE bid (bidtime TIMESTAMP(3), item STRING, price DECIMAL(10,2), qty INT, \
    WATERMARK FOR bidtime AS bidtime - INTERVAL '5' SECOND) \
    WITH ('connector'='filesystem','path'='in.csv','format'='csv');\n";

fn bid_error(query: &str) -> Error {
    bind_error(&format!("{BID}{query}"))
}

#[test]
fn mistakes_get_a_place_and_a_near_miss() {
    let cases = [
        ("SELECT itm FROM bid", "no column 'itm'", "item", (2, 8)),
        ("SELECT b.itm FROM bid b", "no column 'b.itm'", "item", (2, 8)),
        ("SELECT c.item FROM bid b", "no relation 'c'", "'b'", (2, 8)),
        ("SELECT item FROM bids", "no table or view 'bids'", "'bid'", (2, 18)),
        ("SELECT UPER(item) FROM bid", "UPER", "UPPER", (2, 8)),
        (
            "SELECT item, COUNT(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(bidtme), INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
            "no column 'bidtme'",
            "bidtime",
            (2, 63),
        ),
    ];
    for (query, message, help, place) in cases {
        let error = bid_error(query);
        assert!(error.message().contains(message), "{query}: {error:?}");
        assert!(error.help().is_some_and(|h| h.contains(help)), "{query}: {:?}", error.help());
        let span = error.span().map(|s| (s.line, s.column));
        assert_eq!(span, Some(place), "{query}");
    }
}

/// They were passed over once, and all rows came.
#[test]
fn clauses_behind_a_table_are_refused() {
    let cases = [
        ("SELECT * FROM bid TABLESAMPLE BERNOULLI (110)", "TABLESAMPLE takes a number"),
        ("SELECT * FROM bid TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT * FROM (SELECT * FROM bid) TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT * FROM bid WITH ORDINALITY", "WITH ORDINALITY"),
        (
            "SELECT * FROM bid FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00'",
            "FOR SYSTEM_TIME AS OF after a table that is not joined",
        ),
        (
            "SELECT LAG(qty) IGNORE NULLS OVER (PARTITION BY item ORDER BY bidtime) FROM bid",
            "IGNORE NULLS in LAG",
        ),
    ];
    for (query, message) in cases {
        let error = bid_error(query);
        assert!(error.message().contains(message), "{query}: {error:?}");
        assert!(error.span().is_some(), "{query}");
    }
}

/// They were passed over once: `JSON_VALUE(x, '$.a' RETURNING INT)` gave a text.
#[test]
fn clauses_inside_a_scalar_function_are_refused() {
    let cases = [
        ("SELECT JSON_STRING(item RETURNING INT) FROM bid", "RETURNING INT in JSON_STRING"),
        ("SELECT UPPER(DISTINCT item) FROM bid", "DISTINCT is for aggregates"),
        ("SELECT UPPER(item ORDER BY qty) FROM bid", "ORDER BY qty in UPPER"),
    ];
    for (query, message) in cases {
        let error = bid_error(query);
        assert!(error.message().contains(message), "{query}: {error:?}");
        assert_eq!(error.span().map(|s| (s.line, s.column)), Some((2, 8)), "{query}");
    }
}

#[test]
fn names_must_be_unambiguous() {
    let error = bid_error("SELECT qty FROM bid AS a JOIN bid AS b ON a.qty = b.qty");
    assert!(error.message().contains("'qty' is ambiguous"), "{error:?}");
    // Columns of one name in a sub-query get different ones, as in Flink.
    let twice = bind(&format!("{BID}SELECT x, x0 FROM (SELECT item AS x, qty AS x FROM bid);"));
    assert_eq!(schema_text(&twice.expect("it binds").schema()), "x STRING\nx0 INT");
}

#[test]
fn grouping_says_what_may_be_selected() {
    let tumble = "FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '1' HOUR))";
    let error = bid_error(&format!(
        "SELECT window_start, item, COUNT(*) {tumble} GROUP BY window_start, window_end"
    ));
    assert!(error.message().contains("'item' stands neither"), "{error:?}");
    let error = bid_error(&format!("SELECT window_end, COUNT(*) {tumble} GROUP BY window_start"));
    assert!(error.message().contains("'window_end' stands neither"), "{error:?}");
    let error = bid_error("SELECT item FROM bid WHERE COUNT(*) > 1");
    assert!(error.message().contains("can't stand in WHERE"), "{error:?}");
}

#[test]
fn windows_move_into_the_aggregate_through_projections_and_filters() {
    let node = bind(&format!(
        "{BID}SELECT window_end, u, COUNT(*) c FROM (SELECT UPPER(item) u, window_start, window_end \
         FROM TABLE(HOP(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) \
         WHERE qty > 1 AND window_start > TIMESTAMP '2020-01-01 00:00:00') \
         GROUP BY window_start, window_end, u"
    ))
    .expect("it binds");
    let word = |below: &Node| match &below.kind {
        LogicalKind::Filter { .. } => "filter",
        LogicalKind::Project { .. } => "project",
        LogicalKind::WindowAggregate { .. } => "aggregate",
        LogicalKind::Scan { .. } => "scan",
        _ => "other",
    };
    let found: Vec<&str> = post_order(&[node]).iter().rev().map(word).collect();
    // The condition on window_start stands behind the aggregate, the one on qty below it.
    assert_eq!(found, ["project", "filter", "aggregate", "project", "filter", "scan"]);
}

#[test]
fn inserts_are_checked_against_the_table() {
    let sink = "CREATE TABLE o (item STRING NOT NULL, n BIGINT) WITH ('connector'='print');\n";
    let error = bind_error(&format!("{BID}{sink}INSERT INTO o SELECT item FROM bid"));
    assert!(error.message().contains("takes 2 columns"), "{error:?}");
    let error = bind_error(&format!("{BID}{sink}INSERT INTO o SELECT item, item FROM bid"));
    assert!(error.message().contains("'n' of 'o' is BIGINT"), "{error:?}");
    let error = bind_error(&format!("{BID}{sink}INSERT INTO o (n) SELECT qty FROM bid"));
    assert!(error.message().contains("'item' of 'o' is NOT NULL"), "{error:?}");
    let node = bind(&format!("{BID}{sink}INSERT INTO o (n, item) SELECT qty, item FROM bid"));
    let node = node.expect("it binds");
    assert_eq!(schema_text(&node.schema()), "item STRING NOT NULL\nn BIGINT");
    assert!(matches!(node.kind, LogicalKind::CheckNotNull { .. }));
}

/// `count` views above a table, each used twice in the next: `v0` to `v{count - 1}`.
fn doubled_views(count: usize) -> String {
    let mut text = format!("{BID}CREATE VIEW v0 AS SELECT qty AS n FROM bid;\n");
    let plus = "+ 1 ".repeat(90);
    for i in 1..count {
        let below = i - 1;
        text += &format!(
            "CREATE VIEW v{i} AS SELECT n {plus} AS n FROM v{below} WHERE n > 0 \
             UNION ALL SELECT n FROM v{below} WHERE n < 0;\n"
        );
    }
    text
}

#[test]
fn views_over_views_cost_no_more_than_they_show() {
    let node = bind(&format!("{}SELECT n FROM v9", doubled_views(10))).expect("it binds");
    let shared =
        crate::logical::dag::optimize(&[node], &|_, _, _| Ok(Vec::new())).expect("it is shared");
    assert!(post_order(&shared).len() < 100);
}

#[test]
fn views_that_double_for_ever_are_refused_by_name() {
    let error = bind_error(&format!("{}SELECT n FROM v49", doubled_views(50)));
    assert!(error.message().contains("view 'v10' has a UNION ALL of 1024 inputs"), "{error}");
}

#[test]
fn too_many_views_are_not_called_a_circle() {
    let mut text = format!("{BID}CREATE VIEW v0 AS SELECT item FROM bid;\n");
    for i in 1..=70 {
        text += &format!("CREATE VIEW v{i} AS SELECT item FROM v{};\n", i - 1);
    }
    let error = bind_error(&format!("{text}SELECT item FROM v70"));
    assert!(error.message().contains("more than 64 views stand on it"), "{error}");
}

#[test]
fn tables_say_what_cannot_be_written() {
    let part =
        "CREATE TABLE p (a INT, b AS a + 1) PARTITIONED BY (b) WITH ('connector'='filesystem');\n";
    let error = bind_error(&format!("{part}SELECT a FROM p"));
    assert!(error.message().contains("PARTITIONED BY column 'b' is not"), "{error:?}");
    let meta = "CREATE TABLE m (a INT, k STRING METADATA) WITH ('connector'='x');\n";
    let error = bind_error(&format!("{meta}INSERT INTO m SELECT 1"));
    assert!(error.message().contains("metadata column 'k'"), "{error:?}");
}

const NESTED: &str = "CREATE TABLE t (k INT, s STRING, v DOUBLE NOT NULL, r ROW<a INT NOT NULL, n ROW<b STRING>> NOT NULL, \
     o ROW<a INT NOT NULL>, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'x');\n";

fn nested(query: &str) -> Result<String> {
    bind(&format!("{NESTED}{query}")).map(|node| schema_text(&node.schema()))
}

#[test]
fn fields_of_rows_are_columns_of_their_types() {
    let cases = [
        (
            "SELECT r.a, t.r.a x, (r).a y, o.a z FROM t",
            "a INT NOT NULL\nx INT NOT NULL\ny INT NOT NULL\nz INT",
        ),
        ("SELECT r.n.b, u.r.n.b AS x FROM t AS u", "b STRING\nx STRING"),
        ("SELECT r.*, t.o.* FROM t", "a INT NOT NULL\nn ROW<b STRING>\na0 INT"),
        (
            "SELECT r.n.b, MAX(r.a) m FROM t WHERE o.a > 1 GROUP BY r.n.b HAVING MAX(o.a) > 2",
            "b STRING\nm INT",
        ),
        (
            "SELECT p.a FROM (SELECT ROW(1, 'x') q, r AS p FROM t) WHERE q.EXPR$0 = 1",
            "a INT NOT NULL",
        ),
        // A relation comes before a column of its name, unless only the column has the field.
        ("SELECT r.a, r.k FROM t AS r", "a INT NOT NULL\nk INT"),
        ("SELECT ARRAY_AGG(r)[1].a AS x FROM t", "x INT"),
    ];
    for (query, schema) in cases {
        assert_eq!(nested(query).expect(query), schema, "{query}");
    }
    let errors = [
        ("SELECT r.c FROM t", "there is no field 'c'", 10),
        ("SELECT t.r.n.c FROM t", "there is no field 'c'", 14),
        ("SELECT k.c FROM t", "in a value of type INT", 10),
        ("SELECT x.c FROM t", "there is no relation 'x'", 8),
        ("SELECT k.* FROM t", "there is no relation 'k'", 8),
        ("SELECT r.a FROM t GROUP BY k", "'r' stands neither", 8),
    ];
    check_errors(&errors);
}

/// It was read and passed over: the text came out in another form than was asked for.
#[test]
fn the_format_of_a_cast_is_refused_where_it_stands() {
    check_errors(&[
        ("SELECT CAST(ts AS STRING FORMAT 'YYYY') FROM t", "FORMAT in CAST", 33),
        ("SELECT TRY_CAST(s AS DATE FORMAT 'MM') FROM t", "FORMAT in CAST", 34),
    ]);
}

/// For each query a part of its message, and the column where it points.
fn check_errors(cases: &[(&str, &str, u32)]) {
    for (query, part, column) in cases {
        let error = nested(query).expect_err(query);
        assert!(error.message().contains(part), "{query}: {error:?}");
        assert_eq!(error.span().map(|span| span.column), Some(*column), "{query}: {error:?}");
    }
}

#[test]
fn several_sets_of_keys_make_them_nullable() {
    let cases = [
        ("SELECT v, GROUPING(v) g FROM t GROUP BY ROLLUP (v)", "v DOUBLE\ng BIGINT NOT NULL"),
        ("SELECT v, GROUPING(v) g FROM t GROUP BY v", "v DOUBLE NOT NULL\ng BIGINT NOT NULL"),
        (
            "SELECT v, GROUPING_ID(v, k) g FROM t GROUP BY v, GROUPING SETS (k, ())",
            "v DOUBLE NOT NULL\ng BIGINT NOT NULL",
        ),
    ];
    for (query, schema) in cases {
        assert_eq!(nested(query).expect(query), schema, "{query}");
    }
    let window = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))";
    // Where only some sets have the window, its columns are keys.
    let lacking = format!(
        "SELECT k, window_end {window} GROUP BY GROUPING SETS ((window_start, window_end), (k))"
    );
    assert_eq!(nested(&lacking).expect("it is bound"), "k INT\nwindow_end TIMESTAMP(3)");
    let lacking =
        "SELECT k FROM t GROUP BY GROUPING SETS ((TUMBLE(ts, INTERVAL '1' HOUR)), (k))".to_owned();
    let column = lacking.find("(TUMBLE").expect("there") as u32 + 2;
    check_errors(&[
        (&lacking, "some lack the window", column),
        ("SELECT GROUPING(s) FROM t GROUP BY ROLLUP (k)", "no key of GROUP BY", 17),
        ("SELECT s FROM t GROUP BY GROUPING SETS ((k), ())", "'s' stands neither", 8),
        ("SELECT k FROM t GROUP BY GROUPING SETS ((k), (CAST(k AS INT)))", "in another way", 52),
        (
            "SELECT k FROM t GROUP BY CUBE (k, s, v, ts, k+1, k+2, k+3, k+4, k+5)",
            "more than 256",
            32,
        ),
        ("SELECT k FROM t GROUP BY k WITH ROLLUP", "unexpected", 28),
    ]);
    let session = "FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR))";
    let error =
        nested(&format!("SELECT k {session} GROUP BY window_start, window_end, ROLLUP (k)"));
    assert!(error.expect_err("a session of k").message().contains("SESSION with other keys"));
}

/// The column of PARTITION BY is the one that GROUP BY names, also behind a projection.
#[test]
fn sessions_are_grouped_in_derived_tables() {
    let session = "TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR))";
    for shown in ["*", "window_end, v, k, window_start"] {
        let query = format!(
            "SELECT k, COUNT(*) AS n FROM (SELECT {shown} FROM {session} WHERE v > 1)
             GROUP BY k, window_start, window_end"
        );
        nested(&query).unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
}

#[test]
fn a_group_of_which_nothing_is_computed_is_refused() {
    let error = nested("SELECT GROUP_ID() AS g FROM t").expect_err("nothing is computed");
    assert!(error.message().contains("nothing is computed"), "{error}");
}

#[test]
fn constants_of_aggregates_are_checked() {
    let schema = nested(
        "SELECT LISTAGG(s, ';') a, LISTAGG(s) b, ARRAY_AGG(v) c, PERCENTILE(k, ARRAY[0, 0.5]) d FROM t",
    );
    assert_eq!(schema.expect("it binds"), "a STRING\nb STRING\nc ARRAY<DOUBLE>\nd ARRAY<DOUBLE>");
    check_errors(&[
        ("SELECT LISTAGG(k) FROM t", "cannot be applied to INT", 8),
        ("SELECT LISTAGG(s, s) FROM t", "must be a text in quotes", 8),
        ("SELECT PERCENTILE(v) FROM t", "a value and a fraction", 8),
        ("SELECT PERCENTILE(v, 2) FROM t", "a number from 0 to 1", 8),
        ("SELECT PERCENTILE(v, ARRAY[0.5, NULL]) FROM t", "a number from 0 to 1", 8),
        ("SELECT PERCENTILE(v, v) FROM t", "a number from 0 to 1", 8),
        ("SELECT PERCENTILE(v, RAND()) FROM t", "a number from 0 to 1", 8),
        ("SELECT JSON_OBJECTAGG(v VALUE v) FROM t", "the keys of an object are texts", 8),
    ]);
}

/// `NOT IN` is one join where neither side can hold NULL, and two where one can.
#[test]
fn conditions_say_which_columns_are_not_null() {
    let queries = [
        ("qty NOT IN (SELECT qty FROM bid)", 2),
        ("qty IS NOT NULL AND qty NOT IN (SELECT qty FROM bid)", 2),
        ("qty IS NOT NULL AND qty NOT IN (SELECT qty FROM bid WHERE qty IS NOT NULL)", 1),
        ("qty < 5 AND qty NOT IN (SELECT qty FROM bid WHERE 3 < qty + 1 AND item = 'a')", 1),
        ("qty < 5 AND qty NOT IN (SELECT qty FROM bid WHERE qty > 3 OR item = 'a')", 2),
        ("qty < 5 AND qty NOT IN (SELECT q.qty FROM bid AS p, bid AS q WHERE p.qty = q.qty)", 2),
        ("qty < 5 AND qty NOT IN (SELECT qty FROM bid WHERE qty <> 7 GROUP BY qty)", 1),
        ("qty < 5 AND qty NOT IN (SELECT MAX(qty) FROM bid WHERE qty <> 7 GROUP BY item)", 2),
        (
            "NOT EXISTS (SELECT 1 FROM bid AS b WHERE b.qty = a.qty OR b.qty IS NULL AND a.qty IS NULL)",
            1,
        ),
        ("NOT EXISTS (SELECT 1 FROM bid AS b WHERE b.qty = a.qty OR b.item = a.item)", 2),
        ("NOT EXISTS (SELECT 1 FROM bid AS b WHERE b.qty = a.qty OR b.qty < a.qty)", 1),
    ];
    for (condition, expected) in queries {
        let node = bind(&format!("{BID}SELECT item FROM bid AS a WHERE {condition};"));
        let node = node.unwrap_or_else(|error| panic!("{condition}: {error}"));
        let is_join = |node: &&Node| matches!(node.kind, LogicalKind::Join { .. });
        let joins = post_order(std::slice::from_ref(&node)).iter().filter(is_join).count();
        assert_eq!(joins, expected, "{condition}");
    }
}

/// They said that ROW_NUMBER and joins come with a later version.
#[test]
fn what_is_not_supported_is_named_as_it_is() {
    let of_select = [
        (
            "SELECT item FROM bid WHERE ROW_NUMBER() OVER (ORDER BY bidtime) = 1",
            "ROW_NUMBER(…) OVER stands in the list",
        ),
        (
            "SELECT item, RANK() OVER (ORDER BY item) FROM bid GROUP BY item",
            "RANK(…) OVER stands in the list",
        ),
        (
            "SELECT UPPER(item) OVER (ORDER BY bidtime) FROM bid",
            "UPPER(…) OVER is not part of the dialect",
        ),
        (
            "SELECT NTILE(2) OVER (ORDER BY bidtime) FROM bid",
            "NTILE(…) OVER depends on all rows of the key",
        ),
        (
            "SELECT x FROM bid RIGHT JOIN UNNEST(ARRAY[1]) AS u (x) ON TRUE",
            "this join with UNNEST comes",
        ),
        (
            "SELECT 1 FROM bid AS a, LATERAL (SELECT * FROM bid AS c WHERE c.qty = a.qty LIMIT 1) AS b",
            "a LATERAL sub-query of this kind comes",
        ),
    ];
    for (query, part) in of_select {
        let error = bind_error(&format!("{BID}{query};"));
        assert!(error.message().contains(part), "{query}: {error}");
        let help = error.help().unwrap_or_default();
        assert!(!help.contains("UNION ALL") && !help.contains("LIMIT"), "{query}: {help}");
    }
}
