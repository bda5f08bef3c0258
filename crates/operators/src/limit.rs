//! LIMIT and OFFSET without ORDER BY: the first rows in the order in which they arrived.
//!
//! A singleton that takes rows in serial order. It keeps counts, no rows; once the limit is
//! reached it says so (the job may then end early, but need not) and drops what still comes.
//!
//! Which rows are the first depends on the contract: without a promised sequence, any `n` rows may
//! be.

use std::sync::Arc;

use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_select::take::take_record_batch;
use thalweg_core::{
    Captured, Extent, Operator, Output, Partition, PartitionContext, Piece, Place, Restored,
    Result, TableSchema,
};

use crate::tables::{add_table, for_all, numbers, state_batch};

/// The table of state: how many rows are still to be passed over, and how many to be let through.
const COUNTS: &str = "counts";

/// `LIMIT n OFFSET m`.
pub struct Limit {
    limit: Option<u64>,
    offset: u64,
    schema: TableSchema,
}

impl Limit {
    /// Passes over `offset` rows and then lets `limit` rows through, or all without a limit.
    pub fn new(limit: Option<u64>, offset: u64, schema: TableSchema) -> Self {
        Limit { limit, offset, schema }
    }

    /// The columns that come out: those that come in.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }
}

impl Operator for Limit {
    fn name(&self) -> String {
        match (self.limit, self.offset) {
            (Some(limit), 0) => format!("limit {limit}"),
            (Some(limit), offset) => format!("limit {limit} offset {offset}"),
            (None, offset) => format!("offset {offset}"),
        }
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(LimitPartition { skip: self.offset, left: self.limit.unwrap_or(u64::MAX) }))
    }
}

/// The rows that a piece means, as a batch of their own.
///
/// # Errors
/// If Arrow can't take them (strings beyond 2 GiB).
pub fn rows_of(piece: &Piece<'_>) -> Result<RecordBatch> {
    Ok(match piece.rows {
        None => piece.bundle.batch.clone(),
        Some(rows) if rows.len() == piece.bundle.num_rows() => piece.bundle.batch.clone(),
        Some(rows) => take_record_batch(&piece.bundle.batch, &UInt32Array::from(rows.to_vec()))?,
    })
}

struct LimitPartition {
    skip: u64,
    left: u64,
}

impl Partition for LimitPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let count = piece.num_rows() as u64;
        output.accepted += count;
        let skipped = self.skip.min(count);
        self.skip -= skipped;
        let kept = self.left.min(count - skipped);
        if kept > 0 {
            self.left -= kept;
            let rows = rows_of(&piece)?.slice(skipped as usize, kept as usize);
            let row = |n: u64| piece.rows.map_or(n as u32, |rows| rows[n as usize]);
            let causes = (skipped..skipped + kept).map(row).collect();
            output.emit_at(rows, Place::Caused(causes));
        }
        output.ended = self.left == 0;
        Ok(())
    }
    fn state_bytes(&self) -> usize {
        size_of::<Self>()
    }
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let count = |name: &str, count: u64| {
            (name.to_owned(), Arc::new(UInt64Array::from(vec![count])) as ArrayRef)
        };
        let counts = vec![count("skip", self.skip), count("left", self.left)];
        let mut captured = Captured::default();
        add_table(&mut captured, COUNTS, state_batch(for_all(1), counts)?);
        Ok(captured)
    }
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let count = |name, without| -> Result<u64> {
            let counts = numbers::<UInt64Type>(restored, COUNTS, name)?;
            Ok(counts.first().copied().unwrap_or(without))
        };
        self.skip = count("skip", self.skip)?;
        self.left = count("left", self.left)?;
        Ok(())
    }
}
