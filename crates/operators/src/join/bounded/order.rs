//! The order of keys in the contracts that promise a sequence: by virtual partition, then key bytes.
//! Ranks number it, so that rows are sorted by numbers. In `epoch` nothing is promised and every rank
//! is 0.

use arrow_array::ArrayRef;
use thalweg_core::{DataType, OrderContract, Result};

use crate::keys::{CanonicalOrder, KeyTable};

/// Ranks keys.
pub(crate) struct KeyRanks {
    types: Vec<DataType>,
    canonical: Option<CanonicalOrder>,
}

impl KeyRanks {
    /// Ranks of keys of these types, as the contract asks.
    pub(crate) fn new(order: OrderContract, types: &[DataType]) -> Result<Self> {
        let canonical = CanonicalOrder::wanted(order, types)?;
        Ok(KeyRanks { types: types.to_vec(), canonical })
    }

    /// True if ranks differ at all.
    pub(crate) fn is_ordered(&self) -> bool {
        self.canonical.is_some()
    }

    /// The live ids of a table in their order. Ids must not be named twice.
    pub(crate) fn sorted(&self, keys: &KeyTable, ids: &[u32]) -> Result<Vec<u32>> {
        match &self.canonical {
            None => Ok(ids.to_vec()),
            Some(canonical) => {
                let places = canonical.permutation(keys, ids, |_| 0)?;
                Ok(places.into_iter().map(|place| ids[place as usize]).collect())
            }
        }
    }

    /// The rank of each id that is named, by id; that of others is meaningless.
    pub(crate) fn by_id(&self, keys: &KeyTable, mut ids: Vec<u32>) -> Result<Vec<u32>> {
        ids.sort_unstable();
        ids.dedup();
        let mut ranks = vec![0; keys.id_limit()];
        for (rank, id) in self.sorted(keys, &ids)?.into_iter().enumerate() {
            ranks[id as usize] = rank as u32;
        }
        Ok(ranks)
    }

    /// The rank of each row's key; the rows of both sides together.
    pub(crate) fn of_rows(&self, sides: [(Vec<ArrayRef>, usize); 2]) -> Result<[Vec<u32>; 2]> {
        if !self.is_ordered() {
            return Ok(sides.map(|(_, rows)| vec![0; rows]));
        }
        let mut table = KeyTable::new(&self.types)?;
        let mut ids = [Vec::new(), Vec::new()];
        for ((columns, rows), ids) in sides.iter().zip(&mut ids) {
            if *rows > 0 {
                table.intern_rows(columns, None, *rows, ids)?;
            }
        }
        let ranks = self.by_id(&table, ids.concat())?;
        Ok(ids.map(|ids| ids.into_iter().map(|id| ranks[id as usize]).collect()))
    }
}
