//! The non-blocking reorder buffer (Prasaad et al. Fig. 4).
//!
//! **The invariant that makes it work:** the slot of serial `s` belongs to the worker that has `s`
//! from the moment `next` reaches `s + 1 - capacity` until it publishes its value there, and then
//! to whoever holds the flag, until `next` passes `s`.
//!
//! # Protocol
//! - *Send*: write the value into the slot, publish it (`state = FULL`), then try to take the flag.
//!   Without it, go away: its holder will see the value.
//! - *Deliver*, with the flag: while the slot of `next` is published, take its value, empty the
//!   slot, move `next` on, hand the value over. Then clear the flag and **look at the slot of
//!   `next` once more**; if it is published by now, try to take the flag again.
//!
//! # Why no value stays behind
//! The sender's attempt at the flag and the deliverer's clearing of it are both exchanges of the
//! one flag (AcqRel), so one comes first. If the clearing does, the sender gets the flag, or
//! another one did in between, to whom the same applies. If the attempt does, the clearing reads
//! what it wrote, and with it sees the publication, which came before: the last look finds it. The
//! paper has a plain store to clear the flag and needs sequential consistency for the pair of store
//! and load; with less, both sides can miss each other. A loom test shows that (loom knows no
//! SeqCst accesses, so the exchange is also what can be checked).
//!
//! # Why values leave once and in order
//! Only the holder of the flag moves `next`, by one, after it has taken the value of `next`. A slot
//! is written again only for `s + capacity`, which has room only when `next > s`: the Release of
//! `next` and the Acquire in [`has_room`](super::Reorder::has_room) or `send` order the emptying of
//! the slot before the new writing.
//!
//! # What it costs
//! Two stores and an exchange to send, two loads and two stores to deliver; no allocation.

use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering, UnsafeCell};

use super::{Reorder, Sent};

/// Nothing is in the slot.
const EMPTY: u8 = 0;
/// A value is in the slot.
const FULL: u8 = 1;
/// The serial's worker has died without a value: it is passed over.
const SKIPPED: u8 = 2;

struct Slot<T> {
    /// Written by the sender (EMPTY to FULL or SKIPPED) and by the holder of the flag (back).
    state: AtomicU8,
    /// Written by the sender before FULL, read by the holder of the flag after it.
    value: UnsafeCell<Option<T>>,
}

/// A ring of slots with a try-flag.
pub struct ReorderBuffer<T> {
    slots: Box<[Slot<T>]>,
    /// The serial that leaves next. Written by the holder of the flag, read by everybody.
    next: AtomicU64,
    /// True while a thread delivers. Taken by exchange; stays set after an error of `deliver`.
    busy: AtomicBool,
}

// SAFETY: a value is moved in by one thread and out by another, never shared; which thread may
// touch a slot's value is decided by `state`, `next` and `busy` as argued in the module header.
unsafe impl<T: Send> Sync for ReorderBuffer<T> {}

/// Room for one serial. Dropped without a value (its worker has died), the serial is passed over.
#[must_use = "a place that is dropped is passed over"]
pub struct Place<'a, T> {
    buffer: &'a ReorderBuffer<T>,
    serial: u64,
}

impl<T> ReorderBuffer<T> {
    /// A buffer for at least `capacity` serials under way, of which `first` leaves first. The ring
    /// has the next power of two, so that serials may wrap around.
    pub fn new(capacity: usize, first: u64) -> Self {
        let slot = |_| Slot { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(None) };
        ReorderBuffer {
            slots: (0..capacity.max(1).next_power_of_two()).map(slot).collect(),
            next: AtomicU64::new(first),
            busy: AtomicBool::new(false),
        }
    }

    /// How many serials fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Room for a serial, or `None` if there is none yet.
    pub fn reserve(&self, serial: u64) -> Option<Place<'_, T>> {
        self.has_room(serial).then(|| Place { buffer: self, serial })
    }

    /// The paper's own `send`: fails, with the value, where the ring is full.
    ///
    /// # Errors
    /// The value, if there is no room; or the first error of `deliver`.
    pub fn try_send<E>(
        &self,
        serial: u64,
        value: T,
        deliver: impl FnMut(T) -> Result<(), E>,
    ) -> Result<Result<Sent, E>, T> {
        if !self.has_room(serial) {
            return Err(value);
        }
        Ok(self.send(serial, value, deliver))
    }

    fn slot(&self, serial: u64) -> &Slot<T> {
        &self.slots[serial as usize & (self.slots.len() - 1)]
    }

    fn publish(&self, serial: u64, value: Option<T>) {
        assert!(self.has_room(serial), "room is asked for before a serial is sent");
        let slot = self.slot(serial);
        // Relaxed: the Acquire in `has_room` has made the emptying of the slot visible.
        assert!(slot.state.load(Ordering::Relaxed) == EMPTY, "a serial is sent once");
        let state = if value.is_some() { FULL } else { SKIPPED };
        // SAFETY: there is room for the serial, it has not been sent, and only its one sender gets
        // here, so the slot is this thread's until `state` is published below.
        slot.value.with_mut(|place| unsafe { *place = value });
        // Release: pairs with the Acquire in `take` and, through the flag, with the last look.
        slot.state.store(state, Ordering::Release);
    }

    /// Delivers as long as the next value is here. True while the flag could be had.
    fn deliver<E>(&self, mut deliver: impl FnMut(T) -> Result<(), E>) -> Result<Sent, E> {
        let mut delivered = 0;
        // AcqRel: pairs with the exchange that clears the flag, see the module header.
        while !self.busy.swap(true, Ordering::AcqRel) {
            let flag = Flag(&self.busy);
            // Relaxed: only the holder of the flag writes it.
            let mut next = self.next.load(Ordering::Relaxed);
            while let Some(value) = self.take(next) {
                next = next.wrapping_add(1);
                let Some(value) = value else { continue };
                delivered += 1;
                if let Err(error) = deliver(value) {
                    // Nothing may overtake what was lost: the flag stays set.
                    std::mem::forget(flag);
                    return Err(error);
                }
            }
            drop(flag);
            // Acquire: the last look, see the module header.
            if self.slot(next).state.load(Ordering::Acquire) == EMPTY {
                break;
            }
        }
        Ok(Sent { delivered })
    }

    /// Takes what stands at `next` out of its slot and moves on; `None` if it is not here. Only for
    /// the holder of the flag.
    fn take(&self, next: u64) -> Option<Option<T>> {
        let slot = self.slot(next);
        // Acquire: pairs with the publication; the value is visible.
        if slot.state.load(Ordering::Acquire) == EMPTY {
            return None;
        }
        // SAFETY: the slot is published and this thread holds the flag, so nobody else touches it
        // until `next` has moved on.
        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
        // Relaxed: published by the Release of `next`.
        slot.state.store(EMPTY, Ordering::Relaxed);
        // Release: pairs with the Acquire in `has_room`.
        self.next.store(next.wrapping_add(1), Ordering::Release);
        Some(value)
    }
}

/// Clears the flag, also when `deliver` panics.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        // AcqRel, and an exchange, not a store: whoever tried in vain is seen, see the module
        // header.
        self.0.swap(false, Ordering::AcqRel);
    }
}

impl<T> Reorder<T> for ReorderBuffer<T> {
    fn has_room(&self, serial: u64) -> bool {
        // Acquire: pairs with the Release in `take`; the slot is empty.
        serial.wrapping_sub(self.next.load(Ordering::Acquire)) < self.slots.len() as u64
    }

    fn send<E>(
        &self,
        serial: u64,
        value: T,
        deliver: impl FnMut(T) -> Result<(), E>,
    ) -> Result<Sent, E> {
        self.publish(serial, Some(value));
        self.deliver(deliver)
    }
}

impl<T> Place<'_, T> {
    /// See [`Reorder::send`].
    ///
    /// # Errors
    /// The first error of `deliver`.
    pub fn send<E>(self, value: T, deliver: impl FnMut(T) -> Result<(), E>) -> Result<Sent, E> {
        let (buffer, serial) = (self.buffer, self.serial);
        std::mem::forget(self);
        buffer.send(serial, value, deliver)
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        // Who sends next, or holds the flag now, passes over it.
        self.buffer.publish(self.serial, None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Cost of the bounds: two senders of one serial each into a ring of one or two slots, three
    //! preemptions; seconds in release.
    use super::*;
    use crate::sync::{Arc, Mutex, thread};

    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    #[test]
    fn two_senders_leave_nothing_behind() {
        model(|| {
            let buffer = Arc::new(ReorderBuffer::new(2, u64::MAX));
            let out = Arc::new(Mutex::new(Vec::new()));
            let send = |serial: u64, value: u32| {
                let (buffer, out) = (Arc::clone(&buffer), Arc::clone(&out));
                move || {
                    let deliver = |value| {
                        out.lock().expect("no poison").push(value);
                        Ok::<(), ()>(())
                    };
                    let _ = buffer.send(serial, value, deliver);
                }
            };
            let other = thread::spawn(send(0, 2));
            send(u64::MAX, 1)();
            other.join().expect("no panic");
            assert_eq!(*out.lock().expect("no poison"), [1, 2]);
        });
    }

    #[test]
    fn a_ring_of_one_is_written_again_only_when_it_is_empty() {
        model(|| {
            let buffer = Arc::new(ReorderBuffer::new(1, 0));
            let out = Arc::new(Mutex::new(Vec::new()));
            let deliver = |out: &Mutex<Vec<u32>>, value| {
                out.lock().expect("no poison").push(value);
                Ok::<(), ()>(())
            };
            let other = {
                let (buffer, out) = (Arc::clone(&buffer), Arc::clone(&out));
                thread::spawn(move || {
                    let mut value = 2;
                    while let Err(back) = buffer.try_send(1, value, |value| deliver(&out, value)) {
                        value = back;
                        thread::yield_now();
                    }
                })
            };
            let _ = buffer.send(0, 1, |value| deliver(&out, value));
            other.join().expect("no panic");
            assert_eq!(*out.lock().expect("no poison"), [1, 2]);
        });
    }

    /// The same hand-over with a plain store to clear the flag, as in the paper's figure but
    /// without sequential consistency: some schedule leaves a value behind.
    #[test]
    #[should_panic(expected = "left behind")]
    fn with_a_store_to_clear_the_flag_a_value_is_left_behind() {
        model(|| {
            let (full, busy) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
            let sender = {
                let (full, busy) = (Arc::clone(&full), Arc::clone(&busy));
                thread::spawn(move || {
                    full.store(true, Ordering::Release);
                    // True: the sender has the flag and delivers.
                    !busy.swap(true, Ordering::AcqRel)
                })
            };
            busy.store(false, Ordering::Release);
            let seen = full.load(Ordering::Acquire);
            let delivered = sender.join().expect("no panic");
            assert!(seen || delivered, "left behind");
        });
    }
}
