//! What is refused, and what it says.

use std::thread::sleep;
use std::time::Duration;

use super::broker::{BOUNDED, Broker};
use super::services::Job;

#[test]
fn mistakes_are_named_with_what_to_do() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("there", 1, &[]);
    let table = |options: &str| {
        format!(
            "CREATE TABLE t (n INT, s STRING) WITH ({}, {options}); SELECT * FROM t;",
            broker.table("kafka", "there")
        )
    };
    let cases: &[(&str, &[&str])] = &[
        ("'format' = 'jsn'", &["no format 'jsn'", "json"]),
        ("'format' = 'json', 'scan.startup.mode' = 'group-offsets'", &["properties.group.id"]),
        (
            "'format' = 'json', 'key.fields' = 'n'",
            &["'key.fields' and 'key.format' belong together"],
        ),
        (
            "'format' = 'json', 'key.fields' = 'm', 'key.format' = 'json'",
            &["'m', which is no column"],
        ),
        (
            "'format' = 'json', 'json.fail-on-missing-feld' = 'true'",
            &["json.fail-on-missing-field"],
        ),
        (
            "'format' = 'json', 'properties.sesion.timeout.ms' = '1'",
            &["properties.sesion.timeout.ms"],
        ),
        (
            "'format' = 'json', 'properties.sasl.mechanism' = 'PLAIN', 'properties.sasl.jaas.config' = \
             'a.b.PlainLoginModule required username=\"u\" password=\"s3cret\"',\n 'properties.acks' = 'some'",
            &["properties.acks"],
        ),
        ("'format' = 'json', 'scan.startup.timestamp-millis' = '1'", &["no effect in this mode"]),
        ("'format' = 'json', 'bad-data' = 'dead-letter'", &["dead-letter.topic"]),
    ];
    for (at, (options, words)) in cases.iter().enumerate() {
        broker.refused(&format!("refused{at}"), &table(options), words);
    }
    let missing = "CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'topic' = 'not-there', 'format' = 'json', \
        'scan.startup.mode' = 'earliest-offset', 'properties.bootstrap.servers' = 'SERVERS'); SELECT * FROM t;";
    broker.refused(
        "missing",
        &missing.replace("SERVERS", &broker.servers),
        &["topic 'not-there'", "create the topic"],
    );
}

#[test]
fn an_output_topic_that_is_not_there_is_named() {
    let Some(broker) = Broker::shared() else { return };
    let job = |options: &str| {
        format!(
            "SET 'execution.checkpointing.dir' = 'snapshots'; SET 'restart-strategy.type' = 'none'; \
             CREATE TABLE n (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1'); \
             CREATE TABLE o (n INT) WITH ('connector' = 'kafka', 'topic' = 'not-there', 'format' = 'json', \
             'properties.bootstrap.servers' = '{}', {options}); INSERT INTO o SELECT n FROM n;",
            broker.servers
        )
    };
    let exactly =
        "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'n'";
    broker.refused("no-output", &job(exactly), &["o: topic 'not-there'", "create the topic"]);
    // The client waits so long for topics that others may have made a moment ago.
    let at_least = "'properties.topic.metadata.propagation.max.ms' = '100'";
    broker.refused("no-output-plain", &job(at_least), &["topic 'not-there'", "can't be written"]);
}

#[test]
fn servers_that_others_name_must_be_allowed() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("allowed", 1, &[]);
    // The broker names itself 127.0.0.1, however it was called.
    let other = broker.servers.replace("127.0.0.1", "localhost");
    let table = |servers: &str| {
        format!(
            "CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'topic' = 'allowed', 'format' = 'json', {BOUNDED}, \
             'properties.bootstrap.servers' = '{servers}'); "
        )
    };
    let input = "CREATE TABLE n (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1'); ";
    let (reads, writes) = ("SELECT n FROM t;", "INSERT INTO t SELECT n FROM n;");
    let only = |host: &str| format!("SET 'network.allowed-targets' = '{host}'; {input}");
    let words =
        ["the servers name another one", "connections to 127.0.0.1", "'network.allowed-targets'"];
    for (at, job) in [reads, writes].into_iter().enumerate() {
        let text = format!("{}{}{job}", only("localhost"), table(&other));
        broker.refused(&format!("allowed{at}"), &text, &words);
        broker
            .output("allowed", &format!("{}{}{job}", only("localhost; 127.0.0.1"), table(&other)));
    }
    assert_eq!(broker.values("allowed").len(), 1);
}

#[test]
fn a_job_that_waits_for_servers_at_its_start_can_be_stopped() {
    let Some(broker) = Broker::shared() else { return };
    // A server listens there and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let table = |options: &str| {
        format!(
            "CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json', \
             'properties.bootstrap.servers' = '{address}' {options}); "
        )
    };
    let exactly =
        ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'waits'";
    let writes = format!(
        "SET 'execution.checkpointing.dir' = 'snapshots'; CREATE TABLE n (n INT) WITH ('connector' = 'datagen'); \
         {}INSERT INTO t SELECT n FROM n;",
        table(exactly)
    );
    let reads = format!("{}SELECT n FROM t;", table(", 'scan.startup.mode' = 'earliest-offset'"));
    for (name, text) in [("waits-r", reads), ("waits-w", writes)] {
        let job = Job::start(&broker.file(name, &text), &[]);
        sleep(Duration::from_millis(2_000));
        let took = job.interrupt();
        assert!(took < Duration::from_secs(2), "{name}: {took:?}");
    }
}

#[test]
fn transactions_longer_than_the_broker_allows_are_refused_at_the_start() {
    let Some(broker) = Broker::shared() else { return };
    broker.topic("limited", 1, &[]);
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '100 ms'; \
         CREATE TABLE n (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', \
         'fields.n.end' = '10'); \
         CREATE TABLE o (n INT) WITH ({}, 'sink.delivery-guarantee' = 'exactly-once', \
         'sink.transactional-id-prefix' = 'limited', 'properties.transaction.timeout.ms' = '3600000'); \
         INSERT INTO o SELECT n FROM n;",
        broker.folder("limited").join("snapshots").display(),
        broker.json("limited"),
    );
    broker.refused(
        "limited",
        &text,
        &[
            "'properties.transaction.timeout.ms' = 3600000",
            "'transaction.max.timeout.ms' is 900000",
        ],
    );
}
