//! OVER windows over inputs that end: each row with results over any rows of its key.
//!
//! All rows are kept until the end. Then they are sorted by the keys, by ORDER BY and by arrival,
//! and leave in that order, key after key, with the results behind their columns. Nothing is late.
//! So ORDER BY takes any columns, or none; frames may reach to rows that follow; and functions may
//! ask how many rows a key has.
//!
//! A singleton: its result is one sequence, whatever the workers. For unbounded inputs see
//! [`crate::over`].
//!
//! **Frames.** A row sees the rows from `start` to `end`, by number (ROWS) or by the distance of
//! the one column of ORDER BY (RANGE). Rows with equal values in ORDER BY are *peers*; RANGE takes
//! all of them or none. A NULL is the peer of NULLs alone, and no distance from other values.
//!
//! **Cost.** A frame that begins with the first row of the key is computed in one pass, and so is
//! one that ends with the last row, if the aggregate does not depend on the order of rows (sums of
//! floating-point numbers and lists do). Any other frame is computed for each row by itself, from
//! all of its rows.
//!
//! | module | holds |
//! |---|---|
//! | `frames` | which rows each row sees |
//! | `results` | what is computed from them |

mod frames;
mod results;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::Rows;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::bundle::batch_bytes;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Column, ColumnType, Extent, Operator, Output, Partition, PartitionContext, Piece,
    Progress, Restored, Result, TableSchema, Watermark,
};

pub use frames::{Distance, FrameBound, FrameUnit, WholeFrame};

use crate::aggregate::AggregateCall;
use crate::limit::rows_of;
use crate::rows::columns::batch_of;
use crate::sort::{EMIT_ROWS, KeyEncoder, SortKey};
use crate::tables::{captured_batches, kept_columns, kept_schema};

/// The table of state: the rows, as they came.
const ROWS: &str = "rows";

/// A function of the rows of a key.
#[derive(Clone, Debug)]
pub enum WholeFunction {
    /// An aggregate over the frame.
    Aggregate(AggregateCall),
    /// `ROW_NUMBER()`
    RowNumber,
    /// `RANK()`
    Rank,
    /// `DENSE_RANK()`
    DenseRank,
    /// `PERCENT_RANK()`: how much of the other rows stands before the row's peers.
    PercentRank,
    /// `CUME_DIST()`: how much of all rows stands up to the row's last peer.
    CumulativeDistribution,
    /// `NTILE(n)`: the number of the row's share, of n of about equal size.
    Tile(u64),
    /// `LAG` and `LEAD`, whatever the frame.
    Shifted {
        /// The input column.
        column: usize,
        /// How many rows behind, negative for rows before.
        offset: i64,
        /// The input column whose value stands in where there is no such row; NULL without.
        default: Option<usize>,
    },
}

/// One result column.
#[derive(Clone, Debug)]
pub struct WholeCall {
    /// What is computed.
    pub function: WholeFunction,
    /// The type of the result.
    pub result: ColumnType,
    /// The name of the output column.
    pub name: String,
}

/// What is computed over which rows.
#[derive(Clone, Debug)]
pub struct WholeSpec {
    /// The input columns of PARTITION BY; none for one partition.
    pub keys: Vec<usize>,
    /// `ORDER BY`; nothing for rows that are all peers.
    pub order: Vec<SortKey>,
    /// Which rows aggregates see.
    pub frame: WholeFrame,
    /// What is computed.
    pub calls: Vec<WholeCall>,
    /// The columns that come in.
    pub input: TableSchema,
}

/// Functions over the rows of keys, once, at the end.
pub struct OverWhole {
    spec: Arc<WholeSpec>,
    output: TableSchema,
}

impl OverWhole {
    /// The input's columns, then one per call.
    pub fn new(spec: WholeSpec) -> Self {
        let results = spec.calls.iter().map(|c| Column::new(c.name.clone(), c.result.clone()));
        let columns = spec.input.columns.iter().cloned().chain(results).collect();
        OverWhole { spec: Arc::new(spec), output: TableSchema::new(columns) }
    }
}

impl Operator for OverWhole {
    fn name(&self) -> String {
        "over all rows".to_owned()
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        let spec = Arc::clone(&self.spec);
        let keys: Vec<SortKey> = spec.keys.iter().map(|&key| SortKey::ascending(key)).collect();
        let all: Vec<SortKey> = keys.iter().cloned().chain(spec.order.iter().cloned()).collect();
        Ok(Box::new(WholePartition {
            of_keys: KeyEncoder::new(&keys, &spec.input)?,
            of_rows: KeyEncoder::new(&all, &spec.input)?,
            spec,
            output: self.output.clone(),
            batches: Vec::new(),
            bytes: 0,
            leaving: None,
        }))
    }
    /// Nothing leaves before the end of time, so nothing is promised before.
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        (input == Watermark::END).then_some(input)
    }
}

/// The rows in their order, and how far they have left.
struct Leaving {
    places: Vec<(usize, usize)>,
    /// Where each key begins in `places`; the last entry is their number.
    starts: Vec<usize>,
    /// The next key.
    next: usize,
    /// What is left of the key before.
    pending: Option<RecordBatch>,
}

struct WholePartition {
    spec: Arc<WholeSpec>,
    output: TableSchema,
    of_keys: KeyEncoder,
    of_rows: KeyEncoder,
    batches: Vec<RecordBatch>,
    bytes: usize,
    leaving: Option<Leaving>,
}

impl WholePartition {
    fn push(&mut self, batch: RecordBatch) {
        self.bytes += batch_bytes(&batch);
        self.batches.push(batch);
    }

    /// All rows sorted by keys, ORDER BY and arrival, and where keys begin.
    fn sorted(&self) -> Result<Leaving> {
        let encode = |encoder: &KeyEncoder| -> Result<Vec<Rows>> {
            self.batches.iter().map(|batch| encoder.encode(batch)).collect()
        };
        let rows = encode(&self.of_rows)?;
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (batch, rows) in self.batches.iter().enumerate() {
            places.extend((0..rows.num_rows()).map(|row| (batch, row)));
        }
        if !self.spec.keys.is_empty() || !self.spec.order.is_empty() {
            places.sort_by(|a, b| rows[a.0].row(a.1).cmp(&rows[b.0].row(b.1)));
        }
        drop(rows);
        let mut starts = vec![0];
        if !self.spec.keys.is_empty() {
            let keys = encode(&self.of_keys)?;
            let pairs = places.windows(2).enumerate();
            let begins = pairs.filter(|(_, pair)| {
                keys[pair[0].0].row(pair[0].1) != keys[pair[1].0].row(pair[1].1)
            });
            starts.extend(begins.map(|(at, _)| at + 1));
        }
        starts.push(places.len());
        Ok(Leaving { places, starts, next: 0, pending: None })
    }

    /// The rows of a key with their results.
    fn key(&self, places: &[(usize, usize)]) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let rows = interleave_record_batch(&batches, places)?;
        let results = results::of_key(&self.spec, &rows)?;
        let columns: Vec<ArrayRef> = rows.columns().iter().cloned().chain(results).collect();
        batch_of(&self.output.arrow(), columns, rows.num_rows())
    }
}

impl Partition for WholePartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        if piece.num_rows() > 0 {
            let batch = rows_of(&piece)?;
            self.push(batch);
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if call.watermark != Watermark::END || self.batches.is_empty() {
            return Ok(Progress::Done);
        }
        let mut leaving = match self.leaving.take() {
            Some(leaving) => leaving,
            None => self.sorted()?,
        };
        loop {
            let batch = match leaving.pending.take() {
                Some(batch) => batch,
                None if leaving.next + 1 >= leaving.starts.len() => break,
                None => {
                    let range = leaving.starts[leaving.next]..leaving.starts[leaving.next + 1];
                    leaving.next += 1;
                    self.key(&leaving.places[range])?
                }
            };
            let first = batch.num_rows().min(EMIT_ROWS);
            output.emit(batch.slice(0, first));
            if first < batch.num_rows() {
                leaving.pending = Some(batch.slice(first, batch.num_rows() - first));
            }
            if output.time_is_up() {
                self.leaving = Some(leaving);
                return Ok(Progress::More);
            }
        }
        (self.batches, self.bytes) = (Vec::new(), 0);
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        let places = self.leaving.as_ref().map_or(0, |leaving| leaving.places.capacity());
        self.bytes + places * size_of::<(usize, usize)>()
    }

    fn capture(&mut self, _: Extent) -> Result<Captured> {
        Ok(captured_batches(ROWS, &self.spec.input, self.batches.clone()))
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let schema = kept_schema(&[], &self.spec.input);
        for batch in restored.table(ROWS) {
            let columns = kept_columns(batch, &schema, self.spec.input.len())?;
            self.push(batch_of(&self.spec.input.arrow(), columns, batch.num_rows())?);
        }
        Ok(())
    }
}
