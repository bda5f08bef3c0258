//! Sinks whose job fails: at every call once, and at random.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use thalweg_core::connector::Sink;
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use thalweg_core::{Error, Result, RowKind};

use super::joined;
use super::queue::texts;

/// When a reader sees what was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// As soon as it is.
    AtCommit,
    /// When all is.
    AtEnd,
}

/// A sink to be checked, and what it promises.
pub struct SinkCase<'a, Outside> {
    /// Makes an outside of its own, empty.
    pub make: &'a dyn Fn() -> Outside,
    /// Opens the sink over it.
    pub open: &'a dyn Fn(&Outside) -> Result<Box<dyn Sink>>,
    /// The rows that a reader of the outside sees.
    pub read: &'a dyn Fn(&Outside) -> Result<Vec<RecordBatch>>,
    /// What is written, in pieces.
    pub rows: &'a RecordBatch,
    /// What each row does, where they are changes.
    pub kinds: Option<&'a [RowKind]>,
    /// What is promised about rows in a job with snapshots.
    pub guarantee: SinkGuarantee,
    /// Of transactions: when their rows are seen.
    pub visibility: Visibility,
    /// Of transactions: a reader sees the rows in the order in which they were written.
    pub in_order: bool,
    /// Of changes by key: its columns.
    pub key: &'a [usize],
}

impl<Outside> SinkCase<'_, Outside> {
    /// What a reader sees of the first rows, as texts: of changes the last one of each key.
    fn result(&self, rows: usize) -> Vec<String> {
        let rows = self.rows.slice(0, rows);
        let all = texts(&rows);
        let Some(kinds) = self.kinds else { return all };
        let keys = rows.project(self.key).expect("the columns of the key are there");
        let mut last = BTreeMap::new();
        for ((key, row), kind) in texts(&keys).into_iter().zip(all).zip(kinds) {
            match kind {
                RowKind::Insert | RowKind::UpdateAfter => drop(last.insert(key, row)),
                RowKind::Delete => drop(last.remove(&key)),
                RowKind::UpdateBefore => {}
            }
        }
        last.into_values().collect()
    }

    fn seen(&self, outside: &Outside) -> Result<Vec<String>> {
        Ok(joined(&(self.read)(outside)?).map_or(Vec::new(), |rows| texts(&rows)))
    }
}

/// Checks what a sink promises. The job fails once at each call that it makes, and in `rounds` more
/// runs at random points; of a job that is killed the sink hears nothing.
///
/// # Errors
/// Those of the sink.
///
/// # Panics
/// If it is not kept.
pub fn check_sink<Outside>(case: &SinkCase<'_, Outside>, rounds: u64) -> Result<()> {
    for seed in 0.. {
        if !check_run(case, Failures { random: SplitMix64::new(seed), at_call: Some(seed) })? {
            break;
        }
    }
    for seed in 0..rounds {
        check_run(case, Failures { random: SplitMix64::new(seed), at_call: None })?;
    }
    Ok(())
}

/// Runs a job until it has written all. Says whether it has failed on the way.
fn check_run<Outside>(case: &SinkCase<'_, Outside>, failures: Failures) -> Result<bool> {
    let outside = (case.make)();
    let how = format!("{failures:?}");
    let mut run = Run { case, failures, next: 0, handle: None, snapshot: 0, kept: 0, visible: 0 };
    let mut has_failed = false;
    while !run.attempt(&mut *(case.open)(&outside)?)? {
        has_failed = true;
        run.check(case.seen(&outside)?, &how);
    }
    let (mut seen, mut expected) = (case.seen(&outside)?, case.result(case.rows.num_rows()));
    match case.guarantee {
        SinkGuarantee::AtLeastOnce => check_complete(&seen, &expected, &how),
        guarantee => {
            if guarantee == SinkGuarantee::Idempotent || !case.in_order {
                seen.sort_unstable();
                expected.sort_unstable();
            }
            assert_eq!(seen, expected, "what a reader sees in the end, {how}");
        }
    }
    Ok(has_failed)
}

/// Each expected row is there, and no other.
fn check_complete(seen: &[String], expected: &[String], how: &str) {
    let seen: BTreeSet<&String> = seen.iter().collect();
    let lost: Vec<&String> = expected.iter().filter(|row| !seen.contains(row)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}, {how}");
    assert_eq!(seen.len(), expected.iter().collect::<BTreeSet<_>>().len(), "others, {how}");
}

/// When the job fails.
#[derive(Debug)]
struct Failures {
    random: SplitMix64,
    /// Once, after this number of calls; else at random.
    at_call: Option<u64>,
}

impl Failures {
    fn fails(&mut self) -> bool {
        match &mut self.at_call {
            None => self.random.below(8) == 0,
            Some(left) => {
                let fails = *left == 0;
                *left = left.wrapping_sub(1);
                fails
            }
        }
    }
}

struct Run<'a, Outside> {
    case: &'a SinkCase<'a, Outside>,
    failures: Failures,
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
}

impl<Outside> Run<'_, Outside> {
    /// Continues until the job fails (false) or all is written (true).
    fn attempt(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        if !self.begin(sink)? {
            return Ok(false);
        }
        loop {
            let left = self.case.rows.num_rows() - self.next;
            let rows = left.min(1 + self.failures.random.below(40) as usize);
            let kinds = self.case.kinds.map(|kinds| &kinds[self.next..self.next + rows]);
            sink.write(&self.case.rows.slice(self.next, rows), kinds)?;
            self.next += rows;
            let is_last = self.next == self.case.rows.num_rows();
            if self.fails(sink) {
                return Ok(false);
            }
            if is_last || self.failures.random.below(3) == 0 {
                if !self.take_snapshot(sink)? {
                    return Ok(false);
                }
                if is_last {
                    sink.finish()?;
                    return Ok(true);
                }
            }
        }
    }

    fn begin(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        sink.claim()?;
        match self.case.guarantee {
            SinkGuarantee::AtLeastOnce => sink.write_at_least_once(),
            guarantee if sink.use_transactions() == guarantee => {}
            guarantee => return Err(Error::internal(format!("the sink is not {guarantee:?}"))),
        }
        let handle = self.handle.clone().flatten();
        let accepted = vec![self.mark()];
        let is_marked = self.snapshot > 0;
        let start = OutputStart { accepted, is_marked, ..OutputStart::default() };
        sink.check_start(handle.as_deref(), &start)?;
        if self.fails(sink) {
            return Ok(false);
        }
        sink.mark(&self.mark())?;
        if self.fails(sink) {
            return Ok(false);
        }
        sink.recover(handle.as_deref())?;
        (self.next, self.visible) = (self.kept, self.kept);
        if self.fails(sink) {
            return Ok(false);
        }
        sink.open()?;
        Ok(!self.fails(sink))
    }

    /// False if the job fails on the way.
    fn take_snapshot(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let handle = sink.prepare()?;
        if self.fails(sink) {
            // The snapshot was not kept.
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
        Ok(!self.fails(sink))
    }

    fn mark(&self) -> OutputMark {
        OutputMark { lineage: "conformance".to_owned(), snapshot: self.snapshot }
    }

    fn fails(&mut self, sink: &mut dyn Sink) -> bool {
        let fails = self.failures.fails();
        // A job that is killed does not even say so.
        if fails && self.failures.random.below(2) == 0 {
            sink.abort();
        }
        fails
    }

    /// What a reader sees after a failure.
    fn check(&self, mut seen: Vec<String>, how: &str) {
        match self.case.guarantee {
            SinkGuarantee::Idempotent => {}
            SinkGuarantee::AtLeastOnce => {
                let seen: BTreeSet<&String> = seen.iter().collect();
                let visible = texts(&self.case.rows.slice(0, self.visible));
                assert!(visible.iter().all(|row| seen.contains(row)), "lost, {how}");
            }
            SinkGuarantee::Transactional => {
                let is_shown = self.case.visibility == Visibility::AtCommit;
                let mut expected = self.case.result(if is_shown { self.visible } else { 0 });
                if !self.case.in_order {
                    seen.sort_unstable();
                    expected.sort_unstable();
                }
                assert_eq!(seen, expected, "what a reader sees, {how}");
            }
        }
    }
}
