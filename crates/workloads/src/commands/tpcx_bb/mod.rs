//! `tpcx-bb`: the queries by scheduler, by scheme of partitioning and of reordering (Prasaad et
//! al., figures 8, 11 and 14), and by number of workers.

use std::error::Error;
use std::path::PathBuf;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{PackedRows, Row, Rows};
use thalweg::{OrderContract, PartitionScheme, ReorderScheme, RunOptions, SchedulerPolicy};
use thalweg_workloads::plot::{Figure, Series, write_figures};

use super::{COLUMNS, Measured, bars};
use queries::{Measure, Query};

pub mod queries;

/// Options of `tpcx-bb`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which queries: 1, 2, 3, 4, 15.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,15")]
    queries: Vec<u32>,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Schedulers: nem, round-robin, lp, ct, et, qst.
    #[arg(long, value_delimiter = ',', default_value = "nem")]
    schedulers: Vec<String>,
    /// Ways to restore the order: non-blocking, locked.
    #[arg(long, value_delimiter = ',', default_value = "non-blocking")]
    reorder: Vec<String>,
    /// Ways to find partitions with work: hybrid, cells, partitioned.
    #[arg(long, value_delimiter = ',', default_value = "hybrid")]
    partitioning: Vec<String>,
    /// Partitions of each keyed operator.
    #[arg(long, default_value_t = 100)]
    partitions: usize,
    /// Makes all of these partitions instead of as many as the order has for each worker; workers
    /// that go from partition to partition (`partitioned`) always have one each.
    #[arg(long)]
    all_partitions: bool,
    /// The most rows of a bundle.
    #[arg(long, default_value_t = 64 * 1024)]
    bundle_rows: usize,
    /// Size of the input: 1 is 90,000 tickets (862 k rows) and 40,000 sessions (661 k clicks).
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Measured runs of each variant, after one to warm up.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// What was measured of one query.
type OfQuery = (u32, Vec<Variant>);

/// Runs the queries.
pub fn run(arguments: &Arguments) -> super::CommandResult {
    println!("query | variant | {COLUMNS}");
    let measured = queries::each(&arguments.queries, arguments.scale, arguments)?;
    if let Some(path) = &arguments.figures {
        write_figures(path, &figures(arguments, &measured))?;
    }
    Ok(())
}

impl Arguments {
    /// The most partitions of an operator. Workers who go from partition to partition have one
    /// each, as in the paper (§4.2): more would only make them look at more empty ones.
    fn partitions_max(&self, partitioning: &str, workers: usize) -> Option<usize> {
        match partitioning {
            "partitioned" => Some(workers),
            _ => self.all_partitions.then_some(256),
        }
    }

    /// What a run compares, for the names of its figures, and the figure of Prasaad et al. that it
    /// stands for. Schedulers and everything at once have no name of their own.
    fn compared(&self) -> (&'static str, &'static str) {
        match (self.schedulers.len(), self.partitioning.len(), self.reorder.len()) {
            (1, 2.., 1) => ("-partitioning", ": partitioning schemes (Prasaad et al., figure 11)"),
            (1, 1, 2..) => ("-reordering", ": reordering schemes (Prasaad et al., figure 14)"),
            _ => ("", ""),
        }
    }
}

/// Throughput and latency of every variant, as bars by query.
fn figures(arguments: &Arguments, measured: &[OfQuery]) -> Vec<Figure> {
    let Some((_, variants)) = measured.first() else { return Vec::new() };
    let (compared, of_paper) = arguments.compared();
    let figure = |name: &str, y: &str, of: &dyn Fn(&Measured) -> f64| {
        let series = variants.iter().enumerate().map(|(place, variant)| {
            let of_query =
                |(query, variants): &OfQuery| (format!("Q{query}"), of(&variants[place].measured));
            Series::over_names(&variant.name, measured.iter().map(of_query))
        });
        let title = format!("TPCx-BB-derived queries{of_paper}");
        bars(&format!("tpcx-bb{compared}-{name}"), &title, "Query", y, series.collect())
    };
    vec![
        figure("throughput", "Million rows per second", &Measured::wall),
        figure("latency", "Median time through the pipeline, ms", &Measured::latency_ms),
    ]
}

/// One way to run a query.
pub struct Variant {
    name: String,
    options: RunOptions,
    measured: Measured,
}

fn variants(arguments: &Arguments) -> thalweg::Result<Vec<Variant>> {
    let Arguments { schedulers, reorder, partitioning, workers, .. } = arguments;
    let mut variants = Vec::new();
    for scheduler in schedulers {
        for reorder in reorder {
            for partitioning in partitioning {
                for &workers in workers {
                    let name = format!("{scheduler}, {reorder}, {partitioning}, {workers} workers");
                    let options = RunOptions {
                        workers,
                        scheduler: scheduler.parse::<SchedulerPolicy>()?,
                        reorder: reorder_scheme(reorder)?,
                        partitioning: partitioning.parse::<PartitionScheme>()?,
                        order: OrderContract::Arrival,
                        bundle_rows_max: arguments.bundle_rows,
                        partitions_max: arguments.partitions_max(partitioning, workers),
                        ..RunOptions::default()
                    };
                    variants.push(Variant { name, options, measured: Measured::default() });
                }
            }
        }
    }
    Ok(variants)
}

fn reorder_scheme(name: &str) -> thalweg::Result<ReorderScheme> {
    match name {
        "non-blocking" => Ok(ReorderScheme::NonBlocking),
        "locked" => Ok(ReorderScheme::Locked),
        other => Err(thalweg::Error::plan(format!("'{other}' is no way to restore the order"))
            .hint("choose non-blocking or locked")),
    }
}

impl Measure for Arguments {
    type Outcome = Vec<Variant>;

    /// In every variant, alternating.
    fn measure<T: Row, U: Row + PartialEq>(
        &self,
        query: &Query<T, U>,
        build: impl Fn(&Pipeline, PackedRows<T>, usize) -> Rows<U>,
    ) -> Result<Vec<Variant>, Box<dyn Error>> {
        let (number, input) = (query.number, &query.input);
        let mut variants = variants(self)?;
        for repetition in 0..=self.repeat {
            for Variant { name, options, measured } in &mut variants {
                let pipeline = Pipeline::new();
                let rows = build(&pipeline, input.clone(), self.partitions).collect("results");
                measured.run(input.len(), || pipeline.run(options.clone()))?;
                if rows.rows() != query.expected {
                    return Err(format!("query {number}, {name}: not the oracle's sequence").into());
                }
                if repetition == 0 {
                    *measured = Measured::default();
                }
            }
        }
        for Variant { name, measured, .. } in &variants {
            println!("{number:5} | {name:41} | {}", measured.line());
        }
        Ok(variants)
    }
}
