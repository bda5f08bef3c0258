//! Windows over time: tumbling, hopping, cumulating and session windows with aggregates.
//!
//! [`WindowAggregate`] computes the first three. Their windows are made of slices, stretches that
//! lie in exactly the same windows: a row touches one slice, once, and windows are put together
//! from slices. [`SessionAggregate`] computes sessions, which depend on the rows themselves.
//!
//! | module | holds |
//! |---|---|
//! | `kind` | [`WindowKind`]: windows that depend on time alone, or sessions |
//! | `spec` | [`WindowSpec`]: which windows hold a time |
//! | `zone` | windows in a session's local time, right across daylight saving |
//! | `judge` | which rows of a bundle are late, and the slice of every other |
//! | `calls` | the aggregates of windows, and their states as rows of tables of state |
//! | `slices` | states by slice and dense key id, for windows that overlap |
//! | `tables` | states by window, each with keys of its own, for windows that do not |
//! | `assembly` | windows from slices: sums that slide, sums that grow, the tree |
//! | `parts` | what has entered hopping windows, by number |
//! | `slice_capture` | what captures have yet to read of slices |
//! | `tree` | sliding windows of aggregates that cannot subtract |
//! | `aligned`, `sessions` | the two operators |
//! | `shared` | what the partitions of `aligned` have in common |
//! | `session_table` | which sessions there are, and what rows do to them |
//! | `tumbling` | the partitions of windows that do not overlap |
//! | `key_spread` | whether their rows are scattered by key |
//! | `count` | count windows of a key |
//! | `clock` | either of them over processing time |
//! | `snapshot` | their tables of state |
//! | `output` | result columns, and what late rows lead to |

mod aligned;
mod assembly;
mod calls;
mod clock;
mod count;
mod judge;
mod key_spread;
mod kind;
mod most_rows;
mod output;
mod partition;
mod parts;
mod session_table;
mod sessions;
mod shared;
mod slice_capture;
mod slices;
mod snapshot;
mod spec;
mod tables;
mod top;
mod tree;
mod tumbling;
mod zone;

pub use aligned::{WindowAggregate, closing_watermarks};
pub use clock::ClockWindows;
pub use count::{CountWindowAggregate, CountWindowSpec};
pub use kind::WindowKind;
pub use output::LatePolicy;
pub use sessions::{SessionAggregate, SessionSpec};
pub use shared::WindowAggregateSpec;
pub use spec::WindowSpec;
pub use top::WindowTop;
pub(crate) use zone::Zone;

#[cfg(test)]
mod tests;
