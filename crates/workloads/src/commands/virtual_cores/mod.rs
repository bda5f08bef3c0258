//! `virtual-cores`: benchmarks of StreamBox and queries of NEXMark on machines that do not exist,
//! with costs that were measured on this one. See `thalweg_runtime::simulate` for what is simulated
//! and what is not.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg::RunOptions;
use thalweg_runtime::Ablation;
use thalweg_runtime::simulate::{Costs, RowCosts, VirtualMachine, VirtualReport, Work, run_on};
use thalweg_workloads::plot::{Figure, Kind, Scale, Series, write_figures};
use thalweg_workloads::streambox::pipelines::{DESIGNS, Reading};

use super::{CommandResult, arguments_of_run};
use jobs::Job;
use tape::Tape;

mod jobs;
mod tape;

/// Options of `virtual-cores`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which: wordcount, counts, netmon, join, and queries of NEXMark such as q5 or peer/q8.
    #[arg(long, value_delimiter = ',', default_value = "wordcount,counts,netmon")]
    benchmarks: Vec<String>,
    /// Numbers of cores.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,56,128")]
    cores: Vec<usize>,
    /// Numbers of NUMA nodes; those that do not divide the cores are left out.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    nodes: Vec<usize>,
    /// Million records of each run.
    #[arg(long, default_value_t = 8)]
    millions: u64,
    /// How many sources share the records.
    #[arg(long, default_value_t = 1)]
    sources: usize,
    /// The most rows of a bundle.
    #[arg(long, default_value_t = 65_536)]
    bundle_rows: usize,
    /// Ends an epoch every this many milliseconds of event time, a thousand records each.
    #[arg(long)]
    watermark_step_ms: Option<i64>,
    /// Prints the work of each stage.
    #[arg(long)]
    stages: bool,
    /// Also with each of StreamBox's decisions removed.
    #[arg(long)]
    designs: bool,
    /// Decides what happens at the same moment.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps in this file what everything cost, so that the same run can be replayed.
    #[arg(long, conflicts_with = "replay")]
    keep: Option<PathBuf>,
    /// Replays a run that was kept: the same arguments, the same costs, the same figures.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// Cores that costs by row are measured on: few enough for their tables to be in the caches. With
/// more than one rows are spread as on many; what bundles cost that are taken locally is better
/// known from one.
const CALIBRATED_ON: [usize; 2] = [4, 1];

impl Arguments {
    /// What runs of a benchmark in this design are called.
    fn called(&self, benchmark: &str, design: &str) -> String {
        if self.designs { format!("{benchmark}, {design}") } else { benchmark.to_owned() }
    }

    /// Where what tasks cost is known from.
    fn tape(&self) -> Result<Arc<Tape>, Box<dyn std::error::Error>> {
        let Arguments { benchmarks, cores, nodes, millions, sources, bundle_rows, seed, .. } = self;
        let designs = self.designs;
        let step_ms = self.watermark_step_ms;
        let what = format!(
            "benchmarks {benchmarks:?}, cores {cores:?}, nodes {nodes:?}, millions {millions}, sources \
             {sources}, bundle rows {bundle_rows}, watermark step {step_ms:?}, designs {designs}, seed {seed}"
        );
        match (&self.keep, &self.replay) {
            (Some(path), _) => Tape::keep(path, &what),
            (None, Some(path)) => Tape::replay(path, &what),
            (None, None) => Ok(Tape::measured()),
        }
    }
}

/// Runs every benchmark on every machine.
pub fn run(arguments: &Arguments) -> CommandResult {
    println!(
        "benchmark | cores x nodes | million records/s | speed-up | busy | source busy | sink busy | \
         asking | poll, bundle, local, rows, watermark (shares of the work) | longest task, ms | an answer, ns | near | latency, ms"
    );
    let tape = arguments.tape()?;
    let mut series = Vec::new();
    for name in &arguments.benchmarks {
        let designs = &DESIGNS[..if arguments.designs { DESIGNS.len() } else { 1 }];
        let points = one(arguments, name, designs, &tape)?;
        series.extend(designs.iter().zip(points).map(|(&(design, _), points)| {
            Series::over_numbers(arguments.called(name, design), points)
        }));
    }
    tape.finish()?;
    let Some(path) = &arguments.figures else { return Ok(()) };
    let figure = Figure {
        name: "virtual-cores".to_owned(),
        title: "Speed-up on virtual cores, without caches and memory bandwidth".to_owned(),
        x: "Virtual cores".to_owned(),
        y: "Times the rate of one".to_owned(),
        x_scale: Scale::Log,
        y_scale: Scale::Log,
        kind: Kind::Lines,
        series,
        note: format!("costs measured on one core; {}", arguments_of_run()),
    };
    Ok(write_figures(path, &[figure])?)
}

/// Rates relative to one core, by cores.
type Points = Vec<(f64, f64)>;

/// Runs a benchmark on every machine. Says the speed-up of each design on one node.
fn one(
    arguments: &Arguments,
    name: &str,
    designs: &[(&str, Ablation)],
    tape: &Arc<Tape>,
) -> Result<Vec<Points>, Box<dyn std::error::Error>> {
    let job = Job::named(name, arguments.millions)?;
    let mut costs = RowCosts::new();
    for cores in CALIBRATED_ON {
        let by = (tape, Arc::new(RowCosts::new()));
        let calibrated = measure(arguments, &job, (cores, 1), DESIGNS[0].1, by)?.row_costs();
        let local = |key: &(usize, Work)| cores == 1 && key.1 == Work::Local;
        costs.extend(calibrated.into_iter().filter(|(key, _)| cores > 1 || local(key)));
    }
    let costs = Arc::new(costs);
    let mut first = None;
    let mut points = vec![Points::new(); designs.len()];
    for &nodes in &arguments.nodes {
        for &cores in arguments.cores.iter().filter(|&&cores| cores % nodes == 0) {
            for (&(design, ablation), points) in designs.iter().zip(&mut points) {
                let machine = (cores, nodes);
                let by = (tape, costs.clone());
                let report = measure(arguments, &job, machine, ablation, by)?;
                let rate = job.num_rows() as f64 * 1e3 / report.elapsed_ns as f64;
                let times = rate / *first.get_or_insert(rate);
                let name = arguments.called(name, design);
                print_run(&name, machine, &report, rate, times);
                if arguments.stages {
                    print_stages(&report);
                }
                if nodes == 1 {
                    points.push((cores as f64, times));
                }
            }
        }
    }
    Ok(points)
}

fn measure(
    arguments: &Arguments,
    job: &Job,
    (cores, nodes): (usize, usize),
    ablation: Ablation,
    (tape, row_costs): (&Arc<Tape>, Arc<RowCosts>),
) -> thalweg::Result<VirtualReport> {
    let Arguments { watermark_step_ms, sources, .. } = *arguments;
    let graph = job.graph(Reading { watermark_step_ms, sources })?;
    let costs = Costs::Measured(tape.clone(), row_costs);
    let machine = VirtualMachine::new((nodes, cores / nodes), costs, arguments.seed);
    let options =
        RunOptions { bundle_rows_max: arguments.bundle_rows, ablation, ..RunOptions::default() };
    run_on(&machine, graph, options)
}

fn print_run(
    name: &str,
    (cores, nodes): (usize, usize),
    report: &VirtualReport,
    rate: f64,
    times: f64,
) {
    let of_time = |ns: u64| 100.0 * ns as f64 / report.elapsed_ns as f64;
    let all_ns: u64 = report.busy_ns.iter().sum();
    let of_work = |work: Work| 100.0 * report.spent_ns(work) as f64 / all_ns as f64;
    let longest_ns = report.work.iter().map(|(.., total)| total.longest_ns).max().unwrap_or(0);
    let (near, far) = report.bundles;
    println!(
        "{} | {cores} x {nodes} | {rate:.2} | {times:.1} | {:.0} % | {:.0} % | {:.0} % | {:.1} % | \
         {:.0} %, {:.0} %, {:.0} %, {:.0} %, {:.0} % | {:.2} | {} | {:.0} % | {:.1}",
        name,
        100.0 * report.utilization(),
        of_time(report.spent_ns(Work::Poll)),
        of_time(report.sinks_ns),
        100.0 * report.asking_ns as f64 / all_ns as f64,
        of_work(Work::Poll),
        of_work(Work::Bundle),
        of_work(Work::Local),
        of_work(Work::Rows),
        of_work(Work::Watermark),
        longest_ns as f64 / 1e6,
        report.asking_ns / (report.asked.0 - report.asked.1).max(1),
        100.0 * near as f64 / (near + far).max(1) as f64,
        report.report.latency.map_or(f64::NAN, |latency| latency.p50_us as f64 / 1e3),
    );
}

/// Prints what each stage did.
pub fn print_stages(report: &VirtualReport) {
    for (name, _, work, total) in &report.work {
        println!(
            "  {name} | {work:?} | {} tasks | {} rows | {:.1} ms | longest {:.2} ms",
            total.tasks,
            total.rows,
            total.ns as f64 / 1e6,
            total.longest_ns as f64 / 1e6
        );
    }
}
