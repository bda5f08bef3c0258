//! A broker, and what is in its topics.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use futures_executor::block_on;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use super::Result;

/// Partitions of each topic.
pub const PARTITIONS: i32 = 4;

/// A broker, which ends with the program if it began with it.
pub struct Broker {
    pub servers: String,
    /// A folder for what jobs write.
    pub folder: PathBuf,
    script: Option<PathBuf>,
}

impl Broker {
    /// The broker of these servers, or a new one.
    pub fn find(servers: Option<&str>) -> Result<Broker> {
        let folder =
            std::env::temp_dir().join(format!("thalweg-kafka-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut broker = Broker { servers: String::new(), folder, script: None };
        if let Some(servers) = servers {
            servers.clone_into(&mut broker.servers);
            return Ok(broker);
        }
        broker.script =
            Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/kafka"));
        let started = broker.call("start")?;
        let said = String::from_utf8_lossy(&started.stdout).into_owned();
        let servers = said.lines().find_map(|line| line.strip_prefix("BOOTSTRAP="));
        let problem = String::from_utf8_lossy(&started.stderr).into_owned();
        servers.ok_or(problem)?.clone_into(&mut broker.servers);
        Ok(broker)
    }

    fn call(&self, what: &str) -> Result<Output> {
        let script = self.script.as_ref().ok_or("the broker is not ours")?;
        Ok(Command::new(script).arg(what).arg(self.folder.join("broker")).output()?)
    }

    /// The configuration of a client.
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        config
    }

    /// Makes a topic of a name of its own.
    pub fn topic(&self, name: &str) -> Result<String> {
        let name = format!("{name}-{}", std::process::id());
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
        for made in block_on(admin.create_topics([&topic], &AdminOptions::new()))? {
            made.map_err(|(name, code)| format!("topic {name}: {code}"))?;
        }
        Ok(name)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.script.is_some() {
            // Best effort: what is left is a folder of temporary files.
            let _ = self.call("crash");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sends messages to all partitions of a topic in turn.
pub struct Writer {
    producer: ThreadedProducer<DefaultProducerContext>,
    topic: String,
    sent: u64,
}

impl Writer {
    /// A writer that waits this long for company of a message.
    pub fn new(broker: &Broker, topic: &str, linger_ms: u32) -> Result<Writer> {
        let mut config = broker.config();
        config
            .set("linger.ms", linger_ms.to_string())
            .set("queue.buffering.max.messages", "1000000");
        Ok(Writer { producer: config.create()?, topic: topic.to_owned(), sent: 0 })
    }

    /// Sends a message of 100 bytes of JSON with this number and time.
    pub fn send(&mut self, due_us: u64) -> Result<()> {
        let id = self.sent;
        let mut text = format!(
            "{{\"id\":{id},\"due\":{due_us},\"v\":{}.5,\"flag\":{},\"name\":\"",
            id % 1000,
            id % 2 == 0
        );
        while text.len() < 98 {
            text.push(char::from(b'a' + (text.len() as u64 * (id + 7) % 26) as u8));
        }
        text.push_str("\"}");
        let mut record = BaseRecord::<(), str>::to(&self.topic).payload(&text);
        record.partition = Some((id % PARTITIONS as u64) as i32);
        while let Err((error, back)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(rdkafka::types::RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(1));
            record = back;
        }
        self.sent += 1;
        Ok(())
    }

    /// Waits until all is written. How many messages were sent.
    pub fn finish(self) -> Result<u64> {
        self.producer.flush(Duration::from_secs(120))?;
        Ok(self.sent)
    }
}

/// The columns of the messages.
pub const COLUMNS: &str = "id BIGINT, due BIGINT, v DOUBLE, flag BOOLEAN, name STRING";
