//! Sources and sinks in memory, for tests, benchmarks and embedding.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use thalweg_core::connector::Waker;
use thalweg_core::counter::{row_position, rows_before};
use thalweg_core::{Error, Result, RowKind, Sink, Source, SourceBatch, SourcePoll, TableSchema};

/// Serves batches that are in memory, in order, in pieces of the size that the engine asks for.
pub struct MemorySource {
    batches: VecDeque<RecordBatch>,
    offset: usize,
    /// Rows given so far.
    given: u64,
}

impl MemorySource {
    /// A source of these batches; they must have the columns of `schema`.
    pub fn new(schema: TableSchema, batches: Vec<RecordBatch>) -> Self {
        let columns = schema.len();
        assert!(batches.iter().all(|b| b.num_columns() == columns), "batches fit the schema");
        MemorySource::replay(batches)
    }

    /// A source of batches that another source has made.
    pub fn replay(batches: Vec<RecordBatch>) -> Self {
        MemorySource { batches: batches.into(), offset: 0, given: 0 }
    }

    /// The next rows of a batch, at most this many.
    fn take(&mut self, rows_max: usize) -> Option<RecordBatch> {
        let front = self.batches.front()?;
        let rows = rows_max.max(1).min(front.num_rows() - self.offset);
        let batch = front.slice(self.offset, rows);
        self.offset += rows;
        self.given += rows as u64;
        if self.offset >= front.num_rows() {
            self.batches.pop_front();
            self.offset = 0;
        }
        Some(batch)
    }
}

impl Source for MemorySource {
    fn name(&self) -> String {
        "memory".to_owned()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let Some(batch) = self.take(rows_max) else { return Ok(SourcePoll::End) };
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
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
            let missing = usize::try_from(rows - self.given).unwrap_or(usize::MAX);
            if self.take(missing).is_none() {
                return Err(Error::user(format!(
                    "the input has {} rows, {rows} were read",
                    self.given
                ))
                .hint("give the same rows again, or start from scratch, without the snapshot"));
            }
        }
        Ok(())
    }
}

/// Rows that came together, and what each of them does to the result.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The rows.
    pub batch: RecordBatch,
    /// As many kinds as rows; `None` where every row is new and stays.
    pub kinds: Option<Vec<RowKind>>,
}

impl Changes {
    /// The kind of a row.
    pub fn kind(&self, row: usize) -> RowKind {
        self.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds[row])
    }
}

/// Keeps what is written to it. Clones share the rows.
#[derive(Clone, Default)]
pub struct Collect {
    changes: Arc<Mutex<Vec<Changes>>>,
}

impl Collect {
    /// Nothing yet.
    pub fn new() -> Self {
        Collect::default()
    }
    /// A sink that adds to this collection.
    pub fn sink(&self) -> impl Sink + 'static {
        CollectSink(self.clone())
    }
    /// The batches so far. Of a result that changes they are every change; [`Collect::changes`]
    /// also says what each of them does.
    pub fn batches(&self) -> Vec<RecordBatch> {
        self.changes().into_iter().map(|changes| changes.batch).collect()
    }
    /// The batches so far, with the kinds of their rows.
    pub fn changes(&self) -> Vec<Changes> {
        self.changes.lock().expect("no panic while rows are added").clone()
    }
    /// Forgets all rows.
    pub fn clear(&self) {
        self.changes.lock().expect("no panic while rows are added").clear();
    }
    /// How many rows so far.
    pub fn num_rows(&self) -> usize {
        self.batches().iter().map(RecordBatch::num_rows).sum()
    }
}

struct CollectSink(Collect);

impl Sink for CollectSink {
    fn name(&self) -> String {
        "collect".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let changes = Changes { batch: batch.clone(), kinds: kinds.map(<[RowKind]>::to_vec) };
        self.0.changes.lock().expect("no panic while rows are added").push(changes);
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
