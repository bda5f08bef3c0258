//! Sinks with transactions: the check.

use arrow_array::RecordBatch;
use thalweg_core::connector::Sink;
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result};

use super::joined;

/// When a reader sees what was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// As soon as it is.
    AtCommit,
    /// When all is.
    AtEnd,
}

/// Checks a sink with transactions. `make` opens an outside of its own, empty, and returns what
/// opens the sink over it; `read` says which rows a reader of that outside sees, in the order in
/// which they were written. `rows` are cut up and written. The job fails at random points: between
/// writes, before and behind `prepare`, before and behind `commit`.
///
/// # Errors
/// Those of the sink.
///
/// # Panics
/// If a reader sees a row that is not committed, or not each that is, once.
pub fn check_transactional<Outside>(
    make: &dyn Fn() -> Outside,
    open: &dyn Fn(&Outside) -> Result<Box<dyn Sink>>,
    read: &dyn Fn(&Outside) -> Result<Vec<RecordBatch>>,
    rows: &RecordBatch,
    visibility: Visibility,
    rounds: u64,
) -> Result<()> {
    for seed in 0..rounds {
        let outside = make();
        let mut run = Run {
            random: SplitMix64::new(seed),
            rows,
            next: 0,
            handle: None,
            snapshot: 0,
            kept: 0,
            visible: 0,
            visibility,
        };
        while !run.attempt(&mut *open(&outside)?)? {
            run.check(&joined_or_none(read(&outside)?), seed);
        }
        let all = joined_or_none(read(&outside)?);
        assert_eq!(all.as_ref(), Some(rows), "what a reader sees in the end, seed {seed}");
    }
    Ok(())
}

fn joined_or_none(batches: Vec<RecordBatch>) -> Option<RecordBatch> {
    joined(&batches).filter(|rows| rows.num_rows() > 0)
}

struct Run<'a> {
    random: SplitMix64,
    rows: &'a RecordBatch,
    /// Rows that were written by this attempt or one whose snapshot it resumes from.
    next: usize,
    /// The handle of the newest snapshot.
    handle: Option<Option<String>>,
    /// Its number; 0 before the first.
    snapshot: u64,
    /// Rows before that snapshot.
    kept: usize,
    /// Rows whose commit was done.
    visible: usize,
    visibility: Visibility,
}

impl Run<'_> {
    /// Continues until the job fails (false) or all is written (true).
    fn attempt(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        if sink.use_transactions() != SinkGuarantee::Transactional {
            return Err(Error::internal("the sink has no transactions"));
        }
        let handle = self.handle.as_ref().and_then(Option::as_deref);
        let accepted = vec![self.mark()];
        let is_marked = self.snapshot > 0;
        let start = OutputStart { accepted, is_marked, ..OutputStart::default() };
        sink.check_start(handle, &start)?;
        sink.mark(&self.mark())?;
        sink.recover(handle)?;
        (self.next, self.visible) = (self.kept, self.kept);
        sink.open()?;
        loop {
            let left = self.rows.num_rows() - self.next;
            let rows = left.min(1 + self.random.below(40) as usize);
            sink.write(&self.rows.slice(self.next, rows), None)?;
            self.next += rows;
            let is_last = self.next == self.rows.num_rows();
            if self.fails(sink) {
                return Ok(false);
            }
            if is_last || self.random.below(3) == 0 {
                let handle = sink.prepare()?;
                if self.random.below(8) == 0 {
                    // The snapshot was not kept.
                    sink.abort();
                    return Ok(false);
                }
                (self.handle, self.kept) = (Some(handle.clone()), self.next);
                self.snapshot += 1;
                if self.fails(sink) {
                    return Ok(false);
                }
                sink.mark(&self.mark())?;
                if self.fails(sink) {
                    return Ok(false);
                }
                if let Some(handle) = handle {
                    sink.commit(&handle)?;
                }
                self.visible = self.kept;
                if is_last {
                    sink.finish()?;
                    return Ok(true);
                }
            }
        }
    }

    fn mark(&self) -> OutputMark {
        OutputMark { lineage: "conformance".to_owned(), snapshot: self.snapshot }
    }

    fn fails(&mut self, sink: &mut dyn Sink) -> bool {
        let fails = self.random.below(8) == 0;
        // A job that is killed does not even say so.
        if fails && self.random.below(2) == 0 {
            sink.abort();
        }
        fails
    }

    fn check(&self, seen: &Option<RecordBatch>, seed: u64) {
        let count = seen.as_ref().map_or(0, RecordBatch::num_rows);
        let expected = if self.visibility == Visibility::AtEnd { 0 } else { self.visible };
        assert_eq!(count, expected, "how many rows a reader sees, seed {seed}");
        if let Some(seen) = seen {
            assert_eq!(*seen, self.rows.slice(0, count), "which rows a reader sees, seed {seed}");
        }
    }
}
