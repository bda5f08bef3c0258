//! What waits for a worker inside a job, bundles in containers and elements in worklists excepted.
//!
//! | queue | holds | who takes from it |
//! |---|---|---|
//! | `urgent` | cells with a watermark in their mailbox | owns the cell |
//! | `ready` | other cells with something in their mailbox | owns the cell |
//! | `returned` | bundles that have what they waited for outside | owns the bundle |
//! | `parked` | what waits for room | owns it |
//!
//! **Invariants:** an item is in its mailbox before its cell is listed, and a cell is listed before
//! [`News`] says so; so a worker that sees the news finds the cell, and whoever takes the cell
//! finds the item. A cell is in one list at a time, unless cells are called once for each item.

use thalweg_ordering::sync::{Arc, AtomicUsize, Ordering};

use crate::barrier::Barrier;
use crate::news::News;
use crate::parked::Parked;
use crate::returned::Returned;
use crate::stage::{Cell, Item, StageRun};
use crate::stages::Stages;
use ready_cells::{Lines, ReadyCells};

pub(crate) mod ready_cells;

/// The queues of a job.
pub(crate) struct WorkQueues {
    news: Arc<News>,
    urgent: Lines,
    ready: ReadyCells,
    /// Cells are called once for each item rather than listed once while they have any.
    pub(crate) calls_cells: bool,
    /// Watermarks do not come first.
    #[cfg(feature = "baselines")]
    is_without_priority: bool,
    pub(crate) returned: Arc<Returned>,
    pub(crate) parked: Parked,
    /// Tasks that are being done.
    pub(crate) at_work: AtomicUsize,
    /// How often stages were looked at in turn.
    pub(crate) turn: AtomicUsize,
    /// How often a source was asked.
    pub(crate) asked: AtomicUsize,
}

impl WorkQueues {
    /// Nothing waits.
    pub(crate) fn new(
        news: &Arc<News>,
        ready: ReadyCells,
        workers: usize,
        calls_cells: bool,
        #[cfg(feature = "baselines")] is_without_priority: bool,
    ) -> Self {
        WorkQueues {
            news: Arc::clone(news),
            urgent: Lines::new(workers),
            ready,
            calls_cells,
            #[cfg(feature = "baselines")]
            is_without_priority,
            returned: Arc::new(Returned::new(Arc::clone(news))),
            parked: Parked::default(),
            at_work: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
        }
    }

    /// Puts an item into a cell's mailbox and lists the cell if it was idle.
    pub(crate) fn post(&self, run: &StageRun, stage: usize, place: usize, item: Item) {
        let cell = &run.cells()[place];
        if matches!(item, Item::Rows(_)) {
            run.metrics.posted.fetch_add(1, Ordering::Relaxed);
        }
        if self.calls_cells {
            cell.mailbox.add(item);
            self.ready.list(stage, place);
            self.news.notify();
        } else if cell.mailbox.post(item) {
            self.list(stage, place, cell);
        }
    }

    /// Posts a barrier, or its next phase, to these cells.
    pub(crate) fn post_barrier(
        &self,
        run: &StageRun,
        stage: usize,
        barrier: &Arc<Barrier>,
        cells: impl IntoIterator<Item = usize>,
    ) {
        for place in cells {
            run.metrics.barriers.fetch_add(1, Ordering::Relaxed);
            run.cells()[place].barriers.fetch_add(1, Ordering::Relaxed);
            self.post(run, stage, place, Item::Barrier(Arc::clone(barrier)));
        }
    }

    /// Lists a cell that the caller owns for some worker to continue with.
    pub(crate) fn list(&self, stage: usize, place: usize, cell: &Cell) {
        // Relaxed: a hint about urgency; a cell in the wrong list is handled all the same.
        let is_urgent = cell.barriers.load(Ordering::Relaxed) > 0;
        #[cfg(feature = "baselines")]
        let is_urgent = is_urgent && !self.is_without_priority;
        if self.calls_cells || is_urgent {
            self.urgent.list(stage, place);
        } else {
            self.ready.list(stage, place);
        }
        self.news.notify();
    }

    /// A cell with a watermark.
    pub(crate) fn take_urgent(&self, worker: usize) -> Option<(usize, usize)> {
        self.urgent.take(worker)
    }

    /// The next cell that nobody is at.
    pub(crate) fn take_ready(&self, stages: &Stages, worker: usize) -> Option<(usize, usize)> {
        self.free(stages, || self.ready.take(worker))
    }

    /// The next cell of a stage that nobody is at.
    pub(crate) fn take_ready_at(
        &self,
        stages: &Stages,
        stage: usize,
        worker: usize,
    ) -> Option<usize> {
        let next = || self.ready.take_at(stage, worker).map(|cell| (stage, cell));
        self.free(stages, next).map(|(_, cell)| cell)
    }

    /// The first of these that nobody is at. A call for one that has a worker is left to that
    /// worker.
    fn free(
        &self,
        stages: &Stages,
        next: impl Fn() -> Option<(usize, usize)>,
    ) -> Option<(usize, usize)> {
        loop {
            let (stage, cell) = next()?;
            if !self.calls_cells || stages[stage].cells()[cell].mailbox.call() {
                return Some((stage, cell));
            }
        }
    }

    /// True while any worker does a task.
    pub(crate) fn others_work(&self) -> bool {
        self.at_work.load(Ordering::SeqCst) > 0
    }
}
