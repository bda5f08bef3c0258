//! Which task is next: a plain function over shared structures.
//!
//! Threads call [`next_task`], and so does the simulator with whatever worker it likes; there
//! is no dispatcher thread and no state of its own. The order of looking:
//!
//! 0. sources that have to place a cut: nothing is read meanwhile;
//! 1. cells with a watermark in their mailbox (StreamBox §6: watermark tasks first);
//! 2. bundles that have what they waited for outside;
//! 3. cells with rows, in the order that the partitioning scheme gives them (see `ready_cells`);
//! 4. bundles in containers, by policy;
//! 5. sources, if the memory account allows more.
//!
//! Policy `nem` follows StreamBox §6: first the oldest container that the next externalization
//! moment needs, which is the one with the smallest end watermark among the containers that are
//! closed and still have bundles to claim (ties: the stage further downstream); without any, the
//! oldest bundle of the stage with the most open containers. `round-robin` takes the oldest bundle
//! of each stage in turn. The others choose a stage for each task (see `stage_ranking` and
//! [`crate::scheduler`]); cells and sources then take part like all stages. While the memory is
//! full each policy takes what is furthest downstream, as `lp` does: that is what makes room.
//!
//! While cells are parked for want of room (see `parked`) they are resumed last of all
//! that is inside, and before sources are asked; where the memory is full, bundles furthest
//! downstream come first.
//!
//! What it does not do: it chooses no job (the workers of a pool go from job to job), and it never
//! blocks.

use thalweg_core::{Bundle, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::container::{Container, ContainerState};
use crate::job::Job;
use crate::lane::Lane;
use crate::memory::Pressure;
use crate::ordered::element::Element;
use crate::ordered::elements::ElementStage;
use crate::parked::Waiting;
#[cfg(feature = "baselines")]
use crate::policies::Ablation;
use crate::policies::SchedulerPolicy;
use crate::returned::Continued;
use crate::topology::WorkerPlace;

mod polls;
#[cfg(feature = "baselines")]
mod priority;
mod stage_ranking;

/// A piece of work for one worker.
pub enum Task {
    /// Continue with the mailbox of a cell, which the worker owns from now on.
    Cell {
        /// The stage.
        stage: usize,
        /// The cell.
        cell: usize,
    },
    /// A bundle claimed from a container.
    Bundle {
        /// The stage.
        stage: usize,
        /// The lane.
        lane: usize,
        /// The container.
        container: Arc<Container>,
        /// The bundle.
        bundle: Bundle,
    },
    /// An element claimed from the worklist of a stage (ordered contracts).
    Element {
        /// The stage.
        stage: usize,
        /// The element's serial within the stage.
        place: u64,
        /// The element.
        element: Element,
    },
    /// Continue with a bundle that has what it waited for.
    Continue(Continued),
    /// Ask a source for rows.
    Poll {
        /// The stage.
        stage: usize,
    },
}

impl Task {
    /// The stage that it is at.
    pub(crate) fn stage(&self) -> usize {
        match self {
            Task::Cell { stage, .. }
            | Task::Bundle { stage, .. }
            | Task::Element { stage, .. }
            | Task::Poll { stage }
            | Task::Continue(Continued { stage, .. }) => *stage,
        }
    }
}

/// The next task for a worker, if there is any. None once the job gives up.
pub(crate) fn next_task(job: &Job, worker: WorkerPlace) -> Option<Task> {
    if job.lifecycle.gives_up() {
        return None;
    }
    Dispatcher { job, worker }.next_task()
}

/// A worker that asks what comes next.
struct Dispatcher<'a> {
    job: &'a Job,
    worker: WorkerPlace,
}

/// A task at a cell.
fn of_cell((stage, cell): (usize, usize)) -> Task {
    Task::Cell { stage, cell }
}

impl<'a> Dispatcher<'a> {
    fn next_task(&self) -> Option<Task> {
        let (job, queues) = (self.job, &self.job.queues);
        if job.cuts.is_unplaced()
            && let Some(task) = self.next_cut()
        {
            return Some(task);
        }
        if !queues.parked.is_empty() {
            return self.next_while_parked();
        }
        #[cfg(feature = "baselines")]
        if job.ablated.is(Ablation::NoPriority) {
            let continued = queues.returned.pop().map(Task::Continue);
            return continued.or_else(|| self.without_priority());
        }
        let first = queues.take_urgent(self.worker.worker).map(of_cell);
        if let Some(first) = first.or_else(|| queues.returned.pop().map(Task::Continue)) {
            return Some(first);
        }
        if job.settings.scheduler.chooses_stages() {
            return self.by_rank();
        }
        if let Some(cell) = queues.take_ready(&job.stages, self.worker.worker) {
            return Some(of_cell(cell));
        }
        let is_full = self.is_full();
        let waiting = match &job.ordered {
            Some(_) => self.next_element(is_full),
            None if is_full => self.furthest_downstream(),
            None => self.next_bundle(),
        };
        waiting.or_else(|| self.next_poll())
    }

    fn is_full(&self) -> bool {
        self.job.memory.pressure() == Pressure::Full
    }

    /// The next task while cells wait for room, whatever the policy.
    fn next_while_parked(&self) -> Option<Task> {
        let (is_full, queues) = (self.is_full(), &self.job.queues);
        let is_ordered = self.job.ordered.is_some();
        // Where the memory is full, no bundle of a stage that multiplies rows is begun: its results
        // would wait.
        let drained = || self.furthest_among(|stage| !is_full || !self.multiplies(stage));
        (is_full && !is_ordered)
            .then(drained)
            .flatten()
            .or_else(|| queues.take_urgent(self.worker.worker).map(of_cell))
            .or_else(|| queues.returned.pop().map(Task::Continue))
            .or_else(|| queues.take_ready(&self.job.stages, self.worker.worker).map(of_cell))
            .or_else(|| if is_ordered { self.next_element(is_full) } else { drained() })
            .or_else(|| self.resume_parked(is_full))
            .or_else(|| self.next_poll())
    }

    /// Something that is parked, if there is room or room can come of nothing else.
    fn resume_parked(&self, is_full: bool) -> Option<Task> {
        let is_stuck = || !self.job.queues.others_work() && self.sinks_keep_up();
        if self.job.lifecycle.is_giving_up() || (is_full && !is_stuck()) {
            return None;
        }
        let cuts_max = self.job.cuts.cuts_before();
        let Some((stage, waiting)) = self.job.queues.parked.take(is_full, cuts_max) else {
            // All of it waits for a bundle that another worker is at or that nobody has begun.
            let may_begin = is_full && self.job.ordered.is_none();
            return may_begin.then(|| self.furthest_downstream()).flatten();
        };
        self.job.stages[stage].metrics.resume(|| self.job.now_ns());
        Some(match waiting {
            Waiting::Cell(cell) => Task::Cell { stage, cell },
            Waiting::Bundle(open) => Task::Continue(Continued::of_parts(stage, open)),
            Waiting::Element(place, element) => Task::Element { stage, place, element: *element },
        })
    }

    /// True if a stateless stage makes many rows of one.
    fn multiplies(&self, stage: usize) -> bool {
        self.job.stages[stage].transform().is_some_and(|transform| transform.multiplies())
    }

    /// True if little of what is in flight waits for the threads of sinks.
    fn sinks_keep_up(&self) -> bool {
        self.job.stages.bytes_at_sinks() < self.job.memory.in_flight_bytes_max() / 2
    }

    /// Walks through the containers of a lane that may have bundles to claim, oldest first.
    fn walk<T>(&self, lane: &Lane, visit: impl FnMut(&Arc<Container>) -> Option<T>) -> Option<T> {
        #[cfg(feature = "baselines")]
        return self.job.ablated.walk(lane, self.is_full(), visit);
        #[cfg(not(feature = "baselines"))]
        lane.walk_unclaimed(visit)
    }

    fn next_bundle(&self) -> Option<Task> {
        match self.job.settings.scheduler {
            SchedulerPolicy::Nem => self.needed_next().or_else(|| self.most_open_containers()),
            _ => self.in_turn(),
        }
    }

    /// The oldest element of the stage furthest downstream that has any, or of each stage in turn.
    fn next_element(&self, is_full: bool) -> Option<Task> {
        let stages = self.job.stages.len();
        let first = match self.job.settings.scheduler {
            // Relaxed: only spreads the starting points.
            SchedulerPolicy::RoundRobin if !is_full => {
                self.job.queues.turn.fetch_add(1, Ordering::Relaxed) % stages
            }
            _ => 0,
        };
        (0..stages)
            .map(|step| (first + stages - 1 - step) % stages)
            .filter(|&stage| self.has_queued(stage))
            .find_map(|stage| self.claim_element(stage))
    }

    fn has_queued(&self, stage: usize) -> bool {
        // Relaxed: a hint; the worker that deposits notifies after the bundle is in its container.
        self.job.stages[stage].metrics.queued.load(Ordering::Relaxed) > 0
    }

    /// A bundle of the container with the smallest end that is known.
    fn needed_next(&self) -> Option<Task> {
        let mut best: Option<(Watermark, usize, usize, Arc<Container>)> = None;
        for stage in (0..self.job.stages.len()).rev().filter(|&stage| self.has_queued(stage)) {
            for (lane, containers) in self.job.stages[stage].lanes.iter().enumerate() {
                let mut open = 0;
                let needed = self.walk(containers, |container| {
                    let end = self.end_of(container, (stage, lane), &mut open)?;
                    (!container.is_claimed()).then(|| (end, Arc::clone(container)))
                });
                if let Some((end, container)) = needed
                    && best.as_ref().is_none_or(|(least, ..)| end < *least)
                {
                    best = Some((end, stage, lane, container));
                }
            }
        }
        let (_, stage, lane, container) = best?;
        let bundle = container.claim(self.worker.numa_node)?;
        Some(self.claimed(stage, lane, container, bundle))
    }

    /// Where the epoch of a container ends, if that is known. `open` counts the containers of a
    /// lane of which it is not.
    fn end_of(
        &self,
        container: &Container,
        (stage, lane): (usize, usize),
        open: &mut i64,
    ) -> Option<Watermark> {
        match container.state() {
            ContainerState::WatermarkAssigned => return Some(container.end()),
            ContainerState::Open => *open += 1,
            _ => return None,
        }
        #[cfg(feature = "baselines")]
        return self.job.ablated.estimated_end(stage, lane, *open);
        #[cfg(not(feature = "baselines"))]
        {
            let _ = (stage, lane);
            None
        }
    }

    /// The oldest bundle of the stage with the most open containers.
    fn most_open_containers(&self) -> Option<Task> {
        let mut stages: Vec<(usize, usize)> = (0..self.job.stages.len())
            .filter(|&stage| self.has_queued(stage))
            .map(|stage| {
                let open = self.job.stages[stage].lanes.iter().map(|l| l.open_containers()).sum();
                (open, stage)
            })
            .collect();
        stages.sort_unstable_by(|a, b| b.cmp(a));
        stages.into_iter().find_map(|(_, stage)| self.oldest_bundle(stage))
    }

    fn furthest_downstream(&self) -> Option<Task> {
        self.furthest_among(|_| true)
    }

    /// The oldest bundle of the stage furthest downstream of these.
    fn furthest_among(&self, is_meant: impl Fn(usize) -> bool) -> Option<Task> {
        let mut stages = (0..self.job.stages.len())
            .rev()
            .filter(|&stage| self.has_queued(stage) && is_meant(stage));
        stages.find_map(|stage| self.oldest_bundle(stage))
    }

    fn in_turn(&self) -> Option<Task> {
        let stages = self.job.stages.len();
        // Relaxed: only spreads the starting points.
        let first = self.job.queues.turn.fetch_add(1, Ordering::Relaxed) % stages;
        (0..stages)
            .map(|step| (first + step) % stages)
            .filter(|&stage| self.has_queued(stage))
            .find_map(|stage| self.oldest_bundle(stage))
    }

    fn oldest_bundle(&self, stage: usize) -> Option<Task> {
        for (lane, containers) in self.job.stages[stage].lanes.iter().enumerate() {
            let found = self.walk(containers, |container| {
                container.claim(self.worker.numa_node).map(|bundle| (Arc::clone(container), bundle))
            });
            if let Some((container, bundle)) = found {
                return Some(self.claimed(stage, lane, container, bundle));
            }
        }
        None
    }

    fn claimed(
        &self,
        stage: usize,
        lane: usize,
        container: Arc<Container>,
        bundle: Bundle,
    ) -> Task {
        self.job.stages[stage].metrics.take_queued();
        Task::Bundle { stage, lane, container, bundle }
    }

    fn claim_element(&self, stage: usize) -> Option<Task> {
        let (place, element) = ElementStage::of(self.job, stage).claim()?;
        Some(Task::Element { stage, place, element })
    }

    /// Something to do at a stage: a cell first, then whatever came first.
    fn waiting_at(&self, stage: usize) -> Option<Task> {
        let job = self.job;
        if job.stages[stage].source().is_some() {
            return self.claim_poll(stage);
        }
        let cell = job.queues.take_ready_at(&job.stages, stage, self.worker.worker);
        if let Some(cell) = cell {
            return Some(Task::Cell { stage, cell });
        }
        if !self.has_queued(stage) {
            return None;
        }
        match &job.ordered {
            Some(_) => self.claim_element(stage),
            None => self.oldest_bundle(stage),
        }
    }
}
