//! The terminal as two writers share it: rows of results, and below them a line of progress.
//!
//! The line is drawn on standard error. It is erased before rows are printed and drawn again behind
//! them, so that it never stands between rows. Where standard output is not the terminal, rows and
//! line do not meet.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::RecordBatch;
use thalweg_core::connector::SinkLayer;
use thalweg_core::{Result, RowKind, Sink};

/// Goes to the first column and clears the line.
const ERASE: &str = "\r\x1b[2K";

/// The lowest line of the terminal.
#[derive(Default)]
pub struct Screen {
    /// What stands there; empty if nothing does.
    line: Mutex<String>,
}

impl Screen {
    /// Redraws the line.
    pub fn draw(&self, text: &str) {
        let mut line = self.lock();
        text.clone_into(&mut line);
        show(&line);
    }

    /// Erases the line for good.
    pub fn erase(&self) {
        let mut line = self.lock();
        hide(&line);
        line.clear();
    }

    /// Prints something above the line. Nobody draws meanwhile.
    fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        let line = self.lock();
        hide(&line);
        let result = print();
        if !line.is_empty() {
            show(&line);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.line.lock().expect("no panic under this lock")
    }
}

// A terminal that has gone away is no reason to stop a job: errors are ignored.

fn show(line: &str) {
    let _ = write!(std::io::stderr(), "{ERASE}{line}");
}

fn hide(line: &str) {
    if !line.is_empty() {
        let _ = write!(std::io::stderr(), "{ERASE}");
    }
}

/// A sink that prints on the terminal, above the line of progress. Elsewhere than on a terminal the
/// sink is returned as it is.
pub fn share(sink: Box<dyn Sink>, screen: &Arc<Screen>) -> Box<dyn Sink> {
    if !std::io::stdout().is_terminal() {
        return sink;
    }
    Box::new(ScreenSink { sink, screen: Arc::clone(screen), is_flushed: true })
}

struct ScreenSink {
    sink: Box<dyn Sink>,
    screen: Arc<Screen>,
    /// True if a flush would print nothing.
    is_flushed: bool,
}

impl SinkLayer for ScreenSink {
    fn inner(&self) -> &dyn Sink {
        self.sink.as_ref()
    }
    fn inner_mut(&mut self) -> &mut dyn Sink {
        self.sink.as_mut()
    }
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        self.is_flushed = false;
        self.screen.above(|| self.sink.write(batch, kinds))
    }
    fn flush(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_flushed, true) {
            return Ok(());
        }
        self.screen.above(|| self.sink.flush())
    }
    fn finish(&mut self) -> Result<()> {
        self.screen.above(|| self.sink.finish())
    }
    fn abort(&mut self) {
        self.screen.above(|| self.sink.abort());
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        self.is_flushed = true;
        self.screen.above(|| self.sink.prepare())
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        self.screen.above(|| self.sink.commit(handle))
    }
}
