//! Word count: how often each word comes in the last 30 seconds, every second, out of records of
//! 100 bytes.

use arrow_array::RecordBatch;
use thalweg::pipeline::{MemorySource, Pipeline, Window, count};
use thalweg::{Column, DataType, Report, Result, RunOptions, Sink, TableSchema};

use super::text::{RecordText, Vocabulary};
use super::words::{split, word_schema};
use super::{RECORDS_PER_MS, Table, batches_of, time_column, times};

/// The length of a record in bytes.
pub const RECORD_BYTES: usize = 100;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Records in all.
    pub records: u64,
    /// Records in a millisecond of event time.
    pub records_per_ms: u64,
}

impl Settings {
    /// This many records, a million in a second.
    pub fn with_records(records: u64) -> Self {
        Settings { seed: 7, records, records_per_ms: RECORDS_PER_MS }
    }
}

/// The columns of a record.
pub fn schema() -> TableSchema {
    TableSchema::new(vec![time_column(), Column::new("text", DataType::STRING.not_null())])
}

/// The records: `ts`, `text`.
pub fn table(settings: &Settings) -> Table {
    let schema = schema();
    let vocabulary = Vocabulary::new(settings.seed, 50_000);
    let (seed, record_bytes) = (settings.seed, RECORD_BYTES);
    let text = RecordText { vocabulary: &vocabulary, seed, record_bytes, planted: &[] };
    let batch = |numbers: std::ops::Range<u64>| {
        let ts = times(numbers.clone().map(|n| (n / settings.records_per_ms) as i64));
        let columns = vec![ts, text.column(numbers)];
        RecordBatch::try_new(schema.arrow(), columns).expect("columns fit")
    };
    let batches = batches_of(settings.records).map(batch).collect();
    Table { name: "texts", schema, batches, delay_ms: 1 }
}

/// Runs the benchmark over these records: `word`, `n`, and the window.
///
/// # Errors
/// Of the run.
pub fn run(records: &Table, options: RunOptions, sink: impl Sink + 'static) -> Result<Report> {
    let pipeline = Pipeline::new();
    let words = word_schema().arrow();
    let source = MemorySource::new(records.schema.clone(), records.batches.clone());
    pipeline
        .read(records.name, source, records.schema.clone())
        .watermark("ts", records.delay_ms)?
        .flat_map("split", word_schema(), move |batch| split(batch, &words))
        .window(Window::sliding(30_000, 1000), "ts")?
        .key_by(&["word"])?
        .aggregate(vec![count().named("n")])?
        .write("counts", sink);
    pipeline.run(options)
}
