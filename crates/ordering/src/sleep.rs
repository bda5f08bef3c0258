//! Parking idle workers so that no wake-up is lost.
//!
//! **The invariant that makes it work:** a worker parks only after it has announced itself *and
//! then* looked for work once more in vain; whoever makes work visible looks for announced workers
//! *afterwards*.
//!
//! # Protocol
//! To sleep:
//! 1. [`Sleep::announce`]: `sleepers += 1` (SeqCst), a SeqCst fence, then read `events`
//!    (SeqCst) into a [`Ticket`].
//! 2. Look for work again, everywhere. If there is some: [`Sleep::retract`] and do it.
//! 3. [`Sleep::park`]: under the lock, wait while `events` still equals the ticket.
//!
//! To post work:
//! 1. Make the work visible (push it to a queue, store it to a container).
//! 2. [`Sleep::notify`]: a SeqCst fence, then read `sleepers` (SeqCst). If it is 0, done.
//! 3. Else `events += 1` under the lock and wake one waiting worker.
//!
//! # Why no wake-up is lost
//! The increment of `sleepers` (step 1 of sleeping) and the fence and read of it (step 2 of
//! posting) are sequentially consistent, so one comes first:
//! - The worker's increment comes first: the poster reads `sleepers >= 1` and raises `events`.
//!   If that happens before the worker reads its ticket, then the poster's work, published before,
//!   is visible to the worker's look in step 2 (the read of `events` is SeqCst and the raise is
//!   too). If it happens after, the ticket is stale, and `park` returns at once or is woken: the
//!   raise happens under the lock that `park` checks it under.
//! - The poster's fence comes first: the work was made visible before the fence, so the worker's
//!   look in step 2, which follows its own fence, sees it.
//!
//! One wake-up per post is enough, because every piece of work is posted: two pieces wake two
//! workers, or one that looks for the second after the first.
//!
//! What it does not do: it does not choose which worker wakes, and it does not count work.

#[cfg(not(loom))]
use std::time::Duration;

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence};

/// Evidence that a worker has announced itself; holds the event count it saw.
#[must_use = "a worker that announced itself must park or retract"]
#[derive(Debug)]
pub struct Ticket(u64);

/// The meeting place of idle workers and those who bring work.
#[derive(Debug)]
pub struct Sleep {
    /// Workers between `announce` and the end of `park` or `retract`. Written by workers, read by
    /// posters.
    sleepers: AtomicUsize,
    /// Raised under `lock` by posters who saw a sleeper; read by workers.
    events: AtomicU64,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Sleep {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Sleep {
            sleepers: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Says that the calling worker is about to park. It must look for work once more, then call
    /// [`Sleep::park`] or [`Sleep::retract`].
    pub fn announce(&self) -> Ticket {
        // SeqCst: pairs with the fence and load in `notify`, see the header.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // The look for work that follows may read with weaker orders, which an increment alone does
        // not hold back on every machine.
        fence(Ordering::SeqCst);
        Ticket(self.events.load(Ordering::SeqCst))
    }

    /// Takes an announcement back: there was work.
    pub fn retract(&self, ticket: Ticket) {
        drop(ticket);
        // Relaxed would do for the count itself; SeqCst keeps one rule for the field.
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until a thread has posted since the announcement, but not for longer than `timeout_ms`
    /// (under loom: without a limit). Returns also without a post; the caller looks for work again
    /// in any case. As long as `spins` says so it only looks again and again, which costs a core
    /// and saves the system's wake-up: a post raises `events` for it like for any announced worker.
    pub fn park(&self, ticket: Ticket, mut spins: impl FnMut() -> bool, timeout_ms: u64) {
        while self.events.load(Ordering::SeqCst) == ticket.0 && spins() {
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().expect("nobody panics under this lock");
        while self.events.load(Ordering::SeqCst) == ticket.0 {
            #[cfg(loom)]
            {
                let _ = timeout_ms;
                guard = self.wake.wait(guard).expect("nobody panics under this lock");
            }
            #[cfg(not(loom))]
            {
                let timeout = Duration::from_millis(timeout_ms);
                let (next, result) =
                    self.wake.wait_timeout(guard, timeout).expect("nobody panics under this lock");
                guard = next;
                if result.timed_out() {
                    break;
                }
            }
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes one worker if any is parked or about to park. Call it after the work is visible.
    #[inline]
    pub fn notify(&self) {
        // SeqCst: pairs with the increment in `announce`, see the header.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.raise(false);
        }
    }

    /// Wakes every worker: the job ends.
    pub fn notify_all(&self) {
        self.raise(true);
    }

    #[cold]
    fn raise(&self, all: bool) {
        let guard = self.lock.lock().expect("nobody panics under this lock");
        self.events.fetch_add(1, Ordering::SeqCst);
        drop(guard);
        if all {
            self.wake.notify_all();
        } else {
            self.wake.notify_one();
        }
    }
}

impl Default for Sleep {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two threads, one or two posts; each model explores its schedules in
    //! well under ten seconds in a release build.
    use super::*;
    use crate::sync::{Arc, Queue, thread};

    fn consume(sleep: &Sleep, queue: &Queue<u32>, want: usize) -> u32 {
        let (mut sum, mut seen) = (0, 0);
        while seen < want {
            if let Some(item) = queue.pop() {
                (sum, seen) = (sum + item, seen + 1);
                continue;
            }
            let ticket = sleep.announce();
            if queue.is_empty() {
                sleep.park(ticket, || false, 0);
            } else {
                sleep.retract(ticket);
            }
        }
        sum
    }

    #[test]
    fn one_worker_gets_every_post() {
        loom::model(|| {
            let (sleep, queue) = (Arc::new(Sleep::new()), Arc::new(Queue::new()));
            let worker = {
                let (sleep, queue) = (Arc::clone(&sleep), Arc::clone(&queue));
                thread::spawn(move || consume(&sleep, &queue, 2))
            };
            for item in [1, 2] {
                queue.push(item);
                sleep.notify();
            }
            // A lost wake-up shows as a deadlock that loom reports.
            assert_eq!(worker.join().expect("worker"), 3);
        });
    }

    #[test]
    fn two_workers_both_wake() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (sleep, queue) = (Arc::new(Sleep::new()), Arc::new(Queue::new()));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (sleep, queue) = (Arc::clone(&sleep), Arc::clone(&queue));
                    thread::spawn(move || consume(&sleep, &queue, 1))
                })
                .collect();
            for item in [1, 2] {
                queue.push(item);
                sleep.notify();
            }
            let sum: u32 = workers.into_iter().map(|w| w.join().expect("worker")).sum();
            assert_eq!(sum, 3);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn stress_no_post_is_lost() {
        for spins in [0, 1, 1_000] {
            no_post_is_lost(spins);
        }
    }

    fn no_post_is_lost(spins: usize) {
        const ITEMS: u64 = if cfg!(miri) { 100 } else { 20_000 };
        let sleep = Arc::new(Sleep::new());
        let queue = Arc::new(crate::sync::Queue::new());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (sleep, queue) = (Arc::clone(&sleep), Arc::clone(&queue));
                thread::spawn(move || {
                    let mut sum = 0u64;
                    loop {
                        match queue.pop() {
                            Some(0) => return sum,
                            Some(item) => sum += item,
                            None => {
                                let ticket = sleep.announce();
                                if queue.is_empty() {
                                    let mut left = spins;
                                    let looks_on = || {
                                        let continues = left > 0;
                                        left = left.saturating_sub(1);
                                        continues
                                    };
                                    sleep.park(ticket, looks_on, 60_000);
                                } else {
                                    sleep.retract(ticket);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        for item in 1..=ITEMS {
            queue.push(item);
            sleep.notify();
        }
        for _ in 0..3 {
            queue.push(0);
            sleep.notify();
        }
        let total: u64 = workers.into_iter().map(|w| w.join().expect("worker")).sum();
        assert_eq!(total, ITEMS * (ITEMS + 1) / 2);
    }
}
