//! The order of keys in the contracts that promise a sequence: by virtual partition, then key
//! bytes. Ranks number it, so that rows are sorted by numbers. In `epoch` nothing is promised and
//! every rank is 0.
//!
//! Ranks are valid for one call only: they number the keys that were named in it. They must not be
//! kept with rows.

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
    pub fn new(order: OrderContract, types: &[DataType]) -> Result<Self> {
        let canonical = CanonicalOrder::wanted(order, types)?;
        Ok(KeyRanks { types: types.to_vec(), canonical })
    }

    /// True if ranks differ at all.
    pub fn is_ordered(&self) -> bool {
        self.canonical.is_some()
    }

    /// The live ids of a table in their order. Ids must not be named twice.
    pub fn sorted(&self, keys: &KeyTable, ids: &[u32]) -> Result<Vec<u32>> {
        match &self.canonical {
            None => Ok(ids.to_vec()),
            Some(canonical) => {
                let places = canonical.permutation(keys, ids, |_| 0)?;
                Ok(places.into_iter().map(|place| ids[place as usize]).collect())
            }
        }
    }

    /// The rank of each id; an id may be named often.
    pub fn of_ids(&self, keys: &KeyTable, ids: &[u32]) -> Result<Vec<u32>> {
        if !self.is_ordered() {
            return Ok(vec![0; ids.len()]);
        }
        let mut distinct = ids.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let mut ranks = vec![0; distinct.len()];
        for (rank, id) in self.sorted(keys, &distinct)?.into_iter().enumerate() {
            let place = distinct.partition_point(|&other| other < id);
            ranks[place] = rank as u32;
        }
        let rank = |&id: &u32| ranks[distinct.partition_point(|&other| other < id)];
        Ok(ids.iter().map(rank).collect())
    }

    /// The rank of each row's key; the rows of both sides together.
    pub fn of_rows(&self, sides: [(Vec<ArrayRef>, usize); 2]) -> Result<[Vec<u32>; 2]> {
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
        let mut ranks = self.of_ids(&table, &ids.concat())?;
        let of_right = ranks.split_off(ids[0].len());
        Ok([ranks, of_right])
    }
}
