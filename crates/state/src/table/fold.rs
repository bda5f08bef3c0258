//! Folding: the rows of a table whose snapshot holds only what has changed.
//!
//! A table is a chain of generations, oldest first: the first is full, each later one has rows
//! that are new or changed, identities of rows that went, and perhaps partitions that were captured
//! in full again. A row holds if no newer generation says anything about it:
//! - its identity (its first columns) is not named, as a row or as removed, by a newer generation.
//!   Several rows of one generation may have one identity: they come and go together;
//! - its virtual partition is not one of a partition that a newer generation captures in full. Rows
//!   that are for all partitions count as captured by the first partition;
//! - it has not expired: its time, in the second column, is not below what its partition keeps, as
//!   any generation says.
//!
//! Rows that hold keep their order: that of generations, files and rows. So folding in steps (a
//! table that was merged on the way) gives the same rows in the same order.
//!
//! # Two passes
//! First the identities of all generations but the oldest are noted with the newest generation that
//! names them. Then any file of any generation is filtered by that, in order. In memory are the
//! identities of what changed, and one file; the oldest generation, which is the large one, streams
//! through.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_row::{Row, RowConverter, Rows, SortField};
use arrow_select::filter::filter_record_batch;
use hashbrown::HashTable;
use thalweg_core::snapshot::partition_of_virtual;
use thalweg_core::{Error, Result};

use super::times;
use crate::checksum;

/// Virtual partitions, and one more for rows that are for all of them.
const OWNERS: usize = 257;
const FOR_ALL: usize = 256;

/// Knows which rows of a chain of generations hold.
pub(crate) struct Fold {
    identity_columns: usize,
    /// `None` until something is noted.
    identities: Option<Identities>,
    /// By owner: the newest generation that captures it in full.
    whole: [usize; OWNERS],
    /// By owner: below this time nothing is kept. `None` where rows do not expire.
    kept_from: Option<[i64; OWNERS]>,
}

/// Identities, and for each the newest generation that names it.
struct Identities {
    converter: RowConverter,
    /// Each once.
    rows: Rows,
    newest: Vec<usize>,
    /// Places in `rows`, by hash.
    places: HashTable<usize>,
}

impl Identities {
    fn new(columns: &[ArrayRef]) -> Result<Identities> {
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let rows = converter.empty_rows(0, 0);
        Ok(Identities { converter, rows, newest: Vec::new(), places: HashTable::new() })
    }

    fn note(&mut self, generation: usize, columns: &[ArrayRef]) -> Result<()> {
        let identities = self.converter.convert_columns(columns).map_err(|_| misfit())?;
        let mut before = None;
        for own in identities.iter() {
            // Rows of one identity stand together, if there are several.
            if before.replace(own) != Some(own) {
                self.note_one(generation, own);
            }
        }
        Ok(())
    }

    fn note_one(&mut self, generation: usize, own: Row<'_>) {
        let hash = checksum::hash(own.data());
        let rows = &mut self.rows;
        match self.places.find(hash, |other| rows.row(*other) == own) {
            Some(&known) => self.newest[known] = generation,
            None => {
                rows.push(own);
                self.newest.push(generation);
                let hash_of = |other: &usize| checksum::hash(rows.row(*other).data());
                self.places.insert_unique(hash, self.newest.len() - 1, hash_of);
            }
        }
    }

    /// For each row, the newest generation that names it; 0 where none does.
    fn newest_of(&self, columns: &[ArrayRef]) -> Result<Vec<usize>> {
        let rows = self.converter.convert_columns(columns).map_err(|_| misfit())?;
        let mut newest = Vec::with_capacity(rows.num_rows());
        let mut before: Option<(Row<'_>, usize)> = None;
        for row in &rows {
            let own = match before {
                // Rows of one identity stand together, if there are several.
                Some((same, own)) if same == row => own,
                _ => self.newest_of_one(row),
            };
            before = Some((row, own));
            newest.push(own);
        }
        Ok(newest)
    }

    fn newest_of_one(&self, row: Row<'_>) -> usize {
        let hash = checksum::hash(row.data());
        let place = self.places.find(hash, |other| self.rows.row(*other) == row);
        place.map_or(0, |&place| self.newest[place])
    }
}

impl Fold {
    /// Nothing is noted yet. This many first columns identify a row.
    pub fn new(identity_columns: usize) -> Fold {
        Fold { identity_columns, identities: None, whole: [0; OWNERS], kept_from: None }
    }

    /// Notes below which time nothing is kept, by partition. Nothing is noted of what does not
    /// expire.
    pub fn note_kept_from(&mut self, kept_from: &[i64]) {
        let Some(first) = kept_from.first() else { return };
        let own = self.kept_from.get_or_insert([i64::MIN; OWNERS]);
        for virtual_partition in 0..=u8::MAX {
            let partition = partition_of_virtual(virtual_partition, kept_from.len());
            let own = &mut own[usize::from(virtual_partition)];
            *own = kept_from[partition].max(*own);
        }
        own[FOR_ALL] = own[FOR_ALL].max(*first);
    }

    /// Notes identities that a generation names, as rows or as removed. Generations come in order.
    ///
    /// # Errors
    /// If the columns are not those of an identity, or of types that cannot be compared.
    pub fn note(&mut self, generation: usize, batch: &RecordBatch) -> Result<()> {
        let columns = self.identity(batch)?;
        let identities = match &mut self.identities {
            Some(identities) => identities,
            none => none.insert(Identities::new(columns)?),
        };
        identities.note(generation, columns)
    }

    fn identity<'a>(&self, batch: &'a RecordBatch) -> Result<&'a [ArrayRef]> {
        batch.columns().get(..self.identity_columns).ok_or_else(misfit)
    }

    /// Notes which partitions, of this many, a generation captures in full.
    pub fn note_whole(&mut self, generation: usize, whole: &[usize], partitions: usize) {
        for virtual_partition in 0..=u8::MAX {
            if whole.contains(&partition_of_virtual(virtual_partition, partitions)) {
                self.whole[usize::from(virtual_partition)] = generation;
            }
        }
        if whole.contains(&0) {
            self.whole[FOR_ALL] = generation;
        }
    }

    /// The rows of a batch of a generation that hold.
    ///
    /// # Errors
    /// If the batch is not of the table.
    pub fn hold(&self, generation: usize, batch: &RecordBatch) -> Result<RecordBatch> {
        let owners = batch.columns().first().and_then(|c| c.as_primitive_opt::<UInt8Type>());
        let owners = owners.ok_or_else(misfit)?;
        let newest = match &self.identities {
            Some(identities) => identities.newest_of(self.identity(batch)?)?,
            None => vec![0; batch.num_rows()],
        };
        let expiry = |kept_from| -> Result<_> { Ok((kept_from, times(batch)?)) };
        let times = self.kept_from.as_ref().map(expiry).transpose()?;
        let is_kept = |row: usize, owner: usize| {
            times.as_ref().is_none_or(|(kept_from, times)| times[row] >= kept_from[owner])
        };
        let holds = |(row, (owner, newest)): (usize, (Option<u8>, usize))| {
            let owner = owner.map_or(FOR_ALL, usize::from);
            let is_newest = newest <= generation && self.whole[owner] <= generation;
            Some(is_newest && is_kept(row, owner))
        };
        let holding: BooleanArray = owners.iter().zip(newest).enumerate().map(holds).collect();
        if holding.true_count() == batch.num_rows() {
            return Ok(batch.clone());
        }
        Ok(filter_record_batch(batch, &holding)?)
    }
}

fn misfit() -> Error {
    Error::data("what changed of a table does not fit the table")
        .hint("the snapshot was written by something else; use an older one")
}
