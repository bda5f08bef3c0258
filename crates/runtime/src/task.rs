//! What a worker does with a task.
//!
//! Every task ends within about a millisecond ([`SLICE_NS`](crate::pace::SLICE_NS)): a cell or a
//! source that has more to do is listed again for whoever comes next. User code may panic: that is
//! caught here and becomes an error of the operator.
//!
//! **Invariant:** whoever has a task has all that it names: the cell, the bundle, the element, or
//! the right to ask the source. A task that fails or panics ends the job, so what it had is lost to
//! nobody.

use thalweg_core::{Bundle, OperatorClass, Result, Route, Share};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::cells::CellWorker;
use crate::container::Container;
use crate::dispatcher::Task;
use crate::epoch::EpochStage;
use crate::flow::Flow;
use crate::job::Job;
use crate::lifecycle::caught;
use crate::metrics::StageMetrics;
use crate::ordered::elements::ElementStage;
use crate::pace::Pace;
use crate::returned::{Continued, Work};
use crate::sources;
use crate::stage::{Item, OperatorRun, Routed, RowsItem, RowsOrigin, StageRunKind};
use crate::task_lengths::{Absence, TaskKind};
use crate::topology::WorkerPlace;

/// Does a task. An error or a panic stops the job. `absence` is that of the worker's thread, if it
/// is a real one.
pub(crate) fn execute(
    job: &Job,
    task: Task,
    worker: WorkerPlace,
    mut absence: Option<&mut Absence>,
) {
    let stage = task.stage();
    let cell = match task {
        Task::Cell { cell, .. } => Some(cell),
        _ => None,
    };
    let started_ns = job.now_ns();
    if let Some(absence) = &mut absence {
        absence.begin(started_ns);
    }
    let run = &job.stages[stage];
    run.metrics.meter.enter();
    job.queues.at_work.fetch_add(1, Ordering::SeqCst);
    let result = caught(|| perform(job, task, worker, Pace::new(started_ns, job.settings.task_ns)));
    run.metrics.meter.leave(result.as_ref().map_or(1, |done| done.elements));
    job.queues.at_work.fetch_sub(1, Ordering::SeqCst);
    let ended_ns = job.now_ns();
    let busy_ns = ended_ns.saturating_sub(started_ns);
    StageMetrics::add(&run.metrics.busy_ns, busy_ns);
    if let Some(cell) = cell {
        StageMetrics::add(&run.cells()[cell].busy_ns, busy_ns);
    }
    match result {
        Ok(done) => {
            let length_ns =
                absence.map_or(busy_ns, |absence| absence.length_ns(started_ns, ended_ns));
            job.measured.tasks.record(done.kind, length_ns);
        }
        Err(error) => job.lifecycle.fail(error.in_operator(run.name.clone())),
    }
}

/// What a task was.
struct Done {
    kind: TaskKind,
    /// How many elements it did. Cells count their pieces themselves.
    elements: u64,
}

fn perform(job: &Job, task: Task, worker: WorkerPlace, pace: Pace) -> Result<Done> {
    let of_bundles = |stage: usize| match job.stages[stage].operator() {
        Some(_) => TaskKind::Routing,
        None => TaskKind::Transform,
    };
    let (kind, elements) = match task {
        Task::Cell { stage, cell } => {
            (CellWorker::new(job, stage, worker, pace).run_cells(cell)?, 0)
        }
        Task::Bundle { stage, lane, container, bundle } => {
            (run_bundle(job, stage, (lane, &container), bundle, worker)?, 1)
        }
        Task::Element { stage, place, element } => {
            let at = ElementStage::of(job, stage);
            (of_bundles(stage), at.run_elements((place, element), worker, pace)?)
        }
        Task::Poll { stage } => (TaskKind::Poll, sources::poll(job, stage, worker, pace)?),
        Task::Continue(continued) => {
            let kind = of_bundles(continued.stage);
            continue_bundle(job, continued, worker)?;
            (kind, 0)
        }
    };
    Ok(Done { kind, elements })
}

/// Applies a stateless stage to a bundle, or routes it to the partitions of an operator.
fn run_bundle(
    job: &Job,
    stage: usize,
    (lane, container): (usize, &Arc<Container>),
    bundle: Bundle,
    worker: WorkerPlace,
) -> Result<TaskKind> {
    let at = EpochStage::of(job, stage);
    at.count_in(bundle.num_rows());
    let operator = match &at.run.kind {
        StageRunKind::Transform(transform) => {
            at.transform(transform.as_ref(), lane, container, bundle, worker)?;
            return Ok(TaskKind::Transform);
        }
        StageRunKind::Operator(operator) => operator,
        StageRunKind::Source(_) | StageRunKind::Sink(_) => {
            unreachable!("only transforms and operators have bundles to claim")
        }
    };
    let bytes = bundle.memory_bytes();
    match operator.route(&bundle)? {
        Route::Any if operator.class == OperatorClass::Commuting => {
            let (bundle, container) = (Arc::new(bundle), Arc::clone(container));
            let of = RowsOrigin::Container { bundle, lane, container, bytes };
            run_locally(job, (stage, operator), of, worker)
        }
        route => {
            at.take_routed(lane, container, Routed { bundle, route, bytes })?;
            Ok(TaskKind::Routing)
        }
    }
}

/// Gives a bundle that any partition may take to the cell that is the worker's own, or to an idle
/// one, and continues with that cell at once if it is free.
fn run_locally(
    job: &Job,
    (stage, operator): (usize, &OperatorRun),
    of: RowsOrigin,
    worker: WorkerPlace,
) -> Result<TaskKind> {
    let run = &job.stages[stage];
    let cell = operator.local_cell(worker.worker, job.settings.workers);
    let whole = Share { partition: cell, rows: None, is_local: true };
    let item = Item::Rows(RowsItem::new(of, whole, run.lanes.len()));
    run.metrics.posted.fetch_add(1, Ordering::Relaxed);
    if !operator.cells[cell].mailbox.post(item) {
        return Ok(TaskKind::Routing);
    }
    let pace = Pace::new(job.now_ns(), job.settings.task_ns);
    let mut worker = CellWorker::new(job, stage, worker, pace);
    worker.run_cell(cell)?;
    Ok(worker.kind())
}

/// Continues with a bundle: it has come back from the outside, or there is room for more parts.
fn continue_bundle(job: &Job, continued: Continued, worker: WorkerPlace) -> Result<()> {
    let Continued { stage, work } = continued;
    match work {
        Work::Parts(open) => EpochStage::of(job, stage).resume_parts(*open, worker),
        Work::Finish(finish, home, asked) => {
            job.at(stage).note_answer(asked);
            let mut result = finish()?;
            result.forget_rows_before();
            result.stamps.numa_node = worker.numa_node as u16;
            Flow::at(job, stage).finish_outside(home, result)
        }
    }
}
