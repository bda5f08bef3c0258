//! Adding rows to a table, and replacing and deleting those of a key, each once.
//!
//! # Protocol
//! 1. Rows go to data files, which nobody reads before a snapshot of the table lists them. What is
//!    deleted goes to files of its own (`row_delta.rs`).
//! 2. When the job takes a snapshot all files are closed and durable under their names. The handle
//!    names them, and the commit that is to add them.
//! 3. To commit is to make the table's next version, which has a snapshot with the files (one for
//!    each row delta), and names the commit. Where another writer has made that version it is tried
//!    behind it.
//! 4. A resume commits what the handle holds, unless the table names that commit already: in its
//!    properties, which no expiry of snapshots removes, or in a snapshot.
//!
//! Files of a run that died before its snapshot stay, unlisted: Iceberg calls them orphans, and its
//! tools remove them.
//!
//! A run without snapshots commits once, at its end.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_row::Rows;
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use serde_json::{Value, json};
use thalweg_core::connector::{Sink, TableRequest, Waker};
use thalweg_core::shim::{Clock, SystemClock, unique_name};
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::data_file::{DataFileWriter, FileKind, RowPlace, converted, partition_folder};
use super::literal::Literal;
use super::manifest::{Content, DataFile, ManifestEntry, manifest, manifest_list, manifests};
use super::metadata::{Added, new_properties, new_snapshot_id, new_table};
use super::options::IcebergOptions;
use super::place::{TablePlace, Version, failed};
use super::row_delta::RowDelta;
use super::schema::{TableLayout, arrow_of, position_fields};
use crate::filesystem::sync_above;

/// How many files are open at a time.
const OPEN_FILES_MAX: usize = 32;
const FILE_BYTES_MAX: u64 = 512 << 20;
/// How often a commit is tried against other writers.
const ATTEMPTS_MAX: usize = 100;
/// The most memory for the keys of a row delta.
const DELTA_BYTES_MAX: usize = 64 << 20;
/// How many deleted places are written at once.
const PLACES_MAX: usize = 8 << 10;

/// Writes a table.
pub struct IcebergSink {
    request: TableRequest,
    place: TablePlace,
    layout: TableLayout,
    schema: SchemaRef,
    file_bytes_max: u64,
    /// What names of this run's files begin with.
    run: String,
    next_file: u64,
    /// Whether rows replace those of their key, where the table is not to decide it.
    wanted_upsert: Option<bool>,
    is_upsert: bool,
    /// The keys that were written, where rows are replaced or deleted.
    delta: Option<RowDelta>,
    delta_number: u64,
    open: HashMap<FileKind, DataFileWriter>,
    uses: u64,
    closed: Vec<DataFile>,
    /// Files of transactions that are not committed. Where the snapshot of one could not be kept,
    /// its files go with the next.
    prepared: Vec<DataFile>,
    mark: Option<OutputMark>,
    /// Folders of which it is durable that they are there.
    durable: BTreeSet<PathBuf>,
    clock: SystemClock,
}

impl IcebergSink {
    /// A sink for a table, which need not be there yet.
    ///
    /// # Errors
    /// If its options are wrong, or its columns cannot be those of a table of Iceberg.
    pub fn new(request: &TableRequest) -> Result<Self> {
        let options = IcebergOptions::read(request)?;
        let layout = new_layout(request, &options)?;
        Ok(IcebergSink {
            place: TablePlace::of(request, &options)?,
            schema: layout.arrow(),
            layout,
            file_bytes_max: options.file_bytes_max.unwrap_or(FILE_BYTES_MAX),
            request: request.clone(),
            run: unique_name(),
            next_file: 0,
            wanted_upsert: options.is_upsert,
            is_upsert: options.is_upsert.unwrap_or_default(),
            delta: None,
            delta_number: 0,
            open: HashMap::new(),
            uses: 0,
            closed: Vec::new(),
            prepared: Vec::new(),
            mark: None,
            durable: BTreeSet::new(),
            clock: SystemClock::new(),
        })
    }

    fn located(&self, error: &Error) -> Error {
        error.about_table(&self.request.table).in_file(self.place.shown())
    }

    fn locate(&mut self) -> Result<()> {
        self.place.locate(&self.request).map_err(|error| self.located(&error))
    }

    /// Takes over how the table is laid out.
    fn fit(&mut self, version: &Version) -> Result<()> {
        let layout = version.layout(&self.request, true).map_err(|error| self.located(&error))?;
        (self.schema, self.layout) = (layout.arrow(), layout);
        self.is_upsert = self.wanted_upsert.unwrap_or(version.is_upsert());
        self.delta = None;
        if self.is_upsert || self.request.has_updates {
            let checked = self.layout.check_key().and_then(|()| version.check_one_partitioning());
            checked.map_err(|error| self.located(&error))?;
            self.delta = Some(RowDelta::new(&self.layout)?);
        }
        let is_set = self.request.options.contains_key("target-file-size-bytes");
        let size = version.property("write.target-file-size-bytes");
        if let Some(size) = size.and_then(|size| size.parse().ok()).filter(|_| !is_set) {
            self.file_bytes_max = size;
        }
        Ok(())
    }

    /// The table; makes it where there is none.
    fn created(&mut self) -> Result<()> {
        let mut is_asked = false;
        loop {
            self.locate()?;
            if let Some(version) = self.place.newest()? {
                return self.fit(&version);
            }
            let properties = new_properties(self.is_upsert);
            let created = self.place.create_at_server(&self.layout, properties.clone());
            if created.map_err(|error| self.located(&error))? {
                if !std::mem::replace(&mut is_asked, true) {
                    continue;
                }
                // A view has the name, or the server forgets.
                let error = Error::user("the catalog neither has nor makes a table of this name");
                return Err(self.located(&error.hint("choose another 'catalog-table'")));
            }
            let folder = self.place.root.join("metadata");
            let created = self.place.files.create_folder(&folder);
            created.map_err(|e| failed(&folder, &e))?;
            self.make_durable(folder)?;
            let now_ms = self.clock.wall_ms();
            // Where another writer was faster it is that one's table.
            let location = self.place.location();
            self.place.commit(&new_table(&self.layout, &properties, &location, now_ms))?;
        }
    }

    fn begin(&mut self, kind: &FileKind) -> Result<DataFileWriter> {
        while self.open.len() >= OPEN_FILES_MAX {
            let oldest = self.open.iter().min_by_key(|(_, file)| file.last_used);
            let oldest = oldest.map(|(kind, _)| kind.clone()).expect("some are open");
            self.close(&oldest)?;
        }
        let folder = partition_folder(&self.layout, &kind.partition);
        let (what, fields) = match kind.content {
            Content::Rows => ("", self.layout.fields.clone()),
            Content::PositionDeletes => ("-position-deletes", position_fields()),
            Content::EqualityDeletes => ("-equality-deletes", self.layout.key_fields()),
        };
        let name = format!("{}-{:06}{what}.parquet", self.run, self.next_file);
        self.next_file += 1;
        let path = self.place.root.join("data").join(folder).join(name);
        DataFileWriter::create(&self.place, path, fields, kind.clone())
    }

    /// The file for rows of a kind, which is begun where there is none.
    fn file(&mut self, kind: &FileKind) -> Result<&mut DataFileWriter> {
        if !self.open.contains_key(kind) {
            let file = self.begin(kind)?;
            self.open.insert(kind.clone(), file);
        }
        let file = self.open.get_mut(kind).expect("it was begun");
        self.uses += 1;
        file.last_used = self.uses;
        Ok(file)
    }

    fn append(&mut self, kind: &FileKind, rows: &RecordBatch) -> Result<()> {
        let file = self.file(kind)?;
        file.write(rows)?;
        if file.bytes() >= self.file_bytes_max { self.close(kind) } else { Ok(()) }
    }

    fn close(&mut self, kind: &FileKind) -> Result<()> {
        let Some(file) = self.open.remove(kind) else { return Ok(()) };
        let folder = file.folder().to_owned();
        let delta = self.delta_number;
        self.closed.push(DataFile { delta, ..file.close(&self.place)? });
        self.make_durable(folder)
    }

    /// Makes the names in a folder durable, and the first time that it is there.
    fn make_durable(&mut self, folder: PathBuf) -> Result<()> {
        let files = self.place.files.as_ref();
        let located = |e: io::Error| failed(&folder, &e);
        files.sync_folder(&folder).map_err(located)?;
        if !self.durable.contains(&folder) {
            sync_above(files, &folder).map_err(located)?;
            self.durable.insert(folder);
        }
        Ok(())
    }

    fn close_all(&mut self) -> Result<()> {
        let deleted = self.delta.as_mut().map(RowDelta::end).unwrap_or_default();
        for (partition, places) in deleted {
            let kind = FileKind { content: Content::PositionDeletes, partition };
            for places in places.chunks(PLACES_MAX) {
                self.append(&kind, &rows_of_places(places)?)?;
            }
        }
        let mut kinds: Vec<FileKind> = self.open.keys().cloned().collect();
        // So that each run does the same.
        kinds.sort();
        kinds.iter().try_for_each(|kind| self.close(kind))?;
        self.delta_number += u64::from(self.delta.is_some());
        Ok(())
    }

    /// Writes rows of a table that takes no deletions.
    fn add_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        for (partition, rows) in self.split(batch) {
            let kind = FileKind { content: Content::Rows, partition };
            self.append(&kind, &taken(batch, rows)?)?;
        }
        Ok(())
    }

    /// Writes rows and deletions by their key.
    fn change_rows(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let delta = self.delta.as_ref().expect("rows are changed where there are keys");
        let keys = delta.keys_of(batch)?;
        for (partition, rows) in self.split(batch) {
            self.change_partition(partition, (batch, rows, &keys), kinds)?;
        }
        let bytes_max = DELTA_BYTES_MAX.min(self.request.memory_limit_bytes / 8);
        let bytes = self.delta.as_ref().map_or(0, RowDelta::bytes);
        if bytes > bytes_max { self.close_all() } else { Ok(()) }
    }

    /// The same of rows of one partition.
    fn change_partition(
        &mut self,
        partition: Vec<Literal>,
        (batch, rows, keys): (&RecordBatch, Vec<u32>, &Rows),
        kinds: Option<&[RowKind]>,
    ) -> Result<()> {
        let kind_of = |row: u32| kinds.map_or(RowKind::Insert, |kinds| kinds[row as usize]);
        let stays = |row: &u32| matches!(kind_of(*row), RowKind::Insert | RowKind::UpdateAfter);
        let written: Vec<u32> = rows.iter().copied().filter(stays).collect();
        let file = FileKind { content: Content::Rows, partition };
        // A file that takes these rows stays open until they are written.
        let mut place = match written.is_empty() {
            true => None,
            false => Some(self.file(&file)?.next_place()),
        };
        let FileKind { partition, .. } = &file;
        let delta = self.delta.as_mut().expect("rows are changed where there are keys");
        let mut deleted = Vec::new();
        for row in rows {
            let key = keys.row(row as usize);
            let replaces = self.is_upsert || kind_of(row) != RowKind::Insert;
            if replaces && delta.delete(key.as_ref(), partition) {
                deleted.push(row);
            }
            if let (true, Some(place)) = (stays(&row), &mut place) {
                delta.insert(key.as_ref(), place.clone(), partition);
                place.row += 1;
            }
        }
        if !written.is_empty() {
            self.append(&file, &taken(batch, written)?)?;
        }
        if !deleted.is_empty() {
            let kind = FileKind { content: Content::EqualityDeletes, ..file };
            let keys = batch.project(&self.layout.key)?;
            self.append(&kind, &taken(&keys, deleted)?)?;
        }
        Ok(())
    }

    /// The rows of each partition, in the order of their first rows.
    fn split(&self, batch: &RecordBatch) -> Vec<(Vec<Literal>, Vec<u32>)> {
        let by: Vec<&ArrayRef> =
            self.layout.partitioned_by.iter().map(|&at| batch.column(at)).collect();
        if by.is_empty() {
            return vec![(Vec::new(), (0..batch.num_rows() as u32).collect())];
        }
        let mut places: HashMap<Vec<Literal>, usize> = HashMap::new();
        let mut found: Vec<(Vec<Literal>, Vec<u32>)> = Vec::new();
        for row in 0..batch.num_rows() {
            let partition: Vec<Literal> =
                by.iter().map(|column| Literal::at(column, row)).collect();
            match places.get(&partition) {
                Some(&place) => found[place].1.push(row as u32),
                None => {
                    places.insert(partition.clone(), found.len());
                    found.push((partition, vec![row as u32]));
                }
            }
        }
        found
    }

    /// Refuses files of another table, or of this one when it lay elsewhere.
    fn check_places(&self, files: &[DataFile]) -> Result<()> {
        let folder = format!("{}/", self.place.location());
        match files.iter().find(|file| !file.location.starts_with(&folder)) {
            None => Ok(()),
            Some(file) => {
                let message =
                    format!("the snapshot has written {}, which is not there", file.location);
                Err(self.located(&Error::plan(message).hint(
                    "name the table that the snapshot has written, or start from scratch, without the snapshot",
                )))
            }
        }
    }

    /// Adds files to the table as one commit, unless it has that one.
    fn add(&self, commit: &str, files: &[DataFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS_MAX {
            let version = self.place.newest()?.ok_or_else(|| {
                self.located(&Error::data("the table is not there any more").hint("bring it back"))
            })?;
            if version.has_commit(commit) || self.try_add(&version, commit, files)? {
                return Ok(());
            }
        }
        Err(self.located(
            &Error::io(format!("other writers were faster {ATTEMPTS_MAX} times"))
                .hint("commit less often: 'execution.checkpointing.interval'"),
        ))
    }

    /// Adds files behind a version; false if another writer has.
    fn try_add(&self, version: &Version, commit: &str, files: &[DataFile]) -> Result<bool> {
        let layout = version.layout(&self.request, true).map_err(|error| self.located(&error))?;
        let own = format!("{}/metadata/v{}.metadata.json", self.place.location(), version.number);
        let mut next = version.successor(commit, &own, self.clock.wall_ms());
        let mut written = Vec::new();
        for files in files.chunk_by(|one, other| one.delta == other.delta) {
            let id = new_snapshot_id();
            let list = self.write_lists(&next, &layout, (id, files), &mut written)?;
            let mark = self.mark.as_ref();
            next.add_snapshot(id, &Added { commit, mark, manifest_list: list, files });
        }
        let is_made = self.place.commit(&next)?;
        if !is_made {
            // Lists that no snapshot has.
            for path in &written {
                let _ = self.place.files.remove(path);
            }
        }
        Ok(is_made)
    }

    /// Writes the lists of a snapshot that adds files to a version. What metadata call the list of
    /// its lists.
    fn write_lists(
        &self,
        version: &Version,
        layout: &TableLayout,
        (id, files): (i64, &[DataFile]),
        written: &mut Vec<PathBuf>,
    ) -> Result<String> {
        let sequence_number = version.next_sequence_number();
        let current = version.current();
        let (rows, deletions): (Vec<DataFile>, Vec<DataFile>) =
            files.iter().cloned().partition(|file| file.content == Content::Rows);
        let mut listed = Vec::new();
        for files in [rows, deletions].iter().filter(|files| !files.is_empty()) {
            let bytes = manifest(layout, version.schema()?, id, files)?;
            let path = self.place.new_metadata_path("");
            self.place.put(&path, &bytes)?;
            let location = (self.place.location_of(&path), bytes.len());
            let numbers = (id, sequence_number);
            listed.push(ManifestEntry::of_added(location, layout, numbers, files));
            written.push(path);
        }
        if let Some(current) = &current {
            listed.extend(manifests(&self.place, &version.metadata, &current.manifest_list)?);
        }
        let parent = current.map(|current| current.id);
        let path = self.place.new_metadata_path("snap-");
        self.place.put(&path, &manifest_list((id, parent), sequence_number, &listed)?)?;
        let location = self.place.location_of(&path);
        written.push(path);
        Ok(location)
    }

    /// Refuses a snapshot behind which the job has committed more.
    fn check_mark(&self, version: &Version, start: &OutputStart) -> Result<()> {
        for snapshot in version.ancestors() {
            let mark = snapshot.mark();
            if let MarkFit::Ahead(number) = start.fit(mark.as_ref()) {
                return Err(self.located(&Error::plan(format!(
                    "the table holds the rows of snapshot {number}, which is newer than the one to resume from; they would \
                     be added again"
                ))
                .hint(format!(
                    "resume from snapshot {number}; or roll the table back to the snapshot before {} first",
                    snapshot.id
                ))));
            }
        }
        Ok(())
    }
}

/// The layout of a table that is created, and written as this request says.
///
/// # Errors
/// If its columns cannot be those of a table of Iceberg, or rows are changed by a key that is none
/// there.
pub fn new_layout(request: &TableRequest, options: &IcebergOptions<'_>) -> Result<TableLayout> {
    let layout = TableLayout::of_new(request)?;
    if options.is_upsert == Some(true) || request.has_updates {
        layout.check_key().map_err(|error| error.about_table(&request.table))?;
    }
    Ok(layout)
}

/// The commit of a handle, and its files.
fn read_handle(handle: &str) -> Result<(String, Vec<DataFile>)> {
    let parse = || -> Option<(String, Vec<DataFile>)> {
        let value: Value = serde_json::from_str(handle).ok()?;
        let files = value.get("files")?.as_array()?.iter().map(DataFile::from_json);
        Some((value.get("commit")?.as_str()?.to_owned(), files.collect::<Option<_>>()?))
    };
    parse().ok_or_else(|| {
        Error::user("this is no transaction of a table of Iceberg")
            .hint("the snapshot is of another table, of another version, or damaged")
    })
}

/// Some rows of a batch.
fn taken(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    match rows.len() == batch.num_rows() {
        true => Ok(batch.clone()),
        false => Ok(take_record_batch(batch, &UInt32Array::from(rows))?),
    }
}

/// Places of deleted rows as Iceberg has them.
fn rows_of_places(places: &[RowPlace]) -> Result<RecordBatch> {
    let files = StringArray::from_iter_values(places.iter().map(|place| place.file.as_ref()));
    let rows = Int64Array::from_iter_values(places.iter().map(|place| place.row));
    Ok(RecordBatch::try_new(arrow_of(&position_fields()), vec![Arc::new(files), Arc::new(rows)])?)
}

impl Sink for IcebergSink {
    fn name(&self) -> String {
        self.request.table.clone()
    }

    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        let files = handle.map(read_handle).transpose()?.map_or(Vec::new(), |(_, files)| files);
        self.locate()?;
        self.check_places(&files)?;
        let Some(version) = self.place.newest()? else {
            return match files.is_empty() {
                true => Ok(()),
                false => Err(self.located(
                    &Error::data("the snapshot has written to this table, and it is not there")
                        .hint("bring the table back, or start from scratch, without the snapshot"),
                )),
            };
        };
        self.fit(&version)?;
        if handle.is_some() { self.check_mark(&version, start) } else { Ok(()) }
    }

    fn connect(&mut self) -> Result<()> {
        self.check_start(None, &OutputStart::default())
    }

    fn open(&mut self) -> Result<()> {
        self.created()
    }

    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let has_changes =
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| *kind != RowKind::Insert));
        if has_changes && self.delta.is_none() {
            return Err(self.located(
                &Error::unsupported("a table of Iceberg takes updates and deletions by its key, and declares none")
                    .hint("declare PRIMARY KEY (…) NOT ENFORCED, or window the aggregation, so that each result is final"),
            ));
        }
        let batch = converted(&self.schema, batch).map_err(|error| self.located(&error))?;
        match self.delta {
            None => self.add_rows(&batch),
            Some(_) => self.change_rows(&batch, kinds),
        }
    }

    fn canceller(&self) -> Option<Waker> {
        self.place.canceller()
    }

    fn finish(&mut self) -> Result<()> {
        self.close_all()?;
        // With snapshots there is nothing left: the last transaction was committed.
        let files = [std::mem::take(&mut self.prepared), std::mem::take(&mut self.closed)].concat();
        self.add(&unique_name(), &files)
    }

    fn abort(&mut self) {
        for (_, file) in self.open.drain() {
            file.discard(&self.place);
        }
    }

    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }

    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        self.mark = Some(mark.clone());
        Ok(())
    }

    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        handle.map_or(Ok(()), |handle| self.commit(handle))
    }

    fn prepare(&mut self) -> Result<Option<String>> {
        self.close_all()?;
        self.prepared.append(&mut self.closed);
        let files: Vec<Value> = self.prepared.iter().map(DataFile::to_json).collect();
        Ok(Some(json!({ "commit": unique_name(), "files": files }).to_string()))
    }

    fn commit(&mut self, handle: &str) -> Result<()> {
        let (commit, files) = read_handle(handle)?;
        self.add(&commit, &files)?;
        self.prepared.retain(|file| !files.contains(file));
        Ok(())
    }
}
