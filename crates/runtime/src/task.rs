//! What a worker does with a task.
//!
//! Every task ends within about a millisecond ([`SLICE_NS`](crate::pace::SLICE_NS)): a cell or a
//! source that has more to do is listed again for whoever comes next. User code may panic: that is
//! caught here and becomes an error of the operator.

use std::panic::{AssertUnwindSafe, catch_unwind};

use thalweg_core::{
    Bundle, Error, ErrorKind, OperatorClass, Output, Result, Route, Stamps, Transform, Watermark,
    WatermarkBefore,
};
use thalweg_ordering::sync::{Arc, Ordering};

#[cfg(feature = "baselines")]
use crate::ablation::Ablation;
use crate::container::Container;
use crate::dispatcher::{Task, WorkerPlace};
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::pace::{Pace, SMALL_ROWS};
use crate::stage::{CellState, Item, OperatorRun, Routed, RowsItem, StageRunKind};
use crate::waiting::Home;

mod cells;
mod sources;

/// After this many rows a partition's state is measured, also between watermarks.
const REPORT_ROWS: usize = 8 * 1024;

impl Job {
    /// One more element of `rows` rows is done. True if the same task may do another one.
    pub(crate) fn may_continue(&self, pace: &mut Pace, rows: usize) -> bool {
        let is_over = pace.is_over(|| self.options.clock.now_ns());
        !is_over && rows <= SMALL_ROWS && pace.done() < self.elements_per_task && !self.is_over()
    }

    /// Does a task. An error or a panic stops the job.
    pub fn execute(&self, task: Task, place: WorkerPlace) {
        let stage = match &task {
            Task::Cell { stage, .. }
            | Task::Bundle { stage, .. }
            | Task::Element { stage, .. }
            | Task::Poll { stage } => *stage,
            Task::Continue(continued) => continued.stage,
        };
        let started_ns = self.options.clock.now_ns();
        let pace = Pace::new(started_ns);
        let meter = &self.stages[stage].metrics.meter;
        meter.enter();
        self.at_work.fetch_add(1, Ordering::SeqCst);
        let result = catch_unwind(AssertUnwindSafe(|| match task {
            // Cells count their pieces themselves.
            Task::Cell { stage, cell } => self.run_cells(stage, cell, place, pace).map(|()| 0),
            Task::Bundle { stage, lane, container, bundle } => {
                self.run_bundle(stage, lane, &container, bundle, place).map(|()| 1)
            }
            Task::Element { stage, place: serial, element } => {
                self.run_element(stage, (serial, element), place, pace)
            }
            Task::Poll { stage } => self.run_poll(stage, place, pace),
            Task::Continue(continued) => self.continue_bundle(continued, place).map(|()| 0),
        }));
        let elements = result.as_ref().map_or(1, |done| *done.as_ref().unwrap_or(&1));
        meter.leave(elements);
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        let busy_ns = self.options.clock.now_ns().saturating_sub(started_ns);
        StageMetrics::add(&self.stages[stage].metrics.busy_ns, busy_ns);
        let error = match result {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(panic) => Error::user(format!("panicked: {}", panic_message(&panic))),
        };
        self.fail(error.in_operator(self.stages[stage].name.clone()));
    }

    fn run_bundle(
        &self,
        stage: usize,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        place: WorkerPlace,
    ) -> Result<()> {
        let run = &self.stages[stage];
        StageMetrics::add(&run.metrics.rows_in, bundle.num_rows() as u64);
        StageMetrics::add(&run.metrics.bundles_in, 1);
        match &run.kind {
            StageRunKind::Transform(transform) => {
                self.run_transform(stage, transform.as_ref(), lane, container, bundle, place)
            }
            StageRunKind::Operator(operator) => {
                self.run_route(stage, operator, lane, container, bundle, place)
            }
            StageRunKind::Source(_) | StageRunKind::Sink(_) => {
                unreachable!("only transforms and operators have bundles to claim")
            }
        }
    }

    fn run_transform(
        &self,
        stage: usize,
        transform: &dyn Transform,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        place: WorkerPlace,
    ) -> Result<()> {
        let run = &self.stages[stage];
        let bytes = bundle.memory_bytes();
        // Nobody needs the rows, but downstream each place is waited for: one worker may still pass
        // a bundle on whose older neighbour another has dropped.
        let bundle = if run.ended.load(Ordering::Relaxed) { without_rows(bundle) } else { bundle };
        if transform.multiplies() {
            return self.run_in_parts(stage, transform, (lane, container), bundle, place);
        }
        if transform.is_asynchronous() && bundle.num_rows() > 0 {
            let home = Home::Container { lane, container: Arc::clone(container), bytes };
            self.begin_bundle(stage, transform, bundle, home);
            return Ok(());
        }
        let ordinal = bundle.stamps.ordinal;
        let mut result = apply_transform(transform, bundle)?;
        assert_eq!(result.stamps.ordinal, ordinal, "a transform keeps the stamps of its bundle");
        result.stamps.numa_node = place.numa_node as u16;
        self.pass_transformed(stage, lane, container, result, bytes)
    }

    /// Hands on what a stateless stage has made of a bundle of `bytes` bytes, which is consumed
    /// then.
    pub(crate) fn pass_transformed(
        &self,
        stage: usize,
        lane: usize,
        container: &Arc<Container>,
        result: Bundle,
        bytes: usize,
    ) -> Result<()> {
        self.deposit_transformed(stage, lane, container, &result, true)?;
        self.consume(stage, lane, container, bytes)
    }

    /// Puts what a stateless stage has made into the containers downstream.
    pub(crate) fn deposit_transformed(
        &self,
        stage: usize,
        lane: usize,
        container: &Arc<Container>,
        result: &Bundle,
        keep_ordinal: bool,
    ) -> Result<()> {
        let run = &self.stages[stage];
        for (edge_place, edge) in run.edges.iter().enumerate() {
            #[cfg(feature = "baselines")]
            if self.ablated.is(Ablation::IgnoreEpochBoundaries) {
                self.deposit_in_open(stage, edge_place, lane, result.clone())?;
                continue;
            }
            let down_lane = edge.lane_base + lane;
            let down = &self.stages[edge.to.0].lanes[down_lane];
            let linked = run.lanes[lane].link(container, edge_place, down);
            self.deposit(stage, edge, down_lane, &linked, result.clone(), keep_ordinal)?;
        }
        Ok(())
    }

    /// Routes a bundle of an operator. `commuting` operators take it as it comes, `sequenced` ones
    /// when its turn comes.
    fn run_route(
        &self,
        stage: usize,
        operator: &OperatorRun,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        place: WorkerPlace,
    ) -> Result<()> {
        let bytes = bundle.memory_bytes();
        let cells = operator.cells.len();
        let route =
            if cells == 1 { Route::Any } else { operator.operator.route(&bundle, cells)? };
        match (operator.class, route) {
            (OperatorClass::Sequenced, Route::Any) if cells > 1 => Err(Error::internal(
                "a sequenced operator with several partitions must say where rows go",
            )),
            (OperatorClass::Sequenced, route) => {
                self.offer(stage, operator, lane, container, Routed { bundle, route, bytes })
            }
            (OperatorClass::Commuting, Route::Any) => {
                self.run_at_hand(stage, operator, lane, container, bundle, bytes, place)
            }
            (OperatorClass::Commuting, route) => {
                let routed = Routed { bundle, route, bytes };
                self.scatter(stage, operator, lane, container, routed);
                Ok(())
            }
        }
    }

    /// Gives a bundle to the cell that is the worker's own, or to an idle one, and continues with
    /// that cell at once if it is free.
    fn run_at_hand(
        &self,
        stage: usize,
        operator: &OperatorRun,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        bytes: usize,
        place: WorkerPlace,
    ) -> Result<()> {
        // As many as there are workers: each cell that takes rows keeps a table of the keys, and
        // more of them would fill the caches and be merged at each watermark.
        let cells = operator.cells.len().min(self.options.workers.max(1));
        let chosen = (0..cells)
            .map(|step| (place.worker + step) % cells)
            .find(|&cell| operator.cells[cell].mailbox.is_idle())
            .unwrap_or(place.worker % cells);
        let item = Item::Rows(RowsItem {
            bundle: Arc::new(bundle),
            rows: None,
            lane,
            container: Arc::clone(container),
            bytes,
            taken: 0,
        });
        self.stages[stage].metrics.posted.fetch_add(1, Ordering::Relaxed);
        if operator.cells[chosen].mailbox.post(item) {
            self.run_cell(stage, chosen, place, &mut Pace::new(self.options.clock.now_ns()))?;
        }
        Ok(())
    }

    pub(crate) fn count_output(&self, stage: usize, output: &Output) {
        let metrics = &self.stages[stage].metrics;
        StageMetrics::add(&metrics.accepted, output.accepted);
        StageMetrics::add(&metrics.late, output.late);
        StageMetrics::add(&metrics.partly_late, output.partly_late);
    }

    /// Reports to the memory account how a partition's state has grown, and fails the job if state
    /// alone has reached the limit.
    pub(crate) fn report_state(&self, stage: usize, state: &mut CellState) -> Result<()> {
        state.unreported_rows = 0;
        let bytes = state.partition.state_bytes();
        let grown = bytes as i64 - state.state_bytes as i64;
        state.state_bytes = bytes;
        self.grow_state(stage, grown)
    }

    fn grow_state(&self, stage: usize, grown: i64) -> Result<()> {
        if grown == 0 {
            return Ok(());
        }
        self.memory.add_state(grown);
        self.stages[stage].metrics.state_bytes.fetch_add(grown, Ordering::Relaxed);
        if grown > 0 && self.memory.is_exhausted() {
            let limit_mib = self.memory.limit_bytes() >> 20;
            let state_mib = self.memory.state_bytes() >> 20;
            return Err(Error::resource(format!(
                "the state of the job has grown to {state_mib} MiB and the memory limit is {limit_mib} MiB"
            ))
            .hint(match &self.stages[stage].kind {
                StageRunKind::Operator(operator) => operator.operator.memory_hint(),
                _ => "raise 'memory.limit'",
            }));
        }
        Ok(())
    }
}

/// Applies a transform; an error names the file and the row where they are known.
pub(crate) fn apply_transform(transform: &dyn Transform, bundle: Bundle) -> Result<Bundle> {
    let mut result = located(transform, bundle, |bundle| transform.apply(bundle))?;
    result.stamps.origin = None;
    Ok(result)
}

/// The same for whatever is done with the bundle.
pub(crate) fn located<T>(
    transform: &dyn Transform,
    bundle: Bundle,
    apply: impl FnOnce(Bundle) -> Result<T>,
) -> Result<T> {
    let before = bundle.stamps.origin.is_some().then(|| bundle.clone());
    apply(bundle).map_err(|error| match &before {
        Some(bundle) => locate(transform, bundle, error),
        None => error,
    })
}

/// An empty bundle in the place of this one.
pub(crate) fn without_rows(bundle: Bundle) -> Bundle {
    let mut stamps = bundle.stamps;
    stamps.watermark_before = WatermarkBefore::All(Watermark::MIN);
    stamps.row_places = stamps.row_places.map(|_| Default::default());
    Bundle { batch: bundle.batch.slice(0, 0), kinds: bundle.kinds.map(|_| Arc::from([])), stamps }
}

/// Finds the row of a file in which a transform fails, by giving it one row at a time.
fn locate(transform: &dyn Transform, bundle: &Bundle, error: Error) -> Error {
    let Some(origin) = bundle.stamps.origin.as_ref().filter(|_| error.kind() == ErrorKind::Data)
    else {
        return error;
    };
    let fails = |row: usize| {
        let watermark_before = bundle.stamps.watermark_before.take(&[row as u32]);
        let stamps = Stamps { watermark_before, row_places: None, ..bundle.stamps.clone() };
        let one = Bundle { batch: bundle.batch.slice(row, 1), kinds: None, stamps };
        // One part says enough, and one row may lead to many.
        let error = transform.begin_parts(one, 1).err()?;
        Some(error.at_row(&*origin.file, origin.first_row + row as u64))
    };
    (0..bundle.num_rows()).find_map(fails).unwrap_or(error)
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}
