//! How the supervisor learns that there is something to look at.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};

/// Wakes the supervisor.
#[derive(Clone)]
pub struct Bell {
    rung: Arc<(Mutex<bool>, Condvar)>,
    clock: SystemClock,
}

impl Bell {
    /// A bell that nobody has rung.
    pub fn new(clock: SystemClock) -> Bell {
        Bell { rung: Arc::default(), clock }
    }

    /// Something has changed.
    pub fn ring(&self) {
        *self.rung.0.lock().expect("no panic under this lock") = true;
        self.rung.1.notify_all();
    }

    /// Waits until it rings, or for this long.
    pub fn wait(&self, timeout: Duration) {
        let rung = self.rung.0.lock().expect("no panic under this lock");
        let waited = self.rung.1.wait_timeout_while(rung, timeout, |rung| !*rung);
        let (mut rung, _) = waited.expect("no panic under this lock");
        *rung = false;
    }

    /// The time of day.
    pub fn wall_ms(&self) -> i64 {
        self.clock.wall_ms()
    }
}
