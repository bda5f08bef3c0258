//! Concurrent structures of the engine: generic over what they carry, no Arrow, and checked by
//! loom. Atomics, locks and threads come through [`sync`], so that
//! `RUSTFLAGS="--cfg loom" cargo test -p thalweg-ordering --release` explores their schedules.
//!
//! | module | structure | used for |
//! |---|---|---|
//! | [`sleep`] | [`Sleep`] | idle workers park, no wake-up is lost |
//! | [`closing`] | [`Closing`] | whoever comes last carries an epoch's watermark on |
//! | [`mailbox`] | [`Mailbox`] | one worker at a time per partition, without blocking the others |
//! | [`reorder`] | [`ReorderBuffer`](reorder::ReorderBuffer) | outcomes leave in serial order |
//!
//! With the feature `baselines`, which no program turns on, there are also structures that are
//! measured only: `partitioned` (`HybridQueue`: partitions side by side, in order within each),
//! `gate` (`ScaleGate`: sorted sources become one sequence), and the baselines that the papers
//! measured these and the reorder buffer against.

pub mod closing;
#[cfg(feature = "baselines")]
pub mod gate;
pub mod mailbox;
#[cfg(feature = "baselines")]
pub mod partitioned;
pub mod reorder;
pub mod sleep;
pub mod sync;

pub use closing::Closing;
pub use mailbox::Mailbox;
pub use sleep::Sleep;
