//! Bundles of stateless stages that make many rows of one, part by part.
//!
//! Several workers apply bundles of such a stage at once, and each makes its bundle in parts.
//! Downstream a lane's bundles are counted, so parts get their numbers where they leave:
//! [`Leaving`] keeps those that come early and lets the rest through in the order of the bundles,
//! then of their parts. Between two parts the worker asks for room, and parks the rest of its
//! bundle if there is none ([`crate::slices`]).
//!
//! **Invariants:**
//! - what leaves a container is in the order of what came in;
//! - a bundle counts as consumed once its last part has left.

use std::collections::BTreeMap;

use thalweg_core::operator::{Part, Rest};
use thalweg_core::{Bundle, Error, Result, Transform};
use thalweg_ordering::sync::{Arc, Ordering};

use crate::container::Container;
use crate::dispatcher::WorkerPlace;
use crate::job::Job;
use crate::stage::StageRunKind;
use crate::task::{located, without_rows};

/// A bundle of which some parts are made.
pub(crate) struct OpenBundle {
    pub(crate) lane: usize,
    pub(crate) container: Arc<Container>,
    pub(crate) ordinal: u64,
    /// The number of the next part.
    part: u64,
    /// Bytes to give back when it is consumed.
    bytes: usize,
    rest: Rest,
}

impl OpenBundle {
    /// True if all that came before it has left.
    pub(crate) fn can_leave(&self) -> bool {
        let leaving = self.container.leaving.lock().expect("no panic under this lock");
        leaving.next == (self.ordinal, self.part)
    }
}

/// What has been made of the bundles of a container and has not left it.
#[derive(Default)]
pub(crate) struct Leaving {
    /// The bundle and the part that leave next.
    next: (u64, u64),
    early: BTreeMap<(u64, u64), Left>,
}

/// A part, and what its bundle took if it is the last one.
struct Left {
    bundle: Bundle,
    consumes: Option<usize>,
}

impl Leaving {
    fn pop(&mut self) -> Option<Left> {
        let left = self.early.remove(&self.next)?;
        self.next = match left.consumes {
            Some(_) => (self.next.0 + 1, 0),
            None => (self.next.0, self.next.1 + 1),
        };
        Some(left)
    }
}

impl Job {
    /// Applies a bundle in parts.
    pub(crate) fn run_in_parts(
        &self,
        stage: usize,
        transform: &dyn Transform,
        (lane, container): (usize, &Arc<Container>),
        bundle: Bundle,
        place: WorkerPlace,
    ) -> Result<()> {
        let (bytes, ordinal) = (bundle.memory_bytes(), bundle.stamps.ordinal);
        let part = match self.stages[stage].ended.load(Ordering::Relaxed) {
            // Nobody needs the rows, but their place is waited for.
            true => Part { bundle: without_rows(bundle), rest: None },
            false => located(transform, bundle, |bundle| {
                transform.begin_parts(bundle, self.room_bytes())
            })?,
        };
        let container = Arc::clone(container);
        self.send_parts(stage, transform, part, (lane, container, ordinal, 0, bytes), place)
    }

    /// Continues with a bundle that was parked.
    pub(crate) fn resume_bundle(
        &self,
        stage: usize,
        open: OpenBundle,
        place: WorkerPlace,
    ) -> Result<()> {
        let StageRunKind::Transform(transform) = &self.stages[stage].kind else {
            unreachable!("only stateless stages make parts")
        };
        let OpenBundle { lane, container, ordinal, part, bytes, rest } = open;
        let next = transform.next_part(rest, self.room_bytes())?;
        let of = (lane, container, ordinal, part, bytes);
        self.send_parts(stage, transform.as_ref(), next, of, place)
    }

    /// Sends parts on until the bundle is done or there is no room for more.
    fn send_parts(
        &self,
        stage: usize,
        transform: &dyn Transform,
        mut part: Part,
        (lane, container, ordinal, first, bytes): (usize, Arc<Container>, u64, u64, usize),
        place: WorkerPlace,
    ) -> Result<()> {
        for number in first.. {
            let Part { mut bundle, rest } = part;
            bundle.stamps.origin = None;
            bundle.stamps.numa_node = place.numa_node as u16;
            let consumes = rest.is_none().then_some(bytes);
            self.leave(stage, lane, &container, (ordinal, number), Left { bundle, consumes })?;
            let Some(rest) = rest else { break };
            if self.is_held_back() {
                let part = number + 1;
                let open = OpenBundle { lane, container, ordinal, part, bytes, rest };
                self.parked.park_bundle(stage, Box::new(open));
                self.news.notify();
                break;
            }
            part = transform.next_part(rest, self.room_bytes())?;
        }
        Ok(())
    }

    /// Puts a part where it is in order, and sends on all that is next.
    fn leave(
        &self,
        stage: usize,
        lane: usize,
        container: &Arc<Container>,
        place: (u64, u64),
        left: Left,
    ) -> Result<()> {
        let mut consumed = Vec::new();
        let mut leaving = container.leaving.lock().expect("no panic under this lock");
        // Until it leaves it is in flight here.
        self.memory.add_in_flight(left.bundle.memory_bytes() as i64);
        let before = leaving.early.insert(place, left);
        assert!(before.is_none(), "two parts with the same place");
        while let Some(Left { bundle, consumes }) = leaving.pop() {
            let bytes = bundle.memory_bytes();
            if bundle.num_rows() > 0 {
                self.deposit_transformed(stage, lane, container, &bundle, false)?;
            }
            self.memory.add_in_flight(-(bytes as i64));
            consumed.extend(consumes);
        }
        drop(leaving);
        consumed.into_iter().try_for_each(|bytes| self.consume(stage, lane, container, bytes))
    }

    /// All parts of a bundle of an element, in the ordered contracts: they leave together. `None`
    /// if the job is to stop before.
    pub(crate) fn all_parts(
        &self,
        transform: &dyn Transform,
        bundle: Bundle,
    ) -> Result<Option<Vec<Bundle>>> {
        let room_bytes = self.room_bytes();
        let mut part =
            located(transform, bundle, |bundle| transform.begin_parts(bundle, room_bytes))?;
        let (mut parts, mut bytes) = (Vec::new(), 0);
        loop {
            bytes += part.bundle.memory_bytes();
            self.check_gathered(bytes)?;
            part.bundle.stamps.origin = None;
            parts.push(part.bundle);
            let Some(rest) = part.rest else { return Ok(Some(parts)) };
            if self.is_giving_up() {
                return Ok(None);
            }
            part = transform.next_part(rest, room_bytes)?;
        }
    }

    /// In the ordered contracts what comes of an element is kept until all of it is made. Fails if
    /// that is too much.
    pub(crate) fn check_gathered(&self, bytes: usize) -> Result<()> {
        let bytes_max = self.memory.limit_bytes() / 4;
        if bytes <= bytes_max {
            return Ok(());
        }
        let (mib, limit_mib) = (bytes >> 20, self.memory.limit_bytes() >> 20);
        let order = self.options.order;
        Err(Error::resource(format!(
            "one bundle of rows leads to more than {mib} MiB of results, and with 'pipeline.order' = '{order}' all of \
             them are kept until the last is made; the memory limit is {limit_mib} MiB"
        ))
        .hint(
            "raise 'memory.limit', SET 'pipeline.bundle-rows-max' to fewer rows, or SET 'pipeline.order' = 'epoch'",
        ))
    }
}
