//! Captures of windows that have tables of their own: what they have yet to read, and what has
//! changed.
//!
//! A key of a window is a place of its own ([`crate::capture::unread`]), so a capture costs a bit
//! for each key of each open window. What is captured later is the key as it was: written before
//! the key changes, or before the window is emptied. What a window has is not emptied before it has
//! been read; until then it waits next to the open ones ([`super::tables::Tables`]).
//!
//! Windows of keys that a partition owns are captured incrementally. Those that have closed are not
//! named: their rows expire with the watermark.
//!
//! It is made by the first capture: without captures nothing of this is done.

use thalweg_core::{Extent, Result, TableChanges};

use super::judge::SliceKey;
use super::slices::Calls;
use super::snapshot::bounds;
use super::tables::WindowTable;
use crate::capture::unread::{Bits, CaptureWriter, CapturedRows, Unread};

/// What is known of the keys of one window.
#[derive(Default)]
pub(super) struct CapturedByKey {
    changed: Bits,
    unread: Unread,
    /// This many keys have been written since the last full capture, what that wrote included.
    written: u64,
}

impl CapturedByKey {
    /// True if there may be keys that the capture under way has yet to read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.may_have_any()
    }

    pub(super) fn bytes(&self) -> usize {
        self.changed.bytes() + self.unread.bytes()
    }

    /// The window is part of a capture, of all its keys or of those that changed.
    fn begin(&mut self, keys: usize, is_whole: bool) {
        self.written = match is_whole {
            true => keys as u64,
            false => self.written + self.changed.count() as u64,
        };
        let changed = std::mem::replace(&mut self.changed, Bits::none(keys));
        self.unread = Unread::new(if is_whole { Bits::all(keys) } else { changed });
    }
}

/// What a capture begins with.
pub(super) struct Begun {
    /// Whether it is full or incremental.
    pub(super) extent: Extent,
    /// Where its rows are handed over.
    pub(super) rows: CapturedRows,
}

/// What is known of all windows between captures.
#[derive(Default)]
pub(super) struct Watch {
    hand_over: CaptureWriter,
    /// Changes are noted, and known since the last capture.
    knows_changes: bool,
}

impl Watch {
    /// Begins a capture of these windows. One that is under way must have been read to its end.
    pub(super) fn begin<'a>(
        &mut self,
        extent: Extent,
        open: impl Iterator<Item = &'a mut WindowTable>,
    ) -> Begun {
        let knows_changes = std::mem::replace(&mut self.knows_changes, true);
        let is_whole = extent == Extent::Full || !knows_changes;
        for table in open {
            let keys = table.len();
            table.watched.begin(keys, is_whole);
        }
        let (hand_over, rows) = CaptureWriter::begin();
        self.hand_over = hand_over;
        Begun { extent: if is_whole { Extent::Full } else { Extent::Incremental }, rows }
    }

    /// What is known of these windows, which are a table with this name.
    pub(super) fn changes<'a>(
        &self,
        name: &'static str,
        open: impl Iterator<Item = &'a WindowTable>,
    ) -> TableChanges {
        let changed = self.knows_changes.then_some(0);
        open.fold(TableChanges { name, changed, ..Default::default() }, |sum, table| {
            let CapturedByKey { changed, written, .. } = &table.watched;
            TableChanges {
                live: sum.live + table.len() as u64,
                changed: sum.changed.map(|sum| sum + changed.count() as u64),
                written: sum.written + written,
                ..sum
            }
        })
    }

    /// Notes no changes any more: the next capture is full.
    pub(super) fn stop<'a>(&mut self, open: impl Iterator<Item = &'a mut WindowTable>) {
        self.knows_changes = false;
        open.for_each(|table| table.watched.changed = Bits::default());
    }

    /// True if this is the capture that is under way.
    pub(super) fn is_reading(&self, rows: &CapturedRows) -> bool {
        self.hand_over.is_to(rows)
    }

    /// True while a reader is interested in what has yet to be read.
    pub(super) fn is_wanted(&self) -> bool {
        self.hand_over.is_wanted()
    }

    /// These keys of a window change; captures those first that the capture under way has yet to
    /// read.
    pub(super) fn touch(
        &mut self,
        calls: &Calls,
        end: i64,
        table: &mut WindowTable,
        ids: &[u32],
    ) -> Result<()> {
        let limit = table.len();
        let watched = &mut table.watched;
        if self.knows_changes {
            watched.changed.grow(limit);
            ids.iter().for_each(|&id| watched.changed.set(id));
        }
        let unread = watched.unread.among(ids);
        self.write(calls, end, table, &unread)
    }

    /// Captures some keys of a window that the capture under way has yet to read; false if there
    /// are none.
    pub(super) fn read_some(
        &mut self,
        calls: &Calls,
        end: i64,
        table: &mut WindowTable,
        most: usize,
    ) -> Result<bool> {
        let ids = table.watched.unread.take(most);
        self.write(calls, end, table, &ids)?;
        Ok(!ids.is_empty())
    }

    fn write(&mut self, calls: &Calls, end: i64, table: &WindowTable, ids: &[u32]) -> Result<()> {
        if !ids.is_empty() && self.hand_over.is_wanted() {
            let marks = bounds(SliceKey { enter: end, leave: end }, ids.len());
            self.hand_over.put(calls.rows(&table.keys, marks, &table.states(ids))?);
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.hand_over.bytes()
    }
}
