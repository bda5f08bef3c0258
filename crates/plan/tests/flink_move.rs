//! What a job needs after a move, and the script that it becomes.

mod support;

use std::collections::BTreeMap;

use thalweg_plan::flink_move::{HandOver, HeldState, MovableJob, Need, Offsets, Stop};

use support::planner;

const TABLES: &str = "\
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json',
    'scan.startup.mode' = 'earliest-offset');
CREATE TABLE u (k STRING, w INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json');
CREATE TABLE n (k STRING, name STRING)
  WITH ('connector' = 'filesystem', 'path' = '/names.csv', 'format' = 'csv');
CREATE TABLE o (k STRING, n BIGINT)
  WITH ('connector' = 'kafka', 'topic' = 'o', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json');
";
const TUMBLE: &str = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))";

fn try_job(statements: &str) -> thalweg_core::Result<MovableJob> {
    MovableJob::new(&format!("{TABLES}{statements}"), &planner("/home/me"))
}

#[track_caller]
fn job(statements: &str) -> MovableJob {
    try_job(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
}

#[track_caller]
fn needs(statements: &str, watermark_ms: i64) -> Vec<(String, Need)> {
    job(statements).needs(watermark_ms).expect("it can be moved").into_iter().collect()
}

fn at(watermark_ms: i64) -> Stop {
    Stop { watermark_ms, ..Stop::default() }
}

#[track_caller]
fn refused(statements: &str) -> String {
    try_job(statements).expect_err(statements).message().to_owned()
}

/// What stands behind the declarations in the moved script.
#[track_caller]
fn moved(statements: &str, watermark_ms: i64) -> String {
    let text = job(statements).script(&at(watermark_ms)).expect("it can be moved");
    let declared = TABLES.lines().next_back().expect("lines");
    let start = text.find(declared).expect("the last one is not read") + declared.len() + 1;
    text[start..].to_owned()
}

fn grouped(windows: &str) -> String {
    format!("INSERT INTO o SELECT k, COUNT(*) FROM {windows} GROUP BY k, window_start, window_end;")
}

#[test]
fn a_job_of_a_compiled_plan_is_not_moved() {
    let insert = "INSERT INTO o SELECT k, v FROM t";
    let plan = "a compiled plan";
    assert!(refused("EXECUTE PLAN '/tmp/p.json';").contains(plan));
    assert!(
        refused(&format!("COMPILE AND EXECUTE PLAN '/tmp/p.json' FOR {insert};")).contains(plan)
    );
    // A plan that is only written is no job.
    assert!(
        refused("COMPILE PLAN '/tmp/p.json' FOR INSERT INTO o SELECT k, v FROM t;")
            .contains("no INSERT")
    );
}

#[test]
fn a_window_that_is_open_is_read_again_from_its_start() {
    let from = |windows: &str, watermark_ms: i64| needs(&grouped(windows), watermark_ms);
    let expected = |from_ms: i64| vec![("t".to_owned(), Need::From(from_ms))];
    assert_eq!(from(TUMBLE, 12_345), expected(10_000));
    // The watermark of the last millisecond of a window closes it.
    assert_eq!(from(TUMBLE, 19_998), expected(10_000));
    assert_eq!(from(TUMBLE, 19_999), expected(20_000));
    let hop = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND))";
    assert_eq!(from(hop, 12_345), expected(-5_000));
    assert_eq!(from(hop, 14_999), expected(0));
    let cumulate =
        "TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '60' SECOND))";
    assert_eq!(from(cumulate, 72_345), expected(60_000));
    let shifted =
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '3' SECOND))";
    assert_eq!(from(shifted, 12_345), expected(3_000));
}

#[test]
fn windows_of_a_zone_are_read_again_from_before_their_start() {
    let windows = "TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '1' DAY))";
    let [(_, Need::From(utc))] = needs(&grouped(windows), 100_000_000)[..] else {
        panic!("a time")
    };
    assert_eq!(utc, 86_400_000);
    let zoned = format!("SET 'table.local-time-zone' = 'Asia/Kolkata'; {}", grouped(windows));
    let [(_, Need::From(zoned))] = needs(&zoned, 100_000_000)[..] else { panic!("a time") };
    // In Kolkata the day began at 18:30 UTC, 66 600 000 ms.
    assert!(zoned < 66_600_000, "{zoned}");
}

#[test]
fn rows_that_nothing_holds_are_read_on() {
    assert_eq!(
        needs("INSERT INTO o SELECT k, CAST(v AS BIGINT) FROM t WHERE v > 3;", 5),
        [("t".to_owned(), Need::Unread)]
    );
    let joined = "INSERT INTO o SELECT n.name, CAST(v AS BIGINT) FROM t JOIN n ON t.k = n.k;";
    let expected = [("n".to_owned(), Need::Whole), ("t".to_owned(), Need::Unread)];
    assert_eq!(needs(joined, 5), expected);
}

#[test]
fn only_windows_that_were_not_written_are_written() {
    let statements = grouped(TUMBLE);
    let expected =
        format!("(SELECT * FROM {TUMBLE} WHERE window_time > TIMESTAMP '1970-01-01 00:00:12.345')");
    assert_eq!(moved(&statements, 12_345), grouped(&expected));
    let windows = "TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '10' SECOND))";
    let expected =
        format!("(SELECT * FROM {windows} WHERE window_time > TO_TIMESTAMP_LTZ(12345, 3))");
    assert_eq!(moved(&grouped(windows), 12_345), grouped(&expected));
}

#[test]
fn both_sides_of_a_window_join_are_filtered() {
    let right = TUMBLE.replace("TABLE t", "TABLE t2");
    let declared =
        TABLES.lines().take(3).collect::<Vec<_>>().join("\n").replace("TABLE t (", "TABLE t2 (");
    let statements = format!(
        "{declared}INSERT INTO o SELECT a.k, CAST(a.v + b.v AS BIGINT) FROM {TUMBLE} AS a JOIN {right} AS b
           ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end;"
    );
    let expected = [("t".to_owned(), Need::From(10_000)), ("t2".to_owned(), Need::From(10_000))];
    assert_eq!(needs(&statements, 12_345), expected);
    let text = moved(&statements, 12_345);
    assert_eq!(text.matches("WHERE window_time > TIMESTAMP").count(), 2, "{text}");
    assert!(text.contains(") AS a JOIN (SELECT"), "{text}");
}

#[test]
fn windows_that_feed_windows_are_read_again_for_those_and_not_filtered() {
    let inner = format!(
        "SELECT k, window_time AS wt, COUNT(*) AS n FROM {TUMBLE} GROUP BY k, window_start, window_end, window_time"
    );
    let outer = |input: &str| {
        grouped(&format!("TABLE(TUMBLE({input}, DESCRIPTOR(wt), INTERVAL '60' SECOND))"))
    };
    let nested = outer(&format!("({inner})"));
    assert_eq!(needs(&nested, 72_345), [("t".to_owned(), Need::From(60_000))]);
    assert_eq!(moved(&nested, 72_345).matches("WHERE window_time").count(), 1);
    let view = format!("CREATE VIEW w AS {inner}; {}", outer("TABLE w"));
    assert_eq!(needs(&view, 72_345), [("t".to_owned(), Need::From(60_000))]);
    let text = moved(&view, 72_345);
    assert_eq!(text.matches("WHERE window_time").count(), 1, "{text}");
    assert!(text.contains("(SELECT * FROM TABLE(TUMBLE(TABLE w"), "{text}");
    let read_alone = format!("CREATE VIEW w AS {inner}; INSERT INTO o SELECT k, n FROM w;");
    assert_eq!(moved(&read_alone, 12_345).matches("WHERE window_time").count(), 1);
}

#[test]
fn sessions_are_read_again_from_the_beginning() {
    let sessions = "TABLE(SESSION(TABLE u PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))";
    let statements = grouped(sessions);
    assert_eq!(needs(&statements, 12_345), [("u".to_owned(), Need::All)]);
    let text = job(&statements).script(&at(12_345)).expect("it can be moved");
    assert_eq!(text.matches("'scan.startup.mode' = 'earliest-offset'").count(), 2, "{text}");
    assert!(text.contains("WHERE window_time > TO_TIMESTAMP_LTZ(12345, 3)"), "{text}");
}

#[test]
fn each_partition_begins_at_its_offset() {
    let starts = BTreeMap::from([("t".to_owned(), Offsets::from([(0, 42), (1, 7)]))]);
    let text =
        job(&grouped(TUMBLE)).script(&Stop { starts, ..at(12_345) }).expect("it can be moved");
    let expected = "'scan.startup.mode' = 'specific-offsets', \
                    'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:7')";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("earliest-offset"), "{text}");
    assert!(MovableJob::new(&text, &planner("/home/me")).is_ok(), "{text}");
}

#[test]
fn a_search_reads_what_the_job_has_read() {
    let job = job(&grouped(TUMBLE));
    let text =
        job.search("t", Some(10_000), &Offsets::from([(0, 42)])).expect("a topic with a row time");
    for part in [
        "`$partition` INT METADATA FROM 'partition' VIRTUAL",
        "'scan.startup.mode' = 'earliest-offset'",
        "'scan.bounded.specific-offsets' = 'partition:0,offset:42'",
        "MIN(`$offset`) FILTER (WHERE `ts` >= TIMESTAMP '1970-01-01 00:00:10.000')",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("INSERT"), "{text}");
    assert!(job.is_searched_from_its_beginning("t"));
}

const COUNTS: &str = "CREATE TABLE c (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'c', 'properties.bootstrap.servers' = 'b:1',
    'key.format' = 'json', 'value.format' = 'json');\n";

/// The last statement of the moved script, which has to be valid.
#[track_caller]
fn rest(statements: &str, stop: &Stop) -> String {
    let text = job(statements).script(stop).expect("it can be moved");
    MovableJob::new(&text, &planner("/home/me")).map(drop).or_else(of_moved).expect(&text);
    text[text.rfind("INSERT").expect("a job")..].to_owned()
}

/// A script that was moved is valid, and can be refused for what was added.
fn of_moved(error: thalweg_core::Error) -> thalweg_core::Result<()> {
    match error.message().contains("cannot be moved") {
        true => Ok(()),
        false => Err(error),
    }
}

#[test]
fn a_pair_of_rows_that_were_read_is_not_written_again() {
    let first = TABLES.lines().take(3).collect::<Vec<_>>().join("\n");
    let second = first.replace("TABLE t (", "TABLE t2 (");
    let interval = format!(
        "{second} INSERT INTO o SELECT a.k, CAST(b.v AS BIGINT) FROM t a JOIN t2 AS b ON a.k = b.k
           AND a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts + INTERVAL '3' SECOND;"
    );
    // a at 50 001 meets b at 60 001, the next that can come; b at 57 001 meets a at 60 001.
    let expected = [("t".to_owned(), Need::From(50_001)), ("t2".to_owned(), Need::From(57_001))];
    assert_eq!(needs(&interval, 60_000), expected);
    let ends = BTreeMap::from([("t".to_owned(), Offsets::from([(0, 42), (1, 7)]))]);
    let stop = Stop { ends, ..at(60_000) };
    let flag = "NOT (`a`.`$was_read` AND `b`.`$was_read`)";
    assert!(rest(&interval, &stop).contains(&format!("SECOND WHERE {flag};")));
    let text = job(&interval).script(&stop).expect("it can be moved");
    let marked = "TABLE t (`$partition` INT METADATA FROM 'partition' VIRTUAL, \
        `$offset` BIGINT METADATA FROM 'offset' VIRTUAL, `$was_read` AS \
        ((`$partition` = 0 AND `$offset` < 42) OR (`$partition` = 1 AND `$offset` < 7)), k";
    assert!(text.contains(marked), "{text}");
    assert!(text.contains("`$was_read` AS (FALSE)"), "{text}");
    let regular = "INSERT INTO o SELECT a.k, CAST(b.v AS BIGINT) FROM t a, t AS b
        WHERE a.k = b.k AND a.v > b.v OR a.v IS NULL;";
    let regular = regular.replace(" OR a.v IS NULL", "");
    assert_eq!(needs(&regular, 60_000), [("t".to_owned(), Need::All)]);
    let moved = rest(&regular, &stop);
    assert!(moved.contains(&format!("WHERE {flag} AND ( a.k = b.k AND a.v > b.v);")), "{moved}");
    assert!(job(&regular).needs_the_first_row() && !job(&regular).is_by_watermark());
}

#[test]
fn rows_by_time_are_written_behind_the_watermark() {
    let over = |frame: &str| {
        format!(
            "INSERT INTO o SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts {frame}) FROM t WHERE v > 1;"
        )
    };
    let range = over("RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW");
    assert_eq!(needs(&range, 60_000), [("t".to_owned(), Need::From(50_001))]);
    for frame in ["", "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"] {
        assert_eq!(needs(&over(frame), 60_000), [("t".to_owned(), Need::All)]);
    }
    let moved = rest(&over(""), &at(60_000));
    let expected = "INSERT INTO o SELECT `c0`, `c1` FROM (SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts ), `ts` \
        FROM t WHERE v > 1) AS `moved` (`c0`, `c1`, `$time`) WHERE `$time` > TIMESTAMP '1970-01-01 00:01:00.000';";
    assert_eq!(moved, expected);
    let first = "INSERT INTO o SELECT k, CAST(v AS BIGINT) FROM
        (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM t) WHERE n = 1;";
    assert_eq!(needs(first, 60_000), [("t".to_owned(), Need::All)]);
    assert!(rest(first, &at(60_000)).contains(", `ts` FROM\n"));
}

#[test]
fn groups_begin_with_what_was_handed_over() {
    let stop = || {
        let hand_over = HandOver { topic: "h".to_owned(), attempt: "job 1".to_owned() };
        Stop { hand_over: Some(hand_over), ..at(0) }
    };
    let grouped = format!(
        "{COUNTS}INSERT INTO c SELECT UPPER(k) AS k, SUM(v) + COUNT(*) + COUNT(*) - AVG(v) FILTER (WHERE v < 9)
           FROM t WHERE v > 0 GROUP BY UPPER(k) HAVING MAX(v) > 1 AND UPPER(k) <> 'X' OR COUNT(*) >= 7;"
    );
    assert_eq!(needs(&grouped, 0), [("t".to_owned(), Need::Unread)]);
    let expected = "INSERT INTO c SELECT `key$0` AS k, SUM(`part$0`) + SUM(`part$1`) + SUM(`part$1`) - \
        CAST(SUM(`part$2`) / NULLIF(SUM(`count$2`), 0) AS INT) FROM (\
        SELECT CAST(UPPER(k) AS STRING) AS `key$0`, CAST(v AS INT) AS `part$0`, CAST(1 AS BIGINT) AS `part$1`, \
        CAST(CASE WHEN v < 9 THEN v END AS BIGINT) AS `part$2`, \
        CAST(CASE WHEN (v) IS NOT NULL AND (v < 9) THEN 1 ELSE 0 END AS BIGINT) AS `count$2`, \
        CAST(v AS INT) AS `part$3` FROM t WHERE v > 0 UNION ALL \
        SELECT CAST(`key$0` AS STRING), CAST(`part$0` AS INT), CAST(`part$1` AS BIGINT), CAST(`part$2` AS BIGINT), \
        CAST(`count$2` AS BIGINT), CAST(`part$3` AS INT) FROM `moved$state` WHERE `move` = 'job 1') AS `moved` \
        GROUP BY `key$0` HAVING MAX(`part$3`) > 1 AND `key$0` <> 'X' OR SUM(`part$1`) >= 7;";
    assert_eq!(rest(&grouped, &stop()), expected);
    let text = job(&grouped).script(&stop()).expect("it can be moved");
    for part in [
        "CREATE TABLE `moved$state` (`move` STRING, `key$0` STRING, `part$0` INT, `part$1` BIGINT",
        "'properties.bootstrap.servers' = 'b:1', 'topic' = 'h', 'format' = 'json', \
         'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let both = COUNTS.replace("KEY (k)", "KEY (k, n)");
    let distinct = format!("{both}INSERT INTO c SELECT DISTINCT k, CAST(v AS BIGINT) FROM t;");
    let moved = rest(&distinct, &stop());
    let expected = "SELECT DISTINCT * FROM (SELECT CAST(`key$0` AS STRING), CAST(`key$1` AS BIGINT) FROM \
        (SELECT k, CAST(v AS BIGINT) FROM t) AS `read` (`key$0`, `key$1`) UNION ALL SELECT CAST(`key$0` AS STRING)";
    assert!(moved.contains(expected), "{moved}");
    let state = HeldState { folder: "/s/j", snapshot: 4, operator: "group-1" };
    let to = stop().hand_over.expect("groups");
    let script = job(&grouped).hand_over(&to, &state).expect("groups");
    let expected = "SELECT 'job 1', CAST(`key$0` AS STRING), CAST(CASE WHEN `sum$0.count` > 0 THEN `sum$0.sum` END AS INT), \
        CAST(`$rows` AS BIGINT), ";
    assert!(script.contains(expected), "{script}");
    assert!(script.ends_with("FROM snapshot('/s/j', 'group-1', 4);\n"), "{script}");
}

#[test]
fn groups_whose_keys_may_be_retracted_are_refused() {
    for (query, reason) in [
        (
            "SELECT k, SUM(v) FROM t GROUP BY k HAVING SUM(v) > 2",
            "no longer meet HAVING SUM(v) > 2",
        ),
        ("SELECT k, SUM(v) FROM t GROUP BY k HAVING COUNT(*) BETWEEN 2 AND 4", "no longer meet"),
        ("SELECT k, SUM(v) FROM t GROUP BY k HAVING NOT COUNT(*) > 2", "no longer meet"),
        ("SELECT k, SUM(v) FROM t GROUP BY k HAVING COUNT(*) > MIN(v)", "no longer meet"),
        ("SELECT k, COUNT(DISTINCT v) FROM t GROUP BY k HAVING COUNT(*) > 2", "DISTINCT values"),
        (
            "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) WHERE n < 9",
            "a view or a sub-query",
        ),
        ("SELECT k, COUNT(*) FROM t GROUP BY ROLLUP (k)", ""),
        ("SELECT DISTINCT k, CAST(v AS BIGINT) FROM t", "are written again"),
        ("SELECT k, COUNT(*) FROM t GROUP BY k UNION ALL SELECT k, COUNT(*) FROM u GROUP BY k", ""),
        (
            "SELECT a.k, COUNT(*) FROM t a JOIN t b ON a.k = b.k GROUP BY a.k",
            "in several operators",
        ),
    ] {
        let said = refused(&format!("{COUNTS}INSERT INTO c {query};"));
        assert!(said.contains("cannot be moved") && said.contains(reason), "{query}: {said}");
    }
    let kept = format!("SET 'table.exec.state.ttl' = '1 h'; {COUNTS}");
    let said = refused(&format!("{kept}INSERT INTO c SELECT k, COUNT(*) FROM t GROUP BY k;"));
    assert!(said.contains("its state expires"), "{said}");
}

/// The newest row of each key of t.
const NEWEST: &str = "SELECT k, CAST(v AS BIGINT) FROM
  (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM t) WHERE r = 1";
const BEST: &str = "SELECT k, r FROM
  (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS r FROM t) WHERE r <= 3";
const MOST: &str = "SELECT k, r FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY c) AS r
  FROM (SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v)) WHERE r <= 3";

#[test]
fn what_rows_of_any_age_may_change_is_read_and_written_again() {
    let ranked = COUNTS.replace("KEY (k)", "KEY (k, n)");
    for (output, query) in [
        (COUNTS, NEWEST),
        (&ranked, BEST),
        (&ranked, MOST),
        (COUNTS, "SELECT k, COUNT(DISTINCT v) FROM t GROUP BY k"),
        (COUNTS, "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k)"),
        (COUNTS, "SELECT k, CAST(LISTAGG(k) AS BIGINT) FROM t GROUP BY k"),
        (COUNTS, "SELECT k, CAST(AVG(CAST(v AS DECIMAL(9, 2))) AS BIGINT) FROM t GROUP BY k"),
    ] {
        let statements = format!("{output}INSERT INTO c {query};");
        assert_eq!(needs(&statements, 60_000), [("t".to_owned(), Need::All)], "{query}");
        let job = job(&statements);
        assert!(job.writes_again() && job.needs_the_first_row() && !job.is_by_watermark());
        let text = job.script(&at(60_000)).expect("it can be moved");
        assert!(text.contains(query) && text.contains("'earliest-offset'"), "{text}");
    }
    for (output, query, reason) in [
        (COUNTS, BEST, "whose primary key is that of"),
        (&*ranked, NEWEST, "whose primary key is that of"),
        (&*ranked, &*MOST.replace("PARTITION BY k", "PARTITION BY c"), "by what changes"),
        (
            COUNTS,
            &*NEWEST.replace(" AS r FROM t", " AS r FROM u").replace("v AS", "w AS"),
            "from an offset on",
        ),
        (
            COUNTS,
            &*format!("SELECT * FROM ({NEWEST}) WHERE k > 'a'"),
            "whose primary key is that of",
        ),
        (&*ranked, &*BEST.replace("ORDER BY v", "ORDER BY PROCTIME()"), ""),
    ] {
        let error = try_job(&format!("{output}INSERT INTO c {query};")).expect_err(query);
        let said = format!("{} {}", error.message(), error.help().unwrap_or_default());
        assert!(said.contains("cannot be moved") && said.contains(reason), "{query}: {said}");
    }
}

#[test]
fn what_no_rows_can_bring_back_is_refused_with_the_reason() {
    for (query, reason) in [
        ("SELECT t.k, CAST(w AS BIGINT) FROM t JOIN u ON t.k = u.k", "from an offset on"),
        (
            "SELECT a.k, CAST(a.v AS BIGINT) FROM t a LEFT JOIN t b ON a.k = b.k \
             AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts",
            "an outer, semi or anti join",
        ),
        (
            "SELECT * FROM (SELECT a.k, CAST(b.v AS BIGINT) FROM t a JOIN t b ON a.k = b.k)",
            "selects *",
        ),
        ("SELECT DISTINCT k, CAST(v AS BIGINT) FROM t", "written again"),
        (
            "SELECT k, CAST(v AS BIGINT) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
            "leave at once",
        ),
        (
            "SELECT k, COUNT(*) FROM t GROUP BY k, TUMBLE(ts, INTERVAL '1' HOUR)",
            "windows in the old form",
        ),
    ] {
        let said = refused(&format!("INSERT INTO o {query};"));
        assert!(said.contains("cannot be moved") && said.contains(reason), "{query}: {said}");
    }
    let twice = format!("{}{}", grouped(TUMBLE), grouped(TUMBLE));
    assert!(refused(&twice).contains("several jobs"));
    assert!(refused("SELECT k FROM t;").contains("a SELECT"));
    assert!(refused("").contains("no INSERT"));
    let files = "CREATE TABLE f (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
                 WITH ('connector' = 'filesystem', 'path' = '/f.csv', 'format' = 'csv');";
    let said = refused(&format!("{files}{}", grouped(&TUMBLE.replace("TABLE t", "TABLE f"))));
    assert!(said.contains("'f' is no topic"), "{said}");
    let mixed = format!(
        "EXECUTE STATEMENT SET BEGIN {} INSERT INTO o SELECT k, CAST(v AS BIGINT) FROM t; END;",
        grouped(TUMBLE)
    );
    assert!(refused(&mixed).contains("begin at different rows"));
}
