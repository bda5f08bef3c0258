//! `partitioning`: one partitioned operator whose tuples cost what they are said to, on virtual
//! cores, by the scheme in which workers find its partitions (Prasaad et al. §7.2).
//!
//! - *Load imbalance* (figure 9): keys of a normal distribution over ranges. The hybrid scheme has
//!   100 partitions, workers that go from partition to partition have one each.
//! - *Latency* (figure 10): from the moment at which a tuple begins to be processed until its
//!   result has left in order, with uniform keys.
//!
//! The engine's own work takes no time here: only the operator moves the clock. So each figure
//! follows from the seed alone, whatever the machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg::{OrderContract, PartitionScheme, RunOptions};
use thalweg_core::shim::ManualClock;
use thalweg_runtime::simulate::{Costs, RowCosts, VirtualMachine, run_on};
use thalweg_workloads::plot::{Figure, Kind, Scale, Series, write_figures};

use super::{CommandResult, arguments_of_run};
use operator::{Keys, Load, Results};

mod operator;

/// Options of `partitioning`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers of virtual cores.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16")]
    cores: Vec<usize>,
    /// Deviations of the keys, of which those in [-1, 1] are spread over the partitions.
    #[arg(long, value_delimiter = ',', default_value = "0.05,0.1,0.2,0.3,0.5,1")]
    sigmas: Vec<f64>,
    /// Microseconds that a tuple costs.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000")]
    costs: Vec<u64>,
    /// Tuples of each run.
    #[arg(long, default_value_t = 20_000)]
    tuples: usize,
    /// Decides the keys, and what happens at the same moment.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Adds figures to this file, for the example `plot`.
    #[arg(long)]
    figures: Option<PathBuf>,
}

/// Partitions of the hybrid scheme, as in the paper.
const PARTITIONS: usize = 100;

/// What a tuple costs where load imbalance is looked at; the figure is of ratios.
const IMBALANCE_COST_US: u64 = 100;

/// The two schemes, by name.
const SCHEMES: [(&str, PartitionScheme); 2] =
    [("hybrid", PartitionScheme::Hybrid), ("partitioned", PartitionScheme::Partitioned)];

/// What a run has shown.
struct Outcome {
    /// Times the rate of one core that does nothing else.
    speed_up: f64,
    /// Mean time from the beginning of a tuple to its exit, in microseconds.
    latency_us: f64,
}

/// Runs both experiments.
pub fn run(arguments: &Arguments) -> CommandResult {
    println!("keys | cost, us | cores | scheme | speed-up | latency, us");
    let imbalance = imbalance(arguments)?;
    let latency = latency(arguments)?;
    if let Some(path) = &arguments.figures {
        write_figures(path, &[imbalance, latency])?;
    }
    Ok(())
}

/// Figure 9.
fn imbalance(arguments: &Arguments) -> Result<Figure, Box<dyn std::error::Error>> {
    let mut series = Vec::new();
    for &cores in &arguments.cores {
        for (name, scheme) in SCHEMES {
            let mut points = Vec::new();
            for &sigma in &arguments.sigmas {
                let outcome =
                    one(arguments, Keys::Normal(sigma), IMBALANCE_COST_US, (cores, name, scheme))?;
                points.push((sigma, outcome.speed_up));
            }
            series.push(Series::over_numbers(format!("{name}, {cores} cores"), points));
        }
    }
    let title = "Load imbalance (Prasaad et al., figure 9)";
    Ok(figure(("prasaad-9", title), ("Deviation of the keys", "Speed-up"), Scale::Linear, series))
}

/// Figure 10, on the most cores.
fn latency(arguments: &Arguments) -> Result<Figure, Box<dyn std::error::Error>> {
    let cores = arguments.cores.iter().copied().max().unwrap_or(1);
    let mut series = Vec::new();
    for (name, scheme) in SCHEMES {
        let mut points = Vec::new();
        for &cost_us in &arguments.costs {
            let outcome = one(arguments, Keys::Uniform, cost_us, (cores, name, scheme))?;
            points.push((cost_us as f64, outcome.latency_us));
        }
        series.push(Series::over_numbers(format!("{name}, {cores} cores"), points));
    }
    let title = "From a tuple's beginning to its exit (Prasaad et al., figure 10)";
    let axes = ("Microseconds that a tuple costs", "Mean latency, microseconds");
    Ok(figure(("prasaad-10", title), axes, Scale::Log, series))
}

fn figure(
    (name, title): (&str, &str),
    (x, y): (&str, &str),
    scale: Scale,
    series: Vec<Series>,
) -> Figure {
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        x_scale: scale,
        y_scale: scale,
        kind: Kind::Lines,
        series,
        note: format!("virtual cores that only the operator keeps busy; {}", arguments_of_run()),
    }
}

fn one(
    arguments: &Arguments,
    keys: Keys,
    cost_us: u64,
    (cores, name, scheme): (usize, &str, PartitionScheme),
) -> thalweg::Result<Outcome> {
    let spent = Arc::new(ManualClock::default());
    let costs = Costs::Measured(spent.clone(), Arc::new(RowCosts::new()));
    let machine = VirtualMachine {
        wake_ns: 0,
        task_ns: 0,
        ..VirtualMachine::new((1, cores), costs, arguments.seed)
    };
    let partitions = if scheme == PartitionScheme::Hybrid { PARTITIONS } else { cores };
    let cost = Duration::from_micros(cost_us);
    let load = Load { tuples: arguments.tuples, keys, seed: arguments.seed, partitions, cost };
    let results = Results::default();
    let graph = load.graph((spent, machine.clock.clone()), &results);
    let options = RunOptions {
        order: OrderContract::Arrival,
        partitioning: scheme,
        partitions_max: Some(PARTITIONS),
        bundle_rows_max: 1,
        ..RunOptions::default()
    };
    let report = run_on(&machine, graph, options)?;
    let work_ns = cost.as_nanos() as f64 * arguments.tuples as f64;
    let outcome = Outcome {
        speed_up: work_ns / report.elapsed_ns as f64,
        latency_us: results.mean_latency_ns(arguments.tuples)? / 1e3,
    };
    println!(
        "{keys} | {cost_us} | {cores} | {name} | {:.2} | {:.1}",
        outcome.speed_up, outcome.latency_us
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finer_partitions_even_out_what_single_ones_cannot() {
        let arguments = Arguments {
            cores: vec![8],
            sigmas: Vec::new(),
            costs: Vec::new(),
            tuples: 2_000,
            seed: 7,
            figures: None,
        };
        let run = |(name, scheme)| {
            let outcome = one(&arguments, Keys::Normal(0.2), 100, (8, name, scheme));
            let Outcome { speed_up, latency_us } = outcome.expect("every tuple leaves in order");
            (speed_up, latency_us)
        };
        let [hybrid, partitioned] = SCHEMES.map(run);
        assert!(hybrid.0 > 7.5 && hybrid.1 < 200.0, "{hybrid:?}");
        assert!(partitioned.0 < 3.0 && partitioned.1 > 500.0, "{partitioned:?}");
        assert_eq!(SCHEMES.map(run), [hybrid, partitioned], "the seed decides");
    }
}
