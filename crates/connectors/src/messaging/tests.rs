//! The source and the sink over peers in memory whose connections break.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::connector::{Sink, Source, SplitId, TableRequest};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{Column, DataType, Result, TableSchema};

use super::options::{BadData, RecordOptions};
use super::*;
use crate::conformance::{check_acknowledging, check_replayable};
use crate::format::{Format, JsonOptions};
use crate::network::{Cancel, Failure};

const TEXT: MarkText =
    MarkText { noun: "number", write: |mark| mark.to_string(), read: |text| text.parse().ok() };

/// What a peer keeps. Clones are the same peer.
#[derive(Clone)]
struct Peer(Arc<Mutex<Kept>>);

struct Kept {
    /// Of each split, by number, from 1.
    messages: BTreeMap<String, Vec<i64>>,
    acknowledged: BTreeSet<Mark>,
    random: SplitMix64,
    /// One call of a number of calls finds the connection broken.
    breaks: u64,
}

impl Peer {
    fn new(splits: &[(&str, std::ops::Range<i64>)], breaks: u64) -> Peer {
        let messages =
            splits.iter().map(|(name, values)| ((*name).to_owned(), values.clone().collect()));
        let (messages, acknowledged) = (messages.collect(), BTreeSet::new());
        Peer(Arc::new(Mutex::new(Kept {
            messages,
            acknowledged,
            random: SplitMix64::new(3),
            breaks,
        })))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("nobody panics")
    }

    fn check(&self) -> Attempt<MutexGuard<'_, Kept>> {
        let mut kept = self.kept();
        let breaks = kept.breaks;
        match kept.random.below(breaks) {
            0 => Err(Failure::Passing("the connection has broken".to_owned())),
            _ => Ok(kept),
        }
    }
}

fn add(inbox: &mut Inbox, split: usize, number: usize, value: i64) {
    let text = format!("{{\"n\": {value}}}");
    let (split, mark) = (SplitId(split as u32), Some(number as Mark));
    inbox.add(Message { split, mark, value: Some(text.as_bytes()), metadata: Vec::new() });
}

/// Sends what lies behind a place.
struct Replays(Peer);

impl Client for Replays {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        self.0.check().map(drop)
    }
    fn newest(&mut self, split: &str) -> Attempt<Option<Mark>> {
        Ok(self.0.kept().messages.get(split).map(|values| values.len() as Mark))
    }
    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let mut kept = self.0.check()?;
        for at in 0..inbox.splits().len() {
            let split = inbox.splits()[at].clone();
            let from = split.last.unwrap_or(0) as usize;
            let count = 1 + kept.random.below(9) as usize;
            let values = &kept.messages[&*split.name];
            for (number, &value) in values.iter().enumerate().skip(from).take(count) {
                add(inbox, at, number + 1, value);
            }
            if from == values.len() {
                inbox.caught_up(SplitId(at as u32));
            }
        }
        Ok(())
    }
}

/// Sends all that is not acknowledged, again over each connection. Acknowledgements that are on
/// their way are lost with their connection.
struct Acknowledges {
    peer: Peer,
    next: usize,
    given: BTreeSet<Mark>,
    done: BTreeSet<Mark>,
    sent: Vec<Mark>,
    settled: Vec<Mark>,
}

impl Acknowledges {
    fn new(peer: &Peer) -> Acknowledges {
        let (given, done) = (BTreeSet::new(), BTreeSet::new());
        let (sent, settled) = (Vec::new(), Vec::new());
        Acknowledges { peer: peer.clone(), next: 1, given, done, sent, settled }
    }
}

impl Client for Acknowledges {
    fn connect(&mut self, _inbox: &Inbox) -> Attempt<()> {
        drop(self.peer.check()?);
        self.next = 1;
        self.sent.clear();
        Ok(())
    }
    fn restore(&mut self, marks: &[Mark]) {
        self.done = marks.iter().copied().collect();
        self.given.clone_from(&self.done);
    }
    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        let mut kept = self.peer.check()?;
        kept.acknowledged.extend(&self.sent);
        self.settled.append(&mut self.sent);
        let count = 1 + kept.random.below(9) as usize;
        let values = kept.messages["q"].clone();
        for _ in 0..count {
            let Some(&value) = values.get(self.next - 1) else {
                // For a test the queue ends here.
                inbox.splits_mut()[0].stop = Some(0);
                inbox.reach(SplitId(0), 0);
                break;
            };
            let mark = self.next as Mark;
            self.next += 1;
            if kept.acknowledged.contains(&mark) {
                continue;
            }
            if self.given.insert(mark) {
                add(inbox, 0, mark as usize, value);
            } else if self.done.contains(&mark) {
                self.sent.push(mark);
            }
        }
        Ok(())
    }
    fn acknowledge(&mut self, marks: &[Mark]) -> Attempt<()> {
        self.done.extend(marks);
        self.sent.extend(marks);
        Ok(())
    }
    fn settled(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.settled)
    }
}

fn request() -> TableRequest {
    TableRequest {
        table: "t".to_owned(),
        schema: TableSchema::new(vec![Column::new("n", DataType::BigInt.nullable())]),
        ..TableRequest::default()
    }
}

fn records() -> RecordOptions {
    RecordOptions::of(Format::Json(JsonOptions::default()), BadData::Fail)
}

fn source(client: Box<dyn Client>, splits: &[&str], tracking: Tracking) -> Result<Box<dyn Source>> {
    let parts = SourceParts {
        client,
        peer: "memory".to_owned(),
        records: records(),
        splits: splits.iter().map(|&name| name.to_owned()).collect(),
        tracking,
        text: TEXT,
        startup: Startup::Earliest,
        is_bounded: true,
        finished: crate::filesystem::FinishedLetters::default(),
        cancel: Cancel::default(),
    };
    Ok(Box::new(MessageSource::new(request(), parts)?))
}

#[test]
fn splits_that_are_replayed_count_once_over_restarts_and_broken_connections() {
    let peer = Peer::new(&[("a", 0..150), ("b", 200..320), ("empty", 0..0)], 200);
    let open = || source(Box::new(Replays(peer.clone())), &["a", "b", "empty"], Tracking::Replay);
    check_replayable(&open, 12).expect("no error");
}

#[test]
fn messages_that_are_acknowledged_count_once_over_restarts_and_broken_connections() {
    let make = || {
        let peer = Peer::new(&[("q", 0..150)], 150);
        move || source(Box::new(Acknowledges::new(&peer)), &["q"], Tracking::Acknowledge)
    };
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..150));
    let expected = RecordBatch::try_from_iter([("n", column)]).expect("one column");
    check_acknowledging(&make, &expected, 12).expect("no error");
}

/// Takes messages, and says so late or never.
struct Takes {
    peer: Peer,
    sent: Vec<u64>,
}

impl Publisher for Takes {
    fn connect(&mut self) -> Attempt<()> {
        self.sent.clear();
        self.peer.check().map(drop)
    }
    fn send(&mut self, number: u64, message: &Outgoing) -> Attempt<()> {
        let text = String::from_utf8(message.value.clone()).expect("JSON");
        let value = text.trim_start_matches("{\"n\":").trim_end_matches('}').parse();
        let mut kept = self.peer.check()?;
        kept.messages.entry("out".to_owned()).or_default().push(value.expect("a number"));
        self.sent.push(number);
        Ok(())
    }
    fn acknowledged(&mut self, _waits: bool, numbers: &mut Vec<u64>) -> Attempt<()> {
        let mut kept = self.peer.check()?;
        let count = kept.random.below(self.sent.len() as u64 + 1) as usize;
        numbers.extend(self.sent.drain(..count));
        Ok(())
    }
}

#[test]
fn rows_stay_until_the_peer_has_them() {
    let peer = Peer::new(&[], 300);
    let publisher = Box::new(Takes { peer: peer.clone(), sent: Vec::new() });
    let sink =
        MessageSink::new(request(), &records(), "memory".to_owned(), publisher, Cancel::default());
    let mut sink = sink.expect("a sink");
    sink.open().expect("connected");
    for start in (0..1_000).step_by(100) {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(start..start + 100));
        let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
        sink.write(&batch, None).expect("written");
        assert_eq!(sink.prepare().expect("all is there"), None);
        let kept = peer.kept();
        let found: BTreeSet<i64> = kept.messages["out"].iter().copied().collect();
        assert_eq!(found.len() as i64, start + 100);
    }
    sink.finish().expect("all is there");
}
