//! The sink over files.
//!
//! Only when everything was written does the file get its name (see `writer.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use thalweg_core::connector::Sink;
use thalweg_core::{Error, Result, RowKind, TableSchema};

use super::options::Changelog;
use super::paths::Target;
use super::source::Format;
use super::writer::{Content, FileWriter, publish};

/// The files and folders that are being written: two sinks on one would destroy each other's rows.
static BEING_WRITTEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The right to write a file or folder, given back when it is dropped.
pub struct Claim(PathBuf);

impl Claim {
    /// Takes it.
    ///
    /// # Errors
    /// If another sink of this process has it.
    pub fn take(table: &str, path: &Path) -> Result<Claim> {
        let mut written = BEING_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.insert(path.to_path_buf()) {
            return Err(Error::plan(format!("table {table}: the file is already being written"))
                .in_file(path.display().to_string())
                .hint("write to different files, or combine the queries with UNION ALL"));
        }
        Ok(Claim(path.to_path_buf()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        BEING_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Writes a file or standard output.
pub struct FileSink {
    content: Content,
    target: Target,
    open: Option<FileWriter>,
    claim: Option<Claim>,
}

impl FileSink {
    /// A sink that creates its file when it is opened.
    pub fn new(table: &str, schema: TableSchema, format: Format, target: Target) -> Self {
        let content = Content { table: table.to_string(), schema, format, changelog: None };
        FileSink { content, target, open: None, claim: None }
    }

    /// Says in a first column `op` what each row does, and so takes changes.
    #[must_use]
    pub fn with_changelog(mut self, changelog: Option<Changelog>) -> Self {
        self.content.changelog = changelog;
        self
    }
}

impl Sink for FileSink {
    fn name(&self) -> String {
        self.content.table.clone()
    }

    fn open(&mut self) -> Result<()> {
        if let Target::File(path) = &self.target {
            self.claim = Some(Claim::take(&self.content.table, path)?);
        }
        self.open = Some(FileWriter::create(&self.target, &self.content)?);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let (batch, kinds) = self.content.rows(batch, kinds)?;
        match &mut self.open {
            Some(open) => open.write(&batch, kinds.as_deref(), &self.content),
            None => Err(Error::internal("a sink was written before it was opened")),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.open.as_mut().map_or(Ok(()), FileWriter::flush)
    }

    fn finish(&mut self) -> Result<()> {
        let open = self.open.take();
        open.ok_or_else(|| Error::internal("a sink was finished before it was opened"))?.close()?;
        if let Target::File(path) = &self.target {
            publish(std::slice::from_ref(path))?;
        }
        self.claim = None;
        Ok(())
    }

    fn abort(&mut self) {
        // Best effort: what was written so far may help to find the cause.
        let _ = self.flush();
        self.open = None;
        self.claim = None;
    }
}
