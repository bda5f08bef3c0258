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
use thalweg_ordering::sync::{Arc, AtomicUsize};

use crate::container::{Container, ContainerState};
use crate::lane::Lane;
use crate::news::News;
use crate::policies::Ablation;
use crate::stage::StageRun;

/// What a job switches off, and where its workers are.
pub(crate) struct Ablated {
    what: Ablation,
    /// Without priority: for each worker the stage that it looks at first.
    at: Box<[AtomicUsize]>,
}

impl Ablated {
    /// What of the wish a job in the contract `epoch` with these stages admits.
    pub(crate) fn new(
        wish: Ablation,
        stages: &[StageRun],
        takes_snapshots: bool,
        workers: usize,
    ) -> Self {
        let is_sequenced = |stage: &StageRun| {
            stage.operator().is_some_and(|run| run.class == OperatorClass::Sequenced)
        };
        let keeps_boundaries = takes_snapshots || stages.iter().any(is_sequenced);
        let what = match wish {
            Ablation::IgnoreEpochBoundaries if keeps_boundaries => Ablation::Nothing,
            what => what,
        };
        Ablated { what, at: (0..workers.max(1)).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// True if this is switched off.
    pub(crate) fn is(&self, what: Ablation) -> bool {
        self.what == what
    }

    /// Walks from the oldest container that may have bundles to claim to the youngest until `visit`
    /// returns something. In order only the oldest one is looked at, and only if it is complete, or
    /// the memory is full.
    pub(crate) fn walk<T>(
        &self,
        lane: &Lane,
        is_full: bool,
        mut visit: impl FnMut(&Arc<Container>) -> Option<T>,
    ) -> Option<T> {
        match self.what {
            Ablation::Nothing | Ablation::NoPriority => return lane.walk_unclaimed(visit),
            Ablation::IgnoreEpochBoundaries => return lane.walk(visit),
            Ablation::InOrderEpochs => {}
        }
        let front = lane.front()?;
        let is_held = front.state() == ContainerState::Open;
        if is_held && !is_full { None } else { visit(&front) }
    }

    /// A container is complete or gone: in order, others can be worked on only now.
    pub(crate) fn release_epoch(&self, news: &News) {
        if self.is(Ablation::InOrderEpochs) {
            news.notify_all();
        }
    }

    /// Where a worker is.
    pub(crate) fn at(&self, worker: usize) -> &AtomicUsize {
        &self.at[worker % self.at.len()]
    }
}
