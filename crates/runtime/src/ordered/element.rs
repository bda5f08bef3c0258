//! Elements of the ordered flow: rows and perhaps watermarks under one serial.
//!
//! **Invariant:** an element without rows and watermark still holds its place in the sequence, so
//! nothing that may become empty on the way is ever dropped.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use thalweg_core::{Bundle, Route, Watermark};

use super::marks::Marks;

/// What an element counts in the memory account on top of its rows.
const ELEMENT_BYTES: usize = 64;

/// What goes with an element through all stages, and is the same for everything derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    /// Its place in the sequence of ingestion.
    pub(crate) serial: u64,
    /// When its youngest row entered the engine.
    pub(crate) ingest_ns: u64,
    /// In `event_time`: no row of a later element is older. So it says how far a lane has come
    /// even where no row is left.
    pub(crate) frontier_ms: i64,
    /// The lane is idle from here on, or no longer. Only where the clock may change the sequence.
    pub(crate) idle: Option<bool>,
    /// It has no rows: it is the cut that is under way. All sources bring it, under one serial.
    pub(crate) is_cut: bool,
}

impl Passage {
    /// Of an element that has no serial yet.
    pub(crate) fn new(ingest_ns: u64, frontier_ms: i64) -> Self {
        Passage { serial: 0, ingest_ns, frontier_ms, idle: None, is_cut: false }
    }

    /// Of a cut, which says nothing about time.
    pub(crate) fn cut(serial: u64, ingest_ns: u64) -> Self {
        Passage { serial, is_cut: true, ..Passage::new(ingest_ns, i64::MIN) }
    }
}

/// Rows, perhaps with watermarks between them and one behind them, under one serial.
#[derive(Clone)]
pub struct Element {
    /// Its serial and what else stays with it.
    pub(crate) passage: Passage,
    /// The rows, in order.
    pub(crate) bundles: Vec<Bundle>,
    /// The watermarks between them.
    pub(crate) marks: Marks,
    /// The watermark behind them.
    pub(crate) watermark: Option<Watermark>,
    /// What it counts in the memory account.
    pub(crate) bytes: usize,
}

impl Element {
    /// A cut.
    pub(crate) fn cut(passage: Passage) -> Self {
        let (bundles, bytes) = (Vec::new(), element_bytes(&[]));
        Element { passage, bundles, marks: None, watermark: None, bytes }
    }

    /// True if it has neither rows nor a watermark and only holds its place in the sequence.
    pub(crate) fn is_blank(&self) -> bool {
        self.bundles.is_empty() && self.last_watermark().is_none() && !self.passage.is_cut
    }

    /// The newest watermark that it brings.
    pub(crate) fn last_watermark(&self) -> Option<Watermark> {
        last_watermark(&self.marks, self.watermark)
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.bundles.iter().map(Bundle::num_rows).sum()
    }
}

/// An element whose routes are known, one per bundle; `None` where any partition takes all.
pub(crate) struct Routed {
    pub(crate) element: Element,
    pub(crate) routes: Option<Vec<Route>>,
}

/// An element of which some bundles are done.
pub(crate) struct OpenElement {
    pub(crate) place: u64,
    pub(crate) passage: Passage,
    pub(crate) marks: Marks,
    pub(crate) watermark: Option<Watermark>,
    pub(crate) bytes: usize,
    /// Not begun.
    pub(crate) rest: VecDeque<Bundle>,
    pub(crate) done: Vec<Bundle>,
}

/// What became of an element.
pub(crate) struct Outcome {
    pub(crate) passage: Passage,
    pub(crate) ports: Ports,
}

/// What leaves by one port.
#[derive(Default)]
pub(crate) struct Port {
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) marks: Marks,
    pub(crate) watermark: Option<Watermark>,
}

/// What leaves, by port. Most stages have one, and nothing is allocated for it.
pub(crate) enum Ports {
    /// The only one.
    One(Port),
    /// In order.
    Several(Vec<Port>),
}

impl Index<usize> for Ports {
    type Output = Port;
    fn index(&self, port: usize) -> &Port {
        match self {
            Ports::One(only) => std::slice::from_ref(only),
            Ports::Several(ports) => ports,
        }
        .index(port)
    }
}

impl IndexMut<usize> for Ports {
    fn index_mut(&mut self, port: usize) -> &mut Port {
        match self {
            Ports::One(only) => std::slice::from_mut(only),
            Ports::Several(ports) => ports,
        }
        .index_mut(port)
    }
}

impl Ports {
    /// Ports without rows: the first with what the operator passes on, the others with the
    /// watermark itself.
    pub(crate) fn without_rows(
        ports: usize,
        pass: Option<Watermark>,
        watermark: Option<Watermark>,
    ) -> Self {
        let first = Port { watermark: pass, ..Port::default() };
        if ports == 1 {
            return Ports::One(first);
        }
        let others = (1..ports).map(|_| Port { watermark, ..Port::default() });
        Ports::Several(std::iter::once(first).chain(others).collect())
    }
}

/// The newest of the watermarks between and behind the rows of an element.
pub(super) fn last_watermark(marks: &Marks, behind: Option<Watermark>) -> Option<Watermark> {
    let between = || marks.as_ref()?.last().map(|mark| mark.watermark);
    behind.or_else(between)
}

/// What an element of these bundles counts in the memory account.
pub(crate) fn element_bytes(bundles: &[Bundle]) -> usize {
    ELEMENT_BYTES + bundles.iter().map(Bundle::memory_bytes).sum::<usize>()
}
