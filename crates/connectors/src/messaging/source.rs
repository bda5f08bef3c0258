//! The source: rows of the link as batches, and the position behind the last of them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use serde_json::Value;
use thalweg_core::connector::{
    Source, SourceBatch, SourcePoll, SplitEvent, SplitId, SplitStatus, TableRequest, Trouble,
    Waker, unread_rows,
};
use thalweg_core::{Error, Result};

use super::inbox::{Inbox, SharedSplit, Split};
use super::link::{Item, Link, insist};
use super::options::RecordOptions;
use super::progress::{Mark, MarkText, Progress, SplitProgress, Tracking};
use super::rows::{BadMessage, RowReader, Rows, message_metadata};
use super::{Client, Startup};
use crate::filesystem::{DeadLetters, FinishedLetters, LetterMark};
use crate::handover::BadRow;
use crate::network::feed::{Fed, Feed, whole_messages};
use crate::network::{Backoff, Cancel};
use crate::replay::replaying;

/// Blocks that wait for the job.
const BLOCKS_AHEAD: usize = 4;
/// How long a start waits for the peer.
const START_WAIT: Duration = Duration::from_secs(30);

/// What a source is made of.
pub struct SourceParts {
    /// The protocol.
    pub client: Box<dyn Client>,
    /// The peer, for messages.
    pub peer: String,
    /// What records look like.
    pub records: RecordOptions,
    /// The names of the splits.
    pub splits: Vec<String>,
    /// What is known of messages after a restart.
    pub tracking: Tracking,
    /// How marks are written.
    pub text: MarkText,
    /// Where a job begins.
    pub startup: Startup,
    /// It ends behind what is there at the start.
    pub is_bounded: bool,
    /// The dead letters that jobs of the run have finished.
    pub finished: FinishedLetters,
    /// Ends the client's work: the client has the same.
    pub cancel: Cancel,
}

impl SourceParts {
    /// Those of a peer that keeps nothing, and is one split.
    pub fn at_most_once(
        peer: String,
        records: RecordOptions,
        client: Box<dyn Client>,
        finished: FinishedLetters,
        cancel: Cancel,
    ) -> SourceParts {
        SourceParts {
            client,
            splits: vec![peer.clone()],
            peer,
            records,
            tracking: Tracking::Nothing,
            text: MarkText::NUMBER,
            startup: Startup::Latest,
            is_bounded: false,
            finished,
            cancel,
        }
    }
}

/// The source of a table of messages, which reads dead letters again where they are kept in a file.
///
/// # Errors
/// As [`MessageSource::new`].
pub fn open(request: &TableRequest, parts: SourceParts) -> Result<Box<dyn Source>> {
    open_with(request, parts, |source| Box::new(source))
}

/// The same, with something around the source of the messages.
///
/// # Errors
/// As [`MessageSource::new`].
pub fn open_with(
    request: &TableRequest,
    parts: SourceParts,
    wrap: impl FnOnce(MessageSource) -> Box<dyn Source>,
) -> Result<Box<dyn Source>> {
    let letters = parts.records.bad_data.letters_path(request)?;
    let reader = RowReader::new(request, &parts.records, parts.text);
    let source = wrap(MessageSource::new(request.clone(), parts)?);
    replaying(source, letters.as_deref(), || Ok(Box::new(reader)))
}

/// A source of messages.
pub struct MessageSource {
    request: TableRequest,
    parts: Option<SourceParts>,
    tracking: Tracking,
    text: MarkText,
    is_bounded: bool,
    cancel: Cancel,
    letters: Option<DeadLetters>,
    waits_for_snapshots: bool,
    progress: Progress,
    is_restored: bool,
    splits: Vec<Delivered>,
    /// What is to be said before any row.
    first: VecDeque<SourcePoll>,
    feed: Option<Feed<Item>>,
    current: Option<Taking>,
    acknowledgements: Option<Sender<Vec<Mark>>>,
    when_read: Option<WhenRead>,
    trouble: Trouble,
}

/// Is called with the marks of messages whose rows the job has.
pub type WhenRead = Box<dyn Fn(&[Mark]) + Send>;

/// A split, as far as rows were delivered.
struct Delivered {
    name: Arc<str>,
    shared: Arc<SharedSplit>,
    messages: u64,
    bad_rows: u64,
    has_ended: bool,
}

/// Rows of which some were delivered.
struct Taking {
    rows: Rows,
    /// The rows before were delivered.
    row: usize,
    /// The messages before were delivered.
    message: usize,
    /// The bad messages before were delivered.
    bad: usize,
}

impl MessageSource {
    /// A source of this table.
    ///
    /// # Errors
    /// If dead letters can't go where they should.
    pub fn new(request: TableRequest, parts: SourceParts) -> Result<MessageSource> {
        let letters = parts.records.bad_data.letters_path(&request)?;
        let table = request.table.clone();
        let finished = parts.finished.clone();
        let letters = letters.map(|path: PathBuf| DeadLetters::new(&table, path, finished));
        Ok(MessageSource {
            tracking: parts.tracking,
            text: parts.text,
            is_bounded: parts.is_bounded,
            cancel: parts.cancel.clone(),
            request,
            parts: Some(parts),
            letters,
            waits_for_snapshots: false,
            progress: Progress::default(),
            is_restored: false,
            splits: Vec::new(),
            first: VecDeque::new(),
            feed: None,
            current: None,
            acknowledgements: None,
            when_read: None,
            trouble: Trouble::default(),
        })
    }

    /// Who else is to hear of messages that the job has.
    pub fn when_read(&mut self, call: WhenRead) {
        self.when_read = Some(call);
    }

    /// Connects, and finds where each split is read from and to.
    fn connect(&mut self, parts: &mut SourceParts) -> Result<Inbox> {
        let wants = message_metadata(&self.request).map(|(key, _)| key.clone()).collect();
        let known = |name: &String| self.progress.splits.get(name).copied().unwrap_or_default();
        let restored = |name: &String| Split::new(name, known(name).last, known(name).stop);
        let mut inbox = Inbox::new(parts.splits.iter().map(restored).collect(), wants);
        let (client, startup) = (&mut parts.client, parts.startup);
        let acknowledged: Vec<Mark> = self.progress.acknowledged.iter().copied().collect();
        client.restore(&acknowledged);
        let (is_new, replays) = (!self.is_restored, self.tracking == Tracking::Replay);
        let is_bounded = self.is_bounded;
        let table = &self.request.table;
        insist(table, &parts.peer, START_WAIT, &self.cancel, &mut || {
            client.connect(&inbox)?;
            for split in inbox.splits_mut().iter_mut().filter(|_| is_new && replays) {
                split.last = client.start_mark(&split.name, startup)?;
                if is_bounded {
                    let newest = client.newest(&split.name)?.unwrap_or_default();
                    split.stop = Some(newest);
                    // A split without messages ends where it begins.
                    split.last = if newest == 0 { Some(0) } else { split.last };
                }
            }
            Ok(())
        })?;
        if is_new && replays {
            // They are read from where they were found to begin.
            insist(table, &parts.peer, START_WAIT, &self.cancel, &mut || client.connect(&inbox))?;
        }
        for split in inbox.splits() {
            let found = SplitProgress { last: split.last, stop: split.stop };
            if replays {
                self.progress.splits.insert(split.name.to_string(), found);
            }
        }
        Ok(inbox)
    }

    /// The next rows, at most `rows_max`, but never a part of what a message holds.
    fn take(&mut self, mut taking: Taking, rows_max: usize) -> Result<SourcePoll> {
        let rows = &taking.rows;
        let end = taking.row + whole_messages(&rows.messages[taking.row..], rows_max.max(1));
        let is_all = end == rows.messages.len();
        let next = if is_all { rows.marks.len() } else { rows.messages[end] as usize };
        let batch = rows.batch.slice(taking.row, end - taking.row);
        let bad_end = match is_all {
            true => rows.bad.len(),
            false => rows.bad.partition_point(|bad| (bad.number as usize) < next),
        };
        self.write_letters(&rows.bad[taking.bad..bad_end])?;
        self.count(rows, taking.message..next, bad_end - taking.bad);
        let batch = SourceBatch { batch, origin: None, split: rows.split };
        if !is_all {
            (taking.row, taking.message, taking.bad) = (end, next, bad_end);
            self.current = Some(taking);
        }
        Ok(SourcePoll::Batch(batch))
    }

    /// Notes that messages were delivered.
    fn count(&mut self, rows: &Rows, messages: std::ops::Range<usize>, bad: usize) {
        let split = &mut self.splits[rows.split.0 as usize];
        split.messages += messages.len() as u64;
        split.bad_rows += bad as u64;
        self.progress.messages += messages.len() as u64;
        self.progress.bad_rows += bad as u64;
        let marks: Vec<Mark> = rows.marks[messages].iter().copied().flatten().collect();
        if let Some(call) = &self.when_read {
            call(&marks);
        }
        match self.tracking {
            Tracking::Replay => {
                if let Some(&last) = marks.last()
                    && let Some(known) = self.progress.splits.get_mut(&*split.name)
                {
                    known.last = Some(last);
                }
            }
            Tracking::Acknowledge if self.waits_for_snapshots => {
                self.progress.delivered.extend(marks);
            }
            Tracking::Acknowledge => self.acknowledge(marks),
            Tracking::Nothing => {}
        }
    }

    fn acknowledge(&self, marks: Vec<Mark>) {
        if let Some(acknowledgements) = self.acknowledgements.as_ref().filter(|_| !marks.is_empty())
        {
            // The thread may have ended with an error, which a poll reports.
            let _ = acknowledgements.send(marks);
        }
    }

    /// These messages never come again: positions need not name them any more.
    fn settle(&mut self, marks: &[Mark]) {
        for mark in marks {
            self.progress.acknowledged.remove(mark);
        }
    }

    fn write_letters(&mut self, bad: &[BadMessage]) -> Result<()> {
        let Some(letters) = self.letters.as_mut().filter(|_| !bad.is_empty()) else {
            return Ok(());
        };
        let row = |bad: &BadMessage| BadRow {
            file: bad.place.as_str().into(),
            line: 1,
            reason: bad.reason.clone(),
            raw: bad.value.clone(),
            message: Value::Null,
        };
        letters.write(&bad.iter().map(row).collect::<Vec<_>>())
    }

    fn end_split(&mut self, split: SplitId) -> SourcePoll {
        let ended = &mut self.splits[split.0 as usize];
        ended.has_ended = true;
        if let Some(known) = self.progress.splits.get_mut(&*ended.name) {
            known.last = known.last.max(known.stop);
        }
        SourcePoll::Split(split, SplitEvent::Ended)
    }

    fn read_position(&mut self, position: &str, has_ended: bool) -> Result<()> {
        self.progress = Progress::read(position, self.tracking, self.text)?;
        // Their rows are in the snapshot: they are acknowledged when they come again.
        let delivered = std::mem::take(&mut self.progress.delivered);
        self.progress.acknowledged.extend(delivered);
        if let Some(letters) = &mut self.letters {
            let mark = LetterMark::of_position(position)?;
            match has_ended {
                true => letters.end_at(mark),
                false => letters.seek(mark),
            }
        }
        Ok(())
    }
}

impl Source for MessageSource {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        let parts = self.parts.take();
        let mut parts = parts.ok_or_else(|| Error::internal("a source is started twice"))?;
        let inbox = self.connect(&mut parts)?;
        for (at, split) in inbox.splits().iter().enumerate() {
            let opened = SplitEvent::Opened(split.name.clone());
            self.first.push_back(SourcePoll::Split(SplitId(at as u32), opened));
            self.splits.push(Delivered {
                name: split.name.clone(),
                shared: split.shared.clone(),
                messages: 0,
                bad_rows: 0,
                has_ended: false,
            });
        }
        let (acknowledgements, to_acknowledge) = unbounded();
        let link = Link {
            client: parts.client,
            inbox,
            rows: RowReader::new(&self.request, &parts.records, self.text),
            acknowledgements: to_acknowledge,
            trouble: self.trouble.clone(),
            cancel: self.cancel.clone(),
            is_connected: true,
            backoff: Backoff::default(),
        };
        let name = format!("read {}", self.request.table);
        let cancel = self.cancel.clone();
        let feed = Feed::start(name, BLOCKS_AHEAD, waker, cancel, move |writer| link.run(writer))?;
        (self.feed, self.acknowledgements) = (Some(feed), Some(acknowledgements));
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        let bad_rows = self.progress.bad_rows;
        self.letters.as_mut().map_or(Ok(()), |letters| letters.open(bad_rows))
    }

    fn use_snapshots(&mut self) {
        self.waits_for_snapshots = true;
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(first) = self.first.pop_front() {
            return Ok(first);
        }
        if let Some(taking) = self.current.take() {
            return self.take(taking, rows_max);
        }
        loop {
            let Some(feed) = &self.feed else { return Ok(SourcePoll::End) };
            return match feed.next()? {
                Fed::Item(Item::Settled(marks)) => {
                    self.settle(&marks);
                    continue;
                }
                Fed::Item(Item::Rows(rows)) => {
                    self.take(Taking { rows, row: 0, message: 0, bad: 0 }, rows_max)
                }
                Fed::Item(Item::Ended(split)) => Ok(self.end_split(split)),
                Fed::End => Ok(SourcePoll::End),
                Fed::Pending => Ok(SourcePoll::Pending),
            };
        }
    }

    fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    fn stop(&mut self) {
        self.cancel.set();
        self.feed = None;
    }

    fn canceller(&self) -> Option<Waker> {
        Some(self.cancel.waker())
    }

    fn buffered_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |taking| taking.rows.batch.get_array_memory_size())
    }

    fn bad_rows(&self) -> u64 {
        self.progress.bad_rows
    }

    fn reconnects(&self) -> Option<u64> {
        Some(self.trouble.recoveries())
    }

    fn split_status(&self, split: SplitId) -> SplitStatus {
        let Some(found) = self.splits.get(split.0 as usize) else { return SplitStatus::default() };
        // Relaxed: the numbers alone are read.
        let caught_up_at = found.shared.caught_up_at.load(Ordering::Relaxed);
        let is_caught_up = found.has_ended || caught_up_at == found.messages;
        let lag = found.shared.lag.load(Ordering::Relaxed);
        let last = self.progress.splits.get(&*found.name).and_then(|split| split.last);
        SplitStatus {
            position: match self.tracking {
                Tracking::Replay => last.map(self.text.write),
                _ => Some(format!("{} messages", found.messages)),
            },
            lag_rows: match is_caught_up {
                true => Some(0),
                false => (lag != u64::MAX && lag > 0).then_some(lag),
            },
            is_caught_up,
            bad_rows: found.bad_rows,
            last_error: self.trouble.get(),
            ..SplitStatus::default()
        }
    }

    fn pause_split(&mut self, split: SplitId, is_paused: bool) {
        if let Some(found) = self.splits.get(split.0 as usize) {
            found.shared.is_paused.store(is_paused, Ordering::Relaxed);
        }
    }

    fn position(&self) -> Option<String> {
        let mut position = self.progress.write(self.tracking, self.text);
        if let Some(letters) = &self.letters {
            position["letters"] = letters.mark().to_json();
        }
        Some(position.to_string())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        self.read_position(position, false)?;
        // A snapshot before the first look at the peer has no splits: the start is a new one.
        self.is_restored = self.tracking != Tracking::Replay || !self.progress.splits.is_empty();
        Ok(())
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        self.read_position(position, true)?;
        if self.tracking != Tracking::Replay {
            return Ok(());
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let (client, table) = (&mut parts.client, &self.request.table);
        let known = self.progress.splits.iter();
        let open = known.filter(|(_, split)| split.stop.is_none_or(|stop| split.last < Some(stop)));
        for (name, split) in open {
            let inbox = Inbox::new(vec![Split::new(name, split.last, None)], Vec::new());
            let newest = insist(table, &parts.peer, START_WAIT, &self.cancel, &mut || {
                client.connect(&inbox)?;
                client.newest(name)
            })?;
            if newest.unwrap_or_default() > split.last.unwrap_or_default() {
                let last = (self.text.write)(split.last.unwrap_or_default());
                let noun = self.text.noun;
                return Err(unread_rows(&format!("{name}, behind {noun} {last}")));
            }
        }
        Ok(())
    }

    fn claim(&mut self) -> Result<()> {
        self.letters.as_mut().map_or(Ok(()), DeadLetters::claim)
    }

    fn prepare(&mut self) -> Result<()> {
        self.letters.as_mut().map_or(Ok(()), DeadLetters::sync)
    }

    fn finish(&mut self) -> Result<()> {
        let bad_rows = self.progress.bad_rows;
        if let Some(letters) = &mut self.letters {
            letters.finish(bad_rows)?;
        }
        self.feed = None;
        Ok(())
    }

    fn abort(&mut self) {
        self.stop();
        if let Some(letters) = &mut self.letters {
            letters.abort();
        }
    }

    fn committed(&mut self, position: &str) -> Result<()> {
        if self.tracking == Tracking::Acknowledge {
            // What the snapshot names as acknowledged may be another message by now.
            let mut covered = Progress::read(position, self.tracking, self.text)?.delivered;
            covered.retain(|mark| self.progress.delivered.remove(mark));
            self.progress.acknowledged.extend(&covered);
            self.acknowledge(covered.into_iter().collect());
        }
        Ok(())
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
        assert_eq!(whole_messages(&[1, 2, 2, 2, 3][1..], 1), 3);
        assert_eq!(whole_messages(&[2, 2, 2], 2), 3);
        assert_eq!(whole_messages(&[0; 0], 2), 0);
    }
}
