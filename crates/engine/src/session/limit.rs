//! Stopping a query after some rows (`--limit`).
//!
//! The sink passes on as many rows as are wanted, finishes the output, and stops the job: sources are
//! asked no more, and what is still in flight is dropped here. How many rows have passed is in no snapshot:
//! only a SELECT has a limit, and it takes none.

use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Result, RowKind, Sink};
use thalweg_runtime::JobControl;

/// Tells whether the limit was reached, and stops the job when it is.
#[derive(Clone, Default)]
pub(super) struct LimitSwitch(Arc<Mutex<SwitchState>>);

#[derive(Default)]
struct SwitchState {
    reached: bool,
    job: Option<JobControl>,
}

impl LimitSwitch {
    /// The job to stop; it is stopped at once if the limit was reached before this call.
    pub(super) fn connect(&self, job: JobControl) {
        let mut state = self.0.lock().expect("no panic under this lock");
        if state.reached {
            job.cancel();
        }
        state.job = Some(job);
    }

    /// True once all wanted rows have been written.
    pub(super) fn is_reached(&self) -> bool {
        self.0.lock().expect("no panic under this lock").reached
    }

    fn reach(&self) {
        let mut state = self.0.lock().expect("no panic under this lock");
        state.reached = true;
        if let Some(job) = &state.job {
            job.cancel();
        }
    }
}

/// A sink that takes so many rows and no more.
pub(super) struct LimitSink {
    sink: Box<dyn Sink>,
    rows_left: u64,
    finished: bool,
    switch: LimitSwitch,
}

impl LimitSink {
    pub(super) fn new(sink: Box<dyn Sink>, rows: u64, switch: LimitSwitch) -> Self {
        LimitSink { sink, rows_left: rows, finished: false, switch }
    }

    fn end(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.finished, true) {
            self.sink.finish()?;
        }
        Ok(())
    }
}

impl Sink for LimitSink {
    fn name(&self) -> String {
        self.sink.name()
    }
    fn claim(&mut self) -> Result<()> {
        self.sink.claim()
    }
    fn open(&mut self) -> Result<()> {
        self.sink.open()?;
        if self.rows_left == 0 {
            self.end()?;
            self.switch.reach();
        }
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        if self.finished {
            return Ok(());
        }
        let rows = usize::try_from(self.rows_left).unwrap_or(usize::MAX).min(batch.num_rows());
        self.sink.write(&batch.slice(0, rows), kinds.map(|kinds| &kinds[..rows]))?;
        self.rows_left -= rows as u64;
        if self.rows_left == 0 {
            self.end()?;
            self.switch.reach();
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        if self.finished { Ok(()) } else { self.sink.flush() }
    }
    fn finish(&mut self) -> Result<()> {
        self.end()
    }
    fn abort(&mut self) {
        if !self.finished {
            self.sink.abort();
        }
    }
    fn use_transactions(&mut self) -> SinkGuarantee {
        self.sink.use_transactions()
    }
    fn write_at_least_once(&mut self) {
        self.sink.write_at_least_once();
    }
    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        self.sink.check_start(handle, start)
    }
    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        self.sink.mark(mark)
    }
    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        self.sink.recover(handle)
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        if self.finished { Ok(None) } else { self.sink.prepare() }
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        if self.finished { Ok(()) } else { self.sink.commit(handle) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Collect;
    use arrow_array::{ArrayRef, Int32Array};

    fn numbers(count: i32) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("n", column)]).expect("one column")
    }

    #[test]
    fn exactly_so_many_rows_pass() {
        let collected = Collect::new();
        let switch = LimitSwitch::default();
        let mut sink = LimitSink::new(Box::new(collected.sink()), 5, switch.clone());
        sink.open().expect("opens");
        sink.write(&numbers(3), None).expect("writes");
        assert!(!switch.is_reached());
        sink.write(&numbers(3), None).expect("writes");
        assert!(switch.is_reached());
        sink.write(&numbers(3), None).expect("ignores");
        assert_eq!(collected.num_rows(), 5);
    }

    #[test]
    fn no_rows_at_all_is_a_limit_too() {
        let switch = LimitSwitch::default();
        let mut sink = LimitSink::new(Box::new(Collect::new().sink()), 0, switch.clone());
        sink.open().expect("opens");
        assert!(switch.is_reached());
    }
}
