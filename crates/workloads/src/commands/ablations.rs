//! `ablations`: StreamBox's decisions removed one at a time (figures 9 and 10, §9.2), watermark
//! rates (figure 11) and records that come early (figure 7). Variants alternate, and all of a
//! benchmark with the same records must give the same results.

use std::path::PathBuf;

use thalweg_runtime::{Ablation, RunOptions, start};
use thalweg_workloads::plot::{Figure, Series, write_figures};
use thalweg_workloads::streambox::Table;
use thalweg_workloads::streambox::pipelines::{
    Benchmark, DESIGNS, EARLY_PERCENT, EPOCHS, Reading, Variation, graph, table,
};

use super::totals::Totals;
use super::{CommandResult, Measured, bars};

/// Options of `ablations`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which: wordcount, counts, netmon.
    #[arg(long, value_delimiter = ',')]
    benchmarks: Vec<String>,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Million records of each run.
    #[arg(long, default_value_t = 4)]
    millions: u64,
    /// Measured runs of each variant, after one to warm up.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// A variant and what was measured of it.
struct Variant<'a> {
    name: String,
    benchmark: Benchmark,
    records: &'a Table,
    watermark_step_ms: Option<i64>,
    ablation: Ablation,
    workers: usize,
    measured: Measured,
    latencies_ms: Vec<(f64, f64)>,
    sum: Option<u64>,
}

impl Variant<'_> {
    fn run(&mut self, is_warm_up: bool) -> CommandResult {
        let totals = Totals::of(self.benchmark.checked());
        let reading = Reading { watermark_step_ms: self.watermark_step_ms, ..Reading::default() };
        let graph = graph(self.benchmark, self.records, reading, totals.clone())?;
        let Variant { workers, ablation, .. } = *self;
        let options = RunOptions { workers, ablation, ..RunOptions::default() };
        let rows = self.records.num_rows();
        let report = self.measured.time(rows, || start(graph, options)?.wait())?;
        if is_warm_up {
            self.measured = Measured::default();
        } else if let Some(latency) = report.latency {
            let of = |us: u64| us as f64 / 1000.0;
            self.latencies_ms.push((of(latency.p50_us), of(latency.p99_us)));
        }
        let sum = totals.sum();
        match self.sum.replace(sum) {
            Some(before) if before != sum => {
                Err(format!("{}: {before}, then {sum}", self.name).into())
            }
            _ => Ok(()),
        }
    }

    fn latency_ms(&self) -> (f64, f64) {
        let middle = |of: fn(&(f64, f64)) -> f64| {
            super::median(&self.latencies_ms.iter().map(of).collect::<Vec<_>>())
        };
        (middle(|latency| latency.0), middle(|latency| latency.1))
    }
}

/// Measures everything.
pub fn run(arguments: &Arguments) -> CommandResult {
    println!(
        "benchmark | variant | workers | million records per second: wall, CPU | latency of results, ms: \
         median, 99 % | to the first variant"
    );
    let mut figures = Vec::new();
    for benchmark in Benchmark::of_names(&arguments.benchmarks) {
        let how = Variation::with_records(1_000_000, arguments.millions);
        let plain = table(benchmark, &how);
        let tables = EARLY_PERCENT
            .map(|percent| table(benchmark, &Variation { early_percent: Some(percent), ..how }));
        let groups = groups(benchmark, (&plain, &tables), &arguments.workers);
        for (number, title, mut variants) in groups {
            measure(arguments, &mut variants)?;
            let name = benchmark.name();
            let title = format!("{name}: {title}");
            figures.push(figure(&format!("streambox-{number}-{name}"), &title, &variants));
        }
    }
    match &arguments.figures {
        Some(path) => Ok(write_figures(path, &figures)?),
        None => Ok(()),
    }
}

/// The variants of a benchmark, by the paper's figures.
fn groups<'a>(
    benchmark: Benchmark,
    (plain, tables): (&'a Table, &'a [Table; 3]),
    workers: &[usize],
) -> [(&'static str, &'static str, Vec<Variant<'a>>); 3] {
    let variant = |name: &str, workers| Variant {
        name: name.to_owned(),
        benchmark,
        records: plain,
        watermark_step_ms: None,
        ablation: Ablation::Nothing,
        workers,
        measured: Measured::default(),
        latencies_ms: Vec::new(),
        sum: None,
    };
    let (mut designs, mut rates, mut early) = (Vec::new(), Vec::new(), Vec::new());
    for &workers in workers {
        let of = |(name, ablation)| Variant { ablation, ..variant(name, workers) };
        designs.extend(DESIGNS.map(of));
        let of = |(name, step)| Variant { watermark_step_ms: step, ..variant(name, workers) };
        rates.extend(EPOCHS.map(of));
        for (percent, records) in EARLY_PERCENT.into_iter().zip(tables) {
            early.push(Variant { records, ..variant(&format!("{percent} %"), workers) });
        }
    }
    [
        ("9-10", "decisions removed", designs),
        ("11", "records in an epoch", rates),
        ("7", "records that come early", early),
    ]
}

/// Runs variants alternating and prints what they took.
fn measure(arguments: &Arguments, variants: &mut [Variant<'_>]) -> CommandResult {
    for repetition in 0..=arguments.repeat {
        variants.iter_mut().try_for_each(|variant| variant.run(repetition == 0))?;
    }
    // Records that come early are counted in other windows of the same number.
    let is_same = |variant: &&Variant<'_>| std::ptr::eq(variant.records, variants[0].records);
    if let Some(other) = variants.iter().filter(is_same).find(|v| v.sum != variants[0].sum) {
        return Err(
            format!("{}: {:?} instead of {:?}", other.name, other.sum, variants[0].sum).into()
        );
    }
    let firsts: Vec<(usize, f64)> =
        variants.iter().map(|v| (v.workers, v.measured.wall())).collect();
    for variant in variants {
        let first = firsts.iter().find(|(workers, _)| *workers == variant.workers);
        let ratio = variant.measured.wall() / first.map_or(f64::NAN, |first| first.1);
        let (middle, high) = variant.latency_ms();
        println!(
            "{} | {} | {} | {:.2}, {:.2} | {middle:.1}, {high:.1} | {ratio:.2}",
            variant.benchmark.name(),
            variant.name,
            variant.workers,
            variant.measured.wall(),
            variant.measured.cpu(),
        );
    }
    Ok(())
}

fn figure(name: &str, title: &str, variants: &[Variant<'_>]) -> Figure {
    let mut workers: Vec<usize> = variants.iter().map(|variant| variant.workers).collect();
    workers.dedup();
    let series = workers.into_iter().map(|workers| {
        let of_workers = variants.iter().filter(|variant| variant.workers == workers);
        let points = of_workers.map(|variant| (variant.name.clone(), variant.measured.wall()));
        Series::over_names(format!("{workers} workers"), points)
    });
    bars(name, title, "", "Million records per second", series.collect())
}
