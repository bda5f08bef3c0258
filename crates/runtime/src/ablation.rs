//! Decisions of StreamBox switched off one at a time, to measure what each is worth (StreamBox
//! §9.2).
//!
//! | ablation | what is switched off | the paper's figure |
//! |---|---|---|
//! | [`InOrderEpochs`](Ablation::InOrderEpochs) | a stage works on several epochs of a lane at once | 9 |
//! | [`IgnoreEpochBoundaries`](Ablation::IgnoreEpochBoundaries) | what is derived from a container goes to that container's own one downstream | 10 |
//! | [`NoPriority`](Ablation::NoPriority) | what the next result needs goes first | §9.2 |
//!
//! For benchmarks only: no SQL and no command line of the engine can ask for one, and only the
//! contract `epoch` knows them. **Invariant:** results are the same under each; only time is lost.
//!
//! # Why results stay the same
//! - *In order*: the dispatcher hands out a part of what it could. A stage holds an epoch back
//!   until its end is known; where that fills the memory, the hold gives way, or no source would
//!   ever end the epoch.
//! - *Boundaries ignored*: a row may get into an epoch older than its own, never into a younger
//!   one: the container downstream that is open stays so until the watermark of the oldest epoch
//!   upstream closes it, and then all of that epoch is in it. Rows that come early are what
//!   commuting operators take anyway, and lateness is judged by the stamps that rows carry.
//!   Operators that are `sequenced` take a lane's rows in the order of its epochs: a job with one
//!   of those, or with snapshots, keeps the boundaries.
//! - *No priority*: the order of looking decides nothing but time.
//!
//! What it does not do: sources and the results of operators keep their epochs. These are made one
//! after the other anyway.

use thalweg_core::OperatorClass;
use thalweg_core::{Bundle, Result, Watermark};
use thalweg_ordering::sync::{Arc, AtomicUsize, Ordering};

use crate::container::{Container, ContainerState};
use crate::dispatcher::{Task, WorkerPlace};
use crate::job::Job;
use crate::lane::Lane;
use crate::memory::Pressure;
use crate::options::RunOptions;
use crate::stage::{StageRun, StageRunKind};

/// Which decision is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ablation {
    /// None: the engine as it is.
    #[default]
    Nothing,
    /// A stage works on an epoch once all of its rows have arrived and every older one is finished
    /// ("hold and sort" without the sort).
    InOrderEpochs,
    /// What a stateless stage makes goes to the youngest container that is open downstream.
    IgnoreEpochBoundaries,
    /// A worker drains the stage that it is at, then moves to the next one; watermarks wait for
    /// their turn.
    NoPriority,
}

/// What a job switches off, and where its workers are.
pub(crate) struct Ablated {
    what: Ablation,
    /// Without priority: for each worker the stage that it looks at first.
    at: Box<[AtomicUsize]>,
}

impl Ablated {
    /// What of the wish these stages admit.
    pub(crate) fn new(options: &RunOptions, stages: &[StageRun]) -> Self {
        let is_sequenced = |stage: &StageRun| match &stage.kind {
            StageRunKind::Operator(operator) => operator.class == OperatorClass::Sequenced,
            _ => false,
        };
        let what = match options.ablation {
            _ if options.order.is_ordered() => Ablation::Nothing,
            Ablation::IgnoreEpochBoundaries
                if options.snapshots.is_some() || stages.iter().any(is_sequenced) =>
            {
                Ablation::Nothing
            }
            what => what,
        };
        let at = (0..options.workers.max(1)).map(|_| AtomicUsize::new(0)).collect();
        Ablated { what, at }
    }

    /// True if this is switched off.
    pub(crate) fn is(&self, what: Ablation) -> bool {
        self.what == what
    }
}

impl Job {
    /// Walks from the oldest container that may have bundles to claim to the youngest until `visit`
    /// returns something. In order only the oldest one is looked at, and only if it is complete.
    pub(crate) fn walk<T>(
        &self,
        lane: &Lane,
        mut visit: impl FnMut(&Arc<Container>) -> Option<T>,
    ) -> Option<T> {
        match self.ablated.what {
            Ablation::Nothing | Ablation::NoPriority => return lane.walk_unclaimed(visit),
            Ablation::IgnoreEpochBoundaries => return lane.walk(visit),
            Ablation::InOrderEpochs => {}
        }
        let front = lane.front()?;
        let is_held = front.state() == ContainerState::Open;
        if is_held && self.memory.pressure() != Pressure::Full { None } else { visit(&front) }
    }

    /// A container is complete or gone: in order, others can be worked on only now.
    pub(crate) fn release_epoch(&self) {
        if self.ablated.is(Ablation::InOrderEpochs) {
            self.news.notify_all();
        }
    }

    /// Whatever is at the stage that the worker is at, or at the next one that has something.
    pub(crate) fn without_priority(&self, place: WorkerPlace) -> Option<Task> {
        let at = &self.ablated.at[place.worker % self.ablated.at.len()];
        // Relaxed: the worker's own.
        let (first, stages) = (at.load(Ordering::Relaxed), self.stages.len());
        let in_turn = (0..stages).map(|step| (first + step) % stages);
        let found = in_turn.into_iter().find_map(|stage| {
            let task = match &self.stages[stage].kind {
                StageRunKind::Source(_) => self.next_poll(),
                _ => self.waiting_at(stage, place),
            };
            task.map(|task| (stage, task))
        });
        let (stage, task) = found?;
        // A source always has more: it would never be drained.
        let stays = !matches!(task, Task::Poll { .. });
        at.store(if stays { stage } else { (stage + 1) % stages }, Ordering::Relaxed);
        Some(task)
    }

    /// Hands what a stateless stage has made to the container that is open downstream.
    pub(crate) fn deposit_in_open(
        &self,
        stage: usize,
        edge: usize,
        lane: usize,
        mut bundle: Bundle,
    ) -> Result<()> {
        let edge = &self.stages[stage].edges[edge];
        let down_lane = edge.lane_base + lane;
        let (open, place) = self.stages[edge.to.0].lanes[down_lane].count_into_open();
        (bundle.stamps.epoch, bundle.stamps.ordinal) = (open.index, place);
        self.deposit_counted(stage, edge, down_lane, &open, bundle)
    }

    /// Closes what is open downstream of a stateless stage with a watermark.
    pub(crate) fn close_open(
        &self,
        stage: usize,
        lane: usize,
        end: Watermark,
        ingest_ns: u64,
    ) -> Result<()> {
        for edge in &self.stages[stage].edges {
            let down_lane = edge.lane_base + lane;
            self.stages[edge.to.0].lanes[down_lane].close_open(end, ingest_ns);
            self.advance(edge.to.0, down_lane)?;
        }
        Ok(())
    }
}
