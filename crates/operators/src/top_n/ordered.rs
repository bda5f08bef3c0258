//! The rows of one key in the order of their sort keys, those that sort alike as they came.
//!
//! **Invariants:**
//! - entries ascend over all chunks; no chunk holds more than [`CHUNK_ENTRIES`], and none is empty
//!   but the first of nothing;
//! - few entries are one chunk: one vector, no more. Many cost a search among chunks and the
//!   move of one chunk's entries.
//!
//! It does not know sort keys beyond their first bytes: whoever searches says what comes before.
//!
//! A `BTreeMap` would give no positions, and row numbers are positions. With chunks of at most 256
//! entries a position costs a sum over chunks, and callers stop at the last position that matters.

/// The first bytes of a sort key: where they differ, the keys differ the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix(pub u64, pub u64);

impl Prefix {
    pub const MAX: Prefix = Prefix(u64::MAX, u64::MAX);
}

impl From<u128> for Prefix {
    fn from(bits: u128) -> Self {
        Prefix((bits >> 64) as u64, bits as u64)
    }
}

/// A row in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedRow {
    pub prefix: Prefix,
    /// Its number.
    pub row: u32,
}

/// Where an entry stands, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    chunk: usize,
    at: usize,
}

const CHUNK_ENTRIES: usize = 256;
/// Neighbours are joined when both together have fewer.
const JOINED_ENTRIES: usize = CHUNK_ENTRIES / 4;

#[derive(Default)]
pub(super) struct Ordered {
    first: Vec<RankedRow>,
    others: Vec<Vec<RankedRow>>,
    len: usize,
}

impl Ordered {
    pub fn len(&self) -> usize {
        self.len
    }

    fn chunk(&self, number: usize) -> &Vec<RankedRow> {
        if number == 0 { &self.first } else { &self.others[number - 1] }
    }

    fn chunk_mut(&mut self, number: usize) -> &mut Vec<RankedRow> {
        if number == 0 { &mut self.first } else { &mut self.others[number - 1] }
    }

    /// Where the first entry stands for which this is false; it is true for those before.
    pub fn find(&self, before: impl Fn(&RankedRow) -> bool) -> Cursor {
        let ends_before = |chunk: &Vec<RankedRow>| chunk.last().is_some_and(&before);
        let mut chunk = 0;
        if !self.others.is_empty() && ends_before(&self.first) {
            // Behind the last entry of all is a place in the last chunk.
            let found = self.others.partition_point(ends_before);
            chunk = (found + 1).min(self.others.len());
        }
        Cursor { chunk, at: self.chunk(chunk).partition_point(before) }
    }

    /// How many entries stand before; at least `most` if they are that many.
    pub fn position(&self, cursor: Cursor, most: usize) -> usize {
        let mut position = cursor.at;
        for number in 0..cursor.chunk {
            position += self.chunk(number).len();
            if position >= most {
                break;
            }
        }
        position
    }

    /// The cursor of the entry at a position, or behind the last.
    fn cursor(&self, position: usize) -> Cursor {
        let mut at = position;
        for chunk in 0..self.others.len() {
            let length = self.chunk(chunk).len();
            if at < length {
                return Cursor { chunk, at };
            }
            at -= length;
        }
        Cursor { chunk: self.others.len(), at }
    }

    pub fn get(&self, position: usize) -> Option<RankedRow> {
        self.at(self.cursor(position))
    }

    pub fn at(&self, cursor: Cursor) -> Option<RankedRow> {
        self.chunk(cursor.chunk).get(cursor.at).copied()
    }

    pub fn last(&self) -> Option<RankedRow> {
        self.others.last().unwrap_or(&self.first).last().copied()
    }

    /// The entries from a position on.
    pub fn iter_from(&self, position: usize) -> impl Iterator<Item = RankedRow> + '_ {
        self.iter_at(self.cursor(position)).map(|(_, entry)| entry)
    }

    /// The entries from a cursor on, with theirs.
    pub fn iter_at(&self, from: Cursor) -> impl Iterator<Item = (Cursor, RankedRow)> + '_ {
        (from.chunk..=self.others.len()).flat_map(move |chunk| {
            let start = if chunk == from.chunk { from.at } else { 0 };
            let entries = self.chunk(chunk).iter().enumerate().skip(start);
            entries.map(move |(at, &entry)| (Cursor { chunk, at }, entry))
        })
    }

    pub fn insert(&mut self, cursor: Cursor, entry: RankedRow) {
        self.len += 1;
        let chunk = self.chunk_mut(cursor.chunk);
        chunk.insert(cursor.at, entry);
        if chunk.len() > CHUNK_ENTRIES {
            let upper = chunk.split_off(CHUNK_ENTRIES / 2);
            self.others.insert(cursor.chunk, upper);
        }
    }

    pub fn replace(&mut self, cursor: Cursor, entry: RankedRow) {
        self.chunk_mut(cursor.chunk)[cursor.at] = entry;
    }

    pub fn remove(&mut self, cursor: Cursor) -> RankedRow {
        self.len -= 1;
        let entry = self.chunk_mut(cursor.chunk).remove(cursor.at);
        if !self.others.is_empty() {
            self.join(cursor.chunk);
        }
        entry
    }

    pub fn pop(&mut self) -> Option<RankedRow> {
        let chunk = self.others.len();
        let at = self.chunk(chunk).len().checked_sub(1)?;
        Some(self.remove(Cursor { chunk, at }))
    }

    /// Joins a chunk that has become small with a neighbour.
    fn join(&mut self, number: usize) {
        let lower = number.min(self.others.len() - 1);
        let both = self.chunk(lower).len() + self.chunk(lower + 1).len();
        if both < JOINED_ENTRIES || self.chunk(number).is_empty() {
            let upper = self.others.remove(lower);
            self.chunk_mut(lower).extend(upper);
        }
    }

    /// About how many bytes it takes, all chunks but the first taken as full: this is asked for
    /// with each change.
    pub fn bytes(&self) -> usize {
        let other = CHUNK_ENTRIES * size_of::<RankedRow>() + size_of::<Vec<RankedRow>>();
        self.first.capacity() * size_of::<RankedRow>() + self.others.len() * other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::shim::SplitMix64;

    /// Any insertions and removals, against one vector.
    #[test]
    fn entries_stand_as_in_one_vector() {
        for seed in 0..20 {
            let mut random = SplitMix64::new(seed);
            let (mut ordered, mut plain) = (Ordered::default(), Vec::<RankedRow>::new());
            for row in 0..6000 {
                let grows = random.below(6000) as u32 > row / 2 + 1500;
                if grows || plain.is_empty() {
                    let prefix = Prefix(random.below(400), 0);
                    let cursor = ordered.find(|entry| entry.prefix <= prefix);
                    let place = plain.partition_point(|entry| entry.prefix <= prefix);
                    assert_eq!(ordered.position(cursor, usize::MAX), place, "seed {seed}");
                    ordered.insert(cursor, RankedRow { prefix, row });
                    plain.insert(place, RankedRow { prefix, row });
                } else {
                    let place = random.below(plain.len() as u64) as usize;
                    let expected = plain.remove(place);
                    let from = ordered.find(|entry| entry.prefix < expected.prefix);
                    let mut same = ordered.iter_at(from).filter(|(_, e)| e.row == expected.row);
                    let cursor = same.next().expect("it is there").0;
                    drop(same);
                    assert_eq!(ordered.remove(cursor), expected, "seed {seed}");
                }
                assert_eq!((ordered.len(), ordered.last()), (plain.len(), plain.last().copied()));
                let place = random.below(plain.len() as u64 + 1) as usize;
                assert_eq!(ordered.get(place), plain.get(place).copied(), "seed {seed}");
                if row % 500 == 0 {
                    assert!(ordered.iter_from(place).eq(plain[place..].iter().copied()));
                    let chunks = ordered.others.iter();
                    assert!(chunks.clone().all(|chunk| (1..=CHUNK_ENTRIES).contains(&chunk.len())));
                }
            }
            while let Some(entry) = plain.pop() {
                assert_eq!(ordered.pop(), Some(entry), "seed {seed}");
            }
            assert_eq!((ordered.pop(), ordered.others.len()), (None, 0), "seed {seed}");
        }
    }
}
