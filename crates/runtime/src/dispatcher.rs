//! Which task is next: a plain function over shared structures.
//!
//! Threads call [`Job::next_task`], and so does the simulator with whatever worker it likes; there
//! is no dispatcher thread and no state of its own. The order of looking:
//!
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
//! While cells are parked for want of room (see [`crate::slices`]) they are resumed last of all
//! that is inside, and before sources are asked; where the memory is full, bundles furthest
//! downstream come first.
//!
//! What it does not do: it chooses no job (the workers of a pool go from job to job), and it never
//! blocks.

use thalweg_core::{Bundle, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

#[cfg(feature = "baselines")]
use crate::ablation::Ablation;
use crate::container::{Container, ContainerState};
use crate::job::Job;
#[cfg(not(feature = "baselines"))]
use crate::lane::Lane;
use crate::memory::Pressure;
use crate::options::{PartitionScheme, SchedulerPolicy};
use crate::ordered::Element;
use crate::slices::Waiting;
use crate::stage::{StageRun, StageRunKind};
use crate::waiting::Continued;

mod ready_cells;
mod stage_ranking;

/// Once in this many times a source is asked because it is its turn.
const ASKED_BEHIND: usize = 8;

pub(crate) use ready_cells::{Lines, ReadyCells};

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

/// What a worker brings along when it asks.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPlace {
    /// Its number.
    pub worker: usize,
    /// Its NUMA node.
    pub numa_node: usize,
}

impl Job {
    /// The next task for a worker, if there is any.
    pub fn next_task(&self, place: WorkerPlace) -> Option<Task> {
        if !self.parked.is_empty() {
            return self.next_while_parked(place);
        }
        #[cfg(feature = "baselines")]
        if self.ablated.is(Ablation::NoPriority) {
            let continued = self.returned.pop().map(Task::Continue);
            return continued.or_else(|| self.without_priority(place));
        }
        if let Some((stage, cell)) = self.urgent.take(place.worker) {
            return Some(Task::Cell { stage, cell });
        }
        if let Some(continued) = self.returned.pop() {
            return Some(Task::Continue(continued));
        }
        if self.options.scheduler.chooses_stages() {
            return self.by_rank(place);
        }
        if let Some((stage, cell)) = self.ready_cell(|| self.ready.take(place.worker)) {
            return Some(Task::Cell { stage, cell });
        }
        let is_full = self.memory.pressure() == Pressure::Full;
        let waiting = match &self.ordered {
            Some(_) => self.next_element(is_full),
            None if is_full => self.furthest_downstream(place),
            None => self.next_bundle(place),
        };
        waiting.or_else(|| self.next_poll())
    }

    /// The next task while cells wait for room, whatever the policy.
    fn next_while_parked(&self, place: WorkerPlace) -> Option<Task> {
        let is_full = self.memory.pressure() == Pressure::Full;
        // Where the memory is full, no bundle of a stage that multiplies rows is begun: its results
        // would wait.
        let drained = || self.furthest_among(place, |stage| !is_full || !self.multiplies(stage));
        let cell = |(stage, cell)| Task::Cell { stage, cell };
        (is_full && self.ordered.is_none())
            .then(drained)
            .flatten()
            .or_else(|| self.urgent.take(place.worker).map(cell))
            .or_else(|| self.returned.pop().map(Task::Continue))
            .or_else(|| self.ready_cell(|| self.ready.take(place.worker)).map(cell))
            .or_else(|| match &self.ordered {
                Some(_) => self.next_element(is_full),
                None => drained(),
            })
            .or_else(|| self.resume_parked(place, is_full))
            .or_else(|| self.next_poll())
    }

    /// Something that is parked, if there is room or room can come of nothing else.
    fn resume_parked(&self, place: WorkerPlace, is_full: bool) -> Option<Task> {
        let is_stuck = || !self.others_work() && self.sinks_keep_up();
        let may_resume = !self.is_giving_up() && (!is_full || is_stuck());
        if !may_resume {
            return None;
        }
        let Some((stage, waiting)) = self.parked.take(is_full) else {
            // All of it waits for a bundle that another worker is at or that nobody has begun.
            let may_begin = is_full && self.ordered.is_none();
            return may_begin.then(|| self.furthest_downstream(place)).flatten();
        };
        Some(match waiting {
            Waiting::Cell(cell) => Task::Cell { stage, cell },
            Waiting::Bundle(open) => Task::Continue(Continued::of_parts(stage, open)),
            Waiting::Element(place, element) => Task::Element { stage, place, element: *element },
        })
    }

    /// True while any worker does a task.
    pub(crate) fn others_work(&self) -> bool {
        self.at_work.load(Ordering::SeqCst) > 0
    }

    /// True if a stateless stage makes many rows of one.
    fn multiplies(&self, stage: usize) -> bool {
        match &self.stages[stage].kind {
            StageRunKind::Transform(transform) => transform.multiplies(),
            _ => false,
        }
    }

    /// True if a stage that multiplies rows is to begin nothing more: the memory is full, and
    /// others make room.
    pub(crate) fn is_refused(&self, stage: usize) -> bool {
        self.memory.pressure() == Pressure::Full && self.others_work() && self.multiplies(stage)
    }

    /// True if little of what is in flight waits for the threads of sinks.
    fn sinks_keep_up(&self) -> bool {
        let waiting_bytes = |stage: &StageRun| match &stage.kind {
            StageRunKind::Sink(sink) => sink.waiting_bytes.load(Ordering::SeqCst).max(0) as usize,
            _ => 0,
        };
        let of_sinks: usize = self.stages.iter().map(waiting_bytes).sum();
        of_sinks < self.memory.in_flight_bytes_max() / 2
    }

    /// The next cell that nobody is at. A call for one that has a worker is left to that worker.
    fn ready_cell(&self, next: impl Fn() -> Option<(usize, usize)>) -> Option<(usize, usize)> {
        loop {
            let (stage, cell) = next()?;
            match &self.stages[stage].kind {
                StageRunKind::Operator(operator)
                    if self.calls_cells() && !operator.cells[cell].mailbox.call() => {}
                _ => return Some((stage, cell)),
            }
        }
    }

    /// The next cell of a stage that nobody is at.
    pub(crate) fn ready_cell_at(&self, stage: usize, place: WorkerPlace) -> Option<usize> {
        let next = || self.ready.take_at(stage, place.worker).map(|cell| (stage, cell));
        self.ready_cell(next).map(|(_, cell)| cell)
    }

    /// True if cells are called once for each item rather than listed once while they have any.
    pub(crate) fn calls_cells(&self) -> bool {
        self.ordered.is_some() && self.options.partitioning == PartitionScheme::Hybrid
    }

    /// Walks through the containers of a lane that may have bundles to claim, oldest first.
    #[cfg(not(feature = "baselines"))]
    fn walk<T>(&self, lane: &Lane, visit: impl FnMut(&Arc<Container>) -> Option<T>) -> Option<T> {
        lane.walk_unclaimed(visit)
    }

    fn next_bundle(&self, place: WorkerPlace) -> Option<Task> {
        match self.options.scheduler {
            SchedulerPolicy::Nem => {
                self.needed_next(place).or_else(|| self.most_open_containers(place))
            }
            _ => self.in_turn(place),
        }
    }

    /// The oldest element of the stage furthest downstream that has any, or of each stage in turn.
    fn next_element(&self, is_full: bool) -> Option<Task> {
        let stages = self.stages.len();
        let first = match self.options.scheduler {
            // Relaxed: only spreads the starting points.
            SchedulerPolicy::RoundRobin if !is_full => {
                self.turn.fetch_add(1, Ordering::Relaxed) % stages
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
        self.stages[stage].metrics.queued.load(Ordering::Relaxed) > 0
    }

    /// A bundle of the closed container with the smallest end.
    fn needed_next(&self, place: WorkerPlace) -> Option<Task> {
        let mut best: Option<(Watermark, usize, usize, Arc<Container>)> = None;
        for stage in (0..self.stages.len()).rev().filter(|&stage| self.has_queued(stage)) {
            for (lane, containers) in self.stages[stage].lanes.iter().enumerate() {
                let closed = self.walk(containers, |container| {
                    let is_closed = container.state() == ContainerState::WatermarkAssigned;
                    (is_closed && !container.is_claimed()).then(|| Arc::clone(container))
                });
                if let Some(container) = closed
                    && best.as_ref().is_none_or(|(end, ..)| container.end() < *end)
                {
                    best = Some((container.end(), stage, lane, container));
                }
            }
        }
        let (_, stage, lane, container) = best?;
        let bundle = container.claim(place.numa_node)?;
        Some(self.claimed(stage, lane, container, bundle))
    }

    /// The oldest bundle of the stage with the most open containers.
    fn most_open_containers(&self, place: WorkerPlace) -> Option<Task> {
        let mut stages: Vec<(usize, usize)> = (0..self.stages.len())
            .filter(|&stage| self.has_queued(stage))
            .map(|stage| {
                let open = self.stages[stage].lanes.iter().map(|l| l.open_containers()).sum();
                (open, stage)
            })
            .collect();
        stages.sort_unstable_by(|a, b| b.cmp(a));
        stages.into_iter().find_map(|(_, stage)| self.oldest_bundle(stage, place))
    }

    fn furthest_downstream(&self, place: WorkerPlace) -> Option<Task> {
        self.furthest_among(place, |_| true)
    }

    /// The oldest bundle of the stage furthest downstream of these.
    fn furthest_among(&self, place: WorkerPlace, is_meant: impl Fn(usize) -> bool) -> Option<Task> {
        let mut stages =
            (0..self.stages.len()).rev().filter(|&stage| self.has_queued(stage) && is_meant(stage));
        stages.find_map(|stage| self.oldest_bundle(stage, place))
    }

    fn in_turn(&self, place: WorkerPlace) -> Option<Task> {
        let stages = self.stages.len();
        // Relaxed: only spreads the starting points.
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % stages;
        (0..stages)
            .map(|step| (first + step) % stages)
            .filter(|&stage| self.has_queued(stage))
            .find_map(|stage| self.oldest_bundle(stage, place))
    }

    fn oldest_bundle(&self, stage: usize, place: WorkerPlace) -> Option<Task> {
        for (lane, containers) in self.stages[stage].lanes.iter().enumerate() {
            let found = self.walk(containers, |container| {
                container.claim(place.numa_node).map(|bundle| (Arc::clone(container), bundle))
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
        self.stages[stage].metrics.queued.fetch_sub(1, Ordering::Relaxed);
        Task::Bundle { stage, lane, container, bundle }
    }

    /// True if the gates of a source are open, or it would be asked only to end.
    fn may_be_asked(&self, source: usize) -> bool {
        self.gates.is_open(source)
            || self.is_stopping()
            || self.is_draining()
            || self.stages[source].ended.load(Ordering::SeqCst)
    }

    /// A task for a source that may bring rows.
    pub(crate) fn next_poll(&self) -> Option<Task> {
        // Each turn another worker has come first and the source is not to be had any more.
        while let Some(stage) = self.pollable() {
            if let Some(task) = self.claim_poll(stage) {
                return Some(task);
            }
        }
        None
    }

    /// The right to ask a source, which one worker has at a time. Whoever has it gives it back when
    /// the task is done.
    fn claim_poll(&self, stage: usize) -> Option<Task> {
        let StageRunKind::Source(source) = &self.stages[stage].kind else { return None };
        let is_free = !source.is_asked.swap(true, Ordering::SeqCst);
        is_free.then(|| {
            // Relaxed: only spreads the asking.
            self.asked.fetch_add(1, Ordering::Relaxed);
            Task::Poll { stage }
        })
    }

    /// A source that may bring rows and that nobody is at: where memory is short only the one that
    /// is furthest behind in event time, else mostly that one.
    fn pollable(&self) -> Option<usize> {
        // SeqCst: a worker that has entered after a cut began to hold asks no source.
        if self.holding.load(Ordering::SeqCst) {
            return None;
        }
        let pressure = self.memory.pressure();
        let ready = |&stage: &usize| match &self.stages[stage].kind {
            // SeqCst: the waker's store comes before its notify, see the sleep protocol.
            StageRunKind::Source(source) => {
                source.ready.load(Ordering::SeqCst)
                    && !source.is_asked.load(Ordering::SeqCst)
                    && self.is_in_turn(stage)
                    && self.may_be_asked(stage)
            }
            _ => false,
        };
        let mut candidates: Vec<usize> = self.sources.iter().copied().filter(ready).collect();
        if pressure == Pressure::Full {
            let is_needed =
                |&source: &usize| self.is_waited_for(source) || self.gates.is_awaited(source);
            candidates.retain(is_needed);
        }
        match (pressure, candidates.len()) {
            (_, 0) => None,
            (_, 1) => Some(candidates[0]),
            (Pressure::High, _) => self.furthest_behind(&candidates),
            _ => Some(self.mostly_behind(&candidates)),
        }
    }

    /// What gates or merges wait for comes first, then what is furthest behind in event time.
    fn furthest_behind(&self, candidates: &[usize]) -> Option<usize> {
        let place = |&stage: &usize| {
            let is_needed = self.gates.is_awaited(stage) || self.is_waited_for(stage);
            (!is_needed, self.stages[stage].metrics.watermark())
        };
        candidates.iter().copied().min_by_key(place)
    }

    /// The source that is furthest behind in event time, and now and then the next one in turn.
    /// Where inputs meet, what is ahead waits for what is behind, and its rows fill the state
    /// meanwhile; where they don't, one that reads the past must not keep the others from the
    /// present. In turn, too, while one of them has no time yet.
    fn mostly_behind(&self, candidates: &[usize]) -> usize {
        // Relaxed: only spreads the asking.
        let asked = self.asked.load(Ordering::Relaxed);
        let has_time = |&stage: &usize| self.stages[stage].metrics.watermark() > Watermark::MIN;
        if !candidates.iter().all(has_time) {
            return candidates[asked % candidates.len()];
        }
        match self.furthest_behind(candidates) {
            Some(stage) if !asked.is_multiple_of(ASKED_BEHIND) => stage,
            _ => candidates[asked / ASKED_BEHIND % candidates.len()],
        }
    }
}
