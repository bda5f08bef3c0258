//! One file that is being written.
//!
//! Rows go to `NAME.partial`, or to a hidden file (`parts.rs`), until the file is published: what a failed or
//! stopped job leaves behind never looks finished. Standard output has no name and nothing to publish.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringViewArray};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use chrono_tz::Tz;
use thalweg_core::{Column, DataType, Error, Result, RowKind, TableSchema};

use super::arrow::writer::ArrowWriter;
use super::compression::{Compression, Compressor};
use super::csv::CsvOptions;
use super::csv::writer::CsvStyle;
use super::files::Files;
use super::json::writer::JsonStyle;
use super::options::Changelog;
use super::parquet::writer::ParquetWriter;
use super::paths::PARTIAL;
use super::record::OP;
use super::source::Format;
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
    /// What `op` in front of them tells, if there is one.
    pub changelog: Option<Changelog>,
}

impl Content {
    /// The rows that are written, and what each does where that is told.
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
        let is_told = |kind: &RowKind| changelog == Changelog::Op || *kind != RowKind::UpdateBefore;
        if kinds.iter().all(is_told) {
            return Ok((batch.clone(), Some(kinds.to_vec())));
        }
        let told = BooleanArray::from_iter(kinds.iter().map(|kind| Some(is_told(kind))));
        let kinds = kinds.iter().copied().filter(is_told).collect();
        Ok((filter_record_batch(batch, &told)?, Some(kinds)))
    }

    /// The Arrow schema of a Parquet file.
    fn arrow(&self) -> SchemaRef {
        let op = Column::new(OP, DataType::STRING.not_null());
        let op = self.changelog.map(|_| op);
        TableSchema::new(op.into_iter().chain(self.schema.columns.iter().cloned()).collect())
            .arrow()
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
    open: Open,
    /// Bytes of text that the file has, before compression and without those in the buffer.
    bytes: u64,
}

enum Open {
    Text { out: TextOut, buffer: String },
    Parquet(Box<ParquetWriter>),
    Arrow(Box<ArrowWriter>),
}

enum TextOut {
    File(Compressor),
    Stdout(io::Stdout),
}

impl TextOut {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            TextOut::File(file) => file.write_all(bytes),
            TextOut::Stdout(out) => out.write_all(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            TextOut::File(file) => file.flush(),
            TextOut::Stdout(out) => out.flush(),
        }
    }
}

impl FileWriter {
    /// Writes to standard output.
    pub fn stdout(content: &Content) -> Result<Self> {
        let open = Open::Text { out: TextOut::Stdout(io::stdout()), buffer: String::new() };
        FileWriter { path: None, open, bytes: 0 }.begun(content)
    }

    /// Begins a file of this path, in a folder that is there.
    pub fn create(files: &dyn Files, path: PathBuf, content: &Content) -> Result<Self> {
        let file = files.create(&path).map_err(|e| {
            Error::io(format!("cannot create the file: {e}")).in_file(path.display().to_string())
        })?;
        let open = match content.format {
            Format::Parquet => Open::Parquet(Box::new(ParquetWriter::new(file, content.arrow())?)),
            Format::Arrow => Open::Arrow(Box::new(ArrowWriter::new(file, content.arrow())?)),
            _ => {
                let out = Compressor::new(file, Compression::of_written(&path));
                let out = TextOut::File(out.map_err(|e| failed(Some(&path), &e))?);
                Open::Text { out, buffer: String::new() }
            }
        };
        FileWriter { path: Some(path), open, bytes: 0 }.begun(content)
    }

    /// Goes on with a text that is not compressed, behind its first bytes.
    pub fn reopen(files: &dyn Files, path: PathBuf, bytes: u64, content: &Content) -> Result<Self> {
        let failed = |e: io::Error| failed(Some(&path), &e);
        let file = files.reopen(&path, bytes).map_err(failed)?;
        let out = TextOut::File(Compressor::new(file, Compression::None).map_err(failed)?);
        let open = Open::Text { out, buffer: String::new() };
        let writer = FileWriter { path: Some(path.clone()), open, bytes };
        if bytes == 0 { writer.begun(content) } else { Ok(writer) }
    }

    /// With the line that names the columns, where there is one.
    fn begun(mut self, content: &Content) -> Result<Self> {
        if let (Open::Text { buffer, .. }, Format::Csv(options)) = (&mut self.open, &content.format)
            && options.header
        {
            let names = content.schema.columns.iter().map(|column| column.name.as_str());
            let names = content.changelog.map(|_| OP).into_iter().chain(names);
            csv_style(options).header(buffer, names)?;
        }
        Ok(self)
    }

    /// About how many bytes the file has, before compression of texts.
    pub fn bytes(&self) -> u64 {
        match &self.open {
            Open::Text { buffer, .. } => self.bytes + buffer.len() as u64,
            Open::Parquet(writer) => writer.bytes(),
            Open::Arrow(writer) => writer.bytes(),
        }
    }

    /// Adds rows, with what each does where that is told.
    pub fn write(
        &mut self,
        batch: &RecordBatch,
        kinds: Option<&[RowKind]>,
        content: &Content,
    ) -> Result<()> {
        let path = self.path.as_deref();
        match (&mut self.open, &content.format) {
            (Open::Parquet(writer), _) => {
                writer.write(with_op(batch, kinds)).map_err(|e| located(path, e))?;
            }
            (Open::Arrow(writer), _) => {
                writer.write(with_op(batch, kinds)).map_err(|e| located(path, e))?;
            }
            (Open::Text { buffer, .. }, Format::Csv(options)) => {
                csv_style(options).rows(buffer, batch, &content.schema, kinds)?;
            }
            (Open::Text { buffer, .. }, Format::Json(options)) => {
                let iso_timestamps = options.iso_timestamps;
                let style = JsonStyle { zone: Tz::UTC, for_file: true, iso_timestamps };
                style.rows(buffer, batch, &content.schema, kinds);
            }
            _ => return Err(Error::internal("a text file of a format that is none")),
        }
        self.write_buffer(BUFFER_BYTES)
    }

    fn write_buffer(&mut self, at_least: usize) -> Result<()> {
        let Open::Text { out, buffer } = &mut self.open else { return Ok(()) };
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
        let Open::Text { out, .. } = &mut self.open else { return Ok(()) };
        out.flush().map_err(|e| failed(self.path.as_deref(), &e))
    }

    /// Makes a text that is not compressed durable as it is. Returns how many bytes it has.
    pub fn sync(&mut self) -> Result<u64> {
        self.flush()?;
        let Open::Text { out: TextOut::File(Compressor::None(file)), .. } = &mut self.open else {
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
            Open::Parquet(writer) => writer.finish().map_err(|e| located(path, e))?,
            Open::Arrow(writer) => writer.finish().map_err(|e| located(path, e))?,
            Open::Text { out: TextOut::File(file), .. } => {
                file.finish().map_err(|e| failed(path, &e))?
            }
            Open::Text { out: TextOut::Stdout(_), .. } => return Ok(()),
        };
        file.sync().map_err(|e| failed(path, &e))
    }
}

/// The columns, with `op` in front where it is told what each row does.
fn with_op(batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Vec<ArrayRef> {
    let op = kinds.map(|kinds| -> ArrayRef {
        let texts = kinds.iter().map(|kind| kind.short());
        Arc::new(StringViewArray::from_iter_values(texts))
    });
    op.into_iter().chain(batch.columns().iter().cloned()).collect()
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

/// The error of a write that failed.
pub fn failed(path: Option<&Path>, error: &io::Error) -> Error {
    let place = path.map_or("standard output".into(), |path| path.to_string_lossy());
    write_error(error).in_file(place)
}

/// The error of a writer that does not know its file.
fn located(path: Option<&Path>, error: Error) -> Error {
    error.in_file(path.map_or("standard output".into(), |path| path.to_string_lossy()))
}

/// The name of a file that is not complete.
pub fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PARTIAL);
    PathBuf::from(name)
}

/// How CSV files are written so that they read back alike.
fn csv_style(options: &CsvOptions) -> CsvStyle {
    CsvStyle {
        delimiter: options.dialect.delimiter,
        quote: options.dialect.quote,
        escape: options.dialect.escape,
        null_text: options.null_literal.clone().unwrap_or_default(),
        zone: Tz::UTC,
        array_delimiter: Some(options.array_delimiter.clone()),
    }
}
