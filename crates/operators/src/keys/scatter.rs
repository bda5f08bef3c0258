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
use crate::limit::route_to_first;

/// This many rows are hashed at a time.
const BLOCK_ROWS: usize = 256;

/// Partitions are ranges of this many virtual ones, so there are no more.
const PARTITIONS_MAX: usize = 256;

/// Rows move to the list of their partition when there are this many of them.
const BUFFER_ROWS: usize = 64;

/// Rows by the hash of their key; all to the first partition where there is no key.
pub(crate) fn route_by_keys(bundle: &Bundle, keys: &[usize], partitions: usize) -> Result<Route> {
    if keys.is_empty() || partitions == 1 {
        return Ok(route_to_first(bundle, partitions));
    }
    let column = |&key: &usize| ArrayRef::clone(bundle.batch.column(key));
    let columns: Vec<ArrayRef> = keys.iter().map(column).collect();
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
///
/// Rows are put at the ends of as many lists as there are partitions. Each list has a short buffer,
/// so what is written lies in the nearest cache however many there are, and a list grows by many
/// rows at once.
struct Parts {
    parts: Vec<Vec<u32>>,
    /// The latest rows of each partition.
    buffers: Vec<[u32; BUFFER_ROWS]>,
    /// How many there are.
    filled: [u8; PARTITIONS_MAX],
    rows: u32,
}

impl Parts {
    fn new(rows: usize, partitions: usize) -> Self {
        let expected = rows / partitions;
        let part = || Vec::with_capacity(expected + expected / 4 + BUFFER_ROWS);
        Parts {
            parts: (0..partitions).map(|_| part()).collect(),
            buffers: vec![[0; BUFFER_ROWS]; partitions],
            filled: [0; PARTITIONS_MAX],
            rows: 0,
        }
    }

    /// Sorts the next rows out.
    #[inline]
    fn add(&mut self, hashes: impl ExactSizeIterator<Item = u64>) {
        let Parts { parts, buffers, filled, rows } = self;
        let (partitions, count) = (parts.len(), hashes.len() as u32);
        for (row, hash) in (*rows..).zip(hashes) {
            // There are at most 256 partitions: as a byte the number fits without a look.
            let partition = usize::from(partition_of(hash, partitions) as u8);
            let (buffer, filled) = (&mut buffers[partition], &mut filled[partition]);
            buffer[usize::from(*filled) % BUFFER_ROWS] = row;
            *filled += 1;
            if usize::from(*filled) == BUFFER_ROWS {
                parts[partition].extend_from_slice(buffer);
                *filled = 0;
            }
        }
        *rows += count;
    }

    fn finish(mut self) -> Route {
        for (partition, part) in self.parts.iter_mut().enumerate() {
            let filled = usize::from(self.filled[partition]);
            part.extend_from_slice(&self.buffers[partition][..filled]);
        }
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
