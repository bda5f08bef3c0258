//! What a capture has yet to read of a state that keeps changing.
//!
//! A capture only notes which places of a state it means, one bit for each ([`Unread`]), and the
//! job continues. Their rows are written later, some at a time, by a thread that has time
//! ([`SharedState::read`](crate::capture::shared::SharedState::read)). A place that is about to
//! change before its turn has come is rows then, as it was. So the job stands still for as long as
//! it takes to note the bits, a place is copied once for each capture that means it, and nothing is
//! copied for others.
//!
//! Here stand the bits and the hand-over of what was rows ([`CaptureWriter`]). What a place is, how
//! it is rows and what has changed since the capture before is known to whoever keeps the state.

use std::sync::{Arc, Mutex, Weak};

use arrow_array::RecordBatch;
use thalweg_core::bundle::batch_bytes;

use crate::capture::shared::locked;

/// Bits of places, by number; those beyond the end are not set.
#[derive(Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Bits of this many places, none set.
    pub(crate) fn none(limit: usize) -> Self {
        Bits { words: vec![0; limit.div_ceil(64)] }
    }

    /// Bits of this many places, all set, and of no other.
    pub(crate) fn all(limit: usize) -> Self {
        let mut words = vec![u64::MAX; limit.div_ceil(64)];
        if let (Some(last), 1..) = (words.last_mut(), limit % 64) {
            *last >>= 64 - limit % 64;
        }
        Bits { words }
    }

    /// Makes room for this many places.
    pub(crate) fn grow(&mut self, limit: usize) {
        let words = limit.div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
    }

    /// Sets the bit of a place for which there is room.
    #[inline]
    pub(crate) fn set(&mut self, id: u32) {
        self.words[id as usize / 64] |= 1 << (id % 64);
    }

    /// True if it was set.
    #[inline]
    pub(crate) fn clear(&mut self, id: u32) -> bool {
        let Some(word) = self.words.get_mut(id as usize / 64) else { return false };
        let bit = 1 << (id % 64);
        let was_set = *word & bit != 0;
        *word &= !bit;
        was_set
    }

    /// How many are set.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

/// Places that a capture has yet to read.
#[derive(Default)]
pub(crate) struct Unread {
    bits: Bits,
    /// The first word that may have a bit left.
    next: usize,
}

impl Unread {
    pub(crate) fn new(bits: Bits) -> Self {
        Unread { bits, next: 0 }
    }

    /// False once all places have been taken in their turn.
    pub(crate) fn may_have_any(&self) -> bool {
        !self.bits.words.is_empty()
    }

    /// True if this place has yet to be read; it counts as read now.
    #[inline]
    pub(crate) fn take_one(&mut self, id: u32) -> bool {
        self.bits.clear(id)
    }

    /// Those of these places that have yet to be read, each once; they count as read now.
    pub(crate) fn among(&mut self, ids: &[u32]) -> Vec<u32> {
        match self.may_have_any() {
            true => ids.iter().copied().filter(|&id| self.bits.clear(id)).collect(),
            false => Vec::new(),
        }
    }

    /// This many places, or a few more; they count as read now. None once there are none left.
    pub(crate) fn take(&mut self, most: usize) -> Vec<u32> {
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

    pub(crate) fn bytes(&self) -> usize {
        self.bits.bytes()
    }
}

/// The rows of a capture, as far as they have been rows.
pub(crate) type CapturedRows = Arc<Mutex<Vec<RecordBatch>>>;

/// Where the rows of a capture are handed over.
#[derive(Default)]
pub(crate) struct CaptureWriter {
    /// Nobody is interested any more if it is gone.
    rows: Weak<Mutex<Vec<RecordBatch>>>,
    bytes: usize,
}

impl CaptureWriter {
    /// Both ends of a hand-over.
    pub(crate) fn begin() -> (CaptureWriter, CapturedRows) {
        let rows = CapturedRows::default();
        (CaptureWriter { rows: Arc::downgrade(&rows), bytes: 0 }, rows)
    }

    /// True while a reader is interested.
    pub(crate) fn is_wanted(&self) -> bool {
        self.rows.strong_count() > 0
    }

    /// True if rows are handed over to this one.
    pub(crate) fn is_to(&self, rows: &CapturedRows) -> bool {
        self.rows.as_ptr() == Arc::as_ptr(rows)
    }

    /// Hands rows over.
    pub(crate) fn put(&mut self, rows: RecordBatch) {
        if let Some(written) = self.rows.upgrade() {
            self.bytes += batch_bytes(&rows);
            locked(&written).push(rows);
        }
    }

    /// The bytes of the rows that have been handed over, while a reader is interested.
    pub(crate) fn bytes(&self) -> usize {
        if self.is_wanted() { self.bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_read_once() {
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
    fn what_nobody_wants_is_not_kept() {
        let (mut hand_over, written) = CaptureWriter::begin();
        let rows = RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()));
        hand_over.put(rows.clone());
        assert!(hand_over.is_to(&written) && hand_over.is_wanted());
        assert_eq!(locked(&written).len(), 1);
        drop(written);
        hand_over.put(rows);
        assert!(!hand_over.is_wanted() && hand_over.bytes() == 0);
    }
}
