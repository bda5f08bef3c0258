//! How long it takes to learn keys that are all new, and to find keys again, by how many a table
//! has.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --example interning`: nanoseconds per
//! key of one thread, medians of 5; keys come in the order of no table, 8,192 at a time.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use thalweg_core::DataType;
use thalweg_core::shim::mix64;
use thalweg_operators::keys::KeyTable;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: u64 = 8192;
const KEYS: [u64; 4] = [10_000, 100_000, 1_250_000, 10_000_000];

fn main() {
    println!("| keys | BIGINT learnt | found | texts of 83 bytes learnt | found |");
    for keys in KEYS {
        let numbers = medians(&DataType::BigInt, keys, |n| {
            Arc::new(Int64Array::from_iter_values(n.map(|n| mix64(n) as i64)))
        });
        let texts = medians(&DataType::STRING, keys, |n| {
            let text = |n| format!("{:083}", mix64(n));
            Arc::new(StringViewArray::from_iter_values(n.map(text)))
        });
        println!(
            "| {keys} | {:.1} | {:.1} | {:.1} | {:.1} |",
            numbers.0, numbers.1, texts.0, texts.1
        );
    }
}

fn medians(
    key_type: &DataType,
    keys: u64,
    column: impl Fn(std::ops::Range<u64>) -> ArrayRef,
) -> (f64, f64) {
    let batches: Vec<ArrayRef> =
        (0..keys).step_by(ROWS as usize).map(|from| column(from..keys.min(from + ROWS))).collect();
    let runs: Vec<(f64, f64)> = (0..5).map(|_| once(key_type, keys, &batches)).collect();
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[2]
    };
    (median(|run| run.0), median(|run| run.1))
}

fn once(key_type: &DataType, keys: u64, batches: &[ArrayRef]) -> (f64, f64) {
    let mut table = KeyTable::new(std::slice::from_ref(key_type)).expect("a type of keys");
    table.reserve(keys as usize);
    let mut ids = Vec::new();
    let mut pass = || {
        let start = Instant::now();
        for batch in batches {
            ids.clear();
            table.intern(std::slice::from_ref(batch), None, &mut ids).expect("keys");
        }
        start.elapsed().as_secs_f64() * 1e9 / keys as f64
    };
    let times = (pass(), pass());
    assert_eq!(table.len() as u64, keys);
    times
}
