//! The ends of a pipeline: sources that can be polled, sinks that can be written, and the
//! connectors that make them for tables.
//!
//! A source never blocks in [`Source::poll`]. One that must wait (files, sockets) reads on a thread
//! of its own, hands batches over through a bounded queue, and calls the waker when there is
//! something to take. A sink may block: the runtime gives each sink a thread.

mod description;
mod layer;
mod options;
mod registry;
mod secrets;
mod splits;
mod table;
mod targets;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;

pub use crate::bundle::Origin;
use crate::bundle::RowKind;
use crate::error::{Error, Result};
pub use crate::snapshot::{OutputMark, OutputStart, SinkGuarantee};
use crate::time::{TimeExtremes, Watermark};

pub use self::description::{
    Boundedness, Capabilities, ConnectorDescription, FlinkOption, FormatDescription,
    MetadataDescription, OptionDefault, OptionDescription, OptionKind, SinkCapability,
    SourceCapability, UsedBy, joined,
};
pub use self::layer::{ConnectorLayer, DiscardSink, SinkLayer, SourceLayer};
pub use self::options::{Options, near_miss, nearest_or_all};
pub use self::registry::{Connector, Connectors, LIVE_CONNECTOR, STATE_CONNECTOR};
pub use self::secrets::{Secret, Secrets, check_places, names_secret};
pub use self::splits::{MergedSplit, SplitEvent, SplitId, SplitStatus, Trouble};
pub use self::table::{
    AcceptedChanges, Access, ColumnBound, JobTables, KIND_COLUMN, StateTable, StateTableRequest,
    TableRequest,
};
pub use self::targets::AllowedTargets;
pub use crate::{metadata_table, option_table, option_tables};

/// Rows from a source, in the order in which they arrived.
#[derive(Clone, Debug)]
pub struct SourceBatch {
    /// The rows, with the columns of the declared physical schema (metadata columns last).
    pub batch: RecordBatch,
    /// Where they come from, if that is one place.
    pub origin: Option<Origin>,
    /// The split that all of them are of.
    pub split: SplitId,
}

impl SourceBatch {
    /// Rows of a source with one split that come from no place with a name.
    pub fn new(batch: RecordBatch) -> Self {
        SourceBatch { batch, origin: None, split: SplitId::ONLY }
    }
}

/// The answer of a source that was asked for rows.
#[derive(Debug)]
pub enum SourcePoll {
    /// Some rows. May be empty.
    Batch(SourceBatch),
    /// Nothing now; the waker will be called.
    Pending,
    /// A promise that no row of the split to come is older than this, in milliseconds since 1970.
    /// It raises the split's watermark to just before it, and lets merges by time advance. The
    /// source is polled again at once.
    Heartbeat(SplitId, i64),
    /// Something happens to a split. The source is polled again at once.
    Split(SplitId, SplitEvent),
    /// There will never be more.
    End,
}

/// Called by a source that has answered [`SourcePoll::Pending`] when asking again is worth while.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A replayable input. What splits are, [`SplitId`] says; a source that opens none has one.
///
/// Calls come in the order `seek` (in a job that resumes), `claim`, `start`,
/// `open`, `poll`…, then one of `finish` and `abort`.
///
/// A start has two phases: `claim` and `start` of all sources come before any call that changes
/// something. Where one of them refuses, `stop` and `abort` are all that the others hear.
pub trait Source: Send {
    /// A short name for metrics, EXPLAIN and errors.
    fn name(&self) -> String;
    /// Begins to read, on the thread that starts the job. Changes nothing outside.
    ///
    /// # Errors
    /// If the input cannot be read. The job then does not start, and no byte of any output has
    /// changed.
    fn start(&mut self, waker: Waker) -> Result<()>;
    /// Prepares what the source writes besides its rows: all parts of the job have agreed to start.
    ///
    /// # Errors
    /// If it cannot be written.
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    /// Asks for at most `rows_max` rows. Must not block. Not called again after `End` or an error.
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll>;
    /// True if the input ends by itself.
    fn is_bounded(&self) -> bool;
    /// Stops reading: threads end soon, and `poll` is not called again.
    fn stop(&mut self) {}
    /// What ends a [`Source::start`] or [`Source::check_ended`] that waits for others (a server):
    /// asked before, and called from another thread when the job is not wanted any more. The call
    /// then returns an error, within a second.
    fn canceller(&self) -> Option<Waker> {
        None
    }
    /// Bytes of rows that were read and wait for others. They count against the memory limit.
    fn buffered_bytes(&self) -> usize {
        0
    }
    /// How late the last batch's first row was when it was polled, in nanoseconds: latencies count
    /// from when it was due. For inputs that know when their rows should have come; else 0.
    fn overdue_ns(&self) -> u64 {
        0
    }
    /// Rows that were rejected because they could not be read (dead letters).
    fn bad_rows(&self) -> u64 {
        0
    }
    /// How often the connection to its peer was lost and made again in this run; `None` of a source
    /// that has no connection.
    fn reconnects(&self) -> Option<u64> {
        None
    }
    /// What is known of a split. Asked now and then, for metrics, and before a quiet split is
    /// declared idle.
    fn split_status(&self, split: SplitId) -> SplitStatus {
        let _ = split;
        SplitStatus { is_caught_up: true, ..SplitStatus::default() }
    }
    /// Its splits, where it has brought them into one sequence and shows only that.
    fn merged_splits(&self) -> Vec<MergedSplit> {
        Vec::new()
    }
    /// Delivers no more rows of a split, because it is too far ahead of others, or does so again.
    /// Of a source with one split the runtime does not ask for rows meanwhile: only sources with
    /// several have something to do. Rows that were read already may still come.
    fn pause_split(&mut self, split: SplitId, is_paused: bool) {
        let _ = (split, is_paused);
    }
    /// Where to resume behind the last row that [`Source::poll`] returned, for [`Source::seek`] of
    /// a source of the same table in another run; JSON, so that a user can read it in a snapshot.
    /// `None` if the input cannot be read again from there, and no snapshot can be taken.
    fn position(&self) -> Option<String> {
        None
    }
    /// Resumes from a position instead of from the beginning. Called before [`Source::start`].
    ///
    /// # Errors
    /// If there is no such place any more (a file that changed, shrank or vanished), or the
    /// position is of something else.
    fn seek(&mut self, position: &str) -> Result<()> {
        let _ = position;
        Err(Error::user("it can't resume from where it was: its input can't be read again")
            .hint("start from scratch, without the snapshot"))
    }
    /// In place of [`Source::seek`] and [`Source::start`], where the input had ended at this
    /// position, or was declared ended: checks that it has no rows behind it. Results are final
    /// there, so nothing more is read.
    ///
    /// # Errors
    /// If there are such rows: [`unread_rows`].
    fn check_ended(&mut self, position: &str) -> Result<()> {
        let _ = position;
        Ok(())
    }
    /// Takes the exclusive right to what the source writes besides its rows (dead letters), and
    /// otherwise only reads. Called where [`Sink::claim`] is, after [`Source::seek`]; a source that
    /// was not claimed claims in `open`.
    ///
    /// # Errors
    /// If another writer has it, or it cannot be written.
    fn claim(&mut self) -> Result<()> {
        Ok(())
    }
    /// The job takes snapshots, so that [`Source::committed`] is called: acknowledgements wait for
    /// it. Called with [`Source::claim`]. Where it is not called, rows are done with when they were
    /// polled.
    fn use_snapshots(&mut self) {}
    /// Makes durable what the source has written besides its rows up to the last
    /// [`Source::position`]. Called while a snapshot is taken, before it is kept.
    ///
    /// # Errors
    /// If it cannot be made durable.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }
    /// The job is done, and all sinks have finished: what the source has written besides its rows
    /// becomes final. Not called where a job has failed or was stopped. Called also of a source
    /// that had ended in an earlier run.
    ///
    /// # Errors
    /// If it cannot be made final, or is not all there.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    /// In place of [`Source::finish`], where the job has failed or was stopped: releases what was
    /// claimed. What was written must not look finished.
    fn abort(&mut self) {}
    /// A snapshot with this position is kept, and what the sinks wrote of it is visible: what lies
    /// before need not be delivered again. For inputs that wait for that (acknowledgements).
    ///
    /// # Errors
    /// If it can't be acknowledged; the job then fails, and what comes twice is recognized after
    /// the restart.
    fn committed(&mut self, position: &str) -> Result<()> {
        let _ = position;
        Ok(())
    }
}

/// The error of [`Source::check_ended`] for an input that has more rows; `which` says where they
/// are.
pub fn unread_rows(which: &str) -> Error {
    Error::plan(format!(
        "the input had ended, or was ended by a drain, when the snapshot was taken; now it has rows that were not \
         read: {which}"
    ))
    .hint("results are final after an end: read the new rows in a job of their own, or start from scratch")
}

/// A batch after the watermark assigner, ready to become a bundle.
#[derive(Debug)]
pub struct Assigned {
    /// The rows that are left.
    pub batch: RecordBatch,
    /// Each row's running watermark.
    pub watermark_before: crate::time::WatermarkBefore,
    /// The running watermark behind the last row.
    pub watermark_after: Watermark,
    /// The extremes of the row times, where they were looked for.
    pub time_extremes: Option<TimeExtremes>,
    /// Rows quarantined because their time lies too far in the future.
    pub quarantined: u64,
}

/// Computes row times and watermarks right behind a source, one batch at a time. The running
/// watermark of each split is its caller's.
pub trait Assign: Send {
    /// Stamps the rows of a batch, in front of which the watermark of their split is `before`.
    fn assign(&mut self, batch: SourceBatch, before: Watermark, wall_ms: i64) -> Result<Assigned>;
    /// True if a time that matters downstream lies between these two watermarks, so that an epoch
    /// should end between them.
    fn crosses(&self, from: Watermark, to: Watermark) -> bool;
    /// The highest watermark that these rows may establish, which come next and are not stamped
    /// yet; `None` where that is not known before they are. Rows behind which no epoch ends may
    /// wait for others.
    fn highest(&self, batch: &RecordBatch) -> Option<Watermark> {
        let _ = batch;
        None
    }
    /// The row times of a batch that was stamped, where rows have one.
    fn row_times(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>>;
    /// From now on at least these rows get their exact running watermark, also where no window
    /// needs it.
    fn stamp_exactly(&mut self, rows: ExactStamps);
    /// Which rows get it.
    fn exact_stamps(&self) -> ExactStamps {
        ExactStamps::Everywhere
    }
}

/// The rows of a batch that are stamped with their exact running watermark. Those of other batches
/// share one that is at most as high, and none of them is late for one in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExactStamps {
    /// Where a row could be late for a watermark of its own batch.
    WhereLate,
    /// Also where the watermark crosses a time that matters in the batch: at which row is known
    /// then.
    WhereCrossed,
    /// All.
    Everywhere,
}

/// Whether an output takes more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It does.
    More,
    /// It has all that it wants, as behind a limit: it is complete.
    Enough,
    /// Its reader has gone, as `head` does: it is not complete, and the rest is not wanted.
    Gone,
}

/// An output. All calls come from one thread, in the order `claim`, `check_start`, `open`,
/// `write`…, then one of `finish` and `abort`. In a job with snapshots `use_transactions` (or
/// `write_at_least_once`) comes before `check_start`, `mark` and `recover` come before `open`, and
/// `prepare`, `mark` and `commit` between writes; the last commit comes before `finish`.
///
/// A start has two phases: `claim` and then `check_start` of all sinks come before any call that
/// changes something. Where one of them refuses, `abort` is all that the others hear.
pub trait Sink: Send {
    /// A short name for metrics, EXPLAIN and errors.
    fn name(&self) -> String;
    /// Takes the exclusive right to the output, also across processes, and otherwise only reads.
    /// The right ends with `finish`, with `abort`, or when the sink is dropped. A job claims all
    /// its sinks before it calls anything else of any of them: where one is refused, no byte of any
    /// output has changed. An output that was not claimed claims itself in `open`.
    ///
    /// # Errors
    /// If another process is writing the output; the error names it.
    fn claim(&mut self) -> Result<()> {
        Ok(())
    }
    /// In place of all calls behind [`Sink::claim`], of an output that is only tried: says whether
    /// it can be reached, and changes nothing. `abort` follows.
    ///
    /// # Errors
    /// If it cannot be reached, or cannot be written as it is.
    fn connect(&mut self) -> Result<()> {
        Ok(())
    }
    /// Prepares the output.
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    /// Writes rows. May block.
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()>;
    /// Whether it takes more rows; asked after each `write` and `flush`. One that does not is
    /// finished at once and gets no more; the other outputs of the job continue.
    fn demand(&self) -> Demand {
        Demand::More
    }
    /// What ends calls that block for long, of a sink that waits for others (a server, a reader):
    /// asked at any time, and called from another thread: while the job starts, when it is not
    /// wanted any more; later, when it has failed or was stopped and its time to finish is over. A
    /// call that blocks then returns an error, within a second; `abort` follows.
    fn canceller(&self) -> Option<Waker> {
        None
    }
    /// Where it says what goes wrong outside while it tries again; asked after [`Sink::open`]. Rows
    /// wait meanwhile, and their sources are slowed down.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
    /// Called when nothing more is waiting: buffered rows should become visible where the format
    /// allows it.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    /// Everything was written: makes the output final.
    fn finish(&mut self) -> Result<()>;
    /// The job failed or was stopped: the output must not look finished. What is prepared stays.
    fn abort(&mut self);
    /// From now on what is written becomes visible only by [`Sink::commit`], where the output can
    /// do that. Called once, before [`Sink::recover`]. Says what is promised then.
    fn use_transactions(&mut self) -> SinkGuarantee {
        SinkGuarantee::AtLeastOnce
    }
    /// In place of [`Sink::use_transactions`] in a job that promises no more than that nothing is
    /// lost: what is written becomes visible as early as the output can show it, perhaps before its
    /// snapshot is kept. What a snapshot covers stays all the same. Called once, before
    /// [`Sink::recover`].
    fn write_at_least_once(&mut self) {}
    /// Says whether the output can be written from where the job starts: with the handle of the
    /// snapshot that the job resumes from, or without one. Only reads and locks: nothing that an
    /// earlier run has left is changed.
    ///
    /// # Errors
    /// If what the handle names is not there; if the output is not that of the snapshot; if the job
    /// starts from scratch and rows of an earlier run are there that it may not replace.
    fn check_start(&mut self, handle: Option<&str>, start: &OutputStart) -> Result<()> {
        let _ = (handle, start);
        Ok(())
    }
    /// Notes next to the output, durably, which snapshot it belongs to: before the first row is
    /// written, and before each [`Sink::commit`].
    ///
    /// # Errors
    /// If it cannot be noted.
    fn mark(&mut self, mark: &OutputMark) -> Result<()> {
        let _ = mark;
        Ok(())
    }
    /// Called in a job with snapshots before [`Sink::open`], with the handle of the snapshot that
    /// the job resumes from, or without one where it starts from scratch. Commits what the handle
    /// names, which may have been done already, and removes everything else that was written and
    /// not committed.
    ///
    /// # Errors
    /// If what the handle names is not there.
    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        let _ = handle;
        Ok(())
    }
    /// Ends a transaction: everything written so far is durable when this returns. The handle says,
    /// to [`Sink::commit`] and to [`Sink::recover`] of another run, what was written since the last
    /// one that was committed: where the snapshot of an earlier one could not be kept, this one
    /// holds both. JSON. `None` if there is nothing to commit.
    ///
    /// # Errors
    /// If it cannot be made durable.
    fn prepare(&mut self) -> Result<Option<String>> {
        self.flush()?;
        Ok(None)
    }
    /// Makes a prepared transaction visible. The snapshot that holds its handle is durable.
    ///
    /// # Errors
    /// If it cannot be done now; it is done by [`Sink::recover`] then.
    fn commit(&mut self, handle: &str) -> Result<()> {
        let _ = handle;
        Ok(())
    }
}
