//! `viper`: Viper's Fig. 4. `pos_rep` and `new_seg` over k injectors and n instances, merged in the
//! channel or by an operator in front of each instance.
//!
//! Each point is measured in turn with each variant: throughput from memory at full speed, and
//! latency at half the throughput of the slowest variant. Machines that do not meter their energy
//! leave processor time per row as a stand-in for it.

mod latency;

use std::path::PathBuf;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{PackedRows, Rows};
use thalweg::{OrderContract, RunOptions};
use thalweg_workloads::linear_road::viper_pipeline::{self, Merge, Query, virtual_partition};
use thalweg_workloads::linear_road::{
    Record, Traffic, TrafficSettings, new_segments, position_reports,
};
use thalweg_workloads::plot::{Figure, Series, write_figures};

use super::paced::Latency;
use super::{CommandResult, Measured, bars};

/// Rows of an injector that come in turn with those of the others, where the channel does not sort
/// them by their time.
const RUN: usize = 2048;

/// Options of `viper`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers of injectors.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    injectors: Vec<usize>,
    /// Numbers of instances.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    instances: Vec<usize>,
    /// Number of workers.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Hours of one expressway to run.
    #[arg(long, default_value_t = 1)]
    hours: i64,
    /// Measured runs of each variant, after one to warm up.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// The length of a run that measures latency, in seconds.
    #[arg(long, default_value_t = 3.0)]
    latency_seconds: f64,
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// Where rows are merged, and the contract of the job.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Channel,
    /// In the contract of the channel. The rows' stamps say whose turn it is, by runs, so the
    /// channel has next to nothing to merge.
    OperatorsByTurns,
    /// In the contract that costs least.
    OperatorsInEpoch,
}

const VARIANTS: [Variant; 3] =
    [Variant::Channel, Variant::OperatorsByTurns, Variant::OperatorsInEpoch];

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Channel => "channel, event_time",
            Variant::OperatorsByTurns => "operators, event_time",
            Variant::OperatorsInEpoch => "operators, epoch",
        }
    }

    fn merge(self) -> Merge {
        match self {
            Variant::Channel => Merge::Channel,
            Variant::OperatorsByTurns | Variant::OperatorsInEpoch => Merge::Operators,
        }
    }

    fn options(self, workers: usize) -> RunOptions {
        let order = match self {
            Variant::Channel | Variant::OperatorsByTurns => OrderContract::EventTime,
            Variant::OperatorsInEpoch => OrderContract::Epoch,
        };
        RunOptions { workers, order, ..RunOptions::default() }
    }

    /// The rows of one injector, stamped with what the channel sorts by.
    fn packed(self, rows: &[Record], injectors: usize) -> thalweg::Result<PackedRows<Record>> {
        let rows = rows.iter().copied();
        match self {
            Variant::OperatorsByTurns => PackedRows::timed(rows, move |record| {
                (record.position as usize / (RUN * injectors)) as i64
            }),
            _ => PackedRows::timed(rows, |record| record.time_s * 1000),
        }
    }
}

/// A point of the grid.
#[derive(Clone, Copy)]
struct Shape {
    query: Query,
    injectors: usize,
    instances: usize,
    workers: usize,
}

impl Shape {
    fn label(&self) -> String {
        format!("{} x {}", self.injectors, self.instances)
    }
}

/// What came of one variant at a point.
struct Outcome {
    throughput: Measured,
    /// Not of [`Variant::OperatorsByTurns`], whose rows have to wait for their turn.
    latency: Option<Latency>,
}

impl Outcome {
    /// Processor time of a row, in nanoseconds.
    fn cpu_ns(&self) -> f64 {
        1000.0 / self.throughput.cpu()
    }
}

/// One point of the grid, by variant.
struct Point {
    label: String,
    outcomes: [Outcome; 3],
}

/// Runs the grid.
pub fn run(arguments: &Arguments) -> CommandResult {
    let hour = TrafficSettings::full_hour();
    let settings = TrafficSettings { seconds: hour.seconds * arguments.hours, ..hour };
    let records: Vec<Record> = numbered(Traffic::new(settings));
    println!("{} records; {}", records.len(), energy());
    println!(
        "operator | injectors x instances | merge | rows per wall second | processor time per row \
         | latency p50, p99 at half of the slowest's throughput"
    );
    for query in [Query::PositionReports, Query::NewSegments] {
        let mut points = Vec::new();
        for &injectors in &arguments.injectors {
            for &instances in &arguments.instances {
                let shape = Shape { query, injectors, instances, workers: arguments.workers };
                points.push(measure(arguments, shape, &records)?);
            }
        }
        if let Some(path) = &arguments.figures {
            write_figures(path, &figures(query, &points))?;
        }
    }
    Ok(())
}

/// The records with their number where the position on the road stood, which neither operator looks
/// at: it says when a record was due.
fn numbered(traffic: Traffic) -> Vec<Record> {
    let number = |(number, record): (usize, Record)| Record { position: number as i32, ..record };
    traffic.enumerate().map(number).collect()
}

fn name_of(query: Query) -> &'static str {
    match query {
        Query::PositionReports => "pos_rep",
        Query::NewSegments => "new_seg",
    }
}

fn figures(query: Query, points: &[Point]) -> Vec<Figure> {
    let figure = |name: &str, y: &str, of: &dyn Fn(&Outcome) -> Option<f64>| {
        let series = |(place, variant): (usize, &Variant)| {
            let value = |point: &Point| Some((point.label.clone(), of(&point.outcomes[place])?));
            Series::over_names(variant.name(), points.iter().filter_map(value))
        };
        let series = VARIANTS.iter().enumerate().map(series).filter(|one| !one.points.is_empty());
        let name = format!("viper-4-{}-{name}", name_of(query));
        let title = format!("{}: merge in the channel against merge operators", name_of(query));
        bars(&name, &title, "Injectors x instances", y, series.collect())
    };
    vec![
        figure("throughput", "Million rows per second", &|of| Some(of.throughput.wall())),
        figure("processor-time", "Processor time per row, ns", &|of| Some(of.cpu_ns())),
        figure("latency", "Median latency, ms", &|of| Some(of.latency.as_ref()?.ms(0.5))),
    ]
}

/// Whether the machine reports its energy.
fn energy() -> String {
    let counter = "/sys/class/powercap/intel-rapl:0/energy_uj";
    match std::fs::read_to_string(counter) {
        Ok(_) => format!("energy can be read from {counter}"),
        Err(_) => "the machine does not report its energy (no RAPL counter)".to_owned(),
    }
}

fn measure(
    arguments: &Arguments,
    shape: Shape,
    records: &[Record],
) -> Result<Point, Box<dyn std::error::Error>> {
    let of_injector = |number: usize| -> Vec<Record> {
        records.iter().copied().skip(number).step_by(shape.injectors).collect()
    };
    let inputs: Vec<Vec<Record>> = (0..shape.injectors).map(of_injector).collect();
    let expected = expected(shape.query, &inputs);
    let throughput = throughput(arguments.repeat, shape, &inputs, &expected)?;
    let slowest = throughput.iter().map(Measured::wall).fold(f64::INFINITY, f64::min);
    let rows_per_second = slowest * 1e6 / 2.0;
    let rows = rows_per_second * arguments.latency_seconds;
    let first = latency::first(&inputs, rows as usize);
    let mut latencies = [const { None }; 3];
    for repetition in 0..arguments.repeat {
        for (variant, latency) in VARIANTS.into_iter().zip(&mut latencies) {
            if variant != Variant::OperatorsByTurns {
                let measured = latency::run(variant, shape, first.clone(), rows_per_second)?;
                match repetition {
                    0 => *latency = Some(measured),
                    _ => latency.as_mut().expect("of the first repetition").add(&measured),
                }
            }
        }
    }
    let mut latencies = latencies.into_iter();
    let outcomes =
        throughput.map(|throughput| Outcome { throughput, latency: latencies.next().flatten() });
    let point = Point { label: shape.label(), outcomes };
    print(shape.query, &point);
    Ok(point)
}

fn print(query: Query, point: &Point) {
    for (variant, outcome) in VARIANTS.into_iter().zip(&point.outcomes) {
        let latency = outcome.latency.as_ref().map_or(String::new(), Latency::line);
        println!(
            "{} | {} | {:21} | {} | {:.0} ns | {latency}",
            name_of(query),
            point.label,
            variant.name(),
            outcome.throughput.rate(),
            outcome.cpu_ns(),
        );
    }
}

/// Runs at full speed, the variants in turn.
fn throughput(
    repeat: usize,
    shape: Shape,
    inputs: &[Vec<Record>],
    expected: &[Record],
) -> Result<[Measured; 3], Box<dyn std::error::Error>> {
    let mut all: [Measured; 3] = Default::default();
    let rows = inputs.iter().map(Vec::len).sum();
    for repetition in 0..=repeat {
        for (variant, measured) in VARIANTS.into_iter().zip(&mut all) {
            let job = Pipeline::new();
            let injectors: Vec<Rows<Record>> = inputs
                .iter()
                .map(|rows| {
                    let rows = variant.packed(rows, inputs.len())?;
                    Ok(job.read_packed_rows("injector", rows, 0))
                })
                .collect::<thalweg::Result<_>>()?;
            let results = forwarded(&job, injectors, variant, shape)?.collect("results");
            measured.run(rows, || job.run(variant.options(shape.workers)))?;
            check(results.rows(), expected, variant, shape)?;
            if repetition == 0 {
                *measured = Measured::default();
            }
        }
    }
    Ok(all)
}

fn forwarded(
    job: &Pipeline,
    injectors: Vec<Rows<Record>>,
    variant: Variant,
    shape: Shape,
) -> thalweg::Result<Rows<Record>> {
    viper_pipeline::forwarded(job, injectors, variant.merge(), shape.query, shape.instances)
}

/// The channel gives the oracle's sequence; with merge operators each instance gives its own.
fn check(
    mut results: Vec<Record>,
    expected: &[Record],
    variant: Variant,
    shape: Shape,
) -> Result<(), String> {
    let instance = |record: &Record| virtual_partition(record.vehicle, shape.instances);
    let mut expected = expected.to_vec();
    if variant.merge() == Merge::Operators {
        results.sort_by_key(instance);
        expected.sort_by_key(instance);
    }
    match results == expected {
        true => Ok(()),
        false => Err(format!("{}, {}: not the oracle's rows", shape.label(), variant.name())),
    }
}

/// The rows in order of (time, injector, position), through the operator.
fn expected(query: Query, inputs: &[Vec<Record>]) -> Vec<Record> {
    let mut merged: Vec<(i64, usize, Record)> = Vec::new();
    for (number, rows) in inputs.iter().enumerate() {
        merged.extend(rows.iter().map(|record| (record.time_s, number, *record)));
    }
    merged.sort_by_key(|&(time_s, number, _)| (time_s, number));
    let reports = position_reports(merged.into_iter().map(|(.., record)| record));
    match query {
        Query::PositionReports => reports,
        Query::NewSegments => new_segments(reports),
    }
}
