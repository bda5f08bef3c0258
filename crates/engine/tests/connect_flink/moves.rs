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
    let queries = [("counts", COUNTS), ("hops", HOPS), ("joined", JOINED), ("sessions", SESSIONS)];
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
        assert!(said.contains("WHERE window_time >"), "{said}");
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
    let pairs = "SELECT a.k, a.ts, b.ts, a.v, b.v FROM t a JOIN u b
      ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts";
    let file = broker.file("pairs", &script(&broker, "pairs", "counts", "", pairs));
    let said = fails(&["move", "--flink", url, file.to_str().expect("text")]);
    assert!(said.contains("a join within an interval"), "{said}");
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
