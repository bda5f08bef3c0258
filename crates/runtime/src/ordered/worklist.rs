//! Elements that any worker may claim, oldest first.
//!
//! **Invariant:** elements are claimed in the order of their serials, and only while their outcome
//! has room; so the oldest claimed one never waits for another.

use thalweg_ordering::sync::{AtomicU64, Ordering, Queue};

use super::element::Element;
use super::exit::Exit;

/// Elements that any worker may claim, oldest first.
pub(crate) struct Worklist {
    queue: Queue<(u64, Element)>,
    /// Elements added so far, which is the serial of the next one within this stage. Written after
    /// the push by whoever brings elements in order, one at a time; read by those who claim.
    added: AtomicU64,
    /// Elements claimed so far. Raised by whoever claims, before the pop.
    claimed: AtomicU64,
}

impl Worklist {
    pub(crate) fn new() -> Self {
        Worklist { queue: Queue::new(), added: AtomicU64::new(0), claimed: AtomicU64::new(0) }
    }

    /// Adds an element. Only for whoever brings the elements of this stage in order.
    pub(crate) fn push(&self, element: Element) {
        // Relaxed: one writer at a time, ordered by whatever hands the turn on.
        let serial = self.added.load(Ordering::Relaxed);
        self.queue.push((serial, element));
        // Release: pairs with the Acquire in `claim`; the element is in the queue.
        self.added.store(serial + 1, Ordering::Release);
    }

    /// Takes the oldest element, if there is one and `exit` has room for its outcome.
    pub(crate) fn claim<T>(&self, exit: &Exit<T>) -> Option<(u64, Element)> {
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            // Claims come in the order of elements, so this one is the oldest, or younger than
            // others that had room before it.
            if claimed == self.added.load(Ordering::Acquire) || !exit.has_room(claimed) {
                return None;
            }
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.claimed.compare_exchange_weak(claimed, claimed + 1, success, failure) {
                // Perhaps another's element, who then gets this one: both have room.
                Ok(_) => {
                    let element = self.queue.pop();
                    return Some(element.expect("an element is pushed before it is counted"));
                }
                Err(now) => claimed = now,
            }
        }
    }

    /// Elements added so far.
    pub(crate) fn added(&self) -> u64 {
        self.added.load(Ordering::SeqCst)
    }

    /// Numbers continue here.
    pub(crate) fn begin_at(&self, serial: u64) {
        self.added.store(serial, Ordering::SeqCst);
        self.claimed.store(serial, Ordering::SeqCst);
    }
}
