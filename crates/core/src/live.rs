//! Tables that can be asked while a job keeps them current: the versions that readers see.
//!
//! The job stages a version at each cut and publishes it once the snapshot of that cut is durable.
//! A reader takes the published version and keeps it for as long as it reads: writers never wait
//! for readers, and a version is freed when its last reader has gone.
//!
//! **Invariants**
//! - a version shows all rows before one cut of the job and none behind it;
//! - versions that are published have ascending numbers;
//! - a version never changes: it shares its chunks with others, and a chunk that changes is copied.
//!
//! What it does not do: it does not keep rows by key. The operator that does is in
//! `thalweg-operators`.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;

use crate::error::Result;
use crate::types::TableSchema;

/// Up to how many versions wait for their snapshots: of those that fail none is published.
const STAGED_MAX: usize = 8;

/// Rows of a version, and which of them are there.
#[derive(Clone, Debug)]
pub struct LiveChunk {
    /// The rows.
    pub rows: RecordBatch,
    /// The serial of each: that of no other row of the table, and the same in every version.
    pub serials: Arc<Vec<u64>>,
    /// One bit for each row, the least significant one first; the row is there where it is set.
    pub alive: Arc<Vec<u64>>,
    /// How many are there.
    pub live: usize,
}

impl LiveChunk {
    /// True if the row is there.
    pub fn is_alive(&self, row: usize) -> bool {
        self.alive[row / 64] >> (row % 64) & 1 == 1
    }

    /// The rows that are there.
    ///
    /// # Errors
    /// None that is expected.
    pub fn live_rows(&self) -> Result<RecordBatch> {
        if self.live == self.rows.num_rows() {
            return Ok(self.rows.clone());
        }
        self.rows_where(|_| true)
    }

    /// The rows that are there and of which this is true.
    fn rows_where(&self, is_wanted: impl Fn(usize) -> bool) -> Result<RecordBatch> {
        let wanted = |row| Some(self.is_alive(row) && is_wanted(row));
        let wanted: BooleanArray = (0..self.rows.num_rows()).map(wanted).collect();
        Ok(filter_record_batch(&self.rows, &wanted)?)
    }

    /// The serials of the rows that are there.
    fn live_serials(&self) -> impl Iterator<Item = u64> + '_ {
        let serials = self.serials.iter().copied().enumerate();
        serials.filter(|&(row, _)| self.is_alive(row)).map(|(_, serial)| serial)
    }
}

/// A table as it was at one cut of its job.
#[derive(Debug)]
pub struct TableVersion {
    /// Its number: those of later cuts are higher.
    pub number: u64,
    /// The wall clock at the cut, in milliseconds since 1970.
    pub as_of_ms: i64,
    /// The run that it is of: serials are those of one run.
    run: u64,
    chunks: Vec<LiveChunk>,
}

/// What makes one version out of another.
#[derive(Debug, Default)]
pub struct VersionChanges {
    /// Rows that are there no more.
    pub gone: Vec<RecordBatch>,
    /// Rows that were not there. One that has changed is among both.
    pub new: Vec<RecordBatch>,
}

impl TableVersion {
    /// How many rows it has.
    pub fn num_rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.live).sum()
    }

    /// Its rows, in no particular order.
    ///
    /// # Errors
    /// None that is expected.
    pub fn batches(&self) -> Result<Vec<RecordBatch>> {
        self.chunks.iter().filter(|chunk| chunk.live > 0).map(LiveChunk::live_rows).collect()
    }

    /// What has changed since an earlier version. Looks at chunks that differ only; after a restart
    /// of the job all rows count as changed.
    ///
    /// # Errors
    /// None that is expected.
    pub fn changes_since(&self, earlier: &TableVersion) -> Result<VersionChanges> {
        let by_chunk = |version: &TableVersion| -> HashMap<_, LiveChunk> {
            let chunks = version.chunks.iter();
            chunks.map(|chunk| (Arc::as_ptr(&chunk.serials), chunk.clone())).collect()
        };
        if earlier.run != self.run {
            return Ok(VersionChanges { gone: earlier.batches()?, new: self.batches()? });
        }
        let (old, new) = (by_chunk(earlier), by_chunk(self));
        let mut changes = VersionChanges::default();
        for (place, chunk) in &old {
            let Some(now) = new.get(place) else { continue };
            if !Arc::ptr_eq(&now.alive, &chunk.alive) {
                changes.gone.push(chunk.rows_where(|row| !now.is_alive(row))?);
            }
        }
        // Rows are moved from chunk to chunk.
        let others =
            |own: &HashMap<_, LiveChunk>, other: &HashMap<_, LiveChunk>| -> Vec<LiveChunk> {
                let own = own.iter().filter(|(place, _)| !other.contains_key(*place));
                own.map(|(_, chunk)| chunk.clone()).collect()
            };
        let (old, new) = (others(&old, &new), others(&new, &old));
        changes.gone.extend(rows_of_others(&old, &new)?);
        changes.new.extend(rows_of_others(&new, &old)?);
        Ok(changes)
    }
}

/// The rows of chunks that others do not have.
fn rows_of_others(chunks: &[LiveChunk], others: &[LiveChunk]) -> Result<Vec<RecordBatch>> {
    let known: HashSet<u64> = others.iter().flat_map(LiveChunk::live_serials).collect();
    let rows = chunks.iter().map(|chunk| {
        let serials = &chunk.serials;
        chunk.rows_where(|row| !known.contains(&serials[row]))
    });
    rows.filter(|rows| rows.as_ref().map_or(true, |rows| rows.num_rows() > 0)).collect()
}

/// A table that a job keeps current.
#[derive(Debug)]
pub struct LiveTable {
    /// Its columns.
    pub schema: TableSchema,
    /// Its primary key, as positions among the columns.
    pub primary_key: Vec<usize>,
    versions: Mutex<Versions>,
}

#[derive(Debug, Default)]
struct Versions {
    published: Option<Arc<TableVersion>>,
    /// Versions of cuts whose snapshots are not durable yet, oldest first.
    staged: VecDeque<Arc<TableVersion>>,
    /// How many there were.
    count: u64,
    /// The number of the run.
    run: u64,
}

impl LiveTable {
    /// A table without a version.
    pub fn new(schema: TableSchema, primary_key: Vec<usize>) -> Self {
        LiveTable { schema, primary_key, versions: Mutex::default() }
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().expect("no panic under this lock")
    }

    /// The newest version that is published; none before the first cut.
    pub fn version(&self) -> Option<Arc<TableVersion>> {
        self.versions().published.clone()
    }

    /// Forgets what another run has staged. What is published stays until a newer version comes.
    pub fn begin_run(&self) {
        let mut versions = self.versions();
        versions.run += 1;
        versions.staged.clear();
    }

    /// Adds a version that nobody sees yet.
    pub fn stage(&self, chunks: Vec<LiveChunk>, as_of_ms: i64) {
        let mut versions = self.versions();
        versions.count += 1;
        let (number, run) = (versions.count, versions.run);
        versions.staged.push_back(Arc::new(TableVersion { number, as_of_ms, run, chunks }));
        if versions.staged.len() > STAGED_MAX {
            versions.staged.pop_front();
        }
    }

    /// The number of the newest version that is staged.
    pub fn newest_staged(&self) -> Option<u64> {
        self.versions().staged.back().map(|version| version.number)
    }

    /// Publishes the newest staged version with at most this number.
    pub fn publish(&self, number: u64) {
        let mut versions = self.versions();
        while versions.staged.front().is_some_and(|version| version.number <= number) {
            versions.published = versions.staged.pop_front();
        }
    }
}

/// The tables that a job, or the jobs of a session, keep current, by their names.
#[derive(Debug, Default)]
pub struct LiveTables {
    tables: Mutex<BTreeMap<String, Arc<LiveTable>>>,
}

impl LiveTables {
    fn tables(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveTable>>> {
        self.tables.lock().expect("no panic under this lock")
    }

    /// The table with this name.
    pub fn get(&self, name: &str) -> Option<Arc<LiveTable>> {
        self.tables().get(name).cloned()
    }

    /// The table with this name, these columns and this key: the one that is there, with its
    /// version, or a new one in its place.
    pub fn open(&self, name: &str, schema: &TableSchema, primary_key: &[usize]) -> Arc<LiveTable> {
        let mut tables = self.tables();
        let known = tables.get(name);
        let fits =
            |table: &&Arc<LiveTable>| table.schema == *schema && table.primary_key == primary_key;
        if let Some(table) = known.filter(fits) {
            return Arc::clone(table);
        }
        let table = Arc::new(LiveTable::new(schema.clone(), primary_key.to_vec()));
        tables.insert(name.to_owned(), Arc::clone(&table));
        table
    }

    /// All tables, sorted by name.
    pub fn all(&self) -> Vec<(String, Arc<LiveTable>)> {
        self.tables().iter().map(|(name, table)| (name.clone(), Arc::clone(table))).collect()
    }
}
