//! One file that is being written.
//!
//! Rows go to `NAME.partial`, or to a hidden file (`parts.rs`), until the file is published: what a
//! failed or stopped job leaves behind never looks finished. Standard output has no name and
//! nothing to publish.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use thalweg_core::{Error, Result, RowKind, TableSchema};

use super::compression::{Compression, Compressor};
use super::files::{Files, OutFile, PARTIAL, with_ending};
use super::objects::is_cancelled;
use super::writing::Changelog;
use crate::format::{Format, RowWriter, TextEncoder};
use crate::output::write_error;

/// Text gathered before it is written.
const BUFFER_BYTES: usize = 256 << 10;

/// What the files of a table hold.
#[derive(Clone)]
pub struct Content {
    /// The table's name, for messages.
    pub table: String,
    /// The columns of a record, without `op`.
    pub schema: TableSchema,
    /// How they are written.
    pub format: Format,
    /// What `op` in front of them says, if there is one.
    pub changelog: Option<Changelog>,
}

impl Content {
    /// The rows that are written, and their kinds where the table is a changelog.
    pub fn rows(
        &self,
        batch: &RecordBatch,
        kinds: Option<&[RowKind]>,
    ) -> Result<(RecordBatch, Option<Vec<RowKind>>)> {
        let Some(changelog) = self.changelog else {
            check_inserts(&self.table, kinds)?;
            return Ok((batch.clone(), None));
        };
        let Some(kinds) = kinds else {
            return Ok((batch.clone(), Some(vec![RowKind::Insert; batch.num_rows()])));
        };
        let is_written =
            |kind: &RowKind| changelog != Changelog::Upsert || *kind != RowKind::UpdateBefore;
        if kinds.iter().all(is_written) {
            return Ok((batch.clone(), Some(kinds.to_vec())));
        }
        let written = BooleanArray::from_iter(kinds.iter().map(|kind| Some(is_written(kind))));
        let kinds = kinds.iter().copied().filter(is_written).collect();
        Ok((filter_record_batch(batch, &written)?, Some(kinds)))
    }
}

/// Refuses rows that take others back.
fn check_inserts(table: &str, kinds: Option<&[RowKind]>) -> Result<()> {
    if kinds.is_some_and(|kinds| kinds.iter().any(|kind| *kind != RowKind::Insert)) {
        return Err(Error::unsupported(format!(
            "table {table}: a file cannot take updates or deletions"
        ))
        .hint("window the aggregation, so that each result is final, or set 'changelog' = 'op'"));
    }
    Ok(())
}

/// A file, or standard output.
pub struct FileWriter {
    path: Option<PathBuf>,
    open: OpenFormat,
    /// Bytes of text that the file has, before compression and without those in the buffer.
    bytes: u64,
}

enum OpenFormat {
    Text { encoder: Box<TextEncoder>, out: Compressor, buffer: String },
    Rows(Box<RowWriter<Box<dyn OutFile>>>),
}

/// The beginning of a text.
fn text(content: &Content, out: Compressor) -> Result<OpenFormat> {
    let encoder = TextEncoder::new(&content.format, content.schema.clone());
    let encoder = encoder.ok_or_else(|| Error::internal("a text file of a format that is none"))?;
    Ok(OpenFormat::Text { encoder: Box::new(encoder), out, buffer: String::new() })
}

impl FileWriter {
    /// Writes to standard output.
    pub fn stdout(content: &Content) -> Result<Self> {
        let out = Compressor::new(Box::new(io::stdout()), Compression::None);
        let open = text(content, out.map_err(|e| failed(None, &e))?)?;
        FileWriter { path: None, open, bytes: 0 }.begun(content)
    }

    /// Begins a file of this path, in a folder that is there.
    pub fn create(files: &dyn Files, path: PathBuf, content: &Content) -> Result<Self> {
        let file = files.create(&path).map_err(|e| {
            Error::io(format!("cannot create the file: {e}")).in_file(path.display().to_string())
        })?;
        let open = if content.format.is_text() {
            let out = Compressor::new(file, Compression::of_written(&path));
            text(content, out.map_err(|e| failed(Some(&path), &e))?)?
        } else {
            let has_kinds = content.changelog.is_some();
            let rows = RowWriter::new(&content.format, file, &content.schema, has_kinds)?;
            OpenFormat::Rows(Box::new(rows))
        };
        FileWriter { path: Some(path), open, bytes: 0 }.begun(content)
    }

    /// Continues a text that is not compressed, behind its first bytes.
    pub fn reopen(files: &dyn Files, path: PathBuf, bytes: u64, content: &Content) -> Result<Self> {
        let failed = |e: io::Error| failed(Some(&path), &e);
        let file = files.reopen(&path, bytes).map_err(failed)?;
        let open = text(content, Compressor::new(file, Compression::None).map_err(failed)?)?;
        let writer = FileWriter { path: Some(path.clone()), open, bytes };
        if bytes == 0 { writer.begun(content) } else { Ok(writer) }
    }

    /// With the line that names the columns, where there is one.
    fn begun(mut self, content: &Content) -> Result<Self> {
        if let OpenFormat::Text { encoder, buffer, .. } = &mut self.open {
            encoder.begin(buffer, content.changelog.is_some_and(Changelog::has_op))?;
        }
        Ok(self)
    }

    /// About how many bytes the file has, before compression of texts.
    pub fn bytes(&self) -> u64 {
        match &self.open {
            OpenFormat::Text { buffer, .. } => self.bytes + buffer.len() as u64,
            OpenFormat::Rows(writer) => writer.bytes(),
        }
    }

    /// Adds rows, with their kinds where the table is a changelog.
    pub fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        match &mut self.open {
            OpenFormat::Rows(writer) => {
                let path = self.path.as_deref();
                writer.write(batch, kinds).map_err(|e| located(path, e))?;
            }
            OpenFormat::Text { encoder, buffer, .. } => encoder.lines(buffer, batch, kinds)?,
        }
        self.write_buffer(BUFFER_BYTES)
    }

    fn write_buffer(&mut self, at_least: usize) -> Result<()> {
        let OpenFormat::Text { out, buffer, .. } = &mut self.open else { return Ok(()) };
        if buffer.len() < at_least.max(1) {
            return Ok(());
        }
        let written = out.write_all(buffer.as_bytes());
        self.bytes += buffer.len() as u64;
        buffer.clear();
        written.map_err(|e| failed(self.path.as_deref(), &e))
    }

    /// Makes what was written so far visible where the format allows it.
    pub fn flush(&mut self) -> Result<()> {
        self.write_buffer(0)?;
        let OpenFormat::Text { out, .. } = &mut self.open else { return Ok(()) };
        out.flush().map_err(|e| failed(self.path.as_deref(), &e))
    }

    /// Makes a text that is not compressed durable as it is. Returns how many bytes it has.
    pub fn sync(&mut self) -> Result<u64> {
        self.flush()?;
        let OpenFormat::Text { out: Compressor::None(file), .. } = &mut self.open else {
            return Err(Error::internal("only a plain text is durable before its end"));
        };
        file.get_mut().sync().map_err(|e| failed(self.path.as_deref(), &e))?;
        Ok(self.bytes)
    }

    /// Ends the file. All of it has reached the disk then, but it still has to be published.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        let path = self.path.as_deref();
        let mut file = match self.open {
            OpenFormat::Rows(writer) => writer.finish().map_err(|e| located(path, e))?,
            OpenFormat::Text { out, .. } => out.finish().map_err(|e| failed(path, &e))?,
        };
        file.sync().map_err(|e| failed(path, &e))
    }
}

/// Gives files of one folder that were closed their names.
pub fn publish(files: &dyn Files, paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        files.rename(&partial(path), path).map_err(|e| failed(Some(path), &e))?;
    }
    // The renames themselves are durable when the folder is.
    let Some(folder) = paths.first().and_then(|path| path.parent()) else { return Ok(()) };
    files.sync_folder(folder).map_err(|e| failed(Some(folder), &e))
}

/// True if there is a file at this path.
///
/// # Errors
/// If that cannot be found out.
pub fn is_there(files: &dyn Files, path: &Path) -> Result<bool> {
    files.length(path).map(|length| length.is_some()).map_err(|e| failed(Some(path), &e))
}

/// Creates a folder inside the folder of a table, for the file or folder that errors name.
///
/// # Errors
/// If it cannot be made, or a link in it leads out of the table's folder.
pub fn create_folder(files: &dyn Files, folder: &Path, root: &Path, named: &Path) -> Result<()> {
    let located = |e: io::Error| failed(Some(folder), &e);
    files.create_folder(folder).map_err(located)?;
    let inside = files.canonical(root).map_err(located)?;
    if files.canonical(folder).map_err(located)?.starts_with(inside) {
        return Ok(());
    }
    let place = named.display().to_string();
    Err(Error::io("a link leads out of the table's folder").in_file(place).hint("remove it"))
}

/// The error of a write that failed.
pub fn failed(path: Option<&Path>, error: &io::Error) -> Error {
    if is_cancelled(error) {
        return Error::cancelled();
    }
    let place = path.map_or("standard output".into(), |path| path.to_string_lossy());
    write_error(error).in_file(place)
}

/// The error of a writer that does not know its file.
fn located(path: Option<&Path>, error: Error) -> Error {
    error.in_file(path.map_or("standard output".into(), |path| path.to_string_lossy()))
}

/// The name of a file that is not complete.
pub fn partial(path: &Path) -> PathBuf {
    with_ending(path, PARTIAL)
}
