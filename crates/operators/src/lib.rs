//! The operators of the engine, each behind the contracts of `thalweg-core`.
//!
//! | module | holds |
//! |---|---|
//! | [`chain`] | fused stateless steps: filter, project, unnest, user functions |
//! | [`assigner`] | row times, watermarks and lateness stamps right behind a source |
//! | [`join`] | two inputs |
//! | [`group`], [`over`], [`top_n`] | aggregates without windows, over rows before, and first rows |
//! | [`pattern`] | MATCH_RECOGNIZE |
//! | [`final_rows`] | what is left of changes, in batch mode |
//! | [`live`] | the rows of tables that can be asked while their jobs run |
//! | [`limit`], [`sort`], [`temporal_sort`] | LIMIT, ORDER BY at the end, ORDER BY row time |
//! | [`tables`] | the tables of state that captures write and restores read |
//! | `reference` | the reference executor: the oracle of tests, written for clarity (feature `test-support`) |
//! | `test_kit` | drives an operator without the runtime, in many ways, and compares (feature `test-support`) |
//!
//! # What every operator here relies on
//!
//! - One worker at a time calls a partition, so state needs no locks, except where captures read it
//!   ([`tables`] and the capture kit: `capture`).
//! - `Piece::rows` names the rows that are meant, or is `None` for the whole bundle. Columns have
//!   all rows of the bundle in both cases.
//! - Lateness is judged by the row's own `watermark_before`. The watermark that the operator has
//!   consumed only says when results leave.
//! - Work at a watermark may be split over several calls (`Progress::More`). Between them no rows
//!   come and no capture begins.
//! - What is emitted says where it belongs in the sequence (`Place`): after the row that caused it,
//!   at the end of a window, or as emitted.
//!
//! # What every operator here guarantees
//!
//! - The result is the same for every number of partitions and every way in which the input is cut
//!   into bundles, up to the order that the contract leaves open. Processing time, `state_ttl_ms`
//!   and mini-batches are the exceptions.
//! - State is bounded by live rows and keys. What is emptied is used again, but memory for far more
//!   than is needed is given back.
//! - Captures write tables that a person can read, and restore into any number of partitions.

pub mod aggregate;
pub mod assigner;
mod capture;
pub mod chain;
mod expiry;
pub mod final_rows;
mod gradual;
pub mod group;
pub mod join;
pub mod keys;
pub mod limit;
pub mod live;
pub mod over;
pub mod over_values;
pub mod over_whole;
pub mod pattern;
#[cfg(any(test, feature = "test-support"))]
pub mod reference;
mod rows;
pub mod sort;
mod spares;
pub mod temporal_sort;
#[cfg(any(test, feature = "test-support"))]
pub mod test_kit;
pub mod time_order;
pub mod top_n;
pub mod window;

pub use capture::tables;
