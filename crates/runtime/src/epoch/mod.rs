//! The flow of the contract `epoch`: bundles and watermarks move from container to container.
//!
//! Rules kept here:
//! - what is derived from container C goes to C's container downstream;
//! - a bundle is consumed only after all it led to is deposited;
//! - whoever consumes the last bundle, or closes a container that has none left, carries the
//!   watermark on at once ([`EpochStage::advance`]); nobody waits for it.
//!
//! | module | holds |
//! |---|---|
//! | this one | deposit, consume, close; stateless stages; the order in which a sink gets its rows |
//! | `parts` | stateless stages that make many rows of one |
//! | `operators` | bundles and watermarks on their way through partitions, and their results |
//! | `small_results` | small results of partitions become one bundle |
//! | `cuts` | the cut of a snapshot at an operator or a sink |
//! | `idleness` | lanes that are not waited for |

use std::ops::Deref;

use thalweg_core::{Bundle, OperatorClass, Result, Transform, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::container::{Container, ContainerState, End};
use crate::job::{Job, StageAt};
#[cfg(feature = "baselines")]
use crate::policies::Ablation;
use crate::returned::Home;
use crate::sinks;
use crate::stage::{Edge, OperatorRun, SinkBatch, SinkMessage, SinkRun, SourceState, StageRunKind};
use crate::topology::WorkerPlace;
use crate::transforms::{apply_transform, without_rows};

mod cuts;
mod idleness;
mod operators;
mod parts;
pub(crate) mod small_results;

pub(crate) use idleness::spread_idleness;

/// A stage in this flow.
#[derive(Clone, Copy)]
pub(crate) struct EpochStage<'a>(StageAt<'a>);

impl<'a> Deref for EpochStage<'a> {
    type Target = StageAt<'a>;
    fn deref(&self) -> &StageAt<'a> {
        &self.0
    }
}

impl<'a> EpochStage<'a> {
    /// The stage at this place.
    pub(crate) fn of(job: &'a Job, place: usize) -> Self {
        EpochStage(job.at(place))
    }

    /// Where an edge leads.
    fn downstream(&self, edge: &Edge) -> Self {
        Self::of(self.job, edge.to.0)
    }

    fn operator(&self) -> &'a OperatorRun {
        self.run.operator().expect("the stage is an operator")
    }

    /// The container downstream of `container` by the edge at this place, with its lane there.
    fn linked(&self, lane: usize, container: &Arc<Container>, edge: usize) -> Arc<Container> {
        let Edge { to, lane_base, .. } = self.run.edges[edge];
        let down = &self.job.stages[to.0].lanes[lane_base + lane];
        self.run.lanes[lane].link(container, edge, down)
    }

    // --- from sources ---

    /// A bundle of a source goes to its open containers, and the epoch ends where the watermark
    /// crosses a time that matters.
    pub(crate) fn ingest(&self, state: &mut SourceState, bundle: Bundle) -> Result<()> {
        for (place, edge) in self.run.edges.iter().enumerate() {
            let down = &self.job.stages[edge.to.0].lanes[edge.lane_base];
            let container = state.current[place].get_or_insert_with(|| down.append(state.cuts));
            self.deposit(edge, edge.lane_base, container, bundle.clone(), false)?;
        }
        self.end_epoch_if_due(state)
    }

    /// The watermark may have crossed a time that matters.
    pub(crate) fn end_epoch_if_due(&self, state: &mut SourceState) -> Result<()> {
        match state.take_watermark() {
            Some(watermark) => self.end_epoch(state, watermark),
            None => Ok(()),
        }
    }

    /// Ends the epoch of a source.
    pub(crate) fn end_epoch(&self, state: &mut SourceState, end: Watermark) -> Result<()> {
        state.epoch += 1;
        self.close_current(state, End::Watermark(end))
    }

    /// A source places a cut behind what it has sent, wherever its epoch is.
    pub(crate) fn ingest_cut(&self, state: &mut SourceState) -> Result<()> {
        self.close_current(state, End::Cut)?;
        state.cuts += 1;
        Ok(())
    }

    fn close_current(&self, state: &mut SourceState, end: End) -> Result<()> {
        for (place, edge) in self.run.edges.iter().enumerate() {
            let down = &self.job.stages[edge.to.0].lanes[edge.lane_base];
            let current = state.current[place].take();
            let container = current.unwrap_or_else(|| down.append(state.cuts));
            self.close(edge, edge.lane_base, &container, end, state.ingest_ns)?;
        }
        Ok(())
    }

    // --- from container to container ---

    /// Puts a bundle into a container of the stage that an edge leads to. The ordinal is given
    /// here unless the bundle keeps the one it has.
    fn deposit(
        &self,
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
        self.deposit_counted(edge, lane, container, bundle)
    }

    /// The same for a bundle that is counted in and has its place.
    fn deposit_counted(
        &self,
        edge: &Edge,
        lane: usize,
        container: &Arc<Container>,
        mut bundle: Bundle,
    ) -> Result<()> {
        bundle.stamps.lane = lane as u32;
        let bytes = bundle.memory_bytes();
        self.count_out(edge, std::slice::from_ref(&bundle), bytes);
        let down = self.downstream(edge);
        if let StageRunKind::Sink(sink) = &down.run.kind {
            return down.offer_to_sink(sink, lane, container, bundle, bytes);
        }
        down.run.metrics.queued.fetch_add(1, Ordering::Relaxed);
        if let Some(memory) = &self.job.settings.numa_memory
            && let Some(node) = memory.node_of(&bundle.batch)
        {
            bundle.stamps.numa_node = node as u16;
        }
        container.put(bundle);
        self.job.news.notify();
        Ok(())
    }

    /// One bundle (or piece) of a container is consumed.
    pub(crate) fn consume(&self, lane: usize, container: &Container, bytes: usize) -> Result<()> {
        self.job.memory.add_in_flight(-(bytes as i64));
        if container.consume_one() { self.advance(lane) } else { Ok(()) }
    }

    /// Closes a container and carries its watermark on as far as it goes.
    fn close(
        &self,
        edge: &Edge,
        lane: usize,
        container: &Container,
        end: End,
        ingest_ns: u64,
    ) -> Result<()> {
        container.close(end, ingest_ns);
        #[cfg(feature = "baselines")]
        if let End::Watermark(end) = end {
            self.job.ablated.note_end(edge.to.0, lane, end);
        }
        #[cfg(feature = "baselines")]
        self.job.ablated.release_epoch(&self.job.news);
        self.downstream(edge).advance(lane)
    }

    /// Consumes every end watermark of a lane that can be consumed now.
    fn advance(&self, lane: usize) -> Result<()> {
        match &self.run.kind {
            StageRunKind::Source(_) => unreachable!("a source has no input lanes"),
            StageRunKind::Transform(_) => self.advance_stateless(lane),
            StageRunKind::Operator(operator) => match operator.class {
                OperatorClass::Commuting => self.advance_commuting(lane),
                OperatorClass::Sequenced => self.let_through(lane),
            },
            StageRunKind::Sink(sink) => self.let_through_sink(sink, lane),
        }
    }

    /// The oldest container of a lane if its end watermark can be consumed now: it is assigned and
    /// every bundle is consumed. The caller then consumes it, and nobody else does. Finished
    /// containers in front of it are dropped on the way.
    fn retrieve_front(&self, lane: usize) -> Result<Option<Arc<Container>>> {
        while let Some(front) = self.run.lanes[lane].front() {
            if front.is_complete() {
                return Ok(front.retrieve().then_some(front));
            }
            if !front.is_finished() {
                break;
            }
            self.drop_finished(lane)?;
        }
        Ok(None)
    }

    /// Drops the finished containers of a lane. What hangs on a merged one is complete too, and
    /// nobody else would close it.
    fn drop_finished(&self, lane: usize) -> Result<()> {
        let dropped = self.run.lanes[lane].drop_finished();
        #[cfg(feature = "baselines")]
        self.job.ablated.release_epoch(&self.job.news);
        let is_merged = |c: &&Arc<Container>| c.state() == ContainerState::WatermarkCancelled;
        for container in dropped.iter().filter(is_merged) {
            for (place, edge) in self.run.edges.iter().enumerate() {
                if let Some(linked) = container.down[place].get() {
                    let ingest_ns = container.end_ingest_ns();
                    self.close(edge, edge.lane_base + lane, linked, End::Merged, ingest_ns)?;
                }
            }
        }
        Ok(())
    }

    /// Closes the containers that hang on a container's links (those of one port, or all).
    fn close_links(
        &self,
        lane: usize,
        container: &Arc<Container>,
        port: Option<usize>,
    ) -> Result<()> {
        for (place, edge) in self.run.edges.iter().enumerate() {
            if port.is_some_and(|port| port != edge.port) {
                continue;
            }
            let linked = self.linked(lane, container, place);
            let (end, ingest_ns) = (container.ended_by(), container.end_ingest_ns());
            self.close(edge, edge.lane_base + lane, &linked, end, ingest_ns)?;
        }
        Ok(())
    }

    // --- stateless stages ---

    /// Applies a bundle.
    pub(crate) fn transform(
        &self,
        transform: &dyn Transform,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        worker: WorkerPlace,
    ) -> Result<()> {
        let bytes = bundle.memory_bytes();
        let ended = self.run.is_ended();
        // Nobody needs the rows, but downstream each place is waited for: one worker may still pass
        // a bundle on whose older neighbour another has dropped.
        let bundle = if ended { without_rows(bundle) } else { bundle };
        let ordinal = bundle.stamps.ordinal;
        let container = Arc::clone(container);
        if transform.multiplies() {
            return self.begin_parts(transform, (lane, container, bytes), bundle, worker);
        }
        if transform.is_asynchronous() && bundle.num_rows() > 0 {
            let home = Home::Container { lane, container, bytes };
            let asked = self.ask_outside();
            self.job.queues.returned.begin((self.place, asked), transform, bundle, home);
            return Ok(());
        }
        let mut result = apply_transform(transform, bundle)?;
        assert_eq!(result.stamps.ordinal, ordinal, "a transform keeps the stamps of its bundle");
        result.stamps.numa_node = worker.numa_node as u16;
        self.pass_transformed(lane, &container, result, bytes)
    }

    /// Hands on what a stateless stage has made of a bundle of `bytes` bytes, which is consumed
    /// then.
    pub(crate) fn pass_transformed(
        &self,
        lane: usize,
        container: &Arc<Container>,
        result: Bundle,
        bytes: usize,
    ) -> Result<()> {
        self.deposit_transformed(lane, container, &result, true)?;
        self.consume(lane, container, bytes)
    }

    /// Puts what a stateless stage has made into the containers downstream.
    fn deposit_transformed(
        &self,
        lane: usize,
        container: &Arc<Container>,
        result: &Bundle,
        keep_ordinal: bool,
    ) -> Result<()> {
        for (place, edge) in self.run.edges.iter().enumerate() {
            let down_lane = edge.lane_base + lane;
            #[cfg(feature = "baselines")]
            if self.job.ablated.is(Ablation::IgnoreEpochBoundaries) {
                self.deposit_into_open(edge, down_lane, result.clone())?;
                continue;
            }
            let linked = self.linked(lane, container, place);
            self.deposit(edge, down_lane, &linked, result.clone(), keep_ordinal)?;
        }
        Ok(())
    }

    /// Carries the end watermarks of a lane on.
    fn advance_stateless(&self, lane: usize) -> Result<()> {
        while let Some(front) = self.retrieve_front(lane)? {
            self.run.metrics.set_watermark(front.end(), || self.job.now_ns());
            self.close_downstream(lane, &front)?;
            front.mark_consumed();
            self.drop_finished(lane)?;
        }
        Ok(())
    }

    /// Closes what hangs on a container; without epoch boundaries, what is open downstream.
    fn close_downstream(&self, lane: usize, container: &Arc<Container>) -> Result<()> {
        #[cfg(feature = "baselines")]
        if self.job.ablated.is(Ablation::IgnoreEpochBoundaries) {
            let end = (container.end(), container.end_ingest_ns());
            let mut edges = self.run.edges.iter();
            return edges.try_for_each(|edge| self.close_open(edge, edge.lane_base + lane, end));
        }
        self.close_links(lane, container, None)
    }

    /// Puts a bundle into the container that is open downstream, whatever its epoch.
    #[cfg(feature = "baselines")]
    fn deposit_into_open(&self, edge: &Edge, lane: usize, mut bundle: Bundle) -> Result<()> {
        let (open, ordinal) = self.downstream(edge).run.lanes[lane].count_into_open();
        (bundle.stamps.epoch, bundle.stamps.ordinal) = (open.index, ordinal);
        self.deposit_counted(edge, lane, &open, bundle)
    }

    /// Closes the container that is open downstream, with the moment at which the row that ended
    /// the epoch came in.
    #[cfg(feature = "baselines")]
    fn close_open(
        &self,
        edge: &Edge,
        lane: usize,
        (end, ingest_ns): (Watermark, u64),
    ) -> Result<()> {
        let down = self.downstream(edge);
        down.run.lanes[lane].close_open(end, ingest_ns);
        down.advance(lane)
    }

    // --- sinks ---

    /// Rows have come; whatever is next in the lane goes to the sink.
    fn offer_to_sink(
        &self,
        sink: &SinkRun,
        lane: usize,
        container: &Arc<Container>,
        bundle: Bundle,
        bytes: usize,
    ) -> Result<()> {
        let Bundle { batch, kinds, stamps } = bundle;
        let rows = SinkBatch { bytes, ingest_ns: stamps.ingest_ns, batch, kinds };
        let mut sequencer = sink.sequencers[lane].lock().expect("no panic under this lock");
        sequencer.early.insert((container.index, stamps.ordinal), rows);
        drop(sequencer);
        self.let_through_sink(sink, lane)
    }

    /// Hands to the sink's thread whatever is next in the lane.
    fn let_through_sink(&self, sink: &SinkRun, lane: usize) -> Result<()> {
        let to = sinks::at(self.job, self.place);
        let mut sequencer = sink.sequencers[lane].lock().expect("no panic under this lock");
        while !sequencer.held
            && let Some(container) = self.run.lanes[lane].at_or_after(sequencer.container)
        {
            if let Some(rows) = sequencer.next(container.index) {
                self.count_in(rows.batch.num_rows());
                to.send(SinkMessage::Rows(rows))?;
                // The loop looks at the state itself, whoever is last.
                let _ = container.consume_one();
                continue;
            }
            let state = container.state();
            if state == ContainerState::Open || container.total() != sequencer.ordinal {
                break;
            }
            let ends = state == ContainerState::WatermarkAssigned && container.retrieve();
            if ends && container.is_cut() {
                sequencer.held = true;
                drop(sequencer);
                return self.reach_cut(lane, container);
            }
            if ends {
                self.run.metrics.set_watermark(container.end(), || self.job.now_ns());
                container.mark_consumed();
            }
            self.drop_finished(lane)?;
            sequencer.finish_container();
            let is_last = ends && container.end() == Watermark::END;
            // AcqRel: the lane that ends last sees that the others have sent all they had.
            if is_last && sink.open_lanes.fetch_sub(1, Ordering::AcqRel) == 1 {
                to.send(SinkMessage::Finish)?;
            }
        }
        Ok(())
    }
}
