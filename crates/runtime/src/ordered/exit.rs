//! Outcomes of a stage leave in the order of its inputs, however the workers finished them: the
//! reorder buffers of `ordering`, and who learns when there is room again.
//!
//! Room is asked for when work is claimed, and claims come in serial order, so whoever has the
//! oldest serial can always finish. A claim that finds no room is not made; [`Exit::send`] says
//! when those who were refused should try again.

use thalweg_core::Result;
#[cfg(feature = "baselines")]
use thalweg_ordering::reorder::LockedReorderBuffer;
use thalweg_ordering::reorder::{Reorder, ReorderBuffer};
use thalweg_ordering::sync::{AtomicBool, AtomicU64, Ordering, fence};

use crate::policies::ReorderScheme;

/// The place where outcomes wait for older ones.
pub(crate) struct Exit<T> {
    buffer: Buffer<T>,
    /// The serial whose outcome is delivered next. Raised by whoever delivers, when that is done.
    turn: AtomicU64,
    /// A claim found no room.
    refused: AtomicBool,
}

enum Buffer<T> {
    NonBlocking(ReorderBuffer<T>),
    #[cfg(feature = "baselines")]
    Locked(LockedReorderBuffer<T>),
}

/// Whether those who were refused should try again.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nobody was refused.
    Unasked,
    /// A claim was, and there is room now.
    Wanted,
}

impl<T> Exit<T> {
    /// An exit whose first outcome has the serial `first`.
    pub(crate) fn new(scheme: ReorderScheme, capacity: usize, first: u64) -> Self {
        let buffer = match scheme {
            ReorderScheme::NonBlocking => Buffer::NonBlocking(ReorderBuffer::new(capacity, first)),
            #[cfg(feature = "baselines")]
            ReorderScheme::Locked => Buffer::Locked(LockedReorderBuffer::new(capacity, first)),
        };
        Exit { buffer, turn: AtomicU64::new(first), refused: AtomicBool::new(false) }
    }

    /// True if the outcome of this serial has room, which then stays so.
    pub(crate) fn has_room(&self, serial: u64) -> bool {
        let has_room = || match &self.buffer {
            Buffer::NonBlocking(buffer) => buffer.has_room(serial),
            #[cfg(feature = "baselines")]
            Buffer::Locked(buffer) => buffer.has_room(serial),
        };
        has_room() || {
            self.refused.store(true, Ordering::Relaxed);
            // SeqCst on both sides, here and in `send`: either this sees the room that a delivery
            // made, or the delivery sees that a claim was refused.
            fence(Ordering::SeqCst);
            has_room()
        }
    }

    /// True if all outcomes in front of this serial, which has not been sent, are delivered. Then
    /// nobody delivers anything before it is sent.
    pub(crate) fn is_turn(&self, serial: u64) -> bool {
        // Acquire: pairs with the Release in `send`; what was delivered is visible.
        self.turn.load(Ordering::Acquire) == serial
    }

    /// Hands over the outcome of a serial that has room, and delivers in order what is next, unless
    /// another worker is at it. After an error nothing is delivered any more.
    pub(crate) fn send(
        &self,
        serial: u64,
        outcome: T,
        mut deliver: impl FnMut(T) -> Result<()>,
    ) -> Result<Room> {
        let deliver = |outcome| -> Result<()> {
            deliver(outcome)?;
            self.turn.fetch_add(1, Ordering::Release);
            Ok(())
        };
        let sent = match &self.buffer {
            Buffer::NonBlocking(buffer) => buffer.send(serial, outcome, deliver)?,
            #[cfg(feature = "baselines")]
            Buffer::Locked(buffer) => buffer.send(serial, outcome, deliver)?,
        };
        if sent.delivered == 0 {
            return Ok(Room::Unasked);
        }
        fence(Ordering::SeqCst);
        match self.refused.load(Ordering::Relaxed) && self.refused.swap(false, Ordering::Relaxed) {
            true => Ok(Room::Wanted),
            false => Ok(Room::Unasked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_were_refused_learn_of_room() {
        for scheme in [ReorderScheme::NonBlocking, ReorderScheme::Locked] {
            let exit = Exit::new(scheme, 2, 0);
            let mut out = Vec::new();
            assert!(exit.has_room(1) && !exit.has_room(2));
            let mut send = |serial, value| {
                let deliver = |value| {
                    out.push(value);
                    Ok(())
                };
                exit.send(serial, value, deliver).expect("delivered")
            };
            assert_eq!(send(1, 'b'), Room::Unasked, "nothing has left");
            assert!(exit.is_turn(0));
            assert_eq!(send(0, 'a'), Room::Wanted);
            assert!(exit.has_room(3));
            assert_eq!(send(2, 'c'), Room::Unasked);
            assert!(exit.is_turn(3));
            assert_eq!(out, ['a', 'b', 'c']);
        }
    }
}
