//! `'connector' = 'filesystem'`: CSV, NDJSON, Parquet and Arrow files.
//!
//! A table is one file, a folder, a glob, or `-` for standard input and output, on this machine or
//! in an object store. The files of a
//! folder are one sequence in name order: decoded by several threads, delivered in order, so that
//! each run sees the same. `.gz` and `.zst` are compressed text.
//!
//! ```text
//! paths ─▶ blocks (or row groups) ─▶ crate::format ─▶ handover ─▶ FileSource
//! FileSink ─▶ crate::format ─▶ NAME.partial ─▶ NAME
//! ```
//!
//! Where a table is partitioned, folders name the values of the columns by which it is
//! (`partitions.rs`). Where it is a changelog, a first column `op` says what each row does
//! (`record.rs`).
//!
//! | what | where |
//! |---|---|
//! | how far files were read | `position.rs` |
//! | who may write a file or folder | `claim.rs` |
//! | that no output names an input | `outputs.rs` |
//! | what is known of an input file | `input_file.rs`, `stamp.rs`, `excerpt.rs` |
//! | what readers deliver | `reading.rs` |
//! | whether files still hold what was read | `recorded.rs`, `identity.rs` |
//! | files that appear and grow | `follow.rs` |
//! | which options decide what a position means | `state_options.rs` |
//! | files in object stores | `objects.rs` |
//! | folders that are written in transactions | `folder_sink.rs`, `parts.rs` |
//! | partitions that are declared complete | `partition_commit.rs` |

pub mod backup;
mod blocks;
pub mod claim;
mod compression;
mod dead_letter;
mod description;
mod excerpt;
#[doc(hidden)]
pub mod files;
mod folder_sink;
mod follow;
mod identity;
mod input_file;
mod input_handle;
mod letters_again;
mod listing;
mod marks;
mod object_listing;
mod objects;
mod options;
mod outputs;
mod partition_commit;
mod partitions;
mod parts;
pub mod paths;
mod position;
mod reading;
mod record;
mod record_batches;
mod recorded;
mod row_groups;
mod sink;
mod source;
mod stamp;
mod state_options;
#[cfg(test)]
mod tests;
mod writer;
mod writing;

#[cfg(any(feature = "kafka", feature = "messaging"))]
pub(crate) use dead_letter::{DeadLetters, FinishedLetters};
#[cfg(any(feature = "kafka", feature = "messaging"))]
pub(crate) use excerpt::LetterMark;
pub(crate) use files::{Files, OsFiles, OutFile, if_there, sync_above, with_ending};
pub(crate) use follow::Lister;
pub(crate) use input_file::{InputFile, RowFilter};
pub(crate) use objects::Objects;
pub(crate) use paths::folder as folder_of;
pub(crate) use position::FileMark;
pub(crate) use source::FileSource;
pub(crate) use writer::partial;

pub use outputs::{OtherFile, letters_path};
pub use paths::snapshot_location;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use thalweg_core::connector::{
    AcceptedChanges, Access, Connector, ConnectorDescription, JobTables, Sink, Source, TableRequest,
};
use thalweg_core::{Error, Result};

#[cfg(not(any(feature = "kafka", feature = "messaging")))]
use self::dead_letter::{DeadLetters, FinishedLetters};
use self::description::DESCRIPTION;
use self::folder_sink::{FolderLocation, FolderSink};
use self::follow::Following;
use self::objects::{ObjectFiles, is_url, writes};
use self::options::{BadData, FileOptions};
use self::partitions::FolderNames;
use self::reading::Reading;
use self::record::Record;
use self::sink::{FileOrParts, FileSink};
use self::writer::Content;
use self::writing::Changelog;
use crate::format::{BadDataPolicy, Format, ParquetOptions, RecordDecoder, RecordLayout};

/// The connector, for a run: its clones share what is known of the run's dead letters.
#[derive(Clone, Debug, Default)]
pub struct Filesystem {
    /// The dead-letter files that jobs of the run have written: later jobs add to them.
    letters: FinishedLetters,
    /// Files of the run that are no table's, which no output may name.
    others: Vec<OtherFile>,
}

impl Filesystem {
    /// The connector in a run that has these files besides those of tables.
    pub fn with_other_files(others: Vec<OtherFile>) -> Self {
        Filesystem { others, ..Filesystem::default() }
    }
}

/// The store that holds what a URL names, other than `memory://…`; `None` for a place of this
/// machine. For snapshots, which lie where tables can lie and are reached as they are.
///
/// # Errors
/// If this build does not have its client, its settings are wrong, or it may not be talked to.
pub fn object_store_of(access: &Access, url: &str) -> Result<Option<Arc<dyn ObjectStore>>> {
    match is_url(url) && writes(url) && !url.starts_with("memory:") {
        false => Ok(None),
        true => objects::open(access, url).map(|objects| Some(objects.store)),
    }
}

impl Connector for Filesystem {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }

    fn validate(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let options = FileOptions::read(request, as_sink)?;
        paths::check_place(request, options.path)
    }

    fn is_bounded(&self, request: &TableRequest) -> bool {
        FileOptions::read(request, false).is_ok_and(|options| options.monitor_interval.is_none())
    }

    fn accepted_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(FileOptions::read(request, true))
    }

    fn held_changes(&self, request: &TableRequest) -> AcceptedChanges {
        changes(FileOptions::read(request, false))
    }

    fn reads_standard_input(&self, request: &TableRequest) -> bool {
        request.options.get("path").is_some_and(|path| path == "-")
    }

    fn checked_columns(&self, request: &TableRequest) -> Vec<String> {
        let Ok(options) = FileOptions::read(request, false) else { return Vec::new() };
        let has_op = options.changelog.is_some_and(Changelog::has_op);
        let record = Record::of(request, has_op);
        let wanted = wanted(request, &record, has_op);
        let checked = options.checked(&record, &wanted).into_iter();
        checked.map(|at| record.schema.columns[at].name.clone()).collect()
    }

    fn leaves_rows_out(&self, request: &TableRequest) -> bool {
        FileOptions::read(request, false).is_ok_and(|options| match options.format {
            Format::Parquet(_) => true,
            #[cfg(feature = "orc")]
            Format::Orc => !request.partitioned_by.is_empty(),
            _ => false,
        })
    }

    fn state_options(&self, request: &TableRequest, as_sink: bool) -> BTreeMap<String, String> {
        state_options::state_options(request, as_sink)
    }

    fn check_files(&self, tables: &JobTables) -> Result<()> {
        outputs::check_files(tables, &self.others)
    }

    fn check_files_after(&self, earlier: &[JobTables], job: &JobTables) -> Result<()> {
        outputs::check_files_after(earlier, job)
    }
    fn check_files_at_once(&self, running: &JobTables, job: &JobTables) -> Result<()> {
        outputs::check_files_at_once(running, job)
    }

    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let source = open_source_after(request, None, &self.letters)?;
        let source = Box::new(source.with_memory_limit(request.memory_limit_bytes));
        letters_again::replaying_records(request, source)
    }

    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let options = FileOptions::read(request, true)?;
        let (files, _) = table_files(request, options.path)?;
        open_sink(request, options, &files)
    }

    fn check_snapshots(&self, request: &TableRequest, as_sink: bool) -> Result<()> {
        let options = FileOptions::read(request, as_sink)?;
        match (as_sink, options.path) {
            (true, _) => options.check_continuable(request, true),
            (false, "-") => {
                let table = &request.table;
                Err(Error::plan(format!(
                    "table {table}: a job with snapshots can't resume from standard input, which is read once"
                ))
                .hint("read a file, or RESET 'execution.checkpointing.dir'"))
            }
            (false, _) => Ok(()),
        }
    }
}

/// The sink of a table, through these system calls. For tests of what a machine that goes off
/// leaves.
///
/// # Errors
/// As those of a sink of this connector.
#[doc(hidden)]
pub fn sink_through(request: &TableRequest, files: &Arc<dyn Files>) -> Result<Box<dyn Sink>> {
    open_sink(request, FileOptions::read(request, true)?, files)
}

/// The sink of a table, through these system calls.
fn open_sink(
    request: &TableRequest,
    options: FileOptions<'_>,
    files: &Arc<dyn Files>,
) -> Result<Box<dyn Sink>> {
    let FileOptions { path, changelog, writing, .. } = options;
    let extension = options.extension();
    let content = Content {
        table: request.table.clone(),
        schema: Record::of(request, false).schema,
        format: options.format,
        changelog,
    };
    let is_partitioned = !request.partitioned_by.is_empty();
    let is_single = !is_partitioned && (path == "-" || !paths::is_folder(request, path));
    let file = match is_single || !(is_partitioned || writing.append) {
        false => None,
        true => {
            let target = paths::target(request, path, extension)?;
            Some(FileSink::new(files.clone(), content.clone(), target, writing))
        }
    };
    if is_single && let Some(file) = file {
        return Ok(Box::new(file));
    }
    let place = FolderLocation { root: paths::folder(request, path)?, extension };
    let names = FolderNames::new(request);
    let parts = FolderSink::new(files.clone(), content, names, place, writing)
        .with_partition_commit(options.partition_commit);
    Ok(match file {
        Some(file) => Box::new(FileOrParts::new(file, parts)),
        None => Box::new(parts),
    })
}

/// The changes of a table with these options; wrong ones are reported elsewhere.
fn changes(options: Result<FileOptions<'_>>) -> AcceptedChanges {
    match options.ok().and_then(|options| options.changelog) {
        Some(Changelog::Op | Changelog::OfFormat) => AcceptedChanges::All,
        Some(Changelog::Upsert) => AcceptedChanges::Upserts,
        None => AcceptedChanges::Inserts,
    }
}

/// Where in a record the columns stand that are asked for. The last of them is `op`, if it is asked
/// for.
fn wanted(request: &TableRequest, record: &Record, has_op: bool) -> Vec<usize> {
    let places = request.wanted_columns().into_iter().filter_map(|at| record.places[at]);
    places.chain((request.reads_kinds && has_op).then_some(0)).collect()
}

/// Opens the files of a table, in a run of its own.
#[cfg(test)]
fn open_source(request: &TableRequest, block_bytes: Option<usize>) -> Result<FileSource> {
    open_source_after(request, block_bytes, &FinishedLetters::default())
}

/// Opens the files of a table, in a run whose earlier jobs have written these dead letters. Tests
/// set the size of the blocks.
fn open_source_after(
    request: &TableRequest,
    block_bytes: Option<usize>,
    letters: &FinishedLetters,
) -> Result<FileSource> {
    let options = FileOptions::read(request, false)?;
    let objects = Objects::of(request, options.path)?;
    let files = match (&objects, options.monitor_interval) {
        (Some(objects), Some(_)) => objects.present(request, options.path)?,
        (Some(objects), None) => objects.inputs(request, options.path)?,
        (None, Some(_)) => paths::present(request, options.path)?,
        (None, None) => paths::inputs(request, options.path)?,
    };
    let (policy, dead_letters) = match options.bad_data {
        BadData::Fail => (BadDataPolicy::Fail, None),
        BadData::Null => (BadDataPolicy::Null, None),
        BadData::Drop => (BadDataPolicy::Reject, None),
        BadData::DeadLetter(_) if request.is_read_again => (BadDataPolicy::Reject, None),
        BadData::DeadLetter(path) => {
            let path = letters_path(request, path)?;
            let letters = DeadLetters::new(&request.table, path, letters.clone());
            (BadDataPolicy::Reject, Some(letters))
        }
    };
    let interval = options.monitor_interval;
    let reading =
        Reading { first_block_bytes: block_bytes, ..reading_of(request, options, policy) };
    let source = FileSource::new(reading, files, request.parallelism, dead_letters);
    let source = source.in_store(objects.clone());
    Ok(match interval {
        Some(interval) => {
            let request = request.clone();
            source.following(Following { request, interval, objects, lister: None })
        }
        None => source,
    })
}

/// A source over files of Parquet that something else than their folder lists: with an interval
/// what lists them is asked again and again.
pub(crate) fn parquet_source(
    request: &TableRequest,
    files: Vec<InputFile>,
    objects: Option<Arc<Objects>>,
    follows: Option<(Duration, Lister)>,
) -> FileSource {
    let record = Record::of(request, false);
    let wanted = wanted(request, &record, false);
    let layout = RecordLayout::new(&request.table, record.schema, wanted, false);
    let layout = layout.within(&request.bounds);
    let reading = Reading {
        decoder: RecordDecoder::new(Format::Parquet(ParquetOptions::default()), layout),
        from_folder: Vec::new(),
        metadata: Vec::new(),
        delivered: request.delivered().arrow(),
        record_bytes_max: blocks::RECORD_BYTES_MAX,
        batch_bytes_max: usize::MAX,
        first_block_bytes: None,
    };
    let source = FileSource::new(reading, files, request.parallelism, None)
        .with_memory_limit(request.memory_limit_bytes)
        .in_store(objects.clone());
    match follows {
        None => source,
        Some((interval, lister)) => {
            let request = request.clone();
            source.following(Following { request, interval, objects, lister: Some(lister) })
        }
    }
}

/// A file of a table that lies at a path on this machine, or in a store.
///
/// # Errors
/// If it is not there, or outside the allowed folders.
pub(crate) fn table_file(
    request: &TableRequest,
    objects: Option<&Arc<Objects>>,
    path: &Path,
) -> Result<InputFile> {
    let path = path.to_string_lossy();
    let found = match objects {
        Some(objects) => objects.inputs(request, &path),
        None => paths::inputs(request, &path),
    };
    let missing = || Error::io("there is no such file").in_file(path.to_string());
    found?.pop().ok_or_else(missing)
}

/// What calls the system, or the store, for files at a path.
///
/// # Errors
/// If it lies in a store that cannot be talked to.
pub(crate) fn table_files(
    request: &TableRequest,
    path: &str,
) -> Result<(Arc<dyn Files>, Option<Arc<Objects>>)> {
    let objects = Objects::of(request, path)?;
    let files: Arc<dyn Files> = match &objects {
        Some(objects) => Arc::new(ObjectFiles::new(objects.clone())),
        None => Arc::new(OsFiles),
    };
    Ok((files, objects))
}

/// Checks that a folder of tables is one that can be written, without touching it.
///
/// # Errors
/// If it is not.
pub(crate) fn check_place_of(request: &TableRequest, path: &str) -> Result<()> {
    if !is_url(path) {
        return Ok(());
    }
    objects::check(request, path)?;
    match writes(path) {
        true => Ok(()),
        false => Err(Error::plan(format!("table {}: '{path}' can only be read", request.table))
            .hint("name a folder, or s3://, gs:// or abfs://")),
    }
}

/// The error of a file that cannot be written.
pub(crate) fn write_failed(path: &Path, error: &std::io::Error) -> Error {
    writer::failed(Some(path), error)
}

/// What is read of the records of a table.
fn reading_of(request: &TableRequest, options: FileOptions<'_>, policy: BadDataPolicy) -> Reading {
    let has_op = options.changelog.is_some_and(Changelog::has_op);
    let record = Record::of(request, has_op);
    let wanted = wanted(request, &record, has_op);
    let checked = options.checked(&record, &wanted);
    let partition_of = |at: &usize| request.partitioned_by.iter().position(|by| by == at);
    let delivered = request.wanted_columns().into_iter().enumerate();
    let from_folder = delivered.filter_map(|(place, at)| Some((place, partition_of(&at)?)));
    let reads_kinds = request.reads_kinds && has_op;
    let layout = RecordLayout::new(&request.table, record.schema, wanted, reads_kinds);
    let layout = match options.format.has_changes() {
        true => layout.of_changes(options.format_metadata),
        false => layout,
    };
    let layout = layout.with_policy(policy, checked).within(&request.bounds);
    Reading {
        decoder: RecordDecoder::new(options.format, layout),
        from_folder: from_folder.collect(),
        metadata: options.metadata,
        delivered: request.delivered().arrow(),
        record_bytes_max: blocks::RECORD_BYTES_MAX,
        batch_bytes_max: usize::MAX,
        first_block_bytes: None,
    }
}
