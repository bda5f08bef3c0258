//! Messages that have come and are not decoded yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::builder::BinaryBuilder;
use thalweg_core::connector::SplitId;

use super::progress::Mark;

/// Messages that are decoded together at most.
const BLOCK_MESSAGES: usize = 8_192;
/// Bytes of them, as soon as which no more are added.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of all messages that wait, as soon as which no more are received.
const INBOX_BYTES: usize = 4 << 20;

/// A message that has come.
pub struct Message<'m> {
    /// Its split: the place in the list that the source was made with.
    pub split: SplitId,
    /// What it is known by; `None` if it never comes again.
    pub mark: Option<Mark>,
    /// What it says.
    pub value: Option<&'m [u8]>,
    /// Its metadata, by the keys that [`Inbox::wants`] says.
    pub metadata: Vec<Metadata>,
}

/// A value of a metadata column.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// There is none.
    Null,
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// Whether something is so.
    Flag(bool),
    /// Milliseconds since 1970.
    Time(i64),
    /// Names and values.
    Texts(Vec<(String, String)>),
}

impl Metadata {
    fn size(&self) -> usize {
        match self {
            Metadata::Text(text) => text.len() + 32,
            Metadata::Texts(texts) => {
                texts.iter().map(|(name, value)| name.len() + value.len() + 64).sum()
            }
            _ => 32,
        }
    }
}

/// What the threads of client and job both know of a split.
#[derive(Debug, Default)]
pub struct SharedSplit {
    /// The job does not want its messages for now.
    pub is_paused: AtomicBool,
    /// How many messages had come when there were no more; `u64::MAX` if there are more.
    pub caught_up_at: AtomicU64,
    /// How many messages were not received yet; `u64::MAX` if that is not known.
    pub lag: AtomicU64,
}

/// A split, as far as its messages were received.
#[derive(Clone, Debug)]
pub struct Split {
    /// Its name.
    pub name: Arc<str>,
    /// The last message that was received, or behind which it is read.
    pub last: Option<Mark>,
    /// The last message to be read.
    pub stop: Option<Mark>,
    /// It gives nothing more.
    pub has_ended: bool,
    /// How many messages were received by this run.
    pub received: u64,
    /// What both threads know.
    pub shared: Arc<SharedSplit>,
}

impl Split {
    /// A split that is read behind this message.
    pub fn new(name: &str, last: Option<Mark>, stop: Option<Mark>) -> Split {
        let shared = SharedSplit {
            caught_up_at: AtomicU64::new(u64::MAX),
            lag: AtomicU64::new(u64::MAX),
            ..SharedSplit::default()
        };
        let shared = Arc::new(shared);
        Split { name: name.into(), last, stop, has_ended: false, received: 0, shared }
    }

    /// True if its messages are wanted now.
    pub fn is_wanted(&self) -> bool {
        // Relaxed: nothing is published through the flag.
        !self.has_ended && !self.shared.is_paused.load(Ordering::Relaxed)
    }

    /// True if all that is to be read of it was received.
    pub fn is_done(&self) -> bool {
        self.stop.is_some_and(|stop| self.last.is_some_and(|last| last >= stop))
    }
}

/// Messages of a split, in order.
pub struct Block {
    /// Which split.
    pub split: SplitId,
    /// What each is known by.
    pub marks: Vec<Option<Mark>>,
    /// What each says.
    pub values: BinaryBuilder,
    /// The metadata of each.
    pub metadata: Vec<Vec<Metadata>>,
    bytes: usize,
}

impl Block {
    /// Messages that are known by nothing but what they say.
    pub fn of_values(messages: &[&[u8]]) -> Block {
        let mut values = BinaryBuilder::new();
        messages.iter().for_each(|message| values.append_value(message));
        let (split, marks, metadata) = (SplitId::ONLY, vec![None; messages.len()], Vec::new());
        let bytes = messages.iter().map(|message| message.len()).sum();
        Block { split, marks, values, metadata, bytes }
    }
}

/// Messages that have come and are not decoded yet.
pub struct Inbox {
    wants: Vec<String>,
    splits: Vec<Split>,
    blocks: VecDeque<Block>,
    bytes: usize,
}

impl Inbox {
    /// An empty inbox of these splits.
    pub fn new(splits: Vec<Split>, wants: Vec<String>) -> Inbox {
        Inbox { wants, splits, blocks: VecDeque::new(), bytes: 0 }
    }

    /// The keys of the metadata that messages are to have.
    pub fn wants(&self) -> &[String] {
        &self.wants
    }

    /// The splits.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// The same, to change them.
    pub fn splits_mut(&mut self) -> &mut [Split] {
        &mut self.splits
    }

    /// True if no more should be received.
    pub fn is_full(&self) -> bool {
        self.bytes >= INBOX_BYTES
    }

    /// Adds a message.
    pub fn add(&mut self, message: Message<'_>) {
        let at = message.split.0 as usize;
        let split = &mut self.splits[at];
        split.received += 1;
        split.last = message.mark.or(split.last);
        split.shared.caught_up_at.store(u64::MAX, Ordering::Relaxed);
        let has_room = |block: &&mut Block| {
            block.split == message.split
                && block.marks.len() < BLOCK_MESSAGES
                && block.bytes < BLOCK_BYTES
        };
        if self.blocks.back_mut().filter(has_room).is_none() {
            self.blocks.push_back(Block {
                split: message.split,
                marks: Vec::new(),
                values: BinaryBuilder::new(),
                metadata: Vec::new(),
                bytes: 0,
            });
        }
        let block = self.blocks.back_mut().expect("added above");
        let of_metadata: usize = message.metadata.iter().map(Metadata::size).sum();
        let bytes = message.value.map_or(0, <[u8]>::len) + of_metadata + 32;
        block.bytes += bytes;
        self.bytes += bytes;
        block.marks.push(message.mark);
        block.values.append_option(message.value);
        if !self.wants.is_empty() {
            block.metadata.push(message.metadata);
        }
    }

    /// A message was received whose rows do not go through the inbox.
    pub fn note_decoded(&mut self, split: SplitId) {
        let split = &mut self.splits[split.0 as usize];
        split.received += 1;
        split.shared.caught_up_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// A split has nothing up to this mark that was not received.
    pub fn reach(&mut self, split: SplitId, mark: Mark) {
        let split = &mut self.splits[split.0 as usize];
        split.last = split.last.max(Some(mark));
    }

    /// All that a split has was received.
    pub fn caught_up(&mut self, split: SplitId) {
        let split = &self.splits[split.0 as usize];
        split.shared.lag.store(0, Ordering::Relaxed);
        split.shared.caught_up_at.store(split.received, Ordering::Relaxed);
    }

    /// How many messages of a split were not received yet.
    pub fn lags(&mut self, split: SplitId, messages: u64) {
        self.splits[split.0 as usize].shared.lag.store(messages, Ordering::Relaxed);
    }

    /// The oldest messages.
    pub fn take(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.bytes;
        Some(block)
    }
}
