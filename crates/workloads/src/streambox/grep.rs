//! Windowed grep: which records of 1 KB contain a literal, or match a regular expression, in the
//! last 30 seconds, every second.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use thalweg::{Column, DataType, TableSchema};

use super::text::{RecordText, Vocabulary};
use super::{Job, RECORDS_PER_MS, Table, batches_of, long_column, time_column, times};

/// The literal that is looked for.
pub const LITERAL: &str = "watershed";

/// The regular expression that is looked for: addresses in the web, as in StreamBox's own code.
pub const REGULAR_EXPRESSION: &str = "https?://[a-z0-9.]+/[a-z0-9/]+";

const ADDRESS: &str = "https://example.org/item/4711";

/// The length of a record in bytes.
pub const RECORD_BYTES: usize = 1024;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Different records.
    pub records: u64,
    /// How often they come, one lap behind the other, with times of their own.
    pub laps: u64,
    /// Records in a millisecond of event time.
    pub records_per_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { seed: 7, records: 262_144, laps: 16, records_per_ms: RECORDS_PER_MS }
    }
}

/// How records are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// By [`LITERAL`], with LIKE.
    Literal,
    /// By [`REGULAR_EXPRESSION`], with REGEXP.
    Regex,
}

/// What leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// `window_end`, `id`: every record with each of its windows.
    Rows,
    /// `window_end`, `n`, `ids`: how many records a window has, and the sum of their numbers.
    Counts,
}

/// The records: `ts`, `id`, `text`. Laps share their texts.
pub fn table(settings: &Settings) -> Table {
    let schema = TableSchema::new(vec![
        time_column(),
        long_column("id"),
        Column::new("text", DataType::STRING.not_null()),
    ]);
    let vocabulary = Vocabulary::new(settings.seed, 50_000);
    let text = RecordText {
        vocabulary: &vocabulary,
        seed: settings.seed,
        record_bytes: RECORD_BYTES,
        planted: &[(LITERAL, 0.01), (ADDRESS, 0.02)],
    };
    let numbers: Vec<_> = batches_of(settings.records).collect();
    let texts: Vec<_> = numbers.iter().map(|numbers| text.column(numbers.clone())).collect();
    let mut batches = Vec::new();
    for lap in 0..settings.laps {
        for (numbers, texts) in numbers.iter().zip(&texts) {
            let ids = numbers.clone().map(|n| (n + lap * settings.records) as i64);
            let ids: Vec<i64> = ids.collect();
            let ts = times(ids.iter().map(|id| id / settings.records_per_ms as i64));
            let columns = vec![ts, Arc::new(Int64Array::from(ids)), Arc::clone(texts)];
            batches.push(RecordBatch::try_new(schema.arrow(), columns).expect("columns fit"));
        }
    }
    Table { name: "records", schema, batches, delay_ms: 1 }
}

/// The benchmark over these records.
pub fn job(records: Table, search: Search, output: Output) -> Job {
    let condition = match search {
        Search::Literal => format!("text LIKE '%{LITERAL}%'"),
        Search::Regex => format!("REGEXP(text, '{REGULAR_EXPRESSION}')"),
    };
    let windows =
        "TABLE(HOP(TABLE records, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '30' SECOND))";
    let sql = match output {
        Output::Rows => format!("SELECT window_end, id FROM {windows} WHERE {condition}"),
        Output::Counts => format!(
            "SELECT window_end, COUNT(*) AS n, SUM(id) AS ids FROM {windows} WHERE {condition} \
             GROUP BY window_start, window_end"
        ),
    };
    Job { tables: vec![records], functions: Vec::new(), sql }
}
