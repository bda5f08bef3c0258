//! States of windows that share no slice: one table of keys and states for each open window.
//!
//! A [`WindowTable`] numbers the keys that a window has from 0 and keeps a column of states per
//! aggregate. Nothing is ever taken out of it: when the window has been emitted it is emptied as a
//! whole, which costs far less than forgetting key by key, and the memory serves a later window
//! unless it is far more than that needs. So a key costs nothing beyond the windows it occurs in,
//! and a query without aggregates keeps a set of keys and no more.
//!
//! What a window has can be enumerated: windows by end, keys by number. Captures read it while rows
//! are processed, so a window that has closed and has yet to be read waits, as it was,
//! before its table is emptied.
//!
//! It does not say which window a row belongs to, nor when a window is over.
//!
//! # Which tables may be merged without their keys
//!
//! A table without key columns has one group, whose distinct values may be many. Where all rows of
//! all tables of a window were scattered by these values, no value is in two tables: then
//! `merge_apart` adds the results up. One table with rows taken locally makes that wrong for all
//! tables of its window, so `WindowParcel::agree` decides for all of them before the first is
//! absorbed.
//!
//! # Captures
//!
//! `read_some` writes a few keys at a time, `touch_keys` writes a key before it changes. Between
//! them each key that the capture includes is written exactly once. Three places can hold such a
//! key: an open window, a window that is being emitted or handed over (its owner calls
//! `read_some_of`), and a closed window that waits in `unread`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{Array, ArrayRef};
use thalweg_core::{Extent, Result, TableChanges};

use super::calls::{Calls, Partial};
use super::calls::{States, bounds};
use super::changelog::apply_changes;
use super::judge::SliceKey;
use super::slices::{RowsOf, update_accumulators};
use crate::aggregate::Accumulator;
use crate::capture::tracker::{BegunCapture, NumberTracker, Tracking};
use crate::keys::KeyTable;
use crate::spares::{Spares, is_oversized};

/// The keys and states of one window.
pub(super) struct WindowTable {
    pub(super) keys: KeyTable,
    /// The rows of each key, where a result is made of them.
    counts: Vec<i64>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// How many rows it has taken.
    pub(super) rows: u64,
    /// True if it has taken states of another partition.
    pub(super) has_absorbed: bool,
    /// True as long as all its rows were scattered: those of other tables of the window of which
    /// this is true, too, have other keys, or where there are none, other distinct values.
    is_scattered: bool,
    pub(super) tracker: NumberTracker,
}

/// States of a window on their way to the partition that owns their keys.
pub(super) enum WindowParcel {
    /// Those of some keys.
    Some { end: i64, keys: Vec<ArrayRef>, partial: Partial },
    /// A table all of whose keys have the same owner.
    Whole { end: i64, table: Box<WindowTable> },
}

impl WindowParcel {
    pub fn bytes(&self) -> usize {
        match self {
            WindowParcel::Some { keys, partial, .. } => {
                let sizes = keys.iter().map(|column| column.get_array_memory_size());
                sizes.sum::<usize>() + partial.bytes()
            }
            WindowParcel::Whole { table, .. } => table.bytes(),
        }
    }

    /// All tables of a window are put together in one way: without a look at their distinct values
    /// only if in each of them all rows were scattered.
    pub fn agree(parcels: &mut [WindowParcel]) {
        let tables = || parcels.iter().filter_map(WindowParcel::whole);
        let mixed: HashSet<i64> =
            tables().filter(|(_, table)| !table.is_scattered).map(|(end, _)| end).collect();
        for parcel in parcels {
            if let WindowParcel::Whole { end, table } = parcel {
                table.is_scattered &= !mixed.contains(end);
            }
        }
    }

    fn whole(&self) -> Option<(i64, &WindowTable)> {
        match self {
            WindowParcel::Some { .. } => None,
            WindowParcel::Whole { end, table } => Some((*end, table)),
        }
    }
}

/// Emptied tables, kept for their memory. Partitions that hand tables over whole share them.
#[derive(Clone, Default)]
pub(super) struct Spare {
    tables: Arc<Mutex<Spares<WindowTable>>>,
}

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Spares<WindowTable>> {
        self.tables.lock().expect("nobody panics while it takes a table")
    }

    fn pop(&self) -> Option<WindowTable> {
        self.lock().pop()
    }

    /// Empties a table and keeps it, unless its keys needed far less than its memory.
    fn push(&self, mut table: WindowTable) {
        if !is_oversized(table.keys.capacity(), table.len()) {
            table.clear();
            let bytes = table.bytes();
            self.lock().push(table, bytes);
        }
    }

    pub fn bytes(&self) -> usize {
        self.lock().bytes()
    }
}

impl WindowTable {
    /// `is_scattered` starts as true: it is a statement about all rows so far, and there are none.
    fn new(calls: &Calls) -> Result<Self> {
        Ok(WindowTable {
            keys: KeyTable::new(&calls.key_types)?,
            counts: Vec::new(),
            accumulators: calls.accumulators()?,
            rows: 0,
            has_absorbed: false,
            is_scattered: true,
            tracker: NumberTracker::default(),
        })
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.keys.id_limit()
    }

    /// How many keys it has, or where there are none, how many distinct values.
    pub fn distinct(&self) -> usize {
        match self.keys.has_columns() {
            true => self.len(),
            false => self.accumulators.iter().map(|own| own.distinct_values()).max().unwrap_or(0),
        }
    }

    fn grow(&mut self, calls: &Calls) {
        let groups = self.keys.id_limit();
        if calls.count_rows() {
            self.counts.resize(groups, 0);
        }
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(groups));
    }

    /// Numbers the keys of the rows named, or of all, and makes room for those that are new. `ids`
    /// is overwritten.
    fn intern(
        &mut self,
        calls: &Calls,
        keys: &[ArrayRef],
        (rows, total_rows): (Option<&[u32]>, usize),
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        ids.clear();
        self.keys.intern_rows(keys, rows, total_rows, ids)?;
        self.grow(calls);
        Ok(())
    }

    /// Adds the rows named, or all, to the keys with these numbers.
    fn update(
        &mut self,
        calls: &Calls,
        of: RowsOf<'_>,
        ids: &[u32],
        rows: Option<&[u32]>,
    ) -> Result<()> {
        if let Some(kinds) = of.kinds {
            let states = (&mut self.counts[..], &mut self.accumulators[..]);
            return apply_changes(calls, of, kinds, (ids, rows), states);
        }
        if calls.count_rows() {
            ids.iter().for_each(|&id| self.counts[id as usize] += 1);
        }
        self.rows += ids.len() as u64;
        update_accumulators(&mut self.accumulators, calls, of, ids, rows)
    }

    /// Adds states: the `i`-th group belongs to `ids[i]`.
    fn merge(
        &mut self,
        ids: &[u32],
        counts: &[i64],
        accumulators: &[Box<dyn Accumulator>],
    ) -> Result<()> {
        self.has_absorbed = true;
        self.is_scattered = false;
        self.merge_counts(ids, counts);
        for (own, other) in self.accumulators.iter_mut().zip(accumulators) {
            own.merge(ids, other.as_ref())?;
        }
        Ok(())
    }

    /// Adds the states of another table without keys, to be evaluated. Both have only rows that
    /// were scattered.
    fn merge_apart(&mut self, from: &WindowTable) -> Result<()> {
        self.has_absorbed = true;
        self.merge_counts(&[0], &from.counts);
        for (own, other) in self.accumulators.iter_mut().zip(&from.accumulators) {
            own.merge_apart(&[0], other.as_ref())?;
        }
        Ok(())
    }

    fn merge_counts(&mut self, ids: &[u32], counts: &[i64]) {
        for (&id, &more) in ids.iter().zip(counts) {
            self.counts[id as usize] += more;
        }
    }

    /// Moves the states of these keys out. The keys themselves stay until the table is emptied.
    ///
    /// After this the table still has the keys, but their states are gone: it may only be emptied.
    pub fn take(&mut self, end: i64, ids: Vec<u32>) -> Result<WindowParcel> {
        let keys = self.keys.take_keys(&ids)?;
        let counts = match self.counts.is_empty() {
            true => Vec::new(),
            false => ids.iter().map(|&id| self.counts[id as usize]).collect(),
        };
        let accumulators =
            self.accumulators.iter_mut().map(|own| own.take(&ids)).collect::<Result<_>>()?;
        let partial = Partial { ids, counts, accumulators };
        Ok(WindowParcel::Some { end, keys, partial })
    }

    /// The results of these keys.
    pub fn evaluate(&self, calls: &Calls, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        calls.evaluate(&self.counts, &self.accumulators, ids)
    }

    /// The keys that have rows, where some may be left without any.
    pub fn keys_with_rows(&self) -> Vec<u32> {
        (0..self.len() as u32).filter(|&id| self.counts[id as usize] > 0).collect()
    }

    /// What it knows of these keys.
    pub fn states<'a>(&'a self, ids: &'a [u32]) -> States<'a> {
        States::by_key(ids, &self.counts, &self.accumulators)
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.counts.clear();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
        self.rows = 0;
        self.has_absorbed = false;
        self.is_scattered = true;
        self.tracker = NumberTracker::default();
    }

    pub fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        self.keys.bytes() + self.counts.capacity() * 8 + states + self.tracker.bytes()
    }
}

/// The windows that take rows, by their ends.
pub(super) struct Tables {
    calls: Arc<Calls>,
    open: BTreeMap<i64, WindowTable>,
    spare: Spare,
    ids: Vec<u32>,
    /// Closed windows that the capture under way has yet to read.
    unread: Vec<(i64, WindowTable)>,
    /// Set once there has been a capture.
    tracking: Option<Tracking>,
}

impl Tables {
    pub fn new(calls: Arc<Calls>, spare: Spare) -> Self {
        let (open, ids, unread) = (BTreeMap::new(), Vec::new(), Vec::new());
        Tables { calls, open, spare, ids, unread, tracking: None }
    }

    /// Adds rows to the window with this end. How many keys (or distinct values) it has, and how
    /// many it had before.
    pub fn update(
        &mut self,
        end: i64,
        of: RowsOf<'_>,
        keys: &[ArrayRef],
        rows: Option<&[u32]>,
        is_scattered: bool,
    ) -> Result<(usize, usize)> {
        let table = open_table(&mut self.open, &self.spare, &self.calls, end)?;
        let before = table.distinct();
        table.is_scattered &= is_scattered;
        table.intern(&self.calls, keys, (rows, of.batch.num_rows()), &mut self.ids)?;
        // After `intern`, as new keys need bits of their own, and before the update, as a capture
        // must write what the keys had.
        touch_keys(&mut self.tracking, &self.calls, end, table, &self.ids)?;
        table.update(&self.calls, of, &self.ids, rows)?;
        Ok((table.distinct(), before))
    }

    /// Adds another partition's states.
    pub fn absorb(&mut self, parcel: WindowParcel) -> Result<()> {
        match parcel {
            WindowParcel::Some { end, keys, partial } => {
                open_table(&mut self.open, &self.spare, &self.calls, end)?;
                let rows = partial.ids.len();
                self.merge(end, (&keys, rows), &partial.counts, &partial.accumulators)
            }
            WindowParcel::Whole { end, table } => self.absorb_whole(end, *table),
        }
    }

    /// The first table of a window becomes the own one without a look at its keys.
    fn absorb_whole(&mut self, end: i64, mut table: WindowTable) -> Result<()> {
        if let Entry::Vacant(place) = self.open.entry(end) {
            // What another partition knew of it means nothing here.
            table.tracker = NumberTracker::default();
            place.insert(table);
            return Ok(());
        }
        if let Some(own) = self.open.get_mut(&end)
            && own.is_scattered
            && table.is_scattered
        {
            own.merge_apart(&table)?;
            self.spare.push(table);
            return Ok(());
        }
        let every: Vec<u32> = (0..table.len() as u32).collect();
        let keys = table.keys.take_keys(&every)?;
        self.merge(end, (&keys, every.len()), &table.counts, &table.accumulators)?;
        self.spare.push(table);
        Ok(())
    }

    /// Adds states of these keys to an open window.
    fn merge(
        &mut self,
        end: i64,
        (keys, rows): (&[ArrayRef], usize),
        counts: &[i64],
        accumulators: &[Box<dyn Accumulator>],
    ) -> Result<()> {
        let Some(own) = self.open.get_mut(&end) else { return Ok(()) };
        own.intern(&self.calls, keys, (None, rows), &mut self.ids)?;
        touch_keys(&mut self.tracking, &self.calls, end, own, &self.ids)?;
        own.merge(&self.ids, counts, accumulators)
    }

    /// Begins a capture; one that is under way is read to its end.
    pub fn begin(&mut self, extent: Extent) -> Result<BegunCapture> {
        while self.read_some(usize::MAX)? {}
        let begun = self.tracking.get_or_insert_default().begin(extent);
        for table in self.open.values_mut() {
            let keys = table.len();
            table.tracker.begin(begun.extent, keys, keys, 0);
        }
        Ok(begun)
    }

    /// What is known before a capture of the table with this name.
    pub fn changes(&self, name: &'static str) -> Option<TableChanges> {
        let changed = self.tracking.as_ref()?.is_tracking().then_some(0);
        let none = TableChanges { name, changed, ..Default::default() };
        let add = |sum: TableChanges, table: &WindowTable| TableChanges {
            live: sum.live + table.len() as u64,
            changed: sum.changed.map(|sum| sum + table.tracker.changed()),
            written: sum.written + table.tracker.written(),
            ..sum
        };
        Some(self.open.values().fold(none, add))
    }

    /// Stops tracking changes until the next capture.
    pub fn stop_tracking(&mut self) {
        self.tracking.iter_mut().for_each(Tracking::stop);
        self.open.values_mut().for_each(|table| table.tracker.forget_changes());
    }

    /// True while this capture is under way.
    pub fn is_reading(&self, begun: &BegunCapture) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.is_reading(begun))
    }

    /// Writes some keys to the capture under way that it has not read yet. False once there are
    /// none.
    pub fn read_some(&mut self, most: usize) -> Result<bool> {
        let Some(tracking) = &mut self.tracking else { return Ok(false) };
        // Closed windows first: they only wait for this.
        while let Some((end, table)) = self.unread.last_mut() {
            if read_keys(tracking, &self.calls, *end, table, most)? {
                return Ok(true);
            }
            self.unread.pop().into_iter().for_each(|(_, table)| self.spare.push(table));
        }
        for (&end, table) in self.open.iter_mut().filter(|(_, table)| table.tracker.is_unread()) {
            if read_keys(tracking, &self.calls, end, table, most)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`Tables::read_some`], of a window that has been taken out.
    pub fn read_some_of(&mut self, end: i64, table: &mut WindowTable, most: usize) -> Result<bool> {
        match &mut self.tracking {
            Some(tracking) => read_keys(tracking, &self.calls, end, table, most),
            None => Ok(false),
        }
    }

    /// The states of these keys are about to be moved out of a window that has been taken out.
    pub fn touch(&mut self, end: i64, table: &mut WindowTable, ids: &[u32]) -> Result<()> {
        touch_keys(&mut self.tracking, &self.calls, end, table, ids)
    }

    /// The oldest window, if this watermark closes it.
    pub fn pop_closed(&mut self, watermark: i64) -> Option<(i64, WindowTable)> {
        let entry = self.open.first_entry()?;
        (entry.key().saturating_sub(1) <= watermark).then(|| entry.remove_entry())
    }

    /// Takes a table back whose window is over.
    ///
    /// The table goes through `unread` even where no capture is under way, so that one expression
    /// decides for this table and for those that waited before it.
    pub fn recycle(&mut self, end: i64, table: WindowTable) {
        self.unread.push((end, table));
        let is_read = self.tracking.as_ref().is_some_and(Tracking::is_read);
        let is_over = |(_, table): &mut (i64, WindowTable)| !is_read || !table.tracker.is_unread();
        self.unread.extract_if(.., is_over).for_each(|(_, table)| self.spare.push(table));
    }

    /// Gives back what is kept for later windows, if none is open.
    pub fn rest(&mut self) {
        if self.open.is_empty() {
            self.spare.lock().clear();
        }
    }

    /// How many keys the open windows have, each in each window.
    pub fn keys(&self) -> usize {
        self.open.values().map(WindowTable::len).sum()
    }

    /// The bytes of open windows. What is kept for later ones counts where [`Spare`] belongs to.
    pub fn bytes(&self) -> usize {
        let tables = self.open.values().chain(self.unread.iter().map(|(_, table)| table));
        let tracking = self.tracking.as_ref().map_or(0, Tracking::bytes);
        self.ids.capacity() * 4 + tables.map(WindowTable::bytes).sum::<usize>() + tracking
    }
}

/// These keys of a window are about to change: writes those first that the capture under way has
/// yet to read.
fn touch_keys(
    tracking: &mut Option<Tracking>,
    calls: &Calls,
    end: i64,
    table: &mut WindowTable,
    ids: &[u32],
) -> Result<()> {
    let Some(tracking) = tracking else { return Ok(()) };
    if tracking.is_tracking() {
        table.tracker.grow(table.len());
    } else if !table.tracker.is_unread() {
        return Ok(());
    }
    let tracker = &mut table.tracker;
    let unread: Vec<u32> = ids.iter().copied().filter(|&id| tracker.touch(tracking, id)).collect();
    write_keys(tracking, calls, end, table, &unread)
}

/// Writes some keys of a window that the capture under way has yet to read; false if there are
/// none.
fn read_keys(
    tracking: &mut Tracking,
    calls: &Calls,
    end: i64,
    table: &mut WindowTable,
    most: usize,
) -> Result<bool> {
    let ids = table.tracker.take_unread(most, usize::MAX);
    write_keys(tracking, calls, end, table, &ids)?;
    Ok(!ids.is_empty())
}

fn write_keys(
    tracking: &mut Tracking,
    calls: &Calls,
    end: i64,
    table: &WindowTable,
    ids: &[u32],
) -> Result<()> {
    if !ids.is_empty() && tracking.is_read() {
        let marks = bounds(SliceKey { enter: end, leave: end }, ids.len());
        tracking.write(calls.rows(&table.keys, marks, &table.states(ids))?);
    }
    Ok(())
}

fn open_table<'a>(
    open: &'a mut BTreeMap<i64, WindowTable>,
    spare: &Spare,
    calls: &Calls,
    end: i64,
) -> Result<&'a mut WindowTable> {
    match open.entry(end) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(place) => {
            let table = spare.pop().map_or_else(|| WindowTable::new(calls), Ok)?;
            Ok(place.insert(table))
        }
    }
}
