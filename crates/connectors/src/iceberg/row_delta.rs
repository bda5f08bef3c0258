//! What a transaction does to rows by their key (Iceberg calls it a row delta): where the row of
//! each key lies that it has written, and which rows it deletes.
//!
//! - A row that the same delta has written is deleted by its place.
//! - Rows of earlier deltas are deleted by the key, once for each key and delta: an equality delete
//!   concerns files with smaller sequence numbers alone.
//!
//! It holds each key of the delta in memory ([`RowDelta::bytes`]). A transaction with more keys
//! than that is several deltas, which are committed at once.

use std::collections::{BTreeMap, HashMap};

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use thalweg_core::Result;

use super::data_file::RowPlace;
use super::literal::Literal;
use super::schema::TableLayout;

/// About what an entry of a map costs besides the bytes of its key.
const ENTRY_BYTES: usize = 96;

/// The keys of a row delta.
pub struct RowDelta {
    key: Vec<usize>,
    converter: RowConverter,
    keys: HashMap<Box<[u8]>, KeyState>,
    deleted: BTreeMap<Vec<Literal>, Vec<RowPlace>>,
    bytes: usize,
}

struct KeyState {
    /// Rows of earlier deltas are deleted.
    is_deleted: bool,
    /// Where the key's row of this delta lies, if it has one.
    place: Option<RowPlace>,
}

impl RowDelta {
    /// A delta without rows.
    ///
    /// # Errors
    /// If the types of the key cannot be compared, which [`TableLayout::check_key`] rules out.
    pub fn new(layout: &TableLayout) -> Result<RowDelta> {
        let fields = layout.key.iter().map(|&at| SortField::new(layout.fields[at].arrow.clone()));
        Ok(RowDelta {
            key: layout.key.clone(),
            converter: RowConverter::new(fields.collect())?,
            keys: HashMap::new(),
            deleted: BTreeMap::new(),
            bytes: 0,
        })
    }

    /// The keys of rows.
    ///
    /// # Errors
    /// If they have other columns than the table.
    pub fn keys_of(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<_> = self.key.iter().map(|&at| batch.column(at).clone()).collect();
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// Deletes the rows of a key. True if it has to be written, to delete those of earlier deltas.
    pub fn delete(&mut self, key: &[u8], partition: &[Literal]) -> bool {
        self.replace(key, None, partition);
        let state = self.keys.get_mut(key).expect("replace() has added it");
        !std::mem::replace(&mut state.is_deleted, true)
    }

    /// Says where a row of a key is written. A row that this delta has written before is deleted.
    pub fn insert(&mut self, key: &[u8], place: RowPlace, partition: &[Literal]) {
        self.replace(key, Some(place), partition);
    }

    fn replace(&mut self, key: &[u8], place: Option<RowPlace>, partition: &[Literal]) {
        let Some(state) = self.keys.get_mut(key) else {
            self.bytes += key.len() + ENTRY_BYTES;
            self.keys.insert(key.into(), KeyState { is_deleted: false, place });
            return;
        };
        let Some(before) = std::mem::replace(&mut state.place, place) else { return };
        self.bytes += size_of::<RowPlace>();
        match self.deleted.get_mut(partition) {
            Some(places) => places.push(before),
            None => drop(self.deleted.insert(partition.to_vec(), vec![before])),
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends the delta and begins the next one. The places of rows that it has deleted, by partition
    /// and in their order.
    pub fn end(&mut self) -> BTreeMap<Vec<Literal>, Vec<RowPlace>> {
        self.keys.clear();
        self.bytes = 0;
        let mut deleted = std::mem::take(&mut self.deleted);
        deleted.values_mut().for_each(|places| places.sort_unstable());
        deleted
    }
}
