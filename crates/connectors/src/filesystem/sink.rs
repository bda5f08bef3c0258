//! The sink over files.
//!
//! Rows go to `NAME.partial` in the folder of the target; only when everything was written is the
//! file renamed to NAME, after its content has reached the disk. What a failed or stopped job
//! leaves behind therefore never looks finished.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_core::connector::Sink;
use thalweg_core::{Error, Result, RowKind, TableSchema};

use super::compression::{Compression, Compressor};
use super::csv::CsvOptions;
use super::csv::writer::CsvStyle;
use super::json::writer::JsonStyle;
use super::parquet::writer::ParquetWriter;
use super::paths::{PARTIAL, Target, create_parent};
use super::source::Format;
use crate::output::write_error;

/// The files that are being written: two sinks on one file would destroy each other's rows.
static BEING_WRITTEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Text gathered before it is written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a file or standard output.
pub struct FileSink {
    table: String,
    schema: TableSchema,
    format: Format,
    target: Target,
    open: Option<Open>,
    is_claimed: bool,
    /// A first column or key says what each row does.
    has_kinds: bool,
}

enum Open {
    Text { out: TextOut, buffer: String },
    Parquet(Box<ParquetWriter>),
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

impl FileSink {
    /// A sink that creates its file when it is opened.
    pub fn new(table: &str, schema: TableSchema, format: Format, target: Target) -> Self {
        let table = table.to_string();
        let (open, is_claimed, has_kinds) = (None, false, false);
        FileSink { table, schema, format, target, open, is_claimed, has_kinds }
    }

    /// Says in a first column `op` what each row does, and so takes every change.
    #[must_use]
    pub fn with_kinds(mut self, has_kinds: bool) -> Self {
        self.has_kinds = has_kinds;
        self
    }

    fn path(&self) -> Option<&Path> {
        match &self.target {
            Target::File(path) => Some(path),
            Target::Stdout => None,
        }
    }

    fn claim(&mut self) -> Result<()> {
        let Some(path) = self.path().map(Path::to_path_buf) else { return Ok(()) };
        let mut written = BEING_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.insert(path.clone()) {
            return Err(Error::plan(format!(
                "table {}: the file is already being written",
                self.table
            ))
            .in_file(path.display().to_string())
            .hint("write to different files, or combine the queries with UNION ALL"));
        }
        self.is_claimed = true;
        Ok(())
    }

    fn release(&mut self) {
        if let (true, Some(path)) = (self.is_claimed, self.path()) {
            BEING_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
        }
        self.is_claimed = false;
    }

    fn failed(&self, error: &io::Error) -> Error {
        let place = self.path().map_or("standard output".into(), |path| path.to_string_lossy());
        write_error(error).in_file(place)
    }

    fn create(&self) -> Result<Open> {
        let Some(path) = self.path() else {
            return Ok(Open::Text { out: TextOut::Stdout(io::stdout()), buffer: String::new() });
        };
        create_parent(path)?;
        let file = create_new(&partial(path))?;
        if matches!(self.format, Format::Parquet) {
            return Ok(Open::Parquet(Box::new(ParquetWriter::new(file, self.schema.arrow())?)));
        }
        let out = Compressor::new(file, Compression::of(path)).map_err(|e| self.failed(&e))?;
        Ok(Open::Text { out: TextOut::File(out), buffer: String::new() })
    }

    fn write_buffer(&mut self, at_least: usize) -> Result<()> {
        let Some(Open::Text { out, buffer }) = &mut self.open else { return Ok(()) };
        if buffer.len() < at_least.max(1) {
            return Ok(());
        }
        let written = out.write_all(buffer.as_bytes());
        buffer.clear();
        written.map_err(|e| self.failed(&e))
    }
}

/// Creates a file, replacing one of that name. A symbolic link is replaced, never followed.
pub fn create_new(path: &Path) -> Result<File> {
    let failed = |e: io::Error| {
        Error::io(format!("cannot create the file: {e}")).in_file(path.display().to_string())
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)
}

fn partial(path: &Path) -> PathBuf {
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

impl Sink for FileSink {
    fn name(&self) -> String {
        self.table.clone()
    }

    fn open(&mut self) -> Result<()> {
        self.claim()?;
        let mut open = self.create()?;
        if let (Open::Text { buffer, .. }, Format::Csv(options)) = (&mut open, &self.format)
            && options.header
        {
            let names = self.schema.columns.iter().map(|column| column.name.as_str());
            let names = self.has_kinds.then_some("op").into_iter().chain(names);
            csv_style(options).header(buffer, names)?;
        }
        self.open = Some(open);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let inserts = vec![RowKind::Insert; if self.has_kinds { batch.num_rows() } else { 0 }];
        let told = self.has_kinds.then(|| kinds.unwrap_or(&inserts));
        if !self.has_kinds {
            check_inserts(&self.table, kinds)?;
        }
        match (&mut self.open, &self.format) {
            (Some(Open::Parquet(writer)), _) => writer.write(batch)?,
            (Some(Open::Text { buffer, .. }), Format::Csv(options)) => {
                csv_style(options).rows(buffer, batch, &self.schema, told)?;
            }
            (Some(Open::Text { buffer, .. }), Format::Json(options)) => {
                let iso_timestamps = options.iso_timestamps;
                let style = JsonStyle { zone: Tz::UTC, for_file: true, iso_timestamps };
                style.rows(buffer, batch, &self.schema, told);
            }
            _ => return Err(Error::internal("a sink was written before it was opened")),
        }
        self.write_buffer(BUFFER_BYTES)
    }

    fn flush(&mut self) -> Result<()> {
        self.write_buffer(0)?;
        let Some(Open::Text { out, .. }) = &mut self.open else { return Ok(()) };
        out.flush().map_err(|e| self.failed(&e))
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()?;
        let file = match self.open.take() {
            None => return Err(Error::internal("a sink was finished before it was opened")),
            Some(Open::Parquet(writer)) => writer.finish()?,
            Some(Open::Text { out: TextOut::File(file), .. }) => {
                file.finish().map_err(|e| self.failed(&e))?
            }
            Some(Open::Text { out: TextOut::Stdout(_), .. }) => return Ok(()),
        };
        let Some(path) = self.path() else { return Ok(()) };
        file.sync_all().map_err(|e| self.failed(&e))?;
        fs::rename(partial(path), path).map_err(|e| self.failed(&e))?;
        // The rename itself is durable when the folder is.
        if let Some(folder) = path.parent() {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| self.failed(&e))?;
        }
        self.release();
        Ok(())
    }

    fn abort(&mut self) {
        // Best effort: what was written so far may help to find the cause.
        let _ = self.flush();
        self.open = None;
        self.release();
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        self.release();
    }
}
