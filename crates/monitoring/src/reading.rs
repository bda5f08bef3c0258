//! The reading of a job: a plain copy of its counters at one moment.
//!
//! **Invariants**
//! - Stages stand in topological order: the inputs of a stage come before it.
//! - Moments are milliseconds since 1970; a watermark is event time in the same unit, absent where
//!   nothing is promised yet.
//! - A reading made of another one of the same run ([`JobReading::compare_with`]) has rates; all
//!   other fields stand for themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_core::{Grid, Watermark};
use thalweg_runtime::metrics::{
    BlockedBy, Distribution, JobLayout, PassedWatermarks, SplitSnapshot, StageLayout, StageRole,
};
use thalweg_runtime::{MetricsSnapshot, SnapshotMetrics, StageSnapshot};

/// A job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobReading {
    /// Its name.
    pub job: String,
    /// When this was read.
    pub at_ms: i64,
    /// When the run began.
    pub started_at_ms: i64,
    /// What becomes of it: `running`, `paused`, `restarting` and so on.
    pub state: String,
    /// The revision of its statements, where they are numbered.
    pub revision: Option<u64>,
    /// What is promised about the sequence of its results.
    pub order: String,
    /// What is promised about failures.
    pub mode: String,
    /// True if processing time may make inputs idle.
    pub may_use_clock: bool,
    /// How many workers do its work.
    pub workers: usize,
    /// Memory in use.
    pub memory: MemoryReading,
    /// In topological order.
    pub stages: Vec<StageReading>,
    /// What became of snapshots, where any are taken.
    pub snapshots: Option<SnapshotReading>,
    /// How often it was started again, by cause.
    pub restarts: BTreeMap<String, u64>,
    /// It has failed and is about to be started again.
    pub restarting: Option<RestartReading>,
    /// Sources are not asked, by whose wish or for which reason.
    pub paused_by: Option<String>,
    /// The cut of a snapshot that is under way.
    pub cut: Option<CutReading>,
}

/// Memory in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReading {
    /// How much may be used.
    pub limit_bytes: u64,
    /// Rows queued between stages and for sinks.
    pub in_flight_bytes: u64,
    /// From where on sources are not asked.
    pub in_flight_bytes_max: u64,
    /// What operators keep.
    pub state_bytes: u64,
    /// What sources have read and not given yet.
    pub buffer_bytes: u64,
}

/// A job that is about to be started again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestartReading {
    /// Which try comes.
    pub attempt: u64,
    /// When.
    pub next_at_ms: i64,
    /// Why it failed.
    pub cause: String,
}

/// A cut that is under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CutReading {
    /// Since when.
    pub since_ms: i64,
    /// The stages that it has not come by.
    pub missing: Vec<usize>,
}

/// What a stage is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageKind {
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

/// A stage at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageReading {
    /// Stable identifier.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// The places of the stages that feed it.
    pub inputs: Vec<usize>,
    /// How many workers can be at it at once.
    pub parallelism: usize,
    /// It passes watermarks on that are less than its own by this much.
    pub held_back_ms: i64,
    /// It passes no watermark on before its input has ended.
    pub passes_at_end: bool,
    /// Its results come as the clock goes, whatever its watermark is.
    pub gives_by_clock: bool,
    /// Where windows end.
    pub windows: Vec<WindowGrid>,
    /// The input that it waits for: a merge by time, or a side that is read first.
    pub waits_for: Option<usize>,
    /// What it has counted.
    pub counters: StageCounters,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Entries of state, where they are counted: keys (in each open window), or rows where rows are
    /// kept.
    pub state_keys: Option<u64>,
    /// Bundles that a bundle found before it when it was taken, on average since the last reading.
    pub queued: f64,
    /// Bytes that wait (sinks).
    pub queued_bytes: u64,
    /// The event time up to which its input is complete.
    pub watermark: Option<i64>,
    /// Its input has ended.
    pub has_ended: bool,
    /// When the watermark moved last.
    pub watermark_at_ms: Option<i64>,
    /// How long a step of the watermark takes, on average.
    pub mean_step_ms: Option<i64>,
    /// For so long its thread is in one call (sinks).
    pub in_call_ms: i64,
    /// Lookups without an answer.
    pub unanswered: usize,
    /// When the oldest of them was asked for.
    pub unanswered_since_ms: Option<i64>,
    /// What goes wrong without stopping the job.
    pub problem: Option<String>,
    /// Since the reading before.
    pub recent: Option<StageRates>,
    /// Of a source.
    pub source: Option<SourceReading>,
    /// Of a sink.
    pub sink: Option<SinkReading>,
}

/// Where windows end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowGrid {
    /// From one end to the next.
    pub period_ms: i64,
    /// One of the ends.
    pub offset_ms: i64,
}

impl WindowGrid {
    fn grid(&self) -> Grid {
        Grid { period_ms: self.period_ms.max(1), offset_ms: self.offset_ms }
    }
    /// The end of the next window that a watermark has not closed.
    pub fn next_end(&self, watermark: i64) -> i64 {
        // A window that ends at e is closed from e - 1 on.
        let grid = self.grid();
        grid.start(grid.index(watermark.saturating_add(1)).saturating_add(1))
    }
    /// How many windows one watermark closes that another does not.
    pub fn closed_between(&self, from: i64, to: i64) -> u64 {
        let grid = self.grid();
        let index = |watermark: i64| grid.index(watermark.saturating_add(1));
        u64::try_from(index(to).saturating_sub(index(from))).unwrap_or(0)
    }
}

/// What a stage has counted since the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageCounters {
    /// Rows taken; of a source, rows read.
    pub rows_in: u64,
    /// Bundles taken.
    pub bundles_in: u64,
    /// Rows passed on; of a sink, rows written.
    pub rows_out: u64,
    /// Bundles passed on.
    pub bundles_out: u64,
    /// Bytes passed on.
    pub bytes_out: u64,
    /// Time spent by workers, or by the sink's thread.
    pub busy_ns: u64,
    /// Time in which it could not do work that was there, by reason.
    pub blocked_ns: BlockedShares<u64>,
    /// Rows taken into state.
    pub accepted: u64,
    /// Rows late for all their windows.
    pub late: u64,
    /// Rows late for some of their windows.
    pub partly_late: u64,
    /// Rows whose time lies too far in the future.
    pub quarantined: u64,
    /// Rows that could not be read.
    pub bad_rows: u64,
    /// Time spent on each partition.
    pub partitions_ns: Vec<u64>,
    /// The lengths of queues, as bundles found them, and how often one was looked at.
    pub seen_queued: (u64, u64),
}

/// A number for each reason for which a stage may be blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockedShares<T> {
    /// What it made before is not taken.
    pub output: T,
    /// Memory is short.
    pub memory: T,
    /// Another input comes first.
    pub order: T,
    /// The outside has not answered.
    pub lookup: T,
    /// A snapshot is being taken.
    pub cut: T,
}

impl<T: Copy> BlockedShares<T> {
    /// A number for each reason.
    pub fn of(number: impl Fn(BlockedBy) -> T) -> Self {
        let [output, memory, order, lookup, cut] = BlockedBy::ALL.map(number);
        BlockedShares { output, memory, order, lookup, cut }
    }
    /// That of one reason.
    pub fn by(&self, by: BlockedBy) -> T {
        self.named()[by as usize].1
    }
    /// With the names of the reasons.
    pub fn named(&self) -> [(&'static str, T); 5] {
        let Self { output, memory, order, lookup, cut } = *self;
        let numbers = [output, memory, order, lookup, cut];
        std::array::from_fn(|by| (BlockedBy::ALL[by].name(), numbers[by]))
    }
}

/// What a stage has done between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageRates {
    /// Rows taken a second.
    pub rows_in: f64,
    /// Rows passed on a second.
    pub rows_out: f64,
    /// Rows late a second.
    pub late: f64,
    /// Rows quarantined a second.
    pub quarantined: f64,
    /// Rows that could not be read a second.
    pub bad: f64,
    /// The share of the time in which it was busy: 1 where all that can work on it did.
    pub busy: f64,
    /// The share of the time in which it was blocked, by reason.
    pub blocked: BlockedShares<f64>,
    /// The share of the time that the busiest of its partitions took.
    pub busiest_partition: f64,
    /// That share by the average one.
    pub skew: f64,
}

impl StageRates {
    /// What is left: neither busy nor blocked.
    pub fn idle(&self) -> f64 {
        (1.0 - self.busy - self.blocked_share()).max(0.0)
    }
    /// The largest share for which it was blocked by one reason.
    pub fn blocked_share(&self) -> f64 {
        self.blocked.named().into_iter().map(|(_, share)| share).fold(0.0, f64::max)
    }
}

/// A source at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceReading {
    /// When it was asked for rows last.
    pub asked_at_ms: Option<i64>,
    /// It may have rows, and nobody asks it.
    pub is_ready: bool,
    /// It waits because it is ahead of its alignment group.
    pub is_held: bool,
    /// All of its rows are read.
    pub has_ended: bool,
    /// It ends by itself.
    pub is_bounded: bool,
    /// Its rows have a time.
    pub has_time: bool,
    /// Nobody waits for it.
    pub is_idle: bool,
    /// After this silence a split is idle.
    pub idle_timeout_ms: Option<i64>,
    /// How often its connection was lost and made again, where it has one.
    pub reconnects: Option<u64>,
    /// Its splits; one without a name where it opens none.
    pub splits: Vec<SplitReading>,
}

impl SourceReading {
    /// Rows that are there and were not read yet, as far as that is known.
    pub fn lag_rows(&self) -> Option<u64> {
        let known = self.splits.iter().filter_map(|split| split.lag_rows);
        known.reduce(|sum, lag| sum.saturating_add(lag))
    }
    /// Bytes that are there and were not read yet, as far as that is known.
    pub fn lag_bytes(&self) -> Option<u64> {
        let known = self.splits.iter().filter_map(|split| split.lag_bytes);
        known.reduce(|sum, lag| sum.saturating_add(lag))
    }
}

/// A split at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplitReading {
    /// Its name; empty for that of a source that opens none.
    pub name: String,
    /// No row of it to come is at or before this time.
    pub watermark: Option<i64>,
    /// Nobody waits for it.
    pub is_idle: bool,
    /// Since when.
    pub idle_since_ms: Option<i64>,
    /// It has no more rows.
    pub has_ended: bool,
    /// It is ahead of its alignment group.
    pub is_paused: bool,
    /// Rows given in this run.
    pub rows: u64,
    /// The latest time of the rows that came last.
    pub last_row_time_ms: Option<i64>,
    /// When rows came last.
    pub last_row_at_ms: Option<i64>,
    /// How far it is read.
    pub position: Option<String>,
    /// Rows that are there and were not read yet.
    pub lag_rows: Option<u64>,
    /// Bytes that are there and were not read yet.
    pub lag_bytes: Option<u64>,
    /// All that is there is read.
    pub is_caught_up: bool,
    /// Rows that could not be read.
    pub bad_rows: u64,
    /// What goes wrong outside and is tried again.
    pub last_error: Option<String>,
    /// Since the reading before.
    pub recent: Option<SplitRates>,
}

impl SplitReading {
    /// True if the watermark of its source waits for it.
    pub fn counts(&self) -> bool {
        !self.is_idle && !self.has_ended
    }
}

/// What a split has done between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplitRates {
    /// Rows a second.
    pub rows: f64,
    /// By how many rows the lag has grown a second.
    pub lag: f64,
    /// By how many seconds the watermark has advanced a second.
    pub pace: f64,
}

/// A sink at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkReading {
    /// Latencies of results.
    pub latency: DistributionReading,
    /// Those of about the last minute.
    pub recent_latency: DistributionReading,
    /// How long writes took.
    pub writes: DistributionReading,
    /// Rows that a commit has made visible; without transactions, rows written.
    pub committed_rows: u64,
    /// How often something went wrong outside, of a sink that tries again.
    pub errors: Option<u64>,
}

/// Times by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DistributionReading {
    /// By the bounds of [`thalweg_runtime::metrics::BUCKET_BOUNDS_US`], and beyond.
    pub counts: Vec<u64>,
    /// By the exponential buckets of [`Distribution::fine`]. No part of the reading as JSON, where
    /// they would be most of it.
    #[serde(skip)]
    pub fine: Vec<u64>,
    /// The sum of all times.
    pub sum_us: u64,
}

impl From<&Distribution> for DistributionReading {
    fn from(of: &Distribution) -> Self {
        DistributionReading { counts: of.counts.to_vec(), fine: of.fine.clone(), sum_us: of.sum_us }
    }
}

/// How long the steps of a snapshot took, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotStepsReading {
    /// From its request until all stages were captured.
    pub cut_us: u64,
    /// Until what was captured was stored.
    pub write_us: u64,
    /// Until sinks had shown what belongs to it.
    pub commit_us: u64,
    /// After how long each stage was captured, once a source had placed the cut.
    pub captured: Vec<(String, u64)>,
}

/// What became of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotReading {
    /// Kept in this run.
    pub taken: u64,
    /// Failed in this run.
    pub failed: u64,
    /// The number of the newest.
    pub number: Option<u64>,
    /// When it was taken.
    pub taken_at_ms: Option<i64>,
    /// Bytes that were written for it.
    pub bytes: u64,
    /// Bytes that were written for all of this run.
    pub written_bytes: u64,
    /// How often one is to be taken.
    pub interval_ms: Option<i64>,
    /// How long the steps of the newest took.
    pub steps: SnapshotStepsReading,
    /// How long they took.
    pub durations: DistributionReading,
    /// How long sources were held.
    pub holds: DistributionReading,
    /// What is wrong with them.
    pub problem: Option<String>,
}

/// From moments of a job's clock to milliseconds since 1970.
#[derive(Clone, Copy)]
struct WallClock {
    now_ns: u64,
    wall_ms: i64,
}

impl WallClock {
    fn at(self, at_ns: u64) -> i64 {
        self.wall_ms - (self.now_ns.saturating_sub(at_ns) / 1_000_000) as i64
    }
}

impl JobReading {
    /// Says when the run began as the reading before did: both are worked out from two clocks and
    /// differ by a millisecond now and then, which would look like another run.
    pub(crate) fn keep_start_of(&mut self, before: &JobReading) {
        const SAME_RUN_MS: u64 = 1_000;
        if self.started_at_ms.abs_diff(before.started_at_ms) < SAME_RUN_MS {
            self.started_at_ms = before.started_at_ms;
        }
    }

    /// The reading of a job, with the name by which people know it, from its counters.
    pub fn of(job: &str, layout: &JobLayout, metrics: &MetricsSnapshot) -> JobReading {
        let of_all = &metrics.job;
        let clock = WallClock { now_ns: of_all.now_ns, wall_ms: of_all.wall_ms };
        let buffer_bytes = of_all.source_bytes;
        let stages = layout.stages.iter().zip(&metrics.stages);
        JobReading {
            job: job.to_owned(),
            at_ms: of_all.wall_ms,
            started_at_ms: clock.at(of_all.started_ns),
            state: if of_all.is_paused { "paused" } else { "running" }.to_owned(),
            order: layout.order.to_string(),
            may_use_clock: layout.may_use_clock,
            workers: layout.workers,
            memory: MemoryReading {
                limit_bytes: of_all.memory_limit_bytes,
                in_flight_bytes: of_all.in_flight_bytes,
                in_flight_bytes_max: of_all.in_flight_bytes_max,
                state_bytes: of_all.state_bytes.saturating_sub(buffer_bytes),
                buffer_bytes,
            },
            stages: stages.map(|(layout, stage)| stage_reading(layout, stage, clock)).collect(),
            snapshots: metrics.snapshots.as_ref().map(snapshot_reading),
            paused_by: of_all.is_paused.then(|| paused_by(metrics)),
            cut: of_all.cut.as_ref().map(|cut| CutReading {
                since_ms: clock.at(cut.began_ns),
                missing: cut.missing.clone(),
            }),
            ..JobReading::default()
        }
    }

    /// Moments of an earlier run where nothing has come since: a watermark that has not moved, a
    /// split without a row.
    pub fn stand_since(&mut self, earlier: &JobReading) {
        for stage in &mut self.stages {
            let before = earlier.stages.iter().find(|before| before.id == stage.id);
            let Some(before) = before else { continue };
            if stage.watermark.is_some() && stage.watermark == before.watermark {
                stage.watermark_at_ms = before.watermark_at_ms.or(stage.watermark_at_ms);
            }
            let (Some(source), Some(before)) = (&mut stage.source, &before.source) else {
                continue;
            };
            for split in source.splits.iter_mut().filter(|split| split.last_row_at_ms.is_none()) {
                let before = before.splits.iter().find(|before| before.name == split.name);
                split.last_row_at_ms = before.and_then(|before| before.last_row_at_ms);
            }
        }
    }

    /// Forgets watermarks that are not where they were any more.
    pub fn forget_moved(&mut self, now: &JobReading) {
        for stage in &mut self.stages {
            let now = now.stages.iter().find(|now| now.id == stage.id);
            let is_moved = |now: i64| stage.watermark != Some(now);
            if now.and_then(|now| now.watermark).is_some_and(is_moved) {
                stage.watermark = None;
            }
        }
    }

    /// Without what has been counted: what a reading of another moment is made of.
    #[must_use]
    pub fn without_counts(&self) -> JobReading {
        let mut reading = self.clone();
        (reading.snapshots, reading.memory) = (None, MemoryReading::default());
        for stage in &mut reading.stages {
            stage.counters = StageCounters::default();
            stage.sink = stage.sink.as_ref().map(|_| SinkReading::default());
        }
        reading
    }

    /// Works out rates, from an earlier reading of the same run.
    pub fn compare_with(&mut self, earlier: &JobReading) {
        let seconds = (self.at_ms - earlier.at_ms) as f64 / 1_000.0;
        if seconds <= 0.0 || self.stages.len() != earlier.stages.len() {
            return;
        }
        for (stage, before) in self.stages.iter_mut().zip(&earlier.stages) {
            stage.recent = Some(stage_rates(stage, &before.counters, seconds));
            let (sum, looks) = stage.counters.seen_queued;
            let (sum_before, looks_before) = before.counters.seen_queued;
            if looks > looks_before {
                let queued = sum.saturating_sub(sum_before) as f64;
                stage.queued = stage.queued.max(queued / (looks - looks_before) as f64);
            }
            let (Some(source), Some(before)) = (&mut stage.source, &before.source) else {
                continue;
            };
            for split in &mut source.splits {
                let same = before.splits.iter().find(|before| before.name == split.name);
                split.recent = same.map(|before| split_rates(split, before, seconds));
            }
        }
    }

    /// The places of the sinks.
    pub fn sinks(&self) -> impl Iterator<Item = usize> + '_ {
        let stages = self.stages.iter().enumerate();
        stages.filter(|(_, stage)| stage.kind == StageKind::Sink).map(|(place, _)| place)
    }

    /// The sum of a counter over the stages of one kind.
    pub fn total(&self, kind: StageKind, of: impl Fn(&StageCounters) -> u64) -> u64 {
        let stages = self.stages.iter().filter(|stage| stage.kind == kind);
        stages.map(|stage| of(&stage.counters)).sum()
    }

    /// The sum of a rate over the stages of one kind.
    pub fn total_rate(&self, kind: StageKind, of: impl Fn(&StageRates) -> f64) -> f64 {
        let stages = self.stages.iter().filter(|stage| stage.kind == kind);
        stages.filter_map(|stage| stage.recent.as_ref()).map(of).sum()
    }
}

fn paused_by(metrics: &MetricsSnapshot) -> String {
    let problem = metrics.snapshots.as_ref().and_then(|snapshots| snapshots.problem.clone());
    problem.unwrap_or_else(|| "a person, or a snapshot that ends the job".to_owned())
}

fn stage_reading(layout: &StageLayout, stage: &StageSnapshot, clock: WallClock) -> StageReading {
    let has_ended = stage.watermark == Watermark::END;
    let source = stage.source.as_ref().map(|_| source_reading(layout, stage, clock));
    let sink = stage.latency.as_ref().zip(stage.writes.as_ref());
    StageReading {
        id: layout.id.clone(),
        name: layout.name.clone(),
        kind: match layout.role {
            StageRole::Source => StageKind::Source,
            StageRole::Transform => StageKind::Transform,
            StageRole::Operator => StageKind::Operator,
            StageRole::Sink => StageKind::Sink,
        },
        inputs: layout.inputs.clone(),
        parallelism: layout.parallelism,
        held_back_ms: match layout.passes {
            PassedWatermarks::HeldBackMs(ms) => ms,
            PassedWatermarks::AtEnd | PassedWatermarks::ByClock => 0,
        },
        passes_at_end: layout.passes == PassedWatermarks::AtEnd,
        gives_by_clock: layout.passes == PassedWatermarks::ByClock,
        windows: layout
            .grids
            .iter()
            .map(|grid| WindowGrid { period_ms: grid.period_ms, offset_ms: grid.offset_ms })
            .collect(),
        waits_for: stage.held_by_stage,
        counters: stage_counters(stage),
        state_bytes: stage.state_bytes,
        state_keys: stage.state_keys,
        queued: stage.queued as f64,
        queued_bytes: stage.queued_bytes,
        watermark: known(stage.watermark),
        has_ended,
        watermark_at_ms: stage.watermark_changed_ns.map(|at_ns| clock.at(at_ns)),
        mean_step_ms: None,
        in_call_ms: (stage.in_call_ns / 1_000_000) as i64,
        unanswered: stage.unanswered,
        unanswered_since_ms: stage.oldest_unanswered_ns.map(|at_ns| clock.at(at_ns)),
        problem: stage.problem.clone(),
        recent: None,
        source,
        sink: sink.map(|(latency, writes)| SinkReading {
            latency: latency.into(),
            recent_latency: latency.into(),
            writes: writes.into(),
            committed_rows: stage.committed_rows,
            errors: stage.errors,
        }),
    }
}

/// The time of a watermark that promises something and is not the last one.
fn known(watermark: Watermark) -> Option<i64> {
    (watermark > Watermark::MIN && watermark < Watermark::END).then_some(watermark.0)
}

fn stage_counters(stage: &StageSnapshot) -> StageCounters {
    StageCounters {
        rows_in: stage.rows_in,
        bundles_in: stage.bundles_in,
        rows_out: stage.rows_out,
        bundles_out: stage.bundles_out,
        bytes_out: stage.bytes_out,
        busy_ns: stage.busy_ns,
        blocked_ns: BlockedShares::of(|by| stage.blocked.by(by)),
        accepted: stage.accepted,
        late: stage.late,
        partly_late: stage.partly_late,
        quarantined: stage.quarantined,
        bad_rows: stage.bad_rows,
        partitions_ns: stage.partitions_ns.clone(),
        seen_queued: (stage.seen_queued, stage.looks_at_queue),
    }
}

fn source_reading(layout: &StageLayout, stage: &StageSnapshot, clock: WallClock) -> SourceReading {
    let of_all = stage.source.clone().unwrap_or_default();
    let is_split = !stage.splits.is_empty();
    let shown = if is_split { &stage.splits[..] } else { of_all.whole.as_slice() };
    SourceReading {
        asked_at_ms: of_all.asked_ns.map(|at_ns| clock.at(at_ns)),
        is_ready: of_all.is_ready,
        is_held: of_all.is_held,
        has_ended: of_all.has_ended,
        is_bounded: layout.is_bounded,
        has_time: layout.has_time,
        is_idle: stage.idle,
        reconnects: of_all.reconnects,
        idle_timeout_ms: layout.idle_timeout.map(|timeout| timeout.as_millis() as i64),
        splits: shown.iter().map(|split| split_reading(split, &of_all.has_ended, clock)).collect(),
    }
}

fn split_reading(split: &SplitSnapshot, source_ended: &bool, clock: WallClock) -> SplitReading {
    SplitReading {
        name: split.name.to_string(),
        watermark: known(split.watermark),
        is_idle: split.idle,
        idle_since_ms: split.idle_since_ns.map(|at_ns| clock.at(at_ns)),
        has_ended: split.ended || *source_ended || split.watermark == Watermark::END,
        is_paused: split.is_paused,
        rows: split.rows,
        last_row_time_ms: split.last_row_time_ms,
        last_row_at_ms: split.last_row_ns.map(|at_ns| clock.at(at_ns)),
        position: split.status.position.clone(),
        lag_rows: split.status.lag_rows,
        lag_bytes: split.status.lag_bytes,
        is_caught_up: split.status.is_caught_up,
        bad_rows: split.status.bad_rows,
        last_error: split.status.last_error.clone(),
        recent: None,
    }
}

fn snapshot_reading(of: &SnapshotMetrics) -> SnapshotReading {
    SnapshotReading {
        taken: of.taken,
        failed: of.failed,
        number: of.number,
        taken_at_ms: of.taken_at_ms,
        bytes: of.bytes,
        written_bytes: of.written_bytes,
        interval_ms: of.interval.map(|interval| interval.as_millis() as i64),
        steps: SnapshotStepsReading {
            cut_us: of.steps.cut.as_micros() as u64,
            write_us: of.steps.write.as_micros() as u64,
            commit_us: of.steps.commit.as_micros() as u64,
            captured: of
                .captured_after
                .iter()
                .map(|(stage, after)| (stage.clone(), after.as_micros() as u64))
                .collect(),
        },
        durations: (&of.durations).into(),
        holds: (&of.hold_times).into(),
        problem: of.problem.clone(),
    }
}

fn stage_rates(stage: &StageReading, before: &StageCounters, seconds: f64) -> StageRates {
    let now = &stage.counters;
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let share = |now: u64, before: u64| (rate(now, before) / 1e9).min(1.0);
    let partitions = now.partitions_ns.iter().zip(&before.partitions_ns);
    let partitions: Vec<f64> = partitions.map(|(now, before)| share(*now, *before)).collect();
    let busiest = partitions.iter().copied().fold(0.0, f64::max);
    let mean = partitions.iter().sum::<f64>() / partitions.len().max(1) as f64;
    let parallelism = stage.parallelism.max(1) as f64;
    StageRates {
        rows_in: rate(now.rows_in, before.rows_in),
        rows_out: rate(now.rows_out, before.rows_out),
        late: rate(now.late, before.late),
        quarantined: rate(now.quarantined, before.quarantined),
        bad: rate(now.bad_rows, before.bad_rows),
        busy: (rate(now.busy_ns, before.busy_ns) / 1e9 / parallelism).min(1.0),
        blocked: BlockedShares::of(|by| share(now.blocked_ns.by(by), before.blocked_ns.by(by))),
        busiest_partition: busiest,
        skew: if mean > 0.0 { busiest / mean } else { 1.0 },
    }
}

fn split_rates(split: &SplitReading, before: &SplitReading, seconds: f64) -> SplitRates {
    let lag = split.lag_rows.zip(before.lag_rows);
    let watermark = split.watermark.zip(before.watermark);
    SplitRates {
        rows: split.rows.saturating_sub(before.rows) as f64 / seconds,
        lag: lag.map_or(0.0, |(now, before)| (now as f64 - before as f64) / seconds),
        pace: watermark.map_or(0.0, |(now, before)| (now - before) as f64 / 1_000.0 / seconds),
    }
}
