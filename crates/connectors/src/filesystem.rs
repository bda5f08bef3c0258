//! `'connector' = 'filesystem'`: CSV, NDJSON and Parquet files.
//!
//! A table is one file, a folder, a glob, or `-` for standard input and output. The files of a
//! folder are one sequence in name order: decoded by several threads, delivered in order, so that
//! each run sees the same. `.gz` and `.zst` are compressed text.
//!
//! ```text
//! paths ─▶ blocks (or row groups) ─▶ csv | json | parquet ─▶ handover ─▶ FileSource
//! FileSink ─▶ csv | json | parquet ─▶ NAME.partial ─▶ NAME
//! ```
//!
//! What is not done: partitions in folder names, watching a folder for new files, appending.

mod blocks;
mod compression;
mod csv;
mod dead_letter;
mod json;
mod options;
mod parquet;
mod paths;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use csv::writer::CsvStyle;
pub(crate) use json::writer::JsonStyle;

use chrono_tz::Tz;
use thalweg_core::connector::{AcceptedChanges, Sink, Source, TableRequest};
use thalweg_core::{Error, Result};

use self::csv::values::OnBad;
use self::dead_letter::DeadLetters;
use self::options::{BadData, FileOptions};
use self::paths::Target;
use self::sink::FileSink;
use self::source::{FileSource, Reading};
use crate::Connector;

/// The connector.
pub struct Filesystem;

impl Connector for Filesystem {
    fn name(&self) -> &'static str {
        "filesystem"
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        FileOptions::read(request, as_sink).map(|_| ())
    }

    fn is_bounded(&self, _request: &TableRequest) -> bool {
        true
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        match FileOptions::read(request, true) {
            Ok(FileOptions { has_kinds: true, .. }) => AcceptedChanges::All,
            _ => AcceptedChanges::Inserts,
        }
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(open_source(request, None)?))
    }

    fn sink(&self, request: &TableRequest, _zone: Tz) -> Result<Box<dyn Sink>> {
        let options = FileOptions::read(request, true)?;
        let target = paths::target(request, options.path, options.extension())?;
        let schema = request.schema.clone();
        let sink = FileSink::new(&request.table, schema, options.format, target);
        Ok(Box::new(sink.with_kinds(options.has_kinds)))
    }
}

/// Opens the files of a table. Tests set the size of the blocks.
fn open_source(request: &TableRequest, block_bytes: Option<usize>) -> Result<FileSource> {
    let options = FileOptions::read(request, false)?;
    let files = paths::inputs(request, options.path)?;
    let (on_bad, dead_letters) = match options.bad_data {
        BadData::Fail => (OnBad::Fail, None),
        BadData::Null => (OnBad::Null, None),
        BadData::Drop => (OnBad::Reject, None),
        BadData::DeadLetter(path) => match paths::target(request, path, "jsonl")? {
            Target::File(path) => (OnBad::Reject, Some(DeadLetters::new(path))),
            Target::Stdout => {
                return Err(
                    Error::plan("'dead-letter.path' cannot be standard output").hint("name a file")
                );
            }
        },
    };
    let wanted = match &request.projection {
        Some(wanted) => wanted.clone(),
        None => (0..request.schema.len()).collect(),
    };
    let reading = Reading {
        table: request.table.clone(),
        schema: request.schema.clone(),
        wanted,
        metadata: options.metadata,
        delivered: request.delivered().arrow(),
        format: options.format,
        on_bad,
        first_block_bytes: block_bytes,
    };
    Ok(FileSource::new(reading, files, request.parallelism, dead_letters))
}
