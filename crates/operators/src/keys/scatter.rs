//! Which rows go to which partition: by the hash of their keys.
//!
//! This is what a second worker costs where rows are spread by key, for each row and before anything is done
//! with it. So hashes are computed for some rows at a time, and what stands between hashing and sorting them out stays
//! in the nearest cache.

use arrow_array::{Array, ArrayRef};
use thalweg_core::{Bundle, Result, Route};

use super::hash::hash_into;
use super::partition_of;
use crate::limit::route_to_first;

/// So many rows are hashed at a time.
const BLOCK_ROWS: usize = 256;

/// Partitions are ranges of so many virtual ones, so there are no more.
const PARTITIONS_MAX: usize = 256;

/// Rows by the hash of their key; all to the first partition where there is no key.
pub(crate) fn route_by_keys(bundle: &Bundle, keys: &[usize], partitions: usize) -> Result<Route> {
    if keys.is_empty() || partitions == 1 {
        return Ok(route_to_first(bundle, partitions));
    }
    let column = |&key: &usize| ArrayRef::clone(bundle.batch.column(key));
    let columns: Vec<ArrayRef> = keys.iter().map(column).collect();
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
    let mut parts = vec![Vec::with_capacity(rows / partitions + rows / 8); partitions];
    let mut hashes = [0; BLOCK_ROWS];
    let mut ends = [0; PARTITIONS_MAX];
    let room = rows.min(BLOCK_ROWS);
    let mut sorted = vec![0; partitions * room];
    for from in (0..rows).step_by(BLOCK_ROWS) {
        let block = Block { from, rows: BLOCK_ROWS.min(rows - from) };
        let hashes = &mut hashes[..block.rows];
        hash(block, hashes)?;
        (0..partitions).for_each(|partition| ends[partition] = (partition * room) as u32);
        sort_out(hashes, from as u32, (partitions, &mut ends), &mut sorted);
        for (partition, part) in parts.iter_mut().enumerate() {
            part.extend_from_slice(&sorted[partition * room..ends[partition] as usize]);
        }
    }
    Ok(Route::Scatter(parts))
}

/// Sorts a block out: puts each row where the rows of its partition end so far.
fn sort_out(
    hashes: &[u64],
    first_row: u32,
    (partitions, ends): (usize, &mut [u32; PARTITIONS_MAX]),
    sorted: &mut [u32],
) {
    for (row, &hash) in (first_row..).zip(hashes) {
        // There are at most 256 partitions: as a byte the number needs no look at how many ends there are.
        let end = &mut ends[usize::from(partition_of(hash, partitions) as u8)];
        sorted[*end as usize] = row;
        *end += 1;
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
        ]);
        let id = |row: usize| (!row.is_multiple_of(7)).then_some((row / 3) as i64);
        let name = |row: usize| {
            (!row.is_multiple_of(5)).then(|| format!("a name that is long {}", row % 11))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter((0..rows).map(id))),
            Arc::new(StringViewArray::from_iter((0..rows).map(name))),
        ];
        Bundle::new(RecordBatch::try_new(schema.arrow(), columns).unwrap(), Stamps::first())
    }

    /// Each row is in the list of the partition that its hash names, in the order of the bundle.
    #[test]
    fn rows_go_where_their_hashes_say() {
        for rows in [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, 3 * BLOCK_ROWS + 5] {
            let bundle = bundle(rows);
            for (keys, partitions) in [(vec![0], 2), (vec![1], 5), (vec![0, 1], 256)] {
                let columns: Vec<ArrayRef> =
                    keys.iter().map(|&key| Arc::clone(bundle.batch.column(key))).collect();
                let mut expected = vec![Vec::new(); partitions];
                for (row, hash) in hash_keys(&columns, rows).unwrap().into_iter().enumerate() {
                    expected[partition_of(hash, partitions)].push(row as u32);
                }
                match route_by_keys(&bundle, &keys, partitions).unwrap() {
                    Route::Scatter(parts) => assert_eq!(parts, expected),
                    Route::Any => panic!("rows go by key"),
                }
            }
        }
    }
}
