//! What others do to a topic while a job reads it: its log is compacted, members of the group come
//! and go, partitions stay empty.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};

use super::broker::Broker;
use super::services::Job;

/// The last value of each key; none where it was deleted.
fn last(broker: &Broker, topic: &str) -> BTreeMap<String, String> {
    let mut last = BTreeMap::new();
    for found in broker.read(topic) {
        last.insert(found.key.expect("a key"), found.value);
    }
    last.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

#[test]
#[ignore = "waits for the log cleaner of a broker of its own: run by `make connect-test`"]
fn a_topic_that_was_compacted_is_read_on_where_the_job_was() {
    let cleaner = "log.cleaner.backoff.ms=100\nlog.cleaner.threads=1";
    let Some(broker) = Broker::start_with(&[("KAFKA_EXTRA", cleaner)]) else { return };
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("max.compaction.lag.ms", "100"),
    ];
    broker.topic("users", 1, &settings);
    broker.topic("copies", 1, &[("cleanup.policy", "compact")]);
    let send = |from: usize, to: usize| {
        let messages: Vec<(String, Option<String>)> = (from..to)
            .map(|n| {
                let id = n % 7;
                let value = format!("{{\"id\":{id},\"n\":{n}}}");
                (format!("{{\"id\":{id}}}"), (id != 3 || n % 2 == 0).then_some(value))
            })
            .collect();
        broker.send(
            "users",
            messages.iter().map(|(key, value)| (0, Some(key.as_str()), value.as_deref())),
        );
    };
    send(0, 700);
    let table = |topic: &str| {
        format!(
            "(id INT NOT NULL, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({}, 'key.format' = 'json', \
             'value.format' = 'json')",
            broker.table("upsert-kafka", topic)
        )
    };
    let text = format!(
        "SET 'execution.checkpointing.dir' = 'snapshots'; SET 'execution.checkpointing.interval' = '100 ms'; \
         CREATE TABLE u {}; CREATE TABLE c {}; INSERT INTO c SELECT id, n FROM u;",
        table("users"),
        table("copies")
    );
    let file = broker.file("compacted", &text);
    let job = Job::start(&file, &["--resume"]);
    wait_until(|| {
        last(&broker, "copies").get("{\"id\":0}") == Some(&"{\"id\":0,\"n\":693}".to_owned())
    });
    job.kill();
    // Another message closes the segment, and what lies before it is cleaned.
    send(700, 1_400);
    sleep(Duration::from_millis(300));
    send(1_400, 1_401);
    wait_until(|| broker.read("users").len() < 100);
    let expected = last(&broker, "users");
    assert_eq!(expected.len(), 6 + usize::from(expected.contains_key("{\"id\":3}")));
    let job = Job::start(&file, &["--resume"]);
    wait_until(|| last(&broker, "copies") == expected);
    job.interrupt();
    // From its beginning to its end, which is behind the last message that is left.
    let bounded = table("users").replace("WITH (", "WITH ('scan.bounded.mode' = 'latest-offset', ");
    let said =
        broker.output("whole", &format!("CREATE TABLE u {bounded}; SELECT MAX(n) AS m FROM u;"));
    assert!(said.contains("1400"), "{said}");
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not happen");
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn other_members_of_the_group_take_nothing_away() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("shared", 2, &[]);
    broker.topic("own", 1, &[]);
    let send = |from: i32, to: i32| {
        let values: Vec<String> = (from..to).map(|n| format!("{{\"n\": {n}}}")).collect();
        broker.send(
            "shared",
            values.iter().zip(0..).map(|(value, at)| (at % 2, None, Some(&**value))),
        );
    };
    send(0, 100);
    let text = format!(
        "SET 'execution.checkpointing.dir' = 'snapshots'; SET 'execution.checkpointing.interval' = '100 ms'; \
         CREATE TABLE t (n INT) WITH ({}, 'properties.group.id' = 'members', 'scan.startup.mode' = 'earliest-offset'); \
         CREATE TABLE o (n INT) WITH ({}); INSERT INTO o SELECT n FROM t;",
        broker.json("shared"),
        broker.json("own")
    );
    let job = Job::start(&broker.file("shared", &text), &[]);
    broker.wait_for("own", 100);
    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", &broker.servers).set("group.id", "members");
    // It joins, reads, and leaves again.
    for round in 1..3 {
        let member: BaseConsumer = config.create().expect("a consumer");
        member.subscribe(&["shared"]).expect("subscribed");
        wait_until(|| {
            drop(member.poll(Duration::from_millis(100)));
            member.assignment().is_ok_and(|list| list.count() == 2)
        });
        send(100 * round, 100 * (round + 1));
        broker.wait_for("own", 100 * (round as usize + 1));
    }
    job.interrupt();
}

#[test]
fn partitions_that_stay_empty_hold_nothing_back() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("sparse", 6, &[]);
    broker.topic("counts", 1, &[]);
    let values: Vec<String> = (0..100).map(|n| format!("{{\"ms\": {}}}", n * 100)).collect();
    broker.send("sparse", values.iter().map(|value| (4, None, Some(value.as_str()))));
    let text = format!(
        "CREATE TABLE t (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts) WITH ({}, \
         'scan.startup.mode' = 'earliest-offset', 'scan.watermark.idle-timeout' = '200 ms'); \
         CREATE TABLE o (n BIGINT) WITH ({}); \
         INSERT INTO o SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
         GROUP BY window_start, window_end;",
        broker.json("sparse"),
        broker.json("counts")
    );
    let job = Job::start(&broker.file("sparse", &text), &[]);
    assert_eq!(broker.wait_for("counts", 9), vec!["{\"n\":10}"; 9]);
    job.interrupt();
    let said = broker.output(
        "sparse",
        &format!(
            "CREATE TABLE t (ms BIGINT) WITH ({}); SELECT COUNT(*) AS n FROM t;",
            broker.bounded("sparse")
        ),
    );
    assert!(said.contains("100"), "{said}");
}
