//! A source that gives as many rows as a test lets it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thalweg::{JobControl, Result, Source};
use thalweg_core::connector::{SourceLayer, SourcePoll, Waker};

/// Far more than anything here needs in a debug build on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How many rows a source may still give.
#[derive(Default)]
pub struct Gate {
    left: AtomicU64,
    has_ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    pub fn closed() -> Arc<Gate> {
        Arc::default()
    }

    pub fn open(&self, rows: u64) {
        self.left.fetch_add(rows, Ordering::SeqCst);
        if let Some(waker) = &*self.waker.lock().expect("no panic") {
            waker();
        }
    }

    /// The source is to be asked again when the gate opens.
    pub fn wake_by(&self, waker: Waker) {
        *self.waker.lock().expect("no panic") = Some(waker);
    }

    /// Lets rows pass, at most this many.
    pub fn pass(&self, rows_max: usize) -> usize {
        let left = usize::try_from(self.left.load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        let passed = left.min(rows_max);
        self.left.fetch_sub(passed as u64, Ordering::SeqCst);
        passed
    }

    /// The source has no more.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Waits until the source has given what it may.
    pub fn await_held(&self, control: &JobControl) {
        let begun = Instant::now();
        while self.left.load(Ordering::SeqCst) > 0 && !self.has_ended.load(Ordering::SeqCst) {
            assert!(!control.is_over() && begun.elapsed() < PATIENCE, "the rows are not asked for");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A source behind a gate.
pub struct Gated<S> {
    pub inner: S,
    pub gate: Arc<Gate>,
}

impl<S: Source> SourceLayer for Gated<S> {
    fn inner(&self) -> &dyn Source {
        &self.inner
    }
    fn inner_mut(&mut self) -> &mut dyn Source {
        &mut self.inner
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.gate.wake_by(waker.clone());
        self.inner.start(waker)
    }
    fn open(&mut self) -> Result<()> {
        self.inner.open()
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let may_pass = self.gate.pass(rows_max);
        if may_pass == 0 {
            return Ok(SourcePoll::Pending);
        }
        let polled = self.inner.poll(may_pass)?;
        let given = match &polled {
            SourcePoll::Batch(batch) => batch.batch.num_rows(),
            _ => 0,
        };
        // Others pass later.
        self.gate.open((may_pass - given) as u64);
        if matches!(polled, SourcePoll::End) {
            self.gate.end();
        }
        Ok(polled)
    }
}
