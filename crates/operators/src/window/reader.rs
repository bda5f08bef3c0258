//! What captures have yet to read of slices that still change.
//!
//! A slice that takes rows, and what has entered a cumulating window so far, are told whole, but
//! later: a capture notes a bit for each key, and a key is told before it changes or goes
//! ([`crate::reading`]). Slices are short, or change all over with each slice that enters, so
//! nothing is known of what has changed between captures.

use thalweg_core::Result;

use super::slices::{Calls, Slice};
use super::snapshot::{Marks, States};
use crate::keys::KeyTable;
use crate::reading::{Bits, HandOver, ToldRows, Unread};

/// How the rows of a slice are told: aggregates, keys by number, and, for so many rows, which slice
/// it is.
pub(super) struct Telling<'a, M> {
    pub(super) calls: &'a Calls,
    pub(super) keys: &'a KeyTable,
    pub(super) marks: M,
}

/// Reads slices for the capture that is under way.
#[derive(Default)]
pub(super) struct SliceReader {
    hand_over: HandOver,
}

impl SliceReader {
    /// Begins a capture of these slices. One that is under way must have been read to its end.
    pub(super) fn begin<'a>(&mut self, slices: impl Iterator<Item = &'a mut Slice>) -> ToldRows {
        for slice in slices {
            slice.unread = Unread::new(Bits::all(slice.counts.len()));
        }
        let (hand_over, told) = HandOver::begin();
        self.hand_over = hand_over;
        told
    }

    /// True if this is the capture that is under way.
    pub(super) fn is_reading(&self, told: &ToldRows) -> bool {
        self.hand_over.is_to(told)
    }

    /// These keys of a slice are about to change.
    pub(super) fn touch(
        &mut self,
        telling: &Telling<'_, impl Fn(usize) -> Marks>,
        slice: &mut Slice,
        ids: &[u32],
    ) -> Result<()> {
        if !slice.unread.may_have_any() {
            return Ok(());
        }
        let unread = slice.unread.among(ids);
        self.tell(telling, slice, unread)
    }

    /// Tells some keys that have yet to be read; false if there are none.
    pub(super) fn read_some(
        &mut self,
        telling: &Telling<'_, impl Fn(usize) -> Marks>,
        slice: &mut Slice,
        most: usize,
    ) -> Result<bool> {
        let unread = slice.unread.take(most);
        let is_any = !unread.is_empty();
        self.tell(telling, slice, unread)?;
        Ok(is_any)
    }

    /// A slice is about to go: tells all keys that have yet to be read.
    pub(super) fn finish(
        &mut self,
        telling: &Telling<'_, impl Fn(usize) -> Marks>,
        slice: &mut Slice,
    ) -> Result<()> {
        self.read_some(telling, slice, usize::MAX).map(|_| ())
    }

    fn tell(
        &mut self,
        telling: &Telling<'_, impl Fn(usize) -> Marks>,
        slice: &Slice,
        mut ids: Vec<u32>,
    ) -> Result<()> {
        // A bit was noted for each number of a key, also of those that the slice does not have.
        ids.retain(|&id| slice.counts.get(id as usize).is_some_and(|&rows| rows > 0));
        if !ids.is_empty() && self.hand_over.is_wanted() {
            let states = States::by_key(&ids, &slice.counts, &slice.accumulators);
            let Telling { calls, keys, marks } = telling;
            self.hand_over.put(calls.tell(keys, marks(ids.len()), &states)?);
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.hand_over.bytes()
    }
}
