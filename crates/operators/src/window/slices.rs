//! States by slice and dense key id.
//!
//! A [`Slice`] is a set of columns indexed by key id: how many rows each key has, and one column
//! of states per aggregate. The row count says which keys are there at all, and is COUNT(*) at the
//! same time. [`Slices`] holds the slices that still take rows, the table of their keys, and how
//! many slices (or partial states made from them) refer to each key, so that a key is forgotten
//! one window after the last of them. Emptied slices are kept for their memory.
//!
//! Captures read open slices while rows are processed ([`SliceTable`]); a slice that leaves has
//! been read.
//!
//! # The life of a key
//!
//! Ids index the columns of every slice, so an id may be given to another key only when no slice
//! and no part refers to it. `references` counts them: one for each open slice that has rows of the
//! key, which moves along when the slice becomes a part, and one for each part in `assembly`.
//!
//! ```text
//! intern ──> references > 0 ──> 0: `idle` ──sweep──> `long_idle` ──sweep──> forgotten, id free
//!                  ^                 |                    |
//!                  └──── new rows ───┴────────────────────┘
//! ```
//!
//! A sweep runs after each emitted window. A key survives one whole window without rows, since most
//! keys come again. A key that was used and fell idle again stands in both lists; `idle_since`
//! shows which of the entries is the current one.
//!
//! **Invariants**
//! - `counts[id] > 0` if and only if `id` is in `keys` of the slice, exactly once.
//! - `counts` and the accumulators of a slice may be shorter than the table of keys. `grow` comes
//!   before each update.
//! - While a capture holds `hold_keys`, no id is forgotten: the reader looks keys up by id later.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use thalweg_core::{Bundle, Error, Extent, Result, RowKind};

use super::calls::{Calls, Partial};
use super::calls::{Marks, bounds};
use super::changelog::kinds_of;
use super::judge::SliceKey;
use super::slice_capture::SliceTable;
use crate::aggregate::{Accumulator, RowOrder, UpdateInput};
use crate::capture::tracker::{BegunCapture, Tracking, Unread};
use crate::keys::KeyTable;

/// How many emptied slices are kept.
const SPARE_SLICES: usize = 4;

/// This many rows are counted at a time.
const BLOCK_ROWS: usize = 256;

/// In [`Slices::idle_since`]: the key has not fallen idle, or is forgotten.
const NOT_IDLE: u64 = u64::MAX - 2;

/// Emptied lists of a [`Partial`]: where windows slide often one leaves as another comes, and
/// memory that others had in between would have to be cleared again.
#[derive(Default)]
pub(super) struct Lists {
    ids: Vec<u32>,
    counts: Vec<i64>,
}

/// Columns of states, indexed by key id.
pub(super) struct Slice {
    pub(super) counts: Vec<i64>,
    /// The keys that have rows, in the order in which they came.
    pub(super) keys: Vec<u32>,
    pub(super) accumulators: Vec<Box<dyn Accumulator>>,
    /// Keys that a capture has yet to read.
    pub(super) unread: Unread,
}

/// A bundle's columns, and where it stands in arrival order.
#[derive(Clone, Copy)]
pub(super) struct RowsOf<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) order: RowOrder,
    /// What each row of the bundle does, where rows may be retracted.
    pub(super) kinds: Option<&'a [RowKind]>,
}

impl<'a> RowsOf<'a> {
    /// The rows of a bundle.
    pub fn new(calls: &Calls, bundle: &'a Bundle) -> Self {
        let kinds = kinds_of(calls, bundle);
        RowsOf { batch: &bundle.batch, order: RowOrder::of(bundle), kinds }
    }
}

impl Slice {
    pub fn new(calls: &Calls) -> Result<Self> {
        Ok(Slice {
            counts: Vec::new(),
            keys: Vec::new(),
            accumulators: calls.accumulators()?,
            unread: Unread::default(),
        })
    }

    pub fn grow(&mut self, groups: usize) {
        if self.counts.len() < groups {
            self.counts.resize(groups, 0);
            self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(groups));
        }
    }

    /// Adds rows. Keys that are new to the slice get one more reference.
    pub fn update(
        &mut self,
        calls: &Calls,
        of: RowsOf<'_>,
        ids: &[u32],
        rows: Option<&[u32]>,
        references: &mut [u32],
    ) -> Result<()> {
        self.grow(references.len());
        let before = self.keys.len();
        // In blocks, since `count` reserves room for as many new keys as it has rows.
        ids.chunks(BLOCK_ROWS).for_each(|ids| self.count(ids));
        self.keys[before..].iter().for_each(|&id| references[id as usize] += 1);
        update_accumulators(&mut self.accumulators, calls, of, ids, rows)
    }

    /// One row more for each of these keys. Whether a key is new is no branch: where a slice is
    /// short most are, and not those that could be foretold.
    fn count(&mut self, ids: &[u32]) {
        let mut end = self.keys.len();
        self.keys.resize(end + ids.len(), 0);
        let (keys, counts) = (&mut self.keys[..], &mut self.counts[..]);
        for &id in ids {
            let count = &mut counts[id as usize];
            keys[end] = id;
            end += usize::from(*count == 0);
            *count += 1;
        }
        self.keys.truncate(end);
    }

    /// Adds states. Keys that are new to the slice are passed to `new_key`.
    pub fn merge(&mut self, from: &Partial, mut new_key: impl FnMut(u32)) -> Result<()> {
        for (&id, &more) in from.ids.iter().zip(&from.counts) {
            let count = &mut self.counts[id as usize];
            if *count == 0 {
                self.keys.push(id);
                new_key(id);
            }
            *count += more;
        }
        for (own, other) in self.accumulators.iter_mut().zip(&from.accumulators) {
            own.merge(&from.ids, other.as_ref())?;
        }
        Ok(())
    }

    /// Takes states out that were merged before, and drops keys without rows; says whether there
    /// were any.
    ///
    /// Counts cannot fall below zero: only a part that was merged is subtracted, and once.
    pub fn subtract(&mut self, from: &Partial) -> Result<bool> {
        let mut is_any_gone = false;
        for (&id, &fewer) in from.ids.iter().zip(&from.counts) {
            let count = &mut self.counts[id as usize];
            *count -= fewer;
            is_any_gone |= *count == 0;
        }
        for (own, other) in self.accumulators.iter_mut().zip(&from.accumulators) {
            own.subtract(&from.ids, other.as_ref())?;
        }
        // Of a window that slides often, most keys have rows in other slices, and there are many of
        // them.
        if is_any_gone {
            let counts = &self.counts;
            self.keys.retain(|&id| counts[id as usize] > 0);
        }
        Ok(is_any_gone)
    }

    /// Moves the states of these keys out; the list of keys is left to the caller.
    pub fn take(&mut self, ids: Vec<u32>) -> Result<Partial> {
        self.take_into(ids, Vec::new())
    }

    /// Moves everything out, into lists that are empty.
    pub fn take_all(&mut self, lists: Lists) -> Result<Partial> {
        let keys = std::mem::replace(&mut self.keys, lists.ids);
        self.take_into(keys, lists.counts)
    }

    fn take_into(&mut self, ids: Vec<u32>, mut counts: Vec<i64>) -> Result<Partial> {
        counts.extend(ids.iter().map(|&id| std::mem::take(&mut self.counts[id as usize])));
        let accumulators =
            self.accumulators.iter_mut().map(|own| own.take(&ids)).collect::<Result<_>>()?;
        Ok(Partial { ids, counts, accumulators })
    }

    /// Empties the slice and says which keys it had.
    pub fn clear(&mut self) -> Vec<u32> {
        let keys = std::mem::take(&mut self.keys);
        keys.iter().for_each(|&id| self.counts[id as usize] = 0);
        self.accumulators.iter_mut().for_each(|own| own.reset(&keys));
        keys
    }

    pub fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        self.counts.capacity() * 8 + self.keys.capacity() * 4 + states + self.unread.bytes()
    }
}

/// Adds rows to each aggregate, through its FILTER.
pub(super) fn update_accumulators(
    accumulators: &mut [Box<dyn Accumulator>],
    calls: &Calls,
    of: RowsOf<'_>,
    ids: &[u32],
    rows: Option<&[u32]>,
) -> Result<()> {
    pass_rows(accumulators, calls, of, (ids, rows), |states, input| states.update(input))
}

/// Passes rows to each aggregate, through its FILTER.
pub(super) fn pass_rows(
    accumulators: &mut [Box<dyn Accumulator>],
    calls: &Calls,
    of: RowsOf<'_>,
    (ids, rows): (&[u32], Option<&[u32]>),
    pass: impl Fn(&mut dyn Accumulator, &UpdateInput<'_>) -> Result<()>,
) -> Result<()> {
    for (call, accumulator) in calls.calls.iter().zip(accumulators) {
        let argument = call.argument.map(|column| of.batch.column(column));
        let order = of.order;
        let Some(filter) = call.filter else {
            pass(accumulator.as_mut(), &UpdateInput { ids, rows, argument, order })?;
            continue;
        };
        let filter = of
            .batch
            .column(filter)
            .as_boolean_opt()
            .ok_or_else(|| Error::internal("the column of a FILTER is not BOOLEAN"))?;
        let (ids, rows) = accepted(filter, ids, rows);
        if !ids.is_empty() {
            let input = UpdateInput { ids: &ids, rows: Some(&rows), argument, order };
            pass(accumulator.as_mut(), &input)?;
        }
    }
    Ok(())
}

/// The rows for which the filter is TRUE.
fn accepted(filter: &BooleanArray, ids: &[u32], rows: Option<&[u32]>) -> (Vec<u32>, Vec<u32>) {
    let nulls = filter.nulls();
    ids.iter()
        .enumerate()
        .map(|(place, &id)| (id, rows.map_or(place as u32, |rows| rows[place])))
        .filter(|&(_, row)| {
            let row = row as usize;
            filter.values().value(row) && nulls.is_none_or(|nulls| nulls.is_valid(row))
        })
        .unzip()
}

/// The slices that take rows, and their keys.
pub(super) struct Slices {
    pub(super) calls: Arc<Calls>,
    pub(super) keys: KeyTable,
    references: Vec<u32>,
    /// Keys that nothing refers to since the last sweep, and since the one before.
    idle: Vec<u32>,
    long_idle: Vec<u32>,
    /// The number of sweeps when a key fell idle.
    idle_since: Vec<u64>,
    sweeps: u64,
    forgotten: u64,
    /// A capture holds the other end while keys are not to be forgotten.
    held: Weak<()>,
    open: BTreeMap<SliceKey, Slice>,
    spare: Vec<Slice>,
    spare_lists: Vec<Lists>,
    ids: Vec<u32>,
    tracking: Tracking,
}

impl Slices {
    pub fn new(calls: Arc<Calls>) -> Result<Self> {
        Ok(Slices {
            keys: KeyTable::new(&calls.key_types)?,
            calls,
            references: Vec::new(),
            idle: Vec::new(),
            long_idle: Vec::new(),
            idle_since: Vec::new(),
            sweeps: 0,
            forgotten: 0,
            held: Weak::new(),
            open: BTreeMap::new(),
            spare: Vec::new(),
            spare_lists: Vec::new(),
            ids: Vec::new(),
            tracking: Tracking::default(),
        })
    }

    /// Interns the keys of the rows named (or of all); the ids are in [`Slices::ids`] order.
    pub fn intern(
        &mut self,
        keys: &[ArrayRef],
        rows: Option<&[u32]>,
        total_rows: usize,
    ) -> Result<()> {
        self.ids.clear();
        self.keys.intern_rows(keys, rows, total_rows, &mut self.ids)?;
        self.references.resize(self.keys.id_limit(), 0);
        self.idle_since.resize(self.keys.id_limit(), NOT_IDLE);
        Ok(())
    }

    /// Adds rows to a slice: those interned last, from one place to another. How many keys were new
    /// to it.
    pub fn update(
        &mut self,
        key: SliceKey,
        of: RowsOf<'_>,
        range: std::ops::Range<usize>,
        rows: Option<&[u32]>,
    ) -> Result<usize> {
        let slice = open_slice(&mut self.open, &mut self.spare, &self.calls, key)?;
        let before = slice.keys.len();
        let ids = &self.ids[range];
        slice_table(&self.calls, &self.keys, key).touch(&mut self.tracking, slice, ids)?;
        slice.update(&self.calls, of, ids, rows, &mut self.references)?;
        Ok(slice.keys.len() - before)
    }

    /// Adds another partition's states, whose keys are these columns.
    pub fn absorb(&mut self, key: SliceKey, keys: &[ArrayRef], mut from: Partial) -> Result<()> {
        self.intern(keys, None, from.counts.len())?;
        from.ids.clone_from(&self.ids);
        let slice = open_slice(&mut self.open, &mut self.spare, &self.calls, key)?;
        slice_table(&self.calls, &self.keys, key).touch(&mut self.tracking, slice, &from.ids)?;
        slice.grow(self.references.len());
        let references = &mut self.references;
        slice.merge(&from, |id| references[id as usize] += 1)
    }

    /// Gives another partition's states, whose keys are these columns, ids of this one, and counts
    /// a reference to each key.
    pub fn adopt(&mut self, keys: &[ArrayRef], mut from: Partial) -> Result<Partial> {
        self.intern(keys, None, from.counts.len())?;
        from.ids.clone_from(&self.ids);
        from.ids.iter().for_each(|&id| self.references[id as usize] += 1);
        Ok(from)
    }

    /// Begins a capture of the open slices; one that is under way is read to its end.
    pub fn begin_capture(&mut self) -> Result<BegunCapture> {
        while self.read_open(usize::MAX)? {}
        for slice in self.open.values_mut() {
            slice.unread = Unread::all(slice.counts.len());
        }
        Ok(self.tracking.begin(Extent::Full))
    }

    /// Writes this capture some keys of open slices; false once all have been captured.
    pub fn read_some(&mut self, begun: &BegunCapture, most: usize) -> Result<bool> {
        Ok(self.tracking.is_reading(begun) && self.read_open(most)?)
    }

    fn read_open(&mut self, most: usize) -> Result<bool> {
        for (&key, slice) in &mut self.open {
            let slice_table = slice_table(&self.calls, &self.keys, key);
            if slice_table.read_some(&mut self.tracking, slice, most)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps an emptied slice for its memory.
    pub fn recycle(&mut self, mut slice: Slice) {
        debug_assert!(slice.keys.is_empty(), "only emptied slices are used again");
        slice.unread = Unread::default();
        // One that was sized for many more keys than live now would hold on to their memory.
        let oversized = slice.counts.len() > 1024 && slice.counts.len() / 64 > self.keys.len();
        if self.spare.len() < SPARE_SLICES && !oversized {
            self.spare.push(slice);
        }
    }

    /// Lists for what is taken out of a slice.
    pub fn lists(&mut self) -> Lists {
        self.spare_lists.pop().unwrap_or_default()
    }

    /// The states of a slice have left their last window: one reference fewer to each of their
    /// keys, and the lists are used again, unless a capture still reads them.
    pub fn part_left(&mut self, states: Arc<Partial>) {
        self.release(&states.ids);
        let Some(Partial { mut ids, mut counts, .. }) = Arc::into_inner(states) else { return };
        // Those of a slice with many keys would hold on to memory that the next ones have no use
        // for.
        let oversized = ids.capacity() > 1024 && ids.capacity() / 4 > ids.len();
        if self.spare_lists.len() < SPARE_SLICES && !oversized {
            ids.clear();
            counts.clear();
            self.spare_lists.push(Lists { ids, counts });
        }
    }

    /// One reference fewer to each of these keys.
    pub fn release(&mut self, ids: &[u32]) {
        for &id in ids {
            let references = &mut self.references[id as usize];
            *references -= 1;
            if *references == 0 {
                self.idle.push(id);
                self.idle_since[id as usize] = self.sweeps;
            }
        }
    }

    /// Forgets keys that have been idle for a whole window. Most keys come again in the next one,
    /// and to forget and learn them each time would cost more than counting their rows.
    ///
    /// It does nothing while a capture reads parts. The lists then grow by what falls idle
    /// meanwhile, and the next sweep that runs catches up.
    pub fn sweep(&mut self) {
        if self.held.strong_count() > 0 {
            return;
        }
        self.sweeps += 1;
        self.long_idle.retain(|&id| {
            let since = &mut self.idle_since[id as usize];
            // A key that was used and fell idle again meanwhile stands in the younger list too.
            let goes = self.references[id as usize] == 0 && *since + 2 == self.sweeps;
            if goes {
                *since = NOT_IDLE;
            }
            goes
        });
        self.keys.release_all(&self.long_idle);
        self.forgotten += self.long_idle.len() as u64;
        self.long_idle.clear();
        std::mem::swap(&mut self.idle, &mut self.long_idle);
    }

    /// No key is forgotten, and no number given to another, while what is returned is there.
    pub fn hold_keys(&mut self) -> Arc<()> {
        let held = Arc::new(());
        self.held = Arc::downgrade(&held);
        held
    }

    /// How many keys have been forgotten so far; their ids may have been given to others.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The oldest slice, if the first of its windows ends at or before this time.
    ///
    /// Slices come by (enter, leave). A slice that a capture has yet to read is written first, in
    /// full: from here on nobody tracks it as an open slice.
    pub fn pop_entered(&mut self, end: i64) -> Result<Option<(SliceKey, Slice)>> {
        let entry = self.open.first_entry().filter(|entry| entry.key().enter <= end);
        let Some((key, mut slice)) = entry.map(|entry| entry.remove_entry()) else {
            return Ok(None);
        };
        slice_table(&self.calls, &self.keys, key).finish(&mut self.tracking, &mut slice)?;
        Ok(Some((key, slice)))
    }

    /// The end of the first window that an open slice is part of.
    pub fn first_end(&self) -> Option<i64> {
        self.open.first_key_value().map(|(key, _)| key.enter)
    }

    /// How many keys are known, those included that have no slice for the moment.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    pub fn bytes(&self) -> usize {
        let slices = self.open.values().chain(&self.spare).map(Slice::bytes).sum::<usize>();
        let lists = self.idle.capacity() + self.long_idle.capacity() + self.ids.capacity();
        let written = self.tracking.bytes();
        let spare = self.spare_lists.iter();
        let lists =
            lists + spare.map(|of| of.ids.capacity() + 2 * of.counts.capacity()).sum::<usize>();
        self.keys.bytes() + self.references.capacity() * 12 + lists * 4 + slices + written
    }
}

/// How an open slice is captured.
fn slice_table<'a>(
    calls: &'a Calls,
    keys: &'a KeyTable,
    key: SliceKey,
) -> SliceTable<'a, impl Fn(usize) -> Marks + use<>> {
    SliceTable { calls, keys, marks: move |rows| bounds(key, rows) }
}

fn open_slice<'a>(
    open: &'a mut BTreeMap<SliceKey, Slice>,
    spare: &mut Vec<Slice>,
    calls: &Calls,
    key: SliceKey,
) -> Result<&'a mut Slice> {
    use std::collections::btree_map::Entry;
    match open.entry(key) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(place) => {
            let slice = spare.pop().map_or_else(|| Slice::new(calls), Ok)?;
            Ok(place.insert(slice))
        }
    }
}
