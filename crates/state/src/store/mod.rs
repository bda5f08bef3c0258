//! The way in: a job's snapshots at one place.
//!
//! [`SnapshotStore`] gathers facts from storage, asks [`crate::decide`] where something is to be
//! decided, and carries it out. It keeps in memory the manifest it wrote last, since the next one
//! builds on it, and which snapshots it has found damaged.
//!
//! One store writes to a job at a time; on one machine [`crate::JobLock`] sees to that. Reading
//! needs no lock.

mod describe;
mod keep;
mod lineage;
mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use thalweg_core::snapshot::RestoredCut;
use thalweg_core::{Error, ErrorKind, OrderContract, Result};

use crate::manifest::{self, Manifest, SNAPSHOTS, SnapshotKind};
use crate::storage::{self, FileSystem, LocalStorage, ObjectStorage, Storage, StoredFile};

pub use describe::{SnapshotDetails, TableSummary};
pub use lineage::{Lineage, Origin};
pub use write::{WriteRequest, WrittenSnapshot};

/// The snapshots of one job at one place.
pub struct SnapshotStore {
    storage: Arc<dyn Storage>,
    job: String,
    directory: Option<PathBuf>,
    /// What was written last, if anything was.
    last: Option<Manifest>,
    /// What was found damaged: it neither goes nor counts.
    damaged: BTreeSet<u64>,
}

/// What a snapshot says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotHeader {
    /// Its number.
    pub number: u64,
    /// The job that it is of.
    pub job: String,
    /// Why it was taken.
    pub kind: SnapshotKind,
    /// When, in milliseconds since 1970-01-01T00:00:00Z.
    pub taken_at_ms: i64,
    /// The version of the engine that wrote it.
    pub engine: String,
    /// The order contract that the job ran under.
    pub order: OrderContract,
    /// All input had ended.
    pub is_complete: bool,
    /// The lineage that it is of, if it was written in one.
    pub lineage: Option<String>,
    /// The snapshot that it follows: the one before it in its run, or the one that its run resumed
    /// from.
    pub parent: Option<u64>,
    /// What the engine noted about the job.
    pub notes: BTreeMap<String, String>,
    /// Bytes of all files that it needs.
    pub bytes: u64,
    /// Bytes of those that it does not share with earlier ones.
    pub own_bytes: u64,
}

/// A snapshot as it was read.
#[derive(Debug)]
pub struct Snapshot {
    /// What it says about itself.
    pub header: SnapshotHeader,
    /// Everything that the job was.
    pub cut: RestoredCut,
}

/// A snapshot in a listing.
#[derive(Clone, Debug)]
pub enum SnapshotSummary {
    /// It counts. Its files were not looked at: see [`SnapshotStore::verify`].
    Finished(SnapshotHeader),
    /// It counted, and its manifest cannot be read.
    Unreadable(Damage),
    /// It has no manifest: it is being written, or its writer died.
    Unfinished {
        /// Its number.
        number: u64,
    },
}

impl SnapshotSummary {
    /// Its number.
    pub fn number(&self) -> u64 {
        match self {
            SnapshotSummary::Finished(header) => header.number,
            SnapshotSummary::Unreadable(damage) => damage.number,
            SnapshotSummary::Unfinished { number } => *number,
        }
    }
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The snapshot that cannot be used for it.
    pub number: u64,
    /// The file, as a user finds it.
    pub path: String,
    /// What is wrong with it.
    pub what: String,
    /// Nothing is damaged: a newer engine wrote it.
    pub is_newer: bool,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "snapshot {}: {}: {}", self.number, self.path, self.what)
    }
}

/// The newest snapshot that can be used.
#[derive(Debug)]
pub struct FoundSnapshot {
    /// It; none if there is no such snapshot.
    pub snapshot: Option<Snapshot>,
    /// Newer ones that counted and can't be used, newest first. They stay where they are. Whether a
    /// job may resume unasked is for [`crate::decide::recovery`] to say.
    pub passed_over: Vec<Damage>,
}

/// What there is of snapshots: the names and sizes of all files, and which numbers have a manifest.
struct Listing {
    entries: Vec<StoredFile>,
    /// Ascending.
    finished: Vec<u64>,
    /// Ascending.
    unfinished: Vec<u64>,
}

impl SnapshotStore {
    /// The snapshots of a job at a location: a directory, `file://…` or `memory://NAME` (this
    /// process only). Nothing is written before the first snapshot.
    ///
    /// ```
    /// use thalweg_state::SnapshotStore;
    /// let store = SnapshotStore::open("memory://docs", "flights")?;
    /// assert!(store.list()?.is_empty());
    /// # Ok::<(), thalweg_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the location is of no known kind or not complete, or the job has no name.
    pub fn open(location: &str, job: &str) -> Result<SnapshotStore> {
        let (storage, directory) = storage::open(location, job)?;
        Ok(Self::over(storage, job, directory))
    }

    /// The same in the store that a URL such as `s3://BUCKET/PREFIX` names.
    ///
    /// # Errors
    /// If the job has no name; as [`ObjectStorage::new`].
    pub fn in_store(objects: Arc<dyn ObjectStore>, url: &str, job: &str) -> Result<SnapshotStore> {
        Ok(Self::over(storage::in_store(objects, url, job)?, job, None))
    }

    /// The same in any object store. `location` is how a user names the place.
    ///
    /// # Errors
    /// As [`ObjectStorage::new`].
    pub fn over_objects(
        objects: Arc<dyn ObjectStore>,
        location: &str,
        prefix: &str,
        job: &str,
    ) -> Result<SnapshotStore> {
        let storage = ObjectStorage::new(objects, location, prefix)?;
        Ok(Self::over(Arc::new(storage), job, None))
    }

    /// The same in a directory of the job's own, through these calls of the operating system.
    pub fn over_files(files: Arc<dyn FileSystem>, directory: &Path, job: &str) -> SnapshotStore {
        let storage = LocalStorage::new(directory.to_owned(), files);
        Self::over(Arc::new(storage), job, Some(directory.to_owned()))
    }

    fn over(storage: Arc<dyn Storage>, job: &str, directory: Option<PathBuf>) -> SnapshotStore {
        let (last, damaged) = (None, BTreeSet::new());
        SnapshotStore { storage, job: job.to_owned(), directory, last, damaged }
    }

    /// The job's directory, which [`crate::JobLock`] locks; none if it does not lie on this
    /// machine.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Where the snapshot of this number lies, if that is on this machine.
    pub fn snapshot_directory(&self, number: u64) -> Option<PathBuf> {
        Some(self.directory()?.join(manifest::folder(number)))
    }

    /// The numbers of all snapshots that are finished, ascending. Their manifests are not read.
    ///
    /// # Errors
    /// Those of the place.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        Ok(self.listing()?.finished.into_iter().collect())
    }

    /// Every snapshot that there is anything of, in order of numbers. Reads the manifests.
    ///
    /// # Errors
    /// Those of the place.
    pub fn list(&self) -> Result<Vec<SnapshotSummary>> {
        let listing = self.listing()?;
        let mut found = Vec::new();
        // Later snapshots may need files of one that was deleted.
        let mut needed = BTreeSet::new();
        for number in listing.finished {
            found.push(match self.try_manifest(number)? {
                Ok(manifest) => {
                    needed
                        .extend(manifest.files().filter_map(|f| manifest::folder_number(&f.path)));
                    SnapshotSummary::Finished(header(&manifest)?)
                }
                Err(damage) => SnapshotSummary::Unreadable(damage),
            });
        }
        let unfinished = listing.unfinished.into_iter().filter(|number| !needed.contains(number));
        found.extend(unfinished.map(|number| SnapshotSummary::Unfinished { number }));
        found.sort_by_key(SnapshotSummary::number);
        Ok(found)
    }

    /// The number that the next snapshot can have: no file of an earlier one has it.
    ///
    /// # Errors
    /// Those of the place.
    pub fn next_number(&self) -> Result<u64> {
        let listing = self.listing()?;
        let numbers = listing.finished.iter().chain(&listing.unfinished);
        Ok(numbers.max().map_or(1, |highest| highest.saturating_add(1)))
    }

    /// What a snapshot says about itself. Its files are not looked at.
    ///
    /// # Errors
    /// If there is no such snapshot, or its manifest cannot be read.
    pub fn header(&self, number: u64) -> Result<SnapshotHeader> {
        header(&self.manifest(number)?)
    }

    fn listing(&self) -> Result<Listing> {
        let entries = self.storage.list(SNAPSHOTS)?;
        let mut finished = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for entry in &entries {
            let Some(number) = manifest::folder_number(&entry.name) else { continue };
            seen.insert(number);
            if entry.name == manifest::manifest_name(number) {
                finished.insert(number);
            }
        }
        let unfinished = seen.difference(&finished).copied().collect();
        Ok(Listing { entries, finished: finished.into_iter().collect(), unfinished })
    }

    fn manifest(&self, number: u64) -> Result<Manifest> {
        let name = manifest::manifest_name(number);
        let Some(bytes) = self.storage.get(&name)? else {
            let message = format!("there is no snapshot {number} of job '{}'", self.job);
            return Err(Error::data(message).in_file(self.storage.place_of(&name)).hint(
                "choose one of those that are there; one whose writer died before its end does not count",
            ));
        };
        self.parse(number, &bytes).map_err(|error| error.in_file(self.storage.place_of(&name)))
    }

    fn parse(&self, number: u64, bytes: &[u8]) -> Result<Manifest> {
        let manifest = Manifest::from_bytes(bytes)?;
        if manifest.number != number || manifest.job != self.job {
            let what = format!(
                "it says that it is snapshot {} of job '{}'",
                manifest.number, manifest.job
            );
            return Err(manifest::malformed(what));
        }
        Ok(manifest)
    }

    /// The manifest, or what is wrong with it.
    fn try_manifest(&self, number: u64) -> Result<Result<Manifest, Damage>> {
        self.split_damage(number, self.manifest(number))
    }

    /// What is wrong with a snapshot, kept apart from what is wrong with the place: that may be
    /// gone when it is tried again, and is no reason to pass a snapshot over.
    fn split_damage<T>(&self, number: u64, tried: Result<T>) -> Result<Result<T, Damage>> {
        match tried {
            Ok(done) => Ok(Ok(done)),
            Err(error) if matches!(error.kind(), ErrorKind::Data | ErrorKind::Unsupported) => {
                let name = manifest::manifest_name(number);
                let path = error.file().map_or_else(|| self.storage.place_of(&name), str::to_owned);
                let is_newer = error.kind() == ErrorKind::Unsupported;
                Ok(Err(Damage { number, path, what: error.message().to_owned(), is_newer }))
            }
            Err(error) => Err(error),
        }
    }
}

fn header(manifest: &Manifest) -> Result<SnapshotHeader> {
    let own = format!("{}/", manifest::folder(manifest.number));
    let own_files = manifest.files().filter(|file| file.path.starts_with(&own));
    Ok(SnapshotHeader {
        number: manifest.number,
        job: manifest.job.clone(),
        kind: manifest.kind,
        taken_at_ms: manifest.taken_at_ms,
        engine: manifest.engine.clone(),
        order: manifest.order()?,
        is_complete: manifest.is_complete,
        lineage: manifest.lineage.clone(),
        parent: manifest.parent,
        notes: manifest.notes.clone(),
        bytes: manifest.files().map(|file| file.bytes).fold(0, u64::saturating_add),
        own_bytes: own_files.map(|file| file.bytes).fold(0, u64::saturating_add),
    })
}
