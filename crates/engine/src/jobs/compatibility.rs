//! Whether the state in a snapshot fits a query: which stages keep theirs, which begin empty, and which
//! state nobody would take back.
//!
//! Stages are told apart by identifiers that follow from what they compute, and from what; so a stage with the
//! identifier of another run computes the same, and its state fits. A changed operator has another identifier: it
//! is one that is gone and one that is new.

use std::collections::BTreeSet;

use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::snapshot::{RestoredCut, StageState};
use thalweg_core::{Error, Restored, Result};

/// A stage as a person is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageName {
    /// Its identifier.
    pub id: String,
    /// What it is called.
    pub name: String,
}

/// What becomes of the state in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Stages that go on with their state.
    pub kept: Vec<StageName>,
    /// Stages that begin empty; sources among them from the beginning of their input.
    pub added: Vec<StageName>,
    /// Stages whose state nobody would take back.
    pub removed: Vec<StageName>,
}

impl Comparison {
    /// Compares a snapshot with the graph of a query.
    pub fn of(cut: &RestoredCut, graph: &Graph) -> Self {
        let is_stateful = |kind: &StageKind| !matches!(kind, StageKind::Transform(_));
        let stages = graph.stages.iter().filter(|stage| is_stateful(&stage.kind));
        let present: BTreeSet<&str> = stages.clone().map(|stage| stage.id.as_str()).collect();
        let told: BTreeSet<&str> = cut.stages.iter().map(|stage| stage.id.as_str()).collect();
        let name = |id: &str, name: &str| StageName { id: id.to_owned(), name: name.to_owned() };
        let mut comparison = Comparison::default();
        for stage in stages {
            let place = match told.contains(stage.id.as_str()) {
                true => &mut comparison.kept,
                false => &mut comparison.added,
            };
            place.push(name(&stage.id, &stage.name));
        }
        let is_gone = |stage: &&StageState<Restored>| {
            !present.contains(stage.id.as_str()) && has_something(stage)
        };
        let gone = cut.stages.iter().filter(is_gone);
        comparison.removed = gone.map(|stage| name(&stage.id, &stage.name)).collect();
        comparison
    }

    /// An error if there is state that nobody would take back, unless that is wanted.
    ///
    /// # Errors
    /// Names the stages.
    pub fn check(&self, drop_state: bool) -> Result<()> {
        if self.removed.is_empty() || drop_state {
            return Ok(());
        }
        let names: Vec<String> =
            self.removed.iter().map(|gone| format!("{} ({})", gone.name, gone.id)).collect();
        Err(Error::plan(format!(
            "the snapshot holds state that the query has no use for: {}",
            names.join(", ")
        ))
        .hint(
            "run the query that the snapshot is of; or let that state go with --drop-state \
             (`thalweg upgrade --dry-run` shows what would be kept)",
        ))
    }
}

/// True if something is lost without the stage.
fn has_something(stage: &StageState<Restored>) -> bool {
    let has_rows = |state: &Restored| {
        state.names().any(|name| state.table(name).iter().any(|batch| batch.num_rows() > 0))
    };
    stage.source.is_some()
        || stage.sink.as_ref().is_some_and(|sink| sink.handle.is_some())
        || has_rows(&stage.state)
        || has_rows(&stage.waiting)
}
