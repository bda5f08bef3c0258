//! Writing a snapshot.
//!
//! # Protocol
//! 1. The rows of each table are made, partition by partition, and written as files in the folder
//!    of the new snapshot. A table of which only changes are captured takes the files of the
//!    snapshot before along; if they have become too many, it is folded and rewritten.
//! 2. The folder is listed: each file has the size that was written.
//! 3. The manifest is published ([`crate::storage::Storage::publish`]) and read back: now the
//!    snapshot counts.
//!
//! Whatever fails before 3 leaves the earlier snapshots as they were, and the files of this one are
//! removed as far as that can be done.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::SchemaRef;
use bytes::Bytes;
use thalweg_core::snapshot::{CapturedTable, Extent, StageState, TakenCut};
use thalweg_core::{Captured, Error, ErrorKind, OrderContract, Result};

use super::SnapshotStore;
use super::read::{visit_removed, visit_rows};
use crate::checksum;
use crate::decide;
use crate::manifest::{
    self, FORMAT, FileEntry, Generation, Manifest, SnapshotKind, StageEntry, TableEntry,
};
use crate::storage::Storage;
use crate::table::{TableFile, TableWriter, column_texts, identity_schema};

/// A snapshot to be written.
pub struct WriteRequest {
    /// What was taken.
    pub cut: TakenCut,
    /// Its number, higher than that of any snapshot that is there: [`SnapshotStore::next_number`].
    pub number: u64,
    /// Why it was taken.
    pub kind: SnapshotKind,
    /// The order contract that the job runs under.
    pub order: OrderContract,
    /// When it was taken, in milliseconds since 1970-01-01T00:00:00Z.
    pub taken_at_ms: i64,
    /// The snapshot that tables of changes build on: that of the capture before. Without one, all
    /// tables are captured in full.
    pub base: Option<u64>,
    /// The lineage that it is of.
    pub lineage: Option<String>,
    /// The snapshot that it follows.
    pub parent: Option<u64>,
    /// What the engine wants to find again about the job (a fingerprint of its plan). No secrets:
    /// anyone who may read the snapshot reads it.
    pub notes: BTreeMap<String, String>,
    /// Once true, writing ends at the next file with an error of kind `Cancelled`.
    pub give_up: Arc<AtomicBool>,
}

impl WriteRequest {
    /// A full snapshot, with nothing noted.
    pub fn new(
        cut: TakenCut,
        number: u64,
        kind: SnapshotKind,
        order: OrderContract,
    ) -> WriteRequest {
        WriteRequest {
            cut,
            number,
            kind,
            order,
            taken_at_ms: 0,
            base: None,
            lineage: None,
            parent: None,
            notes: BTreeMap::new(),
            give_up: Arc::default(),
        }
    }
}

/// A snapshot that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenSnapshot {
    /// Its number.
    pub number: u64,
    /// Files that were written, the manifest not counted.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their rows.
    pub rows: u64,
    /// Tables whose changes were folded in, and which were rewritten.
    pub merged_tables: usize,
}

impl SnapshotStore {
    /// Writes a snapshot; it counts when this returns without an error. Takes as long as it takes
    /// to make and to write the rows: call it from a thread that has time.
    ///
    /// # Errors
    /// Those of making rows and of the place; if the number is taken; if changes are captured of
    /// something that the snapshot before does not hold. Earlier snapshots are untouched. A later
    /// one must not build on it.
    pub fn write(&mut self, request: WriteRequest) -> Result<WrittenSnapshot> {
        let number = request.number;
        self.check_number(number)?;
        let base = request.base.map(|base| self.base(base)).transpose()?;
        let storage = self.storage.clone();
        let files = Files::new(storage.as_ref(), number, request.give_up.clone());
        let mut writing = Writing { files, base, merged_tables: 0 };
        let written = match writing.manifest(request, &self.job) {
            Ok(manifest) => writing.files.publish(&manifest).map(|()| manifest),
            Err(error) => Err(error),
        };
        match written {
            Ok(manifest) => {
                self.last = Some(manifest);
                Ok(writing.summary(number))
            }
            Err(error) => {
                writing.files.discard();
                Err(error)
            }
        }
    }

    /// The manifest to build on: that of the snapshot that was written last, as a rule.
    fn base(&self, number: u64) -> Result<Manifest> {
        match &self.last {
            Some(last) if last.number == number => Ok(last.clone()),
            _ => self.manifest(number),
        }
    }

    fn check_number(&self, number: u64) -> Result<()> {
        match self.listing()?.finished.last() {
            Some(&newest) if newest >= number => Err(Error::internal(format!(
                "snapshot {number} is to be written, and snapshot {newest} is there"
            ))
            .hint("another run may write to the same place: give each job one of its own")),
            _ => Ok(()),
        }
    }
}

/// The files of the snapshot that is being written.
struct Files<'a> {
    storage: &'a dyn Storage,
    number: u64,
    give_up: Arc<AtomicBool>,
    /// Files were numbered so far: names are unique however often a table is written.
    numbered: usize,
    own: Vec<FileEntry>,
}

impl<'a> Files<'a> {
    fn new(storage: &'a dyn Storage, number: u64, give_up: Arc<AtomicBool>) -> Self {
        Files { storage, number, give_up, numbered: 0, own: Vec::new() }
    }

    /// Writes a file and adds it to a list.
    fn add(&mut self, list: &mut Vec<FileEntry>, label: &str, file: TableFile) -> Result<()> {
        self.check_given_up()?;
        let checksum = checksum::text_of(&file.bytes);
        let digits = checksum.rsplit(':').next().unwrap_or_default();
        // With the checksum in its name a file never stands in for another one, whoever wrote that.
        let folder = manifest::folder(self.number);
        let path = format!("{folder}/{:04}-{label}-{digits}.arrow", self.numbered);
        self.numbered += 1;
        let (bytes, rows, highest) = (file.bytes.len() as u64, file.rows, file.highest);
        let entry = FileEntry { path, bytes, rows, checksum, highest };
        // Noted before: what is written in part has to be discarded, too.
        self.own.push(entry.clone());
        self.storage.put(&entry.path, file.bytes)?;
        list.push(entry);
        Ok(())
    }

    fn check_given_up(&self) -> Result<()> {
        // Relaxed: a flag alone; whoever sets it waits for the error.
        if self.give_up.load(Ordering::Relaxed) {
            let message = format!("writing snapshot {} was given up", self.number);
            return Err(Error::new(ErrorKind::Cancelled, message));
        }
        Ok(())
    }

    fn publish(&self, manifest: &Manifest) -> Result<()> {
        self.check_given_up()?;
        self.check_sizes()?;
        let name = manifest::manifest_name(self.number);
        let bytes = Bytes::from(manifest.to_bytes()?);
        self.storage.publish(&name, bytes.clone())?;
        if self.storage.get(&name)?.as_ref() != Some(&bytes) {
            let error = Error::io("it was written, and other bytes are read");
            return Err(error
                .in_file(self.storage.place_of(&name))
                .hint("look at the disk that 'execution.checkpointing.dir' names"));
        }
        Ok(())
    }

    /// What was written without an error may still not be there: a disk that is full need not say
    /// so.
    fn check_sizes(&self) -> Result<()> {
        let listed = self.storage.list(&manifest::folder(self.number))?;
        for file in &self.own {
            let found = listed.iter().find(|entry| entry.name == file.path);
            if found.map(|entry| entry.bytes) != Some(file.bytes) {
                let found = found.map_or("nothing is".to_owned(), |e| format!("{} are", e.bytes));
                let message = format!("{} bytes were written, and {found} there", file.bytes);
                let error = Error::io(message).in_file(self.storage.place_of(&file.path));
                return Err(error
                    .hint("is there room on the disk that 'execution.checkpointing.dir' names?"));
            }
        }
        Ok(())
    }

    /// Removes what was written, as far as that can be done: the error that led here is the one
    /// to report. If the manifest stands there whole, the snapshot may count for another run, and
    /// stays.
    fn discard(&self) {
        let name = manifest::manifest_name(self.number);
        match self.storage.get(&name) {
            Ok(None) => {}
            Ok(Some(bytes)) if Manifest::from_bytes(&bytes).is_err() => {
                if self.storage.retract(&name).is_err() {
                    return;
                }
            }
            _ => return,
        }
        for file in &self.own {
            // What stays is found by the next clean-up.
            let _ = self.storage.delete(&file.path);
        }
        self.storage.forget_folder(&manifest::folder(self.number));
    }

    /// Removes files that were written and are not needed after all.
    fn withdraw(&mut self, files: &[FileEntry]) {
        for file in files {
            let _ = self.storage.delete(&file.path);
        }
        self.own.retain(|own| !files.iter().any(|file| file.path == own.path));
    }
}

struct Writing<'a> {
    files: Files<'a>,
    base: Option<Manifest>,
    merged_tables: usize,
}

/// Which table is written.
struct TablePlace<'a> {
    stage: &'a str,
    is_waiting: bool,
    name: &'static str,
}

impl TablePlace<'_> {
    /// A part of a file's name; for people only.
    fn label(&self, what: &str) -> String {
        let stage =
            if self.is_waiting { format!("{}-waiting", self.stage) } else { self.stage.into() };
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let short = |text: &str| text.chars().map(plain).take(40).collect::<String>();
        format!("{}-{}-{what}", short(&stage), short(self.name))
    }
    fn error(&self, what: &str) -> Error {
        Error::internal(format!("table '{}': {what}", self.name)).in_operator(self.stage)
    }
}

impl Writing<'_> {
    fn manifest(&mut self, request: WriteRequest, job: &str) -> Result<Manifest> {
        let WriteRequest { cut, number, kind, order, taken_at_ms, lineage, parent, notes, .. } =
            request;
        let (serial, is_complete) = (cut.serial, cut.is_complete);
        let stages = cut.stages.into_iter().map(|stage| self.stage(stage));
        let stages = stages.collect::<Result<_>>()?;
        Ok(Manifest {
            format: FORMAT,
            job: job.to_owned(),
            number,
            kind,
            taken_at_ms,
            engine: env!("CARGO_PKG_VERSION").to_owned(),
            order: order.to_string(),
            serial,
            is_complete,
            lineage,
            parent,
            notes,
            stages,
        })
    }

    fn stage(&mut self, stage: StageState<Vec<Captured>>) -> Result<StageEntry> {
        let mut entry = StageEntry::of(&stage);
        let in_operator = |error: Error| error.in_operator(stage.name.clone());
        entry.state = self.tables(&stage.id, false, stage.state).map_err(in_operator)?;
        entry.waiting = self.tables(&stage.id, true, stage.waiting).map_err(in_operator)?;
        Ok(entry)
    }

    fn tables(
        &mut self,
        stage: &str,
        is_waiting: bool,
        captures: Vec<Captured>,
    ) -> Result<Vec<TableEntry>> {
        let partitions = captures.len();
        let mut by_name: BTreeMap<&'static str, BTreeMap<usize, CapturedTable>> = BTreeMap::new();
        for (partition, captured) in captures.into_iter().enumerate() {
            for table in captured.tables {
                let name = table.name;
                match by_name.entry(name).or_default().entry(partition) {
                    MapEntry::Vacant(free) => free.insert(table),
                    MapEntry::Occupied(_) => {
                        return Err(
                            TablePlace { stage, is_waiting, name }.error("it was captured twice")
                        );
                    }
                };
            }
        }
        let tables = by_name.into_iter().map(|(name, captured)| {
            self.table(&TablePlace { stage, is_waiting, name }, captured, partitions)
        });
        tables.collect()
    }

    fn table(
        &mut self,
        place: &TablePlace<'_>,
        captured: BTreeMap<usize, CapturedTable>,
        partitions: usize,
    ) -> Result<TableEntry> {
        let TableShape { schema, identity_columns } = TableShape::of(place, captured.values())?;
        let columns = column_texts(&schema);
        let fingerprint = checksum::text_of(columns.join("\n").as_bytes());
        let name = place.name.to_owned();
        let generations = Vec::new();
        let mut entry = TableEntry { name, columns, fingerprint, identity_columns, generations };
        // A partition without a capture is empty, which is all of it.
        let is_full = |p: &usize| captured.get(p).is_none_or(|own| own.extent == Extent::Full);
        let whole: Vec<usize> = (0..partitions).filter(is_full).collect();
        if whole.len() < partitions {
            entry.generations = self.base_of(place, &entry)?;
        }
        let (snapshot, rows, removed) = (self.files.number, Vec::new(), Vec::new());
        let kept_from = kept_from(place, &captured, partitions)?;
        let mut newest = Generation { snapshot, partitions, whole, rows, removed, kept_from };
        self.generation(place, &schema, identity_columns, captured, &mut newest)?;
        entry.generations.push(newest);
        expire(&mut entry.generations);
        self.merge_if_wanted(place, schema, &mut entry)?;
        Ok(entry)
    }

    /// The generations that changes of a table build on.
    fn base_of(&self, place: &TablePlace<'_>, entry: &TableEntry) -> Result<Vec<Generation>> {
        let base = self.base.as_ref().ok_or_else(|| place.error("it has changes, of what?"))?;
        if !base.stages.iter().any(|stage| stage.id == place.stage) {
            return Err(place.error("it has changes, and its operator was not there before"));
        }
        let snapshot = base.number;
        let Some(base) = base.table(place.stage, place.is_waiting, place.name) else {
            // No partition captured it: it was empty.
            let (rows, removed) = (Vec::new(), Vec::new());
            let (partitions, whole, kept_from) = (1, vec![0], Vec::new());
            let empty = Generation { snapshot, partitions, whole, rows, removed, kept_from };
            return Ok(vec![empty]);
        };
        let has_same =
            base.identity_columns == 0 || base.identity_columns == entry.identity_columns;
        if base.fingerprint != entry.fingerprint || !has_same {
            return Err(place.error("it has changes, and had other columns before"));
        }
        Ok(base.generations.clone())
    }

    fn generation(
        &mut self,
        place: &TablePlace<'_>,
        schema: &SchemaRef,
        identity_columns: usize,
        captured: BTreeMap<usize, CapturedTable>,
        generation: &mut Generation,
    ) -> Result<()> {
        let (row_label, removed_label) = (place.label("rows"), place.label("removed"));
        let expires = !generation.kept_from.is_empty();
        let mut rows = TableWriter::new(schema.clone()).expiring(expires);
        let mut removed = TableWriter::new(identity_schema(schema, identity_columns)?);
        let files = &mut self.files;
        for table in captured.into_values() {
            files.check_given_up()?;
            let made = (table.rows)()?;
            for batch in made.rows {
                let list = &mut generation.rows;
                rows.write(&batch, &mut |file| files.add(list, &row_label, file))?;
            }
            if table.extent == Extent::Full && !made.removed.is_empty() {
                return Err(place.error("its capture is full, and something is removed"));
            }
            for batch in made.removed {
                let list = &mut generation.removed;
                removed.write(&batch, &mut |file| files.add(list, &removed_label, file))?;
            }
        }
        let list = &mut generation.rows;
        rows.finish(&mut |file| files.add(list, &row_label, file))?;
        let list = &mut generation.removed;
        removed.finish(&mut |file| files.add(list, &removed_label, file))
    }

    fn merge_if_wanted(
        &mut self,
        place: &TablePlace<'_>,
        schema: SchemaRef,
        entry: &mut TableEntry,
    ) -> Result<()> {
        let sizes: Vec<u64> = entry.generations.iter().map(Generation::bytes).collect();
        let expires = entry.generations.last().is_some_and(|own| !own.kept_from.is_empty());
        let Some(from) = decide::merge_from(&sizes, expires) else { return Ok(()) };
        let folded = entry.generations.split_off(from);
        let rows = self.fold(place, schema.clone(), &folded, entry.identity_columns)?;
        let whole_of_all = folded.iter().flat_map(|generation| &generation.whole).copied();
        let mut whole: BTreeSet<usize> = whole_of_all.collect();
        let removed = match from {
            0 => Vec::new(),
            // What the rest of the chain may still have. Rows that came again are among the rows.
            _ => self.fold_removed(place, schema, &folded, entry.identity_columns)?,
        };
        let Some(newest) = folded.into_iter().next_back() else { return Ok(()) };
        if from == 0 {
            // Of all partitions, also where the first generation had another number of them: one
            // that nobody captured stands as one.
            whole = (0..newest.partitions).collect();
        }
        self.files.withdraw(&newest.rows);
        self.files.withdraw(&newest.removed);
        let whole = whole.into_iter().collect();
        entry.generations.push(Generation { whole, rows, removed, ..newest });
        self.merged_tables += 1;
        Ok(())
    }

    /// Writes the rows of these generations that hold.
    fn fold(
        &mut self,
        place: &TablePlace<'_>,
        schema: SchemaRef,
        generations: &[Generation],
        identity_columns: usize,
    ) -> Result<Vec<FileEntry>> {
        let (label, files) = (place.label("merged"), &mut self.files);
        let mut rows = Vec::new();
        let expires = generations.iter().any(|generation| !generation.kept_from.is_empty());
        let mut writer = TableWriter::new(schema).expiring(expires);
        visit_rows(files.storage, generations, identity_columns, &mut |batch| {
            writer.write(&batch, &mut |file| files.add(&mut rows, &label, file))
        })?;
        writer.finish(&mut |file| files.add(&mut rows, &label, file))?;
        Ok(rows)
    }

    /// Writes what these generations removed.
    fn fold_removed(
        &mut self,
        place: &TablePlace<'_>,
        schema: SchemaRef,
        generations: &[Generation],
        identity_columns: usize,
    ) -> Result<Vec<FileEntry>> {
        let (label, files) = (place.label("removed"), &mut self.files);
        let mut removed = Vec::new();
        let mut writer = TableWriter::new(identity_schema(&schema, identity_columns)?);
        visit_removed(files.storage, generations, &mut |batch| {
            writer.write(&batch, &mut |file| files.add(&mut removed, &label, file))
        })?;
        writer.finish(&mut |file| files.add(&mut removed, &label, file))?;
        Ok(removed)
    }

    fn summary(&self, number: u64) -> WrittenSnapshot {
        let own = &self.files.own;
        WrittenSnapshot {
            number,
            files: own.len(),
            bytes: own.iter().map(|file| file.bytes).sum(),
            rows: own.iter().map(|file| file.rows).sum(),
            merged_tables: self.merged_tables,
        }
    }
}

/// Below which time the partitions keep nothing; empty where rows do not expire. A partition
/// without a capture is empty, and says nothing about what comes.
fn kept_from(
    place: &TablePlace<'_>,
    captured: &BTreeMap<usize, CapturedTable>,
    partitions: usize,
) -> Result<Vec<i64>> {
    let expires = captured.values().filter(|own| own.kept_from.is_some()).count();
    if expires == 0 {
        return Ok(Vec::new());
    }
    if expires < captured.len() {
        return Err(place.error("its rows expire in some partitions only"));
    }
    let of = |p: usize| captured.get(&p).and_then(|own| own.kept_from).unwrap_or(i64::MIN);
    Ok((0..partitions).map(of).collect())
}

/// Forgets files of which every row has expired, and generations that say nothing any more.
fn expire(generations: &mut Vec<Generation>) {
    let Some((newest, before)) = generations.split_last_mut() else { return };
    // No earlier row of a partition with a full capture holds, whatever it says about times.
    let changes = newest.kept_from.iter().enumerate();
    let changes = changes.filter(|(partition, _)| !newest.whole.contains(partition));
    let Some(lowest) = changes.map(|(_, kept_from)| *kept_from).min() else { return };
    for generation in before {
        generation.rows.retain(|file| file.highest.is_none_or(|highest| highest >= lowest));
    }
    // What is removed from nothing need not be named.
    while generations.len() > 1 && generations[0].rows.is_empty() {
        generations.remove(0);
        let oldest = &mut generations[0];
        oldest.whole = (0..oldest.partitions).collect();
        oldest.removed = Vec::new();
    }
}

/// What the partitions that capture a table must agree upon.
struct TableShape {
    schema: SchemaRef,
    identity_columns: usize,
}

impl TableShape {
    fn of<'a>(
        place: &TablePlace<'_>,
        captured: impl Iterator<Item = &'a CapturedTable>,
    ) -> Result<TableShape> {
        let mut shape: Option<TableShape> = None;
        for table in captured {
            let is_change = table.extent == Extent::Incremental;
            if is_change && table.identity_columns == 0 {
                return Err(place.error("it has changes, and its rows have no identity"));
            }
            if table.identity_columns > table.schema.fields().len() {
                return Err(place.error("its identity has more columns than it"));
            }
            let (schema, identity_columns) = (table.schema.clone(), table.identity_columns);
            let own = TableShape { schema, identity_columns };
            shape = Some(shape.map_or(Ok(own), |known| known.joined(place, table))?);
        }
        shape.ok_or_else(|| place.error("no partition captured it"))
    }

    fn joined(self, place: &TablePlace<'_>, table: &CapturedTable) -> Result<TableShape> {
        let columns = column_texts(&self.schema);
        let own = table.identity_columns;
        let has_same = own == 0 || self.identity_columns == 0 || own == self.identity_columns;
        if columns != column_texts(&table.schema) || !has_same {
            return Err(place.error("partitions captured it with different columns"));
        }
        let identity_columns = own.max(self.identity_columns);
        Ok(TableShape { identity_columns, ..self })
    }
}
