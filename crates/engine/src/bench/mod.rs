//! The queries of NEXMark over events that lie in memory, and what they cost.
//!
//! `thalweg bench nexmark` is made of this, and so are the comparisons in `benches`, which look at
//! the same events ([`Benchmark::inputs`]) with loops written by hand.
//!
//! **How it measures.** Each table of events is made once, before any clock starts: the columns
//! that the query reads, as Arrow batches. A run reads them from memory and hands its results to a
//! sink that counts them. With [`BenchOptions::rate`] events are made while the query runs, each at
//! its time, and latency is what matters.
//!
//! Sources that are read at the same time do not wait for each other, so a query over several
//! tables sees more or fewer changes from run to run in contract `epoch`; what is left of its
//! result is always the same ([`Measurement::fingerprint`]).
//!
//! It does not check results against anything: the tests of the queries do
//! (`cargo test -p thalweg --test queries nexmark_queries`).

mod inputs;
mod options;
mod queries;
mod resources;
mod scratch;
mod tally;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono_tz::Tz;
use thalweg_core::graph::Graph;
use thalweg_core::{Error, Result, Sink};
use thalweg_plan::ResultTable;
use thalweg_plan::catalog::substitute;
use thalweg_runtime::metrics::LatencyPercentiles;
use thalweg_runtime::{JobControl, Report, TaskLengths};

use self::inputs::Inputs;
pub use self::inputs::{Input, read_all};
pub use self::options::{BenchOptions, Preset};
pub use self::queries::{Query, find, queries};
use self::resources::Resources;
use self::scratch::Scratch;
use self::tally::Tally;
use crate::session::{JobDescription, Observer, Session, SessionOptions};

/// A query that is ready to be run, as often as one likes.
pub struct Benchmark {
    query: Query,
    options: BenchOptions,
    /// The statements with their parameters put in.
    script: String,
    scratch: Scratch,
    inputs: Inputs,
}

/// What one run of a query did and cost.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The query.
    pub query: &'static str,
    /// How many events there were, whether the query reads them or not.
    pub events: u64,
    /// How many rows it read from its tables.
    pub rows_in: u64,
    /// How many rows it wrote: results, and changes of results.
    pub rows_out: u64,
    /// How many of these take a row back or are its old form.
    pub rows_retracted: u64,
    /// From start to end.
    pub elapsed: Duration,
    /// How long processors worked for this process meanwhile.
    pub processor_time: Duration,
    /// The most that its operators kept, in bytes.
    pub state_peak_bytes: usize,
    /// The most that the process had resident during the run, its inputs included; where the
    /// system reports it.
    pub resident_peak_bytes: Option<usize>,
    /// How late results were, where events came at a rate.
    pub latency: Option<LatencyPercentiles>,
    /// How long the tasks of workers took, by kind of work.
    pub tasks: Vec<TaskLengths>,
    /// A number that stands for what is left of the result when all changes were applied, whatever
    /// the sequence; `None` unless it was asked for.
    pub fingerprint: Option<u64>,
}

impl Measurement {
    /// Rows read in a second.
    pub fn rows_per_second(&self) -> f64 {
        self.rows_in as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Rows read in a second of a processor that works.
    pub fn rows_per_processor_second(&self) -> f64 {
        self.rows_in as f64 / self.processor_time.as_secs_f64().max(1e-9)
    }
}

impl Benchmark {
    /// Prepares a query. Its events are made by the first run.
    ///
    /// # Errors
    /// If the query can't be planned, for instance since it needs what is not there yet.
    pub fn new(query: &Query, options: &BenchOptions) -> Result<Benchmark> {
        let scratch = Scratch::new()?;
        let parameters = BTreeMap::from([
            ("events".to_owned(), options.table_options()),
            ("side_input".to_owned(), scratch.side_input()?),
        ]);
        let script = substitute(query.text, &parameters)?;
        let benchmark = Benchmark {
            query: *query,
            options: options.clone(),
            script,
            scratch,
            inputs: Inputs::default(),
        };
        benchmark.session()?.validate(&benchmark.script)?;
        Ok(benchmark)
    }

    /// The same query by this many workers, over the same events where these have been made: they
    /// lie in memory once.
    ///
    /// # Errors
    /// As [`Benchmark::new`].
    pub fn with_workers(&self, workers: usize) -> Result<Benchmark> {
        let options = BenchOptions { workers: Some(workers), ..self.options.clone() };
        Ok(Benchmark { inputs: self.inputs.clone(), ..Benchmark::new(&self.query, &options)? })
    }

    /// The statements that run, to which the places of errors refer.
    pub fn script(&self) -> &str {
        &self.script
    }

    /// The events, in the order of the query's sources; nothing before the first run, or where
    /// events come at a rate.
    pub fn inputs(&self) -> &[Input] {
        self.inputs.all()
    }

    /// Runs the query. `watch` is called once the job runs.
    ///
    /// # Errors
    /// What the job says, or that it was stopped before its end.
    pub fn run(&mut self, watch: &mut dyn FnMut(&JobControl)) -> Result<Measurement> {
        let mut session = self.session()?;
        let mut run = Run {
            inputs: self.options.rate.is_none().then_some(&mut self.inputs),
            tally: Tally::new(self.options.check),
            watch,
            problem: None,
            resources: None,
            spent: None,
        };
        let outcome = session.run_script(&self.script, &mut run);
        let Run { tally, problem, spent, .. } = run;
        if let Some(error) = problem {
            return Err(error);
        }
        let job = outcome?.jobs.pop().ok_or_else(|| Error::internal("a query without a job"))?;
        if job.report.cancelled {
            return Err(Error::cancelled());
        }
        let spent = spent.ok_or_else(|| Error::internal("a job that did not end"))?;
        Ok(self.measurement(&job.report, &tally, spent))
    }

    fn measurement(&self, report: &Report, tally: &Tally, spent: resources::Spent) -> Measurement {
        let counts = tally.counts();
        Measurement {
            query: self.query.name,
            events: self.options.events,
            rows_in: report.metrics.rows_in(),
            rows_out: report.metrics.rows_out(),
            rows_retracted: counts.retracted,
            elapsed: report.elapsed,
            processor_time: spent.processor_time,
            state_peak_bytes: report.state_peak_bytes,
            resident_peak_bytes: spent.resident_peak_bytes,
            latency: self.options.rate.and(report.latency),
            tasks: report.metrics.tasks.clone(),
            fingerprint: counts.fingerprint,
        }
    }

    fn session(&self) -> Result<Session> {
        let folder = self.scratch.path().to_owned();
        Session::new(SessionOptions {
            name: Some(self.query.name.to_owned()),
            base_dir: folder.clone(),
            allowed_roots: vec![folder],
            settings: vec![("pipeline.order".to_owned(), self.options.order.to_string())],
            workers: self.options.workers,
            ..SessionOptions::default()
        })
    }
}

/// One run as its session sees it.
struct Run<'a> {
    /// Where events lie in memory.
    inputs: Option<&'a mut Inputs>,
    tally: Tally,
    watch: &'a mut dyn FnMut(&JobControl),
    problem: Option<Error>,
    resources: Option<Resources>,
    spent: Option<resources::Spent>,
}

impl Observer for Run<'_> {
    fn result(&mut self, _table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.tally.sink()))
    }

    fn explanation(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }

    fn starting(&mut self, _job: &JobDescription, graph: &mut Graph) {
        if let Some(inputs) = &mut self.inputs {
            self.problem = inputs.put_into(graph).err();
        }
        self.resources = Some(Resources::now());
    }

    fn started(&mut self, _job: &JobDescription, control: &JobControl) {
        if self.problem.is_some() {
            control.cancel();
        }
        (self.watch)(control);
    }

    fn ended(&mut self, _job: &JobDescription, _result: &Result<Report>) {
        self.spent = self.resources.take().map(Resources::spent);
    }
}
