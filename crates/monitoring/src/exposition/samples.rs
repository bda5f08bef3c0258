//! The samples of a reading.

use super::families::Families;
use crate::conditions::{Condition, ConditionKind};
use crate::reading::{JobReading, SourceReading, SplitReading, StageKind, StageReading};
use crate::why::{Verdict, Why, why};

/// Up to this number, splits of a source have series of their own; of more, the slowest.
pub const SPLITS_MAX: usize = 64;
/// How many are shown where there are more than [`SPLITS_MAX`].
const SLOWEST_SPLITS: usize = 8;

/// What metrics say of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessReading {
    /// The version of the program.
    pub version: String,
    /// The features that it was built with.
    pub features: String,
    /// Worker threads.
    pub workers: usize,
    /// Time that they spent on tasks.
    pub busy_seconds: f64,
    /// Processor time.
    pub cpu_seconds: Option<f64>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// When it began, in seconds since 1970.
    pub start_time_seconds: Option<f64>,
}

/// Adds what is known of the process.
pub fn process_samples(families: &mut Families, process: &ProcessReading) {
    families.add("thalweg_build_info", &[&process.version, &process.features], 1.0);
    families.add("thalweg_workers", &[], process.workers as f64);
    families.add("thalweg_worker_busy_seconds_total", &[], process.busy_seconds);
    let optional = [
        ("process_cpu_seconds_total", process.cpu_seconds),
        ("process_resident_memory_bytes", process.resident_bytes.map(|bytes| bytes as f64)),
        ("process_open_fds", process.open_fds.map(|fds| fds as f64)),
        ("process_start_time_seconds", process.start_time_seconds),
    ];
    for (name, value) in optional {
        value.iter().for_each(|&value| families.add(name, &[], value));
    }
}

/// Adds what is known of a job.
pub fn job_samples(families: &mut Families, reading: &JobReading, conditions: &[Condition]) {
    let job = reading.job.as_str();
    families.count_since(Some(reading.started_at_ms).filter(|&began_ms| began_ms > 0));
    of_job(families, reading, conditions);
    of_snapshots(families, reading);
    let labels = StageLabels::of(reading);
    for (stage, label) in reading.stages.iter().zip(&labels.0) {
        of_stage(families, job, label, stage);
        match &stage.source {
            Some(source) => of_source(families, job, label, stage, source),
            None if stage.kind == StageKind::Sink => of_sink(families, job, label, stage),
            None => {}
        }
    }
    of_holder(families, reading, &labels);
    families.count_since(None);
}

/// The names of stages, each once: of several with one name the later ones have their place behind
/// it.
struct StageLabels(Vec<String>);

impl StageLabels {
    fn of(reading: &JobReading) -> StageLabels {
        let mut labels: Vec<String> = Vec::with_capacity(reading.stages.len());
        for (place, stage) in reading.stages.iter().enumerate() {
            let is_taken = labels.contains(&stage.name);
            labels.push(if is_taken {
                format!("{} #{place}", stage.name)
            } else {
                stage.name.clone()
            });
        }
        StageLabels(labels)
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

fn of_job(families: &mut Families, reading: &JobReading, conditions: &[Condition]) {
    let job = reading.job.as_str();
    let revision = reading.revision.map_or_else(String::new, |revision| revision.to_string());
    families.add("thalweg_job_info", &[job, &revision, &reading.order, &reading.mode], 1.0);
    families.add("thalweg_job_state", &[job, &reading.state], 1.0);
    for kind in ConditionKind::ALL {
        let holds = conditions.iter().any(|condition| condition.kind == kind);
        families.add("thalweg_job_condition", &[job, kind.name()], f64::from(u8::from(holds)));
    }
    families.add("thalweg_job_start_time_seconds", &[job], seconds(reading.started_at_ms));
    for (cause, &count) in &reading.restarts {
        families.add("thalweg_job_restarts_total", &[job, cause], count as f64);
    }
    let memory = &reading.memory;
    families.add("thalweg_memory_limit_bytes", &[job], memory.limit_bytes as f64);
    let used = [
        ("in_flight", memory.in_flight_bytes),
        ("state", memory.state_bytes),
        ("buffers", memory.buffer_bytes),
    ];
    for (kind, bytes) in used {
        families.add("thalweg_memory_used_bytes", &[job, kind], bytes as f64);
    }
}

fn of_snapshots(families: &mut Families, reading: &JobReading) {
    let job = reading.job.as_str();
    let Some(snapshots) = &reading.snapshots else { return };
    families.add("thalweg_snapshots_total", &[job, "kept"], snapshots.taken as f64);
    families.add("thalweg_snapshots_total", &[job, "failed"], snapshots.failed as f64);
    families.add_times("thalweg_snapshot_duration_seconds", &[job], &snapshots.durations);
    families.add_times("thalweg_snapshot_hold_seconds", &[job], &snapshots.holds);
    let written = snapshots.written_bytes as f64;
    families.add("thalweg_snapshot_written_bytes_total", &[job], written);
    families.add("thalweg_snapshot_size_bytes", &[job], snapshots.bytes as f64);
    if let Some(interval_ms) = snapshots.interval_ms {
        families.add("thalweg_snapshot_interval_seconds", &[job], seconds(interval_ms));
    }
    if let Some(taken_at_ms) = snapshots.taken_at_ms {
        let name = "thalweg_snapshot_last_success_timestamp_seconds";
        families.add(name, &[job], seconds(taken_at_ms));
    }
}

/// For which reasons a stage of a kind can be blocked.
fn reasons(kind: StageKind) -> &'static [&'static str] {
    match kind {
        StageKind::Source => &["output", "memory", "order", "cut"],
        StageKind::Transform => &["output", "order", "lookup"],
        StageKind::Operator => &["output", "order", "cut"],
        StageKind::Sink => &["order", "cut"],
    }
}

fn of_stage(families: &mut Families, job: &str, label: &str, stage: &StageReading) {
    let (counters, labels) = (&stage.counters, [job, label]);
    let counts = [
        ("thalweg_stage_input_rows_total", counters.rows_in),
        ("thalweg_stage_output_rows_total", counters.rows_out),
    ];
    for (name, count) in counts {
        families.add(name, &labels, count as f64);
    }
    families.add("thalweg_stage_busy_seconds_total", &labels, counters.busy_ns as f64 / 1e9);
    for (by, blocked_ns) in counters.blocked_ns.named() {
        if reasons(stage.kind).contains(&by) {
            let labels = [job, label, by];
            let name = "thalweg_stage_blocked_seconds_total";
            families.add(name, &labels, blocked_ns as f64 / 1e9);
        }
    }
    if stage.kind != StageKind::Sink {
        families.add("thalweg_stage_bundles_total", &labels, counters.bundles_in as f64);
        families.add("thalweg_stage_output_bytes_total", &labels, counters.bytes_out as f64);
    }
    if stage.kind != StageKind::Source {
        families.add("thalweg_stage_queued_bundles", &labels, stage.queued);
    }
    if matches!(stage.kind, StageKind::Source | StageKind::Operator) {
        families.add("thalweg_stage_state_bytes", &labels, stage.state_bytes as f64);
    }
    if let Some(keys) = stage.state_keys {
        families.add("thalweg_stage_state_keys", &labels, keys as f64);
    }
    if stage.kind == StageKind::Operator {
        let judged = [
            ("thalweg_stage_accepted_rows_total", counters.accepted),
            ("thalweg_stage_late_rows_total", counters.late),
            ("thalweg_stage_partly_late_rows_total", counters.partly_late),
        ];
        judged.iter().for_each(|&(name, count)| families.add(name, &labels, count as f64));
    }
}

fn of_sink(families: &mut Families, job: &str, label: &str, stage: &StageReading) {
    let labels = [job, label];
    families.add("thalweg_stage_queued_bytes", &labels, stage.queued_bytes as f64);
    if let Some(watermark) = stage.watermark {
        let name = "thalweg_job_watermark_timestamp_seconds";
        families.add(name, &labels, seconds(watermark));
    }
    if let Some(sink) = &stage.sink {
        families.add_times("thalweg_result_latency_seconds", &labels, &sink.latency);
        families.add_times("thalweg_sink_write_seconds", &labels, &sink.writes);
        let committed = sink.committed_rows as f64;
        families.add("thalweg_sink_committed_rows_total", &labels, committed);
        if let Some(errors) = sink.errors {
            families.add("thalweg_sink_errors_total", &labels, errors as f64);
        }
    }
}

fn of_source(
    families: &mut Families,
    job: &str,
    label: &str,
    stage: &StageReading,
    source: &SourceReading,
) {
    let labels = [job, label];
    let bad_rows = stage.counters.bad_rows as f64;
    families.add("thalweg_source_bad_rows_total", &labels, bad_rows);
    let quarantined = stage.counters.quarantined as f64;
    families.add("thalweg_source_quarantined_rows_total", &labels, quarantined);
    if let Some(lag_rows) = source.lag_rows() {
        families.add("thalweg_source_lag_rows", &labels, lag_rows as f64);
    }
    if let Some(lag_bytes) = source.lag_bytes() {
        families.add("thalweg_source_lag_bytes", &labels, lag_bytes as f64);
    }
    if let Some(reconnects) = source.reconnects {
        families.add("thalweg_source_reconnects_total", &labels, reconnects as f64);
    }
    for split in shown_splits(source) {
        let labels = [job, label, split.name.as_str()];
        if let Some(watermark) = split.watermark {
            let name = "thalweg_source_watermark_timestamp_seconds";
            families.add(name, &labels, seconds(watermark));
        }
        if let Some(at_ms) = split.last_row_at_ms {
            families.add("thalweg_source_last_row_timestamp_seconds", &labels, seconds(at_ms));
        }
        families.add("thalweg_source_idle", &labels, f64::from(u8::from(split.is_idle)));
    }
}

/// All splits, or the slowest of many.
fn shown_splits(source: &SourceReading) -> Vec<&SplitReading> {
    let mut splits: Vec<&SplitReading> = source.splits.iter().collect();
    if splits.len() > SPLITS_MAX {
        splits.sort_by_key(|split| (!split.counts(), split.watermark));
        splits.truncate(SLOWEST_SPLITS);
    }
    splits
}

/// For how long each source holds results back.
fn of_holder(families: &mut Families, reading: &JobReading, labels: &StageLabels) {
    let is_felt = |why: &Why| {
        let without = why.without.as_ref();
        without.is_some_and(|of| of.watermark.is_some() && of.gain_ms.is_none_or(|gain| gain > 0))
    };
    let answer = why(reading).filter(|why| why.verdict == Verdict::StandingStill).filter(is_felt);
    for (place, label) in labels.0.iter().enumerate() {
        if reading.stages[place].source.is_none() {
            continue;
        }
        let holds = answer.as_ref().filter(|why| why.holder.stage == place);
        let held_ms = holds.and_then(|why| why.standing_ms()).unwrap_or(0);
        let labels = [reading.job.as_str(), label.as_str()];
        families.add("thalweg_watermark_hold_seconds", &labels, seconds(held_ms));
    }
}
