//! Windows over time: tumbling, hopping, cumulating and session windows with aggregates.
//!
//! `WindowAggregate` computes the first three. Their windows are made of slices, stretches that
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
//! | `changelog` | windows whose rows may be retracted |
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
//!
//! # Slices
//!
//! A slice is a stretch of time within which no window begins or ends. It follows the slicing of
//! Scotty (Traub et al., general stream slicing) and the panes of Flink's `SliceAssigner`. For
//! `HOP(5, 10)`:
//!
//! ```text
//! time      0         5         10        15        20
//! windows   [-------------------)                        ends at 10
//!                     [-------------------)              ends at 15
//!                               [-------------------)    ends at 20
//! slices    |---------|---------|---------|---------|
//! enter     5         10        15        20             end of the first window with the slice
//! leave     10        15        20        25             end of the last window with the slice
//! ```
//!
//! A window with end `e` consists of exactly the slices with `enter <= e <= leave`. That is the
//! only thing `assembly` needs to know of a slice, so a slice is named by this pair (`SliceKey`)
//! and not by its bounds.
//!
//! # A row's way through an aligned window
//!
//! 1. `judge` compares each row with the watermark before it, treats late rows by the policy and
//!    sorts the others into runs, one for each slice.
//! 2. Keys are interned: once for the bundle in `slices`, once for each window in `tables`.
//! 3. Each run updates its slice (`slices`) or its window (`tables`).
//! 4. At a watermark, closed state moves to the partition that owns its keys (phase 0, only where
//!    any partition takes any bundle).
//! 5. The owner merges what it received and emits the windows that close (phase 1).
//!
//! **Invariants**
//! - A window with end `e` closes at the first watermark `w` with `e - 1 <= w`, and a row is late
//!   for it by the same comparison with its own `watermark_before`. Both sides of the rule must
//!   stay equal: otherwise a row could reach a window that has been emitted.
//! - Bounds of aligned windows are in the windows' own time, which is local time for
//!   `TIMESTAMP_LTZ` (`zone`). Watermarks are converted on the way in, and only `window_time` of
//!   the result is converted back. Sessions compute with instants and convert what they show.
//! - Rows are retracted only where the operator was made for a changelog (`changelog`).
//!
//! What is not here: ranking of the rows of a window across partitions (`top_n`), joins of windows
//! (`join::window`), and windowing functions of SQL that only assign windows to rows
//! (`chain::window_rows`).

mod aligned;
mod assembly;
mod calls;
mod changelog;
mod clock;
mod count;
mod judge;
mod key_spread;
mod kind;
mod known;
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
pub use known::KnownWindows;
pub use output::LatePolicy;
pub use sessions::{SessionAggregate, SessionSpec};
pub use shared::WindowAggregateSpec;
pub use spec::WindowSpec;
pub use top::WindowTop;
pub(crate) use zone::Zone;

#[cfg(test)]
mod tests;
