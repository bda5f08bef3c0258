//! Tables of Python objects as sources.
//!
//! | object | is read | resumes from a snapshot |
//! |---|---|---|
//! | with Arrow's PyCapsule interface | when it is registered; each query gets the same batches | yes |
//! | a callable that returns such a thing | while a query runs, by a thread of its own | no |
//! | with `schema` and `read(position)` | the same | yes, at the positions that it yields |
//!
//! Batches keep the buffers of Python alive; nothing is copied. The engine never waits for Python:
//! a source that has no rows yet says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use pyo3_arrow::PySchema;
use thalweg::connector::Waker;
use thalweg::pipeline::MemorySource;
use thalweg::{Error, Result, Source, TableSchema};
use thalweg_core::connector::{SourceBatch, SourcePoll};

use crate::batch::reader_of;
use crate::functions::failed;
use crate::types::{engine_batch, table_schema};

/// Batches that a reader may be ahead of the engine.
const BATCHES_AHEAD: usize = 4;

/// What a table reads.
#[derive(Clone)]
pub enum TableData {
    /// Batches that are there.
    Batches(Vec<RecordBatch>),
    /// Something that is opened for each query.
    Opened {
        object: Arc<Py<PyAny>>,
        rowtime: Option<String>,
        has_positions: bool,
        is_bounded: bool,
    },
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
        let has_positions = !is_arrow && given.hasattr("read")? && given.hasattr("schema")?;
        if !is_arrow {
            let schema = match has_positions {
                true => of_schema(&given.getattr("schema")?.extract::<PySchema>()?.into_inner())?,
                false => of_schema(&reader_of(&given.call0()?)?.schema())?,
            };
            let object = Arc::new(given.clone().unbind());
            let rowtime = rowtime.map(str::to_owned);
            let data = TableData::Opened { object, rowtime, has_positions, is_bounded };
            return Ok(TableRows { schema, data });
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
            TableData::Opened { object, rowtime, has_positions, is_bounded } => {
                Box::new(OpenedSource {
                    object: Arc::clone(object),
                    schema: schema.clone(),
                    rowtime: rowtime.clone(),
                    has_positions: *has_positions,
                    is_bounded: *is_bounded,
                    stopped: Arc::default(),
                    reading: None,
                    current: None,
                    done: None,
                    taken: 0,
                })
            }
        }
    }
}

/// Rows, and where reading resumes behind them.
struct Piece {
    rows: RecordBatch,
    end: Option<String>,
}

/// An object of Python that is read by a thread.
struct OpenedSource {
    object: Arc<Py<PyAny>>,
    schema: TableSchema,
    rowtime: Option<String>,
    has_positions: bool,
    is_bounded: bool,
    stopped: Arc<AtomicBool>,
    reading: Option<(Receiver<Result<Piece>>, JoinHandle<()>)>,
    /// Rows of which some were not asked for yet.
    current: Option<Piece>,
    /// The position behind the last piece that was delivered as a whole.
    done: Option<String>,
    /// How many rows behind it were delivered.
    taken: usize,
}

impl OpenedSource {
    /// The next piece with rows that were not delivered; false if there is none now.
    fn advance(&mut self) -> Result<bool, Option<Error>> {
        while self.current.as_ref().is_none_or(|piece| piece.rows.num_rows() <= self.taken) {
            if let Some(piece) = self.current.take() {
                self.taken -= piece.rows.num_rows();
                self.done = piece.end;
            }
            let Some((reading, _)) = &self.reading else { return Err(None) };
            match reading.try_recv() {
                Ok(piece) => self.current = Some(piece.map_err(Some)?),
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => return Err(None),
            }
        }
        Ok(true)
    }
}

impl Source for OpenedSource {
    fn name(&self) -> String {
        "python".to_owned()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        let (sender, receiver) = bounded(BATCHES_AHEAD);
        let stopped = Arc::clone(&self.stopped);
        let (schema, rowtime) = (self.schema.clone(), self.rowtime.clone());
        let reading = Reading { schema, rowtime, sender, waker, stopped };
        let (object, from) = (Arc::clone(&self.object), self.done.clone());
        let has_positions = self.has_positions;
        let body = move || {
            let read = match has_positions {
                true => reading.read_positions(&object, from),
                false => reading.read_stream(&object),
            };
            if let Err(error) = read {
                reading.give(Err(error));
            }
            let Reading { sender, waker, .. } = reading;
            drop(sender);
            waker();
        };
        let thread = std::thread::Builder::new().name("python-table".to_owned()).spawn(body)?;
        self.reading = Some((receiver, thread));
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        match self.advance() {
            Ok(true) => {}
            Ok(false) => return Ok(SourcePoll::Pending),
            Err(None) => return Ok(SourcePoll::End),
            Err(Some(error)) => return Err(error),
        }
        let Some(piece) = &self.current else { return Ok(SourcePoll::Pending) };
        let rows = rows_max.max(1).min(piece.rows.num_rows() - self.taken);
        let batch = piece.rows.slice(self.taken, rows);
        self.taken += rows;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        self.is_bounded
    }
    fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.reading = None;
    }
    fn position(&self) -> Option<String> {
        let position = serde_json::json!({ "behind": self.done, "rows": self.taken });
        self.has_positions.then(|| position.to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        let wrong = || Error::user(format!("'{position}' is no position of a table of Python"));
        let position: serde_json::Value = serde_json::from_str(position).map_err(|_| wrong())?;
        self.done = position["behind"].as_str().map(str::to_owned);
        self.taken = position["rows"].as_u64().ok_or_else(wrong)? as usize;
        Ok(())
    }
}

/// What a thread reads for.
struct Reading {
    schema: TableSchema,
    rowtime: Option<String>,
    sender: Sender<Result<Piece>>,
    waker: Waker,
    stopped: Arc<AtomicBool>,
}

impl Reading {
    /// Hands something over, and waits for room. False if nobody wants it.
    fn give(&self, piece: Result<Piece>) -> bool {
        let is_wanted = !self.stopped.load(Ordering::Relaxed) && self.sender.send(piece).is_ok();
        (self.waker)();
        is_wanted
    }

    /// Reads what a callable returns.
    fn read_stream(&self, call: &Py<PyAny>) -> Result<()> {
        let reader = attached(|py| reader_of(&call.bind(py).call0()?))?;
        if table_schema(&reader.schema(), self.rowtime.as_deref())? != self.schema {
            return Err(Error::user("a table returns other columns than when it was registered"));
        }
        for batch in reader {
            let rows = engine_batch(batch?, &self.schema)?;
            if !self.give(Ok(Piece { rows, end: None })) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads what an object with positions yields behind one of them.
    fn read_positions(&self, object: &Py<PyAny>, from: Option<String>) -> Result<()> {
        let pieces =
            attached(|py| Ok(object.bind(py).call_method1("read", (from,))?.try_iter()?.unbind()))?;
        while let Some((batches, end)) = attached(|py| next_piece(pieces.bind(py)))? {
            let rows = batches.into_iter().map(|batch| engine_batch(batch, &self.schema));
            let rows = concat_batches(&self.schema.arrow(), &rows.collect::<Result<Vec<_>>>()?)?;
            if !self.give(Ok(Piece { rows, end: Some(end) })) {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn next_piece(pieces: &Bound<'_, PyIterator>) -> PyResult<Option<(Vec<RecordBatch>, String)>> {
    let Some(piece) = pieces.clone().next() else { return Ok(None) };
    let (batch, end): (Bound<'_, PyAny>, String) = piece?.extract()?;
    let batches = reader_of(&batch)?.collect::<std::result::Result<Vec<_>, _>>();
    let wrong = |error: arrow_schema::ArrowError| {
        pyo3::exceptions::PyValueError::new_err(error.to_string())
    };
    Ok(Some((batches.map_err(wrong)?, end)))
}

/// Does something in the interpreter; what it raises is an error of the job.
fn attached<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let called = Python::try_attach(|py| call(py).map_err(|error| failed(py, "a table", error)));
    called.ok_or_else(|| Error::io("Python is about to end"))?
}
