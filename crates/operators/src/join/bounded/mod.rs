//! What the joins that time bounds have in common: rows that are kept, rows of a piece by side, and
//! rows put side by side.
//!
//! | module | holds |
//! |---|---|
//! | `chunks` | rows that are kept: batches, counted by who still needs them |
//! | `told` | what captures tell of them |
//! | `told_waiting` | what captures tell of those that wait for a time |
//! | `pieces` | the rows of a piece by side, with times, hashes and the NULLs among their keys |
//! | `joined` | the columns that leave, and which pairs really belong together |
//! | `waiting` | what waits for a time |
//! | `order` | the order of keys in the contracts that promise a sequence |

pub(crate) mod chunks;
#[cfg(test)]
pub(super) mod fixture;
pub(super) mod joined;
pub(crate) mod order;
pub(crate) mod pieces;
pub(crate) mod told;
pub(crate) mod told_waiting;
pub(crate) mod waiting;

/// Pairs of rows that are looked at together; also the most rows of a batch that leaves.
pub(super) const PAIRS_MAX: usize = 8192;
