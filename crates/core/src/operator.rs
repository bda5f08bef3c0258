//! What an operator promises to the runtime, and what the runtime promises to it.
//!
//! Two shapes exist. A [`Transform`] is stateless: any number of workers call it at once, one
//! bundle in and one bundle out. An [`Operator`] keeps state in [`Partition`]s: each is touched by
//! one worker at a time and never sees containers, gates or serials.
//!
//! Calls on a partition come in this order, for ever: any number of [`Partition::rows`], then one
//! [`Partition::watermark`] per phase (repeated while it answers [`Progress::More`]), and again.
//! All partitions finish a phase before any begins the next; within a phase they run side by side.
//! Between two phases of one watermark a `Commuting` operator may be given rows of later epochs.
//!
//! A partition that uses processing time also gets [`Partition::tick`], in between.
//!
//! A call should return within about a millisecond. `rows` gets at most one bundle (64 Ki rows);
//! `watermark` looks at [`Output::time_is_up`] and answers [`Progress::More`] to continue later.
//!
//! # Output that is full
//! Some operators make many rows of one. What a call may emit is bounded so that memory has a
//! limit:
//! - the runtime hands a piece over in slices, sized by what the slices before led to
//!   ([`Operator::takes_slices`]);
//! - an operator that cannot know what a slice leads to asks [`Output::is_full`] between rows. Once
//!   it is, the operator stops behind a row and says so ([`Output::stop_at`]); a watermark answers
//!   [`Progress::More`].
//!
//! The rest comes with the next call, when downstream has taken what was emitted. The cursor is the
//! runtime's: a partition keeps none between calls, except within a row that it has not taken and
//! that comes again. No capture ever meets one: rows inside a cut are taken before it.

use std::any::Any;
use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use crate::bundle::{Bundle, RowKind, batch_bytes};
use crate::error::{Error, Result};
pub use crate::partition::PartitionContext;
use crate::shim::SharedClock;
use crate::snapshot::{Captured, Extent, Restored, TableChanges};
use crate::time::{Grid, Watermark, WatermarkBefore};

/// How far the runtime may depart from the order of rows and watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorClass {
    /// Rows commute bit for bit: those of later epochs may be taken early, and those of an epoch in
    /// any order, and the same rows leave. What leaves with rows, rather than at watermarks, has
    /// times above [`Operator::output_watermark`] of the watermark before each row that it is made
    /// of; so it may belong to any epoch of the output that is open when it is made.
    Commuting,
    /// Takes each lane's rows and watermarks in serial order, per partition.
    Sequenced,
}

/// Which watermarks an operator needs to see. Sources end epochs only where one is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatermarkInterest {
    /// Only the last one.
    EndOnly,
    /// Those that close a window ending at a point of one of these grids, which a watermark does
    /// from the point minus 1 ms on.
    Grids(Vec<Grid>),
    /// Any advance may matter (sessions, sorting by time).
    Every,
}

/// Where the rows of a bundle go.
#[derive(Clone, Debug)]
pub enum Route {
    /// The whole bundle to whichever partition is local to the worker. Only for `Commuting`
    /// operators whose partitions exchange what they have at the watermark.
    Any,
    /// For each partition the rows that belong to it, in bundle order. As long as the number of
    /// partitions.
    Scatter(Vec<Vec<u32>>),
    /// Some rows to the partition that is local to the worker and the others to those that they
    /// belong to, where a few keys have more rows than one partition should take. Under the same
    /// conditions as `Any`.
    Partly {
        /// As in `Scatter`, without the local rows.
        scattered: Vec<Vec<u32>>,
        /// The local rows, in bundle order.
        local: Vec<u32>,
    },
}

impl Route {
    /// All rows to the first partition.
    pub fn all_to_first(bundle: &Bundle, partitions: usize) -> Self {
        let mut rows = vec![Vec::new(); partitions.max(1)];
        rows[0] = (0..bundle.num_rows() as u32).collect();
        Route::Scatter(rows)
    }

    /// How many partitions it leads to; the local one counts once more if it has rows of both ways.
    pub fn num_shares(&self) -> usize {
        let filled = |parts: &[Vec<u32>]| parts.iter().filter(|rows| !rows.is_empty()).count();
        match self {
            Route::Scatter(parts) if parts.len() > 1 => filled(parts),
            Route::Any | Route::Scatter(_) => 1,
            Route::Partly { scattered, local } => {
                filled(scattered) + usize::from(!local.is_empty())
            }
        }
    }

    /// What each partition takes: local rows first, then by ascending partition. `local` is the
    /// partition that takes what has no route.
    pub fn shares(self, local: usize) -> impl Iterator<Item = Share> {
        let to_local = |rows| Some(Share { partition: local, rows, is_local: true });
        let (first, parts) = match self {
            Route::Any => (to_local(None), Vec::new()),
            Route::Scatter(parts) if parts.len() == 1 => {
                (Some(Share { partition: 0, rows: None, is_local: true }), Vec::new())
            }
            Route::Scatter(parts) => (None, parts),
            Route::Partly { scattered, local } if local.is_empty() => (None, scattered),
            Route::Partly { scattered, local } => (to_local(Some(local)), scattered),
        };
        let parts = parts.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        let of_owner = |(partition, rows)| Share { partition, rows: Some(rows), is_local: false };
        first.into_iter().chain(parts.map(of_owner))
    }
}

/// The rows of a bundle that one partition takes.
#[derive(Clone, Debug)]
pub struct Share {
    /// The partition.
    pub partition: usize,
    /// Which rows, in bundle order; `None` means all.
    pub rows: Option<Vec<u32>>,
    /// True if the partition takes them because it is local to the worker, whichever partition owns
    /// their keys.
    pub is_local: bool,
}

impl Share {
    /// The rows, of this bundle, for an operator with this number of lanes.
    pub fn piece<'a>(&'a self, bundle: &'a Bundle, lanes: usize) -> Piece<'a> {
        Piece { bundle, rows: self.rows.as_deref(), is_local: self.is_local, lanes }
    }
}

/// A stateless stage. Any number of workers call it at once.
pub trait Transform: Send + Sync {
    /// A short name for metrics, EXPLAIN and errors.
    fn name(&self) -> String;
    /// Turns one bundle into one bundle. Stamps stay, except `watermark_before`, which must fit
    /// the rows that are left. An error stops the job.
    fn apply(&self, bundle: Bundle) -> Result<Bundle>;
    /// True if it may make many rows of one: its bundles are applied in parts.
    fn multiplies(&self) -> bool {
        false
    }
    /// Applies a bundle until about `room_bytes` are made of it. Each part has the stamps of the
    /// bundle.
    fn begin_parts(&self, bundle: Bundle, room_bytes: usize) -> Result<Part> {
        let _ = room_bytes;
        Ok(Part { bundle: self.apply(bundle)?, rest: None })
    }
    /// Continues with what a part has left, by any worker.
    ///
    /// # Errors
    /// Those of [`Transform::apply`].
    fn next_part(&self, rest: Rest, room_bytes: usize) -> Result<Part> {
        let _ = (rest, room_bytes);
        Err(Error::internal("a stage that leaves nothing was asked to continue"))
    }
    /// True if bundles with rows are begun rather than applied: the stage waits for the outside.
    fn is_asynchronous(&self) -> bool {
        false
    }
    /// Begins to turn one bundle into one, and returns at once. `done` is called once, by any
    /// thread, with what is left to be done, which a worker then does; until then the bundle counts
    /// as not consumed.
    fn begin(&self, bundle: Bundle, done: Done) {
        let result = self.apply(bundle);
        done(Box::new(move || result));
    }
}

/// What a transform has not made yet of a bundle: its own, in a box.
pub type Rest = Box<dyn Any + Send>;

/// Some of what a transform makes of a bundle.
pub struct Part {
    /// The next rows, in order.
    pub bundle: Bundle,
    /// What follows; `None` behind the last part.
    pub rest: Option<Rest>,
}

/// What is left to be done when what a bundle waited for is there.
pub type Finish = Box<dyn FnOnce() -> Result<Bundle> + Send>;

/// Returns a bundle that was begun to the runtime.
pub type Done = Box<dyn FnOnce(Finish) + Send>;

/// A stateful stage: a factory of partitions and the rule that spreads rows over them.
pub trait Operator: Send + Sync {
    /// A short name for metrics, EXPLAIN and errors.
    fn name(&self) -> String;
    /// How rows may be taken: in order, unless it says otherwise.
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    /// True if there can be only one partition.
    fn is_singleton(&self) -> bool {
        false
    }
    /// How many partitions it wants, from 1 to 256; `None` leaves that to the job.
    fn partitions(&self) -> Option<usize> {
        None
    }
    /// True if what rows do depends on which watermarks came before them (timers that change
    /// state). In ordered contracts a watermark that matters then stands right behind the row that
    /// caused it, whatever the bundles; in `epoch` rows have their exact `watermark_before`.
    fn rows_depend_on_watermarks(&self) -> bool {
        false
    }
    /// True if what it does depends on the wall clock (windows and timers of processing time).
    /// Where a sequence is promised it is refused then, unless the clock is admitted.
    fn uses_processing_time(&self) -> bool {
        false
    }
    /// Which watermarks matter: only the last one, unless it says otherwise.
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::EndOnly
    }
    /// True if nothing leaves it but at a watermark. Rows that no watermark that matters follows
    /// may come later then, in larger bundles.
    fn emits_only_at_watermarks(&self) -> bool {
        false
    }
    /// True if a piece may come in several calls, each with some of its rows in order. Asked where
    /// what rows lead to can be much more than they are.
    fn takes_slices(&self) -> bool {
        self.class() == OperatorClass::Sequenced
    }
    /// How many output ports: 1, or 2 where late rows leave by port 1.
    fn ports(&self) -> usize {
        1
    }
    /// Where the rows of this bundle go: all to the first partition, unless it says otherwise, as
    /// who may have several does. Called by any worker, at any time, also concurrently.
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        Ok(Route::all_to_first(bundle, partitions))
    }
    /// How many phases a watermark takes, at least 1.
    fn watermark_phases(&self) -> usize {
        1
    }
    /// Makes the state of one partition. Called once per partition, before any row.
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>>;
    /// The watermark to pass on after `input` has been consumed, or `None` to pass none: the
    /// containers downstream are then merged. The last one ([`Watermark::END`]) is always passed.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        Some(input)
    }
    /// What a user can do where its state has reached the memory limit.
    fn memory_hint(&self) -> &'static str {
        "raise 'memory.limit', make windows shorter, or group by fewer keys"
    }
    /// What went wrong so far without stopping the job, for the metrics.
    fn problem(&self) -> Option<String> {
        None
    }
    /// True if every row is either accepted or late; the runtime then asserts at the end of the
    /// run that `accepted + late` equals the rows that came in.
    fn judges_lateness(&self) -> bool {
        false
    }
}

/// Rows for one partition: a bundle, or some rows of it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The bundle.
    pub bundle: &'a Bundle,
    /// The rows that are meant, ascending; `None` means all.
    pub rows: Option<&'a [u32]>,
    /// True if any partition might have been given them ([`Route::Any`], the local rows of
    /// [`Route::Partly`]), rather than the one that they belong to.
    pub is_local: bool,
    /// How many lanes the operator has. With one lane `watermark_before` also says which windows
    /// are closed; with several the joint watermark does.
    pub lanes: usize,
}

impl<'a> Piece<'a> {
    /// All rows of a bundle, for the partition that is local to the worker.
    pub fn whole(bundle: &'a Bundle, lanes: usize) -> Self {
        Piece { bundle, rows: None, is_local: true, lanes }
    }

    /// How many rows are meant.
    pub fn num_rows(&self) -> usize {
        self.rows.map_or(self.bundle.num_rows(), <[u32]>::len)
    }
}

/// Whether a call has finished its work.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All done.
    Done,
    /// Time was up; call again.
    More,
}

/// One call of [`Partition::watermark`].
pub struct WatermarkCall<'a> {
    /// The joint watermark.
    pub watermark: Watermark,
    /// From 0.
    pub phase: usize,
    /// What partitions leave for one another between phases.
    pub exchange: &'a Exchange,
}

/// The state of one key range. Touched by one worker at a time.
pub trait Partition: Send {
    /// Takes rows: all of them, or the first ones as far as [`Output::stop_at`] says.
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()>;
    /// Takes a watermark, which leads to nothing unless it says otherwise. On [`Progress::More`] it
    /// is called again with the same arguments.
    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let _ = (call, output);
        Ok(Progress::Done)
    }
    /// Emits what it has held of earlier calls ([`Output::held_call`]).
    ///
    /// # Errors
    /// If what was held is no batch.
    fn flush(&mut self, output: &mut Output) -> Result<()> {
        let _ = output;
        Ok(())
    }
    /// About how many bytes the state takes.
    fn state_bytes(&self) -> usize;
    /// How many entries the state has: keys that have something (in each window that is open), or
    /// rows where rows are kept. Asked as often as [`Partition::state_bytes`], so it must not walk
    /// over them. `None` where nothing is counted.
    fn state_keys(&self) -> Option<usize> {
        None
    }
    /// The least watermark at which it has something to do; [`Watermark::END`] for none but the
    /// last. Until then watermarks may be kept from it, where its operator takes them in one phase.
    fn wakes_at(&self) -> Watermark {
        Watermark::MIN
    }
    /// When [`Partition::tick`] is due, in milliseconds of processing time since 1970; `None` for
    /// never. Asked after each call.
    fn ticks_at(&self) -> Option<i64> {
        None
    }
    /// The clock has reached [`Partition::ticks_at`]; may come later, never before. Between two
    /// other calls, in the contract `epoch` only: where a sequence is promised, the clock calls
    /// nobody, and what is due is done with the next rows or watermark. On [`Progress::More`] it is
    /// called again, perhaps after other calls.
    fn tick(&mut self, _output: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }
    /// Captures its state, between two other calls and never in the middle of a watermark. Another
    /// run that restores it ([`Partition::restore`]; its part of it, where the number of partitions
    /// differs) behaves as this one would have. Rows that take long to make are made later
    /// ([`Captured::add_later`]). [`Extent::Incremental`] is requested only if the previous capture
    /// was kept, and may be answered in full.
    ///
    /// # Errors
    /// If it has no snapshots.
    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        let _ = extent;
        Err(Error::unsupported("its state cannot be captured, so no snapshot can be taken")
            .hint("implement Partition::capture and Partition::restore, or run without snapshots"))
    }
    /// What is known of the tables that may be captured incrementally, right before a capture;
    /// none before the first capture.
    fn table_changes(&mut self) -> Vec<TableChanges> {
        Vec::new()
    }
    /// Stops tracking the changes of one of these tables until its next capture, which is full.
    fn stop_tracking(&mut self, table: &str) {
        let _ = table;
    }
    /// Restores what partitions of the same operator have captured. Called once, before anything
    /// else.
    ///
    /// # Errors
    /// If it does not fit: the snapshot is of something else, or damaged.
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let _ = restored;
        Err(Error::unsupported("its state cannot be restored from a snapshot")
            .hint("implement Partition::capture and Partition::restore"))
    }
}

/// Mailboxes between the phases of one watermark: in an early phase each partition puts parcels
/// for others, in a later phase each takes its own. The runtime's barrier between phases makes
/// sure that all parcels are there.
pub struct Exchange {
    boxes: Vec<Mutex<Vec<Box<dyn Any + Send>>>>,
}

impl Exchange {
    /// Mailboxes for this many partitions.
    pub fn new(partitions: usize) -> Self {
        Exchange { boxes: (0..partitions).map(|_| Mutex::default()).collect() }
    }
    /// Leaves a parcel for a partition.
    pub fn put(&self, partition: usize, parcel: Box<dyn Any + Send>) {
        self.boxes[partition].lock().expect("no parcel is put by a panicking worker").push(parcel);
    }
    /// Takes all parcels left for a partition, in no particular order.
    pub fn take(&self, partition: usize) -> Vec<Box<dyn Any + Send>> {
        std::mem::take(
            &mut *self.boxes[partition].lock().expect("no parcel is put by a panicking worker"),
        )
    }
}

/// Rows that leave by one port.
pub struct Emitted {
    /// 0 is the result; 1 are late rows.
    pub port: usize,
    /// The rows.
    pub batch: RecordBatch,
    /// Row kinds of a changelog.
    pub kinds: Option<Arc<[RowKind]>>,
    /// Their place in the output sequence; read in the contracts `arrival` and `event_time` only.
    pub place: Place,
}

/// Where rows stand in the output sequence of an operator, whatever partition made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// As emitted, partitions in ascending order. All that an operator with one partition needs.
    #[default]
    AsEmitted,
    /// Made from rows: for each row the row of the piece's bundle that caused it, ascending.
    Caused(Vec<u32>),
    /// Made at a watermark: the end of the window that all of them belong to. The rows themselves
    /// are sorted by virtual partition, then by key bytes.
    WindowEnd(i64),
    /// The same with a window end for each row, ascending (sessions).
    WindowEnds(Vec<i64>),
    /// Made in several calls ([`Output::held_call`]).
    OfCalls(CallPlaces),
}

/// The places of rows that were made in several calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPlaces {
    /// The number of a call ([`Output::held_call`]), and the end of its rows in the batch.
    pub ends: Vec<(u32, usize)>,
    /// For each row what [`Place::Caused`] or [`Place::WindowEnds`] would say of it.
    pub places: Vec<i64>,
}

/// Rows of one bundle that were late, as they came: for people who look at them.
#[derive(Clone, Debug)]
pub struct LateRows {
    /// The rows, with the columns of the operator's input.
    pub batch: RecordBatch,
    /// The watermark of its split before each of them.
    pub watermark_before: WatermarkBefore,
    /// The event time by which each was judged, in milliseconds since 1970.
    pub times: Vec<i64>,
}

/// How many late rows of a call are shown to people at most; all of them are counted.
const LATE_ROWS_SHOWN_MAX: usize = 256;

/// A call that takes rows may be so late. Stopping costs: what is worked out for all rows of a
/// piece is worked out again for the rest.
const PATIENCE_NS: u64 = 20_000_000;

/// Where a partition puts what it produces during one call.
pub struct Output {
    /// The rows that leave, in order.
    pub emitted: Vec<Emitted>,
    /// Rows that were taken.
    pub accepted: u64,
    /// Rows that were late for every window and not taken.
    pub late: u64,
    /// The first of those, for people.
    pub late_rows: Vec<LateRows>,
    /// Rows that were taken but late for some of their windows.
    pub partly_late: u64,
    /// Set by a singleton that will never emit again (LIMIT reached): the runtime ends its output
    /// with [`Watermark::END`] and stops what feeds nothing else.
    pub ended: bool,
    clock: SharedClock,
    deadline_ns: u64,
    room_bytes: usize,
    bytes: usize,
    stopped_at: Option<usize>,
    held_call: Option<u32>,
}

impl Output {
    /// An empty output whose time is up at `deadline_ns` by this clock.
    pub fn new(clock: SharedClock, deadline_ns: u64) -> Self {
        Output {
            emitted: Vec::new(),
            accepted: 0,
            late: 0,
            late_rows: Vec::new(),
            partly_late: 0,
            ended: false,
            clock,
            deadline_ns,
            room_bytes: usize::MAX,
            bytes: 0,
            stopped_at: None,
            held_call: None,
        }
    }
    /// The same for a call with this number, whose results may be held.
    #[must_use]
    pub fn of_call(self, number: u32) -> Self {
        Output { held_call: Some(number), ..self }
    }
    /// Where rows and watermarks come in turn, a few rows at a time, a partition may hold what it
    /// makes until [`Partition::flush`], which then comes before any other item: this is the number
    /// of the call, which [`Place::OfCalls`] names. `None` where nothing may be held.
    pub fn held_call(&self) -> Option<u32> {
        self.held_call
    }
    /// The same with room for `room_bytes`: the call that makes it full is the last.
    #[must_use]
    pub fn with_room(self, room_bytes: usize) -> Self {
        Output { room_bytes, ..self }
    }
    /// True once a call should stop behind the row that it is at: enough is emitted, or it has
    /// taken far longer than it should, with few results or none.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.room_bytes
            || self.clock.now_ns() >= self.deadline_ns.saturating_add(PATIENCE_NS)
    }
    /// About how many bytes there is room for.
    pub fn room_bytes(&self) -> usize {
        self.room_bytes.saturating_sub(self.bytes)
    }
    /// About how many bytes were emitted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Only the first `taken` rows of the piece were taken; the next call gets those behind them.
    ///
    /// # Panics
    /// If none was taken and nothing emitted: the operator would never get anywhere.
    pub fn stop_at(&mut self, taken: usize) {
        assert!(taken > 0 || self.bytes > 0, "a call takes at least one row or emits some");
        self.stopped_at = Some(taken);
    }
    /// How many of a piece's `rows` were taken.
    pub fn taken_of(&self, rows: usize) -> usize {
        self.stopped_at.map_or(rows, |taken| taken.min(rows))
    }
    /// Sends rows out as results. Empty batches are dropped.
    pub fn emit(&mut self, batch: RecordBatch) {
        self.emit_to(0, batch, Place::AsEmitted);
    }
    /// Sends rows out as results, with their place in the output sequence.
    pub fn emit_at(&mut self, batch: RecordBatch, place: Place) {
        self.emit_to(0, batch, place);
    }
    /// Sends changes out: the rows, what each does, and their place in the output sequence.
    ///
    /// # Panics
    /// If there is not one kind for each row.
    pub fn emit_changes(&mut self, batch: RecordBatch, kinds: Arc<[RowKind]>, place: Place) {
        assert_eq!(kinds.len(), batch.num_rows(), "one kind per row");
        self.emit_to(0, batch, place);
        if let Some(emitted) = self.emitted.last_mut().filter(|_| !kinds.is_empty()) {
            emitted.kinds = Some(kinds);
        }
    }
    /// Counts rows of a bundle as late, each with the event time by which it was judged, and shows
    /// the first of them to people.
    ///
    /// # Errors
    /// If the rows are not there.
    pub fn count_late(&mut self, bundle: &Bundle, late: &[(u32, i64)]) -> Result<()> {
        self.late += late.len() as u64;
        let shown = self.late_rows.iter().map(|late| late.batch.num_rows()).sum();
        let late = &late[..late.len().min(LATE_ROWS_SHOWN_MAX.saturating_sub(shown))];
        if !late.is_empty() {
            let before = &bundle.stamps.watermark_before;
            let watermarks = late.iter().map(|&(row, _)| before.at(row as usize).0).collect();
            let rows = UInt32Array::from_iter_values(late.iter().map(|&(row, _)| row));
            let batch = take_record_batch(&bundle.batch, &rows)?;
            let watermark_before = WatermarkBefore::Rows(watermarks);
            let times = late.iter().map(|&(_, time)| time).collect();
            self.late_rows.push(LateRows { batch, watermark_before, times });
        }
        Ok(())
    }
    /// Sends late rows out (port 1), if anybody takes them; counting is up to the caller. `causes`
    /// are their rows in the piece's bundle.
    pub fn emit_late(&mut self, batch: RecordBatch, causes: Vec<u32>) {
        self.emit_to(1, batch, Place::Caused(causes));
    }
    fn emit_to(&mut self, port: usize, batch: RecordBatch, place: Place) {
        match &place {
            Place::Caused(causes) => assert_eq!(causes.len(), batch.num_rows(), "one per row"),
            Place::WindowEnds(ends) => assert_eq!(ends.len(), batch.num_rows(), "one per row"),
            Place::OfCalls(of) => assert_eq!(of.places.len(), batch.num_rows(), "one per row"),
            Place::AsEmitted | Place::WindowEnd(_) => {}
        }
        if batch.num_rows() > 0 {
            self.bytes += batch_bytes(&batch);
            self.emitted.push(Emitted { port, batch, kinds: None, place });
        }
    }
    /// The wall clock, in milliseconds since 1970: for what has to go by processing time.
    pub fn wall_ms(&self) -> i64 {
        self.clock.wall_ms()
    }
    /// True once a long call should return [`Progress::More`]: its time is over, or the output is
    /// full.
    pub fn time_is_up(&self) -> bool {
        self.bytes >= self.room_bytes || self.clock.now_ns() >= self.deadline_ns
    }
}
