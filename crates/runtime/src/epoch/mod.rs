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
//! | this one | deposit, consume, close: the same at every stage |
//! | `stateless` | stages that turn a bundle into a bundle, or into parts |
//! | `operators` | watermarks and sequenced bundles on their way through partitions |
//! | `results` | what partitions emit, and where it goes |
//! | `idleness` | lanes that are not waited for |
//! | `sinks` | the order in which a sink gets its rows |

use std::ops::Deref;

use thalweg_core::{Bundle, OperatorClass, Result, Watermark};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::container::{Container, ContainerState};
use crate::job::{Job, StageAt};
use crate::stage::{Edge, OperatorRun, SourceState, StageRunKind};

mod idleness;
mod operators;
mod results;
mod sinks;
mod stateless;

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
            let container = state.current[place].get_or_insert_with(|| down.append());
            self.deposit(edge, edge.lane_base, container, bundle.clone(), false)?;
        }
        self.end_epoch_if_due(state)
    }

    /// The watermark may have crossed a time that matters.
    pub(crate) fn end_epoch_if_due(&self, state: &mut SourceState) -> Result<()> {
        match state.assigner.as_mut().and_then(|assigner| assigner.take_watermark()) {
            Some(watermark) => self.end_epoch(state, watermark),
            None => Ok(()),
        }
    }

    /// Ends the epoch of a source.
    pub(crate) fn end_epoch(&self, state: &mut SourceState, end: Watermark) -> Result<()> {
        state.epoch += 1;
        for (place, edge) in self.run.edges.iter().enumerate() {
            let down = &self.job.stages[edge.to.0].lanes[edge.lane_base];
            let container = state.current[place].take().unwrap_or_else(|| down.append());
            self.close(edge, edge.lane_base, &container, Some(end), state.ingest_ns)?;
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
        self.count_out(std::slice::from_ref(&bundle), bytes);
        let down = self.downstream(edge);
        if let StageRunKind::Sink(sink) = &down.run.kind {
            return down.offer_to_sink(sink, lane, container, bundle, bytes);
        }
        down.run.metrics.queued.fetch_add(1, Ordering::Relaxed);
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
        end: Option<Watermark>,
        ingest_ns: u64,
    ) -> Result<()> {
        container.close(end, ingest_ns);
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
            match front.state() {
                ContainerState::WatermarkAssigned if front.unconsumed() == 0 => {
                    return Ok(front.retrieve().then_some(front));
                }
                _ if front.is_finished() => self.drop_finished(lane)?,
                _ => break,
            }
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
                    self.close(edge, edge.lane_base + lane, linked, None, ingest_ns)?;
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
            let (end, ingest_ns) = (container.end(), container.end_ingest_ns());
            self.close(edge, edge.lane_base + lane, &linked, Some(end), ingest_ns)?;
        }
        Ok(())
    }
}
