//! Ids of keys, the partitions that own their hashes, and what hash tables are probed with.

/// The partition, of this many, that owns the keys with this hash. The top eight bits are the
/// virtual partition; a partition owns a range of whole virtual partitions.
///
/// ```text
/// hash     | 8 bits: virtual partition | 56 bits |
/// owner    virtual * partitions / 256      3 partitions: 0..=85, 86..=170, 171..=255
/// ```
#[inline]
pub fn partition_of(hash: u64, partitions: usize) -> usize {
    ((hash >> 56) as usize * partitions) >> 8
}

/// What hash tables are probed with. Keys of one partition agree in the top bits of their hash,
/// which is where hashbrown takes its tags from, so lower bits are folded in.
#[inline]
pub(crate) fn probe_hash(hash: u64) -> u64 {
    hash ^ (hash << 32)
}

/// The id of a key that is not there.
pub const ABSENT: u32 = u32::MAX;

/// Gives out dense ids.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) free: Vec<u32>,
    /// One more than the highest that was given out.
    pub(super) limit: usize,
}

impl Ids {
    #[inline(always)]
    pub fn assign(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            return id;
        }
        let id = u32::try_from(self.limit).expect("fewer than 2^32 keys in one partition");
        self.limit += 1;
        id
    }
    pub fn clear(&mut self) {
        self.free.clear();
        self.limit = 0;
    }
    pub fn live(&self) -> usize {
        self.limit - self.free.len()
    }
    pub fn bytes(&self) -> usize {
        self.free.capacity() * 4
    }
}

/// The hash of NULL.
pub(super) const NULL_HASH: u64 = 0x5851_F42D_4C95_7F2D;
