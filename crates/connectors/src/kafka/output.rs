//! Messages to the servers.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use thalweg_core::{Error, Result};

use super::batches::{ClientTopic, GIVEN_MAX, flush, serve};
use super::client::{Client, Context, Producer, Properties, create};
use super::options::KafkaOptions;
use super::partitions::BatchPartitions;
use super::spool::Outgoing;
use crate::network::{Cancel, TICK};

/// A producer of messages for a table.
pub struct Output {
    table: String,
    /// Where messages go that name no topic.
    topic: Option<String>,
    /// Where all of them go.
    partition: Option<i32>,
    /// Where those without a key go, batch by batch, unless the user leaves it to the client.
    partitions: Option<RefCell<BatchPartitions>>,
    properties: Properties,
    context: Context,
    cancel: Cancel,
    /// The topic of messages that name none, once there was one. Dropped before its client.
    own_topic: OnceCell<ClientTopic>,
    producer: Client<Arc<Producer>>,
}

/// Why a message can't be sent, or a transaction not be made.
pub enum Failure {
    /// A call of the client says so.
    Client(KafkaError),
    /// Something else.
    Error(Error),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        Failure::Client(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl Output {
    /// A producer for a table; with these settings besides the user's.
    ///
    /// # Errors
    /// If there can be none.
    pub fn new(
        table: &str,
        options: &KafkaOptions,
        settings: &[(&str, &str)],
        context: Context,
        cancel: Cancel,
    ) -> Result<Output> {
        let mut config = options.properties.producer();
        for (name, value) in settings {
            config.set(*name, *value);
        }
        let is_free = !options.is_fixed_partition && !options.properties.choose_partitions();
        let producer: Producer = create(&config, context.clone(), &options.properties, table)?;
        Ok(Output {
            producer: Client::new(Arc::new(producer)),
            table: table.to_owned(),
            topic: options.topics.only().map(str::to_owned),
            partition: options.is_fixed_partition.then_some(0),
            partitions: is_free.then(RefCell::default),
            properties: options.properties.clone(),
            context,
            cancel,
            own_topic: OnceCell::new(),
        })
    }

    /// The producer.
    pub fn producer(&self) -> &Arc<Producer> {
        &self.producer
    }

    /// Sends messages, in order. Waits while too many are on their way.
    ///
    /// # Errors
    /// If one of them, or one before them, can't be sent; if the work is not wanted any more.
    pub fn send(&self, messages: &[Outgoing<'_>]) -> Result<(), Failure> {
        serve(&self.producer);
        let mut left = messages;
        while let Some(first) = left.first() {
            let head = &left[..left.len().min(GIVEN_MAX)];
            let is_alike = |message: &&Outgoing<'_>| {
                message.is_plain() && message.key.is_some() == first.key.is_some()
            };
            let plain = head.iter().take_while(is_alike).count();
            let taken = match &self.topic {
                Some(topic) if plain > 0 => self.send_batch(topic, &head[..plain])?,
                _ => usize::from(self.send_one(first)?),
            };
            left = &left[taken..];
            if taken == 0 {
                self.check()?;
                if !self.cancel.sleep(Duration::from_millis(1)) {
                    return Err(Error::cancelled().into());
                }
            }
        }
        Ok(())
    }

    /// Sends messages that all have keys, or all have none. How many were taken.
    fn send_batch(&self, name: &str, messages: &[Outgoing<'_>]) -> Result<usize, Failure> {
        let topic = self.topic(name)?;
        let has_keys = messages.first().is_some_and(|message| message.key.is_some());
        let partitions = self.partitions.as_ref();
        let is_ours = !has_keys && self.context.trouble.get().is_none();
        let Some(partitions) = partitions.filter(|_| is_ours) else {
            return Ok(topic.send(messages, self.partition)?);
        };
        let chosen = partitions.borrow_mut().choose(&self.producer, name);
        match topic.send(messages, chosen) {
            Err(KafkaError::MessageProduction(RDKafkaErrorCode::UnknownPartition))
                if chosen.is_some() =>
            {
                partitions.borrow_mut().forget();
                Ok(topic.send(messages, None)?)
            }
            sent => Ok(sent?),
        }
    }

    fn topic(&self, name: &str) -> Result<&ClientTopic> {
        if let Some(topic) = self.own_topic.get() {
            return Ok(topic);
        }
        let topic = ClientTopic::new(&self.producer, name)?;
        Ok(self.own_topic.get_or_init(|| topic))
    }

    /// Sends any message. False if there is no room for it at the moment.
    fn send_one(&self, message: &Outgoing<'_>) -> Result<bool, Failure> {
        let topic = message.topic.or(self.topic.as_deref());
        let topic = topic.ok_or_else(|| Error::internal("a message without a topic"))?;
        let mut record = BaseRecord::<[u8], [u8]>::to(topic);
        if !message.headers.is_empty() {
            let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
            for (key, value) in &message.headers {
                headers = headers.insert(Header { key, value: *value });
            }
            record = record.headers(headers);
        }
        record.key = message.key;
        record.payload = message.value;
        record.timestamp = message.timestamp_ms;
        record.partition = self.partition;
        match self.producer.send(record) {
            Ok(()) => Ok(true),
            Err((error, _)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
                Ok(false)
            }
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Waits until every message is acknowledged.
    ///
    /// # Errors
    /// If one is not; if the work is not wanted any more.
    pub fn flush(&self) -> Result<()> {
        loop {
            let flushed = flush(&self.producer, TICK);
            self.check()?;
            match flushed {
                Ok(()) => {
                    self.context.trouble.clear();
                    return Ok(());
                }
                Err(_) if self.cancel.is_set() => return Err(Error::cancelled()),
                Err(error)
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::OperationTimedOut) => {}
                Err(error) => return Err(self.explained(&error)),
            }
        }
    }

    /// Checks that no message was refused.
    ///
    /// # Errors
    /// If one was.
    pub fn check(&self) -> Result<()> {
        serve(&self.producer);
        match self.context.undelivered.get() {
            None => Ok(()),
            Some(reason) => Err(Error::io(format!("table {}: a message can't be written: {reason}", self.table)).hint(
                "where it is too large: 'max.message.bytes' of the topic and 'properties.max.request.size'; where it was \
                 given up: 'properties.delivery.timeout.ms'",
            )),
        }
    }

    /// The error of a call for this table.
    pub fn explained(&self, error: &KafkaError) -> Error {
        super::client::explained(error, &self.properties, &self.table, "to write")
    }

    /// The error of a failure.
    pub fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Error(error) => error,
            Failure::Client(error) => self.explained(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::Producer as _;
    use thalweg_core::connector::TableRequest;
    use thalweg_core::{Column, DataType, TableSchema};

    use super::*;

    const BATCHES: usize = 40;

    fn output(servers: &str) -> Output {
        let options = [
            ("connector", "kafka"),
            ("topic", "t"),
            ("format", "raw"),
            ("properties.bootstrap.servers", servers),
        ];
        let request = TableRequest {
            table: "t".to_owned(),
            schema: TableSchema::new(vec![Column::new("value", DataType::STRING.nullable())]),
            options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..TableRequest::default()
        };
        let options = KafkaOptions::read(&request, false, true, true).expect("options");
        Output::new("t", &options, &[], Context::default(), Cancel::default()).expect("an output")
    }

    fn send_batches(output: &Output) {
        let message = Outgoing { value: Some(b"x"), ..Outgoing::default() };
        let messages = vec![message; BATCHES * GIVEN_MAX];
        assert!(output.send(&messages).is_ok());
        output.flush().expect("all are acknowledged");
    }

    fn count(output: &Output, partition: i32) -> usize {
        let client = output.producer.client();
        let (first, end) =
            client.fetch_watermarks("t", partition, Duration::from_secs(5)).expect("offsets");
        usize::try_from(end - first).expect("a count")
    }

    #[test]
    fn messages_without_a_key_go_to_all_partitions() {
        let cluster = MockCluster::new(1).expect("a cluster");
        cluster.create_topic("t", 3, 1).expect("a topic");
        let output = output(&cluster.bootstrap_servers());
        send_batches(&output);
        let counts: Vec<usize> = (0..3).map(|partition| count(&output, partition)).collect();
        assert_eq!(counts.iter().sum::<usize>(), BATCHES * GIVEN_MAX, "{counts:?}");
        assert!(counts.iter().all(|count| count % GIVEN_MAX == 0 && *count > 0), "{counts:?}");
    }

    /// Such as where the topic was deleted and made again.
    #[test]
    fn partitions_that_are_gone_are_forgotten() {
        let cluster = MockCluster::new(1).expect("a cluster");
        cluster.create_topic("t", 1, 1).expect("a topic");
        cluster.create_topic("wide", 9, 1).expect("a topic");
        let output = output(&cluster.bootstrap_servers());
        assert!(output.topic("t").is_ok());
        let known = output.producer.client().fetch_metadata(Some("t"), Duration::from_secs(5));
        assert_eq!(known.expect("metadata").topics()[0].partitions().len(), 1);
        let partitions = output.partitions.as_ref().expect("the choice is ours");
        assert!(partitions.borrow_mut().choose(&output.producer, "wide").is_some());
        send_batches(&output);
        assert_eq!(count(&output, 0), BATCHES * GIVEN_MAX);
    }
}
