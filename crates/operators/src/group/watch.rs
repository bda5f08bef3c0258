//! What of the groups has changed since the last capture, and what a capture has yet to read.
//!
//! # How a capture is read
//! A capture only notes which groups it means, one bit for each, and the job goes on. The rows are told
//! later, some groups at a time, by a thread that has time. A group that is about to change before its
//! turn has come is told then, as it was. So the job stands still for as long as it takes to note the
//! bits, a group is copied once for each capture that means it, and nothing is copied for others.
//!
//! # What has changed
//! One bit for each group, set by the first row that reaches it after a capture. Keys that have gone are
//! kept until the next capture, each once; if they are more than those that are there, the next capture
//! tells everything instead.
//!
//! It is made by the first capture: without captures nothing of this is done.

use std::sync::{Arc, Mutex, Weak};

use arrow_array::RecordBatch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::{DataType, Extent, Result};

use crate::guarded::locked;
use crate::keys::KeyTable;

/// Up to so many keys that have gone are told, however few are there.
const GONE_MIN: usize = 64 * 1024;

/// Bits of groups, by number; those beyond the end are not set.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Bits of so many groups, all set or none.
    fn new(limit: usize, is_set: bool) -> Self {
        Bits { words: vec![if is_set { u64::MAX } else { 0 }; limit.div_ceil(64)] }
    }

    fn grow(&mut self, limit: usize) {
        let words = limit.div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
    }

    #[inline]
    fn set(&mut self, id: u32) {
        self.words[id as usize / 64] |= 1 << (id % 64);
    }

    /// True if it was set.
    #[inline]
    fn clear(&mut self, id: u32) -> bool {
        let Some(word) = self.words.get_mut(id as usize / 64) else { return false };
        let bit = 1 << (id % 64);
        let was_set = *word & bit != 0;
        *word &= !bit;
        was_set
    }

    fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

/// The rows of a capture, as far as they have been told.
pub(super) type ToldRows = Arc<Mutex<Vec<RecordBatch>>>;

/// A capture that has not been read to the end.
struct Reading {
    unread: Bits,
    /// The first word that may have a bit left.
    next: usize,
    /// Where rows are handed over; nobody is interested any more if it is gone.
    told: Weak<Mutex<Vec<RecordBatch>>>,
    told_bytes: usize,
}

/// What a capture begins with.
pub(super) struct Begun {
    /// How much it tells.
    pub(super) extent: Extent,
    /// Where its rows are handed over.
    pub(super) told: ToldRows,
    /// Keys that have gone since the capture before, and perhaps come again.
    pub(super) gone: KeyTable,
}

/// What is known between captures.
pub(super) struct Watch {
    key_types: Vec<DataType>,
    changed: Bits,
    gone: KeyTable,
    /// Too many keys have gone.
    is_lost: bool,
    reading: Option<Reading>,
}

impl Watch {
    /// Nothing is known yet of keys of these types, so the first capture tells everything.
    pub(super) fn new(key_types: Vec<DataType>) -> Result<Self> {
        let gone = KeyTable::new(&key_types)?;
        Ok(Watch { key_types, changed: Bits::default(), gone, is_lost: true, reading: None })
    }

    /// Begins a capture of groups with numbers below `limit`. One that is under way must have been
    /// read to its end.
    pub(super) fn begin(&mut self, extent: Extent, limit: usize) -> Result<Begun> {
        // Without keys there is one row, and no name by which it could be told that it has gone.
        let is_whole = extent == Extent::Whole || self.is_lost || self.key_types.is_empty();
        let changed = std::mem::replace(&mut self.changed, Bits::new(limit, false));
        let unread = if is_whole { Bits::new(limit, true) } else { changed };
        let mut gone = std::mem::replace(&mut self.gone, KeyTable::new(&self.key_types)?);
        if is_whole {
            // What is told whole says by itself what is not there.
            gone = KeyTable::new(&self.key_types)?;
        }
        let told = ToldRows::default();
        self.reading =
            Some(Reading { unread, next: 0, told: Arc::downgrade(&told), told_bytes: 0 });
        self.is_lost = false;
        let extent = if is_whole { Extent::Whole } else { Extent::Changes };
        Ok(Begun { extent, told, gone })
    }

    /// These groups, with numbers below `limit`, change; those of them that a capture has yet to read, each once.
    pub(super) fn touch(&mut self, ids: &[u32], limit: usize) -> Vec<u32> {
        self.changed.grow(limit);
        ids.iter().for_each(|&id| self.changed.set(id));
        let Some(reading) = self.reading.as_mut().filter(|reading| reading.told.strong_count() > 0)
        else {
            self.reading = None;
            return Vec::new();
        };
        ids.iter().copied().filter(|&id| reading.unread.clear(id)).collect()
    }

    /// True if this is the capture that is under way.
    pub(super) fn is_reading(&self, told: &ToldRows) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.told.as_ptr() == Arc::as_ptr(told))
    }

    /// Some groups that the capture under way has yet to read, with numbers below `limit`.
    pub(super) fn take_unread(&mut self, most: usize, limit: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        let Some(reading) = &mut self.reading else { return ids };
        while let (true, Some(word)) =
            (ids.len() < most, reading.unread.words.get_mut(reading.next))
        {
            let first = reading.next as u32 * 64;
            while *word != 0 {
                ids.push(first + word.trailing_zeros());
                *word &= *word - 1;
            }
            reading.next += 1;
        }
        ids.retain(|&id| (id as usize) < limit);
        if reading.next == reading.unread.words.len() {
            reading.unread = Bits::default();
            reading.next = 0;
        }
        ids
    }

    /// Rows of the capture that is under way.
    pub(super) fn hand_over(&mut self, rows: RecordBatch) {
        let Some(reading) = &mut self.reading else { return };
        if let Some(told) = reading.told.upgrade() {
            reading.told_bytes += batch_bytes(&rows);
            locked(&told).push(rows);
        }
    }

    /// Keys go.
    pub(super) fn go(&mut self, keys: &KeyTable, ids: &[u32]) -> Result<()> {
        if self.is_lost || self.key_types.is_empty() {
            return Ok(());
        }
        self.gone.intern(&keys.take_keys(ids)?, None, &mut Vec::new())?;
        if self.gone.len() > keys.len().max(GONE_MIN) {
            self.is_lost = true;
            self.gone = KeyTable::new(&self.key_types)?;
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        let reading = self.reading.as_ref().filter(|reading| reading.told.strong_count() > 0);
        let reading = reading.map_or(0, |reading| reading.unread.bytes() + reading.told_bytes);
        self.changed.bytes() + self.gone.bytes() + reading
    }
}
