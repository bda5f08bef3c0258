//! Three benchmarks as pipelines whose input can be varied as StreamBox §9 varies it.
//!
//! | benchmark | keys | window |
//! |---|---|---|
//! | `wordcount` | words of 100-byte records | 30 s sliding by 1 s |
//! | `counts` | 10,000 integers | 10 s sliding by 2 s |
//! | `netmon` | 200,000 pairs of hosts | 1 s |
//!
//! Records may carry, in their last column, how far time had come when they were sent (`clock`);
//! the watermark follows that column then. So a record can come early (figure 7): its row time is
//! moved into a later epoch, and nothing else becomes late.
//!
//! Invariant: which records are early depends on the seed and their numbers alone. Inputs longer
//! than what is generated repeat it, with times that continue; the text itself is shared.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use thalweg::pipeline::{MemorySource, Pipeline, Stream, Window, average, count};
use thalweg::{Column, DataType, Result, Sink, TableSchema};
use thalweg_core::connector::{Assign, Assigned, ExactStamps};
use thalweg_core::graph::{Graph, StageKind};
use thalweg_core::{Grid, SourceBatch, Watermark};
use thalweg_runtime::Ablation;

use super::words::{split, word_schema};
use super::{
    RECORDS_PER_MS, Table, batches_of, long_column, netmon, time_column, times, wordcount,
};
use crate::random::Random;

const STREAM_EARLY: u64 = 0xB1;
const STREAM_KEY: u64 = 0xB2;

const CLOCK: &str = "clock";

/// An epoch of event time, as in the paper.
pub const EPOCH_MS: i64 = 1000;

/// StreamBox's decisions removed one at a time; first with all of them.
pub const DESIGNS: [(&str, Ablation); 5] = [
    ("as it is", Ablation::Nothing),
    ("epochs in order (fig. 9)", Ablation::InOrderEpochs),
    ("boundaries ignored (fig. 10)", Ablation::IgnoreEpochBoundaries),
    ("no priority (§9.2)", Ablation::NoPriority),
    ("ends estimated (§6)", Ablation::EstimatedMoments),
];

/// Records in an epoch, and the step of the watermark in milliseconds that makes them.
pub const EPOCHS: [(&str, Option<i64>); 4] =
    [("1 M", None), ("100 K", Some(100)), ("10 K", Some(10)), ("1 K", Some(1))];

/// Shares of records that come early.
pub const EARLY_PERCENT: [u64; 3] = [0, 20, 40];

/// Which benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// Words of text.
    WordCount,
    /// Integers.
    Counts,
    /// Pairs of hosts.
    NetMon,
}

impl Benchmark {
    /// Those that there are.
    pub const ALL: [Benchmark; 3] = [Benchmark::WordCount, Benchmark::Counts, Benchmark::NetMon];

    /// Those with these names; all if there are no names.
    pub fn of_names(names: &[String]) -> impl Iterator<Item = Benchmark> {
        let is_asked =
            |of: &Benchmark| names.is_empty() || names.iter().any(|name| name == of.name());
        Benchmark::ALL.into_iter().filter(is_asked)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::WordCount => "wordcount",
            Benchmark::Counts => "counts",
            Benchmark::NetMon => "netmon",
        }
    }

    /// The column of the results whose sum shows whether they are right.
    pub fn checked(self) -> &'static str {
        match self {
            Benchmark::NetMon => "mean_us",
            Benchmark::WordCount | Benchmark::Counts => "n",
        }
    }
}

/// How the records are made.
#[derive(Clone, Copy, Debug)]
pub struct Variation {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Records that are generated.
    pub records: u64,
    /// How often they come, with times that continue.
    pub laps: u64,
    /// Records in a millisecond of event time.
    pub records_per_ms: u64,
    /// How many of a hundred records come early, by 1 to [`Variation::early_epochs`] epochs.
    /// Without a number there is no clock either, and the watermark follows the row time.
    pub early_percent: Option<u64>,
    /// See above.
    pub early_epochs: u64,
}

impl Variation {
    /// This many records, a million in a second, none of them early.
    pub fn with_records(records: u64, laps: u64) -> Self {
        let records_per_ms = RECORDS_PER_MS;
        Variation { seed: 7, records, laps, records_per_ms, early_percent: None, early_epochs: 3 }
    }
}

/// The records of a benchmark; the last column is `clock` where records may come early.
pub fn table(benchmark: Benchmark, how: &Variation) -> Table {
    let Variation { seed, records, records_per_ms, .. } = *how;
    let plain = match benchmark {
        Benchmark::WordCount => {
            wordcount::table(&wordcount::Settings { seed, records, records_per_ms })
        }
        Benchmark::Counts => keys(how),
        Benchmark::NetMon => {
            let settings = netmon::Settings::with_records(records);
            netmon::table(&netmon::Settings { seed, records_per_ms, ..settings })
        }
    };
    let mut schema = plain.schema.clone();
    if how.early_percent.is_some() {
        schema.columns.push(Column::new(CLOCK, DataType::Timestamp(3).not_null()));
    }
    let arrow = schema.arrow();
    // The next lap begins where this one ends.
    let span_ms = records.div_ceil(records_per_ms) as i64;
    let mut batches = Vec::new();
    let mut number = 0;
    for lap in 0..how.laps as i64 {
        for batch in &plain.batches {
            let of = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
            let clock: Vec<i64> = of.iter().map(|time| time + lap * span_ms).collect();
            let early = clock.iter().zip(number..).map(|(time, n)| time + how.early_ms(n));
            let mut columns = batch.columns().to_vec();
            columns[0] = times(early);
            number += clock.len() as u64;
            if how.early_percent.is_some() {
                columns.push(times(clock.into_iter()));
            }
            batches.push(RecordBatch::try_new(arrow.clone(), columns).expect("columns fit"));
        }
    }
    Table { batches, schema, ..plain }
}

impl Variation {
    /// How much later than its epoch the row time of a record is.
    fn early_ms(&self, number: u64) -> i64 {
        let Some(percent) = self.early_percent.filter(|&percent| percent > 0) else { return 0 };
        let mut random = Random::new(self.seed, STREAM_EARLY, number);
        let is_early = random.below(100) < percent;
        if is_early { (1 + random.below(self.early_epochs)) as i64 * EPOCH_MS } else { 0 }
    }
}

/// `ts`, `key`.
fn keys(how: &Variation) -> Table {
    let schema = TableSchema::new(vec![time_column(), long_column("key")]);
    let key = |n| Random::new(how.seed, STREAM_KEY, n).below(10_000) as i64;
    let batch = |numbers: std::ops::Range<u64>| {
        let ts = times(numbers.clone().map(|n| (n / how.records_per_ms) as i64));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.map(key)));
        RecordBatch::try_new(schema.arrow(), vec![ts, keys]).expect("columns fit")
    };
    let batches = batches_of(how.records).map(batch).collect();
    Table { name: "keys", schema, batches, delay_ms: 1 }
}

/// How records come in.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Sources end epochs at least every this many milliseconds of event time; else only where
    /// windows end.
    pub watermark_step_ms: Option<i64>,
    /// How many sources share the batches, each with a clock of its own (StreamBox §8 has one to
    /// three).
    pub sources: usize,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { watermark_step_ms: None, sources: 1 }
    }
}

/// The benchmark over these records as a graph.
///
/// # Errors
/// None, unless the table is of another benchmark.
pub fn graph(
    benchmark: Benchmark,
    records: &Table,
    reading: Reading,
    sink: impl Sink + 'static,
) -> Result<Graph> {
    let pipeline = Pipeline::new();
    let has_clock = records.schema.columns.iter().any(|column| column.name == CLOCK);
    let clock = if has_clock { CLOCK } else { "ts" };
    let sources = reading.sources.max(1);
    let read = |number: usize| {
        let batches = records.batches.iter().skip(number).step_by(sources).cloned().collect();
        let source = MemorySource::new(records.schema.clone(), batches);
        let rows = pipeline.read(records.name, source, records.schema.clone());
        rows.watermark_from("ts", clock, records.delay_ms)
    };
    let first = read(0)?;
    let others = (1..sources).map(read).collect::<Result<Vec<_>>>()?;
    let rows = if others.is_empty() { first } else { first.union(others)? };
    results(benchmark, rows)?.write("results", sink);
    let mut graph = pipeline.graph();
    if let Some(step_ms) = reading.watermark_step_ms {
        more_watermarks(&mut graph, step_ms);
    }
    Ok(graph)
}

fn results(benchmark: Benchmark, rows: Stream) -> Result<Stream> {
    match benchmark {
        Benchmark::WordCount => {
            let words = word_schema().arrow();
            rows.flat_map("split", word_schema(), move |batch| split(batch, &words))
                .window(Window::sliding(30_000, 1000), "ts")?
                .key_by(&["word"])?
                .aggregate(vec![count().named("n")])
        }
        Benchmark::Counts => rows
            .window(Window::sliding(10_000, 2000), "ts")?
            .key_by(&["key"])?
            .aggregate(vec![count().named("n")]),
        Benchmark::NetMon => rows
            .window(Window::tumbling(1000), "ts")?
            .key_by(&["src", "dst"])?
            .aggregate(vec![average("rtt_us").named("mean_us"), count().named("n")]),
    }
}

/// Lets the sources of a graph end epochs more often than windows end.
fn more_watermarks(graph: &mut Graph, step_ms: i64) {
    for stage in &mut graph.stages {
        if let StageKind::Source { assigner, .. } = &mut stage.kind
            && let Some(inner) = assigner.take()
        {
            let step = Grid { period_ms: step_ms, offset_ms: 0 };
            *assigner = Some(Box::new(MoreWatermarks { inner, step }));
        }
    }
}

/// An assigner that ends epochs at a grid of its own as well.
struct MoreWatermarks {
    inner: Box<dyn Assign>,
    step: Grid,
}

impl MoreWatermarks {
    fn has_crossed(&self, from: Watermark, to: Watermark) -> bool {
        to > from
            && to > Watermark::MIN
            && (from == Watermark::MIN || self.step.crossed(from.0 + 1, to.0 + 1))
    }
}

impl Assign for MoreWatermarks {
    fn assign(&mut self, batch: SourceBatch, before: Watermark, wall_ms: i64) -> Result<Assigned> {
        self.inner.assign(batch, before, wall_ms)
    }
    fn crosses(&self, from: Watermark, to: Watermark) -> bool {
        self.inner.crosses(from, to) || self.has_crossed(from, to)
    }
    fn row_times(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>> {
        self.inner.row_times(batch)
    }
    fn stamp_exactly(&mut self, _: ExactStamps) {
        // It does not know which times matter here.
        self.inner.stamp_exactly(ExactStamps::Everywhere);
    }
}
