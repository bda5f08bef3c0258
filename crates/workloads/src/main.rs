//! Runs the workloads on the engine, checks every result against its serial oracle, and prints what
//! was measured: `thalweg-workloads --help`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod commands;

use clap::Parser;

use commands::{
    ablations, linear_road, partitioning, rating, schedulers, streambox, tpcx_bb, viper,
    virtual_cores,
};

/// The published workloads of ordered stream processing, on Thalweg.
///
/// Every run is checked against a serial oracle: an answer that differs in value or place is an
/// error. Rates are medians; variants alternate in one process.
#[derive(Parser)]
#[command(name = "thalweg-workloads")]
enum Command {
    /// Five queries derived from TPCx-BB: throughput and latency by scheduler and workers.
    TpcxBb(tpcx_bb::Arguments),
    /// The same queries tuple by tuple: scheduling heuristics at full speed and at an even pace, on
    /// this machine and on virtual cores.
    Schedulers(schedulers::Arguments),
    /// Linear Road at full speed: records per second by workers.
    LinearRoad(linear_road::Arguments),
    /// Linear Road in real time: the largest number of expressways with every response in time.
    Rating(rating::Arguments),
    /// StreamBox's six benchmarks compared with loops written by hand: records per second and core.
    #[command(name = "streambox")]
    StreamBox(streambox::Arguments),
    /// StreamBox's decisions removed one at a time, its watermark rates and its early records.
    Ablations(ablations::Arguments),
    /// Virtual machines of many cores: where the engine would stop scaling.
    VirtualCores(virtual_cores::Arguments),
    /// How load imbalance and latency depend on the way in which workers find partitions, on
    /// virtual cores.
    Partitioning(partitioning::Arguments),
    /// Viper's operators over injectors and instances: merge in the channel against a merge
    /// operator.
    Viper(viper::Arguments),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Command::parse() {
        Command::TpcxBb(arguments) => tpcx_bb::run(&arguments),
        Command::Schedulers(arguments) => schedulers::run(&arguments),
        Command::LinearRoad(arguments) => linear_road::run(&arguments),
        Command::Rating(arguments) => rating::run(&arguments),
        Command::StreamBox(arguments) => streambox::run(&arguments),
        Command::Ablations(arguments) => ablations::run(&arguments),
        Command::VirtualCores(arguments) => virtual_cores::run(&arguments),
        Command::Partitioning(arguments) => partitioning::run(&arguments),
        Command::Viper(arguments) => viper::run(&arguments),
    }
}
