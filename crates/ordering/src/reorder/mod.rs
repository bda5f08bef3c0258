//! Outcomes that were made in any order leave in the order of their serials (Prasaad et al. §3).
//!
//! | structure | hand-over | paper |
//! |---|---|---|
//! | [`ReorderBuffer`] | a ring and a try-flag: nobody waits for another worker | §3.2, Fig. 4 |
//! | `LockedReorderBuffer` | one lock around everything | §3.1, Fig. 2 (feature `baselines`) |
//!
//! Both keep one rule: **room is reserved when work is claimed.** A serial may be sent once
//! `serial < next + capacity`, which [`Reorder::has_room`] answers; `next` only grows, so the
//! answer stays true. Whoever claims work only after asking can never find the ring full, and the
//! worker with the oldest serial can always finish.
//!
//! Serials are dense, each is sent once, and they may wrap around at 2^64.

#[cfg(feature = "baselines")]
mod locked;
mod non_blocking;

#[cfg(feature = "baselines")]
pub use locked::LockedReorderBuffer;
pub use non_blocking::{Place, ReorderBuffer};

/// What a hand-over did.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// How many values this call delivered; another worker may be delivering meanwhile.
    pub delivered: usize,
}

/// A structure that brings values into serial order.
pub trait Reorder<T> {
    /// True if the value of this serial may be sent. Once true it stays so.
    fn has_room(&self, serial: u64) -> bool;

    /// Hands over the value of a serial for which there is room, and delivers what is next in order
    /// as far as it is here and no other worker is at it. `deliver` is called by one worker at a
    /// time, in serial order.
    ///
    /// # Errors
    /// The first error of `deliver`. Nothing is delivered after it, by anybody.
    ///
    /// # Panics
    /// If there is no room for the serial or it was sent before. If `deliver` panics, its value is
    /// gone, no other is, and later calls deliver on.
    fn send<E>(
        &self,
        serial: u64,
        value: T,
        deliver: impl FnMut(T) -> Result<(), E>,
    ) -> Result<Sent, E>;
}

#[cfg(all(test, not(loom)))]
mod tests;
