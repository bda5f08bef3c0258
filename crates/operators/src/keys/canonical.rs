//! The order in which the groups of a window leave in ordered contracts: by virtual
//! partition, then by key bytes. It depends on the keys alone, so it is the same for every number
//! of partitions: a partition owns a range of whole virtual partitions.
//!
//! ```text
//! sorted as one number:  | virtual partition | is a value | first 8 bytes of the key | place |
//! bits                   | 8 (from 97)       | 1 (96)     | 64 (from 32)             | 32    |
//! ```
//!
//! NULL sorts first, as in Arrow's row format. Keys that agree in all of that are sorted by their
//! full bytes.

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
        // What follows is compiled once, and not for each caller: sorting is long code.
        let majors: Vec<i64> = (0..ids.len()).map(major).collect();
        if !self.fields.is_empty() && ids.len() > 1 && keys.prefix(ids[0]).is_some() {
            return self.by_prefix(keys, ids, &majors);
        }
        let mut places: Vec<u32> = (0..ids.len() as u32).collect();
        match self.fields.is_empty() || ids.len() < 2 {
            true => sort_by_major(&mut places, &majors),
            false => self.by_bytes(keys, ids, &mut places, &majors)?,
        }
        Ok(places)
    }

    /// Sorts by virtual partition and the first bytes of the keys, which stand in one number next
    /// to the place; where these are equal, by all bytes. Encoding every key to compare it took a
    /// quarter of the time of a word count.
    fn by_prefix(&self, keys: &KeyTable, ids: &[u32], majors: &[i64]) -> Result<Vec<u32>> {
        let coarse = |place: usize| -> u128 {
            let virtual_partition = u128::from(keys.hash_of(ids[place]) >> 56);
            let (is_value, first) = keys.prefix(ids[place]).unwrap_or_default();
            virtual_partition << 97 | u128::from(is_value) << 96 | u128::from(first) << 32
        };
        let mut sorted: Vec<u128> =
            (0..ids.len()).map(|place| coarse(place) | place as u128).collect();
        sorted.sort_unstable();
        let mut places: Vec<u32> = sorted.iter().map(|&packed| packed as u32).collect();
        let same = |a: &u128, b: &u128| a >> 32 == b >> 32;
        let mut from = 0;
        for tied in sorted.chunk_by(same) {
            let to = from + tied.len();
            if tied.len() > 1 {
                self.by_bytes(keys, ids, &mut places[from..to], majors)?;
            }
            from = to;
        }
        sort_by_major(&mut places, majors);
        Ok(places)
    }

    /// Sorts places by all that counts.
    fn by_bytes(
        &self,
        keys: &KeyTable,
        ids: &[u32],
        places: &mut [u32],
        majors: &[i64],
    ) -> Result<()> {
        let converter = RowConverter::new(self.fields.clone())?;
        let named: Vec<u32> = places.iter().map(|&place| ids[place as usize]).collect();
        let rows = converter.convert_columns(&keys.take_keys(&named)?)?;
        let coarse = |n: usize| (majors[places[n] as usize], keys.hash_of(named[n]) >> 56);
        let mut order: Vec<usize> = (0..named.len()).collect();
        order.sort_unstable_by(|&a, &b| {
            coarse(a).cmp(&coarse(b)).then_with(|| rows.row(a).cmp(&rows.row(b)))
        });
        let sorted: Vec<u32> = order.into_iter().map(|n| places[n]).collect();
        places.copy_from_slice(&sorted);
        Ok(())
    }
}

/// Sorts places by these numbers; equal ones stay as they are. Few windows leave together, mostly
/// one.
fn sort_by_major(places: &mut [u32], majors: &[i64]) {
    places.sort_by_key(|&place| majors[place as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringViewArray};

    use crate::keys::partition_of;

    /// The short cut over the first bytes gives the order of the encoded keys.
    #[test]
    fn texts_and_integers_with_nulls_have_the_order_of_their_bytes() {
        let texts: StringViewArray = (0..3000)
            .map(|n| match n % 5 {
                0 => Some("x".repeat(n % 40)),
                1 => Some(format!("a common beginning {}", n * 7919 % 3000)),
                2 => Some(format!("common{}", n % 700)),
                3 if n == 3 => None,
                _ => Some(format!("{}\u{0}", n % 900)),
            })
            .collect();
        let integers: Int64Array =
            (0..3000).map(|n| (n != 9).then_some((n - 1500) * 1_000_003)).collect();
        for (column, of) in [
            (Arc::new(texts) as ArrayRef, DataType::STRING),
            (Arc::new(integers) as ArrayRef, DataType::BigInt),
        ] {
            let canonical =
                CanonicalOrder::wanted(OrderContract::Arrival, std::slice::from_ref(&of))
                    .expect("it has an order")
                    .expect("an ordered contract");
            let mut table = KeyTable::new(&[of]).expect("one column");
            let mut ids = Vec::new();
            table.intern(&[column], None, &mut ids).expect("interned");
            ids.sort_unstable();
            ids.dedup();
            let major = |place: usize| (place % 3) as i64;
            let quick = canonical.permutation(&table, &ids, major).expect("sorted");
            let mut slow: Vec<u32> = (0..ids.len() as u32).collect();
            let majors: Vec<i64> = (0..ids.len()).map(major).collect();
            canonical.by_bytes(&table, &ids, &mut slow, &majors).expect("sorted");
            assert_eq!(quick, slow);
        }
    }

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
