//! Captures of windows that have tables of their own: what they have yet to read, and what has changed.
//!
//! A key of a window is a place of its own ([`crate::reading`]), so a capture costs a bit for each key of each
//! open window. What is told later is the key as it was: told before the key changes, or before the window
//! is emptied. What a window has is not emptied before it has been read; until then it waits beside
//! the open ones ([`super::tables::Tables`]).
//!
//! Windows of keys that a partition owns are told in changes. A window that has closed goes key by
//! key: the names of those that were told. If they are more than those told and still there, the
//! next capture tells everything instead, which then is less.
//!
//! It is made by the first capture: without captures nothing of this is done.

use arrow_array::RecordBatch;
use thalweg_core::{Extent, Result};

use super::judge::SliceKey;
use super::slices::Calls;
use super::snapshot::bounds;
use super::tables::WindowTable;
use crate::reading::{Bits, HandOver, ToldRows, Unread};
use crate::tables::state_batch;

/// What is known of the keys of one window.
#[derive(Default)]
pub(super) struct Watched {
    changed: Bits,
    unread: Unread,
    /// Keys with numbers below this one have been told.
    told: usize,
}

impl Watched {
    /// How many keys have been told.
    pub(super) fn told(&self) -> usize {
        self.told
    }

    /// True if there may be keys that the capture under way has yet to read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.may_have_any()
    }

    pub(super) fn bytes(&self) -> usize {
        self.changed.bytes() + self.unread.bytes()
    }

    /// The window is part of a capture, of all its keys or of those that changed.
    fn begin(&mut self, keys: usize, is_whole: bool) {
        let changed = std::mem::replace(&mut self.changed, Bits::none(keys));
        self.unread = Unread::new(if is_whole { Bits::all(keys) } else { changed });
        self.told = keys;
    }
}

/// What a capture begins with.
pub(super) struct Begun {
    /// How much it tells.
    pub(super) extent: Extent,
    /// Where its rows are handed over.
    pub(super) told: ToldRows,
    /// The names of keys that have gone.
    pub(super) gone: Vec<RecordBatch>,
}

/// What is known of all windows between captures.
pub(super) struct Watch {
    hand_over: HandOver,
    gone: Vec<RecordBatch>,
    gone_keys: usize,
    /// The next capture tells everything.
    is_lost: bool,
}

impl Watch {
    /// Nothing is known yet, so the first capture tells everything.
    pub(super) fn new() -> Self {
        Watch { hand_over: HandOver::default(), gone: Vec::new(), gone_keys: 0, is_lost: true }
    }

    /// Begins a capture of these windows. One that is under way must have been read to its end.
    pub(super) fn begin<'a>(
        &mut self,
        extent: Extent,
        open: impl Iterator<Item = &'a mut WindowTable>,
    ) -> Begun {
        let is_whole = extent == Extent::Whole || self.is_lost;
        for table in open {
            let keys = table.len();
            table.watched.begin(keys, is_whole);
        }
        let told = ToldRows::default();
        self.hand_over = HandOver::new(&told);
        let gone = std::mem::take(&mut self.gone);
        (self.gone_keys, self.is_lost) = (0, false);
        match is_whole {
            // What is told whole says by itself what is not there.
            true => Begun { extent: Extent::Whole, told, gone: Vec::new() },
            false => Begun { extent: Extent::Changes, told, gone },
        }
    }

    /// True if this is the capture that is under way.
    pub(super) fn is_reading(&self, told: &ToldRows) -> bool {
        self.hand_over.is_to(told)
    }

    /// True while somebody is interested in what has yet to be read.
    pub(super) fn is_wanted(&self) -> bool {
        self.hand_over.is_wanted()
    }

    /// These keys of a window change; tells those first that the capture under way has yet to read.
    pub(super) fn touch(
        &mut self,
        calls: &Calls,
        end: i64,
        table: &mut WindowTable,
        ids: &[u32],
    ) -> Result<()> {
        let limit = table.len();
        let watched = &mut table.watched;
        watched.changed.grow(limit);
        ids.iter().for_each(|&id| watched.changed.set(id));
        let unread = watched.unread.among(ids);
        self.tell(calls, end, table, &unread)
    }

    /// Tells some keys of a window that the capture under way has yet to read; false if there are none.
    pub(super) fn read_some(
        &mut self,
        calls: &Calls,
        end: i64,
        table: &mut WindowTable,
        most: usize,
    ) -> Result<bool> {
        let ids = table.watched.unread.take(most);
        self.tell(calls, end, table, &ids)?;
        Ok(!ids.is_empty())
    }

    fn tell(&mut self, calls: &Calls, end: i64, table: &WindowTable, ids: &[u32]) -> Result<()> {
        if !ids.is_empty() && self.hand_over.is_wanted() {
            let marks = bounds(SliceKey { enter: end, leave: end }, ids.len());
            self.hand_over.put(calls.tell(&table.keys, marks, &table.states(ids))?);
        }
        Ok(())
    }

    /// A window closes of which so many keys have been told; so many are left in others.
    pub(super) fn close(&mut self, told: usize, left: usize) {
        if told > 0 && !self.is_lost && self.gone_keys + told > left {
            (self.gone, self.gone_keys, self.is_lost) = (Vec::new(), 0, true);
        }
    }

    /// These keys of a closed window go.
    pub(super) fn go(
        &mut self,
        calls: &Calls,
        end: i64,
        table: &WindowTable,
        ids: &[u32],
    ) -> Result<()> {
        if self.is_lost {
            return Ok(());
        }
        let was_told = |&id: &u32| (id as usize) < table.watched.told;
        let ids: Vec<u32> = ids.iter().copied().filter(was_told).collect();
        if !ids.is_empty() {
            let (owners, named) = calls.told_keys.tell(&table.keys, &ids)?;
            let mut columns = bounds(SliceKey { enter: end, leave: end }, ids.len());
            columns.extend(named);
            self.gone.push(state_batch(owners, columns)?);
            self.gone_keys += ids.len();
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        let gone = self.gone.iter().map(thalweg_core::bundle::batch_bytes).sum::<usize>();
        self.hand_over.bytes() + gone
    }
}
