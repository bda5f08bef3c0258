//! `thalweg upgrade --dry-run`: what becomes of a job's state when its statements change.
//!
//! What a resume would refuse is refused here, by the same function with the same facts. Nothing is run, opened or
//! changed: stages are told apart by their identifiers, which follow from what they
//! compute ([`thalweg::jobs::compatibility`]).

use std::path::Path;

use thalweg::jobs::compatibility::{Comparison, StageName, check_order, check_snapshot};
use thalweg::jobs::{SnapshotReference, Speech, open_folder};
use thalweg::session::{PlannedJob, Session};
use thalweg_connectors::output::Format;
use thalweg_core::{Error, Result};
use thalweg_state::{Lineage, SnapshotStore};

use super::arguments::{ScriptArguments, UpgradeArguments};
use super::exit::{FAILED, Failure, with_source};
use super::snapshot::{Cell, ColumnKind, Heading, newest, open, place, print_rows};
use super::source::ScriptSource;
use super::terminal::print;

const COMPARED: [Heading; 3] = [
    ("state", "state", ColumnKind::Text),
    ("operator", "operator", ColumnKind::Text),
    ("id", "id", ColumnKind::Text),
];

/// Compares; returns the exit status.
pub fn upgrade(arguments: &UpgradeArguments) -> u8 {
    with_source(&arguments.script, |source| {
        let text = super::check::substituted(source, &arguments.script)?;
        let jobs = planned(source, &arguments.script, &text)
            .map_err(|error| Failure { error, text: Some(text) })?;
        Ok(compare(arguments, &jobs)?)
    })
}

fn planned(
    source: &ScriptSource,
    arguments: &ScriptArguments,
    text: &str,
) -> Result<Vec<PlannedJob>> {
    let jobs = Session::new(source.session_options(arguments)?)?.planned_jobs(text)?;
    if jobs.is_empty() {
        return Err(Error::plan("the new statements have no INSERT")
            .hint("snapshots are taken of INSERTs and statement sets"));
    }
    Ok(jobs)
}

/// What there was, and what is to be done to go on from it.
struct Found {
    comparison: Comparison,
    /// Why a resume would be refused; what `--drop-state` permits is not.
    refusal: Option<Error>,
    /// The options of `thalweg run` that go on from it.
    options: String,
}

fn compare(arguments: &UpgradeArguments, jobs: &[PlannedJob]) -> Result<u8> {
    let old = Path::new(&arguments.old);
    let found = match old.extension() {
        Some(ending) if ending == "sql" => of_statements(arguments, jobs)?,
        _ => vec![of_snapshot(arguments, jobs)?],
    };
    let mut status = 0;
    for found in &found {
        tell(arguments, found)?;
        if !found.comparison.removed.is_empty() || found.refusal.is_some() {
            status = FAILED;
        }
    }
    Ok(status)
}

/// Compares with another file of statements, job by job in order.
fn of_statements(arguments: &UpgradeArguments, jobs: &[PlannedJob]) -> Result<Vec<Found>> {
    let old = ScriptArguments {
        file: Some(arguments.old.clone().into()),
        execute: None,
        ..arguments.script.clone()
    };
    let source = ScriptSource::read(&old)?;
    let text = super::check::substituted(&source, &old)?;
    let before = planned(&source, &old, &text)?;
    if before.len() != jobs.len() {
        let message = format!("there were {} jobs, and there are {}", before.len(), jobs.len());
        return Err(Error::plan(message).hint("compare with the snapshots of each job instead"));
    }
    let pairs = before.iter().zip(jobs);
    Ok(pairs
        .map(|(old, new)| {
            let comparison = Comparison::of_queries(&old.graph, &new.graph);
            let speech = Speech::CommandLine;
            let checked = check_order(old.order, new.order, speech)
                .and_then(|()| comparison.check(true, speech));
            (old, new, comparison, checked.err())
        })
        .map(|(old, new, comparison, refusal)| Found {
            comparison,
            refusal,
            options: match old.name == new.name {
                true => "--resume".to_owned(),
                false => format!("--from …/{}/snapshots/NUMBER", old.name),
            },
        })
        .collect())
}

/// Compares with a snapshot: the newest of a job, or the one in a folder.
fn of_snapshot(arguments: &UpgradeArguments, jobs: &[PlannedJob]) -> Result<Found> {
    let (store, number) = match arguments.old.parse() {
        Ok(SnapshotReference::Folder(folder)) => open_folder(&folder)?,
        _ => {
            let named = jobs.iter().find_map(|job| job.snapshot_location.as_deref());
            let given = arguments.dir.as_deref();
            let store = open(&place(given, named)?, &arguments.old)?;
            let number = resumed(&store)?;
            (store, number)
        }
    };
    let details = store.describe(number)?;
    let header = &details.header;
    let job = match jobs {
        [only] => only,
        _ => jobs
            .iter()
            .find(|job| job.name == header.job)
            .ok_or_else(|| no_such_job(&header.job, jobs))?,
    };
    let checked = check_snapshot(&details, (job.order, &job.graph), true, Speech::CommandLine);
    Ok(Found {
        comparison: Comparison::of_details(&details, &job.graph),
        refusal: checked.err(),
        options: match job.name == header.job {
            true => "--resume".to_owned(),
            false => format!("--from {}", folder(&store, number)),
        },
    })
}

/// The snapshot that a resume starts from.
fn resumed(store: &SnapshotStore) -> Result<u64> {
    let lineage = store.lineage()?;
    let own = store.newest_number_of(lineage.as_ref())?;
    match (own.or(lineage.as_ref().and_then(Lineage::origin_here)), lineage) {
        (Some(number), _) => Ok(number),
        (None, None) => newest(store),
        (None, Some(_)) => Err(Error::data(
            "the job was started from scratch and has kept no snapshot since: a resume starts from scratch as well",
        )
        .hint("name the folder of an older snapshot to compare with it")),
    }
}

fn folder(store: &SnapshotStore, number: u64) -> String {
    let directory = store.directory().map_or("…".to_owned(), |path| path.display().to_string());
    format!("{directory}/snapshots/{number:010}")
}

fn no_such_job(job: &str, jobs: &[PlannedJob]) -> Error {
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    Error::plan(format!("the new statements have no job '{job}'"))
        .hint(format!("they have {}; 'pipeline.name' gives a name", names.join(", ")))
}

/// Prints what becomes of each stage, and for people what to do.
fn tell(arguments: &UpgradeArguments, found: &Found) -> Result<()> {
    let Comparison { kept, added, removed, changed_stages, .. } = &found.comparison;
    let row = |word: &str, stage: &StageName| {
        vec![Cell::text(word), Cell::text(&stage.name), Cell::text(&stage.id)]
    };
    let kept = kept.iter().map(|stage| row("kept", stage));
    let added = added.iter().map(|stage| row("begins empty", stage));
    let changed = changed_stages.iter().map(|stage| row("other options", stage));
    let gone = removed.iter().map(|stage| row("removed", stage));
    let rows: Vec<Vec<Cell>> = kept.chain(added).chain(changed).chain(gone).collect();
    let format = arguments.format.into();
    print_rows(format, &COMPARED, &rows)?;
    if format == Format::Table { print(&advice(arguments, found)) } else { Ok(()) }
}

fn advice(arguments: &UpgradeArguments, found: &Found) -> String {
    if let Some(refusal) = &found.refusal {
        let hint = refusal.help().map(|help| format!("\nhint: {help}")).unwrap_or_default();
        return format!("it cannot go on: {refusal}{hint}\n");
    }
    let file = arguments
        .script
        .file
        .as_ref()
        .map_or("NEW.sql".to_owned(), |file| file.display().to_string());
    let options = &found.options;
    match found.comparison.removed.is_empty() {
        true => format!("to go on: thalweg run {options} {file}\n"),
        false => {
            format!("to go on without what is removed: thalweg run {options} --drop-state {file}\n")
        }
    }
}
