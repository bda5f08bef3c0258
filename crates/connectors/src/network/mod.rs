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
//! | requests of HTTP | [`http`] |
//! | bytes in both directions, for protocols of packets | [`wire`] |
//! | the way from a client's thread to its source | [`feed`] |
//!
//! Messages as rows, whatever brings them, are in [`crate::messaging`].

pub mod feed;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "network")]
pub mod tcp;
#[cfg(feature = "network")]
pub mod tls;
#[cfg(feature = "network")]
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(feature = "kafka")]
use crossbeam_channel::RecvTimeoutError;
use thalweg_core::Error;
use thalweg_core::connector::Waker;
use thalweg_core::shim::{Clock, SplitMix64, SystemClock};

use self::feed::Gone;

/// The longest wait without a look at [`Cancel`].
pub const TICK: Duration = Duration::from_millis(100);

/// Says that the work of a client is not wanted any more. Clones are one flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>, Option<Arc<AtomicBool>>);

impl Cancel {
    /// Ends the work.
    pub fn set(&self) {
        // Relaxed: nothing is published through the flag.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Ends the work when it is called.
    pub fn waker(&self) -> Waker {
        let cancel = self.clone();
        Arc::new(move || cancel.set())
    }

    /// True if the work is not wanted any more.
    pub fn is_set(&self) -> bool {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        is_set(&self.0) || self.1.as_ref().is_some_and(is_set)
    }

    /// A flag of a part of the work, which ends with all of it, or alone.
    #[must_use]
    pub fn of_part(&self) -> Cancel {
        Cancel(Arc::default(), Some(Arc::clone(&self.0)))
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

/// Why work with a peer has failed.
#[derive(Debug)]
pub enum Failure {
    /// The peer can't be reached, has gone, or can't serve now: the same may succeed later.
    Passing(String),
    /// The same will fail again.
    Final(Error),
    /// The work is not wanted any more.
    Cancelled,
}

/// The result of work with a peer.
pub type Attempt<T> = Result<T, Failure>;

impl Failure {
    /// What is said of a peer that has not answered for so long.
    pub fn no_answer(limit: Duration) -> Failure {
        Failure::Passing(format!("no answer for {} s", limit.as_secs()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Final(error)
    }
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Failure::Cancelled
    }
}

/// Does something that may wait for long, on a thread of its own, and waits for it as long as the
/// work is wanted. What is given up ends by itself later: it must do no harm then.
///
/// # Errors
/// If the work is not wanted any more; if there is no thread, or it panics.
#[cfg(feature = "kafka")]
pub fn abandonable<T: Send + 'static>(
    cancel: &Cancel,
    work: impl FnOnce() -> T + Send + 'static,
) -> thalweg_core::Result<T> {
    let (done, result) = crossbeam_channel::bounded(1);
    let run = move || {
        // Where nobody waits any more the result is of no use.
        let _ = done.send(work());
    };
    let spawned = std::thread::Builder::new().name("call".to_owned()).spawn(run);
    spawned.map_err(|error| Error::resource(format!("no thread for a call: {error}")))?;
    loop {
        match result.recv_timeout(TICK) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::internal("a call panicked")),
            Err(RecvTimeoutError::Timeout) if cancel.is_set() => return Err(Error::cancelled()),
            Err(RecvTimeoutError::Timeout) => {}
        }
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

    #[cfg(feature = "kafka")]
    #[test]
    fn a_call_that_hangs_is_given_up_with_the_work() {
        let cancel = Cancel::default();
        assert_eq!(abandonable(&cancel, || 7).expect("a result"), 7);
        cancel.set();
        let (_hold, hangs) = crossbeam_channel::bounded::<()>(0);
        assert!(abandonable(&cancel, move || hangs.recv()).is_err());
        let wrong: thalweg_core::Result<()> = abandonable(&Cancel::default(), || panic!("wrong"));
        assert!(wrong.is_err());
    }

    #[test]
    fn nobody_sleeps_on_when_the_work_is_not_wanted() {
        let cancel = Cancel::default();
        let (part, other) = (cancel.of_part(), cancel.of_part());
        part.set();
        assert!(part.is_set() && !other.is_set() && !cancel.is_set());
        cancel.set();
        assert!(other.is_set() && !cancel.sleep(Duration::from_secs(600)));
    }
}
