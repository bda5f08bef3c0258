//! The sessions of a partition: which there are, what their aggregates are, and what rows do to
//! them.
//!
//! Sessions have dense numbers, under which their states stand; those of one key are linked. The
//! index by end is lazy: an entry is made when a session begins, and moved on when it comes up and
//! the session has grown since, so a row costs no index work.
//!
//! A row that joins two sessions adds the state of the younger to that of the older. Where an
//! aggregate depends on the order of rows and the sequence is promised, all rows before it enter
//! their sessions first, so that rounding errors are those of one row at a time.
//!
//! What has changed, and what a capture has yet to read, is known to a [`RowTracker`], once there
//! has been a capture: a session is a row with a serial, which it keeps when it begins earlier.
//! Whoever brings rows says first which keys they have ([`Sessions::touch_keys`]).
//!
//! # A bundle in three steps
//!
//! 1. `take` finds the session of each row and moves its bounds. States do not change yet, and no
//!    number is given to another session.
//! 2. `apply` merges the states of joined sessions and adds the rows, once for all rows.
//! 3. `forget` or the end of `apply` frees numbers.
//!
//! The first two must stay apart: accumulators are updated by column for a whole bundle. A session
//! that was joined therefore keeps its number until its state has been moved, although no key leads
//! to it any more.
//!
//! ```text
//! gap 10, one key       session        bounds
//! row at 3              A              [3, 13)
//! row at 25             B              [25, 35)
//! row at 13             A              [3, 23)       exactly a gap apart: they belong together
//! row at 15             A              [3, 35)       [15, 25) touches both: B is joined to A
//! ```
//!
//! **Invariants**
//! - The live sessions of a key do not touch: a row that touches several joins them. One may touch
//!   another that was closed for the row that began it.
//! - `generation` is odd while the session lives. An entry of `by_end` with another generation
//!   means an earlier session with the same number and is skipped.
//! - Each live session has exactly one entry in `by_end` with its generation, whose end is at most
//!   its own. So `close` cannot miss a session, and sees each at most twice in a call.
//! - `start < end`, and `end` is the last row's time plus the gap, exclusive.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch};
use thalweg_core::{Extent, Result, TableChanges};

use super::calls::Calls;
use super::calls::{States, mark};
use super::changelog::apply_changes;
use super::slices::{RowsOf, update_accumulators};
use crate::aggregate::Accumulator;
use crate::capture::rows::{RowTracker, RowsBegun, SERIAL};
use crate::capture::tracker::BegunCapture;
use crate::keys::{CanonicalOrder, KeyTable};
use crate::tables::{does_not_fit, numbers_of, virtual_partition};

/// Sessions emitted at a time.
const CHUNK_SESSIONS: usize = 8 * 1024;
/// When a session begins, and where the gap behind its last row ends, in milliseconds.
const START: &str = "$start";
const END: &str = "$end";
/// The end of a list of sessions.
const NONE: u32 = u32::MAX;

/// A row as it comes.
#[derive(Clone, Copy)]
pub(super) struct SessionArrival {
    pub(super) time: i64,
    /// The watermark before it.
    pub(super) before: i64,
    /// Sessions that end at or before `closed + 1` do not take it any more.
    pub(super) closed: i64,
}

/// A session's bounds and its place in the lists.
#[derive(Clone, Copy)]
pub(super) struct Session {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) key: u32,
    /// The next session of the same key.
    next: u32,
    /// Distinguished from earlier sessions with the same number; odd while it lives.
    generation: u32,
}

/// The sessions of one partition.
pub(super) struct Sessions {
    gap_ms: i64,
    pub(super) keys: KeyTable,
    /// The first session of each key.
    first: Vec<u32>,
    pub(super) all: Vec<Session>,
    free: Vec<u32>,
    /// (a past or present end, number, generation), lowest first.
    by_end: BinaryHeap<Reverse<(i64, u32, u32)>>,
    pub(super) counts: Vec<i64>,
    pub(super) accumulators: Vec<Box<dyn Accumulator>>,
    /// Set once there has been a capture.
    tracker: Option<RowTracker>,
}

/// The rows of a bundle that were taken, and the sessions they joined.
#[derive(Default)]
pub(super) struct SessionsTaken {
    pub(super) rows: Vec<u32>,
    pub(super) sessions: Vec<u32>,
    /// (from, into): sessions that were joined while the bundle was taken.
    pub(super) joined: Vec<(u32, u32)>,
}

impl Sessions {
    pub fn new(calls: &Calls, gap_ms: i64) -> Result<Self> {
        Ok(Sessions {
            gap_ms,
            keys: KeyTable::new(&calls.key_types)?,
            first: Vec::new(),
            all: Vec::new(),
            free: Vec::new(),
            by_end: BinaryHeap::new(),
            counts: Vec::new(),
            accumulators: calls.accumulators()?,
            tracker: None,
        })
    }

    /// Numbers the keys of some rows of a bundle, or of all.
    pub fn intern(
        &mut self,
        keys: &[ArrayRef],
        (rows, total_rows): (Option<&[u32]>, usize),
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        self.keys.intern_rows(keys, rows, total_rows, ids)?;
        self.first.resize(self.keys.id_limit(), NONE);
        Ok(())
    }

    /// Forgets a key if it has no session that would keep it.
    pub fn release(&mut self, key: u32) {
        if self.first[key as usize] == NONE {
            self.keys.release(key);
        }
    }

    /// The earliest end that a session may have: sessions may have grown since they were listed.
    pub fn first_end(&self) -> Option<i64> {
        self.by_end.peek().map(|Reverse((end, ..))| *end)
    }

    /// The session that a row belongs to, or `None` if it is late.
    #[inline]
    pub fn take(
        &mut self,
        key: u32,
        arrival: SessionArrival,
        joined: &mut Vec<(u32, u32)>,
    ) -> Option<u32> {
        let SessionArrival { time, before, closed } = arrival;
        let number = self.first[key as usize];
        let row_end = time.saturating_add(self.gap_ms);
        // Most often a key has one session, and the row belongs to it.
        if let Some(session) = self.all.get_mut(number as usize)
            && session.next == NONE
            && session.touches(time, row_end, closed)
        {
            let (start, end) = (session.start.min(time), session.end.max(row_end));
            if end.saturating_sub(1) <= before {
                return None;
            }
            (session.start, session.end) = (start, end);
            return Some(number);
        }
        self.take_among(key, arrival, joined)
    }

    /// The same for a key that has several sessions, or none that the row belongs to.
    fn take_among(
        &mut self,
        key: u32,
        arrival: SessionArrival,
        joined: &mut Vec<(u32, u32)>,
    ) -> Option<u32> {
        let SessionArrival { time, before, closed } = arrival;
        let mut start = time;
        let mut end = time.saturating_add(self.gap_ms);
        let (row_start, row_end) = (start, end);
        let mut touched = 0;
        let mut oldest = NONE;
        let mut number = self.first[key as usize];
        while number != NONE {
            let session = self.all[number as usize];
            if session.touches(row_start, row_end, closed) {
                if oldest == NONE || session.start < self.all[oldest as usize].start {
                    oldest = number;
                }
                start = start.min(session.start);
                end = end.max(session.end);
                touched += 1;
            }
            number = session.next;
        }
        if end.saturating_sub(1) <= before {
            return None;
        }
        if touched == 0 {
            return Some(self.begin(key, start, end));
        }
        if touched > 1 {
            self.join(key, oldest, (row_start, row_end), closed, joined);
        }
        let session = &mut self.all[oldest as usize];
        (session.start, session.end) = (start, end);
        Some(oldest)
    }

    /// Joins the sessions of a key that touch a row's stretch into the oldest of them.
    fn join(
        &mut self,
        key: u32,
        oldest: u32,
        (start, end): (i64, i64),
        closed: i64,
        joined: &mut Vec<(u32, u32)>,
    ) {
        let mut previous = NONE;
        let mut number = self.first[key as usize];
        while number != NONE {
            let session = self.all[number as usize];
            if number != oldest && session.touches(start, end, closed) {
                joined.push((number, oldest));
                self.note_end(number);
                self.unlink(key, previous, session.next);
                // Only when the bundle is done is the number free: its states still stand.
                self.all[number as usize].generation += 1;
            } else {
                previous = number;
            }
            number = session.next;
        }
    }

    fn unlink(&mut self, key: u32, previous: u32, next: u32) {
        if previous == NONE {
            self.first[key as usize] = next;
        } else {
            self.all[previous as usize].next = next;
        }
    }

    fn begin(&mut self, key: u32, start: i64, end: i64) -> u32 {
        let next = self.first[key as usize];
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.all.push(Session { start, end, key, next, generation: 0 });
                self.all.len() as u32 - 1
            }
        };
        let generation = self.all[number as usize].generation + 1;
        self.all[number as usize] = Session { start, end, key, next, generation };
        self.first[key as usize] = number;
        self.by_end.push(Reverse((end, number, generation)));
        if let Some(tracker) = &mut self.tracker {
            tracker.add(number);
        }
        number
    }

    /// Adds up what some rows brought: first the states of joined sessions, then the rows; or, in
    /// order, the rows before the last, what the last one joined, and the last.
    pub fn apply(
        &mut self,
        calls: &Calls,
        of: RowsOf<'_>,
        taken: &mut SessionsTaken,
        in_order: bool,
    ) -> Result<()> {
        self.counts.resize(self.all.len(), 0);
        let groups = self.all.len();
        self.accumulators.iter_mut().for_each(|own| own.grow(groups));
        if !taken.joined.is_empty() {
            if in_order {
                // `place` stopped at the row that joined sessions, so that row is the last one.
                let last = taken.rows.len() - 1;
                self.add_rows(calls, of, &taken.sessions[..last], &taken.rows[..last])?;
                taken.rows.drain(..last);
                taken.sessions.drain(..last);
            }
            self.apply_joins(taken)?;
        }
        self.add_rows(calls, of, &taken.sessions, &taken.rows)
    }

    fn add_rows(
        &mut self,
        calls: &Calls,
        of: RowsOf<'_>,
        sessions: &[u32],
        rows: &[u32],
    ) -> Result<()> {
        if let Some(kinds) = of.kinds {
            let states = (&mut self.counts[..], &mut self.accumulators[..]);
            return apply_changes(calls, of, kinds, (sessions, Some(rows)), states);
        }
        sessions.iter().for_each(|&number| self.counts[number as usize] += 1);
        update_accumulators(&mut self.accumulators, calls, of, sessions, Some(rows))
    }

    /// `joined` may form chains: A into B, then B into C. Walking it backwards resolves each pair
    /// after the later ones, so `target` names the last session of the chain and each state moves
    /// once.
    fn apply_joins(&mut self, taken: &mut SessionsTaken) -> Result<()> {
        // A session that others joined may itself have joined another one later.
        let mut target: hashbrown::HashMap<u32, u32> = taken.joined.iter().copied().collect();
        for (from, _) in taken.joined.iter().rev() {
            let into = target[from];
            let last = target.get(&into).copied().unwrap_or(into);
            target.insert(*from, last);
        }
        for number in &mut taken.sessions {
            *number = target.get(number).copied().unwrap_or(*number);
        }
        let (from, into): (Vec<u32>, Vec<u32>) =
            taken.joined.iter().map(|&(from, _)| (from, target[&from])).unzip();
        for (&from, &into) in from.iter().zip(&into) {
            self.counts[into as usize] += std::mem::take(&mut self.counts[from as usize]);
        }
        for own in &mut self.accumulators {
            let states = own.take(&from)?;
            own.merge(&into, states.as_ref())?;
        }
        self.free.extend_from_slice(&from);
        taken.joined.clear();
        Ok(())
    }

    /// Takes the sessions off the index that a watermark closes, oldest end first, a chunk at most.
    pub fn close(&mut self, watermark: i64, whole_ends: bool) -> Vec<u32> {
        let mut closed = Vec::new();
        let mut last_end = i64::MIN;
        while let Some(&Reverse((end, number, generation))) = self.by_end.peek() {
            let is_full = closed.len() >= CHUNK_SESSIONS && !(whole_ends && end == last_end);
            if is_full || end.saturating_sub(1) > watermark {
                break;
            }
            self.by_end.pop();
            let session = self.all[number as usize];
            if session.generation != generation {
                continue;
            }
            if session.end == end {
                closed.push(number);
                last_end = end;
            } else {
                self.by_end.push(Reverse((session.end, number, generation)));
            }
        }
        closed
    }

    /// Closed sessions by end, virtual partition and key, with their ends.
    pub fn in_order(
        &self,
        closed: &[u32],
        canonical: &CanonicalOrder,
    ) -> Result<(Vec<u32>, Vec<i64>)> {
        let of = |&number: &u32| &self.all[number as usize];
        let keys: Vec<u32> = closed.iter().map(|number| of(number).key).collect();
        let ends: Vec<i64> = closed.iter().map(|number| of(number).end).collect();
        let sorted = canonical.permutation(&self.keys, &keys, |place| ends[place])?;
        let numbers = sorted.iter().map(|&place| closed[place as usize]).collect();
        Ok((numbers, sorted.iter().map(|&place| ends[place as usize]).collect()))
    }

    /// Forgets closed sessions, and keys without sessions.
    pub fn forget(&mut self, calls: &Calls, closed: &[u32]) -> Result<()> {
        self.touch(calls, closed)?;
        closed.iter().for_each(|&number| self.note_end(number));
        closed.iter().for_each(|&number| self.counts[number as usize] = 0);
        self.accumulators.iter_mut().for_each(|own| own.reset(closed));
        let mut idle = Vec::new();
        for &number in closed {
            let Session { key, next, .. } = self.all[number as usize];
            let mut previous = NONE;
            let mut at = self.first[key as usize];
            while at != number {
                previous = at;
                at = self.all[at as usize].next;
            }
            self.unlink(key, previous, next);
            self.all[number as usize].generation += 1;
            self.free.push(number);
            if self.first[key as usize] == NONE {
                idle.push(key);
            }
        }
        self.keys.release_all(&idle);
        Ok(())
    }

    /// All sessions of these keys may change.
    pub fn touch_keys(&mut self, calls: &Calls, keys: &[u32]) -> Result<()> {
        if self.tracker.is_none() {
            return Ok(());
        }
        let mut numbers = Vec::with_capacity(keys.len());
        for &key in keys {
            let mut number = self.first[key as usize];
            while number != NONE {
                numbers.push(number);
                number = self.all[number as usize].next;
            }
        }
        self.touch(calls, &numbers)
    }

    /// These sessions change; captures those first that a capture has yet to read.
    fn touch(&mut self, calls: &Calls, numbers: &[u32]) -> Result<()> {
        let Some(tracker) = &mut self.tracker else { return Ok(()) };
        tracker.end_piece();
        let unread = numbers.iter().copied().filter(|&number| tracker.touch(number)).collect();
        self.read(calls, unread)
    }

    /// A session is about to go, which has been touched.
    fn note_end(&mut self, number: u32) {
        let live = self.live();
        let Some(tracker) = &mut self.tracker else { return };
        if let Some(serial) = tracker.remove(number) {
            let hash = self.keys.hash_of(self.all[number as usize].key);
            let name = (virtual_partition(hash), serial);
            tracker.gone(std::iter::once(name), live);
        }
    }

    /// Begins a capture; one that is under way is read to its end.
    pub fn begin_capture(&mut self, calls: &Calls, extent: Extent) -> Result<RowsBegun> {
        while self.read_some(calls, usize::MAX)? {}
        let live = self.live();
        let tracker = self.tracker.get_or_insert_with(|| {
            let live = (0..).zip(&self.all).filter(|(_, session)| session.is_live());
            RowTracker::of(live.map(|(number, _)| number))
        });
        Ok(tracker.begin(extent, self.all.len(), live))
    }

    fn live(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// What is known before a capture of the table with this name.
    pub fn changes(&self, name: &'static str) -> Option<TableChanges> {
        self.tracker.as_ref().map(|tracker| tracker.changes(name, self.live()))
    }

    /// Stops tracking changes until the next capture.
    pub fn stop_tracking(&mut self) {
        self.tracker.iter_mut().for_each(RowTracker::stop);
    }

    /// True while this capture is under way.
    pub fn is_reading(&self, begun: &BegunCapture) -> bool {
        self.tracker.as_ref().is_some_and(|tracker| tracker.is_reading(begun))
    }

    /// Writes some sessions to the capture under way that it has yet to read; false once there are
    /// none.
    pub fn read_some(&mut self, calls: &Calls, most: usize) -> Result<bool> {
        let Some(tracker) = &mut self.tracker else { return Ok(false) };
        let mut unread = tracker.take_unread(most, self.all.len());
        let is_more = !unread.is_empty();
        unread.retain(|&number| self.all[number as usize].is_live());
        self.read(calls, unread)?;
        Ok(is_more)
    }

    fn read(&mut self, calls: &Calls, unread: Vec<u32>) -> Result<()> {
        if !unread.is_empty() {
            let rows = self.rows(calls, &unread)?;
            self.tracker.iter_mut().for_each(|tracker| tracker.write(rows.clone()));
        }
        Ok(())
    }

    /// These sessions as rows of the table of state.
    pub fn rows(&self, calls: &Calls, numbers: &[u32]) -> Result<RecordBatch> {
        let of = |&number: &u32| &self.all[number as usize];
        let keys: Vec<u32> = numbers.iter().map(|number| of(number).key).collect();
        let states = States {
            keys: &keys,
            places: Cow::Borrowed(numbers),
            counts: &self.counts,
            accumulators: &self.accumulators,
        };
        let serial_of =
            |&number: &u32| self.tracker.as_ref().map_or(0, |tracker| tracker.serial(number));
        let serial = mark::<UInt64Type>(SERIAL, numbers.iter().map(serial_of));
        let start = mark::<Int64Type>(START, numbers.iter().map(|number| of(number).start));
        let end = mark::<Int64Type>(END, numbers.iter().map(|number| of(number).end));
        calls.rows(&self.keys, vec![serial, start, end], &states)
    }

    /// Restores sessions. One may touch another one of its key, if a row
    /// came for which that one was closed.
    pub fn resume(&mut self, calls: &Calls, rows: &RecordBatch) -> Result<()> {
        // Serials are given again, since several partitions may have given the same; but without
        // them rows are not those of sessions.
        numbers_of::<UInt64Type>(rows, SERIAL)?;
        let (starts, ends) =
            (numbers_of::<Int64Type>(rows, START)?, numbers_of::<Int64Type>(rows, END)?);
        let mut keys = Vec::new();
        calls.key_columns.intern(rows, &mut self.keys, &mut keys)?;
        self.first.resize(self.keys.id_limit(), NONE);
        let mut numbers = Vec::with_capacity(keys.len());
        for ((&key, &start), &end) in keys.iter().zip(starts).zip(ends) {
            if start >= end {
                return Err(does_not_fit(format!("a session from {start} ends at {end}")));
            }
            numbers.push(self.begin(key, start, end));
        }
        let (groups, Sessions { counts, accumulators, .. }) = (self.all.len(), self);
        calls.restore_at(rows, &numbers, groups, counts, accumulators)
    }

    /// How many sessions are open.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        let lists = (self.first.capacity() + self.free.capacity()) * 4;
        let sessions = self.all.capacity() * size_of::<Session>() + self.counts.capacity() * 8;
        let tracker = self.tracker.as_ref().map_or(0, RowTracker::bytes);
        self.keys.bytes() + lists + sessions + self.by_end.capacity() * 16 + states + tracker
    }
}

impl Session {
    fn is_live(&self) -> bool {
        self.generation % 2 == 1
    }

    /// True if a row's stretch meets this session; touching is enough.
    ///
    /// `closed` excludes a session that the row's own watermark has closed, although the operator
    /// has not emitted it yet. The row then begins a session of its own: with one lane the result
    /// must not depend on when the watermark is processed.
    fn touches(&self, start: i64, end: i64, closed: i64) -> bool {
        self.start <= end && start <= self.end && self.end.saturating_sub(1) > closed
    }
}
