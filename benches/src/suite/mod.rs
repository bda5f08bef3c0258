//! `suite`: all benchmarks in one call, with checks, peers, tables and pictures.
//!
//! ```text
//! make bench              at most 45 minutes          make bench-full     to the letter, for hours; resumes
//! cargo run --release --manifest-path benches/Cargo.toml -- suite --list
//! ```
//! Each point is measured in a process of its own ([`runner`]); a row of JSON stands for it in
//! `benches/results` ([`record`]), and what stands there is not measured again by the same commit.
//! Tables and pictures are made of the rows ([`tables`], [`plots`], [`publish`]), and so are the
//! figures of which `cargo xtask results` makes `benches/RESULTS.md` ([`figures`]).
//!
//! | module | holds |
//! |---|---|
//! | `parts`, `point`, `arguments` | what is measured, for how long |
//! | `latency`, `burst`, `idle`, `step`, `disorder`, `noise`, [`jobs`](crate::jobs) | how |
//! | `job`, `age_sinks`, `schedule`, `paced`, `process`, `percentiles`, `folder` | what these are made of |
//! | `oracle`, `tally`, `expected`, `loops` | what results must be |
//! | `bisection`, `search` | the highest rate within a bound |
//! | `peers` | Hazelcast at the same rates |
//! | `session`, `runner`, `record` | points in turn, in children, in files |
//! | `tables`, `plots`, `figures`, `publish`, `compare` | what is shown of it |
//!
//! **Latency** counts from when an event is due by a schedule that is fixed before the run, so what
//! holds the source up counts in full. Generator and sink are on the same cores. Nothing here says
//! what a figure means on a machine that does something else meanwhile: the machine's own pauses
//! stand with each latency.

mod ablations;
mod age_sinks;
mod arguments;
mod bisection;
mod bounded;
mod burst;
mod compare;
mod contrasts;
mod disorder;
mod expected;
mod figures;
mod folder;
mod idle;
mod job;
mod latency;
pub mod limited;
mod loops;
mod noise;
pub mod oracle;
mod paced;
mod parts;
mod peers;
pub mod percentiles;
mod plots;
pub mod point;
pub mod process;
mod publish;
mod record;
mod runner;
mod scaling;
mod schedule;
mod search;
mod session;
mod step;
mod streambox;
mod tables;
mod tally;

use std::process::ExitCode;

use self::arguments::Arguments;
use self::parts::parts;
use self::peers::Peers;
use self::record::Records;
use self::runner::Runner;
use self::session::Suite;

pub use self::process::{forget_resident_peak, resident_peak_bytes};
pub use self::runner::{CHILD, child, end_with_the_suite};

/// Does what the arguments behind `suite` ask for.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("suite: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let arguments = Arguments::read(arguments)?;
    let unknown = arguments
        .only
        .iter()
        .find(|name| !parts(arguments.mode).iter().any(|part| part.name == **name));
    if let Some(name) = unknown {
        return Err(format!("there is no part {name}: `suite --list` has them"));
    }
    let has_peers = arguments.peers && Peers::from_environment().is_some();
    let runner = Runner::new(arguments.mode, has_peers)?;
    if arguments.lists {
        list(&arguments, runner.has_peers());
        return Ok(());
    }
    if let Some(old) = &arguments.compare {
        return compare::run(&arguments, &runner, old);
    }
    let records = Records::open(&arguments.results)
        .map_err(|error| format!("{}: {error}", arguments.results.display()))?;
    let mut suite = Suite { mode: arguments.mode, records, runner };
    println!("commit {}, mode {}", suite.records.commit(), suite.mode.name());
    if !arguments.draws_only {
        let wanted = parts(arguments.mode);
        let mut wanted = wanted.iter().filter(|part| arguments.wants_part(part.name));
        wanted.try_for_each(|part| suite.run(part, &arguments))?;
    }
    publish::all(&arguments, &suite.records).map_err(|error| format!("tables: {error}"))
}

/// The parts with about how long they take.
fn list(arguments: &Arguments, has_peers: bool) {
    let mut total_s = 0;
    for part in parts(arguments.mode) {
        let seconds = part.estimated_s(arguments.mode, has_peers);
        total_s += seconds;
        println!("{:20} {:5.1} min  {}", part.name, seconds as f64 / 60.0, part.about);
    }
    println!("{:20} {:5.1} min  mode {}", "all", total_s as f64 / 60.0, arguments.mode.name());
}
