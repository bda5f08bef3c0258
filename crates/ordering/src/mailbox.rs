//! A queue whose items are handled by one worker at a time, without a lock that anybody waits for.
//!
//! **The invariant that makes it work:** `pending` is the number of items called for and not yet
//! finished; whoever raises it from 0 becomes the owner, and the owner stays the owner until it
//! lowers it to 0.
//!
//! # Protocol
//! - [`Mailbox::post`]: push the item, then `pending += 1`. If it was 0, the caller has become the
//!   owner: it must handle the items, or hand the mailbox to a thread that does (a ready queue).
//!   [`Mailbox::add`] and [`Mailbox::call`] are the two halves for a master queue (Prasaad et al.,
//!   Fig. 7): each item is added, and called for exactly once by a thread that knows that it was.
//! - The owner calls [`Mailbox::take`] for an item, handles it, and calls [`Mailbox::done`]:
//!   `pending -= 1`. If that leaves 0, it is the owner no more and must not touch the mailbox's
//!   state; else it continues, or passes the ownership on.
//!
//! # Why one owner at a time, and why nothing is left behind
//! The changes of `pending` form one order (it is a single atomic). Between a raise from 0 and the
//! next lowering to 0 nobody else sees 0, so nobody else becomes owner. An item is pushed before it
//! is counted, so an owner that sees a count of n finds n items (Acquire in `done` and `post`,
//! whose partner is the Release of the poster's `fetch_add`). An item posted while there is an
//! owner is counted before the owner's last `done` or makes the poster the next owner; either way a
//! thread handles it. The Release of the old owner's last `done` and the Acquire of the next
//! owner's raise order what both do to the state that the mailbox guards.
//!
//! What it does not do: it does not bound the queue (credits at the sources do), and it does not
//! hold the guarded state, which stays behind an uncontended lock of the caller.

use crate::sync::{AtomicUsize, Ordering, Queue};

/// A queue with one handler at a time.
#[derive(Debug)]
pub struct Mailbox<T> {
    /// Items posted and not finished. Posters raise it, the owner lowers it.
    pending: AtomicUsize,
    items: Queue<T>,
}

impl<T> Mailbox<T> {
    /// An empty mailbox without an owner.
    pub fn new() -> Self {
        Mailbox { pending: AtomicUsize::new(0), items: Queue::new() }
    }

    /// Adds an item. True if the caller has become the owner.
    #[must_use = "the owner must see to it that the items are handled"]
    pub fn post(&self, item: T) -> bool {
        self.add(item);
        self.call()
    }

    /// Adds an item that a thread calls for later.
    pub fn add(&self, item: T) {
        self.items.push(item);
    }

    /// Calls for one item that was added before. True if the caller has become the owner.
    #[must_use = "the owner must see to it that the items are handled"]
    pub fn call(&self) -> bool {
        // Release publishes the item to the owner; Acquire takes over the state from the last one.
        self.pending.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// The oldest item. Only for the owner, once per item.
    pub fn take(&self) -> T {
        self.items.pop().expect("an item is pushed before it is counted")
    }

    /// One taken item is finished. True if there are more and the caller is still the owner.
    #[must_use = "with more items the caller is still the owner"]
    pub fn done(&self) -> bool {
        // Release hands the state to the next owner; Acquire sees items counted in the meantime.
        let before = self.pending.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "done without an item");
        before > 1
    }

    /// True if there is no owner at the moment. A hint: it can change at once.
    pub fn is_idle(&self) -> bool {
        // Relaxed: only a hint for choosing a mailbox.
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// How many items are posted and not finished. A hint.
    pub fn len(&self) -> usize {
        // Relaxed: shown as a metric.
        self.pending.load(Ordering::Relaxed)
    }

    /// True if nothing is posted and unfinished. A hint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: three threads posting one item each; under ten seconds in release.
    use super::*;
    use crate::sync::{Arc, Mutex, thread};
    use loom::cell::UnsafeCell;

    #[test]
    fn one_owner_at_a_time_and_nothing_left() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let mailbox = Arc::new(Mailbox::new());
            // Loom reports two concurrent accesses to this cell: it stands for the guarded state.
            let state = Arc::new(UnsafeCell::new(0u32));
            let handled = Arc::new(Mutex::new(Vec::new()));
            let work = |mailbox: &Mailbox<u32>,
                        state: &UnsafeCell<u32>,
                        handled: &Mutex<Vec<u32>>,
                        item| {
                if mailbox.post(item) {
                    loop {
                        let item = mailbox.take();
                        // SAFETY: only the owner of the mailbox comes here, which is the claim
                        // that loom checks.
                        state.with_mut(|state| unsafe { *state += item });
                        handled.lock().expect("no poison").push(item);
                        if !mailbox.done() {
                            break;
                        }
                    }
                }
            };
            let threads: Vec<_> = (1..=2)
                .map(|item| {
                    let (mailbox, state, handled) =
                        (Arc::clone(&mailbox), Arc::clone(&state), Arc::clone(&handled));
                    thread::spawn(move || work(&mailbox, &state, &handled, item))
                })
                .collect();
            work(&mailbox, &state, &handled, 4);
            for thread in threads {
                thread.join().expect("thread");
            }
            let mut handled = handled.lock().expect("no poison").clone();
            handled.sort_unstable();
            assert_eq!(handled, [1, 2, 4]);
            // SAFETY: all threads have been joined.
            state.with(|state| assert_eq!(unsafe { *state }, 7));
        });
    }

    #[test]
    fn whoever_calls_handles_in_order_or_leaves_it_to_the_owner() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let mailbox = Arc::new(Mailbox::new());
            let calls = Arc::new(Queue::new());
            // Loom reports two concurrent accesses to this cell: it stands for the guarded state.
            let handled = Arc::new(UnsafeCell::new(Vec::new()));
            let work =
                |mailbox: &Mailbox<u32>, calls: &Queue<()>, handled: &UnsafeCell<Vec<u32>>| {
                    while calls.pop().is_some() {
                        if mailbox.call() {
                            loop {
                                let item = mailbox.take();
                                // SAFETY: only the owner of the mailbox comes here, which is the
                                // claim that loom checks.
                                handled.with_mut(|handled| unsafe { (*handled).push(item) });
                                if !mailbox.done() {
                                    break;
                                }
                            }
                        }
                    }
                };
            let worker = {
                let (mailbox, calls, handled) =
                    (Arc::clone(&mailbox), Arc::clone(&calls), Arc::clone(&handled));
                thread::spawn(move || work(&mailbox, &calls, &handled))
            };
            for item in 1..=3 {
                mailbox.add(item);
                calls.push(());
            }
            work(&mailbox, &calls, &handled);
            worker.join().expect("thread");
            // SAFETY: the other thread has been joined.
            handled.with(|handled| assert_eq!(unsafe { &*handled }, &[1, 2, 3]));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn ownership_passes_by_the_count() {
        let mailbox = Mailbox::new();
        assert!(mailbox.post(1));
        assert!(!mailbox.post(2));
        assert_eq!(mailbox.take(), 1);
        assert!(mailbox.done());
        assert_eq!(mailbox.take(), 2);
        assert!(!mailbox.done());
        assert!(mailbox.is_idle());
        assert!(mailbox.post(3));
    }

    #[test]
    fn a_call_makes_the_owner_and_an_item_that_is_not_called_for_stays() {
        let mailbox = Mailbox::new();
        mailbox.add(1);
        mailbox.add(2);
        assert!(mailbox.is_idle(), "nobody has called");
        assert!(mailbox.call());
        assert_eq!(mailbox.take(), 1);
        assert!(!mailbox.done(), "the second item has not been called for");
        assert!(mailbox.call());
        assert_eq!(mailbox.take(), 2);
        assert!(!mailbox.done());
    }

    #[test]
    fn stress_every_item_is_handled_alone() {
        let each: u64 = if cfg!(miri) { 50 } else { 5_000 };
        let mailbox = Mailbox::new();
        let state = Mutex::new(0u64);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (mailbox, state) = (&mailbox, &state);
                scope.spawn(move || {
                    for i in 0..each {
                        if mailbox.post(thread * each + i) {
                            loop {
                                let item = mailbox.take();
                                *state.try_lock().expect("one owner at a time") += item;
                                if !mailbox.done() {
                                    break;
                                }
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(*state.lock().expect("joined"), (0..4 * each).sum::<u64>());
    }
}
