//! The seam between what works and how rows move: sources, partitions, cuts and the clock call
//! [`Flow`] and need not know which of its two implementations a job has.
//!
//! | | [`epoch`](crate::epoch) | [`ordered`](crate::ordered) |
//! |---|---|---|
//! | promise | which results there are | and in which sequence |
//! | what moves | bundles in containers, by epoch and lane | elements under serials |
//! | a watermark is | the end of a container | a part of an element |
//! | results leave | at once, small ones when the bundle is done | when the element's last piece is done |
//! | idleness | marks on lanes | an element, in its turn |
//!
//! **Invariant:** a job has one flow from start to end, and every item in a mailbox is of that
//! flow.
//!
//! Not here: which bundle or element comes next, and what a task does with one. Each is known in
//! one flow only, so the dispatcher and the task go to that flow directly.

use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, Result, SplitId, Watermark};
use thalweg_ordering::sync::Arc;

use crate::barrier::{Barrier, BarrierResults};
use crate::epoch::{self, EpochStage};
use crate::job::Job;
use crate::ordered::elements::ElementStage;
use crate::ordered::gather::caused_by;
use crate::ordered::marks::{ROWS_CALL, mark_call};
use crate::returned::Home;
use crate::stage::{CellState, RowsItem, RowsOrigin, SourceState};
use crate::topology::WorkerPlace;

/// A stage in the flow of its job.
#[derive(Clone, Copy)]
pub(crate) enum Flow<'a> {
    /// Contract `epoch`.
    Epochs(EpochStage<'a>),
    /// Contracts `arrival` and `event_time`.
    Elements(ElementStage<'a>),
}

/// What both flows have in a mailbox is of their own.
const OTHER_FLOW: &str = "items are of the job's flow";

impl<'a> Flow<'a> {
    /// The stage at this place.
    #[inline]
    pub(crate) fn at(job: &'a Job, place: usize) -> Self {
        match &job.ordered {
            None => Flow::Epochs(EpochStage::of(job, place)),
            Some(_) => Flow::Elements(ElementStage::of(job, place)),
        }
    }

    // --- what comes in ---

    /// A source has brought rows.
    pub(crate) fn ingest(
        &self,
        state: &mut SourceState,
        bundle: Bundle,
        split: SplitId,
    ) -> Result<()> {
        match self {
            Flow::Epochs(stage) => stage.ingest(state, bundle),
            Flow::Elements(stage) => stage.ingest_bundle(state, bundle, split),
        }
    }

    /// The watermark of a source may have moved without a row, and none of its rows to come is
    /// older than this.
    pub(crate) fn ingest_heartbeat(&self, state: &mut SourceState, time_ms: i64) -> Result<()> {
        match self {
            Flow::Epochs(stage) => stage.end_epoch_if_due(state),
            Flow::Elements(stage) => stage.ingest_heartbeat(state, time_ms),
        }
    }

    /// A source has ended.
    pub(crate) fn ingest_end(&self, state: &mut SourceState) -> Result<()> {
        match self {
            Flow::Epochs(stage) => stage.end_epoch(state, Watermark::END),
            Flow::Elements(stage) => stage.ingest_end(state.ingest_ns),
        }
    }

    /// A source places a cut behind what it has sent.
    pub(crate) fn ingest_cut(&self, state: &mut SourceState) -> Result<()> {
        match self {
            Flow::Epochs(stage) => stage.ingest_cut(state),
            Flow::Elements(stage) => stage.ingest_cut(),
        }
    }

    /// A source is declared idle.
    pub(crate) fn become_idle(&self) -> Result<()> {
        match self {
            Flow::Epochs(stage) => {
                epoch::spread_idleness(stage.job);
                Ok(())
            }
            Flow::Elements(stage) => stage.ingest_idleness(true),
        }
    }

    /// An idle source has rows again: those that others have passed meanwhile are late.
    pub(crate) fn wake_from_idle(&self, state: &mut SourceState) -> Result<()> {
        match self {
            Flow::Epochs(stage) => {
                stage.wake_from_idle(state);
                Ok(())
            }
            // The merges raise watermarks, when the news has come there in its turn.
            Flow::Elements(stage) => stage.ingest_idleness(false),
        }
    }

    // --- stateless stages ---

    /// A bundle that waited for the outside is done.
    pub(crate) fn finish_outside(&self, home: Home, result: Bundle) -> Result<()> {
        match (self, home) {
            (Flow::Epochs(stage), Home::Container { lane, container, bytes }) => {
                stage.pass_transformed(lane, &container, result, bytes)
            }
            (Flow::Elements(stage), Home::Element(element)) => stage.resume_with(element, result),
            _ => unreachable!("{OTHER_FLOW}"),
        }
    }

    // --- partitions ---

    /// True if a partition is to stop in the middle of its rows. What it makes of them leaves at
    /// once (`epoch`), so a cell waits for room; or is kept (ordered), so it stops only for good.
    pub(crate) fn stops_taking(&self) -> bool {
        match self {
            Flow::Epochs(stage) => stage.job.is_held_back(),
            Flow::Elements(stage) => stage.job.lifecycle.is_giving_up(),
        }
    }

    /// A partition has made this of some rows of an item.
    pub(crate) fn emit_of_rows(
        &self,
        (cell, state): (usize, &CellState),
        item: &RowsItem,
        (emitted, bytes): (Vec<Emitted>, usize),
        worker: WorkerPlace,
    ) -> Result<()> {
        if emitted.is_empty() {
            return Ok(());
        }
        match (self, &item.of) {
            (Flow::Epochs(stage), RowsOrigin::Container { bundle, lane, container, .. }) => {
                let cause = Some(&bundle.stamps);
                let from = Some((*lane, container));
                stage.emit_of_cell((emitted, bytes), state, from, cause, worker)
            }
            (Flow::Elements(stage), RowsOrigin::Element { gather, bundle, .. }) => {
                if gather.marks.is_empty() {
                    return stage.check_kept(gather.keep(Some(*bundle), cell, emitted, bytes));
                }
                let emitted = caused_by(emitted, || item.row_in_front_of_mark());
                stage.check_kept(gather.keep_of_call((*bundle, ROWS_CALL), cell, emitted, bytes))
            }
            _ => unreachable!("{OTHER_FLOW}"),
        }
    }

    /// A partition has made this at a mark of an item.
    pub(crate) fn emit_at_mark(
        &self,
        cell: usize,
        item: &RowsItem,
        mark: u32,
        (emitted, bytes): (Vec<Emitted>, usize),
    ) -> Result<()> {
        if emitted.is_empty() {
            return Ok(());
        }
        match (self, &item.of) {
            (Flow::Elements(stage), RowsOrigin::Element { gather, bundle, .. }) => {
                let of = (*bundle, mark_call(mark));
                stage.check_kept(gather.keep_of_call(of, cell, emitted, bytes))
            }
            _ => unreachable!("{OTHER_FLOW}"),
        }
    }

    /// A partition has made this in processing time.
    pub(crate) fn emit_of_clock(
        &self,
        state: &CellState,
        emitted: Vec<Emitted>,
        worker: WorkerPlace,
    ) -> Result<()> {
        match self {
            Flow::Epochs(stage) => stage.emit_of_cell((emitted, 0), state, None, None, worker),
            Flow::Elements(_) => unreachable!("the clock causes nothing where order is promised"),
        }
    }

    /// A partition has made this of a watermark. `may_wait`: nothing of its own comes after it, so
    /// a little may leave with what others make.
    pub(crate) fn emit_of_watermark(
        &self,
        cell: usize,
        barrier: &Barrier,
        (emitted, bytes): (Vec<Emitted>, usize),
        may_wait: bool,
        worker: WorkerPlace,
    ) -> Result<()> {
        match (self, &barrier.call.results) {
            (Flow::Epochs(stage), BarrierResults::Containers(_)) => {
                stage.emit_of_watermark((emitted, bytes), barrier, may_wait, worker)
            }
            (Flow::Elements(stage), BarrierResults::Element(gather)) => {
                stage.check_kept(gather.keep(None, cell, emitted, bytes))?;
                stage.leave_early(gather, cell, may_wait)
            }
            _ => unreachable!("{OTHER_FLOW}"),
        }
    }

    /// A partition has taken all rows of an item, and what it made of them is on its way.
    pub(crate) fn finish_rows(&self, item: RowsItem) -> Result<()> {
        match (self, item.of) {
            (Flow::Epochs(stage), RowsOrigin::Container { bundle, lane, container, bytes }) => {
                stage.finish_share(bundle, (lane, &container, bytes))
            }
            (Flow::Elements(stage), RowsOrigin::Element { gather, .. }) => {
                stage.finish_piece(&gather)
            }
            _ => unreachable!("{OTHER_FLOW}"),
        }
    }

    /// All partitions have taken a watermark.
    pub(crate) fn complete(&self, barrier: Arc<Barrier>) -> Result<()> {
        match (self, &barrier.call.results) {
            (Flow::Epochs(stage), BarrierResults::Containers(of)) => {
                // Before its containers downstream are closed.
                stage.send_waiting(Some(&of.outputs))?;
                stage.complete(barrier)
            }
            (Flow::Elements(stage), BarrierResults::Element(gather)) => {
                stage.finish_watermark(gather, barrier.call.cut.as_deref())
            }
            _ => unreachable!("{OTHER_FLOW}"),
        }
    }
}
