//! The `WITH` options of file tables.

use std::path::Path;
use std::time::Duration;

use thalweg_core::connector::{Options, TableRequest, near_miss};
use thalweg_core::{Column, DataType, Error, Result};

use super::description::DESCRIPTION;
use super::objects;
use super::partition_commit::PartitionCommit;
use super::paths;
use super::reading::FileMetadata;
use super::record::Record;
use super::sink::check_continuable;
use super::writing::{Changelog, Delivery, GUARANTEE, Writing};
use crate::format::encoding::OP;
use crate::format::{Format, csv};
use crate::metadata::{unfit, unknown};

/// What becomes of rows that cannot be read.
pub enum BadData<'a> {
    /// The job fails.
    Fail,
    /// Bad values are NULL.
    Null,
    /// Bad rows are dropped and counted.
    Drop,
    /// Bad rows go to this file.
    DeadLetter(&'a str),
}

/// The checked options of a table.
pub struct FileOptions<'a> {
    /// Where the files are.
    pub path: &'a str,
    /// What they hold.
    pub format: Format,
    /// What becomes of bad rows.
    pub bad_data: BadData<'a>,
    /// A row is bad by any of its columns, not only by those that are read.
    pub checks_all: bool,
    /// The metadata columns.
    pub metadata: Vec<FileMetadata>,
    /// Those among them that the format knows.
    pub format_metadata: Vec<(String, Column)>,
    /// What a first column (or key) `op` says of each row, if there is one.
    pub changelog: Option<Changelog>,
    /// How it is written.
    pub writing: Writing,
    /// How its partitions are declared complete.
    pub partition_commit: Option<PartitionCommit>,
    /// Files are followed: how often to look for new ones and for growth.
    pub monitor_interval: Option<Duration>,
}

impl<'a> FileOptions<'a> {
    /// Reads and checks the options without touching any file.
    pub fn read(request: &'a TableRequest, as_sink: bool) -> Result<Self> {
        let options = Options::of(request, &DESCRIPTION)?;
        let path = options.required("path")?;
        let name = options.required("format")?;
        let format = Format::read(name, &options, record_columns(&options, request), true)?;
        let format = format.ok_or_else(|| unknown_format(&options, name))?;
        if as_sink && matches!(format, Format::Orc) {
            let message = format!("table {}: ORC is read, but not written", request.table);
            return Err(Error::unsupported(message).hint("write another format: parquet, …"));
        }
        check_types(request, &format)?;
        check_stream(&options, path, &format)?;
        let mut format_metadata = Vec::new();
        let metadata = match as_sink {
            true => Vec::new(),
            false => metadata(request, &format, &mut format_metadata)?,
        };
        let bad_data = bad_data(&options, &format)?;
        let checks_all = checks_all(&options, &format, &bad_data)?;
        let changelog = changelog(&options, &format, request)?;
        check_partitions(&options, path, changelog, request)?;
        let writing = Writing::read(&options)?;
        let is_partitioned = !request.partitioned_by.is_empty();
        let partition_commit = PartitionCommit::read(&options, is_partitioned)?;
        let monitor_interval = monitor_interval(&options, path)?;
        check_place(&options, request, path, as_sink)?;
        let table = FileOptions {
            path,
            format,
            bad_data,
            checks_all,
            metadata,
            format_metadata,
            changelog,
            writing,
            partition_commit,
            monitor_interval,
        };
        if as_sink {
            table.check_continuable(request, options.get(GUARANTEE).is_some())?;
        }
        Ok(table)
    }

    /// Refuses a single file that cannot be continued where that would be needed: it is appended
    /// to, or written in a job with snapshots.
    pub fn check_continuable(&self, request: &TableRequest, has_snapshots: bool) -> Result<()> {
        let is_needed = match self.writing.delivery {
            Delivery::None => self.writing.append,
            _ => self.writing.append || has_snapshots,
        };
        let is_folder = !request.partitioned_by.is_empty() || paths::is_folder(request, self.path);
        if !is_needed || is_folder || self.path == "-" {
            return Ok(());
        }
        check_continuable(&request.table, &self.format, Path::new(self.path))
    }

    /// The columns of a record that are read only to find bad rows, where others are wanted.
    pub fn checked(&self, record: &Record, wanted: &[usize]) -> Vec<usize> {
        let can_be_bad = |column: &Column| self.format.can_be_bad(column);
        let columns = record.schema.columns.iter().enumerate();
        let unread = columns.filter(|(at, column)| !wanted.contains(at) && can_be_bad(column));
        let unread = unread.map(|(at, _)| at);
        if self.checks_all { unread.collect() } else { Vec::new() }
    }

    /// The extension of files in a folder.
    pub fn extension(&self) -> &'static str {
        self.format.name()
    }
}

/// How many columns a record holds.
fn record_columns(options: &Options<'_>, request: &TableRequest) -> usize {
    let op = usize::from(options.get("changelog").is_some());
    request.schema.len() - request.partitioned_by.len() + op
}

/// `'source.monitor-interval'`
fn monitor_interval(options: &Options<'_>, path: &str) -> Result<Option<Duration>> {
    let name = "source.monitor-interval";
    match (options.duration_ms(name)?, path) {
        (Some(0), _) => Err(options.bad(name, "0", "more than nothing: '1 s'")),
        (Some(_), "-") => {
            Err(options.conflict("standard input needs no 'source.monitor-interval'"))
        }
        (interval, _) => Ok(interval.map(Duration::from_millis)),
    }
}

fn unknown_format(options: &Options<'_>, name: &str) -> Error {
    let known = || DESCRIPTION.formats.iter().map(|format| format.name);
    let list = known().collect::<Vec<_>>().join(", ");
    let bad = options.bad("format", name, &format!("one of {list}"));
    match near_miss(name, known()) {
        Some(near) => bad.hint(format!("did you mean '{near}'?")),
        None => bad,
    }
}

/// `'changelog'`, and whether the table is fit for it.
fn changelog(
    options: &Options<'_>,
    format: &Format,
    request: &TableRequest,
) -> Result<Option<Changelog>> {
    let words = [("op", Changelog::Op), ("upsert", Changelog::Upsert)];
    let changelog = options.choice("changelog", &words)?;
    if format.has_changes() {
        return match changelog {
            None => Ok(Some(Changelog::OfFormat)),
            Some(_) => Err(options
                .conflict("the format says of each row what it does, and needs no 'changelog'")
                .hint("remove 'changelog'")),
        };
    }
    if changelog == Some(Changelog::Upsert) && request.primary_key.is_empty() {
        return Err(options
            .conflict("'changelog' = 'upsert' needs a primary key, and the table declares none")
            .hint(
                "declare PRIMARY KEY (…) NOT ENFORCED, or keep every change: 'changelog' = 'op'",
            ));
    }
    let has_op = request.schema.columns.iter().any(|column| column.name == OP);
    if changelog.is_some() && has_op && !matches!(format, Format::Csv(_)) {
        return Err(options
            .conflict("'changelog' adds a column 'op', but the table has one of that name")
            .hint("give the column another name"));
    }
    Ok(changelog)
}

/// Whether a table with `PARTITIONED BY` is fit for it.
fn check_partitions(
    options: &Options<'_>,
    path: &str,
    changelog: Option<Changelog>,
    request: &TableRequest,
) -> Result<()> {
    let partitioned_by = &request.partitioned_by;
    if partitioned_by.is_empty() {
        return Ok(());
    }
    if path == "-" {
        return Err(options.conflict("PARTITIONED BY needs a folder, not standard input or output"));
    }
    if partitioned_by.len() == request.schema.len() {
        return Err(options
            .conflict("every column is in PARTITIONED BY, so files would have none")
            .hint("leave at least one column out of it"));
    }
    let column = |&at: &usize| &request.schema.columns[at];
    if let Some(column) = partitioned_by.iter().map(column).find(|column| !is_plain(column)) {
        return Err(Error::unsupported(format!(
            "table {}: PARTITIONED BY column {} of type {}",
            request.table, column.name, column.column_type.data_type
        ))
        .hint("numbers, strings, BOOLEAN, DATE, TIME and timestamps can name a folder"));
    }
    let outside = partitioned_by.iter().find(|at| !request.primary_key.contains(at));
    match (changelog, outside) {
        (Some(Changelog::Upsert), Some(&at)) => Err(options
            .conflict(&format!(
                "PARTITIONED BY column {} is not part of the primary key: the changes of a key would \
                 lie in several folders, without an order",
                request.schema.columns[at].name
            ))
            .hint("add it to the PRIMARY KEY, or leave PARTITIONED BY out")),
        _ => Ok(()),
    }
}

/// True for a type whose values can name a folder.
fn is_plain(column: &Column) -> bool {
    let data_type = &column.column_type.data_type;
    let has_parts = matches!(
        data_type,
        DataType::Array(_) | DataType::Map(..) | DataType::Row(_) | DataType::Null
    );
    !has_parts
        && !matches!(data_type, DataType::Binary(_) | DataType::Varbinary(_))
        && csv::values::is_supported(data_type)
}

fn bad_data<'a>(options: &Options<'a>, format: &Format) -> Result<BadData<'a>> {
    let ignores = format.ignores_parse_errors();
    let path = options.get("dead-letter.path");
    let choices = [("fail", 0), ("skip", 1), ("drop", 1), ("dead-letter", 2)];
    let choice = options.choice("bad-data", &choices)?.unwrap_or(0);
    if choice > 0 && (ignores || !format.is_text()) {
        return Err(options.conflict(
            "'bad-data' needs a format that is read record by record, and has no meaning \
            with 'ignore-parse-errors' = 'true'",
        ));
    }
    match (choice, path) {
        (2, Some(path)) => Ok(BadData::DeadLetter(path)),
        (2, None) => Err(options
            .conflict("'bad-data' = 'dead-letter' needs a file")
            .hint("add 'dead-letter.path' = 'FILE'")),
        (_, Some(_)) => Err(options
            .conflict("'dead-letter.path' is given, but bad rows do not go there")
            .hint("add 'bad-data' = 'dead-letter'")),
        (1, None) => Ok(BadData::Drop),
        (_, None) => Ok(if ignores { BadData::Null } else { BadData::Fail }),
    }
}

/// `'bad-data.check'`. Whoever says what becomes of bad rows means the same rows in every query.
fn checks_all(options: &Options<'_>, format: &Format, bad_data: &BadData<'_>) -> Result<bool> {
    let name = "bad-data.check";
    if options.get(name).is_some() && (!format.is_text() || matches!(bad_data, BadData::Null)) {
        return Err(options.conflict(
            "'bad-data.check' needs a format that is read record by record, and has no meaning \
            with 'ignore-parse-errors' = 'true'",
        ));
    }
    let checks_all = options.choice(name, &[("all", true), ("read", false)])?;
    Ok(checks_all.unwrap_or(options.get("bad-data").is_some()))
}

fn check_types(request: &TableRequest, format: &Format) -> Result<()> {
    let unfit = |column: &&Column| !format.is_supported(&column.column_type.data_type);
    match request.schema.columns.iter().find(unfit) {
        None => Ok(()),
        Some(column) => Err(Error::unsupported(format!(
            "table {}: format '{}' cannot hold column {} of type {}",
            request.table,
            format.name(),
            column.name,
            column.column_type.data_type
        ))
        .hint("declare another type, or choose another format")),
    }
}

fn check_stream(options: &Options<'_>, path: &str, format: &Format) -> Result<()> {
    if path.is_empty() {
        return Err(options.bad("path", path, "a file, a folder, a glob or -"));
    }
    if path == "-" && !format.is_text() {
        let message =
            format!("format '{}' cannot be read from or written to a pipe", format.name());
        return Err(options.conflict(&message).hint("name a file"));
    }
    Ok(())
}

/// Whether files can be read, or written, where the path leads.
fn check_place(
    options: &Options<'_>,
    request: &TableRequest,
    path: &str,
    as_sink: bool,
) -> Result<()> {
    if !objects::is_url(path) {
        return Ok(());
    }
    objects::check(request, path)?;
    if objects::writes(path) {
        return Ok(());
    }
    if as_sink {
        return Err(options
            .conflict("a web server is for reading only")
            .hint("write to s3://, gs:// or abfs://"));
    }
    if paths::has_wildcard(path)
        || path.ends_with('/')
        || options.get("source.monitor-interval").is_some()
    {
        return Err(options
            .conflict("a web server does not say which files it has")
            .hint("name one file, without 'source.monitor-interval'"));
    }
    Ok(())
}

fn metadata(
    request: &TableRequest,
    format: &Format,
    of_format: &mut Vec<(String, Column)>,
) -> Result<Vec<FileMetadata>> {
    let known = format.description().metadata;
    let keys = DESCRIPTION.metadata.iter().chain(known).map(|metadata| metadata.key);
    let read = |(key, column): &(String, Column)| {
        if known.iter().any(|known| known.key == key) {
            format.check_metadata(key, column)?;
            of_format.push((key.clone(), column.clone()));
            return Ok(FileMetadata::OfFormat(of_format.len() - 1));
        }
        let data_type = &column.column_type.data_type;
        let (found, fits) = match key.as_str() {
            "file.name" => (FileMetadata::Name, data_type.is_string()),
            "file.path" => (FileMetadata::Path, data_type.is_string()),
            "file.size" => (FileMetadata::Size, *data_type == DataType::BigInt),
            "file.modification-time" => {
                let fits = matches!(data_type, DataType::TimestampLtz(0..=3));
                (FileMetadata::ModificationTime, fits)
            }
            _ => (FileMetadata::Name, false),
        };
        match DESCRIPTION.metadata.iter().find(|known| known.key == key) {
            Some(_) if fits => Ok(found),
            Some(known) => Err(unfit(&request.table, known, &column.name, data_type)),
            None => Err(unknown(&request.table, key, keys.clone())),
        }
    };
    request.metadata.iter().map(read).collect()
}
