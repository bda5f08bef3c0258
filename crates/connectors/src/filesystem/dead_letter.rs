//! The dead-letter file: records that could not be read, as NDJSON with file, line, reason and the
//! raw text, in the order of the input.
//!
//! It is written as the input is read, not at the end, and is there also after a failure.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use thalweg_core::{Error, Result};

use super::paths::create_parent;
use crate::handover::BadRow;

/// A dead-letter file.
pub struct DeadLetters {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    /// How many bytes the file has.
    bytes: u64,
}

impl DeadLetters {
    /// A file at a path that was checked; not created yet.
    pub fn new(path: PathBuf) -> Self {
        DeadLetters { path, file: None, bytes: 0 }
    }

    /// Creates the file, empty.
    pub fn open(&mut self) -> Result<()> {
        create_parent(&self.path)?;
        let file = super::files::create_new(&self.path).map_err(|e| failed(&self.path, &e))?;
        self.file = Some(BufWriter::new(file));
        Ok(())
    }

    /// Opens the file of an earlier run and goes on behind so many of its bytes. After a power failure
    /// the last ones may be missing.
    pub fn reopen(&mut self, bytes: u64) -> Result<()> {
        create_parent(&self.path)?;
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path);
        let cut = opened.and_then(|mut file| {
            file.set_len(bytes.min(file.metadata()?.len()))?;
            self.bytes = file.seek(SeekFrom::End(0))?;
            Ok(file)
        });
        self.file = Some(BufWriter::new(cut.map_err(|e| failed(&self.path, &e))?));
        Ok(())
    }

    /// How many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds records. They are in the file when this returns: a position may stand behind them.
    pub fn write(&mut self, rows: &[BadRow]) -> Result<()> {
        let DeadLetters { path, file, bytes } = self;
        let Some(file) = file else {
            return Err(Error::internal("the dead-letter file is not open"));
        };
        for row in rows {
            let mut letter = json!({
                "file": row.file.as_ref(),
                "line": row.line,
                "reason": row.reason,
                "raw": row.raw,
            })
            .to_string();
            letter.push('\n');
            file.write_all(letter.as_bytes()).map_err(|e| failed(path, &e))?;
            *bytes += letter.len() as u64;
        }
        if rows.is_empty() { Ok(()) } else { file.flush().map_err(|e| failed(path, &e)) }
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
