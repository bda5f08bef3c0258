//! Which numbers have changed since the last capture, and which the capture under way has yet to
//! read.
//!
//! A number is that of a key, a row or a session: what the holder of the state makes of it. The
//! holder says when one is about to change, and writes those that have yet to be read
//! ([`Tracking::write`]).
//!
//! ```text
//! begin      changed: 0000   unread: bits of what this capture includes
//! touch(id)  changed |= id   unread &= !id, and the caller writes `id` if the bit was set
//! take       unread words are handed out from the front, 64 numbers each
//! ```
//!
//! **Invariants**
//! - A number is written at most once per capture: whoever clears its bit of `unread` writes it.
//! - At most one capture is under way. The next one first reads the one before to its end, so bits
//!   of two captures never mix.
//! - When the reader is gone (`rows` cannot be upgraded), nothing is written any more and bits are
//!   forgotten: an aborted snapshot costs nothing further.

use std::sync::{Arc, Mutex, Weak};

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::{Extent, Result};

use super::READ_ROWS;
use super::shared::{SharedState, locked};

/// Batches with fewer bytes are put together, if they have few rows.
const SMALL_BYTES: usize = 64 * 1024;

/// The rows of a capture, as far as they have been written.
pub(crate) type CapturedRows = Arc<Mutex<Vec<RecordBatch>>>;

/// A capture that has begun, and is yet to be read.
pub(crate) struct BegunCapture {
    /// Whether it is full or incremental.
    pub(crate) extent: Extent,
    rows: CapturedRows,
}

impl BegunCapture {
    /// Reads what has yet to be read while rows are processed: `read_some` writes a piece of it,
    /// and returns false once nothing is left. The rows of the capture.
    ///
    /// # Errors
    /// Those of `read_some`.
    pub fn read<T>(
        &self,
        shared: &SharedState<T>,
        read_some: impl FnMut(&mut T) -> Result<bool>,
    ) -> Result<Vec<RecordBatch>> {
        shared.read(read_some)?;
        compact(std::mem::take(&mut *locked(&self.rows)))
    }
}

/// The same rows without small batches: some were written one by one, when they changed.
fn compact(rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let is_large =
        |rows: &RecordBatch| rows.num_rows() >= READ_ROWS || batch_bytes(rows) >= SMALL_BYTES;
    let (mut rows, small): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_large);
    if let Some(first) = small.first() {
        rows.push(concat_batches(&first.schema(), &small)?);
    }
    Ok(rows)
}

/// A table between captures: whether its changes are tracked, and the capture under way.
#[derive(Default)]
pub(crate) struct Tracking {
    tracks: bool,
    /// Where the rows of the capture under way go; nobody reads them any more if it is gone.
    rows: Weak<Mutex<Vec<RecordBatch>>>,
    bytes: usize,
}

impl Tracking {
    /// Begins a capture: a full one, unless changes have been tracked since the last. One that is
    /// under way must have been read to its end.
    pub fn begin(&mut self, extent: Extent) -> BegunCapture {
        let rows = CapturedRows::default();
        (self.rows, self.bytes) = (Arc::downgrade(&rows), 0);
        let extent = if std::mem::replace(&mut self.tracks, true) { extent } else { Extent::Full };
        BegunCapture { extent, rows }
    }

    /// Tracks no changes any more: the next capture is full.
    pub fn stop(&mut self) {
        self.tracks = false;
    }

    /// True if changes are tracked; if not, the next capture is full.
    #[inline]
    pub fn is_tracking(&self) -> bool {
        self.tracks
    }

    /// True while the capture under way is read.
    pub fn is_read(&self) -> bool {
        self.rows.strong_count() > 0
    }

    /// True if this is the capture that is under way.
    pub fn is_reading(&self, begun: &BegunCapture) -> bool {
        self.rows.as_ptr() == Arc::as_ptr(&begun.rows)
    }

    /// Writes rows to the capture that is under way.
    pub fn write(&mut self, rows: RecordBatch) {
        if let Some(written) = self.rows.upgrade() {
            self.bytes += batch_bytes(&rows);
            locked(&written).push(rows);
        }
    }

    /// The bytes of the rows that have been written, while they are read.
    pub fn bytes(&self) -> usize {
        if self.is_read() { self.bytes } else { 0 }
    }
}

/// The numbers of a table: which have changed since the last capture, and which the capture under
/// way has yet to read.
#[derive(Default)]
pub(crate) struct NumberTracker {
    changed: Bits,
    unread: Unread,
    /// How many have been written since the last full capture, what that wrote included.
    written: u64,
}

impl NumberTracker {
    /// Begins a capture of all numbers below `limit`, of which `live` are there, or of those that
    /// have changed, where `gone` have gone.
    pub fn begin(&mut self, extent: Extent, limit: usize, live: usize, gone: usize) {
        self.written = match extent {
            Extent::Full => live as u64,
            Extent::Incremental => self.written + (self.changed.count() + gone) as u64,
        };
        let changed = std::mem::replace(&mut self.changed, Bits::none(limit));
        self.unread = Unread::new(match extent {
            Extent::Full => Bits::all(limit),
            Extent::Incremental => changed,
        });
    }

    /// How many have changed.
    pub fn changed(&self) -> u64 {
        self.changed.count() as u64
    }

    /// How many captures have written since the last full one, what that wrote included.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// True if the capture under way may have yet to read some.
    pub fn is_unread(&self) -> bool {
        self.unread.may_have_any()
    }

    /// Makes room for changes of numbers below this one.
    pub fn grow(&mut self, limit: usize) {
        self.changed.grow(limit);
    }

    /// This one is about to change; true if the capture under way has yet to read it.
    #[inline]
    pub fn touch(&mut self, tracking: &Tracking, id: u32) -> bool {
        if tracking.is_tracking() {
            self.changed.set(id);
        }
        self.unread.bits.clear(id)
    }

    /// This one has not changed.
    pub fn clear_change(&mut self, id: u32) {
        self.changed.clear(id);
    }

    /// Some numbers below `limit` that the capture under way has yet to read; none once there are
    /// none left.
    pub fn take_unread(&mut self, most: usize, limit: usize) -> Vec<u32> {
        let mut ids = self.unread.take(most);
        ids.retain(|&id| (id as usize) < limit);
        ids
    }

    /// Forgets a capture that nobody reads any more.
    pub fn forget_unread(&mut self) {
        self.unread = Unread::default();
    }

    /// Forgets what has changed.
    pub fn forget_changes(&mut self) {
        self.changed = Bits::default();
    }

    pub fn bytes(&self) -> usize {
        self.changed.bytes() + self.unread.bytes()
    }
}

/// Bits by number; those beyond the end are not set.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Bits of `limit` numbers, none set.
    fn none(limit: usize) -> Self {
        Bits { words: vec![0; limit.div_ceil(64)] }
    }

    /// Bits of `limit` numbers, all set, and of no other.
    fn all(limit: usize) -> Self {
        let mut words = vec![u64::MAX; limit.div_ceil(64)];
        if let (Some(last), 1..) = (words.last_mut(), limit % 64) {
            *last >>= 64 - limit % 64;
        }
        Bits { words }
    }

    /// Makes room for numbers below `limit`.
    fn grow(&mut self, limit: usize) {
        let words = limit.div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
    }

    /// Sets the bit of a number for which there is room.
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

    /// How many are set.
    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

/// Numbers that a capture has yet to read.
#[derive(Default)]
pub(crate) struct Unread {
    bits: Bits,
    /// The first word that may have a bit left.
    next: usize,
}

impl Unread {
    /// All numbers below `limit`.
    pub fn all(limit: usize) -> Self {
        Unread::new(Bits::all(limit))
    }

    fn new(bits: Bits) -> Self {
        Unread { bits, next: 0 }
    }

    /// False once all numbers have been taken in their turn.
    pub fn may_have_any(&self) -> bool {
        !self.bits.words.is_empty()
    }

    /// Those of these numbers that have yet to be read, each once; they count as read now.
    pub fn among(&mut self, ids: &[u32]) -> Vec<u32> {
        match self.may_have_any() {
            true => ids.iter().copied().filter(|&id| self.bits.clear(id)).collect(),
            false => Vec::new(),
        }
    }

    /// `most` numbers, or a few more; they count as read now. None once there are none left.
    pub fn take(&mut self, most: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        while let (true, Some(word)) = (ids.len() < most, self.bits.words.get_mut(self.next)) {
            let first = self.next as u32 * 64;
            while *word != 0 {
                ids.push(first + word.trailing_zeros());
                *word &= *word - 1;
            }
            self.next += 1;
        }
        if self.next == self.bits.words.len() {
            *self = Unread::default();
        }
        ids
    }

    pub fn bytes(&self) -> usize {
        self.bits.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_read_once() {
        let mut unread = Unread::new(Bits::all(70));
        assert_eq!(unread.among(&[3, 69, 70, 3, 500]), [3, 69], "70 was not there");
        assert_eq!(unread.take(5).len(), 63, "a whole word");
        assert!(unread.may_have_any());
        assert_eq!(unread.take(5), [64, 65, 66, 67, 68]);
        assert!(!unread.may_have_any());
        assert!(unread.take(5).is_empty() && unread.among(&[1, 2]).is_empty());
        let mut changed = Bits::none(64);
        changed.grow(130);
        [129, 0].into_iter().for_each(|id| changed.set(id));
        assert_eq!(changed.count(), 2);
        assert_eq!(Unread::new(changed).take(usize::MAX), [0, 129]);
        assert_eq!(Unread::new(Bits::all(128)).take(usize::MAX).len(), 128);
    }

    #[test]
    fn rows_that_nobody_reads_are_not_kept() {
        let mut tracking = Tracking::default();
        let begun = tracking.begin(Extent::Incremental);
        assert_eq!(begun.extent, Extent::Full, "nothing has been tracked");
        let rows = RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()));
        tracking.write(rows.clone());
        assert!(tracking.is_reading(&begun) && tracking.is_read());
        assert_eq!(locked(&begun.rows).len(), 1);
        drop(begun);
        tracking.write(rows);
        assert!(!tracking.is_read() && tracking.bytes() == 0);
        assert_eq!(tracking.begin(Extent::Incremental).extent, Extent::Incremental);
        tracking.stop();
        assert_eq!(tracking.begin(Extent::Incremental).extent, Extent::Full);
    }
}
