//! `streambox`: the six benchmarks in every variant, alternating with loops written by hand, whose
//! checksums the results must have.

use thalweg::{OrderContract, Report, Result, RunOptions};
use thalweg_workloads::streambox::grep::{self, Output, RECORD_BYTES, Search};
use thalweg_workloads::streambox::join::{self, Keys};
use thalweg_workloads::streambox::{
    Job, RunSettings, Table, distinct, floors, netmon, tweets, wordcount,
};

use super::totals::{ROWS, Totals};
use super::{CommandResult, Measured};

const NAMES: [&str; 9] = [
    "grep-literal",
    "grep-regex",
    "wordcount",
    "join",
    "join-zipf",
    "join-hot",
    "distinct",
    "netmon",
    "tweets",
];

/// Options of `streambox`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which: grep-literal, grep-regex, wordcount, join, join-zipf, join-hot, distinct, netmon,
    /// tweets.
    #[arg(long, value_delimiter = ',')]
    benchmarks: Vec<String>,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Contracts: epoch, arrival, event_time.
    #[arg(long, value_delimiter = ',', default_value = "epoch")]
    orders: Vec<OrderContract>,
    /// Size of the input: 1 is 256 MiB of text in 16 laps, and some ten million records of the
    /// others.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Measured runs of each variant, after one to warm up.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

type Floor<'a> = Box<dyn Fn() -> u64 + 'a>;
type Run<'a> = Box<dyn Fn(RunSettings, Totals) -> Result<Report> + 'a>;

/// A benchmark ready to be measured.
struct Benchmark<'a> {
    name: &'a str,
    records: usize,
    /// The length of a record where bytes per second say more than records.
    record_bytes: Option<usize>,
    floor: Option<Floor<'a>>,
    run: Run<'a>,
    /// The column whose sum is compared.
    column: &'static str,
    /// How often the engine counts what the floor counts once: the windows that a record is in.
    windows: u64,
}

impl<'a> Benchmark<'a> {
    fn of_job(name: &'a str, job: &'a Job, column: &'static str) -> Self {
        Benchmark {
            name,
            records: job.num_rows(),
            record_bytes: None,
            floor: None,
            run: Box::new(|settings, totals| job.run(settings, totals)),
            column,
            windows: 1,
        }
    }

    fn with_floor(mut self, floor: impl Fn() -> u64 + 'a) -> Self {
        self.floor = Some(Box::new(floor));
        self
    }
}

/// Runs the benchmarks.
pub fn run(arguments: &Arguments) -> CommandResult {
    let unknown = arguments.benchmarks.iter().find(|name| !NAMES.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(format!("there is no benchmark {name}: {}", NAMES.join(", ")).into());
    }
    println!(
        "benchmark | variant | per CPU second (smallest to largest) | of the floor | per wall second"
    );
    let asked = |name: &&str| {
        arguments.benchmarks.is_empty() || arguments.benchmarks.iter().any(|asked| asked == name)
    };
    NAMES.into_iter().filter(asked).try_for_each(|name| one(arguments, name))
}

/// Makes the data of a benchmark and measures it.
fn one(arguments: &Arguments, name: &str) -> CommandResult {
    let records = |count: f64| (count * arguments.scale) as u64;
    match name {
        "grep-literal" => grep(arguments, name, Search::Literal, floors::grep_literal),
        "grep-regex" => grep(arguments, name, Search::Regex, floors::grep_regex),
        "wordcount" => {
            let settings = wordcount::Settings::with_records(records(2_700_000.0));
            words(arguments, name, &wordcount::table(&settings))
        }
        "join" => {
            let settings = join::Settings::unique(records(5_000_000.0));
            joined(arguments, name, &settings, floors::join_unique)
        }
        "join-zipf" => {
            let settings = join::Settings::skewed(records(3_000_000.0), Keys::Zipf(0.8));
            joined(arguments, name, &settings, floors::join_repeated)
        }
        "join-hot" => {
            let settings = join::Settings::skewed(records(3_000_000.0), Keys::Hot);
            joined(arguments, name, &settings, floors::join_repeated)
        }
        "distinct" => {
            let table = distinct::table(&distinct::Settings::with_records(records(10_000_000.0)));
            let job = distinct::job(table);
            let floor = || floors::distinct(&job.tables[0]);
            measure(arguments, &Benchmark::of_job(name, &job, "n").with_floor(floor))
        }
        "netmon" => {
            let table = netmon::table(&netmon::Settings::with_records(records(10_000_000.0)));
            let job = netmon::job(table);
            let floor = || floors::netmon(&job.tables[0]);
            measure(arguments, &Benchmark::of_job(name, &job, "mean_us").with_floor(floor))
        }
        _ => {
            let settings = tweets::Settings::with_records(records(2_000_000.0));
            let settings = tweets::Settings { windows_of_mood: 3, ..settings };
            let job = tweets::job(tweets::table(&settings), &settings);
            measure(arguments, &Benchmark::of_job(name, &job, "n"))
        }
    }
}

fn grep(
    arguments: &Arguments,
    name: &str,
    search: Search,
    floor: fn(&Table) -> u64,
) -> CommandResult {
    let laps = ((16.0 * arguments.scale) as u64).max(1);
    let table = grep::table(&grep::Settings { laps, ..grep::Settings::default() });
    let job = grep::job(table, search, Output::Counts);
    let mut benchmark = Benchmark::of_job(name, &job, "n").with_floor(|| floor(&job.tables[0]));
    (benchmark.record_bytes, benchmark.windows) = (Some(RECORD_BYTES), 30);
    measure(arguments, &benchmark)
}

fn words(arguments: &Arguments, name: &str, table: &Table) -> CommandResult {
    let run = |settings: RunSettings, totals: Totals| {
        let RunSettings { workers, order, bundle_rows_max } = settings;
        let options = RunOptions { workers, order, bundle_rows_max, ..RunOptions::default() };
        wordcount::run(table, options, totals)
    };
    let benchmark = Benchmark {
        name,
        records: table.num_rows(),
        record_bytes: Some(wordcount::RECORD_BYTES),
        floor: Some(Box::new(|| floors::wordcount(table))),
        run: Box::new(run),
        column: "n",
        windows: 30,
    };
    measure(arguments, &benchmark)
}

fn joined(
    arguments: &Arguments,
    name: &str,
    settings: &join::Settings,
    floor: fn(&Table, &Table, i64) -> u64,
) -> CommandResult {
    let job = join::job(join::tables(settings), settings);
    let floor = || floor(&job.tables[0], &job.tables[1], settings.reach_ms);
    measure(arguments, &Benchmark::of_job(name, &job, ROWS).with_floor(floor))
}

/// Runs the floor and every variant, alternating, and checks every result.
fn measure(arguments: &Arguments, benchmark: &Benchmark<'_>) -> CommandResult {
    let mut floor = Measured::default();
    let mut variants = Vec::new();
    for &order in &arguments.orders {
        for &workers in &arguments.workers {
            variants.push(((order, workers), Measured::default()));
        }
    }
    let resident_before = resident_bytes("VmRSS");
    let mut expected = None;
    for repetition in 0..=arguments.repeat {
        if let Some(by_hand) = &benchmark.floor {
            let sum = floor.time(benchmark.records, by_hand) * benchmark.windows;
            expected = Some(sum);
        }
        for ((order, workers), measured) in &mut variants {
            let (order, workers) = (*order, *workers);
            let settings = RunSettings { workers, order, bundle_rows_max: 65_536 };
            let totals = Totals::of(benchmark.column);
            measured.run(benchmark.records, || (benchmark.run)(settings, totals.clone()))?;
            let sum = totals.sum();
            if *expected.get_or_insert(sum) != sum {
                let name = benchmark.name;
                return Err(
                    format!("{name}, {order}, {workers} workers: not the floor's result").into()
                );
            }
        }
        if repetition == 0 {
            floor = Measured::default();
            variants.iter_mut().for_each(|(_, measured)| *measured = Measured::default());
        }
    }
    report(benchmark, &floor, &variants);
    let grown = resident_bytes("VmHWM").saturating_sub(resident_before);
    println!(
        "{:12} | result {}, memory at most {} MB beyond the input",
        benchmark.name,
        expected.unwrap_or(0),
        grown >> 20
    );
    Ok(())
}

type Variants = [((OrderContract, usize), Measured)];

fn report(benchmark: &Benchmark<'_>, floor: &Measured, variants: &Variants) {
    let name = benchmark.name;
    let speed = |millions: f64| match benchmark.record_bytes {
        Some(bytes) => format!("{millions:7.2} M ({:6.2} GB)", millions * bytes as f64 / 1e3),
        None => format!("{millions:7.2} M"),
    };
    if benchmark.floor.is_some() {
        println!("{name:12} | by hand              | {}", speed(floor.cpu()));
    }
    for ((order, workers), measured) in variants {
        let ratio = match benchmark.floor {
            Some(_) => format!("{:4.2}", measured.cpu() / floor.cpu()),
            None => "   -".to_owned(),
        };
        let (low, high) = measured.cpu_spread();
        let variant = format!("{order}, {workers} workers");
        println!(
            "{name:12} | {variant:20} | {} ({low:.2} to {high:.2}) | {ratio} | {}",
            speed(measured.cpu()),
            speed(measured.wall())
        );
    }
}

/// What the system says about this process's memory; 0 where it says nothing.
fn resident_bytes(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kibibytes.unwrap_or(0) << 10
}
