//! Where rows come from and where they go.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use thalweg_core::connector::Waker;
use thalweg_core::counter::{row_position, rows_before};
use thalweg_core::{Error, Result, RowKind, Sink, Source, SourceBatch, SourcePoll, SplitId};

use super::Row;
use super::codec::{Codec, RowWriter, packed_schema};

/// Rows in a batch that was packed ahead.
const PACKED_ROWS: usize = 64 * 1024;

/// Returns the time of a row, in milliseconds since 1970.
pub(super) type TimeOf<T> = Arc<dyn Fn(&T) -> i64 + Send + Sync>;

/// A source of rows of one's own: a queue, a socket, a clock.
pub trait RowSource<T>: Send {
    /// Called once before the first poll. `waker` may be kept, and called from any thread when
    /// asking again is worth while after [`RowPoll::Pending`].
    ///
    /// # Errors
    /// Whatever keeps the source from starting; the job does not start then.
    fn start(&mut self, waker: Waker) -> Result<()> {
        let _ = waker;
        Ok(())
    }
    /// Adds at most this many rows to `rows`. Must not wait.
    ///
    /// # Errors
    /// What stops the job.
    fn poll(&mut self, rows_max: usize, rows: &mut Vec<T>) -> Result<RowPoll>;
    /// True if the rows end by themselves.
    fn is_bounded(&self) -> bool {
        false
    }
    /// The job is over: `poll` is not called again.
    fn stop(&mut self) {}
    /// The position after the last row that was given, in words of the source's own, for
    /// [`RowSource::seek`] in another run of the program. `None` if rows can't be given again from
    /// there: a job with such a source has no snapshots.
    fn position(&self) -> Option<String> {
        None
    }
    /// Resumes from a position. Called before [`RowSource::start`].
    ///
    /// # Errors
    /// If there is no such place any more.
    fn seek(&mut self, position: &str) -> Result<()> {
        let _ = position;
        Err(Error::user("it cannot resume from where it was: its rows can't be given again")
            .hint("implement RowSource::position and RowSource::seek, or start from scratch"))
    }
    /// A snapshot with this position is kept: what lies before need not be given again.
    ///
    /// # Errors
    /// If the outside can't be notified; the job fails then.
    fn committed(&mut self, position: &str) -> Result<()> {
        let _ = position;
        Ok(())
    }
}

/// The answer of a [`RowSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPoll {
    /// Rows were added.
    Rows,
    /// None now; the waker will be called.
    Pending,
    /// Behind the rows that were added, if any: a promise that no row to come is older than this,
    /// in milliseconds since 1970. It raises the watermark to just before it, and lets merges by
    /// time advance. The source is asked again at once.
    Heartbeat(i64),
    /// There will never be more.
    End,
}

/// An iterator as a source. Another run is taken to iterate over the same rows.
pub(super) struct Iterated<I> {
    rows: I,
    /// Rows given so far.
    given: u64,
}

impl<I> Iterated<I> {
    pub(super) fn new(rows: I) -> Self {
        Iterated { rows, given: 0 }
    }
}

impl<T, I: Iterator<Item = T> + Send> RowSource<T> for Iterated<I> {
    fn poll(&mut self, rows_max: usize, rows: &mut Vec<T>) -> Result<RowPoll> {
        rows.extend(self.rows.by_ref().take(rows_max));
        self.given += rows.len() as u64;
        Ok(if rows.is_empty() { RowPoll::End } else { RowPoll::Rows })
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn position(&self) -> Option<String> {
        Some(row_position(self.given))
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        let rows = rows_before(position)?;
        while self.given < rows {
            if self.rows.next().is_none() {
                let given = self.given;
                return Err(Error::user(format!("there are {given} rows, and {rows} were read"))
                    .hint(
                        "give the same rows again, or start from scratch, without the snapshot",
                    ));
            }
            self.given += 1;
        }
        Ok(())
    }
}

/// Packs the rows of a source as they come.
pub(super) struct Packing<T, S> {
    pub source: S,
    pub time: Option<TimeOf<T>>,
    pub rows: Vec<T>,
    pub heartbeat_ms: Option<i64>,
    pub has_ended: bool,
}

impl<T, S> Packing<T, S> {
    pub(super) fn new(source: S, time: Option<TimeOf<T>>) -> Self {
        Packing { source, time, rows: Vec::new(), heartbeat_ms: None, has_ended: false }
    }
}

impl<T: Row, S: RowSource<T>> Source for Packing<T, S> {
    fn name(&self) -> String {
        "rows".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.source.start(waker)
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(time_ms) = self.heartbeat_ms.take() {
            return Ok(SourcePoll::Heartbeat(SplitId::ONLY, time_ms));
        }
        if self.has_ended {
            return Ok(SourcePoll::End);
        }
        let answer = self.source.poll(rows_max.max(1), &mut self.rows)?;
        self.has_ended = answer == RowPoll::End;
        // Rows that came with another answer than that there are rows are not lost.
        match answer {
            RowPoll::End if self.rows.is_empty() => return Ok(SourcePoll::End),
            RowPoll::Pending if self.rows.is_empty() => return Ok(SourcePoll::Pending),
            RowPoll::Heartbeat(time_ms) if self.rows.is_empty() => {
                return Ok(SourcePoll::Heartbeat(SplitId::ONLY, time_ms));
            }
            RowPoll::Heartbeat(time_ms) => self.heartbeat_ms = Some(time_ms),
            _ => {}
        }
        let batch = pack(self.rows.drain(..), self.time.as_ref())?;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        self.source.is_bounded()
    }
    fn stop(&mut self) {
        self.source.stop();
    }
    fn position(&self) -> Option<String> {
        let source = self.source.position()?;
        Some(match self.heartbeat_ms {
            None => source,
            Some(time_ms) => format!("{HEARTBEAT}{time_ms}{BEFORE}{source}}}"),
        })
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        let (heartbeat_ms, source) = split_heartbeat(position);
        self.heartbeat_ms = heartbeat_ms;
        self.source.seek(source)
    }
    fn committed(&mut self, position: &str) -> Result<()> {
        self.source.committed(split_heartbeat(position).1)
    }
}

/// How a position begins where a promise stands behind the last row.
const HEARTBEAT: &str = "{\"$heartbeat_ms\":";
/// What stands in it before the position of the rows.
const BEFORE: &str = ",\"source\":";

/// A promise that is to be given first, and the position of the rows.
fn split_heartbeat(position: &str) -> (Option<i64>, &str) {
    let parts = || {
        let rest = position.strip_prefix(HEARTBEAT)?.strip_suffix('}')?;
        let (time_ms, source) = rest.split_once(BEFORE)?;
        Some((Some(time_ms.parse().ok()?), source))
    };
    parts().unwrap_or((None, position))
}

fn pack<T: Row>(rows: impl Iterator<Item = T>, time: Option<&TimeOf<T>>) -> Result<RecordBatch> {
    let mut writer = RowWriter::new();
    let mut times = time.map(|_| Vec::new());
    for row in rows {
        if let (Some(times), Some(time)) = (&mut times, time) {
            times.push(time(&row));
        }
        writer.push(&row)?;
    }
    let times = times.map(|times| Arc::new(TimestampMillisecondArray::from(times)) as ArrayRef);
    writer.finish(&packed_schema(time.is_some()).arrow(), times.into_iter().collect())
}

/// Rows that were packed ahead: reading them costs next to nothing, and clones share them.
pub struct PackedRows<T> {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) has_time: bool,
    rows: PhantomData<fn() -> T>,
}

impl<T> Clone for PackedRows<T> {
    fn clone(&self) -> Self {
        PackedRows { batches: self.batches.clone(), has_time: self.has_time, rows: PhantomData }
    }
}

impl<T: Row> PackedRows<T> {
    /// Packs rows without a time.
    ///
    /// # Errors
    /// If a row can't be written.
    pub fn new(rows: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::pack(rows, None)
    }

    /// Packs rows with their time, in milliseconds since 1970.
    ///
    /// # Errors
    /// If a row can't be written.
    pub fn timed(
        rows: impl IntoIterator<Item = T>,
        time_ms: impl Fn(&T) -> i64 + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::pack(rows, Some(Arc::new(time_ms)))
    }

    fn pack(rows: impl IntoIterator<Item = T>, time: Option<TimeOf<T>>) -> Result<Self> {
        let mut rows = rows.into_iter();
        let mut batches = Vec::new();
        loop {
            let batch = pack(rows.by_ref().take(PACKED_ROWS), time.as_ref())?;
            if batch.num_rows() == 0 {
                return Ok(PackedRows { batches, has_time: time.is_some(), rows: PhantomData });
            }
            batches.push(batch);
        }
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keeps what comes, as it is written.
#[derive(Clone)]
pub(super) struct RowSink {
    pub batches: Arc<Mutex<Vec<RecordBatch>>>,
}

impl Sink for RowSink {
    fn name(&self) -> String {
        "collect".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        self.batches.lock().expect("no panic while rows are added").push(batch.clone());
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

/// The rows that have come to the end of a pipeline, in order.
pub struct CollectedRows<T> {
    pub(super) batches: Arc<Mutex<Vec<RecordBatch>>>,
    pub(super) codec: Codec,
    pub(super) rows: PhantomData<fn() -> T>,
}

impl<T: Row> CollectedRows<T> {
    /// The rows so far.
    ///
    /// # Panics
    /// If the type does not read back what it writes; rows that went through an operator do.
    pub fn rows(&self) -> Vec<T> {
        let batches = self.batches.lock().expect("no panic while rows are added").clone();
        let mut rows = Vec::new();
        for batch in batches {
            let push = |_, row| {
                rows.push(row);
                Ok(())
            };
            self.codec.read(&batch, None, push).expect("rows are read back as they were written");
        }
        rows
    }

    /// How many rows so far.
    pub fn len(&self) -> usize {
        let batches = self.batches.lock().expect("no panic while rows are added");
        batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// True if there are none so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Hands each row to a closure.
pub(super) struct EachRow<T, F> {
    pub codec: Codec,
    pub function: F,
    pub rows: PhantomData<fn() -> T>,
}

impl<T: Row, F: FnMut(T) -> Result<()> + Send> Sink for EachRow<T, F> {
    fn name(&self) -> String {
        "for each".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        self.codec.read(batch, None, |_, row| (self.function)(row))
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives two rows with a promise behind them, then what an iterator has.
    struct Promising(Iterated<std::ops::Range<i64>>);

    impl RowSource<i64> for Promising {
        fn poll(&mut self, rows_max: usize, rows: &mut Vec<i64>) -> Result<RowPoll> {
            if self.0.given > 0 {
                return self.0.poll(rows_max, rows);
            }
            self.0.poll(2, rows)?;
            Ok(RowPoll::Heartbeat(77))
        }
        fn position(&self) -> Option<String> {
            self.0.position()
        }
        fn seek(&mut self, position: &str) -> Result<()> {
            self.0.seek(position)
        }
    }

    fn promising() -> Packing<i64, Promising> {
        Packing::new(Promising(Iterated::new(0..5)), None)
    }

    fn rows_of(polled: Result<SourcePoll>) -> Vec<i64> {
        let mut rows = Vec::new();
        let Ok(SourcePoll::Batch(given)) = polled else { panic!("rows were expected") };
        let push = |_, row| {
            rows.push(row);
            Ok(())
        };
        Codec::Packed.read(&given.batch, None, push).expect("rows are read back");
        rows
    }

    #[test]
    fn a_promise_that_was_not_given_yet_is_given_in_the_next_run() {
        let mut source = promising();
        assert_eq!(rows_of(source.poll(10)), [0, 1]);
        let mut next = promising();
        next.seek(&source.position().expect("a position")).expect("it resumes");
        for source in [&mut source, &mut next] {
            assert!(matches!(source.poll(10), Ok(SourcePoll::Heartbeat(_, 77))));
            assert_eq!(source.position().as_deref(), Some("{\"row\":2}"));
            assert_eq!(rows_of(source.poll(10)), [2, 3, 4]);
            assert!(matches!(source.poll(10), Ok(SourcePoll::End)));
        }
        assert!(promising().seek("{\"row\":6}").is_err(), "there are five rows");
        assert!(promising().seek("nonsense").is_err());
    }
}
