//! The checksum of everything that a snapshot consists of: XXH3 of 64 bits, written `xxh3:` and
//! sixteen hexadecimal digits.
//!
//! It finds damage, not forgery: whoever may write to the place may write a valid snapshot.

use xxhash_rust::xxh3::xxh3_64;

/// How many characters a checksum takes as text.
pub(crate) const TEXT_LENGTH: usize = 21;

/// The checksum of these bytes, as text.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    format!("xxh3:{:016x}", xxh3_64(bytes))
}

/// A hash of the bytes of an identity, for tables in memory.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
