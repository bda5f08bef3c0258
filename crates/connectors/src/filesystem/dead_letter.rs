//! The dead-letter file: records that could not be read, as NDJSON with file, line, reason and the
//! raw text, in the order of the input.
//!
//! It is written as the input is read, not at the end, and is there also after a failure.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use thalweg_core::{Error, Result};

use super::paths::create_parent;
use crate::handover::BadRow;

/// A dead-letter file.
pub struct DeadLetters {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl DeadLetters {
    /// A file at a path that was checked; not created yet.
    pub fn new(path: PathBuf) -> Self {
        DeadLetters { path, file: None }
    }

    /// Creates the file, empty.
    pub fn open(&mut self) -> Result<()> {
        create_parent(&self.path)?;
        let file = super::writer::create_new(&self.path)?;
        self.file = Some(BufWriter::new(file));
        Ok(())
    }

    /// Adds records.
    pub fn write(&mut self, rows: &[BadRow]) -> Result<()> {
        let DeadLetters { path, file } = self;
        let Some(file) = file else {
            return Err(Error::internal("the dead-letter file is not open"));
        };
        for row in rows {
            let letter = json!({
                "file": row.file.as_ref(),
                "line": row.line,
                "reason": row.reason,
                "raw": row.raw,
            });
            writeln!(file, "{letter}").map_err(|e| failed(path, &e))?;
        }
        Ok(())
    }

    /// Makes what was written visible.
    pub fn flush(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush().map_err(|e| failed(&self.path, &e))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("cannot write dead letters: {error}")).in_file(path.display().to_string())
}
