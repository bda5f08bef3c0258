//! Windows from slices, oldest first.
//!
//! A slice enters with the first window that it is part of and leaves after the last. What is in
//! the current window is kept in one of four ways:
//!
//! - tumbling: the slice *is* the window;
//! - cumulating, and hopping over invertible aggregates: a running state, to which slices are
//!   added as they enter; cumulating windows empty it at their maximum size, hopping ones subtract
//!   what leaves;
//! - hopping over other aggregates: the [`Tree`];
//! - hopping over aggregates that depend on the order of rows, where the sequence is promised:
//!   each window adds its slices up again, oldest first. That costs a merge per slice and window,
//!   and its rounding errors are those of one thread.
//!
//! Windows without rows are passed over: while the current window has rows the next one follows a
//! step later, else it is the first that any slice enters. A gap of years costs nothing.
//!
//! A window is emitted in chunks; between chunks the work can be interrupted and taken up again.
//!
//! What has entered a hopping window stands in [`WindowPart`]s, which never change: a capture
//! shares them and reads them later, and the next one writes only those that came since. What has
//! entered a cumulating one is read later too, and captured before it changes ([`SliceTable`]).
//!
//! # Which way for which aggregates
//!
//! | aggregates | overlap | way | merges per window, `s` slices |
//! |---|---|---|---|
//! | any | none, or `CUMULATE` | `Current::Slice` | 1 |
//! | all invertible | `HOP` | `Current::Running` | 1 added, 1 subtracted |
//! | some not exact, ordered contract | `HOP` | `Current::InOrder` | `s` |
//! | all others (MIN, MAX) | `HOP` | `Current::Tree` | `log4 s` levels |
//!
//! Doubles are why `InOrder` exists: sums in a tree round differently from sums in the order of
//! rows, and where a sequence is promised the result must not depend on how slices are combined.
//!
//! # A window's steps
//!
//! `enter` (slices with `enter <= end`) → `add_up` → `sort_groups` → `choose_groups` → `emit` in
//! chunks → `leave` (parts with `leave <= end`) → `sweep`. `emitting` remembers the place where
//! time was up; between `enter` and `leave` of one window nothing else changes what it consists of.
//!
//! **Invariants**
//! - Windows leave by ascending end. `last_end` never falls.
//! - Each part in `leaving` holds one reference to each of its keys, released when it leaves.
//! - What a window has is never captured between `enter` and `leave`: snapshots are taken between
//!   watermarks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_core::{Error, Extent, Output, Place, Progress, Result};

use super::most_rows::MostRows;
use super::output::WindowRows;
use super::shared::chunk_end;
use crate::aggregate::Accumulator;
use crate::capture::tracker::{BegunCapture, Tracking, Unread};
use crate::keys::CanonicalOrder;

use super::calls::Marks;
use super::calls::Partial;
use super::parts::{PartsSince, WindowPart, WindowParts};
use super::slice_capture::SliceTable;
use super::slices::{Slice, Slices};
use super::snapshot::part_marks;
use super::spec::WindowSpec;
use super::top::TopChooser;
use super::tree::Tree;

/// What the current window consists of.
///
/// Which variant is used never changes while the operator runs: it follows from the kind of window,
/// the aggregates and the contract (see the module header).
enum Current {
    /// Tumbling: one slice. Cumulating: all so far. `held` are the references to release.
    Slice { slice: Slice, held: Vec<u32> },
    /// Hopping, by subtraction: what leaves, by the end of its last window.
    Running { slice: Slice, leaving: BTreeMap<i64, Vec<WindowPart>> },
    /// Hopping, by the tree: its leaf, and the references to release, by the end of the last
    /// window.
    Tree { tree: Tree, leaving: BTreeMap<i64, (WindowPart, Vec<u32>)> },
    /// Hopping, in order: the slices, oldest first, and how many of them `total` holds.
    InOrder { slices: Vec<WindowPart>, total: Slice, added: usize },
}

/// How the slices of hopping windows become windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combining {
    /// What leaves is subtracted.
    Subtract,
    /// In a tree of partial states.
    Tree,
    /// Oldest first, for each window again.
    InOrder,
}

/// Puts windows together and emits them.
pub(super) struct Assembly {
    spec: WindowSpec,
    current: Current,
    /// The end of the window emitted last.
    last_end: i64,
    /// A window that is being emitted: its end, and how many rows are out.
    emitting: Option<(i64, usize)>,
    /// Set in ordered contracts.
    canonical: Option<CanonicalOrder>,
    /// Set where only the groups with most rows are wanted, of states that are subtracted.
    most_rows: Option<MostRows>,
    sorted: Sorted,
    /// Of the window that is being emitted, where not all groups are wanted: the places of those
    /// that are.
    chosen: Option<Vec<u32>>,
    parts: WindowParts,
    /// What the parts of the current window take, added up as they come and go: there may be
    /// thousands, and the memory is asked for with each bundle.
    part_bytes: usize,
    tracking: Tracking,
    /// In the capture that the reader reads for, the end of the last window of what has entered.
    read_leave: i64,
}

/// What the window that leaves next has so far.
pub(super) enum Entered {
    /// States that change with each slice ([`Assembly::begin_running`]).
    Changing,
    /// Parts that never change, in the order in which they were added up.
    Parts(Vec<WindowPart>),
}

/// The groups of a window.
struct Groups<'a> {
    ids: &'a [u32],
    counts: &'a [i64],
    accumulators: &'a [Box<dyn Accumulator>],
    /// True where states stand in the order of `ids`, and not at the places that these say.
    is_dense: bool,
}

/// The canonical order of the groups of the window that is being emitted. Windows that slide often
/// have the groups of the one before, and then the order stays.
#[derive(Default)]
struct Sorted {
    /// Places among the groups.
    places: Vec<u32>,
    /// The groups, as they stood.
    groups: Vec<u32>,
    /// How many keys had been forgotten: since then a number may mean another key.
    forgotten: u64,
}

impl Assembly {
    pub fn new(
        spec: WindowSpec,
        slices: &Slices,
        combining: Combining,
        canonical: Option<CanonicalOrder>,
    ) -> Result<Self> {
        let slice = Slice::new(&slices.calls)?;
        let current = match (spec.overlaps(), combining) {
            (None, _) => Current::Slice { slice, held: Vec::new() },
            (Some(_), Combining::Subtract) => Current::Running { slice, leaving: BTreeMap::new() },
            (Some(_), Combining::InOrder) => {
                Current::InOrder { slices: Vec::new(), total: slice, added: 0 }
            }
            (Some(most), Combining::Tree) => {
                let tree = Tree::new(&slices.calls, most + 1)?;
                Current::Tree { tree, leaving: BTreeMap::new() }
            }
        };
        Ok(Assembly {
            spec,
            current,
            last_end: i64::MIN,
            emitting: None,
            canonical,
            most_rows: None,
            sorted: Sorted::default(),
            chosen: None,
            parts: WindowParts::default(),
            part_bytes: 0,
            tracking: Tracking::default(),
            read_leave: i64::MIN,
        })
    }

    /// The same, of which no more than what this chooses is wanted of each window.
    pub fn with_top(mut self, top: Option<&TopChooser>, slices: &Slices) -> Self {
        let is_running = matches!(self.current, Current::Running { .. });
        if let (Some(top), Some(result), None, true) =
            (top, slices.calls.row_count(), &self.canonical, is_running)
        {
            let column = slices.calls.key_types.len() + result;
            self.most_rows = top.of_most_rows(column).map(MostRows::new);
        }
        self
    }

    /// Emits every window that this watermark (in the windows' own time) closes.
    pub fn advance(
        &mut self,
        watermark: i64,
        slices: &mut Slices,
        rows: &mut WindowRows<'_>,
        output: &mut Output,
    ) -> Result<Progress> {
        loop {
            let (end, from) = match self.emitting.take() {
                Some(unfinished) => unfinished,
                None => {
                    let Some(end) = self.next_end(slices) else { return Ok(Progress::Done) };
                    if end.saturating_sub(1) > watermark {
                        return Ok(Progress::Done);
                    }
                    self.enter(end, slices)?;
                    (end, 0)
                }
            };
            // May stop between two slices: a window of many slices must not keep the worker longer
            // than a call may take. `from` is still 0 then, and the window is sorted after the last
            // slice.
            if self.add_up(slices, output)? == Progress::More {
                self.emitting = Some((end, from));
                return Ok(Progress::More);
            }
            if from == 0 {
                self.sort_groups(slices)?;
                self.chosen = None;
                self.chosen = self.choose_groups(slices, rows.top)?;
            }
            let to = self.emit(end, from, slices, rows, output)?;
            if let Some(to) = to {
                self.emitting = Some((end, to));
            } else {
                self.leave(end, slices)?;
                slices.sweep();
                self.last_end = end;
            }
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    /// The end of the next window with rows.
    ///
    /// Slices that wait cannot belong to an earlier window than the next step: rows that would are
    /// late for it, and enter with the first window that is open for them.
    fn next_end(&self, slices: &Slices) -> Option<i64> {
        self.next_end_of_entered().or_else(|| slices.first_end())
    }

    fn has_entered(&self) -> bool {
        match &self.current {
            Current::Slice { slice, .. } | Current::Running { slice, .. } => !slice.keys.is_empty(),
            Current::Tree { leaving, .. } => !leaving.is_empty(),
            Current::InOrder { slices, .. } => !slices.is_empty(),
        }
    }

    /// Adds the slices that are part of the window with this end, and of none before.
    fn enter(&mut self, end: i64, slices: &mut Slices) -> Result<()> {
        while let Some((key, mut entering)) = slices.pop_entered(end)? {
            match &mut self.current {
                Current::Slice { slice, held } if slice.keys.is_empty() => {
                    std::mem::swap(slice, &mut entering);
                    held.extend_from_slice(&slice.keys);
                }
                _ => self.put(key.leave, entering.take_all(slices.lists())?, slices)?,
            }
            slices.recycle(entering);
        }
        self.settle()
    }

    /// Adds states of which the last window has this end. They come by the ends of the first and
    /// the last window that they are part of.
    fn put(&mut self, leave: i64, partial: Partial, slices: &Slices) -> Result<()> {
        let groups = slices.keys.id_limit();
        match &mut self.current {
            Current::Slice { slice, held } => {
                let slice_table = slice_table(slices, self.read_leave);
                slice_table.touch(&mut self.tracking, slice, &partial.ids)?;
                slice.grow(groups);
                slice.merge(&partial, |_| ())?;
                held.extend_from_slice(&partial.ids);
            }
            Current::Running { slice, leaving } => {
                slice.grow(groups);
                slice.merge(&partial, |_| ())?;
                if let Some(most_rows) = &mut self.most_rows {
                    most_rows.raised(&partial.ids, slice);
                }
                self.part_bytes += partial.bytes();
                leaving.entry(leave).or_default().push(self.parts.part(leave, Arc::new(partial)));
            }
            Current::Tree { tree, leaving } => {
                let mut ids = partial.ids.clone();
                let leaf = tree.add(self.spec.ends().index(leave), partial, groups)?;
                if let Some((before, before_ids)) = leaving.remove(&leave) {
                    self.parts.replace(&before);
                    self.part_bytes -= ids_bytes(&before_ids);
                    ids.extend(before_ids);
                }
                self.part_bytes += ids_bytes(&ids);
                leaving.insert(leave, (self.parts.part(leave, leaf), ids));
            }
            Current::InOrder { slices: parts, .. } => {
                self.part_bytes += partial.bytes();
                parts.push(self.parts.part(leave, Arc::new(partial)));
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        match &mut self.current {
            Current::Tree { tree, .. } => tree.settle(),
            _ => Ok(()),
        }
    }

    /// What the window that leaves next has so far. The order of groups is found again by whoever
    /// takes it back, and so are the sums over slices.
    ///
    /// # Errors
    /// If a window is on its way out.
    pub fn entered(&self) -> Result<Entered> {
        if self.emitting.is_some() {
            return Err(Error::internal("a window was asked for its state while it leaves"));
        }
        Ok(match &self.current {
            Current::Slice { .. } => Entered::Changing,
            Current::Running { leaving, .. } => {
                Entered::Parts(leaving.values().flatten().cloned().collect())
            }
            Current::Tree { leaving, .. } => {
                Entered::Parts(leaving.values().map(|(part, _)| part.clone()).collect())
            }
            Current::InOrder { slices, .. } => Entered::Parts(slices.clone()),
        })
    }

    /// The end of the window that leaves next, if anything has entered it.
    pub fn next_end_of_entered(&self) -> Option<i64> {
        self.has_entered().then(|| self.last_end.saturating_add(self.spec.step_ms()))
    }

    /// What came and went since the capture before.
    pub fn begin_capture(&mut self, extent: Extent) -> PartsSince {
        self.parts.begin_capture(extent, self.last_end.saturating_add(1))
    }

    /// Begins a capture of what changes with each slice; one that is under way is read to its end.
    pub fn begin_running(&mut self, slices: &Slices) -> Result<BegunCapture> {
        while self.read_running(slices, usize::MAX)? {}
        let begun = self.tracking.begin(Extent::Full);
        let Current::Slice { slice, .. } = &mut self.current else { return Ok(begun) };
        self.read_leave = match slice.keys.is_empty() {
            true => i64::MIN,
            false => self.spec.slice(self.last_end.saturating_sub(1)).leave,
        };
        slice.unread = Unread::all(slice.counts.len());
        Ok(begun)
    }

    /// Writes this capture some keys of what changes with each slice; false once all have been
    /// captured.
    pub fn read_some(
        &mut self,
        begun: &BegunCapture,
        slices: &Slices,
        most: usize,
    ) -> Result<bool> {
        Ok(self.tracking.is_reading(begun) && self.read_running(slices, most)?)
    }

    fn read_running(&mut self, slices: &Slices, most: usize) -> Result<bool> {
        let Current::Slice { slice, .. } = &mut self.current else { return Ok(false) };
        slice_table(slices, self.read_leave).read_some(&mut self.tracking, slice, most)
    }

    /// Restores what the window with this end has so far. The keys have their references.
    pub fn resume(
        &mut self,
        next_end: i64,
        parts: Vec<(i64, Partial)>,
        slices: &Slices,
    ) -> Result<()> {
        self.last_end = next_end.saturating_sub(self.spec.step_ms());
        for (leave, partial) in parts {
            self.put(leave, partial, slices)?;
        }
        self.settle()
    }

    /// Adds slices up oldest first, where that is how they become windows.
    fn add_up(&mut self, of: &Slices, output: &Output) -> Result<Progress> {
        let Current::InOrder { slices, total, added } = &mut self.current else {
            return Ok(Progress::Done);
        };
        total.grow(of.keys.id_limit());
        while let Some(part) = slices.get(*added) {
            total.merge(&part.states, |_| ())?;
            *added += 1;
            if *added < slices.len() && output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    /// In ordered contracts: finds out in which order the groups of the window leave.
    ///
    /// The order is computed once per window and kept: a window of many groups leaves in chunks,
    /// and keys cannot be forgotten meanwhile, since the window refers to them.
    fn sort_groups(&mut self, slices: &Slices) -> Result<()> {
        let Some(canonical) = &self.canonical else { return Ok(()) };
        let groups: &[u32] = match &self.current {
            Current::Slice { slice, .. } | Current::Running { slice, .. } => &slice.keys,
            Current::Tree { tree, .. } => tree.total().map_or(&[], |total| &total.ids),
            Current::InOrder { total, .. } => &total.keys,
        };
        let sorted = &mut self.sorted;
        if sorted.forgotten != slices.forgotten() || sorted.groups != groups {
            sorted.places = canonical.permutation(&slices.keys, groups, |_| 0)?;
            sorted.groups.clear();
            sorted.groups.extend_from_slice(groups);
            sorted.forgotten = slices.forgotten();
        }
        Ok(())
    }

    /// The groups of the current window, and their states.
    fn groups(&self) -> Option<Groups<'_>> {
        let (slice, is_dense) = match &self.current {
            Current::Slice { slice, .. } | Current::Running { slice, .. } => (slice, false),
            Current::InOrder { total, .. } => (total, false),
            Current::Tree { tree, .. } => {
                let Partial { ids, counts, accumulators } = tree.total()?;
                return Some(Groups { ids, counts, accumulators, is_dense: true });
            }
        };
        let Slice { keys: ids, counts, accumulators, .. } = slice;
        Some(Groups { ids, counts, accumulators, is_dense })
    }

    /// Where not all groups of the window are wanted: the places of those that are.
    fn choose_groups(
        &mut self,
        slices: &Slices,
        top: Option<&TopChooser>,
    ) -> Result<Option<Vec<u32>>> {
        if let (Some(most_rows), Current::Running { slice, .. }) =
            (&mut self.most_rows, &self.current)
        {
            return Ok(Some(most_rows.places(slice)));
        }
        let (Some(top), Some(groups)) = (top, self.groups()) else { return Ok(None) };
        if top.takes_all(groups.ids.len()) {
            return Ok(None);
        }
        let Groups { ids, counts, accumulators, is_dense } = groups;
        let keys = slices.calls.key_types.len();
        // Where groups leave as they stand, and states by their numbers, nothing has to be put
        // together.
        if let (None, false, Some(result)) = (&self.canonical, is_dense, slices.calls.row_count())
            && let Some(chosen) = top.choose_by_count(keys + result, counts, ids)
        {
            return Ok(Some(chosen));
        }
        let places = self.places(0, ids.len());
        let ids: Vec<u32> = places.iter().map(|&place| ids[place as usize]).collect();
        let states = if is_dense { &places } else { &ids };
        let column = |&column: &usize| match column.checked_sub(keys) {
            None => Ok(slices.keys.take_keys(&ids)?.swap_remove(column)),
            Some(result) => slices.calls.evaluate_result(result, counts, accumulators, states),
        };
        let chosen = top.choose(top.columns.iter().map(column).collect::<Result<_>>()?)?;
        Ok(Some(chosen.into_iter().map(|place| places[place as usize]).collect()))
    }

    /// The places of groups in the order in which they leave.
    fn places(&self, from: usize, to: usize) -> Vec<u32> {
        match (&self.chosen, &self.canonical) {
            (Some(chosen), _) => chosen[from..to].to_vec(),
            (None, Some(_)) => self.sorted.places[from..to].to_vec(),
            (None, None) => (from as u32..to as u32).collect(),
        }
    }

    /// Emits a chunk of the window; the place to continue from, or `None` when it is out.
    fn emit(
        &self,
        end: i64,
        from: usize,
        slices: &Slices,
        rows: &mut WindowRows<'_>,
        output: &mut Output,
    ) -> Result<Option<usize>> {
        let Some(groups) = self.groups() else { return Ok(None) };
        let all = self.chosen.as_ref().map_or(groups.ids.len(), Vec::len);
        let to = chunk_end(from, all);
        let as_they_stand = self.chosen.is_none() && self.canonical.is_none();
        let places = match as_they_stand && !groups.is_dense {
            true => Vec::new(),
            false => self.places(from, to),
        };
        let ids: Cow<'_, [u32]> = match as_they_stand {
            true => Cow::Borrowed(&groups.ids[from..to]),
            false => places.iter().map(|&place| groups.ids[place as usize]).collect(),
        };
        let states = if groups.is_dense { &places[..] } else { &ids };
        let columns = slices.calls.evaluate(groups.counts, groups.accumulators, states)?;
        let keys_of_chunk = slices.keys.take_keys(&ids)?;
        let batch = rows.batch(keys_of_chunk, columns, ids.len(), self.spec.start_of(end), end)?;
        output.emit_at(batch, Place::WindowEnd(end));
        Ok((to < all).then_some(to))
    }

    /// Drops the slices whose last window was this one.
    ///
    /// References are released only here, after the window has been emitted: the emission looks up
    /// keys by id.
    fn leave(&mut self, end: i64, slices: &mut Slices) -> Result<()> {
        match &mut self.current {
            Current::Slice { slice, held } => {
                let is_last_of_series = self.spec.slice(end - 1).leave <= end;
                if is_last_of_series {
                    slice_table(slices, self.read_leave).finish(&mut self.tracking, slice)?;
                    slice.clear();
                    slices.release(held);
                    held.clear();
                }
            }
            Current::Running { slice, leaving } => {
                while let Some(entry) = leaving.first_entry().filter(|entry| *entry.key() <= end) {
                    for part in entry.remove() {
                        self.part_bytes -= part.states.bytes();
                        let is_any_gone = slice.subtract(&part.states)?;
                        if let Some(most_rows) = self.most_rows.as_mut().filter(|_| is_any_gone) {
                            most_rows.keys_left();
                        }
                        slices.part_left(part.states);
                    }
                }
            }
            Current::Tree { tree, leaving } => {
                while let Some(entry) = leaving.first_entry().filter(|entry| *entry.key() <= end) {
                    let (leave, (_, ids)) = entry.remove_entry();
                    self.part_bytes -= ids_bytes(&ids);
                    tree.remove(self.spec.ends().index(leave));
                    slices.release(&ids);
                }
            }
            Current::InOrder { slices: parts, total, added } => {
                total.clear();
                *added = 0;
                for part in parts.iter().filter(|part| part.leave <= end) {
                    self.part_bytes -= part.states.bytes();
                    slices.release(&part.states.ids);
                }
                parts.retain(|part| part.leave > end);
            }
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let most_rows = self.most_rows.as_ref().map_or(0, MostRows::bytes);
        self.tracking.bytes() + self.part_bytes + self.current.bytes() + most_rows
    }
}

/// How what changes with each slice is captured, the end of whose last window is this.
fn slice_table(slices: &Slices, leave: i64) -> SliceTable<'_, impl Fn(usize) -> Marks + use<>> {
    let marks = move |rows| part_marks(leave, 0, rows);
    SliceTable { calls: &slices.calls, keys: &slices.keys, marks }
}

fn ids_bytes(ids: &[u32]) -> usize {
    size_of_val(ids)
}

impl Current {
    /// Without the parts.
    fn bytes(&self) -> usize {
        match self {
            Current::Slice { slice, held } => slice.bytes() + held.capacity() * 4,
            Current::Running { slice, .. } => slice.bytes(),
            Current::Tree { tree, .. } => tree.bytes(),
            Current::InOrder { total, .. } => total.bytes(),
        }
    }
}
