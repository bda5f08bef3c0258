//! Brokers that encrypt, and that know who may talk to them.

use super::broker::{BOUNDED, Broker};

const PLAIN: &str = "plain.PlainLoginModule";
const SCRAM: &str = "scram.ScramLoginModule";
const SECRETS: &str = "SET 'secrets.file' = 'secrets'; ";

/// A broker with a topic `safe`, and a file of secrets for jobs.
struct Safe {
    broker: Broker,
    /// Where certificates are.
    tls: String,
}

impl Safe {
    fn start() -> Option<Safe> {
        let broker = Broker::start_with(&[("KAFKA_TLS", "1")])?;
        broker.topic("safe", 1, &[]);
        let secrets = "kafka = thalweg-s3cret\nwrong = another-s3cret\n";
        std::fs::write(broker.folder("safe").join("secrets"), secrets).expect("a file");
        let tls = broker.value("TLS").to_owned();
        Some(Safe { broker, tls })
    }

    /// A table over the listener of this key.
    fn table(&self, listener: &str, options: &str) -> String {
        format!(
            "{SECRETS}CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'topic' = 'safe', 'format' = 'json', \
             'properties.bootstrap.servers' = '{}', {options}); ",
            self.broker.value(listener)
        )
    }

    /// Who is trusted.
    fn trust(&self, authority: &str) -> String {
        format!(
            "'properties.ssl.truststore.location' = '{}/{authority}', 'properties.ssl.truststore.type' = 'PEM'",
            self.tls
        )
    }

    /// A certificate of the client's own.
    fn own(&self, authority: &str) -> String {
        format!(
            "'properties.security.protocol' = 'SSL', 'properties.ssl.keystore.type' = 'PEM', \
             'properties.ssl.keystore.location' = '{}/client.chain.pem', {}",
            self.tls,
            self.trust(authority)
        )
    }

    /// A password, by the name of its secret.
    fn sasl(&self, mechanism: &str, module: &str, secret: &str) -> String {
        format!(
            "'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = '{mechanism}', \
             'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.{module} required \
             username=\"thalweg\" password=\"${{secret:{secret}}}\";', {}",
            self.trust("ca.pem")
        )
    }
}

#[test]
#[ignore = "starts a broker of its own: run by `make connect-test`"]
fn right_certificates_and_passwords_are_let_in() {
    let Some(safe) = Safe::start() else { return };
    safe.broker.send("safe", [(0, None, Some("{\"n\": 20}")), (0, None, Some("{\"n\": 22}"))]);
    for (listener, options) in [
        ("BOOTSTRAP_SSL", safe.own("ca.pem")),
        ("BOOTSTRAP_SASL_SSL", safe.sasl("PLAIN", PLAIN, "kafka")),
        ("BOOTSTRAP_SASL_SSL", safe.sasl("SCRAM-SHA-256", SCRAM, "kafka")),
        ("BOOTSTRAP_SASL_SSL", safe.sasl("SCRAM-SHA-512", SCRAM, "kafka")),
    ] {
        let table = safe.table(listener, &format!("{options}, {BOUNDED}"));
        let said = safe.broker.output("safe", &format!("{table}SELECT SUM(n) AS s FROM t;"));
        assert!(said.contains("42"), "{options}: {said}");
    }
    // Rows are written over them as well, in transactions.
    let exactly =
        "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'safe'";
    let sasl = safe.sasl("SCRAM-SHA-256", SCRAM, "kafka");
    let text = format!(
        "SET 'execution.checkpointing.dir' = 'snapshots'; {}CREATE TABLE n (n INT) WITH ('connector' = 'datagen', \
         'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '5'); INSERT INTO t SELECT n FROM n;",
        safe.table("BOOTSTRAP_SASL_SSL", &format!("{sasl}, {exactly}"))
    );
    safe.broker.output("safe", &text);
    assert_eq!(safe.broker.values("safe").len(), 7);
}

#[test]
#[ignore = "starts a broker of its own: run by `make connect-test`"]
fn wrong_certificates_and_passwords_are_named() {
    let Some(safe) = Safe::start() else { return };
    let without = format!("'properties.security.protocol' = 'SSL', {}", safe.trust("ca.pem"));
    for (listener, options, words) in [
        ("BOOTSTRAP_SSL", safe.own("other-ca.pem"), "certificate"),
        ("BOOTSTRAP_SSL", without, "certificate"),
        ("BOOTSTRAP_SASL_SSL", safe.sasl("PLAIN", PLAIN, "wrong"), "Authentication failed"),
        ("BOOTSTRAP_SASL_SSL", safe.sasl("SCRAM-SHA-256", SCRAM, "wrong"), "Authentication failed"),
        ("BOOTSTRAP_SASL_SSL", safe.sasl("PLAIN", PLAIN, "none"), "secret 'none'"),
    ] {
        let table = safe.table(listener, &format!("{options}, {BOUNDED}"));
        safe.broker.refused("safe", &format!("{table}SELECT n FROM t;"), &[words]);
    }
}
