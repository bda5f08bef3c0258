//! What of an operator's state has changed since the last capture, and what a capture has yet to read.
//!
//! # How a capture is read
//! A capture only notes which keys or rows it means, one bit for each number, and the job goes on. They are
//! told later, some at a time, by a thread that has time ([`crate::guarded`]). One that is about to change
//! before its turn has come is told then, as it was. So the job stands still for as long as it takes to note
//! the bits, a row is copied once for each capture that means it, and nothing is copied for others.
//!
//! # What has changed
//! One bit for each number, set by the first change after a capture. What has gone is kept by name until the
//! next capture; if that is more than what is there, the next capture tells everything instead.
//!
//! | module | for state that is |
//! |---|---|
//! | [`keys`] | something for each key, told with the key as its identity |
//! | [`rows`] | rows, each told with a serial as its identity |
//!
//! All of it is made by the first capture: without captures nothing of this is done.

pub(crate) mod keys;
pub(crate) mod rows;

use std::sync::{Arc, Mutex, Weak};

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::Result;
use thalweg_core::bundle::batch_bytes;

use crate::guarded::locked;

/// How much is read at once while rows wait.
pub(crate) const READ_ROWS: usize = 1024;
/// Up to so many names of what has gone are kept, however little is there.
pub(crate) const GONE_MIN: usize = 64 * 1024;

/// Bits by number; those beyond the end are not set.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// So many bits, all set or none.
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
pub(crate) type ToldRows = Arc<Mutex<Vec<RecordBatch>>>;

/// A capture that has not been read to the end.
struct Reading {
    unread: Bits,
    /// The first word that may have a bit left.
    next: usize,
    /// Where rows are handed over; nobody is interested any more if it is gone.
    told: Weak<Mutex<Vec<RecordBatch>>>,
    told_bytes: usize,
}

/// Which numbers have changed, and which are yet to be read.
#[derive(Default)]
struct Noted {
    changed: Bits,
    reading: Option<Reading>,
}

impl Noted {
    /// Begins a capture of all, or of what has changed, below this number. One that is under way must have
    /// been read to its end.
    fn begin(&mut self, is_whole: bool, limit: usize) -> ToldRows {
        let changed = std::mem::replace(&mut self.changed, Bits::new(limit, false));
        let unread = if is_whole { Bits::new(limit, true) } else { changed };
        let told = ToldRows::default();
        self.reading =
            Some(Reading { unread, next: 0, told: Arc::downgrade(&told), told_bytes: 0 });
        told
    }

    /// Makes room for numbers below this one, and forgets a capture that nobody reads any more.
    fn prepare(&mut self, limit: usize) {
        self.changed.grow(limit);
        if self.reading.as_ref().is_some_and(|reading| reading.told.strong_count() == 0) {
            self.reading = None;
        }
    }

    /// This one is about to change; true if a capture has yet to read it.
    #[inline]
    fn touch(&mut self, id: u32) -> bool {
        self.changed.set(id);
        self.reading.as_mut().is_some_and(|reading| reading.unread.clear(id))
    }

    /// True if this is the capture that is under way.
    fn is_reading(&self, told: &ToldRows) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.told.as_ptr() == Arc::as_ptr(told))
    }

    /// Some numbers below `limit` that the capture under way has yet to read; none once there are none left.
    fn take_unread(&mut self, most: usize, limit: usize) -> Vec<u32> {
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
    fn hand_over(&mut self, rows: RecordBatch) {
        let Some(reading) = &mut self.reading else { return };
        if let Some(told) = reading.told.upgrade() {
            reading.told_bytes += batch_bytes(&rows);
            locked(&told).push(rows);
        }
    }

    fn bytes(&self) -> usize {
        let reading = self.reading.as_ref().filter(|reading| reading.told.strong_count() > 0);
        let reading = reading.map_or(0, |reading| reading.unread.bytes() + reading.told_bytes);
        self.changed.bytes() + reading
    }
}

/// What a capture was told, without small batches: some have been told one by one, when they changed.
fn compact(told: &ToldRows) -> Result<Vec<RecordBatch>> {
    let rows = std::mem::take(&mut *locked(told));
    let (mut rows, small): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|rows| rows.num_rows() >= READ_ROWS);
    if let Some(first) = small.first() {
        rows.push(concat_batches(&first.schema(), &small)?);
    }
    Ok(rows)
}
