//! Statements that run on a thread of their own, and what they send back.
//!
//! # Protocol
//! 1. A thread runs the script; its rows, notes and end come through a bounded channel.
//! 2. Whoever wants rows waits without the interpreter's lock, and looks every [`LOOK_AGAIN`]
//!    whether a signal came: Ctrl-C raises in that thread, and the script is stopped.
//! 3. Where the receiving end is dropped, or the flag is set, the script is stopped gracefully.
//!    A sink that waits for room gives up then, so nothing keeps the engine from ending.
//!
//! **Invariant:** a script that runs is known to [`shut_down`], which stops all of them before the
//! interpreter ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use pyo3::prelude::*;
use pyo3::types::PyType;
use thalweg::session::{Observer, ResultTable, Session, Tz};
use thalweg::{Column, DataType, Error, Result, RowKind, Sink, TableSchema};
use thalweg_core::connector::Demand;

use crate::errors;

/// How long a signal is not seen at most.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Batches of a result that wait for whoever reads it.
const BATCHES_AHEAD: usize = 16;
/// How long scripts may take to stop when the interpreter ends.
const SHUT_DOWN_AFTER: Duration = Duration::from_secs(5);

/// Batches, and what each of their rows does where not all are new.
pub type Rows = Vec<(RecordBatch, Option<Vec<RowKind>>)>;

/// What a script sends back.
pub enum Message {
    /// The result that follows has these columns.
    Columns(TableSchema),
    /// Rows, and what each of them does where not all are new.
    Rows(RecordBatch, Option<Vec<RowKind>>),
    /// Something worth telling.
    Note(String),
    /// It is over.
    End(Result<()>),
}

/// A script that runs.
pub struct RunningScript {
    messages: Receiver<Message>,
    stop: Arc<AtomicBool>,
    sql: Arc<str>,
}

impl RunningScript {
    /// Runs a script in a session. `sql` is what errors point into.
    pub fn start(mut session: Session, text: String, sql: Arc<str>) -> Result<RunningScript> {
        let (sender, messages) = bounded(BATCHES_AHEAD);
        let stop = Arc::new(AtomicBool::new(false));
        let mut observer = RowsObserver { sender, stop: Arc::clone(&stop) };
        let running = Known::new(&stop);
        let body = move || {
            let result = session.run_script(&text, &mut observer).map(drop);
            drop(session);
            observer.end(result);
            drop(running);
        };
        std::thread::Builder::new().name("query".to_owned()).spawn(body)?;
        Ok(RunningScript { messages, stop, sql })
    }

    /// The next message that is no note; `None` behind the end.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            match py.detach(|| self.messages.recv_timeout(LOOK_AGAIN)) {
                Ok(Message::Note(text)) => warn(py, &text)?,
                Ok(Message::End(Ok(()))) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Ok(Message::End(Err(error))) => {
                    return Err(errors::to_python(py, &error, &self.sql));
                }
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals().inspect_err(|_| self.stop())?;
                }
            }
        }
    }

    /// Ends it soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Drop for RunningScript {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a script in a session, and waits for its end: the columns and rows of its last result.
pub fn run(
    py: Python<'_>,
    session: &mut Session,
    (text, sql): (&str, &str),
) -> PyResult<(Option<TableSchema>, Rows)> {
    let (sender, messages) = bounded(BATCHES_AHEAD);
    let stop = Arc::new(AtomicBool::new(false));
    let mut observer = RowsObserver { sender, stop: Arc::clone(&stop) };
    let _running = Known::new(&stop);
    let body = move || {
        let result = session.run_script(text, &mut observer).map(drop);
        observer.end(result);
    };
    let (mut columns, mut rows, mut notes, mut interrupted) = (None, Rows::new(), Vec::new(), None);
    let ended = py.detach(|| {
        std::thread::scope(|scope| {
            scope.spawn(body);
            loop {
                match messages.recv_timeout(LOOK_AGAIN) {
                    Ok(Message::Columns(schema)) => {
                        columns = Some(schema);
                        rows.clear();
                    }
                    Ok(Message::Rows(batch, kinds)) => rows.push((batch, kinds)),
                    Ok(Message::Note(text)) => notes.push(text),
                    Ok(Message::End(result)) => return result,
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Error::internal("statements have ended without a word"));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        if let Err(signal) = Python::attach(|py| py.check_signals()) {
                            stop.store(true, Ordering::SeqCst);
                            interrupted = Some(signal);
                        }
                    }
                }
            }
        })
    });
    for note in notes {
        warn(py, &note)?;
    }
    match (interrupted, ended) {
        (Some(signal), _) => Err(signal),
        (None, Err(error)) => Err(errors::to_python(py, &error, sql)),
        (None, Ok(())) => Ok((columns, rows)),
    }
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let category = py.import("thalweg.errors")?.getattr("SqlWarning")?.cast_into::<PyType>()?;
    let text = std::ffi::CString::new(text.replace('\0', " ")).unwrap_or_default();
    PyErr::warn(py, &category, &text, 2)
}

/// Sends what a script produces to whoever waits for it.
struct RowsObserver {
    sender: Sender<Message>,
    stop: Arc<AtomicBool>,
}

impl RowsObserver {
    fn end(&self, result: Result<()>) {
        // Where nobody listens the result is not wanted.
        send(&self.sender, &self.stop, Message::End(result));
    }
}

impl Observer for RowsObserver {
    fn result(&mut self, table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        send(&self.sender, &self.stop, Message::Columns(table.schema.clone()));
        Ok(Box::new(ChannelSink {
            sender: self.sender.clone(),
            stop: Arc::clone(&self.stop),
            has_gone: false,
        }))
    }
    fn explanation(&mut self, text: &str) -> Result<()> {
        let schema = TableSchema::new(vec![Column::new("plan", DataType::STRING.not_null())]);
        let column: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
        let batch = RecordBatch::try_new(schema.arrow(), vec![column])?;
        self.result(&ResultTable { schema, has_updates: false }, Tz::UTC)?.write(&batch, None)
    }
    fn note(&mut self, note: &Error) {
        let help = note.help().map(|help| format!(" (help: {help})"));
        let text = format!("{note}{}", help.unwrap_or_default());
        send(&self.sender, &self.stop, Message::Note(text));
    }
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Waits for room, but not longer than anybody is there who takes it. False if nobody is.
fn send(sender: &Sender<Message>, stop: &AtomicBool, mut message: Message) -> bool {
    loop {
        match sender.send_timeout(message, LOOK_AGAIN) {
            Ok(()) => return true,
            Err(SendTimeoutError::Disconnected(_)) => return false,
            Err(SendTimeoutError::Timeout(_)) if stop.load(Ordering::SeqCst) => return false,
            Err(SendTimeoutError::Timeout(back)) => message = back,
        }
    }
}

/// The sink of a result.
struct ChannelSink {
    sender: Sender<Message>,
    stop: Arc<AtomicBool>,
    has_gone: bool,
}

impl Sink for ChannelSink {
    fn name(&self) -> String {
        "python".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let message = Message::Rows(batch.clone(), kinds.map(<[RowKind]>::to_vec));
        self.has_gone |= !send(&self.sender, &self.stop, message);
        Ok(())
    }
    fn demand(&self) -> Demand {
        if self.has_gone { Demand::Gone } else { Demand::More }
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

/// The scripts that run: their flags.
static RUNNING: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());
static ENDED: Condvar = Condvar::new();

/// A script that [`shut_down`] stops.
pub struct Known(Arc<AtomicBool>);

impl Known {
    pub fn new(stop: &Arc<AtomicBool>) -> Known {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(stop));
        Known(Arc::clone(stop))
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|stop| !Arc::ptr_eq(stop, &self.0));
        ENDED.notify_all();
    }
}

/// Stops all scripts, and waits for them: called before the interpreter ends.
#[pyfunction]
pub fn shut_down(py: Python<'_>) {
    py.detach(|| {
        let until = Instant::now() + SHUT_DOWN_AFTER;
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().for_each(|stop| stop.store(true, Ordering::SeqCst));
        while !running.is_empty() && Instant::now() < until {
            let wait = until.saturating_duration_since(Instant::now());
            running = ENDED.wait_timeout(running, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    });
}
