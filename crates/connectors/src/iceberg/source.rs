//! Reading a table: the files of a snapshot, or those that snapshots add, one after the other.
//!
//! The files are found in the table's lists and read as those of `filesystem` are; a position is
//! theirs, with the snapshot from which reading began:
//!
//! ```text
//! {"snapshot":3055729675574597004,"files":{…}}
//! ```
//!
//! Of a table that is followed, only snapshots that append can be read: others take rows back. A
//! snapshot that compacts files (`replace`) adds no row, and is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use thalweg_core::connector::{Source, SourcePoll, TableRequest, Waker};
use thalweg_core::{Error, Result, TableSchema};

use super::deletions::{DeletionColumn, Deletions};
use super::manifest::{ListedFile, manifests};
use super::metadata::TableSnapshot;
use super::options::{IcebergOptions, Strategy};
use super::place::{TablePlace, Version};
use super::schema::{TableField, deletion_columns};
use crate::filesystem::{FileSource, InputFile, Lister, parquet_source, table_file};

/// A table, for reading.
#[derive(Clone)]
struct TableReader {
    request: TableRequest,
    place: TablePlace,
    /// The files that a snapshot has added, which never change.
    added: Arc<Mutex<BTreeMap<i64, Vec<InputFile>>>>,
}

impl TableReader {
    fn located(&self, error: &Error) -> Error {
        error.about_table(&self.request.table).in_file(self.place.shown())
    }

    fn locate(&mut self) -> Result<()> {
        self.place.locate(&self.request).map_err(|error| self.located(&error))
    }

    fn newest(&self) -> Result<Version> {
        let version = self.place.newest()?.ok_or_else(|| {
            self.located(
                &Error::plan("there is no table of Iceberg")
                    .hint("check 'warehouse' (or 'uri'), 'catalog-database' and 'catalog-table'"),
            )
        })?;
        version.layout(&self.request, false).map_err(|error| self.located(&error))?;
        Ok(version)
    }

    fn expired(&self, id: i64) -> Error {
        self.located(
            &Error::data(format!("the table has snapshot {id} no more, where reading began"))
                .hint("keep snapshots for longer than a job may stand, or start from scratch"),
        )
    }

    fn input(&self, version: &Version, listed: &ListedFile) -> Result<InputFile> {
        let path = self.place.path_of(&version.metadata, &listed.location)?;
        table_file(&self.request, self.place.objects.as_ref(), &path)
    }

    /// All rows of a snapshot.
    fn scan(&self, version: &Version, snapshot: &TableSnapshot) -> Result<TableScan> {
        let mut listed = manifests(&self.place, &version.metadata, &snapshot.manifest_list)?;
        // Older files first.
        listed.reverse();
        let (mut rows, mut deletions) = (Vec::new(), Vec::new());
        for manifest in &listed {
            let files = manifest.files(&self.place, &version.metadata)?;
            if manifest.has_deletions { deletions.extend(files) } else { rows.extend(files) }
        }
        let inputs = rows.iter().map(|file| self.input(version, file));
        let files = inputs.collect::<Result<_>>()?;
        let scan = TableScan { request: self.request.clone(), shown: None, files };
        if deletions.is_empty() {
            return Ok(scan);
        }
        self.without_deleted(version, scan, (&rows, deletions))
    }

    /// Leaves deleted rows out.
    fn without_deleted(
        &self,
        version: &Version,
        mut scan: TableScan,
        (rows, deletions): (&[ListedFile], Vec<ListedFile>),
    ) -> Result<TableScan> {
        let ids = deletions.iter().flat_map(|file| &file.equality_ids).copied().collect();
        let columns = deletion_columns(&self.request, version.schema()?, &ids);
        let (fields, schema) = columns.map_err(|error| self.located(&error))?;
        let columns = scan.read_also(&fields, schema);
        let input = |file: ListedFile| {
            let input = self.input(version, &file)?;
            Ok((file, input))
        };
        let deletions: Vec<_> = deletions.into_iter().map(input).collect::<Result<_>>()?;
        let unpartitioned = version.unpartitioned_specs();
        let deletions =
            Deletions::read(&self.request, (rows, &deletions), columns, &unpartitioned)?;
        for (file, filter) in scan.files.iter_mut().zip(deletions.filters(rows)) {
            file.filter = filter;
        }
        Ok(scan)
    }

    /// The files that a snapshot has added.
    fn added_by(&self, version: &Version, snapshot: &TableSnapshot) -> Result<Vec<InputFile>> {
        match snapshot.operation.as_str() {
            "append" => {}
            "replace" => return Ok(Vec::new()),
            other => {
                return Err(self.located(
                    &Error::unsupported(format!(
                        "snapshot {} is no append ({other}): it takes rows back that were read",
                        snapshot.id
                    ))
                    .hint(
                        "start from scratch behind it ('starting-strategy' = 'TABLE_SCAN_THEN_INCREMENTAL'), or \
                         read the table without 'streaming'",
                    ),
                ));
            }
        }
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = added.get(&snapshot.id) {
            return Ok(files.clone());
        }
        let mut found = Vec::new();
        for manifest in manifests(&self.place, &version.metadata, &snapshot.manifest_list)? {
            if manifest.snapshot_id != snapshot.id || manifest.has_deletions {
                continue;
            }
            for file in manifest.files(&self.place, &version.metadata)? {
                if file.snapshot_id == snapshot.id {
                    found.push(self.input(version, &file)?);
                }
            }
        }
        added.insert(snapshot.id, found.clone());
        Ok(found)
    }

    /// What a followed table has now, from where reading began. `whole`: all files of that
    /// snapshot, where it is read as a whole.
    fn followed(&self, begin: &Begin, whole: &[InputFile]) -> Result<Vec<InputFile>> {
        let version = self.newest()?;
        let mut newer = version.ancestors();
        let mut found = Vec::new();
        if let Some(id) = begin.snapshot {
            let at = newer.iter().position(|snapshot| snapshot.id == id);
            let at = at.ok_or_else(|| self.expired(id))?;
            let first = &newer[at];
            match begin.strategy {
                Strategy::Table => found.extend_from_slice(whole),
                Strategy::Latest | Strategy::Earliest => found = self.added_by(&version, first)?,
                Strategy::LatestExclusive => {}
            }
            newer.truncate(at);
        }
        for snapshot in newer.iter().rev() {
            found.extend(self.added_by(&version, snapshot)?);
        }
        Ok(found)
    }
}

/// What is read of a table.
struct TableScan {
    /// Its columns: those that are wanted, and those by which rows are deleted.
    request: TableRequest,
    /// The places of the wanted ones; `None`: all are.
    shown: Option<Vec<usize>>,
    files: Vec<InputFile>,
}

impl TableScan {
    /// Reads these columns as well, of a schema that begins with the declared ones.
    fn read_also(&mut self, fields: &[TableField], schema: TableSchema) -> Vec<DeletionColumn> {
        let declared = |field: &TableField| {
            let place = schema.columns.iter().position(|column| column.name == field.name);
            place.expect("it is declared or was added")
        };
        let wanted = self.request.wanted_columns();
        let all = wanted.iter().copied().chain(fields.iter().map(declared));
        let read: Vec<usize> = all.collect::<BTreeSet<_>>().into_iter().collect();
        let delivered = |at: usize| read.iter().position(|own| *own == at).expect("it is read");
        let column = |field: &TableField| DeletionColumn {
            field: field.clone(),
            place: delivered(declared(field)),
        };
        let columns = fields.iter().map(column).collect();
        self.shown = Some(wanted.iter().map(|&at| delivered(at)).collect());
        (self.request.schema, self.request.projection) = (schema, Some(read));
        columns
    }
}

/// Where reading began.
#[derive(Clone, Copy, Debug)]
struct Begin {
    strategy: Strategy,
    /// `None`: the table had no snapshot.
    snapshot: Option<i64>,
}

/// Reads a table.
pub struct IcebergSource {
    reader: TableReader,
    follows: Option<std::time::Duration>,
    strategy: Strategy,
    /// Which of the columns that are read are wanted; `None`: all.
    shown: Option<Vec<usize>>,
    opened: Option<(Begin, FileSource)>,
}

impl IcebergSource {
    /// A source of a table.
    ///
    /// # Errors
    /// If its options are wrong.
    pub fn new(request: &TableRequest) -> Result<Self> {
        let options = IcebergOptions::read(request)?;
        let place = TablePlace::of(request, &options)?;
        // Values of partitions stand in the files as well.
        let request = TableRequest { partitioned_by: Vec::new(), ..request.clone() };
        let reader = TableReader { place, request: request.clone(), added: Arc::default() };
        let follows = options.monitor_interval;
        Ok(IcebergSource { reader, follows, strategy: options.strategy, shown: None, opened: None })
    }

    /// Where a run that starts from scratch begins.
    fn first(&mut self) -> Result<Begin> {
        self.reader.locate()?;
        let version = self.reader.newest()?;
        let snapshot = match (self.follows, self.strategy) {
            (Some(_), Strategy::Earliest) => version.ancestors().pop(),
            _ => version.current(),
        };
        let snapshot = snapshot.map(|snapshot| snapshot.id);
        Ok(Begin { strategy: self.strategy, snapshot })
    }

    fn source(&mut self, begin: Begin) -> Result<FileSource> {
        let reader = self.reader.clone();
        let objects = reader.place.objects.clone();
        let version = reader.newest()?;
        let is_whole = self.follows.is_none() || begin.strategy == Strategy::Table;
        let scan = match begin.snapshot.filter(|_| is_whole) {
            None => TableScan { request: reader.request.clone(), shown: None, files: Vec::new() },
            Some(id) => {
                let snapshot = version.snapshot(id).ok_or_else(|| reader.expired(id))?;
                reader.scan(&version, &snapshot)?
            }
        };
        self.shown = scan.shown;
        let Some(interval) = self.follows else {
            return Ok(parquet_source(&scan.request, scan.files, objects, None));
        };
        let list: Lister = Arc::new(move || reader.followed(&begin, &scan.files));
        let files = list()?;
        Ok(parquet_source(&scan.request, files, objects, Some((interval, list))))
    }

    fn opened(&mut self) -> Result<&mut FileSource> {
        match &mut self.opened {
            Some((_, source)) => Ok(source),
            None => Err(Error::internal("a source was used before it was started")),
        }
    }

    /// Opens the files from where a position began. What it says of the files.
    fn open_at(&mut self, position: &str) -> Result<String> {
        let value: Value = serde_json::from_str(position).unwrap_or_default();
        let Some(files) = value.get("files") else {
            return Err(Error::user("this is no position in a table of Iceberg")
                .hint("the snapshot is of another table, of another version, or damaged"));
        };
        self.reader.locate()?;
        let begin = Begin { strategy: self.strategy, snapshot: value["snapshot"].as_i64() };
        self.opened = Some((begin, self.source(begin)?));
        Ok(files.to_string())
    }
}

impl Source for IcebergSource {
    fn name(&self) -> String {
        self.reader.request.table.clone()
    }

    fn start(&mut self, waker: Waker) -> Result<()> {
        if self.opened.is_none() {
            let begin = self.first()?;
            self.opened = Some((begin, self.source(begin)?));
        }
        self.opened()?.start(waker)
    }

    fn open(&mut self) -> Result<()> {
        self.opened()?.open()
    }

    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let mut polled = self.opened()?.poll(rows_max)?;
        if let (SourcePoll::Batch(batch), Some(shown)) = (&mut polled, &self.shown) {
            batch.batch = batch.batch.project(shown)?;
        }
        Ok(polled)
    }

    fn is_bounded(&self) -> bool {
        self.follows.is_none()
    }

    fn stop(&mut self) {
        if let Some((_, source)) = &mut self.opened {
            source.stop();
        }
        if let Some(cancel) = self.reader.place.canceller() {
            cancel();
        }
    }

    fn canceller(&self) -> Option<Waker> {
        self.reader.place.canceller()
    }

    fn position(&self) -> Option<String> {
        let (begin, source) = self.opened.as_ref()?;
        let files: Value = serde_json::from_str(&source.position()?).ok()?;
        Some(json!({ "snapshot": begin.snapshot, "files": files }).to_string())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        let files = self.open_at(position)?;
        self.opened()?.seek(&files)
    }

    fn check_ended(&mut self, position: &str) -> Result<()> {
        let files = self.open_at(position)?;
        self.opened()?.check_ended(&files)
    }

    fn finish(&mut self) -> Result<()> {
        match &mut self.opened {
            Some((_, source)) => source.finish(),
            None => Ok(()),
        }
    }

    fn abort(&mut self) {
        if let Some((_, source)) = &mut self.opened {
            source.abort();
        }
    }
}
