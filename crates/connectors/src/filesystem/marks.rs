//! The mark of an output: a hidden file that says which lineage and which snapshot of a
//! job it belongs to.
//!
//! `.TABLE.lineage` in a folder (TABLE as in the names of its parts), `.NAME.lineage` next to a
//! single file. It is written before the first row, and before each commit: what is visible is
//! never ahead of it. A start compares it with the snapshot that the job resumes from
//! ([`OutputStart`]). A run without snapshots that replaces the output leaves a mark of no lineage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart};
use thalweg_core::{Error, Result};

use super::files::{Files, sync_above};
use super::writer::failed;

/// Where the mark of an output lies.
pub struct MarkFile {
    files: Arc<dyn Files>,
    path: PathBuf,
}

impl MarkFile {
    /// The mark of a file, or with the folder's own name of a table in a folder.
    pub fn new(files: Arc<dyn Files>, folder: &Path, name: &str) -> MarkFile {
        MarkFile { files, path: folder.join(format!(".{name}.lineage")) }
    }

    /// The mark of a single file.
    pub fn of_file(files: Arc<dyn Files>, path: &Path) -> MarkFile {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        MarkFile::new(files, path.parent().unwrap_or(Path::new("/")), &name)
    }

    /// True if it lies at this path.
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    fn failed(&self, error: &io::Error) -> Error {
        failed(Some(&self.path), error)
    }

    /// The mark, if there is one.
    ///
    /// # Errors
    /// If it cannot be read, or makes no sense.
    pub fn read(&self) -> Result<Option<OutputMark>> {
        if self.files.length(&self.path).map_err(|e| self.failed(&e))?.is_none() {
            return Ok(None);
        }
        let bytes = self.files.read(&self.path).map_err(|e| self.failed(&e))?;
        let parse = || -> Option<OutputMark> {
            let value: Value = serde_json::from_slice(&bytes).ok()?;
            let lineage = value.get("lineage")?.as_str()?.to_owned();
            Some(OutputMark { lineage, snapshot: value.get("snapshot")?.as_u64()? })
        };
        parse().map(Some).ok_or_else(|| {
            Error::data("this file says which snapshot the output belongs to, and makes no sense")
                .in_file(self.path.display().to_string())
                .hint(
                    "bring it back as it was; without it the output counts as that of another job",
                )
        })
    }

    /// Writes the mark durably; whatever fails, the one before or this one is there. The first mark
    /// of a run makes it durable as well that its folder is there: an earlier run may have died
    /// before it could do that.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, mark: &OutputMark, is_first: bool) -> Result<()> {
        self.try_write(mark, is_first).map_err(|error| self.failed(&error))
    }

    fn try_write(&self, mark: &OutputMark, is_first: bool) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        self.files.create_folder(folder)?;
        let text = json!({ "lineage": mark.lineage, "snapshot": mark.snapshot }).to_string();
        self.files.replace(&self.path, text.as_bytes())?;
        if is_first { sync_above(self.files.as_ref(), folder) } else { Ok(()) }
    }

    /// The output is replaced by a run without snapshots. The mark of a job with snapshots, if
    /// there is one, becomes a mark of no lineage: a resume of that job must not take the output
    /// for its own, as it may where a user says so of an output without a mark.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn release(&self) -> Result<()> {
        match self.read()? {
            Some(mark) if is_of_a_job(&mark) => {
                self.write(&OutputMark { lineage: NO_LINEAGE.to_owned(), snapshot: 0 }, true)
            }
            _ => Ok(()),
        }
    }
}

/// The lineage of an output that a run without snapshots has written over one that had a lineage.
const NO_LINEAGE: &str = "";

/// True if a job with snapshots has written the output last.
pub fn is_of_a_job(mark: &OutputMark) -> bool {
    mark.lineage != NO_LINEAGE
}

/// Refuses an output that is not that of the snapshot which a job resumes from. `bears_twice`: its
/// rows may be there twice.
///
/// # Errors
/// If the output is ahead of the snapshot, of another lineage, or has no mark.
pub fn check_resumed(
    (table, place): (&str, &Path),
    found: Option<&OutputMark>,
    start: &OutputStart,
    bears_twice: bool,
) -> Result<()> {
    let error = match start.fit(found) {
        MarkFit::Fits => return Ok(()),
        MarkFit::Missing if !start.is_marked || start.overwrites => return Ok(()),
        MarkFit::Ahead(_) if bears_twice || start.overwrites => return Ok(()),
        MarkFit::Missing => Error::plan(format!(
            "table {table}: nothing says that the output is the one that the snapshot has written: its mark is gone"
        ))
        .hint(
            "bring the output back with its hidden files; if you know that it is as the snapshot left it, --overwrite \
             continues with it",
        ),
        MarkFit::Ahead(number) => Error::plan(format!(
            "table {table}: the output holds the rows of snapshot {number}, which is newer than the one to resume from; they \
             would be written again"
        ))
        .hint(format!(
            "resume from snapshot {number}; or go back with --overwrite, which removes what was written since"
        )),
        MarkFit::Other => Error::plan(format!(
            "table {table}: the output is not the one that the snapshot has written: it is of another start, or of another job"
        ))
        .hint(
            "bring the output back that belongs to the snapshot; or start from scratch with --overwrite, which replaces what is \
             there",
        ),
    };
    Err(error.in_file(place.display().to_string()))
}

/// The error of a start from scratch over what an earlier run has left.
pub fn occupied(table: &str, path: &Path) -> Error {
    Error::plan(format!("table {table}: an earlier run has written here, and the job would start from scratch"))
        .in_file(path.display().to_string())
        .hint("resume that run with --resume, replace what is there with --overwrite, or give the table an empty place")
}

/// The error of a run without snapshots that would destroy what a job with snapshots needs.
pub fn needed(table: &str, path: &Path) -> Error {
    Error::plan(format!(
        "table {table}: a job with snapshots writes here and has not ended, and this run takes no snapshots"
    ))
    .in_file(path.display().to_string())
    .hint(
        "set 'execution.checkpointing.dir' and resume that job with --resume, replace what is there with --overwrite, or \
         give the table an empty place",
    )
}
