//! Reading: every byte against its checksum before anything is made of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use thalweg_core::quoting::quoted_list;
use thalweg_core::snapshot::{Restored, RestoredCut, StageState};
use thalweg_core::{Error, Result};

use super::{Damage, FoundSnapshot, Snapshot, SnapshotStore, header};
use crate::checksum;
use crate::manifest::{FileEntry, Generation, Manifest, StageEntry, TableEntry};
use crate::storage::Storage;
use crate::table::{Fold, decode};

/// How names of tables begin that hold rows which wait for other inputs.
const WAITING: &str = "waiting.";

impl SnapshotStore {
    /// Reads a snapshot, with all state that it holds.
    ///
    /// # Errors
    /// If there is no such snapshot, if anything of it is missing or not as it was written (the
    /// message has the path), and those of the place.
    pub fn read(&self, number: u64) -> Result<Snapshot> {
        let manifest = self.manifest(number)?;
        let stage = |stage: &StageEntry| -> Result<StageState<Restored>> {
            let state = self.restored(&stage.state)?;
            Ok(stage.with_state(state, self.restored(&stage.waiting)?))
        };
        let stages = manifest.stages.iter().map(stage).collect::<Result<_>>()?;
        let (serial, is_complete) = (manifest.serial, manifest.is_complete);
        let cut = RestoredCut { stages, serial, is_complete };
        Ok(Snapshot { header: header(&manifest)?, cut })
    }

    /// Reads the newest snapshot that can be used, and says which newer ones cannot and why.
    /// Deletes nothing.
    ///
    /// # Errors
    /// Those of the place: what cannot be reached now is not damaged.
    pub fn newest_usable(&mut self) -> Result<FoundSnapshot> {
        self.newest_where(|_, _| true)
    }

    /// The same of those whose number, and manifest where it can be read, are wanted.
    pub(super) fn newest_where(
        &mut self,
        is_wanted: impl Fn(u64, Option<&Manifest>) -> bool,
    ) -> Result<FoundSnapshot> {
        let mut passed_over = Vec::new();
        for number in self.listing()?.finished.into_iter().rev() {
            if !is_wanted(number, self.try_manifest(number)?.ok().as_ref()) {
                continue;
            }
            match self.split_damage(number, self.read(number))? {
                Ok(snapshot) => return Ok(FoundSnapshot { snapshot: Some(snapshot), passed_over }),
                Err(damage) => {
                    self.damaged.insert(number);
                    passed_over.push(damage);
                }
            }
        }
        Ok(FoundSnapshot { snapshot: None, passed_over })
    }

    /// Compares every byte of a snapshot with its checksums; says everything that is wrong with it.
    ///
    /// # Errors
    /// If there is no such snapshot, and those of the place.
    pub fn verify(&mut self, number: u64) -> Result<Vec<Damage>> {
        let damage = self.damage_of(number)?;
        if damage.is_empty() {
            self.damaged.remove(&number);
        } else {
            self.damaged.insert(number);
        }
        Ok(damage)
    }

    fn damage_of(&self, number: u64) -> Result<Vec<Damage>> {
        let listing = self.listing()?;
        if listing.finished.binary_search(&number).is_err() {
            // Says that it is not there.
            return self.manifest(number).map(|_| Vec::new());
        }
        let manifest = match self.try_manifest(number)? {
            Ok(manifest) => manifest,
            Err(damage) => return Ok(vec![damage]),
        };
        let (mut found, mut room) = (Vec::new(), Vec::new());
        for file in manifest.files() {
            let loaded = load(self.storage.as_ref(), file, &mut room);
            found.extend(self.split_damage(number, loaded)?.err());
        }
        Ok(found)
    }

    /// The tables of one operator, by its stage's identifier or by its name; those of rows that
    /// wait for other inputs are called `waiting.NAME`. A table without rows has no batches.
    ///
    /// # Errors
    /// As [`SnapshotStore::read`], and if there is no such operator.
    pub fn state_of(
        &self,
        number: u64,
        operator: &str,
    ) -> Result<BTreeMap<String, Vec<RecordBatch>>> {
        let manifest = self.manifest(number)?;
        let stage = find_stage(&manifest, operator)?;
        let mut tables = BTreeMap::new();
        for table in &stage.state {
            tables.insert(table.name.clone(), self.rows(table)?);
        }
        for table in &stage.waiting {
            tables.insert(format!("{WAITING}{}", table.name), self.rows(table)?);
        }
        Ok(tables)
    }

    /// The rows of one table of an operator, by its stage's identifier; tables are called as in
    /// [`SnapshotStore::state_of`].
    ///
    /// # Errors
    /// As [`SnapshotStore::state_of`], and if there is no such table.
    pub fn rows_of(&self, number: u64, operator: &str, table: &str) -> Result<Vec<RecordBatch>> {
        let manifest = self.manifest(number)?;
        let stage = find_stage(&manifest, operator)?;
        let found = match table.strip_prefix(WAITING) {
            Some(waiting) => stage.waiting.iter().find(|other| other.name == waiting),
            None => stage.state.iter().find(|other| other.name == table),
        };
        found.map_or_else(
            || Err(Error::plan(format!("operator '{operator}' has no table '{table}'"))),
            |found| self.rows(found),
        )
    }

    fn restored(&self, tables: &[TableEntry]) -> Result<Restored> {
        let mut restored = Restored::default();
        for table in tables {
            restored.add(&table.name, self.rows(table)?);
        }
        Ok(restored)
    }

    /// All rows of a table that hold. Files are read by as many threads as there are cores.
    fn rows(&self, table: &TableEntry) -> Result<Vec<RecordBatch>> {
        let storage = self.storage.as_ref();
        let fold = noted(storage, &table.generations, table.identity_columns)?;
        let files: Vec<(usize, &FileEntry)> = files_of(&table.generations).collect();
        let read = |&file: &(usize, &FileEntry), room: &mut Vec<u8>| {
            let mut rows = Vec::new();
            let take = &mut |batch| {
                rows.push(batch);
                Ok(())
            };
            visit_file(storage, file, fold.as_ref(), room, take)?;
            Ok(rows)
        };
        let parts = in_parallel(&files, read)?;
        Ok(parts.into_iter().flatten().collect())
    }
}

/// Does the same with each of these, on several threads, each of which has memory of its own to
/// read files into: new memory costs about as much as what is done with it. The results are in
/// order.
fn in_parallel<T: Sync, R: Send>(
    all: &[T],
    work: impl Fn(&T, &mut Vec<u8>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len());
    if threads < 2 {
        let mut room = Vec::new();
        return all.iter().map(|one| work(one, &mut room)).collect();
    }
    let next = AtomicUsize::new(0);
    let some = || {
        let (mut done, mut room) = (Vec::new(), Vec::new());
        // Relaxed: it only hands out places.
        while let Some((place, one)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|p| Some((p, all.get(p)?)))
        {
            done.push((place, work(one, &mut room)?));
        }
        Ok(done)
    };
    let mut done = std::thread::scope(|scope| -> Result<Vec<(usize, R)>> {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(some)).collect();
        let mut done = some();
        for other in others {
            let panicked = |_| Err(Error::internal("a thread that read a snapshot panicked"));
            let other: Result<Vec<(usize, R)>> = other.join().unwrap_or_else(panicked);
            done = done.and_then(|mut all| {
                all.extend(other?);
                Ok(all)
            });
        }
        done
    })?;
    done.sort_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

fn find_stage<'a>(manifest: &'a Manifest, operator: &str) -> Result<&'a StageEntry> {
    let by_id = manifest.stages.iter().find(|stage| stage.id == operator);
    let found = by_id.or_else(|| manifest.stages.iter().find(|stage| stage.name == operator));
    found.ok_or_else(|| {
        let with_state = manifest.stages.iter().filter(|stage| stage.tables().next().is_some());
        let names = quoted_list(with_state.map(|stage| &stage.id));
        let message = format!("snapshot {} knows no operator '{operator}'", manifest.number);
        Error::plan(message).hint(format!("operators with state are {names}"))
    })
}

/// Gives all rows of a table that hold to `take`, file by file, in order.
///
/// # Errors
/// If a file is missing or not as it was written, and those of `take`.
pub(super) fn visit_rows(
    storage: &dyn Storage,
    generations: &[Generation],
    identity_columns: usize,
    take: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let fold = noted(storage, generations, identity_columns)?;
    let mut room = Vec::new();
    files_of(generations)
        .try_for_each(|file| visit_file(storage, file, fold.as_ref(), &mut room, take))
}

/// Gives all identities that these generations removed to `take`, file by file, in order.
///
/// # Errors
/// As [`visit_rows`].
pub(super) fn visit_removed(
    storage: &dyn Storage,
    generations: &[Generation],
    take: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut room = Vec::new();
    let mut files = generations.iter().flat_map(|generation| &generation.removed);
    files.try_for_each(|file| {
        batches(storage, file, None, &mut room)?.into_iter().try_for_each(&mut *take)
    })
}

/// What later generations say about earlier ones; `None` if there is only one.
fn noted(
    storage: &dyn Storage,
    generations: &[Generation],
    identity_columns: usize,
) -> Result<Option<Fold>> {
    let (mut fold, mut room) = (Fold::new(identity_columns), Vec::new());
    generations.iter().for_each(|generation| fold.note_kept_from(&generation.kept_from));
    for (place, generation) in generations.iter().enumerate().skip(1) {
        fold.note_whole(place, &generation.whole, generation.partitions);
        for file in generation.files() {
            for batch in batches(storage, file, Some(identity_columns), &mut room)? {
                fold.note(place, &batch).map_err(|error| at(storage, file, error))?;
            }
        }
    }
    let expires = generations.iter().any(|generation| !generation.kept_from.is_empty());
    Ok((generations.len() > 1 || expires).then_some(fold))
}

/// The files of rows, in order, each with the place of its generation.
fn files_of(generations: &[Generation]) -> impl Iterator<Item = (usize, &FileEntry)> {
    let places = generations.iter().enumerate();
    places.flat_map(|(place, generation)| generation.rows.iter().map(move |file| (place, file)))
}

/// Gives the rows of a file, which is read into `room`, that hold to `take`.
fn visit_file(
    storage: &dyn Storage,
    (place, file): (usize, &FileEntry),
    fold: Option<&Fold>,
    room: &mut Vec<u8>,
    take: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    for batch in batches(storage, file, None, room)? {
        let rows = match fold {
            Some(fold) => fold.hold(place, &batch).map_err(|error| at(storage, file, error))?,
            None => batch,
        };
        // The workers of a job may wait for the core.
        std::thread::yield_now();
        if rows.num_rows() > 0 {
            take(rows)?;
        }
    }
    Ok(())
}

fn batches(
    storage: &dyn Storage,
    file: &FileEntry,
    columns: Option<usize>,
    room: &mut Vec<u8>,
) -> Result<Vec<RecordBatch>> {
    load(storage, file, room)?;
    let batches = decode(room, columns).map_err(|error| at(storage, file, error))?;
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    if rows != file.rows {
        let message = format!("it holds {rows} rows, and the manifest says {}", file.rows);
        return Err(at(storage, file, Error::data(message)));
    }
    Ok(batches)
}

/// Reads the bytes of a file into `room`, if they are those that were written.
pub(super) fn load(storage: &dyn Storage, file: &FileEntry, room: &mut Vec<u8>) -> Result<()> {
    let damaged = |what: String| {
        let error = Error::data(what).hint("use an older snapshot; nothing is deleted");
        Err(at(storage, file, error))
    };
    if !storage.get_into(&file.path, room)? {
        return damaged("it is missing".to_owned());
    }
    if room.len() as u64 != file.bytes {
        return damaged(format!(
            "it is damaged: it has {} bytes, and {} were written",
            room.len(),
            file.bytes
        ));
    }
    if checksum::text_of(room) != file.checksum {
        return damaged("it is damaged: its bytes are not those that were written".to_owned());
    }
    Ok(())
}

fn at(storage: &dyn Storage, file: &FileEntry, error: Error) -> Error {
    error.in_file(storage.place_of(&file.path))
}
