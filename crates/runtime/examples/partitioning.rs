//! Latency and throughput of one partitioned operator in contract `arrival`, by the scheme in which
//! workers find its partitions (Prasaad et al. §7.2, within the engine): 100 partitions, 20 us for
//! a row, 2 workers, bundles of 10 rows, keys uniform or of a normal distribution.
//!
//! ```text
//! cargo run --release -p thalweg-runtime --example partitioning [-- REPEAT [COST_US [BUNDLE_ROWS [full]]]]
//! ```
//! Schemes alternate in one process, after one run of each to warm up. `full` leaves out half load,
//! at which a row's latency counts from the moment at which it is due, so time before the source is
//! asked counts too. Every run checks the order of its results.

use std::hint::spin_loop;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use thalweg_core::connector::Waker;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::shim::SplitMix64;
use thalweg_core::{
    Bundle, Operator, OperatorClass, OrderContract, Output, Partition, PartitionContext, Piece,
    Place, Progress, Result, Route, RowKind, Sink, Source, SourceBatch, SourcePoll,
};
use thalweg_runtime::{PartitionScheme, RunOptions, start};

const PARTITIONS: usize = 100;
const WORKERS: usize = 2;

/// What an experiment varies.
#[derive(Clone, Copy)]
struct Load {
    rows: usize,
    bundle_rows: usize,
    cost: Duration,
    /// Deviation of the keys, of which [-1, 1] is spread over the partitions.
    sigma: Option<f64>,
    /// Time from row to row; none at full load.
    pause: Option<Duration>,
}

fn batch(rows: &[[i64; 3]]) -> RecordBatch {
    let column = |n: usize| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row[n])))
    };
    let fields = ["serial", "due_ns", "partition"].map(|n| Field::new(n, DataType::Int64, false));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    RecordBatch::try_new(schema, (0..3).map(column).collect()).expect("columns fit")
}

fn values(batch: &RecordBatch, column: usize) -> &[i64] {
    batch.column(column).as_primitive::<Int64Type>().values()
}

struct Rows {
    load: Load,
    began: Instant,
    sent: usize,
    random: SplitMix64,
}

impl Rows {
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn partition(&mut self) -> i64 {
        let Some(sigma) = self.load.sigma else {
            return (self.uniform() * PARTITIONS as f64) as i64;
        };
        loop {
            // Box and Muller; keys outside are drawn again.
            let (radius, angle) = (self.uniform().max(1e-12), self.uniform());
            let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
            let key = normal * sigma;
            if key.abs() < 1.0 {
                return ((key + 1.0) / 2.0 * PARTITIONS as f64) as i64;
            }
        }
    }
}

impl Source for Rows {
    fn name(&self) -> String {
        "rows".into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.began = Instant::now();
        let load = self.load;
        if let Some(pause) = load.pause {
            // Longer than the run: a worker that is late still finds the source ready.
            let until = self.began + 2 * pause * load.rows as u32 + Duration::from_secs(1);
            thread::spawn(move || {
                while Instant::now() < until {
                    thread::sleep(Duration::from_micros(50));
                    waker();
                }
            });
        }
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let count = self.load.bundle_rows.min(rows_max).min(self.load.rows - self.sent);
        if count == 0 {
            return Ok(SourcePoll::End);
        }
        let now_ns = self.began.elapsed().as_nanos() as i64;
        let due_ns = self
            .load
            .pause
            .map_or(now_ns, |pause| (pause * (self.sent + count) as u32).as_nanos() as i64);
        if due_ns > now_ns {
            return Ok(SourcePoll::Pending);
        }
        let first = self.sent;
        self.sent += count;
        let row = |serial| [serial as i64, due_ns, self.partition()];
        let rows: Vec<_> = (first..first + count).map(row).collect();
        Ok(SourcePoll::Batch(SourceBatch::new(batch(&rows))))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// Spins for every row and gives it on.
struct Busy(Duration);

impl Operator for Busy {
    fn name(&self) -> String {
        "busy".into()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    fn partitions(&self) -> Option<usize> {
        Some(PARTITIONS)
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Grids(Vec::new())
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut parts = vec![Vec::new(); partitions];
        for (row, &partition) in values(&bundle.batch, 2).iter().enumerate() {
            parts[partition as usize].push(row as u32);
        }
        Ok(Route::Scatter(parts))
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(Busy(self.0)))
    }
}

impl Partition for Busy {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let batch_of = &piece.bundle.batch;
        let all: Vec<u32> = (0..batch_of.num_rows() as u32).collect();
        let causes = piece.rows.unwrap_or(&all).to_vec();
        let mut rows = Vec::with_capacity(causes.len());
        for &row in &causes {
            let began = Instant::now();
            while began.elapsed() < self.0 {
                spin_loop();
            }
            rows.push([0, 1, 2].map(|column| values(batch_of, column)[row as usize]));
        }
        output.emit_at(batch(&rows), Place::Caused(causes));
        Ok(())
    }
    fn watermark(&mut self, _: &WatermarkCall<'_>, _: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }
    fn state_bytes(&self) -> usize {
        0
    }
}

/// When results have left, after they were due.
#[derive(Clone)]
struct Latencies {
    began: Instant,
    of_rows_ns: Arc<Mutex<Vec<i64>>>,
}

impl Sink for Latencies {
    fn name(&self) -> String {
        "latencies".into()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        let now_ns = self.began.elapsed().as_nanos() as i64;
        let mut of_rows = self.of_rows_ns.lock().expect("no panic");
        for (&serial, due_ns) in values(batch, 0).iter().zip(values(batch, 1)) {
            assert_eq!(serial, of_rows.len() as i64, "in order");
            of_rows.push(now_ns - due_ns);
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

/// Thousand rows per second; mean, median and 99th percentile of the latency in ms.
fn run(load: Load, partitioning: PartitionScheme, seed: u64) -> [f64; 4] {
    let began = Instant::now();
    let sink = Latencies { began, of_rows_ns: Arc::default() };
    let mut graph = Graph::default();
    let source = Box::new(Rows { load, began, sent: 0, random: SplitMix64::new(seed) });
    let kind = StageKind::Source { source, assigner: None };
    let source = graph.add("source", "source", kind, vec![]);
    let input = |from| vec![Input { from, port: 0 }];
    let kind = StageKind::Operator(Arc::new(Busy(load.cost)));
    let busy = graph.add("busy", "busy", kind, input(source));
    graph.add("sink", "sink", StageKind::Sink(Box::new(sink.clone())), input(busy));
    let options = RunOptions {
        workers: WORKERS,
        pin_workers: false,
        order: OrderContract::Arrival,
        partitioning,
        partitions_max: Some(256),
        bundle_rows_max: load.bundle_rows,
        bundle_linger: Duration::ZERO,
        ..RunOptions::default()
    };
    let report = start(graph, options).and_then(|job| job.wait()).expect("the job runs");
    let mut of_rows = std::mem::take(&mut *sink.of_rows_ns.lock().expect("no panic"));
    assert_eq!(of_rows.len(), load.rows, "every row has left");
    of_rows.sort_unstable();
    let mean = of_rows.iter().sum::<i64>() as f64 / load.rows as f64;
    let quantile = |quantile: f64| of_rows[(load.rows as f64 * quantile) as usize] as f64;
    let thousands = load.rows as f64 / 1e3 / report.elapsed.as_secs_f64();
    [thousands, mean / 1e6, quantile(0.5) / 1e6, quantile(0.99) / 1e6]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let argument = |place: usize, otherwise: usize| {
        let text = std::env::args().nth(place);
        text.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (repeat, cost_us, bundle_rows) = (argument(1, 5), argument(2, 20), argument(3, 10));
    let cost = Duration::from_micros(cost_us as u64);
    let rows = (1_000_000 / (cost_us + 5)).max(1000);
    println!("load, keys | scheme | thousand/s | latency mean, median, 99 % (ms)");
    // At half load each worker is busy half of the time.
    let mut loads = vec![("full", None), ("half", Some(cost))];
    if std::env::args().nth(4).is_some_and(|only| only == "full") {
        loads.truncate(1);
    }
    let distributions = [("sigma 0.05", Some(0.05)), ("sigma 0.2", Some(0.2)), ("uniform", None)];
    for (load_name, pause) in loads {
        for (keys, sigma) in distributions {
            let load = Load { rows, bundle_rows, cost, sigma, pause };
            let mut measured = vec![Vec::new(); PartitionScheme::NAMES.len()];
            for repetition in 0..=repeat {
                for (name, runs) in PartitionScheme::NAMES.iter().zip(&mut measured) {
                    let scheme = name.parse().expect("a scheme");
                    let outcome = run(load, scheme, repetition as u64);
                    if repetition > 0 {
                        runs.push(outcome);
                    }
                }
            }
            for (name, runs) in PartitionScheme::NAMES.iter().zip(measured) {
                let of = |n: usize| median(runs.iter().map(|run: &[f64; 4]| run[n]).collect());
                println!(
                    "{load_name}, {keys:10} | {name:11} | {:7.1} | {:7.3} {:7.3} {:7.3}",
                    of(0),
                    of(1),
                    of(2),
                    of(3)
                );
            }
        }
    }
}
