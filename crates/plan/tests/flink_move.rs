//! What a job needs after a move, and the script that it becomes.

mod support;

use std::collections::BTreeMap;

use thalweg_plan::flink_move::{MovableJob, Need, Offsets};

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

#[track_caller]
fn refused(statements: &str) -> String {
    try_job(statements).expect_err(statements).message().to_owned()
}

/// What stands behind the declarations in the moved script.
#[track_caller]
fn moved(statements: &str, watermark_ms: i64) -> String {
    let text = job(statements).script(watermark_ms, &BTreeMap::new()).expect("it can be moved");
    let declared = TABLES.lines().next_back().expect("lines");
    let start = text.find(declared).expect("the last one is not read") + declared.len() + 1;
    text[start..].to_owned()
}

fn grouped(windows: &str) -> String {
    format!("INSERT INTO o SELECT k, COUNT(*) FROM {windows} GROUP BY k, window_start, window_end;")
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
    let text = job(&statements).script(12_345, &BTreeMap::new()).expect("it can be moved");
    assert_eq!(text.matches("'scan.startup.mode' = 'earliest-offset'").count(), 2, "{text}");
    assert!(text.contains("WHERE window_time > TO_TIMESTAMP_LTZ(12345, 3)"), "{text}");
}

#[test]
fn each_partition_begins_at_its_offset() {
    let starts = BTreeMap::from([("t".to_owned(), Offsets::from([(0, 42), (1, 7)]))]);
    let text = job(&grouped(TUMBLE)).script(12_345, &starts).expect("it can be moved");
    let expected = "'scan.startup.mode' = 'specific-offsets', \
                    'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:7')";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("earliest-offset"), "{text}");
    assert!(MovableJob::new(&text, &planner("/home/me")).is_ok(), "{text}");
}

#[test]
fn a_search_reads_what_the_job_has_read() {
    let job = job(&grouped(TUMBLE));
    let text = job.search("t", 10_000, &Offsets::from([(0, 42)])).expect("a topic with a row time");
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

#[test]
fn what_no_rows_can_bring_back_is_refused_with_the_reason() {
    for (query, reason) in [
        ("SELECT k, COUNT(*) FROM t GROUP BY k", "groups without a window"),
        ("SELECT t.k, CAST(w AS BIGINT) FROM t JOIN u ON t.k = u.k", "a join without a window"),
        (
            "SELECT a.k, CAST(a.v AS BIGINT) FROM t a JOIN t b ON a.k = b.k \
             AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts",
            "a join within an interval",
        ),
        ("SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts) FROM t", "OVER holds rows"),
        ("SELECT DISTINCT k, CAST(v AS BIGINT) FROM t", "groups without a window"),
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
