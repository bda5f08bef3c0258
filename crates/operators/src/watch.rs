//! What of numbered things (groups, sessions) has changed since the last capture, and what a capture has yet
//! to read.
//!
//! # How a capture is read
//! Later, some things at a time; one that is about to change before its turn has come is told then, as it
//! was ([`crate::reading`]).
//!
//! # What has changed
//! One bit for each thing, set by the first row that reaches it after a capture. Names of things that have
//! gone are kept until the next capture, each once; if they are more than the things that are there, the
//! next capture tells everything instead.
//!
//! It is made by the first capture: without captures nothing of this is done.

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{DataType, Extent, Result};

use crate::keys::{ABSENT, KeyTable};
use crate::reading::{Bits, HandOver, ToldRows, Unread};

/// Up to so many names of what has gone are told, however little is there.
const GONE_MIN: usize = 64 * 1024;

/// A capture that has not been read to the end.
struct Reading {
    unread: Unread,
    hand_over: HandOver,
}

/// What a capture begins with.
pub(crate) struct Begun {
    /// How much it tells.
    pub(crate) extent: Extent,
    /// Where its rows are handed over.
    pub(crate) told: ToldRows,
    /// Names of what has gone since the capture before, and perhaps come again.
    pub(crate) gone: KeyTable,
}

/// What is known between captures.
pub(crate) struct Watch {
    name_types: Vec<DataType>,
    changed: Bits,
    gone: KeyTable,
    /// Too much has gone.
    is_lost: bool,
    reading: Option<Reading>,
}

impl Watch {
    /// Nothing is known yet of things with names of these types, so the first capture tells everything.
    pub(crate) fn new(name_types: Vec<DataType>) -> Result<Self> {
        let gone = KeyTable::new(&name_types)?;
        Ok(Watch { name_types, changed: Bits::default(), gone, is_lost: true, reading: None })
    }

    /// Begins a capture of these things, which are all that there are. One that is under way must have
    /// been read to its end.
    pub(crate) fn begin(&mut self, extent: Extent, all: Bits) -> Result<Begun> {
        // Without a name nothing could tell that the only thing has gone.
        let is_whole = extent == Extent::Whole || self.is_lost || self.name_types.is_empty();
        let changed = std::mem::take(&mut self.changed);
        let unread = Unread::new(if is_whole { all } else { changed.and(&all) });
        let mut gone = std::mem::replace(&mut self.gone, KeyTable::new(&self.name_types)?);
        if is_whole {
            // What is told whole says by itself what is not there.
            gone = KeyTable::new(&self.name_types)?;
        }
        let told = ToldRows::default();
        self.reading = Some(Reading { unread, hand_over: HandOver::new(&told) });
        self.is_lost = false;
        let extent = if is_whole { Extent::Whole } else { Extent::Changes };
        Ok(Begun { extent, told, gone })
    }

    /// These things, with numbers below `limit`, change; those of them that a capture has yet to read, each
    /// once.
    pub(crate) fn touch(&mut self, ids: &[u32], limit: usize) -> Vec<u32> {
        self.changed.grow(limit);
        ids.iter().for_each(|&id| self.changed.set(id));
        if self.reading.as_ref().is_some_and(|reading| !reading.hand_over.is_wanted()) {
            self.reading = None;
        }
        self.reading.as_mut().map_or_else(Vec::new, |reading| reading.unread.among(ids))
    }

    /// There is a new thing, which no capture under way means.
    pub(crate) fn note_change(&mut self, id: u32) {
        self.changed.grow(id as usize + 1);
        self.changed.set(id);
    }

    /// True if this is the capture that is under way.
    pub(crate) fn is_reading(&self, told: &ToldRows) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.hand_over.is_to(told))
    }

    /// Some things that the capture under way has yet to read.
    pub(crate) fn take_unread(&mut self, most: usize) -> Vec<u32> {
        self.reading.as_mut().map_or_else(Vec::new, |reading| reading.unread.take(most))
    }

    /// Rows of the capture that is under way.
    pub(crate) fn hand_over(&mut self, rows: RecordBatch) {
        if let Some(reading) = &mut self.reading {
            reading.hand_over.put(rows);
        }
    }

    /// Things go whose names these are; so many are left.
    pub(crate) fn go(
        &mut self,
        left: usize,
        names: impl FnOnce() -> Result<Vec<ArrayRef>>,
    ) -> Result<()> {
        if self.is_lost || self.name_types.is_empty() {
            return Ok(());
        }
        self.gone.intern(&names()?, None, &mut Vec::new())?;
        if self.gone.len() > left.max(GONE_MIN) {
            self.is_lost = true;
            self.gone = KeyTable::new(&self.name_types)?;
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        let reading = self.reading.as_ref();
        let of = |reading: &Reading| reading.unread.bytes() + reading.hand_over.bytes();
        self.changed.bytes() + self.gone.bytes() + reading.map_or(0, of)
    }
}

/// The names of what has gone, by number, that are not among these rows: those have come again. `names` are
/// the columns of rows that name them.
///
/// # Errors
/// Those of `names`.
pub(crate) fn removed(
    gone: &KeyTable,
    rows: &[RecordBatch],
    names: impl Fn(&RecordBatch) -> Result<Vec<ArrayRef>>,
) -> Result<Vec<u32>> {
    let mut is_there = vec![false; gone.len()];
    let mut ids = Vec::new();
    let rows = if is_there.is_empty() { &[] } else { rows };
    for batch in rows {
        ids.clear();
        gone.find(&names(batch)?, batch.num_rows(), &mut ids)?;
        let found = ids.iter().filter(|&&id| id != ABSENT);
        found.for_each(|&id| is_there[id as usize] = true);
    }
    Ok((0..gone.len() as u32).filter(|&id| !is_there[id as usize]).collect())
}
