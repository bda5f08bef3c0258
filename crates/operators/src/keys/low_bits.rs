//! The ids of integer keys by the low bits of their values: a guess that is right for most rows.
//!
//! Keys that are in use at the same time are often numbers close to each other: then the ids found
//! here lie side by side too, and a look-up needs neither a hash nor the cache lines that a hash
//! scatters over. A guess is verified by whoever knows the key of each id, so a wrong one costs a
//! comparison and nothing else.
//!
//! **Invariant:** no id stands here after its key was forgotten, unless all keys were forgotten at
//! once and ids start from scratch: then an id that is given again is the one of the key that is
//! found with it.
//!
//! Why a wrong guess is harmless, and a stale one is not: the caller compares the key of the
//! guessed id with its own. A stale id could belong to no key, whose stored value is meaningless
//! and may be equal by chance. Hence the invariant.

use std::ops::Range;

use super::ids::ABSENT;

/// With more keys than this nothing is guessed: they would no longer lie in the near caches. It is
/// begun again with half as many.
const KEYS_MAX: usize = 64 * 1024;

/// The same where new keys are this many times further apart than numbers that follow each other:
/// then each has a cache line of its own here, too.
const SPREAD_MAX: usize = 16;

/// Fewer new keys say nothing about that, and their places are in the nearest caches anyway.
const JUDGED_KEYS_MIN: usize = 4096;

/// The smallest number of places.
const PLACES_MIN: usize = 64;

/// Ids by low bits; the number of places is a power of two, or there are none.
#[derive(Default)]
pub(super) struct LowBits {
    ids: Vec<u32>,
    is_given_up: bool,
    /// True while keys that are new are far apart.
    is_sparse: bool,
    /// With how many keys all of this stays as it is.
    fitting: Range<usize>,
    new: NewKeys,
}

/// Keys that were new since it was last judged how far they are apart.
#[derive(Default)]
struct NewKeys {
    count: usize,
    /// The lowest and the highest.
    ends: Option<(i64, i64)>,
}

impl NewKeys {
    fn add(&mut self, key: i64) {
        let (lowest, highest) = self.ends.unwrap_or((key, key));
        self.ends = Some((lowest.min(key), highest.max(key)));
        self.count += 1;
    }

    fn are_sparse(&self) -> bool {
        let range = self.ends.map_or(0, |(lowest, highest)| highest.abs_diff(lowest));
        range / SPREAD_MAX as u64 > self.count as u64
    }
}

impl LowBits {
    #[inline(always)]
    fn place(&self, key: i64) -> usize {
        // Without places the mask has all bits, and nothing stands anywhere.
        key as usize & self.ids.len().wrapping_sub(1)
    }

    /// The id that this key may have.
    #[inline(always)]
    pub fn guess(&self, key: i64) -> Option<u32> {
        self.ids.get(self.place(key)).copied()
    }

    /// The key has this id.
    #[inline]
    pub fn learn(&mut self, key: i64, id: u32) {
        let place = self.place(key);
        if let Some(there) = self.ids.get_mut(place) {
            *there = id;
        }
    }

    /// The key has this id no more.
    pub fn forget(&mut self, key: i64, id: u32) {
        if self.guess(key) == Some(id) {
            self.learn(key, ABSENT);
        }
    }

    /// A key is new, and there are this many now.
    #[inline(always)]
    pub fn add(&mut self, key: i64, keys: usize) {
        self.new.add(key);
        if self.is_to_be_judged(keys) || !self.fitting.contains(&keys) {
            self.fit(keys);
        }
    }

    #[inline(always)]
    fn is_to_be_judged(&self, keys: usize) -> bool {
        self.new.count >= JUDGED_KEYS_MIN.max(keys / 2)
    }

    /// There will be this many keys.
    #[cold]
    #[inline(never)]
    pub fn fit(&mut self, keys: usize) {
        if self.is_to_be_judged(keys) {
            self.is_sparse = std::mem::take(&mut self.new).are_sparse();
        }
        if keys > KEYS_MAX || self.is_sparse {
            (self.ids, self.is_given_up) = (Vec::new(), true);
        } else if keys * 2 > self.ids.len() && !(self.is_given_up && keys > KEYS_MAX / 2) {
            let places = (keys * 4).next_power_of_two().max(PLACES_MIN);
            (self.ids, self.is_given_up) = (vec![ABSENT; places], false);
        }
        self.fitting = match (self.is_sparse, self.is_given_up) {
            (true, _) => 0..usize::MAX,
            (_, true) => KEYS_MAX / 2 + 1..usize::MAX,
            _ => 0..KEYS_MAX.min(self.ids.len() / 2) + 1,
        };
    }

    pub fn bytes(&self) -> usize {
        self.ids.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_far_apart_are_not_guessed_until_new_ones_are_close() {
        let mut low_bits = LowBits::default();
        let mut places = |step: i64| {
            (0..JUDGED_KEYS_MIN as i64).for_each(|n| low_bits.add(n * step, JUDGED_KEYS_MIN));
            low_bits.ids.len()
        };
        let spread = SPREAD_MAX as i64;
        let all = 4 * JUDGED_KEYS_MIN;
        assert_eq!([1, spread, spread + 1, spread + 1, -1].map(&mut places), [all, all, 0, 0, all]);
        assert!(!NewKeys { count: 1, ends: None }.are_sparse());
        assert!(NewKeys { count: 9, ends: Some((i64::MIN, i64::MAX)) }.are_sparse());
    }

    #[test]
    fn what_is_given_up_is_begun_again_with_half_as_many() {
        let mut low_bits = LowBits::default();
        let mut places = |keys: usize| {
            low_bits.fit(keys);
            low_bits.ids.len()
        };
        assert_eq!([0, 1, 32, 33].map(&mut places), [0, 64, 64, 256]);
        assert_eq!(places(KEYS_MAX), 4 * KEYS_MAX);
        assert_eq!([KEYS_MAX + 1, KEYS_MAX, KEYS_MAX / 2 + 1].map(&mut places), [0; 3]);
        assert_eq!(places(KEYS_MAX / 2), 2 * KEYS_MAX);
    }
}
