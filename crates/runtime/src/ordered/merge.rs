//! Where several edges lead into one stage in contract `arrival`: elements meet by
//! (serial, row of the source bundle, edge).
//!
//! **The invariant that makes it work:** every serial of a source reaches every lane that the
//! source feeds, exactly once and in order, if only as an empty element; so the head of such a
//! lane is the one that the sequence of ingestion names next.
//!
//! The sequence of ingestion (which source brought which serial) is announced to each merge before
//! the element itself sets out. The watermark that leaves is the least over all lanes, so it stands
//! where the data decide as long as the elements of a source end where its watermark moves.
//!
//! A lane that goes idle leaves the joint watermark at the element that says so, and is back at the
//! one that says so; rows that the others have passed in between are stamped with what they
//! reached.

use std::collections::VecDeque;

use thalweg_core::snapshot::InputState;
use thalweg_core::{Bundle, Captured, Result, Watermark};

use super::element::{Element, Passage};
use super::lanes::JointOfLanes;
use super::rows::by_ordinal;
use super::time_merge::TimeMerge;

/// How several edges become one sequence.
pub(crate) enum MergeKind {
    /// `arrival`: in the sequence of ingestion.
    Arrival(Merge),
    /// `event_time`: by time, input, position.
    Time(Box<TimeMerge>),
}

/// What comes to a merge.
pub(crate) enum Arrival {
    /// A source has ingested this serial, or ([`EVERY_SOURCE`]) all of them have: a cut.
    Expected(u64, usize),
    /// An element by a lane.
    Element(usize, Element),
}

/// In place of a source: each lane brings the serial.
pub(crate) const EVERY_SOURCE: usize = usize::MAX;

/// The edges into one stage.
pub(crate) struct Merge {
    lanes: Vec<MergeLane>,
    /// Sources in the order in which their elements were ingested.
    expected: VecDeque<(u64, usize)>,
    joint: JointOfLanes,
}

struct MergeLane {
    /// Which sources feed it, by stage.
    fed_by: Vec<bool>,
    elements: VecDeque<Element>,
}

impl MergeLane {
    fn is_fed_by(&self, source: usize) -> bool {
        source == EVERY_SOURCE || self.fed_by[source]
    }
}

impl Merge {
    /// `fed_by` says for each lane which sources (by stage) feed it.
    pub(crate) fn new(fed_by: Vec<Vec<bool>>) -> Self {
        let joint = JointOfLanes::new(fed_by.len());
        let lane = |fed_by| MergeLane { fed_by, elements: VecDeque::new() };
        let lanes = fed_by.into_iter().map(lane).collect();
        Merge { lanes, expected: VecDeque::new(), joint }
    }

    /// What is known of the lanes, in which nothing waits.
    pub(crate) fn input_state(&self, passed: Watermark) -> InputState {
        self.joint.input_state(passed)
    }

    /// Restores what was known.
    pub(crate) fn restore(&mut self, saved: &InputState) -> Result<()> {
        self.joint.restore(saved)
    }

    /// True if elements of this source come here.
    pub(crate) fn is_fed_by(&self, source: usize) -> bool {
        self.lanes.iter().any(|lane| lane.is_fed_by(source))
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
        let is_fed = |lane: &&mut MergeLane| lane.is_fed_by(source);
        if self.lanes.iter_mut().filter(is_fed).any(|lane| lane.elements.is_empty()) {
            return Ok(None);
        }
        self.expected.pop_front();
        let mut parts = Vec::new();
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if !lane.is_fed_by(source) {
                continue;
            }
            let element = lane.elements.pop_front().expect("checked above");
            let of_element = element.passage.serial;
            assert_eq!(of_element, serial, "every serial reaches every lane in order");
            parts.push((number, element));
        }
        let marks = self.joint.take_marks(&mut parts);
        for (lane, element) in &parts {
            self.joint.take(*lane, element.passage.idle, element.watermark);
        }
        let (watermark, idle) = (self.joint.advance(), self.joint.idle_change());
        let parts = parts.into_iter().map(|(_, element)| element).collect();
        let element = combine(parts, idle)?;
        Ok(Some(Element { marks, watermark, ..element }))
    }
}

/// One element of the parts that came by several edges: rows by source row, then edge.
fn combine(parts: Vec<Element>, idle: Option<bool>) -> Result<Element> {
    let of_source = parts[0].passage;
    let ingest_ns = parts.iter().map(|part| part.passage.ingest_ns).max().unwrap_or(0);
    let bytes = parts.iter().map(|part| part.bytes).sum();
    let passage = Passage { ingest_ns, idle, ..of_source };
    let bundles: Vec<Bundle> = parts.into_iter().flat_map(|part| part.bundles).collect();
    let bundles = by_ordinal(bundles)?.into_iter().collect();
    Ok(Element { passage, bundles, marks: None, watermark: None, bytes })
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

    /// The cut has left. What is known of the lanes there, and what waits for rows from behind it.
    /// Those are let in now.
    pub(crate) fn pass_cut(&mut self) -> Result<(InputState, Option<Captured>)> {
        let passed = Watermark::MIN;
        match self {
            MergeKind::Arrival(merge) => Ok((merge.input_state(passed), None)),
            MergeKind::Time(merge) => {
                let at_cut = (merge.input_state(passed), Some(merge.capture()?));
                merge.pass_cut()?;
                Ok(at_cut)
            }
        }
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
