//! What Flink refuses and how a script is translated for it, rule by rule. `tests/golden` of
//! `crates/engine` compares the whole with recorded answers.

mod support;

use thalweg_plan::flink_check::{self, Finding, FlinkCluster, Queries, Role, Translation};

use support::planner;

/// A cluster that has Kafka's jar.
fn cluster() -> FlinkCluster {
    let jars = vec!["/jars/flink-sql-connector-kafka-5.0.0-2.0.jar".to_owned()];
    FlinkCluster { jars, ..FlinkCluster::default() }
}

fn found(text: &str) -> Vec<(u32, String)> {
    let found: Vec<Finding> = flink_check::findings(text, &planner("/home/me"), &cluster())
        .unwrap_or_else(|e| panic!("{text}: {e}"));
    found.into_iter().map(|f| (f.span.line, f.message)).collect()
}

#[test]
fn a_source_that_sorts_is_ours() {
    let text = "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
              ('connector' = 'kafka',
               'source.sort-within' = '1 h');";
    let [(3, message)] = &found(text)[..] else { panic!("{:?}", found(text)) };
    assert!(message.contains("'source.sort-within' is ours"), "{message}");
    let secret = "CREATE TABLE t (a INT) WITH ('connector' = 'kafka', \
            'properties.sasl.jaas.config' = 'x ${secret:kafka-password}', \
            'scan.watermark.idle-timeout' = '5 s');";
    let [(_, message)] = &found(secret)[..] else { panic!("{:?}", found(secret)) };
    assert!(message.contains("it has no ${secret:…}"), "{message}");
}

#[test]
fn a_file_of_flinks_dialect_has_no_findings() {
    let text = "SET 'late.data' = 'fail';
            CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
              ('connector' = 'filesystem', 'path' = '/d/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
            SELECT window_start, COUNT(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND,
              INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
            SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR);";
    assert_eq!(found(text), []);
}

#[test]
fn intervals_have_two_digits_in_front_unless_a_number_says_more() {
    let text = "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '365' DAY)
              WITH ('connector' = 'datagen');
            CREATE VIEW v AS SELECT ts + INTERVAL '100:30' HOUR TO MINUTE AS a FROM t;
            SELECT ts - INTERVAL -'120.5' SECOND, ts + INTERVAL '099' MINUTE, ts + INTERVAL '365' DAY(3) FROM t;";
    let found = found(text);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4], "{found:?}");
    for ((_, message), part) in found.iter().zip(["DAY(3)", "HOUR(3)", "SECOND(3)"]) {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn one_row_time_is_written_to_a_table() {
    let text = "CREATE TABLE t (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
            CREATE TABLE o (x TIMESTAMP(3), y TIMESTAMP(3)) WITH ('connector' = 'print');
            CREATE TABLE n (x TIMESTAMP(3) NOT NULL, y TIMESTAMP(6)) WITH ('connector' = 'print');
            INSERT INTO o SELECT ts, ts FROM t;
            INSERT INTO o SELECT a.ts, b.ts FROM t a JOIN t b ON a.k = b.k AND a.ts = b.ts;
            INSERT INTO o SELECT a.ts, b.ts FROM t a JOIN t b ON a.k = b.k;
            INSERT INTO o SELECT CAST(ts AS TIMESTAMP(3)), ts FROM t;
            INSERT INTO n SELECT ts, ts FROM t;";
    let found = found(text);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [4, 5], "{found:?}");
    assert!(found[0].1.contains("one row time"), "{found:?}");
}

#[test]
fn an_asof_join_is_ours_wherever_it_stands() {
    let text = "CREATE VIEW v AS
            SELECT * FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k;
            SELECT asof FROM (SELECT * FROM a
              ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts) AS asof;";
    let found = found(text);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4], "{found:?}");
    assert!(found[0].1.contains("no ASOF JOIN"), "{found:?}");
}

#[test]
fn tables_of_state_are_ours_also_in_sub_queries() {
    let text = "SELECT * FROM a JOIN (SELECT * FROM
              snapshot('state', 'group a')) AS s ON a.k = s.k
            UNION ALL
            SELECT * FROM snapshot('state', 'group a') AS t;";
    let found = found(text);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4], "{found:?}");
}

#[test]
fn extensions_of_ours_are_found_in_order() {
    let text = "CREATE TABLE t (ts TIMESTAMP(3)) WITH ('connector' = 'filesystem',
'path' = '-',
'csv.header' = 'true');
CREATE TABLE u (x INT) WITH ('connector' = 'nosuch');
CREATE TABLE o (x INT) WITH ('connector' = 'filesystem', 'path' = 'out.csv');
CREATE OR REPLACE VIEW v AS
  SELECT * FROM TUMBLE(t, ts, INTERVAL '1' HOUR);
SELECT 1 FROM t WHERE x != 2;
INSERT INTO o SELECT x FROM o ORDER BY x LIMIT 3;
DESCRIBE CONNECTOR filesystem;
CREATE TABLE a (x INT) WITH ('connector' = 'filesystem', 'path' = '/out', 'format' = 'arrow',
'sink.append' = 'true');";
    let found = found(text);
    let lines: Vec<u32> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 7, 8, 9, 10, 11, 12], "{found:?}");
    for ((_, message), part) in found.iter().zip([
        "standard input",
        "csv.header",
        "nosuch",
        "relative",
        "short form",
        "<>",
        "is updated in Flink",
        "DESCRIBE CONNECTOR",
        "format 'arrow'",
        "sink.append",
    ]) {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn names_that_are_reserved_are_found_wherever_they_stand() {
    let text = "CREATE TABLE t (
            value INT, `day` INT, ok AS value + 1, at TIMESTAMP(3), WATERMARK FOR at AS at)
            WITH ('connector' = 'datagen');
        SELECT value AS result, t.`day` FROM t AS large
            WHERE EXISTS (SELECT 1 FROM t AS next WHERE next.value = large.value);
        SELECT TIMESTAMPDIFF(SECOND, at, at) AS seconds, CURRENT_DATE AS today FROM t;";
    let found = found(text);
    let on = |line: u32| found.iter().filter(|(at, _)| *at == line).count();
    assert_eq!([on(2), on(4), on(5), on(6)], [5, 3, 5, 2], "{found:?}");
}

#[test]
fn a_null_wants_a_type_where_flink_wants_one() {
    for wanted in
        ["NULL", "k + NULL", "IF(b, NULL, k)", "CONCAT('a', NULL)", "NOT NULL", "MAX(NULL)"]
    {
        let text = format!(
            "CREATE TABLE t (k INT, b BOOLEAN) WITH ('connector' = 'datagen'); SELECT {wanted} AS c FROM t;"
        );
        assert_eq!(found(&text).len(), 1, "{text}: {:?}", found(&text));
    }
    for taken in [
        "COALESCE(NULL, k)",
        "k = NULL",
        "NULLIF(k, NULL)",
        "CASE WHEN b THEN NULL ELSE k END",
        "ARRAY[1, NULL]",
        "CAST(NULL AS INT)",
        "k IN (1, NULL)",
    ] {
        let text = format!(
            "CREATE TABLE t (k INT, b BOOLEAN) WITH ('connector' = 'datagen'); SELECT {taken} AS c FROM t;"
        );
        assert_eq!(found(&text), [], "{text}");
    }
}

#[test]
fn a_jar_that_the_cluster_has_is_not_missed() {
    let table =
        |connector: &str| format!("CREATE TABLE t (k INT) WITH ('connector' = '{connector}');");
    assert_eq!(found(&table("kafka")), []);
    let [(1, message)] = &found(&table("jdbc"))[..] else { panic!("{:?}", found(&table("jdbc"))) };
    assert!(message.contains("flink-connector-jdbc"), "{message}");
}

fn translated(text: &str, queries: Queries) -> Translation {
    flink_check::translate(text, &planner("/home/me"), &cluster(), queries)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn a_translation_is_what_flink_takes_and_keeps_the_rest_of_the_text() {
    let text = "-- orders of the day
CREATE TABLE orders (at TIMESTAMP(3), value INT, WATERMARK FOR at AS at)
  WITH ('connector' = 'filesystem', 'path' = 'in/*.csv', 'format' = 'csv',
    'bad-data' = 'skip');
SET 'execution.checkpointing.dir' = 'state';
SELECT window_start, SUM(value) AS total -- each minute
FROM TUMBLE(orders, at, INTERVAL '1' MINUTE) WHERE value != 3
GROUP BY window_start, window_end;
";
    let translation = translated(text, Queries::Jobs);
    assert_eq!(translation.left, []);
    for part in [
        "-- orders of the day\n",
        "-- lost: the option 'bad-data' is ours",
        "(`at` TIMESTAMP(3), `value` INT, WATERMARK FOR `at` AS `at`)",
        "'path' = 'file:///home/me/in'",
        "'source.path.regex-pattern' = '/home/me/in/[^/]*\\.csv'",
        "SET 'execution.checkpointing.dir' = 'file:///home/me/state';",
        "CREATE TABLE print_1 (\n  `window_start` TIMESTAMP(3),\n  `total` INT\n) WITH ('connector' = 'print');",
        "INSERT INTO print_1\nSELECT window_start, SUM(`value`) AS total -- each minute",
        "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(`at`), INTERVAL '1' MINUTE)) WHERE `value` <> 3",
    ] {
        assert!(translation.text.contains(part), "{part} is not in\n{}", translation.text);
    }
    assert!(!translation.text.contains("'bad-data' = "), "{}", translation.text);
    let roles: Vec<Role> = translation.statements.iter().map(|one| one.role).collect();
    assert_eq!(roles, [Role::Declaration, Role::Declaration, Role::Declaration, Role::Job]);
    let again = translated(&translation.text, Queries::Jobs);
    assert_eq!(again.text, translation.text, "a translation needs none");
}

#[test]
fn a_script_that_flink_takes_is_its_own_translation() {
    let text = "CREATE TABLE t (k INT) WITH ('connector' = 'datagen');
        CREATE TABLE o (k INT) WITH ('connector' = 'print');
        EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT k FROM t; INSERT INTO o SELECT k + 1 FROM t; END;";
    let translation = translated(text, Queries::Jobs);
    assert_eq!((translation.text.as_str(), translation.lost.len()), (text, 0));
    assert_eq!(translation.statements.len(), 3);
}

#[test]
fn results_are_the_queries_of_inserts() {
    let text = "CREATE TABLE t (value INT) WITH ('connector' = 'datagen');
        CREATE TABLE o (k INT) WITH ('connector' = 'print');
        INSERT INTO o (k) SELECT value FROM t;
        EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT 1; INSERT INTO o SELECT 2; END;";
    let translation = translated(text, Queries::Results);
    let texts: Vec<&str> = translation.statements.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts[2..], ["SELECT `value` FROM t", "SELECT 1", "SELECT 2"]);
    assert_eq!(translation.statements[2].original, "SELECT value FROM t");
}

#[test]
fn what_has_no_translation_is_left() {
    let text = "CREATE TABLE t (k INT) WITH ('connector' = 'datagen'); SELECT NULL AS c FROM t;";
    let translation = translated(text, Queries::Jobs);
    assert_eq!(translation.left.len(), 1, "{:?}", translation.left);
}

#[test]
fn transactions_get_a_timeout_and_settings_of_this_machine_are_left_out() {
    let text = "SET 's3.secret-key' = '${secret:s3}';\nSET 'pipeline.name' = 'j';
        CREATE TABLE o (k INT) WITH ('connector' = 'kafka', 'topic' = 'o', 'format' = 'json',
          'properties.bootstrap.servers' = 'b:1', 'sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = 'o', 'properties.sasl.jaas.config' = 'x ${secret:k}');
        INSERT INTO o VALUES (1);";
    let translation = translated(text, Queries::Jobs);
    assert!(translation.text.contains("'properties.transaction.timeout.ms' = '900000'"));
    assert!(!translation.text.contains("SET 's3"), "{}", translation.text);
    assert!(translation.text.contains("-- lost: Flink has 's3.secret-key' in the configuration"));
    assert_eq!(translation.statements.len(), 3);
    assert_eq!(translation.left.len(), 1, "{:?}", translation.left);
    let given = FlinkCluster { gets_secrets: true, ..cluster() };
    let sent =
        flink_check::translate(text, &planner("/"), &given, Queries::Jobs).expect("it is valid");
    assert!(sent.left.is_empty(), "{:?}", sent.left);
    assert!(sent.text.contains("${secret:k}"), "secrets are put in when it is sent");
    let has_one = translation.text;
    assert_eq!(translated(&has_one, Queries::Jobs).text.matches("timeout.ms").count(), 1);
}
