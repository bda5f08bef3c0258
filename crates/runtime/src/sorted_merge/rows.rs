//! What a merge takes in and gives out.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;
use thalweg_core::{RowKind, WatermarkBefore};

/// A place in the merged sequence: time and input. Rows of one input at one time follow each other
/// by position.
pub(super) type Pair = (i64, usize);

/// Rows of one input in time order.
#[derive(Clone, Debug)]
pub struct SortedRows {
    /// The rows.
    pub batch: RecordBatch,
    /// The time of each, in milliseconds, ascending.
    pub times: ScalarBuffer<i64>,
    /// Stamps that go with the rows.
    pub watermark_before: WatermarkBefore,
    /// What each of them does, in a changelog.
    pub kinds: Option<Arc<[RowKind]>>,
    /// When the youngest of them entered the engine.
    pub ingest_ns: u64,
    /// What they count in the memory account.
    pub bytes: usize,
}

/// Rows that no row to come can stand before.
#[derive(Clone, Debug)]
pub struct MergedRows {
    /// The rows, by time, then input, then position.
    pub batch: RecordBatch,
    /// The time of each.
    pub times: ScalarBuffer<i64>,
    /// The stamps that came with each.
    pub watermark_before: WatermarkBefore,
    /// What each does, if one of them came with that.
    pub kinds: Option<Arc<[RowKind]>>,
    /// When the youngest of them entered the engine.
    pub ingest_ns: u64,
    /// What they counted while they waited.
    pub bytes: usize,
    /// The input that each came by, if [asked for](super::SortedMerge::with_origins).
    pub origins: Option<ScalarBuffer<u32>>,
}
