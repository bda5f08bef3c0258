//! What a worker does with a cell: the partition behind it takes rows, watermarks and calls of the
//! clock, in either flow.
//!
//! **Invariant:** whoever comes here owns the cell. The ownership ends with the mailbox's count,
//! with the cell listed again for another worker, parked for want of room, or with an error, after
//! which no cell is run any more. An item that is not finished stays in `resume` and continues
//! before anything else.
//!
//! What it does not do: which cell is next is a matter of the dispatcher, and where results go one
//! of the flow.

use thalweg_core::operator::{Emitted, WatermarkCall};
use thalweg_core::{Exchange, Output, Piece, Progress, Result, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::barrier::{Barrier, Countdown};
use crate::flow::Flow;
use crate::job::{Job, StageAt};
use crate::ordered::marks::{ROWS_CALL, mark_call};
use crate::pace::{Pace, SLICE_NS};
use crate::stage::{Cell, CellState, Item, OperatorRun, RowsItem};
use crate::task_lengths::TaskKind;
use crate::topology::WorkerPlace;

/// A mark counts as this number of rows where the size of state is concerned.
const MARK_ROWS: usize = 64;

/// A worker at a stage with cells.
pub(crate) struct CellWorker<'a> {
    at: StageAt<'a>,
    operator: &'a OperatorRun,
    flow: Flow<'a>,
    worker: WorkerPlace,
    pace: Pace,
    /// What the worker does here.
    kind: TaskKind,
}

/// What became of an item.
enum Taken {
    /// Time was up in the middle of a watermark, or there is no room for more of some rows.
    Unfinished,
    /// All rows are taken.
    Rows(RowsItem),
    /// The cell has finished the phase.
    Barrier(Arc<Barrier>),
    /// The clock's call is done, or not yet.
    Tick(Progress),
}

impl<'a> CellWorker<'a> {
    /// A worker that begins with the cells of a stage.
    pub(crate) fn new(job: &'a Job, stage: usize, worker: WorkerPlace, pace: Pace) -> Self {
        let at = job.at(stage);
        let operator = at.run.operator().expect("only operators have cells");
        let flow = Flow::at(job, stage);
        CellWorker { at, operator, flow, worker, pace, kind: TaskKind::Rows }
    }

    /// What the worker has done.
    pub(crate) fn kind(&self) -> TaskKind {
        self.kind
    }

    /// Continues with a cell that the worker owns, and where cells are called with those of the
    /// stage that are called next, until time is up. Says what that was.
    pub(crate) fn run_cells(&mut self, mut cell: usize) -> Result<TaskKind> {
        let job = self.at.job;
        // A policy that ranks the stages does so for each cell.
        let takes_more = job.queues.calls_cells && job.settings.elements_per_task > 1;
        while self.run_cell(cell)? && takes_more && !job.lifecycle.gives_up() {
            let next = job.queues.take_ready_at(&job.stages, self.at.place, self.worker.worker);
            let Some(next) = next else { break };
            cell = next;
        }
        Ok(self.kind)
    }

    /// Continues with a cell that the worker owns, until its mailbox is empty or time is up. True
    /// if there is time left.
    pub(crate) fn run_cell(&mut self, number: usize) -> Result<bool> {
        let StageAt { job, place: stage, run } = self.at;
        let cell = &self.operator.cells[number];
        loop {
            let mut state = cell.state.lock().expect("a failed cell is not run again");
            let item = state.resume.take().unwrap_or_else(|| cell.mailbox.take());
            if let Item::Barrier(barrier) = &item {
                let is_cut = barrier.call.cut.is_some();
                self.kind = if is_cut { TaskKind::Capture } else { TaskKind::Watermark };
            }
            let taken = self.take_item(number, &mut state, item)?;
            if !matches!(taken, Taken::Unfinished) {
                cell.finish_item(state.partition.as_ref());
            }
            let epoch = state.outputs.first().map_or((0, 0), |epoch| (epoch.cuts, epoch.index));
            // Before the cell is listed: whoever takes it then never waits.
            drop(state);
            match taken {
                Taken::Unfinished => {
                    self.put_off(number, cell, epoch);
                    return Ok(false);
                }
                Taken::Rows(item) => {
                    run.metrics.meter.take_piece();
                    self.flow.finish_rows(item)?;
                }
                // Done later, behind what has come meanwhile.
                Taken::Tick(Progress::More) => self.at.post(number, Item::Tick),
                Taken::Tick(Progress::Done) => cell.is_ticking.store(false, Ordering::Release),
                Taken::Barrier(barrier) => {
                    cell.barriers.fetch_sub(1, Ordering::Relaxed);
                    run.metrics.barriers.fetch_sub(1, Ordering::Relaxed);
                    self.count_down(barrier)?;
                }
            }
            // Only now: the next owner may take the barrier of the very container that these rows
            // were consumed from, and whoever completes it relies on the count.
            let has_more = cell.mailbox.done();
            let has_next = has_more || job.queues.calls_cells;
            let is_over =
                has_next && (self.pace.is_over(|| job.now_ns()) || job.lifecycle.gives_up());
            if has_more && is_over {
                job.queues.list(stage, number, cell);
            }
            if !has_more || is_over {
                return Ok(!is_over);
            }
        }
    }

    /// Leaves a cell in the middle of an item to whoever comes next, or until there is room.
    fn put_off(&self, number: usize, cell: &Cell, epoch: (u64, u64)) {
        let StageAt { job, place: stage, .. } = self.at;
        if job.is_held_back() {
            self.at.run.metrics.park(|| job.now_ns());
            job.queues.parked.park_cell(stage, epoch, number);
            job.news.notify();
        } else {
            job.queues.list(stage, number, cell);
        }
    }

    fn count_down(&self, barrier: Arc<Barrier>) -> Result<()> {
        match barrier.count_down(self.operator.cells.len(), self.operator.phases) {
            Countdown::Others => Ok(()),
            Countdown::NextPhase => {
                if let Some(cut) = &barrier.call.cut {
                    cut.choose_extents(self.at.place, &self.at.run.id);
                }
                self.at.post_barrier(&barrier);
                Ok(())
            }
            Countdown::Complete => self.flow.complete(barrier),
        }
    }

    /// Gives a partition an item.
    fn take_item(&self, cell: usize, state: &mut CellState, item: Item) -> Result<Taken> {
        match item {
            Item::Rows(rows) => self.take_rows(cell, state, rows),
            Item::Tick => self.take_tick(state),
            Item::Barrier(barrier) => self.take_barrier(cell, state, barrier),
        }
    }

    /// Gives a partition the rows of an item, slice by slice, until it is to stop.
    fn take_rows(&self, cell: usize, state: &mut CellState, mut item: RowsItem) -> Result<Taken> {
        let rows = item.num_rows();
        while !self.at.run.is_ended() {
            let until = item.rows_in_front_of_mark();
            if item.taken < until {
                let rows_max = self.operator.slice_rows(state).min(until - item.taken);
                let holds = item.is_marked();
                let (made, taken) = self.give_rows(state, item.slice(rows_max), holds)?;
                item.taken += taken;
                self.flow.emit_of_rows((cell, state), &item, made, self.worker)?;
                if item.taken < rows && self.flow.stops_taking() {
                    state.resume = Some(Item::Rows(item));
                    return Ok(Taken::Unfinished);
                }
            } else if let Some(mark) = item.next_mark() {
                if self.take_mark((cell, state), &item, mark)? == Progress::More {
                    state.resume = Some(Item::Rows(item));
                    return Ok(Taken::Unfinished);
                }
                item.pass_mark();
            } else {
                break;
            }
        }
        if item.is_marked() {
            let mut output = self.output(self.pace.deadline_ns);
            state.partition.flush(&mut output)?;
            let bytes = output.bytes();
            let made = (output.emitted, bytes);
            self.flow.emit_of_rows((cell, state), &item, made, self.worker)?;
        }
        Ok(Taken::Rows(item))
    }

    /// Gives a partition the watermark between rows, if it has something to do there.
    fn take_mark(
        &self,
        (cell, state): (usize, &mut CellState),
        item: &RowsItem,
        (mark, watermark): (u32, Watermark),
    ) -> Result<Progress> {
        if state.partition.wakes_at() > watermark {
            return Ok(Progress::Done);
        }
        let mut output = self.output(self.pace.deadline_ns).of_call(mark_call(mark));
        let call = WatermarkCall { watermark, phase: 0, exchange: &Exchange::new(0) };
        let progress = state.partition.watermark(&call, &mut output)?;
        self.count(&output);
        let bytes = output.bytes();
        self.flow.emit_at_mark(cell, item, mark, (output.emitted, bytes))?;
        self.at.report_rows(state, MARK_ROWS)?;
        Ok(progress)
    }

    /// Gives a partition some rows. What leaves and about how many bytes it takes, and how many of
    /// the rows are taken. It may hold what it makes if more calls follow for the item.
    fn give_rows(
        &self,
        state: &mut CellState,
        piece: Piece<'_>,
        holds: bool,
    ) -> Result<((Vec<Emitted>, usize), usize)> {
        let (job, room_bytes) = (self.at.job, self.at.job.room_bytes());
        // Rows between marks are few: the clock is not read for each of them.
        let now_ns = || if holds { self.pace.deadline_ns } else { job.now_ns() };
        let begun_ns = now_ns();
        let mut output = self.output(begun_ns + SLICE_NS);
        if holds {
            output = output.of_call(ROWS_CALL);
        }
        let rows = piece.num_rows();
        state.partition.rows(piece, &mut output)?;
        let (taken, bytes) = (output.taken_of(rows), output.bytes());
        state.slice.learn(taken, bytes, room_bytes, now_ns().saturating_sub(begun_ns));
        self.count(&output);
        match bytes > room_bytes {
            // What leads to much may also keep much.
            true => self.at.report_state(state)?,
            false => self.at.report_rows(state, taken)?,
        }
        Ok(((output.emitted, bytes), taken))
    }

    /// Where a partition emits to, until this moment at the latest.
    fn output(&self, deadline_ns: u64) -> Output {
        let job = self.at.job;
        Output::new(Arc::clone(&job.settings.clock), deadline_ns).with_room(job.room_bytes())
    }

    /// Counts what a partition says, and ends a stage whose partitions want no more.
    fn count(&self, output: &Output) {
        self.at.count_output(output);
        if output.ended {
            self.at.end();
        }
    }

    /// Lets a partition do what it waited for the clock with. What it emits belongs to the epoch
    /// that its rows are in now.
    fn take_tick(&self, state: &mut CellState) -> Result<Taken> {
        if self.at.run.is_ended() {
            return Ok(Taken::Tick(Progress::Done));
        }
        let mut output = self.output(self.pace.deadline_ns);
        let progress = state.partition.tick(&mut output)?;
        self.at.count_output(&output);
        self.flow.emit_of_clock(state, output.emitted, self.worker)?;
        self.at.report_state(state)?;
        Ok(Taken::Tick(progress))
    }

    /// Gives a partition a watermark, or more time for it.
    fn take_barrier(
        &self,
        cell: usize,
        state: &mut CellState,
        barrier: Arc<Barrier>,
    ) -> Result<Taken> {
        let call = &barrier.call;
        if let Some(cut) = &call.cut {
            let partition = state.partition.as_mut();
            if barrier.phase() == 0 {
                cut.note_changes(self.at.place, partition.table_changes());
            } else {
                cut.capture(self.at.place, cell, partition);
                state.enter_epoch_behind(&barrier);
            }
            return Ok(Taken::Barrier(barrier));
        }
        if !call.advances {
            return Ok(Taken::Barrier(barrier));
        }
        let mut output = self.output(self.pace.deadline_ns);
        let phase = barrier.phase();
        let of_partition =
            WatermarkCall { watermark: call.watermark, phase, exchange: &call.exchange };
        let progress = state.partition.watermark(&of_partition, &mut output)?;
        self.count(&output);
        let is_last_phase = phase + 1 == self.operator.phases;
        let is_last = progress == Progress::Done && is_last_phase;
        let may_wait = is_last && self.operator.cells.len() > 1;
        let bytes = output.bytes();
        let made = (output.emitted, bytes);
        self.flow.emit_of_watermark(cell, &barrier, made, may_wait, self.worker)?;
        if progress == Progress::More {
            state.resume = Some(Item::Barrier(barrier));
            return Ok(Taken::Unfinished);
        }
        if is_last_phase {
            state.enter_epoch_behind(&barrier);
        }
        match call.watermark {
            Watermark::END => self.at.report_state(state)?,
            _ => self.at.report_watermark(state, MARK_ROWS)?,
        }
        Ok(Taken::Barrier(barrier))
    }
}
