//! The list of stages and what makes a graph of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_core::connector::JobTables;
use thalweg_core::graph::{Graph, Input, StageId, StageKind};
use thalweg_core::shim::{SharedClock, SystemClock};
use thalweg_core::{Error, Operator, Result, Sink, Source, Transform};
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
    /// Which edges are read after a stage has seen its last row.
    gates: Rc<RefCell<Vec<(Input, StageId)>>>,
    /// What is wrong with it that no method could report.
    refusal: Rc<RefCell<Option<Error>>>,
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
    /// A stateless stage of its own.
    Transform(Arc<dyn Transform>),
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

    /// Adds a stage; where its rows are taken from.
    pub(super) fn add(&self, name: &str, kind: NodeKind, inputs: Vec<Input>) -> Input {
        let mut nodes = self.nodes.borrow_mut();
        let name = name.to_owned();
        nodes.push(Node { name, kind, inputs, computes: None, refuses_snapshots: None });
        Input { from: StageId(nodes.len() - 1), port: 0 }
    }

    /// Adds a stage of which it is known what it computes.
    pub(super) fn add_computing(
        &self,
        (name, computes): (&str, String),
        kind: NodeKind,
        inputs: Vec<Input>,
    ) -> Input {
        let edge = self.add(name, kind, inputs);
        self.nodes.borrow_mut()[edge.from.0].computes = Some(computes);
        edge
    }

    /// True for handles of the same pipeline.
    pub(crate) fn is(&self, other: &Pipeline) -> bool {
        Rc::ptr_eq(&self.nodes, &other.nodes)
    }

    /// Notes what keeps the pipeline from starting; the first one counts.
    pub(crate) fn refuse(&self, why: Error) {
        self.refusal.borrow_mut().get_or_insert(why);
    }

    /// Lets the sources of an edge wait until `opened_by` has seen its last row.
    ///
    /// # Errors
    /// If they would wait for themselves.
    pub(crate) fn add_gate(&self, edge: Input, opened_by: StageId) -> Result<()> {
        let (waiting, mut awaited) = (self.sources_of(edge.from), self.sources_of(opened_by));
        let mut seen = Vec::new();
        while let Some(source) = awaited.pop() {
            let nodes = self.nodes.borrow();
            if waiting.contains(&source) {
                let (name, first) = (&nodes[source.0].name, &nodes[opened_by.0].name);
                let message = format!("the source '{name}' feeds '{first}', and is to wait for it");
                return Err(Error::plan(message).hint("read it by a second source"));
            }
            if !seen.contains(&source) {
                seen.push(source);
                let gates = self.gates.borrow();
                let own =
                    gates.iter().filter(|(edge, _)| self.sources_of(edge.from).contains(&source));
                awaited.extend(own.flat_map(|(_, opener)| self.sources_of(*opener)));
            }
        }
        self.gates.borrow_mut().push((edge, opened_by));
        Ok(())
    }

    /// The sources whose rows come to a stage.
    fn sources_of(&self, stage: StageId) -> Vec<StageId> {
        let nodes = self.nodes.borrow();
        let mut reached = vec![false; stage.0 + 1];
        reached[stage.0] = true;
        for place in (0..=stage.0).rev() {
            if reached[place] {
                nodes[place].inputs.iter().for_each(|input| reached[input.from.0] = true);
            }
        }
        let is_source = |&place: &usize| reached[place] && nodes[place].inputs.is_empty();
        (0..=stage.0).filter(is_source).map(StageId).collect()
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
    /// If it does not fit together; what opening a source or a sink reports.
    pub fn start(self, options: RunOptions) -> Result<RunningJob> {
        self.check()?;
        thalweg_runtime::start(self.graph(), options)
    }

    /// The mistake that was noted while it was built, if there is one.
    pub(super) fn check(&self) -> Result<()> {
        self.refusal.borrow_mut().take().map_or(Ok(()), Err)
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
        for (edge, opened_by) in self.gates.take() {
            graph.add_gate(&[edge], opened_by);
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
        NodeKind::Transform(transform) => StageKind::Transform(transform),
        NodeKind::Operator(operator) => StageKind::Operator(operator),
        NodeKind::Sink(sink) => StageKind::Sink(sink),
    };
    (kind, None)
}
