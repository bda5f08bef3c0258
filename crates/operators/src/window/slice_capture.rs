//! What captures have yet to read of slices that still change.
//!
//! A slice that takes rows, and what has entered a cumulating window so far, are captured in full,
//! but later: a capture notes a bit for each key, and a key is captured before it changes or goes
//! ([`crate::capture::tracker`]). Slices are short, or change all over with each slice that enters,
//! so nothing is known of what has changed between captures.
//!
//! **Invariants**
//! - Bits are set for numbers below `counts.len()` when the capture began. A key that is new to the
//!   slice after that has no bit, or a bit without rows at that time: in both cases it must not be
//!   written. `touch` runs before the update, so such a key has no rows yet and `write` drops it.
//! - A number cannot have changed its key between mark and read: a key with rows in a slice has a
//!   reference, and numbers without references have no rows here.

use thalweg_core::Result;

use super::calls::Calls;
use super::calls::{Marks, States};
use super::slices::Slice;
use crate::capture::tracker::Tracking;
use crate::keys::KeyTable;

/// How the rows of a slice are captured: aggregates, keys by number, and, for a number of rows,
/// which slice it is.
pub(super) struct SliceTable<'a, M> {
    pub(super) calls: &'a Calls,
    pub(super) keys: &'a KeyTable,
    pub(super) marks: M,
}

impl<M: Fn(usize) -> Marks> SliceTable<'_, M> {
    /// These keys of a slice are about to change.
    pub(super) fn touch(
        &self,
        tracking: &mut Tracking,
        slice: &mut Slice,
        ids: &[u32],
    ) -> Result<()> {
        if !slice.unread.may_have_any() {
            return Ok(());
        }
        let unread = slice.unread.among(ids);
        self.write(tracking, slice, unread)
    }

    /// Writes some keys that have yet to be read; false if there are none.
    pub(super) fn read_some(
        &self,
        tracking: &mut Tracking,
        slice: &mut Slice,
        most: usize,
    ) -> Result<bool> {
        let unread = slice.unread.take(most);
        let is_any = !unread.is_empty();
        self.write(tracking, slice, unread)?;
        Ok(is_any)
    }

    /// A slice is about to go: writes all keys that have yet to be read.
    pub(super) fn finish(&self, tracking: &mut Tracking, slice: &mut Slice) -> Result<()> {
        self.read_some(tracking, slice, usize::MAX).map(|_| ())
    }

    fn write(&self, tracking: &mut Tracking, slice: &Slice, mut ids: Vec<u32>) -> Result<()> {
        // A bit was set for each number of a key, also of those that the slice does not have.
        ids.retain(|&id| slice.counts.get(id as usize).is_some_and(|&rows| rows > 0));
        if !ids.is_empty() && tracking.is_read() {
            let states = States::by_key(&ids, &slice.counts, &slice.accumulators);
            let SliceTable { calls, keys, marks } = self;
            tracking.write(calls.rows(keys, marks(ids.len()), &states)?);
        }
        Ok(())
    }
}
