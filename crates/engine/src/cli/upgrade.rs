//! `thalweg upgrade --dry-run`: what becomes of a job's state when its statements change.
//!
//! What a resume would refuse is refused here, by the same code: the first phase of the start is
//! done and ended, so inputs and outputs are looked at as well ([`Session::rehearse_start`]).
//! Nothing is run or changed. Stages are identified by what they compute
//! ([`thalweg::jobs::compatibility`]).
//!
//! A job that is running holds its outputs. Then its newest snapshot is compared, and the answer
//! says that inputs and outputs were not looked at. Two files of statements are compared by
//! themselves.

use std::path::Path;

use thalweg::jobs::compatibility::{Comparison, StageName, check_order, check_snapshot};
use thalweg::jobs::{Interface, ResumeFrom, SnapshotReference, open_folder, open_snapshots};
use thalweg::session::{PlannedJob, Session};
use thalweg_connectors::output::Format;
use thalweg_core::connector::Access;
use thalweg_core::{Error, ErrorKind, Result};
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
            .map_err(|error| Failure { error, text: Some(text.clone()) })?;
        Ok(compare(arguments, &jobs, (source, &text))?)
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

/// What there was, and what is to be done to resume from it.
struct UpgradeAnswer {
    comparison: Comparison,
    /// Why a resume would be refused; what `--drop-state` permits is not.
    refusal: Option<Error>,
    /// Why inputs and outputs were not looked at.
    unchecked: Option<String>,
    /// The options of `thalweg run` that resume from it.
    options: String,
}

fn compare(
    arguments: &UpgradeArguments,
    jobs: &[PlannedJob],
    script: (&ScriptSource, &str),
) -> Result<u8> {
    let old = Path::new(&arguments.old);
    let found = match old.extension() {
        Some(ending) if ending == "sql" => of_statements(arguments, jobs)?,
        _ => vec![of_snapshot(arguments, jobs, script)?],
    };
    let mut status = 0;
    for found in &found {
        report(arguments, found)?;
        if !found.comparison.removed.is_empty() || found.refusal.is_some() {
            status = FAILED;
        }
    }
    Ok(status)
}

/// Compares with another file of statements, job by job in order.
fn of_statements(arguments: &UpgradeArguments, jobs: &[PlannedJob]) -> Result<Vec<UpgradeAnswer>> {
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
            let interface = Interface::CommandLine;
            let checked = check_order(old.order, new.order, interface)
                .and_then(|()| comparison.check(true, interface));
            (old, new, comparison, checked.err())
        })
        .map(|(old, new, comparison, refusal)| UpgradeAnswer {
            comparison,
            refusal,
            unchecked: Some(format!("inputs and outputs: {} is no snapshot", arguments.old)),
            options: match old.name == new.name {
                true => "--resume".to_owned(),
                false => format!("--from …/{}/snapshots/NUMBER", old.name),
            },
        })
        .collect())
}

/// Compares with a snapshot: the newest of a job, or the one in a folder.
fn of_snapshot(
    arguments: &UpgradeArguments,
    jobs: &[PlannedJob],
    script: (&ScriptSource, &str),
) -> Result<UpgradeAnswer> {
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
    let checked = check_snapshot(&details, (job.order, &job.graph), true, Interface::CommandLine);
    let is_newest = job.name == header.job
        && resumed(&store).ok() == Some(number)
        && job.snapshot_location.as_deref().is_none_or(|own| is_of(&store, own, &job.name));
    let resume = match (is_newest, arguments.old.parse()) {
        (false, Ok(reference @ SnapshotReference::Folder(_))) => ResumeFrom::Snapshot(reference),
        (false, _) => {
            ResumeFrom::Snapshot(SnapshotReference::Folder(folder(&store, number).into()))
        }
        (true, _) => ResumeFrom::Newest,
    };
    let (refusal, unchecked) = match checked {
        Err(refusal) => (Some(refusal), None),
        Ok(_) => rehearsed(arguments, script, (&store, resume), job)?,
    };
    Ok(UpgradeAnswer {
        comparison: Comparison::of_details(&details, &job.graph),
        refusal,
        unchecked,
        options: match is_newest {
            true => "--resume".to_owned(),
            false => format!("--from {}", folder(&store, number)),
        },
    })
}

/// Does the first phase of a start: why it is refused, and why it was not done.
fn rehearsed(
    arguments: &UpgradeArguments,
    (source, text): (&ScriptSource, &str),
    (store, resume): (&SnapshotStore, ResumeFrom),
    job: &PlannedJob,
) -> Result<(Option<Error>, Option<String>)> {
    let mut options = source.session_options(&arguments.script)?;
    (options.resume, options.drop_state) = (resume, true);
    if let (None, Some(location)) =
        (&job.snapshot_location, store.directory().and_then(Path::parent))
    {
        // The statements do not say where their snapshots are; the run will have to.
        let location = std::path::absolute(location)?.to_string_lossy().into_owned();
        options.settings.push(("execution.checkpointing.dir".to_owned(), location));
    }
    match Session::new(options)?.rehearse_start(text, &job.name) {
        Ok(()) => Ok((None, None)),
        Err(error) if error.kind() == ErrorKind::Resource => {
            Ok((None, Some(format!("inputs and outputs: {}", error.message()))))
        }
        Err(error) => Ok((Some(error), None)),
    }
}

/// True if the snapshots of a job at this location are those of the store.
fn is_of(store: &SnapshotStore, location: &str, job: &str) -> bool {
    let Ok(own) = open_snapshots(location, job, &Access::default()) else { return false };
    let whole = |store: &SnapshotStore| store.directory().map(std::path::absolute);
    match (whole(store), whole(&own)) {
        (Some(Ok(one)), Some(Ok(other))) => one == other,
        (one, other) => one.is_none() && other.is_none(),
    }
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
fn report(arguments: &UpgradeArguments, found: &UpgradeAnswer) -> Result<()> {
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

fn advice(arguments: &UpgradeArguments, found: &UpgradeAnswer) -> String {
    if let Some(refusal) = &found.refusal {
        let hint = refusal.help().map(|help| format!("\nhint: {help}")).unwrap_or_default();
        return format!("it cannot resume: {refusal}{hint}\n");
    }
    let unchecked = found.unchecked.iter().map(|what| format!("not checked: {what}\n"));
    let unchecked: String = unchecked.collect();
    let file = arguments
        .script
        .file
        .as_ref()
        .map_or("NEW.sql".to_owned(), |file| file.display().to_string());
    let options = &found.options;
    match found.comparison.removed.is_empty() {
        true => format!("{unchecked}to resume: thalweg run {options} {file}\n"),
        false => {
            format!(
                "{unchecked}to resume without what is removed: thalweg run {options} --drop-state {file}\n"
            )
        }
    }
}
