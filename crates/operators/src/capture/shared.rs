//! A partition's state that captures read while rows are processed.
//!
//! The state stands behind a lock, which the partition takes once for each call: nobody else wants
//! it unless a capture is being read. Who reads takes it for a moment at a time
//! ([`SharedState::read`]), and lets the partition go first.
//!
//! The partition never waits longer than one piece of reading (about `READ_ROWS` rows). The reader
//! may wait long: it yields while the partition is busy with back-to-back calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Extent, Output, Partition, Piece, Progress, Restored, Result, TableChanges, Watermark,
};

/// After how many pieces, each of a thousand rows or two, others may have the core: about a
/// millisecond.
const TURN_PIECES: usize = 16;

/// A partition's state, and who wants it.
pub(crate) struct SharedState<T> {
    state: Mutex<T>,
    /// The partition waits for the lock.
    is_wanted: AtomicBool,
}

impl<T> SharedState<T> {
    pub fn new(state: T) -> Self {
        SharedState { state: Mutex::new(state), is_wanted: AtomicBool::new(false) }
    }

    /// The lock, for the partition itself.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Relaxed: nothing is published through it, and who sees it late reads a little more.
        self.is_wanted.store(true, Ordering::Relaxed);
        let state = locked(&self.state);
        self.is_wanted.store(false, Ordering::Relaxed);
        state
    }

    /// Reads for as long as there is more, each time with the lock taken again.
    ///
    /// The lock is free between two pieces. The state may change there, so `some` must keep its own
    /// place in it (bits that are cleared as they are read).
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(&self, mut some: impl FnMut(&mut T) -> Result<bool>) -> Result<()> {
        for piece in 1_usize.. {
            // Another thread of the job may wait for the core. Not after each piece: where all
            // cores are busy, who yields has his next turn when everybody else has had one.
            if piece.is_multiple_of(TURN_PIECES) {
                std::thread::yield_now();
            }
            // The lock is not fair: without this the partition might wait for long.
            while self.is_wanted.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            if !some(&mut locked(&self.state))? {
                break;
            }
        }
        Ok(())
    }
}

/// A partition that is the state which its captures read.
pub(crate) trait SharedCapture: Partition + Sized {
    /// Captures the state ([`Partition::capture`]).
    ///
    /// # Errors
    /// Those of capturing.
    fn capture_shared(shared: &Arc<SharedState<Self>>, extent: Extent) -> Result<Captured>;
}

/// Such a partition behind its lock.
pub(crate) struct SharedPartition<T>(Arc<SharedState<T>>);

impl<T> SharedPartition<T> {
    pub fn new(state: T) -> Self {
        SharedPartition(Arc::new(SharedState::new(state)))
    }
}

impl<T: SharedCapture + 'static> Partition for SharedPartition<T> {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        self.0.lock().rows(piece, output)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.0.lock().watermark(call, output)
    }

    fn state_bytes(&self) -> usize {
        self.0.lock().state_bytes()
    }

    fn state_keys(&self) -> Option<usize> {
        self.0.lock().state_keys()
    }

    fn wakes_at(&self) -> Watermark {
        self.0.lock().wakes_at()
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        T::capture_shared(&self.0, extent)
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        self.0.lock().table_changes()
    }

    fn stop_tracking(&mut self, table: &str) {
        self.0.lock().stop_tracking(table);
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.0.lock().restore(restored)
    }
}

/// What a lock guards. Poisoning is ignored: the panic has already failed the job.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
