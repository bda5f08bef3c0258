//! A running job: what all of its workers share.
//!
//! [`Job`] only holds together types that have one duty each: stages as they run, the lifecycle,
//! what waits for workers, what a cut holds back, what is measured. What moves through it is a
//! matter of [`flow`](crate::flow); which work comes next, of [`dispatcher`](crate::dispatcher).
//! Nothing here calls either.

use std::time::Duration;

use thalweg_core::shim::SharedClock;
use thalweg_core::{Bundle, Error, OrderContract, Output, Result, Watermark};
use thalweg_ordering::sync::{Arc, AtomicUsize, Mutex, Ordering};

#[cfg(feature = "baselines")]
use crate::ablation::Ablated;
use crate::barrier::Barrier;
use crate::cut::{CutUnderWay, Cuts};
use crate::gates::Gates;
use crate::interleaving::StepRecorder;
use crate::late::LateRing;
use crate::lifecycle::Lifecycle;
use crate::memory::{MemoryAccount, Pressure};
use crate::metrics::{
    BlockedBy, LatencyHistogram, LatencyPercentiles, SnapshotMetrics, StageMetrics, StageRole,
};
use crate::news::News;
use crate::numa_memory::SharedNumaMemory;
use crate::ordered::OrderedFlow;
use crate::pace::{Pace, SMALL_ROWS};
use crate::policies::{SchedulerPolicy, SnapshotMode};
use crate::queues::WorkQueues;
use crate::scheduler::meter::Measuring;
use crate::slices::SliceRows;
use crate::stage::{CellState, Edge, Item, OperatorRun, StageRun};
use crate::stages::Stages;
use crate::task_lengths::TaskHistograms;

/// After this many rows a partition's state is measured, also between watermarks.
const REPORT_ROWS: usize = 8 * 1024;

/// State of a partition up to this size is not measured at each watermark.
const SMALL_STATE_BYTES: usize = 64 * 1024;

/// Everything that the workers of a job share.
pub struct Job {
    pub(crate) settings: Settings,
    pub(crate) stages: Stages,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) memory: MemoryAccount,
    /// Whether workers may find something to do.
    pub(crate) news: Arc<News>,
    pub(crate) queues: WorkQueues,
    /// Sources that wait for others to end.
    pub(crate) gates: Gates,
    pub(crate) cuts: Cuts,
    /// Workers that look for work here, or do some.
    pub(crate) present: AtomicUsize,
    pub(crate) measured: Measured,
    /// The flow of the ordered contracts, where one is promised; else containers are all that
    /// there is.
    pub(crate) ordered: Option<OrderedFlow>,
    /// Held while idleness is worked out, within the lock of a source and around those of joints.
    pub(crate) idleness: Mutex<()>,
    /// The number of the first epoch of this run, where another run has counted some.
    pub(crate) first_epoch: u64,
    /// An input that had ended in an earlier run has rows that nobody will read.
    pub(crate) unread: Option<Error>,
    /// What of the design is switched off.
    #[cfg(feature = "baselines")]
    pub(crate) ablated: Ablated,
}

/// What a job goes by while it runs. What is needed only to build it is not here.
pub(crate) struct Settings {
    pub(crate) clock: SharedClock,
    pub(crate) order: OrderContract,
    pub(crate) workers: usize,
    pub(crate) scheduler: SchedulerPolicy,
    /// How long a task may take.
    pub(crate) task_ns: u64,
    /// Small elements that one task may do at most.
    pub(crate) elements_per_task: u64,
    pub(crate) bundle_rows_max: usize,
    pub(crate) bundle_linger: Duration,
    /// True if processing time may make inputs idle.
    pub(crate) may_use_clock: bool,
    /// True if partitions are called in processing time.
    pub(crate) ticks: bool,
    pub(crate) record: Option<StepRecorder>,
    pub(crate) snapshots: Option<SnapshotMode>,
    /// Says on which NUMA node rows are, if there are several.
    pub(crate) numa_memory: Option<SharedNumaMemory>,
}

/// What is measured over all stages.
pub(crate) struct Measured {
    /// For the scheduler.
    pub(crate) scheduling: Measuring,
    /// How long elements took to get to a sink, with rows or without (ordered contracts).
    pub(crate) passage: LatencyHistogram,
    /// How long tasks took.
    pub(crate) tasks: TaskHistograms,
    /// What became of snapshots.
    pub(crate) snapshots: Mutex<Option<SnapshotMetrics>>,
    /// The last rows that were late.
    pub(crate) late: LateRing,
}

impl Job {
    /// The time on the job's clock.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.settings.clock.now_ns()
    }

    /// A stage with what belongs to it.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> StageAt<'_> {
        StageAt { job: self, place, run: &self.stages[place] }
    }

    /// True if nothing more should be made of what is inside until there is room downstream.
    pub(crate) fn is_held_back(&self) -> bool {
        self.memory.pressure() == Pressure::Full || self.lifecycle.is_giving_up()
    }

    /// One more element of `rows` rows is done. True if the same task may do another one.
    pub(crate) fn may_continue(&self, pace: &mut Pace, rows: usize) -> bool {
        let is_over = pace.is_over(|| self.now_ns());
        !is_over
            && rows <= SMALL_ROWS
            && pace.done() < self.settings.elements_per_task
            && !self.lifecycle.gives_up()
    }

    /// True while there is more to do than what sinks that keep up are at.
    pub(crate) fn is_busy(&self) -> bool {
        self.memory.in_flight_bytes() > self.stages.bytes_at_quick_sinks()
    }

    /// What one call of a partition should emit at most.
    pub(crate) fn room_bytes(&self) -> usize {
        SliceRows::room_bytes(self.memory.in_flight_bytes_max())
    }

    /// Wakes all sources up: they are to see that something has changed.
    pub(crate) fn ask_all_sources(&self) {
        self.stages.sources().for_each(|(_, source)| source.ready.store(true, Ordering::SeqCst));
        self.news.notify_all();
    }

    /// Sources are asked again.
    pub(crate) fn release(&self) {
        self.cuts.pause(false);
        self.news.notify_all();
    }

    /// True if no row and no watermark is in a queue or in the hands of a worker, but for rows that
    /// wait in a merge for another input.
    pub(crate) fn is_drained(&self) -> bool {
        let of_merges = self.ordered.as_ref().map_or(0, OrderedFlow::waiting_bytes);
        // Rows that a worker holds are in no queue, but in flight.
        self.memory.in_flight_bytes() <= of_merges && self.stages.are_idle()
    }

    /// The latencies of the results of all sinks; with `resets` they start over.
    pub(crate) fn latency(&self, resets: bool) -> Option<LatencyPercentiles> {
        let sinks = self.stages.sinks().map(|(_, sink)| &sink.times.latency);
        LatencyHistogram::percentiles_of_all(sinks, resets)
    }

    /// Checks at the end of a complete run that no row got lost on the way: what an operator was
    /// given it has accepted or counted as late.
    pub(crate) fn assert_conservation(&self) {
        for (place, run) in self.stages.operators() {
            let stage = &self.stages[place];
            if run.operator.judges_lateness() && !stage.ended.load(Ordering::SeqCst) {
                let role = StageRole::Operator;
                let snapshot = stage.metrics.snapshot(&stage.id, &stage.name, role, self.now_ns());
                assert_eq!(
                    snapshot.accepted + snapshot.late,
                    snapshot.rows_in,
                    "accepted + late = ingested, at {}",
                    stage.name
                );
            }
        }
    }
}

/// A stage of a running job: what both flows do there alike.
#[derive(Clone, Copy)]
pub(crate) struct StageAt<'a> {
    pub(crate) job: &'a Job,
    /// Its place among the stages.
    pub(crate) place: usize,
    pub(crate) run: &'a StageRun,
}

impl StageAt<'_> {
    /// Puts an item into a cell's mailbox.
    pub(crate) fn post(&self, cell: usize, item: Item) {
        self.job.queues.post(self.run, self.place, cell, item);
    }

    /// Starts a barrier, or its next phase, at every cell.
    pub(crate) fn post_barrier(&self, barrier: &Arc<Barrier>) {
        let cells = 0..self.run.cells().len();
        self.job.queues.post_barrier(self.run, self.place, barrier, cells);
    }

    /// The cut has come by all lanes of the stage, and all that belongs to it is known.
    pub(crate) fn report_cut(&self, cut: &CutUnderWay) {
        cut.stage(self.place).ended = self.run.ended.load(Ordering::SeqCst);
        cut.note_reached(self.place, self.job.now_ns());
        self.run.metrics.blocked.end(BlockedBy::Cut, || self.job.now_ns());
        if self.job.cuts.report(cut) {
            self.job.lifecycle.signal();
        }
    }

    /// Nobody needs more from the stage.
    pub(crate) fn end(&self) {
        self.job.stages.end(self.place);
        self.job.news.notify();
    }

    /// An operator has taken a watermark in all its partitions. The last one opens its gates.
    pub(crate) fn note_watermark(&self, watermark: Watermark) {
        self.run.metrics.set_watermark(watermark, || self.job.now_ns());
        if watermark < Watermark::END {
            return;
        }
        let sources = self.job.gates.open(self.place);
        let now_ns = self.job.now_ns();
        for source in sources.iter().filter_map(|&source| self.job.stages[source].source()) {
            // It has been quiet because nobody asked.
            source.asked_from_ns.store(now_ns, Ordering::Relaxed);
        }
        if !sources.is_empty() {
            self.job.news.notify_all();
        }
    }

    /// The outside is about to be asked for something. The number of the question.
    pub(crate) fn ask_outside(&self) -> u64 {
        let now_ns = self.job.now_ns();
        self.run.metrics.blocked.begin(BlockedBy::Lookup, || now_ns);
        self.run.metrics.unanswered.begin(now_ns)
    }

    /// The outside has answered.
    pub(crate) fn note_answer(&self, asked: u64) {
        if self.run.metrics.unanswered.end(asked) {
            self.run.metrics.blocked.end(BlockedBy::Lookup, || self.job.now_ns());
        }
    }

    /// A bundle has come in.
    pub(crate) fn count_in(&self, rows: usize) {
        StageMetrics::add(&self.run.metrics.rows_in, rows as u64);
        StageMetrics::add(&self.run.metrics.bundles_in, 1);
    }

    /// Bundles go out by an edge, and take room in memory.
    pub(crate) fn count_out(&self, edge: &Edge, bundles: &[Bundle], bytes: usize) {
        edge.tap.pass(bundles);
        self.job.memory.add_in_flight(bytes as i64);
        let rows: usize = bundles.iter().map(Bundle::num_rows).sum();
        StageMetrics::add(&self.run.metrics.rows_out, rows as u64);
        StageMetrics::add(&self.run.metrics.bundles_out, bundles.len() as u64);
        StageMetrics::add(&self.run.metrics.bytes_out, bytes as u64);
    }

    /// What a partition says of rows that it was given.
    pub(crate) fn count_output(&self, output: &Output) {
        let metrics = &self.run.metrics;
        StageMetrics::add(&metrics.accepted, output.accepted);
        StageMetrics::add(&metrics.late, output.late);
        StageMetrics::add(&metrics.partly_late, output.partly_late);
        if !output.late_rows.is_empty() {
            let wall_ms = self.job.settings.clock.wall_ms();
            self.job.measured.late.add(self.place, wall_ms, &output.late_rows);
        }
    }

    /// Measures a partition's state now and then while it takes rows.
    pub(crate) fn report_rows(&self, state: &mut CellState, rows: usize) -> Result<()> {
        state.unreported_rows += rows;
        if state.unreported_rows >= REPORT_ROWS { self.report_state(state) } else { Ok(()) }
    }

    /// Measures a partition's state behind a watermark: always where it was large, else as if this
    /// number of rows had come. Windows may be so small that measuring them is most of their work.
    pub(crate) fn report_watermark(&self, state: &mut CellState, rows: usize) -> Result<()> {
        match state.state_bytes > SMALL_STATE_BYTES {
            true => self.report_state(state),
            false => self.report_rows(state, rows),
        }
    }

    /// Reports to the memory account how a partition's state has grown, and fails the job if state
    /// alone has reached the limit.
    pub(crate) fn report_state(&self, state: &mut CellState) -> Result<()> {
        state.unreported_rows = 0;
        let bytes = state.partition.state_bytes();
        let grown = bytes as i64 - state.state_bytes as i64;
        state.state_bytes = bytes;
        if let Some(keys) = state.partition.state_keys() {
            let before = std::mem::replace(&mut state.state_keys, keys);
            let grown = keys as i64 - before as i64;
            self.run.metrics.state_keys.fetch_add(grown, Ordering::Relaxed);
        }
        self.grow_state(grown)
    }

    /// Reports the state of partitions that no worker is at, and that have taken rows since.
    pub(crate) fn report_at_rest(&self, run: &OperatorRun) {
        for cell in &run.cells {
            if let Ok(mut state) = cell.state.try_lock()
                && state.unreported_rows > 0
            {
                // The next rows fail the job if there is no memory left.
                let _ = self.report_state(&mut state);
            }
        }
    }

    /// What the stage keeps has grown by this many bytes.
    pub(crate) fn grow_state(&self, grown: i64) -> Result<()> {
        if grown == 0 {
            return Ok(());
        }
        let memory = &self.job.memory;
        memory.add_state(grown);
        self.run.metrics.state_bytes.fetch_add(grown, Ordering::Relaxed);
        if grown < 0 || !memory.is_exhausted() {
            return Ok(());
        }
        let (whose, state_bytes, limit_bytes) = memory.tightest();
        let (limit_mib, state_mib) = (limit_bytes >> 20, state_bytes >> 20);
        let hint = self.run.operator().map(|run| run.operator.memory_hint());
        Err(Error::resource(format!(
            "the state of {whose} has grown to {state_mib} MiB and the memory limit is {limit_mib} MiB"
        ))
        .hint(hint.unwrap_or("raise 'memory.limit'")))
    }
}
