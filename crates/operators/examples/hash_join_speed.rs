//! How fast rows are looked up in a table that was read before, on one core.
//!
//! The form of NEXMark's query 13: rows of a key (BIGINT), a price (BIGINT) and a text next to a
//! table of 10,000 rows with a key and a text, each key once.
//! `cargo run --release -p thalweg-operators --example hash_join_speed`

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use thalweg_core::shim::{SplitMix64, SystemClock};
use thalweg_core::{Bundle, Column, DataType, Result, Stamps, TableSchema, Transform};
use thalweg_operators::chain::{Chain, Step};
use thalweg_operators::join::JoinKind;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::hash::{HashJoin, HashJoinSpec};
use thalweg_operators::join::sides::{Side, Sides};

const TABLE_ROWS: i64 = 10_000;
const BUNDLE_ROWS: usize = 64 * 1024;
const BUNDLES: usize = 400;

fn main() -> Result<()> {
    let text = |name| Column::new(name, DataType::STRING.nullable());
    let number = |name| Column::new(name, DataType::BigInt.not_null());
    let left = TableSchema::new(vec![number("key"), number("price"), text("url")]);
    let right = TableSchema::new(vec![number("key"), text("value")]);
    println!("{:<28} {:>16}", "join", "rows/s");
    for (name, kind, keys) in [
        ("inner, all found", JoinKind::Inner, TABLE_ROWS as u64),
        ("inner, half found", JoinKind::Inner, 2 * TABLE_ROWS as u64),
        ("left, half found", JoinKind::Left, 2 * TABLE_ROWS as u64),
        ("semi, half found", JoinKind::Semi, 2 * TABLE_ROWS as u64),
    ] {
        let sides = Sides::new(left.clone(), right.clone());
        let (left_keys, right_keys) = (vec![0], vec![0]);
        let build = Side::Right;
        let join = HashJoin::new(HashJoinSpec {
            join: EquiJoin { sides, kind, left_keys, right_keys, residual: None },
            build,
            is_null_aware: false,
        })?;
        let mut table = join.build().again()?;
        let values = (0..TABLE_ROWS).map(|key| format!("the value of {key}, a little longer"));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(0..TABLE_ROWS)),
            Arc::new(StringViewArray::from_iter_values(values)),
        ];
        table.add(RecordBatch::try_new(right.arrow(), columns)?)?;
        table.publish()?;
        let step = Step::Probe { table: Arc::new(join.probe()), what: String::new() };
        let chain = Chain::new("probe".to_owned(), vec![step], Arc::new(SystemClock::new()));
        let bundle = bundle(&left, keys)?;
        chain.apply(bundle.clone())?;
        let began = Instant::now();
        for _ in 0..BUNDLES {
            std::hint::black_box(chain.apply(bundle.clone())?);
        }
        let rows_per_second = (BUNDLES * BUNDLE_ROWS) as f64 / began.elapsed().as_secs_f64();
        println!("{name:<28} {rows_per_second:>16.0}");
    }
    Ok(())
}

fn bundle(schema: &TableSchema, keys: u64) -> Result<Bundle> {
    let mut random = SplitMix64::new(1);
    let key: Vec<i64> = (0..BUNDLE_ROWS).map(|_| random.below(keys) as i64).collect();
    let url = key.iter().map(|key| format!("https://example.com/{key}"));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(key.clone())),
        Arc::new(Int64Array::from(key.clone())),
        Arc::new(StringViewArray::from_iter_values(url)),
    ];
    Ok(Bundle::new(RecordBatch::try_new(schema.arrow(), columns)?, Stamps::first()))
}
