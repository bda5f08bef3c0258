//! A stage at run time: its lanes, its edges, and what stands in the middle.
//!
//! # Cells
//! Each partition of an operator lives in a [`Cell`]: a mailbox of pieces and barriers in front of
//! the partition's state. The mailbox's owner is the one worker that may touch the state.
//!
//! # Sequencers
//! A `sequenced` operator and a sink take the bundles of a lane in order: container after
//! container, and within one by ordinal. Bundles are routed by any worker in any order and then
//! offered to the lane's [`Sequencer`], which holds what comes early and lets the rest through
//! under a short lock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::connector::{Assign, Trouble};
use thalweg_core::graph::{Alignment, StageId};
use thalweg_core::snapshot::{self, AssignerPosition, OutputMark, SinkGuarantee};
use thalweg_core::{
    Bundle, Error, Operator, OperatorClass, Partition, Piece, Result, Route, Share, Sink, Source,
    SourceBatch, SourcePoll, Transform, Watermark,
};
use thalweg_ordering::Mailbox;
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Mutex, Ordering};

use crate::barrier::{Barrier, BarrierResults, Joint, SharedCompletions};
use crate::container::Container;
use crate::epoch::small_results::WaitingResults;
use crate::lane::Lane;
use crate::metrics::{
    LatencyHistogram, SourceSnapshot, SplitSnapshot, StageMetrics, StageRole, TimeBuckets,
};
use crate::ordered::gather::Gather;
use crate::slices::{SliceRows, next_slice};
use crate::source_batcher::SourceBatcher;
use crate::splits::Splits;
use crate::tap::EdgeTap;

/// An edge to a stage downstream.
#[derive(Debug)]
pub struct Edge {
    /// The output port it hangs on.
    pub port: usize,
    /// Where it leads.
    pub to: StageId,
    /// The first of the lanes there that belong to this edge.
    pub lane_base: usize,
    /// People may look at what passes.
    pub tap: EdgeTap,
}

/// A stage of a running job.
pub struct StageRun {
    /// Stable identifier.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// What it does.
    pub kind: StageRunKind,
    /// One per input lane; sources have none.
    pub lanes: Vec<Lane>,
    /// In the order of the containers' links.
    pub edges: Vec<Edge>,
    /// What is counted.
    pub metrics: StageMetrics,
    /// Nobody needs what this stage makes any more.
    pub ended: AtomicBool,
    /// The stages that feed it.
    pub inputs: Vec<usize>,
    /// Lanes that have reached the cut that is under way, with the containers that it ends
    /// (`epoch`).
    pub at_cut: Mutex<Vec<(usize, Arc<Container>)>>,
}

impl StageRun {
    /// What the stage is, for metrics.
    pub fn role(&self) -> StageRole {
        match &self.kind {
            StageRunKind::Source(_) => StageRole::Source,
            StageRunKind::Transform(_) => StageRole::Transform,
            StageRunKind::Operator(_) => StageRole::Operator,
            StageRunKind::Sink(_) => StageRole::Sink,
        }
    }

    /// The source that it is.
    pub(crate) fn source(&self) -> Option<&SourceRun> {
        match &self.kind {
            StageRunKind::Source(source) => Some(source),
            _ => None,
        }
    }

    /// The operator that it is.
    pub(crate) fn operator(&self) -> Option<&OperatorRun> {
        match &self.kind {
            StageRunKind::Operator(operator) => Some(operator),
            _ => None,
        }
    }

    /// The sink that it is.
    pub(crate) fn sink(&self) -> Option<&SinkRun> {
        match &self.kind {
            StageRunKind::Sink(sink) => Some(sink),
            _ => None,
        }
    }

    /// What it does, if it is stateless.
    pub(crate) fn transform(&self) -> Option<&dyn Transform> {
        match &self.kind {
            StageRunKind::Transform(transform) => Some(transform.as_ref()),
            _ => None,
        }
    }

    /// Its cells; none unless it is an operator.
    pub(crate) fn cells(&self) -> &[Cell] {
        self.operator().map_or(&[], |operator| &operator.cells)
    }

    /// True if nobody needs what it makes. A hint: another worker may see it later.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The edges of a port with their places.
    pub fn edges_of(&self, port: usize) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges.iter().enumerate().filter(move |(_, edge)| edge.port == port)
    }
}

/// What a stage does at run time.
pub enum StageRunKind {
    /// Reads.
    Source(Box<SourceRun>),
    /// Stateless.
    Transform(Arc<dyn Transform>),
    /// Stateful.
    Operator(OperatorRun),
    /// Writes.
    Sink(SinkRun),
}

/// A source and its assigner.
pub struct SourceRun {
    /// Polled by one worker at a time; nobody waits for this lock.
    pub state: Mutex<SourceState>,
    /// True if polling may bring something. Set by the source's waker, cleared before a poll.
    pub ready: AtomicBool,
    /// True while a worker is at it or on its way, so that others do other things meanwhile. Set by
    /// the dispatcher, cleared by that worker.
    pub is_asked: AtomicBool,
    /// True once the last epoch is closed.
    pub finished: AtomicBool,
    /// True if the input ends by itself.
    pub bounded: bool,
    /// True if its rows have a time.
    pub has_time: bool,
    /// From when on its silence counts: it was not asked before.
    pub asked_from_ns: AtomicU64,
    /// When one of its splits may have been quiet for long enough to fall idle, at the earliest.
    pub quiet_at_ns: AtomicU64,
    /// What metrics show of its splits, as it was last looked at.
    pub shown_splits: Mutex<ShownSplits>,
    /// When it was asked for rows last; 0 if it was not yet.
    pub asked_ns: AtomicU64,
    /// When that was.
    pub shown_ns: AtomicU64,
    /// It was asked for rows. Only shown.
    pub was_polled: AtomicBool,
    /// How its splits are kept together with those of others.
    pub alignment: Option<Alignment>,
    /// Splits whose watermark is beyond this are ahead of their group, and give nothing.
    pub limit_ms: AtomicI64,
    /// When that was worked out last.
    pub aligned_ns: AtomicU64,
    /// Its only split is ahead: it is not asked.
    pub is_held: AtomicBool,
    /// After this silence a split of it is idle, where the clock may decide that.
    pub idle_timeout: Option<Duration>,
    /// Until when it waits for more rows before it gives on those it has; a hint for the scheduler.
    pub gathers_until_ns: AtomicU64,
    /// It waits for them only while there is something else to do. Set by the worker that asked it,
    /// cleared before it is asked again.
    pub gathers_while_busy: AtomicBool,
    /// True while declared idle.
    pub idle: AtomicBool,
    /// True while a cut is to be placed behind what it has given. Set by whoever begins the cut,
    /// cleared by the worker that places it.
    pub wants_cut: AtomicBool,
}

/// What metrics show of the splits of a source.
#[derive(Default)]
pub struct ShownSplits {
    /// Those that have a name.
    pub named: Vec<SplitSnapshot>,
    /// All of them together.
    pub whole: Option<SplitSnapshot>,
    /// How often the connection of the source was made again.
    pub reconnects: Option<u64>,
}

impl SourceRun {
    /// True while a cut is to be placed.
    pub(crate) fn wants_cut(&self) -> bool {
        // SeqCst: set before workers are notified, see the sleep protocol.
        self.wants_cut.load(Ordering::SeqCst)
    }

    /// True once the last epoch is closed.
    pub(crate) fn has_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Looks again at what metrics show of its splits.
    pub(crate) fn show_splits(&self, state: &SourceState, metrics: &StageMetrics, now_ns: u64) {
        let source = state.source.as_ref();
        let shown = ShownSplits {
            named: state.splits.shown(source),
            whole: Some(state.splits.whole(source)),
            reconnects: source.reconnects(),
        };
        *self.shown_splits.lock().expect("no panic under this lock") = shown;
        metrics.bad_rows.store(source.bad_rows(), Ordering::Relaxed);
        self.shown_ns.store(now_ns, Ordering::Relaxed);
    }

    /// What metrics show of it as a whole.
    pub(crate) fn shown_whole(&self) -> SourceSnapshot {
        let asked_ns = self.asked_ns.load(Ordering::Relaxed);
        let shown = self.shown_splits.lock().expect("no panic under this lock");
        SourceSnapshot {
            asked_ns: Some(asked_ns).filter(|&at_ns| at_ns > 0),
            is_ready: self.ready.load(Ordering::Relaxed),
            is_held: self.is_held.load(Ordering::Relaxed),
            has_ended: self.has_finished(),
            reconnects: shown.reconnects,
            whole: shown.whole.clone(),
        }
    }

    /// A split has come, or has come back: its silence counts from now on.
    pub(crate) fn note_active(&self, now_ns: u64) {
        if let Some(timeout) = self.idle_timeout {
            let quiet_at_ns = now_ns.saturating_add(timeout.as_nanos() as u64);
            self.quiet_at_ns.fetch_min(quiet_at_ns, Ordering::Relaxed);
        }
    }

    /// Calls the source, unless it has panicked: such a one is asked nothing more.
    pub(crate) fn call(&self, call: impl FnOnce(&mut dyn Source)) {
        if let Ok(mut state) = self.state.lock() {
            call(state.source.as_mut());
        }
    }
}

/// What the worker that polls a source works with.
pub struct SourceState {
    /// The source.
    pub source: Box<dyn Source>,
    /// Stamps row times.
    pub assigner: Option<Box<dyn Assign>>,
    /// The open container downstream, one per edge.
    pub current: Vec<Option<Arc<Container>>>,
    /// Rows that were read and not yet sent.
    pub leftover: VecDeque<SourceBatch>,
    /// Rows that were read and wait for company.
    pub batcher: SourceBatcher,
    /// True if all that comes of its rows comes at watermarks, so that rows behind which no epoch
    /// ends may wait.
    pub waits_for_epoch: bool,
    /// What the source has said of what comes behind the rows that were read.
    pub behind: Option<SourcePoll>,
    /// Its splits and their watermarks.
    pub splits: Splits,
    /// The source has ended; what is gathered goes first.
    pub at_end: bool,
    /// Bundles sent so far.
    pub serial: u64,
    /// Epochs ended so far.
    pub epoch: u64,
    /// Cuts placed so far.
    pub cuts: u64,
    /// The watermark with which an epoch, or an element, ended last.
    pub taken: Watermark,
    /// The time of the last row, where inputs are merged by time.
    pub frontier_ms: i64,
    /// The input had ended in an earlier run, at this position; it is not started.
    pub ended_at: Option<String>,
    /// How many rows to ask for: grows while the source always has more, shrinks when it has not.
    pub bundle_rows: usize,
    /// The newest moment at which rows came in.
    pub ingest_ns: u64,
    /// What the source keeps back, as last reported.
    pub buffered_bytes: usize,
}

impl SourceState {
    /// What the source is at a cut behind all that it has sent.
    ///
    /// # Errors
    /// If it cannot be read again from there.
    pub(crate) fn at_cut(&self, run: &SourceRun) -> Result<snapshot::SourceState> {
        let finished = run.has_finished();
        let position = self.ended_at.clone().or_else(|| self.source.position());
        if position.is_none() && !finished {
            let name = self.source.name();
            return Err(Error::user(format!(
                "no snapshot can be taken: the input '{name}' can't be read again from where it is"
            ))
            .hint("run without snapshots, or read from a connector that can be replayed (files, for example)"));
        }
        Ok(snapshot::SourceState {
            position,
            assigner: self
                .assigner
                .as_ref()
                .map(|_| AssignerPosition { running: self.splits.joint(), taken: self.taken }),
            splits: self.splits.states(),
            finished,
            idle: run.idle.load(Ordering::SeqCst),
            epoch: self.epoch,
            serial: self.serial,
            taken: self.taken,
            frontier_ms: self.frontier_ms,
        })
    }

    /// True if it has given something that is not sent yet.
    pub(crate) fn has_given(&self) -> bool {
        !self.batcher.is_empty() || !self.leftover.is_empty() || self.behind.is_some()
    }

    /// Metrics show how far the source is, if its rows have a time.
    pub(crate) fn show_watermark(&self, metrics: &StageMetrics, now_ns: impl FnOnce() -> u64) {
        if self.assigner.is_some() {
            metrics.set_watermark(self.splits.joint(), now_ns);
        }
    }

    /// True if the epoch may end behind these rows, which it has read just now.
    pub(crate) fn may_end_epoch(&self, batch: &SourceBatch) -> bool {
        let Some(assigner) = &self.assigner else { return true };
        let Some(highest) = assigner.highest(&batch.batch) else { return true };
        let own = self.splits.running(batch.split).max(highest);
        assigner.crosses(self.taken, own.min(self.splits.least_of_others(batch.split)))
    }

    /// The joint watermark of the splits, if it has crossed a time that matters downstream since it
    /// was last taken: the epoch ends there.
    pub(crate) fn take_watermark(&mut self) -> Option<Watermark> {
        let joint = self.splits.joint();
        let crosses = joint > self.taken && self.assigner.as_ref()?.crosses(self.taken, joint);
        crosses.then(|| {
            self.taken = joint;
            joint
        })
    }
}

/// An operator and its cells.
pub struct OperatorRun {
    /// The operator.
    pub operator: Arc<dyn Operator>,
    /// How rows may be taken.
    pub class: OperatorClass,
    /// Phases of a watermark.
    pub phases: usize,
    /// True if a piece may come in slices.
    pub takes_slices: bool,
    /// True if no watermark but the last one matters to it.
    pub heeds_only_end: bool,
    /// True if its partitions count the entries of their state.
    pub counts_keys: bool,
    /// One per partition.
    pub cells: Vec<Cell>,
    /// The joint watermark.
    pub joint: Mutex<Joint>,
    /// Finished barriers.
    pub completions: SharedCompletions,
    /// Results that have yet to leave (`epoch`).
    pub waiting: WaitingResults,
    /// One per lane, for `sequenced` operators.
    pub sequencers: Vec<Mutex<Sequencer<Routed>>>,
}

impl OperatorRun {
    /// The cell for a bundle that any may take: the first idle one from `first` on, else that one.
    /// As many come into question as there are workers: each cell that takes rows keeps a table of
    /// the keys, and more of them would fill the caches and be merged at each watermark.
    pub(crate) fn local_cell(&self, first: usize, workers: usize) -> usize {
        let cells = self.cells.len().min(workers.max(1));
        let mut candidates = (0..cells).map(|step| (first + step) % cells);
        candidates.find(|&cell| self.cells[cell].mailbox.is_idle()).unwrap_or(first % cells)
    }

    /// The cell for the rows of a bundle that any may take by its route. Where there are none, no
    /// cell is looked at.
    pub(crate) fn local_of(&self, route: &Route, first: usize, workers: usize) -> usize {
        match route {
            Route::Any | Route::Partly { .. } => self.local_cell(first, workers),
            Route::Scatter(_) => 0,
        }
    }

    /// Where rows of a bundle go. A `sequenced` operator must say which partition takes which row.
    pub(crate) fn route(&self, bundle: &Bundle) -> Result<Route> {
        let cells = self.cells.len();
        if cells == 1 {
            return Ok(Route::Any);
        }
        match self.operator.route(bundle, cells)? {
            Route::Any | Route::Partly { .. } if self.class == OperatorClass::Sequenced => {
                Err(Error::internal(
                    "a sequenced operator with several partitions must say where rows go",
                ))
            }
            route => Ok(route),
        }
    }

    /// The watermark to pass on for this one, if any.
    pub(crate) fn passes(&self, watermark: Watermark) -> Option<Watermark> {
        match watermark {
            Watermark::END => Some(watermark),
            watermark => self.operator.output_watermark(watermark),
        }
    }

    /// How many rows a partition is given at once.
    pub(crate) fn slice_rows(&self, state: &CellState) -> usize {
        if self.takes_slices { state.slice.rows() } else { usize::MAX }
    }
}

/// A partition behind its mailbox.
pub struct Cell {
    /// Pieces and barriers in the order in which the partition takes them.
    pub mailbox: Mailbox<Item>,
    /// Touched by the mailbox's owner, so nobody waits for it; whoever looks at metrics asks a
    /// partition at rest for the size of its state.
    pub state: Mutex<CellState>,
    /// Barriers among the items: such a cell is urgent.
    pub barriers: AtomicUsize,
    /// Items finished so far. Written by the mailbox's owner, read by whoever dispatches elements.
    pub finished: AtomicU64,
    /// The least watermark at which the partition has something to do, as of the items finished.
    /// Written by the owner before `finished`.
    pub wakes_at: AtomicI64,
    /// When the clock is to call the partition, in milliseconds since 1970; `i64::MAX` for never.
    /// Written by the mailbox's owner.
    pub ticks_at: AtomicI64,
    /// True while a call of the clock is in the mailbox.
    pub is_ticking: AtomicBool,
    /// Time that workers have spent on it.
    pub busy_ns: AtomicU64,
}

impl Cell {
    /// The owner has finished an item.
    pub fn finish_item(&self, partition: &dyn Partition) {
        // Relaxed: published by the store below; only the owner writes either.
        self.wakes_at.store(partition.wakes_at().0, Ordering::Relaxed);
        // Relaxed: whoever reads it too early or too late looks again soon.
        self.ticks_at.store(partition.ticks_at().unwrap_or(i64::MAX), Ordering::Relaxed);
        let finished = self.finished.load(Ordering::Relaxed) + 1;
        // Release: pairs with the Acquire in `sleeps_through`.
        self.finished.store(finished, Ordering::Release);
    }

    /// True if the partition, which has had `posted` items posted, has taken all of them and has
    /// nothing to do at a watermark. Only for whoever posts, since more items would change it.
    pub fn sleeps_through(&self, posted: u64, watermark: Watermark) -> bool {
        self.finished.load(Ordering::Acquire) == posted
            && self.wakes_at.load(Ordering::Relaxed) > watermark.0
    }
}

/// What a cell's owner works with.
pub struct CellState {
    /// The partition.
    pub partition: Box<dyn Partition>,
    /// What was begun and not finished: it continues before anything else.
    pub resume: Option<Item>,
    /// How many rows of a piece are taken at once.
    pub slice: SliceRows,
    /// Where results of rows go now, one per main edge.
    pub outputs: Vec<Arc<Container>>,
    /// The watermark passed on last as this cell has seen it.
    pub passed: Watermark,
    /// State bytes as last reported.
    pub state_bytes: usize,
    /// Entries of state as last reported.
    pub state_keys: usize,
    /// Rows taken since then.
    pub unreported_rows: usize,
}

impl CellState {
    /// A watermark is taken in all phases: rows behind it belong to the next epoch.
    pub(crate) fn enter_epoch_behind(&mut self, barrier: &Barrier) {
        if let BarrierResults::Containers(of) = &barrier.call.results {
            self.outputs.clone_from(&of.next_outputs);
        }
        self.passed = barrier.call.pass.unwrap_or(self.passed);
    }
}

/// What lies in a cell's mailbox.
pub enum Item {
    /// Rows.
    Rows(RowsItem),
    /// A watermark.
    Barrier(Arc<Barrier>),
    /// The clock has come to what the partition waits for.
    Tick,
}

/// Rows for a partition. A partition may take them slice by slice: `taken` says how far it is, and
/// whoever continues begins there.
pub struct RowsItem {
    /// The bundle that they are of.
    pub of: RowsOrigin,
    /// Which of its rows, for which partition.
    pub share: Share,
    /// How many lanes they may come by.
    pub lanes: usize,
    /// How many of the rows are taken.
    pub taken: usize,
}

/// Where rows for a partition come from.
pub enum RowsOrigin {
    /// `epoch`: a bundle, shared with other partitions, of a container.
    Container {
        /// The bundle.
        bundle: Arc<Bundle>,
        /// The lane that it came by.
        lane: usize,
        /// The container that it is consumed from.
        container: Arc<Container>,
        /// Bytes to give back when it is consumed.
        bytes: usize,
    },
    /// Ordered contracts: a bundle of an element.
    Element {
        /// The element.
        gather: Arc<Gather>,
        /// The bundle's number.
        bundle: usize,
        /// The marks that the partition takes between the rows and behind them, as far as it has
        /// not taken them yet.
        marks: Range<u32>,
    },
}

impl RowsItem {
    /// None of these rows is taken.
    pub(crate) fn new(of: RowsOrigin, share: Share, lanes: usize) -> Self {
        RowsItem { of, share, lanes, taken: 0 }
    }

    /// How many rows there are.
    pub(crate) fn num_rows(&self) -> usize {
        self.share.rows.as_ref().map_or_else(|| self.of.bundle().num_rows(), Vec::len)
    }

    /// How many of the rows are taken when the next mark is, or all.
    pub(crate) fn rows_in_front_of_mark(&self) -> usize {
        match &self.of {
            RowsOrigin::Element { gather, bundle, marks } if !marks.is_empty() => {
                let rows = self.share.rows.as_deref();
                gather.rows_in_front_of(marks.start, *bundle, rows, self.taken)
            }
            _ => self.num_rows(),
        }
    }

    /// The last of the rows in front of the next mark, or of all. Only for an item with rows.
    pub(crate) fn row_in_front_of_mark(&self) -> u32 {
        let last = self.rows_in_front_of_mark().saturating_sub(1);
        self.share.rows.as_ref().map_or(last as u32, |rows| rows[last])
    }

    /// The number and the watermark of the next mark.
    pub(crate) fn next_mark(&self) -> Option<(u32, Watermark)> {
        let RowsOrigin::Element { gather, marks, .. } = &self.of else { return None };
        let next = marks.clone().next()?;
        Some((next, gather.marks[next as usize].mark.watermark))
    }

    /// True if its rows are of an element with marks.
    pub(crate) fn is_marked(&self) -> bool {
        matches!(&self.of, RowsOrigin::Element { gather, .. } if !gather.marks.is_empty())
    }

    /// The next mark is taken.
    pub(crate) fn pass_mark(&mut self) {
        if let RowsOrigin::Element { marks, .. } = &mut self.of {
            marks.start += 1;
        }
    }

    /// The next rows, at most `rows_max`.
    pub(crate) fn slice(&mut self, rows_max: usize) -> Piece<'_> {
        next_slice(self.of.bundle(), &mut self.share, self.taken, rows_max, self.lanes)
    }
}

impl RowsOrigin {
    /// The bundle.
    pub(crate) fn bundle(&self) -> &Bundle {
        match self {
            RowsOrigin::Container { bundle, .. } => bundle,
            RowsOrigin::Element { gather, bundle, .. } => &gather.bundles[*bundle],
        }
    }
}

/// A bundle whose route is known.
pub struct Routed {
    /// The bundle.
    pub bundle: Bundle,
    /// Where its rows go.
    pub route: Route,
    /// Bytes in flight.
    pub bytes: usize,
}

/// Brings the bundles of one lane into order.
pub struct Sequencer<T> {
    /// The container whose bundles are let through.
    pub container: u64,
    /// The next ordinal in it.
    pub ordinal: u64,
    /// What came early, by (container, ordinal).
    pub early: BTreeMap<(u64, u64), T>,
    /// True while a watermark with several phases must be consumed first, or a cut taken.
    pub held: bool,
}

impl<T> Sequencer<T> {
    /// What is next in the container that the lane has now, if it is here. Containers before that
    /// one were merged and have nothing that is not consumed, so another worker may drop them at
    /// any moment.
    pub(crate) fn next(&mut self, container: u64) -> Option<T> {
        if container > self.container {
            (self.container, self.ordinal) = (container, 0);
        }
        let next = self.early.remove(&(self.container, self.ordinal))?;
        self.ordinal += 1;
        Some(next)
    }

    /// All of the container is let through.
    pub(crate) fn finish_container(&mut self) {
        self.container += 1;
        self.ordinal = 0;
    }
}

impl<T> Default for Sequencer<T> {
    fn default() -> Self {
        Sequencer { container: 0, ordinal: 0, early: BTreeMap::new(), held: false }
    }
}

/// A sink and the way to its thread.
#[derive(Default)]
pub struct SinkRun {
    /// To the sink's thread; absent in a simulation, where `inline` is used.
    pub channel: Option<mpsc::Sender<SinkMessage>>,
    /// The sink itself in a simulation, and before the threads start.
    pub inline: Mutex<Option<Box<dyn Sink>>>,
    /// One per lane.
    pub sequencers: Vec<Mutex<Sequencer<SinkBatch>>>,
    /// Lanes that have not ended.
    pub open_lanes: AtomicUsize,
    /// Bytes of rows on the way, which the memory account counts as in flight.
    pub waiting_bytes: AtomicI64,
    /// The reader of the output has gone before all was written.
    pub gone: AtomicBool,
    /// Where the sink says what goes wrong.
    pub trouble: OnceLock<Trouble>,
    /// It had to give up what it was doing.
    pub is_cancelled: AtomicBool,
    /// What the sink promises, in a job with snapshots.
    pub guarantee: OnceLock<SinkGuarantee>,
    /// Rows written before the transaction that was prepared last.
    pub prepared_rows: AtomicU64,
    /// Rows that commits have made visible.
    pub committed_rows: AtomicU64,
    /// Messages on the way, for metrics.
    pub waiting: Arc<AtomicUsize>,
    /// How long rows and writes took.
    pub times: Box<SinkTimes>,
}

/// How long rows and writes of a sink took.
#[derive(Default)]
pub struct SinkTimes {
    /// Latencies of its results.
    pub latency: LatencyHistogram,
    /// How long its writes took.
    pub writes: TimeBuckets,
}

/// Rows for a sink.
pub struct SinkBatch {
    /// The rows.
    pub batch: RecordBatch,
    /// Their kinds in a changelog.
    pub kinds: Option<Arc<[thalweg_core::RowKind]>>,
    /// Bytes to give back once written.
    pub bytes: usize,
    /// When the youngest row behind them entered the engine, or [`INPUT_ENDED_NS`].
    pub ingest_ns: u64,
}

/// In place of the moment at which a row came in: no row has caused these results but the end of an
/// input. They are in no latency, since however much is left then is no measure of how fast rows
/// are answered.
pub const INPUT_ENDED_NS: u64 = u64::MAX;

/// What goes to a sink's thread.
pub enum SinkMessage {
    /// Write.
    Rows(SinkBatch),
    /// All is written: finish. In a job with snapshots the last of them comes first.
    Finish,
    /// The last snapshot is committed: finish.
    Complete,
    /// End the transaction and report its handle.
    Prepare(mpsc::Sender<Option<String>>),
    /// Make a transaction visible, and say so.
    Commit(String, Option<OutputMark>, mpsc::Sender<()>),
    /// The job was stopped: make visible what is complete, then leave the output unfinished.
    Stop,
    /// The job failed.
    Abort,
}
