//! The virtual partition of a key, from the written definition of the hash in `keys/hash.rs`, in
//! code of its own.

use thalweg_core::shim::mix64;

use crate::reference::Value;

const OF_NULL: u64 = 0x5851_F42D_4C95_7F2D;
const CONSTANTS: [u64; 3] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB, 0x8EBC_6AF0_9C88_C6E3];

/// The top eight bits of the key's hash.
pub(super) fn virtual_partition(key: &[Value]) -> u8 {
    let hash = match key {
        [] => 0,
        [only] => hash_of(only),
        [first, others @ ..] => others.iter().fold(mix64(hash_of(first)), |state, value| {
            mix64(state.rotate_left(5).wrapping_add(hash_of(value)))
        }),
    };
    (hash >> 56) as u8
}

fn hash_of(value: &Value) -> u64 {
    match value {
        Value::Null => OF_NULL,
        Value::Boolean(value) => mix64(u64::from(*value)),
        Value::Integer(value) => mix64(*value as u64),
        Value::Double(value) if value.is_nan() => mix64(f64::NAN.to_bits()),
        Value::Double(value) => mix64(value.to_bits()),
        Value::Decimal(value) => of_128_bits(value.to_le_bytes()),
        Value::String(text) if text.len() <= 12 => {
            let mut view = [0; 16];
            view[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
            view[4..4 + text.len()].copy_from_slice(text.as_bytes());
            of_128_bits(view)
        }
        Value::String(text) => of_long_text(text.as_bytes()),
    }
}

/// Both halves of the 128-bit product, laid over each other.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(bytes);
    [number as u64, (number >> 64) as u64]
}

fn of_128_bits(bytes: [u8; 16]) -> u64 {
    let [low, high] = halves(bytes);
    let mixed = folded(low ^ CONSTANTS[0], high ^ CONSTANTS[1]);
    folded(mixed ^ low, CONSTANTS[2])
}

/// Sixteen bytes at a time, the last ones padded with zeros.
fn of_long_text(text: &[u8]) -> u64 {
    let start = folded(text.len() as u64 ^ CONSTANTS[0], CONSTANTS[1]);
    let absorb = |state: u64, chunk: &[u8]| {
        let mut bytes = [0; 16];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let [low, high] = halves(bytes);
        folded(low ^ CONSTANTS[1] ^ state, high ^ CONSTANTS[2]).wrapping_add(state.rotate_left(23))
    };
    folded(text.chunks(16).fold(start, absorb) ^ CONSTANTS[2], CONSTANTS[0])
}
