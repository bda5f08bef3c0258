//! How an element gets through the partitions of an operator.

use thalweg_core::operator::Emitted;
use thalweg_core::{
    Bundle, Error, Exchange, Operator, OperatorClass, OrderContract, Result, Route, Stamps,
    Watermark, WatermarkBefore,
};
use thalweg_ordering::sync::{Arc, AtomicUsize, Mutex, Ordering};

use super::rows::{self, AT_WATERMARK, Ordered};
use super::{
    Dispatch, Element, Gather, GatheredPiece, GatheredRows, OrderedFlow, Outcome, Port, Ports,
    Routed,
};
use crate::barrier::{Barrier, BarrierStart};
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::stage::{CellState, Item, OperatorRun};

/// The largest bundle that leaves at a watermark.
const CLOSING_ROWS_MAX: usize = 64 * 1024;

impl Job {
    /// Queues a routed element for the partitions. Called in order.
    pub(crate) fn dispatch(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        operator: &OperatorRun,
        routed: Routed,
    ) -> Result<()> {
        let dispatch = &flow.stages[stage].dispatch;
        dispatch.lock().expect("no panic under this lock").pending.push_back(routed);
        self.dispatch_more(flow, stage, operator)
    }

    /// Posts pending elements as long as their outcomes find room.
    pub(crate) fn dispatch_more(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        operator: &OperatorRun,
    ) -> Result<()> {
        let ordered = &flow.stages[stage];
        loop {
            let mut dispatch = ordered.dispatch.lock().expect("no panic under this lock");
            if dispatch.pending.is_empty() || !ordered.exit.has_room(dispatch.next) {
                return Ok(());
            }
            let routed = dispatch.pending.pop_front().expect("checked above");
            if routed.element.is_blank() {
                let place = dispatch.next;
                dispatch.next += 1;
                drop(dispatch);
                self.pass_blank(flow, stage, operator, place, &routed.element)?;
                continue;
            }
            let gather = self.post_element(stage, operator, &mut dispatch, routed)?;
            drop(dispatch);
            // Everything but this hold on it may be done already.
            self.finish_piece(flow, stage, operator, &gather)?;
        }
    }

    /// An element without rows and watermark leaves as it is.
    fn pass_blank(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        operator: &OperatorRun,
        place: u64,
        element: &Element,
    ) -> Result<()> {
        let ports = empty_ports(operator.operator.ports(), None, None);
        let outcome = Outcome { passage: element.passage, ports };
        self.send_outcome(flow, stage, place, outcome, element.bytes)
    }

    /// Posts the pieces of an element and its watermark; one hold on the gather stays with the
    /// caller.
    fn post_element(
        &self,
        stage: usize,
        operator: &OperatorRun,
        dispatch: &mut Dispatch,
        routed: Routed,
    ) -> Result<Arc<Gather>> {
        let Routed { element, routes } = routed;
        let run = &self.stages[stage];
        dispatch.posted.resize(operator.cells.len(), 0);
        let advanced = element.watermark.filter(|&watermark| watermark > dispatch.watermark);
        let pass = advanced.and_then(|watermark| match watermark {
            Watermark::END => Some(watermark),
            watermark => operator.operator.output_watermark(watermark),
        });
        let gather = Arc::new(Gather {
            place: dispatch.next,
            passage: element.passage,
            closing_place: match self.options.order {
                OrderContract::EventTime => element.passage.frontier_ms,
                _ => AT_WATERMARK,
            },
            bytes: element.bytes,
            bundles: in_sequence(element.bundles, dispatch.next),
            watermark: advanced,
            pass,
            passed_before: dispatch.passed,
            remaining: AtomicUsize::new(1),
            emitted: Mutex::default(),
        });
        dispatch.next += 1;
        let mut routes = routes.map(Vec::into_iter);
        for number in 0..gather.bundles.len() {
            let route = routes.as_mut().and_then(Iterator::next).unwrap_or(Route::Any);
            let bundle = &gather.bundles[number];
            StageMetrics::add(&run.metrics.rows_in, bundle.num_rows() as u64);
            StageMetrics::add(&run.metrics.bundles_in, 1);
            self.post_bundle(stage, operator, &mut dispatch.posted, (&gather, number), route)?;
        }
        if let Some(watermark) = advanced {
            dispatch.watermark = watermark;
            dispatch.passed = pass.unwrap_or(dispatch.passed);
            self.post_watermark(stage, operator, dispatch, &gather, watermark);
        }
        Ok(gather)
    }

    fn post_bundle(
        &self,
        stage: usize,
        operator: &OperatorRun,
        posted: &mut [u64],
        (gather, bundle): (&Arc<Gather>, usize),
        route: Route,
    ) -> Result<()> {
        if gather.bundles[bundle].num_rows() == 0 {
            return Ok(());
        }
        let cells = operator.cells.len();
        let mut post = |cell: usize, rows: Option<Vec<u32>>| {
            posted[cell] += 1;
            let lanes = self.ordered_flow().stages[stage].sources;
            let gather = Arc::clone(gather);
            let piece = GatheredPiece { gather, bundle, rows, lanes, taken: 0 };
            self.post(stage, cell, &operator.cells[cell], Item::Gathered(piece));
        };
        // Relaxed: the caller's own hold keeps the count above zero.
        let expect = |pieces| gather.remaining.fetch_add(pieces, Ordering::Relaxed);
        match route {
            Route::Any if cells > 1 && operator.class == OperatorClass::Sequenced => {
                return Err(Error::internal(
                    "a sequenced operator with several partitions must say where rows go",
                ));
            }
            Route::Any => {
                expect(1);
                post(self.cell_at_hand(operator, gather.place), None);
            }
            Route::Scatter(parts) if parts.len() == 1 => {
                expect(1);
                post(0, None);
            }
            Route::Scatter(parts) => {
                expect(parts.iter().filter(|rows| !rows.is_empty()).count());
                let parts = parts.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
                parts.for_each(|(cell, rows)| post(cell, Some(rows)));
            }
        }
        Ok(())
    }

    fn post_watermark(
        &self,
        stage: usize,
        operator: &OperatorRun,
        dispatch: &mut Dispatch,
        gather: &Arc<Gather>,
        watermark: Watermark,
    ) {
        // An operator of one phase exchanges nothing: partitions with nothing to do are left alone.
        let is_concerned = |&cell: &usize| {
            operator.phases > 1
                || !operator.cells[cell].sleeps_through(dispatch.posted[cell], watermark)
        };
        let concerned: Vec<usize> = (0..operator.cells.len()).filter(is_concerned).collect();
        if concerned.is_empty() {
            return;
        }
        gather.remaining.fetch_add(1, Ordering::Relaxed);
        let barrier = Arc::new(Barrier::of_element(BarrierStart {
            sequence: gather.place,
            watermark,
            pass: gather.pass,
            passed_before: gather.passed_before,
            ingest_ns: gather.passage.ingest_ns,
            cells: concerned.len(),
            exchange: Exchange::new(if operator.phases > 1 { concerned.len() } else { 0 }),
            gather: Arc::clone(gather),
        }));
        if operator.phases > 1 && dispatch.busy {
            dispatch.waiting.push_back(barrier);
            return;
        }
        dispatch.busy = true;
        for cell in concerned {
            dispatch.posted[cell] += 1;
            self.post_barrier_to(stage, operator, cell, &barrier);
        }
    }

    /// The cell for a bundle that any may take: an idle one, else each in turn; as many as there
    /// are workers, since each keeps a table of the keys.
    fn cell_at_hand(&self, operator: &OperatorRun, place: u64) -> usize {
        let cells = operator.cells.len().min(self.options.workers.max(1));
        let first = place as usize % cells;
        let mut candidates = (0..cells).map(|step| (first + step) % cells);
        candidates.find(|&cell| operator.cells[cell].mailbox.is_idle()).unwrap_or(first)
    }

    // --- in the cells ---

    /// A partition takes its rows of an element, slice by slice. False if the job is to stop before
    /// all are taken: the element must not leave then.
    pub(crate) fn take_gathered(
        &self,
        stage: usize,
        cell: usize,
        state: &mut CellState,
        item: &mut GatheredPiece,
    ) -> Result<bool> {
        let rows = item.num_rows();
        while item.taken < rows && !self.stages[stage].ended.load(Ordering::Relaxed) {
            if item.taken > 0 && self.is_giving_up() {
                return Ok(false);
            }
            let piece = item.slice(self.slice_rows(stage, state));
            let made = self.give_rows(stage, state, piece)?;
            item.taken += made.taken;
            if !made.emitted.is_empty() {
                let emitted = made.emitted.into_iter().map(|emitted| (cell, emitted));
                self.check_gathered(item.gather.of_bundle(item.bundle, emitted, made.bytes))?;
            }
        }
        Ok(true)
    }

    /// A piece of an element is finished; whoever finishes the last one sends the outcome on.
    pub(crate) fn finish_piece(
        &self,
        flow: &OrderedFlow,
        stage: usize,
        operator: &OperatorRun,
        gather: &Arc<Gather>,
    ) -> Result<()> {
        // AcqRel: the last one sees what all others have left in the gather.
        if gather.remaining.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        if let Some(watermark) = gather.watermark {
            self.note_watermark(stage, watermark);
        }
        let outcome = gather.outcome(operator.operator.as_ref(), flow.has_merges)?;
        self.send_outcome(flow, stage, gather.place, outcome, gather.bytes)
    }

    /// All partitions have taken the watermark of an element.
    pub(crate) fn finish_watermark(
        &self,
        stage: usize,
        operator: &OperatorRun,
        gather: &Arc<Gather>,
    ) -> Result<()> {
        let flow = self.ordered_flow();
        if operator.phases > 1 {
            let dispatch = &flow.stages[stage].dispatch;
            let mut dispatch = dispatch.lock().expect("no panic under this lock");
            match dispatch.waiting.pop_front() {
                Some(next) => self.post_barrier(stage, operator, &next),
                None => dispatch.busy = false,
            }
        }
        self.finish_piece(flow, stage, operator, gather)
    }
}

impl Gather {
    fn lock_emitted(&self) -> thalweg_ordering::sync::MutexGuard<'_, GatheredRows> {
        self.emitted.lock().expect("no panic under this lock")
    }

    /// Keeps what a partition emitted for rows of a bundle. Returns the bytes kept in all.
    fn of_bundle(
        &self,
        bundle: usize,
        emitted: impl Iterator<Item = (usize, Emitted)>,
        bytes: usize,
    ) -> usize {
        let mut gathered = self.lock_emitted();
        gathered.bytes += bytes;
        if gathered.of_rows.is_empty() {
            gathered.of_rows.resize_with(self.bundles.len(), Vec::new);
        }
        gathered.of_rows[bundle].extend(emitted);
        gathered.bytes
    }

    /// Keeps what a partition emitted at the watermark. Returns the bytes kept in all.
    pub(crate) fn add_of_watermark(
        &self,
        cell: usize,
        emitted: Vec<Emitted>,
        bytes: usize,
    ) -> usize {
        let emitted = emitted.into_iter().map(|emitted| (cell, emitted));
        let mut gathered = self.lock_emitted();
        gathered.bytes += bytes;
        gathered.of_watermark.extend(emitted);
        gathered.bytes
    }

    /// Puts everything together, in order.
    fn outcome(&self, operator: &dyn Operator, keeps_places: bool) -> Result<Outcome> {
        let emitted = std::mem::take(&mut *self.lock_emitted());
        let ports = operator.ports();
        let mut out = empty_ports(ports, self.pass, self.watermark);
        for (number, of_bundle) in emitted.of_rows.into_iter().enumerate() {
            for (port, emitted) in by_port(of_bundle, ports) {
                let Some(ordered) = rows::by_cause(emitted)? else { continue };
                let places = keeps_places.then(|| self.places(number, &ordered.places));
                out[port].bundles.push(self.bundle(ordered, places));
            }
        }
        for (port, emitted) in by_port(emitted.of_watermark, ports) {
            let Some(ordered) = rows::by_window_end(emitted)? else { continue };
            let rows = ordered.batch.num_rows();
            let places = keeps_places.then(|| vec![self.closing_place; rows]);
            out[port].bundles.extend(in_bundles(self.bundle(ordered, places)));
        }
        Ok(Outcome { passage: self.passage, ports: out })
    }

    /// The rows of the source bundle behind rows that these rows of a bundle caused.
    fn places(&self, bundle: usize, causes: &[i64]) -> Vec<i64> {
        let of_bundle = &self.bundles[bundle].stamps.row_places;
        let place = |&cause: &i64| match of_bundle {
            Some(places) => places.get(cause as usize).copied().unwrap_or(self.closing_place),
            None => cause,
        };
        causes.iter().map(place).collect()
    }

    fn bundle(&self, ordered: Ordered, places: Option<Vec<i64>>) -> Bundle {
        let stamps = Stamps {
            serial: self.passage.serial,
            ingest_ns: self.passage.ingest_ns,
            watermark_before: WatermarkBefore::All(self.passed_before),
            row_places: places.map(Into::into),
            ..Stamps::first()
        };
        Bundle { batch: ordered.batch, kinds: ordered.kinds, stamps }
    }
}

/// Stamps bundles with their place in the sequence of the stage: aggregates that depend on the
/// order of rows compare it.
fn in_sequence(mut bundles: Vec<Bundle>, place: u64) -> Vec<Bundle> {
    for (number, bundle) in bundles.iter_mut().enumerate() {
        bundle.stamps.lane = 0;
        bundle.stamps.epoch = place;
        bundle.stamps.ordinal = number as u64;
    }
    bundles
}

/// Ports without rows: the first with what the operator passes on, the others with the watermark
/// itself.
fn empty_ports(ports: usize, pass: Option<Watermark>, watermark: Option<Watermark>) -> Ports {
    let first = Port { bundles: Vec::new(), watermark: pass };
    if ports == 1 {
        return Ports::One(first);
    }
    let others = (1..ports).map(|_| Port { bundles: Vec::new(), watermark });
    Ports::Several(std::iter::once(first).chain(others).collect())
}

/// What was emitted by each port, partitions in ascending order.
fn by_port(mut emitted: Vec<(usize, Emitted)>, ports: usize) -> Vec<(usize, Vec<Emitted>)> {
    if emitted.is_empty() {
        return Vec::new();
    }
    emitted.sort_by_key(|&(cell, _)| cell);
    let mut of_ports: Vec<(usize, Vec<Emitted>)> =
        (0..ports).map(|port| (port, Vec::new())).collect();
    for (_, emitted) in emitted {
        if let Some((_, of_port)) = of_ports.get_mut(emitted.port) {
            of_port.push(emitted);
        }
    }
    of_ports
}

/// Cuts a large result into bundles that several workers can share.
fn in_bundles(bundle: Bundle) -> Vec<Bundle> {
    let rows = bundle.num_rows();
    if rows <= CLOSING_ROWS_MAX {
        return vec![bundle];
    }
    let piece = |from: usize| {
        let count = CLOSING_ROWS_MAX.min(rows - from);
        let mut stamps = bundle.stamps.clone();
        stamps.row_places = stamps.row_places.map(|places| places.slice(from, count));
        let kinds = bundle.kinds.as_ref().map(|kinds| kinds[from..from + count].into());
        Bundle { batch: bundle.batch.slice(from, count), kinds, stamps }
    };
    (0..rows).step_by(CLOSING_ROWS_MAX).map(piece).collect()
}
