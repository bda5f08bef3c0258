//! `thalweg move`: jobs over topics that run here, are stopped, and continue on Flink. What both
//! wrote together is what a job that was never moved writes, each row once.

use std::collections::BTreeMap;

use thalweg_core::shim::SplitMix64;

use super::broker::Broker;
use super::services::Job;
use super::{Cluster, fails, succeeds, wait_for};

/// Seconds of rows; they are written in two halves, and the job is moved in between.
const SECONDS: u64 = 120;
/// Windows that end up to here are compared: later ones are closed by nothing.
const COMPARED_MS: u64 = 100_000;

const COUNTS: &str = "SELECT k, window_start, window_end, COUNT(*), SUM(v)
  FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end";
const HOPS: &str = "SELECT k, window_start, window_end, COUNT(*), SUM(v)
  FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND))
  GROUP BY k, window_start, window_end";
const JOINED: &str = "SELECT a.k, a.window_start, a.window_end, a.v, a.v + b.v
  FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) a
  JOIN TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '2' SECOND)) b
  ON a.k = b.k AND a.v = b.v AND a.window_start = b.window_start AND a.window_end = b.window_end";
const SESSIONS: &str = "SELECT k, window_start, window_end, COUNT(*), SUM(v)
  FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND))
  GROUP BY k, window_start, window_end";

// Pairs leave with their second row, and rows by time when the watermark has passed them.
const PAIRS: &str = "SELECT a.k, CAST(a.ts AS TIMESTAMP(3)), b.ts, a.v, b.v FROM t a JOIN u b
  ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '2' SECOND AND b.ts WHERE a.v = b.v OR a.v = 7";
const REGULAR: &str = "SELECT a.k, CAST(a.ts AS TIMESTAMP(3)), b.ts, a.v, b.v FROM t AS a, u AS b
  WHERE a.k = b.k AND a.v = b.v AND a.v < 3";
const OVER: &str = "SELECT k, CAST(ts AS TIMESTAMP(3)), ts, COUNT(*) OVER w, SUM(v) OVER w FROM t
  WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW)";
const FIRST: &str = "SELECT k, CAST(ts AS TIMESTAMP(3)), ts, v, v FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY v, DATE_FORMAT(ts, 'HH:mm') ORDER BY ts) AS n FROM t)
  WHERE n = 1";

/// COUNT, SUM, MIN, MAX and AVG of each type of number, of a filter, and of an expression.
const GROUPS: &str =
    "SELECT CONCAT(k, 'x'), COUNT(*), SUM(v) + COUNT(*), MIN(ts), MAX(v) FILTER (WHERE v < 90),
    AVG(v), SUM(CAST(v AS DECIMAL(9, 2))), AVG(CAST(v AS DOUBLE))
  FROM t WHERE v > 1 GROUP BY CONCAT(k, 'x') HAVING COUNT(v) > 2";

const DISTINCT: &str =
    "SELECT DISTINCT k, v FROM t WHERE v < 90 OR ts > TIMESTAMP '2026-01-01 00:01:00'";

/// What rows of any age may change.
const NEWEST: &str = "SELECT k, v FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM t) WHERE r = 1";
const BEST: &str = "SELECT k, r, v FROM (
  SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM t) WHERE r <= 3";
const MOST: &str = "SELECT k, r, c FROM (
  SELECT k, c, ROW_NUMBER() OVER (PARTITION BY k ORDER BY c DESC) AS r FROM (
    SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v)) WHERE r <= 2";
const EXACT: &str = "SELECT k, COUNT(DISTINCT v), AVG(CAST(v AS DECIMAL(9, 2))) FROM t GROUP BY k";

/// A query of upserts.
struct Upserts {
    name: &'static str,
    query: &'static str,
    /// The columns of the output behind `k`.
    columns: &'static str,
    keys: &'static [&'static str],
}

const HANDED_OVER: [Upserts; 2] = [
    Upserts {
        name: "groups",
        query: GROUPS,
        columns: "n BIGINT, s BIGINT, `at` TIMESTAMP(3), m BIGINT, a BIGINT, d DECIMAL(38, 2), f DOUBLE",
        keys: &["k"],
    },
    Upserts { name: "distinct", query: DISTINCT, columns: "n BIGINT", keys: &["k", "n"] },
];

const WRITTEN_AGAIN: [Upserts; 4] = [
    Upserts { name: "newest", query: NEWEST, columns: "n BIGINT", keys: &["k"] },
    Upserts { name: "best", query: BEST, columns: "n BIGINT, s BIGINT", keys: &["k", "n"] },
    Upserts { name: "most", query: MOST, columns: "n BIGINT, s BIGINT", keys: &["k", "n"] },
    Upserts { name: "exact", query: EXACT, columns: "n BIGINT, d DECIMAL(38, 6)", keys: &["k"] },
];

#[test]
#[ignore = "needs a Flink cluster: make connect-test"]
fn jobs_continue_where_they_stopped() {
    let (Some(cluster), Some(broker)) = (Cluster::shared(), Broker::start()) else { return };
    let (_turn, flink) = (cluster.turn(), &cluster.service);
    let mut random = SplitMix64::new(11);
    for topic in ["t", "u"] {
        broker.topic(topic, 2, &[]);
    }
    send(&broker, &mut random, 0);
    let queries = [
        ("counts", COUNTS),
        ("hops", HOPS),
        ("joined", JOINED),
        ("sessions", SESSIONS),
        ("pairs", PAIRS),
        ("regular", REGULAR),
        ("over", OVER),
        ("first", FIRST),
    ];
    for (name, query) in queries {
        broker.topic(name, 1, &[]);
        let job = Job::start(&broker.file(name, &script(&broker, name, name, "", query)), &[]);
        // Half of the windows, and not those that are open.
        wait_for(name, || !broker.values(name).is_empty());
        job.interrupt();
    }
    send(&broker, &mut random, SECONDS / 2);
    let (url, jar) = (flink.value("FLINK"), flink.value("FLINK_KAFKA_JAR"));
    let moving = ["move", "--flink", url, "--jar", jar, "--detach"];
    for (name, query) in queries {
        let file = broker.folder(name).join(format!("{name}.sql"));
        std::fs::write(&file, script(&broker, name, name, "", query)).expect("written");
        let file = file.to_str().expect("text");
        let said = succeeds(&[&moving[..], &["--dry-run", file]].concat());
        let filters = ["WHERE window_time >", "WHERE NOT (", "WHERE `$time` >"];
        assert!(filters.iter().any(|filter| said.contains(filter)), "{said}");
        succeeds(&[&moving[..], &[file]].concat());
        let unmoved = format!("{name}-unmoved");
        broker.topic(&unmoved, 1, &[]);
        let ends = ", 'scan.bounded.mode' = 'latest-offset'";
        broker.output(&unmoved, &script(&broker, &unmoved, &unmoved, ends, query));
        let expected = compared(&broker, &unmoved);
        assert!(expected.len() >= 30, "{name}: {} windows", expected.len());
        wait_for(name, || compared(&broker, name).len() >= expected.len());
        assert_eq!(compared(&broker, name), expected, "{name}");
        succeeds(&["cancel", "--flink", url, name]);
    }
    let left = PAIRS.replace("JOIN", "LEFT JOIN");
    let file = broker.file("left", &script(&broker, "left", "counts", "", &left));
    let said = fails(&["move", "--flink", url, file.to_str().expect("text")]);
    assert!(said.contains("an outer, semi or anti join"), "{said}");
}

/// Groups without a window: what they hold is handed over by a topic.
#[test]
#[ignore = "needs a Flink cluster: make connect-test"]
fn groups_are_handed_over() {
    upserts_continue(12, &HANDED_OVER, |moving, file| {
        assert!(fails(&[moving, &[file]].concat()).contains("--state-topic"));
        let absent = [moving, &["--state-topic", "absent", file]].concat();
        assert!(fails(&absent).contains("absent"));
        let said = succeeds(&[moving, &["--state-topic", "state", file]].concat());
        assert!(said.contains("groups handed over by the topic 'state'"), "{said}");
    });
}

/// Newest rows, Top-N and the other groups: all is read and written again.
#[test]
#[ignore = "needs a Flink cluster: make connect-test"]
fn what_rows_of_any_age_may_change_is_written_again() {
    upserts_continue(13, &WRITTEN_AGAIN, |moving, file| {
        let said = succeeds(&[moving, &[file]].concat());
        assert!(said.contains("all is read and written again"), "{said}");
    });
}

/// Jobs that are stopped in the middle and moved leave the same rows as jobs that never were.
fn upserts_continue(seed: u64, jobs: &[Upserts], move_job: impl Fn(&[&str], &str)) {
    let (Some(cluster), Some(broker)) = (Cluster::shared(), Broker::start()) else { return };
    let (_turn, flink) = (cluster.turn(), &cluster.service);
    let mut random = SplitMix64::new(seed);
    for topic in ["t", "u", "state"] {
        broker.topic(topic, 2, &[]);
    }
    send(&broker, &mut random, 0);
    let (url, jar) = (flink.value("FLINK"), flink.value("FLINK_KAFKA_JAR"));
    for job in jobs {
        broker.topic(job.name, 1, &[]);
        let file = broker.file(job.name, &job.script(&broker, job.name, ""));
        let running = Job::start(&file, &[]);
        wait_for(job.name, || !job.newest(&broker, job.name).is_empty());
        running.interrupt();
    }
    send(&broker, &mut random, SECONDS / 2);
    for job in jobs {
        let file = broker.folder(job.name).join(format!("{}.sql", job.name));
        std::fs::write(&file, job.script(&broker, job.name, "")).expect("written");
        let moving = ["move", "--flink", url, "--jar", jar, "--detach"];
        move_job(&moving, file.to_str().expect("text"));
        let unmoved = format!("{}-unmoved", job.name);
        broker.topic(&unmoved, 1, &[]);
        let ends = ", 'scan.bounded.mode' = 'latest-offset'";
        broker.output(&unmoved, &job.script(&broker, &unmoved, ends));
        let expected = job.newest(&broker, &unmoved);
        assert!(expected.len() >= 4, "{}: {} rows", job.name, expected.len());
        wait_for(job.name, || job.newest(&broker, job.name) == expected);
        succeeds(&["cancel", "--flink", url, job.name]);
    }
}

impl Upserts {
    /// A job of this name that writes the rows of the query to a topic.
    fn script(&self, broker: &Broker, job: &str, more: &str) -> String {
        let text = script(broker, job, job, more, self.query);
        let (before, rest) = text.split_once("CREATE TABLE o").expect("an output");
        let (_, insert) = rest.split_once("INSERT INTO").expect("a job");
        format!(
            "{before}CREATE TABLE o (k STRING, {}, PRIMARY KEY ({}) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
               'topic' = '{job}', 'properties.bootstrap.servers' = '{}', 'key.format' = 'json', 'value.format' = 'json');
             INSERT INTO{insert}",
            self.columns,
            self.keys.join(", "),
            broker.servers
        )
    }

    /// The newest row of each key, values as both engines write them.
    fn newest(&self, broker: &Broker, topic: &str) -> BTreeMap<String, Vec<String>> {
        let mut rows = BTreeMap::new();
        // HAVING deletes groups that it does not hold for yet.
        for value in broker.values(topic).iter().filter(|value| *value != "NULL") {
            let row: serde_json::Value = serde_json::from_str(value).expect("a row");
            let number = |name: &str| row[name].as_f64().unwrap_or(-1.0).to_string();
            let mut values: Vec<String> = ["n", "s", "m", "a", "d", "f"].map(number).to_vec();
            values.push(row["at"].as_str().unwrap_or_default().trim_end_matches(".000").to_owned());
            let key: Vec<String> = self.keys.iter().map(|key| row[*key].to_string()).collect();
            rows.insert(key.join(" "), values);
        }
        rows
    }
}

/// A job of this name that writes a query's rows to a topic; `more`: options of the inputs.
fn script(broker: &Broker, job: &str, output: &str, more: &str, query: &str) -> String {
    let servers = &broker.servers;
    let topic = |topic: &str| {
        format!(
            "'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
        )
    };
    let input = |name: &str| {
        format!(
            "CREATE TABLE {name} (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
               WITH ({}, 'scan.startup.mode' = 'earliest-offset'{more});\n",
            topic(name)
        )
    };
    format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '1 s';
         SET 'pipeline.name' = '{job}';
         {}{}CREATE TABLE o (k STRING, s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT, v BIGINT) WITH ({},
           'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{job}',
           'properties.transaction.timeout.ms' = '60000');
         INSERT INTO o {query};",
        broker.folder(job).join("state").display(),
        input("t"),
        input("u"),
        topic(output),
    )
}

/// Half of the rows, from this second on. They are out of order by less than the second that
/// watermarks wait.
fn send(broker: &Broker, random: &mut SplitMix64, from_s: u64) {
    let rows = (from_s * 1000..(from_s + SECONDS / 2) * 1000).step_by(20);
    for topic in ["t", "u"] {
        let values: Vec<(i32, String)> = rows
            .clone()
            .map(|at_ms| {
                // Pauses end sessions.
                let key = (at_ms / 3_000) % 3 + random.below(2);
                let ms = at_ms + random.below(900);
                let (s, ms) = (ms / 1000, ms % 1000);
                let time = format!("2026-01-01 00:{:02}:{:02}.{ms:03}", s / 60, s % 60);
                let value = format!(
                    "{{\"k\": \"k{key}\", \"v\": {}, \"ts\": \"{time}\"}}",
                    random.below(100)
                );
                (random.below(2) as i32, value)
            })
            .collect();
        broker.send(
            topic,
            values.iter().map(|(partition, value)| (*partition, None, Some(value.as_str()))),
        );
    }
}

/// The rows of windows that both have closed, and how often each is there.
fn compared(broker: &Broker, topic: &str) -> BTreeMap<String, usize> {
    let last = format!("2026-01-01 00:{:02}:{:02}", COMPARED_MS / 60_000, COMPARED_MS / 1000 % 60);
    let mut rows = BTreeMap::new();
    for value in broker.values(topic) {
        let row: serde_json::Value = serde_json::from_str(&value).expect("a row");
        if row["e"].as_str().expect("an end") <= last.as_str() {
            // Both write times in the same form, but not the same zeros.
            let time = |name: &str| {
                row[name].as_str().unwrap_or_default().trim_end_matches(".000").to_owned()
            };
            let text =
                format!("{} {} {} {} {}", row["k"], time("s"), time("e"), row["n"], row["v"]);
            *rows.entry(text).or_default() += 1;
        }
    }
    rows
}
