//! Which rows go to which partition: by the hash of their keys.
//!
//! This is what a second worker costs where rows are spread by key, for each row and before
//! anything is done with it. So hashes are computed for some rows at a time, and what stands
//! between hashing and sorting them out stays in the nearest cache.
//!
//! Rows keep the order of the bundle within each partition. Routing is called by any worker at any
//! time, so it has no state.

use arrow_array::{Array, ArrayRef};
use thalweg_core::shim::mix64;
use thalweg_core::{Bundle, Result, Route};

use super::hash::hash_into;
use super::ids::partition_of;
use super::integer;
use crate::rows::columns::keys_of;

/// This many rows are hashed at a time.
const BLOCK_ROWS: usize = 256;

/// Partitions are ranges of this many virtual ones, so there are no more.
const PARTITIONS_MAX: usize = 256;

/// Rows by the hash of their key; all to the first partition where there is no key.
pub(crate) fn route_by_keys(bundle: &Bundle, keys: &[usize], partitions: usize) -> Result<Route> {
    if keys.is_empty() || partitions == 1 {
        return Ok(Route::all_to_first(bundle, partitions));
    }
    let columns = keys_of(bundle.batch.columns(), keys);
    if let [only] = &columns[..]
        && let Some(values) = integer::plain_longs(only)
    {
        return Ok(scatter_longs(values, partitions));
    }
    scatter(bundle.num_rows(), partitions, |rows, hashes| hash_rows(&columns, rows, hashes))
}

/// Some of the rows of a bundle.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) from: usize,
    pub(crate) rows: usize,
}

/// The hashes of some rows of these columns.
pub(crate) fn hash_rows(columns: &[ArrayRef], block: Block, hashes: &mut [u64]) -> Result<()> {
    let some: Vec<ArrayRef> =
        columns.iter().map(|column| column.slice(block.from, block.rows)).collect();
    hash_into(&some, hashes)
}

/// Sorts rows out by hashes, of which some are asked for at a time.
pub(crate) fn scatter(
    rows: usize,
    partitions: usize,
    mut hash: impl FnMut(Block, &mut [u64]) -> Result<()>,
) -> Result<Route> {
    let mut hashes = [0; BLOCK_ROWS];
    let mut parts = Parts::new(rows, partitions);
    for from in (0..rows).step_by(BLOCK_ROWS) {
        let block = Block { from, rows: BLOCK_ROWS.min(rows - from) };
        let hashes = &mut hashes[..block.rows];
        hash(block, hashes)?;
        parts.add(hashes.iter().copied());
    }
    Ok(parts.finish())
}

/// The same for keys that are one integer each and never NULL. Their hashes need not stand
/// anywhere: a row is sorted out while that of the next one is computed.
fn scatter_longs(values: &[i64], partitions: usize) -> Route {
    let mut parts = Parts::new(values.len(), partitions);
    for block in values.chunks(BLOCK_ROWS) {
        parts.add(block.iter().map(|&value| mix64(value as u64)));
    }
    parts.finish()
}

/// The rows of each partition so far.
struct Parts {
    parts: Vec<Vec<u32>>,
    /// Those of a block: each partition has room for all of them.
    sorted: Vec<u32>,
    /// Where those of each partition end.
    ends: [u32; PARTITIONS_MAX],
    room: usize,
    rows: u32,
}

impl Parts {
    fn new(rows: usize, partitions: usize) -> Self {
        let room = rows.min(BLOCK_ROWS);
        let expected = rows / partitions;
        let part = || Vec::with_capacity(expected + expected / 2 + BLOCK_ROWS);
        Parts {
            parts: (0..partitions).map(|_| part()).collect(),
            sorted: vec![0; partitions * room],
            ends: [0; PARTITIONS_MAX],
            room,
            rows: 0,
        }
    }

    /// Sorts the next block out: puts each row where the rows of its partition end so far.
    #[inline]
    fn add(&mut self, hashes: impl ExactSizeIterator<Item = u64>) {
        let Parts { parts, sorted, ends, room, rows } = self;
        let (partitions, count) = (parts.len(), hashes.len() as u32);
        (0..partitions).for_each(|partition| ends[partition] = (partition * *room) as u32);
        for (row, hash) in (*rows..).zip(hashes) {
            // There are at most 256 partitions: as a byte the number needs no look at how many ends
            // there are.
            let end = &mut ends[usize::from(partition_of(hash, partitions) as u8)];
            sorted[*end as usize] = row;
            *end += 1;
        }
        for (partition, part) in parts.iter_mut().enumerate() {
            part.extend_from_slice(&sorted[partition * *room..ends[partition] as usize]);
        }
        *rows += count;
    }

    fn finish(self) -> Route {
        Route::Scatter(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch, StringViewArray};
    use thalweg_core::{Column, DataType, Stamps, TableSchema};

    use super::*;
    use crate::keys::hash_keys;

    fn bundle(rows: usize) -> Bundle {
        let schema = TableSchema::new(vec![
            Column::new("id", DataType::BigInt.nullable()),
            Column::new("name", DataType::STRING.nullable()),
            Column::new("number", DataType::BigInt.not_null()),
        ]);
        let id = |row: usize| (!row.is_multiple_of(7)).then_some((row / 3) as i64);
        let name = |row: usize| {
            (!row.is_multiple_of(5)).then(|| format!("a name that is long {}", row % 11))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter((0..rows).map(id))),
            Arc::new(StringViewArray::from_iter((0..rows).map(name))),
            Arc::new(Int64Array::from_iter_values((0..rows as i64).map(|row| row * 7 - 100))),
        ];
        Bundle::new(RecordBatch::try_new(schema.arrow(), columns).unwrap(), Stamps::first())
    }

    /// Each row is in the list of the partition that its hash names, in the order of the bundle.
    #[test]
    fn rows_go_where_their_hashes_say() {
        for rows in [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, 3 * BLOCK_ROWS + 5] {
            let bundle = bundle(rows);
            for (keys, partitions) in [(vec![0], 2), (vec![1], 5), (vec![0, 1], 256), (vec![2], 3)]
            {
                let columns: Vec<ArrayRef> =
                    keys.iter().map(|&key| Arc::clone(bundle.batch.column(key))).collect();
                let mut expected = vec![Vec::new(); partitions];
                for (row, hash) in hash_keys(&columns, rows).unwrap().into_iter().enumerate() {
                    expected[partition_of(hash, partitions)].push(row as u32);
                }
                match route_by_keys(&bundle, &keys, partitions).unwrap() {
                    Route::Scatter(parts) => assert_eq!(parts, expected),
                    _ => panic!("rows go by key"),
                }
            }
        }
    }
}
