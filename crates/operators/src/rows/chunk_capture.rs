//! What captures write of kept rows that never change: those that have come since the last one,
//! those that have found their first partner since, and the names of those that have gone.
//!
//! A capture takes chunks as they are, which costs nothing by row but a bit; they are made into
//! rows of a table later. A row is named by its arrival, which is its serial in the table.
//!
//! Rows go with their chunk. Until then a table has also those that time has passed: whoever takes
//! rows back leaves them out.
//!
//! **Why names of rows need the key columns:** a removal names a row by virtual partition and
//! serial, and the partition follows from the key. The columns of a chunk are there until it is
//! freed, so its rows are named at that moment.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::coalesce::BatchCoalescer;
use thalweg_core::{Extent, Result, RowKind};

use super::chunks::Chunk;
use crate::capture::GONE_MIN;
use crate::capture::rows::RowName;
use crate::capture::serials::SerialTracker;
use crate::keys::hash_keys;
use crate::rows::columns::keys_of;
use crate::tables::{KEPT_ROWS_MAX, virtual_partition};

/// What is to be known of some rows of a chunk, few as a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Rows that are not kept.
    pub(crate) left_out: Vec<u32>,
    /// The lowest time of a partner, where a row's own time does not say it.
    pub(crate) reaches: Vec<(u32, i64)>,
    /// The watermark at which a row has gone, where its own time does not say it.
    pub(crate) dues: Vec<(u32, i64)>,
    /// What rows do that are not inserted.
    pub(crate) kinds: Vec<(u32, RowKind)>,
}

impl Notes {
    /// True where times of rows are noted.
    pub fn is_timed(&self) -> bool {
        !(self.reaches.is_empty() && self.dues.is_empty())
    }

    /// The rows of which times are noted, in order.
    pub fn timed(&self) -> Vec<u32> {
        let times = self.reaches.iter().chain(&self.dues);
        let mut rows: Vec<u32> = times.map(|&(row, _)| row).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    pub fn bytes(&self) -> usize {
        let timed = self.reaches.capacity() + self.dues.capacity();
        self.left_out.capacity() * size_of::<u32>()
            + timed * size_of::<(u32, i64)>()
            + self.kinds.capacity() * size_of::<(u32, RowKind)>()
    }
}

/// A chunk at a capture.
#[derive(Clone)]
pub(crate) struct CapturedChunk {
    pub(crate) columns: Vec<ArrayRef>,
    pub(crate) rows: usize,
    /// The arrival of its first row.
    pub(crate) first: u64,
    pub(crate) notes: Notes,
    /// A bit for each row; empty where nobody asks.
    pub(crate) matched: Vec<u64>,
    /// A bit for each row that is captured; all are where it is `None`.
    pub(crate) wanted: Option<Vec<u64>>,
}

/// What a capture takes.
pub(crate) struct CapturedChunks {
    /// Whether it is full or incremental.
    pub(crate) extent: Extent,
    /// By arrival.
    pub(crate) chunks: Vec<CapturedChunk>,
    /// Rows that have gone.
    pub(crate) gone: Vec<RowName>,
    /// Those among them of which times were noted.
    pub(crate) gone_timed: Vec<RowName>,
}

/// What is known of chunks between captures.
pub(super) struct ChunkTracker {
    /// The key columns; `None` where rows expire and need no names when they go.
    pub(super) keys: Option<Vec<usize>>,
    /// Which rows the last capture has, by arrival.
    pub(super) arrivals: SerialTracker,
    /// Chunks that were added since.
    pub(super) fresh: Vec<u32>,
    /// Chunks of before with rows that have found their first partner since.
    pub(super) rematched: Vec<u32>,
    pub(super) gone: Vec<RowName>,
    /// Those among them of which times were noted.
    pub(super) gone_timed: Vec<RowName>,
    /// This many rows have been written since the last full capture, what that wrote included.
    pub(super) written: u64,
}

impl ChunkTracker {
    /// The next capture is full.
    pub fn new(keys: Option<&[usize]>) -> Self {
        let (fresh, rematched) = (Vec::new(), Vec::new());
        let (gone, gone_timed) = (Vec::new(), Vec::new());
        let keys = keys.map(<[usize]>::to_vec);
        ChunkTracker {
            keys,
            arrivals: SerialTracker::default(),
            fresh,
            rematched,
            gone,
            gone_timed,
            written: 0,
        }
    }

    /// A chunk has come; there are this many. If there have been more since the last capture, there
    /// may be no other one, and a full one would do as well.
    pub fn come(&mut self, chunk: u32, live: usize) {
        if self.arrivals.captured().is_none() {
            return;
        }
        self.fresh.push(chunk);
        if self.fresh.len() > live.max(GONE_MIN) {
            self.stop();
        }
    }

    /// A chunk has gone. This many rows are there.
    pub fn gone(&mut self, chunk: &Chunk, live: usize) {
        if self.arrivals.captured().is_none_or(|captured| chunk.first_arrival >= captured) {
            return;
        }
        let named = self.name(chunk);
        if named.is_err() || self.gone.len() > live.max(GONE_MIN) {
            self.stop();
        }
    }

    /// Notes no changes any more: the next capture is full.
    pub fn stop(&mut self) {
        *self = ChunkTracker { written: self.written, ..ChunkTracker::new(self.keys.as_deref()) };
    }

    fn name(&mut self, chunk: &Chunk) -> Result<()> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let hashes = hash_keys(&keys_of(&chunk.columns, keys), chunk.rows)?;
        let name = |row: usize| (virtual_partition(hashes[row]), chunk.first_arrival + row as u64);
        self.gone.extend((0..chunk.rows).map(name));
        let timed = chunk.notes.timed();
        self.gone_timed.extend(timed.into_iter().map(|row| name(row as usize)));
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        (self.fresh.capacity() + self.rematched.capacity()) * size_of::<u32>()
            + (self.gone.capacity() + self.gone_timed.capacity()) * size_of::<RowName>()
    }
}

/// Few rows come together as a rule: makes batches of many.
///
/// # Errors
/// Those of the batches.
pub(crate) fn together(
    schema: &SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch>>,
) -> Result<Vec<RecordBatch>> {
    let mut rows = BatchCoalescer::new(Arc::clone(schema), KEPT_ROWS_MAX);
    let mut together = Vec::new();
    for batch in batches {
        rows.push_batch(batch?)?;
        together.extend(rows.next_completed_batch());
    }
    rows.finish_buffered_batch()?;
    while let Some(batch) = rows.next_completed_batch() {
        together.push(batch);
    }
    Ok(together)
}
