//! How the rows of exact aggregates get to the partitions: to whichever a worker has at hand, or
//! scattered by key.
//!
//! A partition at hand keeps states of keys that others own and hands them over when a window
//! closes. That is cheapest where each key has many rows: a row costs a look-up in a warm table, and
//! few states move. Where most rows have a key of their own it is dear: each key is learnt twice or
//! more. Then rows go to the owner of their key right away, and tables are small besides.
//!
//! [`Spreading`] decides from what windows had when they were handed over or emitted. The decision
//! shows in no result: a partition takes pieces of bundles as their owner and whole bundles as
//! whoever was at hand, in any mixture, states of the latter are handed over before a watermark is
//! passed on, and exact states may be merged in any order. So it may change between any two
//! bundles, and the counters below may lose a little among threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_core::{Bundle, Result, Route};

use crate::keys::route_by_keys;

/// With fewer rows for each key that a partition at hand has, rows are scattered: learning a key
/// elsewhere, moving its state and learning it again takes about as long as scattering so many.
const FEW_ROWS: u64 = 8;

/// So much more is wanted before bundles are taken at hand again.
const MANY_ROWS: u64 = 2 * FEW_ROWS;

/// What was seen is halved beyond so many rows, so that what comes later counts more.
const MEMORY_ROWS: u64 = 1 << 21;

/// How many partitions an operator has for each worker, unless the job says otherwise.
const PARTITIONS_OF_WORKER: usize = 4;

/// Chooses between the two ways.
#[derive(Default)]
pub(super) struct Spreading {
    by_key: AtomicBool,
    rows: AtomicU64,
    keys: AtomicU64,
}

impl Spreading {
    /// Where the rows of a bundle go.
    pub(super) fn route(&self, bundle: &Bundle, keys: &[usize], partitions: usize) -> Result<Route> {
        // Relaxed, here and below: either way is right for any bundle.
        if keys.is_empty() || partitions == 1 || !self.by_key.load(Ordering::Relaxed) {
            return Ok(Route::Any);
        }
        let route = route_by_keys(bundle, keys, partitions)?;
        // What one key has stays in one partition; were it most of the rows, others would wait.
        let share = bundle.num_rows() * PARTITIONS_OF_WORKER / partitions + 16;
        match &route {
            Route::Scatter(parts) if parts.iter().any(|part| part.len() > share) => Ok(Route::Any),
            _ => Ok(route),
        }
    }

    /// What a partition at hand had of a slice.
    pub(super) fn handed_over(&self, rows: u64, keys: usize) {
        if !self.by_key.load(Ordering::Relaxed) {
            let (rows, keys) = self.add(rows, keys);
            self.decide(rows < keys * FEW_ROWS, true);
        }
    }

    /// What a partition had of a slice as the owner of its keys.
    pub(super) fn scattered(&self, rows: u64, keys: usize, partitions: usize) {
        if self.by_key.load(Ordering::Relaxed) {
            let (rows, keys) = self.add(rows, keys);
            // At hand, each worker would have had the keys.
            let workers = partitions.div_ceil(PARTITIONS_OF_WORKER) as u64;
            self.decide(rows > keys * MANY_ROWS * workers, false);
        }
    }

    fn add(&self, rows: u64, keys: usize) -> (u64, u64) {
        let all_rows = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let all_keys = self.keys.fetch_add(keys as u64, Ordering::Relaxed) + keys as u64;
        if all_rows > MEMORY_ROWS {
            self.rows.store(all_rows / 2, Ordering::Relaxed);
            self.keys.store(all_keys / 2, Ordering::Relaxed);
        }
        (all_rows, all_keys)
    }

    fn decide(&self, otherwise: bool, by_key: bool) {
        if otherwise {
            self.by_key.store(by_key, Ordering::Relaxed);
            self.rows.store(0, Ordering::Relaxed);
            self.keys.store(0, Ordering::Relaxed);
        }
    }
}
