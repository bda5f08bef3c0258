//! Where several edges lead into one stage in contract `arrival`: elements meet by
//! (serial, row of the source bundle, edge).
//!
//! **The invariant that makes it work:** every serial of a source reaches every lane that the
//! source feeds, exactly once and in order, if only as an empty element; so the head of such a
//! lane is the one that the sequence of ingestion names next.
//!
//! The sequence of ingestion (which source brought which serial) is told to each merge before the
//! element itself sets out. The watermark that leaves is the least over all lanes, so it stands
//! where the data decide as long as the elements of a source end where its watermark moves.

use std::collections::VecDeque;

use thalweg_core::{Bundle, Result, Watermark};

use super::rows::by_ordinal;
use super::{Element, MergeKind};

/// The edges into one stage.
pub(crate) struct Merge {
    lanes: Vec<MergeLane>,
    /// Sources in the order in which their elements were ingested.
    expected: VecDeque<(u64, usize)>,
    watermark: Watermark,
}

struct MergeLane {
    /// Which sources feed it, by stage.
    fed_by: Vec<bool>,
    elements: VecDeque<Element>,
    watermark: Watermark,
}

impl Merge {
    /// `fed_by` says for each lane which sources (by stage) feed it.
    pub(crate) fn new(fed_by: Vec<Vec<bool>>) -> Self {
        let lane =
            |fed_by| MergeLane { fed_by, elements: VecDeque::new(), watermark: Watermark::MIN };
        Merge {
            lanes: fed_by.into_iter().map(lane).collect(),
            expected: VecDeque::new(),
            watermark: Watermark::MIN,
        }
    }

    /// True if elements of this source come here.
    pub(crate) fn is_fed_by(&self, source: usize) -> bool {
        self.lanes.iter().any(|lane| lane.fed_by[source])
    }

    /// A source has ingested this serial.
    pub(crate) fn expect(&mut self, serial: u64, source: usize) {
        self.expected.push_back((serial, source));
    }

    /// An element has come by a lane.
    pub(crate) fn push(&mut self, lane: usize, element: Element) {
        self.lanes[lane].elements.push_back(element);
    }

    /// The next element of the merged sequence, if all of its parts are here.
    pub(crate) fn pop(&mut self) -> Result<Option<Element>> {
        let Some(&(serial, source)) = self.expected.front() else { return Ok(None) };
        let is_fed = |lane: &&mut MergeLane| lane.fed_by[source];
        if self.lanes.iter_mut().filter(is_fed).any(|lane| lane.elements.is_empty()) {
            return Ok(None);
        }
        self.expected.pop_front();
        let mut parts = Vec::new();
        for lane in self.lanes.iter_mut().filter(is_fed) {
            let element = lane.elements.pop_front().expect("checked above");
            assert_eq!(element.serial, serial, "every serial reaches every lane in order");
            lane.watermark = element.watermark.unwrap_or(lane.watermark).max(lane.watermark);
            parts.push(element);
        }
        let joint = self.lanes.iter().map(|lane| lane.watermark).min();
        let joint = joint.expect("a merge has lanes");
        let watermark = (joint > self.watermark).then_some(joint);
        self.watermark = joint;
        combine(serial, parts, watermark).map(Some)
    }
}

/// One element of the parts that came by several edges: rows by source row, then edge.
fn combine(serial: u64, parts: Vec<Element>, watermark: Option<Watermark>) -> Result<Element> {
    let ingest_ns = parts.iter().map(|part| part.ingest_ns).max().unwrap_or(0);
    let bytes = parts.iter().map(|part| part.bytes).sum();
    let frontier_ms = parts.iter().map(|part| part.frontier_ms).max().unwrap_or(i64::MIN);
    let bundles: Vec<Bundle> = parts.into_iter().flat_map(|part| part.bundles).collect();
    let bundles = by_ordinal(bundles)?.into_iter().collect();
    Ok(Element { serial, bundles, watermark, ingest_ns, bytes, frontier_ms })
}

impl MergeKind {
    /// True if elements of this source come here and their sequence matters.
    pub(crate) fn is_fed_by(&self, source: usize) -> bool {
        match self {
            MergeKind::Arrival(merge) => merge.is_fed_by(source),
            MergeKind::Time(_) => false,
        }
    }

    /// A source has ingested this serial.
    pub(crate) fn expect(&mut self, serial: u64, source: usize) {
        if let MergeKind::Arrival(merge) = self {
            merge.expect(serial, source);
        }
    }

    /// An element has come by a lane.
    pub(crate) fn push(&mut self, lane: usize, element: Element) -> Result<()> {
        match self {
            MergeKind::Arrival(merge) => merge.push(lane, element),
            MergeKind::Time(merge) => merge.push(lane, element)?,
        }
        Ok(())
    }

    /// The next element of the merged sequence, if it is known.
    pub(crate) fn pop(&mut self) -> Result<Option<Element>> {
        match self {
            MergeKind::Arrival(merge) => merge.pop(),
            MergeKind::Time(merge) => merge.pop(),
        }
    }

    /// The lane that others wait for, where they are merged by time.
    pub(crate) fn held_by(&self) -> Option<usize> {
        match self {
            MergeKind::Arrival(_) => None,
            MergeKind::Time(merge) => merge.held_by(),
        }
    }
}
