//! Topics that are read.

use std::thread::sleep;
use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};

use super::broker::{BOUNDED, Broker};
use super::services::Job;

#[test]
fn rows_go_from_topic_to_topic_with_metadata_and_keys() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("in", 3, &[]);
    broker.topic("out", 1, &[]);
    let header = OwnedHeaders::new()
        .insert(Header { key: "h", value: Some("first") })
        .insert(Header { key: "h", value: Some("last") });
    // One partition stays empty, and one has a message without a value.
    broker.send_all(
        "in",
        [
            (
                (0, Some("{\"id\": 1}"), Some("{\"id\": 10, \"v\": \"a\"}")),
                1_700_000_000_123,
                Some(header),
            ),
            ((0, None, None), 1_700_000_000_124, None),
            ((2, Some("{\"id\": 2}"), Some("{\"id\": 20, \"v\": \"b\"}")), 1_700_000_000_125, None),
        ],
    );
    let keyed = "'key.format' = 'json', 'key.fields' = 'k_id', 'key.fields-prefix' = 'k_', 'value.fields-include' = 'EXCEPT_KEY'";
    let text = format!(
        "CREATE TABLE i (k_id INT, id INT, v STRING, part INT METADATA FROM 'partition' VIRTUAL, \
         o BIGINT METADATA FROM 'offset' VIRTUAL, t STRING METADATA FROM 'topic' VIRTUAL, \
         h MAP<STRING, BYTES> METADATA FROM 'headers' VIRTUAL, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, \
         k STRING METADATA FROM 'timestamp-type' VIRTUAL, \
         e INT METADATA FROM 'leader-epoch' VIRTUAL) WITH ({}, {keyed}); \
         CREATE TABLE o (k_id INT, v STRING, part INT, o BIGINT, t STRING, h STRING, ts TIMESTAMP_LTZ(3), k STRING, e INT) \
         WITH ({}, {keyed}); \
         INSERT INTO o SELECT k_id, v || CAST(id AS STRING), part, o, t, CAST(h['h'] AS STRING), ts, k, e FROM i;",
        broker.bounded("in"),
        broker.json("out"),
    );
    broker.output("metadata", &text);
    let mut found: Vec<_> =
        broker.read("out").into_iter().map(|found| (found.key, found.value)).collect();
    found.sort();
    let row = |key: &str, value: &str| (Some(key.to_owned()), Some(value.to_owned()));
    assert_eq!(
        found,
        [
            row(
                "{\"id\":1}",
                "{\"v\":\"a10\",\"part\":0,\"o\":0,\"t\":\"in\",\"h\":\"last\",\"ts\":\"2023-11-14 22:13:20.123Z\",\"k\":\"CreateTime\",\"e\":0}"
            ),
            row(
                "{\"id\":2}",
                "{\"v\":\"b20\",\"part\":2,\"o\":0,\"t\":\"in\",\"h\":null,\"ts\":\"2023-11-14 22:13:20.125Z\",\"k\":\"CreateTime\",\"e\":0}"
            ),
        ]
    );
}

#[test]
fn startup_and_bounded_modes() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("modes", 2, &[]);
    let values: Vec<String> = (0..10).map(|i| format!("{{\"n\": {i}}}")).collect();
    broker.send_all(
        "modes",
        values.iter().zip(0..).map(|(value, i)| {
            ((i % 2, None, Some(value.as_str())), 1_000_000 + i64::from(i), None)
        }),
    );
    let count = |name: &str, options: &str, expected: &str| {
        let text = format!(
            "CREATE TABLE t (n INT) WITH ({}, 'properties.group.id' = 'modes', {options}); \
             SELECT COUNT(*) AS c, MIN(n) AS low, MAX(n) AS high FROM t;",
            broker.json("modes")
        );
        let said = broker.output(name, &text);
        assert!(said.contains(expected), "{options}: {said}");
    };
    count("m1", BOUNDED, "10,0,9");
    count(
        "m2",
        "'scan.startup.mode' = 'latest-offset', 'scan.bounded.mode' = 'latest-offset'",
        "op,c,low,high",
    );
    let latest = "'scan.bounded.mode' = 'latest-offset'";
    count(
        "m3",
        &format!(
            "'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '1000004', {latest}"
        ),
        "6,4,9",
    );
    count(
        "m4",
        &format!(
            "'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:3', {latest}"
        ),
        "7,1,9",
    );
    count(
        "m5",
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'specific-offsets', \
         'scan.bounded.specific-offsets' = 'partition:0,offset:2;partition:1,offset:1'",
        "3,0,2",
    );
    count(
        "m6",
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'timestamp', \
         'scan.bounded.timestamp-millis' = '1000005'",
        "5,0,4",
    );
    // Nothing is committed: the reset says where to begin, and without one the job fails.
    count("m7", &format!("'properties.auto.offset.reset' = 'earliest', {latest}"), "10,0,9");
    let text = format!(
        "CREATE TABLE t (n INT) WITH ({}, 'properties.group.id' = 'nobody', {latest}); SELECT * FROM t;",
        broker.json("modes")
    );
    broker.refused("m8", &text, &["'nobody' has committed no offset", "auto.offset.reset"]);
}

#[test]
fn positions_are_kept_offsets_committed_and_new_partitions_found() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("grows", 1, &[]);
    broker.topic("grown", 1, &[]);
    let send = |partition, from: i32, to: i32| {
        let values: Vec<String> = (from..to).map(|i| format!("{{\"n\": {i}}}")).collect();
        broker.send("grows", values.iter().map(|value| (partition, None, Some(value.as_str()))));
    };
    send(0, 0, 100);
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '100 ms'; \
         CREATE TABLE t (n INT) WITH ({}, 'properties.group.id' = 'growing', 'scan.startup.mode' = 'earliest-offset', \
         'scan.topic-partition-discovery.interval' = '200 ms'); \
         CREATE TABLE o (n INT) WITH ({}); INSERT INTO o SELECT n FROM t;",
        broker.folder("grows").join("snapshots").display(),
        broker.json("grows"),
        broker.json("grown"),
    );
    let file = broker.file("grows", &text);
    let job = Job::start(&file, &["--resume"]);
    broker.wait_for("grown", 100);
    broker.grow("grows", 3);
    send(2, 100, 150);
    broker.wait_for("grown", 150);
    // The group has what a kept snapshot covers.
    let start = std::time::Instant::now();
    while broker.committed("growing", "grows") != Some(100) {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{:?}",
            broker.committed("growing", "grows")
        );
        sleep(Duration::from_millis(50));
    }
    let took = job.interrupt();
    assert!(took < Duration::from_secs(5), "{took:?}");
    send(0, 150, 200);
    send(1, 200, 250);
    let job = Job::start(&file, &["--resume"]);
    let mut found = broker.wait_for("grown", 250);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 250);
    job.interrupt();
}

#[test]
fn bad_messages_fail_the_job_or_go_where_they_should() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("bad", 1, &[]);
    broker.topic("letters", 1, &[]);
    broker.send(
        "bad",
        [
            (0, None, Some("{\"n\": 1}")),
            (0, Some("k"), Some("{\"n\": tru")),
            (0, None, Some("{\"n\": 3}")),
        ],
    );
    let text = |more: &str| {
        format!(
            "CREATE TABLE t (n INT) WITH ({} {more}); SELECT SUM(n) AS s FROM t;",
            broker.bounded("bad")
        )
    };
    broker.refused("bad1", &text(""), &["bad-0", "1", "bad-data"]);
    let said = broker.output("bad2", &text(", 'bad-data' = 'skip'"));
    assert!(said.contains('4'), "{said}");
    broker.output(
        "bad3",
        &text(", 'bad-data' = 'dead-letter', 'dead-letter.path' = 'letters.jsonl'"),
    );
    let file =
        std::fs::read_to_string(broker.folder("bad3").join("letters.jsonl")).expect("letters");
    assert!(
        file.contains("\"file\":\"bad-0\"")
            && file.contains("\"line\":1")
            && file.lines().count() == 1,
        "{file}"
    );
    broker.output("bad4", &text(", 'bad-data' = 'dead-letter', 'dead-letter.topic' = 'letters'"));
    let letters = broker.read("letters");
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some("k"), Some("{\"n\": tru")));
    let header = |name: &str| letter.headers.get(name).map(String::as_str);
    assert_eq!((header("thalweg.topic"), header("thalweg.partition")), (Some("bad"), Some("0")));
    assert!(
        header("thalweg.offset") == Some("1") && header("thalweg.reason").is_some(),
        "{letter:?}"
    );
}

#[test]
fn the_last_value_of_each_key_over_a_compacted_topic() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic(
        "users",
        1,
        &[
            ("cleanup.policy", "compact"),
            ("segment.ms", "100"),
            ("min.cleanable.dirty.ratio", "0.01"),
        ],
    );
    broker.topic("copies", 1, &[]);
    let columns = "id INT NOT NULL, name STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED";
    let upsert = |topic: &str| {
        format!(
            "{}, 'key.format' = 'json', 'value.format' = 'json'",
            broker.table("upsert-kafka", topic)
        )
    };
    broker.send(
        "users",
        [
            (0, Some("{\"id\":1}"), Some("{\"id\":1,\"name\":\"a\"}")),
            (0, Some("{\"id\":2}"), Some("{\"id\":2,\"name\":\"b\"}")),
            (0, Some("{\"id\":1}"), Some("{\"id\":1,\"name\":\"c\"}")),
            (0, Some("{\"id\":3}"), Some("{\"id\":3,\"name\":\"d\"}")),
            (0, Some("{\"id\":2}"), None),
            (0, Some("{\"id\":9}"), None),
        ],
    );
    let text = format!(
        "CREATE TABLE u ({columns}) WITH ({}, 'scan.bounded.mode' = 'latest-offset'); \
         CREATE TABLE c (first STRING NOT NULL, n BIGINT, PRIMARY KEY (first) NOT ENFORCED) WITH ({}, \
         'sink.buffer-flush.max-rows' = '1000', 'sink.buffer-flush.interval' = '10 s'); \
         INSERT INTO c SELECT name, COUNT(*) FROM u GROUP BY name;",
        upsert("users"),
        upsert("copies"),
    );
    broker.output("upsert", &text);
    let mut last = std::collections::BTreeMap::new();
    for found in broker.read("copies") {
        last.insert(found.key.expect("a key"), found.value);
    }
    last.retain(|_, value| value.is_some());
    let names: Vec<&str> = last.keys().map(String::as_str).collect();
    assert_eq!(names, ["{\"first\":\"c\"}", "{\"first\":\"d\"}"]);
}

#[test]
fn changes_of_debezium_are_read() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("changes", 1, &[]);
    broker.send(
        "changes",
        [
            (0, None, Some("{\"before\": null, \"after\": {\"id\": 1, \"v\": 10}, \"op\": \"c\"}")),
            (0, None, Some("{\"before\": {\"id\": 1, \"v\": 10}, \"after\": {\"id\": 1, \"v\": 15}, \"op\": \"u\"}")),
            (0, None, Some("{\"before\": null, \"after\": {\"id\": 2, \"v\": 7}, \"op\": \"c\"}")),
            (0, None, Some("{\"before\": {\"id\": 2, \"v\": 7}, \"after\": null, \"op\": \"d\"}")),
            (0, None, None),
        ],
    );
    let text = format!(
        "CREATE TABLE t (id INT, v INT) WITH ({}, 'format' = 'debezium-json', {BOUNDED}); \
         SELECT COUNT(*) AS n, SUM(v) AS s FROM t;",
        broker.table("kafka", "changes")
    );
    let said = broker.output("changes", &text);
    assert!(said.contains("1,15"), "{said}");
}

#[test]
fn a_broker_that_is_killed_comes_back() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("from", 2, &[]);
    broker.topic("to", 1, &[]);
    let send = |from: i32, to: i32| {
        let values: Vec<String> = (from..to).map(|i| format!("{{\"n\": {i}}}")).collect();
        broker.send(
            "from",
            values.iter().zip(0..).map(|(value, i)| (i % 2, None, Some(value.as_str()))),
        );
    };
    send(0, 100);
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '100 ms'; \
         CREATE TABLE t (n INT) WITH ({}, 'scan.startup.mode' = 'earliest-offset'); \
         CREATE TABLE o (n INT) WITH ({}); INSERT INTO o SELECT n FROM t;",
        broker.folder("from").join("snapshots").display(),
        broker.json("from"),
        broker.json("to"),
    );
    let job = Job::start(&broker.file("from", &text), &[]);
    broker.wait_for("to", 100);
    broker.crash();
    sleep(Duration::from_millis(500));
    broker.start_again();
    send(100, 200);
    broker.wait_for("to", 200);
    // A job ends also where the broker is away.
    broker.crash();
    sleep(Duration::from_millis(300));
    let took = job.interrupt();
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn a_topic_that_is_deleted_does_not_stop_the_others() {
    let Some(broker) = Broker::shared() else { return };
    for topic in ["goes", "stays", "rest"] {
        broker.topic(topic, 1, &[]);
    }
    broker.send("goes", [(0, None, Some("{\"n\": 1}"))]);
    let text = format!(
        "CREATE TABLE t (n INT) WITH ({}, 'scan.startup.mode' = 'earliest-offset'); \
         CREATE TABLE o (n INT) WITH ({}); INSERT INTO o SELECT n FROM t;",
        broker.json("goes;stays"),
        broker.json("rest"),
    );
    let job = Job::start(&broker.file("deleted", &text), &[]);
    broker.wait_for("rest", 1);
    broker.delete("goes");
    sleep(Duration::from_millis(1_500));
    broker.send("stays", [(0, None, Some("{\"n\": 2}"))]);
    broker.wait_for("rest", 2);
    job.interrupt();
}
