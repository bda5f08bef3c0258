//! The thread that wakes paced sources, one for all of the process: a hundred jobs do not need a
//! hundred threads that wake up four thousand times a second.
//!
//! Sources that are many share the cost: their ticks are farther apart ([`tick_ns`]).
//!
//! **Invariants:** the thread runs while a source is registered, and only then. A waker is called
//! outside the lock; it may be called once more after its source has gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use thalweg_core::connector::Waker;
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result};

/// How far ticks are apart while there are few sources: a pipeline that keeps up is polled at most
/// this often.
const TICK_NS: u64 = 250_000;
/// Up to this number of sources, all tick as often as one would.
const SOURCES_PER_TICK: u64 = 16;
/// Sources that are woken no more often than this cost nothing, and do not count.
const RARE_NS: u64 = 100_000_000;

static TIMER: Timer = Timer {
    state: Mutex::new(State { sources: Vec::new(), next: 0, runs: false }),
    changed: Condvar::new(),
};
/// Ticks are whole multiples behind its beginning.
static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
static SOURCES: AtomicU64 = AtomicU64::new(0);

struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    sources: Vec<Paced>,
    next: u64,
    runs: bool,
}

struct Paced {
    number: u64,
    waker: Waker,
    /// It has no use for ticks that are closer together.
    period_ns: u64,
    due_ns: u64,
}

/// A source that is woken, until this is dropped.
pub(crate) struct Registration(u64);

/// How long ago the last tick was.
pub(super) fn since_tick_ns() -> u64 {
    CLOCK.now_ns() % tick_ns()
}

/// How far ticks are apart now.
fn tick_ns() -> u64 {
    // Relaxed: a number of its own.
    TICK_NS * SOURCES.load(Ordering::Relaxed).div_ceil(SOURCES_PER_TICK).max(1)
}

/// From now on the waker is called at ticks that are at least so far apart.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn register(waker: Waker, period_ns: u64) -> Result<Registration> {
    let mut state = TIMER.lock();
    if !state.runs {
        let thread = thread::Builder::new().name("ticks".to_owned()).spawn(|| TIMER.run());
        thread.map_err(|e| Error::resource(format!("no thread for rows at a rate: {e}")))?;
        state.runs = true;
    }
    let number = state.next;
    state.next += 1;
    state.sources.push(Paced { number, waker, period_ns, due_ns: CLOCK.now_ns() });
    state.count();
    TIMER.changed.notify_all();
    Ok(Registration(number))
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = TIMER.lock();
        state.sources.retain(|source| source.number != self.0);
        state.count();
        TIMER.changed.notify_all();
    }
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.sources.is_empty() {
            let now_ns = CLOCK.now_ns();
            let (due, next_ns) = state.take_due(now_ns, tick_ns());
            if due.is_empty() {
                let wait = Duration::from_nanos(next_ns.saturating_sub(now_ns));
                let waited = self.changed.wait_timeout(state, wait);
                state = waited.expect("no panic under this lock").0;
                continue;
            }
            drop(state);
            due.iter().for_each(|waker| waker());
            state = self.lock();
        }
        state.runs = false;
    }
}

impl State {
    fn count(&self) {
        let often = self.sources.iter().filter(|source| source.period_ns < RARE_NS);
        SOURCES.store(often.count() as u64, Ordering::Relaxed);
    }

    /// The wakers of sources that are due now, and when the next one is.
    fn take_due(&mut self, now_ns: u64, tick_ns: u64) -> (Vec<Waker>, u64) {
        let mut due = Vec::new();
        let ticks = now_ns / tick_ns;
        for source in &mut self.sources {
            if source.due_ns <= now_ns {
                due.push(Waker::clone(&source.waker));
                let wait = source.period_ns.div_ceil(tick_ns).max(1);
                source.due_ns = (ticks + wait) * tick_ns;
            }
        }
        let next = self.sources.iter().map(|source| source.due_ns).min();
        (due, next.unwrap_or(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn sources_are_woken_until_they_have_gone_and_many_share_ticks() {
        let calls: Vec<Arc<AtomicUsize>> = (0..40).map(|_| Arc::default()).collect();
        let waker = |calls: &Arc<AtomicUsize>| -> Waker {
            let calls = Arc::clone(calls);
            Arc::new(move || {
                calls.fetch_add(1, Ordering::SeqCst);
            })
        };
        let register = |calls| register(waker(calls), 1).expect("a thread");
        let registered: Vec<Registration> = calls.iter().map(register).collect();
        assert!(tick_ns() >= 3 * TICK_NS, "40 sources");
        let all_were = |least| calls.iter().all(|calls| calls.load(Ordering::SeqCst) >= least);
        while !all_were(3) {
            thread::sleep(Duration::from_millis(1));
        }
        drop(registered);
        // One call may be under way.
        thread::sleep(Duration::from_millis(20));
        let sum = || calls.iter().map(|calls| calls.load(Ordering::SeqCst)).sum::<usize>();
        let sum_then = sum();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(sum(), sum_then);
    }
}
