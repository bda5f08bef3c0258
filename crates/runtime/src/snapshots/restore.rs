//! A job that was built resumes where another run of it was at a cut.
//!
//! **Invariant:** it is called while nobody else has the job, before sources are started and sinks
//! are opened. Stages are found by their identifiers; a stage that the cut does not know begins
//! empty.

use std::collections::HashMap;

use thalweg_core::snapshot::{RestoredCut, SourceState, StageState};
use thalweg_core::{Error, OrderContract, PartitionContext, Restored, Result, Watermark};
use thalweg_ordering::sync::Ordering;

use super::sharing::shared;
use crate::job::Job;
use crate::stage::{OperatorRun, SinkRun, SourceRun, StageRun, StageRunKind};

/// Gives every stage back what it was.
///
/// # Errors
/// If something does not fit: the cut is of another query, or damaged.
pub(crate) fn restore(job: &mut Job, cut: &RestoredCut) -> Result<()> {
    check_ended_sources(job, cut)?;
    let saved: HashMap<&str, &StageState<Restored>> =
        cut.stages.iter().map(|stage| (stage.id.as_str(), stage)).collect();
    let (order, workers) = (job.settings.order, job.settings.workers);
    for (place, run) in job.stages.iter_mut().enumerate() {
        let Some(saved) = saved.get(run.id.as_str()) else { continue };
        let name = run.name.clone();
        restore_stage(run, saved, order, workers)
            .map_err(|error| error.in_operator(name.clone()))?;
        if let Some(flow) = &mut job.ordered {
            let bytes = flow.restore(place, saved).map_err(|error| error.in_operator(name))?;
            job.memory.add_in_flight(bytes as i64);
        }
    }
    if let Some(flow) = &job.ordered {
        flow.begin_at(cut.serial);
    }
    report_all_state(job)?;
    open_gates(job);
    let is_fed = |(_, sink): &(usize, &SinkRun)| sink.open_lanes.load(Ordering::SeqCst) > 0;
    job.lifecycle.restore_fed_sinks(job.stages.sinks().filter(is_fed).count());
    Ok(())
}

/// Inputs that had ended must have no more rows: nobody would ever read them.
///
/// Where all inputs had ended, the job first ends as it has to, since its sinks may have rows to
/// commit; that there are unread rows is what it ends with. An input that was changed (bad data, no
/// mistake of the plan) is refused at once.
fn check_ended_sources(job: &mut Job, cut: &RestoredCut) -> Result<()> {
    let is_over = cut.stages.iter().filter_map(|stage| stage.source.as_ref()).all(|s| s.finished);
    for (place, source) in job.stages.sources() {
        let run = &job.stages[place];
        let saved = cut.stages.iter().find(|saved| saved.id == run.id && !saved.ended);
        let saved = saved.and_then(|saved| saved.source.as_ref()).filter(|saved| saved.finished);
        let Some(position) = saved.and_then(|saved| saved.position.as_deref()) else { continue };
        let mut state = source.state.lock().expect("nobody else has the job yet");
        let checked = state.source.check_ended(position);
        drop(state);
        match checked.map_err(|error| error.in_operator(run.name.clone())) {
            Err(error) if is_over && error.is_plan_error() => {
                job.unread.get_or_insert(error);
            }
            checked => checked?,
        }
    }
    Ok(())
}

fn restore_stage(
    run: &mut StageRun,
    saved: &StageState<Restored>,
    order: OrderContract,
    workers: usize,
) -> Result<()> {
    run.ended.store(saved.ended, Ordering::SeqCst);
    let is_ordered = order.is_ordered();
    for (lane, saved) in run.lanes.iter().zip(saved.inputs.iter().flat_map(|inputs| &inputs.lanes))
    {
        lane.idle.store(saved.idle && !is_ordered, Ordering::SeqCst);
    }
    let metrics = &run.metrics;
    match &run.kind {
        StageRunKind::Source(source) => {
            let Some(saved) = &saved.source else { return Ok(()) };
            if let Some(assigner) = &saved.assigner {
                metrics.restore_watermark(assigner.running);
            }
            restore_source(source, saved)
        }
        StageRunKind::Operator(operator) => {
            if let Some(inputs) = &saved.inputs {
                metrics.restore_watermark(inputs.joint);
                let mut joint = operator.joint.lock().expect("nobody else has the job yet");
                if !is_ordered {
                    joint.watermark.restore(inputs)?;
                }
                joint.passed = inputs.passed;
            }
            restore_partitions(operator, saved, order, workers)
        }
        StageRunKind::Sink(sink) => {
            restore_sink(sink, saved);
            Ok(())
        }
        StageRunKind::Transform(_) => Ok(()),
    }
}

fn restore_source(run: &SourceRun, saved: &SourceState) -> Result<()> {
    let mut state = run.state.lock().expect("nobody else has the job yet");
    run.finished.store(saved.finished, Ordering::SeqCst);
    run.ready.store(!saved.finished, Ordering::SeqCst);
    run.idle.store(saved.idle, Ordering::SeqCst);
    state.epoch = saved.epoch;
    state.serial = saved.serial;
    // Snapshots of earlier versions have it in one of two places.
    let (running, taken) = saved
        .assigner
        .map_or((Watermark::MIN, Watermark::MIN), |assigner| (assigner.running, assigner.taken));
    state.taken = saved.taken.max(taken);
    state.frontier_ms = saved.frontier_ms;
    state.splits.restore(saved.splits.clone(), running);
    match &saved.position {
        position if saved.finished => {
            // It is never started, and knows of no place.
            state.ended_at.clone_from(position);
            Ok(())
        }
        Some(position) => state.source.seek(position),
        None => Err(Error::data("the snapshot does not say how far this input was read")
            .hint("the snapshot is damaged; use an older one")),
    }
}

/// Gives partitions back what they kept, on as many threads as there are workers: it takes as long
/// as reading.
fn restore_partitions(
    operator: &OperatorRun,
    saved: &StageState<Restored>,
    order: OrderContract,
    workers: usize,
) -> Result<()> {
    let partitions = operator.cells.len();
    let passed = saved.inputs.as_ref().map_or(Watermark::MIN, |inputs| inputs.passed);
    let restore_one = |partition: usize| -> Result<()> {
        let cell = &operator.cells[partition];
        let mut state = cell.state.lock().expect("nobody else has the job yet");
        let own = saved.state.of_partition(PartitionContext { partition, partitions, order })?;
        state.partition.restore(&own)?;
        state.passed = passed;
        let ticks_at_ms = state.partition.ticks_at().unwrap_or(i64::MAX);
        cell.ticks_at.store(ticks_at_ms, Ordering::Relaxed);
        Ok(())
    };
    shared(workers, partitions, restore_one).map(drop)
}

fn restore_sink(run: &SinkRun, saved: &StageState<Restored>) {
    let has_ended = saved.sink.as_ref().is_some_and(|sink| sink.has_ended);
    let lanes = saved.inputs.iter().flat_map(|inputs| &inputs.lanes);
    let ended = lanes.filter(|lane| lane.watermark == Watermark::END).count();
    let all = run.open_lanes.load(Ordering::SeqCst);
    let open = if has_ended { 0 } else { all.saturating_sub(ended) };
    run.open_lanes.store(open, Ordering::SeqCst);
}

/// The memory account learns what partitions keep.
fn report_all_state(job: &Job) -> Result<()> {
    for (place, operator) in job.stages.operators() {
        let at = job.at(place);
        for cell in &operator.cells {
            let mut state = cell.state.lock().expect("nobody else has the job yet");
            at.report_state(&mut state).map_err(|e| e.in_operator(at.run.name.clone()))?;
        }
    }
    Ok(())
}

/// Sides that had been read to their end let others be asked.
fn open_gates(job: &Job) {
    for (place, _) in job.stages.operators() {
        if job.stages[place].metrics.watermark() == Watermark::END {
            job.gates.open(place);
        }
    }
}
