//! `thalweg snapshot export` and `import`: a snapshot together with the outputs that belong to it.
//!
//! # A backup
//! `backup.json` (job, snapshot, and each output with its path and the sink's handle),
//! `state/JOB/…` with the snapshot, and `outputs/0000/…` with what the snapshot holds of each
//! output. `backup.json` comes last: without it there is no backup. Paths below the current folder
//! are kept relative to it.
//!
//! Both commands lock the job and its outputs, look at everything first, and then act.

use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg::jobs::open_snapshots;
use thalweg_connectors::filesystem::backup::SavedOutput;
use thalweg_core::connector::Access;
use thalweg_core::shim::unique_name;
use thalweg_core::snapshot::OutputMark;
use thalweg_core::{Error, Result};
use thalweg_state::{JobLock, Lineage, Origin, SnapshotStore};

use super::super::terminal::print;

const BACKUP: &str = "backup.json";
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Backup {
    format: u32,
    job: String,
    snapshot: u64,
    outputs: Vec<OutputEntry>,
}

#[derive(Serialize, Deserialize)]
struct OutputEntry {
    path: PathBuf,
    handle: String,
}

/// Saves a snapshot of a job that does not run (the newest that a resume would take) with its
/// outputs.
///
/// # Errors
/// If the job runs, an output is not that of the snapshot, or something cannot be read or written.
pub fn export(location: &str, job: &str, to: &Path, number: Option<u64>) -> Result<u8> {
    let store = super::open(location, job)?;
    let _lock = store.directory().map(JobLock::take).transpose()?;
    let lineage = store.lineage()?;
    let newest = store.newest_number_of(lineage.as_ref())?;
    let number = number.or(newest).ok_or_else(|| {
        Error::data(format!("job '{job}' has kept no snapshot since its last start from scratch"))
    })?;
    let details = store.describe(number)?;
    let own = lineage.filter(|own| Some(&own.id) == details.header.lineage.as_ref());
    let own = own.ok_or_else(|| {
        Error::plan(format!(
            "the outputs do not belong to snapshot {number}, but to another start of the job"
        ))
        .hint("export a snapshot of the last start; `thalweg snapshot ls` lists them")
    })?;
    let mut outputs = Vec::new();
    for stage in &details.stages {
        let Some(handle) = stage.sink.as_ref().and_then(|sink| sink.handle.as_deref()) else {
            continue;
        };
        let output =
            SavedOutput::of_handle(handle).ok_or_else(|| not_saved(&stage.name, handle))?;
        outputs.push((output, handle.to_owned()));
    }
    let _claims = outputs.iter().map(|(output, _)| output.claim()).collect::<Result<Vec<_>>>()?;
    make_empty(to)?;
    let mark = OutputMark { lineage: own.id, snapshot: number };
    for (place, (output, _)) in outputs.iter().enumerate() {
        output.save(&folder_of(to, place), &mark)?;
    }
    let saved = SnapshotStore::open(&state_of(to), job)?;
    store.copy_to(number, &saved)?;
    let here = std::env::current_dir()?.canonicalize()?;
    let outputs = outputs.into_iter().map(|(output, handle)| OutputEntry {
        path: output.path().strip_prefix(&here).unwrap_or(output.path()).to_owned(),
        handle,
    });
    let outputs: Vec<OutputEntry> = outputs.collect();
    let count = outputs.len();
    write(to, &Backup { format: FORMAT, job: job.to_owned(), snapshot: number, outputs })?;
    print(&format!(
        "snapshot {number} of job '{job}' and {count} outputs are in {}\n",
        to.display()
    ))?;
    Ok(0)
}

/// Brings a job and its outputs back, below the current folder and the allowed ones.
///
/// # Errors
/// If the job runs, or has snapshots or outputs that may not be replaced; if the backup is damaged.
pub fn import(location: &str, from: &Path, overwrites: bool, allowed: &[PathBuf]) -> Result<u8> {
    let backup = read(from)?;
    let Backup { job, snapshot, .. } = &backup;
    let mut saved = SnapshotStore::open(&state_of(from), job)?;
    if let Some(damage) = saved.verify(*snapshot)?.first() {
        return Err(Error::data(format!("the backup is damaged: {damage}")));
    }
    let mut store = open_snapshots(location, job, &Access::default())?;
    let _lock = store.directory().map(JobLock::take).transpose()?;
    if !overwrites && (!store.list()?.is_empty() || store.lineage()?.is_some()) {
        return Err(Error::plan(format!("job '{job}' has state in {location}"))
            .hint("give another --dir, or replace it and its outputs with --overwrite"));
    }
    let mut outputs = Vec::new();
    for output in &backup.outputs {
        let path = place_of(&output.path, allowed)?;
        let saved = SavedOutput::of_handle(&output.handle).ok_or_else(|| {
            Error::data("the backup has an output that this version does not know")
        })?;
        outputs.push(saved.at(path));
    }
    let _claims = outputs.iter().map(SavedOutput::claim).collect::<Result<Vec<_>>>()?;
    outputs.iter().try_for_each(|output| output.check_place(overwrites))?;
    store.clear()?;
    for (place, output) in outputs.iter().enumerate() {
        output.bring_back(&folder_of(from, place))?;
    }
    saved.copy_to(*snapshot, &store)?;
    // A lineage of its own: the job may run on where the backup was taken.
    store.begin_lineage(&Lineage {
        id: unique_name(),
        origin: Some(Origin { snapshot: *snapshot, folder: None }),
        after: *snapshot,
        overwrites: false,
    })?;
    let count = outputs.len();
    print(&format!(
        "job '{job}' is at snapshot {snapshot}, with {count} outputs; to resume it: thalweg run --resume\n"
    ))?;
    Ok(0)
}

/// The error of an output that cannot be part of a backup.
fn not_saved(output: &str, handle: &str) -> Error {
    match SavedOutput::in_store(handle) {
        Some(url) => Error::unsupported(format!(
            "the output '{output}' lies in {url}, and outputs in object stores can't be exported"
        ))
        .hint(
            "stop the job with a snapshot and copy the folder of snapshots and the store's folder, hidden objects included, \
             by their own means; `--resume` then continues where both lie",
        ),
        None => Error::unsupported(format!(
            "the snapshot does not say where the output '{output}' lies, so it can't be exported"
        ))
        .hint("outputs that are files of this machine can be; for those take a new snapshot with this version"),
    }
}

fn folder_of(backup: &Path, place: usize) -> PathBuf {
    backup.join("outputs").join(format!("{place:04}"))
}

fn state_of(backup: &Path) -> String {
    backup.join("state").to_string_lossy().into_owned()
}

fn make_empty(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    match fs::read_dir(folder)?.next() {
        None => Ok(()),
        Some(_) => Err(Error::plan("the folder of a backup has to be empty")
            .in_file(folder.display().to_string())
            .hint("give each backup a folder of its own")),
    }
}

fn write(to: &Path, backup: &Backup) -> Result<()> {
    let text = serde_json::to_string_pretty(backup).map_err(|e| Error::internal(e.to_string()))?;
    let mut file = fs::File::create_new(to.join(BACKUP))?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::File::open(to)?.sync_all()?;
    Ok(())
}

fn read(from: &Path) -> Result<Backup> {
    let path = from.join(BACKUP);
    let wrong = |what: String| {
        Error::data(what)
            .in_file(path.display().to_string())
            .hint("give the folder that `thalweg snapshot export` has written; one without this file is not complete")
    };
    let bytes = fs::read(&path).map_err(|error| wrong(format!("this is no backup: {error}")))?;
    let backup: Backup =
        serde_json::from_slice(&bytes).map_err(|e| wrong(format!("this is no backup: {e}")))?;
    match backup.format {
        FORMAT => Ok(backup),
        other => {
            Err(wrong(format!("the backup has format {other}, and this version knows {FORMAT}")))
        }
    }
}

/// Where an output of a backup goes.
fn place_of(path: &Path, allowed: &[PathBuf]) -> Result<PathBuf> {
    let here = std::env::current_dir()?.canonicalize()?;
    let place = here.join(path);
    let goes_up = place.components().any(|part| part == Component::ParentDir);
    let allowed = allowed.iter().filter_map(|folder| folder.canonicalize().ok());
    if !goes_up && std::iter::once(here).chain(allowed).any(|folder| place.starts_with(folder)) {
        return Ok(place);
    }
    Err(Error::plan("the backup has an output outside the current folder")
        .in_file(place.display().to_string())
        .hint("run the command in the folder that the job runs in, or allow the output's with --allow-path DIR"))
}
