//! A hash table that grows a part at a time: linear hashing (Litwin, "Linear hashing: a new tool
//! for file and table addressing", VLDB 1980) over hashbrown's tables.
//!
//! While it is small it is one table. From then on its elements stand in parts, by bits of their
//! hash that the tables themselves do not use, and whenever there are [`PART`] elements more, one
//! part is split into two: which one goes round, whatever part grew. So parts have between half and
//! twice as many elements as on average.
//!
//! **Invariant:** with `n` parts and `2^k <= n < 2^(k+1)`, an element whose lowest `k + 1` bits
//! name a part stands there, and else in the part that its lowest `k` bits name.
//!
//! ```text
//! n = 5 parts, k = 2
//! bits ...100  ->  4, is a part         bits ...110  ->  6, is none  ->  lowest two bits: 2
//! next split: part 1 into 1 and 5
//! ```

use hashbrown::{HashTable, hash_table};

/// As many elements are in a part on average. In tests of operators few, so that all of them have
/// several parts.
const PART: usize = if cfg!(test) { 64 } else { 24 * 1024 };

/// Where the bits of a hash begin that name its part. hashbrown takes the lowest, as many as a part
/// has places, and the seven highest.
const PART_SHIFT: u32 = 32;

/// The same as hashbrown's table, as far as it is used.
#[derive(Clone, Debug)]
pub(crate) struct GradualTable<T> {
    /// As long as there are no parts.
    only: HashTable<T>,
    parts: Vec<HashTable<T>>,
    /// The lowest bits of which some number is that of the last part.
    mask: usize,
    len: usize,
    /// With this many elements a part is split.
    len_max: usize,
}

/// What [`GradualTable::entry`] finds.
pub(crate) enum Entry<'a, T> {
    /// The element is there.
    Occupied(&'a mut T),
    /// It may be put in.
    Vacant(Vacant<'a, T>),
}

/// The place of an element that is not there.
pub(crate) struct Vacant<'a, T> {
    place: hash_table::VacantEntry<'a, T>,
    len: &'a mut usize,
}

impl<T> Vacant<'_, T> {
    /// Puts it in.
    #[inline]
    pub fn insert(self, element: T) {
        self.place.insert(element);
        *self.len += 1;
    }
}

impl<T> Default for GradualTable<T> {
    fn default() -> Self {
        GradualTable {
            only: HashTable::new(),
            parts: Vec::new(),
            mask: 0,
            len: 0,
            len_max: 2 * PART,
        }
    }
}

impl<T> GradualTable<T> {
    /// How many elements there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn number(&self, hash: u64) -> usize {
        let number = (hash >> PART_SHIFT) as usize & self.mask;
        if number < self.parts.len() { number } else { number & (self.mask >> 1) }
    }

    #[inline(always)]
    fn part(&self, hash: u64) -> &HashTable<T> {
        if self.parts.is_empty() { &self.only } else { &self.parts[self.number(hash)] }
    }

    #[inline(always)]
    fn part_mut(&mut self, hash: u64) -> &mut HashTable<T> {
        match self.parts.is_empty() {
            true => &mut self.only,
            false => {
                let number = self.number(hash);
                &mut self.parts[number]
            }
        }
    }

    /// The element with this hash that is meant.
    #[inline(always)]
    pub fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.part(hash).find(hash, is_it)
    }

    /// The same, to be changed.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.part_mut(hash).find_mut(hash, is_it)
    }

    /// The element that is meant, or its place. `hash_of` gives the hash of any element.
    #[inline(always)]
    pub fn entry(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&T) -> bool,
        hash_of: impl Fn(&T) -> u64,
    ) -> Entry<'_, T> {
        self.make_room(&hash_of);
        let GradualTable { only, parts, len, mask, .. } = self;
        let part = match parts.len() {
            0 => only,
            count => {
                let number = (hash >> PART_SHIFT) as usize & *mask;
                &mut parts[if number < count { number } else { number & (*mask >> 1) }]
            }
        };
        match part.entry(hash, is_it, hash_of) {
            hash_table::Entry::Occupied(element) => Entry::Occupied(element.into_mut()),
            hash_table::Entry::Vacant(place) => Entry::Vacant(Vacant { place, len }),
        }
    }

    /// Puts an element in that is not there. `hash_of` gives the hash of any element.
    #[inline]
    fn insert_unique(&mut self, hash: u64, element: T, hash_of: impl Fn(&T) -> u64) {
        self.make_room(&hash_of);
        self.part_mut(hash).insert_unique(hash, element, hash_of);
        self.len += 1;
    }

    /// Takes the element out that is meant.
    #[inline]
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let (element, _) = self.part_mut(hash).find_entry(hash, is_it).ok()?.remove();
        self.len -= 1;
        Some(element)
    }

    /// Drops the elements that do not stay.
    pub fn retain(&mut self, mut stays: impl FnMut(&mut T) -> bool) {
        self.tables_mut().for_each(|table| table.retain(&mut stays));
        self.len = self.tables_mut().map(|table| table.len()).sum();
    }

    /// Drops all and keeps the memory for others.
    pub fn clear(&mut self) {
        self.tables_mut().for_each(HashTable::clear);
        self.len = 0;
    }

    fn tables_mut(&mut self) -> impl Iterator<Item = &mut HashTable<T>> {
        std::iter::once(&mut self.only).chain(&mut self.parts)
    }

    /// Makes room for this many more elements at once.
    pub fn reserve(&mut self, more: usize, hash_of: impl Fn(&T) -> u64) {
        let wanted = self.len + more;
        if !self.parts.is_empty() {
            while wanted > self.len_max {
                self.split(&hash_of);
            }
        } else if wanted <= 2 * PART {
            self.only.reserve(more, hash_of);
        } else {
            let old = std::mem::replace(self, Self::with_parts(wanted.div_ceil(PART), wanted));
            for element in old.only {
                self.insert_unique(hash_of(&element), element, &hash_of);
            }
        }
    }

    /// With this many parts and room for this many elements.
    fn with_parts(count: usize, elements: usize) -> Self {
        let (numbers, mask) = (count.next_power_of_two(), count.next_power_of_two() - 1);
        let part = |number: usize| {
            // Half of the elements of a part are in another, if that is there.
            let is_split = number + numbers / 2 < count || number >= numbers / 2;
            let share = elements / (numbers / if is_split { 1 } else { 2 });
            // Chance seldom adds more than four times the root.
            HashTable::with_capacity(share + 4 * share.isqrt())
        };
        let parts = (0..count).map(part).collect();
        let len_max = (count + 1) * PART;
        GradualTable { only: HashTable::new(), parts, mask, len: 0, len_max }
    }

    #[inline(always)]
    fn make_room(&mut self, hash_of: impl Fn(&T) -> u64) {
        if self.len >= self.len_max {
            self.split(hash_of);
        }
    }

    /// Splits the part whose turn it is.
    #[cold]
    #[inline(never)]
    fn split(&mut self, hash_of: impl Fn(&T) -> u64) {
        if self.parts.is_empty() {
            self.parts.push(std::mem::take(&mut self.only));
        }
        let new = self.parts.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let bit = self.mask / 2 + 1;
        let elements = std::mem::take(&mut self.parts[new - bit]);
        let room = elements.len() / 2 + elements.len() / 16;
        let mut halves = [HashTable::with_capacity(room), HashTable::with_capacity(room)];
        for element in elements {
            let hash = hash_of(&element);
            let is_high = (hash >> PART_SHIFT) as usize & bit != 0;
            halves[usize::from(is_high)].insert_unique(hash, element, &hash_of);
        }
        let [low, high] = halves;
        self.parts[new - bit] = low;
        self.parts.push(high);
        self.len_max = (self.parts.len() + 1) * PART;
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let tables = self.parts.iter().chain([&self.only]).map(HashTable::allocation_size);
        tables.sum::<usize>() + self.parts.capacity() * size_of::<HashTable<T>>()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::shim::mix64;

    use super::*;

    fn hash(element: &u64) -> u64 {
        mix64(*element)
    }

    fn check(table: &GradualTable<u64>, there: impl Iterator<Item = u64>, gone: u64) {
        let find = |element: u64| table.find(hash(&element), |&other| other == element).copied();
        let mut count = 0;
        for element in there {
            assert_eq!(find(element), Some(element));
            count += 1;
        }
        assert_eq!(table.len(), count);
        assert_eq!(find(gone), None);
    }

    #[test]
    fn elements_are_found_however_many_parts_there_are() {
        let mut table = GradualTable::default();
        let mut parts = 0;
        for element in 0..20 * PART as u64 {
            table.insert_unique(hash(&element), element, hash);
            if table.parts.len() > parts {
                parts = table.parts.len().max(parts);
                check(&table, 0..=element, element + 1);
                let largest = table.parts.iter().map(HashTable::len).max();
                // Twice as many, and chance.
                assert!(largest < Some(3 * PART), "{largest:?} in one of {parts}");
            }
        }
        assert_eq!(parts, 19);
    }

    #[test]
    fn what_is_taken_out_makes_room() {
        let mut table = GradualTable::default();
        for element in 0..30 * PART as u64 {
            table.insert_unique(hash(&element), element, hash);
            if let Some(old) = element.checked_sub(PART as u64) {
                assert_eq!(table.remove(hash(&old), |&other| other == old), Some(old));
                assert_eq!(table.remove(hash(&old), |&other| other == old), None);
            }
        }
        assert!(table.parts.is_empty());
        check(&table, 29 * PART as u64..30 * PART as u64, 0);
    }

    #[test]
    fn some_stay_and_all_go() {
        let mut table = GradualTable::default();
        let all = 0..5 * PART as u64;
        all.clone().for_each(|element| table.insert_unique(hash(&element), element, hash));
        table.retain(|element| element.is_multiple_of(3));
        check(&table, all.clone().step_by(3), 1);
        table.clear();
        check(&table, 0..0, 3);
        for element in all.clone().chain(all.clone()) {
            match table.entry(hash(&element), |&other| other == element, hash) {
                Entry::Occupied(there) => assert_eq!(*there, element),
                Entry::Vacant(place) => place.insert(element),
            }
        }
        check(&table, all.clone(), 5 * PART as u64);
        *table.find_mut(hash(&1), |&other| other == 1).unwrap() = 1;
        check(&table, all, 5 * PART as u64);
    }

    /// No part grows when as many come as there is room for.
    #[test]
    fn room_is_made_at_once() {
        for elements in [10, 2 * PART, 2 * PART + 1, 3 * PART, 5 * PART + 17, 8 * PART, 13 * PART] {
            for before in [0, 7, 3 * PART as u64] {
                let mut table = GradualTable::default();
                (0..before).for_each(|element| table.insert_unique(hash(&element), element, hash));
                table.reserve(elements, hash);
                let bytes = table.bytes();
                let all = before..before + elements as u64;
                all.for_each(|element| table.insert_unique(hash(&element), element, hash));
                check(&table, 0..before + elements as u64, u64::MAX);
                assert!(before > 7 || table.bytes() == bytes, "{elements} behind {before}");
            }
        }
    }
}
