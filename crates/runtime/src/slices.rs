//! How many rows a partition is given at once, and what waits until there is room for more.
//!
//! Some operators make many rows of one: joins, ranks, lists that grow. Their pieces are cut into
//! slices so that one call leads to about [`SliceRows::room_bytes`] at most, and between two slices
//! the memory account is asked:
//! - while it has room, the worker continues with the next slice at once;
//! - else the cell is *parked*, with its place in the piece, and workers do what is furthest
//!   downstream.
//!
//! Bundles of stateless stages that multiply rows are parked between two parts (see
//! [`crate::parts`]).
//!
//! # Who is resumed
//! [`Parked`] holds what is refused room. Below the high-water mark any worker resumes some of it.
//! At the mark one is resumed only if nothing else can be done, nobody else is at work and sinks
//! keep up: then what fills the memory can only drain through it. It is the one furthest
//! downstream, of the oldest epoch, so bounds never stop the oldest and nothing can deadlock. A job
//! that is being stopped resumes none.
//!
//! A cut waits for what is parked as for all work inside: it is resumed while the cut holds the
//! sources.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use thalweg_core::{Bundle, Piece};
use thalweg_ordering::sync::{AtomicUsize, Mutex, Ordering};

use crate::ordered::Element;
use crate::parts::OpenBundle;

/// How many rows of a piece come next.
#[derive(Clone, Copy, Debug)]
pub struct SliceRows(usize);

impl SliceRows {
    /// Where nothing is known yet.
    const FIRST: usize = 256;
    /// What a slice should lead to at most.
    const OUTPUT_BYTES_MAX: usize = 8 << 20;
    /// The same where memory is short.
    const OUTPUT_BYTES_MIN: usize = 1 << 20;

    /// How long a slice should take at most: until then nobody sees that the job is to stop.
    const TOOK_NS_MAX: u64 = 50_000_000;

    /// Few rows at first.
    pub(crate) fn new() -> Self {
        SliceRows(Self::FIRST)
    }

    /// What one call should emit at most where so much may be in flight.
    pub(crate) fn room_bytes(in_flight_bytes_max: usize) -> usize {
        (in_flight_bytes_max / 8).clamp(Self::OUTPUT_BYTES_MIN, Self::OUTPUT_BYTES_MAX)
    }

    /// The most rows of the next slice.
    pub(crate) fn rows(self) -> usize {
        self.0
    }

    /// What a slice has led to, and how long it took.
    pub(crate) fn learn(&mut self, rows: usize, bytes: usize, room_bytes: usize, took_ns: u64) {
        if bytes > room_bytes {
            self.0 = (rows * (room_bytes / 2) / bytes).max(1);
        } else if took_ns > Self::TOOK_NS_MAX {
            let part = (Self::TOOK_NS_MAX / 2) as f64 / took_ns as f64;
            self.0 = ((rows as f64 * part) as usize).max(1);
        } else if bytes <= room_bytes / 4 && rows >= self.0 {
            self.0 = self.0.saturating_mul(4);
        }
    }
}

/// The next rows of a piece, at most `rows_max`, where some of them are taken. All rows are listed
/// only if they do not come at once.
pub(crate) fn next_slice<'a>(
    bundle: &'a Bundle,
    rows: &'a mut Option<Vec<u32>>,
    taken: usize,
    rows_max: usize,
    lanes: usize,
) -> Piece<'a> {
    let count = rows.as_ref().map_or(bundle.num_rows(), Vec::len);
    if taken == 0 && count <= rows_max {
        return Piece { bundle, rows: rows.as_deref(), lanes };
    }
    let all = rows.get_or_insert_with(|| (0..count as u32).collect());
    let to = count.min(taken.saturating_add(rows_max));
    Piece { bundle, rows: Some(&all[taken..to]), lanes }
}

/// Where what is parked stands: what is furthest downstream first, then by epoch and place.
type Place = (Reverse<usize>, u64, usize, u64);

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

    /// A cell, which the caller owns, waits from now on. `epoch` is the one that it is in.
    pub(crate) fn park_cell(&self, stage: usize, epoch: u64, cell: usize) {
        self.park((Reverse(stage), epoch, cell, 0), Waiting::Cell(cell));
    }

    /// A bundle waits from now on.
    pub(crate) fn park_bundle(&self, stage: usize, bundle: Box<OpenBundle>) {
        let place = (Reverse(stage), bundle.container.index, bundle.lane, bundle.ordinal);
        self.park(place, Waiting::Bundle(bundle));
    }

    /// An element of which nothing has left waits from now on.
    pub(crate) fn park_element(&self, stage: usize, place: u64, element: Element) {
        let waiting = Waiting::Element(place, Box::new(element));
        self.park((Reverse(stage), place, 0, 0), waiting);
    }

    fn park(&self, place: Place, what: Waiting) {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let before = waiting.insert(place, what);
        assert!(before.is_none(), "what is parked has no worker");
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// What is next, with its stage. With `leaves`, only what goes downstream at once: more parts
    /// of a bundle that waits for those before it would only fill the memory.
    pub(crate) fn take(&self, leaves: bool) -> Option<(usize, Waiting)> {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let is_next = |what: &Waiting| match what {
            Waiting::Bundle(open) => !leaves || open.can_leave(),
            Waiting::Cell(_) | Waiting::Element(..) => true,
        };
        let place = *waiting.iter().find(|(_, what)| is_next(what))?.0;
        let what = waiting.remove(&place)?;
        let stage = place.0.0;
        self.count.store(waiting.len(), Ordering::SeqCst);
        Some((stage, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_until_they_lead_to_much() {
        let mut slice = SliceRows::new();
        slice.learn(256, 1000, 1 << 20, 0);
        assert_eq!(slice.rows(), 1024);
        slice.learn(10, 1000, 1 << 20, 0);
        assert_eq!(slice.rows(), 1024, "a piece that was shorter says nothing");
        slice.learn(1024, 1 << 19, 1 << 20, 0);
        assert_eq!(slice.rows(), 1024);
        slice.learn(1024, 1 << 22, 1 << 20, 0);
        assert_eq!(slice.rows(), 128);
        slice.learn(1, 1 << 22, 1 << 20, 0);
        assert_eq!(slice.rows(), 1, "never none");
        slice.learn(1, 0, 1 << 20, 0);
        slice.learn(4, 0, 1 << 20, 0);
        slice.learn(16, 0, 1 << 20, 500_000_000);
        assert_eq!(slice.rows(), 1, "a tenth of the time");
    }

    #[test]
    fn the_oldest_furthest_downstream_is_resumed_first() {
        let parked = Parked::default();
        assert!(parked.is_empty());
        parked.park_cell(1, 0, 0);
        parked.park_cell(2, 7, 0);
        parked.park_cell(2, 3, 5);
        let cell = |(stage, waiting)| match waiting {
            Waiting::Cell(cell) => (stage, cell),
            Waiting::Bundle(_) | Waiting::Element(..) => panic!("only cells are parked"),
        };
        let order: Vec<_> = std::iter::from_fn(|| parked.take(true).map(cell)).collect();
        assert_eq!(order, [(2, 5), (2, 0), (1, 0)]);
        assert!(parked.is_empty());
    }
}
