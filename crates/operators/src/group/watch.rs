//! What of the groups has changed since the last capture, and what a capture has yet to read.
//!
//! # How a capture is read
//! Later, some groups at a time; a group that is about to change before its turn has come is told then, as
//! it was ([`crate::reading`]).
//!
//! # What has changed
//! One bit for each group, set by the first row that reaches it after a capture. Keys that have gone are
//! kept until the next capture, each once; if they are more than those that are there, the next capture
//! tells everything instead.
//!
//! It is made by the first capture: without captures nothing of this is done.

use arrow_array::RecordBatch;
use thalweg_core::{DataType, Extent, Result};

use crate::keys::KeyTable;
use crate::reading::{Bits, HandOver, ToldRows, Unread};

/// Up to so many keys that have gone are told, however few are there.
const GONE_MIN: usize = 64 * 1024;

/// A capture that has not been read to the end.
struct Reading {
    unread: Unread,
    hand_over: HandOver,
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
        let changed = std::mem::replace(&mut self.changed, Bits::none(limit));
        let unread = Unread::new(if is_whole { Bits::all(limit) } else { changed });
        let mut gone = std::mem::replace(&mut self.gone, KeyTable::new(&self.key_types)?);
        if is_whole {
            // What is told whole says by itself what is not there.
            gone = KeyTable::new(&self.key_types)?;
        }
        let told = ToldRows::default();
        self.reading = Some(Reading { unread, hand_over: HandOver::new(&told) });
        self.is_lost = false;
        let extent = if is_whole { Extent::Whole } else { Extent::Changes };
        Ok(Begun { extent, told, gone })
    }

    /// These groups, with numbers below `limit`, change; those of them that a capture has yet to read, each once.
    pub(super) fn touch(&mut self, ids: &[u32], limit: usize) -> Vec<u32> {
        self.changed.grow(limit);
        ids.iter().for_each(|&id| self.changed.set(id));
        if self.reading.as_ref().is_some_and(|reading| !reading.hand_over.is_wanted()) {
            self.reading = None;
        }
        self.reading.as_mut().map_or_else(Vec::new, |reading| reading.unread.among(ids))
    }

    /// True if this is the capture that is under way.
    pub(super) fn is_reading(&self, told: &ToldRows) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.hand_over.is_to(told))
    }

    /// Some groups that the capture under way has yet to read.
    pub(super) fn take_unread(&mut self, most: usize) -> Vec<u32> {
        self.reading.as_mut().map_or_else(Vec::new, |reading| reading.unread.take(most))
    }

    /// Rows of the capture that is under way.
    pub(super) fn hand_over(&mut self, rows: RecordBatch) {
        if let Some(reading) = &mut self.reading {
            reading.hand_over.put(rows);
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
        let reading = self.reading.as_ref();
        let of = |reading: &Reading| reading.unread.bytes() + reading.hand_over.bytes();
        self.changed.bytes() + self.gone.bytes() + reading.map_or(0, of)
    }
}
