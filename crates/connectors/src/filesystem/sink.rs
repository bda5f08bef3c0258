//! The sink over one file, and the choice between it and parts in a folder.
//!
//! Only when everything was written does the file get its name. With snapshots `NAME.partial` is
//! durable up to the length that the handle holds; a run that resumes from it cuts off what lies
//! behind.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde_json::json;
use thalweg_core::connector::{Demand, Sink, SinkLayer, Waker};
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::claim::Claim;
use super::compression::Compression;
use super::files::{Files, sync_above};
use super::folder_sink::FolderSink;
use super::marks::{self, MarkFile};
use super::objects::is_url;
use super::paths::Target;
use super::writer::{Content, FileWriter, failed, partial, publish};
use super::writing::{Delivery, GUARANTEE, Writing};
use crate::format::Format;
use crate::output::settle;
use crate::saved::read_saved;

/// Refuses the transaction of a table that is written in none any more: its rows are promised, and
/// would never be committed.
///
/// # Errors
/// If there is one.
pub fn refuse_handle(table: &str, handle: Option<&str>) -> Result<()> {
    match handle {
        None => Ok(()),
        Some(_) => Err(Error::plan(format!(
            "table {table}: the snapshot holds rows that are to be committed, and '{GUARANTEE}' = 'none' commits nothing"
        ))
        .hint("resume under the guarantee that the snapshot was taken under")),
    }
}

/// Writes a file or standard output.
pub struct FileSink {
    files: Arc<dyn Files>,
    content: Content,
    target: Target,
    writing: Writing,
    open: Option<FileWriter>,
    claim: Option<Claim>,
    /// How much of `NAME.partial` a snapshot holds.
    resume: Resume,
    /// Standard output may be closed.
    demand: Demand,
    /// It is durable that `NAME.partial` is there.
    is_named: bool,
    /// The job may go back to an older snapshot by itself.
    bears_twice: bool,
    /// This run has marked its output.
    is_marked: bool,
    /// What it writes belongs to snapshots.
    is_transactional: bool,
}

/// What an earlier run has left.
enum Resume {
    /// Nothing that counts.
    Nothing,
    /// Resumes after this number of bytes of `NAME.partial`.
    Behind(u64),
    /// The complete file, with its length in bytes: a run has failed behind its last step, or has
    /// ended and wrote nothing behind the snapshot.
    Complete(u64),
}

impl FileSink {
    /// A sink that creates its file when it is opened.
    pub fn new(files: Arc<dyn Files>, content: Content, target: Target, writing: Writing) -> Self {
        let resume = Resume::Nothing;
        FileSink {
            files,
            content,
            target,
            writing,
            open: None,
            claim: None,
            resume,
            demand: Demand::More,
            is_named: false,
            bears_twice: false,
            is_marked: false,
            is_transactional: false,
        }
    }

    /// The error of a file that cannot be continued after a snapshot, if it is one.
    fn check_continuable(&self) -> Result<()> {
        let Target::File(path) = &self.target else { return Ok(()) };
        check_continuable(&self.content.table, &self.content.format, path)
    }

    fn mark_file(&self, path: &Path) -> MarkFile {
        MarkFile::of_file(self.files.clone(), path)
    }

    fn length(&self, path: &Path) -> Result<Option<u64>> {
        self.files.length(path).map_err(|e| failed(Some(path), &e))
    }

    /// What is left to be done of a file of which a snapshot holds so much.
    fn resumption(&self, path: &Path, handle: &str) -> Result<Resume> {
        let bytes = Length::read(handle)?;
        match self.length(&partial(path))? {
            Some(length) if length >= bytes => Ok(Resume::Behind(bytes)),
            None if self.length(path)? == Some(bytes) => Ok(Resume::Complete(bytes)),
            found => {
                let found =
                    found.map_or("is not there".to_owned(), |length| format!("has {length} bytes"));
                let message =
                    format!("the snapshot has written {bytes} bytes of this file, and it {found}");
                Err(Error::data(message)
                    .in_file(partial(path).display().to_string())
                    .hint("bring the file back, or start from scratch, without the snapshot"))
            }
        }
    }

    /// Refuses to start from scratch over what an earlier run has left, unless that is wanted.
    fn check_empty(
        &self,
        path: &Path,
        mark: Option<&OutputMark>,
        start: &OutputStart,
    ) -> Result<()> {
        if start.overwrites {
            return Ok(());
        }
        // Half a file of this lineage is of no snapshot.
        let is_own = start.fit(mark) == MarkFit::Fits;
        if !is_own && self.length(&partial(path))?.is_some() {
            return Err(marks::occupied(&self.content.table, &partial(path)));
        }
        match self.writing.append || self.length(path)?.is_none() {
            true => Ok(()),
            false => Err(marks::occupied(&self.content.table, path)),
        }
    }

    /// Continues a file that was complete: the input has grown since. It is not complete again
    /// until the job ends.
    fn continue_complete(&self, bytes: u64) -> Result<FileWriter> {
        let Target::File(path) = &self.target else {
            return Err(Error::internal("standard output is never complete"));
        };
        let files = self.files.as_ref();
        files.rename(path, &partial(path)).map_err(|e| failed(Some(path), &e))?;
        FileWriter::reopen(files, partial(path), bytes, &self.content)
    }

    /// Begins the file, with the rows of the one that is there if they are to stay.
    fn begin(&self, path: &Path) -> Result<FileWriter> {
        let located = |e: io::Error| failed(Some(path), &e);
        let files = self.files.as_ref();
        files.create_folder(path.parent().unwrap_or(Path::new("/"))).map_err(located)?;
        if !self.writing.append || files.length(path).map_err(located)?.unwrap_or(0) == 0 {
            return FileWriter::create(files, partial(path), &self.content);
        }
        let mut text = files.read(path).map_err(located)?;
        if text.last() != Some(&b'\n') {
            text.push(b'\n');
        }
        files.create(&partial(path)).and_then(|mut file| file.write_all(&text)).map_err(located)?;
        FileWriter::reopen(files, partial(path), text.len() as u64, &self.content)
    }
}

/// Refuses a file that cannot be continued in the middle.
///
/// # Errors
/// If it is compressed, or no text.
pub fn check_continuable(table: &str, format: &Format, path: &Path) -> Result<()> {
    let is_text = format.is_text();
    let is_object = is_url(&path.to_string_lossy());
    if is_text && !is_object && Compression::of(path) == Compression::None {
        return Ok(());
    }
    let what = match is_text {
        _ if is_object => "single object".to_owned(),
        true => "compressed file".to_owned(),
        false => format!("{} file", format.name()),
    };
    Err(Error::plan(format!(
        "table {table}: a {what} can't be continued after a snapshot or another run"
    ))
    .hint("write to a folder ('path' = 'NAME/'), or to CSV or JSON that is not compressed"))
}

impl Sink for FileSink {
    fn name(&self) -> String {
        self.content.table.clone()
    }

    fn claim(&mut self) -> Result<()> {
        if let (Target::File(path), None) = (&self.target, &self.claim) {
            let what = format!("table {}", self.content.table);
            self.claim = Some(self.files.claim_file(&what, path)?);
        }
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.claim()?;
        let Target::File(path) = &self.target else {
            self.open = Some(FileWriter::stdout(&self.content)?);
            return Ok(());
        };
        self.claim.iter_mut().for_each(Claim::begin);
        if !self.is_transactional {
            self.mark_file(path).release()?;
        }
        self.open = match self.resume {
            Resume::Nothing => Some(self.begin(path)?),
            Resume::Complete(_) => None,
            Resume::Behind(bytes) => {
                let files = self.files.as_ref();
                Some(FileWriter::reopen(files, partial(path), bytes, &self.content)?)
            }
        };
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let (batch, kinds) = self.content.rows(batch, kinds)?;
        if let (None, Resume::Complete(bytes)) = (&self.open, &self.resume) {
            self.open = Some(self.continue_complete(*bytes)?);
        }
        let written = match &mut self.open {
            _ if self.demand != Demand::More => Ok(()),
            Some(open) => open.write(&batch, kinds.as_deref()),
            None => Err(Error::internal("a sink was written before it was opened")),
        };
        settle(&mut self.demand, written)
    }

    fn demand(&self) -> Demand {
        self.demand
    }

    fn canceller(&self) -> Option<Waker> {
        self.files.canceller()
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.open.as_mut().map_or(Ok(()), FileWriter::flush);
        settle(&mut self.demand, flushed)
    }

    fn finish(&mut self) -> Result<()> {
        match (self.open.take(), &self.resume) {
            (Some(open), _) => {
                settle(&mut self.demand, open.close())?;
                if let Target::File(path) = &self.target {
                    publish(self.files.as_ref(), std::slice::from_ref(path))?;
                }
            }
            (None, Resume::Complete(_)) => {}
            (None, _) => return Err(Error::internal("a sink was finished before it was opened")),
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

    fn use_transactions(&mut self) -> SinkGuarantee {
        self.is_transactional = self.writing.delivery != Delivery::None;
        self.bears_twice = self.writing.delivery == Delivery::AtLeastOnce;
        match self.target {
            // What was printed is printed.
            Target::Stdout => SinkGuarantee::AtLeastOnce,
            Target::File(_) => self.writing.delivery.guarantee(),
        }
    }

    fn write_at_least_once(&mut self) {
        self.is_transactional = self.writing.delivery != Delivery::None;
        self.bears_twice = true;
    }

    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        let Target::File(path) = &self.target else { return Ok(()) };
        let mark = self.mark_file(path).read()?;
        if !self.is_transactional {
            refuse_handle(&self.content.table, handle)?;
            let is_needed = mark.as_ref().is_some_and(marks::is_of_a_job)
                && self.length(&partial(path))?.is_some();
            return match is_needed && !start.overwrites {
                true => Err(marks::needed(&self.content.table, &partial(path))),
                false => Ok(()),
            };
        }
        self.check_continuable()?;
        let Some(handle) = handle else { return self.check_empty(path, mark.as_ref(), start) };
        let _found = self.resumption(path, handle)?;
        let place = (self.content.table.as_str(), path.as_path());
        marks::check_resumed(place, mark.as_ref(), start, self.bears_twice)
    }

    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        let is_first = !std::mem::replace(&mut self.is_marked, true);
        match &self.target {
            Target::File(path) if self.is_transactional => {
                self.mark_file(path).write(mark, is_first)
            }
            _ => Ok(()),
        }
    }

    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        let Target::File(path) = &self.target else { return Ok(()) };
        if self.writing.delivery == Delivery::None {
            return refuse_handle(&self.content.table, handle);
        }
        self.check_continuable()?;
        if let Some(handle) = handle {
            self.resume = self.resumption(path, handle)?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<Option<String>> {
        let Target::File(path) = &self.target else {
            self.flush()?;
            return Ok(None);
        };
        if self.writing.delivery == Delivery::None {
            self.flush()?;
            return Ok(None);
        }
        let Some(open) = &mut self.open else {
            return Ok(match self.resume {
                Resume::Complete(bytes) => Some(Length::write(bytes, path)),
                _ => None,
            });
        };
        let bytes = open.sync()?;
        if !std::mem::replace(&mut self.is_named, true) {
            sync_above(self.files.as_ref(), path).map_err(|e| failed(Some(path), &e))?;
        }
        Ok(Some(Length::write(bytes, path)))
    }
}

/// The handle of a single file: how many bytes of it are durable.
struct Length;

impl Length {
    fn write(bytes: u64, path: &Path) -> String {
        json!({ "bytes": bytes, "path": path.to_string_lossy() }).to_string()
    }

    fn read(handle: &str) -> Result<u64> {
        read_saved("transaction of a file", handle, |value| value.get("bytes")?.as_u64())
    }
}

/// A folder that is not partitioned: one file without transactions, parts with them.
pub struct FileOrParts {
    file: FileSink,
    parts: FolderSink,
    uses_parts: bool,
}

impl FileOrParts {
    /// The sink: the file, until transactions are used.
    pub fn new(file: FileSink, parts: FolderSink) -> Self {
        FileOrParts { file, parts, uses_parts: false }
    }

    /// Which of the two it is, is clear now.
    fn choose(&mut self) {
        self.uses_parts = self.file.writing.delivery != Delivery::None;
        if self.uses_parts {
            self.parts.claim = self.file.claim.take();
        }
    }
}

impl SinkLayer for FileOrParts {
    fn inner(&self) -> &dyn Sink {
        if self.uses_parts { &self.parts } else { &self.file }
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        if self.uses_parts { &mut self.parts } else { &mut self.file }
    }
    fn name(&self) -> String {
        self.file.name()
    }
    fn claim(&mut self) -> Result<()> {
        // The folder as a whole, whichever of the two it will be.
        self.parts.claim()?;
        self.file.claim = self.parts.claim.take();
        Ok(())
    }
    fn open(&mut self) -> Result<()> {
        if !self.uses_parts {
            self.parts.leave_snapshots()?;
        }
        self.inner_mut().open()
    }
    fn use_transactions(&mut self) -> SinkGuarantee {
        self.choose();
        self.inner_mut().use_transactions()
    }
    fn write_at_least_once(&mut self) {
        self.choose();
        self.inner_mut().write_at_least_once();
    }
    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        if !self.uses_parts {
            self.parts.check_start(handle, start)?;
        }
        self.inner_mut().check_start(handle, start)
    }
}
