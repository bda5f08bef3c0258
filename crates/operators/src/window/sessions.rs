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
//! Gaps are measured between instants also for `TIMESTAMP_LTZ`; the zone only shows start and end.
//!
//! Sessions stand behind a lock ([`SharedState`]), since captures read them while rows are
//! processed; they are captured incrementally, each with a serial ([`crate::capture::rows`]).
//!
//! Why the operator is not `Commuting`: two partitions with rows of one key would each see other
//! sessions, and which rows are late follows from the sessions. So rows go to the owner of their
//! key and watermarks have one phase.
//!
//! Emitted rows: keys, aggregates, then
//!
//! | column | value |
//! |---|---|
//! | `window_start` | time of the first row, in local time of the zone |
//! | `window_end` | time of the last row plus the gap, in local time |
//! | `window_time` | `window_end` minus 1 ms, as an instant for `TIMESTAMP_LTZ` |

use std::sync::Arc;

use arrow_schema::SchemaRef;
use chrono_tz::Tz;
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::{
    Bundle, Captured, Error, Extent, Operator, Output, Partition, PartitionContext, Piece, Place,
    Progress, Restored, Result, Route, TableChanges, TableSchema, Watermark,
};

use super::calls::Calls;
use super::output::{LatePolicy, output_schema, result_batch, row_times, treat_late};
use super::session_table::{SessionArrival, Sessions, SessionsTaken};
use super::slices::RowsOf;
use super::zone::Zone;
use crate::aggregate::AggregateCall;
use crate::capture::shared::{SharedCapture, SharedPartition, SharedState};
use crate::keys::{CanonicalOrder, route_by_keys};
use crate::rows::columns::{check_columns, keys_of};

/// The table of state: a row is a session of a key, from its first row to where the gap behind its
/// last row ends, in milliseconds.
const SESSIONS: &str = "sessions";

/// What a [`SessionAggregate`] computes, by columns of its input.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// How long a key may be silent within a session.
    pub gap_ms: i64,
    /// The column of the row time: TIMESTAMP or TIMESTAMP_LTZ of at most 3 digits.
    pub rowtime: usize,
    /// For a row time of TIMESTAMP_LTZ: the session's zone, in which window bounds are shown.
    pub zone: Option<Tz>,
    /// The columns that sessions are distinguished by (PARTITION BY, which are also grouped by).
    pub keys: Vec<usize>,
    /// The aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// What happens to late rows.
    pub late: LatePolicy,
    /// The input's columns.
    pub input: TableSchema,
}

struct SessionContext {
    spec: SessionSpec,
    calls: Arc<Calls>,
    output: TableSchema,
    arrow: SchemaRef,
}

/// Aggregates per session and key. The result has the keys, the aggregates, and `window_start`,
/// `window_end`, `window_time`.
pub struct SessionAggregate {
    shared: Arc<SessionContext>,
}

impl SessionAggregate {
    /// An operator; an error if the specification does not fit together.
    pub fn new(spec: SessionSpec) -> Result<Self> {
        if spec.gap_ms <= 0 {
            return Err(Error::plan("the gap of a session window must be positive"));
        }
        check_columns(&spec.input, spec.keys.iter().copied().chain([spec.rowtime]))?;
        let calls = Arc::new(Calls::new(&spec.aggregates, &spec.keys, &spec.input)?);
        let output = output_schema(&spec.input, &spec.keys, &spec.aggregates, spec.zone);
        let shared = SessionContext { arrow: output.arrow(), output, calls, spec };
        Ok(SessionAggregate { shared: Arc::new(shared) })
    }

    /// The same sessions over a changelog, whose rows may be retracted.
    ///
    /// # Errors
    /// If an aggregate cannot retract, or sessions are open already.
    pub fn with_retractions(mut self) -> Result<Self> {
        let shared = Arc::get_mut(&mut self.shared)
            .ok_or_else(|| Error::internal("sessions are open already"))?;
        shared.calls = Arc::new(shared.calls.of_changelog());
        shared.calls.accumulators()?;
        Ok(self)
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
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn ports(&self) -> usize {
        if self.shared.spec.late == LatePolicy::Emit { 2 } else { 1 }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.shared.spec.keys, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let canonical = CanonicalOrder::wanted(opening.order, &self.shared.calls.key_types)?;
        let exact = self.shared.spec.aggregates.iter().all(AggregateCall::is_exact);
        let state = SessionState {
            in_order: opening.order.is_ordered() && !exact,
            sessions: Sessions::new(&self.shared.calls, self.shared.spec.gap_ms)?,
            zone: Zone::new(self.shared.spec.zone),
            canonical,
            shared: Arc::clone(&self.shared),
            ids: Vec::new(),
            late: Vec::new(),
            late_keys: Vec::new(),
            taken: SessionsTaken::default(),
        };
        Ok(Box::new(SharedPartition::new(state)))
    }
    fn judges_lateness(&self) -> bool {
        true
    }
}

/// What a partition has.
struct SessionState {
    /// Set in ordered contracts.
    canonical: Option<CanonicalOrder>,
    /// True if rows and states are added up exactly in the order in which rows come.
    in_order: bool,
    shared: Arc<SessionContext>,
    sessions: Sessions,
    zone: Zone,
    ids: Vec<u32>,
    late: Vec<u32>,
    late_keys: Vec<u32>,
    taken: SessionsTaken,
}

impl SessionState {
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
            match self.sessions.take(key, SessionArrival { time, before, closed }, joined) {
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
        self.late_keys.drain(..).for_each(|key| self.sessions.release(key));
    }

    /// Emits closed sessions, but for those that all rows have left.
    fn emit_closed(&mut self, closed: &[u32], output: &mut Output) -> Result<()> {
        let counts = &self.sessions.counts;
        let with_rows: Vec<u32> =
            closed.iter().copied().filter(|&number| counts[number as usize] > 0).collect();
        if with_rows.is_empty() {
            return Ok(());
        }
        match &self.canonical {
            Some(canonical) => {
                let (sorted, ends) = self.sessions.in_order(&with_rows, canonical)?;
                self.emit(&sorted, Place::WindowEnds(ends), output)
            }
            None => self.emit(&with_rows, Place::AsEmitted, output),
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
        output.emit_at(
            result_batch(&self.shared.arrow, keys, results, times.map(Into::into))?,
            place,
        );
        Ok(())
    }
}

impl Partition for SessionState {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let spec = &shared.spec;
        let times = row_times(&piece, spec.rowtime, &spec.input)?;
        let keys = keys_of(piece.bundle.batch.columns(), &spec.keys);
        self.ids.clear();
        let chosen = (piece.rows, piece.bundle.num_rows());
        self.sessions.intern(&keys, chosen, &mut self.ids)?;
        self.sessions.touch_keys(&shared.calls, &self.ids)?;
        let of = RowsOf::new(&shared.calls, piece.bundle);
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
            self.emit_closed(&closed, output)?;
            self.sessions.forget(&self.shared.calls, &closed)?;
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        self.sessions.bytes() + self.ids.capacity() * 4
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.sessions.len())
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        self.sessions.changes(SESSIONS).into_iter().collect()
    }

    fn stop_tracking(&mut self, _table: &str) {
        self.sessions.stop_tracking();
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let mut rows = restored.table(SESSIONS).iter();
        rows.try_for_each(|rows| self.sessions.resume(&self.shared.calls, rows))
    }

    /// The entry may be an end that the session has outgrown. The call then moves the entry and
    /// emits nothing, which is cheaper than keeping the index exact for each row.
    fn wakes_at(&self) -> Watermark {
        let first = self.sessions.first_end();
        first.map_or(Watermark::END, |end| Watermark(end.saturating_sub(1)))
    }
}

impl SharedCapture for SessionState {
    /// Captures the live sessions with their states. Their numbers, the lists and the index by end
    /// are rebuilt; the index also has ends that sessions had once, which mean nothing.
    fn capture_shared(shared: &Arc<SharedState<Self>>, extent: Extent) -> Result<Captured> {
        let mut state = shared.lock();
        let calls = Arc::clone(&state.shared.calls);
        let schema = state.sessions.rows(&calls, &[])?.schema();
        let begun = state.sessions.begin_capture(&calls, extent)?;
        let table = begun.table(SESSIONS, schema, shared, move |state, begun, most| {
            let sessions = &mut state.sessions;
            Ok(sessions.is_reading(begun) && sessions.read_some(&calls, most)?)
        });
        Ok(Captured { tables: vec![table] })
    }
}
