//! Keys of rows, and the virtual partition that each belongs to.

use std::hash::{Hash, Hasher};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thalweg_core::shim::mix64;
use thalweg_operators::keys::hash_bytes;

/// A key: compared, ordered and hashed, and written to snapshots.
pub trait RowKey:
    Hash + Ord + Clone + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> RowKey for K where
    K: Hash + Ord + Clone + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// A hash that is the same in every run.
#[derive(Default)]
struct StableHasher(u64);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(hash_bytes(bytes));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix64(self.0.rotate_left(5).wrapping_add(value));
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// The hash of a key, the same in every run.
pub(super) fn hash_key<K: Hash>(key: &K) -> u64 {
    let mut hasher = StableHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The virtual partition of a key, from 0 to 255. Partitions own ranges of them, and what timers
/// of one time emit leaves by virtual partition, then key.
pub fn virtual_partition<K: Hash>(key: &K) -> u8 {
    (hash_key(key) >> 56) as u8
}

/// What the tables of one partition are probed with: its keys agree in the top bits of their hash,
/// which is where the table takes its tags from, so lower bits are folded in.
pub(super) fn probe(hash: u64) -> u64 {
    hash ^ (hash << 32)
}

/// Probes the sets of one partition.
#[derive(Default)]
pub(super) struct ProbeHasher(StableHasher);

impl Hasher for ProbeHasher {
    fn finish(&self) -> u64 {
        probe(self.0.finish())
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
    fn write_u64(&mut self, value: u64) {
        self.0.write_u64(value);
    }
    fn write_u8(&mut self, value: u8) {
        self.0.write_u8(value);
    }
    fn write_u16(&mut self, value: u16) {
        self.0.write_u16(value);
    }
    fn write_u32(&mut self, value: u32) {
        self.0.write_u32(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.0.write_usize(value);
    }
}
