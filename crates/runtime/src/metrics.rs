//! What is counted while a job runs. The progress line, `--metrics` and tests read the same
//! counters.

use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use std::time::Duration;

use thalweg_core::Watermark;
use thalweg_core::connector::SplitStatus;
use thalweg_ordering::sync::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crate::scheduler::meter::StageMeter;

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
    /// Bundles waiting at this stage.
    pub(crate) queued: AtomicUsize,
    /// Pieces ever posted to the mailboxes of its partitions; the meter counts those taken.
    pub(crate) posted: AtomicUsize,
    /// What the scheduler measures.
    pub(crate) meter: StageMeter,
    watermark: AtomicI64,
    /// The stage (from 1) that a merge by time waits for; 0 is none.
    held_by: AtomicUsize,
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
    pub(crate) fn set_watermark(&self, watermark: Watermark) {
        self.watermark.fetch_max(watermark.0, Ordering::Relaxed);
    }
    /// The stage whose rows a merge by time waits for.
    pub(crate) fn set_held_by(&self, stage: Option<usize>) {
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
    /// A copy of the counters.
    pub fn snapshot(&self, id: &str, name: &str, role: StageRole) -> StageSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StageSnapshot {
            id: id.to_owned(),
            name: name.to_owned(),
            role,
            rows_in: read(&self.rows_in),
            bundles_in: read(&self.bundles_in),
            rows_out: read(&self.rows_out),
            bundles_out: read(&self.bundles_out),
            bytes_out: read(&self.bytes_out),
            busy_ns: read(&self.busy_ns),
            accepted: read(&self.accepted),
            late: read(&self.late),
            partly_late: read(&self.partly_late),
            quarantined: read(&self.quarantined),
            bad_rows: read(&self.bad_rows),
            state_bytes: self.state_bytes.load(Ordering::Relaxed).max(0) as u64,
            queued: self.queued.load(Ordering::Relaxed),
            watermark: self.watermark(),
            idle: false,
            held_by: None,
            problem: None,
            splits: Vec::new(),
        }
    }
}

/// What a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRole {
    /// Reads.
    Source,
    /// Stateless.
    Transform,
    /// Stateful.
    Operator,
    /// Writes.
    Sink,
}

/// A copy of one stage's counters.
#[derive(Clone, Debug)]
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
    /// Bundles waiting.
    pub queued: usize,
    /// The watermark reached.
    pub watermark: Watermark,
    /// True for an input that is idle at the moment.
    pub idle: bool,
    /// The input that a merge by time waits for: its rows hold the others back. For a source, the
    /// table that is read before it.
    pub held_by: Option<String>,
    /// What went wrong without stopping the job.
    pub problem: Option<String>,
    /// The splits of a source that names any, by name.
    pub splits: Vec<SplitSnapshot>,
}

/// What is known of a split of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The longest that a source was held for it: while it placed the cut.
    pub hold: Duration,
    /// The longest that a source was held for one.
    pub hold_max: Duration,
    /// How long sources were held, over all of this run.
    pub holds: Option<LatencyPercentiles>,
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
    /// The least advanced watermark of the sources.
    pub fn watermark(&self) -> Watermark {
        let sources = self.stages.iter().filter(|stage| stage.role == StageRole::Source);
        sources.map(|stage| stage.watermark).min().unwrap_or(Watermark::MIN)
    }
}

/// A histogram of latencies; above all that of results: from the moment the row that completes a
/// result entered the engine until the result is handed to the sink's writer.
pub struct LatencyHistogram(Mutex<Histogram<u64>>);

impl LatencyHistogram {
    /// An empty histogram: 1 µs to an hour, three digits.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        LatencyHistogram(Mutex::new(histogram.expect("the bounds are valid")))
    }
    /// Records one.
    pub fn record_us(&self, latency_us: u64) {
        let mut histogram = self.0.lock().expect("no panic under this lock");
        histogram.saturating_record(latency_us.max(1));
    }
    /// Count, p50, p90, p99, p99.9, p99.99 and maximum, in microseconds; `None` without results.
    pub fn percentiles(&self) -> Option<LatencyPercentiles> {
        Self::percentiles_of(&self.0.lock().expect("no panic under this lock"))
    }
    /// The same, and starts over: the next answer is about what comes from now on.
    pub fn take(&self) -> Option<LatencyPercentiles> {
        let mut histogram = self.0.lock().expect("no panic under this lock");
        let percentiles = Self::percentiles_of(&histogram);
        histogram.reset();
        percentiles
    }
    fn percentiles_of(histogram: &Histogram<u64>) -> Option<LatencyPercentiles> {
        (!histogram.is_empty()).then(|| LatencyPercentiles {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            p9999_us: histogram.value_at_quantile(0.9999),
            max_us: histogram.max(),
        })
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Percentiles of latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyPercentiles {
    /// How many; of results, how many bundles.
    pub count: u64,
    /// Half are faster.
    pub p50_us: u64,
    /// 90 % are faster.
    pub p90_us: u64,
    /// 99 % are faster.
    pub p99_us: u64,
    /// 99.9 % are faster.
    pub p999_us: u64,
    /// 99.99 % are faster.
    pub p9999_us: u64,
    /// The slowest.
    pub max_us: u64,
}
