//! The versions of keys over time.
//!
//! Each key has a chain of versions from the latest to the earliest; of equal times the one that
//! came last stands first. A version is *seen* from the higher of its time and the watermark before
//! it on. Rows lie in chunks; chunks of which less than half is still needed are merged into new
//! ones, so that memory follows the versions also where a few rows of each bundle stay for ever.
//!
//! **Invariants:**
//! - each version with a row holds it once, and `owners` of its chunk name it;
//! - what a version answers does not depend on which of those it hides have been dropped: a
//!   deletion hides what was seen before it, and nothing that comes behind it.
//!
//! ```text
//! latest ─> (time 80, deleted) ─> (time 50, seen from 70) ─> (time 10) ─> end
//! ```
//!
//! `as_of(75)` finds time 50, `as_of(60)` finds time 10 (50 is not seen yet), `as_of(80)` finds
//! nothing.
//!
//! The list of a key is mostly short: `prune` runs for each key with a new version once the
//! watermark has reached it. So a linear insert is enough, and rows mostly arrive in ascending
//! time, which insert at the head.

use arrow_array::ArrayRef;
use thalweg_core::{Result, TableSchema};

use crate::rows::chunks::{Chunks, RowRef};

/// No version.
const NONE: u32 = u32::MAX;

/// Chunks of which little is needed are merged when they hold this many rows together.
const SPARSE_ROWS_MAX: usize = 64 * 1024;

#[derive(Clone, Copy)]
struct Version {
    time: i64,
    seen_from: i64,
    /// The next one of the key, in descending order of time.
    older: u32,
    /// [`RowRef::NONE`] for a deletion.
    row: RowRef,
}

/// Who needs the rows of a chunk.
#[derive(Default)]
struct Owners {
    /// By row, the version that it is of.
    versions: Vec<u32>,
    live: usize,
    is_sparse: bool,
}

/// The versions of all keys of a partition.
pub(super) struct Versions {
    chunks: Chunks,
    owners: Vec<Owners>,
    all: Vec<Version>,
    free: Vec<u32>,
    /// By key, the latest version.
    latest: Vec<u32>,
    /// Chunks of which less than half is needed; some may be gone.
    sparse: Vec<u32>,
    sparse_rows: usize,
}

impl Versions {
    pub fn new(schema: &TableSchema) -> Self {
        Versions {
            chunks: Chunks::new(schema),
            owners: Vec::new(),
            all: Vec::new(),
            free: Vec::new(),
            latest: Vec::new(),
            sparse: Vec::new(),
            sparse_rows: 0,
        }
    }

    /// Makes room for keys with numbers below this one.
    pub fn reserve_keys(&mut self, limit: usize) {
        if self.latest.len() < limit {
            self.latest.resize(limit, NONE);
        }
    }

    /// Takes rows in; they stay until [`Versions::finish_rows`] whether or not they are versions.
    pub fn add_rows(&mut self, columns: Vec<ArrayRef>, rows: usize) -> u32 {
        let chunk = self.chunks.add(columns, rows, false);
        if self.owners.len() <= chunk as usize {
            self.owners.resize_with(chunk as usize + 1, Owners::default);
        }
        self.owners[chunk as usize] =
            Owners { versions: vec![NONE; rows], live: 0, is_sparse: false };
        chunk
    }

    /// All rows of a chunk that are versions have been named.
    pub fn finish_rows(&mut self, chunk: u32) -> Result<()> {
        self.chunks.release(chunk, 1);
        self.look_after(chunk);
        self.merge_sparse()
    }

    /// The versions of a key, from the latest to the earliest: the time from which on each is
    /// valid, that from which on it is seen, and its row.
    pub fn of_key(&self, key: u32) -> impl Iterator<Item = (i64, i64, RowRef)> + '_ {
        let latest = self.latest.get(key as usize).copied().unwrap_or(NONE);
        let version = |id: u32| (id != NONE).then(|| &self.all[id as usize]);
        let all = std::iter::successors(version(latest), move |newer| version(newer.older));
        all.map(|version| (version.time, version.seen_from, version.row))
    }

    /// The rows of all versions.
    pub fn rows(&self) -> &Chunks {
        &self.chunks
    }

    /// A key has a version from a time on, or none; it came behind all others.
    pub fn insert(&mut self, key: u32, time: i64, before: i64, row: RowRef) {
        let seen_from = time.max(before);
        let (mut newer, mut older) = (NONE, self.latest[key as usize]);
        while older != NONE && self.all[older as usize].time > time {
            (newer, older) = (older, self.all[older as usize].older);
        }
        let version = Version { time, seen_from, older, row };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = version;
                id
            }
            None => {
                self.all.push(version);
                self.all.len() as u32 - 1
            }
        };
        self.set_older(key, newer, id);
        if row.is_some() {
            self.chunks.hold(row.chunk, 1);
            let owners = &mut self.owners[row.chunk as usize];
            owners.versions[row.row as usize] = id;
            owners.live += 1;
        }
    }

    /// The row that a key had at a time; [`RowRef::NONE`] if none.
    pub fn as_of(&self, key: u32, time: i64) -> Option<(i64, RowRef)> {
        let id = self.find(key, time);
        (id != NONE).then(|| (self.all[id as usize].time, self.all[id as usize].row))
    }

    /// Walks from the latest version. A version counts if its time has come and it has been seen by
    /// then. A deletion hides all that was seen up to the moment at which the deletion was seen; a
    /// version that was seen later (it came late) is valid again.
    fn find(&self, key: u32, time: i64) -> u32 {
        let mut hidden_until = i64::MIN;
        let mut next = self.latest[key as usize];
        while next != NONE {
            let version = &self.all[next as usize];
            if version.time <= time && version.seen_from <= time {
                if !version.row.is_some() {
                    hidden_until = hidden_until.max(version.seen_from);
                } else if hidden_until == i64::MIN || version.seen_from > hidden_until {
                    return next;
                }
            }
            next = version.older;
        }
        NONE
    }

    /// Drops what no row at or behind this time can meet; true if the key has no version left. No
    /// rows are being taken in meanwhile.
    pub fn prune(&mut self, key: u32, time: i64) -> bool {
        let kept = self.find(key, time);
        let (mut newer, mut next) = (NONE, self.latest[key as usize]);
        while next != NONE {
            let Version { seen_from, older, row, .. } = self.all[next as usize];
            if next == kept || seen_from > time {
                newer = next;
            } else {
                self.set_older(key, newer, older);
                self.free.push(next);
                self.drop_row(row);
            }
            next = older;
        }
        self.latest[key as usize] == NONE
    }

    /// True if a key has no version.
    pub fn is_empty(&self, key: u32) -> bool {
        self.latest.get(key as usize).is_none_or(|&latest| latest == NONE)
    }

    /// These rows, as columns of the side.
    pub fn gather(&self, rows: &[RowRef]) -> Result<Vec<ArrayRef>> {
        self.chunks.gather(rows)
    }

    /// Some columns of these rows.
    pub fn gather_columns(&self, rows: &[RowRef], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        self.chunks.gather_columns(rows, columns)
    }

    pub fn bytes(&self) -> usize {
        let owners: usize = self.owners.iter().map(|owners| owners.versions.capacity() * 4).sum();
        self.chunks.bytes()
            + owners
            + self.owners.capacity() * size_of::<Owners>()
            + self.all.capacity() * size_of::<Version>()
            + (self.free.capacity() + self.latest.capacity() + self.sparse.capacity()) * 4
    }

    fn set_older(&mut self, key: u32, newer: u32, older: u32) {
        match newer {
            NONE => self.latest[key as usize] = older,
            newer => self.all[newer as usize].older = older,
        }
    }

    fn drop_row(&mut self, row: RowRef) {
        if !row.is_some() {
            return;
        }
        let owners = &mut self.owners[row.chunk as usize];
        owners.versions[row.row as usize] = NONE;
        owners.live -= 1;
        self.chunks.release(row.chunk, 1);
        self.look_after(row.chunk);
    }

    /// Remembers a chunk of which little is needed, and forgets one of which nothing is.
    fn look_after(&mut self, chunk: u32) {
        let owners = &mut self.owners[chunk as usize];
        let rows = owners.versions.len();
        if owners.live == 0 {
            self.sparse_rows -= if owners.is_sparse { rows } else { 0 };
            *owners = Owners::default();
        } else if owners.live * 2 < rows && !owners.is_sparse {
            owners.is_sparse = true;
            self.sparse.push(chunk);
            self.sparse_rows += rows;
        }
    }

    /// Merges what is needed of sparse chunks, if they have become many.
    pub fn merge_sparse(&mut self) -> Result<()> {
        if self.sparse_rows < SPARSE_ROWS_MAX {
            return Ok(());
        }
        let mut versions = Vec::new();
        for chunk in std::mem::take(&mut self.sparse) {
            let owners = &mut self.owners[chunk as usize];
            // Named twice if its number was used again.
            if std::mem::take(&mut owners.is_sparse) {
                versions.extend(owners.versions.iter().copied().filter(|&id| id != NONE));
            }
        }
        self.sparse_rows = 0;
        let rows: Vec<RowRef> = versions.iter().map(|&id| self.all[id as usize].row).collect();
        let columns = self.chunks.gather(&rows)?;
        let chunk = self.add_rows(columns, rows.len());
        self.chunks.hold(chunk, rows.len());
        for (place, (&id, &row)) in versions.iter().zip(&rows).enumerate() {
            // The new hold was taken before the old one is given back: the old chunk may be freed
            // by it.
            self.all[id as usize].row = RowRef { chunk, row: place as u32 };
            self.chunks.release(row.chunk, 1);
            self.owners[row.chunk as usize] = Owners::default();
        }
        self.owners[chunk as usize] = Owners { live: rows.len(), is_sparse: false, versions };
        self.chunks.release(chunk, 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use thalweg_core::shim::SplitMix64;
    use thalweg_core::{Column, DataType};

    use super::*;

    fn versions() -> Versions {
        Versions::new(&TableSchema::new(vec![Column::new("v", DataType::BigInt.nullable())]))
    }

    /// A few rows of each bundle stay for ever: memory follows them, and they stay what they were.
    #[test]
    fn chunks_with_few_versions_are_merged() {
        let mut versions = versions();
        let mut random = SplitMix64::new(5);
        let mut expected = vec![-1i64; 5000];
        versions.reserve_keys(expected.len());
        for round in 0..300i64 {
            let values: Vec<i64> = (0..1000).map(|n| round * 1000 + n).collect();
            let column: ArrayRef = Arc::new(Int64Array::from(values.clone()));
            let chunk = versions.add_rows(vec![column], 1000);
            let mut touched = Vec::new();
            for (row, value) in values.into_iter().enumerate() {
                // Most rows are of few keys.
                let key = if row % 50 == 0 { random.below(5000) } else { random.below(20) } as u32;
                versions.insert(key, round, i64::MIN, RowRef { chunk, row: row as u32 });
                expected[key as usize] = value;
                touched.push(key);
            }
            versions.finish_rows(chunk).unwrap();
            touched.into_iter().for_each(|key| assert!(!versions.prune(key, round)));
            versions.merge_sparse().unwrap();
        }
        for (key, &value) in expected.iter().enumerate() {
            match versions.as_of(key as u32, 1000) {
                None => assert_eq!(value, -1),
                Some((_, row)) => {
                    let column = &versions.gather(&[row]).unwrap()[0];
                    assert_eq!(column.as_primitive::<Int64Type>().value(0), value);
                }
            }
        }
        assert!(versions.bytes() < 3_000_000, "{}", versions.bytes());
    }

    /// Whether a deletion has been dropped or not makes no difference.
    #[test]
    fn what_comes_behind_a_deletion_is_seen() {
        for prunes in [false, true] {
            let mut versions = versions();
            versions.reserve_keys(1);
            let column: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2]));
            let first = versions.add_rows(vec![ArrayRef::clone(&column)], 3);
            let second = versions.add_rows(vec![column], 3);
            let row = |row| RowRef { chunk: if row < 2 { first } else { second }, row };
            versions.insert(0, 10, i64::MIN, row(0));
            versions.insert(0, 80, i64::MIN, RowRef::NONE);
            // Behind its watermark, but before the deletion was seen: hidden by it.
            versions.insert(0, 50, 70, row(1));
            let found =
                |versions: &Versions, time| versions.as_of(0, time).map(|found| found.1.row);
            assert_eq!(found(&versions, 60), Some(0));
            assert_eq!(found(&versions, 75), Some(1));
            assert_eq!(found(&versions, 80), None);
            versions.finish_rows(first).unwrap();
            assert!(!prunes || versions.prune(0, 99));
            versions.insert(0, 60, 100, row(2));
            assert_eq!(found(&versions, 99), None);
            assert_eq!(found(&versions, 100), Some(2));
            versions.finish_rows(second).unwrap();
        }
    }
}
