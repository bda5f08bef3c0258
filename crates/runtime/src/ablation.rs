//! Decisions of StreamBox switched off one at a time, to measure what each is worth (StreamBox
//! §9.2).
//!
//! | ablation | what is switched off | the paper's figure |
//! |---|---|---|
//! | [`InOrderEpochs`](Ablation::InOrderEpochs) | a stage works on several epochs of a lane at once | 9 |
//! | [`IgnoreEpochBoundaries`](Ablation::IgnoreEpochBoundaries) | what is derived from a container goes to that container's own one downstream, and what a partition makes to the one behind the last watermark that it has taken | 10 |
//! | [`EstimatedMoments`](Ablation::EstimatedMoments) | only epochs whose end is known are needed for the next result; instead the end of open ones is estimated, as the paper does where it can't know it | §6 |
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
//!   With an operator it is the same: its watermarks are complete in their order, and each closes
//!   the open container when all that was made in front of it is there.
//! - *Estimated moments*, *no priority*: the order of looking decides nothing but time.
//!
//! What it does not do: sources keep their epochs, which are made one after the other anyway, and
//! so do rows that leave by a port of their own (late ones).

use thalweg_core::{OperatorClass, Watermark};
use thalweg_ordering::sync::{Arc, AtomicI64, AtomicUsize, Ordering};

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
    /// By stage and lane, when epochs have ended.
    ends: Vec<Box<[EpochEnds]>>,
}

/// The ends of a lane's epochs, as far as the next ones are estimated from them (StreamBox §6: by
/// the moments of earlier results).
#[derive(Default)]
struct EpochEnds {
    /// The last end, in milliseconds of row time; 0 before any.
    last_ms: AtomicI64,
    /// From the end before it to the last one; 0 while only one is known.
    step_ms: AtomicI64,
}

impl EpochEnds {
    /// Relaxed throughout: hints, from one thread at a time.
    fn note(&self, end: Watermark) {
        let last_ms = self.last_ms.swap(end.0, Ordering::Relaxed);
        if last_ms != 0 && end != Watermark::END {
            self.step_ms.store(end.0.saturating_sub(last_ms), Ordering::Relaxed);
        }
    }

    /// Where the open epoch with this number from 1 ends, if two were seen to end.
    fn estimate(&self, number: i64) -> Option<Watermark> {
        let [last_ms, step_ms] =
            [&self.last_ms, &self.step_ms].map(|number| number.load(Ordering::Relaxed));
        (step_ms > 0).then(|| Watermark(last_ms.saturating_add(step_ms.saturating_mul(number))))
    }
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
        let ends_of = |stage: &StageRun| stage.lanes.iter().map(|_| EpochEnds::default()).collect();
        Ablated {
            what,
            at: (0..workers.max(1)).map(|_| AtomicUsize::new(0)).collect(),
            ends: stages.iter().map(ends_of).collect(),
        }
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
            Ablation::Nothing | Ablation::NoPriority | Ablation::EstimatedMoments => {
                return lane.walk_unclaimed(visit);
            }
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

    /// An epoch has ended in a lane of a stage.
    pub(crate) fn note_end(&self, stage: usize, lane: usize, end: Watermark) {
        self.ends[stage][lane].note(end);
    }

    /// When the open epoch of a lane with this number from 1 is likely to end, if that is to be
    /// estimated.
    pub(crate) fn estimated_end(
        &self,
        stage: usize,
        lane: usize,
        number: i64,
    ) -> Option<Watermark> {
        let is_wanted = self.is(Ablation::EstimatedMoments);
        is_wanted.then(|| self.ends[stage][lane].estimate(number)).flatten()
    }

    /// Where a worker is.
    pub(crate) fn at(&self, worker: usize) -> &AtomicUsize {
        &self.at[worker % self.at.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_estimated_from_two_that_were_seen() {
        let ends = EpochEnds::default();
        assert_eq!(ends.estimate(1), None);
        ends.note(Watermark(100));
        assert_eq!(ends.estimate(1), None, "how far the next one is nobody knows");
        ends.note(Watermark(130));
        assert_eq!(ends.estimate(1), Some(Watermark(160)));
        assert_eq!(ends.estimate(3), Some(Watermark(220)), "two open ones are older");
        ends.note(Watermark::END);
        assert_eq!(ends.estimate(1), Some(Watermark::END), "nothing comes later");
    }
}
