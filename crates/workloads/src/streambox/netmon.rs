//! Network latency monitoring: the mean round trip by pair of hosts, each second.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use thalweg::{Column, DataType, TableSchema};

use super::{Job, RECORDS_PER_MS, Table, batches_of, time_column, times};
use crate::random::{Random, Zipf};

const STREAM_PROBE: u64 = 0xA1;
const STREAM_PAIR: u64 = 0xA2;

/// How long a probe takes whose packet was lost, in microseconds.
const RETRANSMIT_US: i32 = 3_000_000;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Records in all.
    pub records: u64,
    /// Records in a millisecond of event time.
    pub records_per_ms: u64,
    /// Hosts.
    pub hosts: u64,
    /// Pairs of hosts, by Zipf(0.8).
    pub pairs: usize,
}

impl Settings {
    /// This many records, half a million in a second as in the paper, of 10,000 hosts in 200,000
    /// pairs.
    pub fn with_records(records: u64) -> Self {
        let records_per_ms = RECORDS_PER_MS / 2;
        Settings { seed: 7, records, records_per_ms, hosts: 10_000, pairs: 200_000 }
    }
}

/// The records: `ts`, `src`, `dst`, `rtt_us`.
pub fn table(settings: &Settings) -> Table {
    let int = |name| Column::new(name, DataType::Int.not_null());
    let schema = TableSchema::new(vec![time_column(), int("src"), int("dst"), int("rtt_us")]);
    let zipf = Zipf::new(settings.pairs, 0.8);
    let probe = |number| -> [i32; 3] {
        let mut random = Random::new(settings.seed, STREAM_PROBE, number);
        let mut pair = Random::new(settings.seed, STREAM_PAIR, zipf.draw(&mut random) as u64);
        let mut host = || pair.below(settings.hosts) as i32;
        let rtt_us = match random.chance(0.001) {
            true => RETRANSMIT_US,
            false => random.log_normal(250.0, 0.6) as i32,
        };
        [host(), host(), rtt_us]
    };
    let batch = |numbers: std::ops::Range<u64>| {
        let ts = times(numbers.clone().map(|n| (n / settings.records_per_ms) as i64));
        let probes: Vec<[i32; 3]> = numbers.map(probe).collect();
        let column = |place: usize| -> ArrayRef {
            Arc::new(Int32Array::from_iter_values(probes.iter().map(|probe| probe[place])))
        };
        let columns = vec![ts, column(0), column(1), column(2)];
        RecordBatch::try_new(schema.arrow(), columns).expect("columns fit")
    };
    let batches = batches_of(settings.records).map(batch).collect();
    Table { name: "probes", schema, batches, delay_ms: 1 }
}

/// The benchmark over these records: `window_end`, `src`, `dst`, the mean in whole microseconds
/// (toward zero), and how many.
pub fn job(records: Table) -> Job {
    let sql = "SELECT window_end, src, dst, AVG(rtt_us) AS mean_us, COUNT(*) AS n \
               FROM TABLE(TUMBLE(TABLE probes, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
               GROUP BY window_start, window_end, src, dst";
    Job { tables: vec![records], functions: Vec::new(), sql: sql.to_owned() }
}
