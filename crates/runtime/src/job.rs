//! A running job: started, watched, stopped, reported.
//!
//! # Shutdown
//! 1. *Done*: every source has ended with the last watermark, which reaches every sink; each sink's
//!    thread finishes its output, and the last one ends the job.
//! 2. *Stopped* ([`JobControl::cancel`], Ctrl-C): sources are asked no more; what is in flight
//!    drains; sinks make visible what is complete and leave their output unfinished
//!    (`NAME.partial`). No window is closed for it. Rows that lead to many results are left
//!    unfinished ([`Job::is_giving_up`]), so a job stops soon wherever it is.
//! 3. *Failed*: the first error wins; workers drop everything, sinks abort.
//!
//! In each case no worker is at the job any more and the sinks' threads are joined before
//! [`RunningJob::wait`] returns.

use std::sync::{Condvar, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::graph::Graph;
use thalweg_core::{Error, Result, Watermark};
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};

#[cfg(feature = "baselines")]
use crate::ablation::Ablated;
use crate::dispatcher::{Lines, ReadyCells};
use crate::gates::Gates;
use crate::memory::MemoryAccount;
use crate::metrics::{
    LatencyHistogram, LatencyPercentiles, MetricsSnapshot, SnapshotMetrics, StageRole,
};
use crate::news::News;
use crate::options::RunOptions;
use crate::ordered::OrderedFlow;
use crate::pool::Pool;
use crate::presence::Presence;
use crate::scheduler::meter::Measuring;
use crate::slices::Parked;
use crate::stage::{Item, SinkMessage, SinkRun, SourceRun, SourceState, StageRun, StageRunKind};
use crate::topology::Topology;
use crate::waiting::Returned;

mod build;
mod sink_thread;
mod startup;

use build::Surroundings;
pub use startup::Beginning;

/// How often the waiting thread looks at idle inputs and at the drain of a stopped job.
const TICK: Duration = Duration::from_millis(20);
/// A job that is to stop finishes what is inside for so long.
const GIVE_UP_AFTER_NS: u64 = 100_000_000;
/// Up to this many jobs of a pool look as often as one does; more of them share the cost.
const JOBS_PER_TICK: usize = 16;

/// Everything that the workers of a job share.
pub struct Job {
    pub(crate) stages: Vec<StageRun>,
    /// The places of the sources in `stages`.
    pub(crate) sources: Vec<usize>,
    pub(crate) options: RunOptions,
    pub(crate) memory: MemoryAccount,
    /// Whether workers may find something to do.
    pub(crate) news: Arc<News>,
    /// Cells with a watermark in their mailbox, each owned by whoever pops it.
    pub(crate) urgent: Lines,
    /// Other cells with something in their mailbox.
    pub(crate) ready: ReadyCells,
    /// What of the design is switched off.
    #[cfg(feature = "baselines")]
    pub(crate) ablated: Ablated,
    /// The flow of the ordered contracts, where one is promised.
    pub(crate) ordered: Option<OrderedFlow>,
    /// Sources that wait for others to end.
    pub(crate) gates: Gates,
    /// Bundles that have what they waited for.
    pub(crate) returned: Arc<Returned>,
    /// Cells that wait for room in the middle of an item.
    pub(crate) parked: Parked,
    /// Tasks that are being done.
    pub(crate) at_work: AtomicUsize,
    pub(crate) turn: AtomicUsize,
    /// How often a source was asked.
    pub(crate) asked: AtomicUsize,
    /// True if partitions are called in processing time.
    ticks: bool,
    /// Small elements that one task may do at most.
    pub(crate) elements_per_task: u64,
    /// What the scheduler has measured.
    pub(crate) measuring: Measuring,
    pub(crate) latency: LatencyHistogram,
    /// How long elements took to get to a sink, with rows or without (ordered contracts).
    pub(crate) passage: LatencyHistogram,
    stopping: AtomicBool,
    /// When the end was requested; 0 for never.
    stop_asked_ns: AtomicU64,
    over: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Sources are not asked: a cut is being taken.
    pub(crate) holding: AtomicBool,
    /// Sources end as if their inputs had.
    pub(crate) draining: AtomicBool,
    /// An input that had ended in an earlier run has rows that nobody will read.
    pub(crate) unread: Option<Error>,
    /// A caller has asked for a graceful end.
    stop_requested: AtomicBool,
    /// What became of snapshots.
    snapshots: Mutex<Option<SnapshotMetrics>>,
    /// Workers that are at work.
    pub(crate) presence: Presence,
    /// Held by whoever does something that no row causes (idleness, the clock), and during a cut.
    pub(crate) outside: Mutex<()>,
    /// The number of the first epoch of this run, where another run has counted some.
    pub(crate) first_epoch: u64,
    /// Held while idleness is worked out, within the lock of a source and around those of joints.
    idleness: Mutex<()>,
    /// Sinks that have not finished.
    open_sinks: AtomicUsize,
    /// Sinks whose input has not ended.
    pub(crate) fed_sinks: AtomicUsize,
    /// Signalled when a sink finishes or the job fails.
    changed: (Mutex<()>, Condvar),
    started_ns: u64,
}

impl Job {
    /// True once nothing more may be done.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// True once the job is being stopped from outside.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// True once what is inside is not finished any more: the job is to stop, and time enough has
    /// passed for what takes no longer than usual. A job that drains finishes everything.
    pub(crate) fn is_giving_up(&self) -> bool {
        let asked_ns = self.stop_asked_ns.load(Ordering::SeqCst);
        asked_ns > 0
            && !self.is_draining()
            && self.options.clock.now_ns() >= asked_ns + GIVE_UP_AFTER_NS
    }

    /// The end is requested.
    fn note_stop(&self) {
        let now_ns = self.options.clock.now_ns().max(1);
        // The first one counts.
        let _ = self.stop_asked_ns.compare_exchange(0, now_ns, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Ends the job with an error; the first one wins.
    pub fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().expect("no panic under this lock");
        failure.get_or_insert(error);
        drop(failure);
        self.end();
    }

    /// True once sources are to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// True once an error has ended the job.
    pub(crate) fn has_failed(&self) -> bool {
        // The error is kept before the job is over, and mostly the job is not.
        self.is_over() && self.failure.lock().expect("no panic under this lock").is_some()
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.news.notify_all();
        self.signal();
    }

    pub(crate) fn signal(&self) {
        drop(self.changed.0.lock().expect("no panic under this lock"));
        self.changed.1.notify_all();
    }

    /// Nobody needs more from a stage: it and whatever feeds nothing else are ended, and sources
    /// among them close with the last watermark.
    pub(crate) fn end_stage(&self, stage: usize) {
        self.stages[stage].ended.store(true, Ordering::SeqCst);
        for place in (0..stage).rev() {
            let run = &self.stages[place];
            let is_ended = |to: usize| self.stages[to].ended.load(Ordering::SeqCst);
            if !run.edges.is_empty() && run.edges.iter().all(|edge| is_ended(edge.to.0)) {
                run.ended.store(true, Ordering::SeqCst);
                if let StageRunKind::Source(source) = &run.kind {
                    source.ready.store(true, Ordering::SeqCst);
                }
            }
        }
        self.news.notify();
    }

    /// An operator has taken a watermark in all its partitions. The last one opens its gates.
    pub(crate) fn note_watermark(&self, stage: usize, watermark: Watermark) {
        self.stages[stage].metrics.set_watermark(watermark);
        if watermark < Watermark::END {
            return;
        }
        let sources = self.gates.open(stage);
        let now_ns = self.options.clock.now_ns();
        for &source in &sources {
            if let StageRunKind::Source(source) = &self.stages[source].kind {
                // It has been quiet because nobody asked.
                source.last_rows_ns.store(now_ns, Ordering::Relaxed);
            }
        }
        if !sources.is_empty() {
            self.news.notify_all();
        }
    }

    /// A copy of all counters.
    pub fn metrics(&self) -> MetricsSnapshot {
        let stages = self.stages.iter().enumerate().map(|(place, stage)| {
            let mut snapshot = stage.metrics.snapshot(&stage.id, &stage.name, stage.role());
            if let StageRunKind::Source(source) = &stage.kind {
                snapshot.idle = source.idle.load(Ordering::Relaxed);
            }
            let held_by = stage.metrics.held_by().or_else(|| self.gates.closed_by(place));
            snapshot.held_by = held_by.map(|by| self.stages[by].name.clone());
            if let StageRunKind::Operator(operator) = &stage.kind {
                snapshot.problem = operator.operator.problem();
            }
            if let StageRunKind::Sink(sink) = &stage.kind {
                snapshot.queued = sink.waiting.load(Ordering::Relaxed);
            }
            snapshot
        });
        let snapshots = self.snapshots.lock().expect("no panic under this lock").clone();
        MetricsSnapshot { stages: stages.collect(), snapshots }
    }

    // --- idle inputs ---

    /// Calls those who wait for the clock, if there are any. Not during a cut.
    pub(crate) fn look_at_the_clock(&self) {
        if self.ticks
            && let Ok(_no_cut) = self.outside.try_lock()
        {
            self.tick_cells();
        }
    }

    /// Does what no row causes: finds idle inputs, calls those who wait for the clock. Not during a
    /// cut.
    pub(crate) fn look_around(&self) -> Result<()> {
        let Ok(_no_cut) = self.outside.try_lock() else { return Ok(()) };
        self.call_for_gathered_rows();
        self.look_for_idle_inputs()?;
        self.tick_cells();
        Ok(())
    }

    /// Calls for rows that have waited for the end of their epoch for long enough.
    fn call_for_gathered_rows(&self) {
        let now_ns = self.options.clock.now_ns();
        for &place in &self.sources {
            let StageRunKind::Source(source) = &self.stages[place].kind else { continue };
            let until_ns = source.gathers_until_ns.load(Ordering::Relaxed);
            if (1..=now_ns).contains(&until_ns) && !source.ready.swap(true, Ordering::SeqCst) {
                self.news.notify();
            }
        }
    }

    /// Declares unbounded inputs idle that have brought nothing for the timeout.
    fn look_for_idle_inputs(&self) -> Result<()> {
        let Some(timeout) = self.options.idle_timeout.filter(|_| self.may_use_processing_time())
        else {
            return Ok(());
        };
        let now_ns = self.options.clock.now_ns();
        for &place in &self.sources {
            let StageRunKind::Source(source) = &self.stages[place].kind else { continue };
            let is_quiet = || {
                let since_ns = source.last_rows_ns.load(Ordering::Relaxed);
                now_ns.saturating_sub(since_ns) > timeout.as_nanos() as u64
            };
            if source.bounded || !is_quiet() {
                continue;
            }
            // Not while a worker is asking it: rows that come now must be stamped before or after.
            let Ok(unpolled) = source.state.try_lock() else { continue };
            // One that is ready has rows and only waits for room.
            let is_waiting = source.ready.load(Ordering::SeqCst)
                || !unpolled.batcher.is_empty()
                || source.finished.load(Ordering::SeqCst)
                || !is_quiet();
            if is_waiting || source.idle.swap(true, Ordering::SeqCst) {
                continue;
            }
            match &self.ordered {
                Some(flow) => self.ingest_idleness(flow, place, true)?,
                None => self.spread_idleness()?,
            }
        }
        Ok(())
    }

    /// Calls the partitions that wait for a time which the clock has reached.
    fn tick_cells(&self) {
        if !self.ticks {
            return;
        }
        let wall_ms = self.options.clock.wall_ms();
        for (place, stage) in self.stages.iter().enumerate() {
            let StageRunKind::Operator(operator) = &stage.kind else { continue };
            for (number, cell) in operator.cells.iter().enumerate() {
                let is_due = cell.ticks_at.load(Ordering::Relaxed) <= wall_ms;
                // One at a time: the mailbox's owner takes the mark back when the call is done.
                if is_due && !cell.is_ticking.swap(true, Ordering::AcqRel) {
                    self.post(place, number, cell, Item::Tick);
                }
            }
        }
    }

    /// False where a sequence is promised that the clock must not change.
    fn may_use_processing_time(&self) -> bool {
        self.ordered
            .as_ref()
            .is_none_or(|flow| self.options.allow_nondeterministic_order && !flow.is_replaying())
    }

    /// Works out again which lanes are idle (every source behind them is), and lets operators
    /// advance without them.
    pub(crate) fn spread_idleness(&self) -> Result<()> {
        // Two at once could leave what the slower one read before.
        let _one_at_a_time = self.idleness.lock().expect("no panic under this lock");
        let mut idle = vec![false; self.stages.len()];
        for (place, stage) in self.stages.iter().enumerate() {
            let lane_is_idle = |lane: usize| stage.lanes[lane].idle.load(Ordering::SeqCst);
            idle[place] = match &stage.kind {
                StageRunKind::Source(source) => source.idle.load(Ordering::SeqCst),
                _ => (0..stage.lanes.len()).all(lane_is_idle),
            };
            for edge in &stage.edges {
                let lanes = stage.lanes.len().max(1);
                let down = &self.stages[edge.to.0];
                let one_lane = matches!(stage.kind, StageRunKind::Operator(_)) && edge.port == 0;
                for lane in 0..if one_lane { 1 } else { lanes } {
                    let value = match &stage.kind {
                        StageRunKind::Transform(_) => lane_is_idle(lane),
                        _ => idle[place],
                    };
                    down.lanes[edge.lane_base + lane].idle.store(value, Ordering::SeqCst);
                }
            }
        }
        for (place, stage) in self.stages.iter().enumerate() {
            if let StageRunKind::Operator(operator) = &stage.kind
                && stage.lanes.len() > 1
            {
                self.begin_watermark(place, operator, None);
            }
        }
        Ok(())
    }

    /// An idle input has rows again: its running watermark is raised to what the others have
    /// reached, so that rows which they have passed are late.
    /// In the ordered contracts the merges do that, when the news has come there in its turn.
    pub(crate) fn wake_from_idle(
        &self,
        stage: usize,
        source: &SourceRun,
        state: &mut SourceState,
    ) -> Result<()> {
        if !source.idle.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        if let Some(flow) = &self.ordered {
            return self.ingest_idleness(flow, stage, false);
        }
        // First of all the lanes are counted again, so that what is read below stays true. Not an
        // error: nothing advances because of it.
        let spread = self.spread_idleness();
        debug_assert!(spread.is_ok());
        let reached = self.reached_behind(stage);
        if let Some(assigner) = &mut state.assigner
            && reached < Watermark::END
        {
            assigner.raise_watermark(reached);
        }
        Ok(())
    }

    /// The highest joint watermark of the operators that rows of a source can get to. Others, in
    /// a set of statements, have nothing to do with it.
    fn reached_behind(&self, source: usize) -> Watermark {
        let mut is_behind = vec![false; self.stages.len()];
        is_behind[source] = true;
        let mut reached = Watermark::MIN;
        for (place, stage) in self.stages.iter().enumerate().skip(source) {
            if !is_behind[place] {
                continue;
            }
            stage.edges.iter().for_each(|edge| is_behind[edge.to.0] = true);
            if let StageRunKind::Operator(operator) = &stage.kind {
                let joint = operator.joint.lock().expect("no panic under this lock");
                reached = reached.max(joint.watermark.watermark());
            }
        }
        reached
    }

    /// True if nothing is under way any more: all that a stopped job could still do is done.
    fn is_drained(&self) -> bool {
        let sources_done = self.sources.iter().all(|&place| match &self.stages[place].kind {
            StageRunKind::Source(source) => source.finished.load(Ordering::SeqCst),
            _ => true,
        });
        let empty = |stage: &StageRun| match &stage.kind {
            StageRunKind::Operator(operator) => operator.cells.iter().all(|c| c.mailbox.is_idle()),
            _ => true,
        };
        // Rows that a merge by time keeps back wait for rows that no source will deliver any more.
        let of_merges = self.ordered.as_ref().map_or(0, |flow| flow.waiting_bytes());
        // Rows that a worker holds are in no queue, but in flight.
        sources_done
            && self.memory.in_flight_bytes() <= of_merges
            && self.stages.iter().all(|s| s.metrics.queued.load(Ordering::SeqCst) == 0 && empty(s))
    }
}

/// A handle to watch and stop a job, from any thread.
#[derive(Clone)]
pub struct JobControl(pub(crate) Arc<Job>);

impl JobControl {
    /// Stops the job: see the module header.
    pub fn cancel(&self) {
        self.0.note_stop();
        self.0.stopping.store(true, Ordering::SeqCst);
        self.0.holding.store(false, Ordering::SeqCst);
        self.0.ask_all_sources();
    }
    /// Asks for a graceful end: at once, or where snapshots are taken by whoever takes them, who
    /// sees [`JobControl::is_stop_requested`], takes a last one and cancels.
    pub fn stop(&self) {
        self.0.note_stop();
        self.0.stop_requested.store(true, Ordering::SeqCst);
        match self.0.options.snapshots {
            Some(_) => self.0.signal(),
            None => self.cancel(),
        }
    }
    /// True once [`JobControl::stop`] was called.
    pub fn is_stop_requested(&self) -> bool {
        self.0.stop_requested.load(Ordering::SeqCst)
    }
    /// Ends the job with an error.
    pub fn fail(&self, error: Error) {
        self.0.fail(error);
    }
    /// Reports what became of snapshots, for the metrics.
    pub fn report_snapshots(&self, metrics: SnapshotMetrics) {
        *self.0.snapshots.lock().expect("no panic under this lock") = Some(metrics);
    }
    /// Ends the sources as if their inputs had: windows close, and the job ends by itself.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
        self.0.ask_all_sources();
    }
    /// True once the job has ended, failed or been stopped.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
    /// Waits until something happens that whoever looks after a job may want to see, or for this
    /// long.
    pub fn wait(&self, timeout: Duration) {
        let guard = self.0.changed.0.lock().expect("no panic under this lock");
        drop(self.0.changed.1.wait_timeout(guard, timeout).expect("no panic under this lock"));
    }
    /// A copy of all counters.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.0.metrics()
    }
    /// The latency of results since it was last taken, which is no longer part of the report then:
    /// a measurement that begins behind a warm-up takes it twice.
    pub fn take_latency(&self) -> Option<LatencyPercentiles> {
        self.0.latency.take()
    }
}

/// What a job did.
#[derive(Clone, Debug)]
pub struct Report {
    /// All counters at the end.
    pub metrics: MetricsSnapshot,
    /// From start to end.
    pub elapsed: Duration,
    /// Result latency.
    pub latency: Option<LatencyPercentiles>,
    /// How long what came in took to get through, whether a result came of it or not, in a sample
    /// (the markers of Prasaad et al. §7.1). Ordered contracts only.
    pub passage: Option<LatencyPercentiles>,
    /// The most that rows in flight and state took, in bytes.
    pub peak_bytes: usize,
    /// The most that state alone took, in bytes.
    pub state_peak_bytes: usize,
    /// True if the job was stopped before its inputs ended.
    pub cancelled: bool,
    /// The places of the outputs whose reader had gone before all was written.
    pub gone: Vec<usize>,
}

/// A job that workers are at, its own or those of a pool.
pub struct RunningJob {
    job: Arc<Job>,
    pool: Pool,
    sinks: Vec<JoinHandle<()>>,
}

/// Starts a job. Sinks are opened and sources started before this returns, so that what is wrong
/// with them is known at once.
pub fn start(graph: Graph, options: RunOptions) -> Result<RunningJob> {
    start_from(graph, options, Beginning::default())
}

/// Starts a job where another run of it was at a cut, or with more to be done at its start.
///
/// # Errors
/// As [`start`]; if what was captured does not fit the graph; if a source cannot resume from its
/// position, or a sink cannot commit what it had prepared.
pub fn start_from<'a>(
    graph: Graph,
    mut options: RunOptions,
    beginning: impl Into<Beginning<'a>>,
) -> Result<RunningJob> {
    let beginning = beginning.into();
    let pool = pool_of(&mut options)?;
    let mut receivers = Vec::new();
    let job = built(graph, options, &beginning, (&pool, &mut receivers))?;
    startup::open(&job, beginning)?;
    let sinks = receivers
        .into_iter()
        .map(|(stage, receiver)| sink_thread::spawn(Arc::clone(&job), stage, receiver))
        .collect::<Result<Vec<_>>>();
    let sinks = sinks?;
    pool.join(&job);
    Ok(RunningJob { job, pool, sinks })
}

/// Does the first phase of [`start_from`], which only reads and locks, and ends there: nothing is
/// changed, and no row is read. What the start would have done once all agreed is not done.
///
/// # Errors
/// What [`start_from`] would refuse before it changes anything.
pub fn rehearse_start<'a>(
    graph: Graph,
    mut options: RunOptions,
    beginning: impl Into<Beginning<'a>>,
) -> Result<()> {
    let beginning = beginning.into();
    let pool = pool_of(&mut options)?;
    let job = built(graph, options, &beginning, (&pool, &mut Vec::new()))?;
    startup::rehearse(&job, &beginning)
}

/// The workers of a job: those that it was given, or its own.
fn pool_of(options: &mut RunOptions) -> Result<Pool> {
    match options.pool.take() {
        Some(pool) => Ok(pool),
        None => Pool::new(options.workers, options.pin_workers, options.spin),
    }
}

/// Builds a job where `beginning` says, of which nothing has started yet.
fn built(
    graph: Graph,
    mut options: RunOptions,
    beginning: &Beginning<'_>,
    (pool, receivers): (&Pool, &mut SinkReceivers),
) -> Result<Arc<Job>> {
    options.workers = options.workers.min(pool.workers());
    options.partitions = Some(options.partitions());
    options.workers = pool.workers();
    let around = Surroundings {
        numa_nodes: Topology::detect().numa_nodes(),
        sleep: pool.sleep(),
        receivers: Some(receivers),
    };
    Ok(Arc::new(build::build(graph, options, beginning.cut.as_ref(), around)?))
}

impl RunningJob {
    /// A handle to watch and stop it.
    pub fn control(&self) -> JobControl {
        JobControl(Arc::clone(&self.job))
    }

    /// Waits until the job is done, stopped or failed, workers have left it and its threads have
    /// ended.
    pub fn wait(mut self) -> Result<Report> {
        let waited = self.wait_for_end();
        if let Err(error) = waited {
            self.job.fail(error);
        }
        self.leave_pool();
        let failed = self.job.failure.lock().expect("no panic under this lock").is_some();
        self.send_to_sinks(if failed { || SinkMessage::Abort } else { || SinkMessage::Stop });
        for sink in self.sinks.drain(..) {
            if sink.join().is_err() {
                self.job.fail(Error::internal("a sink's thread panicked"));
            }
        }
        build::stop_sources(&self.job);
        self.end_sources();
        let failure = self.job.failure.lock().expect("no panic under this lock").take();
        match failure {
            Some(error) => Err(error),
            None => match &self.job.unread {
                Some(error) => Err(error.clone()),
                None => Ok(build::report(&self.job)),
            },
        }
    }

    /// What sources have written besides their rows is as complete as what sinks have written.
    fn end_sources(&self) {
        if self.job.all_sinks_finished()
            && !self.job.has_failed()
            && let Err(error) = build::finish_sources(&self.job)
        {
            self.job.fail(error);
        }
        // What was finished has nothing to give up.
        build::abort_sources(&self.job);
    }

    /// The job is over, and workers leave it.
    fn leave_pool(&self) {
        self.job.end();
        self.pool.leave(&self.job);
    }

    /// Returns when nothing is left to be done by workers.
    fn wait_for_end(&self) -> Result<()> {
        let job = &self.job;
        let mut drained_ticks = 0;
        loop {
            if job.is_over() || job.open_sinks.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            let guard = job.changed.0.lock().expect("no panic under this lock");
            let wait = TICK * self.pool.jobs().div_ceil(JOBS_PER_TICK).max(1) as u32;
            drop(job.changed.1.wait_timeout(guard, wait).expect("no panic under this lock"));
            job.look_around()?;
            // Twice in a row: a task without rows may be in no queue while it is executed.
            drained_ticks =
                if job.is_stopping() && job.is_drained() { drained_ticks + 1 } else { 0 };
            let is_left_unfinished =
                job.is_stopping() && job.is_giving_up() && !job.parked.is_empty();
            if drained_ticks >= 2 || is_left_unfinished {
                return Ok(());
            }
        }
    }

    fn send_to_sinks(&self, message: fn() -> SinkMessage) {
        for stage in &self.job.stages {
            if let StageRunKind::Sink(SinkRun { channel: Some(channel), .. }) = &stage.kind {
                // A sink that has finished has gone; that is fine.
                let _ = channel.send(message());
            }
        }
    }
}

/// A job that nobody waits for any more is given up: workers of a pool must not continue with it.
impl Drop for RunningJob {
    fn drop(&mut self) {
        self.leave_pool();
    }
}

impl Job {
    pub(crate) fn send_to_sink(
        &self,
        stage: usize,
        sink: &SinkRun,
        message: SinkMessage,
    ) -> Result<()> {
        sink.waiting.fetch_add(1, Ordering::Relaxed);
        if let SinkMessage::Rows(rows) = &message {
            sink.waiting_bytes.fetch_add(rows.bytes as i64, Ordering::SeqCst);
        }
        match &sink.channel {
            // The thread ends early only after an error, which has ended the job already.
            Some(channel) => {
                let _ = channel.send(message);
                Ok(())
            }
            None => {
                let mut inline = sink.inline.lock().expect("no panic under this lock");
                sink_thread::handle(self, stage, &mut inline, message).map(drop)
            }
        }
    }

    /// A sink of a job with snapshots has all of its input.
    pub(crate) fn sink_ended(&self) {
        if self.fed_sinks.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.signal();
        }
    }

    /// Wakes all sources up: they are to see that something has changed.
    pub(crate) fn ask_all_sources(&self) {
        for &place in &self.sources {
            if let StageRunKind::Source(source) = &self.stages[place].kind {
                source.ready.store(true, Ordering::SeqCst);
            }
        }
        self.news.notify_all();
    }

    pub(crate) fn sink_finished(&self) {
        if self.open_sinks.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.signal();
        }
    }

    /// A sink wants no more rows and has finished: nothing more is made for it. Where snapshots are
    /// taken, the job that is restored may have a reader again, so what leads to the sink stays as
    /// it is.
    pub(crate) fn sink_left(&self, stage: usize) {
        if self.options.snapshots.is_none() {
            self.end_stage(stage);
        }
        self.sink_finished();
    }

    /// The sinks whose reader has gone.
    pub(crate) fn gone_sinks(&self) -> Vec<usize> {
        let is_gone = |stage: &StageRun| matches!(&stage.kind, StageRunKind::Sink(sink) if sink.gone.load(Ordering::SeqCst));
        (0..self.stages.len()).filter(|&place| is_gone(&self.stages[place])).collect()
    }
}

/// The receiving ends of the sinks' channels with their stages.
pub(crate) type SinkReceivers = Vec<(usize, mpsc::Receiver<SinkMessage>)>;

/// What the simulator does itself with a job, in the place of threads.
#[cfg(any(test, feature = "simulator"))]
pub(crate) mod parts {
    pub(crate) use super::build::{Surroundings, build, report, stop_sources};
    pub(crate) use super::sink_thread::handle;
    pub(crate) use super::startup::open;
}

impl Job {
    /// True once every sink has finished.
    pub(crate) fn all_sinks_finished(&self) -> bool {
        self.open_sinks.load(Ordering::SeqCst) == 0
    }

    /// The error that ended the job.
    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().expect("no panic under this lock").take()
    }

    /// Checks at the end of a complete run that no row got lost on the way: what an operator was
    /// given it has accepted or counted as late.
    pub(crate) fn assert_conservation(&self) {
        for stage in &self.stages {
            let StageRunKind::Operator(operator) = &stage.kind else { continue };
            if operator.operator.judges_lateness() && !stage.ended.load(Ordering::SeqCst) {
                let snapshot = stage.metrics.snapshot(&stage.id, &stage.name, StageRole::Operator);
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
