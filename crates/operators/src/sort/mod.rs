//! ORDER BY with or without LIMIT over inputs that end: one sorted result at the end of time.
//!
//! A singleton. Rows with equal keys keep their order of arrival. With a limit, at most about twice
//! `limit + offset` rows are kept: now and then the rows kept are sorted and cut, and from then on
//! rows behind the last one that can still win are dropped as they arrive. Without a limit all
//! rows are kept until the end.
//!
//! Invariant: among the rows kept, those of earlier batches arrived earlier (or, within the batch
//! that a cut left, stand in their final order), so a stable sort breaks ties by arrival.
//!
//! Not for unbounded inputs: see [`crate::temporal_sort`] for those.
//!
//! **With a limit**, `worst` is the last key that can still be part of the result. It is known
//! after the first cut and only ever falls. Ties with it are dropped on arrival, as an earlier row
//! wins.

mod keys;
#[cfg(test)]
mod tests;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_row::{OwnedRow, Rows};
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Extent, Operator, Output, Partition, PartitionContext, Piece, Progress, Restored,
    Result, TableSchema, Watermark,
};

pub(crate) use keys::KeyEncoder;
pub use keys::SortKey;

use crate::limit::rows_of;
use crate::rows::columns::batch_of;
use crate::tables::{captured_batches, kept_columns, kept_schema};

/// The table of state: the rows that may be part of the result, as they came.
const ROWS: &str = "rows";

/// Rows of one batch of the result.
pub(crate) const EMIT_ROWS: usize = 8192;

/// Rows kept beyond twice the limit before they are cut, so that small limits do not sort all the
/// time.
const SLACK_ROWS: usize = 16 * 1024;

/// `ORDER BY … [LIMIT n] [OFFSET m]`, once, at the end.
pub struct SortLimit {
    keys: Vec<SortKey>,
    limit: Option<u64>,
    offset: u64,
    schema: TableSchema,
}

impl SortLimit {
    /// Sorts by these keys, the first being the most significant, passes over `offset` rows and
    /// emits `limit` rows, or all without a limit.
    pub fn new(keys: Vec<SortKey>, limit: Option<u64>, offset: u64, schema: TableSchema) -> Self {
        SortLimit { keys, limit, offset, schema }
    }

    /// The columns that come out: those that come in.
    pub fn output_schema(&self) -> &TableSchema {
        &self.schema
    }
}

impl Operator for SortLimit {
    fn name(&self) -> String {
        match self.limit {
            Some(limit) => format!("sort limit {limit}"),
            None => "sort".to_owned(),
        }
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(SortPartition {
            schema: self.schema.clone(),
            encoder: KeyEncoder::new(&self.keys, &self.schema)?,
            keep: self.limit.map_or(usize::MAX, |limit| {
                usize::try_from(limit.saturating_add(self.offset)).unwrap_or(usize::MAX)
            }),
            skip: usize::try_from(self.offset).unwrap_or(usize::MAX),
            kept: SortRows::default(),
            worst: None,
            sorted: None,
        }))
    }
    /// Nothing leaves before the end of time, so nothing is promised before.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        (input == Watermark::END).then_some(input)
    }
}

/// Rows that may be part of the result, with their encoded keys.
#[derive(Default)]
struct SortRows {
    batches: Vec<RecordBatch>,
    keys: Vec<Rows>,
    num_rows: usize,
    bytes: usize,
}

impl SortRows {
    fn push(&mut self, batch: RecordBatch, keys: Rows) {
        self.num_rows += batch.num_rows();
        self.bytes += batch_bytes(&batch) + keys.size();
        self.batches.push(batch);
        self.keys.push(keys);
    }

    /// All rows as (batch, row), sorted, ties by arrival.
    fn sorted(&self) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(self.num_rows);
        for (batch, rows) in self.batches.iter().enumerate() {
            places.extend((0..rows.num_rows()).map(|row| (batch, row)));
        }
        places.sort_by(|a, b| self.keys[a.0].row(a.1).cmp(&self.keys[b.0].row(b.1)));
        places
    }

    fn rows_at(&self, places: &[(usize, usize)]) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        Ok(interleave_record_batch(&batches, places)?)
    }
}

struct SortPartition {
    schema: TableSchema,
    encoder: KeyEncoder,
    /// Limit + offset.
    keep: usize,
    skip: usize,
    kept: SortRows,
    /// The key of the last row that a cut kept: rows that are not smaller cannot win any more.
    worst: Option<OwnedRow>,
    /// Set when the end has come: the result and how far it has been emitted.
    sorted: Option<(Vec<(usize, usize)>, usize)>,
}

impl SortPartition {
    fn cut(&mut self) -> Result<()> {
        let mut places = self.kept.sorted();
        places.truncate(self.keep);
        let best = self.kept.rows_at(&places)?;
        let keys = self.encoder.encode(&best)?;
        self.worst = keys.num_rows().checked_sub(1).map(|last| keys.row(last).owned());
        self.kept = SortRows::default();
        self.kept.push(best, keys);
        Ok(())
    }
}

impl Partition for SortPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() == 0 || self.keep == 0 {
            return Ok(());
        }
        let mut batch = rows_of(&piece)?;
        let mut keys = self.encoder.encode(&batch)?;
        if let Some(worst) = &self.worst {
            let winners: UInt32Array = keys
                .iter()
                .enumerate()
                .filter(|(_, key)| *key < worst.row())
                .map(|(row, _)| row as u32)
                .collect::<Vec<_>>()
                .into();
            if winners.is_empty() {
                return Ok(());
            }
            batch = take_record_batch(&batch, &winners)?;
            keys = self.encoder.encode(&batch)?;
        }
        self.kept.push(batch, keys);
        if self.kept.num_rows > self.keep.saturating_mul(2).saturating_add(SLACK_ROWS) {
            self.cut()?;
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if call.watermark != Watermark::END {
            return Ok(Progress::Done);
        }
        let (places, emitted) = self.sorted.get_or_insert_with(|| {
            let mut places = self.kept.sorted();
            places.truncate(self.keep);
            (places, self.skip)
        });
        while *emitted < places.len() {
            let end = places.len().min(*emitted + EMIT_ROWS);
            output.emit(self.kept.rows_at(&places[*emitted..end])?);
            *emitted = end;
            if end < places.len() && output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        self.kept = SortRows::default();
        self.sorted = Some((Vec::new(), 0));
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        let places = self.sorted.as_ref().map_or(0, |(places, _)| places.capacity());
        self.kept.bytes + places * size_of::<(usize, usize)>()
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.kept.num_rows)
    }
    /// The key of the last row that can win follows from the rows.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        Ok(captured_batches(ROWS, &self.schema, self.kept.batches.clone()))
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let schema = kept_schema(&[], &self.schema);
        for batch in restored.table(ROWS) {
            let columns = kept_columns(batch, &schema, self.schema.len())?;
            let rows = batch_of(&self.schema.arrow(), columns, batch.num_rows())?;
            let keys = self.encoder.encode(&rows)?;
            self.kept.push(rows, keys);
        }
        let is_full = self.kept.num_rows >= self.keep && self.kept.num_rows > 0;
        if is_full { self.cut() } else { Ok(()) }
    }
}
