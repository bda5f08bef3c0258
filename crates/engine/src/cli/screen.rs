//! The terminal as two writers share it: rows of results, and below them a line of progress.
//!
//! The line is drawn on standard error and erased before rows are printed, so that it never stands
//! between them. Where standard output is not the terminal, nothing needs to be erased for rows.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::RecordBatch;
use thalweg_core::{Result, RowKind, Sink};

/// Goes to the first column and clears the line.
const ERASE: &str = "\r\x1b[2K";

/// The lowest line of the terminal.
#[derive(Default)]
pub struct Screen {
    line_is_drawn: Mutex<bool>,
}

impl Screen {
    /// Draws the line anew.
    pub fn draw(&self, text: &str) {
        let mut line_is_drawn = self.lock();
        // A terminal that has gone away is no reason to stop a job.
        let _ = write!(std::io::stderr(), "{ERASE}{text}");
        *line_is_drawn = true;
    }

    /// Erases the line, if there is one.
    pub fn erase(&self) {
        erase(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.line_is_drawn.lock().expect("no panic under this lock")
    }
}

fn erase(line_is_drawn: &mut bool) {
    if std::mem::take(line_is_drawn) {
        let _ = write!(std::io::stderr(), "{ERASE}");
    }
}

/// Makes a sink erase the progress line before it prints. Needed only where standard output is the
/// terminal as well; elsewhere the sink is returned as it is.
pub fn share(sink: Box<dyn Sink>, screen: &Arc<Screen>) -> Box<dyn Sink> {
    if !std::io::stdout().is_terminal() {
        return sink;
    }
    Box::new(ScreenSink { sink, screen: Arc::clone(screen) })
}

struct ScreenSink {
    sink: Box<dyn Sink>,
    screen: Arc<Screen>,
}

impl Sink for ScreenSink {
    fn name(&self) -> String {
        self.sink.name()
    }
    fn open(&mut self) -> Result<()> {
        self.sink.open()
    }
    // The lock is held while rows are printed: the line must not be drawn between them.
    fn write(&mut self, batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()> {
        let mut line_is_drawn = self.screen.lock();
        erase(&mut line_is_drawn);
        self.sink.write(batch, kinds)
    }
    fn flush(&mut self) -> Result<()> {
        let mut line_is_drawn = self.screen.lock();
        erase(&mut line_is_drawn);
        self.sink.flush()
    }
    fn finish(&mut self) -> Result<()> {
        let mut line_is_drawn = self.screen.lock();
        erase(&mut line_is_drawn);
        self.sink.finish()
    }
    fn abort(&mut self) {
        let mut line_is_drawn = self.screen.lock();
        erase(&mut line_is_drawn);
        self.sink.abort();
    }
}
