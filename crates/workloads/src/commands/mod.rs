//! One module per command, and what they measure with.

pub mod ablations;
pub mod linear_road;
mod paced;
pub mod partitioning;
pub mod rating;
pub mod schedulers;
pub mod streambox;
mod totals;
pub mod tpcx_bb;
pub mod viper;
pub mod virtual_cores;

use std::time::Instant;

use cpu_time::ProcessTime;
use thalweg::Report;
use thalweg_workloads::plot::{Figure, Kind, Scale, Series};

/// What a command returns.
pub type CommandResult = Result<(), Box<dyn std::error::Error>>;

/// Runs of one variant.
#[derive(Default)]
pub struct Measured {
    /// Million input rows per second of wall time.
    wall: Vec<f64>,
    /// The same per second of process CPU time.
    cpu: Vec<f64>,
    /// How long the median element took through the pipeline, in milliseconds.
    latency_ms: Vec<f64>,
    /// The same for the slowest in ten thousand.
    latency_p9999_ms: Vec<f64>,
}

impl Measured {
    /// Runs a job over this many rows and adds what it took.
    pub fn run(
        &mut self,
        rows: usize,
        job: impl FnOnce() -> thalweg::Result<Report>,
    ) -> thalweg::Result<()> {
        let report = self.time(rows, job)?;
        if let Some(latency) = report.passage {
            self.latency_ms.push(latency.p50_us as f64 / 1000.0);
            self.latency_p9999_ms.push(latency.p9999_us as f64 / 1000.0);
        }
        Ok(())
    }

    /// Runs anything over this many rows and adds what it took.
    pub fn time<T>(&mut self, rows: usize, work: impl FnOnce() -> T) -> T {
        let (wall, cpu) = (Instant::now(), ProcessTime::now());
        let result = work();
        let millions = rows as f64 / 1e6;
        self.wall.push(millions / wall.elapsed().as_secs_f64());
        self.cpu.push(millions / cpu.elapsed().as_secs_f64());
        result
    }

    /// Median million rows per second of wall time.
    pub fn wall(&self) -> f64 {
        median(&self.wall)
    }

    /// Median million rows per second of process CPU time.
    pub fn cpu(&self) -> f64 {
        median(&self.cpu)
    }

    /// The smallest and the largest million rows per second of process CPU time.
    pub fn cpu_spread(&self) -> (f64, f64) {
        spread(&self.cpu)
    }

    /// The median of the median latency, in milliseconds.
    pub fn latency_ms(&self) -> f64 {
        median(&self.latency_ms)
    }

    /// The rate with its spread.
    pub fn rate(&self) -> String {
        let (low, high) = spread(&self.wall);
        format!("{:8.3} M/s ({low:.3} to {high:.3})", self.wall())
    }

    /// A line of a table: rates with their spread, and latencies.
    pub fn line(&self) -> String {
        format!(
            "{} | {:8.3} M per CPU s | {:8.2} ms | {:8.2} ms",
            self.rate(),
            self.cpu(),
            self.latency_ms(),
            median(&self.latency_p9999_ms)
        )
    }
}

/// What the columns of [`Measured::line`] are.
pub const COLUMNS: &str =
    "rows per wall second | per second of CPU | median latency | 99.99 % are faster than";

/// What a figure says of how it was made: the arguments of this run.
pub fn arguments_of_run() -> String {
    std::env::args().skip(1).collect::<Vec<_>>().join(" ")
}

/// A figure of bars, by name.
pub fn bars(name: &str, title: &str, x: &str, y: &str, series: Vec<Series>) -> Figure {
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        x_scale: Scale::Names,
        y_scale: Scale::Linear,
        kind: Kind::Bars,
        series,
        note: format!("medians; {}", arguments_of_run()),
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(low, high), &v| (v.min(low), v.max(high)))
}
