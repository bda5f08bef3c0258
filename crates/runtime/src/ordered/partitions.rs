//! How an element gets through the partitions of an operator.
//!
//! Routed elements are dispatched in order: their shares and then their watermark are posted to
//! the cells under a short lock, so every mailbox has them in that order. The last one to finish a
//! piece puts the outcome together and sends it on.
//!
//! **Invariant:** an element is dispatched only if its outcome has room in the reorder buffer, and
//! elements are dispatched in order; so the oldest one under way can always finish.

use thalweg_core::{Exchange, OrderContract, Result, Route, Watermark};
use thalweg_ordering::sync::{Arc, AtomicUsize, Mutex};

use super::Dispatch;
use super::early_results::EarlyResults;
use super::element::{Element, Outcome, Passage, Ports, Routed};
use super::elements::ElementStage;
use super::gather::{Gather, in_sequence};
use super::rows::AT_WATERMARK;
use crate::barrier::{Barrier, BarrierCall, BarrierResults};
use crate::cut::CutUnderWay;
use crate::stage::{Item, RowsItem, RowsOrigin};

impl ElementStage<'_> {
    /// Queues a routed element for the partitions. Called in order.
    pub(super) fn dispatch(&self, routed: Routed) -> Result<()> {
        let mut dispatch = self.own.dispatch.lock().expect("no panic under this lock");
        dispatch.pending.push_back(routed);
        drop(dispatch);
        self.dispatch_more()
    }

    /// Posts pending elements as long as their outcomes find room.
    pub(super) fn dispatch_more(&self) -> Result<()> {
        loop {
            let mut dispatch = self.own.dispatch.lock().expect("no panic under this lock");
            let Some(first) = dispatch.pending.front() else { return Ok(()) };
            let waits = dispatch.is_at_cut
                || (first.element.passage.is_cut && dispatch.barriers.is_busy())
                || !self.own.exit.has_room(dispatch.next);
            if waits {
                return Ok(());
            }
            let routed = dispatch.pending.pop_front().expect("checked above");
            if routed.element.is_blank() {
                let place = dispatch.next;
                dispatch.next += 1;
                drop(dispatch);
                self.pass_blank(place, &routed.element)?;
                continue;
            }
            let gather = self.post_element(&mut dispatch, routed);
            drop(dispatch);
            // Everything but this hold on it may be done already.
            self.finish_piece(&gather)?;
        }
    }

    /// An element without rows and watermark leaves as it is.
    fn pass_blank(&self, place: u64, element: &Element) -> Result<()> {
        let ports = Ports::without_rows(self.operator().operator.ports(), None, None);
        let outcome = Outcome { passage: element.passage, ports };
        self.send_outcome(place, outcome, element.bytes)
    }

    /// Posts the shares of an element and its watermarks; one hold on the gather stays with the
    /// caller.
    fn post_element(&self, dispatch: &mut Dispatch, routed: Routed) -> Arc<Gather> {
        let Routed { element, routes } = routed;
        let operator = self.operator();
        dispatch.posted.resize(operator.cells.len(), 0);
        let passed_before = dispatch.passed;
        let marks = self.take_marks(dispatch, &element);
        let advanced = element.watermark.filter(|&watermark| watermark > dispatch.watermark);
        let pass = advanced.and_then(|watermark| operator.passes(watermark));
        let gather = Arc::new(Gather {
            place: dispatch.next,
            passage: element.passage,
            closing_place: match self.flow.order {
                OrderContract::EventTime => element.passage.frontier_ms,
                _ => AT_WATERMARK,
            },
            bytes: element.bytes,
            bundles: in_sequence(element.bundles, dispatch.next),
            marks,
            watermark: advanced,
            pass,
            passed_before,
            remaining: AtomicUsize::new(1),
            early: advanced.filter(|_| !self.flow.has_merges).and_then(|watermark| {
                let (of, cells) = (operator.operator.as_ref(), operator.cells.len());
                EarlyResults::wanted(of, cells, (dispatch.watermark, watermark))
            }),
            emitted: Mutex::default(),
        });
        dispatch.next += 1;
        let mut routes = routes.into_iter().flatten();
        if !gather.marks.is_empty() {
            self.post_marked(&mut dispatch.posted, &gather, routes);
            return gather;
        }
        for bundle in 0..gather.bundles.len() {
            let route = routes.next().unwrap_or(Route::Any);
            self.post_bundle(&mut dispatch.posted, &gather, bundle, route);
        }
        if let Some(watermark) = advanced {
            dispatch.watermark = watermark;
            dispatch.passed = pass.unwrap_or(dispatch.passed);
            self.post_watermark(dispatch, &gather, watermark);
        }
        if element.passage.is_cut {
            dispatch.is_at_cut = true;
            self.post_cut(dispatch, &gather);
        }
        gather
    }

    /// Posts the cut to all partitions: what was in front of it is in their mailboxes.
    fn post_cut(&self, dispatch: &mut Dispatch, gather: &Arc<Gather>) {
        let operator = self.operator();
        gather.expect(1);
        let call = BarrierCall {
            watermark: dispatch.watermark,
            advances: false,
            cut: Some(self.cut_dispatch(dispatch)),
            exchange: Exchange::new(0),
            ..self.call_of(gather)
        };
        let barrier = Arc::new(Barrier::new(call, operator.cells.len()));
        let barrier = dispatch.barriers.begin(operator.phases, barrier);
        self.post_barrier(&barrier.expect("a cut waits while a watermark is under way"));
        dispatch.posted.iter_mut().for_each(|posted| *posted += 2);
    }

    /// A barrier for an element.
    fn call_of(&self, gather: &Arc<Gather>) -> BarrierCall {
        BarrierCall {
            sequence: gather.place,
            watermark: Watermark::MIN,
            advances: true,
            cut: None,
            exchange: Exchange::new(0),
            pass: gather.pass,
            passed_before: gather.passed_before,
            ingest_ns: gather.passage.ingest_ns,
            results: BarrierResults::Element(Arc::clone(gather)),
        }
    }

    fn post_bundle(&self, posted: &mut [u64], gather: &Arc<Gather>, bundle: usize, route: Route) {
        let rows = gather.bundles[bundle].num_rows();
        self.count_in(rows);
        if rows == 0 {
            return;
        }
        let workers = self.job.settings.workers;
        let local = self.operator().local_of(&route, gather.place as usize, workers);
        gather.expect(route.num_shares());
        for share in route.shares(local) {
            let cell = share.partition;
            posted[cell] += 1;
            let of = RowsOrigin::Element { gather: Arc::clone(gather), bundle, marks: 0..0 };
            self.post(cell, Item::Rows(RowsItem::new(of, share, self.own.sources)));
        }
    }

    fn post_watermark(&self, dispatch: &mut Dispatch, gather: &Arc<Gather>, watermark: Watermark) {
        // An operator of one phase exchanges nothing: partitions with nothing to do are left alone.
        let operator = self.operator();
        let is_concerned = |&cell: &usize| {
            operator.phases > 1
                || !operator.cells[cell].sleeps_through(dispatch.posted[cell], watermark)
        };
        let concerned: Vec<usize> = (0..operator.cells.len()).filter(is_concerned).collect();
        if concerned.is_empty() {
            return;
        }
        gather.expect(1);
        let exchange = Exchange::new(if operator.phases > 1 { concerned.len() } else { 0 });
        let call = BarrierCall { watermark, exchange, ..self.call_of(gather) };
        let barrier = Arc::new(Barrier::new(call, concerned.len()));
        if let Some(barrier) = dispatch.barriers.begin(operator.phases, barrier) {
            concerned.iter().for_each(|&cell| dispatch.posted[cell] += 1);
            self.job.queues.post_barrier(self.run, self.place, &barrier, concerned);
        }
    }

    /// A piece of an element is finished; whoever finishes the last one sends the outcome on.
    pub(crate) fn finish_piece(&self, gather: &Gather) -> Result<()> {
        if !gather.finish_one() {
            return Ok(());
        }
        if let Some(watermark) = gather.last_watermark() {
            self.note_watermark(watermark);
        }
        if !gather.marks.is_empty() {
            self.flow.element_rows.learn(gather.kept_bytes());
        }
        let operator = self.operator().operator.as_ref();
        let outcome = gather.outcome(operator, self.flow.has_merges)?;
        self.send_outcome(gather.place, outcome, gather.bytes)
    }

    /// A partition keeps results of the watermark, perhaps its last. Sends on what may leave.
    pub(crate) fn leave_early(&self, gather: &Gather, cell: usize, is_done: bool) -> Result<()> {
        let Some(early) = &gather.early else { return Ok(()) };
        let mut early = early.lock().expect("a failed job sends no more");
        let Some(last) = early.note(cell, is_done) else { return Ok(()) };
        if !self.own.exit.is_turn(gather.place) {
            return Ok(());
        }
        let bundles = gather.take_early(last)?;
        if bundles.is_empty() {
            return Ok(());
        }
        let passage = Passage { idle: None, ..gather.passage };
        let mut ports = Ports::without_rows(self.operator().operator.ports(), None, None);
        ports[0].bundles = bundles;
        self.pass_on(Outcome { passage, ports })
    }

    /// All partitions have taken the watermark of an element, or are captured at a cut.
    pub(crate) fn finish_watermark(
        &self,
        gather: &Gather,
        cut: Option<&CutUnderWay>,
    ) -> Result<()> {
        if self.operator().phases == 1 && cut.is_none() {
            return self.finish_piece(gather);
        }
        let mut dispatch = self.own.dispatch.lock().expect("no panic under this lock");
        dispatch.is_at_cut &= cut.is_none();
        if let Some(next) = dispatch.barriers.end() {
            self.post_barrier(&next);
        }
        drop(dispatch);
        if let Some(cut) = cut {
            self.report_cut(cut);
        }
        self.finish_piece(gather)?;
        // A cut may have waited for the watermark, and other elements for the cut.
        self.dispatch_more()
    }
}
