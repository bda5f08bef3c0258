//! The policies that choose a stage for each task (`lp`, `ct`, `et`, `qst`): what they are shown of
//! the job, and the task that follows from their choice (see [`crate::scheduler`]).
//!
//! Cells and sources take part like all stages, except that cells with a watermark have gone first
//! already, unless cells are in one line by the order in which their work came (the hybrid scheme).
//! A choice is a hint: what a stage was chosen for may be gone, and then the next one is
//! chosen. If nothing is schedulable the stages are looked through all the same, so that no work
//! that can be done ever waits for the policy; only a source that a worker is asking
//! already is left to that worker, which looks again itself.

use thalweg_ordering::sync::{AtomicU64, Ordering};

use super::{Dispatcher, Task};
use crate::memory::Pressure;
use crate::policies::SchedulerPolicy;
use crate::scheduler;
use crate::scheduler::meter::Totals;
use crate::scheduler::qst;
use crate::scheduler::stage_view::StageView;
use crate::stage::{StageRun, StageRunKind};

impl Dispatcher<'_> {
    /// A task of the stage that the policy chooses; of the one furthest downstream while the memory
    /// is full, whatever the policy.
    pub(super) fn by_rank(&self) -> Option<Task> {
        let now_ns = self.job.now_ns();
        let meter = |stage: usize| &self.job.stages[stage].metrics.meter;
        self.job.measured.scheduling.fold_if_due(now_ns, |stage| self.totals(stage), meter);
        let policy = match self.job.memory.pressure() {
            Pressure::Low | Pressure::High => self.job.settings.scheduler,
            Pressure::Full => SchedulerPolicy::LastInPipeline,
        };
        let pollable = self.pollable();
        let mut views: Vec<StageView> = (0..self.job.stages.len()).map(|s| self.view(s)).collect();
        if let Some(source) = pollable.filter(|&source| !self.waits_for_company(source, now_ns)) {
            views[source].queued = 1;
        }
        while let Some(stage) = scheduler::choose(policy, &views) {
            if let Some(task) = self.waiting_at(stage) {
                return Some(task);
            }
            views[stage].queued = 0;
        }
        let all = (0..self.job.stages.len()).rev();
        let left_over = all.filter(|&stage| !self.is_source(stage));
        let mut left_over = left_over.filter_map(|stage| self.waiting_at(stage));
        left_over.next().or_else(|| self.claim_poll(pollable?))
    }

    fn is_source(&self, stage: usize) -> bool {
        self.job.stages[stage].source().is_some()
    }

    /// True while a source has too few rows for a bundle and would only be asked in vain.
    fn waits_for_company(&self, stage: usize, now_ns: u64) -> bool {
        let source = self.job.stages[stage].source();
        source.is_some_and(|source| now_ns < source.gathers_until_ns.load(Ordering::Relaxed))
    }

    /// What the policies know of a stage.
    fn view(&self, stage: usize) -> StageView {
        let run = &self.job.stages[stage];
        let meter = &run.metrics.meter;
        // Relaxed throughout: gauges that steer.
        let busy_ns = run.metrics.busy_ns.load(Ordering::Relaxed);
        StageView {
            queued: waiting(run),
            workers: meter.workers(),
            parallelism_max: match &run.kind {
                StageRunKind::Source(_) => 1,
                StageRunKind::Operator(operator) => operator.cells.len(),
                StageRunKind::Transform(_) | StageRunKind::Sink(_) => usize::MAX,
            },
            cost_ns: meter.cost_ns(),
            cumulative_selectivity: meter.cumulative_selectivity(),
            spent_ns: meter.spent_ns(busy_ns),
            output_queued: run
                .edges
                .iter()
                .map(|edge| output_queued(&self.job.stages[edge.to.0]))
                .sum(),
            output_queued_max: meter.output_queued_max(),
            depth: self.job.measured.scheduling.depth(stage),
        }
    }

    fn totals(&self, stage: usize) -> Totals {
        let run = &self.job.stages[stage];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (meter, edges) = (&run.metrics.meter, run.edges.len());
        let (elements, pieces) = (meter.elements(), meter.pieces());
        // In the ordered contracts every stage gives on one element for each, if only an empty one.
        let outputs = match self.job.ordered.is_some() && !self.is_source(stage) {
            true if elements == 0 => pieces * edges as u64,
            true => elements * edges as u64,
            false => read(&run.metrics.bundles_out),
        };
        Totals { busy_ns: read(&run.metrics.busy_ns), elements, pieces, outputs, edges }
    }
}

/// Elements that wait for a worker at a stage.
///
/// A watermark at a partition may be in line with rows. What has come behind it is held there and
/// counted nowhere: it stands for as many as all queues should hold.
fn waiting(run: &StageRun) -> usize {
    let metrics = &run.metrics;
    let posted = metrics.posted.load(Ordering::Relaxed);
    let pieces = posted.saturating_sub(metrics.meter.pieces() as usize);
    let at_cells = metrics.meter.pieces_as_elements(pieces);
    let held = match metrics.barriers.load(Ordering::Relaxed) {
        0 => 0,
        _ => qst::CAPACITY as usize,
    };
    metrics.queued.load(Ordering::Relaxed) + at_cells.max(held)
}

/// Elements that wait at a stage as another one's output; a sink's wait for its thread.
fn output_queued(run: &StageRun) -> usize {
    match &run.kind {
        StageRunKind::Sink(sink) => sink.waiting.load(Ordering::Relaxed),
        _ => waiting(run),
    }
}
