//! The manifest: the one file that says what a snapshot is, and which files belong to it.
//!
//! It is JSON, so that a person can read it; see `docs/design/007-snapshot-format.md`. Its last
//! line holds the checksum of every byte before that line's value, so that no change of it goes
//! unseen. Parsed numbers and names are checked before anything is done with them: a name leads
//! nowhere but into the folders of snapshots.
//!
//! What a newer engine may add under the same [`FORMAT`] is passed over here; whatever would change
//! the meaning of what is read must have another format number.

mod cut;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_core::{Error, OrderContract, Result};

pub(crate) use cut::StageEntry;
pub use text::fuzz_manifest;

/// The format that this version writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;
/// The manifest's name in the folder of its snapshot.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The folder of all snapshots of a job.
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// Why a snapshot was taken, which decides how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// Because it was time; kept until there are enough newer ones.
    Periodic,
    /// On request; kept until a user deletes it.
    Manual,
    /// The last one of a job, which has ended or was suspended; kept as one that was asked for.
    Final,
}

impl SnapshotKind {
    /// The word in manifests and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            SnapshotKind::Periodic => "periodic",
            SnapshotKind::Manual => "manual",
            SnapshotKind::Final => "final",
        }
    }
}

/// Everything that a manifest says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub format: u32,
    pub job: String,
    pub number: u64,
    pub kind: SnapshotKind,
    pub taken_at_ms: i64,
    /// The version of the engine that wrote it.
    pub engine: String,
    pub order: String,
    pub serial: u64,
    pub is_complete: bool,
    /// The lineage that the snapshot is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// The snapshot that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// What the engine wants to find again about the job.
    pub notes: BTreeMap<String, String>,
    pub stages: Vec<StageEntry>,
}

/// A table of state of one operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableEntry {
    pub name: String,
    /// Name and type of each column, for people.
    pub columns: Vec<String>,
    /// The checksum of `columns`: changes fold only into a table with the same.
    pub fingerprint: String,
    pub identity_columns: usize,
    /// Oldest first: the whole table, then what changed.
    pub generations: Vec<Generation>,
}

/// What one snapshot captured of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Generation {
    /// The number of that snapshot.
    pub snapshot: u64,
    /// How many partitions there were.
    pub partitions: usize,
    /// Which of them captured all of it: their rows in older generations are obsolete.
    pub whole: Vec<usize>,
    pub rows: Vec<FileEntry>,
    pub removed: Vec<FileEntry>,
    /// Where rows expire: what each partition keeps, by the lowest value of the second column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_from: Vec<i64>,
}

impl Generation {
    /// All of it is captured; nothing older matters.
    pub fn is_whole(&self) -> bool {
        self.whole.len() == self.partitions
    }
    /// The bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files().map(|file| file.bytes).sum()
    }
    /// Its files.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.rows.iter().chain(&self.removed)
    }
}

/// A file of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// Relative to the job: `snapshots/0000000012/0003-….arrow`.
    pub path: String,
    pub bytes: u64,
    pub rows: u64,
    pub checksum: String,
    /// Where rows expire: the highest value of the second column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<i64>,
}

impl Manifest {
    /// The order contract that the job ran under.
    ///
    /// # Errors
    /// If there is no such contract.
    pub fn order(&self) -> Result<OrderContract> {
        self.order.parse().map_err(|_| malformed(format!("'{}' is no order contract", self.order)))
    }

    /// Every file that belongs to the snapshot, also those of earlier ones.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        let tables = self.stages.iter().flat_map(StageEntry::tables);
        tables.flat_map(|table| &table.generations).flat_map(Generation::files)
    }

    /// What a table of a stage was, for changes that build on it.
    pub fn table(&self, stage: &str, is_waiting: bool, name: &str) -> Option<&TableEntry> {
        let stage = self.stages.iter().find(|own| own.id == stage)?;
        let tables = if is_waiting { &stage.waiting } else { &stage.state };
        tables.iter().find(|table| table.name == name)
    }

    /// Looks at everything that another part relies on.
    fn check(&self) -> Result<()> {
        self.order()?;
        for table in self.stages.iter().flat_map(StageEntry::tables) {
            table.check()?;
        }
        for file in self.files() {
            if folder_number(&file.path).is_none_or(|number| number > self.number) {
                return Err(malformed(format!(
                    "'{}' is no file of a snapshot up to it",
                    file.path
                )));
            }
        }
        Ok(())
    }
}

impl TableEntry {
    fn check(&self) -> Result<()> {
        let has_base = self.generations.first().is_some_and(Generation::is_whole);
        if !has_base {
            return Err(malformed(format!("table '{}' has changes and nothing before", self.name)));
        }
        if self.generations.len() > 1
            && (self.identity_columns == 0 || self.identity_columns > self.columns.len())
        {
            return Err(malformed(format!("rows of table '{}' have no identity", self.name)));
        }
        let is_known = |generation: &Generation| {
            let whole = &generation.whole;
            generation.partitions > 0
                && [0, generation.partitions].contains(&generation.kept_from.len())
                && whole.is_sorted_by(|a, b| a < b)
                && whole.iter().all(|&p| p < generation.partitions)
        };
        if !self.generations.iter().all(is_known) {
            return Err(malformed(format!("table '{}' was captured by no partition", self.name)));
        }
        Ok(())
    }
}

/// The folder of a snapshot, relative to the job.
pub(crate) fn folder(number: u64) -> String {
    format!("{SNAPSHOTS}/{number:010}")
}

/// The name of a snapshot's manifest, relative to the job.
pub(crate) fn manifest_name(number: u64) -> String {
    format!("{}/{MANIFEST}", folder(number))
}

/// The number of the snapshot in whose folder a file lies; `None` if it lies in none.
pub(crate) fn folder_number(name: &str) -> Option<u64> {
    let (number, file) = name.strip_prefix(SNAPSHOTS)?.strip_prefix('/')?.split_once('/')?;
    let is_number = number.len() >= 10 && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_file = !file.is_empty() && !file.starts_with('.') && file.bytes().all(is_plain);
    (is_number && is_file).then(|| number.parse().ok())?
}

/// A manifest whose bytes are those that were written, and which still makes no sense.
pub(crate) fn malformed(what: impl Into<String>) -> Error {
    Error::data(format!("the manifest makes no sense: {}", what.into()))
        .hint("it was written by something else; use an older snapshot")
}
