//! How bundles and watermarks move from container to container.
//!
//! Rules kept here:
//! - what is derived from container C goes to C's container downstream;
//! - a bundle is consumed only after all it led to is deposited;
//! - whoever consumes the last bundle, or closes a container that has none left, carries the
//!   watermark on at once (`Job::advance`); nobody waits for it.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use thalweg_core::operator::Emitted;
use thalweg_core::{Bundle, OperatorClass, Result, Route, Stamps, Watermark, WatermarkBefore};
use thalweg_ordering::sync::{Arc, Ordering};

#[cfg(feature = "baselines")]
use crate::ablation::Ablation;
use crate::barrier::{Barrier, BarrierRequest};
use crate::container::{Container, ContainerState};
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::stage::{
    Cell, Edge, Item, OperatorRun, Routed, RowsItem, SinkBatch, SinkMessage, SinkRun, StageRunKind,
};

impl Job {
    /// Puts a bundle into a container of the stage that an edge leads to. The ordinal is given
    /// here unless the bundle keeps the one it has.
    pub(crate) fn deposit(
        &self,
        from: usize,
        edge: &Edge,
        lane: usize,
        container: &Arc<Container>,
        mut bundle: Bundle,
        keep_ordinal: bool,
    ) -> Result<()> {
        let place = container.count_in();
        if !keep_ordinal {
            // With the ordinal the place in the lane's sequence, which some aggregates go by.
            bundle.stamps.epoch = container.index;
            bundle.stamps.ordinal = place;
        }
        self.deposit_counted(from, edge, lane, container, bundle)
    }

    /// The same for a bundle that is counted in and has its place.
    pub(crate) fn deposit_counted(
        &self,
        from: usize,
        edge: &Edge,
        lane: usize,
        container: &Arc<Container>,
        mut bundle: Bundle,
    ) -> Result<()> {
        bundle.stamps.lane = lane as u32;
        let bytes = bundle.memory_bytes();
        self.memory.add_in_flight(bytes as i64);
        let metrics = &self.stages[from].metrics;
        StageMetrics::add(&metrics.rows_out, bundle.num_rows() as u64);
        StageMetrics::add(&metrics.bundles_out, 1);
        StageMetrics::add(&metrics.bytes_out, bytes as u64);
        let stage = &self.stages[edge.to.0];
        if let StageRunKind::Sink(sink) = &stage.kind {
            let batch = SinkBatch {
                bytes,
                ingest_ns: bundle.stamps.ingest_ns,
                batch: bundle.batch,
                kinds: bundle.kinds,
            };
            return self.offer_to_sink(
                edge.to.0,
                sink,
                lane,
                container,
                bundle.stamps.ordinal,
                batch,
            );
        }
        stage.metrics.queued.fetch_add(1, Ordering::Relaxed);
        container.put(bundle);
        self.news.notify();
        Ok(())
    }

    /// One bundle (or piece) of a container is consumed.
    pub(crate) fn consume(
        &self,
        stage: usize,
        lane: usize,
        container: &Container,
        bytes: usize,
    ) -> Result<()> {
        self.memory.add_in_flight(-(bytes as i64));
        if container.consume_one() {
            self.advance(stage, lane)?;
        }
        Ok(())
    }

    /// Closes a container and carries its watermark on as far as it goes.
    pub(crate) fn close(
        &self,
        edge: &Edge,
        lane: usize,
        container: &Container,
        end: Option<Watermark>,
        ingest_ns: u64,
    ) -> Result<()> {
        container.close(end, ingest_ns);
        #[cfg(feature = "baselines")]
        self.release_epoch();
        self.advance(edge.to.0, lane)
    }

    /// Consumes every end watermark of a lane that can be consumed now.
    pub(crate) fn advance(&self, stage: usize, lane: usize) -> Result<()> {
        let run = &self.stages[stage];
        match &run.kind {
            StageRunKind::Source(_) => unreachable!("a source has no input lanes"),
            StageRunKind::Transform(_) => self.advance_transform(stage, lane),
            StageRunKind::Operator(operator) => match operator.class {
                OperatorClass::Commuting => self.advance_commuting(stage, operator, lane),
                OperatorClass::Sequenced => self.let_through(stage, operator, lane),
            },
            StageRunKind::Sink(sink) => self.let_through_sink(stage, sink, lane),
        }
    }

    fn advance_transform(&self, stage: usize, lane: usize) -> Result<()> {
        let run = &self.stages[stage];
        while let Some(front) = self.ready_front(stage, lane)? {
            if !front.retrieve() {
                return Ok(());
            }
            let end = front.end();
            run.metrics.set_watermark(end);
            #[cfg(feature = "baselines")]
            if self.ablated.is(Ablation::IgnoreEpochBoundaries) {
                self.close_open(stage, lane, end, front.end_ingest_ns())?;
                front.mark_consumed();
                self.drop_finished(stage, lane)?;
                continue;
            }
            self.close_links(stage, lane, &front, None)?;
            front.mark_consumed();
            self.drop_finished(stage, lane)?;
        }
        Ok(())
    }

    /// The oldest container of a lane if its end watermark can be consumed now: it is assigned and
    /// every bundle is consumed. Finished containers in front of it are dropped on the way.
    fn ready_front(&self, stage: usize, lane: usize) -> Result<Option<Arc<Container>>> {
        while let Some(front) = self.stages[stage].lanes[lane].front() {
            match front.state() {
                ContainerState::WatermarkAssigned if front.unconsumed() == 0 => {
                    return Ok(Some(front));
                }
                _ if front.is_finished() => self.drop_finished(stage, lane)?,
                _ => break,
            }
        }
        Ok(None)
    }

    /// Drops the finished containers of a lane. What hangs on a merged one is complete too, and
    /// nobody else would close it.
    fn drop_finished(&self, stage: usize, lane: usize) -> Result<()> {
        let run = &self.stages[stage];
        let dropped = run.lanes[lane].drop_finished();
        #[cfg(feature = "baselines")]
        self.release_epoch();
        let is_merged = |c: &&Arc<Container>| c.state() == ContainerState::WatermarkCancelled;
        for container in dropped.iter().filter(is_merged) {
            for (place, edge) in run.edges.iter().enumerate() {
                if let Some(linked) = container.down[place].get() {
                    let ingest_ns = container.end_ingest_ns();
                    self.close(edge, edge.lane_base + lane, linked, None, ingest_ns)?;
                }
            }
        }
        Ok(())
    }

    /// Closes the containers that hang on a container's links (those of one port, or all).
    fn close_links(
        &self,
        stage: usize,
        lane: usize,
        container: &Arc<Container>,
        port: Option<usize>,
    ) -> Result<()> {
        let run = &self.stages[stage];
        for (place, edge) in run.edges.iter().enumerate() {
            if port.is_some_and(|port| port != edge.port) {
                continue;
            }
            let down_lane = edge.lane_base + lane;
            let down = &self.stages[edge.to.0].lanes[down_lane];
            let linked = run.lanes[lane].link(container, place, down);
            self.close(edge, down_lane, &linked, Some(container.end()), container.end_ingest_ns())?;
        }
        Ok(())
    }

    // --- operators ---

    fn advance_commuting(&self, stage: usize, operator: &OperatorRun, lane: usize) -> Result<()> {
        while let Some(front) = self.ready_front(stage, lane)? {
            if !front.retrieve() {
                return Ok(());
            }
            if self.begin_watermark(stage, operator, Some((lane, Arc::clone(&front)))) {
                // The barrier's completion continues from here.
                return Ok(());
            }
            self.finish_container(stage, lane, &front)?;
        }
        Ok(())
    }

    /// Takes the watermark of a container (or a change of idleness) into the joint watermark and
    /// sends a barrier to the cells if one is needed. False if there is nothing to wait for.
    pub(crate) fn begin_watermark(
        &self,
        stage: usize,
        operator: &OperatorRun,
        container: Option<(usize, Arc<Container>)>,
    ) -> bool {
        let run = &self.stages[stage];
        let mut joint = operator.joint.lock().expect("no panic under the joint lock");
        if let Some((lane, container)) = &container {
            joint.watermark.raise(*lane, container.end());
        }
        let idle = |lane: usize| run.lanes[lane].idle.load(Ordering::Relaxed);
        let advances = joint.watermark.advance(idle);
        let must_pass_cells = operator.class == OperatorClass::Sequenced && container.is_some();
        if !advances && !must_pass_cells {
            return false;
        }
        let watermark = joint.watermark.watermark();
        let pass = match watermark {
            _ if !advances => None,
            Watermark::END => Some(Watermark::END),
            watermark => operator.operator.output_watermark(watermark),
        };
        let ingest_ns = match &container {
            Some((_, container)) => container.end_ingest_ns(),
            None => self.options.clock.now_ns(),
        };
        let request = BarrierRequest { container, ingest_ns };
        let barrier = joint
            .barrier(request, advances, pass, operator.cells.len(), || self.make_outputs(stage));
        if operator.phases > 1 && joint.busy {
            joint.waiting.push_back(barrier);
        } else {
            joint.busy = true;
            self.post_barrier(stage, operator, &barrier);
        }
        true
    }

    /// New containers at the main edges of an operator.
    pub(crate) fn make_outputs(&self, stage: usize) -> Vec<Arc<Container>> {
        let edges = self.stages[stage].edges_of(0);
        edges.map(|(_, edge)| self.stages[edge.to.0].lanes[edge.lane_base].append()).collect()
    }

    pub(crate) fn post_barrier(
        &self,
        stage: usize,
        operator: &OperatorRun,
        barrier: &Arc<Barrier>,
    ) {
        for cell in 0..operator.cells.len() {
            self.post_barrier_to(stage, operator, cell, barrier);
        }
    }

    pub(crate) fn post_barrier_to(
        &self,
        stage: usize,
        operator: &OperatorRun,
        place: usize,
        barrier: &Arc<Barrier>,
    ) {
        let cell = &operator.cells[place];
        cell.barriers.fetch_add(1, Ordering::Relaxed);
        self.post(stage, place, cell, Item::Barrier(Arc::clone(barrier)));
    }

    /// Starts the next phase of a barrier at every cell.
    pub(crate) fn repost_barrier(
        &self,
        stage: usize,
        operator: &OperatorRun,
        barrier: &Arc<Barrier>,
    ) {
        self.post_barrier(stage, operator, barrier);
    }

    /// Puts an item into a cell's mailbox and lists the cell if it was idle.
    pub(crate) fn post(&self, stage: usize, place: usize, cell: &Cell, item: Item) {
        if !matches!(item, Item::Barrier(_) | Item::Tick) {
            self.stages[stage].metrics.posted.fetch_add(1, Ordering::Relaxed);
        }
        if self.calls_cells() {
            cell.mailbox.add(item);
            self.ready.list(stage, place);
            self.news.notify();
        } else if cell.mailbox.post(item) {
            self.list_cell(stage, place, cell);
        }
    }

    /// Lists a cell that the caller owns for some worker to continue with.
    pub(crate) fn list_cell(&self, stage: usize, place: usize, cell: &Cell) {
        // Relaxed: a hint about urgency; a cell in the wrong list is handled all the same.
        let is_urgent = cell.barriers.load(Ordering::Relaxed) > 0;
        #[cfg(feature = "baselines")]
        let is_urgent = is_urgent && !self.ablated.is(Ablation::NoPriority);
        if self.calls_cells() || is_urgent {
            self.urgent.list(stage, place);
        } else {
            self.ready.list(stage, place);
        }
        self.news.notify();
    }

    /// All cells have finished a barrier: completes it and any that wait behind it, in order.
    pub(crate) fn complete(
        &self,
        stage: usize,
        operator: &OperatorRun,
        barrier: Arc<Barrier>,
    ) -> Result<()> {
        let mut completions = operator.completions.lock().expect("no panic under this lock");
        completions.add(barrier);
        while let Some(barrier) = completions.pop() {
            self.complete_in_order(stage, operator, &barrier)?;
        }
        Ok(())
    }

    fn complete_in_order(
        &self,
        stage: usize,
        operator: &OperatorRun,
        barrier: &Barrier,
    ) -> Result<()> {
        let run = &self.stages[stage];
        if barrier.advances {
            self.note_watermark(stage, barrier.watermark);
            for ((_, edge), output) in run.edges_of(0).zip(&barrier.outputs) {
                self.close(edge, edge.lane_base, output, barrier.pass, barrier.ingest_ns)?;
            }
        }
        if operator.phases > 1 {
            let mut joint = operator.joint.lock().expect("no panic under the joint lock");
            match joint.waiting.pop_front() {
                Some(next) => self.post_barrier(stage, operator, &next),
                None => joint.busy = false,
            }
        }
        let Some((lane, container)) = &barrier.container else { return Ok(()) };
        self.finish_container(stage, *lane, container)?;
        match operator.class {
            OperatorClass::Commuting => self.advance_commuting(stage, operator, *lane),
            OperatorClass::Sequenced if operator.phases > 1 => {
                operator.sequencers[*lane].lock().expect("no panic under this lock").held = false;
                self.let_through(stage, operator, *lane)
            }
            OperatorClass::Sequenced => Ok(()),
        }
    }

    /// A container's watermark is consumed: its late rows are complete, and it can go.
    fn finish_container(
        &self,
        stage: usize,
        lane: usize,
        container: &Arc<Container>,
    ) -> Result<()> {
        self.close_links(stage, lane, container, Some(1))?;
        container.mark_consumed();
        self.drop_finished(stage, lane)
    }

    // --- sequenced operators ---

    /// Offers a routed bundle to the sequencer of its lane and lets through what is in order.
    pub(crate) fn offer(
        &self,
        stage: usize,
        operator: &OperatorRun,
        lane: usize,
        container: &Container,
        routed: Routed,
    ) -> Result<()> {
        let mut sequencer = operator.sequencers[lane].lock().expect("no panic under this lock");
        let key = (container.index, routed.bundle.stamps.ordinal);
        let previous = sequencer.early.insert(key, routed);
        assert!(previous.is_none(), "two bundles with the same place");
        drop(sequencer);
        self.let_through(stage, operator, lane)
    }

    /// Sends to the cells whatever is next in the lane: bundles by ordinal, then the watermark.
    fn let_through(&self, stage: usize, operator: &OperatorRun, lane: usize) -> Result<()> {
        let run = &self.stages[stage];
        let mut sequencer = operator.sequencers[lane].lock().expect("no panic under this lock");
        while !sequencer.held {
            let Some(container) = run.lanes[lane].at_or_after(sequencer.container) else { break };
            sequencer.go_to(container.index);
            let key = (sequencer.container, sequencer.ordinal);
            if let Some(routed) = sequencer.early.remove(&key) {
                sequencer.ordinal += 1;
                self.scatter(stage, operator, lane, &container, routed);
                continue;
            }
            match container.state() {
                ContainerState::WatermarkAssigned if container.total() == sequencer.ordinal => {
                    assert!(container.retrieve(), "only the sequencer retrieves here");
                    sequencer.held = operator.phases > 1;
                    let waits = self.begin_watermark(stage, operator, Some((lane, container)));
                    assert!(waits, "a sequenced operator's watermark passes its cells");
                }
                ContainerState::WatermarkCancelled if container.total() == sequencer.ordinal => {
                    self.drop_finished(stage, lane)?;
                }
                _ => break,
            }
            sequencer.container += 1;
            sequencer.ordinal = 0;
        }
        Ok(())
    }

    /// Posts the pieces of a bundle to their cells.
    pub(crate) fn scatter(
        &self,
        stage: usize,
        operator: &OperatorRun,
        lane: usize,
        container: &Arc<Container>,
        routed: Routed,
    ) {
        let Routed { bundle, route, bytes } = routed;
        let bundle = Arc::new(bundle);
        let item = |rows: Option<Vec<u32>>, bytes: usize| {
            let (bundle, container) = (Arc::clone(&bundle), Arc::clone(container));
            Item::Rows(RowsItem { bundle, rows, lane, container, bytes, taken: 0 })
        };
        let pieces: Vec<(usize, Option<Vec<u32>>)> = match route {
            Route::Any => vec![(0, None)],
            Route::Scatter(parts) if parts.len() == 1 => vec![(0, None)],
            Route::Scatter(parts) => {
                let parts = parts.into_iter().enumerate();
                parts
                    .filter(|(_, rows)| !rows.is_empty())
                    .map(|(p, rows)| (p, Some(rows)))
                    .collect()
            }
        };
        if pieces.is_empty() {
            // An empty bundle still has its place; the first cell takes it.
            self.post(stage, 0, &operator.cells[0], item(Some(Vec::new()), bytes));
            return;
        }
        container.split_into(pieces.len());
        for (n, (place, rows)) in pieces.into_iter().enumerate() {
            let bytes = if n == 0 { bytes } else { 0 };
            self.post(stage, place, &operator.cells[place], item(rows, bytes));
        }
    }

    /// Puts what a partition emitted into the containers downstream. Port 0 goes to `outputs`
    /// (one container per main edge), port 1 to the container that hangs on `from`.
    pub(crate) fn emit(
        &self,
        stage: usize,
        emitted: Vec<Emitted>,
        outputs: &[Arc<Container>],
        from: Option<(usize, &Arc<Container>)>,
        stamps: &Stamps,
    ) -> Result<()> {
        let run = &self.stages[stage];
        for Emitted { port, batch, kinds, .. } in coalesce(emitted)? {
            let bundle = Bundle { batch, kinds, stamps: stamps.clone() };
            if port == 0 {
                for ((_, edge), output) in run.edges_of(0).zip(outputs) {
                    self.deposit(stage, edge, edge.lane_base, output, bundle.clone(), false)?;
                }
                continue;
            }
            let Some((lane, container)) = from else { continue };
            for (place, edge) in run.edges_of(port) {
                let down_lane = edge.lane_base + lane;
                let down = &self.stages[edge.to.0].lanes[down_lane];
                let linked = run.lanes[lane].link(container, place, down);
                self.deposit(stage, edge, down_lane, &linked, bundle.clone(), false)?;
            }
        }
        Ok(())
    }

    /// Stamps for rows that an operator derives.
    pub(crate) fn derived_stamps(
        &self,
        ingest_ns: u64,
        serial: u64,
        passed: Watermark,
        numa_node: usize,
    ) -> Stamps {
        Stamps {
            lane: 0,
            epoch: 0,
            ordinal: 0,
            serial,
            numa_node: numa_node as u16,
            ingest_ns,
            watermark_before: WatermarkBefore::All(passed),
            origin: None,
            time_extremes: None,
            row_places: None,
        }
    }

    // --- sinks ---

    fn offer_to_sink(
        &self,
        stage: usize,
        sink: &SinkRun,
        lane: usize,
        container: &Arc<Container>,
        ordinal: u64,
        batch: SinkBatch,
    ) -> Result<()> {
        let mut sequencer = sink.sequencers[lane].lock().expect("no panic under this lock");
        sequencer.early.insert((container.index, ordinal), batch);
        drop(sequencer);
        self.let_through_sink(stage, sink, lane)
    }

    /// Hands to the sink's thread whatever is next in the lane.
    fn let_through_sink(&self, stage: usize, sink: &SinkRun, lane: usize) -> Result<()> {
        let run = &self.stages[stage];
        let mut sequencer = sink.sequencers[lane].lock().expect("no panic under this lock");
        while let Some(container) = run.lanes[lane].at_or_after(sequencer.container) {
            sequencer.go_to(container.index);
            let key = (sequencer.container, sequencer.ordinal);
            if let Some(batch) = sequencer.early.remove(&key) {
                sequencer.ordinal += 1;
                StageMetrics::add(&run.metrics.rows_in, batch.batch.num_rows() as u64);
                StageMetrics::add(&run.metrics.bundles_in, 1);
                self.send_to_sink(stage, sink, SinkMessage::Rows(batch))?;
                // The loop looks at the state itself, whoever is last.
                let _ = container.consume_one();
                continue;
            }
            let complete = match container.state() {
                ContainerState::Open => false,
                _ => container.total() == sequencer.ordinal,
            };
            if !complete {
                break;
            }
            let ends =
                container.state() == ContainerState::WatermarkAssigned && container.retrieve();
            if ends {
                run.metrics.set_watermark(container.end());
                container.mark_consumed();
            }
            self.drop_finished(stage, lane)?;
            sequencer.container += 1;
            sequencer.ordinal = 0;
            let is_last = ends && container.end() == Watermark::END;
            // AcqRel: the lane that ends last sees that the others have sent all they had.
            if is_last && sink.open_lanes.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.send_to_sink(stage, sink, SinkMessage::Finish)?;
            }
        }
        Ok(())
    }
}

/// Puts small batches that one call emitted by the same port together, so that a watermark which
/// closes many small windows sends few bundles downstream. Large ones are bundles as they are:
/// copying them costs more than a bundle does. Changelogs keep their batches.
fn coalesce(emitted: Vec<Emitted>) -> Result<Vec<Emitted>> {
    let mut together: Vec<(Emitted, Vec<RecordBatch>)> = Vec::new();
    for next in emitted {
        let rows_of =
            |batches: &[RecordBatch]| -> usize { batches.iter().map(RecordBatch::num_rows).sum() };
        match together.iter_mut().rfind(|(first, _)| first.port == next.port) {
            Some((first, batches))
                if first.kinds.is_none()
                    && next.kinds.is_none()
                    && first.batch.num_rows().max(next.batch.num_rows()) < COALESCED_ROWS_MIN
                    && next.batch.num_rows() + rows_of(batches) <= COALESCED_ROWS_MAX =>
            {
                batches.push(next.batch);
            }
            _ => {
                let batches = vec![next.batch.clone()];
                together.push((next, batches));
            }
        }
    }
    let join = |(mut first, batches): (Emitted, Vec<RecordBatch>)| {
        if batches.len() > 1 {
            first.batch = concat_batches(batches[0].schema_ref(), &batches)?;
        }
        Ok(first)
    };
    together.into_iter().map(join).collect()
}

/// Batches of this many rows are not small: they are bundles as they are, also where cells leave
/// few results with a barrier.
pub(crate) const COALESCED_ROWS_MIN: usize = 1024;

/// The largest bundle that is put together from small results.
const COALESCED_ROWS_MAX: usize = 64 * 1024;
