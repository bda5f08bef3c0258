//! The list of stages and what makes a graph of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_core::connector::JobTables;
use thalweg_core::graph::{Graph, Input, StageId, StageKind};
use thalweg_core::shim::{SharedClock, SystemClock};
use thalweg_core::{Error, Operator, Result, Sink, Source};
use thalweg_operators::assigner::{AssignerSpec, WatermarkAssigner};
use thalweg_operators::chain::{Chain, Step};
use thalweg_runtime::{Report, RunOptions, RunningJob};

use super::identity;

/// A pipeline under construction.
#[derive(Clone, Default)]
pub struct Pipeline {
    pub(super) nodes: Rc<RefCell<Vec<Node>>>,
    /// The tables that it reads and writes.
    pub(super) tables: Rc<RefCell<JobTables>>,
}

/// A stage to be.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) kind: NodeKind,
    pub(super) inputs: Vec<Input>,
    /// What it computes, where the builder knows it.
    pub(super) computes: Option<String>,
    /// Why it can't be part of a job with snapshots.
    pub(super) refuses_snapshots: Option<Error>,
}

/// What the stage will be.
pub(super) enum NodeKind {
    /// A source, with its watermark rule once one is declared.
    Source { source: Box<dyn Source>, watermark: Option<AssignerSpec> },
    /// Fused stateless steps.
    Chain(Vec<Step>),
    /// A stateful operator.
    Operator(Arc<dyn Operator>),
    /// A sink.
    Sink(Box<dyn Sink>),
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new() -> Self {
        Pipeline::default()
    }

    pub(super) fn add(&self, name: &str, kind: NodeKind, inputs: Vec<Input>) -> StageId {
        let mut nodes = self.nodes.borrow_mut();
        let name = name.to_owned();
        nodes.push(Node { name, kind, inputs, computes: None, refuses_snapshots: None });
        StageId(nodes.len() - 1)
    }

    /// Adds a stage of which it is known what it computes.
    pub(super) fn add_computing(
        &self,
        (name, computes): (&str, String),
        kind: NodeKind,
        input: Input,
    ) -> StageId {
        let stage = self.add(name, kind, vec![input]);
        self.nodes.borrow_mut()[stage.0].computes = Some(computes);
        stage
    }

    /// Runs the pipeline to the end of its inputs.
    ///
    /// # Errors
    /// What a source, an operator, a sink or a closure reports; a panic in a closure is one too.
    pub fn run(self, options: RunOptions) -> Result<Report> {
        self.start(options)?.wait()
    }

    /// Starts the pipeline and returns while it runs.
    ///
    /// # Errors
    /// What opening a source or a sink reports.
    pub fn start(self, options: RunOptions) -> Result<RunningJob> {
        thalweg_runtime::start(self.graph(), options)
    }

    /// The physical graph, for runs under a driver of one's own. The pipeline is empty afterwards.
    pub fn graph(self) -> Graph {
        let nodes = std::mem::take(&mut *self.nodes.borrow_mut());
        let identifiers = identity::identifiers(&nodes);
        let clock: SharedClock = Arc::new(SystemClock::new());
        let (mut graph, mut watermarks) = (Graph::default(), Vec::new());
        for (node, id) in nodes.into_iter().zip(identifiers) {
            let Node { name, kind, inputs, .. } = node;
            let (kind, watermark) = stage_kind(&name, kind, &clock);
            let stage = graph.add(id, name, kind, inputs);
            watermarks.extend(watermark.map(|spec| (stage, spec)));
        }
        for (stage, spec) in watermarks {
            let interest = graph.watermark_interest(stage);
            let own = WatermarkAssigner::new(AssignerSpec { interest, ..spec });
            if let StageKind::Source { assigner, .. } = &mut graph.stages[stage.0].kind {
                *assigner = Some(Box::new(own));
            }
        }
        graph
    }
}

/// The stage of a node, and the watermark rule of a source.
fn stage_kind(
    name: &str,
    kind: NodeKind,
    clock: &SharedClock,
) -> (StageKind, Option<AssignerSpec>) {
    let kind = match kind {
        NodeKind::Source { source, watermark } => {
            return (StageKind::Source { source, assigner: None }, watermark);
        }
        NodeKind::Chain(steps) => {
            StageKind::Transform(Arc::new(Chain::new(name.to_owned(), steps, clock.clone())))
        }
        NodeKind::Operator(operator) => StageKind::Operator(operator),
        NodeKind::Sink(sink) => StageKind::Sink(sink),
    };
    (kind, None)
}
