//! How the rows of exact aggregates get to the partitions: to one that is local to a worker, or
//! scattered by key.
//!
//! A local partition keeps states of keys that others own and hands them over when a window
//! closes. That is cheapest where each key has many rows: a row costs a look-up in a warm table,
//! and few states move. Where most rows have a key of their own it is dear: each key is learnt
//! twice or more. Then rows go to the owner of their key right away, and tables are small besides.
//!
//! Where there is no key but distinct values of a column are collected, these are what rows are
//! spread by: each partition has a range of them, and its results are put together with those of
//! others without a look at the values.
//!
//! A key that has more rows than a worker's share of a bundle stays local even then, as do those
//! that are in the same part of the bundle: each worker has states of these few keys, and nobody
//! waits for the one who owns them.
//!
//! [`KeySpread`] decides from what windows had when they were handed over or emitted, and while
//! they grow large. The decision shows in no result: a partition takes pieces of bundles as their
//! owner and others as whoever was local, in any mixture, states of the latter are handed
//! over before a watermark is passed on, and exact states may be merged in any order. So it may
//! change between any two bundles, and the counters below may lose a little among threads.
//!
//! # How it decides
//!
//! | now | seen | then |
//! |---|---|---|
//! | locally | fewer than `FEW_ROWS` rows per key when windows are handed over | by key |
//! | locally | a window grows past `MANY_KEYS` keys, most rows new | by key, without waiting |
//! | by key | more than `MANY_ROWS` rows per key and worker | locally |
//!
//! The two limits differ by a factor, so that a ratio between them does not make it change back and
//! forth. The sums fade by one part in `MEMORY` with each report, and start from 0 after a change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_core::{Bundle, OrderContract, Result, Route};

use crate::keys::route_by_keys;

/// With fewer rows for each key that a local partition has, rows are scattered: learning a key
/// elsewhere, moving its state and learning it again takes about as long as scattering this many.
const FEW_ROWS: u64 = 16;

/// So much more is wanted before bundles are taken locally again.
const MANY_ROWS: u64 = 2 * FEW_ROWS;

/// A window with this many keys (or distinct values) is not waited for if most of its rows still
/// bring new ones.
const MANY_KEYS: usize = 64 * 1024;

/// A bundle with fewer rows for each partition is taken locally: each partition that gets a part of
/// it is a task of its own, which costs more than what scattering saves.
const SCATTERED_ROWS_MIN: usize = 32;

/// What was seen before counts less by one part in this many with each window of a partition.
const MEMORY: u64 = 8;

/// Chooses between the two ways.
#[derive(Default)]
pub(super) struct KeySpread {
    by_key: AtomicBool,
    rows: AtomicU64,
    keys: AtomicU64,
    is_ordered: AtomicBool,
}

impl KeySpread {
    /// A partition is opened under this contract, which says how many of them a worker has.
    pub fn opened(&self, order: OrderContract) {
        self.is_ordered.store(order.is_ordered(), Ordering::Relaxed);
    }

    /// About how many workers share these partitions.
    fn workers(&self, partitions: usize) -> usize {
        let order = match self.is_ordered.load(Ordering::Relaxed) {
            true => OrderContract::Arrival,
            false => OrderContract::Epoch,
        };
        partitions.div_ceil(order.partitions_of_worker())
    }

    /// Where the rows of a bundle go, by these columns, which are keys or have distinct values.
    ///
    /// Small bundles, tables without keys to spread by and single partitions are always taken
    /// locally.
    pub fn route(
        &self,
        bundle: &Bundle,
        (spread_by, are_keys): (&[usize], bool),
        partitions: usize,
    ) -> Result<Route> {
        let is_small = bundle.num_rows() < partitions * SCATTERED_ROWS_MIN;
        if spread_by.is_empty() || partitions == 1 || is_small || !self.is_by_key() {
            return Ok(Route::Any);
        }
        // What one key has stays in one partition; were it most of the rows, others would wait.
        let share_max = bundle.num_rows() / self.workers(partitions) + 16;
        match route_by_keys(bundle, spread_by, partitions)? {
            Route::Scatter(parts) if parts.iter().any(|part| part.len() > share_max) => {
                Ok(if are_keys { partly(parts, share_max) } else { Route::Any })
            }
            route => Ok(route),
        }
    }

    /// True if rows go to the owner of their key, unless too many have one key.
    pub fn is_by_key(&self) -> bool {
        // Relaxed, here and below: either way is right for any bundle.
        self.by_key.load(Ordering::Relaxed)
    }

    /// What a local partition took of a bundle, for a window with this many keys by then. The
    /// first windows of a job may be long: what they have is not known before they close.
    pub fn taken(&self, rows: usize, keys: usize, new_keys: usize) {
        if keys >= MANY_KEYS && new_keys > rows / 2 && !self.is_by_key() {
            self.decide(true, true);
        }
    }

    /// What a local partition had of a window.
    pub fn handed_over(&self, rows: u64, keys: usize) {
        if !self.is_by_key() {
            let (rows, keys) = self.add(rows, keys);
            self.decide(rows < keys * FEW_ROWS, true);
        }
    }

    /// What a partition had of a window as the owner of its keys.
    pub fn scattered(&self, rows: u64, keys: usize, partitions: usize) {
        if self.is_by_key() {
            let (rows, keys) = self.add(rows, keys);
            // Locally, each worker would have had the keys.
            let workers = self.workers(partitions) as u64;
            self.decide(rows > keys * MANY_ROWS * workers, false);
        }
    }

    fn add(&self, rows: u64, keys: usize) -> (u64, u64) {
        let add = |sum: &AtomicU64, more: u64| {
            let before = sum.load(Ordering::Relaxed);
            // Not one atomic step: a report that is lost among threads delays the decision and does
            // no harm.
            let after = before - before / MEMORY + more;
            sum.store(after, Ordering::Relaxed);
            after
        };
        (add(&self.rows, rows), add(&self.keys, keys as u64))
    }

    fn decide(&self, otherwise: bool, by_key: bool) {
        if otherwise {
            self.by_key.store(by_key, Ordering::Relaxed);
            self.rows.store(0, Ordering::Relaxed);
            self.keys.store(0, Ordering::Relaxed);
        }
    }
}

/// Takes the parts with more rows than this locally, or all if few would be left.
fn partly(mut scattered: Vec<Vec<u32>>, share_max: usize) -> Route {
    let num_rows: usize = scattered.iter().map(Vec::len).sum();
    let too_large = scattered.iter_mut().filter(|part| part.len() > share_max);
    let mut local: Vec<u32> = too_large.flat_map(std::mem::take).collect();
    if local.len() > num_rows / 2 {
        return Route::Any;
    }
    // Each part is ascending, which a stable sort makes use of.
    local.sort();
    Route::Partly { scattered, local }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_much_to_change_back() {
        let spreading = KeySpread::default();
        let by_key = || spreading.is_by_key();
        spreading.handed_over(1000, 50);
        assert!(!by_key(), "20 rows for each key");
        spreading.handed_over(1000, 300);
        assert!(by_key(), "1875 rows of 344 keys");
        spreading.scattered(1000, 40, 4);
        assert!(by_key(), "25 rows for each key, of which two workers would have had half");
        spreading.scattered(6000, 40, 4);
        assert!(!by_key(), "6875 rows of 75 keys");
        spreading.taken(1000, MANY_KEYS, 400);
        spreading.taken(1000, MANY_KEYS - 1, 1000);
        assert!(!by_key(), "most rows have known keys, or the window is small");
        spreading.taken(1000, MANY_KEYS, 600);
        assert!(by_key());
    }

    #[test]
    fn parts_that_are_too_large_are_local() {
        let parts = vec![vec![0, 3], vec![1, 4, 6], vec![5], vec![2, 7, 8]];
        assert!(matches!(partly(parts.clone(), 2), Route::Any), "six of nine rows");
        let parts = [&parts[..3], &[vec![2, 8], vec![7]]].concat();
        let Route::Partly { scattered, local } = partly(parts, 2) else { panic!("three of nine") };
        assert_eq!(local, [1, 4, 6]);
        assert_eq!(scattered, [vec![0, 3], vec![], vec![5], vec![2, 8], vec![7]]);
    }

    #[test]
    fn partitions_say_how_many_workers_there_are() {
        let spreading = KeySpread::default();
        let workers = || [1, 4, 8, 16].map(|partitions| spreading.workers(partitions));
        assert_eq!(workers(), [1, 2, 4, 8]);
        spreading.opened(OrderContract::EventTime);
        assert_eq!(workers(), [1, 1, 2, 4]);
    }
}
