//! Exactly once into topics: messages wait in a spool until their snapshot is kept.
//!
//! ```text
//! write    message ─▶ spool, the file of the transaction
//! prepare  the file is made durable; the handle names it, with length and checksum
//! commit   BEGIN; files ─▶ topics; marker = number of the transaction; COMMIT
//! ```
//!
//! The marker is an offset of a consumer group of ours, `thalweg-PREFIX`, written in the
//! transaction itself; its metadata have the job's lineage. librdkafka can't resume a transaction
//! that another process has prepared, which is how Flink does it; and such a transaction holds
//! readers back while it is open, and is lost with its rows where the servers give it up. Note 016
//! has the argument.
//!
//! **Why nothing is lost or doubled:**
//! - what a handle names was durable in the spool before the snapshot with the handle is kept;
//! - messages become visible in the transaction that raises the marker. Where the outcome of a
//!   commit is not known (the answer was lost, the producer was fenced, the process died) a new
//!   producer with the same identifier is initialized first: the servers end what the old one had
//!   begun, one way or the other. Then the marker says which: if it has the number, nothing is left
//!   to do;
//! - files with a greater number than that of the snapshot are removed by `recover`, before the job
//!   writes their rows again;
//! - one job at a time: initializing a producer fences any other one with the prefix, and a job
//!   that finds the marker of another lineage stops.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart};
use thalweg_core::{Error, Result};

use super::batches::serve;
use super::client::{
    CALL, Consumer, Context, SLICE, SharedConsumer, code_of, create, describe, is_passing,
};
use super::limits::transaction_limit_ms;
use super::offsets::{Calls, Outcome};
use super::options::{KafkaOptions, Topics};
use super::output::{Failure, Output};
use super::spool::{Outgoing, Segment, Spool};
use crate::filesystem::claim::Claim;
use crate::network::{Backoff, Cancel, Deadline, abandonable};
use crate::saved::read_saved;

/// How long a start waits for servers.
pub const START_WAIT: Duration = Duration::from_secs(60);
/// The longest transaction, where the user says nothing: one lasts as long as a commit.
const TIMEOUT_MS: u64 = 300_000;
/// How often messages that are refused are sent again.
const REFUSALS: u32 = 3;

/// What stands next to the output.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Marker {
    mark: OutputMark,
    /// The last transaction that was committed.
    transaction: u64,
    is_finished: bool,
}

/// The transactions of a table.
pub struct Transactions {
    table: String,
    prefix: String,
    options: KafkaOptions,
    context: Context,
    cancel: Cancel,
    claim: Option<Claim>,
    spool: Spool,
    consumer: Option<SharedConsumer>,
    output: Option<Output>,
    /// The topic by whose name the marker stands.
    marker_topic: Option<String>,
    timeout_ms: u64,
    /// The job's own lineage and snapshot.
    mark: Option<OutputMark>,
    /// The last transaction that is known to be committed.
    committed: u64,
    /// The transaction that is written.
    number: u64,
    /// Files of transactions that are prepared and not committed.
    prepared: Vec<Segment>,
    /// The marker has this job's lineage.
    has_marked: bool,
    /// Where the job starts: a handle, and what its outputs have to be like.
    start: Option<(Option<String>, OutputStart)>,
}

impl Transactions {
    /// Those of a table, with a spool in this folder.
    pub fn new(
        table: &str,
        prefix: &str,
        folder: PathBuf,
        options: &KafkaOptions,
        context: Context,
        cancel: Cancel,
    ) -> Transactions {
        Transactions {
            table: table.to_owned(),
            prefix: prefix.to_owned(),
            options: options.clone(),
            context,
            cancel,
            claim: None,
            spool: Spool::new(table, folder),
            consumer: None,
            output: None,
            marker_topic: None,
            timeout_ms: TIMEOUT_MS,
            mark: None,
            committed: 0,
            number: 1,
            prepared: Vec::new(),
            has_marked: false,
            start: None,
        }
    }

    /// Takes the exclusive right to the spool.
    fn claim(&mut self) -> Result<()> {
        if self.claim.is_none() {
            let what = format!("table {}, 'sink.spool.path'", self.table);
            self.claim = Some(Claim::folder(&what, self.spool.folder())?);
        }
        Ok(())
    }

    /// As [`thalweg_core::Sink::check_start`].
    ///
    /// # Errors
    /// If the output is not that of the snapshot, or an earlier job still needs it; if the servers
    /// do not let transactions last as long as the user says, or a topic is not there.
    pub fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        self.claim()?;
        self.check_timeout()?;
        self.check_topics()?;
        self.start = Some((handle.map(str::to_owned), start.clone()));
        self.look()
    }

    /// Reads the marker, and checks that the job may write from where it starts.
    fn look(&mut self) -> Result<()> {
        let Some((handle, start)) = self.start.clone() else { return Ok(()) };
        let found = self.find_marker(START_WAIT)?;
        self.committed = found.as_ref().map_or(0, |found| found.transaction);
        self.number = self.committed + 1;
        let Some(handle) = handle else { return self.check_unmarked(found.as_ref(), &start) };
        let handle = Handle::read(&handle)?;
        self.check_mark(found.as_ref(), &start)?;
        self.number = self.number.max(handle.transaction + 1);
        let mut open = handle.segments.iter().filter(|segment| segment.number > self.committed);
        open.try_for_each(|segment| self.spool.check(segment))
    }

    fn check_unmarked(&self, found: Option<&Marker>, start: &OutputStart) -> Result<()> {
        let Some(found) = found.filter(|found| !found.is_finished && !start.overwrites) else {
            return Ok(());
        };
        if start.fit(Some(&found.mark)) == MarkFit::Fits {
            return Ok(());
        }
        Err(Error::plan(format!(
            "table {}: an earlier job writes under the prefix '{}' and has not ended, and this one would write its rows \
             again",
            self.table, self.prefix
        ))
        .hint(
            "resume that job with --resume; or start from scratch behind what is there with --overwrite, which forgets what it \
             has not committed",
        ))
    }

    fn check_mark(&self, found: Option<&Marker>, start: &OutputStart) -> Result<()> {
        let (table, group) = (&self.table, self.group());
        Err(match start.fit(found.map(|found| &found.mark)) {
            MarkFit::Fits => return Ok(()),
            MarkFit::Missing if !start.is_marked || start.overwrites => return Ok(()),
            MarkFit::Ahead(_) if start.overwrites => return Ok(()),
            MarkFit::Missing => Error::plan(format!(
                "table {table}: the group '{group}' does not say that the snapshot's job has written here: its offset was \
                 removed (after 'offsets.retention.minutes' of the servers), or these are other servers"
            ))
            .hint("--overwrite continues, and may write again the rows of the last snapshot"),
            MarkFit::Ahead(number) => Error::plan(format!(
                "table {table}: the topics hold the rows of snapshot {number}, which is newer than the one to resume \
                 from; they would be written again"
            ))
            .hint(format!("resume from snapshot {number}; --overwrite goes back, and leaves these rows there")),
            MarkFit::Other => Error::plan(format!(
                "table {table}: another job, or another start of this one, has written under the prefix '{}' since the \
                 snapshot",
                self.prefix
            ))
            .hint("resume the job that has written last, or start from scratch"),
        })
    }

    /// The servers say how long a transaction may last.
    fn check_timeout(&mut self) -> Result<()> {
        let consumer = self.consumer()?;
        self.calls(&consumer, START_WAIT).check_servers()?;
        let (properties, asked) = (self.options.properties.clone(), consumer.clone());
        let limit_ms =
            abandonable(&self.cancel, move || transaction_limit_ms(&asked, &properties))?;
        match (self.options.properties.transaction_timeout_ms, limit_ms) {
            (Some(wanted), Some(limit)) if wanted > limit => Err(Error::plan(format!(
                "table {}: 'properties.transaction.timeout.ms' = {wanted} is more than the servers allow: their \
                 'transaction.max.timeout.ms' is {limit}",
                self.table
            ))
            .hint("lower the one, or raise the other; a transaction lasts as long as a commit takes")),
            (Some(wanted), _) => {
                self.timeout_ms = wanted;
                Ok(())
            }
            (None, limit) => {
                self.timeout_ms = TIMEOUT_MS.min(limit.unwrap_or(TIMEOUT_MS));
                Ok(())
            }
        }
    }

    /// The marker stands by the name of a topic that is there, so it cannot be made by the
    /// first message.
    fn check_topics(&mut self) -> Result<()> {
        let consumer = self.consumer()?;
        self.calls(&consumer, START_WAIT).partitions(&self.options.topics).map(drop)
    }

    fn group(&self) -> String {
        format!("thalweg-{}", self.prefix)
    }

    fn consumer(&mut self) -> Result<SharedConsumer> {
        if let Some(consumer) = &self.consumer {
            return Ok(consumer.clone());
        }
        let group = self.group();
        let mut config = self.options.properties.consumer(&group, 1);
        config.set("group.id", &group).set("enable.auto.commit", "false");
        // What a transaction that is open has written is not the marker.
        config.set("isolation.level", "read_uncommitted");
        let consumer: SharedConsumer =
            Arc::new(create(&config, self.context.clone(), &self.options.properties, &self.table)?);
        self.consumer = Some(consumer.clone());
        Ok(consumer)
    }

    /// The marker, by the name of whichever topic it stands.
    fn find_marker(&mut self, give_up_after: Duration) -> Result<Option<Marker>> {
        let consumer = self.consumer()?;
        let calls = self.calls(&consumer, give_up_after);
        let topics: Vec<String> = match &self.options.topics {
            Topics::Named(names) => names.clone(),
            topics => {
                let partitions = calls.partitions(topics)?.into_iter();
                let mut topics: Vec<String> = partitions.map(|name| name.topic).collect();
                topics.dedup();
                topics
            }
        };
        let asked = topics.clone();
        let found = calls
            .call("the marker of transactions", move |consumer| marker_of(consumer, &asked))?;
        let (marker, topic) = found.unzip();
        self.marker_topic =
            topic.or(self.marker_topic.take()).or_else(|| topics.into_iter().next());
        Ok(marker)
    }

    fn calls<'a>(&'a self, consumer: &'a SharedConsumer, give_up_after: Duration) -> Calls<'a> {
        let properties = &self.options.properties;
        Calls::new(consumer, properties, &self.table, &self.cancel, give_up_after)
    }

    /// Remembers which snapshot comes next. The first time it is written at once: the job begins.
    /// What an earlier run had begun is over then, one way or the other, and only from there on the
    /// marker is the truth: it is read again.
    ///
    /// # Errors
    /// If it can't be written; if the job may not write from where it starts after all.
    pub fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        if self.mark.replace(mark.clone()).is_some() {
            return Ok(());
        }
        let deadline = Deadline::after(START_WAIT);
        self.begin_producer(Some(&deadline)).map_err(|failure| match failure {
            Failure::Error(error) => error,
            Failure::Client(error) => self.explained(&error, None),
        })?;
        self.look()?;
        self.transact(&[], self.committed, false, Some(START_WAIT))
    }

    /// As [`thalweg_core::Sink::recover`].
    ///
    /// # Errors
    /// If what the handle names can't be committed.
    pub fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        if let Some(handle) = handle {
            self.commit_handle(&Handle::read(handle)?, Some(START_WAIT))?;
        }
        self.spool.remove(|_| false);
        if let Some(claim) = &mut self.claim {
            claim.begin();
        }
        Ok(())
    }

    /// Adds messages.
    ///
    /// # Errors
    /// If they can't be kept.
    pub fn add(&mut self, messages: &[Outgoing<'_>]) -> Result<()> {
        self.spool.write(self.number, messages)
    }

    /// Makes durable what was added.
    ///
    /// # Errors
    /// If that can't be done.
    pub fn prepare(&mut self) -> Result<Option<String>> {
        if let Some(segment) = self.spool.seal()? {
            self.prepared.push(segment);
            self.number += 1;
        }
        let Some(last) = self.prepared.last() else { return Ok(None) };
        let handle = Handle { transaction: last.number, segments: self.prepared.clone() };
        Ok(Some(handle.write(&self.prefix)))
    }

    /// Makes visible what a handle names.
    ///
    /// # Errors
    /// If that can't be done now.
    pub fn commit(&mut self, handle: &str) -> Result<()> {
        self.commit_handle(&Handle::read(handle)?, None)
    }

    fn commit_handle(&mut self, handle: &Handle, give_up_after: Option<Duration>) -> Result<()> {
        let open = handle.segments.iter().filter(|segment| segment.number > self.committed);
        let open: Vec<Segment> = open.cloned().collect();
        if !open.is_empty() {
            self.transact(&open, handle.transaction, false, give_up_after)?;
        }
        self.committed = self.committed.max(handle.transaction);
        self.prepared.retain(|segment| segment.number > handle.transaction);
        self.spool.remove(|number| number > handle.transaction);
        Ok(())
    }

    /// The job is done: another one may write the output from scratch.
    ///
    /// # Errors
    /// If it can't be noted.
    pub fn finish(&mut self) -> Result<()> {
        self.transact(&[], self.committed, true, None)?;
        self.spool.clear();
        self.output = None;
        self.claim = None;
        Ok(())
    }

    /// The job was abandoned. What is prepared stays.
    pub fn abort(&mut self) {
        self.spool.abandon();
        self.output = None;
        self.claim = None;
    }

    /// Writes files and the marker in one transaction, as often as it takes.
    fn transact(
        &mut self,
        segments: &[Segment],
        number: u64,
        is_finished: bool,
        give_up_after: Option<Duration>,
    ) -> Result<()> {
        let Some(mark) = self.mark.clone() else {
            return Err(Error::internal("a transaction before the output was marked"));
        };
        let marker = Marker { mark, transaction: number, is_finished };
        let (mut backoff, mut refusals) = (Backoff::default(), 0);
        let deadline = give_up_after.map(Deadline::after);
        let mut is_repeated = false;
        loop {
            let failure = match self.attempt(segments, &marker, is_repeated, deadline.as_ref()) {
                Ok(()) => {
                    self.has_marked = true;
                    self.context.trouble.clear();
                    return Ok(());
                }
                Err(failure) => failure,
            };
            let refused = self.output.as_ref().map_or(Ok(()), Output::check);
            // A new producer ends what this one has begun.
            let output = self.output.take();
            self.context.undelivered.clear();
            if let Err(error) = refused {
                refusals += 1;
                if refusals >= REFUSALS {
                    return Err(error);
                }
            }
            is_repeated = true;
            let is_late = deadline.as_ref().is_some_and(Deadline::is_over);
            match failure {
                Failure::Error(error) => return Err(error),
                Failure::Client(error) if is_late || !is_worth_while(&error) => {
                    return Err(self.explained(&error, output.as_ref()));
                }
                Failure::Client(error) => self.context.trouble.set(describe(&error)),
            }
            let pause = backoff.pause(Duration::MAX).unwrap_or(CALL).min(CALL);
            if !self.cancel.sleep(pause) {
                return Err(Error::cancelled());
            }
        }
    }

    fn explained(&self, error: &KafkaError, output: Option<&Output>) -> Error {
        if code_of(error) == Some(RDKafkaErrorCode::InvalidTransactionTimeout) {
            return Error::plan(format!(
                "table {}: a transaction of {} ms is more than the servers allow ('transaction.max.timeout.ms')",
                self.table, self.timeout_ms
            ))
            .hint("lower 'properties.transaction.timeout.ms'");
        }
        match output {
            Some(output) => output.explained(error),
            None => super::client::explained(
                error,
                &self.options.properties,
                &self.table,
                "a transaction",
            ),
        }
    }

    /// Where it is not the first attempt, the marker says whether the one before has succeeded.
    fn attempt(
        &mut self,
        segments: &[Segment],
        marker: &Marker,
        is_repeated: bool,
        deadline: Option<&Deadline>,
    ) -> Result<(), Failure> {
        let is_new = self.output.is_none();
        if is_new {
            self.begin_producer(deadline)?;
        }
        if is_new && is_repeated {
            let found = self.find_marker(START_WAIT)?;
            if found.as_ref() == Some(marker) {
                return Ok(());
            }
            // The first mark replaces that of an earlier run.
            let others = found.filter(|found| found.mark.lineage != marker.mark.lineage);
            if let Some(found) = others.filter(|_| self.has_marked) {
                let error = Error::io(format!(
                    "table {}: another job ({}) has begun to write under the prefix '{}'",
                    self.table, found.mark.lineage, self.prefix
                ));
                let hint = "stop one of them, and give each its own 'sink.transactional-id-prefix'";
                return Err(error.hint(hint).into());
            }
        }
        let consumer = self.consumer()?;
        let topic = self.marker_topic.clone().ok_or_else(|| {
            Error::plan(format!("table {}: no topic fits 'topic-pattern'", self.table))
                .hint("create one")
        })?;
        let Some(output) = &self.output else {
            return Err(Error::internal("no producer").into());
        };
        let producer = output.producer();
        producer.begin_transaction()?;
        for segment in segments {
            let mut failure = None;
            let read = self.spool.read(segment, &mut |messages| {
                output.send(messages).map_err(|failed| {
                    failure = Some(failed);
                    Error::cancelled()
                })
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
            read?;
        }
        let mut offsets = TopicPartitionList::new();
        let number = i64::try_from(marker.transaction).unwrap_or(i64::MAX);
        let mut element = offsets.add_partition(&topic, 0);
        element.set_offset(Offset::Offset(number))?;
        element.set_metadata(marker.write());
        let group = consumer.group_metadata();
        let group = group.ok_or_else(|| Error::internal("a consumer without a group"))?;
        // What is given up here is never committed: its producer is not used any more.
        let (offsets, group) = (Arc::new(offsets), Arc::new(group));
        self.until_done(deadline, || {
            let (producer, offsets, group) = (producer.clone(), offsets.clone(), group.clone());
            abandonable(&self.cancel, move || {
                producer.send_offsets_to_transaction(&offsets, &group, CALL * 5)
            })
        })?;
        self.until_done(deadline, || Ok(producer.commit_transaction(SLICE)))
    }

    /// Repeats a call of a transaction that may be repeated.
    fn until_done(
        &self,
        deadline: Option<&Deadline>,
        mut call: impl FnMut() -> Result<Outcome<()>>,
    ) -> Result<(), Failure> {
        loop {
            // A commit waits until refusals are read.
            self.output.iter().for_each(|output| serve(output.producer()));
            let error = match call()? {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_repeatable = match &error {
                KafkaError::Transaction(error) => error.is_retriable(),
                error => code_of(error) == Some(RDKafkaErrorCode::OperationTimedOut),
            };
            let is_late = deadline.is_some_and(Deadline::is_over);
            if !is_repeatable || is_late {
                return Err(error.into());
            }
            self.context.trouble.set(describe(&error));
            if !self.cancel.sleep(Duration::from_millis(20)) {
                return Err(Error::cancelled().into());
            }
        }
    }

    /// Makes a producer and initializes it: this ends transactions that an earlier one has left,
    /// and fences it.
    fn begin_producer(&mut self, deadline: Option<&Deadline>) -> Result<(), Failure> {
        let timeout = self.timeout_ms.to_string();
        let settings = [
            ("transactional.id", self.prefix.as_str()),
            ("transaction.timeout.ms", &timeout),
            ("message.timeout.ms", &timeout),
            ("enable.idempotence", "true"),
        ];
        let output = Output::new(
            &self.table,
            &self.options,
            &settings,
            self.context.clone(),
            self.cancel.clone(),
        )?;
        self.until_done(deadline, || Ok(output.producer().init_transactions(SLICE)))?;
        self.output = Some(output);
        Ok(())
    }
}

/// The newest marker, and the topic by whose name it stands.
fn marker_of(consumer: &Consumer, topics: &[String]) -> Outcome<Option<(Marker, String)>> {
    let mut asked = TopicPartitionList::with_capacity(topics.len());
    for topic in topics {
        asked.add_partition(topic, 0);
    }
    let found = consumer.committed_offsets(asked, CALL * 3)?;
    let mut newest: Option<(Marker, String)> = None;
    for element in found.elements() {
        element.error()?;
        let Offset::Offset(offset) = element.offset() else { continue };
        let marker = Marker::read(offset, element.metadata());
        if newest.as_ref().is_none_or(|(newest, _)| newest.transaction <= marker.transaction) {
            newest = Some((marker, element.topic().to_owned()));
        }
    }
    Ok(newest)
}

/// True if another attempt, with a new producer, may succeed.
fn is_worth_while(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    let fenced = [
        Code::Fenced,
        Code::ProducerFenced,
        Code::InvalidProducerEpoch,
        Code::InvalidProducerIdMapping,
        Code::UnknownProducerId,
        Code::InvalidTransactionalState,
        Code::PurgeQueue,
        Code::PurgeInflight,
        Code::MessageTimedOut,
        Code::State,
    ];
    is_passing(error) || code_of(error).is_some_and(|code| fenced.contains(&code))
}

impl Marker {
    fn write(&self) -> String {
        json!({
            "lineage": self.mark.lineage,
            "snapshot": self.mark.snapshot,
            "finished": self.is_finished,
        })
        .to_string()
    }

    fn read(offset: i64, metadata: &str) -> Marker {
        let value: Value = serde_json::from_str(metadata).unwrap_or_default();
        let lineage = value.get("lineage").and_then(Value::as_str).unwrap_or_default().to_owned();
        let snapshot = value.get("snapshot").and_then(Value::as_u64).unwrap_or(0);
        Marker {
            mark: OutputMark { lineage, snapshot },
            transaction: u64::try_from(offset).unwrap_or(0),
            is_finished: value.get("finished").and_then(Value::as_bool).unwrap_or(false),
        }
    }
}

/// What a snapshot says of messages that are to be committed.
struct Handle {
    transaction: u64,
    segments: Vec<Segment>,
}

impl Handle {
    fn write(&self, prefix: &str) -> String {
        let segments: Vec<Value> = self.segments.iter().map(Segment::to_json).collect();
        json!({ "prefix": prefix, "transaction": self.transaction, "segments": segments })
            .to_string()
    }

    fn read(text: &str) -> Result<Handle> {
        read_saved("transaction of topics", text, |value| {
            let segments = value.get("segments")?.as_array()?.iter().map(Segment::from_json);
            Some(Handle {
                transaction: value.get("transaction")?.as_u64()?,
                segments: segments.collect::<Option<_>>()?,
            })
        })
    }
}
