//! `schedulers`: the heuristics of Prasaad et al. over the queries derived from TPCx-BB, tuple by
//! tuple (figure 8): as fast as they go, and at an even pace below that.
//!
//! Machines are this one with a number of workers, and virtual ones with a number of cores, on
//! which tasks take the time that they took here. All heuristics of a machine get the paced rows at
//! one rate: a share of what the slowest of them can do. Latencies are those of the paper's markers
//! (§7.1): from the moment at which a tuple was due until it had left, or nothing of it was left.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg::pipeline::Pipeline;
use thalweg::rows::{PackedRows, Row, Rows};
use thalweg::{OrderContract, Report, RunOptions, SchedulerPolicy};
use thalweg_core::shim::SystemClock;
use thalweg_runtime::simulate::{Costs, RowCosts, VirtualMachine, run_on};
use thalweg_workloads::plot::{Figure, Scale, Series, write_figures};

use super::tpcx_bb::queries::{self, Measure, Query};
use super::{CommandResult, bars, median};
use even_pace::{Alarm, RealTime, pace};

mod even_pace;

/// Options of `schedulers`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which queries: 1, 2, 3, 4, 15.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,15")]
    queries: Vec<u32>,
    /// Numbers of workers on this machine.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    workers: Vec<usize>,
    /// Numbers of cores of virtual machines.
    #[arg(long, value_delimiter = ',', default_value = "4,8,16")]
    cores: Vec<usize>,
    /// Schedulers: nem, round-robin, lp, ct, et, qst.
    #[arg(long, value_delimiter = ',', default_value = "lp,ct,et,qst")]
    schedulers: Vec<String>,
    /// Milliseconds over which `ct` compares the time spent on stages.
    #[arg(long, default_value_t = 100)]
    window_ms: u64,
    /// Paced rows come at this share of the rate of the slowest.
    #[arg(long, default_value_t = 0.5)]
    load: f64,
    /// The most rows of a bundle.
    #[arg(long, default_value_t = 1)]
    bundle_rows: usize,
    /// Size of the input: 1 is 90,000 tickets (862 k rows) and 40,000 sessions (661 k clicks).
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Runs of each, which alternate.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Prints what each stage of a virtual machine did.
    #[arg(long)]
    stages: bool,
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// Partitions of each keyed operator, as in the paper's hybrid scheme.
const PARTITIONS: usize = 100;

/// Where a query runs.
#[derive(Clone, Copy)]
enum Machine {
    /// On threads.
    Workers(usize),
    /// On virtual cores.
    Cores(usize),
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Workers(workers) => write!(formatter, "{workers} workers"),
            Machine::Cores(cores) => write!(formatter, "{cores} virtual cores"),
        }
    }
}

/// Runs of a query with one heuristic on one machine.
#[derive(Clone, Default)]
pub struct Runs {
    /// Thousand tuples per second.
    rates: Vec<f64>,
    /// Median latencies in milliseconds.
    latencies_ms: Vec<f64>,
}

impl Runs {
    fn add(&mut self, tuples: usize, report: &Report, elapsed_ns: u64) {
        self.rates.push(tuples as f64 * 1e6 / elapsed_ns as f64);
        let latency = report.passage.map_or(f64::NAN, |passage| passage.p50_us as f64 / 1e3);
        self.latencies_ms.push(latency);
    }
}

/// What a query did on one machine, by heuristic: at full speed, and paced.
type OfMachine = [Vec<Runs>; 2];

/// Runs the queries.
pub fn run(arguments: &Arguments) -> CommandResult {
    let names = arguments.schedulers.join(", ");
    println!(
        "query | machine | thousand/s, median latency (ms) at full speed: {names} | at thousand/s, latency: {names}"
    );
    let measured = queries::each(&arguments.queries, arguments.scale, arguments)?;
    if let Some(path) = &arguments.figures {
        write_figures(path, &arguments.figures_of(&measured))?;
    }
    Ok(())
}

impl Arguments {
    fn machines(&self) -> impl Iterator<Item = Machine> {
        let workers = self.workers.iter().map(|&workers| Machine::Workers(workers));
        workers.chain(self.cores.iter().map(|&cores| Machine::Cores(cores)))
    }

    /// Throughput and both latencies on each machine, as bars by query.
    fn figures_of(&self, measured: &[(u32, Vec<OfMachine>)]) -> Vec<Figure> {
        type Value = fn(&Runs) -> f64;
        let kinds: [(&str, &str, usize, Value); 3] = [
            ("throughput", "Thousand tuples per second", 0, |runs| median(&runs.rates)),
            ("latency", "Median latency at full speed, ms", 0, |runs| median(&runs.latencies_ms)),
            ("paced-latency", "Median latency when paced, ms", 1, |runs| {
                median(&runs.latencies_ms)
            }),
        ];
        let mut figures = Vec::new();
        for (place, machine) in self.machines().enumerate() {
            for (name, y, load, value) in kinds {
                let series = self.schedulers.iter().enumerate().map(|(number, scheduler)| {
                    let of = |(query, machines): &(u32, Vec<OfMachine>)| {
                        (format!("Q{query}"), value(&machines[place][load][number]))
                    };
                    Series::over_names(scheduler, measured.iter().map(of))
                });
                let name = format!("prasaad-8-{}-{name}", machine.to_string().replace(' ', "-"));
                let title = format!("Heuristics, {machine} (Prasaad et al., figure 8)");
                let figure = bars(&name, &title, "Query", y, series.collect());
                let y_scale = if name.ends_with("latency") { Scale::Log } else { Scale::Linear };
                figures.push(Figure { y_scale, ..figure });
            }
        }
        figures
    }
}

impl Measure for Arguments {
    type Outcome = Vec<OfMachine>;

    fn measure<T: Row, U: Row + PartialEq>(
        &self,
        query: &Query<T, U>,
        build: impl Fn(&Pipeline, PackedRows<T>, usize) -> Rows<U>,
    ) -> Result<Vec<OfMachine>, Box<dyn Error>> {
        let mut all = Vec::new();
        for machine in self.machines() {
            let once = |scheduler, pause_ns, seed| {
                self.once((machine, scheduler, pause_ns, seed), query, &build)
            };
            let fast =
                self.alternating(query.input.len(), |scheduler, seed| once(scheduler, None, seed))?;
            let slowest = fast.iter().map(|runs| median(&runs.rates)).fold(f64::INFINITY, f64::min);
            let pause_ns = (1e6 / (slowest * self.load)) as u64;
            let paced = self.alternating(query.input.len(), |scheduler, seed| {
                once(scheduler, Some(pause_ns), seed)
            })?;
            let line = |runs: &[Runs], of: fn(&Runs) -> f64| {
                let values: Vec<_> = runs.iter().map(|runs| format!("{:.3}", of(runs))).collect();
                values.join(", ")
            };
            println!(
                "{} | {machine} | {}; {} | {:.1}: {}",
                query.number,
                line(&fast, |runs| median(&runs.rates)),
                line(&fast, |runs| median(&runs.latencies_ms)),
                1e6 / pause_ns as f64,
                line(&paced, |runs| median(&runs.latencies_ms)),
            );
            all.push([fast, paced]);
        }
        Ok(all)
    }
}

impl Arguments {
    /// Runs all heuristics in turn, again and again.
    fn alternating(
        &self,
        tuples: usize,
        once: impl Fn(SchedulerPolicy, u64) -> Result<(Report, u64), Box<dyn Error>>,
    ) -> Result<Vec<Runs>, Box<dyn Error>> {
        let mut runs = vec![Runs::default(); self.schedulers.len()];
        for repetition in 0..self.repeat {
            for (scheduler, runs) in self.schedulers.iter().zip(&mut runs) {
                let (report, elapsed_ns) = once(scheduler.parse()?, repetition as u64)?;
                runs.add(tuples, &report, elapsed_ns);
            }
        }
        Ok(runs)
    }

    /// One run, and how long it took. Its results are checked.
    fn once<T: Row, U: Row + PartialEq>(
        &self,
        (machine, scheduler, pause_ns, seed): (Machine, SchedulerPolicy, Option<u64>, u64),
        query: &Query<T, U>,
        build: impl Fn(&Pipeline, PackedRows<T>, usize) -> Rows<U>,
    ) -> Result<(Report, u64), Box<dyn Error>> {
        let pipeline = Pipeline::new();
        let results = build(&pipeline, query.input.clone(), PARTITIONS).collect("results");
        let mut graph = pipeline.graph();
        let mut options = RunOptions {
            scheduler,
            order: OrderContract::Arrival,
            scheduler_window: Duration::from_millis(self.window_ms),
            bundle_rows_max: self.bundle_rows,
            ..RunOptions::default()
        };
        let mut pace_by = |alarm: Arc<dyn Alarm>| {
            if let Some(pause_ns) = pause_ns {
                pace(&mut graph, pause_ns, &alarm);
            }
        };
        let (report, elapsed_ns) = match machine {
            Machine::Workers(workers) => {
                pace_by(Arc::new(RealTime::new()));
                options.workers = workers;
                let report = thalweg_runtime::start(graph, options)?.wait()?;
                let elapsed_ns = report.elapsed.as_nanos() as u64;
                (report, elapsed_ns)
            }
            Machine::Cores(cores) => {
                // Tasks are so short that asking the system for the thread's own time would be most
                // of them.
                let clock = Arc::new(SystemClock::new());
                let costs = Costs::Measured(clock, Arc::new(RowCosts::new()));
                let machine = VirtualMachine::new((1, cores), costs, seed);
                pace_by(machine.clock.clone());
                let report = run_on(&machine, graph, options)?;
                if self.stages {
                    super::virtual_cores::print_stages(&report);
                }
                (report.report, report.elapsed_ns)
            }
        };
        if results.rows() != query.expected {
            let number = query.number;
            return Err(format!("query {number}, {machine}: not the oracle's sequence").into());
        }
        Ok((report, elapsed_ns))
    }
}
