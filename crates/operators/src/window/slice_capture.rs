//! What captures have yet to read of slices that still change.
//!
//! A slice that takes rows, and what has entered a cumulating window so far, are captured in full,
//! but later: a capture notes a bit for each key, and a key is captured before it changes or goes
//! ([`crate::capture::unread`]). Slices are short, or change all over with each slice that enters,
//! so nothing is known of what has changed between captures.

use thalweg_core::Result;

use super::slices::{Calls, Slice};
use super::snapshot::{Marks, States};
use crate::capture::unread::{Bits, CaptureWriter, CapturedRows, Unread};
use crate::keys::KeyTable;

/// How the rows of a slice are captured: aggregates, keys by number, and, for this many rows, which
/// slice it is.
pub(super) struct SliceTable<'a, M> {
    pub(super) calls: &'a Calls,
    pub(super) keys: &'a KeyTable,
    pub(super) marks: M,
}

/// Reads slices for the capture that is under way.
#[derive(Default)]
pub(super) struct SliceReader {
    hand_over: CaptureWriter,
}

impl SliceReader {
    /// Begins a capture of these slices. One that is under way must have been read to its end.
    pub(super) fn begin<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a mut Slice>,
    ) -> CapturedRows {
        for slice in slices {
            slice.unread = Unread::new(Bits::all(slice.counts.len()));
        }
        let (hand_over, rows) = CaptureWriter::begin();
        self.hand_over = hand_over;
        rows
    }

    /// True if this is the capture that is under way.
    pub(super) fn is_reading(&self, rows: &CapturedRows) -> bool {
        self.hand_over.is_to(rows)
    }

    /// These keys of a slice are about to change.
    pub(super) fn touch(
        &mut self,
        table: &SliceTable<'_, impl Fn(usize) -> Marks>,
        slice: &mut Slice,
        ids: &[u32],
    ) -> Result<()> {
        if !slice.unread.may_have_any() {
            return Ok(());
        }
        let unread = slice.unread.among(ids);
        self.write(table, slice, unread)
    }

    /// Captures some keys that have yet to be read; false if there are none.
    pub(super) fn read_some(
        &mut self,
        table: &SliceTable<'_, impl Fn(usize) -> Marks>,
        slice: &mut Slice,
        most: usize,
    ) -> Result<bool> {
        let unread = slice.unread.take(most);
        let is_any = !unread.is_empty();
        self.write(table, slice, unread)?;
        Ok(is_any)
    }

    /// A slice is about to go: writes all keys that have yet to be read.
    pub(super) fn finish(
        &mut self,
        table: &SliceTable<'_, impl Fn(usize) -> Marks>,
        slice: &mut Slice,
    ) -> Result<()> {
        self.read_some(table, slice, usize::MAX).map(|_| ())
    }

    fn write(
        &mut self,
        table: &SliceTable<'_, impl Fn(usize) -> Marks>,
        slice: &Slice,
        mut ids: Vec<u32>,
    ) -> Result<()> {
        // A bit was noted for each number of a key, also of those that the slice does not have.
        ids.retain(|&id| slice.counts.get(id as usize).is_some_and(|&rows| rows > 0));
        if !ids.is_empty() && self.hand_over.is_wanted() {
            let states = States::by_key(&ids, &slice.counts, &slice.accumulators);
            let SliceTable { calls, keys, marks } = table;
            self.hand_over.put(calls.rows(keys, marks(ids.len()), &states)?);
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.hand_over.bytes()
    }
}
