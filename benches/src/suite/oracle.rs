//! What results must be: computed from the events by one plain loop that shares nothing with the
//! engine.
//!
//! Rows of windows are compared by their number and by the sum of a hash of each (key, end, count),
//! the same hash that the program for Hazelcast uses.

use serde_json::{Value, json};
use thalweg_core::shim::mix64;

/// The time of event 0 in presets of peers, in milliseconds since 1970.
pub const BASE_MS: i64 = 1_000_000_000_000;
/// Auctions of preset `peer`.
pub const KEYS: usize = 10_000;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash of a row of three numbers, for sums.
#[inline]
pub fn hash_row(a: i64, b: i64, c: i64) -> u64 {
    let x = (a as u64)
        .wrapping_mul(GOLDEN)
        .wrapping_add((b as u64).wrapping_mul(0xBF58_476D_1CE4_E5B9))
        .wrapping_add((c as u64).wrapping_mul(0x94D0_49BB_1331_11EB));
    let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 29)
}

/// The hash that all of the events of peers comes from.
#[inline]
pub fn hash_number(number: u64) -> u64 {
    mix64(number.wrapping_mul(GOLDEN).wrapping_add(GOLDEN))
}

/// The auction of a bid of preset `peer`; `None` for its persons and auctions.
#[inline]
pub fn peer_auction(event: u64) -> Option<usize> {
    if event % 50 < 4 {
        return None;
    }
    Some((((hash_number(event) >> 32) * KEYS as u64) >> 32) as usize)
}

/// Rows and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub rows: u64,
    pub hash: u64,
}

impl Sum {
    /// Adds a row.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        self.rows += 1;
        self.hash = self.hash.wrapping_add(hash);
    }

    /// A row is none any more.
    #[inline]
    pub fn subtract(&mut self, hash: u64) {
        self.rows = self.rows.wrapping_sub(1);
        self.hash = self.hash.wrapping_sub(hash);
    }

    /// Adds rows whose hashes add up to this.
    pub fn add_all(&mut self, rows: u64, hash: u64) {
        self.rows += rows;
        self.hash = self.hash.wrapping_add(hash);
    }

    /// `"ok"`, or what is wrong.
    pub fn compared(self, expected: Sum) -> Value {
        if self == expected {
            return json!("ok");
        }
        json!(format!(
            "WRONG: {} rows (hashes {:x}), expected {} ({:x})",
            self.rows, self.hash, expected.rows, expected.hash
        ))
    }
}

/// How often each key comes in each sliding window, all of them down to the last that has a row.
/// Events are (milliseconds since 1970, key) in the order of time; `size_ms` is a multiple of
/// `slide_ms`.
pub fn sliding_counts(
    events: impl Iterator<Item = (i64, usize)>,
    keys: usize,
    size_ms: i64,
    slide_ms: i64,
) -> Sum {
    let slices = (size_ms / slide_ms) as usize;
    let mut ring = vec![vec![0_u32; keys]; slices];
    let mut running = vec![0_i64; keys];
    let mut sum = Sum::default();
    let mut slice = None;
    let mut close = |slice: i64, ring: &mut Vec<Vec<u32>>| {
        let of_slice = slice.rem_euclid(slices as i64) as usize;
        let expired = (slice + 1).rem_euclid(slices as i64) as usize;
        for key in 0..keys {
            running[key] += i64::from(ring[of_slice][key]);
            if running[key] > 0 {
                sum.add(hash_row(key as i64, (slice + 1) * slide_ms, running[key]));
            }
            running[key] -= i64::from(std::mem::take(&mut ring[expired][key]));
        }
    };
    for (time_ms, key) in events {
        let at = time_ms.div_euclid(slide_ms);
        let mut open = *slice.get_or_insert(at);
        while open < at {
            close(open, &mut ring);
            open += 1;
        }
        slice = Some(open);
        ring[at.rem_euclid(slices as i64) as usize][key] += 1;
    }
    if let Some(last) = slice {
        (last..last + slices as i64).for_each(|slice| close(slice, &mut ring));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn sliding_counts_are_those_of_counting_each_window() {
        let events: Vec<(i64, usize)> = (0..3_000_u64)
            .map(|n| ((n * n % 7 + n * 3) as i64 / 2, (n * 31 % 17) as usize))
            .collect();
        let mut events = events;
        events.sort_unstable();
        let (size_ms, slide_ms) = (500, 20);
        let mut windows: BTreeMap<(i64, usize), i64> = BTreeMap::new();
        for &(time_ms, key) in &events {
            let mut end = (time_ms / slide_ms + 1) * slide_ms;
            while end - size_ms <= time_ms {
                *windows.entry((end, key)).or_default() += 1;
                end += slide_ms;
            }
        }
        let mut expected = Sum::default();
        windows.iter().for_each(|((end, key), n)| expected.add(hash_row(*key as i64, *end, *n)));
        let found = sliding_counts(events.into_iter(), 17, size_ms, slide_ms);
        assert_eq!(found, expected);
        assert_eq!(found.compared(expected), "ok");
        assert!(found.compared(Sum::default()).to_string().contains("WRONG"));
    }

    #[test]
    fn of_fifty_events_four_are_no_bids() {
        assert_eq!((0..100).filter_map(peer_auction).count(), 92);
        assert!((0..1_000).filter_map(peer_auction).all(|auction| auction < KEYS));
    }
}
