//! `thalweg bench`: how fast this machine runs known queries.
//!
//! The table goes to standard output when all queries are done; progress is shown on a terminal
//! only. A query that can't be planned yet is passed over if nobody asked for it by name, and the
//! table says so.

mod arguments;
mod table;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use thalweg::bench::{BenchOptions, Benchmark, Measurement, Query, find, queries};
use thalweg_core::{Error, Result};

pub use self::arguments::BenchArguments;
use self::arguments::{NexmarkArguments, Workload};
use self::table::QueryOutcome;
use super::arguments::ColorChoice;
use super::exit::Failure;
use super::interrupt::Interrupt;
use super::progress::Progress;
use super::screen::Screen;
use super::terminal::print;

/// Measures; returns the exit status.
pub fn bench(arguments: &BenchArguments) -> u8 {
    let Workload::Nexmark(arguments) = &arguments.workload;
    match nexmark(arguments) {
        Ok(()) => 0,
        Err(failure) => failure.report(None, ColorChoice::Auto),
    }
}

fn nexmark(arguments: &NexmarkArguments) -> Result<(), Failure> {
    let options = BenchOptions {
        events: arguments.events,
        preset: arguments.preset,
        rate: arguments.rate,
        workers: arguments.workers.map(usize::from),
        order: arguments.order,
        check: arguments.check,
    };
    let wanted = arguments.queries.iter().map(|name| find(options.preset, name));
    let mut wanted: Vec<&Query> = wanted.collect::<Result<_>>()?;
    let are_named = !wanted.is_empty();
    if !are_named {
        wanted.extend(queries(options.preset));
    }
    let mut bench = Bench::new(arguments, options)?;
    let mut outcomes = Vec::new();
    for query in wanted {
        outcomes.push(match bench.measure(query) {
            Err(failure) if !are_named && failure.error.is_plan_error() => {
                QueryOutcome::PassedOver(query.name, failure.error.to_string())
            }
            measured => QueryOutcome::Measured(measured?),
        });
    }
    if bench.lines.is_standard_output() {
        return Ok(());
    }
    Ok(print(&table::table(&outcomes, &bench.options))?)
}

/// What all queries have in common.
struct Bench {
    options: BenchOptions,
    repeat: u16,
    lines: Lines,
    interrupt: Interrupt,
    /// Where progress is shown, if a terminal shows it.
    screen: Option<Arc<Screen>>,
}

impl Bench {
    fn new(arguments: &NexmarkArguments, options: BenchOptions) -> Result<Bench> {
        Ok(Bench {
            options,
            repeat: arguments.repeat,
            lines: Lines::open(arguments.json.as_deref())?,
            interrupt: Interrupt::listen()?,
            screen: std::io::stderr().is_terminal().then(Arc::default),
        })
    }

    /// Runs a query as often as is wanted; the run in the middle, by the time of processors.
    fn measure(&mut self, query: &Query) -> Result<Measurement, Failure> {
        let mut benchmark = Benchmark::new(query, &self.options)?;
        if let Some(screen) = &self.screen {
            screen.draw(&format!("{}: making events", query.name));
        }
        let has_warm_up = self.repeat > 1;
        let mut runs = Vec::new();
        for number in 0..self.repeat + u16::from(has_warm_up) {
            let run = self.run(&mut benchmark);
            let text = || Some(benchmark.script().to_owned());
            let run = run.map_err(|error| Failure { error, text: text() })?;
            if number > 0 || !has_warm_up {
                self.lines.write(&table::json(&run, &self.options))?;
                runs.push(run);
            }
        }
        runs.sort_by_key(|run| run.processor_time);
        Ok(runs.swap_remove(runs.len() / 2))
    }

    fn run(&self, benchmark: &mut Benchmark) -> Result<Measurement> {
        let mut progress = None;
        let measured = benchmark.run(&mut |control| {
            self.interrupt.watch(0, control);
            progress = self.screen.as_ref().map(|screen| Progress::of(screen, control));
        });
        self.interrupt.forget(0);
        drop(progress);
        measured
    }
}

/// Where lines of JSON go.
enum Lines {
    Nowhere,
    StandardOutput,
    File(File, String),
}

impl Lines {
    fn open(path: Option<&Path>) -> Result<Lines> {
        let Some(path) = path else { return Ok(Lines::Nowhere) };
        if path.as_os_str() == "-" {
            return Ok(Lines::StandardOutput);
        }
        let name = path.display().to_string();
        let file = File::create(path)
            .map_err(|error| Error::io(format!("cannot write {name}: {error}")))?;
        Ok(Lines::File(file, name))
    }

    fn is_standard_output(&self) -> bool {
        matches!(self, Lines::StandardOutput)
    }

    fn write(&mut self, line: &str) -> Result<()> {
        match self {
            Lines::Nowhere => Ok(()),
            Lines::StandardOutput => print(line),
            Lines::File(file, name) => file
                .write_all(line.as_bytes())
                .map_err(|error| Error::io(format!("cannot write {name}: {error}"))),
        }
    }
}
