//! Keys of any other shape: each key is encoded to bytes that are equal exactly when the keys are.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType as Arrow;
use hashbrown::HashTable;
use thalweg_core::{Error, Result};

use super::hash::{canonical_f32, canonical_f64, hash_keys};
use super::{ABSENT, Ids, probe_hash, select};

pub(super) struct RowTable {
    converter: RowConverter,
    table: HashTable<u32>,
    /// The encoded key of each id; empty for free ids.
    encoded: Vec<Box<[u8]>>,
    encoded_bytes: usize,
}

impl RowTable {
    pub(super) fn new(types: Vec<Arrow>) -> Result<Self> {
        let fields: Vec<SortField> = types.into_iter().map(SortField::new).collect();
        if !RowConverter::supports_fields(&fields) {
            return Err(Error::unsupported("grouping by a column of this type")
                .hint("group by the fields inside it, or CAST it to STRING"));
        }
        Ok(RowTable {
            converter: RowConverter::new(fields)?,
            table: HashTable::new(),
            encoded: Vec::new(),
            encoded_bytes: 0,
        })
    }

    pub(super) fn intern(
        &mut self,
        ids: &mut Ids,
        columns: &[ArrayRef],
        rows: Option<&[u32]>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let columns: Vec<ArrayRef> =
            columns.iter().map(|c| select(c, rows).map(canonical)).collect::<Result<_>>()?;
        let encoded = self.converter.convert_columns(&columns)?;
        let hashes = hash_keys(&columns, encoded.num_rows())?;
        out.reserve(hashes.len());
        for (row, &hash) in encoded.iter().zip(&hashes) {
            out.push(self.id(ids, row.data(), hash));
        }
        Ok(())
    }

    /// Appends the ids of keys that are there.
    pub(super) fn find(&self, ids: &Ids, columns: &[ArrayRef], out: &mut Vec<u32>) -> Result<()> {
        let columns: Vec<ArrayRef> = columns.iter().cloned().map(canonical).collect();
        let encoded = self.converter.convert_columns(&columns)?;
        let hashes = hash_keys(&columns, encoded.num_rows())?;
        let rows = encoded.iter().zip(&hashes);
        out.extend(rows.map(|(row, &hash)| self.find_one(ids, row.data(), hash).unwrap_or(ABSENT)));
        Ok(())
    }

    #[inline]
    fn find_one(&self, ids: &Ids, bytes: &[u8], hash: u64) -> Option<u32> {
        let is_it =
            |&id: &u32| ids.hashes[id as usize] == hash && *self.encoded[id as usize] == *bytes;
        self.table.find(probe_hash(hash), is_it).copied()
    }

    #[inline]
    fn id(&mut self, ids: &mut Ids, bytes: &[u8], hash: u64) -> u32 {
        if let Some(id) = self.find_one(ids, bytes, hash) {
            return id;
        }
        let id = ids.assign(hash);
        let hashes = &ids.hashes;
        self.table.insert_unique(probe_hash(hash), id, |&id| probe_hash(hashes[id as usize]));
        if self.encoded.len() <= id as usize {
            self.encoded.push(bytes.into());
        } else {
            self.encoded[id as usize] = bytes.into();
        }
        self.encoded_bytes += bytes.len();
        id
    }

    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        if let Ok(entry) = self.table.find_entry(probe_hash(hash), |&other| other == id) {
            entry.remove();
        }
        self.encoded_bytes -= self.encoded[id as usize].len();
        self.encoded[id as usize] = Box::default();
    }

    pub(super) fn take(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let rows = ids.iter().map(|&id| parser.parse(&self.encoded[id as usize]));
        Ok(self.converter.convert_rows(rows)?)
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.allocation_size() + self.encoded.capacity() * 16 + self.encoded_bytes
    }
}

/// All NaN are one key.
fn canonical(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        Arrow::Float64 => {
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(canonical_f64))
        }
        Arrow::Float32 => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(canonical_f32))
        }
        _ => column,
    }
}
