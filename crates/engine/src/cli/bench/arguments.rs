//! `thalweg bench`, as people type it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use thalweg::OrderContract;
use thalweg::bench::Preset;

/// `thalweg bench`
#[derive(Args, Debug)]
pub struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub workload: Workload,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// The queries of the NEXMark benchmark
    #[command(after_help = "\
Events are made before the clock starts and lie in memory, only the columns that a query reads; results
are counted and thrown away. So the queries are measured, and neither files nor the generator. With
--rate events are made while the query runs, each at its time, and latencies are measured.

Examples:
  thalweg bench nexmark                               every query over 10 million events
  thalweg bench nexmark --queries q5,q8 --workers 1   two of them, by one worker
  thalweg bench nexmark --queries q5 --repeat 5       one run to warm up, then the median of five
  thalweg bench nexmark --queries q7 --rate 1000000   a million events a second: how late are results?
  thalweg bench nexmark --order arrival --check       in another contract, with a number that stands
                                                      for each result: it is the same in all of them

Columns:
  rows in     rows read by the query: a query over bids reads 92 of 100 events
  per core    rows in by the time that processors worked, not by the time that passed
  state       the most that operators kept
  memory      the most that the process had, the events included

The queries are in benches/nexmark of the source code; the preset 'peer' has queries of its own.")]
    Nexmark(NexmarkArguments),
}

/// `thalweg bench nexmark`
#[derive(Args, Debug)]
pub struct NexmarkArguments {
    /// Which queries, such as q0,q5 [default: all that can run]
    #[arg(long, value_name = "QUERIES", value_delimiter = ',')]
    pub queries: Vec<String>,
    /// How many events: persons, auctions and bids together
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,
    /// Which events
    #[arg(long, value_name = "PRESET", default_value = "nexmark")]
    pub preset: Preset,
    /// Lets this many events come in a second, and measures how late results are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Worker threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// What is promised about the sequence of results: epoch, arrival or event_time
    #[arg(long, value_name = "CONTRACT", default_value = "epoch")]
    pub order: OrderContract,
    /// Runs each query so often, after one run to warm up, and shows the median
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeat: u16,
    /// Shows a number that stands for what is left of each result
    #[arg(long)]
    pub check: bool,
    /// Writes each run as a line of JSON to FILE; `-` writes them to standard output in place of
    /// the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
