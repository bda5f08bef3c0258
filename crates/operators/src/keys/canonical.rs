//! The order in which the groups of a window leave in ordered contracts (design.md §1): by virtual
//! partition, then by key bytes. It depends on the keys alone, so it is the same for every number
//! of partitions: a partition owns a range of whole virtual partitions.

use arrow_row::{RowConverter, SortField};
use thalweg_core::{DataType, OrderContract, Result};

use super::KeyTable;

/// Sorts groups into their canonical order.
pub struct CanonicalOrder {
    fields: Vec<SortField>,
}

impl CanonicalOrder {
    /// An order of keys of these types, if the contract asks for one.
    ///
    /// # Errors
    /// If a type has no order of bytes.
    pub fn wanted(order: OrderContract, types: &[DataType]) -> Result<Option<CanonicalOrder>> {
        if !order.is_ordered() {
            return Ok(None);
        }
        let fields: Vec<SortField> = types.iter().map(|t| SortField::new(t.arrow())).collect();
        RowConverter::new(fields.clone())?;
        Ok(Some(CanonicalOrder { fields }))
    }

    /// The places of these keys in canonical order. `major` comes before the virtual partition: the
    /// end of a window, where several windows leave together.
    ///
    /// # Errors
    /// If a key cannot be encoded.
    pub fn permutation(
        &self,
        keys: &KeyTable,
        ids: &[u32],
        major: impl Fn(usize) -> i64,
    ) -> Result<Vec<u32>> {
        let mut places: Vec<u32> = (0..ids.len() as u32).collect();
        if self.fields.is_empty() || ids.len() < 2 {
            places.sort_by_key(|&place| major(place as usize));
            return Ok(places);
        }
        let converter = RowConverter::new(self.fields.clone())?;
        let rows = converter.convert_columns(&keys.take_keys(ids)?)?;
        let virtual_partition = |place: usize| keys.hash_of(ids[place]) >> 56;
        places.sort_unstable_by(|&a, &b| {
            let (a, b) = (a as usize, b as usize);
            let coarse = |place| (major(place), virtual_partition(place));
            coarse(a).cmp(&coarse(b)).then_with(|| rows.row(a).cmp(&rows.row(b)))
        });
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};

    use crate::keys::partition_of;

    #[test]
    fn the_order_of_all_keys_is_that_of_the_partitions_one_behind_the_other() {
        let types = [DataType::BigInt];
        let canonical = CanonicalOrder::wanted(OrderContract::Arrival, &types)
            .expect("integers have an order")
            .expect("an ordered contract");
        let sorted = |values: &[i64]| -> Vec<i64> {
            let mut table = KeyTable::new(&types).expect("one integer");
            let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
            let mut ids = Vec::new();
            table.intern(&[column], None, &mut ids).expect("interned");
            let places = canonical.permutation(&table, &ids, |_| 0).expect("sorted");
            places.iter().map(|&place| values[place as usize]).collect()
        };
        let all: Vec<i64> = (-500..500).map(|n| n * 7919).collect();
        let expected = sorted(&all);
        let reversed: Vec<i64> = all.iter().rev().copied().collect();
        assert_eq!(sorted(&reversed), expected, "whatever order they came in");
        for partitions in [1, 2, 3, 4, 7, 8, 32, 256] {
            let of = |partition: usize| -> Vec<i64> {
                let owner = |n: &i64| {
                    partition_of(thalweg_core::shim::mix64(*n as u64), partitions) == partition
                };
                sorted(&all.iter().copied().filter(owner).collect::<Vec<_>>())
            };
            let joined: Vec<i64> = (0..partitions).flat_map(of).collect();
            assert_eq!(joined, expected, "{partitions} partitions");
        }
        assert!(CanonicalOrder::wanted(OrderContract::Epoch, &types).expect("fine").is_none());
    }
}
