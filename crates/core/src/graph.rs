//! The physical graph: what the planner hands to the runtime.
//!
//! Stages stand in topological order: a stage's inputs come before it. Each has a stable
//! identifier, derived by the planner from what the stage computes, under which metrics are kept
//! and (later) state is found again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::connector::{Assign, Sink, Source, Waker};
use crate::operator::{Operator, Transform, WatermarkInterest};

/// The place of a stage in [`Graph::stages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StageId(pub usize);

/// An edge into a stage: which stage it comes from and by which of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The upstream stage.
    pub from: StageId,
    /// Its output port.
    pub port: usize,
}

/// What a stage does.
pub enum StageKind {
    /// Reads rows, stamps them, ends epochs.
    Source {
        /// Where the rows come from.
        source: Box<dyn Source>,
        /// Stamps row times; absent where the table declares no watermark.
        assigner: Option<Box<dyn Assign>>,
    },
    /// Stateless work.
    Transform(Arc<dyn Transform>),
    /// Stateful work.
    Operator(Arc<dyn Operator>),
    /// Writes rows.
    Sink(Box<dyn Sink>),
}

/// A vertex of the graph.
pub struct Stage {
    /// Stable identifier, unique in the graph.
    pub id: String,
    /// What a user calls it.
    pub name: String,
    /// What it does.
    pub kind: StageKind,
    /// Where its rows come from; several inputs form a union.
    pub inputs: Vec<Input>,
    /// Options and settings that decide what its state means, by name, besides what its identifier
    /// says. State that was kept under other values does not fit. No secrets: snapshots hold them.
    pub state_options: BTreeMap<String, String>,
    /// Of a source: what its table says about the watermarks of its splits.
    pub timing: SplitTiming,
}

/// What a table says about the watermarks of its splits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitTiming {
    /// After this silence a split is idle, zero for never; `None` where the job decides.
    pub idle_timeout: Option<Duration>,
    /// How its splits are kept together with those of others.
    pub alignment: Option<Alignment>,
}

/// How splits are kept together in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// All splits of tables with this name belong together.
    pub group: String,
    /// How far the watermark of one may be ahead of the least of all.
    pub max_drift_ms: i64,
    /// How often that is looked at.
    pub update_interval: Duration,
}

/// A job's stages in topological order.
#[derive(Default)]
pub struct Graph {
    /// The stages.
    pub stages: Vec<Stage>,
    /// Which sources wait for others to end.
    pub gates: Vec<Gate>,
}

/// A source that is not asked for rows before another stage has seen its last watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The source that waits.
    pub source: StageId,
    /// The operator that it waits for. None of the source's rows may lead there.
    pub opened_by: StageId,
}

impl Graph {
    /// Adds a stage and returns its place. Its inputs must be in the graph already.
    pub fn add(
        &mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        kind: StageKind,
        inputs: Vec<Input>,
    ) -> StageId {
        let place = StageId(self.stages.len());
        assert!(inputs.iter().all(|input| input.from < place), "inputs come before their stage");
        let (id, name, state_options) = (id.into(), name.into(), BTreeMap::new());
        let timing = SplitTiming::default();
        self.stages.push(Stage { id, name, kind, inputs, state_options, timing });
        place
    }

    /// Everything that feeds these edges waits until a stage has seen its last watermark.
    pub fn add_gate(&mut self, edges: &[Input], opened_by: StageId) {
        for source in self.sources_of(edges) {
            let gate = Gate { source, opened_by };
            if !self.gates.contains(&gate) {
                self.gates.push(gate);
            }
        }
    }

    /// The sources whose rows come by these edges.
    pub fn sources_of(&self, edges: &[Input]) -> Vec<StageId> {
        let mut reached = vec![false; self.stages.len()];
        edges.iter().for_each(|edge| reached[edge.from.0] = true);
        for place in (0..self.stages.len()).rev().filter(|_| !edges.is_empty()) {
            if reached[place] {
                self.stages[place].inputs.iter().for_each(|input| reached[input.from.0] = true);
            }
        }
        let is_source = |&place: &usize| {
            reached[place] && matches!(self.stages[place].kind, StageKind::Source { .. })
        };
        (0..self.stages.len()).filter(is_source).map(StageId).collect()
    }

    /// What ends calls to the outside that sources and sinks wait for.
    pub fn cancellers(&self) -> Vec<Waker> {
        let of_stage = |stage: &Stage| match &stage.kind {
            StageKind::Source { source, .. } => source.canceller(),
            StageKind::Sink(sink) => sink.canceller(),
            _ => None,
        };
        self.stages.iter().filter_map(of_stage).collect()
    }

    /// Which watermarks matter to anything downstream of a stage.
    pub fn watermark_interest(&self, of: StageId) -> WatermarkInterest {
        let mut reached = vec![false; self.stages.len()];
        reached[of.0] = true;
        let mut grids = Vec::new();
        for (place, stage) in self.stages.iter().enumerate().skip(of.0 + 1) {
            reached[place] = stage.inputs.iter().any(|input| reached[input.from.0]);
            if let (true, StageKind::Operator(operator)) = (reached[place], &stage.kind) {
                match operator.watermark_interest() {
                    WatermarkInterest::EndOnly => {}
                    WatermarkInterest::Grids(more) => grids.extend(more),
                    WatermarkInterest::Every => return WatermarkInterest::Every,
                }
            }
        }
        grids.sort_unstable();
        grids.dedup();
        if grids.is_empty() { WatermarkInterest::EndOnly } else { WatermarkInterest::Grids(grids) }
    }
}
