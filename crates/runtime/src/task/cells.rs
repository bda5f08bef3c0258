//! What a worker does with a cell: the partition behind it takes rows and watermarks.
//!
//! **Invariant:** whoever comes here owns the cell. The ownership ends with the mailbox's count,
//! with the cell listed again for another worker, or with an error, after which no cell is run any
//! more.
//!
//! What it does not do: which cell is next is a matter of the dispatcher.

use thalweg_core::operator::{Emitted, WatermarkCall};
use thalweg_core::{Output, Piece, Progress, Result, Stamps};
use thalweg_ordering::sync::{Arc, Ordering};

use super::REPORT_ROWS;
use crate::barrier::{Barrier, Countdown};
use crate::container::Container;
use crate::dispatcher::WorkerPlace;
use crate::job::Job;
use crate::memory::Pressure;
use crate::ordered::Gather;
use crate::pace::{Pace, SLICE_NS};
use crate::slices::SliceRows;
use crate::stage::{Cell, CellState, Item, OperatorRun, RowsItem, StageRunKind};

impl Job {
    /// Continues with a cell that the worker owns, and where cells are called with those of the
    /// stage that are called next, until time is up.
    pub(super) fn run_cells(
        &self,
        stage: usize,
        mut cell: usize,
        place: WorkerPlace,
        mut pace: Pace,
    ) -> Result<()> {
        while self.run_cell(stage, cell, place, &mut pace)? && self.takes_more_calls() {
            let Some(next) = self.ready_cell_at(stage, place) else { return Ok(()) };
            cell = next;
        }
        Ok(())
    }

    /// A policy that ranks the stages does so for each cell.
    fn takes_more_calls(&self) -> bool {
        self.calls_cells() && self.elements_per_task > 1 && !self.is_over()
    }

    /// Continues with a cell that the worker owns, until its mailbox is empty or time is up. True
    /// if there is time left.
    pub(super) fn run_cell(
        &self,
        stage: usize,
        place_of_cell: usize,
        place: WorkerPlace,
        pace: &mut Pace,
    ) -> Result<bool> {
        let StageRunKind::Operator(operator) = &self.stages[stage].kind else {
            unreachable!("only operators have cells")
        };
        let cell = &operator.cells[place_of_cell];
        let deadline_ns = pace.deadline_ns;
        loop {
            let mut state = cell.state.lock().expect("a failed cell is not run again");
            let item = state.resume.take().unwrap_or_else(|| cell.mailbox.take());
            let of_cell = (place_of_cell, &mut *state);
            let progress = self.take_item(stage, operator, of_cell, item, (deadline_ns, place))?;
            if !matches!(progress, Taken::Unfinished) {
                cell.finish_item(state.partition.as_ref());
            }
            let epoch = state.outputs.first().map_or(0, |container| container.index);
            drop(state);
            match progress {
                Taken::Unfinished => {
                    self.put_off(stage, epoch, place_of_cell, cell);
                    return Ok(false);
                }
                Taken::Rows { lane, container, bytes } => {
                    self.stages[stage].metrics.meter.take_piece();
                    self.consume(stage, lane, &container, bytes)?;
                }
                Taken::Gathered(gather) => {
                    self.stages[stage].metrics.meter.take_piece();
                    let flow = self.ordered_flow();
                    self.finish_piece(flow, stage, operator, &gather)?;
                }
                // Done later, behind what has come meanwhile.
                Taken::Tick(Progress::More) => self.post(stage, place_of_cell, cell, Item::Tick),
                Taken::Tick(Progress::Done) => cell.is_ticking.store(false, Ordering::Release),
                Taken::Barrier(barrier) => {
                    cell.barriers.fetch_sub(1, Ordering::Relaxed);
                    self.count_down(stage, operator, barrier, place)?;
                }
            }
            // Only now: the next owner may take the barrier of the very container that these rows
            // were consumed from, and whoever completes it relies on the count.
            let has_more = cell.mailbox.done();
            let has_next = has_more || self.calls_cells();
            let is_over = has_next && pace.is_over(|| self.options.clock.now_ns());
            if has_more && is_over {
                self.list_cell(stage, place_of_cell, cell);
            }
            if !has_more || is_over {
                return Ok(!is_over);
            }
        }
    }

    /// Gives a partition an item.
    fn take_item(
        &self,
        stage: usize,
        operator: &OperatorRun,
        (cell, state): (usize, &mut CellState),
        item: Item,
        (deadline_ns, place): (u64, WorkerPlace),
    ) -> Result<Taken> {
        match item {
            Item::Rows(rows) => self.take_rows(stage, state, rows, place),
            Item::Gathered(mut piece) => {
                if self.take_gathered(stage, cell, state, &mut piece)? {
                    return Ok(Taken::Gathered(piece.gather));
                }
                state.resume = Some(Item::Gathered(piece));
                Ok(Taken::Unfinished)
            }
            Item::Tick => self.take_tick(stage, state, deadline_ns, place),
            Item::Barrier(barrier) => {
                self.take_barrier(stage, operator, (cell, state), &barrier, deadline_ns, place)
            }
        }
    }

    /// Leaves a cell in the middle of an item to whoever comes next, or until there is room.
    fn put_off(&self, stage: usize, epoch: u64, place: usize, cell: &Cell) {
        if self.is_held_back() {
            self.parked.park_cell(stage, epoch, place);
            self.news.notify();
        } else {
            self.list_cell(stage, place, cell);
        }
    }

    fn count_down(
        &self,
        stage: usize,
        operator: &OperatorRun,
        barrier: Arc<Barrier>,
        place: WorkerPlace,
    ) -> Result<()> {
        match barrier.count_down(operator.cells.len(), operator.phases) {
            Countdown::Others => Ok(()),
            Countdown::NextPhase => {
                self.repost_barrier(stage, operator, &barrier);
                Ok(())
            }
            Countdown::Complete => match &barrier.gather {
                Some(gather) => self.finish_watermark(stage, operator, gather),
                None => {
                    // Before its containers downstream are closed.
                    self.emit_of_watermark(stage, barrier.take_few(), &barrier, place)?;
                    self.complete(stage, operator, barrier)
                }
            },
        }
    }

    /// True if nothing more should be made of what is inside until there is room downstream.
    pub(crate) fn is_held_back(&self) -> bool {
        self.memory.pressure() == Pressure::Full || self.is_giving_up()
    }

    /// Gives a partition the rows of an item, slice by slice, until there is no room for more.
    fn take_rows(
        &self,
        stage: usize,
        state: &mut CellState,
        mut item: RowsItem,
        place: WorkerPlace,
    ) -> Result<Taken> {
        let lanes = self.stages[stage].lanes.len();
        let rows = item.num_rows();
        while item.taken < rows && !self.stages[stage].ended.load(Ordering::Relaxed) {
            let rows_max = self.slice_rows(stage, state);
            let made = self.give_rows(stage, state, item.slice(rows_max, lanes))?;
            item.taken += made.taken;
            let Stamps { ingest_ns, serial, .. } = item.bundle.stamps;
            let stamps = self.derived_stamps(ingest_ns, serial, state.passed, place.numa_node);
            let from = Some((item.lane, &item.container));
            self.emit(stage, made.emitted, &state.outputs, from, &stamps)?;
            if item.taken < rows && self.is_held_back() {
                state.resume = Some(Item::Rows(item));
                return Ok(Taken::Unfinished);
            }
        }
        Ok(Taken::Rows { lane: item.lane, container: item.container, bytes: item.bytes })
    }

    /// Gives a partition some rows.
    pub(crate) fn give_rows(
        &self,
        stage: usize,
        state: &mut CellState,
        piece: Piece<'_>,
    ) -> Result<Made> {
        let room_bytes = self.room_bytes();
        let begun_ns = self.options.clock.now_ns();
        let mut output =
            Output::new(Arc::clone(&self.options.clock), begun_ns + SLICE_NS).with_room(room_bytes);
        let rows = piece.num_rows();
        state.partition.rows(piece, &mut output)?;
        let (taken, bytes) = (output.taken_of(rows), output.bytes());
        let took_ns = self.options.clock.now_ns().saturating_sub(begun_ns);
        state.slice.learn(taken, bytes, room_bytes, took_ns);
        self.count_output(stage, &output);
        if output.ended {
            self.end_stage(stage);
        }
        match bytes > room_bytes {
            // What leads to much may also keep much.
            true => self.report_state(stage, state)?,
            false => self.report_rows(stage, state, taken)?,
        }
        Ok(Made { emitted: output.emitted, bytes, taken })
    }

    /// How many rows a partition is given at once.
    pub(crate) fn slice_rows(&self, stage: usize, state: &CellState) -> usize {
        match &self.stages[stage].kind {
            StageRunKind::Operator(operator) if operator.takes_slices => state.slice.rows(),
            _ => usize::MAX,
        }
    }

    /// What one call of a partition should emit at most.
    pub(crate) fn room_bytes(&self) -> usize {
        SliceRows::room_bytes(self.memory.in_flight_bytes_max())
    }

    /// Lets a partition do what it waited for the clock with. What it emits belongs to the epoch
    /// that its rows are in now.
    fn take_tick(
        &self,
        stage: usize,
        state: &mut CellState,
        deadline_ns: u64,
        place: WorkerPlace,
    ) -> Result<Taken> {
        if self.stages[stage].ended.load(Ordering::Relaxed) {
            return Ok(Taken::Tick(Progress::Done));
        }
        let mut output =
            Output::new(Arc::clone(&self.options.clock), deadline_ns).with_room(self.room_bytes());
        let progress = state.partition.tick(&mut output)?;
        self.count_output(stage, &output);
        let now_ns = self.options.clock.now_ns();
        let stamps = self.derived_stamps(now_ns, 0, state.passed, place.numa_node);
        self.emit(stage, std::mem::take(&mut output.emitted), &state.outputs, None, &stamps)?;
        self.report_state(stage, state)?;
        Ok(Taken::Tick(progress))
    }

    /// Measures a partition's state now and then while it takes rows.
    pub(crate) fn report_rows(
        &self,
        stage: usize,
        state: &mut CellState,
        rows: usize,
    ) -> Result<()> {
        state.unreported_rows += rows;
        if state.unreported_rows >= REPORT_ROWS {
            self.report_state(stage, state)?;
        }
        Ok(())
    }

    fn take_barrier(
        &self,
        stage: usize,
        operator: &OperatorRun,
        (cell, state): (usize, &mut CellState),
        barrier: &Arc<Barrier>,
        deadline_ns: u64,
        place: WorkerPlace,
    ) -> Result<Taken> {
        if !barrier.advances {
            return Ok(Taken::Barrier(Arc::clone(barrier)));
        }
        let mut output =
            Output::new(Arc::clone(&self.options.clock), deadline_ns).with_room(self.room_bytes());
        let phase = barrier.phase();
        let call =
            WatermarkCall { watermark: barrier.watermark, phase, exchange: &barrier.exchange };
        let progress = state.partition.watermark(&call, &mut output)?;
        self.count_output(stage, &output);
        let emitted = std::mem::take(&mut output.emitted);
        match &barrier.gather {
            Some(gather) => {
                let bytes = gather.add_of_watermark(cell, emitted, output.bytes());
                self.check_gathered(bytes)?;
            }
            None => {
                // What a cell makes last: nothing of its own overtakes what waits.
                let is_last = progress == Progress::Done && phase + 1 == operator.phases;
                let may_wait = is_last && operator.cells.len() > 1;
                let emitted = if may_wait { barrier.gather_few(emitted) } else { emitted };
                self.emit_of_watermark(stage, emitted, barrier, place)?;
            }
        }
        if output.ended {
            self.end_stage(stage);
        }
        if progress == Progress::More {
            state.resume = Some(Item::Barrier(Arc::clone(barrier)));
            return Ok(Taken::Unfinished);
        }
        if phase + 1 == operator.phases {
            state.outputs.clone_from(&barrier.next_outputs);
            state.passed = barrier.pass.unwrap_or(state.passed);
        }
        self.report_state(stage, state)?;
        Ok(Taken::Barrier(Arc::clone(barrier)))
    }

    fn emit_of_watermark(
        &self,
        stage: usize,
        emitted: Vec<Emitted>,
        barrier: &Barrier,
        place: WorkerPlace,
    ) -> Result<()> {
        if emitted.is_empty() {
            return Ok(());
        }
        let stamps = self.derived_stamps(
            barrier.ingest_ns,
            barrier.sequence,
            barrier.passed_before,
            place.numa_node,
        );
        let from = barrier.container.as_ref().map(|(lane, container)| (*lane, container));
        self.emit(stage, emitted, &barrier.outputs, from, &stamps)
    }
}

/// What a partition has made of some rows.
pub(crate) struct Made {
    /// What leaves.
    pub(crate) emitted: Vec<Emitted>,
    /// About how many bytes.
    pub(crate) bytes: usize,
    /// How many of the rows it has taken.
    pub(crate) taken: usize,
}

/// What became of an item.
enum Taken {
    /// Time was up in the middle of a watermark, or there is no room for more of some rows.
    Unfinished,
    /// Rows are taken; the piece can be consumed.
    Rows { lane: usize, container: Arc<Container>, bytes: usize },
    /// The cell has finished the phase.
    Barrier(Arc<Barrier>),
    /// Rows of an element are taken.
    Gathered(Arc<Gather>),
    /// The clock's call is done, or not yet.
    Tick(Progress),
}
