//! Partitions of topics, and where places in them are.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use thalweg_core::{Error, Result};

use super::client::{
    CALL, Consumer, Properties, Reset, Server, SharedConsumer, explained, is_passing, refused,
    servers_of,
};
use super::options::{Place, Topics};
use crate::network::{Cancel, Deadline, abandonable};

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    /// The topic.
    pub topic: String,
    /// The number of the partition.
    pub partition: i32,
}

impl PartitionName {
    /// As snapshots and messages name it.
    pub fn text(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}

/// Calls of the servers, which are tried again while that may help.
pub struct Calls<'a> {
    /// The consumer.
    pub consumer: &'a SharedConsumer,
    /// Its settings, for messages.
    pub properties: &'a Properties,
    /// The table, for messages.
    pub table: &'a str,
    /// How long to try.
    pub give_up_after: Duration,
    /// Ends the tries.
    pub cancel: &'a Cancel,
    /// The consumer reads nothing: its queue has only what goes wrong.
    pub is_idle: bool,
}

/// A client that is not let in is not let in later either, but for servers that are just starting.
const REFUSAL_WAIT: Duration = Duration::from_secs(3);

/// The answer of the client.
pub type Outcome<T> = std::result::Result<T, KafkaError>;

impl<'a> Calls<'a> {
    /// Calls over a client that is used for nothing else.
    pub fn new(
        consumer: &'a SharedConsumer,
        properties: &'a Properties,
        table: &'a str,
        cancel: &'a Cancel,
        give_up_after: Duration,
    ) -> Calls<'a> {
        Calls { consumer, properties, table, give_up_after, cancel, is_idle: true }
    }

    /// Calls until it succeeds.
    ///
    /// # Errors
    /// If it fails for good, or for too long; if it is not wanted any more.
    pub fn call<T: Send + 'static>(
        &self,
        doing: &str,
        call: impl Fn(&Consumer) -> Outcome<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let deadline = Deadline::after(self.give_up_after);
        let patience = Deadline::after(self.give_up_after.min(REFUSAL_WAIT));
        let call = Arc::new(call);
        loop {
            let (call, consumer) = (Arc::clone(&call), Arc::clone(self.consumer));
            let error = match abandonable(self.cancel, move || call(&consumer))? {
                Ok(value) => {
                    self.consumer.context().refusal.clear();
                    return Ok(value);
                }
                Err(error) => error,
            };
            if let Some(reason) = self.refusal().filter(|_| patience.is_over()) {
                return Err(refused(&reason, self.properties, self.table, doing));
            }
            if !is_passing(&error) || deadline.is_over() {
                return Err(self.explained(&error, doing));
            }
            if !self.cancel.sleep(Duration::from_millis(200)) {
                return Err(Error::cancelled());
            }
        }
    }

    /// The error of a call, with what the client knows of servers that can't be reached.
    fn explained(&self, error: &KafkaError, doing: &str) -> Error {
        let explained = explained(error, self.properties, self.table, doing);
        match self.consumer.context().trouble.get().filter(|_| is_passing(error)) {
            None => explained,
            Some(reason) => {
                let message =
                    format!("{}: {}", explained.message(), self.properties.redact(&reason));
                Error::io(message).hint(explained.help().unwrap_or_default())
            }
        }
    }

    /// Why the servers do not let the client in.
    fn refusal(&self) -> Option<String> {
        while self.is_idle && self.consumer.poll(Duration::ZERO).is_some() {}
        self.consumer.context().refusal.get()
    }

    /// The partitions of topics, in order.
    ///
    /// # Errors
    /// If a topic that is named is not there, or they can't be had.
    pub fn partitions(&self, topics: &Topics) -> Result<Vec<PartitionName>> {
        let mut found = Vec::new();
        match topics {
            Topics::Named(names) => {
                for name in names {
                    let (what, asked) = (format!("topic '{name}'"), name.clone());
                    let (partitions, servers) =
                        self.call(&what, move |consumer| partitions_of(consumer, &asked))?;
                    self.properties.check_servers(self.table, &servers)?;
                    found.extend(partitions);
                }
            }
            Topics::Fitting(_) => {
                let topics = topics.clone();
                let (partitions, servers) = self.call("the list of topics", move |consumer| {
                    partitions_of_all(consumer, &topics)
                })?;
                self.properties.check_servers(self.table, &servers)?;
                found = partitions;
            }
        }
        found.sort();
        Ok(found)
    }

    /// Where there is a list of servers that may be talked to: checks those that the first ones
    /// name.
    ///
    /// # Errors
    /// If one may not be talked to, or they can't be had.
    pub fn check_servers(&self) -> Result<()> {
        if self.properties.limits_servers() { self.reach() } else { Ok(()) }
    }

    /// Asks the servers for their list, each of which has to be allowed.
    ///
    /// # Errors
    /// If one may not be talked to, or they can't be reached.
    pub fn reach(&self) -> Result<()> {
        let servers = self.call("the list of servers", |consumer| {
            Ok(servers_of(&consumer.fetch_metadata(None, CALL)?))
        })?;
        self.properties.check_servers(self.table, &servers)
    }

    /// Where a place is in each of these partitions; `None` where the group has committed nothing.
    ///
    /// # Errors
    /// If that can't be had.
    pub fn find(&self, partitions: &[PartitionName], place: &Place) -> Result<Vec<Option<i64>>> {
        match place {
            Place::Earliest => self.times(partitions, Offset::Beginning),
            Place::Latest => self.times(partitions, Offset::End),
            Place::Time(time) => {
                let found = self.times(partitions, Offset::Offset(*time))?;
                let ends = self.times(partitions, Offset::End)?;
                Ok(found.into_iter().zip(ends).map(|(found, end)| found.or(end)).collect())
            }
            Place::Group => self.committed(partitions),
            Place::Offsets(offsets) => {
                let committed = match self.properties.group_id {
                    Some(_) => self.committed(partitions)?,
                    None => vec![None; partitions.len()],
                };
                let listed = partitions.iter().map(|name| offsets.get(&name.partition).copied());
                Ok(listed.zip(committed).map(|(listed, committed)| listed.or(committed)).collect())
            }
        }
    }

    /// Where jobs begin to read these partitions.
    ///
    /// # Errors
    /// If there is no such place, or that can't be had.
    pub fn starts(&self, partitions: &[PartitionName], place: &Place) -> Result<Vec<i64>> {
        let found = self.find(partitions, place)?;
        if found.iter().all(Option::is_some) {
            return Ok(found.into_iter().flatten().collect());
        }
        let instead = match (place, self.properties.reset) {
            (Place::Group, Reset::Fail) => {
                let first = found.iter().position(Option::is_none).unwrap_or_default();
                let group = self.properties.group_id.as_deref().unwrap_or_default();
                return Err(Error::plan(format!(
                    "table {}: group '{group}' has committed no offset for {}",
                    self.table,
                    partitions[first].text()
                ))
                .hint(
                    "set 'properties.auto.offset.reset' = 'earliest' or 'latest' for such partitions, or another \
                     'scan.startup.mode'",
                ));
            }
            (Place::Group, Reset::Latest) => Offset::End,
            _ => Offset::Beginning,
        };
        let instead = self.times(partitions, instead)?;
        let start = |(found, instead): (Option<i64>, Option<i64>)| found.or(instead).unwrap_or(0);
        Ok(found.into_iter().zip(instead).map(start).collect())
    }

    /// Where jobs stop reading these partitions. One without a place has ended.
    ///
    /// # Errors
    /// If that can't be had.
    pub fn stops(&self, partitions: &[PartitionName], place: &Place) -> Result<Vec<i64>> {
        let found = self.find(partitions, place)?;
        Ok(found.into_iter().map(|stop| stop.unwrap_or(0)).collect())
    }

    /// `ListOffsets`: the first offsets from a time on; the beginning and the end are times there.
    fn times(&self, partitions: &[PartitionName], time: Offset) -> Result<Vec<Option<i64>>> {
        let partitions = partitions.to_vec();
        self.call("offsets of partitions", move |consumer| {
            let asked = list_of(partitions.iter().map(|name| (name, time)))?;
            let found = consumer.offsets_for_times(asked, CALL * 3)?;
            answers(&found, &partitions)
        })
    }

    fn committed(&self, partitions: &[PartitionName]) -> Result<Vec<Option<i64>>> {
        let partitions = partitions.to_vec();
        self.call("offsets of the group", move |consumer| {
            let asked = list_of(partitions.iter().map(|name| (name, Offset::Invalid)))?;
            let found = consumer.committed_offsets(asked, CALL * 3)?;
            answers(&found, &partitions)
        })
    }
}

/// Partitions with an offset each, as the client takes them.
///
/// # Errors
/// If an offset is none.
pub fn list_of<'a>(
    offsets: impl IntoIterator<Item = (&'a PartitionName, Offset)>,
) -> Outcome<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (name, offset) in offsets {
        list.add_partition_offset(&name.topic, name.partition, offset)?;
    }
    Ok(list)
}

fn answers(found: &TopicPartitionList, partitions: &[PartitionName]) -> Outcome<Vec<Option<i64>>> {
    let mut offsets = Vec::with_capacity(partitions.len());
    for name in partitions {
        let Some(answer) = found.find_partition(&name.topic, name.partition) else {
            offsets.push(None);
            continue;
        };
        answer.error()?;
        offsets.push(match answer.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        });
    }
    Ok(offsets)
}

/// Partitions, and the servers that the answer names.
type Found = (Vec<PartitionName>, Vec<Server>);

fn partitions_of_all(consumer: &Consumer, topics: &Topics) -> Outcome<Found> {
    let metadata = consumer.fetch_metadata(None, CALL)?;
    let mut found = Vec::new();
    for topic in metadata.topics().iter().filter(|topic| topics.has(topic.name())) {
        found.extend(topic.partitions().iter().map(|partition| PartitionName {
            topic: topic.name().to_owned(),
            partition: partition.id(),
        }));
    }
    Ok((found, servers_of(&metadata)))
}

fn partitions_of(consumer: &Consumer, name: &str) -> Outcome<Found> {
    let metadata = consumer.fetch_metadata(Some(name), CALL)?;
    let missing = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
    let topic = metadata.topics().iter().find(|topic| topic.name() == name);
    let topic = topic.ok_or_else(|| missing.clone())?;
    if let Some(error) = topic.error() {
        return Err(KafkaError::MetadataFetch(error.into()));
    }
    if topic.partitions().is_empty() {
        return Err(missing);
    }
    let partition = |id| PartitionName { topic: name.to_owned(), partition: id };
    let found = topic.partitions().iter().map(|found| partition(found.id()));
    Ok((found.collect(), servers_of(&metadata)))
}
