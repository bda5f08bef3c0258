//! What clients of the network share: a flag that ends their work, pauses between attempts, and
//! connections that notice when their peer has gone.
//!
//! Clients block, on threads of their own. No wait is longer than [`TICK`] without a look at
//! [`Cancel`], whatever the peer does, so that a job stops at once.
//!
//! | what | where |
//! |---|---|
//! | connections over TCP | [`tcp`] |
//! | the same, encrypted | [`tls`] |
//! | the way from a client's thread to its source | [`feed`] |

#[cfg(any(feature = "kafka", feature = "postgres"))]
pub mod feed;
#[cfg(feature = "postgres")]
pub mod tcp;
#[cfg(feature = "postgres")]
pub mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_core::shim::{Clock, SplitMix64, SystemClock};

/// The longest wait without a look at [`Cancel`].
pub const TICK: Duration = Duration::from_millis(100);

/// Says that the work of a client is not wanted any more. Clones are one flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the work.
    pub fn set(&self) {
        // Relaxed: nothing is published through the flag.
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if the work is not wanted any more.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps, but no longer than the work is wanted. False if it is not wanted any more.
    pub fn sleep(&self, mut pause: Duration) -> bool {
        while !pause.is_zero() && !self.is_set() {
            let step = pause.min(TICK);
            std::thread::sleep(step);
            pause -= step;
        }
        !self.is_set()
    }
}

/// The time since it was made.
#[derive(Clone, Default)]
pub struct Timer(SystemClock);

impl Timer {
    /// How much time has passed.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.now_ns())
    }
}

/// A time from a moment on, in which something is to be done.
pub struct Deadline {
    since: Timer,
    limit: Duration,
}

impl Deadline {
    /// One that begins now.
    pub fn after(limit: Duration) -> Self {
        Deadline { since: Timer::default(), limit }
    }

    /// True if the time is over.
    pub fn is_over(&self) -> bool {
        self.since.elapsed() >= self.limit
    }
}

/// Pauses between attempts: each is twice as long as the one before, up to a limit, and of random
/// length, so that many clients of one server do not come back together.
pub struct Backoff {
    clock: SystemClock,
    random: SplitMix64,
    next: Duration,
    failing_since_ns: Option<u64>,
}

/// The first pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Default for Backoff {
    fn default() -> Self {
        let clock = SystemClock::new();
        let seed = clock.wall_ms() as u64 ^ u64::from(std::process::id());
        let random = SplitMix64::new(seed);
        Backoff { clock, random, next: FIRST_PAUSE, failing_since_ns: None }
    }
}

impl Backoff {
    /// An attempt has succeeded.
    pub fn reset(&mut self) {
        (self.next, self.failing_since_ns) = (FIRST_PAUSE, None);
    }

    /// An attempt has failed: the pause before the next one; `None` if attempts have failed for
    /// this long already.
    pub fn pause(&mut self, give_up_after: Duration) -> Option<Duration> {
        let now_ns = self.clock.now_ns();
        let since_ns = *self.failing_since_ns.get_or_insert(now_ns);
        if Duration::from_nanos(now_ns - since_ns) >= give_up_after {
            return None;
        }
        let pause = self.next.mul_f64(0.5 + self.random.unit());
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> =
            (0..10).filter_map(|_| backoff.pause(Duration::from_secs(60))).collect();
        assert_eq!(pauses.len(), 10);
        assert!(pauses[0] < pauses[4] && pauses[9] <= LONGEST_PAUSE.mul_f64(1.5), "{pauses:?}");
        assert_eq!(backoff.pause(Duration::ZERO), None);
        backoff.reset();
        assert!(backoff.pause(Duration::from_secs(1)).expect("a pause") <= FIRST_PAUSE * 2);
    }

    #[test]
    fn nobody_sleeps_on_when_the_work_is_not_wanted() {
        let cancel = Cancel::default();
        cancel.set();
        assert!(!cancel.sleep(Duration::from_secs(600)));
    }
}
