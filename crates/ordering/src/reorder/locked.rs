//! The lock-based reorder buffer (Prasaad et al. Fig. 2), the baseline.
//!
//! **The invariant that makes it work:** everything is touched under one lock, delivering included.
//!
//! A worker whose value is not next adds it to the waiting ones; one whose value is next delivers
//! it and all that follow, and meanwhile every other worker waits for the lock (Fig. 3 of the
//! paper).

use std::collections::BTreeMap;

use crate::sync::Mutex;

use super::{Reorder, Sent};

/// A map of values that came early, behind a lock.
pub struct LockedReorderBuffer<T> {
    state: Mutex<State<T>>,
    capacity: u64,
}

struct State<T> {
    next: u64,
    /// By distance from `next` at the time of sending, which wraps around like serials do.
    early: BTreeMap<u64, T>,
    failed: bool,
}

impl<T> LockedReorderBuffer<T> {
    /// A buffer for `capacity` serials under way, of which `first` leaves first.
    pub fn new(capacity: usize, first: u64) -> Self {
        let state = State { next: first, early: BTreeMap::new(), failed: false };
        LockedReorderBuffer { state: Mutex::new(state), capacity: capacity.max(1) as u64 }
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, State<T>> {
        // A panic of `deliver` leaves nothing half done: its value is out, `next` has moved on.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T> Reorder<T> for LockedReorderBuffer<T> {
    fn has_room(&self, serial: u64) -> bool {
        serial.wrapping_sub(self.lock().next) < self.capacity
    }

    fn send<E>(
        &self,
        serial: u64,
        value: T,
        mut deliver: impl FnMut(T) -> Result<(), E>,
    ) -> Result<Sent, E> {
        let mut state = self.lock();
        let distance = serial.wrapping_sub(state.next);
        assert!(distance < self.capacity, "room is asked for before a serial is sent");
        let previous = state.early.insert(serial, value);
        assert!(previous.is_none(), "a serial is sent once");
        let mut delivered = 0;
        while !state.failed {
            let next = state.next;
            let Some(value) = state.early.remove(&next) else { break };
            state.next = next.wrapping_add(1);
            delivered += 1;
            if let Err(error) = deliver(value) {
                state.failed = true;
                return Err(error);
            }
        }
        Ok(Sent { delivered })
    }
}
