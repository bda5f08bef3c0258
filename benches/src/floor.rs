//! The floors: single-thread loops by hand over the same Arrow data, compiled with the same flags.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use hashbrown::HashTable;
use thalweg_core::shim::mix64;

use thalweg_workloads::streambox::words::{for_each_word, short_view};

/// Splits and counts in one pass with a table of its own, one table for all: the least that a word
/// count can do, without windows. Returns (words, checksum of the counts).
pub fn wordcount(batches: &[RecordBatch], laps: usize) -> (u64, u64) {
    let mut table: HashTable<(u128, u32)> = HashTable::with_capacity(100_000);
    let mut long: std::collections::HashMap<Box<[u8]>, u64> = std::collections::HashMap::new();
    let mut counts: Vec<u64> = Vec::new();
    let mut total = 0u64;
    for _ in 0..laps {
        for batch in batches {
            let texts = batch.column(1).as_string_view();
            for row in 0..texts.len() {
                let text = texts.value(row).as_bytes();
                for_each_word(text, |start, end| {
                    total += 1;
                    if end - start > 12 {
                        *long.entry(text[start..end].into()).or_default() += 1;
                        return;
                    }
                    let view = short_view(text, start, end - start);
                    let hash = hash_view(view);
                    let id = match table.find(hash, |(v, _)| *v == view) {
                        Some((_, id)) => *id as usize,
                        None => {
                            let id = counts.len();
                            counts.push(0);
                            table.insert_unique(hash, (view, id as u32), |(v, _)| hash_view(*v));
                            id
                        }
                    };
                    counts[id] += 1;
                });
            }
        }
    }
    (total, counts.iter().chain(long.values()).map(|n| n * n).sum())
}

#[inline]
fn hash_view(view: u128) -> u64 {
    let (low, high) = (view as u64, (view >> 64) as u64);
    mix64(low ^ high.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Keeps bids above a price and computes price * 908 / 1000. Returns (rows kept, sum of prices).
pub fn filter_project(batches: &[RecordBatch], laps: usize, above: i64) -> (u64, i64) {
    let (mut rows, mut sum) = (0u64, 0i64);
    for _ in 0..laps {
        for batch in batches {
            let [auction, bidder, price] =
                [1, 2, 3].map(|column| batch.column(column).as_primitive::<Int64Type>().values());
            let mut auctions = Vec::with_capacity(batch.num_rows());
            let mut bidders = Vec::with_capacity(batch.num_rows());
            let mut prices = Vec::with_capacity(batch.num_rows());
            for (row, &price) in price.iter().enumerate() {
                if price > above {
                    auctions.push(auction[row]);
                    bidders.push(bidder[row]);
                    prices.push(price * 908 / 1000);
                }
            }
            rows += prices.len() as u64;
            sum += prices.iter().sum::<i64>();
            std::hint::black_box((&auctions, &bidders));
        }
    }
    (rows, sum)
}

/// Counts bids per auction in one hash table. Returns (keys, checksum of the counts).
pub fn count_per_key(batches: &[RecordBatch], laps: usize) -> (u64, u64) {
    let mut table: HashTable<(i64, u32)> = HashTable::with_capacity(20_000);
    let mut counts: Vec<u64> = Vec::new();
    for _ in 0..laps {
        for batch in batches {
            for &key in batch.column(1).as_primitive::<Int64Type>().values() {
                let hash = mix64(key as u64);
                let id = match table.find(hash, |(k, _)| *k == key) {
                    Some((_, id)) => *id as usize,
                    None => {
                        let id = counts.len();
                        counts.push(0);
                        table.insert_unique(hash, (key, id as u32), |(k, _)| mix64(*k as u64));
                        id
                    }
                };
                counts[id] += 1;
            }
        }
    }
    (counts.len() as u64, counts.iter().map(|n| n * n).sum())
}

/// The same with DataFusion's interning and count.
#[cfg(feature = "datafusion")]
pub fn count_per_key_datafusion(batches: &[RecordBatch], laps: usize) -> (u64, u64) {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field, Schema};
    use datafusion_expr::EmitTo;
    use datafusion_physical_expr::aggregate::AggregateExprBuilder;
    use datafusion_physical_expr::expressions::Column;
    use datafusion_physical_plan::aggregates::group_values::new_group_values;
    use datafusion_physical_plan::aggregates::order::GroupOrdering;

    let schema = Arc::new(Schema::new(vec![Field::new("auction", DataType::Int64, false)]));
    let mut groups =
        new_group_values(schema.clone(), &GroupOrdering::None).expect("a single integer key");
    let count = datafusion_functions_aggregate::count::count_udaf();
    let argument = Arc::new(Column::new("auction", 0));
    let expression = AggregateExprBuilder::new(count, vec![argument])
        .schema(schema)
        .alias("n")
        .build()
        .expect("COUNT of a column");
    let mut counts = expression.create_groups_accumulator().expect("COUNT has one");
    let mut ids = Vec::new();
    for _ in 0..laps {
        for batch in batches {
            let keys = [Arc::clone(batch.column(1))];
            groups.intern(&keys, &mut ids).expect("interned");
            counts.update_batch(&keys, &ids, None, groups.len()).expect("counted");
        }
    }
    let counts = counts.evaluate(EmitTo::All).expect("emitted");
    let counts = counts.as_primitive::<Int64Type>();
    (counts.len() as u64, counts.values().iter().map(|&n| (n * n) as u64).sum())
}
