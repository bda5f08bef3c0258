//! Messages to the servers.

use std::cell::OnceCell;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use thalweg_core::{Error, Result};

use super::batches::{ClientTopic, GIVEN_MAX, flush};
use super::client::{Client, Context, Producer, Properties, create};
use super::options::KafkaOptions;
use super::spool::Outgoing;
use crate::network::{Cancel, TICK};

/// A producer of messages for a table.
pub struct Output {
    table: String,
    /// Where messages go that name no topic.
    topic: Option<String>,
    partition: Option<i32>,
    properties: Properties,
    context: Context,
    cancel: Cancel,
    /// The topic of messages that name none, once there was one. Dropped before its client.
    own_topic: OnceCell<ClientTopic>,
    producer: Client<Producer>,
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
        Ok(Output {
            producer: Client::new(create(&config, context.clone(), &options.properties, table)?),
            table: table.to_owned(),
            topic: options.topics.only().map(str::to_owned),
            partition: options.is_fixed_partition.then_some(0),
            properties: options.properties.clone(),
            context,
            cancel,
            own_topic: OnceCell::new(),
        })
    }

    /// The producer.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Sends messages, in order. Waits while too many are on their way.
    ///
    /// # Errors
    /// If one of them, or one before them, can't be sent; if the work is not wanted any more.
    pub fn send(&self, messages: &[Outgoing<'_>]) -> Result<(), Failure> {
        let mut left = messages;
        while let Some(first) = left.first() {
            let head = &left[..left.len().min(GIVEN_MAX)];
            let plain = head.iter().take_while(|message| message.is_plain()).count();
            let taken = match &self.topic {
                Some(topic) if plain > 0 => {
                    self.topic(topic)?.send(&head[..plain], self.partition)?
                }
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
