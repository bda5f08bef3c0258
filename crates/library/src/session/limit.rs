//! Ending a query after some rows (`--limit`).
//!
//! The sink passes on as many rows as are wanted and then demands no more: the job finishes it, and
//! ends if it has no other output. How many rows have passed is in no snapshot: only a SELECT has a
//! limit, and it takes none.

use arrow_array::RecordBatch;
use thalweg_core::connector::{self, Demand};
use thalweg_core::{Result, RowKind, Sink};

/// A sink that takes this many rows and no more.
pub(super) struct LimitSink {
    sink: Box<dyn Sink>,
    rows_left: u64,
}

impl LimitSink {
    pub(super) fn new(sink: Box<dyn Sink>, rows: u64) -> Self {
        LimitSink { sink, rows_left: rows }
    }
}

impl connector::SinkLayer for LimitSink {
    fn inner(&self) -> &dyn Sink {
        self.sink.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        self.sink.as_mut()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let rows = usize::try_from(self.rows_left).unwrap_or(usize::MAX).min(batch.num_rows());
        if rows > 0 {
            self.sink.write(&batch.slice(0, rows), kinds.map(|kinds| &kinds[..rows]))?;
            self.rows_left -= rows as u64;
        }
        Ok(())
    }
    fn demand(&self) -> Demand {
        match self.sink.demand() {
            Demand::More if self.rows_left == 0 => Demand::Enough,
            demand => demand,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array};

    use super::*;
    use crate::pipeline::Collect;

    fn numbers(count: i32) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("n", column)]).expect("one column")
    }

    #[test]
    fn rows_pass_up_to_the_limit() {
        let collected = Collect::new();
        let mut sink = LimitSink::new(Box::new(collected.sink()), 5);
        sink.open().expect("opens");
        sink.write(&numbers(3), None).expect("writes");
        assert_eq!(sink.demand(), Demand::More);
        sink.write(&numbers(3), None).expect("writes");
        assert_eq!(sink.demand(), Demand::Enough);
        sink.write(&numbers(3), None).expect("ignores");
        assert_eq!(collected.num_rows(), 5);
    }

    #[test]
    fn no_rows_at_all_is_a_limit_too() {
        let mut sink = LimitSink::new(Box::new(Collect::new().sink()), 0);
        sink.open().expect("opens");
        assert_eq!(sink.demand(), Demand::Enough);
    }
}
