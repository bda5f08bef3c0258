//! What the lanes of a merge have reached together, in the sequence of the merge.
//!
//! **The invariant that makes it work:** idleness comes in the sequence, as watermarks do; so which
//! rows a lane's return makes late depends on that sequence alone, however the workers ran.

use thalweg_core::snapshot::InputState;
use thalweg_core::{Result, Watermark, WatermarkBefore};

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

    /// Rows of a lane that the others advanced without are behind what those have reached.
    pub(super) fn stamp(&self, lane: usize, stamps: &mut WatermarkBefore) {
        if !self.joint.is_behind(lane) {
            return;
        }
        let reached = self.joint.watermark();
        match stamps {
            WatermarkBefore::All(before) => *before = reached.max(*before),
            WatermarkBefore::Rows(before) => {
                *before = before.iter().map(|&before| before.max(reached.0)).collect();
            }
        }
    }
}
