//! Outcomes of a stage leave in the order of its inputs, however the workers finished them.
//!
//! Room is reserved when work is claimed ([`Exit::reserve`]) and claims come in serial order, so the
//! serials under way always fit: handing over never fails, and whoever has the oldest serial can
//! always finish. A claim that finds no room is not made; [`Exit::send`] tells when there is room
//! for those who were refused.

use std::collections::BTreeMap;

use thalweg_core::Result;
use thalweg_ordering::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};

/// The place where outcomes wait for older ones.
pub(crate) struct Exit<T> {
    waiting: Mutex<Waiting<T>>,
    /// Serials claimed and not yet delivered.
    under_way: AtomicUsize,
    capacity: usize,
    /// Somebody found no room.
    refused: AtomicBool,
}

struct Waiting<T> {
    next: u64,
    early: BTreeMap<u64, T>,
    busy: bool,
}

/// Whether those who were refused should try again.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nobody was refused.
    Unasked,
    /// Somebody was, and there is room now.
    Wanted,
}

impl<T> Exit<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Exit {
            waiting: Mutex::new(Waiting { next: 0, early: BTreeMap::new(), busy: false }),
            under_way: AtomicUsize::new(0),
            capacity: capacity.max(1),
            refused: AtomicBool::new(false),
        }
    }

    /// Reserves room for the next serial; false if there is none now.
    pub(crate) fn reserve(&self) -> bool {
        self.try_reserve() || {
            // SeqCst on both sides: either this sees the room that a delivery made, or the delivery
            // sees that somebody was refused.
            self.refused.store(true, Ordering::SeqCst);
            self.try_reserve()
        }
    }

    fn try_reserve(&self) -> bool {
        let one_more = |count: usize| (count < self.capacity).then_some(count + 1);
        self.under_way.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Gives back room that was reserved and is not needed.
    pub(crate) fn release(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Hands over the outcome of a serial for which room was reserved, and delivers in order what
    /// is next, unless another thread is at it.
    pub(crate) fn send(
        &self,
        serial: u64,
        outcome: T,
        mut deliver: impl FnMut(T) -> Result<()>,
    ) -> Result<Room> {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let previous = waiting.early.insert(serial, outcome);
        assert!(previous.is_none() && serial >= waiting.next, "a serial is handed over once");
        if waiting.busy {
            return Ok(Room::Unasked);
        }
        waiting.busy = true;
        loop {
            let next = waiting.next;
            let Some(outcome) = waiting.early.remove(&next) else { break };
            waiting.next += 1;
            drop(waiting);
            deliver(outcome)?;
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            waiting = self.waiting.lock().expect("no panic under this lock");
        }
        waiting.busy = false;
        drop(waiting);
        match self.refused.load(Ordering::SeqCst) && self.refused.swap(false, Ordering::SeqCst) {
            true => Ok(Room::Wanted),
            false => Ok(Room::Unasked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_leave_in_serial_order_and_make_room() {
        let exit = Exit::new(2);
        let mut out = Vec::new();
        assert!(exit.reserve() && exit.reserve());
        assert!(!exit.reserve(), "full");
        let room = exit
            .send(1, 'b', |o| {
                out.push(o);
                Ok(())
            })
            .expect("delivered");
        assert_eq!((out.as_slice(), room), (&[][..], Room::Wanted));
        assert!(!exit.reserve(), "still full: the oldest one is missing");
        let room = exit
            .send(0, 'a', |o| {
                out.push(o);
                Ok(())
            })
            .expect("delivered");
        assert_eq!((out.as_slice(), room), (&['a', 'b'][..], Room::Wanted));
        assert!(exit.reserve());
    }
}
