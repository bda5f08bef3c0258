//! Small batches of a source become one bundle while nobody misses them.
//!
//! A source that always answers with a few rows would fill the pipeline with small bundles, each
//! with its fixed cost. Such rows wait for company in two cases:
//!
//! - **While there is other work in flight**: until they are as many as were asked for, or the
//!   first of them has waited for the linger time, or the pipeline has nothing else to do. What
//!   sinks that keep up are at does not count: no worker does it. Nobody asks the source meanwhile
//!   unless it calls; the worker that did the other work looks again when it is done, and the one
//!   that asked the source does when the time is over (see `pool`).
//! - **Until the epoch ends**, where all that comes of a source's rows comes at watermarks
//!   ([`Wait::ForEpoch`]): rows behind which no epoch ends change nothing that anybody sees. They
//!   wait until one may end, until they are [`COMPANY_ROWS`], or for [`COMPANY_NS`]. The first
//!   bounds what is left to do when the epoch ends; the second is for counters and memory, which
//!   should follow the input. The source is not asked meanwhile unless it calls; workers that look
//!   around call for it when the time is over, and an input is not declared idle while rows wait:
//!   they would be late behind the watermarks of others.

use arrow_select::concat::concat_batches;
use thalweg_core::connector::Origin;
use thalweg_core::{Result, SourceBatch};

/// This many rows wait for no watermark.
pub const COMPANY_ROWS: usize = 512;

/// For so long rows wait for a watermark.
pub const COMPANY_NS: u64 = 10_000_000;

/// Rows that were read and wait for company.
#[derive(Default)]
pub struct SourceBatcher {
    parts: Vec<SourceBatch>,
    rows: usize,
    since_ns: u64,
    ends_epoch: bool,
}

/// What rows that are too few for a bundle may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Others, while there is something else to do.
    WhileBusy {
        /// True if there is.
        is_busy: bool,
        /// For so long at most.
        linger_ns: u64,
    },
    /// The end of the epoch.
    ForEpoch,
}

impl SourceBatcher {
    /// Adds a batch, behind which the epoch may end or not. One that does not belong to the same
    /// file, or split, comes back, and what is collected must leave first: errors name a file and a
    /// row of it.
    pub fn add(
        &mut self,
        batch: SourceBatch,
        ends_epoch: bool,
        now_ns: u64,
    ) -> Option<SourceBatch> {
        if let Some(first) = self.parts.first()
            && !self.continues(first, &batch)
        {
            return Some(batch);
        }
        if self.parts.is_empty() {
            self.since_ns = now_ns;
        }
        self.rows += batch.batch.num_rows();
        self.ends_epoch |= ends_epoch;
        self.parts.push(batch);
        None
    }

    fn continues(&self, first: &SourceBatch, next: &SourceBatch) -> bool {
        let rows = self.rows as u64;
        let is_next =
            |a: &Origin, b: &Origin| a.file == b.file && a.first_row + rows == b.first_row;
        let same_place = match (&first.origin, &next.origin) {
            (None, None) => true,
            (Some(first), Some(next)) => is_next(first, next),
            _ => false,
        };
        same_place
            && first.split == next.split
            && first.batch.schema_ref() == next.batch.schema_ref()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Until when what is collected should wait on, if it should.
    pub fn waits_until_ns(&self, rows_wanted: usize, wait: Wait, now_ns: u64) -> Option<u64> {
        let (rows_wanted, linger_ns) = match wait {
            Wait::WhileBusy { is_busy: false, .. } => return None,
            Wait::WhileBusy { linger_ns, .. } => (rows_wanted, linger_ns),
            Wait::ForEpoch if self.ends_epoch => return None,
            Wait::ForEpoch => (rows_wanted.min(COMPANY_ROWS), COMPANY_NS),
        };
        let until_ns = self.since_ns.saturating_add(linger_ns);
        (self.rows < rows_wanted && now_ns < until_ns).then_some(until_ns)
    }

    /// Everything collected as one batch, if there is anything.
    ///
    /// # Errors
    /// If the rows do not fit into one batch (more than 2 GiB of text in one column).
    pub fn take(&mut self) -> Result<Option<SourceBatch>> {
        let parts = std::mem::take(&mut self.parts);
        (self.rows, self.ends_epoch) = (0, false);
        if parts.len() <= 1 {
            return Ok(parts.into_iter().next());
        }
        let batches: Vec<_> = parts.iter().map(|part| &part.batch).collect();
        let batch = concat_batches(batches[0].schema_ref(), batches.iter().copied())?;
        Ok(Some(SourceBatch { batch, origin: parts[0].origin.clone(), split: parts[0].split }))
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.parts.clear();
        (self.rows, self.ends_epoch) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use thalweg_core::SplitId;

    fn batch(rows: i64, origin: Option<(&str, u64)>) -> SourceBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from_iter_values(0..rows));
        SourceBatch {
            batch: RecordBatch::try_new(schema, vec![column]).expect("one column"),
            origin: origin.map(|(file, first_row)| Origin { file: file.into(), first_row }),
            split: SplitId::ONLY,
        }
    }

    #[test]
    fn rows_of_one_file_go_together() {
        let mut batcher = SourceBatcher::default();
        assert!(batcher.add(batch(2, Some(("a", 1))), false, 0).is_none());
        assert!(batcher.add(batch(3, Some(("a", 3))), false, 5).is_none());
        let other =
            batcher.add(batch(1, Some(("b", 1))), false, 6).expect("another file comes back");
        assert_eq!(other.batch.num_rows(), 1);
        let together = batcher.take().expect("they fit").expect("there are some");
        assert_eq!(together.batch.num_rows(), 5);
        assert_eq!(together.origin.map(|o| o.first_row), Some(1));
        assert!(batcher.is_empty());
    }

    #[test]
    fn rows_wait_only_in_a_busy_pipeline_and_not_for_long() {
        let mut batcher = SourceBatcher::default();
        assert!(batcher.add(batch(2, None), false, 100).is_none());
        let busy = |is_busy| Wait::WhileBusy { is_busy, linger_ns: 1000 };
        assert_eq!(batcher.waits_until_ns(10, busy(true), 150), Some(1100));
        assert_eq!(batcher.waits_until_ns(10, busy(false), 150), None, "nothing else to do");
        assert_eq!(batcher.waits_until_ns(2, busy(true), 150), None, "enough rows");
        assert_eq!(batcher.waits_until_ns(10, busy(true), 1100), None, "waited long enough");
    }

    #[test]
    fn rows_wait_for_the_end_of_their_epoch_and_not_for_long() {
        let mut batcher = SourceBatcher::default();
        assert!(batcher.add(batch(2, None), false, 100).is_none());
        let until =
            |batcher: &SourceBatcher, now_ns| batcher.waits_until_ns(1024, Wait::ForEpoch, now_ns);
        assert_eq!(until(&batcher, 150), Some(100 + COMPANY_NS));
        assert_eq!(until(&batcher, 100 + COMPANY_NS), None, "waited long enough");
        assert!(batcher.add(batch(COMPANY_ROWS as i64 - 3, None), false, 120).is_none());
        assert!(until(&batcher, 150).is_some());
        assert!(batcher.add(batch(1, None), false, 130).is_none());
        assert_eq!(until(&batcher, 150), None, "enough rows");
        batcher.take().expect("they fit");
        assert!(batcher.add(batch(2, None), true, 200).is_none());
        assert_eq!(until(&batcher, 250), None, "a result waits for them");
        batcher.take().expect("they fit");
        assert!(batcher.add(batch(2, None), false, 300).is_none());
        assert!(until(&batcher, 350).is_some(), "the next epoch has not ended");
    }
}
