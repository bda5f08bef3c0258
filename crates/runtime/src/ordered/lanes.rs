//! What the lanes of a merge have reached together, in the sequence of the merge.
//!
//! **The invariant that makes it work:** idleness comes in the sequence, as watermarks do; so which
//! rows a lane's return makes late depends on that sequence alone, however the workers ran.

use std::collections::BTreeSet;
use std::ops::Range;

use thalweg_core::snapshot::InputState;
use thalweg_core::{Result, Stamps, Watermark, WatermarkBefore};

use super::element::Element;
use super::marks::{Mark, Marks};
use crate::joint_watermark::JointWatermark;

/// The joint watermark of the lanes that are not idle.
pub(super) struct JointOfLanes {
    joint: JointWatermark,
    idle: Vec<bool>,
    /// What was said downstream.
    is_idle: bool,
}

impl JointOfLanes {
    pub(super) fn new(lanes: usize) -> Self {
        JointOfLanes { joint: JointWatermark::new(lanes), idle: vec![false; lanes], is_idle: false }
    }

    /// What is known, for a snapshot.
    pub(super) fn input_state(&self, passed: Watermark) -> InputState {
        self.joint.input_state(|lane| self.idle[lane], passed)
    }

    /// Restores what was known.
    pub(super) fn restore(&mut self, saved: &InputState) -> Result<()> {
        self.joint.restore(saved)?;
        self.idle = saved.lanes.iter().map(|lane| lane.idle).collect();
        // What was said downstream follows from what is known here, and was said.
        let _ = self.idle_change();
        Ok(())
    }

    /// An element of a lane has its turn: what it says of the lane.
    pub(super) fn take(&mut self, lane: usize, idle: Option<bool>, watermark: Option<Watermark>) {
        idle.into_iter().for_each(|idle| self.set_idle(lane, idle));
        watermark.into_iter().for_each(|watermark| self.raise(lane, watermark));
    }

    /// A lane is idle from here on, or no longer.
    pub(super) fn set_idle(&mut self, lane: usize, idle: bool) {
        self.idle[lane] = idle;
    }

    /// The watermark of a lane has its turn.
    pub(super) fn raise(&mut self, lane: usize, watermark: Watermark) {
        self.joint.raise(lane, watermark);
    }

    /// Whether all lanes together are idle, if that has changed: each is, or has ended.
    pub(super) fn idle_change(&mut self) -> Option<bool> {
        let mut open = (0..self.idle.len()).filter(|&lane| !self.joint.has_ended(lane)).peekable();
        let is_idle = open.peek().is_some() && open.all(|lane| self.idle[lane]);
        let before = std::mem::replace(&mut self.is_idle, is_idle);
        (before != is_idle).then_some(is_idle)
    }

    /// The joint watermark, if it has moved.
    pub(super) fn advance(&mut self) -> Option<Watermark> {
        let idle = &self.idle;
        self.joint.advance(|lane| idle[lane]).then(|| self.joint.watermark())
    }

    /// Goes through the marks of elements that came by these lanes: stamps the rows between them,
    /// and says where the joint watermark moves. Their watermarks behind all rows have yet to be
    /// taken.
    pub(super) fn take_marks(&mut self, parts: &mut [(usize, Element)]) -> Marks {
        let marks = parts.iter().filter_map(|(_, element)| element.marks.as_deref()).flatten();
        let places: BTreeSet<i64> = marks.map(|mark| mark.place).collect();
        let (mut joint, mut from) = (Vec::new(), i64::MIN);
        for place in places {
            self.stamp_parts(parts, from..place + 1);
            for (lane, element) in &*parts {
                let Some(marks) = &element.marks else { continue };
                if let Ok(mark) = marks.binary_search_by_key(&place, |mark| mark.place) {
                    self.raise(*lane, marks[mark].watermark);
                }
            }
            joint.extend(self.advance().map(|watermark| Mark { place, watermark }));
            from = place + 1;
        }
        self.stamp_parts(parts, from..i64::MAX);
        (!joint.is_empty()).then(|| joint.into())
    }

    /// Rows at these places, of lanes that the others advanced without, are behind what those have
    /// reached.
    fn stamp_parts(&self, parts: &mut [(usize, Element)], places: Range<i64>) {
        let behind = parts.iter_mut().filter(|(lane, _)| self.joint.is_behind(*lane));
        let bundles = behind.flat_map(|(_, element)| &mut element.bundles);
        bundles.for_each(|bundle| raise(&mut bundle.stamps, &places, self.joint.watermark()));
    }

    /// Rows of a lane that the others advanced without are behind what those have reached.
    pub(super) fn stamp(&self, lane: usize, stamps: &mut WatermarkBefore) {
        if self.joint.is_behind(lane) {
            *stamps = stamps.raised_to(self.joint.watermark());
        }
    }
}

/// Rows at these places are behind this watermark at least.
fn raise(stamps: &mut Stamps, places: &Range<i64>, reached: Watermark) {
    let Some(of_rows) = stamps.row_places.as_ref().filter(|_| *places != (i64::MIN..i64::MAX))
    else {
        stamps.watermark_before = stamps.watermark_before.raised_to(reached);
        return;
    };
    let row_at = |place: i64| of_rows.partition_point(|&of_row| of_row < place);
    let rows = row_at(places.start)..row_at(places.end);
    let least = |row: usize| if rows.contains(&row) { reached } else { Watermark::MIN };
    let before = |row: usize| stamps.watermark_before.at(row).max(least(row)).0;
    stamps.watermark_before = WatermarkBefore::Rows((0..of_rows.len()).map(before).collect());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use thalweg_core::Bundle;

    use super::*;
    use crate::ordered::element::Passage;

    /// An element of four rows at even places, with these marks.
    fn element(marks: &[(i64, i64)]) -> Element {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..4));
        let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
        let stamps = Stamps { row_places: Some(vec![0, 2, 4, 6].into()), ..Stamps::first() };
        let mark = |&(place, ms)| Mark { place, watermark: Watermark(ms) };
        let marks: Vec<Mark> = marks.iter().map(mark).collect();
        Element {
            passage: Passage::new(0, i64::MIN),
            bundles: vec![Bundle::new(batch, stamps)],
            marks: (!marks.is_empty()).then(|| marks.into()),
            watermark: None,
            bytes: 0,
        }
    }

    fn before(element: &Element) -> Vec<i64> {
        (0..4).map(|row| element.bundles[0].stamps.watermark_before.at(row).0).collect()
    }

    fn watermarks(marks: Marks) -> Vec<(i64, i64)> {
        marks.iter().flat_map(|marks| marks.iter()).map(|of| (of.place, of.watermark.0)).collect()
    }

    #[test]
    fn at_each_mark_the_joint_watermark_is_the_least_of_the_lanes() {
        let mut lanes = JointOfLanes::new(2);
        let mut parts = [(0, element(&[(1, 10), (5, 30)])), (1, element(&[(1, 5), (3, 20)]))];
        assert_eq!(watermarks(lanes.take_marks(&mut parts)), [(1, 5), (3, 10), (5, 20)]);
        assert!(parts.iter().all(|(_, part)| before(part) == [i64::MIN; 4]), "no lane is behind");
    }

    /// A lane has been idle and has rows again: they are late as far as the other has advanced
    /// without it, and no longer behind the mark at which it has come up.
    #[test]
    fn rows_of_a_lane_that_is_behind_are_stamped_between_the_marks() {
        let mut lanes = JointOfLanes::new(2);
        lanes.set_idle(1, true);
        lanes.raise(0, Watermark(10));
        assert_eq!(lanes.advance(), Some(Watermark(10)));
        let mut parts = [(0, element(&[(1, 20)])), (1, element(&[(3, 40)]))];
        assert_eq!(watermarks(lanes.take_marks(&mut parts)), [(1, 20)]);
        assert_eq!(before(&parts[0].1), [i64::MIN; 4]);
        assert_eq!(before(&parts[1].1), [10, 20, i64::MIN, i64::MIN]);
        let mut parts = [(0, element(&[(3, 50)])), (1, element(&[]))];
        assert_eq!(watermarks(lanes.take_marks(&mut parts)), [(3, 50)]);
        assert_eq!(before(&parts[1].1), [i64::MIN, i64::MIN, 50, 50]);
    }
}
