//! The terminal as its writers share it: rows of results, messages, and below them the progress, a
//! line for each job.
//!
//! Progress is drawn on standard error. It is erased before anything else is printed and drawn
//! again behind that, so that it never stands between rows. Where standard output is not the
//! terminal, rows and progress do not meet.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use thalweg_core::connector::SinkLayer;
use thalweg_core::{Result, RowKind, Sink};

/// Goes to the first column and clears the line.
const ERASE: &str = "\r\x1b[2K";

/// The lowest lines of the terminal, and who has printed above them.
#[derive(Default)]
pub struct Screen {
    /// What stands there; empty if nothing does.
    progress: Mutex<String>,
    /// How many lines that is.
    lines: AtomicUsize,
    /// The sink that printed last; 0 for messages.
    printer: AtomicUsize,
    /// How often another one printed than before.
    turns: AtomicUsize,
    sinks: AtomicUsize,
}

impl Screen {
    /// Redraws the progress.
    pub fn draw(&self, text: &str) {
        let mut progress = self.progress.lock().expect("no panic under this lock");
        print_error(&format!("{}{text}", erasure(&progress)));
        text.clone_into(&mut progress);
        self.lines.store(text.lines().count(), Ordering::SeqCst);
    }

    /// Erases the progress for good.
    pub fn erase(&self) {
        let mut progress = self.progress.lock().expect("no panic under this lock");
        if !progress.is_empty() {
            print_error(&erasure(&progress));
        }
        progress.clear();
        self.lines.store(0, Ordering::SeqCst);
    }

    /// Prints a message above the progress, on standard error.
    pub fn say(&self, text: &str) {
        self.above(0, || print_error(text));
    }

    /// Prints something above the progress. Nobody draws meanwhile.
    pub fn above<T>(&self, printer: usize, print: impl FnOnce() -> T) -> T {
        let progress = self.progress.lock().expect("no panic under this lock");
        if !progress.is_empty() {
            print_error(&erasure(&progress));
        }
        if self.printer.swap(printer, Ordering::SeqCst) != printer {
            self.turns.fetch_add(1, Ordering::SeqCst);
        }
        let result = print();
        if !progress.is_empty() {
            print_error(&progress);
        }
        result
    }

    /// How many lines of progress there are.
    pub fn lines(&self) -> usize {
        self.lines.load(Ordering::SeqCst)
    }

    /// Another number than before, for a sink that prints, if others have printed meanwhile.
    pub fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }
}

/// What erases these lines, with the cursor behind them.
fn erasure(lines: &str) -> String {
    match lines.lines().count() {
        0 | 1 => ERASE.to_owned(),
        lines => format!("\r\x1b[{}A\x1b[J", lines - 1),
    }
}

/// A terminal that has gone away is no reason to stop a job: errors are ignored.
fn print_error(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A sink that prints on the terminal, above the progress. Elsewhere than on a terminal the
/// sink is returned as it is.
pub fn share(sink: Box<dyn Sink>, screen: &Arc<Screen>) -> Box<dyn Sink> {
    if !std::io::stdout().is_terminal() {
        return sink;
    }
    let number = screen.sinks.fetch_add(1, Ordering::SeqCst) + 1;
    Box::new(ScreenSink { sink, number, screen: Arc::clone(screen), is_flushed: true })
}

struct ScreenSink {
    sink: Box<dyn Sink>,
    number: usize,
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
        self.screen.above(self.number, || self.sink.write(batch, kinds))
    }
    fn flush(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_flushed, true) {
            return Ok(());
        }
        self.screen.above(self.number, || self.sink.flush())
    }
    fn finish(&mut self) -> Result<()> {
        self.screen.above(self.number, || self.sink.finish())
    }
    fn abort(&mut self) {
        self.screen.above(self.number, || self.sink.abort());
    }
    fn prepare(&mut self) -> Result<Option<String>> {
        self.is_flushed = true;
        self.screen.above(self.number, || self.sink.prepare())
    }
    fn commit(&mut self, handle: &str) -> Result<()> {
        self.screen.above(self.number, || self.sink.commit(handle))
    }
}
