//! Whether the state in a snapshot fits a query: which stages keep theirs, which begin empty, and which
//! state nobody would take back.
//!
//! Stages are told apart by identifiers that follow from what they compute, and from what; so a stage with the
//! identifier of another run computes the same, and its state fits. A changed operator has another identifier: it
//! is one that is gone and one that is new.

use std::collections::BTreeSet;

use thalweg_core::graph::{Graph, Stage, StageKind};
use thalweg_core::snapshot::{RestoredCut, StageState};
use thalweg_core::{Error, Restored, Result};
use thalweg_state::{SnapshotDetails, TableSummary};

use super::speech::Speech;

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
    /// New stages behind an input that had ended already: it would tell them nothing, not even its end.
    pub unfed: Vec<StageName>,
}

impl Comparison {
    /// Compares a snapshot with the graph of a query.
    pub fn of(cut: &RestoredCut, graph: &Graph) -> Self {
        let has_rows = |state: &Restored| {
            state.names().any(|name| state.table(name).iter().any(|batch| batch.num_rows() > 0))
        };
        Self::of_told(&told(&cut.stages, has_rows), graph)
    }

    /// The same without the rows of the snapshot.
    pub fn of_details(details: &SnapshotDetails, graph: &Graph) -> Self {
        let has_rows = |tables: &Vec<TableSummary>| tables.iter().any(|table| table.rows > 0);
        Self::of_told(&told(&details.stages, has_rows), graph)
    }

    /// What would become of the state of another query, which is taken to have some everywhere.
    pub fn of_queries(old: &Graph, new: &Graph) -> Self {
        let told = |stage| Told { name: name_of(stage), has_something: true, has_ended: false };
        let told = stateful(old).map(told);
        Self::of_told(&told.collect::<Vec<_>>(), new)
    }

    fn of_told(told: &[Told], graph: &Graph) -> Self {
        // Also what has no state of its own: in contract `event_time` rows may wait in front of it.
        let present: BTreeSet<&str> = graph.stages.iter().map(|stage| stage.id.as_str()).collect();
        let known: BTreeSet<&str> = told.iter().map(|stage| stage.name.id.as_str()).collect();
        let mut comparison = Comparison::default();
        for stage in stateful(graph) {
            let place = match known.contains(stage.id.as_str()) {
                true => &mut comparison.kept,
                false => &mut comparison.added,
            };
            place.push(name_of(stage));
        }
        let is_gone = |told: &&Told| !present.contains(told.name.id.as_str()) && told.has_something;
        comparison.removed = told.iter().filter(is_gone).map(|stage| stage.name.clone()).collect();
        let ended = told.iter().filter(|stage| stage.has_ended);
        let ended: BTreeSet<&str> = ended.map(|stage| stage.name.id.as_str()).collect();
        comparison.unfed = unfed(graph, &known, &ended);
        comparison
    }

    /// An error if there is state that nobody would take back, unless that is wanted.
    ///
    /// # Errors
    /// Names the stages. Also if a new stage would never get anything.
    pub fn check(&self, drop_state: bool, speech: Speech) -> Result<()> {
        if let Some(stage) = self.unfed.first() {
            return Err(Error::plan(format!(
                "an input of {} ({}) had ended when the snapshot was taken, and nothing of it would come again",
                stage.name, stage.id
            ))
            .hint(format!(
                "leave what is new out of this job and run it as one of its own, which sees all rows; or begin anew, \
                 {}, with outputs that are empty",
                speech.begin_anew()
            )));
        }
        if self.removed.is_empty() || drop_state {
            return Ok(());
        }
        let names: Vec<String> =
            self.removed.iter().map(|gone| format!("{} ({})", gone.name, gone.id)).collect();
        Err(Error::plan(format!(
            "the snapshot holds state that the {} has no use for: {}",
            speech.job(),
            names.join(", ")
        ))
        .hint(speech.drop_state()))
    }
}

/// A stage that there was.
struct Told {
    name: StageName,
    /// Something is lost without it.
    has_something: bool,
    /// It is a source that was read to its end.
    has_ended: bool,
}

fn told<T>(stages: &[StageState<T>], has_rows: impl Fn(&T) -> bool) -> Vec<Told> {
    let of = |stage: &StageState<T>| Told {
        name: StageName { id: stage.id.clone(), name: stage.name.clone() },
        has_something: stage.source.is_some()
            || stage.sink.as_ref().is_some_and(|sink| sink.handle.is_some())
            || has_rows(&stage.state)
            || has_rows(&stage.waiting),
        has_ended: stage.source.as_ref().is_some_and(|source| source.finished),
    };
    stages.iter().map(of).collect()
}

/// New operators and sinks of which an input was over: a source that had ended, or what gets rows only from such.
fn unfed(graph: &Graph, known: &BTreeSet<&str>, ended: &BTreeSet<&str>) -> Vec<StageName> {
    let mut is_over = Vec::with_capacity(graph.stages.len());
    let mut found = Vec::new();
    for stage in &graph.stages {
        let mut inputs = stage.inputs.iter().map(|input| is_over[input.from.0]);
        let keeps = !matches!(stage.kind, StageKind::Transform(_));
        if keeps && !known.contains(stage.id.as_str()) && inputs.clone().any(|over| over) {
            found.push(name_of(stage));
        }
        is_over.push(match stage.inputs.is_empty() {
            true => ended.contains(stage.id.as_str()),
            false => inputs.all(|over| over),
        });
    }
    found
}

/// Sources, operators and sinks.
fn stateful(graph: &Graph) -> impl Iterator<Item = &Stage> {
    graph.stages.iter().filter(|stage| !matches!(stage.kind, StageKind::Transform(_)))
}

fn name_of(stage: &Stage) -> StageName {
    StageName { id: stage.id.clone(), name: stage.name.clone() }
}
