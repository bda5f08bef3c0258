//! Whether the state in a snapshot fits a query: which stages keep theirs, which begin empty, and
//! which state nobody would restore.
//!
//! Stages have identifiers that follow from what they compute, and from what; so a
//! stage with the identifier of another run computes the same, and its state fits if the options
//! that decide what it means are the same ([`Stage::state_options`], which manifests note). A
//! changed operator has another identifier: it is one that is gone and one that is new.
//!
//! A resume and `thalweg upgrade --dry-run` ask the same function, [`check_snapshot`], with the
//! same facts.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_core::graph::{Graph, Stage, StageKind};
use thalweg_core::snapshot::StageState;
use thalweg_core::{Error, OrderContract, Result};
use thalweg_state::{SnapshotDetails, TableSummary};

use super::interface::Interface;

/// A stage as messages name it.
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
    /// Stages that continue with their state.
    pub kept: Vec<StageName>,
    /// Stages that begin empty; sources among them from the beginning of their input.
    pub added: Vec<StageName>,
    /// Stages whose state nobody would restore.
    pub removed: Vec<StageName>,
    /// New stages behind an input that had ended already: it would send them nothing, not even its
    /// end.
    pub unfed: Vec<StageName>,
    /// Stages that compute the same under options that decide what their state means, and that have
    /// changed.
    pub changed_stages: Vec<StageName>,
    /// Those options.
    pub changed: Vec<ChangedOption>,
    /// New sources that lead to sinks which there were, while the position of another source has no
    /// use: the source may have been renamed.
    pub read_again: Vec<(StageName, StageName)>,
}

/// An option that decides what the state of a stage means, and that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedOption {
    /// The stage.
    pub stage: StageName,
    /// The option's name.
    pub option: String,
    /// What it was when the snapshot was taken.
    pub before: String,
    /// What it is now.
    pub now: String,
}

impl Comparison {
    /// Compares a snapshot with the graph of a query. The rows of the snapshot are not looked at.
    pub fn of_details(details: &SnapshotDetails, graph: &Graph) -> Self {
        let has_rows = |tables: &Vec<TableSummary>| tables.iter().any(|table| table.rows > 0);
        Self::of_stages(&known_stages(&details.stages, has_rows), &details.header.notes, graph)
    }

    /// What would become of the state of another query, which is taken to have some everywhere.
    pub fn of_queries(old: &Graph, new: &Graph) -> Self {
        let stages = |stage: &Stage| KnownStage {
            name: name_of(stage),
            has_something: true,
            is_source: matches!(stage.kind, StageKind::Source { .. }),
            has_ended: false,
        };
        let stages = stateful(old).map(stages);
        Self::of_stages(&stages.collect::<Vec<_>>(), &notes_of(old), new)
    }

    fn of_stages(stages: &[KnownStage], notes: &Notes, graph: &Graph) -> Self {
        // Also what has no state of its own: in contract `event_time` rows may wait in front of it.
        let present: BTreeSet<&str> = graph.stages.iter().map(|stage| stage.id.as_str()).collect();
        let known: BTreeSet<&str> = stages.iter().map(|stage| stage.name.id.as_str()).collect();
        let mut comparison = Comparison::default();
        for stage in stateful(graph) {
            let changed = match known.contains(stage.id.as_str()) {
                true => changed_options(notes, stage),
                false => Vec::new(),
            };
            let place = match known.contains(stage.id.as_str()) {
                true if changed.is_empty() => &mut comparison.kept,
                true => &mut comparison.changed_stages,
                false => &mut comparison.added,
            };
            place.push(name_of(stage));
            comparison.changed.extend(changed);
        }
        let is_gone = |stages: &&KnownStage| {
            !present.contains(stages.name.id.as_str()) && stages.has_something
        };
        let gone = || stages.iter().filter(is_gone);
        comparison.removed = gone().map(|stage| stage.name.clone()).collect();
        let ended = stages.iter().filter(|stage| stage.has_ended);
        let ended: BTreeSet<&str> = ended.map(|stage| stage.name.id.as_str()).collect();
        comparison.unfed = unfed(graph, &known, &ended);
        if gone().any(|stage| stage.is_source) {
            comparison.read_again = read_again(graph, &known);
        }
        comparison
    }

    /// An error if the state does not fit the query: if there is state that nobody would restore,
    /// unless that is wanted; if options have changed that decide what state means; if a new stage
    /// would never get anything; if a source would write again what another has written.
    ///
    /// # Errors
    /// Names the stages.
    pub fn check(&self, drop_state: bool, interface: Interface) -> Result<()> {
        if let Some(stage) = self.unfed.first() {
            return Err(Error::plan(format!(
                "an input of {} ({}) had ended when the snapshot was taken, and nothing of it would come again",
                stage.name, stage.id
            ))
            .hint(format!(
                "leave what is new out of this job and run it as one of its own, which sees all rows; or start from scratch, \
                 {}, with outputs that are empty",
                interface.start_from_scratch()
            )));
        }
        self.check_options(interface)?;
        if !self.removed.is_empty() && !drop_state {
            let names: Vec<String> =
                self.removed.iter().map(|gone| format!("{} ({})", gone.name, gone.id)).collect();
            return Err(Error::plan(format!(
                "the snapshot holds state that the {} has no use for: {}",
                interface.job(),
                names.join(", ")
            ))
            .hint(interface.drop_state()));
        }
        self.check_sources(interface)
    }

    fn check_options(&self, interface: Interface) -> Result<()> {
        let Some(ChangedOption { stage, option, before, now }) = self.changed.first() else {
            return Ok(());
        };
        Err(Error::plan(format!(
            "the state of {} ({}) was kept under '{option}' = '{before}', and now it is '{now}': it would mean something else",
            stage.name, stage.id
        ))
        .hint(format!(
            "set the option back, or start from scratch, {}, with outputs that are empty",
            interface.start_from_scratch()
        )))
    }

    /// A source under another name begins at its beginning; behind a sink that has rows already
    /// they come twice.
    fn check_sources(&self, interface: Interface) -> Result<()> {
        let Some((source, sink)) = self.read_again.first() else { return Ok(()) };
        Err(Error::plan(format!(
            "{} ({}) is a new source and would be read from its beginning, while the position of another is dropped; \
             '{}' keeps its rows, and may get them twice",
            source.name, source.id, sink.name
        ))
        .hint(format!(
            "give the table the name that it had; or start from scratch, {}, with outputs that are empty",
            interface.start_from_scratch()
        )))
    }
}

/// What a manifest notes of options, by stage and name.
type Notes = BTreeMap<String, String>;

/// The options that decide what state means, as a manifest notes them.
pub(crate) fn notes_of(graph: &Graph) -> Notes {
    let of = |stage: &Stage| {
        let id = stage.id.clone();
        let options = stage.state_options.clone().into_iter();
        options.map(move |(name, value)| (format!("{id} {name}"), value))
    };
    stateful(graph).flat_map(of).collect()
}

/// The options of a stage that were others. A stage of which none were noted had none.
fn changed_options(notes: &Notes, stage: &Stage) -> Vec<ChangedOption> {
    let prefix = format!("{} ", stage.id);
    let noted = notes.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
    let before: BTreeMap<&str, &String> = noted.collect();
    if before.is_empty() {
        return Vec::new();
    }
    let none = || "not set".to_owned();
    let now = &stage.state_options;
    let names: BTreeSet<&str> =
        before.keys().copied().chain(now.keys().map(String::as_str)).collect();
    let changed = |name: &str| {
        let (before, now) = (before.get(name).copied(), now.get(name));
        (before != now).then(|| ChangedOption {
            stage: name_of(stage),
            option: name.to_owned(),
            before: before.cloned().unwrap_or_else(none),
            now: now.cloned().unwrap_or_else(none),
        })
    };
    names.into_iter().filter_map(changed).collect()
}

/// New sources whose rows get to a sink that there was, and that sink.
fn read_again(graph: &Graph, known: &BTreeSet<&str>) -> Vec<(StageName, StageName)> {
    let is_known = |stage: &Stage| known.contains(stage.id.as_str());
    let mut from: Vec<Option<usize>> = Vec::with_capacity(graph.stages.len());
    let mut found = Vec::new();
    for (place, stage) in graph.stages.iter().enumerate() {
        let new_source = match &stage.kind {
            StageKind::Source { .. } if !is_known(stage) => Some(place),
            _ => stage.inputs.iter().find_map(|input| from[input.from.0]),
        };
        if let (StageKind::Sink(_), Some(source), true) = (&stage.kind, new_source, is_known(stage))
        {
            found.push((name_of(&graph.stages[source]), name_of(stage)));
        }
        from.push(new_source);
    }
    found
}

/// Checks that a snapshot fits a job, and reports what becomes of its state.
///
/// # Errors
/// If it was taken under another contract of order; as [`Comparison::check`].
pub fn check_snapshot(
    details: &SnapshotDetails,
    (order, graph): (OrderContract, &Graph),
    drop_state: bool,
    interface: Interface,
) -> Result<Comparison> {
    check_order(details.header.order, order, interface)?;
    let comparison = Comparison::of_details(details, graph);
    comparison.check(drop_state, interface)?;
    Ok(comparison)
}

/// Refuses state of another contract of order.
///
/// # Errors
/// If it is another one.
pub fn check_order(before: OrderContract, now: OrderContract, interface: Interface) -> Result<()> {
    if before == now {
        return Ok(());
    }
    Err(Error::plan(format!(
        "the snapshot was taken under {} '{before}', and the job is to run under '{now}'",
        interface.order(),
    ))
    .hint("run it under the same contract, or start from scratch"))
}

/// A stage that there was.
struct KnownStage {
    name: StageName,
    /// Something is lost without it.
    has_something: bool,
    /// It is a source.
    is_source: bool,
    /// It is a source that was read to its end.
    has_ended: bool,
}

fn known_stages<T>(stages: &[StageState<T>], has_rows: impl Fn(&T) -> bool) -> Vec<KnownStage> {
    let of = |stage: &StageState<T>| KnownStage {
        name: StageName { id: stage.id.clone(), name: stage.name.clone() },
        has_something: stage.source.is_some()
            || stage.sink.as_ref().is_some_and(|sink| sink.handle.is_some())
            || has_rows(&stage.state)
            || has_rows(&stage.waiting),
        is_source: stage.source.is_some(),
        has_ended: stage.source.as_ref().is_some_and(|source| source.finished),
    };
    stages.iter().map(of).collect()
}

/// New operators and sinks of which an input was over: a source that had ended, or what gets rows
/// only from such.
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
