//! Rows of one side by time and key: buckets of time, and in each a hash table with chains.
//!
//! A bucket is dropped as a whole when no row in it can meet anybody any more, so a key costs
//! nothing to forget, and memory follows the rows. A look-up asks the few buckets that its interval
//! touches; rows at the edges of the outer ones are compared by time.
//!
//! **Invariants:**
//! - the head of a chain has a bit for the hash of each of its rows: most look-ups that find
//!   nothing read one word;
//! - a chain runs from the newest row to the oldest;
//! - buckets ascend by time, and none is empty.
//!
//! It compares hashes, not keys.
//!
//! ```text
//! time      0 ......... 64 ........ 128 ....... 192      width: a power of two, about the interval
//! buckets   [ heads | entries ] [ heads | entries ] ...  ascending, without empty ones
//! ```
//!
//! A head is one word: the low half is the first entry of the chain (counted from 1), the high half
//! one bit for each of 32 classes of hashes. A look-up whose bit is missing reads nothing else.
//!
//! Rows of a bucket are never removed one by one. A bucket goes when its *last* possible time is
//! done, so rows stay up to one width longer than needed. They cannot be met by mistake: `follow`
//! compares times.

use thalweg_core::Extent;

use crate::rows::chunks::RowRef;

/// A row.
struct IndexEntry {
    hash: u64,
    time: i64,
    /// The next one of the chain, counted from 1; 0 ends it.
    next: u32,
    chunk: u32,
    row: u32,
    /// One more than the place in `reaches`, for rows that came behind the watermark.
    reach: u32,
}

/// Rows of a stretch of time.
#[derive(Default)]
struct Bucket {
    /// Chains: low half, the first entry, counted from 1; high half, a bit for each hash in it.
    heads: Vec<u64>,
    entries: Vec<IndexEntry>,
    /// The lowest time that a partner may have.
    reaches: Vec<i64>,
    /// How many rows of which chunk.
    holds: Vec<(u32, u32)>,
    /// How many entries, the first ones, have been captured.
    captured: usize,
}

const HEADS_MIN: usize = 16;

/// This many entries of a chain are read ahead for many rows at once. Few chains are longer.
const STEPS_AHEAD: usize = 3;

#[inline]
fn tag(hash: u64) -> u64 {
    // Keys of one partition agree in the highest bits, and the lowest choose the chain.
    1 << (32 + (hash >> 40 & 31))
}

impl Bucket {
    /// Makes room for about this many rows, without any.
    fn reset(&mut self, expected: usize) {
        let heads = expected.next_power_of_two().max(HEADS_MIN);
        self.heads.clear();
        self.heads.resize(heads, 0);
        self.entries.clear();
        self.reaches.clear();
        self.holds.clear();
        self.captured = 0;
    }

    #[inline]
    fn insert(&mut self, hash: u64, time: i64, row: RowRef, reach: Option<i64>) {
        if self.entries.len() == self.heads.len() {
            self.grow();
        }
        let reach = reach.map_or(0, |reach| {
            self.reaches.push(reach);
            self.reaches.len() as u32
        });
        let slot = hash as usize & (self.heads.len() - 1);
        let head = &mut self.heads[slot];
        let entry =
            IndexEntry { hash, time, next: *head as u32, chunk: row.chunk, row: row.row, reach };
        self.entries.push(entry);
        *head = *head & !u64::from(u32::MAX) | tag(hash) | self.entries.len() as u64;
        match self.holds.last_mut() {
            Some((chunk, count)) if *chunk == row.chunk => *count += 1,
            _ => self.holds.push((row.chunk, 1)),
        }
    }

    #[cold]
    fn grow(&mut self) {
        let heads = self.heads.len() * 2;
        self.heads.clear();
        self.heads.resize(heads, 0);
        for (place, entry) in self.entries.iter_mut().enumerate() {
            let head = &mut self.heads[entry.hash as usize & (heads - 1)];
            entry.next = *head as u32;
            *head = *head & !u64::from(u32::MAX) | tag(entry.hash) | (place as u64 + 1);
        }
    }

    /// Writes down for each hash where its chain is to be followed from, or 0 where no row in it
    /// has that hash: the first entry with it, or one soon before.
    ///
    /// In each pass no read of the table waits for another one, nor does a branch wait for what was
    /// read in the same pass: so the processor waits for memory once for many rows, and not for
    /// each.
    fn begin(&self, hashes: &[u64], firsts: &mut [u32], scratch: &mut Scratch) {
        firsts.fill(0);
        let mut open = self.chains_of(hashes, scratch);
        scratch.met.clear();
        for _ in 0..STEPS_AHEAD {
            open = self.step(hashes, firsts, scratch, open);
        }
        for walk in &scratch.walks[..open] {
            firsts[walk.row as usize] = walk.entry;
        }
        // What lies behind the rows that were met is followed as well.
        let behind = scratch.met.iter().fold(0, |read, &entry| {
            let next = self.entries[entry as usize - 1].next;
            read | self.entries[next.saturating_sub(1) as usize].hash
        });
        std::hint::black_box(behind);
    }

    /// Begins a walk for each row whose chain may have its hash; says how many.
    fn chains_of(&self, hashes: &[u64], scratch: &mut Scratch) -> usize {
        let mask = self.heads.len() - 1;
        let Scratch { words, walks, .. } = scratch;
        words.clear();
        words.extend(hashes.iter().map(|&hash| self.heads[hash as usize & mask]));
        walks.resize(hashes.len(), Walk::default());
        let mut open = 0;
        for (row, (&head, &hash)) in words.iter().zip(hashes).enumerate() {
            walks[open] = Walk { row: row as u32, entry: head as u32 };
            open += usize::from(head & tag(hash) != 0);
        }
        open
    }

    /// Compares the entry at which each walk stands, and moves those on that have not met their
    /// hash; says how many are left.
    fn step(
        &self,
        hashes: &[u64],
        firsts: &mut [u32],
        scratch: &mut Scratch,
        open: usize,
    ) -> usize {
        let Scratch { words, walks, met } = scratch;
        words.clear();
        let hash_of = |walk: &Walk| self.entries[walk.entry as usize - 1].hash;
        words.extend(walks[..open].iter().map(hash_of));
        let mut left = 0;
        for place in 0..open {
            let Walk { row, entry } = walks[place];
            if words[place] == hashes[row as usize] {
                firsts[row as usize] = entry;
                met.push(entry);
                continue;
            }
            let next = self.entries[entry as usize - 1].next;
            walks[left] = Walk { row, entry: next };
            left += usize::from(next != 0);
        }
        left
    }

    /// The rows of a chain that are sought.
    #[inline]
    fn follow(&self, first: u32, sought: &SoughtTimes, mut found: impl FnMut(RowRef)) {
        let mut next = first;
        while next != 0 {
            let entry = &self.entries[next as usize - 1];
            next = entry.next;
            let fits = entry.hash == sought.hash
                && entry.time >= sought.low
                && entry.time <= sought.high
                && (entry.reach == 0 || self.reaches[entry.reach as usize - 1] <= sought.time);
            if fits {
                found(RowRef { chunk: entry.chunk, row: entry.row });
            }
        }
    }

    fn bytes(&self) -> usize {
        self.heads.capacity() * 8
            + self.entries.capacity() * size_of::<IndexEntry>()
            + (self.reaches.capacity() + self.holds.capacity()) * 8
    }
}

/// What a row looks for.
pub(super) struct SoughtTimes {
    pub(super) hash: u64,
    /// The row's own time.
    pub(super) time: i64,
    /// The lowest time of a partner.
    pub(super) low: i64,
    /// The highest.
    pub(super) high: i64,
}

/// A row that is in the index.
pub(super) struct Indexed {
    pub(super) hash: u64,
    pub(super) time: i64,
    pub(super) row: RowRef,
    /// The lowest time that a partner may have, where its own time does not say it.
    pub(super) reach: Option<i64>,
}

/// The rows of one side.
pub(super) struct Timeline {
    /// Buckets last 2 to this power milliseconds.
    shift: u32,
    /// By number, ascending.
    buckets: Vec<(i64, Bucket)>,
    /// One that has been dropped, for its memory.
    spare: Option<Bucket>,
    /// How many rows the last bucket had that was dropped.
    expected: usize,
    /// The place of the bucket that got the last row.
    last: usize,
}

impl Timeline {
    /// No rows, in buckets of 2 to this power milliseconds.
    pub fn new(shift: u32) -> Self {
        Timeline { shift, buckets: Vec::new(), spare: None, expected: 0, last: 0 }
    }

    /// Reads where rows with these hashes will be added, if they fall into the bucket of the last
    /// one. One read does not wait for the other, as they would where each row is added by itself.
    pub fn warm(&self, hashes: &[u64]) {
        let Some((_, bucket)) = self.buckets.get(self.last) else { return };
        let mask = bucket.heads.len() - 1;
        let read = hashes.iter().fold(0, |read, &hash| read | bucket.heads[hash as usize & mask]);
        std::hint::black_box(read);
    }

    /// Adds a row that came behind all others. `reach` is the lowest time that a partner of it may
    /// have, where its own time does not say it.
    #[inline]
    pub fn insert(&mut self, hash: u64, time: i64, row: RowRef, reach: Option<i64>) {
        let number = time >> self.shift;
        if self.buckets.get(self.last).is_none_or(|(other, _)| *other != number) {
            self.last = self.place_of(number);
        }
        self.buckets[self.last].1.insert(hash, time, row, reach);
    }

    #[cold]
    fn place_of(&mut self, number: i64) -> usize {
        match self.buckets.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => place,
            Err(place) => {
                let mut bucket = self.spare.take().unwrap_or_default();
                bucket.reset(self.expected);
                self.buckets.insert(place, (number, bucket));
                place
            }
        }
    }

    /// The places of the buckets that lie in these times.
    #[inline]
    pub fn places(&self, low: i64, high: i64) -> Places {
        let numbers = (low >> self.shift, high >> self.shift);
        let from = self.buckets.partition_point(|(number, _)| *number < numbers.0);
        let rest = &self.buckets[from..];
        let to = from + rest.iter().take_while(|(number, _)| *number <= numbers.1).count();
        Places { numbers, from, to }
    }

    /// True if these are the places for these times.
    #[inline]
    pub fn are_places(&self, places: &Places, low: i64, high: i64) -> bool {
        places.numbers == (low >> self.shift, high >> self.shift)
    }

    /// Finds where the chains of these hashes begin in each bucket of these places.
    pub fn begin(&self, places: &Places, hashes: &[u64], chains: &mut Chains) {
        let buckets = &self.buckets[places.from..places.to];
        let Chains { rows, firsts, scratch } = chains;
        *rows = hashes.len();
        firsts.resize(hashes.len() * buckets.len(), 0);
        let firsts = firsts.chunks_exact_mut(hashes.len().max(1));
        for ((_, bucket), firsts) in buckets.iter().zip(firsts) {
            bucket.begin(hashes, firsts, scratch);
        }
    }

    /// Rows with the hash that is sought, which was the one at `place` when the chains were begun
    /// at these places.
    #[inline]
    pub fn find(
        &self,
        places: &Places,
        (chains, place): (&Chains, usize),
        sought: &SoughtTimes,
        mut found: impl FnMut(RowRef),
    ) {
        for (n, (_, bucket)) in self.buckets[places.from..places.to].iter().enumerate() {
            bucket.follow(chains.firsts[n * chains.rows + place], sought, &mut found);
        }
    }

    /// Captures all rows, or those that have come since it did so last, in no order.
    pub fn capture(&mut self, extent: Extent, mut take: impl FnMut(Indexed)) {
        for (_, bucket) in &mut self.buckets {
            let first = std::mem::replace(&mut bucket.captured, bucket.entries.len());
            let first = if extent == Extent::Full { 0 } else { first };
            let reaches = &bucket.reaches;
            bucket.entries[first..].iter().for_each(|entry| {
                take(Indexed {
                    hash: entry.hash,
                    time: entry.time,
                    row: RowRef { chunk: entry.chunk, row: entry.row },
                    reach: (entry.reach as usize).checked_sub(1).map(|place| reaches[place]),
                });
            });
        }
    }

    /// Drops the buckets whose last time is done, and says how many rows of which chunks were in
    /// them.
    pub fn drop_until(&mut self, is_done: impl Fn(i64) -> bool, mut freed: impl FnMut(u32, usize)) {
        let last_time = |number: i64| ((number + 1) << self.shift).wrapping_sub(1);
        let done =
            self.buckets.iter().take_while(|(number, _)| is_done(last_time(*number))).count();
        if done == 0 {
            return;
        }
        for (_, bucket) in self.buckets.drain(..done) {
            bucket.holds.iter().for_each(|&(chunk, count)| freed(chunk, count as usize));
            self.expected = bucket.entries.len();
            self.spare = Some(bucket);
        }
        self.last = 0;
        if self.buckets.is_empty() {
            self.buckets.shrink_to(64);
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.buckets.iter().map(|(_, bucket)| bucket.entries.len()).sum()
    }

    /// Forgets what is only kept for its memory.
    pub fn shrink(&mut self) {
        self.spare = None;
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let spare = self.spare.as_ref().map_or(0, Bucket::bytes);
        let buckets: usize = self.buckets.iter().map(|(_, bucket)| bucket.bytes()).sum();
        buckets + spare + self.buckets.capacity() * size_of::<(i64, Bucket)>()
    }
}

/// Where the chains of a block of rows begin, bucket by bucket.
#[derive(Default)]
pub(super) struct Chains {
    rows: usize,
    firsts: Vec<u32>,
    scratch: Scratch,
}

/// A row of a block on its way along a chain.
#[derive(Clone, Copy, Default)]
struct Walk {
    row: u32,
    /// Where it stands, counted from 1.
    entry: u32,
}

/// What one pass over a block hands to the next.
#[derive(Default)]
struct Scratch {
    /// What was read.
    words: Vec<u64>,
    walks: Vec<Walk>,
    /// Entries that have the hash of their row.
    met: Vec<u32>,
}

impl Chains {
    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        let Scratch { words, walks, met } = &self.scratch;
        (self.firsts.capacity() + met.capacity()) * size_of::<u32>()
            + words.capacity() * size_of::<u64>()
            + walks.capacity() * size_of::<Walk>()
    }
}

/// Buckets one behind the other.
pub(super) struct Places {
    numbers: (i64, i64),
    from: usize,
    to: usize,
}

impl Places {
    /// None yet.
    pub fn none() -> Self {
        Places { numbers: (i64::MAX, i64::MIN), from: 0, to: 0 }
    }
}
