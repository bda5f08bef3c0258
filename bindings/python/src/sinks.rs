//! `'connector' = 'python'`: tables that write into objects of Python.
//!
//! `Connection.register_sink` gives an object a name, and a table names it:
//! `WITH ('connector' = 'python', 'sink' = 'alerts')`. The engine calls sinks on a thread of each,
//! so no worker waits for the interpreter's lock.
//!
//! | method of the object | called |
//! |---|---|
//! | `write(batch)` | for each batch; a plain callable is its own `write` |
//! | `flush()` | when nothing more is waiting |
//! | `close()` | when everything was written |
//! | `prepare()`, `commit(handle)`, `recover(handle)` | in jobs with snapshots, if all are there |
//!
//! With the last three an output is transactional: what was written becomes visible by `commit`
//! alone. `prepare` makes it durable and returns a text that names it; `recover` of a later run is
//! given the text of the snapshot that it resumes from, to commit that (perhaps once more) and to
//! drop everything else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch as Batch;
use pyo3::prelude::*;
use thalweg::connector::{
    AcceptedChanges, Capabilities, Connector, ConnectorDescription, Options, SinkCapability,
    SinkGuarantee, TableRequest, near_miss, option_table,
};
use thalweg::{Error, Result, RowKind, Sink};

use crate::batch::RecordBatch;
use crate::functions::failed;

const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities {
        sink: Some(SinkCapability {
            changes: &[AcceptedChanges::All],
            guarantee: SinkGuarantee::Transactional,
        }),
        ..Capabilities::NONE
    },
    options: &option_table! {
        "sink": Text, required() => "the name that was given to `register_sink`";
    },
    ..ConnectorDescription::new("python", "rows that a program in Python takes")
};

/// The sinks of a connection by name.
#[derive(Clone, Default)]
pub struct PythonSinks(Arc<Mutex<BTreeMap<String, Arc<Py<PyAny>>>>>);

impl PythonSinks {
    /// Adds one, in place of any of the same name.
    pub fn add(&self, name: String, sink: Py<PyAny>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(sink));
    }

    fn find(&self, request: &TableRequest) -> Result<Arc<Py<PyAny>>> {
        let options = Options::of(request, &DESCRIPTION)?;
        let (table, name) = (&request.table, options.required("sink")?);
        let sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.get(name).cloned().ok_or_else(|| {
            let error = Error::plan(format!("table {table}: no sink '{name}' is registered"));
            match near_miss(name, sinks.keys().map(String::as_str)) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint("register it with db.register_sink(name, sink)"),
            }
        })
    }
}

impl Connector for PythonSinks {
    fn description(&self) -> &ConnectorDescription {
        &DESCRIPTION
    }
    fn validate(&self, request: &TableRequest, _as_sink: bool) -> Result<()> {
        self.find(request).map(drop)
    }
    fn sink(&self, request: &TableRequest) -> Result<Box<dyn Sink>> {
        let object = self.find(request)?;
        Ok(Box::new(PythonSink { object, table: request.table.clone(), has_transactions: false }))
    }
}

/// An object of Python as the output of one job.
struct PythonSink {
    object: Arc<Py<PyAny>>,
    table: String,
    /// The job takes snapshots, and the object has what transactions need.
    has_transactions: bool,
}

impl PythonSink {
    /// Does something with the object; what it raises is an error of the job.
    fn with<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        let called = Python::try_attach(|py| {
            call(self.object.bind(py))
                .map_err(|error| failed(py, &format!("table {}", self.table), error))
        });
        called.ok_or_else(|| Error::io("Python is about to end"))?
    }

    /// Calls a method that it need not have.
    fn call_if_there(&self, method: &str) -> Result<()> {
        self.with(|object| {
            if object.hasattr(method)? {
                object.call_method0(method)?;
            }
            Ok(())
        })
    }
}

impl Sink for PythonSink {
    fn name(&self) -> String {
        self.table.clone()
    }
    fn write(&mut self, batch: &Batch, kinds: Option<&[RowKind]>) -> Result<()> {
        let rows = RecordBatch::new(batch.clone(), kinds.map(<[RowKind]>::to_vec));
        self.with(|object| match object.hasattr("write")? {
            true => object.call_method1("write", (rows,)).map(drop),
            false => object.call1((rows,)).map(drop),
        })
    }
    fn flush(&mut self) -> Result<()> {
        self.call_if_there("flush")
    }
    fn finish(&mut self) -> Result<()> {
        self.call_if_there("close")
    }
    fn abort(&mut self) {}
    fn use_transactions(&mut self) -> SinkGuarantee {
        let has_all = self.with(|object| {
            let methods = ["prepare", "commit", "recover"];
            methods.iter().try_fold(true, |all, method| Ok(all && object.hasattr(*method)?))
        });
        self.has_transactions = has_all.unwrap_or(false);
        match self.has_transactions {
            true => SinkGuarantee::Transactional,
            false => SinkGuarantee::AtLeastOnce,
        }
    }
    fn recover(&mut self, handle: Option<&str>) -> Result<()> {
        match self.has_transactions {
            true => {
                self.with(|object| object.call_method1("recover", (text_of(handle),)).map(drop))
            }
            false => Ok(()),
        }
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        self.flush()?;
        if !self.has_transactions {
            return Ok(None);
        }
        let text: Option<String> = self.with(|object| object.call_method0("prepare")?.extract())?;
        // Handles are JSON.
        Ok(text.map(|text| serde_json::Value::String(text).to_string()))
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        self.with(|object| object.call_method1("commit", (text_of(Some(handle)),)).map(drop))
    }
}

/// The text that `prepare` returned.
fn text_of(handle: Option<&str>) -> Option<String> {
    handle.map(|handle| serde_json::from_str(handle).unwrap_or_else(|_| handle.to_owned()))
}
