//! A broker for a test.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::services::{Service, text};

/// A broker of its own, which ends with the test, also one that fails.
pub struct Broker {
    service: Service,
    pub servers: String,
}

/// A message as it was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub time: i64,
}

impl Broker {
    /// Starts a broker of the test's own; `None` on a machine that can have none.
    pub fn start() -> Option<Broker> {
        Broker::start_with(&[])
    }

    /// The same with settings of its script.
    pub fn start_with(settings: &[(&str, &str)]) -> Option<Broker> {
        let service = Service::start_with("kafka", settings)?;
        let servers = service.value("BOOTSTRAP").to_owned();
        Some(Broker { service, servers })
    }

    /// A broker that tests share while they run.
    pub fn shared() -> Option<Arc<Broker>> {
        static SHARED: Mutex<Weak<Broker>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(broker) = shared.upgrade() {
            return Some(broker);
        }
        let broker = Arc::new(Broker::start()?);
        *shared = Arc::downgrade(&broker);
        Some(broker)
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        config
    }

    /// Makes a topic.
    pub fn topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let made =
            block_on(admin.create_topics([&topic], &AdminOptions::new())).expect("an answer");
        made.into_iter().for_each(|made| drop(made.expect("a topic")));
    }

    /// Removes a topic.
    pub fn delete(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        block_on(admin.delete_topics(&[name], &AdminOptions::new())).expect("an answer");
    }

    /// Gives a topic this number of partitions in all.
    pub fn grow(&self, name: &str, partitions: usize) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let partitions = NewPartitions::new(name, partitions);
        block_on(admin.create_partitions([&partitions], &AdminOptions::new())).expect("an answer");
    }

    /// Writes messages: partition, key, value.
    pub fn send<'a>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = (i32, Option<&'a str>, Option<&'a str>)>,
    ) {
        self.send_all(topic, messages.into_iter().map(|message| (message, 0, None)));
    }

    /// The same, each with a time (0 for now) and headers.
    pub fn send_all<'a>(
        &self,
        topic: &str,
        messages: impl IntoIterator<
            Item = ((i32, Option<&'a str>, Option<&'a str>), i64, Option<OwnedHeaders>),
        >,
    ) {
        let producer: BaseProducer = self.config().create().expect("a producer");
        for ((partition, key, value), time, headers) in messages {
            let mut record = BaseRecord::<str, str>::to(topic).partition(partition);
            (record.key, record.payload, record.headers) = (key, value, headers);
            record.timestamp = (time != 0).then_some(time);
            while let Err((error, back)) = producer.send(record) {
                assert!(error.to_string().contains("Queue full"), "{error}");
                producer.poll(Duration::from_millis(10));
                record = back;
            }
        }
        producer.flush(Duration::from_secs(60)).expect("written");
    }

    /// All messages of a topic that a reader of committed ones sees, by partition and offset.
    pub fn read(&self, topic: &str) -> Vec<Found> {
        let mut config = self.config();
        config.set("group.id", "auditor").set("enable.partition.eof", "true");
        config.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "20");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let metadata =
            consumer.fetch_metadata(Some(topic), Duration::from_secs(30)).expect("metadata");
        let partitions = metadata.topics()[0].partitions().len();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, partitions as i32 - 1);
        list.set_all_offsets(Offset::Beginning).expect("offsets");
        consumer.assign(&list).expect("assigned");
        let (mut ended, mut found) = (std::collections::BTreeSet::new(), Vec::new());
        let start = Instant::now();
        while ended.len() < partitions {
            assert!(start.elapsed() < Duration::from_secs(60), "{topic} can't be read");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => found.push(Found {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: message.key().map(text),
                    value: message.payload().map(text),
                    headers: message.headers().map(headers).unwrap_or_default(),
                    time: message.timestamp().to_millis().unwrap_or(0),
                }),
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                _ => {}
            }
        }
        found.sort();
        found
    }

    /// The values of a topic.
    pub fn values(&self, topic: &str) -> Vec<String> {
        let value = |found: Found| found.value.unwrap_or_else(|| "NULL".to_owned());
        self.read(topic).into_iter().map(value).collect()
    }

    /// Waits until a topic has this number of messages.
    pub fn wait_for(&self, topic: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let values = self.values(topic);
            if values.len() >= count {
                assert_eq!(values.len(), count, "{topic}: {values:?}");
                return values;
            }
            assert!(
                start.elapsed() < Duration::from_secs(90),
                "{topic}: {} of {count}",
                values.len()
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// What a group has committed for the first partition of a topic.
    pub fn committed(&self, group: &str, topic: &str) -> Option<i64> {
        let mut config = self.config();
        config.set("group.id", group);
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, 0);
        let found = consumer.committed_offsets(list, Duration::from_secs(30)).expect("an answer");
        match found.find_partition(topic, 0).expect("asked for").offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }

    /// The options that every table has.
    pub fn table(&self, connector: &str, topic: &str) -> String {
        format!(
            "'connector' = '{connector}', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{}'",
            self.servers
        )
    }

    /// A table of JSON that is read from its beginning to where it ends now.
    pub fn bounded(&self, topic: &str) -> String {
        format!("{}, {BOUNDED}", self.json(topic))
    }

    /// A table of JSON.
    pub fn json(&self, topic: &str) -> String {
        format!("{}, 'format' = 'json'", self.table("kafka", topic))
    }
}

pub const BOUNDED: &str =
    "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'";

fn headers<H: Headers>(headers: &H) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default()))
        .collect()
}

impl Deref for Broker {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
