//! Bundles and watermarks on their way through the partitions of an operator, and what comes of
//! them.
//!
//! `commuting` operators take bundles as they come: whoever consumes the last one of the oldest
//! epoch sends its watermark to the cells, and with it those of epochs behind it that are complete
//! too. `sequenced` ones take a lane's bundles by ordinal, then
//! the watermark behind them, and the cells' mailboxes keep that order.
//!
//! **Invariants:**
//! - a barrier gets its number and goes to the cells under the lock of the joint watermark, and
//!   barriers complete in the order of their numbers;
//! - with several phases the lane of a `sequenced` operator is held until the barrier is complete,
//!   so no later bundle gets between two phases;
//! - results belong to the container that was current when they were made: those of rows to the
//!   cell's own outputs, those of a watermark to the barrier's. Late rows (port 1) go to the
//!   container that hangs on the one they came from, so they never change their epoch.

use thalweg_core::operator::Emitted;
use thalweg_core::{
    Bundle, OperatorClass, Place, Result, Share, Stamps, Watermark, WatermarkBefore,
};
use thalweg_ordering::sync::Arc;

use super::EpochStage;
use super::small_results::{MadeOf, WaitingResult};
use crate::barrier::{Barrier, BarrierContainers, Joint, Moves};
use crate::container::{Container, ContainerState, End};
#[cfg(feature = "baselines")]
use crate::policies::Ablation;
use crate::stage::{CellState, Edge, Item, Routed, RowsItem, RowsOrigin};
use crate::topology::WorkerPlace;

impl EpochStage<'_> {
    /// Carries the end watermarks of a lane to the cells.
    pub(super) fn advance_commuting(&self, lane: usize) -> Result<()> {
        while let Some(front) = self.retrieve_front(lane)? {
            if front.is_cut() {
                return self.reach_cut(lane, front);
            }
            let consumed = self.with_complete(lane, front);
            if self.begin_watermark(&consumed) {
                // The barrier's completion continues from here.
                return Ok(());
            }
            for (lane, container) in &consumed {
                self.finish_container(*lane, container)?;
            }
        }
        Ok(())
    }

    /// The container in front of a lane, which the caller has retrieved, and those behind it that
    /// are complete as well, up to a cut. Where epochs end faster than watermarks pass the
    /// partitions, one barrier takes all that have ended since the one before: to the partitions
    /// that is a watermark that has moved further. The end of the input goes alone, since what only
    /// it closes has no latency.
    ///
    /// Nobody else retrieves one behind the front, and what becomes complete after it was looked at
    /// here is found when the barrier is complete.
    fn with_complete(&self, lane: usize, front: Arc<Container>) -> Vec<(usize, Arc<Container>)> {
        let mut next = front.index + 1;
        let mut complete = vec![(lane, front)];
        while let Some(container) = self.run.lanes[lane].at_or_after(next) {
            next = container.index + 1;
            let may_join =
                || !container.is_cut() && container.end() != Watermark::END && container.retrieve();
            if container.is_complete() && may_join() {
                complete.push((lane, container));
            } else if !container.is_finished() {
                break;
            }
            // A finished one is merged with the one behind it.
        }
        complete
    }

    /// Takes the watermarks of containers of a lane, oldest first, or a change of idleness (of
    /// none) into the joint watermark and sends a barrier to the cells if one is needed. False if
    /// there is nothing to wait for.
    pub(crate) fn begin_watermark(&self, consumed: &[(usize, Arc<Container>)]) -> bool {
        let operator = self.operator();
        let mut joint = operator.joint.lock().expect("no panic under the joint lock");
        let idle = |lane: usize| self.run.lanes[lane].is_idle();
        let mut advances = consumed.is_empty() && joint.watermark.advance(idle);
        let mut pass = advances.then(|| operator.passes(joint.watermark.watermark())).flatten();
        for (lane, container) in consumed {
            joint.watermark.raise(*lane, container.end());
            if joint.watermark.advance(idle) {
                advances = true;
                // Of several the last that is passed on: none is held back by one behind it.
                pass = operator.passes(joint.watermark.watermark()).or(pass);
            }
        }
        let must_pass_cells = operator.class == OperatorClass::Sequenced && !consumed.is_empty();
        if !advances && !must_pass_cells {
            return false;
        }
        let moves = if advances { Moves::Watermark(pass) } else { Moves::Nothing };
        // Of the oldest: what waited longest says how late results are.
        let ingest_ns = match consumed.first() {
            Some((_, container)) => container.end_ingest_ns(),
            None => self.job.now_ns(),
        };
        self.begin_barrier(&mut joint, consumed.to_vec(), ingest_ns, moves);
        true
    }

    /// Sends a barrier to the cells, or behind one that is under way.
    pub(super) fn begin_barrier(
        &self,
        joint: &mut Joint,
        consumed: Vec<(usize, Arc<Container>)>,
        ingest_ns: u64,
        moves: Moves,
    ) {
        let operator = self.operator();
        let (cells, make_outputs) = (operator.cells.len(), |cuts| self.make_outputs(cuts));
        let barrier = joint.barrier(consumed, ingest_ns, moves, cells, make_outputs);
        if let Some(barrier) = joint.barriers.begin(operator.phases, barrier) {
            self.post_barrier(&barrier);
        }
    }

    /// New containers at the main edges of an operator, behind this number of cuts.
    pub(crate) fn make_outputs(&self, cuts: u64) -> Vec<Arc<Container>> {
        #[cfg(feature = "baselines")]
        if self.job.ablated.is(Ablation::IgnoreEpochBoundaries) {
            // What partitions have made is kept apart by them, and no rows are put into them.
            let apart = || Arc::new(Container::new((0, cuts), 0, 1));
            return self.run.edges_of(0).map(|_| apart()).collect();
        }
        let lane = |edge: &Edge| &self.job.stages[edge.to.0].lanes[edge.lane_base];
        self.run.edges_of(0).map(|(_, edge)| lane(edge).append(cuts)).collect()
    }

    /// All cells have finished a barrier: completes it and any that wait behind it, in order.
    pub(crate) fn complete(&self, barrier: Arc<Barrier>) -> Result<()> {
        let completions = &self.operator().completions;
        let mut completions = completions.lock().expect("no panic under this lock");
        completions.add(barrier);
        while let Some(barrier) = completions.pop() {
            self.complete_in_order(&barrier, barrier.containers())?;
        }
        Ok(())
    }

    fn complete_in_order(&self, barrier: &Barrier, of: &BarrierContainers) -> Result<()> {
        let (operator, call) = (self.operator(), &barrier.call);
        let end = match (&call.cut, call.pass) {
            (Some(_), _) => End::Cut,
            (None, Some(watermark)) => End::Watermark(watermark),
            (None, None) => End::Merged,
        };
        if call.advances {
            self.note_watermark(call.watermark);
        }
        if call.advances || end == End::Cut {
            for ((_, edge), output) in self.run.edges_of(0).zip(&of.outputs) {
                self.close_output(edge, output, end, call.ingest_ns)?;
            }
        }
        if operator.phases > 1 {
            let mut joint = operator.joint.lock().expect("no panic under the joint lock");
            if let Some(next) = joint.barriers.end() {
                self.post_barrier(&next);
            }
        }
        for (lane, container) in &of.consumed {
            self.finish_container(*lane, container)?;
        }
        if let Some(cut) = &call.cut {
            // Before the lanes are let on, and with them the next cut.
            self.pass_cut(cut);
        }
        of.consumed.iter().try_for_each(|&(lane, _)| self.continue_lane(lane, call.cut.is_some()))
    }

    /// Closes an output container of a barrier that is complete.
    fn close_output(
        &self,
        edge: &Edge,
        output: &Container,
        end: End,
        ingest_ns: u64,
    ) -> Result<()> {
        #[cfg(feature = "baselines")]
        if self.job.ablated.is(Ablation::IgnoreEpochBoundaries) {
            return match end {
                End::Watermark(end) => self.close_open(edge, edge.lane_base, (end, ingest_ns)),
                // What is open stays open.
                End::Merged | End::Cut => Ok(()),
            };
        }
        self.close(edge, edge.lane_base, output, end, ingest_ns)
    }

    /// A barrier that came by a lane is complete.
    fn continue_lane(&self, lane: usize, is_cut: bool) -> Result<()> {
        let operator = self.operator();
        match operator.class {
            OperatorClass::Commuting => self.advance_commuting(lane),
            OperatorClass::Sequenced if operator.phases > 1 || is_cut => {
                operator.sequencers[lane].lock().expect("no panic under this lock").held = false;
                self.let_through(lane)
            }
            OperatorClass::Sequenced => Ok(()),
        }
    }

    /// A container's watermark is consumed: its late rows are complete, and it can go.
    pub(super) fn finish_container(&self, lane: usize, container: &Arc<Container>) -> Result<()> {
        self.close_links(lane, container, Some(1))?;
        container.mark_consumed();
        self.drop_finished(lane)
    }

    /// Takes a routed bundle: a `commuting` operator at once, a `sequenced` one in its turn.
    pub(crate) fn take_routed(
        &self,
        lane: usize,
        container: &Arc<Container>,
        routed: Routed,
    ) -> Result<()> {
        let operator = self.operator();
        if operator.class == OperatorClass::Commuting {
            self.scatter(lane, container, routed);
            return Ok(());
        }
        let mut sequencer = operator.sequencers[lane].lock().expect("no panic under this lock");
        let key = (container.index, routed.bundle.stamps.ordinal);
        let previous = sequencer.early.insert(key, routed);
        assert!(previous.is_none(), "two bundles with the same place");
        drop(sequencer);
        self.let_through(lane)
    }

    /// Sends to the cells whatever is next in the lane: bundles by ordinal, then the watermark.
    pub(super) fn let_through(&self, lane: usize) -> Result<()> {
        let operator = self.operator();
        let mut sequencer = operator.sequencers[lane].lock().expect("no panic under this lock");
        while !sequencer.held {
            let next = self.run.lanes[lane].at_or_after(sequencer.container);
            let Some(container) = next else { break };
            if let Some(routed) = sequencer.next(container.index) {
                self.scatter(lane, &container, routed);
                continue;
            }
            match container.state() {
                ContainerState::WatermarkAssigned if container.total() == sequencer.ordinal => {
                    assert!(container.retrieve(), "only the sequencer retrieves here");
                    sequencer.held = operator.phases > 1 || container.is_cut();
                    if container.is_cut() {
                        sequencer.finish_container();
                        drop(sequencer);
                        return self.reach_cut(lane, container);
                    }
                    let waits = self.begin_watermark(&[(lane, container)]);
                    assert!(waits, "a sequenced operator's watermark passes its cells");
                }
                ContainerState::WatermarkCancelled if container.total() == sequencer.ordinal => {
                    self.drop_finished(lane)?;
                }
                _ => break,
            }
            sequencer.finish_container();
        }
        Ok(())
    }

    /// Posts the shares of a bundle to their cells.
    fn scatter(&self, lane: usize, container: &Arc<Container>, routed: Routed) {
        let Routed { bundle, route, bytes } = routed;
        let bundle = Arc::new(bundle);
        let (ordinal, workers) = (bundle.stamps.ordinal as usize, self.job.settings.workers);
        let local = self.operator().local_of(&route, ordinal, workers);
        let post = |share: Share, bytes: usize| {
            let (bundle, container) = (Arc::clone(&bundle), Arc::clone(container));
            let of = RowsOrigin::Container { bundle, lane, container, bytes };
            let cell = share.partition;
            self.post(cell, Item::Rows(RowsItem::new(of, share, self.run.lanes.len())));
        };
        let count = route.num_shares();
        if count == 0 {
            // An empty bundle still has its place; the first cell takes it.
            return post(Share { partition: 0, rows: Some(Vec::new()), is_local: false }, bytes);
        }
        container.split_into(count);
        for (number, share) in route.shares(local).enumerate() {
            post(share, if number == 0 { bytes } else { 0 });
        }
    }

    // --- results ---

    /// Results of the rows of a bundle, or of the clock: they belong to the epoch that the cell is
    /// in. Those of rows wait for those of other cells.
    pub(crate) fn emit_of_cell(
        &self,
        made: (Vec<Emitted>, usize),
        state: &CellState,
        from: Option<(usize, &Arc<Container>)>,
        cause: Option<&Stamps>,
        worker: WorkerPlace,
    ) -> Result<()> {
        let (ingest_ns, serial) = match cause {
            Some(cause) => (cause.ingest_ns, cause.serial),
            None => (self.job.now_ns(), 0),
        };
        let stamps = derived_stamps(ingest_ns, serial, state.passed, worker);
        let waits = cause.is_some() && self.operator().cells.len() > 1;
        self.emit(made, &state.outputs, from, (&stamps, cause), (MadeOf::Rows, waits))
    }

    /// Results of a watermark. They wait for those of other cells if they may.
    pub(crate) fn emit_of_watermark(
        &self,
        made: (Vec<Emitted>, usize),
        barrier: &Barrier,
        may_wait: bool,
        worker: WorkerPlace,
    ) -> Result<()> {
        let (call, of) = (&barrier.call, barrier.containers());
        let stamps = derived_stamps(call.ingest_ns, call.sequence, call.passed_before, worker);
        let from = of.consumed.first().map(|(lane, container)| (*lane, container));
        self.emit(made, &of.outputs, from, (&stamps, None), (MadeOf::Watermark, may_wait))
    }

    /// Hands on what a partition emitted. Port 0 goes to `outputs` (one container per main edge),
    /// port 1 to the container that hangs on `from`. Changes come behind the watermarks of the rows
    /// that cause them.
    fn emit(
        &self,
        (emitted, bytes): (Vec<Emitted>, usize),
        outputs: &[Arc<Container>],
        from: Option<(usize, &Arc<Container>)>,
        (stamps, cause): (&Stamps, Option<&Stamps>),
        (made_of, may_wait): (MadeOf, bool),
    ) -> Result<()> {
        if emitted.is_empty() {
            return Ok(());
        }
        let WatermarkBefore::All(passed) = stamps.watermark_before else {
            unreachable!("derived rows have one watermark")
        };
        let mut results = Vec::with_capacity(emitted.len());
        for Emitted { port, batch, kinds, place } in emitted {
            let mut stamps = stamps.clone();
            if let (Some(_), Place::Caused(rows), Some(cause)) = (&kinds, &place, cause) {
                stamps.watermark_before = cause.watermark_before.take(rows).raised_to(passed);
            }
            let bundle = Bundle { batch, kinds, stamps };
            if port == 0 {
                results.push(WaitingResult { made_of, outputs: outputs.to_vec(), bundle });
            } else if let Some((lane, container)) = from {
                self.deposit_by_port(port, lane, container, &bundle)?;
            }
        }
        let is_due = self.operator().waiting.add(results, bytes);
        if is_due || !may_wait { self.send_waiting(None) } else { Ok(()) }
    }

    /// Puts rows that leave by another port than the main one into the containers that hang on the
    /// one that they came from.
    fn deposit_by_port(
        &self,
        port: usize,
        lane: usize,
        container: &Arc<Container>,
        bundle: &Bundle,
    ) -> Result<()> {
        for (place, edge) in self.run.edges_of(port) {
            let linked = self.linked(lane, container, place);
            self.deposit(edge, edge.lane_base + lane, &linked, bundle.clone(), false)?;
        }
        Ok(())
    }

    /// Puts the results that wait for these containers into them, or all.
    pub(crate) fn send_waiting(&self, outputs: Option<&[Arc<Container>]>) -> Result<()> {
        self.operator().waiting.send(outputs, |WaitingResult { outputs, bundle, .. }| {
            for ((_, edge), output) in self.run.edges_of(0).zip(&outputs) {
                #[cfg(feature = "baselines")]
                if self.job.ablated.is(Ablation::IgnoreEpochBoundaries) {
                    self.deposit_into_open(edge, edge.lane_base, bundle.clone())?;
                    continue;
                }
                self.deposit(edge, edge.lane_base, output, bundle.clone(), false)?;
            }
            Ok(())
        })
    }

    /// A cell has taken its share of a bundle, and what it made is on its way or waits.
    pub(crate) fn finish_share(
        &self,
        bundle: Arc<Bundle>,
        (lane, container, bytes): (usize, &Container, usize),
    ) -> Result<()> {
        // Of all cells that have a share one finds that it is the last.
        let is_last = Arc::into_inner(bundle).is_some();
        if is_last && self.operator().cells.len() > 1 && self.operator().waiting.has_of_rows() {
            self.send_waiting(None)?;
        }
        self.consume(lane, container, bytes)
    }
}

/// Stamps for rows that an operator derives.
fn derived_stamps(ingest_ns: u64, serial: u64, passed: Watermark, worker: WorkerPlace) -> Stamps {
    Stamps {
        serial,
        numa_node: worker.numa_node as u16,
        ingest_ns,
        watermark_before: WatermarkBefore::All(passed),
        ..Stamps::first()
    }
}
