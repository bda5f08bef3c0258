//! `thalweg snapshot`: what a job has kept, listed, shown, verified, deleted, asked for, exported
//! and imported.
//!
//! Nothing here needs the statements of a job, and nothing but `delete` and `import` changes
//! anything. Manifests are read by `ls` and `show`, all bytes by `verify`.

mod arguments;
mod backup;
mod listing;
mod show;

use std::time::Duration;

use thalweg::jobs::{ask_for_snapshot, open_snapshots};
use thalweg_connectors::output::Format;
use thalweg_core::connector::Access;
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result};
use thalweg_state::{Damage, SnapshotStore, SnapshotSummary};

use arguments::Action;
pub use arguments::{ListFormat, SnapshotArguments};
pub use listing::{Cell, ColumnKind, Heading, print_rows};

use super::exit::{FAILED, ended};
use super::terminal::print;

/// Where snapshots are looked for if the command line does not say.
const DIRECTORY_VARIABLE: &str = "THALWEG_SNAPSHOT_DIR";

const LISTED: [Heading; 8] = [
    ("job", "job", ColumnKind::Text),
    ("snapshot", "snapshot", ColumnKind::Number),
    ("kind", "kind", ColumnKind::Text),
    ("taken at (UTC)", "taken_at", ColumnKind::Text),
    ("age", "age_s", ColumnKind::Number),
    ("size", "bytes", ColumnKind::Number),
    ("own size", "own_bytes", ColumnKind::Number),
    ("state", "state", ColumnKind::Text),
];

const VERIFIED: [Heading; 4] = [
    ("snapshot", "snapshot", ColumnKind::Number),
    ("state", "state", ColumnKind::Text),
    ("path", "path", ColumnKind::Text),
    ("what is wrong", "problem", ColumnKind::Text),
];

/// Does what the command line says; returns the exit status.
pub fn snapshot(arguments: &SnapshotArguments) -> u8 {
    let done = place(arguments.dir.as_deref(), None).and_then(|location| {
        let format = arguments.format.into();
        match &arguments.action {
            Action::Ls { job } => list(&location, job.as_deref(), format),
            Action::Show { job, number } => show::show(&open(&location, job)?, *number, format),
            Action::Verify { job, number } => verify(&location, job, *number, format),
            Action::Delete { job, number } => delete(&location, job, *number),
            Action::Take { job, timeout } => take(&location, job, *timeout),
            Action::Export { job, to, number } => backup::export(&location, job, to, *number),
            Action::Import { from, overwrite, allow_path } => {
                backup::import(&location, from, *overwrite, allow_path)
            }
        }
    });
    ended(done)
}

/// The place of snapshots that the command line names, else the environment, else `otherwise`.
///
/// # Errors
/// If none does.
pub fn place(given: Option<&str>, otherwise: Option<&str>) -> Result<String> {
    let variable = || std::env::var(DIRECTORY_VARIABLE).ok();
    let named = given.map(str::to_owned).or_else(variable);
    let named = named.or_else(|| otherwise.map(str::to_owned));
    named.filter(|location| !location.is_empty()).ok_or_else(|| {
        Error::plan("it is not said where snapshots are kept").hint(format!(
            "give --dir DIR, or set the variable {DIRECTORY_VARIABLE}: what 'execution.checkpointing.dir' says"
        ))
    })
}

/// The snapshots of a job that has some.
///
/// # Errors
/// If it has none.
pub fn open(location: &str, job: &str) -> Result<SnapshotStore> {
    let store = open_snapshots(location, job, &Access::default())?;
    if !store.list()?.is_empty() {
        return Ok(store);
    }
    let error = Error::plan(format!("job '{job}' has no snapshots in {location}"));
    Err(match SnapshotStore::jobs(location).unwrap_or_default() {
        jobs if jobs.is_empty() => error.hint("no job has: is it the right folder?"),
        jobs => error.hint(format!("jobs there are {}", jobs.join(", "))),
    })
}

/// The newest that counts.
///
/// # Errors
/// If there is none.
pub fn newest(store: &SnapshotStore) -> Result<u64> {
    let finished = |summary: &SnapshotSummary| matches!(summary, SnapshotSummary::Finished(_));
    let listed = store.list()?;
    let newest = listed.iter().rev().find(|summary| finished(summary));
    newest.map(SnapshotSummary::number).ok_or_else(|| {
        Error::data("the job has no snapshot that can be read")
            .hint("`thalweg snapshot verify` says what is wrong with them")
    })
}

fn list(location: &str, job: Option<&str>, format: Format) -> Result<u8> {
    let jobs = match job {
        Some(job) => vec![job.to_owned()],
        None => SnapshotStore::jobs(location)?,
    };
    let now_ms = SystemClock::new().wall_ms();
    let mut rows = Vec::new();
    for name in jobs {
        let store = match job {
            Some(_) => open(location, &name)?,
            None => open_snapshots(location, &name, &Access::default())?,
        };
        rows.extend(store.list()?.iter().map(|summary| listed(&name, summary, now_ms)));
    }
    print_rows(format, &LISTED, &rows)?;
    Ok(0)
}

fn listed(job: &str, summary: &SnapshotSummary, now_ms: i64) -> Vec<Cell> {
    let (job, number) = (Cell::text(job), Cell::Number(summary.number()));
    let unknown = |state: String| {
        let mut row = vec![job.clone(), number.clone()];
        row.resize(LISTED.len() - 1, Cell::Nothing);
        row.push(Cell::Text(state));
        row
    };
    match summary {
        SnapshotSummary::Unfinished { .. } => unknown("unfinished".to_owned()),
        SnapshotSummary::Unreadable(damage) => unknown(state_of_damage(damage)),
        SnapshotSummary::Finished(header) => {
            let age_ms = now_ms.saturating_sub(header.taken_at_ms).max(0);
            let state = if header.is_complete { "kept, input ended" } else { "kept" };
            vec![
                job,
                number,
                Cell::text(header.kind.as_str()),
                Cell::Text(format_timestamp_millis(header.taken_at_ms, 3)),
                Cell::Age(Duration::from_millis(age_ms as u64)),
                Cell::Bytes(header.bytes),
                Cell::Bytes(header.own_bytes),
                Cell::text(state),
            ]
        }
    }
}

fn state_of_damage(damage: &Damage) -> String {
    match damage.is_newer {
        true => "of a newer version".to_owned(),
        false => format!("damaged: {}", damage.what),
    }
}

fn verify(location: &str, job: &str, number: Option<u64>, format: Format) -> Result<u8> {
    let mut store = open(location, job)?;
    let counts = |summary: &SnapshotSummary| !matches!(summary, SnapshotSummary::Unfinished { .. });
    let numbers = match number {
        Some(number) => vec![number],
        None => store.list()?.iter().filter(|s| counts(s)).map(SnapshotSummary::number).collect(),
    };
    let mut rows = Vec::new();
    let mut is_sound = true;
    for number in numbers {
        let damage = store.verify(number)?;
        is_sound &= damage.is_empty();
        if damage.is_empty() {
            rows.push(vec![Cell::Number(number), Cell::text("ok"), Cell::Nothing, Cell::Nothing]);
        }
        rows.extend(damage.into_iter().map(|damage| {
            let state = if damage.is_newer { "newer" } else { "damaged" };
            let (path, what) = (Cell::Text(damage.path), Cell::Text(damage.what));
            vec![Cell::Number(number), Cell::text(state), path, what]
        }));
    }
    print_rows(format, &VERIFIED, &rows)?;
    Ok(if is_sound { 0 } else { FAILED })
}

fn delete(location: &str, job: &str, number: u64) -> Result<u8> {
    open(location, job)?.delete(number)?;
    Ok(0)
}

fn take(location: &str, job: &str, timeout: Duration) -> Result<u8> {
    let store = open_snapshots(location, job, &Access::default())?;
    let Some(directory) = store.directory() else {
        return Err(Error::unsupported(format!(
            "a job can't be asked for a snapshot in {location}"
        ))
        .hint("it takes them by itself: 'execution.checkpointing.interval'"));
    };
    if !directory.is_dir() {
        return Err(Error::plan(format!("job '{job}' has no folder in {location}"))
            .hint("does it run, and with this 'execution.checkpointing.dir'?"));
    }
    let number = ask_for_snapshot(directory, timeout)?;
    print(&format!("{number}\n"))?;
    Ok(0)
}
