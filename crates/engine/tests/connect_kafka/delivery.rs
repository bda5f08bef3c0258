//! Topics that are written.

use super::broker::Broker;
use super::services::check_example;

#[test]
fn several_topics_headers_times_and_changes_are_written() {
    let Some(broker) = Broker::shared() else { return };
    for topic in ["a1", "a2", "deb"] {
        broker.topic(topic, 1, &[]);
    }
    std::fs::write(broker.folder("written").join("in.csv"), "1,a1\n2,a2\n3,a1\n").expect("a file");
    let text = format!(
        "CREATE TABLE i (n INT, t STRING) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv'); \
         CREATE TABLE o (n INT, topic STRING NOT NULL METADATA, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', \
         h MAP<STRING, BYTES> METADATA FROM 'headers') WITH ({}, 'format' = 'json'); \
         INSERT INTO o SELECT n, t, TO_TIMESTAMP_LTZ(n * 1000, 3), MAP['n', CAST(t AS BYTES)] FROM i;",
        broker.table("kafka", "a1;a2"),
    );
    broker.output("written", &text);
    let found = broker.read("a1");
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].value.as_deref(), Some("{\"n\":3}"));
    assert_eq!((found[1].time, found[1].headers.get("n").map(String::as_str)), (3000, Some("a1")));
    assert_eq!(broker.values("a2"), ["{\"n\":2}"]);
}

#[test]
fn a_job_without_snapshots_writes_at_once() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("plain", 2, &[]);
    let text = format!(
        "CREATE TABLE n (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', \
         'fields.n.end' = '1000'); CREATE TABLE o (n INT) WITH ({}); INSERT INTO o SELECT n FROM n;",
        broker.json("plain"),
    );
    broker.output("plain", &text);
    assert_eq!(broker.values("plain").len(), 1000);
}

#[test]
fn the_examples_run() {
    let Some(broker) = Broker::shared() else { return };
    let topics = ["orders", "payments", "paid-orders", "bad-orders", "rules", "events", "alarms"];
    topics.iter().for_each(|topic| broker.topic(topic, 2, &[]));
    for name in ["kafka-orders", "rules"] {
        check_example(name, &broker.folder(name), &[("BOOTSTRAP", &broker.servers)]);
    }
}
