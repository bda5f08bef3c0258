//! States of windows that share no slice: one table of keys and states for each open window.
//!
//! A [`WindowTable`] numbers the keys that a window has from 0 and keeps a column of states per
//! aggregate. Nothing is ever taken out of it: when the window has been emitted it is emptied as a
//! whole, which costs far less than forgetting key by key, and the memory serves a later window
//! unless it is far more than that needs. So a key costs nothing beyond the windows it occurs in,
//! and a query without aggregates keeps a set of keys and no more.
//!
//! What a window has can be enumerated: windows by end, keys by number.
//!
//! It does not say which window a row belongs to, nor when a window is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{Array, ArrayRef};
use thalweg_core::Result;

use super::slices::{Calls, Partial, RowsOf, update_accumulators};
use super::snapshot::States;
use crate::aggregate::Accumulator;
use crate::keys::KeyTable;

/// How many emptied tables are kept.
const SPARE_TABLES: usize = 4;

/// A table for fewer keys is kept whatever it was used for.
const SMALL_TABLE_KEYS: usize = 1024;

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
}

/// States of a window on their way to the partition that owns their keys.
pub(super) enum WindowParcel {
    /// Those of some keys.
    Some { end: i64, keys: Vec<ArrayRef>, partial: Partial },
    /// A table all of whose keys have the same owner.
    Whole { end: i64, table: WindowTable },
}

impl WindowParcel {
    pub(super) fn bytes(&self) -> usize {
        match self {
            WindowParcel::Some { keys, partial, .. } => {
                let sizes = keys.iter().map(|column| column.get_array_memory_size());
                sizes.sum::<usize>() + partial.bytes()
            }
            WindowParcel::Whole { table, .. } => table.bytes(),
        }
    }
}

/// Emptied tables, kept for their memory. Partitions that hand tables over whole share them.
#[derive(Clone, Default)]
pub(super) struct Spare {
    tables: Arc<Mutex<Vec<WindowTable>>>,
}

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<WindowTable>> {
        self.tables.lock().expect("nobody panics while it takes a table")
    }

    fn pop(&self) -> Option<WindowTable> {
        self.lock().pop()
    }

    /// Empties a table and keeps it, unless its keys needed far less than its memory.
    fn push(&self, mut table: WindowTable) {
        let capacity = table.keys.capacity();
        let is_oversized = capacity > SMALL_TABLE_KEYS && capacity / 8 > table.len();
        let mut tables = self.lock();
        if tables.len() < SPARE_TABLES && !is_oversized {
            table.clear();
            tables.push(table);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.lock().iter().map(WindowTable::bytes).sum()
    }
}

impl WindowTable {
    fn new(calls: &Calls) -> Result<Self> {
        Ok(WindowTable {
            keys: KeyTable::new(&calls.key_types)?,
            counts: Vec::new(),
            accumulators: calls.accumulators()?,
            rows: 0,
            has_absorbed: false,
        })
    }

    /// How many keys it has.
    pub(super) fn len(&self) -> usize {
        self.keys.id_limit()
    }

    fn grow(&mut self, calls: &Calls) {
        let groups = self.keys.id_limit();
        if calls.count_rows() {
            self.counts.resize(groups, 0);
        }
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(groups));
    }

    /// Adds the rows named, or all; `keys` are their keys. `ids` is overwritten.
    fn update(
        &mut self,
        calls: &Calls,
        of: RowsOf<'_>,
        keys: &[ArrayRef],
        rows: Option<&[u32]>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        ids.clear();
        self.keys.intern_rows(keys, rows, of.batch.num_rows(), ids)?;
        self.grow(calls);
        if calls.count_rows() {
            ids.iter().for_each(|&id| self.counts[id as usize] += 1);
        }
        self.rows += ids.len() as u64;
        update_accumulators(&mut self.accumulators, calls, of, ids, rows)
    }

    /// Adds states of the keys in these columns.
    fn absorb(
        &mut self,
        calls: &Calls,
        keys: &[ArrayRef],
        from: &Partial,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        ids.clear();
        self.keys.intern_rows(keys, None, from.ids.len(), ids)?;
        self.grow(calls);
        self.merge(ids, &from.counts, &from.accumulators)
    }

    /// Adds states: the `i`-th group belongs to `ids[i]`.
    fn merge(
        &mut self,
        ids: &[u32],
        counts: &[i64],
        accumulators: &[Box<dyn Accumulator>],
    ) -> Result<()> {
        self.has_absorbed = true;
        for (&id, &more) in ids.iter().zip(counts) {
            self.counts[id as usize] += more;
        }
        for (own, other) in self.accumulators.iter_mut().zip(accumulators) {
            own.merge(ids, other.as_ref())?;
        }
        Ok(())
    }

    /// Moves the states of these keys out. The keys themselves stay until the table is emptied.
    pub(super) fn take(&mut self, end: i64, ids: Vec<u32>) -> Result<WindowParcel> {
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
    pub(super) fn evaluate(&self, calls: &Calls, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        calls.evaluate(&self.counts, &self.accumulators, ids)
    }

    /// What it knows of these keys.
    pub(super) fn states<'a>(&'a self, ids: &'a [u32]) -> States<'a> {
        States::by_key(ids, &self.counts, &self.accumulators)
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.counts.clear();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
        self.rows = 0;
        self.has_absorbed = false;
    }

    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        self.keys.bytes() + self.counts.capacity() * 8 + states
    }
}

/// The windows that take rows, by their ends.
pub(super) struct Tables {
    calls: Arc<Calls>,
    open: BTreeMap<i64, WindowTable>,
    spare: Spare,
    ids: Vec<u32>,
}

impl Tables {
    pub(super) fn new(calls: Arc<Calls>, spare: Spare) -> Self {
        Tables { calls, open: BTreeMap::new(), spare, ids: Vec::new() }
    }

    /// Adds rows to the window with this end. How many keys it has, and how many it had before.
    pub(super) fn update(
        &mut self,
        end: i64,
        of: RowsOf<'_>,
        keys: &[ArrayRef],
        rows: Option<&[u32]>,
    ) -> Result<(usize, usize)> {
        let table = open_table(&mut self.open, &self.spare, &self.calls, end)?;
        let before = table.len();
        table.update(&self.calls, of, keys, rows, &mut self.ids)?;
        Ok((table.len(), before))
    }

    /// Adds another partition's states.
    pub(super) fn absorb(&mut self, parcel: WindowParcel) -> Result<()> {
        match parcel {
            WindowParcel::Some { end, keys, partial } => {
                let table = open_table(&mut self.open, &self.spare, &self.calls, end)?;
                table.absorb(&self.calls, &keys, &partial, &mut self.ids)
            }
            WindowParcel::Whole { end, table } => self.absorb_whole(end, table),
        }
    }

    fn absorb_whole(&mut self, end: i64, table: WindowTable) -> Result<()> {
        let Some(own) = self.open.get_mut(&end) else {
            self.open.insert(end, table);
            return Ok(());
        };
        let every: Vec<u32> = (0..table.len() as u32).collect();
        let keys = table.keys.take_keys(&every)?;
        self.ids.clear();
        own.keys.intern_rows(&keys, None, every.len(), &mut self.ids)?;
        own.grow(&self.calls);
        own.merge(&self.ids, &table.counts, &table.accumulators)?;
        self.spare.push(table);
        Ok(())
    }

    /// The open windows, by their ends.
    pub(super) fn windows(&self) -> impl Iterator<Item = (i64, &WindowTable)> {
        self.open.iter().map(|(&end, table)| (end, table))
    }

    /// The oldest window, if this watermark closes it.
    pub(super) fn pop_closed(&mut self, watermark: i64) -> Option<(i64, WindowTable)> {
        let entry = self.open.first_entry()?;
        (entry.key().saturating_sub(1) <= watermark).then(|| entry.remove_entry())
    }

    /// Takes a table back whose window is over.
    pub(super) fn recycle(&mut self, table: WindowTable) {
        self.spare.push(table);
    }

    /// Gives back what is kept for later windows, if none is open.
    pub(super) fn rest(&mut self) {
        if self.open.is_empty() {
            self.spare.lock().clear();
        }
    }

    /// The bytes of open windows. What is kept for later ones counts where [`Spare`] belongs to.
    pub(super) fn bytes(&self) -> usize {
        let tables = self.open.values().map(WindowTable::bytes).sum::<usize>();
        self.ids.capacity() * 4 + tables
    }
}

fn open_table<'a>(
    open: &'a mut BTreeMap<i64, WindowTable>,
    spare: &Spare,
    calls: &Calls,
    end: i64,
) -> Result<&'a mut WindowTable> {
    use std::collections::btree_map::Entry;
    match open.entry(end) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(place) => {
            let table = spare.pop().map_or_else(|| WindowTable::new(calls), Ok)?;
            Ok(place.insert(table))
        }
    }
}
