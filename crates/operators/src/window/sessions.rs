//! Session windows: rows of one key belong together while none is more than the gap behind the
//! one before.
//!
//! A session is `[first row, last row + gap)`; rows exactly a gap apart belong together, and a row
//! between two sessions joins them to one. The operator is `Sequenced`, since whether a row is
//! late depends on the sessions that stand when it comes: it is late if the session that it would
//! be part of has an end `e` with `e - 1 <= watermark_before`. With a single lane a session also
//! counts as closed for a row if that row's watermark closes it, although the operator has not
//! seen the watermark yet; with several lanes only the joint watermark closes sessions.
//!
//! Sessions have dense numbers, under which their states stand; those of one key are linked. The
//! index by end is lazy: an entry is made when a session begins, and moved on when it comes up and
//! the session has grown since, so a row costs no index work.
//!
//! A row that joins two sessions adds the state of the younger to that of the older. Where an
//! aggregate depends on the order of rows and the sequence is promised, all rows before it enter
//! their sessions first, so that rounding errors are those of one row at a time.
//!
//! Gaps are measured between instants also for `TIMESTAMP_LTZ`; the zone only shows start and end.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::types::Int64Type;
use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::{
    Bundle, Captured, Error, Extent, Opening, Operator, OperatorClass, Output, Partition, Piece,
    Place, Progress, Restored, Result, Route, TableSchema, Watermark,
};

use super::aligned::{check_columns, key_columns, row_order, scatter};
use super::output::{LatePolicy, output_schema, result_batch, row_times, treat_late};
use super::slices::{Calls, RowsOf, update_accumulators};
use super::snapshot::{States, mark, tell_rows};
use super::zone::Zone;
use crate::aggregate::{Accumulator, AggregateCall};
use crate::keys::{CanonicalOrder, KeyTable};
use crate::tables::{does_not_fit, numbers_of};

/// Sessions emitted at a time.
const CHUNK_SESSIONS: usize = 8 * 1024;
/// The table of state: a row is a session of a key, from its first row to where the gap behind its last
/// row ends, in milliseconds.
const SESSIONS: &str = "sessions";
const START: &str = "$start";
const END: &str = "$end";
/// The end of a list of sessions.
const NONE: u32 = u32::MAX;

/// What a [`SessionAggregate`] computes, by columns of its input.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// How long a key may be silent within a session.
    pub gap_ms: i64,
    /// The column of the row time: TIMESTAMP or TIMESTAMP_LTZ of at most 3 digits.
    pub rowtime: usize,
    /// For a row time of TIMESTAMP_LTZ: the session's zone, in which window bounds are shown.
    pub zone: Option<Tz>,
    /// The columns that sessions are told apart by (PARTITION BY, which are also grouped by).
    pub keys: Vec<usize>,
    /// The aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// What happens to late rows.
    pub late: LatePolicy,
    /// The input's columns.
    pub input: TableSchema,
}

struct Shared {
    spec: SessionSpec,
    calls: Arc<Calls>,
    output: TableSchema,
    arrow: SchemaRef,
}

/// Aggregates per session and key. The result has the keys, the aggregates, and `window_start`,
/// `window_end`, `window_time`.
pub struct SessionAggregate {
    shared: Arc<Shared>,
}

impl SessionAggregate {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: SessionSpec) -> Result<Self> {
        if spec.gap_ms <= 0 {
            return Err(Error::plan("the gap of a session window must be positive"));
        }
        check_columns(spec.rowtime, &spec.keys, &spec.input)?;
        let calls = Arc::new(Calls::new(&spec.aggregates, &spec.keys, &spec.input)?);
        let output = output_schema(&spec.input, &spec.keys, &spec.aggregates, spec.zone);
        let shared = Shared { arrow: output.arrow(), output, calls, spec };
        Ok(SessionAggregate { shared: Arc::new(shared) })
    }

    /// The columns of the result.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.output
    }
}

impl Operator for SessionAggregate {
    fn name(&self) -> String {
        "session window".to_string()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn ports(&self) -> usize {
        if self.shared.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        scatter(bundle, &self.shared.spec.keys, partitions)
    }
    fn open(&self, opening: Opening) -> Result<Box<dyn Partition>> {
        let canonical = CanonicalOrder::wanted(opening.order, &self.shared.calls.key_types)?;
        let exact = self.shared.spec.aggregates.iter().all(AggregateCall::is_exact);
        Ok(Box::new(SessionPartition {
            in_order: opening.order.is_ordered() && !exact,
            sessions: Sessions::new(&self.shared.calls, self.shared.spec.gap_ms)?,
            zone: Zone::new(self.shared.spec.zone),
            canonical,
            shared: Arc::clone(&self.shared),
            ids: Vec::new(),
            late: Vec::new(),
            late_keys: Vec::new(),
            taken: Taken::default(),
        }))
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}

/// A session's bounds and its place in the lists.
#[derive(Clone, Copy)]
struct Session {
    start: i64,
    end: i64,
    key: u32,
    /// The next session of the same key.
    next: u32,
    /// Told apart from earlier sessions with the same number; odd while it lives.
    generation: u32,
}

/// The sessions of one partition.
struct Sessions {
    gap_ms: i64,
    keys: KeyTable,
    /// The first session of each key.
    first: Vec<u32>,
    all: Vec<Session>,
    free: Vec<u32>,
    /// (a past or present end, number, generation), lowest first.
    by_end: BinaryHeap<Reverse<(i64, u32, u32)>>,
    counts: Vec<i64>,
    accumulators: Vec<Box<dyn Accumulator>>,
}

/// The rows of a bundle that were taken, and the sessions they joined.
#[derive(Default)]
struct Taken {
    rows: Vec<u32>,
    sessions: Vec<u32>,
    /// (from, into): sessions that were joined while the bundle was taken.
    joined: Vec<(u32, u32)>,
}

impl Sessions {
    fn new(calls: &Calls, gap_ms: i64) -> Result<Self> {
        Ok(Sessions {
            gap_ms,
            keys: KeyTable::new(&calls.key_types)?,
            first: Vec::new(),
            all: Vec::new(),
            free: Vec::new(),
            by_end: BinaryHeap::new(),
            counts: Vec::new(),
            accumulators: calls.accumulators()?,
        })
    }

    /// The session that a row belongs to, or `None` if it is late. Sessions that end at or before
    /// `closed + 1` do not take it any more.
    fn take(
        &mut self,
        key: u32,
        time: i64,
        before: i64,
        closed: i64,
        joined: &mut Vec<(u32, u32)>,
    ) -> Option<u32> {
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
        number
    }

    /// Adds up what some rows brought: first the states of joined sessions, then the rows; or, in
    /// order, the rows before the last, what the last one joined, and the last.
    fn apply(
        &mut self,
        calls: &Calls,
        of: RowsOf<'_>,
        taken: &mut Taken,
        in_order: bool,
    ) -> Result<()> {
        self.counts.resize(self.all.len(), 0);
        let groups = self.all.len();
        self.accumulators.iter_mut().for_each(|own| own.grow(groups));
        if !taken.joined.is_empty() {
            if in_order {
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
        sessions.iter().for_each(|&number| self.counts[number as usize] += 1);
        update_accumulators(&mut self.accumulators, calls, of, sessions, Some(rows))
    }

    fn apply_joins(&mut self, taken: &mut Taken) -> Result<()> {
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
    fn close(&mut self, watermark: i64, whole_ends: bool) -> Vec<u32> {
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
    fn in_order(&self, closed: &[u32], canonical: &CanonicalOrder) -> Result<(Vec<u32>, Vec<i64>)> {
        let of = |&number: &u32| &self.all[number as usize];
        let keys: Vec<u32> = closed.iter().map(|number| of(number).key).collect();
        let ends: Vec<i64> = closed.iter().map(|number| of(number).end).collect();
        let sorted = canonical.permutation(&self.keys, &keys, |place| ends[place])?;
        let numbers = sorted.iter().map(|&place| closed[place as usize]).collect();
        Ok((numbers, sorted.iter().map(|&place| ends[place as usize]).collect()))
    }

    /// Forgets closed sessions, and keys without sessions.
    fn forget(&mut self, closed: &[u32]) {
        closed.iter().for_each(|&number| self.counts[number as usize] = 0);
        self.accumulators.iter_mut().for_each(|own| own.reset(closed));
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
                self.keys.release(key);
            }
        }
    }

    /// Takes sessions back that another run told. One may touch another one of its key, if a row came
    /// for which that one was closed.
    fn resume(&mut self, calls: &Calls, rows: &RecordBatch) -> Result<()> {
        let (starts, ends) =
            (numbers_of::<Int64Type>(rows, START)?, numbers_of::<Int64Type>(rows, END)?);
        let mut keys = Vec::new();
        calls.told_keys.intern(rows, &mut self.keys, &mut keys)?;
        self.first.resize(self.keys.id_limit(), NONE);
        let mut numbers = Vec::with_capacity(keys.len());
        for ((&key, &start), &end) in keys.iter().zip(starts).zip(ends) {
            if start >= end {
                return Err(does_not_fit(format!("a session from {start} ends at {end}")));
            }
            numbers.push(self.begin(key, start, end));
        }
        let (groups, Sessions { counts, accumulators, .. }) = (self.all.len(), self);
        calls.recall_at(rows, &numbers, groups, counts, accumulators)
    }

    fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        let lists = (self.first.capacity() + self.free.capacity()) * 4;
        let sessions = self.all.capacity() * size_of::<Session>() + self.counts.capacity() * 8;
        self.keys.bytes() + lists + sessions + self.by_end.capacity() * 16 + states
    }
}

impl Session {
    /// True if a row's stretch meets this session; touching is enough.
    fn touches(&self, start: i64, end: i64, closed: i64) -> bool {
        self.start <= end && start <= self.end && self.end.saturating_sub(1) > closed
    }
}

struct SessionPartition {
    /// Set in ordered contracts.
    canonical: Option<CanonicalOrder>,
    /// True if rows and states are added up exactly in the order in which rows come.
    in_order: bool,
    shared: Arc<Shared>,
    sessions: Sessions,
    zone: Zone,
    ids: Vec<u32>,
    late: Vec<u32>,
    late_keys: Vec<u32>,
    taken: Taken,
}

impl Partition for SessionPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let spec = &shared.spec;
        let times = row_times(&piece, spec.rowtime, &spec.input)?;
        let keys = key_columns(piece.bundle, &spec.keys);
        self.ids.clear();
        self.sessions.keys.intern_rows(
            &keys,
            piece.rows,
            piece.bundle.num_rows(),
            &mut self.ids,
        )?;
        self.sessions.first.resize(self.sessions.keys.id_limit(), NONE);
        let of = RowsOf { batch: &piece.bundle.batch, order: row_order(piece.bundle) };
        self.late.clear();
        let mut next = 0;
        while next < self.ids.len() {
            next = self.place(&piece, times, next);
            self.sessions.apply(&shared.calls, of, &mut self.taken, self.in_order)?;
        }
        self.release_keys_of_late_rows();
        output.accepted += (self.ids.len() - self.late.len()) as u64;
        treat_late(spec.late, &self.late, &piece, spec.rowtime, output)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        loop {
            let closed = self.sessions.close(call.watermark.0, self.canonical.is_some());
            if closed.is_empty() {
                return Ok(Progress::Done);
            }
            match &self.canonical {
                Some(canonical) => {
                    let (closed, ends) = self.sessions.in_order(&closed, canonical)?;
                    self.emit(&closed, Place::WindowEnds(ends), output)?;
                }
                None => self.emit(&closed, Place::AsEmitted, output)?,
            }
            self.sessions.forget(&closed);
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        self.sessions.bytes() + self.ids.capacity() * 4
    }

    /// Told are the live sessions with their states. Their numbers, the lists and the index by end are
    /// made anew; the index also has ends that sessions had once, which mean nothing.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let Sessions { all, keys, counts, accumulators, .. } = &self.sessions;
        let live = |&number: &u32| all[number as usize].generation % 2 == 1;
        let numbers: Vec<u32> = (0..all.len() as u32).filter(live).collect();
        let of = |&number: &u32| &all[number as usize];
        let bounds = |numbers: &[u32]| {
            vec![
                mark::<Int64Type>(START, numbers.iter().map(|number| of(number).start)),
                mark::<Int64Type>(END, numbers.iter().map(|number| of(number).end)),
            ]
        };
        let calls = &self.shared.calls;
        let of_keys: Vec<u32> = numbers.iter().map(|number| of(number).key).collect();
        let places = Cow::Borrowed(&numbers[..]);
        let states = States { keys: &of_keys, places, counts, accumulators };
        let rows = calls.tell(keys, bounds(&numbers), &states)?;
        let mut captured = Captured::default();
        tell_rows(&mut captured, SESSIONS, &rows.slice(0, 0), vec![rows]);
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let mut rows = restored.table(SESSIONS).iter();
        rows.try_for_each(|rows| self.sessions.resume(&self.shared.calls, rows))
    }

    fn wakes_at(&self) -> Watermark {
        // Sessions may have grown since they were listed; none ends earlier.
        let first = self.sessions.by_end.peek();
        first.map_or(Watermark::END, |Reverse((end, ..))| Watermark(end.saturating_sub(1)))
    }
}

impl SessionPartition {
    /// Finds each row's session, or finds it late, from this place on: up to the end or, in order,
    /// to the first row that joins sessions. Returns the place behind it.
    fn place(&mut self, piece: &Piece<'_>, times: &[i64], from: usize) -> usize {
        self.taken.rows.clear();
        self.taken.sessions.clear();
        let watermarks = &piece.bundle.stamps.watermark_before;
        for (place, &key) in self.ids.iter().enumerate().skip(from) {
            let row = piece.rows.map_or(place as u32, |rows| rows[place]);
            let before = watermarks.at(row as usize).0;
            let closed = if piece.lanes == 1 { before } else { i64::MIN };
            let time = times[row as usize];
            let joined = &mut self.taken.joined;
            match self.sessions.take(key, time, before, closed, joined) {
                Some(session) => {
                    self.taken.rows.push(row);
                    self.taken.sessions.push(session);
                }
                None => {
                    self.late.push(row);
                    self.late_keys.push(key);
                }
            }
            if self.in_order && !self.taken.joined.is_empty() {
                return place + 1;
            }
        }
        self.ids.len()
    }

    /// A key that came with late rows only has no session that would keep it.
    fn release_keys_of_late_rows(&mut self) {
        self.late_keys.sort_unstable();
        self.late_keys.dedup();
        for key in self.late_keys.drain(..) {
            if self.sessions.first[key as usize] == NONE {
                self.sessions.keys.release(key);
            }
        }
    }

    fn emit(&mut self, closed: &[u32], place: Place, output: &mut Output) -> Result<()> {
        let sessions = &self.sessions;
        let ids: Vec<u32> = closed.iter().map(|&n| sessions.all[n as usize].key).collect();
        let keys = sessions.keys.take_keys(&ids)?;
        let results =
            self.shared.calls.evaluate(&sessions.counts, &sessions.accumulators, closed)?;
        let zone = &mut self.zone;
        let mut times = [const { Vec::new() }; 3];
        for &number in closed {
            let session = &sessions.all[number as usize];
            times[0].push(zone.to_local(session.start));
            times[1].push(zone.to_local(session.end));
            times[2].push(session.end - 1);
        }
        output.emit_at(result_batch(&self.shared.arrow, keys, results, times)?, place);
        Ok(())
    }
}
