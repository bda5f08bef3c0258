//! What is counted while a job runs. The progress line, `--metrics` and tests read the same
//! counters.

use std::sync::Arc;
use std::time::Duration;

use thalweg_core::connector::SplitStatus;
use thalweg_core::{Grid, OrderContract, Watermark};
use thalweg_ordering::sync::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crate::scheduler::meter::StageMeter;
use crate::task_lengths::TaskLengths;

mod blocked;
mod histogram;

pub use blocked::{BlockedBy, BlockedTimes};
pub(crate) use blocked::{BlockedClock, Unanswered};
pub use histogram::{
    BUCKET_BOUNDS_US, Distribution, FINE_PER_DOUBLING, FINE_ZERO, LatencyHistogram,
    LatencyPercentiles, TimeBuckets,
};

/// Counters of one stage. Relaxed throughout: each stands for itself, and the final report is read
/// after the workers have been joined.
#[derive(Default)]
pub struct StageMetrics {
    pub(crate) rows_in: AtomicU64,
    pub(crate) bundles_in: AtomicU64,
    pub(crate) rows_out: AtomicU64,
    pub(crate) bundles_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) partly_late: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) bad_rows: AtomicU64,
    pub(crate) state_bytes: AtomicI64,
    pub(crate) state_keys: AtomicI64,
    /// Bundles waiting at this stage.
    pub(crate) queued: AtomicUsize,
    /// Pieces ever posted to the mailboxes of its partitions; the meter counts those taken.
    pub(crate) posted: AtomicUsize,
    /// Watermarks and cuts in the mailboxes of its partitions, each once for each partition.
    pub(crate) barriers: AtomicUsize,
    /// What the scheduler measures.
    pub(crate) meter: StageMeter,
    watermark: AtomicI64,
    /// When it moved last; 0 if it has not.
    watermark_changed_ns: AtomicU64,
    /// The stage (from 1) that a merge by time waits for; 0 is none.
    held_by: AtomicUsize,
    /// What keeps it from work that is there.
    pub(crate) blocked: BlockedClock,
    /// Lookups under way.
    pub(crate) unanswered: Unanswered,
    /// What of it waits for room.
    parked: AtomicUsize,
    /// Since when its thread is in a call, where it has a thread of its own; 0 if it is not.
    pub(crate) called_ns: AtomicU64,
    /// Bundles that waited whenever one was taken, that one included; and how often that was.
    seen_queued: AtomicU64,
    looks_at_queue: AtomicU64,
}

impl StageMetrics {
    /// Counters at zero, no watermark.
    pub fn new() -> Self {
        StageMetrics { watermark: AtomicI64::new(i64::MIN), ..StageMetrics::default() }
    }
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        if by > 0 {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }
    /// The stage has come to this watermark.
    pub(crate) fn set_watermark(&self, watermark: Watermark, now_ns: impl FnOnce() -> u64) {
        if self.watermark.fetch_max(watermark.0, Ordering::Relaxed) < watermark.0 {
            self.watermark_changed_ns.store(now_ns(), Ordering::Relaxed);
        }
    }
    /// The stage begins at this watermark, which another run has come to.
    pub(crate) fn restore_watermark(&self, watermark: Watermark) {
        self.watermark.fetch_max(watermark.0, Ordering::Relaxed);
    }
    /// A bundle is taken; `waiting` bundles were there, that one included.
    pub(crate) fn note_queue(&self, waiting: usize) {
        self.seen_queued.fetch_add(waiting as u64, Ordering::Relaxed);
        self.looks_at_queue.fetch_add(1, Ordering::Relaxed);
    }
    /// A bundle is taken from the queue.
    pub(crate) fn take_queued(&self) {
        let waiting = self.queued.fetch_sub(1, Ordering::Relaxed);
        self.note_queue(waiting);
    }
    /// Something of it waits for room from now on.
    pub(crate) fn park(&self, now_ns: impl FnOnce() -> u64) {
        self.parked.fetch_add(1, Ordering::Relaxed);
        self.blocked.begin(BlockedBy::Output, now_ns);
    }
    /// Something that waited for room has a worker.
    pub(crate) fn resume(&self, now_ns: impl FnOnce() -> u64) {
        if self.parked.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.blocked.end(BlockedBy::Output, now_ns);
        }
    }
    /// The stage whose rows a merge by time waits for.
    pub(crate) fn set_held_by(&self, stage: Option<usize>, now_ns: impl FnOnce() -> u64) {
        match stage {
            Some(_) => self.blocked.begin(BlockedBy::Order, now_ns),
            None => self.blocked.end(BlockedBy::Order, now_ns),
        }
        self.held_by.store(stage.map_or(0, |stage| stage + 1), Ordering::Relaxed);
    }
    /// The stage whose rows a merge by time waits for.
    pub(crate) fn held_by(&self) -> Option<usize> {
        self.held_by.load(Ordering::Relaxed).checked_sub(1)
    }
    /// The watermark that the stage has reached.
    pub fn watermark(&self) -> Watermark {
        Watermark(self.watermark.load(Ordering::Relaxed))
    }
    /// A copy of the counters at this moment.
    pub fn snapshot(&self, id: &str, name: &str, role: StageRole, now_ns: u64) -> StageSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let in_call_ns = match read(&self.called_ns) {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        let (unanswered, oldest_unanswered_ns) = self.unanswered.oldest();
        StageSnapshot {
            id: id.to_owned(),
            name: name.to_owned(),
            role,
            rows_in: read(&self.rows_in),
            bundles_in: read(&self.bundles_in),
            rows_out: read(&self.rows_out),
            bundles_out: read(&self.bundles_out),
            bytes_out: read(&self.bytes_out),
            busy_ns: read(&self.busy_ns) + in_call_ns,
            in_call_ns,
            blocked: self.blocked.times(now_ns),
            unanswered,
            oldest_unanswered_ns,
            seen_queued: read(&self.seen_queued),
            looks_at_queue: read(&self.looks_at_queue),
            watermark_changed_ns: Some(read(&self.watermark_changed_ns)).filter(|&at| at > 0),
            accepted: read(&self.accepted),
            late: read(&self.late),
            partly_late: read(&self.partly_late),
            quarantined: read(&self.quarantined),
            bad_rows: read(&self.bad_rows),
            state_bytes: self.state_bytes.load(Ordering::Relaxed).max(0) as u64,
            queued: self.queued.load(Ordering::Relaxed),
            watermark: self.watermark(),
            ..StageSnapshot::default()
        }
    }
}

/// What a stage is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageRole {
    /// Reads.
    Source,
    /// Stateless.
    #[default]
    Transform,
    /// Stateful.
    Operator,
    /// Writes.
    Sink,
}

/// A copy of one stage's counters.
#[derive(Clone, Debug, Default)]
pub struct StageSnapshot {
    /// Stable identifier.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// What it is.
    pub role: StageRole,
    /// Rows taken (sources: rows read).
    pub rows_in: u64,
    /// Bundles taken.
    pub bundles_in: u64,
    /// Rows passed on (sinks: rows written).
    pub rows_out: u64,
    /// Bundles passed on.
    pub bundles_out: u64,
    /// Bytes passed on.
    pub bytes_out: u64,
    /// Time spent by workers (sinks: by the sink's thread), in nanoseconds.
    pub busy_ns: u64,
    /// How long the sink's thread has been in a call that has not returned, in nanoseconds; it is
    /// part of the busy time.
    pub in_call_ns: u64,
    /// What kept it from work that was there.
    pub blocked: BlockedTimes,
    /// Lookups that the outside has not answered.
    pub unanswered: usize,
    /// When the oldest of them was asked for.
    pub oldest_unanswered_ns: Option<u64>,
    /// Bundles that waited whenever one was taken, that one included, added up. Divided by
    /// `looks_at_queue` it is how long the queue is that a bundle meets, which a look at any other
    /// moment does not show.
    pub seen_queued: u64,
    /// How often a bundle was taken.
    pub looks_at_queue: u64,
    /// Bytes that wait (sinks).
    pub queued_bytes: u64,
    /// When the watermark moved last, in this run.
    pub watermark_changed_ns: Option<u64>,
    /// Time spent on each partition, in nanoseconds.
    pub partitions_ns: Vec<u64>,
    /// Latencies of the results of a sink.
    pub latency: Option<Distribution>,
    /// How long the writes of a sink took.
    pub writes: Option<Distribution>,
    /// Rows of a sink that a commit has made visible; of one without transactions, rows written.
    pub committed_rows: u64,
    /// How often something went wrong outside, of a sink that tries again.
    pub errors: Option<u64>,
    /// Rows taken into state.
    pub accepted: u64,
    /// Rows late for all their windows.
    pub late: u64,
    /// Rows late for some of their windows; they are among the accepted ones.
    pub partly_late: u64,
    /// Rows quarantined because their time lies too far in the future.
    pub quarantined: u64,
    /// Rows that could not be read and were dropped.
    pub bad_rows: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Entries of state, where its partitions count them.
    pub state_keys: Option<u64>,
    /// Bundles waiting.
    pub queued: usize,
    /// The watermark reached.
    pub watermark: Watermark,
    /// True for an input that is idle at the moment.
    pub idle: bool,
    /// The input that a merge by time waits for: its rows hold the others back. For a source, the
    /// table that is read before it.
    pub held_by: Option<String>,
    /// The place of that stage.
    pub held_by_stage: Option<usize>,
    /// What went wrong without stopping the job.
    pub problem: Option<String>,
    /// What is known of a source as a whole.
    pub source: Option<SourceSnapshot>,
    /// The splits of a source that names any, by name.
    pub splits: Vec<SplitSnapshot>,
}

/// What is known of a source as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSnapshot {
    /// When it was asked for rows last; `None` if it was not yet.
    pub asked_ns: Option<u64>,
    /// It may have rows, and nobody asks it.
    pub is_ready: bool,
    /// It waits because it is ahead of its alignment group.
    pub is_held: bool,
    /// All of its rows are read.
    pub has_ended: bool,
    /// How often its connection was made again, where it has one.
    pub reconnects: Option<u64>,
    /// The same as of a split, where it opens none: what all of it has given.
    pub whole: Option<SplitSnapshot>,
}

/// What is known of a split of a source; by default nothing, and it has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// Its watermark.
    pub watermark: Watermark,
    /// The source's watermark does not wait for it.
    pub idle: bool,
    /// It has no more rows.
    pub ended: bool,
    /// The source's watermark waits for it; others are further.
    pub holds_back: bool,
    /// It gives nothing because it is too far ahead of its alignment group.
    pub is_paused: bool,
    /// Rows given in this run.
    pub rows: u64,
    /// The latest time of the rows that came last, in milliseconds since 1970, where it is known.
    pub last_row_time_ms: Option<i64>,
    /// When rows came last.
    pub last_row_ns: Option<u64>,
    /// Since when it is idle.
    pub idle_since_ns: Option<u64>,
    /// What the source knows of it.
    pub status: SplitStatus,
}

/// A copy of a job's counters.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// Per stage, in topological order.
    pub stages: Vec<StageSnapshot>,
    /// What became of snapshots, where the job takes any.
    pub snapshots: Option<SnapshotMetrics>,
    /// How long the tasks of workers took, by kind of work.
    pub tasks: Vec<TaskLengths>,
    /// The job as a whole.
    pub job: JobSnapshot,
}

/// A copy of what is counted of a job as a whole.
#[derive(Clone, Debug, Default)]
pub struct JobSnapshot {
    /// When this copy was made, on the job's clock. All moments in a copy are of that clock.
    pub now_ns: u64,
    /// The same moment in milliseconds since 1970.
    pub wall_ms: i64,
    /// When the run began.
    pub started_ns: u64,
    /// How much memory may be used.
    pub memory_limit_bytes: u64,
    /// How much is in flight: queued between stages, and for sinks.
    pub in_flight_bytes: u64,
    /// From where on sources are not asked any more.
    pub in_flight_bytes_max: u64,
    /// What operators and sources keep.
    pub state_bytes: u64,
    /// What of that sources keep: read and not given.
    pub source_bytes: u64,
    /// Sources are not asked.
    pub is_paused: bool,
    /// The cut of a snapshot that is under way.
    pub cut: Option<CutSnapshot>,
}

/// A cut that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutSnapshot {
    /// When it was asked for.
    pub began_ns: u64,
    /// The places of the stages that it has not come by.
    pub missing: Vec<usize>,
}

/// What does not change about a job while it runs.
#[derive(Clone, Debug, Default)]
pub struct JobLayout {
    /// How many workers do its work.
    pub workers: usize,
    /// What is promised about the sequence of its results.
    pub order: OrderContract,
    /// True if processing time may make inputs idle.
    pub may_use_clock: bool,
    /// Per stage, in topological order.
    pub stages: Vec<StageLayout>,
}

/// What does not change about a stage.
#[derive(Clone, Debug)]
pub struct StageLayout {
    /// Stable identifier.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// What it is.
    pub role: StageRole,
    /// The places of the stages that feed it.
    pub inputs: Vec<usize>,
    /// How many can work on it at once.
    pub parallelism: usize,
    /// Which watermarks it passes on.
    pub passes: PassedWatermarks,
    /// The ends of windows: results come when a watermark crosses one.
    pub grids: Vec<Grid>,
    /// Of a source: it ends by itself.
    pub is_bounded: bool,
    /// Of a source: its rows have a time.
    pub has_time: bool,
    /// Of a source: after this silence a split falls idle.
    pub idle_timeout: Option<Duration>,
    /// Of a source: the stages whose last watermark it waits for.
    pub waits_for_end_of: Vec<usize>,
}

/// Which watermarks a stage passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedWatermarks {
    /// Less than its own by this number of milliseconds: rows that it makes may be that much older.
    HeldBackMs(i64),
    /// None but the last one: its results come when its input has ended.
    AtEnd,
    /// None but the last one: its results come as the clock goes.
    ByClock,
}

/// What became of the snapshots of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMetrics {
    /// How many were kept in this run.
    pub taken: u64,
    /// How many failed in this run.
    pub failed: u64,
    /// The number of the newest.
    pub number: Option<u64>,
    /// When it was taken, in milliseconds since 1970.
    pub taken_at_ms: Option<i64>,
    /// Bytes that were written for it.
    pub bytes: u64,
    /// From its request until it was kept.
    pub duration: Duration,
    /// What of that its steps took.
    pub steps: SnapshotSteps,
    /// The longest that a source was held for it: while it placed the cut.
    pub hold: Duration,
    /// The longest that a source was held for one.
    pub hold_max: Duration,
    /// How long sources were held, over all of this run.
    pub holds: Option<LatencyPercentiles>,
    /// The same by bucket.
    pub hold_times: Distribution,
    /// From the request until a snapshot was kept, over all of this run.
    pub durations: Distribution,
    /// Bytes that were written for all of this run.
    pub written_bytes: u64,
    /// How often one is to be taken.
    pub interval: Option<Duration>,
    /// For each stage in front of which the cut waits: from the moment at which the first source
    /// had placed it until the stage was captured.
    pub captured_after: Vec<(String, Duration)>,
    /// The same of the last stage, over all of this run.
    pub captures: Option<LatencyPercentiles>,
    /// Why the last try failed, why there is none for too long, or by how much the interval is not
    /// kept.
    pub problem: Option<String>,
    /// They are kept, but not as often as they should be.
    pub is_behind: bool,
}

/// How long the steps of a snapshot took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSteps {
    /// From its request until all stages were captured.
    pub cut: Duration,
    /// Until what was captured was stored.
    pub write: Duration,
    /// Until sinks had shown what belongs to it.
    pub commit: Duration,
}

impl MetricsSnapshot {
    fn total(&self, role: StageRole, of: impl Fn(&StageSnapshot) -> u64) -> u64 {
        self.stages.iter().filter(|stage| stage.role == role).map(of).sum()
    }
    /// Rows read by all sources.
    pub fn rows_in(&self) -> u64 {
        self.total(StageRole::Source, |stage| stage.rows_in)
    }
    /// Rows written by all sinks.
    pub fn rows_out(&self) -> u64 {
        self.total(StageRole::Sink, |stage| stage.rows_out)
    }
    /// Rows late for all their windows, over all operators.
    pub fn late(&self) -> u64 {
        self.total(StageRole::Operator, |stage| stage.late)
    }
    /// The least advanced watermark of the sources that are not idle, for which nothing waits; of
    /// all of them where every one is idle.
    pub fn watermark(&self) -> Watermark {
        let sources = self.stages.iter().filter(|stage| stage.role == StageRole::Source);
        let active = sources.clone().filter(|stage| !stage.idle).map(|stage| stage.watermark).min();
        let of_all = || sources.map(|stage| stage.watermark).min();
        active.or_else(of_all).unwrap_or(Watermark::MIN)
    }
}
