//! What a cut holds back while it is taken: sources, and everything that no row causes.
//!
//! **Invariant:** a worker that has entered ([`Presence`]) after `holding` was set asks no source,
//! and whoever looks after idleness or the clock does so only with the lock of `outside`, which the
//! cut has. So once no worker is present and the queues are empty, nothing begins.

use thalweg_ordering::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

use crate::presence::Presence;

/// Whether a cut is being taken, and who is at work.
#[derive(Default)]
pub(crate) struct Hold {
    holding: AtomicBool,
    /// Workers that are at work.
    pub(crate) presence: Presence,
    outside: Mutex<()>,
}

impl Hold {
    /// Sources are not asked from here on, or are again.
    pub(crate) fn set(&self, is_holding: bool) {
        self.holding.store(is_holding, Ordering::SeqCst);
    }

    /// True while sources are not asked.
    pub(crate) fn is_holding(&self) -> bool {
        // SeqCst: a worker that has entered after a cut began to hold asks no source.
        self.holding.load(Ordering::SeqCst)
    }

    /// The right to do what no row causes, unless another thread has it.
    pub(crate) fn try_outside(&self) -> Option<MutexGuard<'_, ()>> {
        self.outside.try_lock().ok()
    }

    /// The same, for a cut, which waits for it.
    pub(crate) fn outside(&self) -> MutexGuard<'_, ()> {
        self.outside.lock().expect("no panic under this lock")
    }
}
