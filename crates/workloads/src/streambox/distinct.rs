//! Counting distinct URLs: how many different ids a second has.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use thalweg::TableSchema;

use super::{Job, RECORDS_PER_MS, Table, batches_of, long_column, time_column, times};
use crate::random::{Random, Zipf};

const STREAM_URL: u64 = 0x91;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Records in all.
    pub records: u64,
    /// Records in a millisecond of event time.
    pub records_per_ms: u64,
    /// Different ids.
    pub ids: usize,
    /// Their skew (Zipf).
    pub exponent: f64,
}

impl Settings {
    /// This many records with ids by Zipf(0.9) out of two millions.
    pub fn with_records(records: u64) -> Self {
        let (records_per_ms, ids) = (RECORDS_PER_MS, 2_000_000);
        Settings { seed: 7, records, records_per_ms, ids, exponent: 0.9 }
    }
}

/// The records: `ts`, `url`.
pub fn table(settings: &Settings) -> Table {
    let schema = TableSchema::new(vec![time_column(), long_column("url")]);
    let zipf = Zipf::new(settings.ids, settings.exponent);
    // Ranks are spread over all 64 bits: neighbours in rank are no neighbours in number.
    let url = |number| {
        let rank = zipf.draw(&mut Random::new(settings.seed, STREAM_URL, number));
        Random::new(settings.seed, STREAM_URL + 1, rank as u64).bits() as i64
    };
    let batch = |numbers: std::ops::Range<u64>| {
        let ts = times(numbers.clone().map(|n| (n / settings.records_per_ms) as i64));
        let urls = Int64Array::from_iter_values(numbers.map(url));
        RecordBatch::try_new(schema.arrow(), vec![ts, Arc::new(urls)]).expect("columns fit")
    };
    let batches = batches_of(settings.records).map(batch).collect();
    Table { name: "visits", schema, batches, delay_ms: 1 }
}

/// The benchmark over these records: `window_end`, `n`.
pub fn job(records: Table) -> Job {
    let sql = "SELECT window_end, COUNT(DISTINCT url) AS n \
               FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
               GROUP BY window_start, window_end";
    Job { tables: vec![records], functions: Vec::new(), sql: sql.to_owned() }
}
