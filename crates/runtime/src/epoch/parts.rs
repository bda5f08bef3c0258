//! Bundles of stateless stages that make many rows of one, part by part.
//!
//! Several workers apply bundles of such a stage at once, and each makes its bundle in parts,
//! which leave in order (see `leaving`). Between two parts the worker asks for room, and parks the
//! rest of its bundle if there is none.
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
use crate::topology::WorkerPlace;
use crate::transforms::located;

impl EpochStage<'_> {
    /// Applies a bundle of `bytes` bytes in parts. Of an ended stage it has no rows any more, but
    /// its place is waited for.
    pub(super) fn begin_parts(
        &self,
        transform: &dyn Transform,
        (lane, container, bytes): (usize, Arc<Container>, usize),
        bundle: Bundle,
        worker: WorkerPlace,
    ) -> Result<()> {
        let ordinal = bundle.stamps.ordinal;
        let part = match bundle.num_rows() {
            0 => Part { bundle, rest: None },
            _ => located(transform, bundle, |bundle| {
                transform.begin_parts(bundle, self.job.room_bytes())
            })?,
        };
        self.send_parts(transform, (lane, container, ordinal, 0, bytes), part, worker)
    }

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
            bundle.forget_rows_before();
            bundle.stamps.numa_node = worker.numa_node as u16;
            let consumes = rest.is_none().then_some(bytes);
            self.leave(lane, &container, (ordinal, number), Left { bundle, consumes })?;
            let Some(rest) = rest else { break };
            if self.job.is_held_back() {
                let part = number + 1;
                let open = OpenBundle { lane, container, ordinal, part, bytes, rest };
                self.run.metrics.park(|| self.job.now_ns());
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
