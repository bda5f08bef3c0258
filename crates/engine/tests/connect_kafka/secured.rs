//! Brokers that encrypt, and that know who may talk to them.

use super::broker::{BOUNDED, Broker};

/// A table of the topic over one of the listeners.
fn table(servers: &str, options: &str) -> String {
    format!(
        "CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'topic' = 'safe', 'format' = 'json', {BOUNDED}, \
         'properties.bootstrap.servers' = '{servers}', {options}); "
    )
}

#[test]
#[ignore = "starts a broker of its own: run by `make connect-test`"]
fn right_certificates_and_passwords_are_let_in_and_wrong_ones_are_named() {
    let Some(broker) = Broker::start_with(&[("KAFKA_TLS", "1")]) else { return };
    broker.topic("safe", 1, &[]);
    broker.send("safe", [(0, None, Some("{\"n\": 20}")), (0, None, Some("{\"n\": 22}"))]);
    let dir = broker.folder("safe");
    std::fs::write(dir.join("secrets"), "kafka = thalweg-s3cret\nwrong = another-s3cret\n")
        .expect("a file");
    let tls = broker.value("TLS").to_owned();
    let trust = |authority: &str| {
        format!(
            "'properties.ssl.truststore.location' = '{tls}/{authority}', 'properties.ssl.truststore.type' = 'PEM'"
        )
    };
    let own = format!(
        "'properties.security.protocol' = 'SSL', 'properties.ssl.keystore.type' = 'PEM', \
         'properties.ssl.keystore.location' = '{tls}/client.chain.pem'"
    );
    let sasl = |mechanism: &str, module: &str, secret: &str| {
        format!(
            "'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = '{mechanism}', \
             'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.{module} required username=\"thalweg\" \
             password=\"${{secret:{secret}}}\";'"
        )
    };
    let (ssl, sasl_ssl) = (broker.value("BOOTSTRAP_SSL"), broker.value("BOOTSTRAP_SASL_SSL"));
    let (plain, scram) = ("plain.PlainLoginModule", "scram.ScramLoginModule");
    let right = [
        (ssl, format!("{own}, {}", trust("ca.pem"))),
        (sasl_ssl, format!("{}, {}", sasl("PLAIN", plain, "kafka"), trust("ca.pem"))),
        (sasl_ssl, format!("{}, {}", sasl("SCRAM-SHA-256", scram, "kafka"), trust("ca.pem"))),
        (sasl_ssl, format!("{}, {}", sasl("SCRAM-SHA-512", scram, "kafka"), trust("ca.pem"))),
    ];
    let secrets = "SET 'secrets.file' = 'secrets'; ";
    for (servers, options) in &right {
        let said = broker.output(
            "safe",
            &format!("{secrets}{}SELECT SUM(n) AS s FROM t;", table(servers, options)),
        );
        assert!(said.contains("42"), "{options}: {said}");
    }
    // Rows are written over them as well, in transactions.
    let exactly =
        "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'safe'";
    let text = format!(
        "{secrets}SET 'execution.checkpointing.dir' = 'snapshots'; {}CREATE TABLE n (n INT) WITH ('connector' = \
         'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '5'); INSERT INTO t SELECT n FROM n;",
        table(sasl_ssl, &format!("{}, {exactly}", right[2].1)).replace(&format!("{BOUNDED}, "), "")
    );
    broker.output("safe", &text);
    assert_eq!(broker.values("safe").len(), 7);
    let wrong = [
        (ssl, format!("{own}, {}", trust("other-ca.pem")), "certificate"),
        (
            ssl,
            format!("'properties.security.protocol' = 'SSL', {}", trust("ca.pem")),
            "certificate",
        ),
        (
            sasl_ssl,
            format!("{}, {}", sasl("PLAIN", plain, "wrong"), trust("ca.pem")),
            "properties.sasl",
        ),
        (
            sasl_ssl,
            format!("{}, {}", sasl("SCRAM-SHA-256", scram, "wrong"), trust("ca.pem")),
            "properties.sasl",
        ),
        (
            sasl_ssl,
            format!("{}, {}", sasl("PLAIN", plain, "none"), trust("ca.pem")),
            "secret 'none'",
        ),
    ];
    for (servers, options, words) in &wrong {
        broker.refused(
            "safe",
            &format!("{secrets}{}SELECT n FROM t;", table(servers, options)),
            &[words],
        );
    }
}
