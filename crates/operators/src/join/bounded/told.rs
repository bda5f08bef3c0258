//! What captures tell of kept rows that never change: those that have come since the last one, those that
//! have found their first partner since, and the names of those that have gone.
//!
//! A capture takes chunks as they are, which costs nothing by row but a bit; they are made into rows of a
//! table later. A row is named by its arrival, which is its serial in the table.
//!
//! Rows go with their chunk. Until then a table has also those that time has passed: whoever takes rows back
//! leaves them out.

use arrow_array::ArrayRef;
use thalweg_core::{Extent, Result};

use super::pieces::keys_of;
use crate::keys::hash_keys;
use crate::tables::virtual_partition;
use crate::watch::GONE_MIN;
use crate::watch::rows::RowName;

/// What is to be known of some rows of a chunk, few as a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Rows that are not kept.
    pub(crate) left_out: Vec<u32>,
    /// The lowest time of a partner, where a row's own time does not say it.
    pub(crate) reaches: Vec<(u32, i64)>,
    /// The watermark at which a row has gone, where its own time does not say it.
    pub(crate) dues: Vec<(u32, i64)>,
}

impl Notes {
    pub(crate) fn bytes(&self) -> usize {
        let timed = self.reaches.capacity() + self.dues.capacity();
        self.left_out.capacity() * size_of::<u32>() + timed * size_of::<(u32, i64)>()
    }
}

/// A chunk at a capture.
pub(crate) struct ToldChunk {
    pub(crate) columns: Vec<ArrayRef>,
    pub(crate) rows: usize,
    /// The arrival of its first row.
    pub(crate) first: u64,
    pub(crate) notes: Notes,
    /// A bit for each row; empty where nobody asks.
    pub(crate) matched: Vec<u64>,
    /// A bit for each row that is told; all are where it is `None`.
    pub(crate) wanted: Option<Vec<u64>>,
}

/// What a capture takes.
pub(crate) struct ToldChunks {
    /// How much it tells.
    pub(crate) extent: Extent,
    /// By arrival.
    pub(crate) chunks: Vec<ToldChunk>,
    /// Rows that have gone.
    pub(crate) gone: Vec<RowName>,
}

/// What is known of chunks between captures.
pub(super) struct ChunkWatch {
    /// The key columns.
    pub(super) keys: Vec<usize>,
    /// Rows that arrived before this one were told by the last capture; `None` if the next tells all.
    pub(super) told: Option<u64>,
    /// Chunks that were added since.
    pub(super) fresh: Vec<u32>,
    /// Chunks of before with rows that have found their first partner since.
    pub(super) rematched: Vec<u32>,
    pub(super) gone: Vec<RowName>,
}

impl ChunkWatch {
    /// The next capture tells everything.
    pub(super) fn new(keys: &[usize]) -> Self {
        let (fresh, rematched, gone) = (Vec::new(), Vec::new(), Vec::new());
        ChunkWatch { keys: keys.to_vec(), told: None, fresh, rematched, gone }
    }

    /// A chunk has come; there are so many. If there have been more since the last capture, there may be no
    /// other one, and it would be as well to tell everything.
    pub(super) fn come(&mut self, chunk: u32, live: usize) {
        if self.told.is_none() {
            return;
        }
        self.fresh.push(chunk);
        if self.fresh.len() > live.max(GONE_MIN) {
            *self = ChunkWatch::new(&self.keys);
        }
    }

    /// Rows have gone, the first of which arrived as this one. So many are there.
    pub(super) fn gone(&mut self, columns: &[ArrayRef], first: u64, rows: usize, live: usize) {
        if self.told.is_none_or(|told| first >= told) {
            return;
        }
        let named = self.names(columns, first, rows);
        if named.is_err() || self.gone.len() > live.max(GONE_MIN) {
            *self = ChunkWatch::new(&self.keys);
        }
    }

    fn names(&mut self, columns: &[ArrayRef], first: u64, rows: usize) -> Result<()> {
        let hashes = hash_keys(&keys_of(columns, &self.keys), rows)?;
        let owners = hashes.into_iter().map(virtual_partition);
        self.gone.extend(owners.zip(first..));
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        (self.fresh.capacity() + self.rematched.capacity()) * size_of::<u32>()
            + self.gone.capacity() * size_of::<RowName>()
    }
}
