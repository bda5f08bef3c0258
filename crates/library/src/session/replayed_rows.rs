//! Rows that are all there, as a source gives them.

use arrow_array::RecordBatch;
use thalweg_core::connector::Waker;
use thalweg_core::{Result, Source, SourcePoll};

use crate::pipeline::MemorySource;

/// Rows in memory, and about how many bytes of them are left to be given.
pub(super) struct ReplayedRows {
    rows: MemorySource,
    rows_left: usize,
    bytes_per_row: usize,
}

impl ReplayedRows {
    /// Begins to give batches, of which each takes as many bytes as `bytes_of` says. Those in front
    /// of a position were given before.
    ///
    /// # Errors
    /// If there are fewer rows than the position says.
    pub fn start(
        batches: Vec<RecordBatch>,
        bytes_of: impl Fn(&RecordBatch) -> usize,
        position: Option<&str>,
        waker: Waker,
    ) -> Result<Self> {
        let rows_left = batches.iter().map(RecordBatch::num_rows).sum();
        let bytes: usize = batches.iter().map(bytes_of).sum();
        let mut rows = MemorySource::replay(batches);
        if let Some(position) = position {
            rows.seek(position)?;
        }
        rows.start(waker)?;
        Ok(ReplayedRows { rows, rows_left, bytes_per_row: bytes / rows_left.max(1) })
    }

    pub fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let polled = self.rows.poll(rows_max)?;
        if let SourcePoll::Batch(given) = &polled {
            self.rows_left = self.rows_left.saturating_sub(given.batch.num_rows());
        }
        Ok(polled)
    }

    pub fn buffered_bytes(&self) -> usize {
        self.rows_left * self.bytes_per_row
    }

    pub fn position(&self) -> Option<String> {
        self.rows.position()
    }
}
