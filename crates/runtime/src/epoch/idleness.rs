//! Idle inputs in the flow of `epoch`: lanes behind which every source is idle do not count for the
//! joint watermark.

use thalweg_core::Watermark;
use thalweg_core::snapshot::{InputState, LaneState};
use thalweg_ordering::sync::Ordering;

use super::EpochStage;
use crate::barrier::Joint;
use crate::job::Job;
use crate::stage::{SinkRun, SourceState, StageRunKind};

/// Works out again which lanes are idle (every source behind them is), and lets operators
/// advance without them.
pub(crate) fn spread_idleness(job: &Job) {
    // Two at once could leave what the slower one read before.
    let _one_at_a_time = job.idleness.lock().expect("no panic under this lock");
    for stage in job.stages.iter() {
        let is_idle = match &stage.kind {
            StageRunKind::Source(source) => source.idle.load(Ordering::SeqCst),
            _ => stage.lanes.iter().all(|lane| lane.is_idle()),
        };
        for edge in &stage.edges {
            let down = &job.stages[edge.to.0];
            let joins = matches!(stage.kind, StageRunKind::Operator(_)) && edge.port == 0;
            for lane in 0..if joins { 1 } else { stage.lanes.len().max(1) } {
                let value = match &stage.kind {
                    StageRunKind::Transform(_) => stage.lanes[lane].is_idle(),
                    _ => is_idle,
                };
                down.lanes[edge.lane_base + lane].idle.store(value, Ordering::SeqCst);
            }
        }
    }
    for (place, _) in job.stages.operators() {
        let stage = EpochStage::of(job, place);
        if stage.run.lanes.len() > 1 {
            stage.begin_watermark(&[]);
        }
    }
}

impl EpochStage<'_> {
    /// An idle input has rows again: its splits begin at what the others have reached, so that rows
    /// which they have passed are late.
    pub(crate) fn wake_from_idle(&self, state: &mut SourceState) {
        // First of all the lanes are counted again, so that what is read below stays true.
        spread_idleness(self.job);
        let reached = self.job.stages.reached_behind(self.place);
        if reached < Watermark::END {
            state.splits.raise_joint(reached);
        }
    }

    /// What an operator knows of its lanes, for a snapshot.
    pub(super) fn joint_state(&self, joint: &Joint) -> InputState {
        joint.watermark.input_state(|lane| self.run.lanes[lane].is_idle(), joint.passed)
    }

    /// What a sink knows of its lanes, for a snapshot.
    pub(super) fn lanes_state(&self, sink: &SinkRun) -> InputState {
        // Which of them are open makes no difference to a sink.
        let open = sink.open_lanes.load(Ordering::SeqCst);
        let watermark = |lane| if lane < open { Watermark::MIN } else { Watermark::END };
        let lane = |lane| LaneState { watermark: watermark(lane), idle: false };
        let lanes = (0..self.run.lanes.len()).map(lane).collect();
        let (joint, passed) = (Watermark::MIN, Watermark::MIN);
        InputState { lanes, ended_at: Watermark::MIN, joint, passed }
    }
}
