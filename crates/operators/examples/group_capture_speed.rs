//! What captures cost a GROUP BY with many keys: how long the job stands still for one, how much
//! slower rows are taken while it is read, and how long another thread reads.
//!
//! Run with
//! `cargo run --release -p thalweg-operators --example group_capture_speed [keys [updates]]`. By
//! default 10 million keys with a count and a sum; between two captures come a million updates of
//! random keys. It needs two cores that do nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_core::bundle::batch_bytes;
use thalweg_core::shim::{SplitMix64, SystemClock, mix64};
use thalweg_core::snapshot::CapturedTable;
use thalweg_core::{
    Bundle, Column, DataType, Error, Extent, Operator, Output, Partition, PartitionContext, Piece,
    Stamps, TableSchema,
};
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::group::{GroupAggregate, GroupSpec};

const ROWS: usize = 8192;
const ROUNDS: usize = 9;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let keys = arguments.next().unwrap_or(10_000_000);
    let updates = arguments.next().unwrap_or(1_000_000) as usize;
    let mut job = Job::new(keys)?;
    println!("{keys} keys, {updates} updates a round, {} MB of state", job.state_megabytes());
    let without = job.rounds("without captures", updates, None)?;
    job.round("while all of it is read", updates, Some(Extent::Full))?;
    let tracked = job.rounds("with changes noted, no captures", updates, None)?;
    let with = job.rounds("with a capture of changes each", updates, Some(Extent::Incremental))?;
    let slower = |time: Duration| (time.as_secs_f64() / without.as_secs_f64() - 1.0) * 100.0;
    println!(
        "noting changes costs {:.1} %, captures of changes {:.1} %",
        slower(tracked),
        slower(with)
    );
    Ok(())
}

struct Job {
    partition: Box<dyn Partition>,
    clock: Arc<SystemClock>,
    random: SplitMix64,
    keys: u64,
}

/// What a capture came to.
#[derive(Default)]
struct Read {
    took: Duration,
    rows: usize,
    bytes: usize,
}

impl Job {
    fn new(keys: u64) -> Result<Self, Error> {
        let operator = GroupAggregate::new(GroupSpec {
            keys: vec![0],
            calls: vec![call("COUNT", None), call("SUM", Some(1))],
            input: input(),
            retracts: false,
            state_ttl_ms: None,
            mini_batch: false,
        })?;
        let partition = operator.open(PartitionContext::only())?;
        let clock = Arc::new(SystemClock::new());
        let mut job = Job { partition, clock, random: SplitMix64::new(1), keys };
        let mut first = 0;
        while first < keys {
            let last = keys.min(first + ROWS as u64);
            job.take(&bundle(first..last)?)?;
            first = last;
        }
        Ok(job)
    }

    fn state_megabytes(&self) -> usize {
        self.partition.state_bytes() / 1_000_000
    }

    fn take(&mut self, bundle: &Bundle) -> Result<(), Error> {
        let mut output = Output::new(Arc::clone(&self.clock) as _, u64::MAX);
        self.partition.rows(Piece::whole(bundle, 1), &mut output)?;
        std::hint::black_box(&output.emitted);
        Ok(())
    }

    /// The middle of the times of several rounds.
    fn rounds(
        &mut self,
        what: &str,
        updates: usize,
        extent: Option<Extent>,
    ) -> Result<Duration, Error> {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(self.round(what, updates, extent)?);
        }
        times.sort_unstable();
        Ok(times[ROUNDS / 2])
    }

    /// Takes a capture, and then rows while another thread reads it. How long the rows took.
    fn round(
        &mut self,
        what: &str,
        updates: usize,
        extent: Option<Extent>,
    ) -> Result<Duration, Error> {
        let bundles: Vec<Bundle> = (0..updates.div_ceil(ROWS))
            .map(|_| bundle((0..ROWS).map(|_| self.random.below(self.keys)).collect::<Vec<_>>()))
            .collect::<Result<_, _>>()?;
        let start = Instant::now();
        let captured = extent.map(|extent| self.partition.capture(extent)).transpose()?;
        let pause = start.elapsed();
        let tables = captured.map_or_else(Vec::new, |captured| captured.tables);
        let (took, read) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || read(tables));
            let start = Instant::now();
            let taken = bundles.iter().try_for_each(|bundle| self.take(bundle));
            let took = start.elapsed();
            (taken.map(|()| took), reader.join().expect("a reader without panics"))
        });
        let (took, read) = (took?, read?);
        let speed = updates as f64 / took.as_secs_f64() / 1e6;
        let Read { took: reading, rows, bytes } = read;
        let (pause, megabytes) = (pause.as_secs_f64() * 1e6, bytes as f64 / 1e6);
        println!(
            "{what:34} {speed:6.2} M updates/s; stood still {pause:7.0} µs; \
             {rows:9} rows, {megabytes:6.1} MB read in {reading:?}"
        );
        Ok(took)
    }
}

fn read(tables: Vec<CapturedTable>) -> Result<Read, Error> {
    let start = Instant::now();
    let mut read = Read::default();
    for table in tables {
        let captured = (table.rows)()?;
        read.rows += captured.rows.iter().map(RecordBatch::num_rows).sum::<usize>();
        read.bytes += captured.rows.iter().map(batch_bytes).sum::<usize>();
    }
    read.took = start.elapsed();
    Ok(read)
}

fn input() -> TableSchema {
    let column = |name: &str| Column::new(name, DataType::BigInt.nullable());
    TableSchema::new(vec![column("key"), column("value")])
}

fn call(name: &str, argument: Option<usize>) -> AggregateCall {
    let types: Vec<_> =
        argument.iter().map(|&at| input().columns[at].column_type.clone()).collect();
    let (function, result) = resolve(name, false, &types).expect("a known aggregate");
    let name = name.to_lowercase();
    AggregateCall { function, argument, distinct: false, filter: None, result, name }
}

/// A row for each of these keys, which are mixed: structured ones flatter a hash table.
fn bundle(keys: impl IntoIterator<Item = u64>) -> Result<Bundle, Error> {
    let keys: Vec<i64> = keys.into_iter().map(|key| mix64(key) as i64).collect();
    let values = Int64Array::from_iter_values(keys.iter().map(|key| key & 1023));
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys)), Arc::new(values)];
    Ok(Bundle::new(RecordBatch::try_new(input().arrow(), columns)?, Stamps::first()))
}
