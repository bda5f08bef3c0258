//! What waits until there is room: cells in the middle of a piece, bundles and elements of
//! stateless stages that multiply rows.
//!
//! # Who is resumed
//! [`Parked`] holds what is refused room. Below the high-water mark any worker resumes some of it.
//! At the mark one is resumed only if nothing else can be done, nobody else is at work and sinks
//! keep up: then what fills the memory can only drain through it. It is the one furthest
//! downstream, of the oldest epoch, so bounds never stop the oldest and nothing can deadlock. A job
//! that is being stopped resumes none.
//!
//! **Invariant:** whoever takes something from here owns it, and nobody else has it.
//!
//! A cut waits for what is parked in front of it as for all work there, and that is resumed before
//! what is behind. While the memory is full nothing from behind is resumed: what comes of it might
//! have to wait for the cut.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use thalweg_core::operator::Rest;
use thalweg_ordering::sync::{Arc, AtomicUsize, Mutex, Ordering};

use crate::container::Container;
use crate::ordered::element::Element;

/// A bundle of which some parts are made.
pub(crate) struct OpenBundle {
    pub(crate) lane: usize,
    pub(crate) container: Arc<Container>,
    pub(crate) ordinal: u64,
    /// The number of the next part.
    pub(crate) part: u64,
    /// Bytes to give back when it is consumed.
    pub(crate) bytes: usize,
    pub(crate) rest: Rest,
}

impl OpenBundle {
    /// True if all that came before it has left.
    pub(crate) fn can_leave(&self) -> bool {
        let leaving = self.container.leaving.lock().expect("no panic under this lock");
        leaving.is_next((self.ordinal, self.part))
    }
}

/// Where what is parked stands: by the cuts before it, then what is furthest downstream first, then
/// by epoch and place.
type Place = (u64, Reverse<usize>, u64, usize, u64);

/// What waits for room.
pub(crate) enum Waiting {
    /// A cell in the middle of an item, which whoever takes it from here owns.
    Cell(usize),
    /// A bundle of which a stateless stage has made some parts.
    Bundle(Box<OpenBundle>),
    /// An element that a stateless stage has to begin again.
    Element(u64, Box<Element>),
}

/// All that waits for room.
#[derive(Default)]
pub(crate) struct Parked {
    waiting: Mutex<BTreeMap<Place, Waiting>>,
    count: AtomicUsize,
}

impl Parked {
    /// True if nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SeqCst: whoever parks something notifies afterwards.
        self.count.load(Ordering::SeqCst) == 0
    }

    /// A cell, which the caller owns, waits from now on. `epoch` is the one that it is in, with the
    /// cuts before it.
    pub(crate) fn park_cell(&self, stage: usize, (cuts, epoch): (u64, u64), cell: usize) {
        self.park((cuts, Reverse(stage), epoch, cell, 0), Waiting::Cell(cell));
    }

    /// A bundle waits from now on.
    pub(crate) fn park_bundle(&self, stage: usize, bundle: Box<OpenBundle>) {
        let Container { index, cuts, .. } = *bundle.container;
        let place = (cuts, Reverse(stage), index, bundle.lane, bundle.ordinal);
        self.park(place, Waiting::Bundle(bundle));
    }

    /// An element of which nothing has left waits from now on.
    pub(crate) fn park_element(&self, stage: usize, place: u64, element: Element) {
        let waiting = Waiting::Element(place, Box::new(element));
        self.park((0, Reverse(stage), place, 0, 0), waiting);
    }

    fn park(&self, place: Place, what: Waiting) {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let before = waiting.insert(place, what);
        assert!(before.is_none(), "what is parked has no worker");
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// What is next, with its stage. With `leaves`, only what goes downstream at once: more parts
    /// of a bundle that waits for those before it, or what stands behind more cuts than these,
    /// would only fill the memory.
    pub(crate) fn take(&self, leaves: bool, cuts_max: u64) -> Option<(usize, Waiting)> {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let is_next = |what: &Waiting| match what {
            Waiting::Bundle(open) => !leaves || open.can_leave(),
            Waiting::Cell(_) | Waiting::Element(..) => true,
        };
        let mut places = waiting.iter().filter(|(place, _)| !leaves || place.0 <= cuts_max);
        let place = *places.find(|(_, what)| is_next(what))?.0;
        let what = waiting.remove(&place)?;
        let stage = place.1.0;
        self.count.store(waiting.len(), Ordering::SeqCst);
        Some((stage, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_furthest_downstream_is_resumed_first() {
        let parked = Parked::default();
        assert!(parked.is_empty());
        parked.park_cell(3, (1, 9), 2);
        parked.park_cell(1, (0, 0), 0);
        parked.park_cell(2, (0, 7), 0);
        parked.park_cell(2, (0, 3), 5);
        let cell = |(stage, waiting)| match waiting {
            Waiting::Cell(cell) => (stage, cell),
            Waiting::Bundle(_) | Waiting::Element(..) => panic!("only cells are parked"),
        };
        let order: Vec<_> = std::iter::from_fn(|| parked.take(true, 0).map(cell)).collect();
        assert_eq!(order, [(2, 5), (2, 0), (1, 0)]);
        assert_eq!(parked.take(false, 0).map(cell), Some((3, 2)), "behind a cut, there is room");
        assert!(parked.is_empty());
    }
}
