//! Tables of Python objects as sources.
//!
//! | object | is read | resumes from a snapshot |
//! |---|---|---|
//! | with Arrow's PyCapsule interface | when it is registered; each query gets the same batches | yes |
//! | a callable that returns such a thing | while a query runs, by a thread of its own | no |
//! | with `schema` and `read(position)` | the same | yes, at the positions that it yields |
//! | with `schema`, `splits()` and `read(split, position)` | the same, each split by a thread of its own | the same, each split |
//!
//! Batches keep the buffers of Python alive; nothing is copied. The engine never waits for Python:
//! a source that has no rows yet says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::Schema;
use crossbeam_channel::{Receiver, TryRecvError, never};
use pyo3::prelude::*;
use pyo3_arrow::PySchema;
use serde_json::{Value, json};
use thalweg::connector::Waker;
use thalweg::pipeline::MemorySource;
use thalweg::{Error, Result, Source, TableSchema};
use thalweg_core::connector::{SourceBatch, SourcePoll, SplitEvent, SplitId, SplitStatus};

use crate::batch::reader_of;
use crate::readings::{Given, Piece, Readable, Reads};
use crate::types::{engine_batch, table_schema};

/// What a table reads.
#[derive(Clone)]
pub enum TableData {
    /// Batches that are there.
    Batches(Vec<RecordBatch>),
    /// Something that is opened for each query.
    Opened { from: Readable, is_bounded: bool },
}

/// Rows of Python with the columns that SQL sees.
pub struct TableRows {
    pub schema: TableSchema,
    pub data: TableData,
}

impl TableRows {
    /// The rows of an object.
    pub fn of(
        given: &Bound<'_, PyAny>,
        rowtime: Option<&str>,
        is_bounded: bool,
    ) -> PyResult<TableRows> {
        let py = given.py();
        let wrong = |error: Error| crate::errors::to_python(py, &error, "");
        let of_schema = |schema: &Schema| table_schema(schema, rowtime).map_err(wrong);
        let is_arrow =
            given.hasattr("__arrow_c_stream__")? || given.hasattr("__arrow_c_array__")?;
        if !is_arrow {
            let reads = Reads::of(given)?;
            let schema = match reads.has_positions() {
                true => of_schema(&given.getattr("schema")?.extract::<PySchema>()?.into_inner())?,
                false => of_schema(&reader_of(&given.call0()?)?.schema())?,
            };
            let object = Arc::new(given.clone().unbind());
            let rowtime = rowtime.map(str::to_owned);
            let from = Readable { object, reads, schema: schema.clone(), rowtime };
            return Ok(TableRows { schema, data: TableData::Opened { from, is_bounded } });
        }
        let reader = reader_of(given)?;
        let schema = of_schema(&reader.schema())?;
        let batches = py.detach(|| {
            reader.map(|batch| engine_batch(batch?, &schema)).collect::<Result<Vec<_>>>()
        });
        Ok(TableRows { data: TableData::Batches(batches.map_err(wrong)?), schema })
    }
}

impl TableData {
    /// A source for one job.
    pub fn source(&self, schema: &TableSchema) -> Box<dyn Source> {
        match self {
            TableData::Batches(batches) => {
                Box::new(MemorySource::new(schema.clone(), batches.clone()))
            }
            TableData::Opened { from, is_bounded } => Box::new(OpenedSource {
                from: from.clone(),
                is_bounded: *is_bounded,
                stopped: Arc::default(),
                waker: None,
                sought: BTreeMap::new(),
                opened: VecDeque::new(),
                parts: Vec::new(),
                next: 0,
            }),
        }
    }
}

/// An object of Python that threads read, one for each of its splits.
struct OpenedSource {
    from: Readable,
    is_bounded: bool,
    stopped: Arc<AtomicBool>,
    waker: Option<Waker>,
    /// Where to resume, by the names of splits; of one without splits, the name is empty. Once it
    /// has started: splits that had ended and are not there any more.
    sought: BTreeMap<String, Progress>,
    /// Splits of which it has not been said yet that they are open.
    opened: VecDeque<SourcePoll>,
    parts: Vec<Part>,
    /// The part that is asked next.
    next: usize,
}

/// How far a part was read.
#[derive(Clone, Default)]
struct Progress {
    /// The position behind the last piece that was delivered as a whole.
    behind: Option<String>,
    /// How many rows behind it were delivered.
    rows: usize,
    has_ended: bool,
}

impl Progress {
    fn to_json(&self) -> Value {
        json!({ "behind": self.behind, "rows": self.rows, "ended": self.has_ended })
    }
    fn of(value: &Value) -> Option<Progress> {
        Some(Progress {
            behind: value["behind"].as_str().map(str::to_owned),
            rows: value["rows"].as_u64()? as usize,
            has_ended: value["ended"].as_bool().unwrap_or(false),
        })
    }
}

/// A split, or all of a source that has none.
struct Part {
    name: String,
    is_split: bool,
    reading: Receiver<Result<Given>>,
    /// Rows of which some were not asked for yet.
    current: Option<Piece>,
    done: Progress,
    is_paused: bool,
}

impl Part {
    /// What it gives now. `None` if that is nothing, now or ever.
    fn poll(&mut self, split: SplitId, rows_max: usize) -> Result<Option<SourcePoll>> {
        while !self.is_paused && !self.done.has_ended {
            if let Some(batch) = self.take_rows(rows_max) {
                return Ok(Some(SourcePoll::Batch(SourceBatch { batch, origin: None, split })));
            }
            match self.reading.try_recv() {
                Ok(Ok(Given::Rows(piece))) => self.current = Some(piece),
                Ok(Ok(Given::Heartbeat(time_ms))) => {
                    return Ok(Some(SourcePoll::Heartbeat(split, time_ms)));
                }
                Ok(Err(error)) => return Err(error),
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => {
                    self.done.has_ended = true;
                    let ended = SourcePoll::Split(split, SplitEvent::Ended);
                    return Ok(self.is_split.then_some(ended));
                }
            }
        }
        Ok(None)
    }

    /// Rows of the current piece that were not delivered, if there are any.
    fn take_rows(&mut self, rows_max: usize) -> Option<RecordBatch> {
        let piece = self.current.as_ref()?;
        let total = piece.rows.num_rows();
        let rows = rows_max.max(1).min(total.saturating_sub(self.done.rows));
        let batch = (rows > 0).then(|| piece.rows.slice(self.done.rows, rows));
        self.done.rows += rows;
        if self.done.rows >= total {
            self.done.rows -= total;
            self.done.behind = self.current.take().and_then(|piece| piece.end);
        }
        batch
    }
}

impl OpenedSource {
    /// Begins to read a split, or all of it, from where an earlier run was.
    fn open_part(&mut self, name: String, is_split: bool, waker: &Waker) -> Result<Part> {
        let done = Progress { has_ended: false, ..self.sought.remove(&name).unwrap_or_default() };
        let split = is_split.then(|| name.clone());
        let notices = (Arc::clone(waker), Arc::clone(&self.stopped));
        let reading = self.from.start(split, done.behind.clone(), notices)?;
        Ok(Part { name, is_split, reading, current: None, done, is_paused: false })
    }
}

impl Source for OpenedSource {
    fn name(&self) -> String {
        "python".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        let splits = self.from.splits()?;
        let is_split = splits.is_some();
        for name in splits.unwrap_or_else(|| vec![String::new()]) {
            if is_split {
                let id = SplitId(self.parts.len() as u32);
                let event = SplitEvent::Opened(name.as_str().into());
                self.opened.push_back(SourcePoll::Split(id, event));
            }
            let part = self.open_part(name, is_split, &waker)?;
            self.parts.push(part);
        }
        self.waker = Some(waker);
        match self.sought.iter().find(|(_, progress)| !progress.has_ended) {
            None => Ok(()),
            Some((name, _)) => Err(Error::user(format!(
                "it can't resume from where it was: splits() does not list '{name}', which had not ended"
            ))
            .hint("list it, or start from scratch, without the snapshot")),
        }
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        if let Some(opened) = self.opened.pop_front() {
            return Ok(opened);
        }
        for _ in 0..self.parts.len() {
            let part = &mut self.parts[self.next];
            let given = part.poll(SplitId(self.next as u32), rows_max)?;
            if part.current.is_none() {
                self.next = (self.next + 1) % self.parts.len();
            }
            if let Some(given) = given {
                return Ok(given);
            }
        }
        match self.parts.iter().all(|part| part.done.has_ended) {
            true => Ok(SourcePoll::End),
            false => Ok(SourcePoll::Pending),
        }
    }
    fn is_bounded(&self) -> bool {
        self.is_bounded
    }
    fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.parts.iter_mut().for_each(|part| part.reading = never());
    }
    fn split_status(&self, split: SplitId) -> SplitStatus {
        let Some(part) = self.parts.get(split.0 as usize) else { return SplitStatus::default() };
        SplitStatus {
            position: part.done.behind.clone(),
            is_caught_up: part.current.is_none() && part.reading.is_empty(),
            ..SplitStatus::default()
        }
    }
    fn pause_split(&mut self, split: SplitId, is_paused: bool) {
        if let Some(part) = self.parts.get_mut(split.0 as usize) {
            part.is_paused = is_paused;
        }
        self.waker.iter().filter(|_| !is_paused).for_each(|wake| wake());
    }
    fn position(&self) -> Option<String> {
        let parts = self.parts.iter().map(|part| (&part.name, &part.done));
        let known = parts.chain(&self.sought).map(|(name, done)| (name.clone(), done.to_json()));
        let known: serde_json::Map<String, Value> = known.collect();
        self.from.reads.has_positions().then(|| json!({ "splits": known }).to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        let known: Option<Value> = serde_json::from_str(position).ok();
        let known = known.as_ref().and_then(|known| known["splits"].as_object());
        let progress =
            |(name, value): (&String, &Value)| Some((name.clone(), Progress::of(value)?));
        let known = known.and_then(|known| known.iter().map(progress).collect::<Option<_>>());
        self.sought = known.ok_or_else(|| {
            Error::user(format!("'{position}' is no position of a table of Python"))
                .hint("the snapshot is of another version, or damaged")
        })?;
        Ok(())
    }
}
