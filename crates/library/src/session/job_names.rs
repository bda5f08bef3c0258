//! The jobs that statements of a script name.
//!
//! The id of a job is its name, which no other job of the script has: `pipeline.name`, or what the
//! statement does, with a number behind it from the second one on. So a script can name a job that
//! has not begun when it is written, and a mistake shows when the script is planned.

use thalweg_core::quoting::quoted_list;
use thalweg_core::{Error, Result};
use thalweg_plan::ast::{JobCommand, Name};

/// Checks a statement about jobs while the script is planned. `jobs` are those of INSERTs before
/// it, and whether each takes snapshots.
///
/// # Errors
/// If it names no job of the script, or wants a snapshot of a job that takes none.
pub(super) fn check_command(command: &JobCommand, jobs: &[(String, bool)]) -> Result<()> {
    let (id, with_savepoint) = match command {
        JobCommand::Show => return Ok(()),
        JobCommand::Describe(id) => (id, false),
        JobCommand::Stop { id, with_savepoint, .. } => (id, *with_savepoint),
    };
    match jobs.iter().find(|(name, _)| *name == id.text) {
        Some((_, false)) if with_savepoint => Err(no_snapshots(id)),
        Some(_) => Ok(()),
        None => Err(no_job(id, jobs.iter().map(|(name, _)| name.as_str()))),
    }
}

/// The error for a job that the script does not have.
pub(super) fn no_job<'n>(id: &Name, names: impl Iterator<Item = &'n str>) -> Error {
    let error = Error::plan(format!("the script has no job '{}' before this", id.text));
    let names = quoted_list(names);
    let error = match names.is_empty() {
        true => error.hint("INSERTs are jobs; 'pipeline.name' names the next one"),
        false => error.hint(format!("a job's id is its name; there are {names}")),
    };
    error.at(id.span)
}

/// The error for a job that is to end with a snapshot and takes none.
pub(super) fn no_snapshots(id: &Name) -> Error {
    Error::plan(format!("the job '{}' keeps no snapshots", id.text))
        .hint("SET 'execution.checkpointing.dir' = '…' before its INSERT, or leave WITH SAVEPOINT out")
        .at(id.span)
}
