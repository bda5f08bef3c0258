//! `linear-road`: the records at full speed, by number of workers.

use thalweg::pipeline::Pipeline;
use thalweg::rows::PackedRows;
use thalweg::{OrderContract, RunOptions};
use thalweg_workloads::linear_road::{
    Record, Traffic, TrafficSettings, pipeline, validate_serially,
};

use super::{COLUMNS, CommandResult, Measured};

/// Options of `linear-road`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    traffic: TrafficArguments,
    /// How many expressways.
    #[arg(long, default_value_t = 1)]
    expressways: usize,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Partitions of each operator.
    #[arg(long, default_value_t = 100)]
    partitions: usize,
    /// Measured runs of each variant, after one to warm up.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

/// What traffic to generate.
#[derive(clap::Args)]
pub struct TrafficArguments {
    /// `ci` (20 minutes), `hour`, or `full` (three hours).
    #[arg(long, default_value = "hour")]
    preset: String,
    /// Cars that enter an expressway per second, instead of the preset's.
    #[arg(long)]
    rate: Option<f64>,
    /// How long the run is, in seconds, instead of the preset's.
    #[arg(long)]
    pub seconds: Option<i64>,
}

impl TrafficArguments {
    /// The settings for this many expressways.
    pub fn settings(&self, expressways: usize) -> Result<TrafficSettings, String> {
        let preset = match self.preset.as_str() {
            "ci" => TrafficSettings::ci(),
            "hour" => TrafficSettings::full_hour(),
            "full" => TrafficSettings::full(),
            other => return Err(format!("'{other}' is no preset: ci, hour or full")),
        };
        let expressways = expressways.try_into().map_err(|_| "too many expressways")?;
        Ok(TrafficSettings {
            expressways,
            rate: self.rate.unwrap_or(preset.rate),
            seconds: self.seconds.unwrap_or(preset.seconds),
            ..preset
        })
    }
}

/// Runs the records.
pub fn run(arguments: &Arguments) -> CommandResult {
    let settings = arguments.traffic.settings(arguments.expressways)?;
    let records: Vec<Record> = Traffic::new(settings).collect();
    let expected = validate_serially(records.iter().copied());
    let input = PackedRows::timed(records, |record: &Record| record.time_s * 1000)?;
    println!("{} records, {} answers", input.len(), expected.len());
    let mut variants: Vec<(usize, Measured)> =
        arguments.workers.iter().map(|&workers| (workers, Measured::default())).collect();
    for repetition in 0..=arguments.repeat {
        for (workers, measured) in &mut variants {
            let job = Pipeline::new();
            let source = job.read_packed_rows("records", input.clone(), 0);
            let answers = pipeline::answers(source, arguments.partitions).collect("answers");
            let order = OrderContract::Arrival;
            let options = RunOptions { workers: *workers, order, ..RunOptions::default() };
            measured.run(input.len(), || job.run(options))?;
            if answers.rows() != expected {
                return Err(format!("{workers} workers: not the validator's answers").into());
            }
            if repetition == 0 {
                *measured = Measured::default();
            }
        }
    }
    println!("workers | {COLUMNS}");
    for (workers, measured) in &variants {
        println!("{workers:7} | {}", measured.line());
    }
    Ok(())
}
