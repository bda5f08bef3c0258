//! What can be seen of a running job from outside: a copy of its counters, and its layout.
//!
//! Nothing here waits for a worker: a source that is being asked shows what it showed last.

use thalweg_core::connector::Trouble;
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{SplitId, Watermark};
use thalweg_ordering::sync::Ordering;

use crate::job::Job;
use crate::metrics::{
    CutSnapshot, JobLayout, JobSnapshot, MetricsSnapshot, PassedWatermarks, StageLayout,
    StageMetrics, StageSnapshot,
};
use crate::stage::{OperatorRun, SinkRun, SourceRun, StageRun, StageRunKind};

/// A copy of all counters.
pub(crate) fn metrics(job: &Job) -> MetricsSnapshot {
    let now_ns = job.now_ns();
    let stages = job.stages.iter().enumerate();
    let stages = stages.map(|(place, stage)| stage_metrics(job, place, stage, now_ns)).collect();
    let snapshots = job.measured.snapshots.lock().expect("no panic under this lock").clone();
    let tasks = job.measured.tasks.lengths();
    MetricsSnapshot { stages, snapshots, tasks, job: of_all(job, now_ns) }
}

fn stage_metrics(job: &Job, place: usize, stage: &StageRun, now_ns: u64) -> StageSnapshot {
    if let Some(operator) = stage.operator() {
        job.at(place).report_at_rest(operator);
    }
    let mut snapshot = stage.metrics.snapshot(&stage.id, &stage.name, stage.role(), now_ns);
    let held_by = stage.metrics.held_by().or_else(|| job.gates.closed_by(place));
    snapshot.held_by_stage = held_by;
    snapshot.held_by = held_by.map(|by| job.stages[by].name.clone());
    match &stage.kind {
        StageRunKind::Source(source) => see_source(&mut snapshot, source, stage, now_ns),
        StageRunKind::Operator(operator) => see_operator(&mut snapshot, operator, &stage.metrics),
        StageRunKind::Sink(sink) => see_sink(&mut snapshot, sink),
        StageRunKind::Transform(_) => {}
    }
    snapshot
}

fn see_source(snapshot: &mut StageSnapshot, source: &SourceRun, stage: &StageRun, now_ns: u64) {
    snapshot.idle = source.idle.load(Ordering::Relaxed);
    if let Ok(state) = source.state.try_lock() {
        source.show_splits(&state, &stage.metrics, now_ns);
        snapshot.bad_rows = stage.metrics.bad_rows.load(Ordering::Relaxed);
        let of_all = state.source.split_status(SplitId::ONLY).last_error;
        snapshot.problem = of_all.filter(|_| !state.splits.has_named());
    }
    let shown = source.shown_splits.lock().expect("no panic under this lock");
    snapshot.splits.clone_from(&shown.named);
    drop(shown);
    snapshot.source = Some(source.shown_whole());
}

fn see_operator(snapshot: &mut StageSnapshot, run: &OperatorRun, metrics: &StageMetrics) {
    let keys = metrics.state_keys.load(Ordering::Relaxed).max(0) as u64;
    snapshot.state_keys = run.counts_keys.then_some(keys);
    snapshot.problem = run.operator.problem();
    let busy_ns = run.cells.iter().map(|cell| cell.busy_ns.load(Ordering::Relaxed));
    snapshot.partitions_ns = busy_ns.collect();
}

fn see_sink(snapshot: &mut StageSnapshot, sink: &SinkRun) {
    snapshot.queued = sink.waiting.load(Ordering::Relaxed);
    snapshot.queued_bytes = sink.waiting_bytes.load(Ordering::Relaxed).max(0) as u64;
    snapshot.problem = sink.trouble.get().and_then(Trouble::get);
    snapshot.errors = sink.trouble.get().map(Trouble::errors);
    snapshot.committed_rows = match sink.guarantee.get() {
        Some(SinkGuarantee::Transactional) => sink.committed_rows.load(Ordering::Relaxed),
        _ => snapshot.rows_out,
    };
    snapshot.latency = Some(sink.times.latency.distribution());
    snapshot.writes = Some(sink.times.writes.distribution());
}

fn of_all(job: &Job, now_ns: u64) -> JobSnapshot {
    let buffered = |(place, _): (usize, &SourceRun)| {
        job.stages[place].metrics.state_bytes.load(Ordering::Relaxed).max(0) as u64
    };
    JobSnapshot {
        now_ns,
        wall_ms: job.settings.clock.wall_ms(),
        started_ns: job.lifecycle.started_ns,
        memory_limit_bytes: job.memory.limit_bytes() as u64,
        in_flight_bytes: job.memory.in_flight_bytes() as u64,
        in_flight_bytes_max: job.memory.in_flight_bytes_max() as u64,
        state_bytes: job.memory.state_bytes() as u64,
        source_bytes: job.stages.sources().map(buffered).sum(),
        is_paused: job.cuts.is_paused(),
        cut: job.cuts.under_way().map(|cut| CutSnapshot {
            began_ns: cut.began_ns(),
            missing: (0..job.stages.len()).filter(|&stage| is_missing(job, stage, &cut)).collect(),
        }),
    }
}

/// True if a cut has not come by a stage that has something to report.
fn is_missing(job: &Job, stage: usize, cut: &crate::cut::CutUnderWay) -> bool {
    let reports = job.ordered.is_some() || job.stages[stage].transform().is_none();
    reports && cut.stage(stage).after_ns.is_none()
}

/// What does not change about a job while it runs.
pub(crate) fn layout(job: &Job) -> JobLayout {
    let stages = job.stages.iter().enumerate();
    JobLayout {
        workers: job.settings.workers,
        order: job.settings.order,
        may_use_clock: job.settings.may_use_clock,
        stages: stages.map(|(place, stage)| stage_layout(job, place, stage)).collect(),
    }
}

fn stage_layout(job: &Job, place: usize, stage: &StageRun) -> StageLayout {
    let workers = job.settings.workers.max(1);
    let mut layout = StageLayout {
        id: stage.id.clone(),
        name: stage.name.clone(),
        role: stage.role(),
        inputs: stage.inputs.clone(),
        parallelism: 1,
        passes: PassedWatermarks::HeldBackMs(0),
        grids: Vec::new(),
        is_bounded: false,
        has_time: false,
        idle_timeout: None,
        waits_for_end_of: job.gates.openers_of(place).to_vec(),
    };
    match &stage.kind {
        StageRunKind::Source(source) => {
            layout.is_bounded = source.bounded;
            layout.idle_timeout = source.idle_timeout;
            layout.has_time = source.has_time;
        }
        StageRunKind::Operator(run) => {
            layout.parallelism = run.cells.len().clamp(1, workers);
            layout.passes = passed_watermarks(run);
            if let WatermarkInterest::Grids(grids) = run.operator.watermark_interest() {
                layout.grids = grids;
            }
        }
        StageRunKind::Transform(_) => layout.parallelism = workers,
        StageRunKind::Sink(_) => {}
    }
    layout
}

fn passed_watermarks(run: &OperatorRun) -> PassedWatermarks {
    // Any time will do: what is held back does not depend on it.
    match run.passes(Watermark(0)) {
        Some(passed) => PassedWatermarks::HeldBackMs(passed.0.saturating_neg()),
        None if run.operator.uses_processing_time() => PassedWatermarks::ByClock,
        None => PassedWatermarks::AtEnd,
    }
}
