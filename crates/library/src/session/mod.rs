//! SQL sessions: scripts of statements, and queries whose rows come back as Arrow batches.
//!
//! A session keeps a catalog and settings. A script is parsed and planned as a whole before its
//! first job starts, so that a mistake in the last statement does not show after an hour; then its
//! statements are executed in order. Each INSERT, statement set and SELECT is a job of its own;
//! what they print goes to an [`Observer`].
//!
//! SELECTs are awaited. INSERTs and statement sets run at the same time, on the same workers and
//! within one memory limit, unless `SET 'table.dml-sync' = 'true'` stands before them: then each is
//! awaited before the next statement begins. A statement that has to do with what an INSERT writes
//! which need not have ended is refused when the script is planned. A job that fails stops the
//! others, gracefully, unless [`SessionOptions::keep_going`] is set.
//!
//! ```
//! use thalweg::session::Session;
//! let mut session = Session::default();
//! session.execute("CREATE VIEW squares AS SELECT n * n AS square FROM (VALUES (2), (3)) AS t(n)")?;
//! let batches = session.execute("SELECT square FROM squares WHERE square > 4")?;
//! assert_eq!(batches[0].num_rows(), 1);
//! # Ok::<(), thalweg::Error>(())
//! ```
//!
//! A session does not keep jobs in the background: [`Session::run_script`] and
//! [`Session::execute`] return when the last job of the text has ended.

mod connections;
mod job_names;
mod limit;
mod live_tables;
mod observer;
mod options;
mod registered;
mod rehearsal;
mod replayed_rows;
mod script_jobs;
mod settings;
mod shown_rows;
mod state_tables;
mod statement;
mod steps;
mod trial;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::RecordBatch;
pub use chrono_tz::Tz;
use thalweg_core::connector::{Connector, Connectors};
use thalweg_core::shim::{SharedClock, SystemClock};
use thalweg_core::{Error, Result, Sink, Source, TableSchema};
pub use thalweg_expr::{Executor, ScalarFunction, Task};
pub use thalweg_operators::aggregate::{UserAccumulator, UserAggregate};
pub use thalweg_plan::ResultTable;
use thalweg_plan::ast::{Query, Statement, StatementKind};
pub use thalweg_plan::catalog::{KEYS as SETTING_KEYS, SettingKey, substitute};
pub use thalweg_plan::completion::{Completion, CompletionKind, Completions};
pub use thalweg_plan::explain::ExplainFormat;
use thalweg_plan::flink_check::{self, Finding, FlinkCluster, Queries, Severity, Translation};
use thalweg_plan::flink_move::MovableJob;
pub use thalweg_plan::layout::formatted;
use thalweg_plan::parser::parse_script_with_notes;
pub use thalweg_plan::processes::ProcessTable;
use thalweg_plan::{Planner, PlannerOptions};
use thalweg_runtime::Report;

pub use connections::{Connection, connections};
pub use live_tables::ReadableTable;
pub use observer::{JobDescription, Observer};
pub use options::SessionOptions;
pub use shown_rows::{ShownRow, ShownRows};
pub use statement::PlannedJob;
pub use steps::{MaterializedTable, StatementClass, materialized_table_of};
pub use trial::{Trial, TrialOutput};

use crate::interleaving::{Interleaving, Recording};
use crate::jobs::{Interface, ResumeFrom};
use crate::pipeline::Collect;

use rehearsal::{Rehearsal, Rehearsing};
pub(crate) use rehearsal::{inserts_of, located};
use script_jobs::ScriptJobs;

/// A catalog, settings, and what is needed to run statements.
pub struct Session {
    pub(crate) planner: Planner,
    sources: Arc<registered::RegisteredSources>,
    live: Arc<live_tables::Live>,
    clock: SharedClock,
    options: SessionOptions,
    recording: Option<Recording>,
    /// What the jobs to come have to follow, if anything.
    replays: Option<VecDeque<Interleaving>>,
    /// How often a job had each name.
    names: HashMap<String, usize>,
    /// The one of several jobs that goes back to the snapshot in a folder.
    resumed_job: Option<String>,
}

/// What a script did.
#[derive(Debug, Default)]
pub struct ScriptReport {
    /// Its jobs in order.
    pub jobs: Vec<JobReport>,
}

/// What a job did.
#[derive(Debug)]
pub struct JobReport {
    /// What ran.
    pub job: JobDescription,
    /// What it did.
    pub report: Report,
}

impl Default for Session {
    /// A session in the current folder, with every option at its default.
    fn default() -> Self {
        Session::new(SessionOptions::default()).expect("the defaults are valid")
    }
}

impl Session {
    /// A session with these options.
    pub fn new(options: SessionOptions) -> Result<Session> {
        Session::over(options, Arc::new(SystemClock::new()), |connector| connector)
    }

    /// A session with these options that goes by this clock, and to which each connector is what
    /// `wrap` makes of it.
    pub(crate) fn over(
        options: SessionOptions,
        clock: SharedClock,
        wrap: impl FnMut(Arc<dyn Connector>) -> Arc<dyn Connector>,
    ) -> Result<Session> {
        if let Some(text) = &options.memory_limit {
            settings::parse_memory_limit(text)?;
        }
        let sources = Arc::new(registered::RegisteredSources::default());
        let planner_options = PlannerOptions {
            base_dir: options.base_dir.clone(),
            allowed_roots: options.allowed_roots.clone(),
            secrets_folder: options.secrets_folder.clone(),
            is_remote: options.interface == Interface::Server,
            inlets: options.inlets.clone(),
            workers: options.workers.unwrap_or_else(settings::cores),
            clock: Arc::clone(&clock),
        };
        let mut connectors = settings::builtin_connectors(&options).map(wrap);
        if let Some(trial) = &options.trial {
            connectors = connectors.map(|connector| trial.wrap(connector));
        }
        if let Some(allowed) = &options.allowed_connectors {
            connectors.retain(|name| allowed.iter().any(|allowed| allowed == name));
        }
        let mut planner = Planner::new(connectors, planner_options);
        planner.register_connector(sources.clone());
        planner.register_connector(Arc::new(state_tables::StateTables));
        let live = Arc::new(live_tables::Live::new(Arc::clone(&options.live), Vec::new()));
        planner.register_connector(live.clone());
        for (key, value) in &options.settings {
            planner.set(key, value)?;
        }
        let recording = options.record.clone().map(Recording::new);
        let replays = match &options.replay {
            Some(path) => Some(Interleaving::read(path)?.into()),
            None => None,
        };
        let (names, resumed_job) = (HashMap::new(), None);
        Ok(Session {
            planner,
            sources,
            live,
            clock,
            options,
            recording,
            replays,
            names,
            resumed_job,
        })
    }

    /// A session with the same declarations, settings and registrations. What is declared or
    /// registered in one later does not show in the other, except functions, which they share.
    /// Recordings stay with the session that was opened with them.
    #[must_use]
    pub fn fork(&self) -> Session {
        let mut planner = self.planner.fork();
        let sources = Arc::new(self.sources.fork());
        planner.register_connector(sources.clone());
        let live = Arc::new(self.live.fork());
        planner.register_connector(live.clone());
        Session {
            planner,
            sources,
            live,
            clock: self.clock.clone(),
            options: self.options.clone(),
            recording: None,
            replays: None,
            names: self.names.clone(),
            resumed_job: None,
        }
    }

    /// Runs the statements of a script, and returns when all of its jobs have ended. The text is
    /// parsed and planned as a whole first: an error in any statement runs none.
    ///
    /// # Errors
    /// The first failure of a job, or of a statement that could not begin; the observer is notified
    /// of all of them.
    pub fn run_script(&mut self, text: &str, observer: &mut dyn Observer) -> Result<ScriptReport> {
        let script = parse_script_with_notes(text)?;
        for note in &script.notes {
            observer.note(&Error::plan(note.message.clone()).at(note.span));
        }
        observer.planning(true);
        let rehearsed = self.rehearse(&script.statements, ExplainFormat::Text);
        observer.planning(false);
        let rehearsal = rehearsed?;
        self.resumed_job = self.options.resume.job_of_several(&rehearsal.with_snapshots)?;
        let mut jobs = ScriptJobs::new(&rehearsal, &self.options)?;
        for statement in &script.statements {
            if jobs.is_over || observer.is_stopped() {
                break;
            }
            if let Err(error) = self.run_statement(statement, &mut jobs, observer) {
                jobs.refuse(located(error, statement), observer);
            }
            for note in self.planner.take_notes() {
                observer.note(&Error::plan(note).at(statement.span));
            }
        }
        self.finish_jobs(&mut jobs, observer);
        Ok(ScriptReport { jobs: jobs.reports()? })
    }

    /// Runs statements as [`Session::run_script`] does, and returns what the last one that has a
    /// result (SELECT, SHOW, DESCRIBE, EXPLAIN) printed. Its columns have the Arrow types of
    /// [`thalweg_core::types`].
    pub fn execute(&mut self, sql: &str) -> Result<Vec<RecordBatch>> {
        let mut collector = Collector::default();
        self.run_script(sql, &mut collector)?;
        Ok(collector.rows.batches())
    }

    /// The names and SQL types of a query's result.
    pub fn result_schema(&self, query: &str) -> Result<TableSchema> {
        self.planner.result_schema(&one_query(query)?)
    }

    /// What the result of a query is like, and whether the query ends by itself. Nothing is opened.
    ///
    /// # Errors
    /// Those of planning.
    pub fn describe_query(&self, query: &str) -> Result<(ResultTable, bool)> {
        self.planner.describe_select(&one_query(query)?)
    }

    /// Whether jobs to come may drop state that a changed query has no use for, and replace what an
    /// earlier run has written.
    pub fn set_replaced(&mut self, drop_state: bool, overwrite: bool) {
        self.options.drop_state = drop_state;
        self.options.overwrite = overwrite;
    }

    /// What jobs to come are called, unless `pipeline.name` is set, and what they resume from.
    pub fn set_job(&mut self, name: Option<String>, resume: ResumeFrom) {
        self.options.name = name;
        self.options.resume = resume;
    }

    /// Makes a function known to SQL, in place of any of the same name.
    pub fn register_function(&mut self, function: ScalarFunction) {
        self.planner.register_function(function);
    }

    /// Makes a function known to SQL that runs on threads of its own, in place of any of the same
    /// name: no worker waits for it.
    pub fn register_function_on(&mut self, executor: Arc<dyn Executor>, function: ScalarFunction) {
        self.planner.register_function_on(executor, function);
    }

    /// Makes an aggregate function known to SQL, in place of any of the same name.
    pub fn register_aggregate(&mut self, aggregate: Arc<dyn UserAggregate>) {
        self.planner.register_aggregate(aggregate);
    }

    /// Gives a name to a relation that a process function makes of another one, in place of any of
    /// the same name. Queries read it as a view.
    pub fn register_process(&mut self, name: &str, process: Arc<dyn ProcessTable>) {
        self.planner.register_process(name, process);
    }

    /// Makes a connector known, in place of any of the same name, also of one that comes with the
    /// engine. Its description is what SHOW CONNECTORS and DESCRIBE CONNECTOR answer.
    pub fn register_connector(&mut self, connector: Arc<dyn Connector>) {
        self.planner.register_connector(connector);
    }

    /// Lets statements read materialized tables that jobs of other sessions keep current, each in
    /// the database of its job. Those that were readable before are so no more.
    ///
    /// # Errors
    /// If the session has declared something of the same name.
    pub fn set_readable(&mut self, tables: Vec<ReadableTable>) -> Result<()> {
        live_tables::declare(&mut self.planner, &tables)?;
        self.live = Arc::new(live_tables::Live::new(Arc::clone(&self.options.live), tables));
        self.planner.register_connector(self.live.clone());
        Ok(())
    }

    /// True if a statement that was planned since [`Session::set_readable`] names one of those
    /// tables.
    pub fn names_readable(&self) -> bool {
        self.live.is_named()
    }

    /// When the oldest of the versions was made that the last statement has read, in milliseconds
    /// since 1970; none if it has read no materialized table.
    pub fn read_as_of_ms(&self) -> Option<i64> {
        self.live.as_of_ms()
    }

    /// The connectors that tables can name.
    pub fn connectors(&self) -> &Connectors {
        self.planner.connectors()
    }

    /// Gives a name to something that makes sources, in place of any of the same name. A table
    /// reads from it by `WITH ('connector' = 'registered', 'source' = 'name')`; each job asks for a
    /// source of its own, and planning for one more, to know whether it ends. Its batches must have
    /// the columns that the table declares (without the computed ones).
    pub fn register_source(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<Box<dyn Source>> + Send + Sync + 'static,
    ) {
        self.sources.add(name, Arc::new(make));
    }

    /// Plans a script without running or opening anything, and checks the options of every table,
    /// also where no statement uses it; how many statements it has.
    pub fn validate(&mut self, text: &str) -> Result<usize> {
        let statements = parse_script_with_notes(text)?.statements;
        self.rehearse(&statements, ExplainFormat::Text)?;
        rehearsal::check_tables(&mut self.planner.fork(), &statements)?;
        Ok(statements.len())
    }

    /// What can be written at a place of a text, which is counted in characters. The text need not
    /// be right.
    pub fn complete(&self, text: &str, place: usize) -> Completions {
        self.planner.complete(text, place)
    }

    /// What Apache Flink would refuse or ignore in a script that is valid here, with places.
    pub fn flink_findings(&self, text: &str, cluster: &FlinkCluster) -> Result<Vec<Finding>> {
        flink_check::findings(text, &self.planner, cluster)
    }

    /// What a Flink that has no more jars than those that come with it would refuse, with places.
    pub fn flink_refusals(&self, text: &str) -> Result<Vec<Error>> {
        let findings = self.flink_findings(text, &FlinkCluster::default())?;
        let refused = findings.into_iter().filter(|f| f.severity == Severity::Refused);
        Ok(refused.map(|f| Error::plan(f.message).at(f.span)).collect())
    }

    /// A script as Apache Flink takes it, and what is lost in it. The script must be valid here.
    pub fn translate_for_flink(
        &self,
        text: &str,
        cluster: &FlinkCluster,
        queries: Queries,
    ) -> Result<Translation> {
        flink_check::translate(text, &self.planner, cluster, queries)
    }

    /// The job of a script that is to be moved to Apache Flink. The script must be valid here.
    ///
    /// # Errors
    /// If it has no job or several, or its job cannot be moved.
    pub fn movable_job(&self, text: &str) -> Result<MovableJob> {
        MovableJob::new(text, &self.planner)
    }

    /// How each INSERT, statement set and SELECT of a script would run.
    pub fn explain(&mut self, text: &str, format: ExplainFormat) -> Result<Vec<String>> {
        let statements = parse_script_with_notes(text)?.statements;
        Ok(self.rehearse(&statements, format)?.plans)
    }

    /// Plans statements in a copy of the catalog.
    fn rehearse(&self, statements: &[Statement], format: ExplainFormat) -> Result<Rehearsal> {
        let planner = (self.planner.fork(), &self.options);
        Rehearsing::new(planner, self.names.clone(), format).run(statements)
    }
}

/// The one query that a text has to be.
fn one_query(text: &str) -> Result<Query> {
    let statements = parse_script_with_notes(text)?.statements;
    let [statement] = &statements[..] else {
        return Err(Error::plan("one query was expected"));
    };
    match &statement.kind {
        StatementKind::Select(query) => Ok(query.clone()),
        _ => Err(Error::plan("a query was expected").at(statement.span)),
    }
}

/// Keeps the rows of the last result.
#[derive(Default)]
struct Collector {
    rows: Collect,
}

impl Observer for Collector {
    fn result(&mut self, _table: &ResultTable, _zone: Tz) -> Result<Box<dyn Sink>> {
        self.rows = Collect::new();
        Ok(Box::new(self.rows.sink()))
    }
    fn explanation(&mut self, text: &str) -> Result<()> {
        let (schema, batch) =
            statement::text_rows(&["result".to_owned()], &[vec![text.to_owned()]])?;
        let table = ResultTable { schema, has_updates: false };
        self.result(&table, Tz::UTC)?.write(&batch, None)
    }
}
