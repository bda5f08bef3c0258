//! The last rows that came late, for people who ask which they were.
//!
//! Operators count late rows and hand over the first of each call, with the watermark before each.
//! Here the last of them are kept for the life of a run, also where late rows are only counted
//! and dropped. What a job does with late rows (`late.data`) is another matter.
//!
//! **Invariant:** what is kept is bounded by [`LATE_ROWS_MAX`] and [`LATE_BYTES_MAX`]; the oldest
//! rows go first, and one call's rows are always kept.

use std::collections::VecDeque;

use thalweg_core::LateRows;
use thalweg_ordering::sync::Mutex;

/// Late rows that are kept of a job.
pub const LATE_ROWS_MAX: usize = 10_000;
/// The most bytes that they take.
const LATE_BYTES_MAX: usize = 64 << 20;

/// Rows that were late for a stage.
#[derive(Clone, Debug)]
pub struct LateAt {
    /// The place of the stage that they were late for.
    pub stage: usize,
    /// The number of the first of them among those that were handed over in this run, from 0.
    pub number: u64,
    /// When they came, in milliseconds since 1970.
    pub wall_ms: i64,
    /// The rows, and the watermark before each.
    pub late: LateRows,
}

/// What is kept.
#[derive(Default)]
pub(crate) struct LateRing(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    rows: VecDeque<LateAt>,
    count: usize,
    bytes: usize,
    next_number: u64,
}

impl LateRing {
    /// Keeps rows that were late for a stage.
    #[cold]
    pub fn add(&self, stage: usize, wall_ms: i64, late: &[LateRows]) {
        let mut kept = self.0.lock().expect("no panic under this lock");
        for late in late {
            let at = LateAt { stage, number: kept.next_number, wall_ms, late: late.clone() };
            kept.next_number += late.batch.num_rows() as u64;
            kept.count += late.batch.num_rows();
            kept.bytes += late.batch.get_array_memory_size();
            kept.rows.push_back(at);
            kept.forget();
        }
    }

    /// All of it, oldest first.
    pub fn kept(&self) -> Vec<LateAt> {
        let kept = self.0.lock().expect("no panic under this lock");
        kept.rows.iter().cloned().collect()
    }
}

impl Kept {
    fn forget(&mut self) {
        while self.rows.len() > 1 && (self.count > LATE_ROWS_MAX || self.bytes > LATE_BYTES_MAX) {
            let Some(oldest) = self.rows.pop_front() else { return };
            self.count -= oldest.late.batch.num_rows();
            self.bytes -= oldest.late.batch.get_array_memory_size();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use thalweg_core::WatermarkBefore;

    use super::*;

    fn rows(count: i64) -> LateRows {
        let numbers = Arc::new(Int64Array::from_iter_values(0..count)) as _;
        let batch = RecordBatch::try_from_iter([("n", numbers)]).expect("a batch");
        let watermark_before = WatermarkBefore::Rows((0..count).collect());
        LateRows { batch, watermark_before, times: (0..count).collect() }
    }

    #[test]
    fn the_last_rows_are_kept_with_their_numbers() {
        let ring = LateRing::default();
        for stage in 0..100 {
            ring.add(stage, 7, &[rows(256)]);
        }
        let kept = ring.kept();
        let count: usize = kept.iter().map(|at| at.late.batch.num_rows()).sum();
        assert!(count <= LATE_ROWS_MAX && count + 256 > LATE_ROWS_MAX, "{count}");
        let last = kept.last().expect("some");
        assert_eq!((last.stage, last.number, last.wall_ms), (99, 99 * 256, 7));
        ring.add(0, 8, &[rows(LATE_BYTES_MAX as i64 / 8 + 1)]);
        assert_eq!(ring.kept().len(), 1, "what is larger than the room is alone in it");
    }
}
