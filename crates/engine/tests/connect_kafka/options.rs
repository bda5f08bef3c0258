//! What is refused, and what it says.

use super::broker::Broker;

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
