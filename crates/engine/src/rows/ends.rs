//! Where rows come from and where they go.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use thalweg_core::connector::Waker;
use thalweg_core::{Result, RowKind, Sink, Source, SourceBatch, SourcePoll};

use super::Row;
use super::codec::{Codec, RowWriter, packed_schema};

/// Rows in a batch that was packed ahead.
const PACKED_ROWS: usize = 64 * 1024;

/// Tells the time of a row, in milliseconds since 1970.
pub(super) type TimeOf<T> = Arc<dyn Fn(&T) -> i64 + Send + Sync>;

/// Packs the rows of an iterator as they are asked for.
pub(super) struct RowSource<T, I> {
    pub rows: I,
    pub time: Option<TimeOf<T>>,
}

impl<T: Row, I: Iterator<Item = T> + Send> Source for RowSource<T, I> {
    fn name(&self) -> String {
        "rows".to_owned()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let batch = pack(self.rows.by_ref().take(rows_max.max(1)), self.time.as_ref())?;
        if batch.num_rows() == 0 {
            return Ok(SourcePoll::End);
        }
        Ok(SourcePoll::Batch(SourceBatch { batch, origin: None }))
    }
    fn is_bounded(&self) -> bool {
        true
    }
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
    writer.finish(&packed_schema(time.is_some()).arrow(), times)
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
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        self.batches.lock().expect("no panic while rows are added").push(batch.clone());
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
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
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        self.codec.read(batch, None, |_, row| (self.function)(row))
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
