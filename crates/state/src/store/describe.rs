//! Descriptions of snapshots, without reading the rows that they hold.

use thalweg_core::Result;
use thalweg_core::snapshot::StageState;

use super::{SnapshotHeader, SnapshotStore, header};
use crate::manifest::{StageEntry, TableEntry};
use crate::storage;

/// A table of state, as the manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// Name and type of each column.
    pub columns: Vec<String>,
    /// Rows in its files. Where changes lie on top of older rows, some stand there more than once.
    pub rows: u64,
    /// How many incremental captures followed the full one.
    pub changes: usize,
    /// How many files it has, those included that it shares with earlier snapshots.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
}

/// A snapshot in every detail but the rows of its tables.
#[derive(Clone, Debug)]
pub struct SnapshotDetails {
    /// What it says about itself.
    pub header: SnapshotHeader,
    /// Its stages in topological order, with the tables that they hold.
    pub stages: Vec<StageState<Vec<TableSummary>>>,
}

impl SnapshotStore {
    /// The names of the jobs that have a folder at a location, in order; none if there is nothing.
    ///
    /// # Errors
    /// If the location is of no known kind, is not on this machine, or cannot be read.
    pub fn jobs(location: &str) -> Result<Vec<String>> {
        storage::jobs(location)
    }

    /// The job that a folder of this name is of; none if no job has such a folder.
    pub fn job_of_folder(folder: &str) -> Option<String> {
        storage::job_name(folder)
    }

    /// What a snapshot holds. Its files are not looked at.
    ///
    /// # Errors
    /// If there is no such snapshot, or its manifest cannot be read.
    pub fn describe(&self, number: u64) -> Result<SnapshotDetails> {
        let manifest = self.manifest(number)?;
        let tables = |tables: &[TableEntry]| tables.iter().map(TableSummary::of).collect();
        let stage =
            |stage: &StageEntry| stage.with_state(tables(&stage.state), tables(&stage.waiting));
        let stages = manifest.stages.iter().map(stage).collect();
        Ok(SnapshotDetails { header: header(&manifest)?, stages })
    }
}

impl TableSummary {
    fn of(table: &TableEntry) -> TableSummary {
        let generations = &table.generations;
        let rows = generations.iter().flat_map(|generation| &generation.rows);
        TableSummary {
            name: table.name.clone(),
            columns: table.columns.clone(),
            rows: rows.map(|file| file.rows).fold(0, u64::saturating_add),
            changes: generations.len().saturating_sub(1),
            files: generations.iter().map(|generation| generation.files().count()).sum(),
            bytes: generations
                .iter()
                .map(|generation| generation.bytes())
                .fold(0, u64::saturating_add),
        }
    }
}
