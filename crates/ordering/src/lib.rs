//! Concurrent structures of the engine: generic over what they carry, no Arrow, and checked by
//! loom. Atomics, locks and threads come through [`sync`], so that
//! `RUSTFLAGS="--cfg loom" cargo test -p thalweg-ordering --release` explores their schedules.
//!
//! | module | structure | used for |
//! |---|---|---|
//! | [`sleep`] | [`Sleep`] | idle workers park, no wake-up is lost |
//! | [`closing`] | [`Closing`] | whoever comes last carries an epoch's watermark on |
//! | [`mailbox`] | [`Mailbox`] | one worker at a time per partition, without blocking the others |

pub mod closing;
pub mod mailbox;
pub mod sleep;
pub mod sync;

pub use closing::Closing;
pub use mailbox::Mailbox;
pub use sleep::Sleep;
