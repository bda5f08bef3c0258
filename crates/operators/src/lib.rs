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
//! | [`limit`], [`sort`], [`temporal_sort`] | LIMIT, ORDER BY at the end, ORDER BY row time |
//! | [`tables`] | the tables of state that captures write and restores read |
//! | `reference` | the reference executor: the oracle of tests, written for clarity (feature `test-support`) |
//! | `test_kit` | drives an operator without the runtime, in many ways, and compares (feature `test-support`) |

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
pub mod over;
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
