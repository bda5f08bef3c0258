//! The client's settings: `properties.*`, as the Java client knows them, in the words of
//! librdkafka.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::metadata::{Metadata, MetadataBroker};
use rdkafka::producer::{BaseProducer, ProducerContext};
use thalweg_core::connector::{
    AllowedTargets, Options, Secret, TableRequest, Trouble, names_secret,
};
use thalweg_core::{Error, Result};

use super::jaas;

/// The longest that one call of the client waits, on a thread of its own.
pub const CALL: Duration = Duration::from_millis(1_000);
/// The same of calls that continue where they were when they are repeated: they may be on the
/// thread of whoever wants to stop.
pub const SLICE: Duration = Duration::from_millis(200);

/// Settings of the Java client under other names.
const RENAMED: &[(&str, &str)] = &[
    ("fetch.max.wait.ms", "fetch.wait.max.ms"),
    ("max.request.size", "message.max.bytes"),
    ("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    ("send.buffer.bytes", "socket.send.buffer.bytes"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("ssl.truststore.certificates", "ssl.ca.pem"),
    ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ("ssl.keystore.key", "ssl.key.pem"),
    ("buffer.memory", "queue.buffering.max.kbytes"),
];

/// Settings that mean something in Java alone, or that this connector decides.
const IGNORED: &[&str] = &[
    "auto.include.jmx.reporter",
    "auto.offset.reset",
    "client.dns.lookup",
    "client.id.prefix",
    "commit.offsets.on.checkpoint",
    "default.api.timeout.ms",
    "exclude.internal.topics",
    "group.protocol",
    "key.deserializer",
    "key.serializer",
    "max.block.ms",
    "max.poll.records",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "partition.discovery.interval.ms",
    "partitioner.class",
    "register.consumer.metrics",
    "register.producer.metrics",
    "security.providers",
    "ssl.protocol",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.type",
    "ssl.keystore.type",
    "value.deserializer",
    "value.serializer",
];

/// Settings by which the client would talk to other hosts, or run code.
const REFUSED: &[&str] = &[
    "metadata.broker.list",
    "plugin.library.paths",
    "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.token.endpoint.url",
];

/// What a partition without a position does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The job fails.
    Fail,
    /// It begins with the first message that is there.
    Earliest,
    /// It begins with the next message.
    Latest,
}

/// What `properties.*` say.
#[derive(Clone, Debug)]
pub struct Properties {
    /// By librdkafka's names.
    settings: BTreeMap<String, String>,
    /// The consumer group, if one is named.
    pub group_id: Option<String>,
    /// Its offsets are committed with kept snapshots.
    pub commits_offsets: bool,
    /// What a partition without a position does.
    pub reset: Reset,
    /// What the user says of the longest transaction.
    pub transaction_timeout_ms: Option<u64>,
    /// What must not be seen in messages.
    hidden: Vec<Secret>,
    /// The servers that may be talked to.
    targets: AllowedTargets,
}

impl Properties {
    /// Reads them. Secrets are looked up only where `opens`.
    ///
    /// # Errors
    /// If one is wrong or can't be had, or a server may not be talked to.
    pub fn read(options: &Options<'_>, request: &TableRequest, opens: bool) -> Result<Properties> {
        let mut java = BTreeMap::new();
        let mut hidden = Vec::new();
        for (name, text) in &request.options {
            let Some(property) = name.strip_prefix("properties.") else { continue };
            let mut value = text.clone();
            if opens && let Some(secret) = options.secret(name)? {
                secret.expose().clone_into(&mut value);
                if names_secret(text) {
                    hidden.push(secret);
                }
            }
            if property.contains("password") || property.contains("jaas") {
                hidden.push(Secret::new(value.clone()));
            }
            java.insert(property.to_owned(), value);
        }
        let servers = options.required("properties.bootstrap.servers")?;
        check_targets(options, servers)?;
        let targets = request.access.targets.clone();
        let properties = Properties { targets, ..Properties::translate(options, &java, hidden)? };
        let checked = properties.config().create_native_config();
        checked.map_err(|error| properties.wrong_setting(options, &error))?;
        Ok(properties)
    }

    fn translate(
        options: &Options<'_>,
        java: &BTreeMap<String, String>,
        mut hidden: Vec<Secret>,
    ) -> Result<Properties> {
        let mut settings = BTreeMap::new();
        for (name, value) in java {
            if REFUSED.contains(&name.as_str()) {
                let refused = options.conflict(&format!("'properties.{name}' is not supported"));
                return Err(refused.hint("remove it"));
            }
            if IGNORED.contains(&name.as_str()) {
                continue;
            }
            let renamed = RENAMED.iter().find(|(from, _)| from == name).map(|(_, to)| *to);
            let value = match name.as_str() {
                "buffer.memory" => kilobytes(options, name, value)?,
                _ => value.clone(),
            };
            settings.insert(renamed.unwrap_or(name).to_owned(), value);
        }
        translate_tls(options, &mut settings)?;
        if let Some(text) = settings.remove("sasl.jaas.config") {
            let sign_in = jaas::read(&text).map_err(|message| {
                options.conflict(&format!("'properties.sasl.jaas.config': {message}"))
            })?;
            hidden.push(Secret::new(sign_in.password.clone()));
            settings.insert("sasl.username".to_owned(), sign_in.user);
            settings.insert("sasl.password".to_owned(), sign_in.password);
            let mechanism = settings.get("sasl.mechanism").map(String::as_str);
            sign_in.module.check(mechanism).map_err(|message| options.conflict(&message))?;
        }
        let reset = match java.get("auto.offset.reset").map(String::as_str) {
            None | Some("none") => Reset::Fail,
            Some("earliest") => Reset::Earliest,
            Some("latest") => Reset::Latest,
            Some(other) => {
                let expected = "'earliest', 'latest' or 'none'";
                return Err(options.bad("properties.auto.offset.reset", other, expected));
            }
        };
        let timeout = settings.get("transaction.timeout.ms").map(|text| {
            text.parse()
                .map_err(|_| options.bad("properties.transaction.timeout.ms", text, "milliseconds"))
        });
        Ok(Properties {
            group_id: settings.get("group.id").cloned(),
            commits_offsets: java
                .get("commit.offsets.on.checkpoint")
                .is_none_or(|text| text != "false"),
            reset,
            transaction_timeout_ms: timeout.transpose()?,
            hidden,
            targets: AllowedTargets::default(),
            settings,
        })
    }

    /// A configuration with all of them.
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.settings {
            config.set(name, value);
        }
        config
    }

    /// Sets what the user has not set.
    fn or(&self, config: &mut ClientConfig, name: &str, value: &str) {
        if !self.settings.contains_key(name) {
            config.set(name, value);
        }
    }

    /// The configuration of a consumer that reads this number of partitions, under this group if
    /// the user names none.
    pub fn consumer(&self, group: &str, partitions: usize) -> ClientConfig {
        let mut config = self.config();
        config.set("enable.partition.eof", "true");
        // Only the client's own commits need it, and it takes a lock for each message.
        let commits_itself = self.settings.get("enable.auto.commit").is_some_and(|on| on == "true");
        config.set("enable.auto.offset.store", if commits_itself { "true" } else { "false" });
        let reset = match self.reset {
            Reset::Fail => "error",
            Reset::Earliest => "earliest",
            Reset::Latest => "latest",
        };
        config.set("auto.offset.reset", reset);
        self.or(&mut config, "group.id", group);
        self.or(&mut config, "enable.auto.commit", "false");
        // As the Java client has it; librdkafka's own default is read_committed.
        self.or(&mut config, "isolation.level", "read_uncommitted");
        let kilobytes = (65_536 / partitions.max(1)).clamp(1_024, 16_384).to_string();
        self.or(&mut config, "queued.max.messages.kbytes", &kilobytes);
        self.or(&mut config, "fetch.wait.max.ms", "100");
        self.or(&mut config, "fetch.error.backoff.ms", "100");
        self.or(&mut config, "reconnect.backoff.max.ms", "1000");
        self.or(&mut config, "client.id", "thalweg");
        config
    }

    /// The configuration of a producer.
    pub fn producer(&self) -> ClientConfig {
        let mut config = self.config();
        let acknowledges_all =
            self.settings.get("acks").is_none_or(|acks| acks == "all" || acks == "-1");
        if acknowledges_all {
            self.or(&mut config, "enable.idempotence", "true");
        }
        config.set("delivery.report.only.error", "true");
        // As the Java client has it.
        self.or(&mut config, "partitioner", "murmur2_random");
        self.or(&mut config, "queue.buffering.max.kbytes", "65536");
        self.or(&mut config, "queue.buffering.max.messages", "1000000");
        self.or(&mut config, "reconnect.backoff.max.ms", "1000");
        // Rows wait for a server that is down, and sources wait for them.
        self.or(&mut config, "message.timeout.ms", "0");
        self.or(&mut config, "client.id", "thalweg");
        config
    }

    /// True if the user says how the client chooses the partition of a message without a key.
    pub fn choose_partitions(&self) -> bool {
        ["partitioner", "sticky.partitioning.linger.ms"]
            .iter()
            .any(|name| self.settings.contains_key(*name))
    }

    /// True if servers that others name have to be checked.
    pub fn limits_servers(&self) -> bool {
        self.targets.is_limited()
    }

    /// Checks servers that the first ones have named: the client talks to whichever has the
    /// partition.
    ///
    /// # Errors
    /// If it may not talk to one.
    pub fn check_servers(&self, table: &str, servers: &[Server]) -> Result<()> {
        servers.iter().try_for_each(|(host, port)| {
            self.targets.check(host, *port).map_err(|error| {
                let what =
                    format!("table {table}: the servers name another one: {}", error.message());
                Error::plan(what).hint(error.help().unwrap_or_default())
            })
        })
    }

    /// A message of the client without secrets.
    pub fn redact(&self, message: &str) -> String {
        self.hidden.iter().fold(message.to_owned(), |message, secret| secret.redact(&message))
    }

    fn wrong_setting(&self, options: &Options<'_>, error: &KafkaError) -> Error {
        let KafkaError::ClientConfig(_, message, name, _) = error else {
            return options.conflict(&self.redact(&error.to_string()));
        };
        let message = self.redact(message);
        options
            .conflict(&format!("'properties.{name}': {message}"))
            .hint("it is a setting neither of the Java client that is known here nor of librdkafka, or has a wrong value")
    }
}

fn kilobytes(options: &Options<'_>, name: &str, value: &str) -> Result<String> {
    let bytes: u64 = value
        .parse()
        .map_err(|_| options.bad(&format!("properties.{name}"), value, "a number of bytes"))?;
    Ok((bytes / 1024).max(1).to_string())
}

/// Key stores of Java: PEM and PKCS#12 can be read.
fn translate_tls(options: &Options<'_>, settings: &mut BTreeMap<String, String>) -> Result<()> {
    let refuse = |name: &str| {
        options
            .conflict(&format!("'properties.{name}': a key store of Java (JKS) can't be read"))
            .hint("convert it to PEM: keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12 -in … -out ….pem")
    };
    if let Some(path) = settings.remove("ssl.truststore.location") {
        settings.remove("ssl.truststore.password");
        if path.ends_with(".jks") || path.ends_with(".p12") {
            return Err(refuse("ssl.truststore.location"));
        }
        settings.insert("ssl.ca.location".to_owned(), path);
    }
    if let Some(path) = settings.get("ssl.keystore.location").cloned() {
        if path.ends_with(".jks") {
            return Err(refuse("ssl.keystore.location"));
        }
        if path.ends_with(".pem") {
            settings.remove("ssl.keystore.location");
            settings.remove("ssl.keystore.password");
            settings.insert("ssl.certificate.location".to_owned(), path.clone());
            settings.insert("ssl.key.location".to_owned(), path);
        }
    }
    if let Some(algorithm) = settings.get_mut("ssl.endpoint.identification.algorithm")
        && algorithm.is_empty()
    {
        "none".clone_into(algorithm);
    }
    Ok(())
}

/// Checks that the servers may be talked to.
fn check_targets(options: &Options<'_>, servers: &str) -> Result<()> {
    for server in servers.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        let address = server.rsplit("://").next().unwrap_or(server);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "9092"));
        let port = port.parse().map_err(|_| {
            options.bad("properties.bootstrap.servers", server, "a server, HOST:PORT")
        })?;
        options.check_target(host, port)?;
    }
    Ok(())
}

/// What a client reports apart from the answers of its calls.
#[derive(Clone, Default)]
pub struct Context {
    /// What goes wrong at the moment.
    pub trouble: Trouble,
    /// Messages that could not be delivered: the first reason.
    pub undelivered: Trouble,
    /// Why the servers do not let this user in, or are not to be trusted.
    pub refusal: Trouble,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        use RDKafkaErrorCode as Code;
        let code = code_of(&error);
        if code != Some(Code::PartitionEOF) {
            self.trouble.set(reason);
        }
        // Of a certificate that is missing the server says so only behind the handshake.
        if matches!(code, Some(Code::SSL | Code::Authentication | Code::SaslAuthenticationFailed))
            || reason.contains("SSL alert")
        {
            self.refusal.set(reason);
        }
    }
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result
            && self.undelivered.get().is_none()
        {
            self.undelivered.set(format!("topic '{}': {}", message.topic(), describe(error)));
        }
    }
}

/// A server: its host and port.
pub type Server = (String, u16);

/// The servers that an answer names.
pub fn servers_of(metadata: &Metadata) -> Vec<Server> {
    let server = |broker: &MetadataBroker| {
        (broker.host().to_owned(), u16::try_from(broker.port()).unwrap_or_default())
    };
    metadata.brokers().iter().map(server).collect()
}

/// A consumer.
pub type Consumer = BaseConsumer<Context>;
/// A producer, whose reports are read where it is used: the crate's thread that reads them spins
/// for the last millisecond of each 100, also of a table into which nothing is written.
pub type Producer = BaseProducer<Context>;

/// Makes a consumer or producer.
///
/// # Errors
/// If it can't be made.
pub fn create<T>(
    config: &ClientConfig,
    context: Context,
    properties: &Properties,
    table: &str,
) -> Result<T>
where
    T: rdkafka::config::FromClientConfigAndContext<Context>,
{
    config.create_with_context(context).map_err(|error| {
        let message = properties.redact(&describe(&error));
        Error::plan(format!("table {table}: no client of Kafka: {message}"))
            .hint("correct the options 'properties.…'")
    })
}

/// A client whose end does not hold its owner up. One that waits for its servers is not waited for:
/// it ends by itself later.
pub struct Client<T: Send + 'static>(Option<T>);

impl<T: Send> Client<T> {
    /// One to be used by an owner who may have to stop.
    pub fn new(client: T) -> Client<T> {
        Client(Some(client))
    }
}

impl<T: Send> Deref for Client<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send> Drop for Client<T> {
    fn drop(&mut self) {
        let client = self.0.take();
        let (done, ended) = crossbeam_channel::bounded::<()>(0);
        let end = move || {
            drop(client);
            drop(done);
        };
        // Without a thread it has ended here.
        if std::thread::Builder::new().name("end client".to_owned()).spawn(end).is_ok() {
            let _ = ended.recv_timeout(SLICE);
        }
    }
}

/// The code of an error, if it has one.
pub fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::Transaction(error) => Some(error.code()),
        _ => error.rdkafka_error_code(),
    }
}

/// What an error says, without the name of its type.
pub fn describe(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, message, name, _) => format!("{name}: {message}"),
        KafkaError::ClientCreation(message) => message.clone(),
        KafkaError::Transaction(error) => error.string(),
        error => match error.rdkafka_error_code() {
            Some(code) => code.to_string(),
            None => error.to_string(),
        },
    }
}

/// True if trying again may help.
pub fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    if let KafkaError::Transaction(error) = error
        && (error.is_retriable() || error.txn_requires_abort())
    {
        return true;
    }
    // Of these the crate keeps no code.
    if let KafkaError::Seek(_) = error {
        return true;
    }
    matches!(
        code_of(error),
        Some(
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::TimedOutQueue
                | Code::WaitingForCoordinator
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::BrokerNotAvailable
                | Code::ReplicaNotAvailable
                | Code::NetworkException
                | Code::CoordinatorLoadInProgress
                | Code::CoordinatorNotAvailable
                | Code::NotCoordinator
                | Code::NotEnoughReplicas
                | Code::NotEnoughReplicasAfterAppend
                | Code::KafkaStorageError
                | Code::PreferredLeaderNotAvailable
                | Code::UnstableOffsetCommit
                | Code::ConcurrentTransactions
                | Code::Outdated
                | Code::QueueFull
        )
    )
}

/// The error of a table whose servers do not let it in.
pub fn refused(reason: &str, properties: &Properties, table: &str, doing: &str) -> Error {
    let reason = properties.redact(reason);
    Error::io(format!("table {table}: {doing}: {reason}")).hint(
        "correct 'properties.sasl.…' (who signs in) or 'properties.ssl.…' (certificates); \
         'properties.security.protocol' must be that of the servers' port",
    )
}

/// The error of a call of the servers for a table.
pub fn explained(error: &KafkaError, properties: &Properties, table: &str, doing: &str) -> Error {
    use RDKafkaErrorCode as Code;
    let message = properties.redact(&describe(error));
    let servers = properties.settings.get("bootstrap.servers").cloned().unwrap_or_default();
    let found = Error::io(format!("table {table}: {doing}: {message}"));
    match code_of(error) {
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
            found.hint(format!("correct 'topic', or create the topic on {servers}"))
        }
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed,
        ) => found.hint("let this user do that: kafka-acls.sh"),
        Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
            found.hint("correct 'properties.sasl.…'")
        }
        _ => found.hint(format!(
            "are the servers {servers} up, and is 'properties.bootstrap.servers' right?"
        )),
    }
}

/// Shared by the threads that call the same consumer.
pub type SharedConsumer = Arc<Consumer>;
