//! Small batches of a source become one bundle while the pipeline is busy anyway.
//!
//! A source that always answers with a few rows would fill the pipeline with small bundles, each
//! with its fixed cost. While there is other work in flight, such rows wait for company: until they
//! are as many as were asked for, or the first of them has waited for the linger time, or the
//! pipeline has nothing else to do. With an idle pipeline nothing ever waits.
//!
//! Nobody sleeps for it: a source whose rows wait stays marked as ready, so whoever looks for work
//! asks it again, and it is asked only when nothing more urgent is there.

use arrow_select::concat::concat_batches;
use thalweg_core::connector::Origin;
use thalweg_core::{Result, SourceBatch};

/// Rows that were read and wait for company.
#[derive(Default)]
pub struct Gather {
    parts: Vec<SourceBatch>,
    rows: usize,
    since_ns: u64,
}

impl Gather {
    /// Adds a batch. One that does not belong to the same file comes back, and what is gathered
    /// must leave first: errors name a file and a row of it.
    pub fn add(&mut self, batch: SourceBatch, now_ns: u64) -> Option<SourceBatch> {
        if let Some(first) = self.parts.first()
            && !self.continues(first, &batch)
        {
            return Some(batch);
        }
        if self.parts.is_empty() {
            self.since_ns = now_ns;
        }
        self.rows += batch.batch.num_rows();
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
        same_place && first.batch.schema_ref() == next.batch.schema_ref()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if what is gathered should wait on.
    pub fn should_wait(
        &self,
        rows_wanted: usize,
        is_busy: bool,
        now_ns: u64,
        linger_ns: u64,
    ) -> bool {
        is_busy && self.rows < rows_wanted && now_ns.saturating_sub(self.since_ns) < linger_ns
    }

    /// Everything gathered as one batch, if there is anything.
    ///
    /// # Errors
    /// If the rows do not fit into one batch (more than 2 GiB of text in one column).
    pub fn take(&mut self) -> Result<Option<SourceBatch>> {
        let parts = std::mem::take(&mut self.parts);
        self.rows = 0;
        if parts.len() <= 1 {
            return Ok(parts.into_iter().next());
        }
        let batches: Vec<_> = parts.iter().map(|part| &part.batch).collect();
        let batch = concat_batches(batches[0].schema_ref(), batches.iter().copied())?;
        Ok(Some(SourceBatch { batch, origin: parts[0].origin.clone() }))
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    fn batch(rows: i64, origin: Option<(&str, u64)>) -> SourceBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from_iter_values(0..rows));
        SourceBatch {
            batch: RecordBatch::try_new(schema, vec![column]).expect("one column"),
            origin: origin.map(|(file, first_row)| Origin { file: file.into(), first_row }),
        }
    }

    #[test]
    fn rows_of_one_file_go_together() {
        let mut gather = Gather::default();
        assert!(gather.add(batch(2, Some(("a", 1))), 0).is_none());
        assert!(gather.add(batch(3, Some(("a", 3))), 5).is_none());
        let other = gather.add(batch(1, Some(("b", 1))), 6).expect("another file comes back");
        assert_eq!(other.batch.num_rows(), 1);
        let together = gather.take().expect("they fit").expect("there are some");
        assert_eq!(together.batch.num_rows(), 5);
        assert_eq!(together.origin.map(|o| o.first_row), Some(1));
        assert!(gather.is_empty());
    }

    #[test]
    fn rows_wait_only_in_a_busy_pipeline_and_not_for_long() {
        let mut gather = Gather::default();
        assert!(gather.add(batch(2, None), 100).is_none());
        assert!(gather.should_wait(10, true, 150, 1000));
        assert!(!gather.should_wait(10, false, 150, 1000), "nothing else to do");
        assert!(!gather.should_wait(2, true, 150, 1000), "enough rows");
        assert!(!gather.should_wait(10, true, 1100, 1000), "waited long enough");
    }
}
