//! The keys with the most rows in a window that slides, found without a look at all of them.
//!
//! From one window to the next few counts change, and few keys are near the first ones. So ids
//! stand in blocks, and of each block a bound is known that no count exceeds: counting up raises
//! it, counting down leaves it where it is, and a look at the block makes it exact. Blocks whose
//! bound is below the count of the last of the first keys are not looked at, and of those where it
//! is the same only those that have a key in front of it: where rows are spread evenly, most keys
//! have as many. What the first keys of the window before have now is where the search begins.
//!
//! **Invariants.** `bounds[id / BLOCK] >= counts[id]` for each id. Of keys that stand in the
//! slice's list before `listed`, `places[id]` is where, and `foremost[id / BLOCK] <= places[id]`. A
//! count of 0 means that the key has no rows and does not stand there.

use std::collections::BinaryHeap;

use super::slices::Slice;
use super::top::keep_if_lower;

/// This many ids have one bound.
const BLOCK: usize = 64;

/// Finds them for one window after the other.
pub(super) struct MostRows {
    /// How many are wanted.
    wanted: usize,
    bounds: Vec<i64>,
    /// Where keys stand in the list of the slice, by id.
    places: Vec<u32>,
    /// No key of the block stands before this place.
    foremost: Vec<u32>,
    /// Places before this one are known.
    listed: usize,
    /// The first keys of the window before.
    last: Vec<u32>,
}

impl MostRows {
    /// For the `wanted` keys with most rows.
    pub fn new(wanted: usize) -> Self {
        let (bounds, places, foremost, last) = Default::default();
        MostRows { wanted, bounds, places, foremost, listed: 0, last }
    }

    /// These keys of the slice have more rows than before.
    pub fn raised(&mut self, ids: &[u32], slice: &Slice) {
        self.bounds.resize(slice.counts.len().div_ceil(BLOCK), 0);
        for &id in ids {
            let bound = &mut self.bounds[id as usize / BLOCK];
            *bound = slice.counts[id as usize].max(*bound);
        }
    }

    /// Keys have left the list of the slice: others stand at other places now.
    pub fn keys_left(&mut self) {
        self.listed = 0;
        self.foremost.fill(u32::MAX);
    }

    /// The places of the keys with most rows, the first ones among equals, ascending.
    pub fn places(&mut self, slice: &Slice) -> Vec<u32> {
        self.list(slice);
        let counts = &slice.counts[..];
        // The complement of a count is low where it is high: so what comes first is what is lowest.
        let least = (!self.least(counts), u32::MAX);
        let mut kept: BinaryHeap<(i64, u32)> = BinaryHeap::new();
        for (block, bound) in self.bounds.iter_mut().enumerate() {
            let last = kept.peek().filter(|_| kept.len() == self.wanted);
            let last = last.copied().unwrap_or(least);
            // The heap has its worst key on top. A block whose best possible entry is worse than
            // that cannot have a key that belongs among the first. Until the heap is full, `least`
            // stands for its worst key.
            if (!*bound, self.foremost[block]) > last {
                continue;
            }
            let from = block * BLOCK;
            let of_block = &counts[from..counts.len().min(from + BLOCK)];
            *bound = of_block.iter().copied().fold(0, i64::max);
            for (id, &count) in (from..).zip(of_block).filter(|&(_, &count)| !count <= last.0) {
                let offered = (!count, self.places[id]);
                if kept.len() < self.wanted {
                    kept.push(offered);
                } else {
                    keep_if_lower(&mut kept, offered);
                }
            }
        }
        let mut places: Vec<u32> = kept.into_iter().map(|(_, place)| place).collect();
        places.sort_unstable();
        self.last.clear();
        self.last.extend(places.iter().map(|&place| slice.keys[place as usize]));
        places
    }

    /// This many rows each of the first keys has at least: there are as many keys that have them.
    fn least(&self, counts: &[i64]) -> i64 {
        let lowest = self.last.iter().map(|&id| counts[id as usize]).min();
        lowest.filter(|_| self.last.len() == self.wanted).unwrap_or(1).max(1)
    }

    /// Learns the places of keys that came since.
    fn list(&mut self, slice: &Slice) {
        self.places.resize(slice.counts.len(), 0);
        self.foremost.resize(self.bounds.len(), u32::MAX);
        for (place, &id) in slice.keys.iter().enumerate().skip(self.listed) {
            self.places[id as usize] = place as u32;
            let foremost = &mut self.foremost[id as usize / BLOCK];
            *foremost = (place as u32).min(*foremost);
        }
        self.listed = slice.keys.len();
    }

    pub fn bytes(&self) -> usize {
        let numbers = self.places.capacity() + self.foremost.capacity() + self.last.capacity();
        self.bounds.capacity() * 8 + numbers * 4
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use thalweg_core::shim::SplitMix64;

    use super::*;
    use crate::capture::tracker::Unread;
    use crate::window::calls::Partial;

    /// By sorting.
    fn by_sorting(slice: &Slice, wanted: usize) -> Vec<u32> {
        let mut places: Vec<u32> = (0..slice.keys.len() as u32).collect();
        let count = |place: u32| slice.counts[slice.keys[place as usize] as usize];
        places.sort_by_key(|&place| Reverse(count(place)));
        places.truncate(wanted);
        places.sort_unstable();
        places
    }

    #[test]
    fn they_are_those_found_by_sorting() {
        let mut random = SplitMix64::new(5);
        for (wanted, keys) in [(1, 10), (10, 500), (10, 40), (64, 70), (100, 3_000), (3, 1)] {
            let most_of_a_part = if keys == 500 { 1 } else { 3 };
            let (accumulators, unread) = (Vec::new(), Unread::default());
            let mut slice = Slice { counts: Vec::new(), keys: Vec::new(), accumulators, unread };
            let (mut most, mut parts) = (MostRows::new(wanted), Vec::new());
            for round in 0..300 {
                // Keys come and go, and sometimes all do.
                let mut ids: Vec<u32> =
                    (0..random.below(60)).map(|_| random.below(keys) as u32).collect();
                ids.sort_unstable();
                ids.dedup();
                let counts = ids.iter().map(|_| 1 + random.below(most_of_a_part) as i64).collect();
                let part = Partial { ids, counts, accumulators: Vec::new() };
                slice.grow(keys as usize + round);
                slice.merge(&part, |_| ()).expect("states of one kind");
                most.raised(&part.ids, &slice);
                parts.push(part);
                assert_eq!(most.places(&slice), by_sorting(&slice, wanted), "{wanted} of {keys}");
                let leaving = if round % 100 == 99 { parts.len() } else { parts.len() / 30 };
                for part in parts.drain(..leaving) {
                    if slice.subtract(&part).expect("they were merged") {
                        most.keys_left();
                    }
                }
            }
        }
    }
}
