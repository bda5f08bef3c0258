//! The thread that reads partitions.
//!
//! Each partition has a queue of the client to itself: messages need no lookup of where they are
//! from, a partition that is paused is not asked, and its queue fills up and stops the client from
//! fetching. The thread takes what a queue has, decodes it, and hands rows to the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::Offset;
use thalweg_core::connector::{SplitId, Trouble};
use thalweg_core::{Error, Result};

use super::client::{CALL, Context, Properties, SharedConsumer, describe, explained, is_passing};
use super::offsets::{Calls, PartitionName, list_of};
use super::options::{Place, Topics};
use super::queue::{MessageQueue, MessageRef};
use super::rows::{Block, RowReader, Rows};
use crate::network::feed::FeedWriter;
use crate::network::{Attempt, Cancel, Failure, TICK, Timer};

/// How long an answer may take without which a partition can't be read on.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Rounds over the partitions begin this far apart while rows come, but not many: each partition's
/// rows of a round are a bundle with its fixed cost, and servers that answer each fetch at once
/// would lead to thousands of small ones in a second. After a pause a message is read at once.
const ROUND: Duration = Duration::from_millis(10);
/// With as many rows the next round begins at once: there may be a backlog.
const MANY_ROWS: usize = 4_096;
/// The rows of as many messages are worked on while those of other partitions are read.
const FEW_MESSAGES: usize = 1_024;
/// How often the ends of partitions are asked for, to know how far behind the job is.
const LAG_INTERVAL: Duration = Duration::from_secs(5);

/// What the thread reports to the source.
pub enum Item {
    /// A partition was found, and is read from there.
    Opened(Part),
    /// Rows, or messages without rows.
    Rows(Rows),
    /// A partition has been read to its end.
    Ended(SplitId),
    /// All have.
    End,
}

/// A partition as it is read: where from, and to where.
#[derive(Clone)]
pub struct Part {
    /// Its split.
    pub split: SplitId,
    /// Which it is.
    pub name: PartitionName,
    /// The next offset.
    pub next: i64,
    /// The offset to stop at.
    pub stop: Option<i64>,
    /// What source and thread know of each other.
    pub shared: Arc<Shared>,
}

/// What source and thread know of each other, of a partition.
#[derive(Default)]
pub struct Shared {
    /// The offset that was next when there were no more messages; -1 since one came.
    pub caught_up_at: AtomicI64,
    /// The end, as asked last; 0 if that is not known.
    pub end: AtomicI64,
    /// No rows are wanted for now.
    pub is_paused: AtomicBool,
    /// What goes wrong.
    pub trouble: Trouble,
}

impl Part {
    /// A partition that is read from there.
    pub fn new(split: SplitId, name: PartitionName, next: i64, stop: Option<i64>) -> Part {
        let shared = Arc::new(Shared { caught_up_at: AtomicI64::new(-1), ..Shared::default() });
        Part { split, name, next, stop, shared }
    }

    fn is_done(&self) -> bool {
        self.stop.is_some_and(|stop| self.next >= stop)
    }
}

/// What a reader is made of.
pub struct ReaderParts {
    /// The table, for messages.
    pub table: String,
    /// The client's settings.
    pub properties: Properties,
    /// The client.
    pub consumer: SharedConsumer,
    /// What the client reports.
    pub context: Context,
    /// From messages to rows.
    pub rows: RowReader,
    /// Which topics are read, and where new partitions end.
    pub topics: Topics,
    /// Where partitions end.
    pub bounded: Option<Place>,
    /// How often to look for new ones.
    pub discovery: Option<Duration>,
    /// Offsets to commit for the group.
    pub commits: Receiver<Vec<(PartitionName, i64)>>,
    /// Dropped when the thread has ended.
    pub done: Sender<()>,
    /// Ends the thread.
    pub cancel: Cancel,
}

struct Open {
    part: Part,
    queue: MessageQueue,
    /// Wakes the thread, and keeps the partition's messages out of the client's own queue.
    _wakes: PartitionQueue<Context>,
    has_ended: bool,
    /// The partition reached as far as its stop before it was read to where it is.
    reaches_stop: bool,
}

/// Reads partitions.
pub struct Reader {
    parts: ReaderParts,
    open: Vec<Open>,
    wake: (Sender<()>, Receiver<()>),
    looked: Timer,
    asked: Timer,
}

impl Reader {
    /// A reader of these parts.
    pub fn new(parts: ReaderParts) -> Reader {
        Reader {
            parts,
            open: Vec::new(),
            wake: bounded(1),
            looked: Timer::default(),
            asked: Timer::default(),
        }
    }

    /// Reads until all partitions have ended, or nobody wants rows any more.
    ///
    /// # Errors
    /// If it can't continue.
    pub fn run(mut self, found: Vec<Part>, writer: &FeedWriter<Item>) -> Result<()> {
        let read = self.read(found, writer);
        self.open.clear();
        let ended = match read {
            Err(Failure::Final(error)) => Err(error),
            Err(Failure::Passing(why)) => Err(Error::io(why)),
            Err(Failure::Cancelled) => {
                self.commit(CommitMode::Sync);
                Ok(())
            }
            Ok(()) => self.serve_commits(writer),
        };
        drop(self.parts.done);
        ended
    }

    fn read(&mut self, found: Vec<Part>, writer: &FeedWriter<Item>) -> Attempt<()> {
        self.assign(found)?;
        loop {
            if self.parts.cancel.is_set() {
                return Err(Failure::Cancelled);
            }
            self.commit(CommitMode::Async);
            let round = Timer::default();
            let mut rows = self.serve_strays(writer)?;
            for at in 0..self.open.len() {
                rows += self.read_partition(at, writer)?;
            }
            if rows > 0 {
                writer.wake();
            }
            self.end_partitions(writer)?;
            let is_over =
                self.parts.discovery.is_none() && self.open.iter().all(|open| open.has_ended);
            if is_over && self.parts.bounded.is_some() {
                return Ok(());
            }
            self.discover(writer)?;
            self.ask_ends();
            if rows == 0 {
                // Whether it was woken or waited in vain makes no difference.
                let _ = self.wake.1.recv_timeout(TICK);
            } else if rows < MANY_ROWS {
                self.parts.cancel.sleep(ROUND.saturating_sub(round.elapsed()));
            }
        }
    }

    /// All rows were handed over: what is left is to commit offsets.
    fn serve_commits(&mut self, writer: &FeedWriter<Item>) -> Result<()> {
        if writer.give(Item::End).is_err() {
            return Ok(());
        }
        while !self.parts.cancel.is_set() {
            self.commit(CommitMode::Sync);
            self.parts.cancel.sleep(TICK / 4);
        }
        self.commit(CommitMode::Sync);
        Ok(())
    }

    fn assign(&mut self, found: Vec<Part>) -> Result<()> {
        let failed = |error: KafkaError| {
            explained(&error, &self.parts.properties, &self.parts.table, "to read partitions")
        };
        let open = found.iter().filter(|part| !part.is_done());
        let list = list_of(open.map(|part| (&part.name, Offset::Offset(part.next))));
        let list = list.map_err(failed)?;
        if list.count() > 0 {
            self.parts.consumer.incremental_assign(&list).map_err(failed)?;
        }
        for part in found {
            let (topic, partition) = (&part.name.topic, part.name.partition);
            let queue = self.parts.consumer.split_partition_queue(topic, partition);
            let mut wakes = queue.ok_or_else(|| Error::internal("a partition has no queue"))?;
            let queue = MessageQueue::new(self.parts.consumer.clone(), topic, partition)?;
            let wake = self.wake.0.clone();
            wakes.set_nonempty_callback(move || {
                // One that is there already is enough.
                let _ = wake.try_send(());
            });
            // A place that was looked up is there; offsets that a user names may be still to come.
            let reaches_stop = !matches!(self.parts.bounded, Some(Place::Offsets(_)));
            self.open.push(Open { part, queue, _wakes: wakes, has_ended: false, reaches_stop });
        }
        Ok(())
    }

    /// The client's own queue has errors, and messages that came before their partition had its
    /// queue: they are older than all in there.
    fn serve_strays(&mut self, writer: &FeedWriter<Item>) -> Attempt<usize> {
        let consumer = self.parts.consumer.clone();
        let mut count = 0;
        while let Some(polled) = consumer.poll(Duration::ZERO) {
            match polled {
                Ok(message) => {
                    count += 1;
                    self.take_stray(&message, writer)?;
                }
                Err(KafkaError::PartitionEOF(_)) => {}
                Err(error) => self.check(&error, None)?,
            }
        }
        Ok(count)
    }

    fn take_stray(
        &mut self,
        message: &BorrowedMessage<'_>,
        writer: &FeedWriter<Item>,
    ) -> Attempt<()> {
        let topic = message.topic();
        let message = MessageRef::from(message);
        let is_of = |open: &&mut Open| {
            open.part.name.partition == message.partition() && open.part.name.topic == topic
        };
        let Some(open) = self.open.iter_mut().find(is_of) else { return Ok(()) };
        let mut block = Block::new(self.parts.rows.wants());
        if open.part.take(message, &mut block) {
            let rows = self.parts.rows.decode(open.part.split, &open.part.name, block)?;
            writer.give(Item::Rows(rows))?;
        }
        Ok(())
    }

    /// Reads what a partition has, up to a block. How many messages that was.
    fn read_partition(&mut self, at: usize, writer: &FeedWriter<Item>) -> Attempt<usize> {
        let open = &mut self.open[at];
        if open.has_ended || open.part.shared.is_paused.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let mut block = Block::new(self.parts.rows.wants());
        let (mut is_at_end, mut failure) = (false, None);
        while !block.is_full() && !open.part.is_done() {
            match open.queue.next() {
                None => break,
                Some(Ok(message)) => {
                    open.part.take(message.get(), &mut block);
                    is_at_end = false;
                }
                // Where messages come one by one, each answer of a server ends with this: what has
                // come behind it is read in the same round, else rounds would limit the rate.
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    open.part.shared.caught_up_at.store(open.part.next, Ordering::Relaxed);
                    is_at_end = true;
                }
                Some(Err(error)) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let count = block.len();
        if count > 0 {
            let part = &open.part;
            part.shared.trouble.clear();
            self.parts.context.trouble.clear();
            let rows = Item::Rows(self.parts.rows.decode(part.split, &part.name, block)?);
            // Whoever takes rows is called once for few rows of many partitions.
            if count < FEW_MESSAGES { writer.add(rows)? } else { writer.give(rows)? }
        }
        match failure {
            Some(error) => self.check(&error, Some(at))?,
            None if is_at_end => self.check_stop(at)?,
            None => {}
        }
        Ok(count)
    }

    /// A partition has no more messages for now: it has ended if its end is where it stops. Markers
    /// of transactions and messages that were compacted away may lie between the last message and
    /// there.
    ///
    /// Messages may also have come since it was read to its end, and before the servers were asked
    /// how far it reaches. So it is read once more from where it is: what is not found then is not
    /// there.
    fn check_stop(&mut self, at: usize) -> Attempt<()> {
        let open = &self.open[at];
        let (name, next) = (open.part.name.clone(), open.part.next);
        let Some(stop) = open.part.stop.filter(|&stop| next < stop) else {
            return Ok(());
        };
        let calls = self.calls(ANSWER_WAIT);
        let ends = calls.find(std::slice::from_ref(&name), &Place::Latest)?;
        if ends.first().copied().flatten().is_none_or(|end| end < stop) {
            return Ok(());
        }
        if open.reaches_stop {
            self.open[at].part.next = stop;
            return Ok(());
        }
        calls.call("to read a partition again", move |consumer| {
            consumer.seek(&name.topic, name.partition, Offset::Offset(next), CALL)
        })?;
        self.open[at].queue.clear();
        self.open[at].reaches_stop = true;
        Ok(())
    }

    fn calls(&self, give_up_after: Duration) -> Calls<'_> {
        let ReaderParts { consumer, properties, table, cancel, .. } = &self.parts;
        Calls { is_idle: false, ..Calls::new(consumer, properties, table, cancel, give_up_after) }
    }

    fn end_partitions(&mut self, writer: &FeedWriter<Item>) -> Attempt<()> {
        for open in self.open.iter_mut().filter(|open| !open.has_ended && open.part.is_done()) {
            open.has_ended = true;
            writer.give(Item::Ended(open.part.split))?;
        }
        Ok(())
    }

    /// What goes wrong is tried again by the client, unless that can't help.
    fn check(&mut self, error: &KafkaError, at: Option<usize>) -> Result<()> {
        use RDKafkaErrorCode as Code;
        let parts = &self.parts;
        let doing = match at {
            Some(at) => format!("partition {}", self.open[at].part.name.text()),
            None => "to read".to_owned(),
        };
        let code = error.rdkafka_error_code();
        match code {
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => {
                let next = at.map_or(0, |at| self.open[at].part.next);
                Err(Error::data(format!(
                    "table {}: {doing} has no messages from offset {next} on any more: they were removed before they \
                     were read, or the topic was created again",
                    parts.table
                ))
                .hint(
                    "keep messages for longer (retention.ms); with 'properties.auto.offset.reset' = 'earliest' the job \
                     continues with the first that is there",
                ))
            }
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
                if parts.bounded.is_none() =>
            {
                self.note(at, "the topic, or the partition, is not there any more");
                Ok(())
            }
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) || !is_passing(error) => {
                match code {
                    // The name of a host that is not known, connections that are refused: tried
                    // again.
                    Some(Code::Resolve | Code::Fail) | None => {
                        self.note(at, &describe(error));
                        Ok(())
                    }
                    _ => Err(explained(error, &parts.properties, &parts.table, &doing)),
                }
            }
            _ => {
                self.note(at, &describe(error));
                Ok(())
            }
        }
    }

    fn note(&self, at: Option<usize>, what: &str) {
        let noted =
            self.open.iter().enumerate().filter(|(place, _)| at.is_none_or(|at| at == *place));
        noted.for_each(|(_, open)| open.part.shared.trouble.set(what));
    }

    /// Looks for new partitions, which are read from their beginning.
    fn discover(&mut self, writer: &FeedWriter<Item>) -> Attempt<()> {
        let Some(interval) = self.parts.discovery else { return Ok(()) };
        if self.looked.elapsed() < interval {
            return Ok(());
        }
        self.looked = Timer::default();
        let calls = self.calls(Duration::ZERO);
        let mut found = match calls.partitions(&self.parts.topics) {
            Ok(found) => found,
            // A server that may not be talked to.
            Err(error) if error.is_plan_error() => return Err(error.into()),
            // A look that fails is made again: what is known is read meanwhile.
            Err(_) => return Ok(()),
        };
        found.retain(|name| self.open.iter().all(|open| open.part.name != *name));
        if found.is_empty() {
            return Ok(());
        }
        let Ok(starts) = calls.starts(&found, &Place::Earliest) else { return Ok(()) };
        let mut new = Vec::new();
        for (name, start) in found.into_iter().zip(starts) {
            let split = SplitId((self.open.len() + new.len()) as u32);
            let part = Part::new(split, name, start, None);
            writer.give(Item::Opened(part.clone()))?;
            new.push(part);
        }
        self.assign(new)?;
        Ok(())
    }

    /// Asks for the ends of partitions, to know how far behind the job is.
    fn ask_ends(&mut self) {
        if self.asked.elapsed() < LAG_INTERVAL {
            return;
        }
        self.asked = Timer::default();
        let behind = |open: &&Open| {
            !open.has_ended && open.part.shared.caught_up_at.load(Ordering::Relaxed) < 0
        };
        let behind: Vec<&Open> = self.open.iter().filter(behind).collect();
        if behind.is_empty() {
            return;
        }
        let names: Vec<PartitionName> = behind.iter().map(|open| open.part.name.clone()).collect();
        let calls = self.calls(Duration::ZERO);
        let Ok(ends) = calls.find(&names, &Place::Latest) else { return };
        for (open, end) in behind.iter().zip(ends) {
            open.part.shared.end.store(end.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Commits offsets that snapshots cover. That is for tools that look at the group: positions in
    /// snapshots alone decide where a job resumes, so a commit that fails is passed over.
    fn commit(&self, mode: CommitMode) {
        let Some(offsets) = self.parts.commits.try_iter().last() else { return };
        let committed = offsets.iter().map(|(name, offset)| (name, Offset::Offset(*offset)));
        let Ok(list) = list_of(committed) else { return };
        if let Err(error) = self.parts.consumer.commit(&list, mode) {
            self.note(
                None,
                &format!("offsets of the group can't be committed: {}", describe(&error)),
            );
        }
    }
}

impl Part {
    /// Takes a message, unless it lies behind the end. True if it was taken.
    fn take(&mut self, message: MessageRef<'_>, block: &mut Block) -> bool {
        let offset = message.offset();
        if self.stop.is_some_and(|stop| offset >= stop) {
            self.next = self.stop.unwrap_or(offset);
            return false;
        }
        if offset < self.next {
            return false;
        }
        if self.shared.caught_up_at.load(Ordering::Relaxed) >= 0 {
            self.shared.caught_up_at.store(-1, Ordering::Relaxed);
        }
        block.push(message);
        self.next = offset + 1;
        true
    }
}
