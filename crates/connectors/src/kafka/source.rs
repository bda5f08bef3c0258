//! Reads topics.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rdkafka::consumer::Consumer as _;
use serde_json::{Value, json};
use thalweg_core::connector::{
    Source, SourceBatch, SourcePoll, SplitEvent, SplitId, SplitStatus, TableRequest, Trouble,
    Waker, unread_rows,
};
use thalweg_core::{Error, Result};

use super::client::{Client, Context, SharedConsumer, create, explained};
use super::letters::Letters;
use super::offsets::{Calls, PartitionName, list_of};
use super::options::{KafkaOptions, Place};
use super::reader::{Item, Part, Reader, ReaderParts};
use super::rows::{RowReader, Rows};
use crate::filesystem::FinishedLetters;
use crate::network::feed::{Fed, Feed, whole_messages};
use crate::network::{Cancel, Deadline};
use crate::saved::read_saved;

/// Blocks that wait for the job.
const BLOCKS_AHEAD: usize = 4;
/// How long a start waits for servers.
const START_WAIT: Duration = Duration::from_secs(30);
/// How long an end waits for the last offsets of the group to be committed.
const COMMIT_WAIT: Duration = Duration::from_millis(1_500);

/// Reads topics.
pub struct KafkaSource {
    request: TableRequest,
    options: KafkaOptions,
    letters: Letters,
    /// What a position says.
    restored: Option<Position>,
    splits: Vec<Split>,
    /// What is to be said before any row.
    first: VecDeque<SourcePoll>,
    feed: Option<Feed<Item>>,
    current: Option<Rows>,
    commits: Option<Sender<Vec<(PartitionName, i64)>>>,
    done: Option<Receiver<()>>,
    bad_rows: u64,
    /// Ends the waits of a start.
    starting: Cancel,
    /// What goes wrong at the moment.
    trouble: Trouble,
}

/// A partition, as far as rows were given.
struct Split {
    part: Part,
    has_ended: bool,
    bad_rows: u64,
}

impl KafkaSource {
    /// A source of this table.
    ///
    /// # Errors
    /// If dead letters can't go where they should.
    pub fn new(
        request: TableRequest,
        options: KafkaOptions,
        finished: FinishedLetters,
    ) -> Result<Self> {
        let letters = Letters::new(&request, &options, finished)?;
        Ok(KafkaSource {
            request,
            options,
            letters,
            restored: None,
            splits: Vec::new(),
            first: VecDeque::new(),
            feed: None,
            current: None,
            commits: None,
            done: None,
            bad_rows: 0,
            starting: Cancel::default(),
            trouble: Trouble::default(),
        })
    }

    fn consumer(&self, context: Context, partitions: usize) -> Result<SharedConsumer> {
        let table = &self.request.table;
        let config = self.options.properties.consumer(&format!("thalweg-{table}"), partitions);
        Ok(Arc::new(create(&config, context, &self.options.properties, table)?))
    }

    /// The partitions, and where each is read from and to.
    fn find_parts(&self) -> Result<Vec<Part>> {
        let consumer = Client::new(self.consumer(Context::default(), 1)?);
        let (properties, table) = (&self.options.properties, &self.request.table);
        let calls = Calls::new(&consumer, properties, table, &self.starting, START_WAIT);
        let mut parts: Vec<Part> = Vec::new();
        let mut names = match &self.restored {
            // What a snapshot knows is all that there is.
            Some(_) if self.options.bounded.is_some() => Vec::new(),
            _ => calls.partitions(&self.options.topics)?,
        };
        for known in self.restored.iter().flat_map(|restored| &restored.partitions) {
            names.retain(|name| *name != known.name);
            let split = SplitId(parts.len() as u32);
            parts.push(Part::new(split, known.name.clone(), known.offset, known.stop));
        }
        // Partitions that a snapshot did not know are new: they are read from their beginning.
        let place = match &self.restored {
            Some(_) => &Place::Earliest,
            None => &self.options.startup,
        };
        if !names.is_empty() {
            let starts = calls.starts(&names, place)?;
            let stops = self.options.bounded.as_ref().map(|place| calls.stops(&names, place));
            let stops = stops.transpose()?;
            for (at, (name, start)) in names.into_iter().zip(starts).enumerate() {
                let stop = stops.as_ref().map(|stops| stops[at]);
                parts.push(Part::new(SplitId(parts.len() as u32), name, start, stop));
            }
        }
        Ok(parts)
    }

    fn open_split(&mut self, part: Part) -> SourcePoll {
        let opened = SourcePoll::Split(part.split, SplitEvent::Opened(part.name.text().into()));
        self.splits.push(Split { part, has_ended: false, bad_rows: 0 });
        opened
    }

    /// The next rows, at most `rows_max`, but never a part of what a message holds.
    fn take(&mut self, rows: Rows, rows_max: usize) -> Result<SourcePoll> {
        let count = whole_messages(&rows.offsets, rows_max.max(1));
        let is_all = count == rows.offsets.len();
        let next = if is_all { rows.next } else { rows.offsets[count] };
        let batch =
            SourceBatch { batch: rows.batch.slice(0, count), origin: None, split: rows.split };
        let (bad, left): (Vec<_>, Vec<_>) = rows.bad.into_iter().partition(|bad| bad.offset < next);
        let split = &mut self.splits[rows.split.0 as usize];
        split.part.next = split.part.next.max(next);
        split.bad_rows += bad.len() as u64;
        self.bad_rows += bad.len() as u64;
        self.letters.write(&split.part.name, &bad)?;
        if !is_all {
            let batch = rows.batch.slice(count, rows.offsets.len() - count);
            self.current =
                Some(Rows { batch, offsets: rows.offsets[count..].to_vec(), bad: left, ..rows });
        }
        Ok(SourcePoll::Batch(batch))
    }

    fn end_split(&mut self, split: SplitId) -> SourcePoll {
        let ended = &mut self.splits[split.0 as usize];
        ended.has_ended = true;
        if let Some(stop) = ended.part.stop {
            ended.part.next = ended.part.next.max(stop);
        }
        SourcePoll::Split(split, SplitEvent::Ended)
    }

    /// True if a partition has messages from an offset on.
    fn has_messages(&self, consumer: &SharedConsumer, known: &KnownPart) -> Result<bool> {
        let (properties, table) = (&self.options.properties, &self.request.table);
        let failed = |error| explained(&error, properties, table, &known.name.text());
        let from = [(&known.name, rdkafka::Offset::Offset(known.offset))];
        let list = list_of(from).map_err(failed)?;
        consumer.assign(&list).map_err(failed)?;
        let deadline = Deadline::after(START_WAIT);
        while !deadline.is_over() {
            if self.starting.is_set() {
                return Err(Error::cancelled());
            }
            match consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Ok(_)) => return Ok(true),
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => return Ok(false),
                Some(Err(error)) if super::client::is_passing(&error) => {}
                Some(Err(error)) => return Err(failed(error)),
            }
        }
        Err(Error::io(format!("table {table}: {} can't be read", known.name.text())))
    }
}

impl Source for KafkaSource {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        let parts = self.find_parts()?;
        for part in &parts {
            let opened = self.open_split(part.clone());
            self.first.push_back(opened);
        }
        let context = Context { trouble: self.trouble.clone(), ..Context::default() };
        let (commits, to_commit) = unbounded();
        let (running, done) = bounded(0);
        let cancel = Cancel::default();
        let reader = Reader::new(ReaderParts {
            table: self.request.table.clone(),
            properties: self.options.properties.clone(),
            consumer: self.consumer(context.clone(), parts.len())?,
            context,
            rows: RowReader::new(&self.request, &self.options),
            topics: self.options.topics.clone(),
            bounded: self.options.bounded.clone(),
            discovery: match self.options.bounded {
                None => self.options.discovery_ms.map(Duration::from_millis),
                Some(_) => None,
            },
            commits: to_commit,
            done: running,
            cancel: cancel.clone(),
        });
        let name = format!("read {}", self.request.table);
        let feed = Feed::start(name, BLOCKS_AHEAD, waker, cancel, move |writer| {
            reader.run(parts, writer)
        })?;
        (self.feed, self.commits, self.done) = (Some(feed), Some(commits), Some(done));
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.letters.open(self.bad_rows)
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(first) = self.first.pop_front() {
            return Ok(first);
        }
        if let Some(rows) = self.current.take() {
            return self.take(rows, rows_max);
        }
        let Some(feed) = &self.feed else { return Ok(SourcePoll::End) };
        match feed.next()? {
            Fed::Item(Item::Rows(rows)) => self.take(rows, rows_max),
            Fed::Item(Item::Opened(part)) => Ok(self.open_split(part)),
            Fed::Item(Item::Ended(split)) => Ok(self.end_split(split)),
            Fed::Item(Item::End) | Fed::End => Ok(SourcePoll::End),
            Fed::Pending => Ok(SourcePoll::Pending),
        }
    }

    fn is_bounded(&self) -> bool {
        self.options.bounded.is_some()
    }

    fn stop(&mut self) {
        self.feed = None;
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.starting.waker())
    }

    fn buffered_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |rows| rows.batch.get_array_memory_size())
    }

    fn bad_rows(&self) -> u64 {
        self.bad_rows
    }

    fn reconnects(&self) -> Option<u64> {
        Some(self.trouble.recoveries())
    }

    fn split_status(&self, split: SplitId) -> SplitStatus {
        let Some(found) = self.splits.get(split.0 as usize) else { return SplitStatus::default() };
        let (next, shared) = (found.part.next, &found.part.shared);
        let is_caught_up = found.has_ended || shared.caught_up_at.load(Ordering::Relaxed) == next;
        let end = shared.end.load(Ordering::Relaxed);
        SplitStatus {
            position: Some(next.to_string()),
            lag_rows: match is_caught_up {
                true => Some(0),
                false => (end > 0).then(|| (end - next).max(0) as u64),
            },
            is_caught_up,
            bad_rows: found.bad_rows,
            last_error: shared.trouble.get(),
            ..SplitStatus::default()
        }
    }

    fn pause_split(&mut self, split: SplitId, is_paused: bool) {
        if let Some(found) = self.splits.get(split.0 as usize) {
            found.part.shared.is_paused.store(is_paused, Ordering::Relaxed);
        }
    }

    fn position(&self) -> Option<String> {
        let known = self.splits.iter().map(|split| KnownPart {
            name: split.part.name.clone(),
            offset: split.part.next,
            stop: split.part.stop,
        });
        let position = Position { partitions: known.collect(), bad_rows: self.bad_rows };
        // Before the start it is what was restored.
        match (&self.restored, self.splits.is_empty()) {
            (Some(restored), true) => Some(restored.write(&self.letters)),
            _ => Some(position.write(&self.letters)),
        }
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let read = Position::read(position)?;
        self.letters.seek(position, false)?;
        self.bad_rows = read.bad_rows;
        // A snapshot before the first look at the topics.
        self.restored = (!read.partitions.is_empty()).then_some(read);
        Ok(())
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        let read = Position::read(position)?;
        self.letters.seek(position, true)?;
        self.bad_rows = read.bad_rows;
        let consumer = Client::new(self.consumer(Context::default(), 1)?);
        read.partitions.iter().try_for_each(|known| {
            let may_have_more = known.stop.is_none_or(|stop| known.offset < stop);
            if may_have_more && self.has_messages(&consumer, known)? {
                let from = format!("{}, from offset {} on", known.name.text(), known.offset);
                return Err(unread_rows(&from));
            }
            Ok(())
        })?;
        self.restored = Some(read);
        Ok(())
    }

    fn claim(&mut self) -> Result<()> {
        self.letters.claim()
    }

    fn prepare(&mut self) -> Result<()> {
        self.letters.sync()
    }

    fn finish(&mut self) -> Result<()> {
        self.letters.finish(self.bad_rows)?;
        self.feed = None;
        self.commits = None;
        if let Some(done) = self.done.take() {
            // Offsets of the group are for people: an end does not wait for long.
            let _ = done.recv_timeout(COMMIT_WAIT);
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.feed = None;
        self.letters.abort();
    }

    fn committed(&mut self, position: &str) -> Result<()> {
        let properties = &self.options.properties;
        let Some(commits) = &self.commits else { return Ok(()) };
        if properties.group_id.is_none() || !properties.commits_offsets {
            return Ok(());
        }
        let read = Position::read(position)?;
        let offsets = read.partitions.into_iter().map(|known| (known.name, known.offset)).collect();
        // The thread may have ended with an error, which a poll reports.
        let _ = commits.send(offsets);
        Ok(())
    }
}

/// A partition in a position.
#[derive(Clone, Debug, PartialEq)]
struct KnownPart {
    name: PartitionName,
    offset: i64,
    stop: Option<i64>,
}

/// Where reading resumes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Position {
    partitions: Vec<KnownPart>,
    bad_rows: u64,
}

impl Position {
    fn write(&self, letters: &Letters) -> String {
        let part = |known: &KnownPart| {
            let mut part = json!({
                "topic": known.name.topic,
                "partition": known.name.partition,
                "offset": known.offset,
            });
            if let Some(stop) = known.stop {
                part["stop"] = stop.into();
            }
            part
        };
        let mut position =
            json!({ "partitions": self.partitions.iter().map(part).collect::<Vec<_>>() });
        if self.bad_rows > 0 {
            position["bad_rows"] = self.bad_rows.into();
        }
        letters.note(&mut position);
        position.to_string()
    }

    fn read(text: &str) -> Result<Position> {
        let part = |value: &Value| {
            Some(KnownPart {
                name: PartitionName {
                    topic: value.get("topic")?.as_str()?.to_owned(),
                    partition: i32::try_from(value.get("partition")?.as_i64()?).ok()?,
                },
                offset: value.get("offset")?.as_i64()?,
                stop: value.get("stop").and_then(Value::as_i64),
            })
        };
        read_saved("position in topics", text, |value| {
            let partitions = value.get("partitions")?.as_array()?.iter().map(part);
            Some(Position {
                partitions: partitions.collect::<Option<_>>()?,
                bad_rows: value.get("bad_rows").and_then(Value::as_u64).unwrap_or(0),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_message_stay_together() {
        assert_eq!(whole_messages(&[1, 2, 3], 5), 3);
        assert_eq!(whole_messages(&[1, 2, 3], 2), 2);
        assert_eq!(whole_messages(&[1, 2, 2, 2, 3], 3), 1);
        assert_eq!(whole_messages(&[2, 2, 2, 3], 2), 3);
        assert_eq!(whole_messages(&[2, 2, 2], 2), 3);
    }

    #[test]
    fn positions_are_read_back() {
        let name = PartitionName { topic: "a".to_owned(), partition: 3 };
        let known = |stop| KnownPart { name: name.clone(), offset: 42, stop };
        let position = Position { partitions: vec![known(None), known(Some(50))], bad_rows: 2 };
        let text = position.write(&Letters::None);
        assert_eq!(Position::read(&text).expect("a position"), position);
        assert!(Position::read("{\"line\": 3}").is_err() && Position::read("").is_err());
    }
}
