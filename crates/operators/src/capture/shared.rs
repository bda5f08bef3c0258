//! A partition's state that captures read while rows are processed.
//!
//! The state stands behind a lock, which the partition takes once for each call: nobody else wants
//! it unless a capture is being read. Who reads takes it for a moment at a time
//! ([`SharedState::read`]), and lets the partition go first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_core::Result;

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
    pub(crate) fn new(state: T) -> Self {
        SharedState { state: Mutex::new(state), is_wanted: AtomicBool::new(false) }
    }

    /// The lock, for the partition itself.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Relaxed: nothing is published through it, and who sees it late reads a little more.
        self.is_wanted.store(true, Ordering::Relaxed);
        let state = locked(&self.state);
        self.is_wanted.store(false, Ordering::Relaxed);
        state
    }

    /// Reads for as long as there is more, each time with the lock taken again.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn read(&self, mut some: impl FnMut(&mut T) -> Result<bool>) -> Result<()> {
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

/// What a lock guards. Poisoning is ignored: the panic has already failed the job.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
