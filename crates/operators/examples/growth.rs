//! How long the longest bundle takes while a table of keys grows: keys that are all new, a thousand
//! at a time, for the engine's table and for a hash table and a column that double.
//!
//! `cargo run --release -p thalweg-operators --example growth -- 8000000`

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array};
use thalweg_core::shim::mix64;
use thalweg_core::{DataType, Result};
use thalweg_operators::keys::KeyTable;

const BUNDLE_ROWS: u64 = 1000;

/// What each bundle took, shortest first.
fn sorted(mut bundles: Vec<Duration>) -> Vec<Duration> {
    bundles.sort_unstable();
    bundles
}

fn keys_of(bundle: u64) -> impl Iterator<Item = i64> {
    (bundle * BUNDLE_ROWS..(bundle + 1) * BUNDLE_ROWS).map(|number| mix64(number) as i64)
}

fn table_of_the_engine(bundles: u64) -> Result<Vec<Duration>> {
    let mut table = KeyTable::new(&[DataType::BigInt])?;
    let mut ids = Vec::new();
    let bundle = |number: u64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(keys_of(number)));
        ids.clear();
        let start = Instant::now();
        table.intern(&[column], None, &mut ids)?;
        Ok(start.elapsed())
    };
    (0..bundles).map(bundle).collect()
}

fn table_that_doubles(bundles: u64) -> Vec<Duration> {
    let mut table: HashMap<i64, u32> = HashMap::new();
    let mut keys = Vec::new();
    let bundle = |number: u64| {
        let column: Vec<i64> = keys_of(number).collect();
        let start = Instant::now();
        for key in column {
            table.entry(key).or_insert_with(|| {
                keys.push(key);
                keys.len() as u32 - 1
            });
        }
        start.elapsed()
    };
    (0..bundles).map(bundle).collect()
}

fn show(name: &str, bundles: Vec<Duration>) {
    let bundles = sorted(bundles);
    let at =
        |share: f64| bundles[((bundles.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let all: Duration = bundles.iter().sum();
    println!(
        "{name}: a bundle of {BUNDLE_ROWS} new keys takes {:.3} ms, 99 % {:.3}, 99.9 % {:.3}, the longest {:.1}; {:.2} s in all",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        all.as_secs_f64()
    );
}

fn main() -> Result<()> {
    let keys = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(8_000_000);
    let bundles = u64::max(keys / BUNDLE_ROWS, 1);
    for _ in 0..3 {
        show("a table that doubles", table_that_doubles(bundles));
        show("the engine's table  ", table_of_the_engine(bundles)?);
    }
    Ok(())
}
