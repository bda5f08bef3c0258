//! The unit of work: an Arrow batch with the stamps that the runtime and the operators read.
//!
//! Invariants, checked by [`Bundle::new`] and asserted at the edges of the runtime:
//! - row kinds, where present, and per-row watermarks are as long as the batch;
//! - a stateless operator turns one bundle into one bundle with the same `lane`, `epoch`,
//!   `ordinal` and `serial`, also when no row is left, so that every serial reaches every operator.

use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::ScalarBuffer;

use crate::time::{TimeExtremes, Watermark, WatermarkBefore};

/// What a row does to the result downstream (Flink's RowKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RowKind {
    /// `+I`
    Insert,
    /// `-U`: the row as it was before an update
    UpdateBefore,
    /// `+U`: the row as it is after an update
    UpdateAfter,
    /// `-D`
    Delete,
}

impl RowKind {
    /// `+I`, `-U`, `+U` or `-D`.
    pub fn short(self) -> &'static str {
        match self {
            RowKind::Insert => "+I",
            RowKind::UpdateBefore => "-U",
            RowKind::UpdateAfter => "+U",
            RowKind::Delete => "-D",
        }
    }

    /// The kind of this short form.
    pub fn from_short(text: &str) -> Option<RowKind> {
        Some(match text {
            "+I" => RowKind::Insert,
            "-U" => RowKind::UpdateBefore,
            "+U" => RowKind::UpdateAfter,
            "-D" => RowKind::Delete,
            _ => return None,
        })
    }

    /// The kind as a number: how a source delivers it, in a column of its own.
    pub fn code(self) -> i8 {
        self as i8
    }

    /// The kind of this number.
    pub fn from_code(code: i8) -> Option<RowKind> {
        use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
        let all = [Insert, UpdateBefore, UpdateAfter, Delete];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

/// Where a batch was read, for errors and for replaying.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file as a user would name it.
    pub file: Arc<str>,
    /// The number of the batch's first row in that file, from 1 (text files: its line).
    pub first_row: u64,
}

/// Where a bundle comes from and what the runtime must know to order it.
#[derive(Clone, Debug)]
pub struct Stamps {
    /// The lane (source input) as counted by the operator that takes the bundle.
    pub lane: u32,
    /// The epoch within its lane, from 0.
    pub epoch: u64,
    /// The bundle's place within its container, from 0 without gaps.
    pub ordinal: u64,
    /// Arrival serial: the bundle's place in its source, from 0 without gaps. Derived bundles carry
    /// the serial of the bundle they come from; those made at a watermark carry that of the
    /// newest bundle before it.
    pub serial: u64,
    /// The NUMA node whose memory holds the batch, as far as that is known; else that of the worker
    /// that made it.
    pub numa_node: u16,
    /// When the youngest row entered the engine, by [`Clock::now_ns`](crate::shim::Clock::now_ns).
    pub ingest_ns: u64,
    /// Each row's running watermark.
    pub watermark_before: WatermarkBefore,
    /// Where the rows were read, as long as they are the rows of a file, one for one: an error in a
    /// row can then say which one it is.
    pub origin: Option<Origin>,
    /// The extremes of the row times, once they have been looked for ([`Stamps::extremes_of`]):
    /// by the assigner, or by the first of the partitions that share the bundle.
    pub time_extremes: OnceLock<TimeExtremes>,
    /// For each row its place among rows that it may meet, ascending. Kept in ordered contracts
    /// only, where edges meet: in `arrival` it is the row of the source's bundle that the row comes
    /// from, and rows of one serial are combined by it; in `event_time` it is the row time. And
    /// where watermarks stand between the rows of a serial: then rows between two of them have one
    /// place.
    pub row_places: Option<ScalarBuffer<i64>>,
}

impl Stamps {
    /// Stamps of the first bundle of a lane, with nothing promised.
    pub fn first() -> Self {
        Stamps {
            lane: 0,
            epoch: 0,
            ordinal: 0,
            serial: 0,
            numa_node: 0,
            ingest_ns: 0,
            watermark_before: WatermarkBefore::All(Watermark::MIN),
            origin: None,
            time_extremes: OnceLock::new(),
            row_places: None,
        }
    }

    /// What is known of these times, the row times of the bundle. They are looked through now if
    /// nobody has done so yet. `None` if what is known is of others, or there are none.
    pub fn extremes_of(&self, times: &ScalarBuffer<i64>) -> Option<&TimeExtremes> {
        if self.time_extremes.get().is_none() {
            let found = TimeExtremes::of(times)?.with_watermarks(&self.watermark_before);
            // Another partition may have been first: it has found the same.
            let _ = self.time_extremes.set(found);
        }
        self.time_extremes.get().filter(|found| found.is_of(times))
    }
}

/// A batch of rows with its stamps.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The rows.
    pub batch: RecordBatch,
    /// One per row in a changelog; absent where every row is an insert.
    pub kinds: Option<Arc<[RowKind]>>,
    /// Where it comes from.
    pub stamps: Stamps,
}

impl Bundle {
    /// A bundle of inserts.
    pub fn new(batch: RecordBatch, stamps: Stamps) -> Self {
        if let WatermarkBefore::Rows(rows) = &stamps.watermark_before {
            assert_eq!(rows.len(), batch.num_rows(), "one watermark per row");
        }
        Bundle { batch, kinds: None, stamps }
    }
    /// How many rows.
    #[inline]
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }
    /// A stateless stage has made these rows of others: forgets where those were read, and the
    /// extremes of their times unless they are the times of these rows.
    pub fn forget_rows_before(&mut self) {
        self.stamps.origin = None;
        let Some(found) = self.stamps.time_extremes.get() else { return };
        let is_known = |column: &ArrayRef| {
            let times = column.as_primitive_opt::<TimestampMillisecondType>();
            times.is_some_and(|times| found.is_of(times.values()))
        };
        if !self.batch.columns().iter().any(is_known) {
            self.stamps.time_extremes = OnceLock::new();
        }
    }
    /// Bytes of memory that the rows take, slices counted by what they show. A row counts eight
    /// bytes on top of its columns, so that a limit in bytes bounds rows too, also rows of which no
    /// column is needed.
    pub fn memory_bytes(&self) -> usize {
        batch_bytes(&self.batch) + 8 * self.num_rows()
    }
}

/// Bytes that the visible part of a batch takes. Shared string buffers count by the text that the
/// views show, so that a thousand slices of one buffer do not count a thousand times.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| array_bytes(column.as_ref())).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    use arrow_schema::DataType as A;
    if let Some(width) = array.data_type().primitive_width() {
        // Most columns: asking Arrow would build a description of the array first.
        return array.len() * width + array.nulls().map_or(0, |_| array.len().div_ceil(8));
    }
    match array.data_type() {
        A::Utf8View => view_bytes(array.as_string_view().views()),
        A::BinaryView => view_bytes(array.as_binary_view().views()),
        _ => array
            .to_data()
            .get_slice_memory_size()
            .unwrap_or_else(|_| array.get_array_memory_size()),
    }
}

/// How many views are looked at to learn how long texts are.
const VIEWS_SAMPLED: usize = 64;

/// Sixteen bytes a view, and the text behind those that are too long to stand in it. The mean
/// length comes from a sample spread over the array: looking at each view of each bundle at each
/// stage would cost more than it is worth.
fn view_bytes(views: &[u128]) -> usize {
    let step = views.len().div_ceil(VIEWS_SAMPLED).max(1);
    let (mut sampled, mut text_bytes) = (0, 0);
    for &view in views.iter().step_by(step) {
        let length = view as u32 as usize;
        sampled += 1;
        text_bytes += if length > 12 { length } else { 0 };
    }
    views.len() * 16 + (text_bytes * views.len()).checked_div(sampled).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{StringViewArray, TimestampMillisecondArray};

    #[test]
    fn extremes_are_found_once_and_forgotten_with_the_times() {
        let column = |times: &[i64]| TimestampMillisecondArray::from(times.to_vec());
        let bundle = |column: &TimestampMillisecondArray| {
            let column: ArrayRef = Arc::new(column.clone());
            let batch = RecordBatch::try_from_iter([("t", column)]).expect("one column");
            Bundle::new(batch, Stamps::first())
        };
        let (times, others) = (column(&[3, 5, 4]), column(&[7]));
        let mut of_times = bundle(&times);
        assert!(bundle(&column(&[])).stamps.extremes_of(&Vec::new().into()).is_none());
        let found = of_times.stamps.extremes_of(times.values()).expect("three times");
        assert_eq!((found.lowest(), found.highest(), found.is_ascending()), (3, 5, false));
        assert!(of_times.stamps.extremes_of(others.values()).is_none());
        of_times.forget_rows_before();
        assert!(of_times.stamps.time_extremes.get().is_some(), "the same times");
        of_times.batch = bundle(&others).batch;
        of_times.forget_rows_before();
        let found = of_times.stamps.extremes_of(others.values()).expect("one time");
        assert_eq!((found.lowest(), found.highest()), (7, 7));
    }

    #[test]
    fn long_texts_count_by_their_length() {
        let bytes = |text: &str| {
            let column: ArrayRef =
                Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(text, 1000)));
            batch_bytes(&RecordBatch::try_from_iter([("s", column)]).expect("one column"))
        };
        assert_eq!(bytes("short"), 16_000);
        assert_eq!(bytes(&"x".repeat(100)), 116_000);
        assert_eq!(view_bytes(&[]), 0);
    }
}
