//! Stateless stages: a bundle becomes a bundle, or many parts, in any order.
//!
//! Several workers apply bundles of a stage that makes many rows of one at once, and each makes
//! its bundle in parts, which leave in order (see `leaving`). Between two parts the worker asks for
//! room, and parks the rest of its bundle if there is none.
//!
//! **Invariants:**
//! - what leaves a container is in the order of what came in;
//! - a bundle counts as consumed once its last part has left.

use thalweg_core::operator::Part;
use thalweg_core::{Bundle, Result, Transform};
use thalweg_ordering::sync::Arc;

use super::EpochStage;
use crate::container::Container;
use crate::leaving::Left;
use crate::parked::OpenBundle;
#[cfg(feature = "baselines")]
use crate::policies::Ablation;
use crate::returned::Home;
use crate::topology::WorkerPlace;
use crate::transforms::{apply_transform, located, without_rows};

impl EpochStage<'_> {
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
            let part = match ended {
                true => Part { bundle, rest: None },
                false => located(transform, bundle, |bundle| {
                    transform.begin_parts(bundle, self.job.room_bytes())
                })?,
            };
            return self.send_parts(transform, (lane, container, ordinal, 0, bytes), part, worker);
        }
        if transform.is_asynchronous() && bundle.num_rows() > 0 {
            let home = Home::Container { lane, container, bytes };
            self.job.queues.returned.begin(self.place, transform, bundle, home);
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
                let (open, ordinal) = self.downstream(edge).run.lanes[down_lane].count_into_open();
                let mut bundle = result.clone();
                (bundle.stamps.epoch, bundle.stamps.ordinal) = (open.index, ordinal);
                self.deposit_counted(edge, down_lane, &open, bundle)?;
                continue;
            }
            let linked = self.linked(lane, container, place);
            self.deposit(edge, down_lane, &linked, result.clone(), keep_ordinal)?;
        }
        Ok(())
    }

    /// Carries the end watermarks of a lane on.
    pub(super) fn advance_stateless(&self, lane: usize) -> Result<()> {
        while let Some(front) = self.retrieve_front(lane)? {
            self.run.metrics.set_watermark(front.end());
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
            for edge in &self.run.edges {
                let (down, down_lane) = (self.downstream(edge), edge.lane_base + lane);
                down.run.lanes[down_lane].close_open(container.end(), container.end_ingest_ns());
                down.advance(down_lane)?;
            }
            return Ok(());
        }
        self.close_links(lane, container, None)
    }

    // --- parts ---

    /// Continues with a bundle that was parked.
    pub(crate) fn resume_parts(&self, open: OpenBundle, worker: WorkerPlace) -> Result<()> {
        let transform = self.run.transform().expect("only stateless stages make parts");
        let OpenBundle { lane, container, ordinal, part, bytes, rest } = open;
        let next = transform.next_part(rest, self.job.room_bytes())?;
        self.send_parts(transform, (lane, container, ordinal, part, bytes), next, worker)
    }

    /// Sends parts on until the bundle is done or there is no room for more.
    fn send_parts(
        &self,
        transform: &dyn Transform,
        (lane, container, ordinal, first, bytes): (usize, Arc<Container>, u64, u64, usize),
        mut part: Part,
        worker: WorkerPlace,
    ) -> Result<()> {
        for number in first.. {
            let Part { mut bundle, rest } = part;
            bundle.stamps.origin = None;
            bundle.stamps.numa_node = worker.numa_node as u16;
            let consumes = rest.is_none().then_some(bytes);
            self.leave(lane, &container, (ordinal, number), Left { bundle, consumes })?;
            let Some(rest) = rest else { break };
            if self.job.is_held_back() {
                let part = number + 1;
                let open = OpenBundle { lane, container, ordinal, part, bytes, rest };
                self.job.queues.parked.park_bundle(self.place, Box::new(open));
                self.job.news.notify();
                break;
            }
            part = transform.next_part(rest, self.job.room_bytes())?;
        }
        Ok(())
    }

    /// Puts a part where it is in order, and sends on all that is next.
    fn leave(
        &self,
        lane: usize,
        container: &Arc<Container>,
        place: (u64, u64),
        part: Left,
    ) -> Result<()> {
        let memory = &self.job.memory;
        let mut consumed = Vec::new();
        let mut leaving = container.leaving.lock().expect("no panic under this lock");
        // Until it leaves it is in flight here.
        memory.add_in_flight(part.bundle.memory_bytes() as i64);
        leaving.put(place, part);
        while let Some(Left { bundle, consumes }) = leaving.pop() {
            let bytes = bundle.memory_bytes();
            if bundle.num_rows() > 0 {
                self.deposit_transformed(lane, container, &bundle, false)?;
            }
            memory.add_in_flight(-(bytes as i64));
            consumed.extend(consumes);
        }
        drop(leaving);
        consumed.into_iter().try_for_each(|bytes| self.consume(lane, container, bytes))
    }
}
