//! Temporal join: two streams of 64-bit keys, joined where the times of equal keys lie at most so
//! far apart.
//!
//! With unique keys each key comes once on either side; right records are left ones shuffled in
//! blocks of 3.4 times the reach, so that half of them find their partner. With skewed keys the
//! interval is short: the number of pairs grows with the square of a key's records in it.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use thalweg::TableSchema;

use super::{Job, RECORDS_PER_MS, Table, batches_of, long_column, time_column, times};
use crate::random::{Random, Zipf};

const STREAM_KEY: u64 = 0x81;
const STREAM_SIDE: u64 = 0x82;

/// Which keys come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// Each once on either side.
    Unique,
    /// Zipf with this exponent over a million keys, on both sides alike.
    Zipf(f64),
    /// On the left every second record has one key; on the right one in a thousand has it.
    Hot,
}

/// What to generate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Records of each side.
    pub records: u64,
    /// Records of each side in a millisecond of event time.
    pub records_per_ms: u64,
    /// Partners are at most so far apart.
    pub reach_ms: i64,
    /// Which keys come.
    pub keys: Keys,
}

impl Settings {
    /// The paper's: unique keys, ±0.5 s, a million records in a second (of both sides together).
    pub fn unique(records: u64) -> Self {
        let records_per_ms = RECORDS_PER_MS / 2;
        Settings { seed: 7, records, records_per_ms, reach_ms: 500, keys: Keys::Unique }
    }

    /// Skewed keys, with an interval that keeps about one pair for each record.
    pub fn skewed(records: u64, keys: Keys) -> Self {
        let reach_ms = if keys == Keys::Hot { 2 } else { 1 };
        Settings { reach_ms, keys, ..Self::unique(records) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Keys of records by number.
struct KeyMaker<'a> {
    settings: &'a Settings,
    zipf: Option<Zipf>,
    block: u64,
    stride: u64,
}

const HOT: i64 = 4711;

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl<'a> KeyMaker<'a> {
    fn new(settings: &'a Settings) -> Self {
        let zipf = match settings.keys {
            Keys::Zipf(exponent) => Some(Zipf::new(1_000_000, exponent)),
            Keys::Unique | Keys::Hot => None,
        };
        let reach = settings.reach_ms as f64 * settings.records_per_ms as f64;
        let block = ((reach * (2.0 + std::f64::consts::SQRT_2)) as u64).max(1);
        // Multiples of the golden section lie evenly; any number without a common divisor permutes.
        let mut stride = (block as f64 * 0.618) as u64 | 1;
        while greatest_common_divisor(stride, block) != 1 {
            stride += 2;
        }
        KeyMaker { settings, zipf, block, stride }
    }

    fn unique(&self, number: u64) -> i64 {
        Random::new(self.settings.seed, STREAM_KEY, number).bits() as i64
    }

    fn key(&self, side: Side, number: u64) -> i64 {
        let mut random = Random::new(self.settings.seed, STREAM_SIDE + side as u64, number);
        match (self.settings.keys, &self.zipf, side) {
            (Keys::Zipf(_), Some(zipf), _) => self.unique(zipf.draw(&mut random) as u64),
            (Keys::Hot, _, Side::Left) if number.is_multiple_of(2) => HOT,
            (Keys::Hot, _, Side::Right) if number.is_multiple_of(1000) => HOT,
            (_, _, Side::Left) => self.unique(number),
            (_, _, Side::Right) => {
                let first = number - number % self.block;
                let place = (number - first) * self.stride % self.block;
                self.unique(first + place)
            }
        }
    }
}

/// The two streams: `ts`, `id`.
pub fn tables(settings: &Settings) -> Vec<Table> {
    let keys = KeyMaker::new(settings);
    let schema = TableSchema::new(vec![time_column(), long_column("id")]);
    let table = |name, side| {
        let batch = |numbers: std::ops::Range<u64>| {
            let ts = times(numbers.clone().map(|n| (n / settings.records_per_ms) as i64));
            let ids = Int64Array::from_iter_values(numbers.map(|n| keys.key(side, n)));
            RecordBatch::try_new(schema.arrow(), vec![ts, Arc::new(ids)]).expect("columns fit")
        };
        let batches = batches_of(settings.records).map(batch).collect();
        Table { name, schema: schema.clone(), batches, delay_ms: 1 }
    };
    vec![table("lefts", Side::Left), table("rights", Side::Right)]
}

/// The benchmark over these streams: `id`, the time on the left, the time on the right.
pub fn job(tables: Vec<Table>, settings: &Settings) -> Job {
    let reach = format!("{}.{:03}", settings.reach_ms / 1000, settings.reach_ms % 1000);
    let sql = format!(
        "SELECT l.id, l.ts AS left_ts, r.ts AS right_ts FROM lefts AS l JOIN rights AS r \
         ON l.id = r.id AND l.ts BETWEEN r.ts - INTERVAL '{reach}' SECOND \
         AND r.ts + INTERVAL '{reach}' SECOND"
    );
    Job { tables, functions: Vec::new(), sql }
}
