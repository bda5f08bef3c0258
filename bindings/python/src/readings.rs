//! Threads that read objects of Python for a source.
//!
//! Each reads one thing: the stream that a callable returns, or what an object yields behind a
//! position, of one split where the object has several. It hands over what it reads through a
//! bounded queue and holds the interpreter's lock only while it asks the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_select::concat::concat_batches;
use crossbeam_channel::{Receiver, Sender, bounded};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use thalweg::connector::Waker;
use thalweg::{Error, Result, TableSchema};

use crate::batch::reader_of;
use crate::functions::failed;
use crate::types::{engine_batch, table_schema};

/// What a reader may be ahead of the engine by: batches and heartbeats.
const GIVEN_AHEAD: usize = 4;

/// What a reader has read.
pub enum Given {
    /// Rows.
    Rows(Piece),
    /// None of the rows to come is older, in milliseconds since 1970.
    Heartbeat(i64),
}

/// Rows, and where reading resumes behind them.
pub struct Piece {
    pub rows: RecordBatch,
    pub end: Option<String>,
}

/// What is read of an object.
#[derive(Clone)]
pub enum Reads {
    /// What it returns when it is called.
    Stream,
    /// What `read(position)` yields.
    Positions,
    /// What `read(split, position)` yields, for each split that `splits()` lists.
    Splits,
}

impl Reads {
    /// How an object is read that is no table itself.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Reads> {
        Ok(match object.hasattr("read")? && object.hasattr("schema")? {
            true if object.hasattr("splits")? => Reads::Splits,
            true => Reads::Positions,
            false => Reads::Stream,
        })
    }
    /// True if reading can resume.
    pub fn has_positions(&self) -> bool {
        !matches!(self, Reads::Stream)
    }
}

/// An object, and how it is read.
#[derive(Clone)]
pub struct Readable {
    pub object: Arc<Py<PyAny>>,
    pub reads: Reads,
    pub schema: TableSchema,
    pub rowtime: Option<String>,
}

impl Readable {
    /// The names of its splits. `None` if it is one.
    pub fn splits(&self) -> Result<Option<Vec<String>>> {
        if !matches!(self.reads, Reads::Splits) {
            return Ok(None);
        }
        let names: Vec<String> = attached(|py| {
            let listed = self.object.bind(py).call_method0("splits")?;
            listed.try_iter()?.map(|name| name?.extract()).collect()
        })?;
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::user(format!("splits() lists '{}' twice", pair[0]))),
            None => Ok(Some(names)),
        }
    }

    /// Reads, from a position on, on a thread of its own. The thread ends when the queue is
    /// dropped or `stopped` is set, as soon as the object has yielded what it is asked for.
    pub fn start(
        &self,
        split: Option<String>,
        from: Option<String>,
        (waker, stopped): (Waker, Arc<AtomicBool>),
    ) -> Result<Receiver<Result<Given>>> {
        let (sender, receiver) = bounded(GIVEN_AHEAD);
        let reading = Reading { of: self.clone(), sender, waker, stopped };
        let body = move || {
            let read = match reading.of.reads {
                Reads::Stream => reading.read_stream(),
                Reads::Positions | Reads::Splits => reading.read_behind(split, from),
            };
            if let Err(error) = read {
                reading.give(Err(error));
            }
            let Reading { sender, waker, .. } = reading;
            drop(sender);
            waker();
        };
        std::thread::Builder::new().name("python-table".to_owned()).spawn(body)?;
        Ok(receiver)
    }
}

/// What a thread reads, and for whom.
struct Reading {
    of: Readable,
    sender: Sender<Result<Given>>,
    waker: Waker,
    stopped: Arc<AtomicBool>,
}

impl Reading {
    /// Hands something over, and waits for room. False if nobody wants it.
    fn give(&self, given: Result<Given>) -> bool {
        let is_wanted = !self.stopped.load(Ordering::Relaxed) && self.sender.send(given).is_ok();
        (self.waker)();
        is_wanted
    }

    /// Reads what a callable returns.
    fn read_stream(&self) -> Result<()> {
        let Readable { object, schema, rowtime, .. } = &self.of;
        let reader = attached(|py| reader_of(&object.bind(py).call0()?))?;
        if table_schema(&reader.schema(), rowtime.as_deref())? != *schema {
            return Err(Error::user("a table returns other columns than when it was registered"));
        }
        for batch in reader {
            let rows = engine_batch(batch?, schema)?;
            if !self.give(Ok(Given::Rows(Piece { rows, end: None }))) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads what an object yields behind a position.
    fn read_behind(&self, split: Option<String>, from: Option<String>) -> Result<()> {
        let Readable { object, schema, .. } = &self.of;
        let items = attached(|py| {
            let object = object.bind(py);
            let items = match split {
                Some(split) => object.call_method1("read", (split, from))?,
                None => object.call_method1("read", (from,))?,
            };
            Ok(items.try_iter()?.unbind())
        })?;
        while let Some(item) = attached(|py| next_item(items.bind(py)))? {
            let given = match item {
                Item::Heartbeat(time_ms) => Given::Heartbeat(time_ms),
                Item::Rows(batches, end) => {
                    let rows = batches.into_iter().map(|batch| engine_batch(batch, schema));
                    let rows = concat_batches(&schema.arrow(), &rows.collect::<Result<Vec<_>>>()?)?;
                    Given::Rows(Piece { rows, end: Some(end) })
                }
            };
            if !self.give(Ok(given)) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What an object has yielded, as it has it.
enum Item {
    Rows(Vec<RecordBatch>, String),
    Heartbeat(i64),
}

fn next_item(items: &Bound<'_, PyIterator>) -> PyResult<Option<Item>> {
    let Some(item) = items.clone().next().transpose()? else { return Ok(None) };
    if let Ok(time_ms) = item.getattr("heartbeat_ms") {
        return Ok(Some(Item::Heartbeat(time_ms.extract()?)));
    }
    let Ok((batch, end)) = item.extract::<(Bound<'_, PyAny>, String)>() else {
        let class = item.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "read yields pairs of a batch and the position behind it, a text, or thalweg.Heartbeat; this is a {class}"
        )));
    };
    let batches = reader_of(&batch)?.collect::<std::result::Result<Vec<_>, _>>();
    let wrong = |error: arrow_schema::ArrowError| PyValueError::new_err(error.to_string());
    Ok(Some(Item::Rows(batches.map_err(wrong)?, end)))
}

/// Does something in the interpreter; what it raises is an error of the job.
fn attached<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let called = Python::try_attach(|py| call(py).map_err(|error| failed(py, "a table", error)));
    called.ok_or_else(|| Error::io("Python is about to end"))?
}
