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
//! | [`partitioned`] | [`HybridQueue`](partitioned::HybridQueue) | partitions side by side, in order within each |
//! | [`gate`] | [`ScaleGate`](gate::ScaleGate) | sorted sources become one sequence |
//!
//! The last three come with the baselines that their paper measured them against.

pub mod closing;
pub mod gate;
pub mod mailbox;
pub mod partitioned;
pub mod reorder;
pub mod sleep;
pub mod sync;

pub use closing::Closing;
pub use mailbox::Mailbox;
pub use sleep::Sleep;
