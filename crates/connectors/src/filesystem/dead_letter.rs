//! The dead-letter file: records that could not be read, as NDJSON with file, line, reason and the
//! raw text, in the order of the input.
//!
//! # Where it is
//! As an output: `NAME.partial` while the job runs, `NAME` when the job is done. The first job of a
//! run replaces the file of an earlier run; later jobs of the run add to what those before them
//! have written ([`FinishedLetters`]).
//!
//! # With snapshots
//! The position of the source says how many bytes the file had ([`LetterMark`]). They are durable
//! before the snapshot is kept; a job that is restored cuts off what lies behind.
//!
//! # Invariants
//! - Only dead letters are ever replaced: any other content of the file is a user's data.
//! - At the end the file has a line for each row that was counted as bad, or the job fails.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use thalweg_core::{Error, Result};

use super::claim::Claim;
use super::excerpt::{EXCERPT_BYTES, Excerpt, LetterMark, tail_of};
use super::files::{OsFiles, create_new, if_there, sync_above};
use super::paths::canonical_file;
use super::writer::{partial, publish};
use crate::format::text::readable;
use crate::handover::BadRow;

/// How each line begins.
const LINE_START: &[u8] = b"{\"file\":";

/// The dead-letter files that jobs of a run have finished. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct FinishedLetters(Arc<Mutex<BTreeSet<PathBuf>>>);

impl FinishedLetters {
    fn has(&self, path: &Path) -> bool {
        self.0.lock().expect("no panic under this lock").contains(path)
    }

    fn add(&self, path: &Path) {
        self.0.lock().expect("no panic under this lock").insert(path.to_path_buf());
    }
}

/// How the file begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    /// Empty.
    New,
    /// With the first bytes of this file, which stays.
    Copy(PathBuf, u64),
    /// With the first bytes of what is there under the name of files that are not complete.
    Keep(u64),
    /// It has ended in an earlier run: complete under its name, or still to be renamed.
    Ended(LetterMark),
}

/// A dead-letter file.
pub struct DeadLetters {
    /// Whose it is, for messages.
    what: String,
    /// Its name when it is complete.
    path: PathBuf,
    finished: FinishedLetters,
    claim: Option<Claim>,
    /// What a position has said.
    restored: Option<LetterMark>,
    has_ended: bool,
    file: Option<BufWriter<File>>,
    /// How many bytes the file has.
    bytes: u64,
    /// The last of them, at least as many as an excerpt has.
    recent: Vec<u8>,
    /// Lines that are not of this job's rows.
    lines_before: u64,
    is_durable: bool,
}

impl DeadLetters {
    /// The file of a table; `path` was checked. Nothing is touched yet.
    pub fn new(table: &str, path: PathBuf, finished: FinishedLetters) -> Self {
        DeadLetters {
            what: format!("table {table}, 'dead-letter.path'"),
            path,
            finished,
            claim: None,
            restored: None,
            has_ended: false,
            file: None,
            bytes: 0,
            recent: Vec::new(),
            lines_before: 0,
            is_durable: true,
        }
    }

    /// The job resumes from a snapshot in which the file was like this.
    pub fn seek(&mut self, mark: LetterMark) {
        self.restored = Some(mark);
    }

    /// The input had ended when the file was like this: nothing is added.
    pub fn end_at(&mut self, mark: LetterMark) {
        (self.restored, self.has_ended) = (Some(mark), true);
    }

    /// Takes the right to write the file, and checks that it can begin.
    ///
    /// # Errors
    /// If another writer has it; if the file there must not be replaced; if the file to be
    /// continued is missing.
    pub fn claim(&mut self) -> Result<()> {
        if self.claim.is_none() {
            self.claim = Some(Claim::file(&self.what, &self.path)?);
        }
        self.start().map(drop)
    }

    /// How the file begins. Only reads.
    fn start(&self) -> Result<Start> {
        let failed = |error: io::Error| self.failed(&error);
        match self.restored {
            Some(mark) if mark.bytes > 0 => {
                let unfinished = partial(&self.path);
                if self.has_ended {
                    return Ok(Start::Ended(mark));
                }
                if mark.fits(&unfinished).map_err(failed)? {
                    return Ok(Start::Keep(mark.bytes));
                }
                Err(self.lost(mark))
            }
            Some(mark) if self.has_ended => Ok(Start::Ended(mark)),
            _ if self.finished.has(&self.path) => {
                let bytes = fs::metadata(&self.path).map_err(failed)?.len();
                Ok(Start::Copy(self.path.clone(), bytes))
            }
            _ if is_replaceable(&self.path).map_err(failed)? => Ok(Start::New),
            _ => Err(Error::plan(format!(
                "{}: the file holds something else than dead letters",
                self.what
            ))
            .in_file(self.path.display().to_string())
            .hint("name another file: only dead letters of an earlier run are replaced")),
        }
    }

    /// Begins the file; `bad_rows` of this job's rows are in it already.
    ///
    /// # Errors
    /// As [`DeadLetters::claim`]; if it cannot be written.
    pub fn open(&mut self, bad_rows: u64) -> Result<()> {
        self.claim()?;
        let start = self.start()?;
        self.claim.iter_mut().for_each(Claim::begin);
        let opened = self.begin(&start).map_err(|error| self.failed(&error))?;
        let Some((file, bytes)) = opened else { return Ok(()) };
        self.file = Some(BufWriter::new(file));
        self.bytes = bytes;
        self.is_durable = false;
        let (recent, lines) = self.look_back(bytes).map_err(|error| self.failed(&error))?;
        self.recent = recent;
        self.lines_before =
            lines.checked_sub(bad_rows).ok_or_else(|| self.miscounted(lines, bad_rows))?;
        Ok(())
    }

    fn begin(&self, start: &Start) -> io::Result<Option<(File, u64)>> {
        let path = partial(&self.path);
        let bytes = match start {
            Start::Ended(_) => return Ok(None),
            Start::New => return Ok(Some((create_new(&path)?, 0))),
            Start::Copy(from, bytes) => {
                let mut file = create_new(&path)?;
                io::copy(&mut File::open(from)?.take(*bytes), &mut file)?;
                *bytes
            }
            Start::Keep(bytes) => *bytes,
        };
        let mut file = OpenOptions::new().write(true).open(&path)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Some((file, bytes)))
    }

    /// The last bytes of the file that was begun, and how many lines it has.
    fn look_back(&self, bytes: u64) -> io::Result<(Vec<u8>, u64)> {
        if bytes == 0 {
            return Ok((Vec::new(), 0));
        }
        let path = partial(&self.path);
        Ok((tail_of(&path, bytes)?.unwrap_or_default(), count_lines(&path)?))
    }

    /// How much of the file counts now.
    pub fn mark(&self) -> LetterMark {
        let excerpt = &self.recent[self.recent.len().saturating_sub(EXCERPT_BYTES)..];
        LetterMark { bytes: self.bytes, tail: (self.bytes > 0).then(|| Excerpt::of(excerpt)) }
    }

    /// Adds records. They are in the file when this returns: a position may stand behind them.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, rows: &[BadRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for row in rows {
            let mut letter = json!({
                "file": row.file.as_ref(),
                "line": row.line,
                "reason": row.reason,
                "raw": readable(&row.raw),
            });
            if std::str::from_utf8(&row.raw).is_err() {
                letter["raw-base64"] = STANDARD.encode(&row.raw).into();
            }
            if !row.message.is_null() {
                letter["message"] = row.message.clone();
            }
            text.push_str(&letter.to_string());
            text.push('\n');
        }
        let Some(file) = &mut self.file else {
            return Err(Error::internal("the dead-letter file is not open"));
        };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| self.failed(&error))?;
        self.bytes += text.len() as u64;
        self.recent.extend_from_slice(text.as_bytes());
        self.recent.drain(..self.recent.len().saturating_sub(EXCERPT_BYTES));
        self.is_durable = false;
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// If it cannot be made durable.
    pub fn sync(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if std::mem::replace(&mut self.is_durable, true) {
            return Ok(());
        }
        let synced = file.flush().and_then(|()| file.get_mut().sync_all());
        let synced = synced.and_then(|()| sync_above(&OsFiles, &self.path));
        synced.map_err(|error| {
            self.is_durable = false;
            self.failed(&error)
        })
    }

    /// The job is done, and has counted this many bad rows: the file gets its name.
    ///
    /// # Errors
    /// If it does not hold a line for each of them, or cannot be renamed.
    pub fn finish(&mut self, bad_rows: u64) -> Result<()> {
        if let Some(mark) = self.restored.filter(|_| self.has_ended) {
            self.finish_ended(mark)?;
        } else if self.file.is_some() {
            self.sync()?;
            let lines = count_lines(&partial(&self.path)).map_err(|error| self.failed(&error))?;
            if lines != self.lines_before + bad_rows {
                return Err(self.miscounted(lines - self.lines_before.min(lines), bad_rows));
            }
            self.file = None;
            publish(&OsFiles, std::slice::from_ref(&self.path))?;
        } else {
            return Ok(());
        }
        self.finished.add(&self.path);
        self.claim = None;
        Ok(())
    }

    /// The job was abandoned: what was written stays under the name of files that are not complete.
    pub fn abort(&mut self) {
        self.file = None;
        self.claim = None;
    }

    /// The run that ended the input may have died before the file had its name.
    fn finish_ended(&self, mark: LetterMark) -> Result<()> {
        let failed = |error: io::Error| self.failed(&error);
        if mark.bytes == 0 || mark.fits(&self.path).map_err(failed)? {
            return Ok(());
        }
        let unfinished = partial(&self.path);
        if !mark.fits(&unfinished).map_err(failed)? {
            return Err(self.lost(mark));
        }
        let file = OpenOptions::new().write(true).open(&unfinished).map_err(failed)?;
        file.set_len(mark.bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        publish(&OsFiles, std::slice::from_ref(&self.path))
    }

    fn lost(&self, mark: LetterMark) -> Error {
        let bytes = mark.bytes;
        Error::data(format!(
            "the snapshot has written {bytes} bytes of dead letters, and they are not there"
        ))
        .in_file(partial(&self.path).display().to_string())
        .hint("bring the file back, or start from scratch, without the snapshot")
    }

    fn miscounted(&self, lines: u64, bad_rows: u64) -> Error {
        Error::internal(format!(
            "{}: {bad_rows} rows were bad, and {lines} dead letters are there",
            self.what
        ))
        .in_file(partial(&self.path).display().to_string())
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::io(format!("cannot write dead letters: {error}"))
            .in_file(self.path.display().to_string())
    }
}

fn count_lines(path: &Path) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut lines = 0;
    loop {
        let block = reader.fill_buf()?;
        if block.is_empty() {
            return Ok(lines);
        }
        lines += memchr::memchr_iter(b'\n', block).count() as u64;
        let length = block.len();
        reader.consume(length);
    }
}

/// True if nothing stands there, or dead letters.
fn is_replaceable(path: &Path) -> io::Result<bool> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(false);
    }
    let mut start = Vec::new();
    if let Some(file) = if_there(File::open(canonical_file(path).map_err(io::Error::other)?))? {
        file.take(LINE_START.len() as u64).read_to_end(&mut start)?;
    }
    Ok(start.is_empty() || start == LINE_START)
}
