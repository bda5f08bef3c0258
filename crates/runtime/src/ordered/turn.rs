//! Work that must be done in order, by whoever is there, without anybody waiting.
//!
//! **The invariant that makes it work:** `busy` is true exactly while one thread delivers, and what
//! that thread leaves undelivered under the lock with `busy` cleared is nothing.
//!
//! # Protocol
//! A thread puts its item under the lock. If another one is delivering it goes away: that thread
//! looks again under the same lock before it clears `busy`, so it finds the item. Otherwise it
//! becomes the one that delivers, taking items one by one; the lock is never held while it does.
//! If delivering fails, `busy` stays set for ever: the job has failed and nothing may overtake.

use std::collections::VecDeque;

use thalweg_core::Result;
use thalweg_ordering::sync::Mutex;

/// A queue that is emptied in order by one thread at a time.
pub(crate) struct InTurn<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    items: VecDeque<T>,
    busy: bool,
}

impl<T> InTurn<T> {
    pub(crate) fn new() -> Self {
        InTurn { state: Mutex::new(State { items: VecDeque::new(), busy: false }) }
    }

    /// Adds an item, and delivers everything there is unless another thread is at it.
    pub(crate) fn put(&self, item: T, mut deliver: impl FnMut(T) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.items.push_back(item);
        if state.busy {
            return Ok(());
        }
        state.busy = true;
        while let Some(next) = state.items.pop_front() {
            drop(state);
            deliver(next)?;
            state = self.state.lock().expect("no panic under this lock");
        }
        state.busy = false;
        Ok(())
    }
}
