//! Several sorted sources become one sequence that depends on their tuples alone (Viper §2, §3).
//!
//! The order is (time, source, position). A tuple is *ready* when nothing that comes later can
//! stand before it: (t, source i) is ready when every source j that shows nothing waiting is far
//! enough, its frontier later than t for j < i, at or after t for j > i. The frontier of a source
//! says that no later tuple of it is older; a tuple moves it, and so does a watermark (a
//! heartbeat).
//!
//! | structure | who merges | paper |
//! |---|---|---|
//! | [`ScaleGate`] | each reader, from lists that the sources append to: no thread of its own | §3.3 |
//! | [`MergeThread`] | a dedicated thread with a heap, queues in and out | the operator that Viper does away with (the baseline) |

mod merge_thread;
mod scale_gate;

pub use merge_thread::MergeThread;
pub use scale_gate::{GateReader, GateSource, ScaleGate};

/// Why a tuple was not added. It comes back with it.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// It is older than what the source has shown or promised before.
    OutOfOrder {
        /// The tuple.
        tuple: T,
        /// What the source stands at.
        frontier_ms: i64,
    },
    /// The slowest reader is too far behind; try again when it has acknowledged more.
    Full {
        /// The tuple.
        tuple: T,
    },
}

#[cfg(all(test, not(loom)))]
mod tests;
