//! Adding rows to a table, each once.
//!
//! # Protocol
//! 1. Rows go to data files, which nobody reads before a snapshot of the table lists them.
//! 2. When the job takes a snapshot all files are closed and durable under their names. The handle
//!    names them, and the commit that is to add them.
//! 3. To commit is to make the table's next version, which has a snapshot with the files, and names
//!    the commit. Where another writer has made that version it is tried behind it.
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

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use serde_json::{Value, json};
use thalweg_core::connector::{Sink, TableRequest, Waker};
use thalweg_core::shim::{Clock, SystemClock, unique_name};
use thalweg_core::snapshot::{MarkFit, OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::data_file::{DataFileWriter, converted, partition_folder, partitions_of};
use super::literal::Literal;
use super::manifest::{DataFile, ManifestEntry, manifest, manifest_list, manifests};
use super::metadata::{Added, new_snapshot_id, new_table};
use super::options::IcebergOptions;
use super::place::{TablePlace, Version, failed};
use super::schema::TableLayout;
use crate::filesystem::sync_above;

/// How many files are open at a time.
const OPEN_FILES_MAX: usize = 32;
const FILE_BYTES_MAX: u64 = 512 << 20;
/// How often a commit is tried against other writers.
const ATTEMPTS_MAX: usize = 100;

/// Adds rows to a table.
pub struct IcebergSink {
    request: TableRequest,
    place: TablePlace,
    layout: TableLayout,
    schema: SchemaRef,
    file_bytes_max: u64,
    /// What names of this run's files begin with.
    run: String,
    next_file: u64,
    open: HashMap<Vec<Literal>, DataFileWriter>,
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
        let layout = TableLayout::of_new(request)?;
        Ok(IcebergSink {
            place: TablePlace::of(request, &options)?,
            schema: layout.arrow(),
            layout,
            file_bytes_max: options.file_bytes_max.unwrap_or(FILE_BYTES_MAX),
            request: request.clone(),
            run: unique_name(),
            next_file: 0,
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
        let message = format!("table {}: {}", self.request.table, error.message());
        let located = Error::new(error.kind(), message).in_file(self.place.shown());
        match error.help() {
            Some(help) => located.hint(help.to_owned()),
            None => located,
        }
    }

    fn locate(&mut self) -> Result<()> {
        self.place.locate(&self.request).map_err(|error| self.located(&error))
    }

    /// Takes over how the table is laid out.
    fn fit(&mut self, version: &Version) -> Result<()> {
        let layout = version.layout(&self.request, true).map_err(|error| self.located(&error))?;
        (self.schema, self.layout) = (layout.arrow(), layout);
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
            if self.place.create_at_server(&self.layout).map_err(|error| self.located(&error))? {
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
            self.place.commit(&new_table(&self.layout, &self.place.location(), now_ms))?;
        }
    }

    fn begin(&mut self, partition: &[Literal]) -> Result<DataFileWriter> {
        while self.open.len() >= OPEN_FILES_MAX {
            let oldest = self.open.iter().min_by_key(|(_, file)| file.last_used);
            let oldest = oldest.map(|(partition, _)| partition.clone()).unwrap_or_default();
            self.close(&oldest)?;
        }
        let folder = partition_folder(&self.layout, partition);
        let name = format!("{}-{:06}.parquet", self.run, self.next_file);
        self.next_file += 1;
        let path = self.place.root.join("data").join(folder).join(name);
        DataFileWriter::create(&self.place, path, self.schema.clone(), partition.to_vec())
    }

    fn close(&mut self, partition: &[Literal]) -> Result<()> {
        let Some(file) = self.open.remove(partition) else { return Ok(()) };
        let folder = file.folder().to_owned();
        self.closed.push(file.close(&self.place, &self.layout)?);
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
        let mut partitions: Vec<Vec<Literal>> = self.open.keys().cloned().collect();
        // So that each run does the same.
        partitions.sort();
        partitions.iter().try_for_each(|partition| self.close(partition))
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
        let id = new_snapshot_id();
        let sequence_number = version.next_sequence_number();
        let current = version.current();
        let bytes = manifest(&layout, version.schema()?, id, files)?;
        let manifest_path = self.place.new_metadata_path("");
        self.place.put(&manifest_path, &bytes)?;
        let location = self.place.location_of(&manifest_path);
        let added =
            ManifestEntry::of_added((location, bytes.len()), &layout, (id, sequence_number), files);
        let mut listed = vec![added];
        if let Some(current) = &current {
            listed.extend(manifests(&self.place, &version.metadata, &current.manifest_list)?);
        }
        let parent = current.map(|current| current.id);
        let list_path = self.place.new_metadata_path("snap-");
        self.place.put(&list_path, &manifest_list((id, parent), sequence_number, &listed)?)?;
        let added = Added {
            commit,
            mark: self.mark.as_ref(),
            manifest_list: self.place.location_of(&list_path),
            files: files.len() as i64,
            rows: files.iter().map(|file| file.rows).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            partitions: partitions_of(files) as i64,
        };
        let own = format!("{}/metadata/v{}.metadata.json", self.place.location(), version.number);
        let next = version.with_snapshot(id, &added, &own, self.clock.wall_ms());
        let is_made = self.place.commit(&next)?;
        if !is_made {
            // Lists that no snapshot has.
            for path in [&manifest_path, &list_path] {
                let _ = self.place.files.remove(path);
            }
        }
        Ok(is_made)
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
        if kinds.is_some_and(|kinds| kinds.iter().any(|kind| *kind != RowKind::Insert)) {
            return Err(self.located(
                &Error::unsupported("a table of Iceberg takes no updates or deletions here")
                    .hint("window the aggregation, so that each result is final"),
            ));
        }
        let batch = converted(&self.schema, batch).map_err(|error| self.located(&error))?;
        for (partition, rows) in self.split(&batch) {
            let rows = match rows.len() == batch.num_rows() {
                true => batch.clone(),
                false => take_record_batch(&batch, &UInt32Array::from(rows))?,
            };
            if !self.open.contains_key(&partition) {
                let file = self.begin(&partition)?;
                self.open.insert(partition.clone(), file);
            }
            let file = self.open.get_mut(&partition).expect("it was begun");
            self.uses += 1;
            file.last_used = self.uses;
            file.write(&rows)?;
            if file.bytes() >= self.file_bytes_max {
                self.close(&partition)?;
            }
        }
        Ok(())
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
