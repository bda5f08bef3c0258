//! `viper`: `pos_rep` and `new_seg` over k injectors and n instances, merged in the channel or by
//! an operator of its own.

use std::collections::VecDeque;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thalweg::pipeline::Pipeline;
use thalweg::rows::{KeyContext, PackedRows, RowOperator, Rows};
use thalweg::{OrderContract, RunOptions};
use thalweg_workloads::linear_road::{
    Record, Traffic, TrafficSettings, new_segments, position_reports, viper_pipeline,
};
use thalweg_workloads::plot::{Figure, Series, write_figures};

use super::{COLUMNS, CommandResult, Measured, bars};

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
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// One point of the grid: injectors x instances, merged in the channel and by an operator.
struct Point {
    label: String,
    channel: Measured,
    operator: Measured,
}

/// Which operator runs.
#[derive(Clone, Copy, PartialEq)]
enum Query {
    PositionReports,
    NewSegments,
}

impl Query {
    fn name(self) -> &'static str {
        match self {
            Query::PositionReports => "pos_rep",
            Query::NewSegments => "new_seg",
        }
    }
}

/// Runs the grid.
pub fn run(arguments: &Arguments) -> CommandResult {
    let hour = TrafficSettings::full_hour();
    let settings = TrafficSettings { seconds: hour.seconds * arguments.hours, ..hour };
    let records: Vec<Record> = Traffic::new(settings).collect();
    println!("{} records; {}", records.len(), energy());
    println!("operator | injectors x instances | merge | {COLUMNS}");
    for query in [Query::PositionReports, Query::NewSegments] {
        let mut points = Vec::new();
        for &injectors in &arguments.injectors {
            for &instances in &arguments.instances {
                points.push(measure(arguments, query, &records, injectors, instances)?);
            }
        }
        if let Some(path) = &arguments.figures {
            write_figures(path, &figures(query, &points))?;
        }
    }
    Ok(())
}

fn figures(query: Query, points: &[Point]) -> Vec<Figure> {
    let figure = |name: &str, y: &str, of: &dyn Fn(&Measured) -> f64| {
        let series = |name: &str, pick: &dyn Fn(&Point) -> f64| {
            Series::over_names(name, points.iter().map(|point| (point.label.clone(), pick(point))))
        };
        let series = vec![
            series("merge in the channel", &|point| of(&point.channel)),
            series("merge operator", &|point| of(&point.operator)),
        ];
        let name = format!("viper-4-{}-{name}", query.name());
        let title = format!("{}: merge in the channel against a merge operator", query.name());
        bars(&name, &title, "Injectors x instances", y, series)
    };
    vec![
        figure("throughput", "Million rows per second", &Measured::wall),
        figure("latency", "Median time through the pipeline, ms", &Measured::latency_ms),
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
    query: Query,
    records: &[Record],
    injectors: usize,
    instances: usize,
) -> Result<Point, Box<dyn std::error::Error>> {
    let of_injector = |number: usize| -> Vec<Record> {
        records.iter().copied().skip(number).step_by(injectors).collect()
    };
    let inputs: Vec<Vec<Record>> = (0..injectors).map(of_injector).collect();
    let expected = expected(query, &inputs);
    let (mut channel, mut operator) = (Measured::default(), Measured::default());
    for repetition in 0..=arguments.repeat {
        for (measured, in_channel) in [(&mut channel, true), (&mut operator, false)] {
            let job = Pipeline::new();
            let merged = match in_channel {
                true => merged_in_channel(&job, &inputs)?,
                false => merged_by_operator(&job, &inputs)?,
            };
            let results = match query {
                Query::PositionReports => viper_pipeline::position_reports(merged),
                Query::NewSegments => viper_pipeline::new_segments(
                    viper_pipeline::position_reports(merged),
                    instances,
                ),
            };
            let results = results.collect("results");
            let order = if in_channel { OrderContract::EventTime } else { OrderContract::Arrival };
            let options = RunOptions { workers: arguments.workers, order, ..RunOptions::default() };
            measured.run(records.len(), || job.run(options))?;
            if results.rows() != expected {
                return Err(format!("{injectors} x {instances}: not the oracle's rows").into());
            }
            if repetition == 0 {
                *measured = Measured::default();
            }
        }
    }
    let name = query.name();
    for (merge, measured) in [("channel", &channel), ("operator", &operator)] {
        println!("{name:8} | {injectors} x {instances} | {merge:8} | {}", measured.line());
    }
    println!(
        "{name:8} | {injectors} x {instances} | ratio    | {:.2}",
        channel.wall() / operator.wall()
    );
    Ok(Point { label: format!("{injectors} x {instances}"), channel, operator })
}

/// The rows in order of (time, injector, position), through the operator.
fn expected(query: Query, inputs: &[Vec<Record>]) -> Vec<Record> {
    let mut merged: Vec<(i64, usize, Record)> = Vec::new();
    for (number, rows) in inputs.iter().enumerate() {
        merged.extend(rows.iter().map(|record| (record.time_s, number, *record)));
    }
    merged.sort_by_key(|&(time_s, number, _)| (time_s, number));
    let reports = position_reports(merged.into_iter().map(|(.., record)| record));
    if query == Query::PositionReports { reports } else { new_segments(reports) }
}

fn merged_in_channel(job: &Pipeline, inputs: &[Vec<Record>]) -> thalweg::Result<Rows<Record>> {
    let packed = inputs.iter().map(|rows| {
        PackedRows::timed(rows.iter().copied(), |record: &Record| record.time_s * 1000)
    });
    viper_pipeline::injected(job, packed.collect::<thalweg::Result<_>>()?)
}

/// Rows with the number of their injector.
type Injected = (usize, Record);

fn merged_by_operator(job: &Pipeline, inputs: &[Vec<Record>]) -> thalweg::Result<Rows<Record>> {
    let mut streams = Vec::new();
    for (number, rows) in inputs.iter().enumerate() {
        let rows = PackedRows::new(rows.iter().map(|&record| (number, record)))?;
        streams.push(job.read_packed_rows("injector", rows, 0));
    }
    let first = streams.remove(0);
    let rows = if streams.is_empty() { first } else { first.union(streams)? };
    Ok(rows.process_alone("merge", MergeOperator { injectors: inputs.len() }))
}

/// A merge-sort operator as stream engines put it in front of an operator that needs order.
struct MergeOperator {
    injectors: usize,
}

/// Rows that wait, by injector.
#[derive(Default, Serialize, Deserialize)]
struct Waiting(Vec<VecDeque<Record>>);

impl Waiting {
    /// The injector whose first row is the least.
    fn least(&self) -> Option<usize> {
        let heads =
            self.0.iter().enumerate().filter_map(|(n, rows)| Some((rows.front()?.time_s, n)));
        heads.min().map(|(_, injector)| injector)
    }
}

impl RowOperator<(), Injected> for MergeOperator {
    type State = Waiting;
    type Out = Record;

    fn row(
        &self,
        _: &(),
        waiting: &mut Waiting,
        (injector, record): Injected,
        context: &mut KeyContext<Record>,
    ) {
        if waiting.0.is_empty() {
            waiting.0.resize_with(self.injectors, VecDeque::new);
            context.set_timer_at_end();
        }
        waiting.0[injector].push_back(record);
        while waiting.0.iter().all(|rows| !rows.is_empty()) {
            let least = waiting.least().expect("all have rows");
            context.emit(waiting.0[least].pop_front().expect("it has rows"));
        }
    }

    fn timer(&self, _: &(), waiting: &mut Waiting, _: i64, context: &mut KeyContext<Record>) {
        while let Some(least) = waiting.least() {
            context.emit(waiting.0[least].pop_front().expect("it has rows"));
        }
    }
}
