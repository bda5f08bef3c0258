//! A table that is read again every so often, on a thread of its own.
//!
//! **Invariants:**
//! - the first table comes by the flow of rows, as for any join of this kind; if it can't be read
//!   the job fails;
//! - a table that can't be read again leaves the one before in its place; how often that happened,
//!   and why the last time, is in the metrics;
//! - the thread ends soon after the job, also while it reads.
//!
//! While a table is read again there are two of them. What the next one takes is not known to the
//! memory account before it is published.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::{Error, Result};

use super::build::BuildTable;

/// Reads all rows of a table, with the columns of the build side: hands batches over until it is
/// asked to stop.
pub type Reader =
    Box<dyn FnMut(&mut dyn FnMut(RecordBatch) -> Result<()>, &Stop) -> Result<()> + Send>;

/// What ends the thread.
#[derive(Default)]
pub struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// True once the thread should end.
    pub fn is_set(&self) -> bool {
        *self.is_set.lock().expect("no panic under this lock")
    }

    fn set(&self) {
        *self.is_set.lock().expect("no panic under this lock") = true;
        self.changed.notify_all();
    }

    /// Waits so long. True once the thread should end.
    fn wait(&self, time: Duration) -> bool {
        let guard = self.is_set.lock().expect("no panic under this lock");
        let waited = self.changed.wait_timeout_while(guard, time, |is_set| !*is_set);
        *waited.expect("no panic under this lock").0
    }
}

/// How a table is read again.
pub(super) struct Reload {
    interval: Duration,
    reader: Mutex<Option<Reader>>,
    failures: Arc<Mutex<(u64, String)>>,
}

/// Ends the thread when it is dropped.
pub(super) struct Reloading {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reloading {
    fn drop(&mut self) {
        self.stop.set();
        // The error was reported there.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Reload {
    pub fn new(interval: Duration, reader: Reader) -> Self {
        Reload { interval, reader: Mutex::new(Some(reader)), failures: Arc::default() }
    }

    /// What went wrong, if anything did.
    pub fn problem(&self) -> Option<String> {
        let failures = self.failures.lock().expect("no panic under this lock");
        let (count, last) = &*failures;
        (*count > 0)
            .then(|| format!("could not be read again {count} times, the last time: {last}"))
    }

    /// Begins to read again. `table` makes empty tables.
    pub fn start(
        &self,
        table: impl Fn() -> Result<BuildTable> + Send + 'static,
    ) -> Result<Option<Reloading>> {
        let reader = self.reader.lock().expect("no panic under this lock").take();
        let Some(mut reader) = reader else { return Ok(None) };
        let (stop, interval) = (Arc::new(Stop::default()), self.interval);
        let (failures, of_thread) = (Arc::clone(&self.failures), Arc::clone(&stop));
        let mut read_again = move || {
            let mut fresh = table()?;
            reader(&mut |batch| fresh.add(batch), &of_thread)?;
            if of_thread.is_set() { Ok(0) } else { fresh.publish() }
        };
        let of_thread = Arc::clone(&stop);
        let body = move || {
            while !of_thread.wait(interval) {
                if let Err(error) = read_again() {
                    let mut failures = failures.lock().expect("no panic under this lock");
                    *failures = (failures.0 + 1, error.message().to_owned());
                }
            }
        };
        let thread = std::thread::Builder::new().name("reload".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Error::io(format!("can't start a thread: {error}")))?;
        Ok(Some(Reloading { stop, thread: Some(thread) }))
    }
}
