//! How fast first rows are kept, on one thread, with data in memory.
//!
//! Run with `cargo run --release -p thalweg-operators --example top_n_speed`. Each line is the best
//! of several passes over batches of 8192 rows, in million input rows per second. Keys are mixed,
//! because structured ones flatter a hash table.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use thalweg_core::shim::{SplitMix64, SystemClock, mix64};
use thalweg_core::{
    Bundle, Column, DataType, Error, Operator, Output, PartitionContext, Piece, RowKind, Stamps,
    TableSchema,
};
use thalweg_operators::sort::SortKey;
use thalweg_operators::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, RankFunction, TopN, TopNSpec,
};
use thalweg_operators::window::LatePolicy;

const ROWS: usize = 8192;
const BATCHES: usize = 200;
const PASSES: usize = 5;
const KEYS: u64 = 10_000;

/// Columns of the input.
const KEY: usize = 0;
const TIME: usize = 1;
const VALUE: usize = 2;
const WORD: usize = 3;

fn main() -> Result<(), Error> {
    let bundles = bundles()?;
    let by_value = || vec![SortKey::descending(VALUE)];
    let top = |order, to| top(&[KEY], order, to);
    measure("top 10 by key", &TopN::new(top(by_value(), 10))?, &bundles)?;
    let numbered = TopNSpec { rank_column: Some("rn".to_owned()), ..top(by_value(), 10) };
    measure("top 10 by key, with row numbers", &TopN::new(numbered)?, &bundles)?;
    measure("top 1 by key", &TopN::new(top(by_value(), 1))?, &bundles)?;
    let by_word = vec![SortKey::ascending(WORD)];
    measure("top 10 by key, sorted by text", &TopN::new(top(by_word, 10))?, &bundles)?;
    let limit = self::top(&[], by_value(), 100);
    measure("order by, limit 100", &TopN::new(limit)?, &bundles)?;
    let ranked = TopNSpec { function: RankFunction::Rank, ..top(by_value(), 10) };
    measure("rank 10 by key", &TopN::new(ranked)?, &bundles)?;
    let changes = with_retractions(&bundles);
    let retracting = TopNSpec { retracts: true, ..top(by_value(), 10) };
    measure("top 10 by key, half retracted", &TopN::new(retracting)?, &changes)?;
    measure("keep last by arrival", &deduplicate(Keep::Last, DeduplicateBy::Arrival)?, &bundles)?;
    let by_time = DeduplicateBy::EventTime(TIME);
    measure("keep last by row time", &deduplicate(Keep::Last, by_time)?, &bundles)?;
    measure("keep first by arrival", &deduplicate(Keep::First, DeduplicateBy::Arrival)?, &bundles)?;
    measure("keep first by row time", &deduplicate(Keep::First, by_time)?, &bundles)
}

fn input() -> TableSchema {
    let column = |(name, data_type): (&str, DataType)| Column::new(name, data_type.nullable());
    let columns = [
        ("key", DataType::BigInt),
        ("time", DataType::Timestamp(3)),
        ("value", DataType::BigInt),
        ("word", DataType::STRING),
    ];
    TableSchema::new(columns.into_iter().map(column).collect())
}

fn top(keys: &[usize], order: Vec<SortKey>, to: u64) -> TopNSpec {
    TopNSpec {
        keys: keys.to_vec(),
        order,
        function: RankFunction::RowNumber,
        from: 1,
        to,
        rank_column: None,
        input: input(),
        retracts: false,
        unique: None,
        state_ttl_ms: None,
        window_end: None,
    }
}

fn deduplicate(keep: Keep, by: DeduplicateBy) -> Result<Deduplicate, Error> {
    Deduplicate::new(DeduplicateSpec {
        keys: vec![KEY],
        keep,
        by,
        input: input(),
        state_ttl_ms: None,
        late: LatePolicy::Drop,
    })
}

fn measure(what: &str, operator: &dyn Operator, bundles: &[Bundle]) -> Result<(), Error> {
    let clock = Arc::new(SystemClock::new());
    let mut best = f64::MAX;
    let mut emitted = 0;
    let mut state_bytes = 0;
    for _ in 0..PASSES {
        let mut partition = operator.open(PartitionContext::only())?;
        emitted = 0;
        let start = Instant::now();
        for bundle in bundles {
            let mut output = Output::new(Arc::clone(&clock) as _, u64::MAX);
            partition.rows(Piece::whole(bundle, 1), &mut output)?;
            emitted += output.emitted.iter().map(|e| e.batch.num_rows()).sum::<usize>();
            std::hint::black_box(&output.emitted);
        }
        best = best.min(start.elapsed().as_secs_f64());
        state_bytes = partition.state_bytes();
    }
    let rows = (ROWS * BATCHES) as f64;
    let (speed, each) = (rows / best / 1e6, emitted as f64 / rows);
    println!(
        "{what:40} {speed:7.1} M rows/s, {each:4.2} rows out for each, {state_bytes} B of state"
    );
    Ok(())
}

fn bundles() -> Result<Vec<Bundle>, Error> {
    let mut random = SplitMix64::new(1);
    (0..BATCHES)
        .map(|batch| {
            let mut keys = Vec::with_capacity(ROWS);
            let mut values = Vec::with_capacity(ROWS);
            for _ in 0..ROWS {
                keys.push(mix64(random.below(KEYS)) as i64);
                values.push(random.below(1 << 40) as i64);
            }
            let words = values.iter().map(|value| format!("a text before {value}"));
            let times = (0..ROWS).map(|row| (batch * ROWS + row) as i64);
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(keys)),
                Arc::new(TimestampMillisecondArray::from_iter_values(times)),
                Arc::new(Int64Array::from(values.clone())),
                Arc::new(StringViewArray::from_iter_values(words)),
            ];
            Ok(Bundle::new(RecordBatch::try_new(input().arrow(), columns)?, Stamps::first()))
        })
        .collect()
}

/// Every other batch retracts the rows of the one before.
fn with_retractions(bundles: &[Bundle]) -> Vec<Bundle> {
    let pair = |inserts: &Bundle| {
        let mut deletes = inserts.clone();
        deletes.kinds = Some(vec![RowKind::Delete; inserts.num_rows()].into());
        [inserts.clone(), deletes]
    };
    bundles.iter().take(bundles.len() / 2).flat_map(pair).collect()
}
