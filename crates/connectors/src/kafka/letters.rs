//! Where messages go that could not be read.

use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use serde_json::Value;
use thalweg_core::connector::TableRequest;
use thalweg_core::{Error, Result};

use super::batches::{flush, serve};
use super::client::{Context, Producer, Properties, create, explained};
use super::letters_again::of_message;
use super::offsets::PartitionName;
use super::options::{BadData, KafkaOptions};
use super::rows::BadMessage;
use crate::filesystem::{DeadLetters, FinishedLetters, LetterMark, letters_path};
use crate::handover::BadRow;
use crate::network::{Deadline, TICK};

/// How long a snapshot waits for dead letters to be acknowledged.
const SYNC_WAIT: Duration = Duration::from_secs(60);

/// Where they go.
pub enum Letters {
    /// Nowhere.
    None,
    /// To a file. What a position does not cover is cut off.
    File(Box<DeadLetters>),
    /// To a topic, at least once.
    Topic(Box<LetterTopic>),
}

/// A topic for dead letters.
pub struct LetterTopic {
    table: String,
    topic: String,
    properties: Properties,
    context: Context,
    producer: Option<Producer>,
}

impl Letters {
    /// The dead letters of a table.
    ///
    /// # Errors
    /// If they can't go where they should.
    pub fn new(
        request: &TableRequest,
        options: &KafkaOptions,
        finished: FinishedLetters,
    ) -> Result<Letters> {
        Ok(match &options.bad_data {
            BadData::Fail | BadData::Skip => Letters::None,
            BadData::File(path) => {
                let path = letters_path(request, path)?;
                Letters::File(Box::new(DeadLetters::new(&request.table, path, finished)))
            }
            BadData::Topic(topic) => Letters::Topic(Box::new(LetterTopic {
                table: request.table.clone(),
                topic: topic.clone(),
                properties: options.properties.clone(),
                context: Context::default(),
                producer: None,
            })),
        })
    }

    /// The job resumes from this position, or had ended there.
    ///
    /// # Errors
    /// If the position is of something else.
    pub fn seek(&mut self, position: &str, has_ended: bool) -> Result<()> {
        let Letters::File(file) = self else { return Ok(()) };
        let mark = LetterMark::of_position(position)?;
        match has_ended {
            true => file.end_at(mark),
            false => file.seek(mark),
        }
        Ok(())
    }

    /// Notes in a position how many there are.
    pub fn note(&self, position: &mut Value) {
        if let Letters::File(file) = self {
            position["letters"] = file.mark().to_json();
        }
    }

    /// Takes the right to write them.
    ///
    /// # Errors
    /// If another writer has it.
    pub fn claim(&mut self) -> Result<()> {
        match self {
            Letters::File(file) => file.claim(),
            _ => Ok(()),
        }
    }

    /// Begins to write; `written` is the number of those written before.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn open(&mut self, bad_rows: u64) -> Result<()> {
        match self {
            Letters::None => Ok(()),
            Letters::File(file) => file.open(bad_rows),
            Letters::Topic(topic) => {
                let properties = &topic.properties;
                let producer = create(
                    &properties.producer(),
                    topic.context.clone(),
                    properties,
                    &topic.table,
                )?;
                topic.producer = Some(producer);
                Ok(())
            }
        }
    }

    /// Writes messages of a partition.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn write(&mut self, name: &PartitionName, bad: &[BadMessage]) -> Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        match self {
            Letters::None => Ok(()),
            Letters::File(file) => {
                let row = |bad: &BadMessage| BadRow {
                    file: name.text().into(),
                    line: bad.offset as u64,
                    reason: bad.reason.clone(),
                    raw: bad.value.clone().unwrap_or_default(),
                    message: of_message(bad),
                };
                file.write(&bad.iter().map(row).collect::<Vec<_>>())
            }
            Letters::Topic(topic) => bad.iter().try_for_each(|bad| topic.send(name, bad)),
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// If that can't be done.
    pub fn sync(&mut self) -> Result<()> {
        match self {
            Letters::None => Ok(()),
            Letters::File(file) => file.sync(),
            Letters::Topic(topic) => topic.sync(),
        }
    }

    /// The job is done.
    ///
    /// # Errors
    /// If they are not all there.
    pub fn finish(&mut self, bad_rows: u64) -> Result<()> {
        match self {
            Letters::None => Ok(()),
            Letters::File(file) => file.finish(bad_rows),
            Letters::Topic(topic) => topic.sync(),
        }
    }

    /// The job was abandoned.
    pub fn abort(&mut self) {
        match self {
            Letters::None => {}
            Letters::File(file) => file.abort(),
            Letters::Topic(topic) => topic.producer = None,
        }
    }
}

impl LetterTopic {
    fn send(&mut self, name: &PartitionName, bad: &BadMessage) -> Result<()> {
        self.check()?;
        let Some(producer) = &self.producer else {
            return Err(Error::internal("the topic of dead letters is not open"));
        };
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).headers(headers(name, bad));
        if let Some(key) = &bad.key {
            record = record.key(key);
        }
        if let Some(value) = &bad.value {
            record = record.payload(value);
        }
        let deadline = Deadline::after(SYNC_WAIT);
        loop {
            match producer.send(record) {
                Ok(()) => return Ok(()),
                Err((error, back)) if super::client::is_passing(&error) && !deadline.is_over() => {
                    record = back;
                    self.check()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => {
                    let properties = &self.properties;
                    return Err(explained(&error, properties, &self.table, "dead letters"));
                }
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.producer.iter().for_each(serve);
        match self.context.undelivered.get() {
            None => Ok(()),
            Some(reason) => Err(Error::io(format!(
                "table {}: dead letters can't be written to topic '{}': {reason}",
                self.table, self.topic
            ))
            .hint("correct 'dead-letter.topic', or create the topic")),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let Some(producer) = &self.producer else { return Ok(()) };
        let deadline = Deadline::after(SYNC_WAIT);
        let mut flushed = flush(producer, TICK);
        while flushed.is_err() && !deadline.is_over() {
            self.check()?;
            flushed = flush(producer, TICK);
        }
        self.check()?;
        flushed.map_err(|error| explained(&error, &self.properties, &self.table, "dead letters"))
    }
}

/// The headers of the message, then where it was and why it is bad.
fn headers(name: &PartitionName, bad: &BadMessage) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new();
    for (key, value) in &bad.headers {
        headers = headers.insert(Header { key, value: value.as_deref() });
    }
    let (partition, offset) = (name.partition.to_string(), bad.offset.to_string());
    let ours = [
        ("thalweg.topic", name.topic.as_str()),
        ("thalweg.partition", &partition),
        ("thalweg.offset", &offset),
        ("thalweg.reason", &bad.reason),
    ];
    for (key, value) in ours {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    headers
}
