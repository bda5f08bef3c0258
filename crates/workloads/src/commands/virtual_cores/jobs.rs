//! What runs on virtual cores: three of StreamBox's benchmarks as pipelines, its join, and queries
//! of NEXMark.
//!
//! Jobs of SQL are planned by a session like any other; the graph is taken away when it is about to
//! start. Tables lie in memory, read once from the sources that the planner opened, and a number of
//! sources share the batches of each. A graph can't be copied, so it is planned as often as it has
//! sources.

use arrow_array::RecordBatch;
use thalweg::bench::{self, BenchOptions, Preset};
use thalweg::pipeline::MemorySource;
use thalweg::session::{JobDescription, Observer, ResultTable, Session, SessionOptions, Tz};
use thalweg::{Error, Result, Sink};
use thalweg_core::Source;
use thalweg_core::connector::DiscardSink;
use thalweg_core::graph::{Graph, Input, Stage, StageId, StageKind};
use thalweg_workloads::streambox::join::{self, Settings};
use thalweg_workloads::streambox::pipelines::{Benchmark, Reading, Variation, graph, table};
use thalweg_workloads::streambox::{Job as Tables, Table};

use super::super::totals::Totals;

/// A job that can be run as often as one likes.
pub enum Job {
    /// A pipeline over records.
    Pipeline(Benchmark, Table),
    /// A script over tables in memory.
    Script(Script),
}

impl Job {
    /// The job of this name over about this many million records.
    ///
    /// # Errors
    /// If there is none, or it can't be planned.
    pub fn named(name: &str, millions: u64) -> Result<Job> {
        let pipelines = Benchmark::of_names(&[name.to_owned()]).next();
        if let Some(benchmark) = pipelines {
            let records = table(benchmark, &Variation::with_records(1_000_000, millions));
            return Ok(Job::Pipeline(benchmark, records));
        }
        let plan: Plan = match name {
            "join" => {
                let settings = Settings::unique(millions * 500_000);
                let tables = join::job(join::tables(&settings), &settings);
                Box::new(move || of_tables(&tables))
            }
            query => {
                let (preset, query) = match query.strip_prefix("peer/") {
                    Some(query) => (Preset::Peer, query),
                    None => (Preset::Nexmark, query),
                };
                let options = BenchOptions {
                    events: millions * 1_000_000,
                    preset,
                    ..BenchOptions::default()
                };
                let query = bench::find(preset, query)?;
                let script = bench::Benchmark::new(query, &options)?.script().to_owned();
                Box::new(move || taken(Session::new(SessionOptions::default())?, &script))
            }
        };
        Script::new(plan).map(Job::Script)
    }

    /// How many rows go in.
    pub fn num_rows(&self) -> usize {
        match self {
            Job::Pipeline(_, records) => records.num_rows(),
            Job::Script(script) => script.inputs.iter().flatten().map(RecordBatch::num_rows).sum(),
        }
    }

    /// A graph of it that has not run.
    ///
    /// # Errors
    /// If it can't be planned.
    pub fn graph(&self, reading: Reading) -> Result<Graph> {
        match self {
            Job::Pipeline(benchmark, records) => {
                graph(*benchmark, records, reading, Totals::of(benchmark.checked()))
            }
            Job::Script(script) => script.graph(reading.sources.max(1)),
        }
    }
}

/// Makes a graph of a script's job.
type Plan = Box<dyn Fn() -> Result<Graph>>;

/// A script and what its sources bring.
pub struct Script {
    plan: Plan,
    inputs: Vec<Vec<RecordBatch>>,
}

impl Script {
    fn new(plan: Plan) -> Result<Self> {
        let mut graph = plan()?;
        if !graph.gates.is_empty() {
            return Err(Error::unsupported("a source that waits for the end of another"));
        }
        let sources = graph.stages.iter_mut().filter_map(|stage| match &mut stage.kind {
            StageKind::Source { source, .. } => Some(source),
            _ => None,
        });
        let inputs = sources
            .map(|source| bench::read_all(source.as_mut(), BATCH_ROWS))
            .collect::<Result<_>>()?;
        Ok(Script { plan, inputs })
    }

    /// With this number of sources for each table.
    fn graph(&self, sources: usize) -> Result<Graph> {
        let plans = (0..sources).map(|_| (self.plan)()).collect::<Result<Vec<_>>>()?;
        let mut others: Vec<_> = plans.into_iter().map(|graph| graph.stages.into_iter()).collect();
        let mut graph = Graph::default();
        // By stage of the plan: those that stand for it.
        let mut places: Vec<Vec<StageId>> = Vec::new();
        let mut inputs = self.inputs.iter();
        while let Some(stages) = others.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>() {
            let is_source = matches!(stages[0].kind, StageKind::Source { .. });
            let batches = if is_source { inputs.next() } else { None };
            let stages = stages.into_iter().take(if is_source { sources } else { 1 });
            let added = stages.enumerate().map(|(number, mut stage)| {
                if let (StageKind::Source { source, .. }, Some(batches)) =
                    (&mut stage.kind, batches)
                {
                    let share = batches.iter().skip(number).step_by(sources).cloned().collect();
                    *source = Box::new(MemorySource::replay(share));
                }
                add(&mut graph, (number, stage), &places)
            });
            let added = added.collect();
            places.push(added);
        }
        Ok(graph)
    }
}

/// Adds a stage whose inputs are all those that stand for its inputs in the plan.
fn add(graph: &mut Graph, (number, stage): (usize, Stage), places: &[Vec<StageId>]) -> StageId {
    let of_input = |input: &Input| {
        let port = input.port;
        places[input.from.0].iter().map(move |&from| Input { from, port })
    };
    let inputs = stage.inputs.iter().flat_map(of_input).collect();
    graph.add(format!("{}-{number}", stage.id), stage.name, stage.kind, inputs)
}

/// Rows of a batch in memory: sources that share a table take turns by these.
const BATCH_ROWS: usize = 16 * 1024;

fn of_tables(job: &Tables) -> Result<Graph> {
    let (session, script) = job.session(SessionOptions::default())?;
    taken(session, &script)
}

/// The graph of a script's last job. Its results are dropped.
fn taken(mut session: Session, script: &str) -> Result<Graph> {
    let mut observer = Taken { graph: None };
    session.run_script(script, &mut observer)?;
    observer.graph.ok_or_else(|| Error::internal("a script without a job"))
}

struct Taken {
    graph: Option<Graph>,
}

impl Observer for Taken {
    fn result(&mut self, _: &ResultTable, _: Tz) -> Result<Box<dyn Sink>> {
        Ok(Box::new(DiscardSink::new("nowhere")))
    }
    fn explanation(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    fn starting(&mut self, _: &JobDescription, graph: &mut Graph) {
        let mut idle = Graph::default();
        let source: Box<dyn Source> = Box::new(MemorySource::replay(Vec::new()));
        let nothing =
            idle.add("nothing", "nothing", StageKind::Source { source, assigner: None }, vec![]);
        let sink = StageKind::Sink(Box::new(DiscardSink::new("nowhere")));
        idle.add("nowhere", "nowhere", sink, vec![Input { from: nothing, port: 0 }]);
        self.graph = Some(std::mem::replace(graph, idle));
    }
}
